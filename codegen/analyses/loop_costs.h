// What a nest costs when one of its loops or another runs in vectors: the model that choose_schedule decides
// by.
//
// A nest costs what its memory accesses become (one instruction where the stride along the vector loop is 1,
// one a lane where it is not) and its arithmetic, which outside any vector loop is scalar.
#pragma once

#include <string>
#include <vector>

#include "codegen/analyses/loop_tree.h"
#include "codegen/target.h"

namespace ipex::loop {

// Loops are numbers in the tree.
class LoopCosts {
 public:
  LoopCosts(const LoopTree& tree, const Target& target) : tree_(tree), target_(target) {}

  // The cheapest choice of vector loops under one loop: which ones, and the cost of one execution.
  struct Choice {
    double cost = 0;
    std::vector<int> vectors;
  };
  Choice choose(int loop) const;

  double trips(int loop) const;  // where it is not known, what is assumed
  // Element operations of one execution, for grains: every access and operation counts.
  double work(int loop) const;
  bool is_static(int loop) const;

  // Of the vector loop: lanes, no more than there are iterations, and vectors in flight.
  int fitting_lanes(int loop) const;
  int accumulators(int loop, int width) const;

  bool simple_merge(int loop) const;  // partial results are brought together by one operation

  template <typename Fn>
  void for_each_below(int loop, const Fn& fn) const {  // the loop itself included
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
