// Lifetimes of buffers, and the placement of temporaries in the arena: largest first, each at the lowest
// offset that is free during its whole lifetime. Large temporaries may be allocated separately.
#include <algorithm>
#include <numeric>

#include "runtime/alignment.h"
#include "runtime/error.h"
#include "runtime/executable.h"

namespace ipex {
namespace {

struct Placed {
  int64_t begin, end;
  int first, last;
};

}  // namespace

MemoryPlan plan_arena(std::span<const Lifetime> lifetimes, std::span<const int64_t> bytes, int buffer_count,
                      const std::function<bool(const Lifetime&)>& has_own_block) {
  MemoryPlan plan;
  plan.offsets.assign(buffer_count, -1);

  // A chain of in-place buffers is one block, live from the first step of its first buffer to the last step
  // of its last.
  std::vector<int> index_of(buffer_count, -1);
  for (size_t i = 0; i < lifetimes.size(); ++i) index_of[lifetimes[i].buffer] = static_cast<int>(i);
  std::vector<int> block(lifetimes.size());
  std::vector<Lifetime> blocks(lifetimes.begin(), lifetimes.end());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& life = lifetimes[i];
    IPEX_CHECK(life.buffer >= 0 && life.buffer < buffer_count && life.first_step <= life.last_step,
               "bad lifetime");
    plan.naive_bytes += bytes[life.buffer];
    block[i] = static_cast<int>(i);
    if (life.in_place_of < 0) continue;
    const int source = index_of[life.in_place_of];
    if (source < 0 || source >= static_cast<int>(i) || bytes[life.in_place_of] != bytes[life.buffer])
      continue;
    block[i] = block[source];
    blocks[block[i]].last_step = std::max(blocks[block[i]].last_step, life.last_step);
  }

  std::vector<int> order;
  std::vector<int> own(lifetimes.size(), -1);  // in plan.blocks
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (block[i] != static_cast<int>(i)) continue;
    if (has_own_block && has_own_block(lifetimes[i])) {
      own[i] = static_cast<int>(plan.blocks.size());
      plan.blocks.push_back({bytes[lifetimes[i].buffer], blocks[i].first_step, blocks[i].last_step, {}});
    } else {
      order.push_back(static_cast<int>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return bytes[blocks[a].buffer] > bytes[blocks[b].buffer]; });

  std::vector<Placed> placed;  // sorted by begin
  std::vector<int64_t> block_offset(lifetimes.size(), 0);
  for (int i : order) {
    const Lifetime& life = blocks[i];
    const int64_t size = aligned(std::max<int64_t>(bytes[life.buffer], 1));
    int64_t offset = 0;
    for (const Placed& other : placed) {
      if (other.last < life.first_step || life.last_step < other.first) continue;
      if (other.begin >= offset + size) break;
      offset = std::max(offset, other.end);
    }
    const Placed mine{offset, offset + size, life.first_step, life.last_step};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine,
                                   [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                  mine);
    block_offset[i] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, mine.end);
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (const int mine = own[block[i]]; mine >= 0)
      plan.blocks[mine].buffers.push_back(lifetimes[i].buffer);
    else
      plan.offsets[lifetimes[i].buffer] = block_offset[block[i]];
  }
  std::ranges::stable_sort(plan.blocks, {}, &MemoryPlan::Block::first_step);
  plan.ends.resize(plan.blocks.size());
  std::iota(plan.ends.begin(), plan.ends.end(), 0);
  std::ranges::stable_sort(plan.ends, {}, [&](int i) { return plan.blocks[i].last_step; });
  return plan;
}

int64_t MemoryPlan::peak_bytes() const {
  int64_t alive = 0, peak = 0;
  auto end = ends.begin();
  for (const Block& block : blocks) {
    for (; blocks[*end].last_step < block.first_step; ++end) alive -= blocks[*end].bytes;
    peak = std::max(peak, alive += block.bytes);
  }
  return arena_bytes + peak;
}

std::vector<Lifetime> lifetimes(std::span<const BufferInfo> buffers,
                                std::span<const std::unique_ptr<Step>> steps, std::span<const int> in_place) {
  std::vector<Lifetime> by_buffer(buffers.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    const int step = static_cast<int>(s);
    auto touch = [&](int buffer) {
      Lifetime& life = by_buffer[buffer];
      if (life.buffer < 0) life = {buffer, step, step};
      life.last_step = step;
    };
    for (int buffer : steps[s]->reads) touch(buffer);
    for (int buffer : steps[s]->writes) touch(buffer);
  }
  std::vector<Lifetime> out;
  for (Lifetime life : by_buffer) {
    if (life.buffer < 0) continue;
    const BufferKind kind = buffers[life.buffer].kind;
    if (kind != BufferKind::kTemporary && kind != BufferKind::kProvided) continue;
    const int source = in_place[life.buffer];
    if (source >= 0 && buffers[source].kind == BufferKind::kTemporary && kind == BufferKind::kTemporary &&
        by_buffer[source].last_step == life.first_step)
      life.in_place_of = source;
    out.push_back(life);
  }
  // Sort a buffer after the one whose memory it takes over.
  std::stable_sort(out.begin(), out.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.first_step < b.first_step; });
  return out;
}

}  // namespace ipex
