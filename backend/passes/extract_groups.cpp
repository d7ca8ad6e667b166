// The second half of form_groups: builds the graph of groups from the assignment of nodes to kernels.
//
// Kernels and steps keep the model's order where dependences allow, because that order has the shortest live
// ranges. (Emitting backwards from the outputs would run the whole chain of a backward pass before its first
// weight gradient, and keep every intermediate gradient alive.)
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "backend/graph/rewriter.h"
#include "backend/passes/grouping.h"

namespace ipex::graph {
namespace {

class Extractor : GraphRewriter {
 public:
  Extractor(Graph graph, const Partition& partition)
      : GraphRewriter(std::move(graph)), partition_(partition) {}

  Graph run() {
    for (int32_t input : old_.inputs) keep(input);
    index_readers();
    make_items();
    emit_in_order();
    for (const GraphOutput& output : old_.outputs) outside(output.value);
    for (const InputMutation& m : old_.mutations) outside(m.value);
    return finish();
  }

 private:
  struct Item {  // a kernel or a step
    std::vector<int32_t> nodes;
    int32_t group = -1;            // -1: a step
    std::vector<int32_t> unlocks;  // items that wait for this one
    int waits = 0;
  };

  void index_readers() {
    readers_.resize(old_.nodes.size());
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i)
      for (Value v : old_.nodes[i].operands)
        if (readers_[v.node].empty() || readers_[v.node].back() != i) readers_[v.node].push_back(i);
    for (const GraphOutput& output : old_.outputs) outputs_.insert(output.value);
    for (const InputMutation& m : old_.mutations) outputs_.insert(m.value);
  }

  // ---- order ----

  void make_items() {
    item_of_.assign(old_.nodes.size(), -1);
    for (size_t g = 0; g < partition_.groups.size(); ++g)
      if (!partition_.groups[g].empty()) add_item(partition_.groups[g], static_cast<int32_t>(g));
    for (int32_t v = 0; v < static_cast<int32_t>(old_.nodes.size()); ++v)
      if (partition_.is_step[v]) add_item({v}, -1);
    int32_t last_call = -1;
    for (int32_t v = 0; v < static_cast<int32_t>(old_.nodes.size()); ++v) {
      if (item_of_[v] < 0) continue;
      std::set<int32_t> seen;
      for (Value operand : old_.nodes[v].operands) wait_for(item_of_[v], operand, seen);
      // ATen calls may draw random numbers, so their order must not change.
      if (old_.nodes[v].op() != Op::kExtern) continue;
      if (last_call >= 0) unlock(item_of_[last_call], item_of_[v]);
      last_call = v;
    }
  }

  void add_item(std::vector<int32_t> nodes, int32_t group) {
    for (int32_t v : nodes) item_of_[v] = static_cast<int32_t>(items_.size());
    items_.push_back({std::move(nodes), group, {}, 0});
  }

  void unlock(int32_t first, int32_t then) {
    items_[first].unlocks.push_back(then);
    ++items_[then].waits;
  }

  // Adds the dependences of `item` on v. A kernel reads through every free node, a step only through free
  // nodes that have no kernel.
  void wait_for(int32_t item, Value v, std::set<int32_t>& seen) {
    if (!seen.insert(v.node).second) return;
    const Node& node = old_.node(v);
    const int32_t from = item_of_[v.node];
    if (from == item) return;
    if (from >= 0 && (items_[item].group < 0 || !is_free(old_, node))) return unlock(from, item);
    for (Value operand : node.operands) wait_for(item, operand, seen);
  }

  void emit_in_order() {
    using Entry = std::pair<int32_t, int32_t>;  // last node of the item, item
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    auto enqueue = [&](int32_t item) { ready.push({items_[item].nodes.back(), item}); };
    for (int32_t i = 0; i < static_cast<int32_t>(items_.size()); ++i)
      if (items_[i].waits == 0) enqueue(i);
    size_t emitted = 0;
    for (; !ready.empty(); ++emitted) {
      const Item& item = items_[ready.top().second];
      ready.pop();
      item.group < 0 ? emit_step(item.nodes[0]) : emit_group(item);
      for (int32_t next : item.unlocks)
        if (--items_[next].waits == 0) enqueue(next);
    }
    IPEX_CHECK(emitted == items_.size(), "form_groups: groups depend on each other in a cycle");
  }

  // ---- nodes of the new graph ----

  void emit_step(int32_t v) {
    for (Value operand : old_.nodes[v].operands) outside(operand);
    keep(v);
  }

  // The value in the new graph, outside of groups. Views and literals are added when they are first read.
  Value outside(Value v) {
    if (!is_mapped(v)) {
      IPEX_CHECK(item_of_[v.node] < 0, "form_groups: a value is read before its kernel runs");
      emit_step(v.node);
    }
    return mapped(v);
  }

  void emit_group(const Item& item) {
    auto body = std::make_shared<Graph>(old_.without_nodes());
    body->name = "group";
    Node group;
    std::map<Value, Value> inside;
    const int32_t self = item_of_[item.nodes[0]];

    // The inputs are the first values that are not free below the group's operands. Free nodes are copied
    // into the group, even one that also has a kernel: reading its operand is as cheap as reading its result.
    std::function<void(Value)> declare_inputs = [&](Value v) {
      if (item_of_[v.node] == self || inside.contains(v)) return;
      const Node& node = old_.node(v);
      if (is_free(old_, node)) {
        for (Value operand : node.operands) declare_inputs(operand);
        return;
      }
      inside[v] = body->add({Input{"x" + std::to_string(body->inputs.size()), false}, {}, {old_.type(v)}});
      body->inputs.push_back(inside[v].node);
      group.operands.push_back(outside(v));
    };
    for (int32_t v : item.nodes)
      for (Value operand : old_.nodes[v].operands) declare_inputs(operand);

    std::function<Value(Value)> copy = [&](Value v) -> Value {
      if (auto it = inside.find(v); it != inside.end()) return it->second;
      Node node = old_.node(v);
      for (Value& operand : node.operands) operand = copy(operand);
      const int32_t copied = body->add(std::move(node)).node;
      for (int32_t r = 0; r < std::ssize(old_.node(v).types); ++r) inside[{v.node, r}] = {copied, r};
      return inside.at(v);
    };
    for (int32_t v : item.nodes) copy({v, 0});

    std::vector<Value> stored;
    for (int32_t v : item.nodes) {
      const Node& node = old_.nodes[v];
      for (int32_t r = 0; r < static_cast<int32_t>(node.types.size()); ++r) {
        if (!read_outside({v, r}, self)) continue;
        stored.push_back({v, r});
        body->outputs.push_back({inside.at({v, r}), {}});
        group.types.push_back(node.types[r]);
        group.layouts.push_back(static_cast<size_t>(r) < node.layouts.size() ? node.layouts[r] : Strides{});
      }
    }
    group.operation = Group{std::nullopt, std::move(body)};
    const int32_t kernel = add(std::move(group)).node;
    for (size_t i = 0; i < stored.size(); ++i) replace(stored[i], {kernel, static_cast<int32_t>(i)});
  }

  // Is the value read by another kernel, a step or the caller, directly or through free nodes?
  bool read_outside(Value v, int32_t self) const {
    struct Reach {
      Value value;
      bool copied;  // behind a free node that has its own kernel: only kernels read through it
    };
    std::vector<Reach> stack = {{v, false}};
    while (!stack.empty()) {
      const auto [value, copied] = stack.back();
      stack.pop_back();
      if (!copied && outputs_.contains(value)) return true;
      for (int32_t reader : readers_[value.node]) {
        const Node& node = old_.nodes[reader];
        if (std::find(node.operands.begin(), node.operands.end(), value) == node.operands.end()) continue;
        const int32_t item = item_of_[reader];
        const bool step = item >= 0 && items_[item].group < 0;
        if (item >= 0 && item != self && !(step && copied)) return true;
        if (is_free(old_, node)) stack.push_back({{reader, 0}, copied || item >= 0});
      }
    }
    return false;
  }

  const Partition& partition_;
  std::vector<Item> items_;
  std::vector<int32_t> item_of_;               // by node; -1 for inputs and free nodes
  std::vector<std::vector<int32_t>> readers_;  // by node: its direct consumers, including free nodes
  std::set<Value> outputs_;
};

}  // namespace

Graph extract_groups(Graph graph, const Partition& partition) {
  return Extractor(std::move(graph), partition).run();
}

}  // namespace ipex::graph
