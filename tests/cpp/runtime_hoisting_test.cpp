// Hoisted steps: what is kept, for how long, and what makes it anew.
#include "runtime/hoisting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/error.h"
#include "tests/cpp/executable_fixture.h"

namespace ipex {
namespace {

using namespace testing;

// y = x + 100 * w, where 100 * w is hoisted; counts how often.
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

// A weight that is told by its contents where writes to it may pass uncounted.
struct ToldByContents {
  static inline int read = 0;  // times that contents were
  int64_t weight = 1;
  InputVersion of_weight = {
      .storage = &weight, .data = &weight, .trackable = true, .contents = [](const void* data, size_t bytes) {
        ++read;
        EXPECT_EQ(bytes, sizeof(int64_t));
        return static_cast<uint64_t>(*static_cast<const int64_t*>(data));
      }};
  HoistedTimes100 h;

  ToldByContents() { read = 0; }
  int64_t run() { return h.run(0, weight, {version(0), of_weight}); }
};

TEST(ExecutableHoisting, NothingIsMadeAgainWhileContentsStay) {
  ToldByContents t;
  EXPECT_EQ(t.run(), 100);
  EXPECT_EQ(t.run(), 100);
  EXPECT_EQ(t.read, 0) << "nobody could have written";
  t.of_weight.written = 1;
  EXPECT_EQ(t.run(), 100);
  EXPECT_EQ(t.h.computed, 2) << "what the first was made from was never read";
  for (uint32_t written = 2; written < 5; ++written) {
    t.of_weight.written = written;
    EXPECT_EQ(t.run(), 100);
    EXPECT_EQ(t.run(), 100);
    EXPECT_EQ(t.read, written) << "once after each time that somebody may have written";
  }
  for (const bool exposed : {true, true, false, true, false, false, false}) {
    t.of_weight.exposed = exposed;
    EXPECT_EQ(t.run(), 100);
  }
  EXPECT_EQ(t.read, 9) << "while exposed, and once after it";
  EXPECT_EQ(t.h.computed, 2);
}

TEST(ExecutableHoisting, ContentsThatChangedUncountedAreSeen) {
  ToldByContents t;
  t.of_weight.exposed = true;
  EXPECT_EQ(t.run(), 100);
  t.weight = 2;
  EXPECT_EQ(t.run(), 200);
  t.weight = 3;
  t.of_weight.exposed = false;  // written before its last holder let go
  EXPECT_EQ(t.run(), 300);
  t.weight = 4;
  t.of_weight.written = 1;
  EXPECT_EQ(t.run(), 400);
  t.of_weight.version = 1;  // counted: whatever the contents say
  EXPECT_EQ(t.run(), 400);
  EXPECT_EQ(t.h.computed, 5);
}

TEST(ExecutableHoisting, UntrackableInputsAreNeverKept) {
  HoistedTimes100 h;
  for (int64_t w = 1; w <= 3; ++w) EXPECT_EQ(h.run(0, w, {version(0), version(7, false)}), 100 * w);
  EXPECT_EQ(h.computed, 3);
  for (int64_t w = 1; w <= 3; ++w) EXPECT_EQ(h.run(0, w), 100 * w);
  EXPECT_EQ(h.computed, 6);
}

std::atomic<int> pins{0};
std::atomic<bool> storage_alive{true};

struct CountedPin final : StoragePin {
  CountedPin() { ++pins; }
  ~CountedPin() override { --pins; }
  bool alive() const override { return storage_alive; }
};

TEST(ExecutableHoisting, PinsLiveAsLongAsTheValue) {
  HoistedTimes100 h;
  InputVersion pinned = version(1);
  pinned.pin = [](const void*) -> std::shared_ptr<const StoragePin> {
    return std::make_shared<CountedPin>();
  };
  h.run(0, 1, {version(0), pinned});
  EXPECT_EQ(pins, 1);
  pinned.version = 2;
  h.run(0, 1, {version(0), pinned});
  EXPECT_EQ(pins, 1);
  h.executable.reset();
  EXPECT_EQ(pins, 0);
}

TEST(ExecutableHoisting, FreedOnceTheWeightIsGone) {
  HoistedTimes100 h;
  InputVersion pinned = version(1);
  pinned.pin = [](const void*) -> std::shared_ptr<const StoragePin> {
    return std::make_shared<CountedPin>();
  };
  h.run(0, 1, {version(0), pinned});
  Hoisting::release_dead();
  EXPECT_EQ(pins, 1);
  storage_alive = false;
  Hoisting::release_dead();
  EXPECT_EQ(pins, 0);
  storage_alive = true;
  EXPECT_EQ(h.run(0, 1, {version(0), pinned}), 100) << "and made again if it comes back";
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

// y = x + (w + 1) * 10 + (v + 1) * 10 in two hoisted steps each: the first one's value is needed by the
// second only.
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
  const int64_t w = 0, v = 0;
  SharedHoisting first("told"), second("told");
  InputVersion exposed = tensor_version(w, 1);
  exposed.exposed = true;
  exposed.contents = [](const void* data, size_t) {
    return static_cast<uint64_t>(*static_cast<const int64_t*>(data)) + 7;
  };
  EXPECT_EQ(first.run(0, 2, exposed, tensor_version(v, 1)), 40);
  EXPECT_EQ(second.run(0, 2, exposed, tensor_version(v, 1)), 40);
  EXPECT_EQ(second.added, 0);
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
