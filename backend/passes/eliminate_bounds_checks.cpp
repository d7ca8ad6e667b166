// Intervals of values, computed forward through the graph. Gathers need them: an index that is computed from
// positions and clamped (interpolation, sampling of a grid) is inside the dim that it addresses in every run,
// so the kernel need not check it. Checks that no divisor is zero need them, too: if none can be, the check
// is removed.
//
// A float with an interval is not NaN. Without an interval it may be any number or NaN. Bounds are computed
// in f64 and widened by the largest error of rounding.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/graph/constants.h"
#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"
#include "kernels/check.h"

namespace ipex::graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kExact = 0x1p53;          // integers up to here are doubles
constexpr double kLargestFloat = 0x1p100;  // far from overflow in f32

struct Interval {
  double low, high;
};
using Range = std::optional<Interval>;

Interval all_of(Dtype dtype) {
  if (dtype == Dtype::kBool) return {0, 1};
  const int bits = 8 * itemsize(dtype);
  return dtype == Dtype::kU8 ? Interval{0, 255}
                             : Interval{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

Interval joined(Interval a, Interval b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

class BoundsCheckEliminator : GraphRewriter {
 public:
  explicit BoundsCheckEliminator(Graph graph) : GraphRewriter(std::move(graph)) {}

  Graph run() {
    const auto may_gain = [](const Node& node) { return node.op() == Op::kGather || is_check(node); };
    if (std::ranges::none_of(old_.nodes, may_gain)) return std::move(old_);
    bool any = false;
    Graph better = rebuild([&](int32_t n) {
      const Node& old = old_.nodes[n];
      ranges_.push_back(old.types.size() == 1 ? bounded(of(old), old.types[0].dtype) : std::nullopt);
      Node node = with_mapped_operands(n);
      any |= old.op() == Op::kGather && prove(old, node.get<Gather>());
      if (is_check(old) && holds(old.operands[0])) {
        any = true;
        return;  // a check has no result
      }
      if (casts_to_few_bits(old)) node.operands[0] = in_32_bits(node);
      keep(n, std::move(node));
    });
    return any ? std::move(better) : std::move(old_);
  }

 private:
  static bool is_check(const Node& node) {
    const auto* call = node.get_if<Extern>();
    return call && call->overload == kernels::kCheck;
  }

  // Is a bool true everywhere, in every run?
  bool holds(Value v) const {
    const Node& node = old_.node(v);
    if (node.op() == Op::kConstant) {
      const Range range = ranges_[v.node];
      return range && range->low == 1;
    }
    if (node.op() == Op::kExpand || node.op() == Op::kReshape || node.is(ReductionOp::all_))
      return holds(node.operands[0]);
    if (node.is(PointwiseOp::bitwise_or_) || node.is(PointwiseOp::logical_or_))
      return holds(node.operands[0]) || holds(node.operands[1]);
    if (!node.is(PointwiseOp::ne_)) return false;
    const Range x = operand(node, 0), y = operand(node, 1);
    return x && y && (x->low > y->high || x->high < y->low);
  }

  bool casts_to_few_bits(const Node& node) const {
    if (!node.is(PointwiseOp::cast_) || node.types[0].dtype != Dtype::kI64) return false;
    const Range range = ranges_.back();
    const Interval few = all_of(Dtype::kI32);
    return is_float(old_.type(node.operands[0]).dtype) && range->low >= few.low && range->high <= few.high;
  }

  Value in_32_bits(Node cast) {
    cast.types[0].dtype = Dtype::kI32;
    return add(std::move(cast));
  }

  // Sets gather.proved to the index operands that are inside the dims they address; returns whether there are
  // any.
  bool prove(const Node& node, Gather& gather) const {
    const Ints& map = gather.map;
    const Shape& shape = old_.type(node.operands[0]).shape;
    Ints proved;
    for (int64_t j = 1; j < static_cast<int64_t>(node.operands.size()); ++j) {
      const Range range = ranges_[node.operands[j].node];
      bool inside = range && range->low >= 0;
      for (size_t d = 0; d < map.size(); ++d) {
        const auto size = loop::as_const_int(shape[d]);
        if (map[d] == -j) inside = inside && size && range->high < static_cast<double>(*size);
      }
      if (inside) proved.push_back(j);
    }
    if (proved.empty()) return false;
    gather.proved = std::move(proved);
    return true;
  }

  // The interval of a result of this dtype, from the interval of the exact result.
  static Range bounded(Range range, Dtype dtype) {
    if (!is_float(dtype)) {
      const Interval all = all_of(dtype);
      return range && range->low >= all.low && range->high <= all.high ? *range : all;
    }
    const bool wide = dtype == Dtype::kF32 || dtype == Dtype::kF64;
    if (!range || !wide || std::max(-range->low, range->high) > kLargestFloat) return std::nullopt;
    return range;
  }

  Range of(const Node& node) const {
    switch (node.op()) {
      case Op::kConstant:
        return of_constant({static_cast<int32_t>(ranges_.size()), 0});
      case Op::kIota:
        return of_positions(node);
      case Op::kReorder:
        return operand(node, 0);
      case Op::kCat: {
        Range all = operand(node, 0);
        for (size_t i = 1; all && i < node.operands.size(); ++i) {
          const Range next = operand(node, i);
          all = next ? Range(joined(*all, *next)) : std::nullopt;
        }
        return all;
      }
      case Op::kPointwise:
        return of_pointwise(node);
      default:
        return is_view(node.op()) ? operand(node, 0) : std::nullopt;
    }
  }

  static double as_double(const Number& number) {
    return std::visit([](auto value) { return static_cast<double>(value); }, number);
  }

  Range of_constant(Value value) const {
    const Node& node = old_.node(value);
    const Dtype dtype = node.types[0].dtype;
    Interval all{kInfinity, -kInfinity};
    const auto add = [&](double value) {
      if (dtype == Dtype::kF32) value = static_cast<float>(value);
      all = std::isnan(value) ? Interval{-kInfinity, kInfinity} : joined(all, {value, value});
    };
    const Constant& constant = node.get<Constant>();
    if (!constant.data) {
      add(as_double(constant.value.value()));
      return all;
    }
    const auto& bytes = constant.data->bytes;
    for (size_t at = 0; at < bytes.size(); at += itemsize(dtype))
      add(as_double(decode_number(bytes.data() + at, dtype)));
    return all.low <= all.high ? Range(all) : std::nullopt;
  }

  static Range of_positions(const Node& node) {
    const Iota& iota = node.get<Iota>();
    const auto start = loop::as_const_int(iota.start), step = loop::as_const_int(iota.step);
    const auto count = loop::as_const_int(node.types[0].shape[iota.axis]);
    if (!start || !step || !count) return std::nullopt;
    const auto first = static_cast<double>(*start);
    const double last =
        first + static_cast<double>(*step) * static_cast<double>(std::max<int64_t>(*count - 1, 0));
    return Interval{std::min(first, last), std::max(first, last)};
  }

  Range operand(const Node& node, size_t i) const {
    return node.operands[i].result == 0 ? ranges_[node.operands[i].node] : std::nullopt;
  }

  Range of_pointwise(const Node& node) const {
    const PointwiseOp fn = node.get<Pointwise>().fn;
    const Dtype dtype = node.types[0].dtype;
    if (fn == PointwiseOp::where_) return of_choice(node);
    if (fn == PointwiseOp::cast_) return of_cast(operand(node, 0), old_.type(node.operands[0]).dtype, dtype);
    std::vector<Interval> x;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Range range = operand(node, i);
      if (!range) return std::nullopt;
      x.push_back(*range);
    }
    if (fn == PointwiseOp::div_ && (!is_float(dtype) || (x[1].low <= 0 && x[1].high >= 0)))
      return std::nullopt;
    if (fn == PointwiseOp::abs_) {  // its least value may be inside the interval, at 0
      const Interval exact{std::max({x[0].low, -x[0].high, 0.0}), std::max(-x[0].low, x[0].high)};
      return is_float(dtype) ? exact : computed(exact, dtype);  // the least integer has no abs
    }
    const ops::PointwiseRow& row = ops::row(fn);
    if (row.has(ops::kMonotone)) return of_ends(row, x);
    const Range exact = row.has(ops::kExtremeAtEnds) ? of_ends(row, x) : std::nullopt;
    return exact ? Range(computed(*exact, dtype)) : std::nullopt;
  }

  // From the least to the greatest value of the row's body over all choices of an end for each operand.
  static Range of_ends(const ops::PointwiseRow& row, const std::vector<Interval>& operands) {
    Interval all{kInfinity, -kInfinity};
    for (size_t choice = 0; choice < size_t{1} << operands.size(); ++choice) {
      std::vector<loop::Expr> args;
      for (size_t i = 0; i < operands.size(); ++i) {
        const double end = choice >> i & 1 ? operands[i].high : operands[i].low;
        args.push_back(loop::make_const({Dtype::kF64}, end));
      }
      const loop::Expr value = loop::simplify(row.body(args));
      if (!value->is(loop::ExprKind::kConst)) return std::nullopt;
      all = joined(all, {value->float_value, value->float_value});
    }
    return all;
  }

  // The interval of a result of arithmetic: a float is rounded, and an integer beyond kExact may have
  // overflowed.
  static Interval computed(Interval exact, Dtype dtype) {
    if (!is_float(dtype)) return std::max(-exact.low, exact.high) <= kExact ? exact : all_of(dtype);
    const double ulps = dtype == Dtype::kF64 ? 0x1p-50 : 0x1p-21;
    return {exact.low - std::abs(exact.low) * ulps, exact.high + std::abs(exact.high) * ulps};
  }

  static Range of_cast(Range x, Dtype from, Dtype to) {
    if (!x || to == Dtype::kBool) return std::nullopt;
    const bool exact = !is_float(from) && std::max(-x->low, x->high) <= 0x1p24;
    if (is_float(to) && !exact) return computed(*x, to);
    if (is_float(from) && !is_float(to)) return Interval{std::trunc(x->low), std::trunc(x->high)};
    return x;
  }

  // where(condition, x, y): x is chosen only where the condition holds for it, and then it is not NaN.
  Range of_choice(const Node& node) const {
    Range x = operand(node, 1);
    const Range y = operand(node, 2);
    Interval chosen = x.value_or(Interval{-kInfinity, kInfinity});
    narrow(old_.node(node.operands[0]), node.operands[1], chosen);
    if (!x && (std::isinf(chosen.low) || std::isinf(chosen.high))) return std::nullopt;
    return y ? Range(joined(chosen, *y)) : std::nullopt;
  }

  void narrow(const Node& condition, Value x, Interval& range) const {
    if (condition.is(PointwiseOp::bitwise_and_) || condition.is(PointwiseOp::logical_and_)) {
      for (Value v : condition.operands) narrow(old_.node(v), x, range);
      return;
    }
    if (condition.op() != Op::kPointwise || condition.operands.size() != 2 || condition.operands[0] != x)
      return;
    const Range limit = operand(condition, 1);
    if (!limit) return;
    const PointwiseOp fn = condition.get<Pointwise>().fn;
    if (fn == PointwiseOp::ge_ || fn == PointwiseOp::gt_) range.low = std::max(range.low, limit->low);
    if (fn == PointwiseOp::le_ || fn == PointwiseOp::lt_) range.high = std::min(range.high, limit->high);
  }

  std::vector<Range> ranges_;  // by node of old_ that was visited: of its only result
};

}  // namespace

Graph eliminate_bounds_checks(Graph graph) { return BoundsCheckEliminator(std::move(graph)).run(); }

}  // namespace ipex::graph
