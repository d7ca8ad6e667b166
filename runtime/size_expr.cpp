// Evaluates the postfix form on a small fixed stack.
#include "runtime/size_expr.h"

#include <algorithm>
#include <array>
#include <functional>

#include "runtime/error.h"

namespace ipex {
namespace {

// Sizes of a damaged file may overflow; what comes out is refused or too large to allocate.
template <class Op>
int64_t wrap(int64_t a, int64_t b, Op op) {
  return static_cast<int64_t>(op(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(0, a, std::minus<>());
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

}  // namespace

int64_t SizeExpr::eval_program(const int64_t* symbols) const {
  std::array<int64_t, 64> stack;
  size_t top = 0;
  for (const Instr& instr : program_) {
    if (instr.code == Code::kConst || instr.code == Code::kSymbol) {
      IPEX_CHECK(top < stack.size(), "size expression is too deep");
      stack[top++] = instr.code == Code::kConst ? instr.value : symbols[instr.value];
      continue;
    }
    IPEX_CHECK(top >= 2, "size expression has an operator without operands");
    const int64_t b = stack[--top];
    int64_t& a = stack[top - 1];
    switch (instr.code) {
      case Code::kAdd:
        a = wrap(a, b, std::plus<>());
        break;
      case Code::kSub:
        a = wrap(a, b, std::minus<>());
        break;
      case Code::kMul:
        a = wrap(a, b, std::multiplies<>());
        break;
      case Code::kFloorDiv:
        a = floor_div(a, b);
        break;
      case Code::kFloorMod:
        a = wrap(a, wrap(floor_div(a, b), b, std::multiplies<>()), std::minus<>());
        break;
      case Code::kMin:
        a = std::min(a, b);
        break;
      case Code::kMax:
        a = std::max(a, b);
        break;
      default:
        break;
    }
  }
  IPEX_CHECK(top == 1, "size expression leaves no single value");
  return stack[0];
}

}  // namespace ipex
