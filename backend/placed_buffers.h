// The first stage of compile(): a buffer for each value that owns memory.
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
  std::vector<int> in_place;   // by buffer: the buffer whose memory it reuses, or -1
  std::map<Value, int> owned;  // buffers of the values that own memory, for values already placed

  std::vector<TensorSpec> inputs;
  std::vector<int> static_inputs;
  std::vector<OutputSpec> outputs;
  static constexpr int32_t kAtEnd = INT32_MAX;        // as a node index: after every node
  std::map<int32_t, std::vector<int>> output_copies;  // outputs to copy, by the node after which to copy

  std::set<int32_t> mutated;         // input nodes
  std::vector<bool> is_static;       // by node: depends only on static inputs, computed once
  std::vector<bool> is_needed;       // by node
  std::vector<int32_t> last_reader;  // by node that owns memory: the index of its last consumer

  int add(BufferKind kind, int index, SizeExpr bytes);
  // The buffer of a value that owns memory; created on first use.
  int buffer_of(Value root);
  bool is_hoisted(Value v) const;  // does its memory depend on static inputs only?
  TensorSpec spec_of(Value v);
  std::vector<TensorSpec> specs_of(const std::vector<Value>& values);
  std::vector<Value> results_of(int32_t n) const;
  bool is_read(Value v) const;
};

// Places inputs and outputs. The root of an output writes the caller's memory, or the output is (a view of)
// an input, or it will be copied. All other values are placed when their steps are made.
PlacedBuffers place_buffers(Graph graph, const CompileOptions& options);

}  // namespace ipex::graph
