// Tensors as oneDNN sees them. Strides of dims of extent 1 mean nothing to us but choose implementations in
// oneDNN, and a stride of 0 means a broadcast to us but an extent of 1 there: what crosses the border goes
// through these functions.
#pragma once

#include <dnnl.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace ipex::kernels {

using Dims = dnnl::memory::dims;

// Unsupported for types that oneDNN does not multiply in here: all but f32, bf16, f16.
dnnl::memory::data_type data_type(Dtype dtype, const std::string& what);

// Data stays null. Unsupported when the address space is too small for it, which only a damaged file asks
// for: products of sizes and of strides with sizes do not overflow.
TensorView resolve(const TensorSpec& spec, const int64_t* symbols);
// Two for each term of each result, at most the largest number.
int64_t count_flops(int64_t results, int64_t terms);
std::string text(const TensorView& view);  // "bf16[8,64]{64,1}"

// The dims from outermost to innermost of a row-major and of a channels-last tensor.
std::vector<int> row_major_order(int rank);
std::vector<int> channels_last_order(int rank);

// Strides of a dense tensor whose dims lie in memory in this order.
Dims dense_strides(const Dims& sizes, std::span<const int> order);

// Right-aligns to `sizes`; dims that repeat get stride 0. InternalError when the sizes do not broadcast.
TensorView expand(const TensorView& view, const Dims& sizes);
bool repeats(const TensorView& view, int dim);  // more than one element, all the same memory

// The view with every dim that repeats cut to extent 1.
TensorView without_repeats(TensorView view);

// Gives dims of extent 1 the stride they would have in a dense tensor of this order.
TensorView with_plain_strides(TensorView view, std::span<const int> order);

// No two elements share memory and dims nest in this order, innermost stride 1; gaps between rows are fine.
bool nests(const TensorView& view, std::span<const int> order);

// Dims d and d + 1 as one, when memory allows.
bool can_merge(const TensorView& view, int dim);
void merge(TensorView& view, int dim);

dnnl::memory::desc describe(const TensorView& view, const std::string& what);
dnnl::memory::desc describe_dense(const TensorView& view, std::span<const int> order,
                                  const std::string& what);

}  // namespace ipex::kernels
