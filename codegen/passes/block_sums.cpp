// block_sums: blocked summation. A long sum becomes a sum of the sums of blocks.
//
//   for r in 0..N reduce(s = 0) {} yield(s + x[r])
//     =>  for g in 0..N/128 reduce(s = 0) {
//           for r in g*128..g*128 + 128 reduce(p = 0) {} yield(p + x[r])
//         } yield(s + p)
//
// Each addition rounds to the precision of the running sum. If the terms are similar, so are the rounding
// errors, and they add up: 2,048 additions of one number have an error of 9e-6, 16 sums of 128 an error of
// 1e-6. If the loop over blocks is itself long, it is blocked again, so that the error bound grows with the
// logarithm of N (Higham, The accuracy of floating point summation, 1993; ATen's sums do the same). A sum
// whose length is known only at run time is blocked once: most are short, and a second loop around rows of 64
// costs a fifth of the time.
//
// This pass does not read the Schedule, because it is about accuracy, not speed: it applies to every long
// sum, including loops that vectorize creates.
#include <algorithm>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/bounds.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int64_t kBlockLength = 128;  // blocks of 256 are not faster

bool adds(const Expr& e) {
  bool found = false;
  visit(e, [&](const ExprNode& node) {
    found |= node.is(ExprKind::kApply) && node.op == ScalarOp::add_ && is_float(node.type.dtype);
  });
  return found;
}

// Whether only the next step uses the running sum.
bool only_sums(const For& loop) {
  std::set<std::string> running;
  for (const State& state : loop.reduction->states) running.insert(state.name);
  for (const Stmt& stmt : loop.body->stmts) {
    bool sees = false;
    visit(make_block({stmt}), nullptr,
          [&](const ExprNode& e) { sees |= e.is(ExprKind::kVar) && running.contains(e.name); });
    if (!sees) continue;
    const auto* let = std::get_if<Let>(&stmt);
    if (!let) return false;
    running.insert(let->name);
  }
  return true;
}

// The loop over blocks, with the names of the states of `loop`.
For blocked(const For& loop, Names& names) {
  const Expr steps = simplify(loop.end - loop.begin), length = index_const(kBlockLength);
  For outer = loop, block = loop;
  outer.var = names.fresh(loop.var + "_group");
  outer.begin = index_const(0);
  outer.end = simplify(ceildiv(steps, length));
  block.begin = simplify(loop.begin + make_var(outer.var) * length);
  block.end = simplify(block.begin + length);
  if (const auto known = as_const_int(steps); !known || *known % kBlockLength != 0)
    block.end = make_apply(ScalarOp::min_, {block.end, loop.end});
  std::vector<State> partial = loop.reduction->states;
  std::vector<Expr> own, of_block;
  for (State& state : partial) {
    own.push_back(make_var(state.name, state.type));
    state.name = names.fresh(state.name + "_group");
    state.init = state.identity;
    of_block.push_back(make_var(state.name, state.type));
  }
  rename_states(block, partial);
  for (size_t i = 0; i < own.size(); ++i)
    outer.reduction->yield[i] = merged(*loop.reduction, i, own, of_block);
  outer.body = make_block({std::move(block)});
  return outer;
}

class SumBlocker {
 public:
  SumBlocker(const Function& f, const Target& target) : f_(f), target_(target), names_(f) {
    for (const auto& [name, range] : symbol_ranges(f.symbols, f.symbol_lows))
      bounds_.set_range(name, range.low, range.high);
    const auto bind = [&](const Stmt& stmt) {
      if (const auto* loop = std::get_if<For>(&stmt))
        bounds_.set_range(loop->var, loop->begin, loop->end);
      else if (const auto* let = std::get_if<Let>(&stmt); let && is_data(let->value))
        data_.insert(let->name);
      else if (let && let->value->type == kIndex)
        bounds_.set_interval(let->name, bounds_.interval(let->value));
    };
    visit(f.body, bind, nullptr);
  }

  Function run() {
    Function out = f_;
    out.body = transform_stmts(f_.body, [&](Stmt stmt) -> std::vector<Stmt> {
      if (auto* loop = std::get_if<For>(&stmt); loop && should_block(*loop)) {
        int64_t trips = max_trips(loop->begin, loop->end);
        for (; trips >= 2 * kBlockLength;
             trips = trips == Interval::kHigh ? 0 : divided_up(trips, kBlockLength))
          *loop = blocked(*loop, names_);
      }
      return {std::move(stmt)};
    });
    return out;
  }

 private:
  // The tile of a matrix product fills the registers and leaves no room for a second set of sums. A sum whose
  // length comes from the elements of a tensor, like the bag of an embedding, is short, and a loop over
  // blocks would be noticeable (20,000 bags of three rows of 32 took 1.6 times as long).
  bool should_block(const For& loop) const {
    if (loop.kind != ForKind::kSerial || !loop.reduction) return false;
    const std::vector<Expr>& merges = loop.reduction->merge;
    return std::ranges::any_of(merges, adds) && !is_data(loop.begin) && !is_data(loop.end) &&
           2 * registers(*loop.reduction, target_) <= target_.vector_registers && only_sums(loop);
  }

  // An upper bound of the number of steps; kHigh if it is known only at run time.
  int64_t max_trips(const Expr& begin, const Expr& end) const {
    const auto is = [](const Expr& e, ScalarOp op) { return e->is(ExprKind::kApply) && e->op == op; };
    if (is(end, ScalarOp::min_))
      return std::min(max_trips(begin, end->args[0]), max_trips(begin, end->args[1]));
    if (is(begin, ScalarOp::max_))
      return std::min(max_trips(begin->args[0], end), max_trips(begin->args[1], end));
    return bounds_.interval(simplify(end - begin)).high;
  }

  bool is_data(const Expr& e) const {
    bool found = false;
    visit(e, [&](const ExprNode& node) {
      found |= node.is(ExprKind::kLoad) || node.is(ExprKind::kReduceLanes) ||
               (node.is(ExprKind::kVar) && data_.contains(node.name));
    });
    return found;
  }

  const Function& f_;
  const Target& target_;
  Names names_;
  Bounds bounds_;
  std::set<std::string> data_;  // lets that depend on elements of tensors
};

}  // namespace

Function block_sums(const Function& f, const Target& target) { return SumBlocker(f, target).run(); }

}  // namespace ipex::loop
