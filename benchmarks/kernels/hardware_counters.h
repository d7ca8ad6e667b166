// Counts cycles and instructions of this process, including its threads, if the system permits it.
#pragma once

#include <cstdint>

namespace ipex::bench {

class HardwareCounters {
 public:
  HardwareCounters();
  ~HardwareCounters();
  HardwareCounters(const HardwareCounters&) = delete;
  HardwareCounters& operator=(const HardwareCounters&) = delete;

  bool available() const { return cycles_ >= 0 && instructions_ >= 0; }
  void start();
  void stop();
  int64_t cycles() const { return counted_cycles_; }  // between start and stop
  int64_t instructions() const { return counted_instructions_; }

 private:
  int cycles_, instructions_;  // file descriptors, -1: not allowed
  int64_t counted_cycles_ = 0, counted_instructions_ = 0;
};

}  // namespace ipex::bench
