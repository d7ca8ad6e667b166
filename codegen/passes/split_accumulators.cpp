// split_accumulators: multiple accumulators. A reduction whose every step waits for the one before is split
// into several that are independent of each other.
//
//   for r in 0..N reduce(s = 0) {} yield(s + x[r*C])
//     =>  for r in 0..N/4 reduce(s0 = 0, s1 = 0, s2 = 0, s3 = 0) {}
//           yield(s0 + x[r*4*C], s1 + x[(r*4 + 1)*C], s2 + x[(r*4 + 2)*C], s3 + x[(r*4 + 3)*C])
//         let s = (s0 + s1) + (s2 + s3)
//
// An addition has a latency of four cycles, and a core starts two in each cycle. Loops that vectorize writes
// have enough vectors in flight. Loops that it leaves serial, around a few contiguous elements, have only
// one.
//
// This pass does not read the Schedule, whose accumulators belong to vector loops: it handles the loops that
// the Schedule leaves serial.
#include <algorithm>
#include <iterator>

#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int64_t kMinTrips = 16;  // a shorter loop does not make up for the merge

double work_of(const For& loop) {
  double work = 0;
  const auto add = [&](const ExprNode& e) {
    if (e.is(ExprKind::kApply)) work += op_cost(e.op, e.type.dtype);
  };
  visit(loop.body, [](const Stmt&) {}, add);
  for (const Expr& yield : loop.reduction->yield) visit(yield, add);
  return work;
}

// The number of accumulators for a loop; 1 if it stays as it is.
int64_t accumulators_of(const For& loop, const Target& target) {
  if (loop.kind != ForKind::kSerial || !loop.reduction) return 1;
  const auto steps = as_const_int(simplify(loop.end - loop.begin));
  const std::vector<Stmt>& body = loop.body->stmts;
  if (!steps || *steps < kMinTrips || work_of(loop) > target.costs.latency_bound_work ||
      !std::all_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<Let>(s); }))
    return 1;
  return std::max<int64_t>(1, target.accumulators / registers(*loop.reduction, target));
}

class AccumulatorSplitter {
 public:
  AccumulatorSplitter(const For& loop, int64_t accumulators, Names& names)
      : loop_(loop), accumulators_(accumulators), names_(names) {}

  std::vector<Stmt> run() {
    const int64_t steps = *as_const_int(simplify(loop_.end - loop_.begin));
    For main = loop_;
    main.var = names_.fresh(loop_.var);
    main.begin = index_const(0);
    main.end = index_const(steps / accumulators_);
    main.reduction = Reduction{};
    std::vector<Stmt> body;
    std::vector<std::vector<Expr>> results;  // by accumulator, by state
    for (int64_t accumulator = 0; accumulator < accumulators_; ++accumulator)
      results.push_back(add_accumulator(accumulator, main, body));
    main.body = make_block(std::move(body));
    for (size_t distance = 1; distance < results.size(); distance *= 2)
      for (size_t i = 0; i + distance < results.size(); i += 2 * distance)
        results[i] = merged_all(results[i], results[i + distance]);
    std::vector<Stmt> out;
    out.emplace_back(std::move(main));
    if (steps % accumulators_ == 0) {
      for (size_t i = 0; i < results[0].size(); ++i)
        out.emplace_back(Let{loop_.reduction->states[i].name, results[0][i]});
    } else {
      For rest = loop_;
      rest.begin = simplify(loop_.begin + index_const(steps / accumulators_ * accumulators_));
      for (size_t i = 0; i < results[0].size(); ++i) rest.reduction->states[i].init = results[0][i];
      out.emplace_back(std::move(rest));
    }
    return out;
  }

 private:
  std::vector<Expr> merged_all(const std::vector<Expr>& left, const std::vector<Expr>& right) {
    std::vector<Expr> all;
    for (size_t i = 0; i < left.size(); ++i) all.push_back(merged(*loop_.reduction, i, left, right));
    return all;
  }

  // Adds the states of one accumulator to `main`. Returns their names.
  std::vector<Expr> add_accumulator(int64_t accumulator, For& main, std::vector<Stmt>& body) {
    const Expr at =
        simplify(loop_.begin + make_var(main.var) * index_const(accumulators_) + index_const(accumulator));
    const Block copy = fresh_copy(make_block({loop_}), names_);
    const For& one = std::get<For>(copy->stmts[0]);
    const Block step = substitute(one.body, {{one.var, at}});
    body.insert(body.end(), step->stmts.begin(), step->stmts.end());
    std::vector<Expr> names;
    for (size_t i = 0; i < one.reduction->states.size(); ++i) {
      State state = one.reduction->states[i];
      if (accumulator > 0) state.init = state.identity;
      names.push_back(make_var(state.name, state.type));
      main.reduction->states.push_back(std::move(state));
      main.reduction->yield.push_back(substitute(one.reduction->yield[i], {{one.var, at}}));
      main.reduction->merge.push_back(one.reduction->merge[i]);
    }
    return names;
  }

  const For& loop_;
  int64_t accumulators_;
  Names& names_;
};

}  // namespace

Function split_accumulators(const Function& f, const Target& target) {
  Names names(f);
  Function out = f;
  out.body = transform_stmts(f.body, [&](Stmt stmt) -> std::vector<Stmt> {
    const auto* loop = std::get_if<For>(&stmt);
    const int64_t accumulators = loop ? accumulators_of(*loop, target) : 1;
    if (accumulators == 1) return {std::move(stmt)};
    return AccumulatorSplitter(*loop, accumulators, names).run();
  });
  return out;
}

}  // namespace ipex::loop
