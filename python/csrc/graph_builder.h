// Builds a Graph from Python, one call per node. The handle of a value is the index of its node, with the
// index of the result in the upper 32 bits. A dim is an int or the text of an expression over declared
// symbols.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::python {

class GraphBuilder {
 public:
  using Handle = int64_t;

  GraphBuilder() = default;
  explicit GraphBuilder(graph::Graph graph) : graph_(std::move(graph)) {}

  void symbol(const std::string& name, int64_t hint, int64_t low);
  Handle input(const std::string& name, const std::string& dtype, const pybind11::tuple& shape,
               const pybind11::object& strides, bool is_static);
  Handle constant(const pybind11::object& value, const std::string& dtype);
  Handle constant_data(const pybind11::bytes& data, const std::string& dtype, const pybind11::tuple& shape);
  // types: a list of (dtype, shape)
  Handle add(const std::string& op, const std::string& name, const std::vector<Handle>& operands,
             const pybind11::list& types, const pybind11::dict& attrs);
  Handle pointwise(const std::string& row, const std::vector<Handle>& operands, const std::string& dtype,
                   const pybind11::tuple& shape);
  // layouts: the strides that ATen gives each result; returns: the positions of the results among the op's
  // return values; operand_strides: the strides that the op requires of its operands, empty for any
  Handle extern_call(const std::string& overload, const std::vector<Handle>& operands,
                     const pybind11::list& types, const pybind11::list& layouts, const std::string& args,
                     const std::string& why, const std::vector<int64_t>& returns,
                     const pybind11::list& operand_strides);
  int output(Handle value, const pybind11::object& strides);
  void mutate(int input, Handle value);
  bool is_of_input(Handle value) const;  // see backend/views.h
  void source(const std::string& text) { source_ = text; }

  const graph::Graph& graph() const { return graph_; }

 private:
  graph::Dim dim(pybind11::handle value);
  std::vector<graph::Dim> dims(pybind11::handle sequence);
  graph::Node make_node(graph::Operation operation, const std::vector<Handle>& operands);
  void add_types(graph::Node& node, const pybind11::list& types);
  Handle append(graph::Node node);

  graph::Graph graph_;
  std::string source_;
  std::unordered_map<std::string, graph::Dim> dims_;  // cache of parsed texts
};

}  // namespace ipex::python
