// Reduce nodes, and rows of values that several of their loops need.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/lower/coordinates.h"
#include "backend/lower/emitter.h"
#include "backend/lower/reduction_analysis.h"

namespace ipex::graph {

// Rows of scratch memory. An expensive value that several loops over a row need (NestPlan::kept_in_rows) is
// stored by the first loop, and the others load it.
class ScratchRows {
 public:
  ScratchRows(const Coordinates& coordinates, Emitter& emitter)
      : coordinates_(coordinates), emitter_(emitter) {}

  // `write` writes a loop over `columns`, which goes into the scope at `depth`. What it stores can be loaded
  // when it returns.
  void in_loop(std::set<Axis> columns, int depth, const std::function<void()>& write);
  // Stores x, the element of v at `index`, if a loop over columns of v is being written.
  void store(Value v, const Index& index, const loop::Expr& x);
  // The element of v at the current coordinates, if the current row is there.
  std::optional<loop::Expr> load(Value v) const;
  // Forgets rows in scopes at this depth and deeper, which close.
  void close(size_t depth);

 private:
  struct Row {
    Value value;
    std::string buffer;
    std::map<Axis, loop::Expr> outer;  // the coordinates that tell which row it is
    std::vector<Axis> columns;
  };
  const Coordinates& coordinates_;
  Emitter& emitter_;
  std::vector<std::vector<Row>> rows_;           // by depth
  std::vector<std::pair<int, Row>> unfinished_;  // with their depth: stored by a loop that is being written
  std::set<Axis> columns_;                       // of the innermost such loop
  int depth_ = 0;                                // of its scope
};

class Values;

// Elements of the results of Reduce nodes. Reductions over the same rows and columns that do not need each
// other share one loop, which then has several states.
class Reductions {
 public:
  // It sets the coordinates of the columns while it writes a loop over them.
  Reductions(const ReductionAnalysis& analysis, Values& values, Coordinates& coordinates, ScratchRows& rows)
      : analysis_(analysis), values_(values), coordinates_(coordinates), rows_(rows) {}

  // The element of v. The Values remember it, and so they do for the other reductions that share the loop.
  loop::Expr element(Value v, const Index& index, const loop::Expr& mask);

 private:
  struct Part;
  void write_loop(const std::vector<Part>& parts, const loop::Expr& mask);

  const ReductionAnalysis& analysis_;
  Values& values_;
  Coordinates& coordinates_;
  ScratchRows& rows_;
};

// The states of a row of the reduction table, named after the node.
std::vector<loop::State> states_of(const ops::ReductionRow& row, Dtype type, Dtype position, int32_t node);

}  // namespace ipex::graph
