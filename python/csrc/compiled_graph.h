// A compiled graph that Python calls with a list of arguments and that returns a list of results.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "kernels/torch_ops/tensor_program.h"
#include "python/csrc/signature.h"
#include "runtime/step_times.h"

namespace ipex::python {

class CompiledGraph {
 public:
  CompiledGraph(ipex::CompiledGraph compiled, Signature signature);

  // Moves the arguments out of the list, so that each is freed after its last use in the call. Releases the
  // GIL while steps run. Throws UserError for arguments that do not match the graph.
  pybind11::list run(pybind11::list arguments) const;

  const CompileReport& report() const { return compiled_.report; }
  const Executable& executable() const { return *compiled_.executable; }
  const Signature& signature() const { return signature_; }
  // For each result a tuple of strides, or None if it is not a tensor or its strides depend on symbols.
  pybind11::list output_strides() const;

  // Every run after this call records when its steps begin and end. take_profile() stops the recording and
  // returns it.
  void start_profile() { profiling_ = true; }
  std::vector<StepTimes::Event> take_profile();

 private:
  void execute(torch_ops::TensorProgram::Call& call) const;
  // Runs a call with tensors that only the dispatcher can read.
  pybind11::list run_wrapped(pybind11::list arguments) const;
  ipex::CompiledGraph compiled_;
  Signature signature_;
  torch_ops::TensorProgram program_;
  std::vector<int> input_argument_;  // by graph input: position among the arguments
  std::atomic<bool> profiling_ = false;
  mutable std::mutex profile_mutex_;  // guards profile_
  mutable std::vector<StepTimes::Event> profile_;
};

}  // namespace ipex::python
