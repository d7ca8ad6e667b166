// Optimizers apply the same few pointwise ops to every parameter, and form_groups makes a group for each.
// This pass moves independent groups with the same formula next to each other and gives them a common number.
// compile() makes one kernel, one step and one parallel region of each number.
//
// Only groups whose results are outputs or tiny are moved, so that no large temporary lives longer.
#include <map>
#include <set>

#include "backend/graph/rewriter.h"
#include "backend/passes/grouping.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"

namespace ipex::graph {
namespace {

constexpr int64_t kTinyResult = 1024;  // elements
constexpr int64_t kAssumedLength =
    1 << 14;  // hint of n, the same for all groups, so that equal formulas have equal text

// Flattens the body of a group to one dim of symbolic extent.
class Flattener {
 public:
  explicit Flattener(const Graph& body) : body_(body), space_(body.type(body.outputs[0].value).shape) {}

  std::optional<Graph> run() {
    if (!is_static(space_)) return std::nullopt;
    flat_.name = "batch";
    flat_.symbols = {"n"};
    flat_.symbol_hints = {kAssumedLength};
    for (int32_t n = 0; n < static_cast<int32_t>(body_.nodes.size()); ++n)
      if (!add(n)) return std::nullopt;
    for (const GraphOutput& output : body_.outputs) flat_.outputs.push_back({whole(output.value), {}});
    return std::move(flat_);
  }

 private:
  bool is_whole(const Type& type) const { return equal(type.shape, space_); }

  bool add(int32_t n) {
    Node node = body_.nodes[n];
    const bool whole_result = is_whole(node.types[0]);
    if (node.types.size() != 1 || !is_static(node.types[0].shape)) return false;
    if (!whole_result && loop::as_const_int(loop::simplify(numel(node.types[0].shape))) != 1) return false;
    switch (node.op()) {
      case Op::kConstant:
        if (!node.types[0].shape.empty()) return false;
        break;
      case Op::kExpand:  // inserted again by whole()
        map_[n] = map_.at(node.operands[0].node);
        return true;
      case Op::kInput:
      case Op::kPointwise:
        for (Value& operand : node.operands) {
          if (!whole_result && !flat_.type(map_.at(operand.node)).shape.empty()) return false;
          operand = whole_result ? whole(operand) : map_.at(operand.node);
        }
        node.types[0].shape = whole_result ? Shape{loop::parse_expr("n")} : Shape{};
        break;
      default:
        return false;
    }
    node.source.clear();
    node.layouts.clear();
    const bool is_input = node.op() == Op::kInput;
    map_[n] = flat_.add(std::move(node));
    if (is_input) flat_.inputs.push_back(map_[n].node);
    return true;
  }

  Value whole(Value v) {
    const Value value = map_.at(v.node);
    if (!flat_.type(value).shape.empty()) return value;
    return flat_.add({Expand{}, {value}, {{flat_.type(value).dtype, {loop::parse_expr("n")}}}});
  }

  const Graph& body_;
  const Shape& space_;
  Graph flat_;
  std::map<int32_t, Value> map_;
};

class Batcher : GraphRewriter {
 public:
  explicit Batcher(Graph graph) : GraphRewriter(std::move(graph)), placed_(old_.nodes.size(), false) {}

  Graph run() {
    find_candidates();
    for (int32_t n = 0; n < node_count(); ++n) {
      if (placed_[n]) continue;
      const auto same = formula_.find(n);
      const std::vector<int32_t> batch =
          same == formula_.end() ? std::vector<int32_t>{} : ready(same->second, n);
      if (batch.size() < 2) {
        place(n);
        continue;
      }
      for (int32_t member : batch) place_operands(member);
      for (int32_t member : batch) {
        order_.push_back(member);
        placed_[member] = true;
        batch_[member] = batches_;
      }
      ++batches_;
    }
    return batches_ == 0 ? std::move(old_) : reordered();
  }

 private:
  int32_t node_count() const { return static_cast<int32_t>(old_.nodes.size()); }

  void find_candidates() {
    std::set<int32_t> read;  // by another node
    for (const Node& node : old_.nodes)
      for (Value v : node.operands) read.insert(v.node);
    std::map<std::string, int> numbers;
    for (int32_t n = 0; n < node_count(); ++n) {
      const Node& node = old_.nodes[n];
      const auto* group = node.get_if<Group>();
      if (!group || group->body->outputs.empty()) continue;
      if (read.count(n) && hint(numel(node.types[0].shape), old_) > kTinyResult) continue;
      const std::optional<Graph> flat = flat_body(*group->body);
      if (!flat) continue;
      const int number = numbers.try_emplace(print(*flat), static_cast<int>(numbers.size())).first->second;
      formula_[n] = number;
      members_[number].push_back(n);
    }
  }

  // The unplaced groups with this formula that can run now; empty unless `first` is among them.
  std::vector<int32_t> ready(int formula, int32_t first) const {
    std::vector<int32_t> batch;
    for (int32_t n : members_.at(formula))
      if (!placed_[n] && can_run_now(n)) batch.push_back(n);
    return batch.empty() || batch[0] != first ? std::vector<int32_t>{} : batch;
  }

  bool can_run_now(int32_t n) const {
    for (Value v : old_.nodes[n].operands)
      if (!placed_[v.node] && !(is_light(v.node) && can_run_now(v.node))) return false;
    return true;
  }

  bool is_light(int32_t n) const {
    const Op op = old_.nodes[n].op();
    return op == Op::kInput || op == Op::kConstant || is_view(old_, old_.nodes[n]);
  }

  void place(int32_t n) {
    if (placed_[n]) return;
    place_operands(n);
    order_.push_back(n);
    placed_[n] = true;
  }

  void place_operands(int32_t n) {
    for (Value v : old_.nodes[n].operands) place(v.node);
  }

  Graph reordered() {
    for (int32_t n : order_) {
      Node node = with_mapped_operands(n);
      if (const auto number = batch_.find(n); number != batch_.end())
        node.get<Group>().batch = number->second;
      keep(n, std::move(node));
    }
    return finish();
  }

  std::map<int32_t, int> formula_;               // by candidate
  std::map<int, std::vector<int32_t>> members_;  // by formula
  std::vector<bool> placed_;
  std::vector<int32_t> order_;
  std::map<int32_t, int64_t> batch_;
  int64_t batches_ = 0;
};

}  // namespace

std::optional<Graph> flat_body(const Graph& body) { return Flattener(body).run(); }

Graph batch_groups(Graph graph) { return Batcher(std::move(graph)).run(); }

}  // namespace ipex::graph
