// Layouts, broadcasts and memory descriptors; see descriptors.h.
#include "kernels/descriptors.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/engine.h"
#include "runtime/error.h"

namespace ipex::kernels {

constexpr int64_t kMaxElements = int64_t{1} << 47;  // address space of a process in bytes

dnnl::memory::data_type data_type(Dtype dtype, const std::string& what) {
  switch (dtype) {
    case Dtype::kF32:
      return dnnl::memory::data_type::f32;
    case Dtype::kBF16:
      return dnnl::memory::data_type::bf16;
    case Dtype::kF16:
      return dnnl::memory::data_type::f16;
    default:
      throw Unsupported(what + ": oneDNN steps compute in f32, bf16 and f16, not " +
                        std::string(name(dtype)) + "; lower the op in another way");
  }
}

TensorView resolve(const TensorSpec& spec, const int64_t* symbols) {
  TensorView view;
  view.dtype = spec.dtype;
  for (const SizeExpr& size : spec.sizes) view.sizes.push_back(size.eval(symbols));
  for (const SizeExpr& stride : spec.strides) view.strides.push_back(stride.eval(symbols));
  int64_t elements = 1;
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    const int64_t size = view.sizes[d], stride = view.strides[d];
    if (size < 0 || (size > 0 && elements > kMaxElements / size) ||
        (size > 1 && (stride < -kMaxElements / size || stride > kMaxElements / size)))
      throw Unsupported("a oneDNN step over " + text(view) + ": the tensor is larger than the address space");
    elements *= std::max<int64_t>(size, 1);
  }
  return view;
}

int64_t count_flops(int64_t results, int64_t depth) {
  int64_t flops = 0;
  return __builtin_mul_overflow(2 * results, depth, &flops) ? std::numeric_limits<int64_t>::max() : flops;
}

std::string text(const TensorView& view) {
  const auto list = [](const std::vector<int64_t>& values) {
    std::string joined;
    for (int64_t value : values) joined += (joined.empty() ? "" : ",") + std::to_string(value);
    return joined;
  };
  return std::string(name(view.dtype)) + "[" + list(view.sizes) + "]{" + list(view.strides) + "}";
}

std::vector<int> row_major_order(int rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> channels_last_order(int rank) {
  std::vector<int> order = row_major_order(rank);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

Dims dense_strides(const Dims& sizes, std::span<const int> order) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

TensorView expand(const TensorView& view, const Dims& sizes) {
  TensorView expanded = view;
  expanded.sizes = sizes;
  expanded.strides.assign(sizes.size(), 0);
  IPEX_CHECK(view.sizes.size() <= sizes.size(), "an operand has more dims than the result: " + text(view));
  const size_t shift = sizes.size() - view.sizes.size();
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    IPEX_CHECK(view.sizes[i] == sizes[i + shift] || view.sizes[i] == 1,
               "an operand does not broadcast to the result: " + text(view));
    if (view.sizes[i] != 1) expanded.strides[i + shift] = view.strides[i];
  }
  return expanded;
}

bool repeats(const TensorView& view, int dim) { return view.strides[dim] == 0 && view.sizes[dim] > 1; }

TensorView without_repeats(TensorView view) {
  for (size_t i = 0; i < view.sizes.size(); ++i)
    if (view.strides[i] == 0) view.sizes[i] = 1;
  return view;
}

TensorView with_plain_strides(TensorView view, std::span<const int> order) {
  int64_t span = 1;  // extent in memory of the dims inside this one
  for (size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    if (view.sizes[dim] == 1) view.strides[dim] = span;
    span = std::max(span, view.strides[dim] * view.sizes[dim]);
  }
  return view;
}

bool nests(const TensorView& view, std::span<const int> order) {
  int64_t span = 1;
  bool innermost = true;
  for (size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    if (view.sizes[dim] == 1) continue;
    if (innermost ? view.strides[dim] != 1 : view.strides[dim] < span) return false;
    innermost = false;
    span = view.strides[dim] * view.sizes[dim];
  }
  return true;
}

bool is_describable(const TensorView& view) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] > 1 && view.strides[d] != 0) dims.emplace_back(view.strides[d], view.sizes[d]);
  std::ranges::sort(dims);
  int64_t span = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < span) return false;
    span = stride * size;
  }
  return true;
}

bool can_merge(const TensorView& view, int dim) {
  return view.sizes[dim] == 1 || view.sizes[dim + 1] == 1 ||
         view.strides[dim] == view.strides[dim + 1] * view.sizes[dim + 1];
}

void merge(TensorView& view, int dim) {
  if (view.sizes[dim + 1] != 1) view.strides[dim] = view.strides[dim + 1];
  view.sizes[dim] *= view.sizes[dim + 1];
  view.sizes.erase(view.sizes.begin() + dim + 1);
  view.strides.erase(view.strides.begin() + dim + 1);
}

dnnl::memory::desc describe(const TensorView& view, const std::string& what) {
  const auto type = data_type(view.dtype, what);
  try {
    return dnnl::memory::desc(view.sizes, type, view.strides);
  } catch (const dnnl::error&) {
    throw Unsupported(what + ": oneDNN cannot describe the strides of " + text(view) +
                      "; make the operand contiguous or lower the op in another way");
  }
}

dnnl::memory::desc describe_dense(const TensorView& view, std::span<const int> order,
                                  const std::string& what) {
  return dnnl::memory::desc(view.sizes, data_type(view.dtype, what), dense_strides(view.sizes, order));
}

}  // namespace ipex::kernels
