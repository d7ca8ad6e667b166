// Walking and rebuilding trees. Unchanged subtrees are shared. Changed nodes go through the constructors
// again, so that replacing a scalar by a vector changes the types of everything above it.
#include "codegen/loop/rewrite.h"

#include <algorithm>
#include <unordered_map>

namespace ipex::loop {
namespace {

class Rewriter {
 public:
  Rewriter(const ExprFn& fn, const StmtFn& stmt_fn) : fn_(fn), stmt_fn_(stmt_fn) {}

  Block block(const Block& b) {
    if (!b) return b;
    std::vector<Stmt> stmts;
    stmts.reserve(b->stmts.size());
    bool any_changed = false;
    for (const Stmt& s : b->stmts) {
      changed_ = false;
      Stmt rebuilt = std::visit([this](const auto& stmt) -> Stmt { return statement(stmt); }, s);
      if (stmt_fn_) {
        std::vector<Stmt> replacements = stmt_fn_(std::move(rebuilt));
        std::move(replacements.begin(), replacements.end(), std::back_inserter(stmts));
        any_changed = true;
      } else {
        stmts.push_back(std::move(rebuilt));
        any_changed |= changed_;
      }
    }
    changed_ = any_changed;
    return any_changed ? make_block(std::move(stmts)) : b;
  }

 private:
  Expr expr(const Expr& e) {
    if (!e) return e;
    Expr rebuilt = transform(e, fn_);
    changed_ |= rebuilt != e;
    return rebuilt;
  }
  void exprs(std::vector<Expr>& list) {
    for (Expr& e : list) e = expr(e);
  }
  // A nested block resets the flag, but what was found before it still counts.
  Block nested(const Block& b) {
    bool before = changed_;
    Block rebuilt = block(b);
    changed_ |= before;
    return rebuilt;
  }

  Stmt statement(const Block& b) { return nested(b); }
  Stmt statement(For s) {
    s.begin = expr(s.begin);
    s.end = expr(s.end);
    if (s.reduction)
      for (State& state : s.reduction->states) {
        state.init = expr(state.init);
        state.identity = expr(state.identity);
      }
    s.body = nested(s.body);
    if (s.reduction) {
      exprs(s.reduction->yield);
      exprs(s.reduction->merge);
    }
    return s;
  }
  Stmt statement(Let s) {
    s.value = expr(s.value);
    return s;
  }
  Stmt statement(Store s) {
    s.index = expr(s.index);
    s.value = expr(s.value);
    s.mask = expr(s.mask);
    return s;
  }
  Stmt statement(Alloc s) {
    s.extent = expr(s.extent);
    return s;
  }
  Stmt statement(If s) {
    s.condition = expr(s.condition);
    s.then_body = nested(s.then_body);
    s.else_body = nested(s.else_body);
    return s;
  }
  Stmt statement(Call s) {
    exprs(s.args);
    return s;
  }

  const ExprFn& fn_;
  const StmtFn& stmt_fn_;
  bool changed_ = false;
};

class Visitor {
 public:
  Visitor(const std::function<void(const Stmt&)>& stmt_fn,
          const std::function<void(const ExprNode&)>& expr_fn)
      : stmt_fn_(stmt_fn), expr_fn_(expr_fn) {}

  void block(const Block& b) {
    if (!b) return;
    for (const Stmt& s : b->stmts) {
      if (stmt_fn_) stmt_fn_(s);
      std::visit([this](const auto& stmt) { statement(stmt); }, s);
    }
  }

 private:
  void expr(const Expr& e) {
    if (e && expr_fn_) visit(e, expr_fn_);
  }
  void exprs(const std::vector<Expr>& list) {
    for (const Expr& e : list) expr(e);
  }

  void statement(const Block& b) { block(b); }
  void statement(const For& s) {
    expr(s.begin);
    expr(s.end);
    if (s.reduction)
      for (const State& state : s.reduction->states) {
        expr(state.init);
        expr(state.identity);
      }
    block(s.body);
    if (s.reduction) {
      exprs(s.reduction->yield);
      exprs(s.reduction->merge);
    }
  }
  void statement(const Let& s) { expr(s.value); }
  void statement(const Store& s) {
    expr(s.index);
    expr(s.value);
    expr(s.mask);
  }
  void statement(const Alloc& s) { expr(s.extent); }
  void statement(const If& s) {
    expr(s.condition);
    block(s.then_body);
    block(s.else_body);
  }
  void statement(const Call& s) { exprs(s.args); }

  const std::function<void(const Stmt&)>& stmt_fn_;
  const std::function<void(const ExprNode&)>& expr_fn_;
};

Expr substitute_var(const Expr& e, const Substitution& s) {
  if (!e->is(ExprKind::kVar)) return e;
  auto it = s.find(e->name);
  return it == s.end() ? e : it->second;
}

// Calls fn by reference on every name that a statement binds: buffers, variables, states.
template <class Fn>
void for_each_binding(Stmt& s, const Fn& fn) {
  if (auto* loop = std::get_if<For>(&s)) {
    fn(loop->var);
    if (loop->reduction)
      for (State& state : loop->reduction->states) fn(state.name);
  } else if (auto* let = std::get_if<Let>(&s)) {
    fn(let->name);
  } else if (auto* alloc = std::get_if<Alloc>(&s)) {
    fn(alloc->buffer);
  }
}

}  // namespace

Expr with_args(const Expr& e, std::vector<Expr> args) {
  switch (e->kind) {
    case ExprKind::kConst:
    case ExprKind::kVar:
      return e;
    case ExprKind::kLoad:
      return make_load(e->name, e->type.dtype, std::move(args[0]),
                       args.size() > 1 ? std::move(args[1]) : nullptr);
    case ExprKind::kApply: {
      if (e->op != ScalarOp::bitcast_int_ && e->op != ScalarOp::bitcast_float_)
        return make_apply(e->op, std::move(args));
      Type type = e->type.with_lanes(args[0]->type.lanes);
      return make_apply_as(e->op, std::move(args), type);
    }
    case ExprKind::kCast:
      return make_cast(e->type.dtype, std::move(args[0]));
    case ExprKind::kRamp:
      return make_ramp(std::move(args[0]), std::move(args[1]), e->type.lanes);
    case ExprKind::kBroadcast:
      return make_broadcast(std::move(args[0]), e->type.lanes);
    case ExprKind::kReduceLanes:
      return make_reduce_lanes(e->op, std::move(args[0]));
    case ExprKind::kShuffle:
      return make_shuffle(std::move(args[0]), std::move(args[1]), e->shuffle_mask);
  }
  return e;
}

Expr transform(const Expr& e, const ExprFn& fn) {
  if (e->args.empty()) return fn(e);
  std::vector<Expr> args;
  args.reserve(e->args.size());
  bool changed = false;
  for (const Expr& arg : e->args) {
    args.push_back(transform(arg, fn));
    changed |= args.back() != arg;
  }
  return changed ? fn(with_args(e, std::move(args))) : fn(e);
}

Block transform(const Block& b, const ExprFn& fn, const StmtFn& stmt_fn) {
  return Rewriter(fn, stmt_fn).block(b);
}

Block transform_stmts(const Block& b, const StmtFn& stmt_fn) {
  return transform(b, [](const Expr& e) { return e; }, stmt_fn);
}

Expr substitute(const Expr& e, const Substitution& s) {
  if (s.empty()) return e;
  return transform(e, [&](const Expr& x) { return substitute_var(x, s); });
}

Block substitute(const Block& b, const Substitution& s) {
  if (s.empty()) return b;
  return transform(b, [&](const Expr& x) { return substitute_var(x, s); });
}

std::set<std::string> bound_names(const Block& b) {
  std::set<std::string> names;
  visit(
      b,
      [&](const Stmt& s) {
        Stmt copy = s;
        for_each_binding(copy, [&](const std::string& name) { names.insert(name); });
      },
      nullptr);
  return names;
}

Block rename_bound(const Block& b, const std::string& suffix) {
  std::unordered_map<std::string, std::string> renamed;
  visit(
      b,
      [&](const Stmt& s) {
        Stmt copy = s;
        for_each_binding(copy, [&](const std::string& name) { renamed.emplace(name, name + suffix); });
        if (auto* loop = std::get_if<For>(&copy); loop && loop->reduction)
          for (const State& state : loop->reduction->states)
            renamed.emplace(state.name + ".other", state.name + suffix + ".other");
      },
      nullptr);
  auto rename_expr = [&](const Expr& e) -> Expr {
    if (!e->is(ExprKind::kVar) && !e->is(ExprKind::kLoad)) return e;
    auto it = renamed.find(e->name);
    if (it == renamed.end()) return e;
    if (e->is(ExprKind::kVar)) return make_var(it->second, e->type);
    return make_load(it->second, e->type.dtype, e->args[0], e->args.size() > 1 ? e->args[1] : nullptr);
  };
  auto rename_stmt = [&](Stmt s) -> std::vector<Stmt> {
    for_each_binding(s, [&](std::string& name) { name += suffix; });
    if (auto* store = std::get_if<Store>(&s))
      if (auto it = renamed.find(store->buffer); it != renamed.end()) store->buffer = it->second;
    std::vector<Stmt> result;
    result.push_back(std::move(s));
    return result;
  };
  return transform(b, rename_expr, rename_stmt);
}

void visit(const Expr& e, const std::function<void(const ExprNode&)>& fn) {
  fn(*e);
  for (const Expr& arg : e->args) visit(arg, fn);
}

void visit(const Block& b, const std::function<void(const Stmt&)>& stmt_fn,
           const std::function<void(const ExprNode&)>& expr_fn) {
  Visitor(stmt_fn, expr_fn).block(b);
}

std::set<std::string> free_vars(const Expr& e) {
  std::set<std::string> names;
  visit(e, [&](const ExprNode& n) {
    if (n.is(ExprKind::kVar)) names.insert(n.name);
  });
  return names;
}

bool uses(const Expr& e, const std::string& var) {
  if (e->is(ExprKind::kVar)) return e->name == var;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) { return uses(arg, var); });
}

std::optional<Affine> affine(const Expr& e, const std::set<std::string>& vars) {
  if (e->is(ExprKind::kVar)) {
    if (!vars.contains(e->name)) return Affine{{}, e};
    if (e->type != kIndex) return std::nullopt;
    return Affine{{{e->name, index_const(1)}}, index_const(0)};
  }
  std::vector<Affine> args;
  bool rebuilt = false;  // an operand with variables, or with variables that cancelled, is not its own rest
  for (const Expr& arg : e->args) {
    auto a = affine(arg, vars);
    if (!a) return std::nullopt;
    rebuilt |= a->rest != arg;
    args.push_back(std::move(*a));
  }
  if (!rebuilt) return Affine{{}, e};
  if (!e->is(ExprKind::kApply)) return std::nullopt;

  auto scale = [](Affine& a, const Expr& factor) {
    for (auto& [name, coefficient] : a.coefficients) coefficient = coefficient * factor;
    a.rest = a.rest * factor;
    std::erase_if(a.coefficients, [](const auto& entry) { return as_const_int(entry.second) == 0; });
  };
  switch (e->op) {
    case ScalarOp::neg_:
      scale(args[0], index_const(-1));
      return std::move(args[0]);
    case ScalarOp::mul_: {
      bool left = !args[0].coefficients.empty(), right = !args[1].coefficients.empty();
      if (left && right) return std::nullopt;
      Affine& linear = args[right ? 1 : 0];
      scale(linear, args[right ? 0 : 1].rest);
      return std::move(linear);
    }
    case ScalarOp::add_:
    case ScalarOp::sub_: {
      const bool minus = e->op == ScalarOp::sub_;
      for (auto& [name, coefficient] : args[1].coefficients) {
        auto [it, fresh] =
            args[0].coefficients.emplace(name, minus ? coefficient * index_const(-1) : coefficient);
        if (!fresh) it->second = minus ? it->second - coefficient : it->second + coefficient;
        if (as_const_int(it->second) == 0) args[0].coefficients.erase(it);
      }
      args[0].rest = minus ? args[0].rest - args[1].rest : args[0].rest + args[1].rest;
      return std::move(args[0]);
    }
    default:
      return std::nullopt;
  }
}

Names::Names(const Function& f) {
  used_.insert(f.symbols.begin(), f.symbols.end());
  for (const Buffer& b : f.buffers) used_.insert(b.name);
  visit(
      f.body,
      [this](const Stmt& s) {
        if (auto* loop = std::get_if<For>(&s)) {
          used_.insert(loop->var);
          if (loop->reduction)
            for (const State& state : loop->reduction->states) used_.insert(state.name);
        } else if (auto* let = std::get_if<Let>(&s)) {
          used_.insert(let->name);
        } else if (auto* alloc = std::get_if<Alloc>(&s)) {
          used_.insert(alloc->buffer);
        }
      },
      nullptr);
}

std::string Names::fresh(std::string_view base) {
  std::string name(base);
  if (used_.contains(name)) {
    int& next = next_.try_emplace(name, 1).first->second;
    std::string stem = name + (name.back() >= '0' && name.back() <= '9' ? "_" : "");
    do name = stem + std::to_string(next++);
    while (used_.contains(name));
  }
  used_.insert(name);
  return name;
}

}  // namespace ipex::loop
