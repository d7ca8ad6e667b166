// See emitter.h.
#include "backend/lower/emitter.h"

#include <algorithm>
#include <unordered_map>

#include "codegen/loop/rewrite.h"

namespace ipex::graph {

using loop::Expr;
using loop::ExprKind;
using loop::ExprNode;
using loop::make_var;

int Emitter::depth_of(const Expr& e) const {
  int depth = 0;
  loop::visit(e, [&](const ExprNode& node) {
    if (!node.is(ExprKind::kVar) && !node.is(ExprKind::kLoad)) return;
    if (auto it = bound_.find(node.name); it != bound_.end()) depth = std::max(depth, it->second);
  });
  return depth;
}

void Emitter::emit(loop::Stmt stmt, int depth) {
  if (const auto* alloc = std::get_if<loop::Alloc>(&stmt)) bind(alloc->buffer, depth);
  scopes_[depth].push_back(std::move(stmt));
}

int Emitter::depth_of(const Index& index, const Expr& mask) const {
  int depth = mask ? depth_of(mask) : 0;
  for (const Expr& e : index) depth = std::max(depth, depth_of(e));
  return depth;
}

std::string Emitter::unique(const std::string& base) {
  const int n = uses_[base]++;
  return n == 0 ? base : base + "." + std::to_string(n);
}

std::vector<loop::Stmt> Emitter::close() {
  if (on_close) on_close(depth());
  std::vector<loop::Stmt> stmts = std::move(scopes_.back());
  scopes_.pop_back();
  return stmts;
}

Expr Emitter::let(const std::string& base, const Expr& e) {
  if (e->is(ExprKind::kConst) || e->is(ExprKind::kVar)) return e;
  Expr value = share(Exprs{e})[0];
  const int depth = depth_of(value);
  std::string name = unique(base);
  bind(name, depth);
  emit(loop::Let{name, value}, depth);
  return make_var(name, value->type);
}

Exprs Emitter::share(const Exprs& values) {
  std::unordered_map<const ExprNode*, int> references;
  std::function<void(const Expr&)> count = [&](const Expr& x) {
    if (references[x.get()]++ == 0)
      for (const Expr& arg : x->args) count(arg);
  };
  for (const Expr& e : values) count(e);
  std::unordered_map<const ExprNode*, Expr> done;
  std::function<Expr(const Expr&)> rebuild = [&](const Expr& x) -> Expr {
    if (x->args.empty()) return x;
    if (auto it = done.find(x.get()); it != done.end()) return it->second;
    std::vector<Expr> args;
    bool changed = false;
    for (const Expr& arg : x->args) {
      args.push_back(rebuild(arg));
      changed = changed || args.back() != arg;
    }
    Expr out = x;
    if (changed) {
      ExprNode copy = *x;
      copy.args = std::move(args);
      out = std::make_shared<const ExprNode>(std::move(copy));
    }
    if (references[x.get()] > 1) {
      const int depth = depth_of(out);
      std::string name = unique("u");
      bind(name, depth);
      emit(loop::Let{name, out}, depth);
      out = make_var(name, out->type);
    }
    return done[x.get()] = out;
  };
  Exprs out;
  for (const Expr& e : values) out.push_back(rebuild(e));
  return out;
}

void Emitter::loop(const std::string& base, const Dim& extent, int depth,
                   const std::function<void(Expr)>& body) {
  if (is_one(extent)) return body(loop::index_const(0));
  loop::For loop;
  loop.var = unique(base);
  loop.begin = loop::index_const(0);
  loop.end = extent;
  open();
  bind(loop.var, this->depth());
  ranges_[loop.var] = {loop.begin, extent};
  body(make_var(loop.var));
  ranges_.erase(loop.var);
  loop.body = loop::make_block(close());
  emit(std::move(loop), depth);
}

Exprs Emitter::reduce(const ReductionSpec& spec, int depth) {
  Exprs inits;
  for (const loop::State& s : spec.states) inits.push_back(s.init);
  return reduce_level(spec, 0, {}, inits, depth);
}

Exprs Emitter::reduce_level(const ReductionSpec& spec, size_t level, Exprs vars, const Exprs& inits,
                            int depth) {
  if (level == spec.extents.size()) return share(spec.step(vars, inits));
  if (is_one(spec.extents[level])) {
    vars.push_back(loop::index_const(0));
    return reduce_level(spec, level + 1, std::move(vars), inits, depth);
  }
  loop::For loop;
  loop.var = unique("r" + std::to_string(level));
  loop.begin = loop::index_const(0);
  loop.end = spec.extents[level];
  open();
  const int inside = this->depth();
  bind(loop.var, inside);
  ranges_[loop.var] = {loop.begin, loop.end};
  loop::Reduction reduction;
  Exprs states, others;
  for (size_t k = 0; k < spec.states.size(); ++k) {
    loop::State s = spec.states[k];
    s.name = unique(s.name);
    s.init = inits[k];
    bind(s.name, inside);
    states.push_back(make_var(s.name, s.type));
    others.push_back(make_var(s.name + ".other", s.type));
    reduction.states.push_back(std::move(s));
  }
  vars.push_back(make_var(loop.var));
  reduction.yield = reduce_level(spec, level + 1, std::move(vars), states, inside);
  reduction.merge = spec.merge(states, others);
  ranges_.erase(loop.var);
  loop.reduction = std::move(reduction);
  loop.body = loop::make_block(close());
  emit(std::move(loop), depth);
  for (const Expr& s : states) bind(s->name, depth);
  return states;
}

}  // namespace ipex::graph
