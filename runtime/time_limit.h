// Deadlines by thread. The compiler checks between passes and kernels whether its deadline has passed.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string_view>

namespace ipex {

// The deadline has passed.
struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

Deadline deadline_after(double seconds);

// The deadline of this thread. parallel_tasks passes it on to its tasks.
Deadline current_deadline();

// Sets the deadline of this thread while it lives.
class TimeLimit {
 public:
  explicit TimeLimit(Deadline deadline);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  Deadline previous_;
};

// Throws OutOfTime if this thread's deadline has passed. `kind` and `name` describe the next step of the
// compilation ("graph pass", "fold_constants").
void check_time(std::string_view kind, std::string_view name);

}  // namespace ipex
