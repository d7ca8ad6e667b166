// collapse_loops: loop interchange and coalescing. It orders perfect nests by memory, and merges two adjacent
// loops if every index advances through both of them at the same stride.
//
// A tensor of any rank whose dims are contiguous is one long row. One loop over it has fewer bounds, fills
// longer vectors and can be divided among threads. Permuted layouts (channels_last) arrive in logical order
// and are put into the order of their strides first.
#include <algorithm>
#include <cmath>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr double kSymbolicSize = 1 << 10;  // assumed only to order strides that depend on symbols

constexpr double kStoreWeight = 64;

double approximate(const Expr& e) {
  if (const auto c = as_const_int(e)) return std::abs(static_cast<double>(*c));
  if (e->is(ExprKind::kApply) && e->op == ScalarOp::mul_)
    return approximate(e->args[0]) * approximate(e->args[1]);
  if (e->is(ExprKind::kApply) && e->op == ScalarOp::add_)
    return approximate(e->args[0]) + approximate(e->args[1]);
  return kSymbolicSize;
}

// Replaces outer*inner_extent + inner by one variable everywhere. Fails if the two variables are combined in
// any other way.
class IndexRewriter {
 public:
  IndexRewriter(std::string outer, std::string inner, Expr inner_extent, Expr merged)
      : outer_(std::move(outer)),
        inner_(std::move(inner)),
        extent_(std::move(inner_extent)),
        merged_(std::move(merged)) {}

  bool failed() const { return failed_; }

  Expr rewrite(const Expr& e) {
    if (failed_ || !e || (!uses(e, outer_) && !uses(e, inner_))) return e;
    if (e->type == kIndex) {
      if (const auto a = affine(e, {outer_, inner_}); a && !uses(a->rest, outer_) && !uses(a->rest, inner_)) {
        const Expr outer = coefficient(*a, outer_), inner = coefficient(*a, inner_);
        if (provably_equal(outer, inner * extent_)) return simplify(inner * merged_ + a->rest);
        failed_ = true;
        return e;
      }
    }
    if (e->args.empty()) {
      failed_ = true;
      return e;
    }
    ExprNode copy = *e;
    for (Expr& arg : copy.args) arg = rewrite(arg);
    return std::make_shared<const ExprNode>(std::move(copy));
  }

 private:
  static Expr coefficient(const Affine& a, const std::string& var) {
    const auto it = a.coefficients.find(var);
    return it == a.coefficients.end() ? index_const(0) : it->second;
  }
  std::string outer_, inner_;
  Expr extent_, merged_;
  bool failed_ = false;
};

// Applies fn to every expression of a statement tree, top-down. transform() works bottom-up and would split
// an index before it is seen as a whole.
Block map_exprs(const Block& block, const ExprFn& fn);

void map_exprs(Stmt& stmt, const ExprFn& fn) {
  const auto map = [&](Expr& e) {
    if (e) e = fn(e);
  };
  if (auto* block = std::get_if<Block>(&stmt)) {
    *block = map_exprs(*block, fn);
  } else if (auto* loop = std::get_if<For>(&stmt)) {
    map(loop->begin);
    map(loop->end);
    if (loop->reduction) {
      for (State& s : loop->reduction->states) {
        map(s.init);
        map(s.identity);
      }
      for (Expr& y : loop->reduction->yield) map(y);
    }
    loop->body = map_exprs(loop->body, fn);
  } else if (auto* let = std::get_if<Let>(&stmt)) {
    map(let->value);
  } else if (auto* store = std::get_if<Store>(&stmt)) {
    map(store->index);
    map(store->value);
    map(store->mask);
  } else if (auto* alloc = std::get_if<Alloc>(&stmt)) {
    map(alloc->extent);
  } else if (auto* branch = std::get_if<If>(&stmt)) {
    map(branch->condition);
    branch->then_body = map_exprs(branch->then_body, fn);
    if (branch->else_body) branch->else_body = map_exprs(branch->else_body, fn);
  } else if (auto* call = std::get_if<Call>(&stmt)) {
    for (Expr& arg : call->args) map(arg);
  }
}

Block map_exprs(const Block& block, const ExprFn& fn) {
  std::vector<Stmt> stmts = block->stmts;
  for (Stmt& stmt : stmts) map_exprs(stmt, fn);
  return make_block(std::move(stmts));
}

class Collapser {
 public:
  explicit Collapser(const Function& f) : tree_(f) {
    for (size_t i = 0; i < tree_.loops().size(); ++i)
      ids_[tree_.at(static_cast<int>(i)).node->var] = static_cast<int>(i);
  }

  Block block(const Block& b) {
    std::vector<Stmt> stmts = b->stmts;
    for (Stmt& stmt : stmts) {
      if (auto* inner = std::get_if<Block>(&stmt)) {
        *inner = block(*inner);
      } else if (auto* branch = std::get_if<If>(&stmt)) {
        branch->then_body = block(branch->then_body);
        if (branch->else_body) branch->else_body = block(branch->else_body);
      } else if (auto* loop = std::get_if<For>(&stmt)) {
        stmt = nest(*loop);
      }
    }
    return make_block(std::move(stmts));
  }

 private:
  For nest(For f) {
    std::vector<For> levels = perfect_levels(f);
    if (levels.size() > 1) order_by_memory(levels);
    if (For sunk = f; sink_lets(sunk)) {  // lets are sunk only if that allows a better order
      std::vector<For> deeper = perfect_levels(sunk);
      if (deeper.size() > levels.size() && order_by_memory(deeper)) levels = std::move(deeper);
    }
    levels.back().body = block(levels.back().body);
    For inner = std::move(levels.back());
    levels.pop_back();
    for (; !levels.empty(); levels.pop_back()) inner = collapsed(std::move(levels.back()), inner);
    return inner;
  }

  // Coalescing keeps the order of iterations, so only the indices need a proof.
  For collapsed(For outer, const For& inner) {
    outer.body = make_block({inner});
    if (as_const_int(outer.begin) != 0 || as_const_int(inner.begin) != 0) return outer;
    const Expr extent = inner.end;
    IndexRewriter indices(outer.var, inner.var, extent, make_var(outer.var));
    const auto rewrite = [&](const Expr& e) { return indices.rewrite(e); };
    For merged = inner;
    merged.var = outer.var;
    merged.end = simplify(outer.end * extent);
    Stmt body = inner.body;
    map_exprs(body, rewrite);
    merged.body = std::get<Block>(body);
    if (outer.reduction) {
      for (Expr& y : merged.reduction->yield) y = indices.rewrite(y);
      rename_states(merged, outer.reduction->states);
    }
    return indices.failed() ? outer : merged;
  }

  bool movable(const For& f) const {
    const auto it = ids_.find(f.var);
    return it != ids_.end() && tree_.reorderable(it->second);
  }

  //   for i { lets; for j { body } }  =>  for i { for j { lets; body } }
  //
  // Repeats this for the loops further inside. Returns false if there was nothing to move.
  bool sink_lets(For& f) const {
    if (f.kind != ForKind::kSerial || f.reduction || f.body->stmts.empty()) return false;
    const auto* inner = std::get_if<For>(&f.body->stmts.back());
    if (!inner || inner->kind != ForKind::kSerial || inner->reduction) return false;
    const bool pure = std::all_of(f.body->stmts.begin(), f.body->stmts.end() - 1, [&](const Stmt& stmt) {
      const auto* let = std::get_if<Let>(&stmt);
      bool reads_only = let != nullptr;
      if (let)
        visit(let->value,
              [&](const ExprNode& e) { reads_only &= !e.is(ExprKind::kLoad) || !tree_.writes(e.name); });
      return reads_only;
    });
    if (!pure) return false;
    For sunk = *inner;
    const bool moved = f.body->stmts.size() > 1;
    if (moved) {
      std::vector<Stmt> body(f.body->stmts.begin(), f.body->stmts.end() - 1);
      body.insert(body.end(), sunk.body->stmts.begin(), sunk.body->stmts.end());
      sunk.body = make_block(std::move(body));
    }
    const bool moved_below = sink_lets(sunk);
    f.body = make_block({std::move(sunk)});
    return moved || moved_below;
  }

  // Puts the loop with the largest stride through memory outermost. Stores decide; loads decide between equal
  // stores, or if the nest stores nothing. Returns false if the order does not change or must not change.
  bool order_by_memory(std::vector<For>& levels) const {
    std::set<std::string> vars;
    for (const For& level : levels) {
      if (!movable(level)) return false;
      vars.insert(level.var);
    }
    for (const For& level : levels)
      for (const Expr& bound : {level.begin, level.end})
        for (const std::string& v : free_vars(bound))
          if (vars.count(v) > 0) return false;
    std::vector<std::pair<double, size_t>> keys;
    const int innermost = ids_.at(levels.back().var);
    for (size_t i = 0; i < levels.size(); ++i) {
      double weight = 0, total = 0;
      for (const LoopTree::Access& access : tree_.accesses()) {
        if (access.loop < 0 || !tree_.encloses(innermost, access.loop)) continue;
        const auto step = LoopTree::stride(access.index, levels[i].var);
        if (!step || as_const_int(*step) == 0) continue;
        const double bytes =
            static_cast<double>(itemsize(access.dtype)) * (access.is_store ? kStoreWeight : 1);
        weight += bytes * std::log2(1 + approximate(*step));
        total += bytes;
      }
      keys.emplace_back(total > 0 ? weight / total : 1e9, i);  // accesses no memory: outermost
    }
    std::stable_sort(keys.begin(), keys.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<size_t> order;
    for (const auto& key : keys) order.push_back(key.second);
    if (std::is_sorted(order.begin(), order.end())) return false;
    permute_levels(levels, order);
    return true;
  }

  LoopTree tree_;
  std::map<std::string, int> ids_;
};

}  // namespace

Function collapse_loops(const Function& f) {
  Function out = f;
  out.body = Collapser(f).block(f.body);
  return out;
}

}  // namespace ipex::loop
