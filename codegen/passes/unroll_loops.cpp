// unroll_loops: fully unrolls short reductions, such as a window of a pooling.
//
//   for r in 0..3 reduce(s = 0) {} yield(s + x[i + r])   =>   let s1 = 0 + x[i]; let s2 = s1 + x[i + 1];
//                                                             let s = s2 + x[i + 2]
//
// One step of a window is a load and an operation, and counting the step costs as much again. Innermost loops
// are unrolled first, so that a window of three by three becomes nine loads.
#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/lower_expressions.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int64_t kMaxTrips = 5;
constexpr int64_t kMaxNodes = 600;  // of all iterations together

class Unroller {
 public:
  explicit Unroller(const Function& f) : f_(f), names_(f) {}

  Function run() {
    Function out = f_;
    out.body = transform_stmts(f_.body, [&](Stmt stmt) -> std::vector<Stmt> {
      const auto* loop = std::get_if<For>(&stmt);
      if (!loop || !is_small(*loop)) return {std::move(stmt)};
      changed_ = true;
      return unrolled(*loop);
    });
    return changed_ ? simplify(out) : f_;
  }

 private:
  static bool is_small(const For& loop) {
    const auto begin = as_const_int(loop.begin), end = as_const_int(loop.end);
    if (loop.kind != ForKind::kSerial || !loop.reduction || !begin || !end || *end <= *begin ||
        *end - *begin > kMaxTrips)
      return false;
    for (const Stmt& stmt : loop.body->stmts)
      if (!std::holds_alternative<Let>(stmt)) return false;
    return node_count(make_block({loop})) * (*end - *begin) <= kMaxNodes;
  }

  std::vector<Stmt> unrolled(const For& loop) {
    const std::vector<State>& states = loop.reduction->states;
    Binder binder(names_);
    std::vector<Expr> values;
    for (const State& s : states) values.push_back(binder.bind(s.name, s.init));
    std::vector<Stmt> out = binder.take();
    const int64_t begin = *as_const_int(loop.begin), end = *as_const_int(loop.end);
    for (int64_t at = begin; at < end; ++at) {
      const Block copy = fresh_copy(make_block({loop}), names_);
      const For& step = std::get<For>(copy->stmts[0]);
      Substitution here{{step.var, index_const(at)}};
      for (size_t i = 0; i < values.size(); ++i) here[step.reduction->states[i].name] = values[i];
      const Block body = substitute(step.body, here);
      out.insert(out.end(), body->stmts.begin(), body->stmts.end());
      for (size_t i = 0; i < values.size(); ++i) {
        const Expr next = substitute(step.reduction->yield[i], here);
        if (at + 1 < end)
          values[i] = binder.bind(states[i].name, next);
        else
          out.push_back(Let{states[i].name, next});
      }
      const std::vector<Stmt> lets = binder.take();
      out.insert(out.end(), lets.begin(), lets.end());
    }
    return out;
  }

  const Function& f_;
  Names names_;
  bool changed_ = false;
};

}  // namespace

Function unroll_loops(const Function& f) { return Unroller(f).run(); }

}  // namespace ipex::loop
