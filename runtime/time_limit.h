// How long the work of a thread may take: what compiles asks between its parts whether there is time left.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string_view>

namespace ipex {

// The time that a caller gave is over.
struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

Deadline deadline_after(double seconds);

// The deadline of this thread; parallel_tasks carries it to the threads of its tasks.
Deadline current_deadline();

// While it lives, this thread has that deadline.
class TimeLimit {
 public:
  explicit TimeLimit(Deadline deadline);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  Deadline previous_;
};

// OutOfTime, naming what comes next ("graph pass", "fold_constants"), where this thread's deadline has
// passed.
void check_time(std::string_view kind, std::string_view name);

}  // namespace ipex
