// How one nest runs: data, printed and parsed, chosen by a pure function and applied by another
// (passes/apply_schedule.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// Elements so far apart at most are loaded with what lies between, and shuffled; others one by one, at about
// two cycles each.
inline constexpr int64_t kMaxShuffledStride = 4;

// What happens to one loop, named by its variable in the function the schedule was chosen for. The loop over
// the tiles of `i` is named `i_tile`, and a loop fused from several carries the first one's name with
// `_fused`; both may have entries too.
struct LoopSchedule {
  std::string loop;
  int64_t tile = 0;  // > 0: split into an outer loop over tiles and an inner one of this extent
  ForKind kind =
      ForKind::kSerial;  // of the inner loop when tiled, parallel ones excepted: the outer one is parallel
  int64_t grain = 1;     // parallel
  int lanes = 1;         // vector
  int accumulators = 1;  // vector: independent vectors in flight
  bool operator==(const LoopSchedule&) const = default;
};

// A nest that writes where data say, divided by target rows: every part runs all of it, but writes only the
// rows it owns, in blocks dealt out in turn. Each row is written in the nest's own order, by one thread.
struct Ownership {
  std::string loop;  // root of the nest; the parallel loop over parts is named `i_owner`
  std::string row;   // the let that holds the row
  int64_t block = 1, parts = 1;
  bool operator==(const Ownership&) const = default;
};

struct Schedule {
  std::vector<Ownership> owners;  // carried out first
  std::vector<LoopSchedule> loops;
  std::vector<std::vector<std::string>> order;  // perfect nests to permute: loop variables, outermost first
  std::vector<std::vector<std::string>> fuse;  // perfect nests to run as one loop, after tiling and permuting
  bool operator==(const Schedule&) const = default;
};

// One line an item:
//   own i row=at block=1 parts=4  |  loop i tile=64 vector lanes=16 accumulators=4  |  order i_tile j_tile i
//   j |  fuse i j
std::string print(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

// Pure: the same nest and target give the same schedule. Without `parallel` the caller shares out the work.
Schedule choose_schedule(const Function& f, const Target& target, bool parallel = true);

}  // namespace ipex::loop
