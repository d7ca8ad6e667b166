// Where each value of a graph lies: the first stage of compile().
#pragma once

#include <climits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "backend/compile.h"
#include "backend/lower/lower.h"

namespace ipex::graph {

struct PlacedBuffers {
  Graph graph;  // after all passes
  std::vector<BufferInfo> buffers;
  std::vector<int> in_place;   // by buffer: another one whose memory it takes over, or -1
  std::map<Value, int> owned;  // the buffers of values that own memory, as far as they are placed

  std::vector<TensorSpec> inputs;
  std::vector<int> static_inputs;
  std::vector<OutputSpec> outputs;
  static constexpr int32_t kAtEnd = INT32_MAX;        // as a node's number: behind every node
  std::map<int32_t, std::vector<int>> output_copies;  // outputs to copy, by the node behind which

  std::set<int32_t> mutated;         // input nodes
  std::vector<bool> is_static;       // by node: computed once, from static inputs only
  std::vector<bool> is_needed;       // by node
  std::vector<int32_t> last_reader;  // by node that owns memory: the last node that reads it

  int add(BufferKind kind, int index, SizeExpr bytes);
  // The buffer of a value that owns memory, made on first use.
  int buffer_of(Value root);
  bool is_hoisted(Value v) const;  // does its memory depend on static inputs only?
  TensorSpec spec_of(Value v);
  std::vector<TensorSpec> specs_of(const std::vector<Value>& values);
  std::vector<Value> results_of(int32_t n) const;
  bool is_read(Value v) const;
};

// Inputs, and what the caller wants: an output's root writes the caller's memory, or the output is (a view
// of) an input, or a copy is due. Everything else is placed by what computes it.
PlacedBuffers place_buffers(Graph graph, const CompileOptions& options);

}  // namespace ipex::graph
