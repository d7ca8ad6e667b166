// The pass that puts parts of frozen TorchScript graphs into nodes ipex::CompiledGraph. The profiling
// executor runs it before its own fusers, at the second call of a loaded model.
//
// A graph is taken only if it has no attributes (it is frozen), and a part only if it reads a constant
// tensor. All other graphs stay as they are.
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "kernels/torch_ops/script/fused_graph.h"
#include "kernels/torch_ops/script/importer.h"
#include "kernels/torch_ops/script/rules.h"

namespace ipex::torch_ops::script {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr int kSmallestPart = 2;  // operators that compute

std::atomic<bool> enabled = true;

template <class Fn>
void each_node(Block* block, const Fn& fn) {
  for (Node* node : block->nodes()) {
    fn(node);
    for (Block* inner : node->blocks()) each_node(inner, fn);
  }
}

bool is_tensor(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

bool is_constant_tensor(const Value* value) {
  return value->node()->kind() == c10::prim::Constant && is_tensor(value) &&
         value->type()->kind() != c10::TypeKind::NoneType && value->node()->hasAttribute(c10::attr::value) &&
         value->node()->t(c10::attr::value).dim() > 0;
}

bool is_frozen(Block* block) {
  bool frozen = true, constants = false;
  each_node(block, [&](Node* node) {
    frozen &= node->kind() != c10::prim::GetAttr && node->kind() != c10::prim::SetAttr;
    for (const Value* input : node->inputs()) constants |= is_constant_tensor(input);
  });
  return frozen && constants;
}

// Whether the layer was recorded or written for training.
bool trains(const Node* node) {
  const int64_t position = node->kind() == c10::aten::dropout || node->kind() == c10::aten::feature_dropout
                               ? 2
                           : node->kind() == c10::aten::batch_norm ? 5
                                                                   : -1;
  if (position < 0) return false;
  const auto value = torch::jit::toIValue(node->inputs()[position]);
  return !value || value->toBool();
}

// PyTorch counts attention among the random ops because it can drop scores.
bool drops_nothing(const Node* node) {
  if (node->kind() != c10::aten::scaled_dot_product_attention) return false;
  const auto probability = torch::jit::toIValue(node->inputs()[4]);
  return probability && probability->toScalar().to<double>() == 0;
}

// Whether the results always share memory with the operand.
bool is_view(const Node* node) {
  static const auto* kinds = [] {
    auto* all = new std::unordered_set<c10::Symbol>{c10::prim::ListUnpack, c10::prim::ConstantChunk};
    for (const char* name :
         {"view", "view_as", "t", "transpose", "permute", "slice", "select", "narrow", "expand", "expand_as",
          "unsqueeze", "squeeze", "split", "chunk", "unbind", "detach", "alias"})
      all->insert(c10::Symbol::fromQualString(std::string("aten::") + name));
    return all;
  }();
  return kinds->count(node->kind()) != 0;
}

// Fuses the nodes of one block.
//
// Each node has a level. A supported node has the level of its operands; behind a node that is not supported,
// the level is one higher. So no path between two nodes of one level leaves the level, and all of them may be
// one part.
class BlockFuser {
 public:
  BlockFuser(const std::shared_ptr<Graph>& graph, Block* block, const torch::jit::AliasDb& aliases)
      : graph_(graph), block_(block), aliases_(aliases) {}

  bool run() {
    for (Node* node : block_->nodes()) {
      classify(node);
      set_level(node);
    }
    sort();
    bool changed = false;
    for (auto& [level, nodes] : parts())
      if (is_worth_it(nodes)) {
        replace(nodes);
        changed = true;
      }
    return changed;
  }

 private:
  enum class Kind { kConstant, kHelper, kTaken, kOther };
  struct Info {
    Kind kind;
    int level;
  };

  bool is_known(const Value* value) const {
    if (value->node()->kind() == c10::prim::Constant) return true;  // maybe of an outer block
    const auto found = info_.find(value->node());
    if (found == info_.end()) return !is_tensor(value) && value->type()->kind() != c10::TypeKind::ListType;
    return found->second.kind == Kind::kHelper && known_.count(value->node());
  }

  // A helper is a number, a list, or a tensor that depends on sizes and constants only. Each part has its own
  // copy.
  void classify(Node* node) {
    Kind kind = Kind::kOther;
    const bool inputs_known = std::all_of(node->inputs().begin(), node->inputs().end(),
                                          [&](const Value* v) { return is_known(v); });
    if (node->kind() == c10::prim::Constant) {
      kind = Kind::kConstant;
    } else if (is_query(node) || (is_pure(node) && inputs_known)) {
      kind = Kind::kHelper;
      known_.insert(node);
    } else if (node->kind() == c10::prim::ListConstruct) {
      const bool tensors = std::all_of(node->inputs().begin(), node->inputs().end(),
                                       [](const Value* v) { return is_tensor(v); });
      if (tensors) kind = Kind::kHelper;
    } else if (is_supported(node)) {
      kind = Kind::kTaken;
    }
    if (kind != Kind::kConstant && kind != Kind::kOther && aliases_.hasWriters(node)) {
      kind = Kind::kOther;
      known_.erase(node);
    }
    info_[node] = {kind, -1};
  }

  bool is_supported(const Node* node) const {
    if (!has_rule(node) || trains(node)) return false;
    if (node->kind() == c10::aten::embedding_bag || node->kind() == c10::aten::_embedding_bag) {
      const auto outputs = node->outputs();
      const bool one_result =
          std::none_of(outputs.begin() + 1, outputs.end(), [](const Value* v) { return v->hasUses(); });
      if (!one_result || !is_known(node->inputs()[2]))
        return false;  // offsets that are data are checked in ATen
    }
    if (node->kind() != c10::prim::ListUnpack) {
      const c10::FunctionSchema* schema = node->maybeSchema();
      if (!schema || schema->is_mutable() || (node->isNondeterministic() && !drops_nothing(node)))
        return false;
    }
    for (const Value* output : node->outputs()) {
      if (is_tensor(output)) continue;
      // A list of tensors is taken apart inside.
      for (const auto& use : output->uses())
        if (use.user->kind() != c10::prim::ListUnpack) return false;
      if (!output->type()->isSubtypeOf(*c10::ListType::ofTensors())) return false;
    }
    for (const Value* input : node->inputs()) {
      const bool list = input->type()->kind() == c10::TypeKind::ListType;
      if (is_tensor(input) || is_known(input) || input->type()->kind() == c10::TypeKind::NoneType) continue;
      if (!list || (!info_.count(input->node()) || kind(input->node()) == Kind::kOther)) return false;
    }
    return true;
  }

  Kind kind(const Node* node) const { return info_.at(node).kind; }

  void set_level(Node* node) {
    Info& info = info_.at(node);
    int level = info.kind == Kind::kTaken ? 0 : -1;
    const std::function<void(const Node*)> read = [&](const Node* reader) {
      for (const Value* input : reader->inputs()) {
        const auto found = info_.find(input->node());
        if (found == info_.end() || found->second.kind == Kind::kConstant) continue;
        const bool passes = found->second.kind != Kind::kOther || info.kind == Kind::kOther;
        level = std::max(level, found->second.level + !passes);
      }
      for (const Block* inner : reader->blocks()) {
        for (const Node* node : inner->nodes()) read(node);
        for (const Value* output : inner->outputs()) {
          const auto found = info_.find(output->node());
          if (found != info_.end()) level = std::max(level, found->second.level);
        }
      }
    };
    read(node);
    if (info.kind == Kind::kOther) last_ = level = std::max(level, last_);  // these stay in order
    info.level = level;
  }

  void sort() {
    std::vector<Node*> order(block_->nodes().begin(), block_->nodes().end());
    std::stable_sort(order.begin(), order.end(), [&](const Node* a, const Node* b) {
      const auto key = [&](const Node* node) {
        const Info& info = info_.at(node);
        return std::pair(info.kind == Kind::kConstant ? -2 : info.level, info.kind == Kind::kOther);
      };
      return key(a) < key(b);
    });
    for (Node* node : order) node->moveBefore(block_->return_node());
  }

  std::map<int, std::vector<Node*>> parts() const {
    std::map<int, std::vector<Node*>> result;
    for (Node* node : block_->nodes())
      if (kind(node) == Kind::kTaken) result[info_.at(node).level].push_back(node);
    for (auto& [level, nodes] : result) leave_views_at_end(nodes);
    return result;
  }

  // Views that nothing in the part reads stay outside, so that they share memory as in eager.
  void leave_views_at_end(std::vector<Node*>& nodes) const {
    std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    const auto read_inside = [&](const Value* output) {
      return std::any_of(output->uses().begin(), output->uses().end(), [&](const auto& use) {
        const auto user = info_.find(use.user);
        return inside.count(use.user) || (user != info_.end() && user->second.kind == Kind::kHelper);
      });
    };
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (is_view(*node) && std::none_of((*node)->outputs().begin(), (*node)->outputs().end(), read_inside))
        inside.erase(*node);
    std::erase_if(nodes, [&](const Node* node) { return !inside.count(node); });
  }

  static bool is_worth_it(const std::vector<Node*>& nodes) {
    int computing = 0;
    bool constants = false;
    for (const Node* node : nodes) {
      computing += computes(node);
      for (const Value* input : node->inputs()) constants |= is_constant_tensor(input);
    }
    return computing >= kSmallestPart && constants;
  }

  void replace(const std::vector<Node*>& nodes) {
    const auto part = std::make_shared<Graph>();
    const std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    std::unordered_map<Value*, Value*> copies;
    std::vector<Value*> inputs;
    const std::function<Value*(Value*)> copy_of = [&](Value* value) -> Value* {
      if (const auto found = copies.find(value); found != copies.end()) return found->second;
      Node* producer = value->node();
      const auto info = info_.find(producer);
      const bool helps = info != info_.end() && info->second.kind == Kind::kHelper;
      if (helps || producer->kind() == c10::prim::Constant) {
        for (Value* input : producer->inputs()) copy_of(input);
        append(*part, producer, copies);
        return copies.at(value);
      }
      inputs.push_back(value);
      return copies[value] = part->addInput()->copyMetadata(value);
    };
    for (Node* node : nodes) {
      for (Value* input : node->inputs()) copy_of(input);
      append(*part, node, copies);
    }

    Node* fused = graph_->create(compiled_graph(), inputs, 0);
    fused->g_(c10::attr::Subgraph, part);
    fused->insertBefore(nodes.front());
    for (Node* node : nodes)
      for (Value* output : node->outputs()) {
        const bool leaves = std::any_of(output->uses().begin(), output->uses().end(),
                                        [&](const auto& use) { return !inside.count(use.user); });
        if (!leaves || !is_tensor(output)) continue;
        part->registerOutput(copies.at(output));
        Value* result = fused->addOutput()->copyMetadata(output);
        output->replaceAllUsesWith(result);
      }
    // The copies read each other, so nothing uses the originals now.
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (!(*node)->hasUses()) (*node)->destroy();
  }

  static void append(Graph& part, Node* node, std::unordered_map<Value*, Value*>& copies) {
    Node* copy = part.appendNode(part.createClone(node, [&](Value* v) { return copies.at(v); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) copies[node->outputs()[i]] = copy->outputs()[i];
  }

  const std::shared_ptr<Graph>& graph_;
  Block* block_;
  const torch::jit::AliasDb& aliases_;
  std::unordered_map<const Node*, Info> info_;
  std::unordered_set<const Node*> known_;
  int last_ = -1;
};

// The executor's records of types, which would stand between all nodes.
void remove_profiles(Block* block) {
  std::vector<Node*> profiles;
  each_node(block, [&](Node* node) {
    if (node->kind() == c10::prim::profile && node->outputs().size() == 1 && node->inputs().size() == 1)
      profiles.push_back(node);
  });
  for (Node* node : profiles) {
    node->output()->replaceAllUsesWith(node->input());
    node->destroy();
  }
}

// Helpers outside of a part may have read its values and be unused now.
void remove_unused_outputs(Block* block) {
  each_node(block, [](Node* node) {
    if (node->kind() != compiled_graph()) return;
    for (size_t i = node->outputs().size(); i-- > 0;) {
      if (node->outputs()[i]->hasUses()) continue;
      node->eraseOutput(i);
      node->g(c10::attr::Subgraph)->eraseOutput(i);
    }
    torch::jit::EliminateDeadCode(node->g(c10::attr::Subgraph));
  });
}

void fuse(std::shared_ptr<Graph>& graph) {
  if (!enabled || !is_frozen(graph->block())) return;
  remove_profiles(graph->block());
  torch::jit::RemoveTensorMutation(graph);
  std::vector<Block*> blocks{graph->block()};
  each_node(graph->block(), [&](Node* node) {
    for (Block* inner : node->blocks()) blocks.push_back(inner);
  });
  bool changed = false;
  for (Block* block : blocks) changed |= BlockFuser(graph, block, torch::jit::AliasDb(graph)).run();
  if (!changed) return;
  torch::jit::EliminateDeadCode(graph);
  remove_unused_outputs(graph->block());
}

[[maybe_unused]] const auto registered = torch::jit::registerPrePass(fuse);

}  // namespace
}  // namespace ipex::torch_ops::script

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("enable_onednn_fusion(bool enabled) -> ()",
        [](bool enabled) { ipex::torch_ops::script::enabled = enabled; });
  m.def("onednn_fusion_enabled() -> bool", [] { return ipex::torch_ops::script::enabled.load(); });
}
