// choose_schedule: how each nest of a function runs. Pure: the same nest and target give the same schedule.
//
// One cost model (loop_costs.h) decides. The vector loop is the one for which the nest costs least. An outer
// loop may win over the reduction inside it: column sums keep a vector of columns. Parallel is the outermost
// loop that is proved independent, unless all the work is smaller than waking the threads. A reduction with
// too little around it to keep threads busy is cut into chunks of a fixed size: results do not depend on the
// number of threads. Nor do they where a nest writes to rows that data name: each row has one owner, who
// writes it in the nest's order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "codegen/analyses/loop_costs.h"
#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/schedule.h"

namespace ipex::loop {

namespace {

constexpr double kAssumedMinExtent = 4;  // of a loop over symbols, where too little parallelism would be dear
constexpr double kSerialWork = 32 << 10;  // element operations not worth a second thread
constexpr double kGrainWork = 16 << 10;   // the least one thread is woken for
constexpr double kSplitWork = 256 << 10;  // a reduction worth two stages
constexpr double kChunkWork = 64 << 10;
constexpr int64_t kMaxChunks = 1024;      // of a static reduction; bounds the serial merge
constexpr int64_t kMaxColumnChunks = 64;  // where each leaves a few partial results
constexpr int64_t kMaxLaneAdditions =
    4096;  // additions to one partial result: half of them no longer see its last digits
constexpr double kMinSplitRows = 2048;  // rows; the merge of the chunks is then a few percent
// Where rows are many results: what is merged is 1/64 of what is read at most, and no sum has more terms than
// keep its digits.
constexpr int64_t kChunkRows = 64, kMaxChunkRows = 256;
constexpr double kMinColumnBlocks = 16;   // this many vectors of results keep threads busy without splitting
constexpr double kOwnershipTestCost = 8;  // finding out that a row is another thread's
constexpr int64_t kMinOwnedBytes =
    256;  // the least memory an owner has in one piece: threads share no cache line

class Chooser {
 public:
  Chooser(const Function& f, const Target& target, bool parallel)
      : tree_(f),
        target_(target),
        costs_(tree_, target),
        parallel_(parallel),
        symbols_(f.symbols.begin(), f.symbols.end()) {}

  Schedule run() {
    for (int root : tree_.roots())
      if (all_serial(root)) nest(root);
    return std::move(out_);
  }

 private:
  bool all_serial(int loop) const {
    const std::vector<int>& children = tree_.at(loop).children;
    return tree_.at(loop).node->kind == ForKind::kSerial &&
           std::all_of(children.begin(), children.end(), [&](int c) { return all_serial(c); });
  }

  // ---- one nest ----

  // Independent loops from the root down, each holding nothing but the next.
  std::vector<int> parallel_chain(int root) const {
    std::vector<int> chain;
    std::set<std::string> vars;
    for (int loop = root;;) {
      const For& node = *tree_.at(loop).node;
      if (node.reduction || !tree_.reorderable(loop)) break;
      std::set<std::string> bounds = free_vars(node.begin);
      bounds.merge(free_vars(node.end));
      if (std::any_of(bounds.begin(), bounds.end(), [&](const std::string& v) { return vars.count(v) > 0; }))
        break;
      chain.push_back(loop);
      vars.insert(node.var);
      if (node.body->stmts.size() != 1 || tree_.at(loop).children.size() != 1 ||
          !std::holds_alternative<For>(node.body->stmts[0]))
        break;
      loop = tree_.at(loop).children[0];
    }
    return chain;
  }

  LoopSchedule& entry(const std::string& loop) {
    for (LoopSchedule& s : out_.loops)
      if (s.loop == loop) return s;
    return out_.loops.emplace_back(LoopSchedule{.loop = loop});
  }

  const std::string& var(int loop) const { return tree_.at(loop).node->var; }

  void mark_vector(int loop) {
    LoopSchedule& s = entry(var(loop));
    s.kind = ForKind::kVector;
    s.lanes = costs_.fitting_lanes(loop);
    s.accumulators = costs_.accumulators(loop, s.lanes);
  }

  void nest(int root) {
    const std::vector<int> chain = parallel_chain(root);
    const LoopCosts::Choice choice = costs_.choose(root);
    for (int loop : choice.vectors) mark_vector(loop);
    int chain_vector = -1;  // the vector loop, where it is one of the chain
    for (int loop : choice.vectors)
      if (std::find(chain.begin(), chain.end(), loop) != chain.end()) chain_vector = loop;
    for (int loop : choice.vectors)
      if (loop != chain_vector) innermost_reduction(loop);

    if (parallel_ && split_reduction(root, chain, chain_vector)) {
      reorder(chain, chain_vector);
      return;
    }
    for (int loop : choice.vectors)
      if (tree_.at(loop).node->reduction) tile_long_reduction(loop);
    if (parallel_ && chain.empty() && divide(root)) return;
    std::vector<Level> levels = outer_levels(chain, chain_vector);
    if (parallel_ && !(costs_.is_static(root) && costs_.work(root) < kSerialWork))
      parallelise(root, levels, chain_vector);
  }

  // A long reduction in pieces, with partial results: a running sum of 2^20 numbers has lost digits.
  void tile_long_reduction(int loop) {
    LoopSchedule& s = entry(var(loop));
    const int64_t piece = kMaxLaneAdditions * s.lanes * s.accumulators;
    const auto extent = tree_.extent(loop);
    // Where the length is not known, sums of one operation have accumulators enough for most lengths.
    const bool may_be_long = extent ? *extent >= 2 * piece : !costs_.simple_merge(loop);
    if (!may_be_long || s.tile != 0) return;
    s.tile = piece;
    for (std::vector<std::string>& order : out_.order)
      if (order.back() == var(loop)) order.insert(order.end() - 1, var(loop) + "_tile");
  }

  // A nest whose outermost loop must run in order, divided by the rows that it writes.
  bool divide(int root) {
    const double total = costs_.work(root), threads = target_.threads;
    if (tree_.at(root).node->reduction || threads < 2 || total < kSerialWork) return false;
    for (const LoopTree::Access& access : tree_.accesses()) {
      if (!access.is_store || access.loop < 0 || !tree_.encloses(root, access.loop)) continue;
      for (const LoopTree::IndirectIndex& row : access.indirect) {
        if (row.loop < 0 || !tree_.encloses(root, row.loop)) continue;
        double passes = kOwnershipTestCost;
        for (int l = row.loop;; l = tree_.at(l).parent) {
          passes *= costs_.trips(l);
          if (l == root) break;
        }
        if (passes + total / threads > 0.75 * total || !tree_.divisible(root, row.name)) continue;
        const auto weight = LoopTree::stride(access.symbolic, row.name);
        const auto elements = weight ? as_const_int(*weight) : std::nullopt;
        const int64_t bytes =
            std::max<int64_t>(elements.value_or(kMinOwnedBytes), 1) * itemsize(access.dtype);
        out_.owners.push_back(
            {.loop = var(root),
             .row = row.name,
             .block = static_cast<int64_t>(
                 std::bit_ceil(static_cast<uint64_t>((kMinOwnedBytes + bytes - 1) / bytes))),
             .parts = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(target_.threads)))});
        return true;
      }
    }
    return false;
  }

  // A reduction over several loops runs its contiguous one innermost, keeping the vector of partial results
  // across the others.
  void innermost_reduction(int loop) {
    int top = loop;
    while (tree_.at(top).parent >= 0 && tree_.at(tree_.at(top).parent).children.size() == 1 &&
           tree_.at(tree_.at(top).parent).node->body->stmts.size() == 1 &&
           passes_through(*tree_.at(tree_.at(top).parent).node, *tree_.at(top).node))
      top = tree_.at(top).parent;
    const std::vector<For> levels = perfect_levels(*tree_.at(top).node);
    if (!levels[0].reduction || levels.size() < 2 || levels.back().var == var(loop)) return;
    std::set<std::string> vars;
    for (const For& level : levels) vars.insert(level.var);
    for (const For& level : levels)
      for (const Expr& bound : {level.begin, level.end})
        for (const std::string& v : free_vars(bound))
          if (vars.count(v) > 0) return;
    std::vector<std::string> order;
    for (const For& level : levels)
      if (level.var != var(loop)) order.push_back(level.var);
    order.push_back(var(loop));
    out_.order.push_back(std::move(order));
  }

  struct Level {
    std::string name;
    double trips = 0;
    bool is_constant = false;
  };

  void reorder(const std::vector<int>& chain, int vector) {
    if (vector < 0 || chain.back() == vector) return;
    std::vector<std::string> order;
    for (int loop : chain)
      if (loop != vector) order.push_back(var(loop));
    order.push_back(var(vector));
    out_.order.push_back(std::move(order));
  }

  // Another loop of the chain along which some access is contiguous that is not along the vector loop: a
  // transposition.
  int transposed_loop(const std::vector<int>& chain, int vector) const {
    if (vector < 0) return -1;
    for (int loop : chain) {
      if (loop == vector) continue;
      bool found = false;
      costs_.for_each_below(chain.back(), [&](int l) {
        for (int a : tree_.at(l).accesses) {
          const Expr& index = tree_.accesses()[a].index;
          const auto along = LoopTree::stride(index, var(loop)),
                     across = LoopTree::stride(index, var(vector));
          if (!along || !across || as_const_int(*along) != 1) continue;
          const auto c = as_const_int(*across);
          found |= !c || (*c != 0 && *c != 1);
        }
      });
      if (found) return loop;
    }
    return -1;
  }

  // The loops around the vector loop in their final order, tiles included; writes the order down where it
  // changes.
  std::vector<Level> outer_levels(const std::vector<int>& chain, int vector) {
    std::vector<Level> levels;
    for (int loop : chain)
      if (loop != vector) levels.push_back({var(loop), costs_.trips(loop), tree_.extent(loop).has_value()});
    const int across = transposed_loop(chain, vector);
    if (across >= 0) {
      // One cache line of the strided access along `across`, reused for every line the vector loop touches;
      // of more than the caches hold, several lines, which the hardware prefetches.
      double bytes = 8;
      costs_.for_each_below(chain.back(), [&](int l) {
        for (int a : tree_.at(l).accesses)
          bytes = std::min(bytes, static_cast<double>(itemsize(tree_.accesses()[a].dtype)));
      });
      double footprint = bytes;
      for (int loop : chain) footprint *= costs_.trips(loop);
      const bool cached = 2 * footprint <= static_cast<double>(target_.l3_bytes);
      const int64_t wide = bytes == 2 ? 128 : 64;
      const int64_t line = cached ? kCacheLine / static_cast<int64_t>(bytes) : wide;
      const int64_t run = std::max<int64_t>(cached ? 64 : wide, entry(var(vector)).lanes);
      if (costs_.trips(across) > static_cast<double>(line) &&
          costs_.trips(vector) > static_cast<double>(run)) {
        entry(var(across)).tile = line;
        entry(var(vector)).tile = run;
        const auto tile_level = [&](int loop, int64_t size) {
          return Level{var(loop) + "_tile", std::ceil(costs_.trips(loop) / static_cast<double>(size)),
                       tree_.extent(loop).has_value()};
        };
        std::vector<std::string> order;
        std::erase_if(levels, [&](const Level& l) { return l.name == var(across); });
        // The next tile lies in the pages of this one, unless that leaves too little to share out.
        levels.push_back(tile_level(vector, run));
        levels.push_back(tile_level(across, line));
        if (levels.end()[-2].trips < 4.0 * target_.threads) std::swap(levels.end()[-2], levels.end()[-1]);
        for (const Level& l : levels) order.push_back(l.name);
        order.insert(order.end(), {var(across), var(vector)});
        out_.order.push_back(std::move(order));
        return levels;
      }
    }
    reorder(chain, vector);
    return levels;
  }

  void parallelise(int root, std::vector<Level> levels, int vector) {
    const double total = costs_.work(root), min_iterations = 4.0 * std::max(target_.threads, 1);
    double available = 1;
    for (const Level& l : levels) available *= l.is_constant ? l.trips : kAssumedMinExtent;
    // Too few iterations around a long vector loop: cut it as well.
    if (vector >= 0 && entry(var(vector)).tile == 0 && available < min_iterations) {
      const LoopSchedule& s = entry(var(vector));
      const double per_element = total / costs_.trips(vector) / std::max(1.0, levels_product(levels));
      const int64_t step = static_cast<int64_t>(s.lanes) * s.accumulators;
      int64_t size = static_cast<int64_t>(kGrainWork / 2 / std::max(per_element, 1.0)) / step * step;
      size = std::max(size, step);
      if (!tree_.extent(vector) || *tree_.extent(vector) >= 2 * size) {
        entry(var(vector)).tile = size;
        levels.push_back({var(vector) + "_tile", std::ceil(costs_.trips(vector) / static_cast<double>(size)),
                          tree_.extent(vector).has_value()});
        // A nest that was reordered for this loop has its tiles around it too.
        for (std::vector<std::string>& order : out_.order)
          if (order.back() == var(vector)) order.insert(order.end() - 1, levels.back().name);
      }
    }
    if (levels.empty()) return;
    size_t count = 0;
    double iterations = 1, certain = 1;
    while (count < levels.size() && (count == 0 || certain < min_iterations)) {
      iterations *= levels[count].trips;
      certain *= levels[count].is_constant ? levels[count].trips : kAssumedMinExtent;
      ++count;
    }
    std::string name = levels[0].name;
    if (count > 1) {
      std::vector<std::string>& fused = out_.fuse.emplace_back();
      for (size_t i = 0; i < count; ++i) fused.push_back(levels[i].name);
      name += "_fused";
    }
    LoopSchedule& s = entry(name);
    s.kind = ForKind::kParallel;
    s.grain = static_cast<int64_t>(std::max(1.0, std::ceil(kGrainWork / std::max(total / iterations, 1.0))));
  }

  static double levels_product(const std::vector<Level>& levels) {
    double product = 1;
    for (const Level& l : levels) product *= l.trips;
    return product;
  }

  // ---- two stages ----

  // What tile_reduction can cut: results first, each a pure reduction, then whatever uses them.
  std::vector<int> leading_reductions(const Block& body, const std::vector<int>& loops) const {
    std::vector<int> found;
    size_t next = 0;
    for (const Stmt& stmt : body->stmts) {
      if (std::holds_alternative<Let>(stmt)) continue;
      const auto* loop = std::get_if<For>(&stmt);
      if (!loop || !loop->reduction || next >= loops.size()) break;
      bool pure = true;
      costs_.for_each_below(loops[next], [&](int l) {
        for (int a : tree_.at(l).accesses) pure &= !tree_.accesses()[a].is_store;
      });
      if (!pure) break;
      found.push_back(loops[next++]);
    }
    for (size_t i = next; i < loops.size(); ++i)
      if (tree_.at(loops[i]).node->reduction) return {};
    return found;
  }

  // Does the one reduction in the chain read a matrix that L2 does not hold down its columns, a piece of each
  // row at a time? In two stages it is read row by row (see tile_reduction). Zen 3, one row by 768 x 768 f32:
  // 113 -> 75 us from memory, 60 -> 47 from L3; sums of 1024 x 512 24 -> 17.
  bool strides_through_memory(const std::vector<int>& chain, int chain_vector) const {
    constexpr int64_t kMinRowStride = 1024;
    if (chain.size() != 1 || chain[0] != chain_vector || tree_.at(chain[0]).children.size() != 1)
      return false;
    const int reduced = tree_.at(chain[0]).children[0];
    if (!tree_.at(reduced).node->reduction || !costs_.is_static(chain[0])) return false;
    bool found = false;
    for (int a : tree_.at(reduced).accesses) {
      const LoopTree::Access& access = tree_.accesses()[a];
      const auto apart = LoopTree::constant_stride(access.index, var(reduced));
      const int64_t item = itemsize(access.dtype);
      found |= LoopTree::constant_stride(access.index, var(chain_vector)) == 1 && apart &&
               *apart * item >= kMinRowStride &&
               costs_.trips(reduced) * static_cast<double>(*apart * item) > target_.l2_bytes;
    }
    return found;
  }

  bool split_reduction(int root, const std::vector<int>& chain, int chain_vector) {
    std::vector<int> reductions;
    if (chain.empty()) {
      if (!tree_.at(root).node->reduction || !tree_.reorderable(root)) return false;
      reductions = {root};
    } else {
      double blocks = 1;
      bool symbolic = false;
      for (int loop : chain) {
        symbolic |= !tree_.extent(loop);
        const double width =
            loop == chain_vector ? entry(var(loop)).lanes * entry(var(loop)).accumulators : 1;
        blocks *= std::ceil(costs_.trips(loop) / width);
      }
      // Down the columns of a long matrix, chunks of rows also keep the pages touched few.
      const bool long_columns = chain_vector >= 0 && tree_.at(chain.back()).children.size() > 0 &&
                                costs_.trips(tree_.at(chain.back()).children[0]) >= kMinSplitRows;
      if (blocks >= kMinColumnBlocks && !long_columns && !strides_through_memory(chain, chain_vector))
        return false;
      const std::vector<int>& inner = tree_.at(chain.back()).children;
      reductions = leading_reductions(tree_.at(chain.back()).node->body, inner);
      // What follows runs on one thread: with as many results as it may be, that is too dear.
      if (symbolic && reductions.size() != inner.size()) return false;
    }
    double around = 1;
    for (int loop : chain) around *= costs_.trips(loop);
    // Chunks go around the loops of the chain: their number must be known there.
    for (int r : reductions)
      for (const std::string& name : free_vars(tree_.at(r).extent))
        if (!chain.empty() && symbols_.count(name) == 0) return false;
    bool any = false;
    for (int r : reductions) any |= !costs_.is_static(r) || costs_.work(r) * around >= kSplitWork;
    if (!any) return false;
    const int64_t most = chain.empty() ? kMaxChunks : kMaxColumnChunks;
    for (int r : reductions) {
      const double each = std::max(costs_.work(r) * around / costs_.trips(r), 1.0);
      int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(kChunkWork / each));
      if (const auto extent = tree_.extent(r)) chunk = std::max(chunk, divided_up(*extent, most));
      if (around >= kChunkRows) chunk = std::clamp(chunk, kChunkRows, kMaxChunkRows);
      LoopSchedule& s = entry(var(r));
      if (s.kind == ForKind::kVector) {
        const int64_t step = static_cast<int64_t>(s.lanes) * s.accumulators;
        chunk = divided_up(chunk, step) * step;
      }
      s.tile = chunk;
      LoopSchedule& outer = entry(var(r) + "_tile");
      outer.kind = ForKind::kParallel;
      outer.grain = 1;
    }
    return true;
  }

  const LoopTree tree_;
  const Target& target_;
  const LoopCosts costs_;
  const bool parallel_;
  const std::set<std::string> symbols_;
  Schedule out_;
};

}  // namespace

Schedule choose_schedule(const Function& f, const Target& target, bool parallel) {
  return Chooser(f, target, parallel).run();
}

}  // namespace ipex::loop
