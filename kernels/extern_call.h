// ATen as a step: any operator of PyTorch's dispatcher, called on views of the graph's buffers.
//
// With extern_call_random, what knows libtorch in kernels/. An op without a native lowering runs here, and so
// does what must be eager's own code: random numbers bit for bit, fused attention, custom operators (Python
// ones take the GIL in the dispatcher).
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace ipex::kernels {

c10::ScalarType scalar_type(Dtype dtype);

struct ExternCallDesc {
  std::string overload;              // "aten::topk.default"
  std::string args;                  // JSON array in schema order; python's extern.py says how it is spelled
  std::string why;                   // why the op is not native
  std::vector<TensorSpec> operands;  // what {"t": i} refers to
  std::vector<TensorSpec> results;   // of what the op returns, the tensors that tracing saw
  std::vector<int64_t> returns;      // where each result stands among what the op returns
  std::vector<std::vector<SizeExpr>> strides;        // that the op must see its operands with; empty: any
  std::function<SizeExpr(const std::string&)> size;  // {"dim": text} to a program over the graph's symbols
  std::vector<SizeExpr> sizes;                       // in a saved program: what {"dim": i} refers to
};

// Parses the arguments against the operator's schema once. UserError when the operator does not exist,
// InternalError when the arguments do not fit it.
std::unique_ptr<Step> make_extern_call(ExternCallDesc desc);

// The step of a saved program's line: an ATen call, or what `others` read.
MadeSteps read_extern_call(FieldReader& io, const StepReader& others);

std::string torch_version();

}  // namespace ipex::kernels
