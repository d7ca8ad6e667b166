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

constexpr double kAssumedExtent = 256;  // assumed for an extent that depends on a symbol

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

// Elements of 4 bytes decide the number of lanes if there are any; wider elements then take several
// registers. A loop that only moves elements of 2 bytes fills its registers with them if stores can be
// masked, so that a store writes a whole cache line. On Zen 4, transposing 4096 x 4096 of bf16 took 6.4 ms
// before and 2.9 ms after; copying takes 2.0 ms.
int LoopCosts::lanes(int loop) const {
  std::set<int64_t> sizes;
  bool moves = target_.masked_memory;
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

// Independent vectors in flight: enough to hide latency, but limited by the registers and by the length of
// the loop.
int LoopCosts::accumulators(int loop, int width) const {
  const For& node = *tree_.at(loop).node;
  size_t values = 1, states = 0;  // the largest numbers among the loops inside
  bool simple = true, halves = false;
  for_each_below(loop, [&](int l) {
    for (int a : tree_.at(l).accesses) halves |= is_half(tree_.accesses()[a].dtype);
    values = std::max(values, tree_.at(l).accesses.size() + 1);
    if (const auto& r = tree_.at(l).node->reduction) {
      states = std::max(states, r->states.size());
      simple &= simple_merge(l);
    }
  });
  // Columns with reductions inside keep one result per lane, which need no merging. Narrow columns would read
  // only parts of cache lines.
  const bool columns = !node.reduction && states > 0;
  int n = target_.accumulators;
  // Loading, converting and storing half a register of 2-byte elements costs as much as a whole register.
  if (tree_.at(loop).has_math && !columns)
    n = halves ? std::max(2, target_.math_accumulators) : target_.math_accumulators;
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
      continue;  // scratch that is private to a lane is contiguous after widening
    const auto step = LoopTree::stride(access.index, *vector_var);
    const auto constant = step ? as_const_int(*step) : std::nullopt;
    const int64_t distance = constant.value_or(std::numeric_limits<int64_t>::max());
    const double bytes = static_cast<double>(itemsize(access.dtype)) / 4 * (access.is_store ? 2 : 1);
    if (distance == 0 || distance == 1)
      cost += distance == 0 ? target_.costs.uniform_access : bytes;
    else if (distance > 0 && distance <= target_.max_shuffled_stride && !access.is_store)
      cost += 2 * bytes * static_cast<double>(distance);
    else
      cost += target_.costs.strided_access * (!access.is_store ? 1 : constant ? 2 : 8);  // an index from data
  }
  return cost;
}

// How many executions of a reduction share one merge of lanes: the iterations of the outer levels of the same
// reduction.
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
    n = std::ceil(n / fitting_lanes(loop)) *
        lanes(loop);  // a vector costs the same whatever the number of active lanes
    if (tree_.at(loop).node->reduction)
      cost += (simple_merge(loop) ? 1 : target_.costs.tuple_merge_factor) * target_.costs.lane_merge /
              (n * merged_after(loop));
  }
  if (below != loop) return n * cost + target_.costs.loop_entry / fitting_lanes(loop);
  return n * cost + (n > lanes(loop) ? target_.costs.loop_entry : 0);  // a single vector needs no loop
}

LoopCosts::Choice LoopCosts::choose(int loop) const {
  Choice inner{own_cost(loop, nullptr), {}};
  for (int child : tree_.at(loop).children) {
    Choice c = choose(child);
    inner.cost += c.cost;
    inner.vectors.insert(inner.vectors.end(), c.vectors.begin(), c.vectors.end());
  }
  inner.cost = inner.cost * trips(loop) + target_.costs.loop_entry;
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
