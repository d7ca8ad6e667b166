// Dims, which are Loop IR expressions, as the small programs that the runtime evaluates at each call.
#pragma once

#include <string>
#include <vector>

#include "codegen/loop/ir.h"
#include "runtime/size_expr.h"

namespace ipex::python {

SizeExpr size_program(const loop::Expr& dim, const std::vector<std::string>& symbols);

}  // namespace ipex::python
