// Elements of results that reduce a window or a contracted dim: pooling, parts of a dim, products and
// convolutions. Products and convolutions are here in their naive form, which gives eval() its meaning and
// computes the shapes and types that the library refuses.
#include <algorithm>
#include <functional>

#include "backend/lower/post_ops.h"
#include "backend/lower/values.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::ScalarOp;

namespace {

// Which element of each spatial dim a tap of a window reads.
struct Tap {
  Index position;
  Expr inside;  // is that inside the tensor? null: always
};

// One dim of a window that slides over `size` elements: p * stride - padding + k * dilation.
void slide(Tap& tap, const Expr& p, const Expr& k, int64_t stride, int64_t padding, int64_t dilation,
           const Dim& size, const Dim& outputs, int64_t taps) {
  Expr at = p * index_const(stride) + k * index_const(dilation) - index_const(padding);
  if (padding > 0) tap.inside = both(tap.inside, make_apply(ScalarOp::ge_, {at, index_const(0)}));
  auto n = as_const_int(size), m = as_const_int(outputs);
  if (!n || !m || (*m - 1) * stride + (taps - 1) * dilation - padding >= *n)
    tap.inside = both(tap.inside, make_apply(ScalarOp::lt_, {at, size}));
  tap.position.push_back(std::move(at));
}

// The same relation solved for the window: the q with q * stride - padding + k * dilation == p, if there is
// one.
void unslide(Tap& tap, const Expr& p, const Expr& k, int64_t stride, int64_t padding, int64_t dilation,
             const Dim& size) {
  Expr at = p + index_const(padding) - k * index_const(dilation);
  if (stride != 1) {
    tap.inside = both(tap.inside,
                      make_apply(ScalarOp::eq_, {loop::floormod(at, index_const(stride)), index_const(0)}));
    at = loop::floordiv(at, index_const(stride));
  }
  tap.inside = both(tap.inside, make_apply(ScalarOp::ge_, {at, index_const(0)}));
  tap.inside = both(tap.inside, make_apply(ScalarOp::lt_, {at, size}));
  tap.position.push_back(std::move(at));
}

Expr product(const Exprs& factors) {
  Expr out = index_const(1);
  for (const Expr& f : factors) out = out * f;
  return out;
}

// A loop of one reduction with its states, whose step is still to be set.
Emitter::ReductionSpec loop_of(const ops::ReductionRow& row, std::vector<Dim> extents, Dtype type,
                               Dtype position, int32_t node) {
  Emitter::ReductionSpec spec;
  spec.extents = std::move(extents);
  spec.states = states_of(row, type, position, node);
  spec.merge = [&row](const Exprs& a, const Exprs& b) { return row.merge(a, b); };
  return spec;
}

// The window of one output along one spatial dim of a Pool.
struct PoolDim {
  int64_t kernel, stride, padding, dilation;
  Dim size, outputs;  // of the operand and of the result

  Expr adaptive_begin(const Expr& p) const { return loop::floordiv(p * size, outputs); }
  Expr adaptive_end(const Expr& p) const {
    return loop::floordiv((p + index_const(1)) * size + outputs - index_const(1), outputs);
  }
  // Windows of an adaptive pooling differ in length by one at most.
  Dim adaptive_taps() const {
    const Dim longest = loop::floordiv(size + outputs - index_const(1), outputs);
    const bool all_equal = as_const_int(loop::simplify(loop::floormod(size, outputs))) == 0;
    return loop::simplify(all_equal ? longest : longest + index_const(1));
  }
  void adapt(Tap& tap, const Expr& p, const Expr& k) const {
    Expr at = adaptive_begin(p) + k;
    if (as_const_int(loop::simplify(floormod(size, outputs))) != 0)
      tap.inside = both(tap.inside, make_apply(ScalarOp::lt_, {at, adaptive_end(p)}));
    tap.position.push_back(std::move(at));
  }

  // At most so many sliding windows cover one element.
  int64_t covering_taps() const { return (kernel + stride - 1) / stride; }
  // The k-th of the windows that cover element p.
  void cover(Tap& tap, const Expr& p, const Expr& k) const {
    const Expr from_start = p + index_const(padding);
    Expr at = loop::floordiv(from_start, index_const(stride)) - index_const(covering_taps() - 1) + k;
    tap.inside = both(tap.inside, make_apply(ScalarOp::ge_, {at, index_const(0)}));
    tap.inside = both(tap.inside, make_apply(ScalarOp::lt_, {at, size}));
    if (kernel % stride != 0)
      tap.inside = both(tap.inside, make_apply(ScalarOp::lt_,
                                               {from_start - at * index_const(stride), index_const(kernel)}));
    tap.position.push_back(std::move(at));
  }

  // How many elements of a sliding window are inside the tensor, with its padding or without. In ceil mode
  // the last window may reach beyond the end.
  Expr length(const Expr& p, bool include_pad) const {
    Expr begin = p * index_const(stride) - index_const(padding);
    Expr end = make_apply(ScalarOp::min_, {begin + index_const(kernel), size + index_const(padding)});
    if (!include_pad) {
      begin = make_apply(ScalarOp::max_, {begin, index_const(0)});
      end = make_apply(ScalarOp::min_, {end, size});
    }
    return end - begin;
  }
};

// The sum of term(vars) over `extents`, computed in the type of v.
Expr contract(Values& values, Value v, const std::vector<Dim>& extents, const Index& index, const Expr& mask,
              const std::function<Expr(const Exprs& vars)>& term) {
  const Dtype type = values.group().compute_dtype(v);
  Emitter::ReductionSpec spec = loop_of(ops::row(ReductionOp::sum_), extents, type, Dtype::kI64, v.node);
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    return Exprs{states[0] + loop::make_cast(type, term(vars))};
  };
  Emitter& emitter = values.emitter();
  return emitter.reduce(spec, emitter.depth_of(index, mask))[0];
}

// A tap outside of the tensor adds 0, even where the weight is infinite.
Expr term_of(const Tap& tap, const Expr& product) {
  if (!tap.inside) return product;
  return make_apply(ScalarOp::select_, {tap.inside, product, loop::make_const(product->type, 0)});
}

// Adds the bias of v's node, if it has one, and applies the post-ops. The bias is the operand behind the
// weights; the operands of the post-ops follow. They broadcast from the right, except the bias of a
// convolution, which is one number a channel.
Expr with_epilogue(Values& values, Value v, Expr x, const Index& index, const Expr& mask) {
  const Graph& body = values.group().body;
  const Node& node = body.node(v);
  size_t operand = 2;
  auto broadcast = [&](Value other) {
    const Shape& shape = body.type(other).shape;
    Index at;
    for (size_t d = 0; d < shape.size(); ++d)
      at.push_back(is_one(shape[d]) ? index_const(0) : index[index.size() - shape.size() + d]);
    return loop::make_cast(x->type.dtype, values.element(other, at, mask));
  };
  if (has_bias(node)) {
    const Value bias = node.operands[operand++];
    x = x + (node.op() == Op::kConv ? loop::make_cast(x->type.dtype, values.element(bias, {index[1]}, mask))
                                    : broadcast(bias));
  }
  return with_post_ops(
      node, x, operand, [&](size_t k) { return broadcast(node.operands[k]); },
      [&](const Expr& value) { return values.emitter().let("acc", value); });
}

// Convolutions, their gradients by data, and the transposed forms of both are one of two sums: over windows
// that slide forwards, where w is [out, in / groups, k...], or backwards, where w is [in, out / groups,
// k...].
Expr conv_sum(Values& values, Value v, Value x, Value w, bool backwards, const Index& index,
              const Expr& mask) {
  const Graph& body = values.group().body;
  const ConvWindow window = conv_window(body.node(v));
  const Shape &xs = body.type(x).shape, &ws = body.type(w).shape, &result = body.type(v).shape;
  const size_t spatial = xs.size() - 2;
  const Dim groups = index_const(window.groups);
  const Dim in_per_group = loop::floordiv(xs[1], groups), out_per_group = loop::floordiv(result[1], groups);
  std::vector<Dim> extents{in_per_group};
  extents.insert(extents.end(), ws.begin() + 2, ws.end());
  return contract(values, v, extents, index, mask, [&](const Exprs& r) {
    Tap tap;
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t stride = window.stride[d], padding = window.padding[d], dilation = window.dilation[d];
      if (backwards)
        unslide(tap, index[2 + d], r[1 + d], stride, padding, dilation, xs[2 + d]);
      else
        slide(tap, index[2 + d], r[1 + d], stride, padding, dilation, xs[2 + d], result[2 + d],
              as_const_int(ws[2 + d]).value_or(INT64_MAX / 2 / dilation));
    }
    if (tap.inside) tap.inside = values.emitter().let("inside", tap.inside);
    Expr in_channel = loop::floordiv(index[1], out_per_group) * in_per_group + r[0];
    if (window.groups == 1) in_channel = r[0];
    Index at_x{index[0], in_channel}, at_w{index[1], r[0]};
    if (backwards)
      at_w = {in_channel, window.groups == 1 ? index[1] : loop::floormod(index[1], out_per_group)};
    at_x.insert(at_x.end(), tap.position.begin(), tap.position.end());
    at_w.insert(at_w.end(), r.begin() + 1, r.end());
    return term_of(tap, values.element(x, at_x, both(mask, tap.inside)) * values.element(w, at_w, mask));
  });
}

}  // namespace

Expr pool(Values& values, Value v, const Index& index, const Expr& mask) {
  const Graph& body = values.group().body;
  Emitter& emitter = values.emitter();
  const Node& node = body.node(v);
  const Shape& x_shape = body.type(node.operands[0]).shape;
  const Shape& result = node.types[0].shape;
  const Pool& pool = node.get<Pool>();
  const Ints &kernel = pool.kernel, &stride = pool.stride, &padding = pool.padding;
  const Ints dilation = pool.dilation.value_or(Ints(kernel.size(), 1));
  const size_t lead = x_shape.size() - kernel.size();
  std::vector<PoolDim> dims;
  for (size_t d = 0; d < kernel.size(); ++d)
    dims.push_back({kernel[d], stride[d], padding[d], dilation[d], x_shape[lead + d], result[lead + d]});
  const PoolWindow window = pool.window;
  const bool is_max = pool.kind == PoolKind::kMax;
  const bool wants_index = is_max && values.group().is_read({v.node, 1});
  const ops::ReductionRow& row = ops::row(!is_max       ? ReductionOp::sum_
                                          : wants_index ? ReductionOp::max_of_window_
                                                        : ReductionOp::amax_);
  const Dtype type = values.group().compute_dtype(node.operands[0]);
  std::vector<Dim> extents;
  for (const PoolDim& dim : dims)
    extents.push_back(window == PoolWindow::kAdaptive   ? dim.adaptive_taps()
                      : window == PoolWindow::kCovering ? index_const(dim.covering_taps())
                                                        : index_const(dim.kernel));
  const Shape plane(x_shape.begin() + static_cast<int64_t>(lead), x_shape.end());
  const Dtype flat = position_dtype(plane, type);
  Emitter::ReductionSpec spec = loop_of(row, std::move(extents), type, flat, v.node);
  spec.step = [&](const Exprs& taps, const Exprs& states) {
    Tap tap;
    for (size_t d = 0; d < dims.size(); ++d) {
      const PoolDim& dim = dims[d];
      if (window == PoolWindow::kAdaptive)
        dim.adapt(tap, index[lead + d], taps[d]);
      else if (window == PoolWindow::kCovering)
        dim.cover(tap, index[lead + d], taps[d]);
      else
        slide(tap, index[lead + d], taps[d], dim.stride, dim.padding, dim.dilation, dim.size, dim.outputs,
              dim.kernel);
    }
    if (tap.inside) tap.inside = emitter.let("inside", tap.inside);
    Index at(index.begin(), index.begin() + static_cast<int64_t>(lead));
    at.insert(at.end(), tap.position.begin(), tap.position.end());
    Expr x = values.element(node.operands[0], at, both(mask, tap.inside)), counts = tap.inside;
    if (node.operands.size() == 2) {  // a window that holds p may have its maximum elsewhere
      const Expr from = values.element(node.operands[1], at, both(mask, tap.inside));
      const Index own(index.begin() + static_cast<int64_t>(lead), index.end());
      const Shape image(result.begin() + static_cast<int64_t>(lead), result.end());
      counts = emitter.let("counts", both(counts, make_apply(ScalarOp::eq_, {from, flatten(own, image)})));
    }
    Exprs next = row.update(states, x, loop::make_cast(flat, flatten(tap.position, plane)));
    if (counts)
      for (size_t k = 0; k < next.size(); ++k)
        next[k] = make_apply(ScalarOp::select_, {counts, next[k], states[k]});
    return next;
  };
  const Exprs states = emitter.reduce(spec, emitter.depth_of(index, mask));
  if (is_max) {
    if (wants_index) values.remember({v.node, 1}, index, mask, loop::make_cast(Dtype::kI64, states[1]));
    values.remember({v.node, 0}, index, mask, states[0]);
    return values.element(v, index, mask);  // it is remembered now
  }
  Expr count = index_const(pool.divisor);
  if (pool.divisor == 0) {
    Exprs lengths;
    for (size_t d = 0; d < dims.size(); ++d) {
      const Expr& p = index[lead + d];
      lengths.push_back(window == PoolWindow::kAdaptive ? dims[d].adaptive_end(p) - dims[d].adaptive_begin(p)
                                                        : dims[d].length(p, pool.count_include_pad));
    }
    count = product(lengths);
  }
  Expr mean = make_apply(ScalarOp::div_, {states[0], loop::make_cast(type, count)});
  return emitter.let(label(v), mean);
}

// A loop over the positions of one part.
Expr segment(Values& values, Value v, const Index& index, const Expr& mask) {
  const PlacedGroup& group = values.group();
  Emitter& emitter = values.emitter();
  const Node& node = group.body.node(v);
  const Value x = node.operands[0];
  const ops::ReductionRow& row = ops::row(node.get<Segment>().fn);
  auto position = [&](Value at) {
    const Dim& size = group.body.type(x).shape[0];
    const Expr given = values.element(at, {index[0]}, mask);
    report_index(emitter, IndexFault::index, 0, given, size + index_const(1),
                 both(mask, make_apply(ScalarOp::bitor_, {make_apply(ScalarOp::lt_, {given, index_const(0)}),
                                                          make_apply(ScalarOp::gt_, {given, size})})));
    Expr within = make_apply(ScalarOp::max_, {given, index_const(0)});
    return emitter.let("at", make_apply(ScalarOp::min_, {within, size}));
  };
  const Expr begin = position(node.operands[1]), end = position(node.operands[2]);
  const Expr count = emitter.let("count", make_apply(ScalarOp::max_, {end - begin, index_const(0)}));
  Emitter::ReductionSpec spec = loop_of(row, {count}, group.compute_dtype(x), Dtype::kI64, v.node);
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    Index at = index;
    at[0] = begin + vars[0];
    Expr element = values.element(x, at, mask);
    return row.update(states, element, at[0]);
  };
  const Exprs states = emitter.reduce(spec, emitter.depth_of(index, mask));
  const Exprs results = row.finish(states, count, 1);
  for (size_t r = 0; r < results.size(); ++r) {
    const Value result{v.node, static_cast<int32_t>(r)};
    values.remember(result, index, mask,
                    emitter.let(label(result), loop::make_cast(group.compute_dtype(result), results[r])));
  }
  return values.element(v, index, mask);  // it is remembered now
}

Expr matmul(Values& values, Value v, const Index& index, const Expr& mask) {
  const Graph& body = values.group().body;
  const Value a = body.node(v).operands[0], b = body.node(v).operands[1];
  const size_t rank = index.size();
  const Dim& terms = body.type(a).shape[rank - 1];
  const Expr sum = contract(values, v, {terms}, index, mask, [&](const Exprs& k) {
    Index at_a = index, at_b = index;
    at_a[rank - 1] = at_b[rank - 2] = k[0];
    return values.element(a, at_a, mask) * values.element(b, at_b, mask);
  });
  return with_epilogue(values, v, sum, index, mask);
}

Expr conv(Values& values, Value v, const Index& index, const Expr& mask) {
  const Node& node = values.group().body.node(v);
  const bool backwards = node.get<Conv>().transposed;
  const Expr sum = conv_sum(values, v, node.operands[0], node.operands[1], backwards, index, mask);
  return with_epilogue(values, v, sum, index, mask);
}

Expr conv_backward(Values& values, Value v, const Index& index, const Expr& mask) {
  const Graph& body = values.group().body;
  const Node& node = body.node(v);
  const Value grad = node.operands[0], x = node.operands[1], w = node.operands[2];
  const ConvWindow window = conv_window(node);
  const bool transposed = window.transposed;
  if (node.get<ConvBackward>().which == GradientOf::kData)
    return conv_sum(values, v, grad, w, !transposed, index, mask);
  // The window of w[o, c, k] slides over `wide` and gives the shape of `fixed`, whose channels are w's first
  // dim.
  const Value fixed = transposed ? x : grad, wide = transposed ? grad : x;
  const Shape &fs = body.type(fixed).shape, &ws = body.type(wide).shape;
  const Dim groups = index_const(window.groups);
  std::vector<Dim> extents{fs[0]};
  extents.insert(extents.end(), fs.begin() + 2, fs.end());
  return contract(values, v, extents, index, mask, [&](const Exprs& r) {
    Tap tap;
    for (size_t d = 0; d + 2 < fs.size(); ++d)
      slide(tap, r[1 + d], index[2 + d], window.stride[d], window.padding[d], window.dilation[d], ws[2 + d],
            fs[2 + d], as_const_int(node.types[0].shape[2 + d]).value_or(INT64_MAX / 2 / window.dilation[d]));
    if (tap.inside) tap.inside = values.emitter().let("inside", tap.inside);
    Expr group = loop::floordiv(index[0], loop::floordiv(fs[1], groups));
    Expr channel = window.groups == 1 ? index[1] : group * loop::floordiv(ws[1], groups) + index[1];
    Index at_fixed{r[0], index[0]}, at_wide{r[0], channel};
    at_fixed.insert(at_fixed.end(), r.begin() + 1, r.end());
    at_wide.insert(at_wide.end(), tap.position.begin(), tap.position.end());
    return term_of(
        tap, values.element(fixed, at_fixed, mask) * values.element(wide, at_wide, both(mask, tap.inside)));
  });
}

}  // namespace ipex::graph
