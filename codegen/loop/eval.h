// The reference interpreter: the meaning of Loop IR. Slow, simple, bounds-checked.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// buffers: pointers in parameter order. Throws InternalError on an access outside a buffer's extent,
// IndexError when the program calls ipex_report_index.
void eval(const Function& f, std::span<void* const> buffers, std::span<const int64_t> symbols);

// Value of a scalar integer expression under a binding of its variables; throws InternalError for an unbound
// one.
int64_t eval_int(const Expr& e, const std::map<std::string, int64_t>& binding);

// One scalar op on one element each; the table behind eval and constant folding. Integers travel in i, floats
// in f.
struct Scalar {
  Dtype dtype;
  int64_t i = 0;
  double f = 0;
};
Scalar eval_scalar(ScalarOp op, std::span<const Scalar> args, Dtype result);
Scalar cast_scalar(Scalar x, Dtype dtype);  // rounds through the target type, as ATen's conversions

}  // namespace ipex::loop
