// Where each math function comes from: the contents of math_table.def as data.
#pragma once

#include <cmath>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

enum class MathSource : uint8_t { kPolynomial, kSleef };

struct MathFunction {
  ScalarOp op;
  MathSource f32, f64;
  std::string_view sleef;     // "exp"
  std::string_view accuracy;  // "_u10"
  double ulp, domain;
  MathSource source(Dtype dtype) const { return dtype == Dtype::kF64 ? f64 : f32; }
  std::string_view accuracy_of(Dtype dtype) const {
    return dtype == Dtype::kF64 && accuracy == "_u35" ? "_u10" : accuracy;
  }
};

inline constexpr MathFunction kMathFunctions[] = {
#define MATH(op, f32, f64, sleef, accuracy, ulp, domain) \
  {ScalarOp::op##_, MathSource::f32, MathSource::f64, sleef, accuracy, ulp, domain},
#include "codegen/llvm/math_table.def"
#undef MATH
};

// Null if the op is arithmetic with an instruction of its own.
constexpr const MathFunction* math_function(ScalarOp op) {
  for (const MathFunction& f : kMathFunctions)
    if (f.op == op) return &f;
  return nullptr;
}

}  // namespace ipex::loop
