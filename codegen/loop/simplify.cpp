// Simplifies the statements of a function. A forward walk simplifies expressions, knowing the ranges of the
// loops around them, and removes trivial control flow. A backward walk removes what nothing reads.
#include "codegen/loop/simplify.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "codegen/loop/expr_simplifier.h"
#include "codegen/loop/rewrite.h"

namespace ipex::loop {
namespace {

bool is_trivial(const Expr& e) {
  if (e->is(ExprKind::kRamp)) return true;  // part of an address
  const Expr& x = e->is(ExprKind::kBroadcast) ? e->args[0] : e;
  return x->is(ExprKind::kConst) || x->is(ExprKind::kVar);
}

class Forward {
 public:
  explicit Forward(const Function& f) : function_(f) {
    for (const auto& [name, range] : symbol_ranges(f.symbols, f.symbol_lows))
      exprs_.bounds.set_range(name, range.low, range.high);
  }

  Function run() {
    Function f = function_;
    for (Buffer& b : f.buffers) b.extent = exprs_.simplify(b.extent);
    f.body = block(f.body);
    return f;
  }

 private:
  Expr simplify(const Expr& e) { return exprs_.simplify(e); }
  void simplify_all(std::vector<Expr>& list) {
    for (Expr& e : list) e = simplify(e);
  }

  Block block(const Block& b) {
    std::vector<Stmt> out;
    out.reserve(b->stmts.size());
    splice(b, out);
    return make_block(std::move(out));
  }

  // Every name is bound once in a function, so the statements of a nested block can move to the block around
  // it.
  void splice(const Block& b, std::vector<Stmt>& out) {
    for (const Stmt& s : b->stmts) std::visit([&](const auto& stmt) { statement(stmt, out); }, s);
  }

  void statement(const Block& b, std::vector<Stmt>& out) { splice(b, out); }

  void statement(const Let& s, std::vector<Stmt>& out) { define(s.name, simplify(s.value), out); }

  // Binds a name to a simplified value. The value replaces the name if it is trivial; otherwise it is bound
  // by a let.
  void define(const std::string& name, Expr value, std::vector<Stmt>& out) {
    if (is_trivial(value)) {
      exprs_.bind(name, std::move(value));
      return;
    }
    if (value->type.dtype == Dtype::kI64) {
      if (exprs_.bounds.is_exact(Polynomial::atom(value)))
        exprs_.bounds.set_interval(name, exprs_.bounds.interval(value));
      else
        exprs_.bounds.set_data(name);
    }
    out.push_back(Let{name, std::move(value)});
  }

  void statement(For s, std::vector<Stmt>& out) {
    s.begin = simplify(s.begin);
    s.end = simplify(s.end);
    if (s.reduction)
      for (State& state : s.reduction->states) {
        state.init = simplify(state.init);
        state.identity = simplify(state.identity);
      }
    Polynomial begin = to_polynomial(s.begin), end = to_polynomial(s.end);
    bool exact = exprs_.bounds.is_exact(begin) && exprs_.bounds.is_exact(end);
    if (exact && exprs_.bounds.is_nonnegative(add(begin, end, -1))) return no_trip(s, out);
    if (add(end, begin, -1).is_constant() && exact && add(end, begin, -1).constant == 1)
      return single_trip(s, out);

    exprs_.bounds.set_range(s.var, s.begin, s.end);
    if (!exact) exprs_.bounds.set_data(s.var);
    if (s.reduction)
      for (const State& state : s.reduction->states)
        if (state.type.dtype == Dtype::kI64) {
          exprs_.bounds.set_data(state.name);
          exprs_.bounds.set_data(state.name + ".other");
        }
    s.body = block(s.body);
    if (s.reduction) {
      simplify_all(s.reduction->yield);
      simplify_all(s.reduction->merge);
    }
    out.push_back(std::move(s));
  }

  void no_trip(const For& s, std::vector<Stmt>& out) {
    if (!s.reduction) return;
    for (const State& state : s.reduction->states) define(state.name, state.init, out);
  }

  // The body of a loop of one iteration, with the value of the loop variable substituted. A state's name
  // means its initial value in the body and its final value after it. The initial value therefore gets a name
  // of its own, unless it is already a name.
  void single_trip(const For& s, std::vector<Stmt>& out) {
    exprs_.bind(s.var, s.begin);
    if (!s.reduction) return splice(s.body, out);
    const Reduction& r = *s.reduction;
    for (const State& state : r.states) {
      if (is_trivial(state.init)) {
        exprs_.bind(state.name, state.init);
        continue;
      }
      std::string initial = names().fresh(state.name + ".init");
      define(initial, state.init, out);
      exprs_.bind(state.name, make_var(initial, state.type));
    }
    splice(s.body, out);
    std::vector<Expr> results = r.yield;
    simplify_all(results);
    for (size_t i = 0; i < results.size(); ++i) {
      exprs_.unbind(r.states[i].name);
      define(r.states[i].name, results[i], out);
    }
  }

  void statement(Store s, std::vector<Stmt>& out) {
    s.mask = simplify(s.mask);
    if (s.mask)
      if (auto mask = as_const_int(s.mask)) {
        if (!*mask) return;
        s.mask = nullptr;
      }
    s.index = simplify(s.index);
    s.value = simplify(s.value);
    out.push_back(std::move(s));
  }

  void statement(Alloc s, std::vector<Stmt>& out) {
    s.extent = simplify(s.extent);
    out.push_back(std::move(s));
  }

  void statement(If s, std::vector<Stmt>& out) {
    s.condition = simplify(s.condition);
    if (auto condition = as_const_int(s.condition)) {
      const Block& taken = *condition ? s.then_body : s.else_body;
      if (taken) splice(taken, out);
      return;
    }
    s.then_body = block(s.then_body);
    if (s.else_body) s.else_body = block(s.else_body);
    out.push_back(std::move(s));
  }

  void statement(Call s, std::vector<Stmt>& out) {
    simplify_all(s.args);
    out.push_back(std::move(s));
  }

  Names& names() {
    if (!names_) names_.emplace(function_);
    return *names_;
  }

  const Function& function_;
  ExprSimplifier exprs_;
  std::optional<Names> names_;
};

// Removes lets, states, scratch buffers, loops and conditions that have no reader and no effect. Blocks are
// walked from the end, so that every use is seen before the definition.
class Backward {
 public:
  explicit Backward(const Block& body) {
    // In a loop, a store may come before the load that reads it, so loads are collected first.
    visit(
        body,
        [this](const Stmt& s) {
          if (auto* alloc = std::get_if<Alloc>(&s)) scratch_.insert(alloc->buffer);
        },
        [this](const ExprNode& e) {
          if (e.is(ExprKind::kLoad)) loaded_.insert(e.name);
        });
  }

  Block block(const Block& b) {
    std::vector<Stmt> kept;
    for (auto s = b->stmts.rbegin(); s != b->stmts.rend(); ++s)
      std::visit([&](const auto& stmt) { statement(stmt, kept); }, *s);
    std::reverse(kept.begin(), kept.end());
    return make_block(std::move(kept));
  }

 private:
  void use(const Expr& e) {
    if (!e) return;
    if (e->is(ExprKind::kVar)) used_.insert(e->name);
    if (e->is(ExprKind::kLoad)) used_.insert(e->name);
    for (const Expr& arg : e->args) use(arg);
  }

  void statement(const Block& b, std::vector<Stmt>& kept) {
    Block inner = block(b);
    if (!inner->stmts.empty()) kept.push_back(std::move(inner));
  }

  void statement(const Let& s, std::vector<Stmt>& kept) {
    if (!used_.contains(s.name)) return;
    use(s.value);
    kept.push_back(s);
  }

  void statement(const Store& s, std::vector<Stmt>& kept) {
    if (scratch_.contains(s.buffer) && !loaded_.contains(s.buffer)) return;
    used_.insert(s.buffer);
    use(s.index);
    use(s.value);
    use(s.mask);
    kept.push_back(s);
  }

  void statement(const Alloc& s, std::vector<Stmt>& kept) {
    if (!used_.contains(s.buffer)) return;
    use(s.extent);
    kept.push_back(s);
  }

  void statement(const If& s, std::vector<Stmt>& kept) {
    If rest = s;
    rest.then_body = block(s.then_body);
    if (s.else_body) rest.else_body = block(s.else_body);
    if (rest.else_body && rest.else_body->stmts.empty()) rest.else_body = nullptr;
    if (rest.then_body->stmts.empty()) {
      if (!rest.else_body) return;
      rest.condition = loop::simplify(make_apply(ScalarOp::bitnot_, {s.condition}));
      rest.then_body = std::exchange(rest.else_body, nullptr);
    }
    use(rest.condition);
    kept.push_back(std::move(rest));
  }

  void statement(const For& s, std::vector<Stmt>& kept) {
    For rest = s;
    std::vector<bool> live = live_states(s);
    if (s.reduction) {
      // A live yield may need a let of the body, and the body may need another state. This is repeated until
      // no more states become live.
      for (std::vector<bool> before; before != live;) {
        before = live;
        for (size_t i = 0; i < live.size(); ++i) {
          if (!live[i]) continue;
          use(s.reduction->yield[i]);
          use_merge(*s.reduction, i);
        }
        rest.body = block(s.body);
        live = live_states(s);
      }
      keep_states(live, *rest.reduction);
      if (rest.reduction->states.empty()) rest.reduction.reset();
    } else {
      rest.body = block(s.body);
    }
    if (!rest.reduction && rest.body->stmts.empty()) return;
    use(rest.begin);
    use(rest.end);
    if (rest.reduction)
      for (const State& state : rest.reduction->states) {
        use(state.init);
        use(state.identity);
      }
    kept.push_back(std::move(rest));
  }

  void statement(const Call& s, std::vector<Stmt>& kept) {
    for (const Expr& e : s.args) use(e);
    kept.push_back(s);
  }

  std::vector<bool> live_states(const For& s) const {
    std::vector<bool> live;
    if (s.reduction)
      for (const State& state : s.reduction->states) live.push_back(used_.contains(state.name));
    return live;
  }

  // The merge of a state reads other states under two names each.
  void use_merge(const Reduction& r, size_t i) {
    use(r.merge[i]);
    for (const State& state : r.states)
      if (used_.contains(state.name + ".other")) used_.insert(state.name);
  }

  static void keep_states(const std::vector<bool>& live, Reduction& r) {
    Reduction kept;
    for (size_t i = 0; i < live.size(); ++i) {
      if (!live[i]) continue;
      kept.states.push_back(std::move(r.states[i]));
      kept.yield.push_back(std::move(r.yield[i]));
      kept.merge.push_back(std::move(r.merge[i]));
    }
    r = std::move(kept);
  }

  std::unordered_set<std::string> used_, loaded_, scratch_;
};

void set_ranges(ExprSimplifier& exprs, const Ranges& ranges) {
  for (const auto& [name, range] : ranges) exprs.bounds.set_range(name, range.low, range.high);
}

Polynomial canonical(ExprSimplifier& exprs, const Expr& e) { return to_polynomial(exprs.simplify(e)); }

}  // namespace

Expr simplify(const Expr& e, const Ranges& ranges) {
  if (!e || e->args.empty()) return e;
  ExprSimplifier exprs;
  set_ranges(exprs, ranges);
  return exprs.simplify(e);
}

Function simplify(const Function& f) {
  Function result = Forward(f).run();
  result.body = Backward(result.body).block(result.body);
  return result;
}

bool provably_even(const Expr& index) { return as_const_int(simplify(floormod(index, index_const(2)))) == 0; }

bool provably_equal(const Expr& a, const Expr& b) {
  if (equal(a, b)) return true;
  if (a->type != b->type) return false;
  ExprSimplifier exprs;
  if (a->type == kIndex) return add(canonical(exprs, a), canonical(exprs, b), -1).is_zero();
  return equal(exprs.simplify(a), exprs.simplify(b));
}

bool provably_less(const Expr& a, const Expr& b, const Ranges& ranges) {
  if (a->type != kIndex || b->type != kIndex) return false;
  ExprSimplifier exprs;
  set_ranges(exprs, ranges);
  Polynomial x = canonical(exprs, a), y = canonical(exprs, b);
  return exprs.bounds.is_exact(x) && exprs.bounds.is_exact(y) && exprs.bounds.is_less(x, y);
}

Ranges symbol_ranges(const std::vector<std::string>& symbols, const std::map<std::string, int64_t>& lows) {
  Ranges ranges;
  for (const std::string& symbol : symbols) {
    const auto low = lows.find(symbol);
    ranges[symbol] = {index_const(low == lows.end() ? 1 : low->second), nullptr};
  }
  return ranges;
}

}  // namespace ipex::loop
