// Fusion. Every computing fusible node starts as a group of its own. Edges are then contracted greedily in
// topological order, if the two index spaces agree and no other path connects the groups. Free nodes (views,
// literals, widening casts) belong to no group: each kernel that reads one has a copy.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "backend/passes/grouping.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;
using loop::provably_equal;

// A kernel's parameters and code stay small enough for registers and compile time; ResNet's and BERT's
// largest groups have ~40.
constexpr int kMaxNodes = 96;
constexpr int kMaxOperands = 28;
// The result of a reduction may be used over its own input space in one kernel only if a row stays in cache
// between the passes.
constexpr int64_t kMaxCachedRow = 1 << 16;
constexpr int64_t kMaxStridedRow = 1 << 10;
constexpr size_t kMaxSiblingsTried = 8;
constexpr size_t kMaxRepeated = 3;  // operations that are repeated in a second kernel
constexpr size_t kMaxInlined = 4;   // operations that are repeated at another index

// The place of a node in its group's loop nest.
enum class Role : uint8_t {
  kFull,    // once for each element of the space
  kRow,     // once a row, after the reductions
  kInlined  // at the index that its consumer reads
};

struct Unit {  // a group under construction, or a single node that is not fusible
  std::vector<int32_t> nodes;
  bool fusible = false;
  bool closed = false;         // scatter, segment, pool, scan: only inlined producers can be merged
  std::optional<Space> space;  // set if the group has a reduction
  Shape shape;                 // for pointwise groups
};

class Grouper {
 public:
  explicit Grouper(Graph graph, bool repeats = true) : graph_(std::move(graph)), repeats_(repeats) {}

  Graph run() {
    mark_needed();
    make_units();
    for (int32_t v = 0; v < node_count(); ++v)
      for (const Edge& edge : edges_[v]) try_merge(edge, v);
    sink_cheap();
    if (!repeated_.empty()) return Grouper(repeat_chains(std::move(graph_), repeated_), false).run();
    merge_siblings();
    merge_column_sums();
    const Partition kernels = partition();
    return extract_groups(std::move(graph_), kernels);
  }

 private:
  int32_t node_count() const { return static_cast<int32_t>(graph_.nodes.size()); }

  // The value below a chain of views that must be in memory when a step or the caller reads `v`.
  Value holder(Value v) const {
    while (is_view(graph_, graph_.node(v))) v = graph_.node(v).operands[0];
    return v;
  }

  // Finds the steps and the nodes that kernels compute, among the live nodes. A free node is computed by a
  // kernel if a step or the caller reads it and strides cannot express it.
  void mark_needed() {
    is_step_.assign(node_count(), false);
    computes_.assign(node_count(), false);
    std::vector<bool> live(node_count(), false);
    auto need = [&](Value v) {
      const Value held = holder(v);
      if (is_fusible(graph_.node(held).op())) computes_[held.node] = true;
      live[v.node] = true;
    };
    for (const GraphOutput& output : graph_.outputs) need(output.value);
    for (const InputMutation& m : graph_.mutations) need(m.value);
    for (int32_t i = node_count(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (!live[i] && node.op() != Op::kExtern) continue;
      if (is_fusible(node.op())) {
        if (!is_free(graph_, node)) computes_[i] = true;
        for (Value v : node.operands) live[v.node] = true;
      } else {
        is_step_[i] = node.op() != Op::kInput && node.op() != Op::kConstant;
        for (Value v : node.operands) need(v);
      }
    }
  }

  Shape shape_of(int32_t v) const {
    const Node& node = graph_.nodes[v];
    return node.op() == Op::kReduce ? graph_.type(node.operands[0]).shape : node.types[0].shape;
  }

  void make_units() {
    unit_of_.resize(node_count());
    role_.assign(node_count(), Role::kFull);
    edges_.resize(node_count());
    users_.resize(node_count());
    units_.resize(node_count());
    int32_t last_call = -1;
    for (int32_t v = 0; v < node_count(); ++v) {
      const Node& node = graph_.nodes[v];
      Unit& unit = units_[v];
      unit_of_[v] = v;
      unit.nodes = {v};
      unit.fusible = computes_[v];
      unit.shape = shape_of(v);
      unit.closed = info(node.op()).fusion == Fusion::kAlone;
      if (node.op() == Op::kReduce) unit.space = make_space(unit.shape, node.get<Reduce>().axes);
      if (!computes_[v] && !is_step_[v]) continue;
      if (node.op() == Op::kExtern) {  // ATen calls keep their order (random numbers): treat it as an edge
        if (last_call >= 0) users_[last_call].push_back(v);
        last_call = v;
      }
      auto connect = [&](const Edge& edge) {
        edges_[v].push_back(edge);
        users_[edge.producer.node].push_back(v);
      };
      if (!computes_[v]) {  // a step reads memory, directly or through views
        for (Value operand : node.operands) connect({holder(operand), Relation::kOther, {}, {}});
        continue;
      }
      if (is_free(graph_, node)) {  // a view that must be copied: its own index map is the relation
        if (auto edge = trace_edge(graph_, {v, 0})) connect(*edge);
        continue;
      }
      for (size_t i = 0; i < node.operands.size(); ++i) {
        auto edge = trace_edge(graph_, node.operands[i]);
        if (!edge) continue;
        // These ops read their data at computed or shifted indices, or in overlapping windows.
        const bool indirect =
            info(node.op()).fusion >= Fusion::kElsewhere && !(node.op() == Op::kGather && i > 0);
        if (indirect) edge->relation = Relation::kOther;
        connect(*edge);
      }
    }
    leaves_.assign(node_count(), false);
    auto mark = [&](Value v) { leaves_[holder(v).node] = true; };
    for (const GraphOutput& output : graph_.outputs) mark(output.value);
    for (const InputMutation& m : graph_.mutations) mark(m.value);
  }

  // ---- legality ----

  // Is there a path from `from` to `to` through a third unit? Units that begin after node `horizon` cannot be
  // on it: during merging, nodes after the consumer are still single units.
  bool path_around(int32_t from, int32_t to, int32_t horizon) {
    ++stamp_;
    seen_.resize(units_.size(), 0);
    std::vector<int32_t> stack;
    auto push_users = [&](int32_t unit) {
      for (int32_t v : units_[unit].nodes)
        for (int32_t user : users_[v]) {
          const int32_t next = unit_of_[user];
          if (next == unit || next == from || seen_[next] == stamp_) continue;
          if (unit == from && next == to) continue;
          if (units_[next].nodes.front() > horizon) continue;
          seen_[next] = stamp_;
          stack.push_back(next);
        }
    };
    push_users(from);
    while (!stack.empty()) {
      const int32_t unit = stack.back();
      stack.pop_back();
      if (unit == to) return true;
      push_users(unit);
    }
    return false;
  }

  bool stays_inside(int32_t unit, int32_t other) const {
    for (int32_t v : units_[unit].nodes) {
      if (leaves_[v]) return false;
      for (int32_t user : users_[v])
        if (unit_of_[user] != unit && unit_of_[user] != other) return false;
    }
    return true;
  }

  int64_t hint_of(const Dim& dim) const { return hint(dim, graph_); }

  // May the result of a reduction over this space be used by elements of the space in the same kernel?
  bool row_stays_cached(const Space& space) const {
    const int64_t rows = std::max<int64_t>(hint_of(space.rows), 1);
    const int64_t row = hint_of(space.total) / rows;
    if (row > (space.trailing ? kMaxCachedRow : kMaxStridedRow)) return false;
    return rows >= 8 || row <= 4096;  // one long row would run on one thread
  }

  bool matches_rows(const Edge& edge, const Space& space) const {
    if (edge.relation != Relation::kBroadcast || !provably_equal(numel(edge.consumer_shape), space.total))
      return false;
    return same_reduction(make_space(edge.consumer_shape, edge.dropped), space);
  }

  static bool is_pointwise(const Unit& unit) { return !unit.space && !unit.closed; }

  // Merges the producer's unit into the consumer's when their spaces agree.
  void try_merge(const Edge& edge, int32_t consumer) {
    const int32_t a = unit_of_[edge.producer.node], b = unit_of_[consumer];
    Unit &A = units_[a], &B = units_[b];
    if (a == b || !A.fusible || !B.fusible || A.closed) return;
    if (static_cast<int>(A.nodes.size() + B.nodes.size()) > kMaxNodes) return;
    std::optional<Role> producer_role,
        consumer_role;  // new role for all nodes of a pointwise unit; nullopt: unchanged
    if (!spaces_agree(edge, consumer, A, B, &producer_role, &consumer_role)) return;
    if (producer_role == Role::kInlined && !stays_inside(a, b)) return;
    if (!other_edges_agree(a, b, producer_role, consumer_role)) return;
    if (too_many_operands(a, b) || path_around(a, b, consumer)) return;
    merge(a, b, producer_role, consumer_role);
  }

  // Whether the other edges between the units allow the merge. A value that is read at another index than its
  // own loop computes is recomputed there, together with all values of the kernel it depends on. A recurrence
  // that reads its state twice, once at another index, would double its work with every step.
  bool other_edges_agree(int32_t a, int32_t b, std::optional<Role> producer_role,
                         std::optional<Role> consumer_role) const {
    const std::optional<Space>& space = units_[b].space ? units_[b].space : units_[a].space;
    for (int32_t v : units_[b].nodes)
      for (const Edge& edge : edges_[v]) {
        const int32_t p = edge.producer.node;
        if (unit_of_[p] != a) continue;
        const Role from = graph_.nodes[p].op() == Op::kReduce ? Role::kRow : producer_role.value_or(role_[p]);
        const Role to = graph_.nodes[v].op() == Op::kReduce ? Role::kFull
                        : role_[v] == Role::kInlined        ? Role::kInlined
                                                            : consumer_role.value_or(role_[v]);
        if (edge.relation == Relation::kIdentity && from == to) continue;
        if (from == Role::kRow && to == Role::kFull && space && matches_rows(edge, *space)) continue;
        std::set<int32_t> again;
        if (from != Role::kInlined && !cheap_to_repeat(p, again)) return false;
      }
    return true;
  }

  // Is v, including its producers in the unit, a chain of few cheap operations?
  bool cheap_to_repeat(int32_t v, std::set<int32_t>& chain) const {
    if (chain.contains(v)) return true;
    if (!is_cheap(graph_.nodes[v]) || chain.size() == kMaxInlined) return false;
    chain.insert(v);
    return std::all_of(edges_[v].begin(), edges_[v].end(), [&](const Edge& edge) {
      return unit_of_[edge.producer.node] != unit_of_[v] || cheap_to_repeat(edge.producer.node, chain);
    });
  }

  // Does the unit use the result of a row's reduction with the elements of the row?
  bool reads_rows_again(int32_t unit) const {
    return std::any_of(units_[unit].nodes.begin(), units_[unit].nodes.end(), [&](int32_t v) {
      return role_[v] == Role::kFull &&
             std::any_of(edges_[v].begin(), edges_[v].end(), [&](const Edge& edge) {
               return unit_of_[edge.producer.node] == unit && edge.relation == Relation::kBroadcast;
             });
    });
  }

  bool spaces_agree(const Edge& edge, int32_t consumer, const Unit& A, const Unit& B,
                    std::optional<Role>* producer_role, std::optional<Role>* consumer_role) const {
    const Role from = role_[edge.producer.node], to = role_[consumer];
    const bool row_producer =
        A.space && (from == Role::kRow || graph_.nodes[edge.producer.node].op() == Op::kReduce);
    const bool consumer_reduces = graph_.nodes[consumer].op() == Op::kReduce;
    const bool row_consumer = B.space && to == Role::kRow && !consumer_reduces;
    const bool identity = edge.relation == Relation::kIdentity;
    if (from == Role::kInlined) return false;

    if (to == Role::kInlined || B.closed || edge.relation == Relation::kOther) {
      if (!is_pointwise(A) || !cheap_to_inline(A, graph_.nodes[consumer])) return false;
      *producer_role = Role::kInlined;
      return true;
    }
    if (is_pointwise(A) && is_pointwise(B)) return identity;
    if (is_pointwise(A)) {  // producer of a reduction's group
      if (identity) {
        *producer_role = row_consumer ? Role::kRow : Role::kFull;
        return true;
      }
      if (row_consumer || !matches_rows(edge, *B.space)) return false;
      *producer_role = Role::kRow;
      return true;
    }
    if (is_pointwise(B)) {  // consumer of a reduction
      if (identity) {
        *consumer_role = row_producer ? Role::kRow : Role::kFull;
        return true;
      }
      if (!row_producer || !matches_rows(edge, *A.space) || !row_stays_cached(*A.space)) return false;
      *consumer_role = Role::kFull;
      return true;
    }
    if (!same_reduction(*A.space, *B.space)) return false;
    // If the consumer's rows are read again anyway, another sum needs no additional pass.
    if (row_producer && !row_consumer)
      return matches_rows(edge, *A.space) &&
             (row_stays_cached(*A.space) || reads_rows_again(unit_of_[consumer]));
    return identity && row_producer == row_consumer;
  }

  // Whether to recompute the unit at the consumer's index: for a few cheap operations, unless the consumer
  // reads each element several times.
  bool cheap_to_inline(const Unit& unit, const Node& consumer) const {
    if (consumer.op() == Op::kPool || (consumer.op() == Op::kCat && consumer.operands.size() > 4))
      return false;
    if (consumer.op() == Op::kScatter || consumer.op() == Op::kSegment || consumer.op() == Op::kScan)
      return true;
    if (unit.nodes.size() > kMaxInlined) return false;
    // A concatenation of two parts is lowered to one loop for each part.
    const auto is_pair = [](const Node& node) { return node.op() == Op::kCat && node.operands.size() == 2; };
    return std::all_of(unit.nodes.begin(), unit.nodes.end(),
                       [&](int32_t v) { return is_cheap(graph_.nodes[v]) || is_pair(graph_.nodes[v]); });
  }

  bool too_many_operands(int32_t a, int32_t b) const {
    std::vector<int32_t> inputs;
    int outputs = 0;
    for (int32_t unit : {a, b}) {
      for (int32_t v : units_[unit].nodes) {
        for (const Edge& edge : edges_[v]) {
          const int32_t from = unit_of_[edge.producer.node];
          if (from != a && from != b) inputs.push_back(edge.producer.node);
        }
        bool stored = leaves_[v];
        for (int32_t user : users_[v]) stored |= unit_of_[user] != a && unit_of_[user] != b;
        outputs += stored;
      }
    }
    std::sort(inputs.begin(), inputs.end());
    const auto distinct = std::unique(inputs.begin(), inputs.end()) - inputs.begin();
    return distinct + outputs > kMaxOperands;
  }

  void merge(int32_t a, int32_t b, std::optional<Role> role_a, std::optional<Role> role_b) {
    Unit &A = units_[a], &B = units_[b];
    if (role_a)
      for (int32_t v : A.nodes) role_[v] = *role_a;
    if (role_b)
      for (int32_t v : B.nodes)
        if (role_[v] != Role::kInlined) role_[v] = *role_b;
    if (!B.space && A.space) B.space = A.space;
    for (int32_t v : A.nodes) unit_of_[v] = b;
    std::vector<int32_t> nodes(A.nodes.size() + B.nodes.size());
    std::merge(A.nodes.begin(), A.nodes.end(), B.nodes.begin(), B.nodes.end(), nodes.begin());
    B.nodes = std::move(nodes);
    A.nodes.clear();
    A.fusible = false;
  }

  // A cheap operation that only one other group reads moves to that group if its operands are in memory
  // anyway, so that its result is never stored. A short chain of cheap operations that computes an operand is
  // repeated there. (A layer norm's backward would otherwise store gradient * (x - mean) / deviation for the
  // column sums.)
  void sink_cheap() {
    for (int32_t v = node_count(); v-- > 0;) {
      if (!computes_[v] || leaves_[v] || !is_cheap(graph_.nodes[v]) || role_[v] != Role::kFull) continue;
      const int32_t a = unit_of_[v];
      const auto b = only_reader(v);
      if (!b || *b == a || units_[a].nodes.size() == 1) continue;
      if (!units_[*b].fusible || units_[*b].closed || units_[*b].nodes.size() >= kMaxNodes) continue;
      std::set<int32_t> chain;
      if (!saves_traffic(v, *b, chain)) continue;
      if (!chain.empty()) {
        repeated_[v] = std::move(chain);
        continue;
      }
      std::erase(units_[a].nodes, v);
      std::vector<int32_t>& nodes = units_[*b].nodes;
      nodes.insert(std::upper_bound(nodes.begin(), nodes.end(), v), v);
      unit_of_[v] = *b;
    }
  }

  // The only unit that reads v, if it reads v element by element.
  std::optional<int32_t> only_reader(int32_t v) const {
    std::optional<int32_t> unit;
    for (int32_t user : users_[v]) {
      if (role_[user] != Role::kFull || (unit && *unit != unit_of_[user])) return std::nullopt;
      for (const Edge& edge : edges_[user])
        if (edge.producer.node == v && edge.relation != Relation::kIdentity) return std::nullopt;
      unit = unit_of_[user];
    }
    return unit;
  }

  // Compares loading v's operands in unit b with storing v (which first loads the line) and loading it again.
  // Collects in `chain` the operations that must be repeated.
  bool saves_traffic(int32_t v, int32_t b, std::set<int32_t>& chain) const {
    std::set<Value> loaded;
    if (!collect_loads(v, v, b, chain, loaded)) return false;
    int64_t bytes = 0;
    for (Value p : loaded) bytes += itemsize(graph_.type(p).dtype);
    return bytes < 3 * itemsize(graph_.nodes[v].types[0].dtype);
  }

  // Collects the operands of n: in `loaded` those in memory that unit b does not load yet, in `chain` those
  // to be repeated. False if an operand is neither.
  bool collect_loads(int32_t n, int32_t v, int32_t b, std::set<int32_t>& chain,
                     std::set<Value>& loaded) const {
    for (const Edge& edge : edges_[n]) {
      const int32_t p = edge.producer.node;
      if (edge.relation == Relation::kOther) return false;
      if (chain.contains(p)) continue;
      if (in_memory(p, v)) {
        const auto& readers = users_[p];
        const bool read_there = std::any_of(readers.begin(), readers.end(),
                                            [&](int32_t user) { return user != v && unit_of_[user] == b; });
        if (!read_there && edge.relation == Relation::kIdentity) loaded.insert(edge.producer);
        continue;
      }
      if (edge.relation != Relation::kIdentity || role_[p] != Role::kFull || !is_cheap(graph_.nodes[p]) ||
          !repeats_ || chain.size() == kMaxRepeated)
        return false;
      chain.insert(p);
      if (!collect_loads(p, v, b, chain, loaded)) return false;
    }
    return true;
  }

  // Is p stored, apart from its use by v in another unit?
  bool in_memory(int32_t p, int32_t v) const {
    const auto& readers = users_[p];
    return unit_of_[p] != unit_of_[v] || leaves_[p] ||
           std::any_of(readers.begin(), readers.end(),
                       [&](int32_t user) { return unit_of_[user] != unit_of_[p]; });
  }

  // Merges independent groups that read the same value over the same space, so that it is loaded once.
  void merge_siblings() {
    for (int32_t v = 0; v < node_count(); ++v) {
      std::vector<int32_t> readers;
      for (int32_t user : users_[v]) {
        const int32_t unit = unit_of_[user];
        if (units_[unit].fusible && !units_[unit].closed && unit != unit_of_[v]) readers.push_back(unit);
      }
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
      for (size_t i = 0; i < readers.size(); ++i) {
        const size_t end = std::min(readers.size(), i + 1 + kMaxSiblingsTried);
        for (size_t j = i + 1; j < end; ++j) {
          if (!siblings(readers[i], readers[j], v)) continue;
          merge(readers[i], readers[j], std::nullopt, std::nullopt);
          break;
        }
      }
    }
  }

  bool siblings(int32_t a, int32_t b, int32_t shared) {
    const Unit &A = units_[a], &B = units_[b];
    if (static_cast<int>(A.nodes.size() + B.nodes.size()) > kMaxNodes) return false;
    if (A.space.has_value() != B.space.has_value()) return false;
    if (A.space && !same_reduction(*A.space, *B.space)) return false;
    if (!A.space && !provably_equal(numel(A.shape), numel(B.shape))) return false;
    const Dim space = A.space ? A.space->total : numel(A.shape);
    const auto reads_shared = [&](const Unit& unit) {
      return std::any_of(unit.nodes.begin(), unit.nodes.end(),
                         [&](int32_t v) { return reads_whole(v, shared, space); });
    };
    if (!reads_shared(A) || !reads_shared(B) || too_many_operands(a, b)) return false;
    return !reaches(a, b) && !reaches(b, a);
  }

  // Moves column sums to a group that reads or stores the same rows. fuse_loops then merges the loops over
  // rows, so that memory is read once. Example: the gradient of a layer norm and the gradients of its
  // weights.
  void merge_column_sums() {
    for (int32_t b = 0; b < node_count(); ++b) {
      if (!units_[b].space || units_[b].space->trailing) continue;
      const Dim elements = units_[b].space->total;
      std::set<int32_t> others;
      for (int32_t v : units_[b].nodes)
        for (const Edge& edge : edges_[v]) {
          const int32_t producer = edge.producer.node;
          if (!reads_whole(v, producer, elements)) continue;
          others.insert(unit_of_[producer]);
          for (int32_t user : users_[producer])
            if (reads_whole(user, producer, elements)) others.insert(unit_of_[user]);
        }
      for (int32_t a : others)
        if (a != b && sums_rows_of(b, a)) {
          merge(b, a, std::nullopt, std::nullopt);
          break;
        }
    }
  }

  // Does v read `producer` element by element over a space of `elements`?
  bool reads_whole(int32_t v, int32_t producer, const Dim& elements) const {
    return role_[v] == Role::kFull && std::any_of(edges_[v].begin(), edges_[v].end(), [&](const Edge& edge) {
             return edge.producer.node == producer && edge.relation == Relation::kIdentity &&
                    provably_equal(numel(edge.consumer_shape), elements);
           });
  }

  // Does `b` sum the rows of `a`, and is every value of `a` that it reads stored there or cheap to repeat?
  bool sums_rows_of(int32_t b, int32_t a) {
    const Unit &A = units_[a], &B = units_[b];
    if (!A.fusible || !B.fusible || A.closed || B.closed || !A.space || !A.space->trailing) return false;
    if (static_cast<int>(A.nodes.size() + B.nodes.size()) > kMaxNodes || too_many_operands(a, b))
      return false;
    const std::vector<int64_t>& axes = B.space->axes;
    const bool leading = axes.back() == static_cast<int64_t>(axes.size()) - 1;
    if (!leading || !provably_equal(A.space->total, B.space->total) ||
        !provably_equal(A.space->rows * B.space->rows, B.space->total) || reads_rows_again(b))
      return false;
    for (int32_t v : B.nodes)
      for (const Edge& edge : edges_[v]) {
        const int32_t p = edge.producer.node;
        std::set<int32_t> repeated;
        if (unit_of_[p] == a && (edge.relation != Relation::kIdentity || role_[p] != Role::kFull ||
                                 !(is_stored(p, b) || is_repeatable(p, b, repeated))))
          return false;
      }
    return !reaches(b, a) && !path_around(a, b, node_count());
  }

  // Is p computed in its group by a few cheap operations on values in memory?
  bool is_repeatable(int32_t p, int32_t b, std::set<int32_t>& chain) const {
    if (!is_cheap(graph_.nodes[p]) || role_[p] != Role::kFull || chain.size() == kMaxRepeated) return false;
    chain.insert(p);
    return std::all_of(edges_[p].begin(), edges_[p].end(), [&](const Edge& edge) {
      const int32_t q = edge.producer.node;
      return unit_of_[q] != unit_of_[p] || chain.contains(q) || is_stored(q, b) ||
             (edge.relation == Relation::kIdentity && is_repeatable(q, b, chain));
    });
  }

  // Is p stored by its group, apart from its use in unit b?
  bool is_stored(int32_t p, int32_t b) const {
    return graph_.nodes[p].op() == Op::kPointwise && role_[p] == Role::kFull &&
           (leaves_[p] || std::any_of(users_[p].begin(), users_[p].end(), [&](int32_t user) {
              return unit_of_[user] != unit_of_[p] && unit_of_[user] != b;
            }));
  }

  bool reaches(int32_t from, int32_t to) {
    for (int32_t v : units_[from].nodes)
      for (int32_t user : users_[v])
        if (unit_of_[user] == to) return true;
    return path_around(from, to, node_count());
  }

  Partition partition() {
    Partition result{{}, is_step_};
    for (Unit& unit : units_)
      if (unit.fusible) result.groups.push_back(std::move(unit.nodes));
    return result;
  }

  Graph graph_;
  const bool repeats_;  // may repeat chains: only in the first round, so that it terminates
  std::vector<bool> is_step_, computes_, leaves_;
  std::map<int32_t, std::set<int32_t>> repeated_;  // by node: the chain that its consumer's group repeats
  std::vector<int32_t> unit_of_;
  std::vector<Role> role_;
  std::vector<Unit> units_;
  std::vector<std::vector<Edge>> edges_;     // by computing node or step: edges to its producers
  std::vector<std::vector<int32_t>> users_;  // the consumers
  std::vector<int> seen_;
  int stamp_ = 0;
};

}  // namespace

Graph form_groups(Graph graph) { return Grouper(std::move(graph)).run(); }

}  // namespace ipex::graph
