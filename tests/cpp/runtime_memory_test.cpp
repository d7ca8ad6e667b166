// The caching allocator and the placement of temporaries: alignment, reuse, and no overlap of live memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "runtime/abi.h"
#include "runtime/arena.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/executable.h"
#include "runtime/page_heap.h"

namespace ipex {
namespace {

CachingAllocator& allocator() { return CachingAllocator::instance(); }

TEST(Allocator, AlignedAndWritable) {
  for (size_t bytes : {0, 1, 63, 64, 65, 255, 256, 257, 320, 321, 4096, 5000, 1 << 20, (1 << 20) + 1}) {
    CachedBlock block = allocate_block(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u) << bytes;
    std::memset(block.get(), 0xab, bytes);
  }
  allocator().deallocate(nullptr);
}

TEST(Allocator, ReusesWhatIsFreed) {
  allocator().trim();
  void* first = allocator().allocate(100'000);
  allocator().deallocate(first);
  EXPECT_EQ(allocator().allocate(100'000), first);
  EXPECT_EQ(allocator().cached_bytes(), 0u);
  allocator().deallocate(first);
  EXPECT_GE(allocator().cached_bytes(), 100'000u);
  allocator().trim();
  EXPECT_EQ(allocator().cached_bytes(), 0u);
}

TEST(Allocator, PoisonsWhatItGives) {
  if (!env::flag("IPEX_POISON")) GTEST_SKIP() << "needs IPEX_POISON=1, which ctest sets";
  for (int round = 0; round < 2; ++round) {
    const CachedBlock block = allocate_block(4000);
    const std::span<float> numbers(static_cast<float*>(block.get()), 1000);
    EXPECT_TRUE(std::ranges::all_of(numbers, [](float x) { return std::isnan(x); }));
    std::ranges::fill(numbers, 0.0f);
  }
}

TEST(Allocator, LiveBytesAreExactAtRest) {
  const size_t before = allocator().live_bytes();
  {
    CachedBlock a = allocate_block(1000), b = allocate_block(3'000'000);
    EXPECT_GE(allocator().live_bytes(), before + 3'001'000);
    EXPECT_LE(allocator().live_bytes(), before + 3'001'000 * 5 / 4 + 1024) << "at most a quarter is wasted";
  }
  EXPECT_EQ(allocator().live_bytes(), before);
}

// The bytes that may be cached above the high-water mark.
size_t slack(size_t high_water) { return std::max(size_t{8} << 20, high_water / 16); }

TEST(Allocator, KeepsLittleMoreThanTheHighWaterMark) {
  allocator().trim();
  const size_t base = allocator().live_bytes();
  size_t peak = 0;
  for (int round = 0; round < 20; ++round) {  // always other sizes: a naive cache would grow without bound
    std::vector<CachedBlock> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(allocate_block(10'000'000 + round * 3'700'000));
    peak = std::max(peak, allocator().live_bytes() - base);
    EXPECT_LE(allocator().live_bytes() - base + allocator().cached_bytes(), peak + slack(peak));
  }
  allocator().trim();
}

// Adjacent free blocks are merged, and a smaller block uses a part of them.
TEST(Pages, NeighboursJoin) {
  constexpr size_t kPage = PageHeap::kHugePage / 8;
  PageHeap heap;
  EXPECT_EQ(heap.take(kPage), nullptr);
  char* whole = static_cast<char*>(heap.map(7 * kPage));
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(whole) % PageHeap::kHugePage, 0u);
  EXPECT_EQ(heap.take(kPage), whole + 7 * kPage) << "what is over of a huge page";
  heap.release(whole + 4 * kPage, 4 * kPage);
  heap.release(whole, 2 * kPage);
  EXPECT_EQ(heap.take(5 * kPage), nullptr);
  EXPECT_EQ(heap.take(kPage), whole) << "the smallest range that fits";
  heap.release(whole, kPage);
  heap.release(whole + 2 * kPage, 2 * kPage);
  EXPECT_EQ(heap.free_bytes(), 8 * kPage);
  EXPECT_EQ(heap.take(8 * kPage), whole);
  heap.release(whole, 8 * kPage);
  heap.unmap(3 * kPage);
  EXPECT_EQ(heap.take(5 * kPage), whole);
  heap.release(whole, 5 * kPage);
  heap.unmap(5 * kPage);
  EXPECT_EQ(heap.free_bytes(), 0u);
}

// Adjacent mappings are merged too.
TEST(Pages, MappingsJoin) {
  constexpr size_t kBytes = 8 * PageHeap::kHugePage;
  PageHeap heap;
  char *a = static_cast<char*>(heap.map(kBytes)), *b = static_cast<char*>(heap.map(kBytes));
  ASSERT_TRUE(a && b);
  heap.release(a, kBytes);
  heap.release(b, kBytes);
  if (a + kBytes != b && b + kBytes != a) GTEST_SKIP() << "the system put them apart";
  EXPECT_EQ(heap.take(2 * kBytes), std::min(a, b));
  heap.release(std::min(a, b), 2 * kBytes);
  heap.unmap(2 * kBytes);
}

// Blocks of many sizes are allocated and freed. None overlap, and memory is reused for other sizes.
TEST(Allocator, LargeBlocksShareTheirPages) {
  allocator().trim();
  const size_t base = allocator().live_bytes();
  std::mt19937 random(3);
  struct Block {
    CachedBlock memory;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  const auto intact = [](const Block& b) {
    const auto* bytes = static_cast<const unsigned char*>(b.memory.get());
    return std::all_of(bytes, bytes + b.bytes, [&](unsigned char c) { return c == b.mark; });
  };
  size_t most_live = 0;
  for (int round = 0; round < 600; ++round) {
    if (blocks.size() < 8 || random() % 2 == 0) {
      const size_t bytes = (1 << 20) + random() % (3 << 20);
      const auto mark = static_cast<unsigned char>(round);
      blocks.push_back({allocate_block(bytes), bytes, mark});
      std::memset(blocks.back().memory.get(), mark, bytes);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      ASSERT_TRUE(intact(blocks.back()));
      blocks.pop_back();
    }
    most_live = std::max(most_live, allocator().live_bytes() - base);
    ASSERT_LE(allocator().live_bytes() - base + allocator().cached_bytes(), most_live + slack(most_live));
  }
  for (const Block& b : blocks) ASSERT_TRUE(intact(b));
  blocks.clear();
  EXPECT_EQ(allocator().live_bytes(), base);
  void* last = allocator().allocate(most_live / 4);  // larger than any of them
  allocator().deallocate(last);
  EXPECT_LE(allocator().cached_bytes(), most_live + slack(most_live));
  allocator().trim();
}

// At the high-water mark, a large block is still available as a whole, whatever small blocks are allocated in
// between.
TEST(Allocator, SmallBlocksCostNoLargeOne) {
  allocator().trim();
  constexpr size_t kLarge = 32 << 20;
  const CachedBlock other = allocate_block(kLarge);
  CachedBlock large = allocate_block(kLarge);
  const void* place = large.get();
  for (size_t bytes = 1000; bytes < (1 << 20); bytes *= 2) {
    large.reset();
    const CachedBlock small = allocate_block(bytes);
    large = allocate_block(kLarge);
    ASSERT_EQ(large.get(), place) << bytes;
  }
}

TEST(Allocator, RefusalLeavesItAsItWas) {
  allocator().trim();
  const size_t before = allocator().live_bytes();
  for (size_t bytes : {size_t{1} << 46, size_t{1} << 47, (size_t{1} << 47) + 1, SIZE_MAX}) {
    try {
      CachedBlock block = allocate_block(bytes);
      ADD_FAILURE() << bytes << " bytes were given";
    } catch (const OutOfMemory& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos) << error.what();
    }
    EXPECT_EQ(allocator().live_bytes(), before);
  }
  allocate_block(32 << 20);  // cached, then freed for a block that exceeds the high-water mark
  allocate_block(128 << 20);
  EXPECT_LE(allocator().cached_bytes() + allocator().live_bytes(), before + (136 << 20))
      << "a mark never reached";
}

TEST(Allocator, FromSeveralThreads) {
  const size_t before = allocator().live_bytes();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::mt19937 generator(t);
      std::vector<std::pair<CachedBlock, size_t>> held;
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = generator() % 5000 + 1;
        CachedBlock block = allocate_block(bytes);
        std::memset(block.get(), t, bytes);
        held.emplace_back(std::move(block), bytes);
        if (held.size() < 16) continue;
        const auto& [oldest, size] = held.front();
        const char* data = static_cast<const char*>(oldest.get());
        ASSERT_TRUE(std::all_of(data, data + size, [&](char c) { return c == t; }));
        held.erase(held.begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator().live_bytes(), before);
}

TEST(Allocator, ScratchOfKernels) {
  void* outer = ipex_scratch_acquire(0);
  void* inner = ipex_scratch_acquire(1000);
  EXPECT_NE(outer, nullptr);
  EXPECT_NE(outer, inner);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(inner) % 64, 0u);
  ipex_scratch_release(inner);
  ipex_scratch_release(outer);
}

TEST(PlanArena, Empty) {
  const MemoryPlan plan = plan_arena({}, {}, 3);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{-1, -1, -1}));
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(PlanArena, ReusesMemoryOfTheDead) {
  const std::vector<Lifetime> lives = {{0, 0, 1}, {1, 1, 2}, {2, 2, 3}};
  const std::vector<int64_t> bytes = {1000, 1000, 1000};
  const MemoryPlan plan = plan_arena(lives, bytes, 3);
  EXPECT_EQ(plan.naive_bytes, 3000);
  EXPECT_EQ(plan.arena_bytes, 2 * 1024);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(PlanArena, BlocksOfTheirOwn) {
  // The second buffer reuses the first in place; the last one is small.
  const std::vector<Lifetime> lives = {{0, 0, 1}, {1, 1, 3, 0}, {2, 2, 5}, {3, 4, 6}, {4, 4, 6}};
  const std::vector<int64_t> bytes = {4096, 4096, 8192, 6144, 512};
  const MemoryPlan plan =
      plan_arena(lives, bytes, 5, [&](const Lifetime& life) { return bytes[life.buffer] >= 4096; });
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{-1, -1, -1, -1, 0}));
  EXPECT_EQ(plan.arena_bytes, 512);
  ASSERT_EQ(plan.blocks.size(), 3u);
  EXPECT_EQ(plan.blocks[0].buffers, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan.blocks[0].first_step, 0);
  EXPECT_EQ(plan.blocks[0].last_step, 3);
  EXPECT_EQ(plan.blocks[1].bytes, 8192);
  EXPECT_EQ(plan.ends, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(plan.peak_bytes(), 512 + 8192 + 6144) << "the first is gone when the last comes";
}

TEST(PlanArena, FillsGaps) {
  // A small buffer fits between two large ones that outlive a third.
  const std::vector<Lifetime> lives = {{0, 0, 9}, {1, 0, 1}, {2, 0, 9}, {3, 2, 9}};
  const std::vector<int64_t> bytes = {4096, 2048, 1024, 512};
  const MemoryPlan plan = plan_arena(lives, bytes, 4);
  EXPECT_EQ(plan.offsets[3], plan.offsets[1]);
  EXPECT_EQ(plan.arena_bytes, 4096 + 2048 + 1024);
}

TEST(PlanArena, EmptyBuffersStillGetMemory) {
  const std::vector<Lifetime> lives = {{0, 0, 0}};
  const std::vector<int64_t> bytes = {0};
  const MemoryPlan plan = plan_arena(lives, bytes, 1);
  EXPECT_EQ(plan.offsets[0], 0);
  EXPECT_EQ(plan.naive_bytes, 0);
}

TEST(PlanArena, InPlaceChains) {
  const std::vector<Lifetime> lives = {{0, 0, 1}, {1, 1, 2, 0}, {2, 2, 3, 1}, {3, 1, 3}};
  const std::vector<int64_t> bytes = {256, 256, 256, 256};
  const MemoryPlan plan = plan_arena(lives, bytes, 4);
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.offsets[1], plan.offsets[2]);
  EXPECT_NE(plan.offsets[3], plan.offsets[0]);
  EXPECT_EQ(plan.arena_bytes, 512);
}

TEST(PlanArena, InPlaceOfOtherSizeIsNot) {
  const std::vector<Lifetime> lives = {{0, 0, 1}, {1, 1, 2, 0}};
  const std::vector<int64_t> bytes = {256, 512};
  const MemoryPlan plan = plan_arena(lives, bytes, 2);
  EXPECT_GE(std::abs(plan.offsets[0] - plan.offsets[1]), 256);
}

TEST(PlanArena, NothingAliveIsOverlaid) {
  std::mt19937 generator(7);
  for (int round = 0; round < 200; ++round) {
    const int count = 1 + static_cast<int>(generator() % 40);
    std::vector<Lifetime> lives;
    std::vector<int64_t> bytes;
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(generator() % 20);
      lives.push_back({i, first, first + static_cast<int>(generator() % 6)});
      bytes.push_back(static_cast<int64_t>(generator() % 10'000));
    }
    const MemoryPlan plan = plan_arena(lives, bytes, count);
    int64_t naive = 0, most = 0;
    for (int i = 0; i < count; ++i) {
      naive += bytes[i];
      ASSERT_EQ(plan.offsets[i] % 64, 0);
      ASSERT_LE(plan.offsets[i] + bytes[i], plan.arena_bytes);
      most += (std::max<int64_t>(bytes[i], 1) + 63) / 64 * 64;
      for (int j = 0; j < i; ++j) {
        if (lives[i].last_step < lives[j].first_step || lives[j].last_step < lives[i].first_step) continue;
        ASSERT_TRUE(plan.offsets[i] + bytes[i] <= plan.offsets[j] ||
                    plan.offsets[j] + bytes[j] <= plan.offsets[i])
            << "round " << round << ": buffers " << i << " and " << j;
      }
    }
    EXPECT_EQ(plan.naive_bytes, naive);
    EXPECT_LE(plan.arena_bytes, most);
  }
}

}  // namespace
}  // namespace ipex
