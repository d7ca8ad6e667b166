// The reference interpreter, which defines the meaning of Loop IR. It is slow and simple, and checks bounds.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// buffers: pointers in the order of the parameters. Throws InternalError for an access outside of a buffer,
// and IndexError if the program calls ipex_report_index.
void eval(const Function& f, std::span<void* const> buffers, std::span<const int64_t> symbols);

// The value of a scalar integer expression, given the values of its variables. Throws InternalError for an
// unbound variable.
int64_t eval_int(const Expr& e, const std::map<std::string, int64_t>& binding);

// Applies a scalar op to single elements. eval and constant folding share it. Integers are passed in i,
// floats in f.
struct Scalar {
  Dtype dtype;
  int64_t i = 0;
  double f = 0;
};
Scalar eval_scalar(ScalarOp op, std::span<const Scalar> args, Dtype result);
Scalar cast_scalar(Scalar x, Dtype dtype);  // rounds through the target type, like ATen's conversions

}  // namespace ipex::loop
