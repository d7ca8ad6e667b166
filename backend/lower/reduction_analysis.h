// The first stage of lower_group: over which loops the reductions of a group run, and who needs them.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "backend/lower/placed_group.h"

namespace ipex::graph {

struct ReduceInfo {
  std::vector<Axis> rows, columns;  // axes of the operand that stay and that are reduced, sorted
  std::vector<Axis> column_loops;   // the columns as loops, outermost first: the largest stride in memory
  int level = 0;                    // how many reductions come before this one, on the longest path
  // No axis stands for two dims of the operand. If one does (the sum of x + x.T), the reduction has loops
  // over dims, which it shares with no other one.
  bool has_distinct_axes = false;
};

struct ReductionAnalysis {
  std::map<int32_t, ReduceInfo> reductions;  // by Reduce node
  std::vector<std::set<int32_t>> needs;      // by node: the Reduce nodes among its ancestors and itself
};

ReductionAnalysis analyse_reductions(const PlacedGroup& group);

// By axis of v: how far its elements lie apart where the dims of v have these strides. An axis without an
// entry has no constant distance.
std::map<Axis, int64_t> axis_strides(const PlacedGroup& group, Value v, const Strides& strides);
std::vector<int> reduced_dims(const Node& reduce);  // ascending

}  // namespace ipex::graph
