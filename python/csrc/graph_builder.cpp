// Attribute types follow from their keys and Python types, as in the text form: ints are integers, a list
// with a text in it is a list of dims, "post" is a list of strings.
#include "python/csrc/graph_builder.h"

#include <pybind11/stl.h>

#include "backend/views.h"
#include "codegen/loop/text.h"

namespace ipex::python {
namespace py = pybind11;
using graph::Dim;
using graph::Node;
using graph::Op;

namespace {

Dtype to_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (!dtype) throw UserError("unknown dtype '" + text + "'");
  return *dtype;
}

graph::Value value_of(GraphBuilder::Handle handle) {
  return {static_cast<int32_t>(handle & 0xffffffff), static_cast<int32_t>(handle >> 32)};
}

// Attributes whose texts are expressions; every other text is a string.
bool holds_dim(const std::string& key) {
  return key == "start" || key == "step" || key == "value" || key == "k";
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

graph::Attr GraphBuilder::attribute(const std::string& key, py::handle value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) {
    if (holds_dim(key)) return dim(value);
    return value.cast<std::string>();
  }
  if (key == "post") return value.cast<std::vector<std::string>>();
  if (key == "starts") return dims(value);
  return value.cast<std::vector<int64_t>>();
}

Node GraphBuilder::make_node(Op op, const std::string& name, const std::vector<Handle>& operands) {
  Node node;
  node.op = op;
  node.name = name;
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
  Node node = make_node(Op::kInput, name, {});
  node.types.push_back({to_dtype(dtype), dims(shape)});
  if (!strides.is_none()) node.layouts.push_back(dims(strides));
  if (is_static) node.attrs["static"] = true;
  const Handle handle = append(std::move(node));
  graph_.inputs.push_back(static_cast<int32_t>(handle));
  return handle;
}

GraphBuilder::Handle GraphBuilder::constant(const py::object& value, const std::string& dtype) {
  Node node = make_node(Op::kConstant, "", {});
  const Dtype type = to_dtype(dtype);
  node.types.push_back({type, {}});
  if (is_float(type)) {
    node.attrs["value"] = value.cast<double>();
  } else {
    node.attrs["value"] = value.cast<int64_t>();
  }
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::constant_data(const py::bytes& data, const std::string& dtype,
                                                 const py::tuple& shape) {
  Node node = make_node(Op::kConstant, "", {});
  node.types.push_back({to_dtype(dtype), dims(shape)});
  const std::string_view bytes = data;
  auto payload = std::make_shared<graph::ConstantData>();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  payload->bytes.assign(begin, begin + bytes.size());
  node.constant = std::move(payload);
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::add(const std::string& op, const std::string& name,
                                       const std::vector<Handle>& operands, const py::list& types,
                                       const py::dict& attrs) {
  if (ops_.empty())
    for (int i = 0; i <= static_cast<int>(Op::kExtern); ++i)
      ops_.emplace(graph::info(static_cast<Op>(i)).name, static_cast<Op>(i));
  const auto it = ops_.find(op);
  if (it == ops_.end()) throw UserError("unknown graph op '" + op + "'");
  Node node = make_node(it->second, name, operands);
  add_types(node, types);
  for (auto [key, value] : attrs) {
    const auto text = key.cast<std::string>();
    node.attrs.emplace(text, attribute(text, value));
  }
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::pointwise(const std::string& row, const std::vector<Handle>& operands,
                                             const std::string& dtype, const py::tuple& shape) {
  Node node = make_node(Op::kPointwise, row, operands);
  node.types.push_back({to_dtype(dtype), dims(shape)});
  return append(std::move(node));
}

GraphBuilder::Handle GraphBuilder::extern_call(const std::string& overload,
                                               const std::vector<Handle>& operands, const py::list& types,
                                               const py::list& layouts, const std::string& args,
                                               const std::string& why, const std::vector<int64_t>& returns,
                                               const py::list& operand_strides) {
  Node node = make_node(Op::kExtern, overload, operands);
  add_types(node, types);
  for (size_t i = 0; i < layouts.size(); ++i) node.layouts.push_back(dims(layouts[i]));
  node.attrs["args"] = args;
  node.attrs["why"] = why;
  std::vector<Dim> exact;
  for (py::handle strides : operand_strides)
    for (const Dim& stride : dims(strides)) exact.push_back(stride);
  if (!exact.empty()) node.attrs["strides"] = std::move(exact);
  for (size_t r = 0; r < returns.size(); ++r)
    if (returns[r] != static_cast<int64_t>(r)) node.attrs["returns"] = returns;
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
