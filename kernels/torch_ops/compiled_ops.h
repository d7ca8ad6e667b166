// Operators that are graphs of our compiler. A graph is compiled at the first call with certain types and
// sizes.
//
// An operator describes its inputs and the nodes of its graph as text (backend/graph/ir.h). All choices, such
// as the implementation of a product, its post-ops and the format of packed weights, are the compiler's.
// Packed weights are kept and shared as in runtime/hoisting.h: they are computed again when the weight has
// changed.
//
// The first calls compile for their exact sizes. When the free dimensions of an operator have had
// kExactPrograms values, one more program with symbolic sizes serves all others, so that a model with many
// sequence lengths compiles a few times. A dim of size 0 or 1 counts as fixed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ipex::torch_ops {

inline constexpr int kExactPrograms = 4;

struct OpInput {
  std::string_view name;  // in the graph
  const at::Tensor& tensor;
  // A parameter: what depends on such inputs only is kept until one of them changes.
  bool is_static = false;
  // Bit d: dimension d may have any size in the program with symbolic sizes.
  uint32_t free_dims = 0;
};

// Dims as text: numbers, or expressions over the symbols of the graph.
using Dims = std::vector<std::string>;

// The nodes and the line `return ...`, where dims[i] are the dims of input i. Called for each compilation.
using GraphBody = c10::function_ref<std::string(std::span<const Dims> dims)>;

// What identifies the graph beside the types and sizes of its inputs: settings of the operator.
using OpSettings = c10::SmallVector<int64_t, 16>;

// The free dims of the program with symbolic sizes: symbols, or expressions over them. By default, dim d of
// every input is the symbol s<d>.
using SymbolicDims = c10::function_ref<std::vector<Dims>()>;

// Runs the graph on these tensors and returns its outputs. `op` must be a literal. Below autograd.
c10::SmallVector<at::Tensor, 3> run_compiled(std::string_view op, std::span<const OpInput> inputs,
                                             const OpSettings& settings, GraphBody body,
                                             SymbolicDims symbolic_dims = nullptr);
inline c10::SmallVector<at::Tensor, 3> run_compiled(std::string_view op,
                                                    std::initializer_list<OpInput> inputs,
                                                    const OpSettings& settings, GraphBody body,
                                                    SymbolicDims symbolic_dims = nullptr) {
  return run_compiled(op, std::span(inputs.begin(), inputs.size()), settings, body, symbolic_dims);
}

// ---- texts ----

std::string dtype_text(c10::ScalarType dtype);  // "bf16"
// The shortest text that reads as the same number, with a point or an exponent.
std::string number_text(double value);
std::string dims_text(const Dims& dims);                         // "[s0,64]"
std::string ints_text(c10::IntArrayRef values);                  // "[1,1]"
std::string type_text(c10::ScalarType dtype, const Dims& dims);  // "bf16[s0,64]"
Dims dims_of(const at::Tensor& tensor);                          // numbers
// Of a result in row-major order, and of one whose dim 1 (the channels) is innermost: "{6,1}".
std::string contiguous_strides(const Dims& dims);
std::string channels_last_strides(const Dims& dims);
inline std::string strides_text(bool channels_last, const Dims& dims) {
  return channels_last ? channels_last_strides(dims) : contiguous_strides(dims);
}

// The free dims of a tensor [batch, channels, ...] of `rank` dims: all but the channels.
constexpr uint32_t all_but_channels(int64_t rank) { return ((1u << rank) - 1) & ~2u; }

// Whether dim 1 of a tensor of 3 to 5 dims is innermost and the others follow in row-major order. PyTorch has
// no name for the layout of 3 dims.
bool is_channels_last(const at::Tensor& tensor);

}  // namespace ipex::torch_ops
