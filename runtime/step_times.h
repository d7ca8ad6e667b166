// Records the begin and end of each step of a run, for profiles.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/executable.h"

namespace ipex {

class StepTimes final : public StepObserver {
 public:
  struct Event {
    int step = -1;                     // index in the executable
    int64_t begin_ns = 0, end_ns = 0;  // steady clock
  };

  void begin(const StepInfo&, int index) override { events_.push_back({index, now(), 0}); }
  void end() override { events_.back().end_ns = now(); }
  const std::vector<Event>& events() const { return events_; }

 private:
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::vector<Event> events_;
};

}  // namespace ipex
