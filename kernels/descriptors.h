// Converts tensors to oneDNN's descriptors. Two conventions differ: strides of dims of extent 1 do not matter
// to us, but oneDNN selects implementations by them; and we express a broadcast by stride 0, oneDNN by
// extent 1.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/onednn.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

using Dims = dnnl::memory::dims;

// Unsupported for types other than f32, bf16 and f16.
dnnl::memory::data_type data_type(Dtype dtype, const std::string& what);

// Evaluates sizes and strides; data stays null. Unsupported for a tensor larger than the address space, which
// only a damaged file can contain. So products of sizes, and of strides with sizes, do not overflow.
TensorView resolve(const TensorSpec& spec, const int64_t* symbols);
// 2 * results * depth, limited to the largest int64. `depth`: K of a product.
int64_t count_flops(int64_t results, int64_t depth);
std::string text(const TensorView& view);  // "bf16[8,64]{64,1}"

// The dims from outermost to innermost of a row-major and of a channels-last tensor.
std::vector<int> row_major_order(int rank);
std::vector<int> channels_last_order(int rank);

// Strides of a dense tensor with this order of dims in memory.
Dims dense_strides(const Dims& sizes, std::span<const int> order);

// Right-aligns to `sizes`; dims that repeat get stride 0. InternalError when the sizes do not broadcast.
TensorView expand(const TensorView& view, const Dims& sizes);
bool repeats(const TensorView& view, int dim);  // whether the dim has several elements at the same address

// The view with every dim of stride 0 reduced to extent 1.
TensorView without_repeats(TensorView view);

// Gives dims of extent 1 the stride they would have in a dense tensor of this order.
TensorView with_plain_strides(TensorView view, std::span<const int> order);

// Whether the dims nest in this order, with innermost stride 1 and no overlap. Gaps between rows are allowed.
bool nests(const TensorView& view, std::span<const int> order);

// Whether oneDNN takes the strides: in some order each dim reaches over all elements of those inside it,
// whether they are there or not. It refuses rows of 3 elements with a stride of 3 that are 8 elements apart.
bool is_describable(const TensorView& view);

// Merges dims d and d + 1, if the strides allow it.
bool can_merge(const TensorView& view, int dim);
void merge(TensorView& view, int dim);

dnnl::memory::desc describe(const TensorView& view, const std::string& what);
dnnl::memory::desc describe_dense(const TensorView& view, std::span<const int> order,
                                  const std::string& what);

}  // namespace ipex::kernels
