// Deadlines by thread.
#include "runtime/time_limit.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/parallel.h"

namespace ipex {
namespace {

TEST(TimeLimitTest, NoneIsNeverOver) { EXPECT_NO_THROW(check_time("pass", "a")); }

TEST(TimeLimitTest, ALimitIsOfItsScope) {
  {
    const TimeLimit generous(deadline_after(1000));
    EXPECT_NO_THROW(check_time("pass", "a"));
    {
      const TimeLimit over(deadline_after(0));
      EXPECT_THROW(check_time("pass", "a"), OutOfTime);
    }
    EXPECT_NO_THROW(check_time("pass", "a"));
  }
  EXPECT_EQ(current_deadline(), kNoDeadline);
}

TEST(TimeLimitTest, SaysWhatHadNotBegun) {
  const TimeLimit over(deadline_after(0));
  try {
    check_time("graph pass", "fold_constants");
    FAIL();
  } catch (const OutOfTime& error) {
    EXPECT_STREQ(error.what(), "no time left for graph pass fold_constants");
  }
}

TEST(TimeLimitTest, TasksHaveIt) {
  const Deadline deadline = deadline_after(1000);
  const TimeLimit limit(deadline);
  std::atomic<int> same{0};
  parallel_tasks(64, [&](int64_t) { same += current_deadline() == deadline; });
  EXPECT_EQ(same, 64);
}

}  // namespace
}  // namespace ipex
