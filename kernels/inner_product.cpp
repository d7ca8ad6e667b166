// Limits and descriptors of the inner product; see inner_product.h.
#include "kernels/inner_product.h"

#include <string_view>

#include "kernels/engine.h"

namespace ipex::kernels {
namespace {

constexpr int64_t kMaxRows = 512, kMaxRowsOfDeep = 256;
constexpr int64_t kDeep = 2048, kMaxDepth = 4096;
constexpr int64_t kRowsInPieces = 96, kMaxDepthOfFewRows = 768;  // because of the error, see the header
constexpr int64_t kRowsToPackFor = kMaxRowsOfDeep;  // a format for fewer rows is slower for many rows

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

}  // namespace

bool inner_product_is_faster(int64_t rows, int64_t depth) {
  if (depth > (rows < kRowsInPieces ? kMaxDepthOfFewRows : kMaxDepth)) return false;
  return 2 <= rows && rows <= (depth <= kDeep ? kMaxRows : kMaxRowsOfDeep);
}

bool inner_product_may_be_faster(int64_t depth) { return depth <= kMaxDepthOfFewRows; }

std::optional<dnnl::memory::desc> inner_product_format(int64_t depth, int64_t columns) {
  const dnnl::memory::desc a(Dims{kRowsToPackFor, depth}, Type::f32, Tag::ab);
  const dnnl::memory::desc b(Dims{depth, columns}, Type::f32, Tag::any);
  const dnnl::memory::desc dst(Dims{kRowsToPackFor, columns}, Type::f32, Tag::ab);
  const auto product = inner_product(a, b, {}, dst, {});
  if (!product || !std::string_view(product.impl_info_str()).starts_with("brgemm:avx2")) return std::nullopt;
  return product.weights_desc().permute_axes({1, 0});
}

dnnl::inner_product_forward::primitive_desc inner_product(const dnnl::memory::desc& a,
                                                          const dnnl::memory::desc& b,
                                                          const dnnl::memory::desc& bias,
                                                          const dnnl::memory::desc& dst,
                                                          const dnnl::primitive_attr& attributes) {
  const auto kind = dnnl::prop_kind::forward_inference;
  const bool any = b.get_format_kind() == dnnl::memory::format_kind::any;
  const auto weights = any ? dnnl::memory::desc(Dims{b.get_dims()[1], b.get_dims()[0]}, Type::f32, Tag::any)
                           : b.permute_axes({1, 0});
  const auto row = bias.is_zero() ? bias : bias.reshape({bias.get_dims().back()});
  return {cpu_engine(), kind, a, weights, row, dst, attributes, true};
}

}  // namespace ipex::kernels
