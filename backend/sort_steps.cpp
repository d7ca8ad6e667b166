// See sort_steps.h. Translates nodes to the descriptions of kernels/sort.
#include "backend/sort_steps.h"

#include "backend/plan_memory.h"
#include "kernels/sort.h"

namespace ipex::graph {

std::unique_ptr<Step> make_sort_step(const Node& node, const std::vector<std::string>& symbols,
                                     const std::vector<TensorSpec>& operands,
                                     const std::vector<TensorSpec>& results) {
  if (node.op() == Op::kSearch) {
    kernels::SearchDesc desc{operands[0], operands[1], std::nullopt, results[0], node.get<Search>().right};
    if (operands.size() > 2) desc.sorter = operands[2];
    return kernels::make_search(desc);
  }
  kernels::SortDesc desc;
  const Sort& sort = node.get<Sort>();
  desc.kind = sort.kind;
  desc.x = operands[0];
  desc.values = results[0];
  desc.indices = results[1];
  desc.axis = static_cast<int>(sort.axis);
  desc.descending = sort.descending;
  desc.ordered = sort.ordered;
  if (sort.k) desc.k = to_size_expr(*sort.k, symbols);
  return kernels::make_sort(desc);
}

std::vector<HostTensor> eval_sort(const Graph& graph, int32_t n, std::vector<HostTensor>& operands,
                                  const std::vector<int64_t>& symbols) {
  const Node& node = graph.nodes[n];
  Executable::Parts parts;
  parts.symbol_count = static_cast<int>(symbols.size());
  auto spec_of = [&](const Type& type, BufferKind kind, int index) {
    TensorSpec spec{static_cast<int>(parts.buffers.size()), type.dtype};
    for (const Dim& dim : type.shape) spec.sizes.push_back(to_size_expr(dim, graph.symbols));
    for (const Dim& stride : contiguous_strides(type.shape))
      spec.strides.push_back(to_size_expr(stride, graph.symbols));
    parts.buffers.push_back({kind, index, 0, nullptr});
    return spec;
  };
  std::vector<void*> inputs, outputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    parts.inputs.push_back(spec_of(graph.type(node.operands[i]), BufferKind::kInput, static_cast<int>(i)));
    inputs.push_back(operands[i].data());
  }
  std::vector<TensorSpec> results;
  std::vector<HostTensor> values;
  for (size_t r = 0; r < node.types.size(); ++r) {
    results.push_back(spec_of(node.types[r], BufferKind::kOutput, static_cast<int>(r)));
    parts.outputs.push_back({results.back()});
    int64_t bytes = itemsize(node.types[r].dtype);
    for (const SizeExpr& size : results.back().sizes) bytes *= size.eval(symbols.data());
    values.emplace_back(static_cast<size_t>(bytes));
  }
  for (HostTensor& value : values) outputs.push_back(value.data());
  parts.steps.push_back(make_sort_step(node, graph.symbols, parts.inputs, results));
  parts.hoisted = {false};
  Executable(std::move(parts)).run(inputs, outputs, symbols, {});
  return values;
}

}  // namespace ipex::graph
