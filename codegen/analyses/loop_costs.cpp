// The cost model of loop_costs.h. Costs are in units of one vector operation on all lanes of 32-bit elements.
#include "codegen/analyses/loop_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/schedule.h"

namespace ipex::loop {

namespace {

constexpr double kAssumedExtent = 256;  // of a symbol
constexpr double kStridedCost = 8;  // a lane of a gather or scatter, against a lane of a contiguous access
constexpr double kUniformCost = 0.25;
constexpr double kLoopCost = 64;         // entering a loop, in lanes
constexpr double kLaneMergeCost = 240;   // bringing a vector of partial results to one
constexpr double kTupleMergeFactor = 6;  // times that, where it takes more than one instruction

}  // namespace

double LoopCosts::trips(int loop) const {
  if (const auto extent = tree_.extent(loop)) return static_cast<double>(*extent);
  const Expr& extent = tree_.at(loop).extent;
  if (!extent) return kAssumedExtent;
  std::map<std::string, Expr> assumed;
  for (const std::string& name : free_vars(extent))
    assumed[name] = index_const(static_cast<int64_t>(kAssumedExtent));
  const auto value = as_const_int(simplify(substitute(extent, assumed)));
  return value ? static_cast<double>(std::max<int64_t>(*value, 1)) : kAssumedExtent;
}

// ---- lanes ----

// 32-bit arithmetic sets the pace where there is any; wider values then take several registers each. Halves
// that are moved, not computed with, fill vectors too, where those can be masked: a line of 64 bytes a store.
// Zen 4, 4096 x 4096 of bf16 transposed 6.4 -> 2.9 ms, copied 2.0.
int LoopCosts::lanes(int loop) const {
  std::set<int64_t> sizes;
  bool moves = target_.isa != Isa::kAvx2;
  const auto add = [&](Dtype d) { sizes.insert(itemsize(opmath(d))); };
  for_each_below(loop, [&](int l) {
    const LoopTree::Loop& at = tree_.at(l);
    moves &= at.work == 0 && !at.node->reduction;
    for (int a : at.accesses) {
      add(tree_.accesses()[a].dtype);
      moves &= itemsize(tree_.accesses()[a].dtype) == 2;
    }
    if (at.node->reduction)
      for (const State& s : at.node->reduction->states) add(s.type.dtype);
  });
  if (moves && !sizes.empty()) return target_.vector_bytes / 2;
  const int64_t widest = sizes.empty() ? 8 : *sizes.rbegin();
  return target_.vector_bytes / static_cast<int>(sizes.count(4) > 0 ? 4 : widest);
}

bool LoopCosts::has_gather(int loop, const std::string& var) const {
  bool found = false;
  for_each_below(loop, [&](int l) {
    for (int a : tree_.at(l).accesses) {
      const auto step = LoopTree::stride(tree_.accesses()[a].index, var);
      const auto c = step ? as_const_int(*step) : std::nullopt;
      found |= !c || (*c != 0 && *c != 1);
    }
  });
  return found;
}

bool LoopCosts::simple_merge(int loop) const {
  const Reduction& r = *tree_.at(loop).node->reduction;
  return r.states.size() == 1 && r.merge[0]->is(ExprKind::kApply) && r.merge[0]->args.size() == 2;
}

// Vectors in flight: enough to hide latency, as far as registers and the loop's length go.
int LoopCosts::accumulators(int loop, int width) const {
  const For& node = *tree_.at(loop).node;
  size_t values = 1, states = 0;  // at once: of the largest of the loops in it
  bool simple = true, halves = false;
  for_each_below(loop, [&](int l) {
    for (int a : tree_.at(l).accesses) halves |= is_half(tree_.accesses()[a].dtype);
    values = std::max(values, tree_.at(l).accesses.size() + 1);
    if (const auto& r = tree_.at(l).node->reduction) {
      states = std::max(states, r->states.size());
      simple &= simple_merge(l);
    }
  });
  // Columns with reductions inside: lanes are not merged, and narrow ones read pieces of cache lines.
  const bool columns = !node.reduction && states > 0;
  int n = 4;
  // A half vector of halves is loaded, converted and stored as dearly as a whole one.
  if (tree_.at(loop).has_math && !columns) n = target_.vector_registers >= 32 || halves ? 2 : 1;
  if (!simple && !columns) n = std::min(n, 2);
  if (has_gather(loop, node.var)) n = 1;
  while (n > 1 && n * (values + states) > static_cast<size_t>(target_.vector_registers)) n /= 2;
  if (const auto extent = tree_.extent(loop)) {
    const auto padded = [&](int unroll) {
      return (*extent + width * unroll - 1) / (width * unroll) * unroll;
    };
    while (n > 1 && padded(n) * 8 > padded(1) * 9) n /= 2;
  }
  return n;
}

int LoopCosts::fitting_lanes(int loop) const {
  int width = lanes(loop);
  if (const auto extent = tree_.extent(loop))
    while (width > 2 && width / 2 >= *extent) width /= 2;
  return width;
}

// ---- cost ----

double LoopCosts::own_cost(int loop, const std::string* vector_var) const {
  const LoopTree::Loop& l = tree_.at(loop);
  if (!vector_var) {
    const double scalar = static_cast<double>(lanes(loop));
    return scalar * (l.work + static_cast<double>(l.accesses.size()));
  }
  double cost = l.work;
  for (int a : l.accesses) {
    const LoopTree::Access& access = tree_.accesses()[a];
    if (access.owner >= 0 && tree_.at(access.owner).node->var == *vector_var)
      continue;  // widened scratch: contiguous
    const auto step = LoopTree::stride(access.index, *vector_var);
    const auto constant = step ? as_const_int(*step) : std::nullopt;
    const int64_t distance = constant.value_or(std::numeric_limits<int64_t>::max());
    const double bytes = static_cast<double>(itemsize(access.dtype)) / 4 * (access.is_store ? 2 : 1);
    if (distance == 0 || distance == 1)
      cost += distance == 0 ? kUniformCost : bytes;
    else if (distance > 0 && distance <= kMaxShuffledStride && !access.is_store)
      cost += 2 * bytes * static_cast<double>(distance);
    else
      cost += kStridedCost * (!access.is_store ? 1 : constant ? 2 : 8);  // places from data
  }
  return cost;
}

// Executions of a reduction that its lanes are merged after: those of the reductions it is the inside of.
double LoopCosts::merged_after(int loop) const {
  double n = 1;
  for (int outer = tree_.at(loop).parent; outer >= 0; loop = outer, outer = tree_.at(outer).parent) {
    if (!tree_.at(outer).node->reduction || !passes_through(*tree_.at(outer).node, *tree_.at(loop).node))
      break;
    n *= trips(outer);
  }
  return n;
}

double LoopCosts::vector_cost(int loop, const std::string& var, int below) const {
  double cost = own_cost(below, &var);
  for (int child : tree_.at(below).children) cost += vector_cost(loop, var, child);
  double n = trips(below);
  if (below == loop) {
    n = std::ceil(n / fitting_lanes(loop)) * lanes(loop);  // a vector costs the same however few lanes it has
    if (tree_.at(loop).node->reduction)
      cost += (simple_merge(loop) ? 1 : kTupleMergeFactor) * kLaneMergeCost / (n * merged_after(loop));
  }
  if (below != loop) return n * cost + kLoopCost / fitting_lanes(loop);
  return n * cost + (n > lanes(loop) ? kLoopCost : 0);  // one vector is no loop
}

LoopCosts::Choice LoopCosts::choose(int loop) const {
  Choice inner{own_cost(loop, nullptr), {}};
  for (int child : tree_.at(loop).children) {
    Choice c = choose(child);
    inner.cost += c.cost;
    inner.vectors.insert(inner.vectors.end(), c.vectors.begin(), c.vectors.end());
  }
  inner.cost = inner.cost * trips(loop) + kLoopCost;
  if (!vectorizable(loop)) return inner;
  const double cost = vector_cost(loop, tree_.at(loop).node->var, loop);
  return cost < inner.cost ? Choice{cost, {loop}} : inner;
}

bool LoopCosts::vectorizable(int loop) const { return tree_.reorderable(loop) && !has_vector_values(loop); }

bool LoopCosts::has_vector_values(int loop) const {
  bool found = false;
  visit(
      tree_.at(loop).node->body, [](const Stmt&) {}, [&](const ExprNode& e) { found |= e.type.is_vector(); });
  return found;
}

double LoopCosts::work(int loop) const {
  double w = tree_.at(loop).work + static_cast<double>(tree_.at(loop).accesses.size());
  for (int child : tree_.at(loop).children) w += work(child);
  return w * trips(loop);
}

bool LoopCosts::is_static(int loop) const {
  bool all = true;
  for_each_below(loop, [&](int l) { all &= tree_.extent(l).has_value(); });
  return all;
}

}  // namespace ipex::loop
