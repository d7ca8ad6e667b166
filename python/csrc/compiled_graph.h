// A compiled graph as Python calls it: one list of arguments in, one list of results out.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "python/csrc/signature.h"
#include "runtime/step_times.h"

namespace ipex::python {

class CompiledGraph {
 public:
  CompiledGraph(ipex::CompiledGraph compiled, Signature signature);

  // Takes the arguments out of the list, so that they are freed as soon as the call allows. Releases the GIL
  // while running. Raises UserError for arguments that do not fit.
  pybind11::list run(pybind11::list arguments) const;

  const CompileReport& report() const { return compiled_.report; }
  const Executable& executable() const { return *compiled_.executable; }
  const Signature& signature() const { return signature_; }
  // Per result: a tuple of strides, or None where it is no tensor or its strides depend on symbols.
  pybind11::list output_strides() const;

  // From now on every run notes when its steps begin and end. take_profile() stops that and hands out what
  // was noted since.
  void start_profile() { profiling_ = true; }
  std::vector<StepTimes::Event> take_profile();

 private:
  struct Call;
  void execute(Call& call) const;
  // The argument, or where its layout or kind does not fit, a copy that does.
  at::Tensor take_argument(const at::Tensor& tensor, int input, Call& call) const;
  // A call with tensors that only the dispatcher can read.
  pybind11::list run_wrapped(const Call& call) const;
  ipex::CompiledGraph compiled_;
  Signature signature_;
  std::vector<int> input_argument_;  // by graph input: position among the arguments
  std::vector<bool> is_static_;      // by graph input
  std::vector<bool> may_go_;         // by graph input: nothing but steps needs its memory
  std::atomic<bool> profiling_ = false;
  mutable std::mutex profile_mutex_;  // guards profile_
  mutable std::vector<StepTimes::Event> profile_;
};

}  // namespace ipex::python
