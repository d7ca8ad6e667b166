// Evaluates a postfix program on a small fixed stack, and prints it in infix notation.
#include "runtime/size_expr.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "runtime/error.h"

namespace ipex {
namespace {

// Wrap around on overflow, which sizes from a damaged file can cause. The result is refused later, or too
// large to allocate.
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
      IPEX_CHECK(top < stack.size(), "size expression is nested too deeply");
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
  IPEX_CHECK(top == 1, "size expression does not leave a single value");
  return stack[0];
}

std::string SizeExpr::text(std::span<const std::string> symbols) const {
  struct Operator {
    std::string_view text;
    int precedence;
    bool associative;
  };
  // By Code, from kAdd to kFloorMod.
  static constexpr std::array<Operator, 5> kOperators = {
      {{" + ", 1, true}, {" - ", 1, false}, {" * ", 2, true}, {" // ", 2, false}, {" % ", 2, false}}};
  constexpr int kMaxPrecedence = 3;
  struct Part {
    std::string text;
    int precedence;
    std::string inside(int operation) const { return precedence < operation ? "(" + text + ")" : text; }
  };
  std::vector<Part> stack;
  for (const auto& [code, value] : program_) {
    if (code == Code::kConst || code == Code::kSymbol) {
      stack.push_back({code == Code::kConst ? std::to_string(value) : symbols[value], kMaxPrecedence});
      continue;
    }
    IPEX_CHECK(stack.size() >= 2, "size expression has an operator without operands");
    const Part b = std::move(stack.back());
    stack.pop_back();
    Part& a = stack.back();
    if (code == Code::kMin || code == Code::kMax) {
      a = {(code == Code::kMin ? "min(" : "max(") + a.text + ", " + b.text + ")", kMaxPrecedence};
      continue;
    }
    const Operator& op = kOperators[static_cast<size_t>(code) - static_cast<size_t>(Code::kAdd)];
    a = {a.inside(op.precedence).append(op.text).append(b.inside(op.precedence + (op.associative ? 0 : 1))),
         op.precedence};
  }
  IPEX_CHECK(stack.size() == 1, "size expression does not leave a single value");
  return stack[0].text;
}

}  // namespace ipex
