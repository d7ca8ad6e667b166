// How one nest runs: data, printed and parsed, chosen by a pure function and applied by another (passes/apply_schedule.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// What happens to one loop, named by its variable in the function the schedule was chosen for.
struct LoopSchedule {
  std::string loop;
  int64_t tile = 0;                  // > 0: split into an outer loop over tiles and an inner one of this extent
  ForKind kind = ForKind::kSerial;   // of the inner loop when tiled, parallel ones excepted: the outer one is parallel
  int64_t grain = 1;                 // parallel
  int lanes = 1;                     // vector
  int accumulators = 1;              // vector: independent vectors in flight
  bool operator==(const LoopSchedule&) const = default;
};

struct Schedule {
  std::vector<LoopSchedule> loops;
  std::vector<std::vector<std::string>> order;   // perfect nests to permute: loop variables, outermost first
  bool operator==(const Schedule&) const = default;
};

std::string print(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

// Pure: the same nest and target give the same schedule.
Schedule choose_schedule(const Function& f, const Target& target);

}  // namespace ipex::loop
