// Waiting for a moment before a thread sleeps.
#pragma once

#include <sched.h>

#include <chrono>

namespace ipex {

// What waking a sleeping thread costs in a virtual machine.
inline constexpr std::chrono::microseconds kWakeUp{50};

// Calls `done` until it holds, for at most `time`. Other threads of this CPU run meanwhile.
template <class Done>
bool spin_until(Done done, std::chrono::microseconds time = kWakeUp) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    sched_yield();
  }
  return true;
}

}  // namespace ipex
