// A product with packed weights as a 1x1 convolution: rows are the pixels of one image whose channels lie
// last.
//
// Without AVX-512, oneDNN 3.2 computes products by a gemm that copies b anew at each call; its convolutions
// keep weights in their blocked format. On Zen 3, two threads, f32, ms of a [m, k] x [k, n] by gemm and by
// convolution:
//   32x768x3072 2.6 and 1.4, 128x768x3072 7.3 and 3.7, 128x2048x8192 72 and 32, 256x512x512 1.5 and 1.1,
//   512x2048x2048 29.9 and 32.2; of deep sums 32x4096x1024 4.3 and 2.6, but 128x4096x1024 14.5 and 25.1.
#include <algorithm>

#include "kernels/library.h"

namespace ipex::kernels {
namespace {

constexpr int64_t kLeastRows = 16, kMostRows = 256;     // more rows pay for the copy, fewer stream b
constexpr int64_t kLeastDepth = 64, kMostDepth = 2048;  // deeper sums are cut badly where rows are many
constexpr int64_t kRowsOfAnyDepth = 32;
// Left to itself, the library packs to 24 columns a block for 16 and 32 rows and to 16 for others, no faster.
constexpr int64_t kRowsToPackFor = 64;

bool is_row_major(const TensorSpec& t) {
  return t.is_static() && t.sizes.size() == 2 && t.strides[1].constant() == 1 &&
         t.strides[0].constant() == t.sizes[1].constant();
}

bool same_layout(const TensorSpec& t, const TensorSpec& dst) {
  if (!is_row_major(t)) return false;
  for (int d : {0, 1})
    if (t.sizes[d].constant() != dst.sizes[d].constant()) return false;
  return true;
}

// [rows, features] as [1, features, rows, 1].
TensorSpec as_image(TensorSpec t) {
  const int64_t rows = t.sizes[0].constant(), features = t.sizes[1].constant();
  t.sizes = {1, features, rows, 1};
  t.strides = {rows * features, 1, features, features};
  return t;
}

}  // namespace

std::optional<ConvDesc> as_convolution(const MatMulDesc& desc) {
  const TensorSpec &a = desc.a, &b = desc.b, &dst = desc.dst;
  if (!desc.pack_b || dst.dtype != Dtype::kF32 || !is_row_major(a) || !is_row_major(dst)) return std::nullopt;
  if (!b.is_static() || b.sizes.size() != 2) return std::nullopt;
  const int64_t rows = a.sizes[0].constant(), depth = a.sizes[1].constant(),
                features = dst.sizes[1].constant();
  if (rows < kLeastRows || rows > kMostRows || depth < kLeastDepth || features < kLeastDepth)
    return std::nullopt;
  if (depth > kMostDepth && rows > kRowsOfAnyDepth) return std::nullopt;
  if (desc.bias && (desc.bias->sizes.size() != 1 || desc.bias->sizes[0].constant() != features))
    return std::nullopt;

  TensorSpec w = b;
  w.sizes = {features, depth, 1, 1};
  w.strides = {b.strides[1], b.strides[0], 1, 1};
  ConvDesc conv{as_image(a), w, as_image(dst), desc.bias};
  conv.stride = conv.dilation = {1, 1};
  conv.padding = conv.output_padding = {0, 0};
  conv.post = desc.post;
  for (PostOp& op : conv.post) {
    if (!op.operand) continue;
    if (!same_layout(*op.operand, dst)) return std::nullopt;
    op.operand = as_image(*op.operand);
  }
  conv.pack_w = true;
  conv.pack_for_height = kRowsToPackFor;
  conv.planning = desc.planning;
  return conv;
}

}  // namespace ipex::kernels
