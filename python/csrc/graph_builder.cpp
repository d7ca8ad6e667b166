// Python values become attributes according to their Python types; backend/ops/structural.def gives the types
// that an op expects.
#include "python/csrc/graph_builder.h"

#include <pybind11/stl.h>

#include "backend/views.h"
#include "codegen/loop/text.h"

namespace ipex::python {
namespace py = pybind11;
using graph::Dim;
using graph::Node;

namespace {

Dtype to_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (!dtype) throw UserError("unknown dtype '" + text + "'");
  return *dtype;
}

graph::Value value_of(GraphBuilder::Handle handle) {
  return {static_cast<int32_t>(handle & 0xffffffff), static_cast<int32_t>(handle >> 32)};
}

graph::Attr attribute(py::handle value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  graph::Strings texts;
  bool all_integers = true;
  for (py::handle item : value) {
    all_integers = all_integers && py::isinstance<py::int_>(item);
    texts.push_back(py::str(item).cast<std::string>());
  }
  if (all_integers) return value.cast<graph::Ints>();
  return texts;
}

}  // namespace

Dim GraphBuilder::dim(py::handle value) {
  if (py::isinstance<py::str>(value)) {
    const auto text = value.cast<std::string>();
    auto [it, fresh] = dims_.try_emplace(text);
    if (fresh) it->second = loop::parse_expr(text);
    return it->second;
  }
  return loop::index_const(value.cast<int64_t>());
}

std::vector<Dim> GraphBuilder::dims(py::handle sequence) {
  std::vector<Dim> result;
  for (py::handle item : sequence) result.push_back(dim(item));
  return result;
}

Node GraphBuilder::make_node(graph::Operation operation, const std::vector<Handle>& operands) {
  Node node{std::move(operation)};
  node.operands.reserve(operands.size());
  for (Handle handle : operands) node.operands.push_back(value_of(handle));
  node.source = source_;
  return node;
}

void GraphBuilder::add_types(Node& node, const py::list& types) {
  for (py::handle type : types) {
    const auto pair = type.cast<py::tuple>();
    node.types.push_back({to_dtype(pair[0].cast<std::string>()), dims(pair[1])});
  }
}

GraphBuilder::Handle GraphBuilder::append(Node node) { return graph_.add(std::move(node)).node; }

void GraphBuilder::symbol(const std::string& name, int64_t hint, int64_t low) {
  graph_.symbols.push_back(name);
  graph_.symbol_hints.push_back(hint);
  if (low < 1) graph_.symbol_lows[name] = low;
}

GraphBuilder::Handle GraphBuilder::input(const std::string& name, const std::string& dtype,
                                         const py::tuple& shape, const py::object& strides, bool is_static) {
  Node node = make_node(graph::Input{name, is_static}, {});
  node.types.push_back({to_dtype(dtype), dims(shape)});
  if (!strides.is_none()) node.layouts.push_back(dims(strides));
  const Handle handle = append(std::move(node));
  graph_.inputs.push_back(static_cast<int32_t>(handle));
  return handle;
}

GraphBuilder::Handle GraphBuilder::constant(const py::object& value, const std::string& dtype) {
  const Dtype type = to_dtype(dtype);
  const graph::Number number =
      is_float(type) ? graph::Number(value.cast<double>()) : graph::Number(value.cast<int64_t>());
  Node node = make_node(graph::Constant{number, nullptr}, {});
  node.types.push_back({type, {}});
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::constant_data(const py::bytes& data, const std::string& dtype,
                                                 const py::tuple& shape) {
  const std::string_view bytes = data;
  auto payload = std::make_shared<graph::ConstantData>();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  payload->bytes.assign(begin, begin + bytes.size());
  Node node = make_node(graph::Constant{std::nullopt, std::move(payload)}, {});
  node.types.push_back({to_dtype(dtype), dims(shape)});
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::add(const std::string& op, const std::string& name,
                                       const std::vector<Handle>& operands, const py::list& types,
                                       const py::dict& attrs) {
  graph::Attrs by_key;
  for (auto [key, value] : attrs) by_key.emplace(key.cast<std::string>(), attribute(value));
  Node node = make_node(graph::make_operation(op, name, std::move(by_key)), operands);
  add_types(node, types);
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::pointwise(const std::string& row, const std::vector<Handle>& operands,
                                             const std::string& dtype, const py::tuple& shape) {
  Node node = make_node(graph::make_operation("pointwise", row, {}), operands);
  node.types.push_back({to_dtype(dtype), dims(shape)});
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::extern_call(const std::string& overload,
                                               const std::vector<Handle>& operands, const py::list& types,
                                               const py::list& layouts, const std::string& args,
                                               const std::string& why, const std::vector<int64_t>& returns,
                                               const py::list& operand_strides) {
  graph::Extern call{overload, args, why};
  for (size_t r = 0; r < returns.size(); ++r)
    if (returns[r] != static_cast<int64_t>(r)) call.returns = returns;
  graph::Dims exact;
  for (py::handle strides : operand_strides)
    for (const Dim& stride : dims(strides)) exact.push_back(stride);
  if (!exact.empty()) call.strides = std::move(exact);
  Node node = make_node(std::move(call), operands);
  add_types(node, types);
  for (size_t i = 0; i < layouts.size(); ++i) node.layouts.push_back(dims(layouts[i]));
  return append(std::move(node));
}

int GraphBuilder::output(Handle value, const py::object& strides) {
  graph::GraphOutput output;
  output.value = value_of(value);
  if (!strides.is_none()) output.strides = dims(strides);
  graph_.outputs.push_back(std::move(output));
  return static_cast<int>(graph_.outputs.size()) - 1;
}

void GraphBuilder::mutate(int input, Handle value) { graph_.mutations.push_back({input, value_of(value)}); }

bool GraphBuilder::is_of_input(Handle value) const { return graph::is_of_input(graph_, value_of(value)); }

}  // namespace ipex::python
