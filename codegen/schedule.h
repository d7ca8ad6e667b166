// How one nest runs, as data that can be printed and parsed. choose_schedule decides it without side effects,
// and passes/apply_schedule.cpp carries it out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// What happens to one loop. The loop is named by its variable in the function that the schedule was chosen
// for. The loop over the tiles of `i` is called `i_tile`, and a loop fused from several has the name of the
// first with `_fused` added. Both may have entries too.
struct LoopSchedule {
  std::string loop;
  int64_t tile = 0;  // > 0: split into an outer loop over tiles and an inner loop of this extent
  ForKind kind = ForKind::kSerial;  // of the inner loop if tiled; a parallel loop marks the outer one
  int64_t grain = 1;                // of a parallel loop
  int lanes = 1;                    // of a vector loop
  int accumulators = 1;             // of a vector loop: independent vectors in flight
  bool operator==(const LoopSchedule&) const = default;
};

// The owner-computes rule for a nest that writes to rows given by data. Every part runs the whole nest, but
// writes only the rows that it owns. Rows are distributed to the parts in blocks, round-robin. One thread
// writes each row, in the order of the nest.
struct Ownership {
  std::string loop;  // root of the nest; the parallel loop over parts is named `i_owner`
  std::string row;   // the let that holds the row
  int64_t block = 1, parts = 1;
  bool operator==(const Ownership&) const = default;
};

struct Schedule {
  std::vector<Ownership> owners;  // applied first
  std::vector<LoopSchedule> loops;
  std::vector<std::vector<std::string>> order;  // perfect nests to permute: loop variables, outermost first
  std::vector<std::vector<std::string>> fuse;  // perfect nests to run as one loop, after tiling and permuting
  bool operator==(const Schedule&) const = default;
};

// The text form has one line per item:
//
//   own i row=at block=1 parts=4
//   loop i tile=64 vector lanes=16 accumulators=4
//   order i_tile j_tile i j
//   fuse i j
std::string print(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

// The same nest and target always give the same schedule. Without `parallel`, the caller distributes the
// work.
Schedule choose_schedule(const Function& f, const Target& target, bool parallel = true);

}  // namespace ipex::loop
