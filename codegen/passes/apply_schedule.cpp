// apply_schedule: carries out a Schedule in this order: distribute rows among owners, tile, permute, fuse,
// mark the kind of each loop.
//
// Nothing is decided or proved here. A schedule that does not fit the function throws an InternalError that
// names the loop.
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

//   ..; let row = x; rest  =>  ..; let row = x; if row // block % parts == owner { rest }
bool guard(Block& block, const Ownership& o, const Expr& owner) {
  std::vector<Stmt> stmts = block->stmts;
  for (size_t i = 0; i < stmts.size(); ++i) {
    if (const auto* let = std::get_if<Let>(&stmts[i]); let && let->name == o.row) {
      const Expr part = floormod(floordiv(make_var(o.row), index_const(o.block)), index_const(o.parts));
      If mine{.condition = make_apply(ScalarOp::eq_, {part, owner})};
      const auto rest = stmts.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      mine.then_body = make_block({rest, stmts.end()});
      stmts.erase(rest, stmts.end());
      stmts.emplace_back(std::move(mine));
      block = make_block(std::move(stmts));
      return true;
    }
    if (auto* loop = std::get_if<For>(&stmts[i]); loop && guard(loop->body, o, owner)) {
      block = make_block(std::move(stmts));
      return true;
    }
  }
  return false;
}

//   for i in b..e { body }  =>  for i_owner in 0..parts parallel { for i in b..e { guarded body } }
For divide(For loop, const Ownership& o) {
  For outer{.var = loop.var + "_owner", .begin = index_const(0), .end = index_const(o.parts)};
  IPEX_CHECK(guard(loop.body, o, make_var(outer.var)),
             "the nest of `" + o.loop + "` has no let `" + o.row + "`");
  outer.kind = ForKind::kParallel;
  outer.body = make_block({std::move(loop)});
  return outer;
}

//   for i in b..e  =>  for i_tile in 0..ceil((e-b)/T) { for i in b + i_tile*T .. min(b + i_tile*T + T, e) }
For tile(For loop, int64_t size, Names& names) {
  const std::string outer_var = loop.var + "_tile";
  For outer{.var = outer_var, .begin = index_const(0), .reduction = loop.reduction};
  const Expr extent = simplify(loop.end - loop.begin);
  outer.end = simplify(floordiv(extent + index_const(size - 1), index_const(size)));
  const Expr start = loop.begin + make_var(outer_var) * index_const(size);
  const Expr stop = start + index_const(size);
  const bool whole_tiles = as_const_int(simplify(floormod(extent, index_const(size)))) == 0;
  For inner = loop;
  inner.begin = simplify(start);
  inner.end = simplify(whole_tiles ? stop : make_apply(ScalarOp::min_, {stop, loop.end}));
  if (loop.reduction) {
    std::vector<State> states;
    for (const State& s : loop.reduction->states)
      states.push_back({names.fresh(s.name + "_tile"), s.type, make_var(s.name, s.type), s.identity});
    rename_states(inner, states);
    for (size_t i = 0; i < states.size(); ++i)
      outer.reduction->yield[i] = make_var(states[i].name, states[i].type);
  }
  outer.body = make_block({std::move(inner)});
  return outer;
}

For permute(const For& outermost, const std::vector<std::string>& order) {
  std::vector<For> levels = perfect_levels(outermost);
  std::vector<size_t> positions;
  for (const std::string& var : order)
    for (size_t i = 0; i < levels.size(); ++i)
      if (levels[i].var == var) positions.push_back(i);
  IPEX_CHECK(positions.size() == order.size(),
             "the loops to permute around `" + outermost.var + "` are not one perfect nest");
  for (size_t i = order.size(); i < levels.size(); ++i) positions.push_back(i);
  permute_levels(levels, positions);
  std::set<std::string> inside;
  for (size_t i = levels.size(); i-- > 0;) {
    inside.insert(levels[i].var);
    for (const Expr& bound : {levels[i].begin, levels[i].end})
      for (const std::string& v : free_vars(bound))
        IPEX_CHECK(inside.count(v) == 0,
                   "the range of `" + levels[i].var + "` needs `" + v + "`, which was moved inside it");
  }
  return join_levels(std::move(levels));
}

//   for i in 0..N { for j in 0..M { body } }
//   =>  for i_fused in 0..N*M { let i = i_fused // M; let j = i_fused % M; body }
For fuse(const For& outermost, const std::vector<std::string>& vars) {
  std::vector<For> levels = perfect_levels(outermost);
  IPEX_CHECK(levels.size() >= vars.size(),
             "the loops to fuse into `" + vars[0] + "` are not one perfect nest");
  For inner = std::move(levels[vars.size() - 1]);
  std::vector<Stmt> body;
  For fused{.var = vars[0] + "_fused", .begin = index_const(0), .end = index_const(1)};
  Expr rest = make_var(fused.var);
  for (size_t i = vars.size(); i-- > 0;) {
    const For& level = i + 1 == vars.size() ? inner : levels[i];
    IPEX_CHECK(level.var == vars[i] && !level.reduction,
               "`" + vars[i] + "` is not a loop that can be fused here");
    const Expr extent = simplify(level.end - level.begin);
    body.push_back(Let{level.var, simplify(level.begin + (i == 0 ? rest : floormod(rest, extent)))});
    rest = floordiv(rest, extent);
    fused.end = fused.end * extent;
  }
  fused.end = simplify(fused.end);
  if (levels.size() > vars.size()) {
    std::vector<For> below(levels.begin() + static_cast<std::ptrdiff_t>(vars.size()), levels.end());
    body.push_back(join_levels(std::move(below)));
  } else {
    body.insert(body.end(), inner.body->stmts.begin(), inner.body->stmts.end());
  }
  fused.body = make_block(std::move(body));
  return fused;
}

}  // namespace

Function apply_schedule(const Function& f, const Schedule& schedule) {
  Function out = f;
  Names names(f);
  const auto rewrite = [&](const std::string& var, const auto& fn) {
    out.body =
        replace_loop(out.body, var, [&](For loop) -> std::vector<Stmt> { return {fn(std::move(loop))}; });
  };
  for (const Ownership& o : schedule.owners)
    rewrite(o.loop, [&](For loop) { return divide(std::move(loop), o); });
  for (const LoopSchedule& s : schedule.loops)
    if (s.tile > 0) rewrite(s.loop, [&](For loop) { return tile(std::move(loop), s.tile, names); });
  for (const auto& order : schedule.order) {
    // The nest starts at its current outermost loop, which is the first member that a walk from the outside
    // finds.
    std::string first;
    const std::set<std::string> members(order.begin(), order.end());
    visit(
        out.body,
        [&](const Stmt& stmt) {
          if (const auto* loop = std::get_if<For>(&stmt);
              loop && first.empty() && members.count(loop->var) > 0)
            first = loop->var;
        },
        [](const ExprNode&) {});
    IPEX_CHECK(!first.empty(), "none of the loops to permute exists");
    rewrite(first, [&](const For& loop) { return permute(loop, order); });
  }
  for (const auto& vars : schedule.fuse) rewrite(vars[0], [&](const For& loop) { return fuse(loop, vars); });
  for (const LoopSchedule& s : schedule.loops) {
    const bool outer = s.tile > 0 && s.kind == ForKind::kParallel;
    rewrite(outer ? s.loop + "_tile" : s.loop, [&](For loop) {
      loop.kind = s.kind;
      loop.grain = s.grain;
      loop.lanes = s.lanes;
      loop.unroll = s.accumulators;
      return loop;
    });
  }
  return out;
}

}  // namespace ipex::loop
