// Moves a gather of few elements before the cheap operations that compute its source. A classifier's loss
// reads one log-softmax value of each row; without this pass the log-softmax of all elements would be
// computed and stored.
#include <algorithm>
#include <map>
#include <set>

#include "backend/graph/rewriter.h"
#include "backend/passes/grouping.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

constexpr int64_t kFew = 4;     // the source has at least this many elements per gathered one
constexpr int kMaxNodes = 8;    // nodes between the gather and data in memory
constexpr int kMaxGathers = 2;  // gathers that replace one

class GatherMover : GraphRewriter {
 public:
  explicit GatherMover(Graph graph) : GraphRewriter(std::move(graph)) {}

  Graph run() {
    const auto is_gather = [](const Node& node) { return node.op() == Op::kGather; };
    if (std::none_of(old_.nodes.begin(), old_.nodes.end(), is_gather)) return std::move(old_);
    for (const GraphOutput& output : old_.outputs) stored_.insert(output.value);
    for (const InputMutation& mutation : old_.mutations) stored_.insert(mutation.value);
    bool any = false;
    Graph better = rebuild([&](int32_t n) {
      const Node& node = old_.nodes[n];
      if (!is_gather(node) || !moves(node)) return keep(n);
      moved_.clear();
      replace(n, moved(node.operands[0], node));
      any = true;
    });
    return any ? canonicalize(std::move(better)) : std::move(old_);
  }

 private:
  bool moves(const Node& gather) const {
    const Value source = gather.operands[0];
    if (old_.node(source).op() != Op::kPointwise || stored_.contains(source)) return false;
    const int64_t computed = hint(numel(old_.type(source).shape), old_),
                  wanted = hint(numel(gather.types[0].shape), old_);
    if (wanted * kFew > computed) return false;
    int nodes = 0, gathers = 0;
    return reaches_memory(source, gather, nodes, gathers) &&
           gathers > 0;  // at least one gather must check the positions
  }

  // Whether `v` is computed by cheap operations from data that is stored anyway or does not depend on the
  // gathered position.
  bool reaches_memory(Value v, const Node& gather, int& nodes, int& gathers) const {
    const Node& node = old_.node(v);
    if (node.op() == Op::kInput || is_step(node.op())) return ++gathers <= kMaxGathers;
    if (++nodes > kMaxNodes) return false;
    if (node.op() == Op::kExpand) return is_one_along(node, gather);
    return is_cheap(node) && std::all_of(node.operands.begin(), node.operands.end(), [&](Value operand) {
             return reaches_memory(operand, gather, nodes, gathers);
           });
  }

  static bool is_step(Op op) { return !is_fusible(op) && op != Op::kConstant; }

  // Whether the expand repeats its operand along every dim that the gather indexes, and the gather takes all
  // other dims whole.
  bool is_one_along(const Node& expand, const Node& gather) const {
    const Ints &map = gather.get<Gather>().map, &dims = expand.get<Expand>().dims;
    const Shape &from = old_.type(expand.operands[0]).shape, &to = gather.types[0].shape;
    if (map.size() != to.size()) return false;
    for (size_t k = 0; k < dims.size(); ++k) {
      const int64_t d = dims[k];
      if (loop::as_const_int(from[k]) == 1) continue;
      if (map[d] != d || !loop::provably_equal(from[k], to[d])) return false;
    }
    return true;
  }

  // The value in the new graph of `v` at the gather's positions.
  Value moved(Value v, const Node& gather) {
    if (auto it = moved_.find(v); it != moved_.end()) return it->second;
    Node node = old_.node(v);
    const Dtype dtype = old_.type(v).dtype;
    if (node.op() == Op::kExpand) {
      node.operands[0] = mapped(node.operands[0]);
    } else if (node.op() == Op::kPointwise) {
      for (Value& operand : node.operands) operand = moved(operand, gather);
    } else {
      node = gather;
      node.operands[0] = v;
      for (Value& operand : node.operands) operand = mapped(operand);
    }
    node.layouts.clear();
    node.types = {{dtype, gather.types[0].shape}};
    return moved_[v] = add(std::move(node));
  }

  std::set<Value> stored_;
  std::map<Value, Value> moved_;  // for the current gather
};

}  // namespace

Graph gather_early(Graph graph) { return GatherMover(std::move(graph)).run(); }

}  // namespace ipex::graph
