// Postfix order: operands before their operator.
#include "python/size_program.h"

#include <algorithm>

#include "codegen/loop/text.h"

namespace ipex::python {
namespace {

using loop::ExprKind;
using loop::ScalarOp;

SizeExpr::Code code_of(const loop::Expr& dim) {
  switch (dim->op) {
    case ScalarOp::add_:
      return SizeExpr::Code::kAdd;
    case ScalarOp::sub_:
      return SizeExpr::Code::kSub;
    case ScalarOp::mul_:
      return SizeExpr::Code::kMul;
    case ScalarOp::floordiv_:
      return SizeExpr::Code::kFloorDiv;
    case ScalarOp::floormod_:
      return SizeExpr::Code::kFloorMod;
    case ScalarOp::min_:
      return SizeExpr::Code::kMin;
    case ScalarOp::max_:
      return SizeExpr::Code::kMax;
    default:
      throw Unsupported("a size cannot be " + loop::print(dim));
  }
}

void append(const loop::Expr& dim, const std::vector<std::string>& symbols,
            std::vector<SizeExpr::Instr>& program) {
  if (auto value = loop::as_const_int(dim)) {
    program.push_back({SizeExpr::Code::kConst, *value});
  } else if (dim->is(ExprKind::kVar)) {
    const auto it = std::ranges::find(symbols, dim->name);
    IPEX_CHECK(it != symbols.end(), "the size " + dim->name + " is not a symbol of the graph");
    program.push_back({SizeExpr::Code::kSymbol, it - symbols.begin()});
  } else {
    if (!dim->is(ExprKind::kApply)) throw Unsupported("a size cannot be " + loop::print(dim));
    for (const loop::Expr& operand : dim->args) append(operand, symbols, program);
    program.push_back({code_of(dim)});
  }
}

}  // namespace

SizeExpr size_program(const loop::Expr& dim, const std::vector<std::string>& symbols) {
  std::vector<SizeExpr::Instr> program;
  append(dim, symbols, program);
  return SizeExpr(std::move(program));
}

}  // namespace ipex::python
