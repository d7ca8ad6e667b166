// Widening is lazy: a value becomes a vector only where it meets a vector.
#include "codegen/passes/widen.h"

#include <limits>
#include <utility>

#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"

namespace ipex::loop {

namespace {

Expr all_lanes(int lanes) { return make_ramp(index_const(0), index_const(1), lanes); }

bool is_zero(const Expr& e) { return as_const_int(e) == 0; }

// Whether dividing a ramp gives the same quotient in all lanes: the ramp is aligned to its lanes, and the
// divisor is a multiple of them.
bool stays_within(const ExprNode& ramp, const Expr& divisor) {
  const auto d = as_const_int(divisor);
  return d && *d > 0 && *d % ramp.type.lanes == 0 && as_const_int(ramp.args[1]) == 1 &&
         is_zero(simplify(floormod(ramp.args[0], index_const(ramp.type.lanes))));
}

}  // namespace

Expr ramp_apply(ScalarOp op, const Expr& a, const Expr& b) {
  const auto rebuilt = [](Expr base, const Expr& stride, int lanes) {
    return is_zero(stride) ? base : make_ramp(std::move(base), stride, lanes);
  };
  const bool ra = a->is(ExprKind::kRamp), rb = b->is(ExprKind::kRamp);
  const bool sa = !a->type.is_vector(), sb = !b->type.is_vector();
  if (a->type.dtype == Dtype::kI64) {
    if (op == ScalarOp::add_ || op == ScalarOp::sub_) {
      const auto combine = [&](const Expr& x, const Expr& y) { return op == ScalarOp::add_ ? x + y : x - y; };
      if (ra && rb)
        return rebuilt(combine(a->args[0], b->args[0]), simplify(combine(a->args[1], b->args[1])),
                       a->type.lanes);
      if (ra && sb) return make_ramp(combine(a->args[0], b), a->args[1], a->type.lanes);
      if (sa && rb)
        return make_ramp(combine(a, b->args[0]), combine(index_const(0), b->args[1]), b->type.lanes);
    }
    if (op == ScalarOp::mul_) {
      if (ra && sb) return rebuilt(a->args[0] * b, a->args[1] * b, a->type.lanes);
      if (sa && rb) return rebuilt(a * b->args[0], a * b->args[1], b->type.lanes);
    }
    if (op == ScalarOp::floordiv_ && ra && stays_within(*a, b)) return floordiv(a->args[0], b);
    if (op == ScalarOp::floormod_ && ra && stays_within(*a, b))
      return make_ramp(floormod(a->args[0], b), a->args[1], a->type.lanes);
    if (op == ScalarOp::add_) return a + b;
    if (op == ScalarOp::sub_) return a - b;
    if (op == ScalarOp::mul_) return a * b;
  }
  return make_apply(op, {a, b});
}

Expr Widener::both(const Expr& mask) const {
  if (!mask) return mask_;
  if (!mask_) return mask;
  return make_apply(ScalarOp::bitand_, {mask_, mask});
}

Expr Widener::name_it(std::string_view base, Expr value, std::vector<Stmt>& out) {
  if (value->is(ExprKind::kVar) || value->is(ExprKind::kConst)) return value;
  const std::string name = names_.fresh(base);
  const Type type = value->type;
  out.push_back(Let{name, std::move(value)});
  return make_var(name, type);
}

Expr Widener::expr(const Expr& e) {
  if (depth_++ == 0) memo_.clear();
  Expr out = widen(e);
  --depth_;
  return out;
}

Expr Widener::widen(const Expr& e) {
  if (const auto known = memo_.find(e.get()); known != memo_.end()) return known->second;
  Expr out = e;
  switch (e->kind) {
    case ExprKind::kConst:
      break;
    case ExprKind::kVar:
      if (const auto it = bound_.find(e->name); it != bound_.end()) out = it->second;
      break;
    case ExprKind::kLoad:
      out = load(*e);
      break;
    case ExprKind::kApply:
      out = apply(*e);
      break;
    case ExprKind::kCast:
      out = make_cast(e->type.dtype, widen(e->args[0]));
      break;
    default:
      throw InternalError("vectorize: the body of a vector loop already has vectors: " + print(e));
  }
  memo_[e.get()] = out;
  return out;
}

Expr Widener::apply(const ExprNode& e) {
  std::vector<Expr> args;
  for (const Expr& arg : e.args) args.push_back(widen(arg));
  if (args.size() == 2) return ramp_apply(e.op, args[0], args[1]);
  if (e.op == ScalarOp::bitcast_int_ || e.op == ScalarOp::bitcast_float_) {
    const Type type = e.type.with_lanes(args[0]->type.lanes);
    return make_apply_as(e.op, std::move(args), type);
  }
  return make_apply(e.op, std::move(args));
}

Expr Widener::load(const ExprNode& e) {
  const Dtype dtype = e.type.dtype;
  Expr index = widen(e.args[0]);
  Expr mask = e.args.size() > 1 ? widen(e.args[1]) : nullptr;
  if (const auto it = scratch_.find(e.name); it != scratch_.end()) {
    index =
        ramp_apply(ScalarOp::add_, ramp_apply(ScalarOp::mul_, index, index_const(lanes_)), all_lanes(lanes_));
    return make_load(it->second, dtype, index, mask ? wide(mask) : nullptr);
  }
  if (index->type.is_vector()) {
    mask = both(mask);
    return make_load(e.name, dtype, index, mask ? wide(mask) : nullptr);
  }
  // One location for all lanes is loaded once, if any lane needs it.
  const bool per_lane = mask && mask->type.is_vector();
  const Expr wanted = per_lane || may_be_empty_ ? both(mask) : mask;
  if (!wanted || !wanted->type.is_vector()) return make_load(e.name, dtype, index, wanted);
  if (per_lane && is_half(dtype)) return make_load(e.name, dtype, make_broadcast(index, lanes_), wanted);
  const Expr value = make_load(e.name, dtype, index, make_reduce_lanes(ScalarOp::bitor_, wanted));
  if (!per_lane) return value;
  return make_apply(ScalarOp::select_, {mask, wide(value), make_int({dtype, lanes_}, 0)});
}

void Widener::block(const Block& b, std::vector<Stmt>& out) {
  if (!b) return;
  for (const Stmt& s : b->stmts) stmt(s, out);
}

void Widener::stmt(const Stmt& s, std::vector<Stmt>& out) {
  if (const auto* inner = std::get_if<Block>(&s)) {
    block(*inner, out);
  } else if (const auto* loop_stmt = std::get_if<For>(&s)) {
    loop(*loop_stmt, out);
  } else if (const auto* let_stmt = std::get_if<Let>(&s)) {
    let(*let_stmt, out);
  } else if (const auto* store_stmt = std::get_if<Store>(&s)) {
    store(*store_stmt, out);
  } else if (const auto* alloc = std::get_if<Alloc>(&s)) {
    const Expr extent = expr(alloc->extent);
    IPEX_CHECK(!extent->type.is_vector(),
               "scratch `" + alloc->buffer + "` has a size that differs between lanes");
    scratch_[alloc->buffer] = names_.fresh(alloc->buffer);
    out.push_back(Alloc{scratch_[alloc->buffer], alloc->dtype, simplify(extent * index_const(lanes_))});
  } else if (const auto* branch_stmt = std::get_if<If>(&s)) {
    branch(*branch_stmt, out);
  } else if (const auto* call_stmt = std::get_if<Call>(&s)) {
    call(*call_stmt, out);
  }
}

void Widener::let(const Let& s, std::vector<Stmt>& out) {
  const Expr value = expr(s.value);
  if (value->is(ExprKind::kRamp)) {  // stays a ramp, so that loads along it are recognized as contiguous
    bind(s.name, make_ramp(name_it(s.name, value->args[0], out), value->args[1], value->type.lanes));
  } else {
    bind(s.name, name_it(s.name, value, out));
  }
}

void Widener::store(const Store& s, std::vector<Stmt>& out) {
  Expr index = expr(s.index);
  std::string buffer = s.buffer;
  if (const auto it = scratch_.find(s.buffer); it != scratch_.end()) {
    index =
        ramp_apply(ScalarOp::add_, ramp_apply(ScalarOp::mul_, index, index_const(lanes_)), all_lanes(lanes_));
    buffer = it->second;
  }
  IPEX_CHECK(lanes_ == 1 || index->type.is_vector(),
             "all lanes of a vector loop store to one element of `" + s.buffer + "`");
  Expr mask = both(s.mask ? expr(s.mask) : nullptr);
  if (mask) mask = wide(mask);
  const Expr value = vector(s.value);
  out.push_back(Store{buffer, index, value, mask});
}

// A state is a vector if its initial value or any next value is one. Finding out takes as many attempts as
// there are levels of dependence.
void Widener::loop(const For& s, std::vector<Stmt>& out) {
  IPEX_CHECK(s.kind == ForKind::kSerial, "a vector loop holds the loop `" + s.var + "`, which is not serial");
  std::vector<bool> vector_state(s.reduction ? s.reduction->states.size() : 0, false);
  for (;;) {
    const Names names = names_;
    std::vector<bool> needed = vector_state;
    std::vector<Stmt> emitted;
    For widened = attempt(s, vector_state, needed, emitted);
    if (needed == vector_state) {
      out.insert(out.end(), std::make_move_iterator(emitted.begin()), std::make_move_iterator(emitted.end()));
      out.push_back(std::move(widened));
      return;
    }
    names_ = names;
    vector_state = needed;
  }
}

For Widener::attempt(const For& s, const std::vector<bool>& vector_state, std::vector<bool>& needs_vector,
                     std::vector<Stmt>& out) {
  Expr begin = expr(s.begin), end = expr(s.end);
  const bool uneven = begin->type.is_vector() || end->type.is_vector();
  const Expr outer_mask = mask_;
  const bool outer_may_be_empty = may_be_empty_;
  For loop{.var = names_.fresh(s.var), .begin = begin, .end = end};
  std::vector<Stmt> body;
  if (uneven) {  // from the smallest begin to the largest end of all lanes; each lane is active in its own
                 // range
    begin = name_it(s.var + "_begin", wide(begin), out);
    end = name_it(s.var + "_end", wide(end), out);
    const auto existing = [&](const Expr& bound, int64_t neutral) {
      return mask_ ? make_apply(ScalarOp::select_, {wide(mask_), bound, make_int(bound->type, neutral)})
                   : bound;
    };
    loop.begin = make_reduce_lanes(ScalarOp::min_, existing(begin, std::numeric_limits<int64_t>::max()));
    loop.end = make_reduce_lanes(ScalarOp::max_, existing(end, std::numeric_limits<int64_t>::min()));
    const Expr at = make_var(loop.var);
    const Expr inside = make_apply(ScalarOp::bitand_, {make_apply(ScalarOp::ge_, {wide(at), begin}),
                                                       make_apply(ScalarOp::lt_, {wide(at), end})});
    mask_ = name_it("mask", both(inside), body);
    may_be_empty_ = true;
  }
  bind(s.var, make_var(loop.var));
  if (s.reduction) {
    const Reduction& r = *s.reduction;
    Reduction& widened = loop.reduction.emplace();
    for (size_t i = 0; i < r.states.size(); ++i) {
      Expr init = expr(r.states[i].init);
      needs_vector[i] = needs_vector[i] || uneven || init->type.is_vector();
      const int lanes = vector_state[i] ? lanes_ : 1;
      const Type type = r.states[i].type.with_lanes(lanes);
      widened.states.push_back({names_.fresh(r.states[i].name), type, lanes > 1 ? wide(init) : init,
                                make_broadcast(r.states[i].identity, lanes)});
    }
    if (needs_vector != vector_state) {
      mask_ = outer_mask;
      may_be_empty_ = outer_may_be_empty;
      return loop;
    }
    for (size_t i = 0; i < r.states.size(); ++i) {
      const State& w = widened.states[i];
      bind(r.states[i].name, make_var(w.name, w.type));
      bind(r.states[i].name + ".other", make_var(w.name + ".other", w.type));
    }
  }
  block(s.body, body);
  if (s.reduction) {
    Reduction& widened = *loop.reduction;
    for (size_t i = 0; i < widened.states.size(); ++i) {
      const State& w = widened.states[i];
      Expr next = expr(s.reduction->yield[i]);
      needs_vector[i] = needs_vector[i] || next->type.is_vector();
      if (w.type.is_vector()) next = wide(next);
      if (uneven) next = make_apply(ScalarOp::select_, {wide(mask_), next, make_var(w.name, w.type)});
      widened.yield.push_back(std::move(next));
      widened.merge.push_back(expr(s.reduction->merge[i]));
    }
    for (size_t i = 0; i < widened.states.size(); ++i)
      if (widened.states[i].type.is_vector()) widened.merge[i] = wide(widened.merge[i]);
  }
  mask_ = outer_mask;
  may_be_empty_ = outer_may_be_empty;
  loop.body = make_block(std::move(body));
  return loop;
}

void Widener::branch(const If& s, std::vector<Stmt>& out) {
  const Expr condition = expr(s.condition);
  if (!condition->type.is_vector()) {
    If scalar{.condition = condition};
    std::vector<Stmt> then_stmts, else_stmts;
    block(s.then_body, then_stmts);
    block(s.else_body, else_stmts);
    scalar.then_body = make_block(std::move(then_stmts));
    if (s.else_body) scalar.else_body = make_block(std::move(else_stmts));
    out.push_back(std::move(scalar));
    return;
  }
  const Expr named = name_it("condition", condition, out);
  under(named, s.then_body, out);
  if (s.else_body) under(make_apply(ScalarOp::bitnot_, {named}), s.else_body, out);
}

void Widener::under(const Expr& condition, const Block& body, std::vector<Stmt>& out) {
  const Expr outer = mask_;
  const bool outer_may_be_empty = std::exchange(may_be_empty_, false);
  mask_ = name_it("mask", both(condition), out);
  std::vector<Stmt> stmts;
  block(body, stmts);
  if (!stmts.empty())
    out.push_back(If{make_reduce_lanes(ScalarOp::bitor_, mask_), make_block(std::move(stmts)), nullptr});
  mask_ = outer;
  may_be_empty_ = outer_may_be_empty;
}

// One call for the whole vector, with the arguments of the first lane that makes it.
void Widener::call(const Call& s, std::vector<Stmt>& out) {
  IPEX_CHECK(s.function == "ipex_report_index", "a vector loop calls " + s.function);
  std::vector<Expr> args;
  bool uniform = true;
  for (const Expr& arg : s.args) {
    args.push_back(expr(arg));
    uniform &= !args.back()->type.is_vector();
  }
  std::vector<Stmt> stmts;
  if (!uniform) {
    const Expr lane = all_lanes(lanes_);
    Expr first = index_const(0);
    if (mask_) {
      first = make_reduce_lanes(
          ScalarOp::min_, make_apply(ScalarOp::select_, {wide(mask_), lane, make_int(lane->type, lanes_)}));
      first = name_it("first", first, stmts);
    }
    const Expr chosen = make_apply(ScalarOp::eq_, {lane, wide(first)});
    const Expr least = make_int({Dtype::kI64, lanes_}, std::numeric_limits<int64_t>::min());
    for (Expr& arg : args)
      if (arg->type.is_vector())
        arg = make_reduce_lanes(ScalarOp::max_, make_apply(ScalarOp::select_, {chosen, arg, least}));
  }
  stmts.push_back(Call{s.function, std::move(args)});
  if (!may_be_empty_) {
    out.insert(out.end(), stmts.begin(), stmts.end());
  } else {
    out.push_back(
        If{make_reduce_lanes(ScalarOp::bitor_, wide(mask_)), make_block(std::move(stmts)), nullptr});
  }
}

}  // namespace ipex::loop
