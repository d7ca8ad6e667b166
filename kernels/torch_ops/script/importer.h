// From a TorchScript graph and the inputs of one call to the text of a Graph.
//
// Each operator is run once by ATen, in order. So every size, type and layout is known as eager has it, and
// what depends on sizes and constants only (position numbers, masks of ones) is a constant of the Graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace ipex::torch_ops::script {

// Whether the value is known from sizes and constants if the node's inputs are: a number, a list of numbers,
// or the result of a function of such values.
bool is_query(const torch::jit::Node* node);  // reads the type or the sizes of a tensor only
bool is_pure(const torch::jit::Node* node);   // a deterministic function without effects

struct GraphInput {
  int argument = -1;    // of the call, or
  at::Tensor constant;  // a value that is the same in each call of these sizes
};

struct Imported {
  std::string text;
  std::vector<GraphInput> inputs;
};

// Throws Unsupported for an operator that has no rule for these types, and what the operators throw.
Imported import_graph(const torch::jit::Graph& graph, c10::ArrayRef<c10::IValue> arguments);

}  // namespace ipex::torch_ops::script
