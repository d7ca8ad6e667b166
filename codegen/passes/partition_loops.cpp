// partition_loops: loop unswitching and index-set splitting. A loop is split where a comparison of indices
// changes its outcome, so that each part runs without the comparison.
//
//   for i in 0..8 {                                       for i in 0..2 { y[i*8 ..] = -x[i*8 + 16 ..] }
//     let low = ramp(i*8, 1, 8) < 16                =>    for i in 2..8 { y[i*8 ..] = x[i*8 ..] }
//     y[i*8 ..] = select(low, -x[i*8 + 16 .. if low], x[i*8 ..])
//   }
//
// Minima, maxima and absolute values of indices count as comparisons too: they come from padding that
// replicates or mirrors an edge.
//
// A comparison has the form `base + inner >= 0`, where base depends on variables bound outside, and inner on
// lanes and on inner loops with constant ranges. As base grows, the outcome is first false for all inner
// values, then mixed, then true for all. If base depends on the variable of the loop itself, the loop is
// split into loops that follow one another. If base depends on outer variables only, the loop is repeated in
// the branches of an `if`. The parts in between, where a vector or a window crosses an edge, keep their
// masks.
//
// Masks are expensive. On AVX2, a masked load of 16-bit elements is a branch for each lane. A masked load
// with no active lane outside of mapped memory takes a microcode assist of hundreds of cycles, on Intel and
// on AMD.
#include <algorithm>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/bounds.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr size_t kMaxSplitPoints = 4;  // of one loop at once
constexpr int64_t kMinSplitTrips = 8;  // a shorter loop is not split at points known only at run time
// Nodes that any function may grow by. A large function may grow by a multiple of its size.
constexpr int64_t kMinGrowth = 600;
constexpr int64_t kMaxGrowthFactor = 3;

// True where base + x >= 0 (where not, if negated), for x in [low, high].
struct Comparison {
  Polynomial base;  // without the constant
  int64_t low = 0, high = 0;
  bool negated = false;

  // The outcome if base is in the range and it is the same for all x; otherwise none.
  std::optional<bool> outcome_in(Interval range) const {
    if (range.low >= -low) return !negated;
    if (range.high <= -high) return negated;
    return std::nullopt;
  }
};

// The comparisons that share one base.
struct Conditions {
  Polynomial base;
  std::set<int64_t> split_points;
  int comparisons = 0;
};

bool is_same(const Polynomial& a, const Polynomial& b) { return add(a, b, -1).is_zero(); }

// The comparison that a node depends on: its own, or the one that decides which operand a minimum or maximum
// returns, or the sign that an absolute value depends on. The latter three matter only for vectors, where
// they prevent contiguous addresses.
struct Condition {
  ScalarOp op;
  Expr a, b;
};
std::optional<Condition> condition_of(const ExprNode& e) {
  if (!e.is(ExprKind::kApply) || e.args[0]->type.dtype != Dtype::kI64) return std::nullopt;
  if (e.type.dtype != Dtype::kBool && !e.type.is_vector()) return std::nullopt;
  switch (e.op) {
    case ScalarOp::lt_:
    case ScalarOp::le_:
    case ScalarOp::gt_:
    case ScalarOp::ge_:
      return Condition{e.op, e.args[0], e.args[1]};
    case ScalarOp::min_:
      return Condition{ScalarOp::le_, e.args[0], e.args[1]};
    case ScalarOp::max_:
      return Condition{ScalarOp::ge_, e.args[0], e.args[1]};
    case ScalarOp::abs_:
      return Condition{ScalarOp::ge_, e.args[0], make_broadcast(index_const(0), e.type.lanes)};
    default:
      return std::nullopt;
  }
}
Expr folded(const ExprNode& e, bool outcome) {
  if (e.type.dtype == Dtype::kBool) return make_broadcast(make_int(kBool1, outcome ? 1 : 0), e.type.lanes);
  if (e.op == ScalarOp::abs_) return outcome ? e.args[0] : make_apply(ScalarOp::neg_, {e.args[0]});
  return e.args[outcome ? 0 : 1];
}

class Partitioner {
 public:
  Partitioner(const Function& f, int64_t budget) : f_(f), names_(f), budget_(budget) {
    for (const auto& [name, range] : symbol_ranges(f.symbols, f.symbol_lows))
      bounds_.set_range(name, range.low, range.high);
  }

  std::optional<Function> run() {
    Function out = f_;
    out.body = block(f_.body);
    return changed_ ? std::optional(simplify(out)) : std::nullopt;
  }

 private:
  // The names that are bound inside the current loop; for a loop variable, its range if that is constant.
  using Inside = std::map<std::string, std::optional<Interval>>;

  Block block(const Block& b) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : b->stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        define(*let);
        bound(*let);
        out.push_back(stmt);
      } else if (const auto* inner = std::get_if<Block>(&stmt)) {
        out.emplace_back(block(*inner));
      } else if (const auto* branch = std::get_if<If>(&stmt)) {
        out.emplace_back(If{branch->condition, block(branch->then_body),
                            branch->else_body ? block(branch->else_body) : nullptr});
      } else if (const auto* loop = std::get_if<For>(&stmt)) {
        if (!unswitch(*loop, out) && !split_range(*loop, out)) out.emplace_back(entered(*loop));
      } else {
        out.push_back(stmt);
      }
    }
    return make_block(std::move(out));
  }

  For entered(For loop) {
    bounds_.set_range(loop.var, loop.begin, loop.end);
    if (loop.reduction)
      for (const State& s : loop.reduction->states)
        if (s.type.dtype == Dtype::kI64) bounds_.set_data(s.name);
    loop.body = block(loop.body);
    return loop;
  }

  // ---- names ----

  // Lets of sums of indices, and of scalar comparisons, are replaced by their definitions.
  void define(const Let& let) {
    const Type type = let.value->type;
    const bool is_sum = type == kIndex && !to_polynomial(let.value).terms.empty() &&
                        !is_same(to_polynomial(let.value), Polynomial::atom(let.value));
    if (is_sum || (type == kBool1 && !loads(let.value)))
      definitions_[let.name] = substitute(let.value, definitions_);
  }

  void bound(const Let& let) {
    if (let.value->type.dtype != Dtype::kI64) return;
    if (bounds_.is_exact(Polynomial::atom(let.value)))
      bounds_.set_interval(let.name, bounds_.interval(let.value));
    else
      bounds_.set_data(let.name);
  }

  // ---- comparisons ----

  // The value of a sum at lane 0. What the other lanes add, times `sign`, widens `inner`.
  std::optional<Polynomial> at_first_lane(const Expr& e, int64_t sign, Interval& inner) const {
    if (e->is(ExprKind::kRamp)) {
      const auto step = as_const_int(e->args[1]);
      if (!step) return std::nullopt;
      const int64_t last = sign * *step * (e->type.lanes - 1);
      inner.low += std::min<int64_t>(last, 0);
      inner.high += std::max<int64_t>(last, 0);
    } else if (e->type.is_vector() && !e->is(ExprKind::kBroadcast)) {
      return std::nullopt;
    }
    return to_polynomial(substitute(e->type.is_vector() ? e->args[0] : e, definitions_));
  }

  // `along` is the variable that base must increase with, if any.
  std::optional<Comparison> comparison(const ExprNode& e, const Inside& inside,
                                       const std::string* along) const {
    const auto q = condition_of(e);
    if (!q) return std::nullopt;
    const bool falls = q->op == ScalarOp::lt_ || q->op == ScalarOp::le_;
    const int64_t sign = falls ? -1 : 1;
    Interval inner{0, 0};
    const auto a = at_first_lane(q->a, sign, inner), b = at_first_lane(q->b, -sign, inner);
    if (!a || !b) return std::nullopt;
    Polynomial difference = add(multiply(*a, sign), *b, -sign);
    if (q->op == ScalarOp::lt_ || q->op == ScalarOp::gt_) difference = add(difference, -1);
    if (!difference.exact) return std::nullopt;
    Comparison out;
    for (const Term& term : difference.terms) {
      const auto found = bound_inside(term, inside);
      if (!found) {
        out.base.terms.push_back(term);
        continue;
      }
      if (!*found || term.atoms.size() != 1) return std::nullopt;
      const auto [low, high] =
          std::minmax({term.coefficient * (*found)->low, term.coefficient * (*found)->high});
      inner.low += low;
      inner.high += high;
    }
    out.low = inner.low + difference.constant;
    out.high = inner.high + difference.constant;
    if (out.base.is_constant()) return std::nullopt;
    if (leading_coefficient(out.base, along) < 0) out = {negate(out.base), -out.high - 1, -out.low - 1, true};
    // A value from memory may be any i64, and a sum that contains it may wrap. It is therefore compared only
    // by itself, and only if it has a name: the loop may overwrite the place that it was loaded from.
    const std::vector<Term>& terms = out.base.terms;
    const bool is_value =
        terms.size() == 1 && terms[0].coefficient == 1 && variable(terms[0]) && out.low == out.high;
    return is_value || bounds_.is_exact(out.base) ? std::optional(out) : std::nullopt;
  }

  // The outer optional is empty if the whole term is bound outside. The inner one is empty if the range is
  // not known.
  static std::optional<std::optional<Interval>> bound_inside(const Term& term, const Inside& inside) {
    for (const Expr& atom : term.atoms)
      for (const std::string& name : free_vars(atom))
        if (const auto found = inside.find(name); found != inside.end())
          return atom->is(ExprKind::kVar) ? found->second : std::nullopt;
    return std::nullopt;
  }

  static int64_t leading_coefficient(const Polynomial& base, const std::string* along) {
    for (const Term& term : base.terms)
      if (along && is_variable(term, *along)) return term.coefficient;
    return base.terms[0].coefficient;
  }

  // The name, if a term is a multiple of one variable; otherwise null.
  static const std::string* variable(const Term& term) {
    return term.atoms.size() == 1 && term.atoms[0]->is(ExprKind::kVar) ? &term.atoms[0]->name : nullptr;
  }
  static bool is_variable(const Term& term, const std::string& name) {
    const std::string* found = variable(term);
    return found && *found == name;
  }

  // The base that decides most of the comparisons in the loop, and that is not decided itself.
  std::optional<Conditions> most_decisive(const For& loop, Inside& inside, const std::string* along) {
    std::vector<Conditions> candidates;
    const auto add_comparison = [&](const ExprNode& e) {
      const auto c = comparison(e, inside, along);
      if (!c || (along && !rises_with(c->base, *along)) || is_mostly_mixed(*c)) return;
      auto conditions = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Conditions& g) { return is_same(g.base, c->base); });
      if (conditions == candidates.end())
        conditions = candidates.insert(candidates.end(), Conditions{c->base, {}, 0});
      conditions->split_points.insert({-c->low, -c->high});
      ++conditions->comparisons;
    };
    const auto bind = [&](const Stmt& stmt) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        define(*let);
        inside[let->name] = std::nullopt;
      } else if (const auto* inner = std::get_if<For>(&stmt)) {
        const auto begin = as_const_int(inner->begin), end = as_const_int(inner->end);
        if (!along || inner->var != *along)
          inside[inner->var] =
              begin && end && *begin < *end ? std::optional(Interval{*begin, *end - 1}) : std::nullopt;
        if (inner->reduction)
          for (const State& s : inner->reduction->states) inside[s.name] = std::nullopt;
      }
    };
    visit(make_block({loop}), bind, [&](const ExprNode& e) {
      add_comparison(e);
      if (const auto outcome = definition(e); outcome && e.type == kBool1) visit(*outcome, add_comparison);
    });
    for (Conditions& conditions : candidates) {
      const Interval range = bounds_.interval(conditions.base);
      std::erase_if(conditions.split_points, [&](int64_t split_point) {
        return split_point <= range.low || split_point > range.high;
      });
    }
    std::erase_if(candidates, [](const Conditions& conditions) {
      return conditions.split_points.empty() || conditions.split_points.size() > kMaxSplitPoints;
    });
    const auto best = std::max_element(
        candidates.begin(), candidates.end(),
        [](const Conditions& a, const Conditions& b) { return a.comparisons < b.comparisons; });
    return best == candidates.end() ? std::nullopt : std::optional(*best);
  }

  // A triangle, where the loop is mixed for most of its iterations: a loop along a row, all of which is on
  // one side and then on the other, is the better one to split.
  bool is_mostly_mixed(const Comparison& c) const {
    const Interval range = bounds_.interval(c.base);
    return range.bounded() && c.high - c.low > (range.high - range.low) / 2;
  }

  std::optional<Expr> definition(const ExprNode& e) const {
    if (!e.is(ExprKind::kVar)) return std::nullopt;
    const auto found = definitions_.find(e.name);
    return found == definitions_.end() ? std::nullopt : std::optional(found->second);
  }

  static bool rises_with(const Polynomial& base, const std::string& var) {
    bool found = false;
    for (const Term& term : base.terms) {
      if (is_variable(term, var))
        found = true;
      else
        for (const Expr& atom : term.atoms)
          if (uses(atom, var)) return false;
    }
    return found;
  }

  // ---- rewriting loops ----

  // The loop for base in the given range, with the comparisons folded that have the same outcome everywhere
  // in it.
  struct Specialized {
    Block body;    // a block that contains only that loop
    bool decided;  // no comparison of these conditions is left
  };
  Specialized specialized(const For& loop, const Conditions& conditions, Interval range, const Inside& inside,
                          const std::string* along) const {
    Specialized out{nullptr, true};
    const ExprFn simpler = [&](const Expr& e) -> Expr {
      if (const auto c = comparison(*e, inside, along)) {
        if (!is_same(c->base, conditions.base)) return e;
        const auto outcome = c->outcome_in(range);
        if (!outcome) out.decided = false;
        return outcome ? folded(*e, *outcome) : e;
      }
      if (const auto meaning = definition(*e); meaning && e->type == kBool1) {
        const Expr rest = transform(*meaning, simpler);
        if (rest != *meaning) return loop::simplify(rest);
      }
      return e;
    };
    out.body = transform(make_block({loop}), simpler);
    return out;
  }

  bool fits_budget(const For& loop, const Conditions& conditions) {
    const int64_t growth =
        node_count(make_block({loop})) * static_cast<int64_t>(conditions.split_points.size());
    if (growth > budget_) return false;
    budget_ -= growth;
    return changed_ = true;
  }

  // The ranges of base between the split points.
  static std::vector<Interval> intervals(const Conditions& conditions) {
    std::vector<Interval> out(1);
    for (int64_t split_point : conditions.split_points) {
      out.back().high = split_point;
      out.push_back({split_point, Interval::kHigh});
    }
    return out;
  }

  // Loop unswitching: `if base < split_point { loop } else { loop }`.
  bool unswitch(const For& loop, std::vector<Stmt>& out) {
    if (loop.reduction || loop.kind != ForKind::kSerial) return false;
    Inside inside;
    const auto conditions = most_decisive(loop, inside, nullptr);
    if (!conditions || !fits_budget(loop, *conditions)) return false;
    Block rest;
    const std::vector<Interval> ranges = intervals(*conditions);
    for (size_t i = ranges.size(); i-- > 0;) {
      Specialized p = specialized(loop, *conditions, ranges[i], inside, nullptr);
      if (i > 0) p.body = fresh_copy(p.body, names_);
      if (p.decided) p.body = block(p.body);
      rest = rest ? make_block({If{
                        make_apply(ScalarOp::lt_, {to_expr(conditions->base), index_const(ranges[i].high)}),
                        p.body, rest}})
                  : p.body;
    }
    out.insert(out.end(), rest->stmts.begin(), rest->stmts.end());
    return true;
  }

  // Index-set splitting: a loop from begin to the split point, then a loop from the split point to end.
  bool split_range(const For& loop, std::vector<Stmt>& out) {
    if (loop.kind != ForKind::kSerial || is_remainder(loop)) return false;
    bounds_.set_range(loop.var, loop.begin, loop.end);
    Inside inside;
    const auto conditions = most_decisive(loop, inside, &loop.var);
    if (!conditions) return false;
    std::vector<Expr> edges{loop.begin};
    for (int64_t split_point : conditions->split_points)
      edges.push_back(edge(loop, *conditions, split_point));
    edges.push_back(loop.end);
    const bool is_constant =
        std::all_of(edges.begin(), edges.end(), [](const Expr& e) { return as_const_int(e).has_value(); });
    if (const auto trips = as_const_int(simplify(loop.end - loop.begin));
        trips && *trips < (is_constant ? 2 : kMinSplitTrips))
      return false;
    if (!fits_budget(loop, *conditions)) return false;
    const std::vector<Interval> ranges = intervals(*conditions);
    std::optional<Reduction> before;
    for (size_t i = 0; i < ranges.size(); ++i) {
      Specialized p = specialized(loop, *conditions, ranges[i], inside, &loop.var);
      // The last part binds the names that following statements read.
      if (i + 1 < ranges.size()) p.body = fresh_copy(p.body, names_);
      For part = std::get<For>(p.body->stmts[0]);
      part.begin = edges[i];
      part.end = edges[i + 1];
      if (before)
        for (size_t s = 0; s < before->states.size(); ++s)
          part.reduction->states[s].init = make_var(before->states[s].name, before->states[s].type);
      before = part.reduction;
      if (p.decided) {
        const Block done = block(make_block({std::move(part)}));
        out.insert(out.end(), done->stmts.begin(), done->stmts.end());
      } else {
        out.emplace_back(std::move(part));
      }
    }
    return true;
  }

  // The remainder of a loop over whole vectors has less than one step: there is nothing to split.
  static bool is_remainder(const For& loop) {
    bool found = false;
    visit(loop.begin,
          [&](const ExprNode& e) { found |= e.is(ExprKind::kApply) && e.op == ScalarOp::floordiv_; });
    return found;
  }

  // The first iteration in which base is at least `split_point`, within the loop.
  Expr edge(const For& loop, const Conditions& conditions, int64_t split_point) const {
    int64_t step = 0;
    Polynomial rest = split_point;
    for (const Term& term : conditions.base.terms) {
      if (is_variable(term, loop.var))
        step = term.coefficient;
      else
        rest = add(rest, Polynomial::of(term), -1);
    }
    const Expr first = ceildiv(to_expr(rest), index_const(step));
    return simplify(make_apply(ScalarOp::max_, {loop.begin, make_apply(ScalarOp::min_, {loop.end, first})}));
  }

  const Function& f_;
  Names names_;
  Bounds bounds_;
  Substitution definitions_;
  int64_t budget_;  // number of nodes
  bool changed_ = false;
};

}  // namespace

// A comparison that one round folds may be part of another one that the next round handles: |55 - |i||.
Function partition_loops(const Function& f) {
  constexpr int kRounds = 4;
  const int64_t nodes = node_count(f.body), most = nodes + std::max(kMinGrowth, kMaxGrowthFactor * nodes);
  Function out = f;
  for (int round = 0; round < kRounds; ++round) {
    auto next = Partitioner(out, most - node_count(out.body)).run();
    if (!next) break;
    out = std::move(*next);
  }
  return out;
}

}  // namespace ipex::loop
