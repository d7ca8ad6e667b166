// Hardware counters by perf_event_open(2). Containers often forbid it; then there are no counters.
#include "benchmarks/kernels/hardware_counters.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace ipex::bench {
namespace {

// Threads that start later inherit the counter, so it must be created before the OpenMP team.
int open_counter(uint64_t event) {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof attributes;
  attributes.config = event;
  attributes.disabled = 1;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}

int64_t value(int counter) {
  int64_t count = 0;
  return read(counter, &count, sizeof count) == sizeof count ? count : 0;
}

}  // namespace

HardwareCounters::HardwareCounters()
    : cycles_(open_counter(PERF_COUNT_HW_CPU_CYCLES)),
      instructions_(open_counter(PERF_COUNT_HW_INSTRUCTIONS)) {}

HardwareCounters::~HardwareCounters() {
  for (int counter : {cycles_, instructions_})
    if (counter >= 0) close(counter);
}

void HardwareCounters::start() {
  counted_cycles_ = -value(cycles_);
  counted_instructions_ = -value(instructions_);
  for (int counter : {cycles_, instructions_}) ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
}

void HardwareCounters::stop() {
  for (int counter : {cycles_, instructions_}) ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
  counted_cycles_ += value(cycles_);
  counted_instructions_ += value(instructions_);
}

}  // namespace ipex::bench
