// choose_schedule: decides how each nest of a function runs. The same nest and target always give the same
// schedule.
//
// One cost model (loop_costs.h) decides. The vector loops are those with which the nest costs least. An outer
// loop may win over the reduction inside it: sums down columns keep a vector of columns. The outermost loop
// that is proved independent runs in parallel, unless the whole nest takes less time than waking threads. A
// reduction with too few iterations around it to keep all threads busy is split into chunks of a fixed size,
// so that results do not depend on the number of threads. The same holds for a nest that writes to rows given
// by data: each row has one owner, which writes it in the order of the nest.
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

constexpr double kAssumedMinExtent = 4;      // of a symbolic loop; assuming more could leave threads idle
constexpr int64_t kMaxChunks = 1024;         // of a reduction of constant length; bounds the serial merge
constexpr int64_t kMaxColumnChunks = 64;     // the same, if each chunk leaves a few partial results
constexpr int64_t kMaxLaneAdditions = 4096;  // to one partial result; with more, last digits are lost
constexpr double kMinSplitRows = 2048;       // the merge of the chunks then takes a few percent of the time
// Chunks of rows with many results each. The merge then reads at most 1/64 of what the first stage reads, and
// no sum is so long that it loses digits.
constexpr int64_t kChunkRows = 64, kMaxChunkRows = 256;
constexpr double kMinColumnBlocks = 16;  // so many vectors of results keep the threads busy without splitting
constexpr int64_t kMinOwnedBytes = 256;  // contiguous memory of an owner: threads share no cache line

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

  // The independent loops from the root down, each of which contains nothing but the next.
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
    int chain_vector = -1;  // the vector loop, if it is part of the chain
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
    if (parallel_ && !(costs_.is_static(root) && costs_.work(root) < target_.costs.serial_work))
      parallelise(root, levels, chain_vector);
  }

  // Tiles a long reduction, so that it has several partial results: a running sum of 2^20 numbers loses
  // digits.
  void tile_long_reduction(int loop) {
    LoopSchedule& s = entry(var(loop));
    const int64_t tile_size = kMaxLaneAdditions * s.lanes * s.accumulators;
    const auto extent = tree_.extent(loop);
    // A sum of unknown length with a simple merge already has enough accumulators for most lengths.
    const bool may_be_long = extent ? *extent >= 2 * tile_size : !costs_.simple_merge(loop);
    if (!may_be_long || s.tile != 0) return;
    s.tile = tile_size;
    for (std::vector<std::string>& order : out_.order)
      if (order.back() == var(loop)) order.insert(order.end() - 1, var(loop) + "_tile");
  }

  // Divides a nest whose outermost loop is serial by the rows that it writes.
  bool divide(int root) {
    const double total = costs_.work(root), threads = target_.threads;
    if (tree_.at(root).node->reduction || threads < 2 || total < target_.costs.serial_work) return false;
    for (const LoopTree::Access& access : tree_.accesses()) {
      if (!access.is_store || access.loop < 0 || !tree_.encloses(root, access.loop)) continue;
      for (const LoopTree::IndirectIndex& row : access.indirect) {
        if (row.loop < 0 || !tree_.encloses(root, row.loop)) continue;
        double passes = target_.costs.ownership_test;
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

  // A reduction over several loops runs the contiguous one innermost and keeps the vector of partial results
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

  // Another loop of the chain along which some access is contiguous, though it is not contiguous along the
  // vector loop: the nest transposes.
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

  // The loops around the vector loop in their final order, tiles included. Adds the order to the schedule if
  // it changes.
  std::vector<Level> outer_levels(const std::vector<int>& chain, int vector) {
    std::vector<Level> levels;
    for (int loop : chain)
      if (loop != vector) levels.push_back({var(loop), costs_.trips(loop), tree_.extent(loop).has_value()});
    const int across = transposed_loop(chain, vector);
    if (across >= 0) {
      // A tile spans one cache line of the strided access along `across`, which is reused for every line that
      // the vector loop touches. If the caches do not hold the data, it spans several lines, which the
      // hardware prefetches.
      double bytes = 8;
      costs_.for_each_below(chain.back(), [&](int l) {
        for (int a : tree_.at(l).accesses)
          bytes = std::min(bytes, static_cast<double>(itemsize(tree_.accesses()[a].dtype)));
      });
      double footprint = bytes;
      for (int loop : chain) footprint *= costs_.trips(loop);
      const bool cached = 2 * footprint <= static_cast<double>(target_.l3_bytes);
      const int64_t wide = bytes == 2 ? target_.transposed_line_halves : target_.transposed_line;
      const int64_t line = cached ? kCacheLine / static_cast<int64_t>(bytes) : wide;
      const int64_t run =
          std::max<int64_t>(cached ? target_.transposed_line : wide, entry(var(vector)).lanes);
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
        // The next tile lies in the same pages as this one, unless that leaves too few iterations to
        // distribute.
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
    // If there are too few iterations around a long vector loop, it is tiled as well.
    if (vector >= 0 && entry(var(vector)).tile == 0 && available < min_iterations) {
      const LoopSchedule& s = entry(var(vector));
      const double per_element = total / costs_.trips(vector) / std::max(1.0, levels_product(levels));
      const int64_t step = static_cast<int64_t>(s.lanes) * s.accumulators;
      int64_t size =
          static_cast<int64_t>(target_.costs.grain_work / 2 / std::max(per_element, 1.0)) / step * step;
      size = std::max(size, step);
      if (!tree_.extent(vector) || *tree_.extent(vector) >= 2 * size) {
        entry(var(vector)).tile = size;
        levels.push_back({var(vector) + "_tile", std::ceil(costs_.trips(vector) / static_cast<double>(size)),
                          tree_.extent(vector).has_value()});
        // In a nest that was reordered for this loop, its tiles go around it too.
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
    s.grain = static_cast<int64_t>(
        std::max(1.0, std::ceil(target_.costs.grain_work / std::max(total / iterations, 1.0))));
  }

  static double levels_product(const std::vector<Level>& levels) {
    double product = 1;
    for (const Level& l : levels) product *= l.trips;
    return product;
  }

  // ---- two stages ----

  // The reductions that tile_reduction can split. They come first in the body, and each is a pure reduction.
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

  // Whether the only reduction in the chain reads a matrix that does not fit into L2 down its columns, part
  // of a row at a time. In two stages, the matrix is read row by row (see tile_reduction). Zen 3, one row by
  // 768 x 768 f32: 75 instead of 113 us from memory, 47 instead of 60 us from L3; sums of 1024 x 512: 17
  // instead of 24 us.
  bool strides_through_memory(const std::vector<int>& chain, int chain_vector) const {
    if (chain.size() != 1 || chain[0] != chain_vector || tree_.at(chain[0]).children.size() != 1)
      return false;
    const int reduced = tree_.at(chain[0]).children[0];
    if (!tree_.at(reduced).node->reduction || !costs_.is_static(chain[0])) return false;
    bool found = false;
    for (int a : tree_.at(reduced).accesses) {
      const LoopTree::Access& access = tree_.accesses()[a];
      const auto row_stride = LoopTree::constant_stride(access.index, var(reduced));
      const int64_t item = itemsize(access.dtype);
      found |= LoopTree::constant_stride(access.index, var(chain_vector)) == 1 && row_stride &&
               *row_stride * item >= target_.distant_stride &&
               costs_.trips(reduced) * static_cast<double>(*row_stride * item) > target_.l2_bytes;
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
      // For the columns of a long matrix, chunks of rows also keep the number of touched pages low.
      const bool long_columns = chain_vector >= 0 && !tree_.at(chain.back()).children.empty() &&
                                costs_.trips(tree_.at(chain.back()).children[0]) >= kMinSplitRows;
      if (blocks >= kMinColumnBlocks && !long_columns && !strides_through_memory(chain, chain_vector))
        return false;
      const std::vector<int>& inner = tree_.at(chain.back()).children;
      reductions = leading_reductions(tree_.at(chain.back()).node->body, inner);
      // What follows the reductions runs on one thread, which is too expensive if there may be many results.
      if (symbolic && reductions.size() != inner.size()) return false;
    }
    double around = 1;
    for (int loop : chain) around *= costs_.trips(loop);
    // The chunks are outside the loops of the chain, so their number must be known there.
    for (int r : reductions)
      for (const std::string& name : free_vars(tree_.at(r).extent))
        if (!chain.empty() && symbols_.count(name) == 0) return false;
    bool any = false;
    for (int r : reductions)
      any |= !costs_.is_static(r) || costs_.work(r) * around >= target_.costs.split_work;
    if (!any) return false;
    const int64_t most = chain.empty() ? kMaxChunks : kMaxColumnChunks;
    for (int r : reductions) {
      const double each = std::max(costs_.work(r) * around / costs_.trips(r), 1.0);
      int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(target_.costs.chunk_work / each));
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
