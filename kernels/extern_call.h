// Extern steps: calls of any operator of PyTorch's dispatcher, on views of the graph's buffers.
//
// These run ops without a native lowering, and ops that must be eager's own code: random numbers, custom
// operators (the dispatcher acquires the GIL for Python ones). In kernels/, only extern_call* depends on
// libtorch.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace c10 {
class OperatorHandle;
}

namespace ipex::kernels {

c10::ScalarType scalar_type(Dtype dtype);

struct ExternCallDesc {
  std::string overload;                        // "aten::topk.default"
  std::string args;                            // JSON array in schema order, encoded as in compiler/extern.py
  std::string why;                             // why the op is not native
  std::vector<TensorSpec> operands;            // referred to by {"t": i}
  std::vector<TensorSpec> results;             // the returned tensors that tracing saw
  std::vector<int64_t> returns;                // position of each result in the op's return values
  std::vector<std::vector<SizeExpr>> strides;  // strides that the operands must have; empty: any
  std::function<SizeExpr(const std::string&)> size;  // converts {"dim": text} to a program over the symbols
  std::vector<SizeExpr> sizes;                       // in a saved program: referred to by {"dim": i}
};

// Parses the arguments according to the operator's schema. UserError if the operator does not exist,
// InternalError if the arguments do not match it.
std::unique_ptr<Step> make_extern_call(ExternCallDesc desc);

// Reads a step from a line of a saved program: an ATen call, or a step that `others` reads.
MadeSteps read_extern_call(FieldReader& io, const StepReader& others);

// The operator "aten::topk.default"; the overload may be left out, which means the default one. None if it is
// not registered.
std::optional<c10::OperatorHandle> find_operator(const std::string& overload);

std::string torch_version();

}  // namespace ipex::kernels
