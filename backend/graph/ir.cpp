// Queries of a graph. See ir.h.
#include "backend/graph/ir.h"

#include <algorithm>
#include <numeric>

#include "codegen/loop/eval.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
bool equal(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !loop::provably_equal(a[i], b[i])) return false;
  return true;
}

bool equal(const Type& a, const Type& b) { return a.dtype == b.dtype && equal(a.shape, b.shape); }

Graph Graph::without_nodes() const {
  Graph empty;
  empty.name = name;
  empty.symbols = symbols;
  empty.symbol_hints = symbol_hints;
  empty.symbol_lows = symbol_lows;
  return empty;
}

std::vector<std::string> split_sources(std::string_view sources) {
  constexpr std::string_view kBetween = "; ";
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < sources.size();) {
    const size_t end = std::min(sources.find(kBetween, begin), sources.size());
    parts.emplace_back(sources.substr(begin, end - begin));
    begin = end + kBetween.size();
  }
  return parts;
}

void add_sources(std::string& sources, std::string_view more) {
  std::vector<std::string> known = split_sources(sources);
  for (const std::string& source : split_sources(more)) {
    if (std::ranges::find(known, source) != known.end()) continue;
    known.push_back(source);
    sources += (sources.empty() ? "" : "; ") + source;
  }
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides(shape.size());
  Dim stride = loop::index_const(1);
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // A dim of extent 0 counts as 1, as in PyTorch.
    if (loop::as_const_int(shape[i]) != 0) stride = loop::simplify(stride * shape[i]);
  }
  return strides;
}

Dim numel(const Shape& shape) {
  Dim product = loop::index_const(1);
  for (const Dim& dim : shape) product = product * dim;
  return loop::simplify(product);
}

bool is_static(const Shape& shape) {
  for (const Dim& dim : shape)
    if (!loop::as_const_int(dim)) return false;
  return true;
}

std::vector<int64_t> static_shape(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) {
    const auto size = loop::as_const_int(dim);
    IPEX_CHECK(size.has_value(), "a static shape is needed here");
    sizes.push_back(*size);
  }
  return sizes;
}

int64_t hint(const Dim& dim, const Graph& graph) {
  if (auto value = loop::as_const_int(dim)) return *value;
  std::map<std::string, int64_t> binding;
  for (size_t i = 0; i < graph.symbols.size(); ++i)
    binding[graph.symbols[i]] = i < graph.symbol_hints.size() ? graph.symbol_hints[i] : 64;
  return loop::eval_int(dim, binding);
}

Strides Graph::layout(Value v) const {
  const Node& producer = node(v);
  const size_t result = static_cast<size_t>(v.result);
  if (result < producer.layouts.size() && !producer.layouts[result].empty()) return producer.layouts[result];
  return contiguous_strides(type(v).shape);
}

bool has_bias(const Node& node) {
  if (const auto* matmul = node.get_if<MatMul>()) return matmul->bias;
  if (const auto* conv = node.get_if<Conv>()) return conv->bias;
  const auto* winograd = node.get_if<Winograd>();
  return winograd && winograd->bias;
}

const Strings& post_ops(const Node& node) {
  static const Strings none;
  if (const auto* matmul = node.get_if<MatMul>()) return matmul->post;
  if (const auto* conv = node.get_if<Conv>()) return conv->post;
  const auto* winograd = node.get_if<Winograd>();
  return winograd ? *winograd->post : none;
}

namespace {

template <class T>
concept HasImplementation = requires(T op) { op.by; };
template <class T>
concept IsImplementation = std::is_same_v<T, Winograd> || std::is_same_v<T, WeightGradient>;

}  // namespace

Choice choice_of(const Node& node) {
  return std::visit(
      []<class T>(const T& op) -> Choice {
        if constexpr (HasImplementation<T>)
          return {op.by, op.why.value_or("")};
        else if constexpr (IsImplementation<T>)
          return {Implementation::kKernel, op.why.value_or("")};
        else
          return {};
      },
      node.operation);
}

void set_choice(Node& node, Choice choice) {
  std::visit(
      [&]<class T>(T& op) {
        if constexpr (HasImplementation<T>) op.by = choice.by;
        if constexpr (HasImplementation<T> || IsImplementation<T>) op.why = std::move(choice.why);
      },
      node.operation);
}

ConvWindow conv_window(const Node& node) {
  const auto of = [](const auto& conv) {
    return ConvWindow{conv.stride,         conv.padding, conv.dilation,
                      conv.output_padding, conv.groups,  conv.transposed};
  };
  const auto* conv = node.get_if<Conv>();
  return conv ? of(*conv) : of(node.get<ConvBackward>());
}

Indexing indexing_of(const Node& node) {
  const auto dims = [](const auto& indexed) {
    Ints own(indexed.map.size());
    std::iota(own.begin(), own.end(), 0);
    return indexed.error_dims.value_or(own);
  };
  if (const auto* gather = node.get_if<Gather>())
    return {gather->map, gather->wrap, gather->error, dims(*gather), gather->proved};
  const auto& scatter = node.get<Scatter>();
  return {scatter.map, scatter.wrap, scatter.error, dims(scatter), {}};
}

}  // namespace ipex::graph
