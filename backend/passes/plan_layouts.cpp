// Memory layouts of values. Chains of convolutions are channels_last: oneDNN's convolutions are fastest on it
// for every ISA, no reorder is needed between layers, and our own kernels vectorise along channels. A value
// is channels_last if a convolution computes it, or if an op that follows the layout of its operands computes
// it from such a value (kFollowsLayout in ops/structural.def). A Reorder is placed only where a convolution
// would read another layout. Operands of an LSTM are row-major. Results of attention have the heads of a row
// next to each other, so that the product that follows reads them as one row.
#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;
using loop::index_const;
using loop::provably_equal;

Strides channels_last_strides(const Shape& shape) {
  Strides strides(shape.size());
  Dim stride = index_const(1);
  auto place = [&](size_t d) {
    strides[d] = stride;
    stride = loop::simplify(stride * shape[d]);
  };
  place(1);
  for (size_t d = shape.size(); d-- > 2;) place(d);
  place(0);
  return strides;
}

bool has_strides(const Shape& shape, const Strides& have, const Strides& want) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (as_const_int(shape[d]) != 1 && !provably_equal(have[d], want[d])) return false;
  return true;
}

class LayoutPlanner : GraphRewriter {
 public:
  explicit LayoutPlanner(Graph graph) : GraphRewriter(std::move(graph)) {}

  Graph run() {
    bool any = false;
    for (const Node& node : old_.nodes) {
      const bool is_conv = node.op() == Op::kConv || node.op() == Op::kConvBackward;
      has_sequences_ |= is_conv && old_.type(node.operands[0]).shape.size() == 3;
      any |= is_conv || node.op() == Op::kLstm || is_attention(node.op()) || is_given_channels_last(node);
    }
    if (!any) return std::move(old_);
    return rebuild([&](int32_t n) {
      Node node = with_mapped_operands(n);
      plan(node);
      keep(n, std::move(node));
    });
  }

 private:
  // Is it a batch of images or volumes, or of sequences in a graph with convolutions over one dim?
  bool is_spatial(const Shape& shape) const {
    return shape.size() == 4 || shape.size() == 5 || (has_sequences_ && shape.size() == 3);
  }

  bool lies_channels_last(const Shape& shape, const Strides& strides) const {
    return is_spatial(shape) && has_strides(shape, strides, channels_last_strides(shape)) &&
           !has_strides(shape, strides, contiguous_strides(shape));
  }

  bool is_given_channels_last(const Node& node) const {
    return node.op() == Op::kInput && !node.layouts.empty() && !node.layouts[0].empty() &&
           lies_channels_last(node.types[0].shape, node.layouts[0]);
  }

  bool is_channels_last(Value v) const {
    return lies_channels_last(new_.type(v).shape, resolve_view(new_, v).strides);
  }

  void set_channels_last(Node& node, size_t result) const {
    node.layouts.resize(node.types.size());
    node.layouts[result] = channels_last_strides(node.types[result].shape);
  }

  Value as_channels_last(Value v) {
    const Strides strides = channels_last_strides(new_.type(v).shape);
    return in_layout(v, strides, {strides}, channels_last_);
  }

  // The layout of [batch, heads, rows, columns] in which a row of all heads is contiguous.
  static void set_heads_inside(Node& node, size_t result) {
    const Shape& shape = node.types[result].shape;
    const Dim row = loop::simplify(shape[1] * shape[3]);
    node.layouts.resize(node.types.size());
    node.layouts[result] = {loop::simplify(shape[2] * row), shape[3], row, index_const(1)};
  }

  // Elements of a sequence may share memory, as in an expanded one. The library does not take that.
  Value as_row_major(Value v) { return in_layout(v, contiguous_strides(new_.type(v).shape), {}, row_major_); }

  // v itself, or a Reorder of it, which `made` then has for the next time.
  Value in_layout(Value v, const Strides& strides, std::vector<Strides> layouts,
                  std::map<Value, Value>& made) {
    if (has_strides(new_.type(v).shape, resolve_view(new_, v).strides, strides)) return v;
    if (auto it = made.find(v); it != made.end()) return it->second;
    return made[v] = add({Reorder{}, {v}, {new_.type(v)}, std::move(layouts)});
  }

  // oneDNN reads an image of few channels fastest in the layout that it has.
  bool is_image(const Shape& shape) const {
    const auto channels = as_const_int(shape[1]);
    return channels && *channels <= 4;
  }

  void plan(Node& node) {
    switch (node.op()) {
      case Op::kConv:
        if (!is_spatial(node.types[0].shape)) return;
        if (!is_image(new_.type(node.operands[0]).shape))
          node.operands[0] = as_channels_last(node.operands[0]);
        set_channels_last(node, 0);
        plan_post_operands(node);
        return;
      case Op::kConvBackward: {
        if (!is_spatial(new_.type(node.operands[0]).shape)) return;
        const bool weights = node.get<ConvBackward>().which == GradientOf::kWeights;
        node.operands[0] = as_channels_last(node.operands[0]);
        if (weights && !is_image(new_.type(node.operands[1]).shape))
          node.operands[1] = as_channels_last(node.operands[1]);
        if (!weights) set_channels_last(node, 0);
        return;
      }
      case Op::kLstm:
        for (Value& v : node.operands) v = as_row_major(v);
        return;
      case Op::kAttention:
        set_heads_inside(node, 0);
        return;
      case Op::kAttentionBackward:
        for (size_t r = 0; r < node.types.size(); ++r) set_heads_inside(node, r);
        return;
      default:
        if (info(node.op()).has(kFollowsLayout)) follow_operands(node);
    }
  }

  // Operands of post-ops that have the shape of the result are read in its layout.
  void plan_post_operands(Node& node) {
    const size_t first = has_bias(node) ? 3 : 2;
    for (size_t i = first; i < node.operands.size(); ++i)
      if (equal(new_.type(node.operands[i]).shape, node.types[0].shape))
        node.operands[i] = as_channels_last(node.operands[i]);
  }

  void follow_operands(Node& node) const {
    if (!is_spatial(node.types[0].shape)) return;
    bool follows = false;
    for (Value v : node.operands) follows |= is_channels_last(v);
    if (!follows) return;
    for (size_t r = 0; r < node.types.size(); ++r) set_channels_last(node, r);
  }

  bool has_sequences_ = false;
  std::map<Value, Value> channels_last_, row_major_;
};

}  // namespace

Graph plan_layouts(Graph graph) { return LayoutPlanner(std::move(graph)).run(); }

}  // namespace ipex::graph
