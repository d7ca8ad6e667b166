// See axes.h.
#include "backend/lower/axes.h"

#include <algorithm>
#include <set>

namespace ipex::graph {

using loop::as_const_int;
using loop::index_const;

Axes::Axes(const Graph& body) {
  for (const Node& node : body.nodes) {
    std::vector<std::vector<int>> results;
    for (const Type& type : node.types) results.push_back(fresh_all(type.shape));
    dims_.push_back(std::move(results));
    visit(body, node, dims_.back()[0]);
    for (size_t r = 1; r < dims_.back().size(); ++r) unify_all(dims_.back()[0], dims_.back()[r]);
  }
}

std::vector<Axis> Axes::of(Value v, int dim) const {
  std::vector<Axis> out;
  for (int axis : leaves(dims_[v.node][v.result][dim]))
    if (!is_one(entries_[axis].extent)) out.push_back(axis);
  return out;
}

std::vector<Axis> Axes::of(Value v) const {
  std::vector<Axis> out;
  for (size_t d = 0; d < dims_[v.node][v.result].size(); ++d) {
    std::vector<Axis> part = of(v, static_cast<int>(d));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

bool Axes::distinct(std::vector<Axis> axes) {
  std::sort(axes.begin(), axes.end());
  return std::adjacent_find(axes.begin(), axes.end()) == axes.end();
}

int Axes::fresh(const Dim& extent) {
  entries_.push_back({extent});
  return static_cast<int>(entries_.size()) - 1;
}

std::vector<int> Axes::fresh_all(const Shape& shape) {
  std::vector<int> out;
  for (const Dim& dim : shape) out.push_back(fresh(dim));
  return out;
}

int Axes::find(int axis) const {
  while (entries_[axis].same_as >= 0) axis = entries_[axis].same_as;
  return axis;
}

std::vector<int> Axes::leaves(int axis) const {
  axis = find(axis);
  if (entries_[axis].factors.empty()) return {axis};
  std::vector<int> out;
  for (int factor : entries_[axis].factors) {
    std::vector<int> part = leaves(factor);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// An axis must not be a factor of itself: to find its leaves would then never end.
bool Axes::contains(int axis, int part) const {
  const std::vector<int> of_axis = leaves(axis), of_part = leaves(part);
  return std::any_of(of_part.begin(), of_part.end(), [&](int leaf) {
    return std::find(of_axis.begin(), of_axis.end(), leaf) != of_axis.end();
  });
}

void Axes::unify(int a, int b) {
  a = find(a);
  b = find(b);
  if (a == b || !same_extent(entries_[a].extent, entries_[b].extent)) return;
  const bool a_leaf = entries_[a].factors.empty(), b_leaf = entries_[b].factors.empty();
  if (!a_leaf && !b_leaf) {
    const std::vector<int> la = leaves(a), lb = leaves(b);
    if (la != lb) refine(la, lb);
  } else if (!contains(a, b) && !contains(b, a)) {
    entries_[a_leaf ? a : b].same_as = a_leaf ? b : a;
  }
}

void Axes::unify_all(const std::vector<int>& a, const std::vector<int>& b) {
  for (size_t d = 0; d < std::min(a.size(), b.size()); ++d) unify(a[d], b[d]);
}

void Axes::refine(const std::vector<int>& a, const std::vector<int>& b) {
  auto expand = [&](const std::vector<int>& axes) {
    std::vector<int> out;
    for (int axis : axes)
      for (int leaf : leaves(axis)) out.push_back(leaf);
    return out;
  };
  const std::vector<int> la = expand(a), lb = expand(b);
  Shape sa, sb;
  for (int axis : la) sa.push_back(entries_[axis].extent);
  for (int axis : lb) sb.push_back(entries_[axis].extent);
  auto split = [&](int axis, const std::vector<int>& factors) {
    axis = find(axis);
    if (!entries_[axis].factors.empty()) return;  // an earlier run has split it
    for (int factor : factors)
      if (contains(axis, factor)) return;
    entries_[axis].factors = factors;
  };
  for (const FactorRun& run : match_factors(sa, sb)) {
    if (run.a.size() == 1 && run.b.size() == 1) {
      unify(la[run.a[0]], lb[run.b[0]]);
    } else if (run.a.size() == 1 || run.b.size() == 1) {
      std::vector<int> factors;
      const bool a_splits = run.a.size() == 1;
      for (int d : a_splits ? run.b : run.a) factors.push_back((a_splits ? lb : la)[d]);
      split(a_splits ? la[run.a[0]] : lb[run.b[0]], factors);
    } else {
      // Cut both sides where one of them has a boundary. This is possible if each stride divides the next
      // one.
      std::set<int64_t> cuts;
      auto collect = [&](const Shape& shape, const std::vector<int>& dims) {
        int64_t stride = 1;
        for (size_t k = dims.size(); k-- > 0;) {
          auto extent = as_const_int(shape[dims[k]]);
          if (!extent || *extent == 0) return false;
          cuts.insert(stride *= *extent);
        }
        return true;
      };
      if (!collect(sa, run.a) || !collect(sb, run.b)) continue;
      bool divides = true;
      std::vector<int64_t> sizes;
      int64_t previous = 1;
      for (int64_t cut : cuts) {
        divides = divides && cut % previous == 0;
        sizes.push_back(cut / previous);
        previous = cut;
      }
      if (!divides) continue;
      std::vector<int> common;  // minor first
      for (int64_t size : sizes) common.push_back(fresh(index_const(size)));
      auto cut_up = [&](const std::vector<int>& axes, const Shape& shape, const std::vector<int>& dims) {
        size_t next = 0;
        for (size_t k = dims.size(); k-- > 0;) {
          std::vector<int> factors;
          for (int64_t left = *as_const_int(shape[dims[k]]); left > 1; left /= sizes[next++])
            factors.insert(factors.begin(), common[next]);
          if (factors.size() == 1) unify(axes[dims[k]], factors[0]);
          if (factors.size() > 1) split(axes[dims[k]], factors);
        }
      };
      cut_up(la, sa, run.a);
      cut_up(lb, sb, run.b);
    }
  }
}

void Axes::visit(const Graph& body, const Node& node, std::vector<int>& result) {
  auto operand = [&](size_t i) -> std::vector<int>& { return dims(node.operands[i]); };
  auto operand_shape = [&](size_t i) -> const Shape& { return body.type(node.operands[i]).shape; };
  switch (node.op()) {
    case Op::kPointwise:
    case Op::kScan:
    case Op::kReorder:
      for (size_t i = 0; i < node.operands.size(); ++i) unify_all(operand(i), result);
      break;
    case Op::kReduce: {
      const auto& [fn, axes, keep, correction] = node.get<Reduce>();
      size_t to = 0;
      for (size_t d = 0; d < operand(0).size(); ++d) {
        const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
        if (!reduced) unify(operand(0)[d], result[to]);
        to += !reduced || keep;
      }
      break;
    }
    case Op::kPermute: {
      const Ints& order = node.get<Permute>().dims;
      for (size_t d = 0; d < order.size(); ++d) unify(operand(0)[order[d]], result[d]);
      break;
    }
    case Op::kExpand: {
      const Ints& to = node.get<Expand>().dims;
      for (size_t d = 0; d < to.size(); ++d) unify(operand(0)[d], result[to[d]]);
      break;
    }
    case Op::kReshape: {
      auto real = [&](const std::vector<int>& axes, const Shape& shape) {
        std::vector<int> out;
        for (size_t d = 0; d < axes.size(); ++d)
          if (!is_one(shape[d])) out.push_back(axes[d]);
        return out;
      };
      refine(real(operand(0), operand_shape(0)), real(result, node.types[0].shape));
      break;
    }
    case Op::kSlice: {
      const auto& [starts, steps] = node.get<Slice>();
      for (size_t d = 0; d < result.size(); ++d)
        if (as_const_int(starts[d]) == 0 && steps[d] == 1) unify(operand(0)[d], result[d]);
      break;
    }
    case Op::kPad: {
      const Ints& low = node.get<Pad>().low;
      for (size_t d = 0; d < result.size(); ++d)
        if (low[d] == 0) unify(operand(0)[d], result[d]);
      break;
    }
    case Op::kCat:
      for (size_t i = 0; i < node.operands.size(); ++i)
        for (size_t d = 0; d < result.size(); ++d)
          if (static_cast<int64_t>(d) != node.get<Cat>().axis) unify(operand(i)[d], result[d]);
      break;
    case Op::kGather: {
      const Ints& map = node.get<Gather>().map;
      for (size_t d = 0; d < map.size(); ++d)
        if (map[d] >= 0) unify(operand(0)[d], result[map[d]]);
      for (size_t i = 1; i < node.operands.size(); ++i) unify_all(operand(i), result);
      break;
    }
    case Op::kScatter: {
      const Ints& map = node.get<Scatter>().map;
      unify_all(operand(0), result);
      std::vector<int>& src = operand(node.operands.size() - 1);
      for (size_t d = 0; d < map.size(); ++d)
        if (map[d] >= 0) unify(result[d], src[map[d]]);
      for (size_t i = 1; i + 1 < node.operands.size(); ++i) unify_all(operand(i), src);
      break;
    }
    case Op::kSegment:
      for (size_t d = 1; d < result.size(); ++d) unify(operand(0)[d], result[d]);
      for (size_t i : {1, 2}) unify(operand(i)[0], result[0]);
      break;
    case Op::kPool:
      for (size_t k = 0; k < node.operands.size(); ++k)
        for (size_t d = 0; d + node.get<Pool>().kernel.size() < result.size(); ++d)
          unify(operand(k)[d], result[d]);
      break;
    default:
      break;
  }
}

}  // namespace ipex::graph
