// Hoisted steps: which values are kept, for how long, and what causes recomputation.
#include "runtime/hoisting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/error.h"
#include "tests/cpp/executable_fixture.h"

namespace ipex {
namespace {

using namespace testing;

// y = x + 100 * w, where 100 * w is hoisted. Counts its computations.
struct HoistedTimes100 {
  std::atomic<int> computed{0};
  std::unique_ptr<Executable> executable;

  HoistedTimes100() {
    Builder b;
    const int x = b.input(), w = b.input(true), y = b.output(), h = b.buffer(BufferKind::kHoisted);
    b.step(
        {w}, {h},
        [=, this](RunContext& c) {
          ++computed;
          number(c, h) = 100 * number(c, w);
        },
        true);
    b.step({x, h}, {y}, [=](RunContext& c) { number(c, y) = number(c, x) + number(c, h); });
    executable = std::make_unique<Executable>(std::move(b.parts));
  }
  int64_t run(int64_t x, int64_t w, std::vector<InputVersion> versions = {}) {
    return testing::run(*executable, {x, w}, {}, std::move(versions));
  }
};

TEST(ExecutableHoisting, ComputedOncePerVersion) {
  HoistedTimes100 h;
  EXPECT_EQ(h.run(1, 2, {version(0), version(7)}), 201);
  EXPECT_EQ(h.run(5, 2, {version(1), version(7)}), 205) << "only versions of static inputs count";
  EXPECT_EQ(h.computed, 1);
  EXPECT_EQ(h.run(5, 3, {version(1), version(8)}), 305);
  EXPECT_EQ(h.computed, 2);
  EXPECT_EQ(h.run(5, 2, {version(1), version(7)}), 205) << "only the latest is kept";
  EXPECT_EQ(h.computed, 3);
}

TEST(ExecutableHoisting, AnyPartOfAVersionCounts) {
  HoistedTimes100 h;
  int a = 0, b = 0;
  const auto run = [&](const void* storage, const void* data, uint64_t version_of_w) {
    h.run(0, 1, {version(0), {.storage = storage, .data = data, .version = version_of_w, .trackable = true}});
    return h.computed.load();
  };
  EXPECT_EQ(run(&a, &a, 0), 1);
  EXPECT_EQ(run(&b, &a, 0), 2);
  EXPECT_EQ(run(&b, &b, 0), 3);
  EXPECT_EQ(run(&b, &b, 5), 4);
  EXPECT_EQ(run(&b, &b, 5), 4);
}

TEST(ExecutableHoisting, AnotherModulesAreKeptBesideThem) {
  HoistedTimes100 h;
  int weights[3];
  const auto run = [&](int i, uint64_t written) {
    const InputVersion w = {
        .storage = &weights[i], .data = &weights[i], .version = written, .trackable = true};
    return h.run(0, 10 * i + static_cast<int64_t>(written), {version(0), w});
  };
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 3; ++i) EXPECT_EQ(run(i, 0), 1000 * i);
  EXPECT_EQ(h.computed, 3);
  EXPECT_EQ(run(1, 5), 1500) << "written to: made anew";
  for (int i : {2, 0}) EXPECT_EQ(run(i, 0), 1000 * i);
  EXPECT_EQ(run(1, 5), 1500);
  EXPECT_EQ(h.computed, 4) << "and only this one";
}

TEST(ExecutableHoisting, UntrackableInputsAreNeverKept) {
  HoistedTimes100 h;
  EXPECT_EQ(h.run(0, 4, {version(0), version(7, false)}), 400);
  EXPECT_EQ(h.run(0, 5, {version(0), version(7)}), 500) << "nor taken for a tensor that is tracked";
  h.computed = 0;
  for (int64_t w = 1; w <= 3; ++w) EXPECT_EQ(h.run(0, w, {version(0), version(7, false)}), 100 * w);
  EXPECT_EQ(h.computed, 3);
  for (int64_t w = 1; w <= 3; ++w) EXPECT_EQ(h.run(0, w), 100 * w);
  EXPECT_EQ(h.computed, 6);
}

// InputMemory for a single int64, whose checksum is its value.
struct TestMemory final : InputMemory {
  struct Pin final : StoragePin {
    explicit Pin(const TestMemory& memory) : memory(memory) { ++memory.pins; }
    ~Pin() override { --memory.pins; }
    bool alive() const override { return memory.alive; }
    const TestMemory& memory;
  };

  std::shared_ptr<const StoragePin> pin(const void*) const override { return std::make_shared<Pin>(*this); }
  uint64_t checksum(const void* data, size_t bytes) const override {
    EXPECT_EQ(bytes, sizeof(int64_t));
    ++read;
    return static_cast<uint64_t>(*static_cast<const int64_t*>(data));
  }
  uint32_t written(const void*) const override { return stamp; }

  mutable int pins = 0, read = 0;
  bool alive = true;
  uint32_t stamp = 0;
};

struct Weight {
  int64_t value = 1;
  TestMemory memory;
  uint64_t version = 0;
  bool exposed = false;
  InputVersion now() const {
    return {.storage = &value,
            .data = &value,
            .version = version,
            .written = memory.stamp,
            .exposed = exposed,
            .trackable = true,
            .memory = &memory};
  }
};

struct HoistedWeight : Weight {
  HoistedTimes100 h;
  int64_t run() { return h.run(0, value, {testing::version(0), now()}); }
};

TEST(ExecutableHoisting, PinsLiveAsLongAsTheValue) {
  HoistedWeight w;
  w.run();
  EXPECT_EQ(w.memory.pins, 1);
  w.version = 2;
  w.run();
  EXPECT_EQ(w.memory.pins, 1);
  w.h.executable.reset();
  EXPECT_EQ(w.memory.pins, 0);
}

TEST(ExecutableHoisting, FreedOnceTheWeightIsGone) {
  HoistedWeight w;
  w.run();
  Hoisting::release_dead();
  EXPECT_EQ(w.memory.pins, 1);
  w.memory.alive = false;
  Hoisting::release_dead();
  EXPECT_EQ(w.memory.pins, 0);
  w.memory.alive = true;
  EXPECT_EQ(w.run(), 100) << "and made again if it comes back";
}

TEST(ExecutableHoisting, NothingIsMadeAgainWhileContentsStay) {
  HoistedWeight w;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(w.run(), 100);
  EXPECT_EQ(w.memory.read, 1) << "beside the making; after it nobody could have written";
  for (int i = 0; i < 3; ++i) {
    ++w.memory.stamp;
    EXPECT_EQ(w.run(), 100);
    EXPECT_EQ(w.run(), 100);
    EXPECT_EQ(w.memory.read, 2 + i) << "once after each time that somebody may have written";
  }
  for (const bool exposed : {true, true, false, true, false, false, false}) {
    w.exposed = exposed;
    EXPECT_EQ(w.run(), 100);
  }
  EXPECT_EQ(w.memory.read, 9) << "while exposed, and once after it";
  EXPECT_EQ(w.h.computed, 1);
}

TEST(ExecutableHoisting, ContentsThatChangedUncountedAreSeen) {
  HoistedWeight w;
  w.exposed = true;
  EXPECT_EQ(w.run(), 100);
  w.value = 2;
  EXPECT_EQ(w.run(), 200);
  w.value = 3;
  w.exposed = false;  // it was written before its last alias was released
  EXPECT_EQ(w.run(), 300);
  w.value = 4;
  ++w.memory.stamp;
  EXPECT_EQ(w.run(), 400);
  w.version = 1;  // a counted write invalidates, whatever the contents are
  EXPECT_EQ(w.run(), 400);
  EXPECT_EQ(w.h.computed, 5);
}

TEST(ExecutableHoisting, AFailedComputationIsNotKept) {
  Builder b;
  const int w = b.input(true), y = b.output(), h = b.buffer(BufferKind::kHoisted);
  std::atomic<bool> fail{true};
  b.step(
      {w}, {h},
      [=, &fail](RunContext& c) {
        if (fail) throw UserError("not now");
        number(c, h) = number(c, w);
      },
      true);
  b.step({h}, {y}, [=](RunContext& c) { number(c, y) = number(c, h); });
  const Executable executable = b.build();
  EXPECT_THROW(run(executable, {3}, {}, {version(1)}), UserError);
  fail = false;
  EXPECT_EQ(run(executable, {3}, {}, {version(1)}), 3);
}

TEST(ExecutableHoisting, RunsSeeTheirOwnVersion) {
  HoistedTimes100 h;
  std::vector<std::thread> threads;
  for (int64_t t = 1; t <= 4; ++t)
    threads.emplace_back([&h, t] {
      for (int64_t i = 0; i < 500; ++i)
        ASSERT_EQ(h.run(i, t, {version(0), version(static_cast<uint64_t>(t))}), i + 100 * t);
    });
  for (std::thread& thread : threads) thread.join();
}

// y = x + (w + 1) * 10 + (v + 1) * 10, with two hoisted steps each. Only the second step uses the value of
// the first.
struct SharedHoisting {
  int added = 0, multiplied = 0;
  std::unique_ptr<Executable> executable;

  explicit SharedHoisting(const std::string& recipe) {
    Builder b;
    const int x = b.input(), w = b.input(true), v = b.input(true), y = b.output();
    std::vector<int> tens;
    for (const int from : {w, v}) {
      const int one = b.buffer(BufferKind::kHoisted), ten = b.buffer(BufferKind::kHoisted);
      b.step(
          {from}, {one},
          [=, this](RunContext& c) {
            ++added;
            number(c, one) = number(c, from) + 1;
          },
          true);
      b.parts.steps.back()->recipe = recipe.empty() ? "" : recipe + " add 1";
      b.step(
          {one}, {ten},
          [=, this](RunContext& c) {
            ++multiplied;
            number(c, ten) = number(c, one) * 10;
          },
          true);
      b.parts.steps.back()->recipe = recipe.empty() ? "" : recipe + " times 10";
      tens.push_back(ten);
    }
    b.step({x, tens[0], tens[1]}, {y},
           [=](RunContext& c) { number(c, y) = number(c, x) + number(c, tens[0]) + number(c, tens[1]); });
    executable = std::make_unique<Executable>(std::move(b.parts));
  }
  int64_t run(int64_t w, int64_t v, InputVersion of_w, InputVersion of_v) {
    return testing::run(*executable, {0, w, v}, {}, {version(0), of_w, of_v});
  }
};

InputVersion tensor_version(const int64_t& tensor, uint64_t version) {
  return {.storage = &tensor, .data = &tensor, .version = version, .trackable = true};
}

TEST(ExecutableHoisting, OnlyWhatChangedIsRecomputed) {
  const int64_t w = 0, v = 0;
  SharedHoisting h("changed");
  EXPECT_EQ(h.run(1, 2, tensor_version(w, 1), tensor_version(v, 1)), 50);
  EXPECT_EQ(h.run(1, 4, tensor_version(w, 1), tensor_version(v, 2)), 70);
  EXPECT_EQ(h.added, 3);
  EXPECT_EQ(h.multiplied, 3);
}

TEST(ExecutableHoisting, ExecutablesShareEqualWork) {
  const int64_t w = 0, v = 0;
  SharedHoisting first("shared"), second("shared"), other("other"), unknown("");
  const auto run = [&](SharedHoisting& h) { return h.run(1, 2, tensor_version(w, 1), tensor_version(v, 1)); };
  EXPECT_EQ(run(first), 50);
  EXPECT_EQ(run(second), 50);
  EXPECT_EQ(second.added + second.multiplied, 0) << "not even what only leads there";
  first.executable.reset();
  EXPECT_EQ(run(second), 50) << "values outlive the executable that made them";
  EXPECT_EQ(run(other), 50);
  EXPECT_EQ(other.multiplied, 2);
  EXPECT_EQ(run(unknown), 50);
  EXPECT_EQ(unknown.multiplied, 2) << "without a recipe nothing is known to be equal";
  second.executable.reset();
  SharedHoisting third("shared");
  EXPECT_EQ(run(third), 50);
  EXPECT_EQ(third.multiplied, 2) << "freed with the last executable that holds them";
}

TEST(ExecutableHoisting, ContentsTellWhatExecutablesShare) {
  Weight w, v;
  SharedHoisting first("told"), second("told");
  const auto run = [&](SharedHoisting& h) { return h.run(w.value, v.value, w.now(), v.now()); };
  w.exposed = true;
  EXPECT_EQ(run(first), 40);
  w.exposed = false;
  EXPECT_EQ(run(second), 40);
  EXPECT_EQ(second.added, 0) << "exposed or not, the contents are the same";
  w.exposed = true;
  w.value = 2;
  EXPECT_EQ(run(first), 50);
  w.exposed = false;
  ++v.version;
  EXPECT_EQ(run(first), 50) << "not what the second still keeps of before the write";
}

TEST(ExecutableHoisting, OneWriteReadsNoOtherContents) {
  Weight w, v;
  SharedHoisting h("others");
  w.memory.stamp = v.memory.stamp = 1;
  h.run(w.value, v.value, w.now(), v.now());
  for (int i = 0; i < 3; ++i) {
    ++v.version;
    h.run(w.value, v.value, w.now(), v.now());
  }
  EXPECT_EQ(w.memory.read, 1);
  EXPECT_EQ(v.memory.read, 4);
}

TEST(ExecutableHoisting, ValuesMadeBesideAWriteAreNotTrusted) {
  Builder b;
  const int w = b.input(true), y = b.output(), h = b.buffer(BufferKind::kHoisted);
  Weight weight;
  bool disturb = true;
  b.step(
      {w}, {h},
      [=, &weight, &disturb](RunContext& c) {
        number(c, h) = disturb ? 77 : number(c, w);  // another thread writes, and restores the value
        if (disturb) weight.memory.stamp += 2;
      },
      true);
  b.parts.steps.back()->recipe = "disturbed";
  b.step({h}, {y}, [=](RunContext& c) { number(c, y) = number(c, h); });
  const Executable executable = b.build();
  EXPECT_EQ(testing::run(executable, {1}, {}, {weight.now()}), 77);
  disturb = false;
  EXPECT_EQ(testing::run(executable, {1}, {}, {weight.now()}), 1) << "though the contents are the first's";
}

TEST(ExecutableHoisting, ValuesOnTheWayAreFreed) {
  const int64_t w = 0, v = 0;
  const size_t before = CachingAllocator::instance().live_bytes();
  SharedHoisting h("way");
  h.run(1, 2, tensor_version(w, 1), tensor_version(v, 1));
  const size_t kept = CachingAllocator::instance().live_bytes() - before;
  const CachedBlock one = allocate_block(sizeof(int64_t));
  EXPECT_EQ(kept, 2 * (CachingAllocator::instance().live_bytes() - before - kept));
}

}  // namespace
}  // namespace ipex
