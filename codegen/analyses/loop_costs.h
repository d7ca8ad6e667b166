// The cost model by which choose_schedule picks the loops to vectorize.
//
// The cost of a nest is the cost of its memory accesses and of its arithmetic. An access whose stride along
// the vector loop is 1 is one instruction; any other access is one instruction per lane. Outside every vector
// loop, accesses and arithmetic are scalar.
#pragma once

#include <string>
#include <vector>

#include "codegen/analyses/loop_tree.h"
#include "codegen/target.h"

namespace ipex::loop {

// A loop is named by its number in the tree.
class LoopCosts {
 public:
  LoopCosts(const LoopTree& tree, const Target& target) : tree_(tree), target_(target) {}

  // The cheapest choice of vector loops under one loop: which loops, and the cost of one execution.
  struct Choice {
    double cost = 0;
    std::vector<int> vectors;
  };
  Choice choose(int loop) const;

  double trips(int loop) const;  // an assumed number where the extent is not constant
  // Number of element operations of one execution, which decides grains. Every access and every operation
  // counts.
  double work(int loop) const;
  bool is_static(int loop) const;

  // For a vector loop: its lanes, at most as many as it has iterations, and the number of vectors in flight.
  int fitting_lanes(int loop) const;
  int accumulators(int loop, int width) const;

  bool simple_merge(int loop) const;  // one operation merges partial results

  template <typename Fn>
  void for_each_below(int loop, const Fn& fn) const {  // includes the loop itself
    fn(loop);
    for (int child : tree_.at(loop).children) for_each_below(child, fn);
  }

 private:
  int lanes(int loop) const;
  bool has_gather(int loop, const std::string& var) const;
  double own_cost(int loop, const std::string* vector_var) const;
  double merged_after(int loop) const;
  double vector_cost(int loop, const std::string& var, int below) const;
  bool vectorizable(int loop) const;
  bool has_vector_values(int loop) const;

  const LoopTree& tree_;
  const Target& target_;
};

}  // namespace ipex::loop
