// Constructors of Loop IR. They check the typing rules for every node, and fold index arithmetic on
// constants.
#include "codegen/loop/ir.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "codegen/loop/half.h"
#include "codegen/loop/type_rules.h"

namespace ipex::loop {
namespace {

constexpr ScalarOpInfo kScalarOps[] = {
#define SCALAR_OP(name, arity, domain, result, summary) \
  {#name, arity, Domain::domain, ResultRule::result, summary},
#include "codegen/scalar_ops.def"
#undef SCALAR_OP
};

[[noreturn]] void ill_typed(const std::string& what) {
  throw InternalError("ill-typed loop expression: " + what);
}

std::shared_ptr<ExprNode> node(ExprKind kind, Type type, std::vector<Expr> args = {}) {
  auto n = std::make_shared<ExprNode>();
  n->kind = kind;
  n->type = type;
  n->args = std::move(args);
  return n;
}

int64_t wrap_to(Dtype dtype, int64_t value) {
  switch (dtype) {
    case Dtype::kBool:
      return value != 0;
    case Dtype::kU8:
      return static_cast<uint8_t>(value);
    case Dtype::kI8:
      return static_cast<int8_t>(value);
    case Dtype::kI16:
      return static_cast<int16_t>(value);
    case Dtype::kI32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

double round_to(Dtype dtype, double value) {
  if (std::isnan(value)) return std::numeric_limits<double>::quiet_NaN();
  switch (dtype) {
    case Dtype::kF32:
      return static_cast<float>(value);
    case Dtype::kF16:
      return f16_to_f32(f32_to_f16(static_cast<float>(value)));
    case Dtype::kBF16:
      return bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
    default:
      return value;
  }
}

// The values of the operands if they are i64 constants, broadcast or not. None if the operands have different
// types, so that folding never hides the mistake.
std::pair<std::optional<int64_t>, std::optional<int64_t>> index_values(const Expr& a, const Expr& b) {
  if (a->type.dtype != Dtype::kI64 || b->type.dtype != Dtype::kI64) return {};
  return {as_const_int(a), as_const_int(b)};
}

Expr index_like(const Expr& a, const Expr& b, uint64_t value) {
  return make_int({Dtype::kI64, std::max(a->type.lanes, b->type.lanes)}, static_cast<int64_t>(value));
}

Expr widen(const Expr& x, const Expr& other) {
  return x->type.lanes == 1 ? make_broadcast(x, other->type.lanes) : x;
}

}  // namespace

const ScalarOpInfo& info(ScalarOp op) { return kScalarOps[static_cast<size_t>(op)]; }
int scalar_op_count() { return static_cast<int>(std::size(kScalarOps)); }

std::optional<ScalarOp> parse_scalar_op(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, ScalarOp> map;
    for (size_t i = 0; i < std::size(kScalarOps); ++i)
      map.emplace(kScalarOps[i].name, static_cast<ScalarOp>(i));
    return map;
  }();
  auto it = by_name.find(name);
  return it == by_name.end() ? std::nullopt : std::optional(it->second);
}

Expr make_const(Type type, double value) {
  if (!is_float(type.dtype)) {
    // 2^63, larger values and NaN have no integer. Every smaller value converts exactly or not at all.
    if (!(value >= -0x1p63 && value < 0x1p63) || value != std::trunc(value))
      ill_typed("constant " + std::to_string(value) + " is not a value of " + to_string(type));
    return make_int(type, static_cast<int64_t>(value));
  }
  auto n = node(ExprKind::kConst, type.with_lanes(1));
  n->float_value = round_to(type.dtype, value);
  return make_broadcast(std::move(n), type.lanes);
}

Expr make_int(Type type, int64_t value) {
  auto n = node(ExprKind::kConst, type.with_lanes(1));
  if (is_float(type.dtype))
    n->float_value = type.dtype == Dtype::kF64 ? static_cast<double>(value)
                                               : round_to(type.dtype, static_cast<float>(value));
  else
    n->int_value = wrap_to(type.dtype, value);
  return make_broadcast(std::move(n), type.lanes);
}

Expr make_var(std::string name, Type type) {
  auto n = node(ExprKind::kVar, type);
  n->name = std::move(name);
  return n;
}

Expr make_load(std::string buffer, Dtype dtype, Expr index, Expr mask) {
  if (mask && index && mask->type.lanes != index->type.lanes) {
    mask = widen(mask, index);
    index = widen(index, mask);
  }
  if (std::string error = load_error(index, mask); !error.empty())
    ill_typed("load of '" + buffer + "': " + error);
  Type type{dtype, index->type.lanes};
  std::vector<Expr> args{std::move(index)};
  if (mask) args.push_back(std::move(mask));
  auto n = node(ExprKind::kLoad, type, std::move(args));
  n->name = std::move(buffer);
  return n;
}

Expr make_apply(ScalarOp op, std::vector<Expr> args) {
  int lanes = 1;
  for (const Expr& arg : args)
    if (arg) lanes = std::max(lanes, arg->type.lanes);
  if (lanes > 1)
    for (Expr& arg : args)
      if (arg && arg->type.lanes == 1) arg = make_broadcast(std::move(arg), lanes);
  // With too few operands there is no type to derive. The check below reports their number.
  bool derivable =
      args.size() == info(op).arity && std::all_of(args.begin(), args.end(), [](const Expr& a) { return a; });
  Type type = derivable ? apply_type(op, args) : Type{};
  return make_apply_as(op, std::move(args), type);
}

Expr make_apply_as(ScalarOp op, std::vector<Expr> args, Type type) {
  if (std::string error = apply_error(op, args, type); !error.empty()) ill_typed(error);
  auto n = node(ExprKind::kApply, type, std::move(args));
  n->op = op;
  return n;
}

Expr make_cast(Dtype dtype, Expr x) {
  if (x->type.dtype == dtype) return x;
  Type type = x->type.with_dtype(dtype);
  return node(ExprKind::kCast, type, {std::move(x)});
}

Expr make_ramp(Expr base, Expr stride, int lanes) {
  if (lanes == 1) return base;
  if (std::string error = ramp_error(base, stride, lanes); !error.empty()) ill_typed(error);
  Type type = base->type.with_lanes(lanes);
  return node(ExprKind::kRamp, type, {std::move(base), std::move(stride)});
}

Expr make_broadcast(Expr x, int lanes) {
  if (lanes == 1 || x->type.lanes == lanes) return x;
  if (std::string error = broadcast_error(x, lanes); !error.empty()) ill_typed(error);
  Type type = x->type.with_lanes(lanes);
  return node(ExprKind::kBroadcast, type, {std::move(x)});
}

Expr make_reduce_lanes(ScalarOp op, Expr x) {
  if (!x->type.is_vector()) return x;
  if (std::string error = reduce_lanes_error(op, x); !error.empty()) ill_typed(error);
  Type type = x->type.with_lanes(1);
  auto n = node(ExprKind::kReduceLanes, type, {std::move(x)});
  n->op = op;
  return n;
}

Expr make_shuffle(Expr a, Expr b, std::vector<int> mask) {
  if (std::string error = shuffle_error(a, b, mask); !error.empty()) ill_typed(error);
  Type type = a->type.with_lanes(static_cast<int>(mask.size()));
  auto n = node(ExprKind::kShuffle, type, {std::move(a), std::move(b)});
  n->shuffle_mask = std::move(mask);
  return n;
}

std::vector<int> deinterleave_mask(int lanes, int block) {
  std::vector<int> mask(lanes);
  for (int i = 0; i < lanes; ++i) {
    const int at = i % block;
    mask[i] = i - at + (at < block / 2 ? 2 * at : 2 * at - block + 1);
  }
  return mask;
}

std::vector<int> interleave_mask(int lanes, int block) {
  std::vector<int> mask(lanes);
  for (int i = 0; i < lanes; ++i) {
    const int at = i % block;
    mask[i] = i - at + at / 2 + at % 2 * (block / 2);
  }
  return mask;
}

Expr operator+(Expr a, Expr b) {
  auto [x, y] = index_values(a, b);
  if (x && y) return index_like(a, b, static_cast<uint64_t>(*x) + static_cast<uint64_t>(*y));
  if (x == 0) return widen(b, a);
  if (y == 0) return widen(a, b);
  return make_apply(ScalarOp::add_, {std::move(a), std::move(b)});
}

Expr operator-(Expr a, Expr b) {
  auto [x, y] = index_values(a, b);
  if (x && y) return index_like(a, b, static_cast<uint64_t>(*x) - static_cast<uint64_t>(*y));
  if (y == 0) return widen(a, b);
  return make_apply(ScalarOp::sub_, {std::move(a), std::move(b)});
}

Expr operator*(Expr a, Expr b) {
  auto [x, y] = index_values(a, b);
  if (x && y) return index_like(a, b, static_cast<uint64_t>(*x) * static_cast<uint64_t>(*y));
  if (x == 1) return widen(b, a);
  if (y == 1) return widen(a, b);
  if (x == 0 || y == 0) return index_like(a, b, 0);
  return make_apply(ScalarOp::mul_, {std::move(a), std::move(b)});
}

Expr floordiv(Expr a, Expr b) {
  auto [x, y] = index_values(a, b);
  if (y == 1) return widen(a, b);
  if (y == 0) return index_like(a, b, 0);
  if (x && y == -1) return index_like(a, b, 0 - static_cast<uint64_t>(*x));  // the only quotient that wraps
  if (x && y)
    return index_like(a, b, static_cast<uint64_t>(*x / *y - (*x % *y != 0 && (*x < 0) != (*y < 0))));
  return make_apply(ScalarOp::floordiv_, {std::move(a), std::move(b)});
}

Expr floormod(Expr a, Expr b) {
  auto [x, y] = index_values(a, b);
  if (y && *y >= -1 && *y <= 1) return index_like(a, b, 0);
  if (x && y) {
    int64_t r = *x % *y;
    return index_like(a, b, static_cast<uint64_t>(r != 0 && (r < 0) != (*y < 0) ? r + *y : r));
  }
  return make_apply(ScalarOp::floormod_, {std::move(a), std::move(b)});
}

std::optional<int64_t> as_const_int(const Expr& e) {
  const ExprNode* n = e.get();
  if (n->is(ExprKind::kBroadcast)) n = n->args[0].get();
  if (!n->is(ExprKind::kConst) || is_float(n->type.dtype)) return std::nullopt;
  return n->int_value;
}

bool equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->type != b->type || a->args.size() != b->args.size()) return false;
  switch (a->kind) {
    case ExprKind::kConst:
      if (a->int_value != b->int_value ||
          std::bit_cast<uint64_t>(a->float_value) != std::bit_cast<uint64_t>(b->float_value))
        return false;
      break;
    case ExprKind::kVar:
    case ExprKind::kLoad:
      if (a->name != b->name) return false;
      break;
    case ExprKind::kApply:
    case ExprKind::kReduceLanes:
      if (a->op != b->op) return false;
      break;
    case ExprKind::kShuffle:
      if (a->shuffle_mask != b->shuffle_mask) return false;
      break;
    default:
      break;
  }
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!equal(a->args[i], b->args[i])) return false;
  return true;
}

Block make_block(std::vector<Stmt> stmts) {
  auto block = std::make_shared<BlockNode>();
  block->stmts = std::move(stmts);
  return block;
}

}  // namespace ipex::loop
