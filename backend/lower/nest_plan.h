// The second stage of lower_group: what the kernel stores, by which loops, and which values it keeps.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "backend/lower/reduction_analysis.h"

namespace ipex::graph {

// Stores `value`, all of it, to an output or to a part of one.
struct StoreJob {
  Value value;
  BufferView output;
  Index offset;                     // of the value inside the output
  std::vector<Axis> loops;          // outermost first
  std::vector<int32_t> reductions;  // the Reduce nodes that the value needs

  bool fills_output() const;  // it is no part of a concatenation
};

struct NestPlan {
  std::vector<StoreJob> jobs;

  // Results of scans and scatters. They are computed whole, before the jobs. The ones that are no output lie
  // in memory that the kernel allocates.
  std::map<Value, BufferView> whole;
  std::set<Value> allocated;

  // Expensive values that several loops over a row need: the first loop stores the row, the others load it.
  std::set<Value> kept_in_rows;

  // Outputs of a half type that are rounded before the group's own reductions read them, too. The mean of a
  // constant channel is then exactly the constant.
  std::set<Value> rounded;
};

NestPlan plan_nests(const PlacedGroup& group, const ReductionAnalysis& analysis);

inline bool is_computed_whole(Op op) { return op == Op::kScan || op == Op::kScatter; }

}  // namespace ipex::graph
