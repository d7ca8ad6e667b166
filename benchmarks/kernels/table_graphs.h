// Generates graphs of a single op from the op tables: op x dtype x working set x layout.
#pragma once

#include <string>
#include <vector>

namespace ipex::bench {

struct NamedGraph {
  std::string name;  // pointwise.exp/f32/L2/contiguous
  std::string text;
};
std::vector<NamedGraph> table_graphs();

}  // namespace ipex::bench
