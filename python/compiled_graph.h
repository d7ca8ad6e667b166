// A compiled graph as Python calls it: one list of arguments in, one list of results out.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "python/signature.h"

namespace ipex::python {

class CompiledGraph {
 public:
  CompiledGraph(ipex::CompiledGraph compiled, Signature signature);

  // Takes the arguments out of the list, so that they are freed as soon as the call allows. Releases the GIL
  // while running. Raises UserError for arguments that do not fit.
  pybind11::list run(pybind11::list arguments) const;

  const CompileReport& report() const { return compiled_.report; }
  const Executable& executable() const { return *compiled_.executable; }
  // Per result: a tuple of strides, or None where it is no tensor or its strides depend on symbols.
  pybind11::list output_strides() const;

 private:
  struct Call;
  at::Tensor take_argument(const at::Tensor& tensor, int input, const int64_t* symbols) const;
  ipex::CompiledGraph compiled_;
  Signature signature_;
  std::vector<int> input_argument_;  // by graph input: position among the arguments
  std::vector<bool> is_static_;      // by graph input
};

}  // namespace ipex::python
