// The variance of short rows in two passes: the mean, then the sum of squares about it. Reading a cached row
// twice is faster than the divisions of Welford's recurrence, and has a smaller error (Chan, Golub and
// LeVeque, Algorithms for computing the sample variance, 1983). A variance over several short rows merges
// their results:
//
//   mean = mean of the rows' means
//   squares = sum of the rows' squares + size of a row * squares of the rows' means about the mean
//
// A single long row keeps Welford's single pass over memory. Runs after plan_layouts, because a row is
// contiguous memory.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

constexpr double kRowBytes = 64 << 10;  // the part of L2 that a row may occupy
constexpr double kMinRow = 128;  // least elements of a row that is merged, because its results are stored

class VarianceSplitter : GraphRewriter {
 public:
  explicit VarianceSplitter(Graph graph) : GraphRewriter(std::move(graph)) {}

  Graph run() {
    if (std::none_of(old_.nodes.begin(), old_.nodes.end(), [&](const Node& n) { return find_split(n); }))
      return std::move(old_);
    return canonicalize(rebuild([&](int32_t n) {
      const auto found = find_split(old_.nodes[n]);
      found ? split(n, with_mapped_operands(n), *found) : keep(n);
    }));
  }

 private:
  // The axes of a variance that form a short row, and the axes along which rows are merged.
  struct Split {
    std::vector<int64_t> row, merged;
    double row_size = 1, size = 1;
  };

  std::optional<Split> find_split(const Node& node) const {
    if (!node.is(ReductionOp::var_) && !node.is(ReductionOp::var_mean_) && !node.is(ReductionOp::std_))
      return std::nullopt;
    const Type& x = old_.type(node.operands[0]);
    Ints axes = node.get<Reduce>().axes;
    std::sort(axes.begin(), axes.end(), std::greater<>());
    Split out;
    const auto item = static_cast<double>(itemsize(opmath(x.dtype)));
    auto next = static_cast<int64_t>(x.shape.size()) - 1;
    for (int64_t d : axes) {
      const auto known = loop::as_const_int(x.shape[d]);
      if (!known) return std::nullopt;
      const auto size = static_cast<double>(*known);
      const bool fits = d == next && out.row_size * size * item <= kRowBytes;
      next = fits ? d - 1 : -1;
      (fits ? out.row : out.merged).push_back(d);
      if (fits) out.row_size *= size;
      out.size *= size;
    }
    std::reverse(out.row.begin(), out.row.end());
    std::reverse(out.merged.begin(), out.merged.end());
    const bool pays = !out.row.empty() && (out.merged.empty() || out.row_size >= kMinRow);
    return pays ? std::optional(std::move(out)) : std::nullopt;
  }

  void split(int32_t index, const Node& node, const Split& split) {
    source_ = node.source;
    const Value x = cast(node.operands[0], opmath(new_.type(node.operands[0]).dtype), source_);
    const Type full = new_.type(x);
    const auto sum = [&](Value v, const Ints& axes) {
      if (axes.empty()) return v;
      Type type = new_.type(v);
      for (int64_t d : axes) type.shape[d] = loop::index_const(1);
      return insert(Reduce{ReductionOp::sum_, axes, true}, {v}, type);
    };
    const auto constant = [&](double value) {
      return insert(Constant{value, nullptr}, {}, {full.dtype, {}});
    };
    const auto apply = [&](PointwiseOp fn, Value a, Value b) {
      const Type type = new_.type(a);
      return insert(Pointwise{fn}, {a, expand(b, type)}, type);
    };
    // Scales the numbers by a power of two, which is exact, so that the sum of `size` of them cannot
    // overflow.
    const auto mean_of = [&](Value v, const Ints& axes, double size) {
      const double scale = std::exp2(-std::ceil(std::log2(size)));
      return apply(PointwiseOp::div_, sum(apply(PointwiseOp::mul_, v, constant(scale)), axes),
                   constant(size * scale));
    };
    // The moments along some axes: the mean, and the sum of squares about it. The computed mean has a
    // rounding error, which the mean of the differences from it gives (`rest`). With this correction a row of
    // equal values has exactly that value as its mean, and a variance of 0. The error is kept apart from the
    // mean until the last merge, because means far from zero differ by less than their rounding. Half types
    // need no correction: their sums are exact.
    struct Moments {
      Value mean;
      std::optional<Value> rest;
      Value squares;
    };
    const auto moments = [&](Value v, const std::optional<Value>& rest, const Ints& axes, double size) {
      const Value mean = mean_of(v, axes, size);
      Value centred = apply(PointwiseOp::sub_, v, mean);
      if (rest) centred = apply(PointwiseOp::add_, centred, *rest);
      const Value squares = sum(apply(PointwiseOp::mul_, centred, centred), axes);
      if (was_half(old_.nodes[index].operands[0])) return Moments{mean, std::nullopt, squares};
      const Value shift = mean_of(centred, axes, size);
      // The excess is kept finite, so that squares that overflow stay infinite.
      const Value largest = constant(full.dtype == Dtype::kF64 ? std::numeric_limits<double>::max()
                                                               : std::numeric_limits<float>::max());
      const Value excess =
          apply(PointwiseOp::minimum_,
                apply(PointwiseOp::mul_, apply(PointwiseOp::mul_, shift, shift), constant(size)), largest);
      return Moments{mean, shift,
                     apply(PointwiseOp::maximum_, apply(PointwiseOp::sub_, squares, excess), constant(0))};
    };
    auto [mean, rest, squares] = moments(x, std::nullopt, split.row, split.row_size);
    if (!split.merged.empty()) {
      const Moments between = moments(mean, rest, split.merged, split.size / split.row_size);
      mean = between.mean;
      rest = between.rest;
      squares = apply(PointwiseOp::add_, sum(squares, split.merged),
                      apply(PointwiseOp::mul_, between.squares, constant(split.row_size)));
    }
    if (rest) mean = apply(PointwiseOp::add_, mean, *rest);
    const Value divisor = constant(std::max(split.size - node.get<Reduce>().correction.value_or(1), 0.0));
    Value variance = apply(PointwiseOp::div_, squares, divisor);
    if (node.is(ReductionOp::std_))
      variance = insert(Pointwise{PointwiseOp::sqrt_}, {variance}, new_.type(variance));
    replace({index, 0}, as(variance, node.types[0]));
    if (node.is(ReductionOp::var_mean_)) replace({index, 1}, as(mean, node.types[1]));
  }

  bool was_half(Value v) const {
    const Node& node = old_.nodes[v.node];
    const bool is_cast = node.is(PointwiseOp::cast_);
    return is_half(old_.type(is_cast ? node.operands[0] : v).dtype);
  }

  Value insert(Operation operation, std::vector<Value> operands, Type type) {
    return add({std::move(operation), std::move(operands), {std::move(type)}, {}, source_});
  }

  Value expand(Value v, const Type& type) {
    if (equal(new_.type(v), type)) return v;
    Ints dims(new_.type(v).shape.size());
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    return insert(Expand{std::move(dims)}, {v}, type);
  }

  // `v` in the dtype and shape of `type`, without the dims of extent 1.
  Value as(Value v, const Type& type) { return reshape(cast(v, type.dtype, source_), type.shape, source_); }

  std::string source_;
};

}  // namespace

Graph split_variance(Graph graph) { return VarianceSplitter(std::move(graph)).run(); }

}  // namespace ipex::graph
