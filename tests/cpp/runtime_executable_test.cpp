// Executables with hand-written steps: all kinds of buffers, lifetimes, errors, threads.
#include "runtime/executable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "runtime/abi.h"
#include "runtime/error.h"
#include "runtime/index_errors.h"
#include "runtime/step_times.h"
#include "tests/cpp/executable_fixture.h"

namespace ipex {
namespace {

using namespace testing;

TEST(ExecutableRun, StepsInOrderOverTemporaries) {
  Builder b;
  const int x = b.input(), y = b.output();
  const int t = b.temporary(0, 1), u = b.temporary(1, 2);
  b.step({x}, {t}, [=](RunContext& c) { number(c, t) = number(c, x) + 1; });
  b.step({t}, {u}, [=](RunContext& c) { number(c, u) = number(c, t) * 10; });
  b.step({u}, {y}, [=](RunContext& c) { number(c, y) = number(c, u) + 3; });
  const Executable executable = b.build();
  EXPECT_EQ(run(executable, {4}), 53);
  EXPECT_EQ(run(executable, {-1}), 3);
  const MemoryPlan plan = executable.plan({});
  EXPECT_EQ(plan.naive_bytes, 16);
  EXPECT_GE(plan.arena_bytes, 128) << "t and u are both alive in step 1";
}

TEST(ExecutableRun, LargeTemporariesLiveFromTheirFirstStepToTheirLast) {
  constexpr size_t kLarge = size_t{8} << 20;
  CachingAllocator& allocator = CachingAllocator::instance();
  const size_t before = allocator.live_bytes();
  for (const bool fails : {false, true}) {
    Builder b;
    const int x = b.input(), y = b.output();
    const int t = b.temporary(0, 1, kLarge), u = b.temporary(1, 2, kLarge), v = b.temporary(2, 3, kLarge);
    std::vector<size_t> alive;
    for (const auto& [from, to] : {std::pair{x, t}, {t, u}, {u, v}, {v, y}})
      b.step({from}, {to}, [&, from = from, to = to](RunContext& c) {
        if (to == y && fails) throw UserError("of the last step");
        number(c, to) = number(c, from) + 1;
        alive.push_back((allocator.live_bytes() - before) / kLarge);
      });
    const Executable executable = b.build();
    EXPECT_EQ(executable.plan({}).arena_bytes, 0);
    if (fails)
      EXPECT_THROW(run(executable, {4}), UserError);
    else
      EXPECT_EQ(run(executable, {4}), 8);
    EXPECT_EQ(std::vector(alive.begin(), alive.begin() + 3), (std::vector<size_t>{1, 2, 2}));
    EXPECT_EQ(allocator.live_bytes(), before);
  }
}

// Records the requests and releases of memory during a run, in order with its steps.
class NotedMemory final : public RunMemory {
 public:
  explicit NotedMemory(size_t outputs) : values(outputs, -1) {}
  void* output(int index) override {
    notes.push_back("output " + std::to_string(index));
    return &values[index];
  }
  void release_input(int index) override { notes.push_back("input " + std::to_string(index)); }

  std::vector<int64_t> values;
  std::vector<std::string> notes;
};

TEST(ExecutableRun, OutputsComeAndInputsGoWithTheirSteps) {
  Builder b;
  const int x = b.input(), weight = b.input(/*is_static=*/true), updated = b.input(), unread = b.input();
  const int first = b.output(), second = b.output();
  const int h = b.buffer(BufferKind::kHoisted);
  NotedMemory memory(2);
  const auto step = [&](std::vector<int> reads, std::vector<int> writes, Body body) {
    const std::string note = "step " + std::to_string(b.parts.steps.size());
    b.step(std::move(reads), std::move(writes), [&memory, note, body = std::move(body)](RunContext& c) {
      memory.notes.push_back(note);
      body(c);
    });
  };
  b.step({weight}, {h}, [=](RunContext& c) { number(c, h) = number(c, weight) * 2; }, /*hoisted=*/true);
  step({x, h}, {first}, [=](RunContext& c) { number(c, first) = number(c, x) + number(c, h); });
  step({x, weight}, {updated}, [=](RunContext& c) { number(c, updated) = number(c, x) + number(c, weight); });
  step({first}, {second}, [=](RunContext& c) { number(c, second) = number(c, first) + 1; });
  const Executable executable = b.build();
  int64_t in[] = {3, 10, 0, 0};
  void* inputs[] = {&in[0], &in[1], &in[2], &in[unread]};
  std::vector<InputVersion> versions(4);
  for (InputVersion& v : versions) v = version(1);
  for (int round = 0; round < 2; ++round) {
    memory.notes.clear();
    executable.run(inputs, memory, {}, versions);
    EXPECT_EQ(memory.values, (std::vector<int64_t>{23, 24}));
    EXPECT_EQ(in[2], 13);
    EXPECT_EQ(memory.notes, (std::vector<std::string>{"output 0", "step 1", "step 2", "input 0", "input 2",
                                                      "output 1", "step 3"}));
  }
}

TEST(ExecutableRun, ObserverSeesEveryStepOfItsRun) {
  Builder b;
  const int x = b.input(/*is_static=*/true), y = b.output();
  const int h = b.buffer(BufferKind::kHoisted);
  b.step({x}, {h}, [=](RunContext& c) { number(c, h) = number(c, x) + 1; }, /*hoisted=*/true);
  b.step({h}, {y}, [=](RunContext& c) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    number(c, y) = number(c, h);
  });
  const Executable executable = b.build();
  int64_t in = 1, out = 0;
  void *inputs[] = {&in}, *outputs[] = {&out};
  const InputVersion versions[] = {version(1)};
  StepTimes first, second;
  executable.run(inputs, outputs, {}, versions, &first);
  executable.run(inputs, outputs, {}, versions, &second);
  executable.run(inputs, outputs, {}, versions);
  ASSERT_EQ(first.events().size(), 2u);
  EXPECT_EQ(first.events()[0].step, 0);
  ASSERT_EQ(second.events().size(), 1u) << "the hoisted value was at hand";
  const StepTimes::Event& event = second.events()[0];
  EXPECT_EQ(event.step, 1);
  EXPECT_GE(event.end_ns - event.begin_ns, 2'000'000);
  EXPECT_GE(event.begin_ns, first.events()[1].end_ns);
}

TEST(ExecutableRun, InPlaceTemporariesShareMemory) {
  Builder b;
  const int x = b.input(), y = b.output();
  const int t = b.temporary(0, 1), u = b.temporary(1, 2, 8, t);
  b.step({x}, {t}, [=](RunContext& c) { number(c, t) = number(c, x); });
  b.step({t}, {u}, [=](RunContext& c) {
    EXPECT_EQ(c.data(t), c.data(u));
    number(c, u) = number(c, t) + 1;
  });
  b.step({u}, {y}, [=](RunContext& c) { number(c, y) = number(c, u); });
  EXPECT_EQ(run(b.build(), {41}), 42);
}

TEST(ExecutableRun, ConstantsAreReadInPlace) {
  Builder b;
  const int k = b.buffer(BufferKind::kConstant), y = b.output();
  const auto value = std::make_shared<int64_t>(99);
  b.parts.buffers[k].constant = value;
  b.step({k}, {y}, [=](RunContext& c) {
    EXPECT_EQ(c.data(k), value.get());
    number(c, y) = number(c, k);
  });
  EXPECT_EQ(run(b.build(), {}), 99);
}

TEST(ExecutableRun, ViewsAndSymbols) {
  Builder b;
  const int x = b.input(), y = b.output();
  const SizeExpr s0({{SizeExpr::Code::kSymbol, 0}});
  const SizeExpr bytes({{SizeExpr::Code::kSymbol, 0}, {SizeExpr::Code::kConst, 8}, {SizeExpr::Code::kMul}});
  const int t = b.temporary(0, 1, bytes);
  b.parts.symbol_count = 1;
  const TensorSpec spec{t, Dtype::kI64, {s0, 1}, {1, s0}, SizeExpr(0)};
  b.step({x}, {t}, [=](RunContext& c) {
    const TensorView view = c.view(spec);
    EXPECT_EQ(view.sizes, (std::vector<int64_t>{c.symbols()[0], 1}));
    for (int64_t i = 0; i < view.sizes[0]; ++i) static_cast<int64_t*>(view.data)[i] = number(c, x) + i;
  });
  const TensorSpec last{
      t,
      Dtype::kI64,
      {},
      {},
      SizeExpr({{SizeExpr::Code::kSymbol, 0}, {SizeExpr::Code::kConst, 1}, {SizeExpr::Code::kSub}})};
  b.step({t}, {y}, [=](RunContext& c) { number(c, y) = *static_cast<int64_t*>(c.view(last).data); });
  const Executable executable = b.build();
  for (int64_t size : {1, 1000, 3, 100'000, 1}) EXPECT_EQ(run(executable, {7}, {size}), 7 + size - 1);
  const std::vector<int64_t> symbols = {1000};
  EXPECT_EQ(executable.plan(symbols).naive_bytes, 8000);
}

TEST(ExecutableRun, WrongCountsAreBugs) {
  Builder b;
  const int x = b.input(), y = b.output();
  b.step({x}, {y}, [=](RunContext& c) { number(c, y) = number(c, x); });
  const Executable executable = b.build();
  EXPECT_THROW(run(executable, {}), InternalError);
  EXPECT_THROW(run(executable, {1, 2}), InternalError);
  EXPECT_THROW(run(executable, {1}, {5}), InternalError);
  EXPECT_EQ(run(executable, {1}), 1);
}

TEST(ExecutableProvided, OwnersAreDroppedAfterTheLastStep) {
  Builder b;
  const int x = b.input(), y = b.output(), p = b.buffer(BufferKind::kProvided);
  b.parts.lifetimes.push_back({p, 0, 1});
  std::weak_ptr<int64_t> alive;
  b.step({x}, {p}, [=, &alive](RunContext& c) {
    auto owned = std::make_shared<int64_t>(number(c, x) + 1);
    alive = owned;
    c.provide(p, owned.get(), owned);
  });
  b.step({p}, {y}, [=, &alive](RunContext& c) {
    EXPECT_FALSE(alive.expired());
    number(c, y) = number(c, p);
  });
  b.step({}, {}, [&alive](RunContext&) { EXPECT_TRUE(alive.expired()); });
  const Executable executable = b.build();
  EXPECT_EQ(run(executable, {5}), 6);
  EXPECT_EQ(run(executable, {6}), 7);
}

TEST(ExecutableProvided, HoistedOnesAreKept) {
  Builder b;
  const int w = b.input(true), y = b.output(), p = b.buffer(BufferKind::kProvided);
  b.parts.lifetimes.push_back({p, 0, 1});
  std::atomic<int> computed{0};
  b.step(
      {w}, {p},
      [=, &computed](RunContext& c) {
        ++computed;
        auto owned = std::make_shared<int64_t>(number(c, w) * 2);
        c.provide(p, owned.get(), owned);
      },
      true);
  b.step({p}, {y}, [=](RunContext& c) { number(c, y) = number(c, p); });
  const Executable executable = b.build();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(executable, {21}, {}, {version(1)}), 42);
  EXPECT_EQ(computed, 1);
}

TEST(ExecutableErrors, StepsThrowThroughAndTheNextRunIsFresh) {
  Builder b;
  const int x = b.input(), y = b.output(), p = b.buffer(BufferKind::kProvided);
  b.parts.lifetimes.push_back({p, 0, 1});
  std::weak_ptr<int> alive;
  b.step({x}, {p}, [=, &alive](RunContext& c) {
    auto owned = std::make_shared<int>(1);
    alive = owned;
    c.provide(p, owned.get(), owned);
  });
  b.step({x, p}, {y}, [=](RunContext& c) {
    if (number(c, x) < 0) throw UserError("negative");
    number(c, y) = number(c, x);
  });
  const Executable executable = b.build();
  EXPECT_THROW(run(executable, {-1}), UserError);
  EXPECT_TRUE(alive.expired()) << "what a failed run made is gone with it";
  EXPECT_EQ(run(executable, {8}), 8);
}

TEST(ExecutableErrors, IndexErrorIsTheOneOfTheOperator) {
  Builder b;
  const int x = b.input(), y = b.output();
  bool later_step_ran = false;
  b.step({x}, {y}, [=](RunContext& c) {
    number(c, y) = 0;
    const int64_t index = number(c, x);
    if (index < -4 || index >= 4) ipex_report_index(index, 4, *index_error_code("element", 2));
  });
  b.step({}, {}, [&](RunContext&) { later_step_ran = true; });
  const Executable executable = b.build();
  try {
    run(executable, {9});
    ADD_FAILURE();
  } catch (const RuntimeIndexError& error) {
    EXPECT_STREQ(error.what(), "index 9 is out of bounds for dimension 2 with size 4");
  }
  EXPECT_FALSE(later_step_ran);
  EXPECT_EQ(run(executable, {3}), 0);
  EXPECT_TRUE(later_step_ran);
}

TEST(ExecutableErrors, IndexErrorsOfOneRunDoNotReachAnother) {
  Builder b;
  const int x = b.input(), y = b.output();
  b.step({x}, {y}, [=](RunContext& c) {
    number(c, y) = number(c, x);
    if (number(c, x) >= 4) ipex_report_index(number(c, x), 4, 0);
  });
  const Executable executable = b.build();
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        if (t % 2) {
          ASSERT_THROW(run(executable, {4 + t}), IndexError);
        } else {
          ASSERT_EQ(run(executable, {t}), t);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ExecutableRun, SeveralThreadsShareNothing) {
  Builder b;
  const int x = b.input(), y = b.output();
  const int t = b.temporary(0, 1, 4096), u = b.temporary(1, 2, 4096);
  constexpr int kCount = 512;
  b.step({x}, {t}, [=](RunContext& c) {
    for (int i = 0; i < kCount; ++i) (&number(c, t))[i] = number(c, x) + i;
  });
  b.step({t}, {u}, [=](RunContext& c) {
    std::this_thread::yield();
    for (int i = 0; i < kCount; ++i) (&number(c, u))[i] = (&number(c, t))[i] - i;
  });
  b.step({u}, {y}, [=](RunContext& c) {
    number(c, y) = 0;
    for (int i = 0; i < kCount; ++i) number(c, y) += (&number(c, u))[i];
  });
  const Executable executable = b.build();
  std::vector<std::thread> threads;
  for (int64_t id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      for (int i = 0; i < 300; ++i) ASSERT_EQ(run(executable, {id}), id * kCount);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ExecutableRun, NoStepsAndAliasedOutputs) {
  Builder b;
  b.input();
  const Executable executable = b.build();
  EXPECT_EQ(run(executable, {1}), -1);
}

}  // namespace
}  // namespace ipex
