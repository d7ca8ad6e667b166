// Parallel loops: every index runs once, the grain is respected, the thread count is read at each call, and
// index faults are reported only to their own run.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/abi.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

struct Chunk {
  int64_t begin, end, number;
};

class Parallel : public ::testing::Test {
 protected:
  Parallel() : before_(omp_get_max_threads()) {}
  ~Parallel() override { omp_set_num_threads(before_); }

  static std::vector<Chunk> chunks_of(int64_t begin, int64_t end, int64_t grain) {
    struct Log {
      std::mutex mutex;
      std::vector<Chunk> chunks;
    } log;
    parallel_for(
        begin, end, grain,
        [](void* closure, int64_t first, int64_t last, int64_t number) {
          auto& log = *static_cast<Log*>(closure);
          std::lock_guard lock(log.mutex);
          log.chunks.push_back({first, last, number});
        },
        &log);
    std::ranges::sort(log.chunks, {}, &Chunk::begin);
    return log.chunks;
  }

 private:
  int before_;
};

TEST_F(Parallel, EveryIndexOnceInContiguousChunks) {
  for (int threads : {1, 2, 3, 8}) {
    omp_set_num_threads(threads);
    for (int64_t begin : {0, -5, 17})
      for (int64_t count : {1, 2, 3, 7, 8, 100, 1001})
        for (int64_t grain : {0, 1, 3, 64, 5000}) {
          SCOPED_TRACE(::testing::Message() << threads << " threads, " << count << " by " << grain);
          const auto chunks = chunks_of(begin, begin + count, grain);
          ASSERT_FALSE(chunks.empty());
          EXPECT_LE(chunks.size(), static_cast<size_t>(threads));
          EXPECT_EQ(chunks.front().begin, begin);
          EXPECT_EQ(chunks.back().end, begin + count);
          for (size_t i = 0; i < chunks.size(); ++i) {
            EXPECT_EQ(chunks[i].number, static_cast<int64_t>(i));
            EXPECT_LT(chunks[i].begin, chunks[i].end);
            EXPECT_EQ(chunks[i].begin, i > 0 ? chunks[i - 1].end : begin);
            EXPECT_GE(chunks[i].end - chunks[i].begin, chunks.size() > 1 ? grain : 1);
          }
        }
  }
}

TEST_F(Parallel, NothingForAnEmptyRange) {
  EXPECT_TRUE(chunks_of(0, 0, 1).empty());
  EXPECT_TRUE(chunks_of(5, 3, 1).empty());
}

TEST_F(Parallel, ThreadCountIsReadAtEachCall) {
  omp_set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(chunks_of(0, 300, 1).size(), 3u);
  omp_set_num_threads(1);
  EXPECT_EQ(num_threads(), 1);
  EXPECT_EQ(ipex_num_threads(), 1);
  EXPECT_EQ(chunks_of(0, 300, 1).size(), 1u);
}

TEST_F(Parallel, NestedRegionsAreSerial) {
  omp_set_num_threads(2);
  std::atomic<int> inner_chunks{0};
  parallel_for(
      0, 2, 1,
      [](void* closure, int64_t, int64_t, int64_t) {
        EXPECT_EQ(num_threads(), 1);
        ipex_parallel_for(
            0, 100, 1,
            [](void* count, int64_t begin, int64_t end, int64_t number) {
              EXPECT_EQ(begin, 0);
              EXPECT_EQ(end, 100);
              EXPECT_EQ(number, 0);
              ++*static_cast<std::atomic<int>*>(count);
            },
            closure);
      },
      &inner_chunks);
  EXPECT_EQ(inner_chunks, 2);
}

TEST_F(Parallel, TasksAllRunAndTheFirstExceptionComesBack) {
  std::atomic<int64_t> sum{0};
  parallel_tasks(100, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum, 4950);
  parallel_tasks(0, [](int64_t) { ADD_FAILURE(); });
  for (int64_t count : {1, 20})
    EXPECT_THROW(parallel_tasks(count, [](int64_t) { throw std::runtime_error("task"); }),
                 std::runtime_error);
}

TEST_F(Parallel, IndexFaultsReachTheirOwnRun) {
  omp_set_num_threads(2);
  ipex_report_index(5, 3, 0);  // no run is current: ignored
  const auto faulty_region = [](int64_t index) {
    parallel_for(
        0, 8, 1,
        [](void* closure, int64_t begin, int64_t, int64_t) {
          if (begin > 0) ipex_report_index(*static_cast<int64_t*>(closure), 3, 0);
        },
        &index);
  };
  std::vector<std::thread> runs;
  std::vector<IndexFault> faults(4);
  for (int64_t run = 0; run < 4; ++run)
    runs.emplace_back([&, run] {
      omp_set_num_threads(2);
      IndexFaultScope scope(&faults[run]);
      for (int i = 0; i < 50; ++i)
        if (run % 2 == 0) faulty_region(100 + run);
    });
  for (std::thread& run : runs) run.join();
  for (int64_t run = 0; run < 4; ++run) {
    EXPECT_EQ(faults[run].set, run % 2 == 0);
    if (faults[run].set) {
      EXPECT_EQ(faults[run].index, 100 + run);
      EXPECT_EQ(faults[run].size, 3);
    }
  }
}

TEST_F(Parallel, TheFirstFaultStays) {
  IndexFault outer, inner;
  IndexFaultScope scope(&outer);
  {
    IndexFaultScope nested(&inner);
    ipex_report_index(-9, 4, 0);
    ipex_report_index(7, 4, 0);
  }
  EXPECT_TRUE(inner.set);
  EXPECT_EQ(inner.index, -9);
  EXPECT_FALSE(outer.set);
  ipex_report_index(1, 1, 0);
  EXPECT_TRUE(outer.set);
}

}  // namespace
}  // namespace ipex
