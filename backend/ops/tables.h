// The op tables as data: one line in pointwise.def, reduction.def or scan.def is the whole definition of an
// op. From the rows come the importer's map, supported(), lowering, verifier, constant folding, the op
// reference, the op matrix test and the fuzzer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops/enum_text.h"
#include "codegen/loop/ir.h"

namespace ipex::ops {

using loop::Expr;

// The rows by number.
enum class PointwiseOp : uint8_t {
#define POINTWISE(name, ...) name##_,
#include "backend/ops/pointwise.def"
#undef POINTWISE
};
enum class ReductionOp : uint8_t {
#define REDUCTION(name, ...) name##_,
#include "backend/ops/reduction.def"
#undef REDUCTION
};
enum class ScanOp : uint8_t {
#define SCAN(name, ...) name##_,
#include "backend/ops/scan.def"
#undef SCAN
};

// How ATen derives the result dtype from the operands' promoted dtype P (and the type the body computes in):
//   kDefault: P, computed in opmath(P)        kIntToFloat: P, ints and bool become f32; computed in opmath
//   kAlwaysBool: b1, computed in opmath(P)    kNoOpmath: P; values only move or compare (exact in any type)
enum class Promotion : uint8_t { kDefault, kIntToFloat, kAlwaysBool, kNoOpmath };

// What passes ask of a pointwise op, beyond what its body says.
enum Trait : unsigned {
  kCommutes = 1,     // x op y == y op x
  kOnPositions = 2,  // arithmetic on indices: costs no more than the index itself
  kMonotone = 4,     // exact, and never falls where an operand rises
  kSlow = 8,         // too slow to compute twice where a load would do
  // Its kernels are bound by memory: a backward pass computes it again instead of loading it.
  kRecomputable = 16,
  // Rounded. Over intervals of the operands, the least and the greatest value are where each operand is at an
  // end of its interval. For div this holds where the divisor keeps its sign.
  kExtremeAtEnds = 32,
};

struct PointwiseRow {
  std::string_view name;  // in text IR: pointwise.<name>
  std::string_view
      aten;  // ATen base name(s), space-separated: "gelu"; empty: reached only by the importer's own rules
  int arity;
  Promotion promotion;
  bool integers, floats, booleans;  // compute types the body accepts
  // All arguments scalar or all of one lane count, in the compute dtype (where: args[0] is b1). Returns
  // compute dtype or b1.
  Expr (*body)(std::span<const Expr> args);
  std::string_view summary;
  unsigned traits = 0;  // of Trait
  bool has(Trait trait) const { return (traits & trait) != 0; }
};
std::span<const PointwiseRow> pointwise_rows();
const PointwiseRow& row(PointwiseOp fn);

// In the graph, a pointwise node's operands all have one compute dtype: opmath(operand dtype) agrees (where's
// condition is b1), so a bf16 tensor may meet an f32 constant; the body's value is cast to the node's result
// dtype. Rows "cast" and "reinterpret" have body x.

struct ReductionRow {
  std::string_view name;  // in text IR: reduce.<name>
  std::string_view aten;  // "sum", "amax", "max.dim", ...
  Promotion
      promotion;  // sum of ints is i64 (the importer casts first), mean is kIntToFloat, any is kAlwaysBool
  bool integers, floats, booleans;
  int results;  // 1, or 2 for value and index
  // Everything below is in the compute dtype `t`, positions in `index`, a signed integer that holds all of
  // them; `states` and `others` are Exprs of the states by position.
  std::vector<loop::State> (*states)(Dtype t, Dtype index);  // names s0, s1, ...; init == identity
  std::vector<Expr> (*update)(std::span<const Expr> states, Expr x,
                              Expr index);  // index: flat position in the reduced space
  std::vector<Expr> (*merge)(std::span<const Expr> states, std::span<const Expr> others);
  std::vector<Expr> (*finish)(std::span<const Expr> states, Expr count,
                              double correction);  // count: i64 elements reduced
  std::string_view summary;
};
std::span<const ReductionRow> reduction_rows();
const ReductionRow& row(ReductionOp fn);
// Scans have the rows of reductions: finish gives the results so far, at every element along the axis.
std::span<const ReductionRow> scan_rows();
const ReductionRow& row(ScanOp fn);

std::string op_reference();  // the tables as Markdown

}  // namespace ipex::ops

namespace ipex {

template <>
struct EnumText<ops::PointwiseOp> {
  static constexpr std::string_view kAll[] = {
#define POINTWISE(name, ...) #name,
#include "backend/ops/pointwise.def"
#undef POINTWISE
  };
  static constexpr std::string_view kWhat = "row of pointwise.def";
};
template <>
struct EnumText<ops::ReductionOp> {
  static constexpr std::string_view kAll[] = {
#define REDUCTION(name, ...) #name,
#include "backend/ops/reduction.def"
#undef REDUCTION
  };
  static constexpr std::string_view kWhat = "row of reduction.def";
};
template <>
struct EnumText<ops::ScanOp> {
  static constexpr std::string_view kAll[] = {
#define SCAN(name, ...) #name,
#include "backend/ops/scan.def"
#undef SCAN
  };
  static constexpr std::string_view kWhat = "row of scan.def";
};

}  // namespace ipex
