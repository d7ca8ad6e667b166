// See values.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/graph/constants.h"
#include "backend/lower/values.h"
#include "backend/views.h"
#include "codegen/loop/half.h"
#include "codegen/loop/polynomial.h"
#include "codegen/loop/simplify.h"
#include "runtime/index_errors.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_cast;
using loop::make_int;
using loop::make_load;
using loop::ScalarOp;

namespace {

constexpr int64_t kLongestIndex = 64;  // nodes; well above what views of one tensor need

double rounded(double value, Dtype dtype) {
  if (dtype == Dtype::kBF16) return loop::bf16_to_f32(loop::f32_to_bf16(static_cast<float>(value)));
  if (dtype == Dtype::kF16) return loop::f16_to_f32(loop::f32_to_f16(static_cast<float>(value)));
  return value;
}

// Rounds to a half type and converts back to the type that arithmetic is done in.
Expr round_through(Dtype dtype, const Expr& x) {
  if (!is_half(dtype)) return make_cast(dtype, x);
  return make_cast(Dtype::kF32, make_cast(dtype, make_cast(Dtype::kF32, x)));
}

// The bits of a number as one of another type of its size.
Expr reinterpreted(Dtype from, Dtype to, Expr x) {
  constexpr std::array kBits = {Dtype::kI8, Dtype::kI16, Dtype::kI32, Dtype::kI64};
  const auto bits = x->type.with_dtype(kBits[std::countr_zero(static_cast<uint64_t>(itemsize(from)))]);
  x = make_cast(from, x);  // a half that is held in f32 is rounded
  if (is_float(from)) x = loop::make_apply_as(ScalarOp::bitcast_int_, {x}, bits);
  if (is_float(to))
    x = loop::make_apply_as(ScalarOp::bitcast_float_, {make_cast(bits.dtype, x)}, bits.with_dtype(to));
  return make_cast(opmath(to), make_cast(to, x));
}

// An index that was proved to be in range needs no check. It then fits in half the bytes of a vector, and one
// gather instruction reads what else takes two. It is still clamped: the kernel may compute it again and
// round otherwise than the proof assumes, and it must not read memory beside the tensor. Index arithmetic
// stays as it is, because it is exact and the compiler sees strides in it.
Expr proved_index(const Expr& inside, const Dim& size) {
  const bool computed = inside->is(loop::ExprKind::kVar) || inside->is(loop::ExprKind::kLoad) ||
                        inside->is(loop::ExprKind::kCast);
  if (!computed) return inside;
  const int64_t last = *as_const_int(size) - 1;
  const Dtype dtype = last <= std::numeric_limits<int32_t>::max() ? Dtype::kI32 : Dtype::kI64;
  const Expr x = make_apply(ScalarOp::max_, {make_cast(dtype, inside), loop::make_int({dtype, 1}, 0)});
  return make_cast(Dtype::kI64, make_apply(ScalarOp::min_, {x, loop::make_int({dtype, 1}, last)}));
}

// The number of a constant with one element or with equal ones. Other constants are inputs of the group.
Expr literal(const Node& node) {
  const Dtype dtype = node.types[0].dtype;
  const auto& [value, data] = node.get<Constant>();
  Number number = value.value_or(0);
  if (data && !data->bytes.empty()) {
    const std::vector<std::byte>& bytes = data->bytes;
    const size_t item = itemsize(dtype);
    for (size_t at = item; at < bytes.size(); at += item)
      if (std::memcmp(bytes.data(), bytes.data() + at, item) != 0)
        throw InternalError("a constant tensor inside a group; it has to be an operand of the group");
    number = decode_number(bytes.data(), dtype);
  }
  const loop::Type type{opmath(dtype)};
  if (const auto* integer = std::get_if<int64_t>(&number)) return make_int(type, *integer);
  return loop::make_const(type, rounded(std::get<double>(number), dtype));  // as it would be in memory
}

}  // namespace

std::string label(Value v) {
  return "t" + std::to_string(v.node) + (v.result ? "_" + std::to_string(v.result) : "");
}

void report_index(Emitter& emitter, IndexFault error, int64_t dim, const Expr& given, const Dim& size,
                  const Expr& fault) {
  const int64_t code = *index_error_code(text(error), dim);
  loop::If report;
  report.condition = fault;
  report.then_body = loop::make_block({loop::Call{"ipex_report_index", {given, size, index_const(code)}}});
  emitter.emit(std::move(report), std::max(emitter.depth_of(fault), emitter.depth_of(given)));
}

Values::Values(const PlacedGroup& group, const ReductionAnalysis& analysis, const NestPlan& plan,
               Coordinates& coordinates, Emitter& emitter)
    : group_(group),
      body_(group.body),
      plan_(plan),
      coordinates_(coordinates),
      emitter_(emitter),
      rows_(coordinates, emitter),
      reductions_(analysis, *this, coordinates, rows_),
      memos_(1) {
  emitter_.on_close = [this](int depth) {
    const size_t open = static_cast<size_t>(depth);
    if (memos_.size() > open) memos_.resize(open);
    rows_.close(open);
  };
}

Expr Values::element(Value v, const Index& index, const Expr& mask) {
  for (size_t depth = memos_.size(); depth-- > 0;)
    for (const Memo& memo : memos_[depth])
      if (memo.v == v && same(memo.index, index) && same(memo.mask, mask)) return memo.result;
  if (const auto it = stored_.find(v); it != stored_.end()) {
    Expr result = named(v, load(it->second, body_.type(v).dtype, index, mask));
    remember(v, index, mask, result);
    return result;
  }
  const bool is_kept = !mask && plan_.kept_in_rows.count(v) && coordinates_.is_index_of(v, index);
  if (is_kept)
    if (std::optional<Expr> kept = rows_.load(v)) {
      Expr result = emitter_.let(label(v), *kept);
      remember(v, index, mask, result);
      return result;
    }
  const Node& node = body_.node(v);
  Expr result = compute(v, index, mask);
  if (plan_.rounded.count(v) && node.op() == Op::kPointwise)
    result = round_through(node.types[0].dtype, result);
  if (node.op() == Op::kInput || node.op() == Op::kPointwise || node.op() == Op::kGather ||
      node.op() == Op::kCat || node.op() == Op::kPad)
    result = named(v, result);
  remember(v, index, mask, result);
  if (is_kept) rows_.store(v, index, result);
  return result;
}

// A number of a half type gets its name before it is widened, so that a store of it does not round again.
Expr Values::named(Value v, const Expr& x) {
  const bool widened = x->is(loop::ExprKind::kCast) && is_half(x->args[0]->type.dtype);
  if (!widened) return emitter_.let(label(v), x);
  return make_cast(x->type.dtype, emitter_.let(label(v), x->args[0]));
}

void Values::remember(Value v, const Index& index, const Expr& mask, const Expr& result) {
  const size_t depth = emitter_.depth_of(result);
  if (memos_.size() <= depth) memos_.resize(depth + 1);
  memos_[depth].push_back({v, index, mask, result});
}

Expr Values::compute(Value v, const Index& index, const Expr& mask) {
  const Node& node = body_.node(v);
  switch (node.op()) {
    case Op::kInput:
      return load(group_.inputs.at(v), node.types[0].dtype, index, mask);
    case Op::kConstant:
      return literal(node);
    case Op::kPointwise:
      return pointwise(node, index, mask);
    case Op::kReduce:
      return reductions_.element(v, index, mask);
    case Op::kPermute:
    case Op::kExpand:
    case Op::kReshape:
    case Op::kSlice:
    case Op::kReorder:
      return element(node.operands[0], with_short_parts(operand_index(node, index)), mask);
    case Op::kPad:
      return pad(node, index, mask);
    case Op::kCat:
      return cat(node, index, mask);
    case Op::kIota: {
      const Iota& iota = node.get<Iota>();
      return make_cast(group_.compute_dtype(v), iota.start + iota.step * index[iota.axis]);
    }
    case Op::kFull:
      return make_cast(group_.compute_dtype(v), node.get<Full>().value);
    case Op::kGather:
      return gather(node, index, mask);
    case Op::kScan:
    case Op::kScatter:
      return load(plan_.whole.at(v), body_.type(v).dtype, index, mask);
    case Op::kSegment:
      return segment(*this, v, index, mask);
    case Op::kPool:
      return pool(*this, v, index, mask);
    case Op::kMatMul:
      return matmul(*this, v, index, mask);
    case Op::kConv:
      return conv(*this, v, index, mask);
    case Op::kConvBackward:
      return conv_backward(*this, v, index, mask);
    default:
      throw InternalError("lower_group: no lowering of '" + std::string(info(node.op()).name) +
                          "' inside a group; form_groups should have left it outside");
  }
}

Expr Values::load(const BufferView& from, Dtype dtype, const Index& index, const Expr& mask) {
  loaded_.insert(from.buffer);
  return make_cast(opmath(dtype), make_load(from.buffer, dtype, from.position(index), mask));
}

bool Values::is_rounded_late(Value v) const {
  const Node& node = body_.node(v);
  if (is_view(body_, node)) return is_rounded_late(node.operands[0]);
  return is_half(node.types[v.result].dtype) && node.op() != Op::kInput && node.op() != Op::kConstant &&
         !node.is(PointwiseOp::cast_);
}

// Intermediates of a half type stay in f32 inside a kernel. Only an explicit cast rounds them, also a cast to
// integers: these may be positions, and they must be those of the rounded numbers.
Expr Values::pointwise(const Node& node, const Index& index, const Expr& mask) {
  const PointwiseOp fn = node.get<Pointwise>().fn;
  Exprs args;
  for (Value operand : node.operands) args.push_back(element(operand, index, mask));
  if (fn == PointwiseOp::cast_ && !is_float(node.types[0].dtype) && is_rounded_late(node.operands[0]))
    args[0] = round_through(body_.type(node.operands[0]).dtype, args[0]);
  Expr x = ops::row(fn).body(args);
  if (fn == PointwiseOp::cast_) return round_through(node.types[0].dtype, x);
  if (fn == PointwiseOp::reinterpret_)
    return reinterpreted(body_.type(node.operands[0]).dtype, node.types[0].dtype, x);
  return make_cast(opmath(node.types[0].dtype), x);
}

Index Values::operand_index(const Node& node, const Index& index) const {
  const Shape& shape = body_.type(node.operands[0]).shape;
  const Shape& result = node.types[0].shape;
  Index out(shape.size(), index_const(0));
  switch (node.op()) {
    case Op::kPermute: {
      const Ints& dims = node.get<Permute>().dims;
      for (size_t d = 0; d < dims.size(); ++d) out[dims[d]] = index[d];
      return out;
    }
    case Op::kExpand: {
      const Ints& dims = node.get<Expand>().dims;
      for (size_t d = 0; d < shape.size(); ++d)
        if (!is_one(shape[d])) out[d] = index[dims[d]];
      return out;
    }
    case Op::kReshape:
      return reshape_index(index, result, shape, emitter_.ranges());
    case Op::kSlice: {
      const auto& [starts, steps] = node.get<Slice>();
      for (size_t d = 0; d < shape.size(); ++d) out[d] = starts[d] + index[d] * index_const(steps[d]);
      return out;
    }
    default:
      return index;
  }
}

// A reshape whose factors do not line up uses its whole index for each dim. Long positions get names: without
// them the text would grow exponentially along a chain of such reshapes.
Index Values::with_short_parts(Index index) {
  for (Expr& e : index)
    if (loop::node_count(e) > kLongestIndex) e = emitter_.let("at", loop::simplify(e));
  return index;
}

Expr Values::pad(const Node& node, const Index& index, const Expr& mask) {
  const auto& [low, high] = node.get<Pad>();
  const Shape& shape = body_.type(node.operands[0]).shape;
  Index at = index;
  Expr inside;
  for (size_t d = 0; d < shape.size(); ++d) {
    at[d] = index[d] - index_const(low[d]);
    if (low[d] > 0) inside = both(inside, make_apply(ScalarOp::ge_, {at[d], index_const(0)}));
    if (high[d] > 0) inside = both(inside, make_apply(ScalarOp::lt_, {at[d], shape[d]}));
  }
  if (!inside) return element(node.operands[0], at, mask);
  inside = emitter_.let("inside", inside);
  return make_apply(ScalarOp::select_, {inside, element(node.operands[0], at, both(mask, inside)),
                                        element(node.operands[1], {}, mask)});
}

Expr Values::cat(const Node& node, const Index& index, const Expr& mask) {
  const int64_t axis = node.get<Cat>().axis;
  std::vector<Expr> begins{index_const(0)};
  for (Value operand : node.operands) begins.push_back(begins.back() + body_.type(operand).shape[axis]);
  Expr result;
  for (size_t k = node.operands.size(); k-- > 0;) {
    Index at = index;
    at[axis] = index[axis] - begins[k];
    Expr before_end, inside;
    if (k + 1 < node.operands.size())
      before_end = emitter_.let("before", make_apply(ScalarOp::lt_, {index[axis], begins[k + 1]}));
    inside = before_end;
    if (k > 0) inside = both(inside, make_apply(ScalarOp::ge_, {index[axis], begins[k]}));
    if (inside) inside = emitter_.let("inside", inside);
    Expr x = element(node.operands[k], at, both(mask, inside));
    result = result ? make_apply(ScalarOp::select_, {before_end, x, result}) : x;
  }
  return result;
}

Index Values::mapped_index(const Node& node, const Shape& x, const Index& u, const Expr& mask, Expr* valid) {
  const auto [map, wrap, error, error_dims, proved] = indexing_of(node);
  Index at(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    if (map[d] >= 0) {
      at[d] = u[map[d]];
      continue;
    }
    Expr given = element(node.operands[-map[d]], u, mask);
    given = make_cast(Dtype::kI64, given);
    if (auto known = as_const_int(given), size = as_const_int(x[d]);
        known && size && *known >= 0 && *known < *size) {
      at[d] = given;
      continue;
    }
    if (std::find(proved.begin(), proved.end(), -map[d]) != proved.end()) {
      at[d] = proved_index(given, x[d]);
      continue;
    }
    Expr position = given;
    if (wrap) {
      Expr negative = make_apply(ScalarOp::lt_, {given, index_const(0)});
      position = make_apply(ScalarOp::select_, {negative, given + x[d], given});
    }
    at[d] = emitter_.let("at", position);
    Expr in_range =
        emitter_.let("ok", make_apply(ScalarOp::bitand_, {make_apply(ScalarOp::ge_, {at[d], index_const(0)}),
                                                          make_apply(ScalarOp::lt_, {at[d], x[d]})}));
    report_index(emitter_, error, error_dims[d], given, x[d],
                 both(mask, make_apply(ScalarOp::bitnot_, {in_range})));
    *valid = both(*valid, in_range);
  }
  return at;
}

Expr Values::gather(const Node& node, const Index& index, const Expr& mask) {
  const Value x = node.operands[0];
  Expr valid;
  Index at = mapped_index(node, body_.type(x).shape, index, mask, &valid);
  return element(x, at, both(mask, valid));
}

}  // namespace ipex::graph
