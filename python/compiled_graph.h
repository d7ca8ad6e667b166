// A compiled graph as Python calls it: one list of arguments in, one list of results out.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "runtime/size_expr.h"

namespace ipex::python {

// What the importer knows of the call beside the graph (importer.py, class Imported).
struct Signature {
  enum class Argument : uint8_t { kTensor, kInteger, kIgnored };
  struct SymbolSource {
    int argument = 0;
    enum { kValue, kSize, kStride } what = kValue;
    int dim = 0;
    int64_t divisor = 1;  // the symbol is the size divided by this, without rest
  };
  struct Result {
    enum { kNone, kConstant, kDim, kArgument, kSame, kTensor, kAlias, kArgumentView } kind = kNone;
    pybind11::object constant;  // kConstant
    SizeExpr dim = 0;           // kDim; views: offset in elements
    int index = 0;  // kArgument(View): position; kSame: earlier result; kTensor, kAlias: output of the graph
    Dtype dtype = Dtype::kF32;  // views
    std::vector<SizeExpr> sizes,
        strides;  // views, and kTensor if restrided: the view of what the graph stores
    bool restrided = false;
  };
  std::vector<Argument> arguments;
  std::vector<SymbolSource> symbols;  // in the graph's order
  std::vector<Result> results;
  std::vector<bool> mutated;  // by graph input
};

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
