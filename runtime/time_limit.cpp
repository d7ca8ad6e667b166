// A thread-local deadline; see time_limit.h.
#include "runtime/time_limit.h"

#include <string>

namespace ipex {
namespace {

thread_local Deadline deadline = kNoDeadline;

}  // namespace

Deadline deadline_after(double seconds) {
  const std::chrono::duration<double> wait(seconds);
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<Deadline::duration>(wait);
}

Deadline current_deadline() { return deadline; }

TimeLimit::TimeLimit(Deadline until) : previous_(deadline) { deadline = until; }
TimeLimit::~TimeLimit() { deadline = previous_; }

void check_time(std::string_view kind, std::string_view name) {
  if (deadline == kNoDeadline || std::chrono::steady_clock::now() < deadline) return;
  throw OutOfTime("no time left for " + std::string(kind) + " " + std::string(name));
}

}  // namespace ipex
