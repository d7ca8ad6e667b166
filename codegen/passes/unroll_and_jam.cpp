// unroll_and_jam: unroll-and-jam of scans. A scan processes several rows at once.
//
//   for parallel i in 0..R { for j in 0..N reduce(s = 0) { let t = s + x[i*N + j]; y[..] = t } yield(t) }
//     =>  for parallel i in 0..R/4 {
//           for j in 0..N reduce(s = 0, s1 = 0, s2 = 0, s3 = 0) {
//             let t = s + x[i*4*N + j]; y[..] = t; let t1 = s1 + x[(i*4 + 1)*N + j]; ..
//           } yield(t, t1, t2, t3)
//         }
//
// Each element of a scan waits for the one before it, for the latency of an operation. A core can start
// several operations in that time. Each row is still summed from its first element on, so results do not
// change.
//
// This pass does not read the Schedule, which cannot say that a parallel loop is unrolled into a serial one.
#include <algorithm>
#include <iterator>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int64_t kMinIterationsPerThread = 4;  // for load balance

// The scan that a loop over rows consists of, possibly after lets; null for any other loop.
const For* scan_of(const For& rows) {
  if (rows.kind != ForKind::kParallel || rows.reduction || rows.body->stmts.empty()) return nullptr;
  const std::vector<Stmt>& stmts = rows.body->stmts;
  const auto* scan = std::get_if<For>(&stmts.back());
  if (!scan || !scan->reduction || scan->kind != ForKind::kSerial) return nullptr;
  const auto is_let = [](const Stmt& stmt) { return std::holds_alternative<Let>(stmt); };
  const auto is_store = [](const Stmt& stmt) { return std::holds_alternative<Store>(stmt); };
  if (!std::all_of(stmts.begin(), std::prev(stmts.end()), is_let)) return nullptr;
  const std::vector<Stmt>& steps = scan->body->stmts;
  if (std::none_of(steps.begin(), steps.end(), is_store) ||
      !std::all_of(steps.begin(), steps.end(), [&](const Stmt& s) { return is_let(s) || is_store(s); }))
    return nullptr;
  const auto is_scalar = [](const State& state) { return state.type.lanes == 1; };
  if (!std::all_of(scan->reduction->states.begin(), scan->reduction->states.end(), is_scalar)) return nullptr;
  // All rows must have the same length.
  std::set<std::string> varying = {rows.var};
  for (const Stmt& stmt : stmts)
    if (const auto* let = std::get_if<Let>(&stmt)) varying.insert(let->name);
  for (const Expr& bound : {scan->begin, scan->end})
    for (const std::string& name : free_vars(bound))
      if (varying.contains(name)) return nullptr;
  return scan;
}

// Four or two; one if there are too few rows, or if their number is not a multiple of it.
int64_t unroll_factor(const For& rows, const For& scan, const Target& target) {
  const auto count = as_const_int(simplify(rows.end - rows.begin));
  for (const int64_t factor : {4, 2}) {
    if (!count || *count % factor != 0 || factor * std::ssize(scan.reduction->states) > target.scan_states)
      continue;
    const int64_t iterations = *count / factor;
    if (iterations >= kMinIterationsPerThread * target.threads || iterations % target.threads == 0)
      return factor;
  }
  return 1;
}

For jam_rows(const For& rows, int64_t factor, Names& names) {
  For out = rows;
  out.begin = index_const(0);
  out.end = simplify(floordiv(rows.end - rows.begin, index_const(factor)));
  out.grain = std::max<int64_t>(1, rows.grain / factor);
  std::vector<Stmt> lets, steps;
  For scan;
  for (int64_t row = 0; row < factor; ++row) {
    const Expr at = simplify(rows.begin + make_var(rows.var) * index_const(factor) + index_const(row));
    Block body = substitute(rows.body, {{rows.var, at}});
    if (row > 0) body = fresh_copy(body, names);
    lets.insert(lets.end(), body->stmts.begin(), std::prev(body->stmts.end()));
    const For& one = std::get<For>(body->stmts.back());
    if (row == 0) {
      scan = one;
      steps = one.body->stmts;
      continue;
    }
    const Substitution place = {{one.var, make_var(scan.var)}};
    const Block step = substitute(one.body, place);
    steps.insert(steps.end(), step->stmts.begin(), step->stmts.end());
    Reduction& all = *scan.reduction;
    for (size_t i = 0; i < one.reduction->states.size(); ++i) {
      all.states.push_back(one.reduction->states[i]);
      all.yield.push_back(substitute(one.reduction->yield[i], place));
      all.merge.push_back(one.reduction->merge[i]);
    }
  }
  scan.body = make_block(std::move(steps));
  lets.emplace_back(std::move(scan));
  out.body = make_block(std::move(lets));
  return out;
}

}  // namespace

Function unroll_and_jam(const Function& f, const Target& target) {
  Names names(f);
  Function out = f;
  out.body = transform_stmts(f.body, [&](Stmt stmt) -> std::vector<Stmt> {
    const auto* rows = std::get_if<For>(&stmt);
    const For* scan = rows ? scan_of(*rows) : nullptr;
    const int64_t factor = scan ? unroll_factor(*rows, *scan, target) : 1;
    if (factor > 1) stmt = jam_rows(*rows, factor, names);
    return {std::move(stmt)};
  });
  return out;
}

}  // namespace ipex::loop
