// The op tables as data. One line in pointwise.def, reduction.def or scan.def defines an op completely. The
// importer, the verifier, the lowering, constant folding, the op reference, the op matrix test and the fuzzer
// all read the rows.
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

// One enumerator for each row, in the order of the table.
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

// Properties of a pointwise op that passes need and that its body does not show.
enum Trait : unsigned {
  kCommutes = 1,     // x op y == y op x
  kOnPositions = 2,  // arithmetic on indices, as cheap as computing an index
  kMonotone = 4,     // exact and monotone: maps the ends of an interval to the ends of the result's interval
  kSlow = 8,         // slower to compute again than to load
  kRecomputable = 16,  // bound by memory: a backward pass recomputes it instead of loading a saved result
  // Rounded. Over intervals of the operands, the minimum and the maximum are where each operand is at an end
  // of its interval. For div this holds if the divisor keeps its sign.
  kExtremeAtEnds = 32,
};

struct PointwiseRow {
  std::string_view name;  // in text IR: pointwise.<name>
  std::string_view aten;  // ATen base names, space-separated ("gelu"); empty: only import rules use the row
  int arity;
  Promotion promotion;
  bool integers, floats, booleans;  // compute types the body accepts
  // The arguments have the compute dtype (args[0] of where is b1) and one number of lanes. The result has the
  // compute dtype or is b1.
  Expr (*body)(std::span<const Expr> args);
  std::string_view summary;
  unsigned traits = 0;  // a set of Trait bits
  bool has(Trait trait) const { return (traits & trait) != 0; }
};
std::span<const PointwiseRow> pointwise_rows();
const PointwiseRow& row(PointwiseOp fn);

// In the graph, all operands of a pointwise node have one compute dtype, opmath(operand dtype): a bf16 tensor
// and an f32 constant may meet in one node. The condition of where is b1. The value of the body is cast to
// the dtype of the node's result. The body of "cast" and "reinterpret" is x.

struct ReductionRow {
  std::string_view name;  // in text IR: reduce.<name>
  std::string_view aten;  // "sum", "amax", "max.dim", ...
  Promotion
      promotion;  // sum of ints is i64 (the importer casts first), mean is kIntToFloat, any is kAlwaysBool
  bool integers, floats, booleans;
  int results;  // 1, or 2 for value and index
  // The functions below compute in the dtype `t`. Positions have the dtype `index`, a signed integer that is
  // large enough for all of them. `states` and `others` hold one Expr for each state.
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
// Scans have the same kind of rows: finish gives the running results at every element along the axis.
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
