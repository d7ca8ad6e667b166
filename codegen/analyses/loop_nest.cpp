// Perfect nests: recognising them, splitting them into levels, permuting and rejoining the levels.
#include "codegen/analyses/loop_nest.h"

#include <algorithm>
#include <utility>

namespace ipex::loop {

bool passes_through(const For& outer, const For& inner) {
  if (!outer.reduction || !inner.reduction) return false;
  const Reduction &a = *outer.reduction, &b = *inner.reduction;
  if (a.states.size() != b.states.size()) return false;
  for (size_t i = 0; i < a.states.size(); ++i) {
    if (!equal(b.states[i].init, make_var(a.states[i].name, a.states[i].type))) return false;
    if (!equal(a.yield[i], make_var(b.states[i].name, b.states[i].type))) return false;
  }
  return true;
}

std::vector<For> perfect_levels(const For& outermost) {
  std::vector<For> levels = {outermost};
  if (outermost.kind != ForKind::kSerial) return levels;
  while (levels.back().body->stmts.size() == 1) {
    const auto* inner = std::get_if<For>(&levels.back().body->stmts[0]);
    if (!inner || inner->kind != ForKind::kSerial) break;
    const For& outer = levels.back();
    if ((outer.reduction || inner->reduction) && !passes_through(outer, *inner)) break;
    For next = *inner;
    levels.back().body = make_block({});
    levels.push_back(std::move(next));
  }
  return levels;
}

For join_levels(std::vector<For> levels) {
  For nest = std::move(levels.back());
  for (size_t i = levels.size() - 1; i-- > 0;) {
    levels[i].body = make_block({std::move(nest)});
    nest = std::move(levels[i]);
  }
  return nest;
}

Flattened flattened(const std::vector<For>& levels) {
  Expr size = index_const(1), position = index_const(0);
  for (const For& loop : levels) {
    const Expr extent = loop.end - loop.begin;
    position = position * extent + (make_var(loop.var) - loop.begin);
    size = size * extent;
  }
  return {simplify(size), simplify(position)};
}

void permute_levels(std::vector<For>& levels, const std::vector<size_t>& order) {
  const std::vector<For> old = levels;
  for (size_t i = 0; i < order.size(); ++i) {
    levels[i] = old[order[i]];
    levels[i].reduction = old[i].reduction;
    levels[i].body = old[i].body;
  }
}

void rename_states(For& loop, const std::vector<State>& states) {
  Substitution names;
  for (size_t i = 0; i < states.size(); ++i) {
    const State& old = loop.reduction->states[i];
    names[old.name] = make_var(states[i].name, states[i].type);
    names[old.name + ".other"] = make_var(states[i].name + ".other", states[i].type);
  }
  loop.body = substitute(loop.body, names);
  for (Expr& y : loop.reduction->yield) y = substitute(y, names);
  for (Expr& m : loop.reduction->merge) m = substitute(m, names);
  loop.reduction->states = states;
}

Expr merged(const Reduction& reduction, size_t i, const std::vector<Expr>& left,
            const std::vector<Expr>& right) {
  Substitution values;
  for (size_t k = 0; k < reduction.states.size(); ++k) {
    values[reduction.states[k].name] = left[k];
    values[reduction.states[k].name + ".other"] = right[k];
  }
  return substitute(reduction.merge[i], values);
}

int64_t registers(const Reduction& reduction, const Target& target) {
  int64_t count = 0;
  for (const State& state : reduction.states)
    count += std::max<int64_t>(1, state.type.lanes * itemsize(state.type.dtype) / target.vector_bytes);
  return count;
}

bool inline_let(const Stmt& stmt, Substitution& lets) {
  const auto* let = std::get_if<Let>(&stmt);
  if (let) lets[let->name] = substitute(let->value, lets);
  return let != nullptr;
}

std::optional<Factors> summed_factors(const For& loop, Substitution lets) {
  if (!loop.reduction || loop.reduction->states.size() != 1) return std::nullopt;
  for (const Stmt& stmt : loop.body->stmts)
    if (!inline_let(stmt, lets)) return std::nullopt;
  const State& s = loop.reduction->states[0];
  const Expr sum = substitute(loop.reduction->yield[0], lets), state = make_var(s.name, s.type);
  if (!sum->is(ExprKind::kApply) || sum->op != ScalarOp::add_) return std::nullopt;
  const bool first = equal(sum->args[0], state);
  if (!first && !equal(sum->args[1], state)) return std::nullopt;
  const Expr& product = sum->args[first ? 1 : 0];
  if (!product->is(ExprKind::kApply) || product->op != ScalarOp::mul_) return std::nullopt;
  return Factors{product->args[0], product->args[1]};
}

std::map<std::string, int> count_loads(const Block& block) {
  std::map<std::string, int> counts;
  visit(
      block, [](const Stmt&) {},
      [&](const ExprNode& e) {
        if (e.is(ExprKind::kLoad)) ++counts[e.name];
      });
  return counts;
}

int64_t node_count(const Block& block) {
  int64_t n = 0;
  visit(block, [&](const Stmt&) { ++n; }, [&](const ExprNode&) { ++n; });
  return n;
}

void declare_packed(Buffer& buffer) {
  buffer.dtype = Dtype::kF32;
  buffer.extent = simplify(floordiv(buffer.extent, index_const(2)));
}

Block replace_loop(const Block& block, const std::string& var,
                   const std::function<std::vector<Stmt>(For)>& fn) {
  bool found = false;
  Block out = transform_stmts(block, [&](Stmt stmt) -> std::vector<Stmt> {
    auto* loop = std::get_if<For>(&stmt);
    if (!loop || loop->var != var) return {std::move(stmt)};
    found = true;
    return fn(std::move(*loop));
  });
  IPEX_CHECK(found, "the schedule names the loop `" + var + "`, but the function has no such loop");
  return out;
}

Ranges variable_ranges(const Function& f) {
  Ranges ranges = symbol_ranges(f.symbols, f.symbol_lows);
  visit(
      f.body,
      [&](const Stmt& stmt) {
        if (const auto* loop = std::get_if<For>(&stmt)) ranges[loop->var] = {loop->begin, loop->end};
      },
      nullptr);
  return ranges;
}

bool loads(const Expr& e) {
  bool found = false;
  visit(e, [&](const ExprNode& node) { found |= node.is(ExprKind::kLoad); });
  return found;
}

Block fresh_copy(const Block& block, Names& names) {
  const std::set<std::string> bound = bound_names(block);
  std::string suffix;
  do suffix = "_" + names.fresh("copy");  // an earlier pass may have made copies too
  while (std::any_of(bound.begin(), bound.end(),
                     [&](const std::string& name) { return names.contains(name + suffix); }));
  for (const std::string& name : bound) names.reserve(name + suffix);
  return rename_bound(block, suffix);
}

}  // namespace ipex::loop
