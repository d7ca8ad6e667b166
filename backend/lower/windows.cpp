// Pooling, reductions over parts of a dim, and the naive form of what a library normally computes:
// contractions over K and over convolution windows. They are the reference of eval() and the fallback for
// shapes and dtypes that the library refuses.
#include <algorithm>

#include "backend/lower/lowering.h"
#include "backend/lower/post_ops.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::ScalarOp;

namespace {

// Where a window's tap falls along each spatial dim; inside: null when it always does.
struct Tap {
  Index position;
  Expr inside;
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

// The same relation the other way round: the q with q * stride - padding + k * dilation == p, where there is
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

}  // namespace

namespace {

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

  // Sliding windows seen from the element p they look at: those that cover it are at most so many.
  int64_t covering_taps() const { return (kernel + stride - 1) / stride; }
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

  // Elements of a sliding window inside the tensor (padded or not); a window may stick out at the end in ceil
  // mode.
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

}  // namespace

Expr Lowering::pool(Value v, const Index& index, const Expr& mask) {
  const Node& node = body_.node(v);
  const Shape& x_shape = body_.type(node.operands[0]).shape;
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
  // Indices cost a compare and a select an element: only where somebody reads them.
  bool wants_index = false;
  auto is_index = [&](Value u) { return u.node == v.node && u.result == 1; };
  for (const Node& n : body_.nodes)
    wants_index |= std::any_of(n.operands.begin(), n.operands.end(), is_index);
  for (const GraphOutput& out : body_.outputs) wants_index |= is_index(out.value);

  const ops::ReductionRow& row = ops::row(!is_max       ? ReductionOp::sum_
                                          : wants_index ? ReductionOp::max_of_window_
                                                        : ReductionOp::amax_);
  const Dtype type = compute_dtype(node.operands[0]);
  Emitter::ReductionSpec spec;
  for (const PoolDim& dim : dims)
    spec.extents.push_back(window == PoolWindow::kAdaptive   ? dim.adaptive_taps()
                           : window == PoolWindow::kCovering ? index_const(dim.covering_taps())
                                                             : index_const(dim.kernel));
  const Shape plane(x_shape.begin() + static_cast<int64_t>(lead), x_shape.end());
  const Dtype flat = position_dtype(plane, type);
  spec.states = row.states(type, flat);
  for (loop::State& s : spec.states)
    s.name = "s" + std::to_string(v.node) + (s.name == "s0" ? "" : "_" + s.name.substr(1));
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
    if (tap.inside) tap.inside = emitter_.let("inside", tap.inside);
    Index at(index.begin(), index.begin() + static_cast<int64_t>(lead));
    at.insert(at.end(), tap.position.begin(), tap.position.end());
    Expr x = value(node.operands[0], at, both(mask, tap.inside)), counts = tap.inside;
    if (node.operands.size() == 2) {  // not the window that holds p, but whose maximum lies elsewhere
      const Expr from = value(node.operands[1], at, both(mask, tap.inside));
      const Index own(index.begin() + static_cast<int64_t>(lead), index.end());
      const Shape image(result.begin() + static_cast<int64_t>(lead), result.end());
      counts = emitter_.let("counts", both(counts, make_apply(ScalarOp::eq_, {from, flatten(own, image)})));
    }
    Exprs next = row.update(states, x, loop::make_cast(flat, flatten(tap.position, plane)));
    if (counts)
      for (size_t k = 0; k < next.size(); ++k)
        next[k] = make_apply(ScalarOp::select_, {counts, next[k], states[k]});
    return next;
  };
  spec.merge = [&](const Exprs& a, const Exprs& b) { return row.merge(a, b); };
  const Exprs states = emitter_.reduce(spec, emitter_.depth_of(index, mask));
  if (is_max) {
    if (wants_index) remember({v.node, 1}, index, mask, loop::make_cast(Dtype::kI64, states[1]));
    remember({v.node, 0}, index, mask, states[0]);
    return value(v, index, mask);  // remembered now
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
  return emitter_.let("t" + std::to_string(v.node), mean);
}

// A loop over the positions of one part.
Expr Lowering::segment(Value v, const Index& index, const Expr& mask) {
  const Node& node = body_.node(v);
  const Value x = node.operands[0];
  const ops::ReductionRow& row = ops::row(node.get<Segment>().fn);
  auto position = [&](Value at) {
    const Dim& size = body_.type(x).shape[0];
    const Expr given = value(at, {index[0]}, mask);
    report_index(IndexFault::index, 0, given, size + index_const(1),
                 both(mask, make_apply(ScalarOp::bitor_, {make_apply(ScalarOp::lt_, {given, index_const(0)}),
                                                          make_apply(ScalarOp::gt_, {given, size})})));
    Expr within = make_apply(ScalarOp::max_, {given, index_const(0)});
    return emitter_.let("at", make_apply(ScalarOp::min_, {within, size}));
  };
  const Expr begin = position(node.operands[1]), end = position(node.operands[2]);
  const Expr count = emitter_.let("count", make_apply(ScalarOp::max_, {end - begin, index_const(0)}));
  Emitter::ReductionSpec spec;
  spec.extents = {count};
  spec.states = row.states(compute_dtype(x), Dtype::kI64);
  for (loop::State& s : spec.states)
    s.name = "s" + std::to_string(v.node) + (s.name == "s0" ? "" : "_" + s.name.substr(1));
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    Index at = index;
    at[0] = begin + vars[0];
    Expr element = value(x, at, mask);
    return row.update(states, element, at[0]);
  };
  spec.merge = [&](const Exprs& a, const Exprs& b) { return row.merge(a, b); };
  const Exprs states = emitter_.reduce(spec, emitter_.depth_of(index, mask));
  const Exprs results = row.finish(states, count, 1);
  for (size_t r = 0; r < results.size(); ++r) {
    const Value result{v.node, static_cast<int32_t>(r)};
    remember(result, index, mask,
             emitter_.let("t" + std::to_string(v.node) + (r ? "_" + std::to_string(r) : ""),
                          loop::make_cast(compute_dtype(result), results[r])));
  }
  return value(v, index, mask);  // remembered now
}

Expr Lowering::contract(int32_t id, Dtype dtype, const std::vector<Dim>& extents, const Index& index,
                        const Expr& mask, const std::function<Expr(const Exprs& vars)>& term) {
  const ops::ReductionRow& row = ops::row(ReductionOp::sum_);
  Emitter::ReductionSpec spec;
  spec.extents = extents;
  spec.states = row.states(dtype, Dtype::kI64);
  spec.states[0].name = "s" + std::to_string(id);
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    return Exprs{states[0] + loop::make_cast(dtype, term(vars))};
  };
  spec.merge = [&](const Exprs& a, const Exprs& b) { return row.merge(a, b); };
  return emitter_.reduce(spec, emitter_.depth_of(index, mask))[0];
}

// The bias (if any) is operand `operand`; the operands of the post-ops follow it. They broadcast from the
// right, except a convolution's bias, which is one number a channel.
Expr Lowering::epilogue(const Node& node, Expr x, size_t operand, const Index& index, const Expr& mask) {
  auto broadcast = [&](Value v) {
    const Shape& shape = body_.type(v).shape;
    Index at;
    for (size_t d = 0; d < shape.size(); ++d)
      at.push_back(is_one(shape[d]) ? index_const(0) : index[index.size() - shape.size() + d]);
    return loop::make_cast(x->type.dtype, value(v, at, mask));
  };
  if (has_bias(node)) {
    const Value bias = node.operands[operand++];
    x = x + (node.op() == Op::kConv ? loop::make_cast(x->type.dtype, value(bias, {index[1]}, mask))
                                    : broadcast(bias));
  }
  return with_post_ops(
      node, x, operand, [&](size_t k) { return broadcast(node.operands[k]); },
      [&](const Expr& value) { return emitter_.let("acc", value); });
}

Expr Lowering::matmul(const Node& node, int32_t id, const Index& index, const Expr& mask) {
  const Value a = node.operands[0], b = node.operands[1];
  const size_t rank = index.size();
  Expr sum =
      contract(id, compute_dtype({id, 0}), {body_.type(a).shape[rank - 1]}, index, mask, [&](const Exprs& k) {
        Index at_a = index, at_b = index;
        at_a[rank - 1] = at_b[rank - 2] = k[0];
        return value(a, at_a, mask) * value(b, at_b, mask);
      });
  return epilogue(node, sum, 2, index, mask);
}

// A convolution, its gradient by data, and both of their transposed forms are two sums: over windows that
// slide forwards (w is [out, in / groups, k...]) and backwards (w is [in, out / groups, k...]).
Expr Lowering::conv_sum(int32_t id, Value x, Value w, bool backwards, const Index& index, const Expr& mask) {
  const ConvWindow window = conv_window(body_.nodes[id]);
  const Shape &xs = body_.type(x).shape, &ws = body_.type(w).shape, &result = body_.nodes[id].types[0].shape;
  const size_t spatial = xs.size() - 2;
  const Dim groups = index_const(window.groups);
  const Dim in_per_group = loop::floordiv(xs[1], groups), out_per_group = loop::floordiv(result[1], groups);
  std::vector<Dim> extents{in_per_group};
  extents.insert(extents.end(), ws.begin() + 2, ws.end());
  return contract(id, compute_dtype({id, 0}), extents, index, mask, [&](const Exprs& r) {
    Tap tap;
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t stride = window.stride[d], padding = window.padding[d], dilation = window.dilation[d];
      if (backwards)
        unslide(tap, index[2 + d], r[1 + d], stride, padding, dilation, xs[2 + d]);
      else
        slide(tap, index[2 + d], r[1 + d], stride, padding, dilation, xs[2 + d], result[2 + d],
              as_const_int(ws[2 + d]).value_or(INT64_MAX / 2 / dilation));
    }
    if (tap.inside) tap.inside = emitter_.let("inside", tap.inside);
    Expr in_channel = loop::floordiv(index[1], out_per_group) * in_per_group + r[0];
    if (window.groups == 1) in_channel = r[0];
    Index at_x{index[0], in_channel}, at_w{index[1], r[0]};
    if (backwards)
      at_w = {in_channel, window.groups == 1 ? index[1] : loop::floormod(index[1], out_per_group)};
    at_x.insert(at_x.end(), tap.position.begin(), tap.position.end());
    at_w.insert(at_w.end(), r.begin() + 1, r.end());
    Expr term = value(x, at_x, both(mask, tap.inside)) * value(w, at_w, mask);
    if (!tap.inside) return term;  // a masked tap counts nothing, not even 0 * inf
    return make_apply(ScalarOp::select_, {tap.inside, term, loop::make_const(term->type, 0)});
  });
}

Expr Lowering::conv(const Node& node, int32_t id, const Index& index, const Expr& mask) {
  Expr sum = conv_sum(id, node.operands[0], node.operands[1], node.get<Conv>().transposed, index, mask);
  return epilogue(node, sum, 2, index, mask);
}

Expr Lowering::conv_backward(const Node& node, int32_t id, const Index& index, const Expr& mask) {
  const Value grad = node.operands[0], x = node.operands[1], w = node.operands[2];
  const ConvWindow window = conv_window(node);
  const bool transposed = window.transposed;
  if (node.get<ConvBackward>().which == GradientOf::kData)
    return conv_sum(id, grad, w, !transposed, index, mask);
  // w[o, c, k]: what slides over `wide` is aligned with `fixed`, whose channels are w's first dim.
  const Value fixed = transposed ? x : grad, wide = transposed ? grad : x;
  const Shape &fs = body_.type(fixed).shape, &ws = body_.type(wide).shape;
  const Dim groups = index_const(window.groups);
  std::vector<Dim> extents{fs[0]};
  extents.insert(extents.end(), fs.begin() + 2, fs.end());
  return contract(id, compute_dtype({id, 0}), extents, index, mask, [&](const Exprs& r) {
    Tap tap;
    for (size_t d = 0; d + 2 < fs.size(); ++d)
      slide(tap, r[1 + d], index[2 + d], window.stride[d], window.padding[d], window.dilation[d], ws[2 + d],
            fs[2 + d], as_const_int(node.types[0].shape[2 + d]).value_or(INT64_MAX / 2 / window.dilation[d]));
    if (tap.inside) tap.inside = emitter_.let("inside", tap.inside);
    Expr group = loop::floordiv(index[0], loop::floordiv(fs[1], groups));
    Expr channel = window.groups == 1 ? index[1] : group * loop::floordiv(ws[1], groups) + index[1];
    Index at_fixed{r[0], index[0]}, at_wide{r[0], channel};
    at_fixed.insert(at_fixed.end(), r.begin() + 1, r.end());
    at_wide.insert(at_wide.end(), tap.position.begin(), tap.position.end());
    Expr term = value(fixed, at_fixed, mask) * value(wide, at_wide, both(mask, tap.inside));
    if (!tap.inside) return term;
    return make_apply(ScalarOp::select_, {tap.inside, term, loop::make_const(term->type, 0)});
  });
}

}  // namespace ipex::graph
