// Products of f32 matrices with packed b, by oneDNN's inner product.
//
// Without AVX-512, oneDNN 3.2 computes matrix products by a gemm that repacks b in each call. Its inner
// product reads weights in blocks, in one format for any number of rows. Times in ms of [m, k] x [k, n] by
// gemm and by inner product, on Zen 3 with two threads:
//   2x768x3072 0.43 and 0.08, 8x768x3072 0.63 and 0.22, 16x768x3072 0.86 and 0.46, 128x2048x8192 47 and 30,
//   256x512x512 0.86 and 0.84
// Sizes where it is not used:
//   1x3072x768 0.10 and 0.10, 512x3072x768 25 and 51, 128x8192x2048 31 and 25, 1024x1024x1024 26 and 36.
// For few rows it accumulates along all of K in one chain. Its error relative to gemm's is then 1.4 times at
// K = 256, 1.95 at 768, 2.3 at 1024 and 3.7 at 3072. From 96 rows on it accumulates in pieces: 1.3 to 1.65
// times.
#pragma once

#include <optional>

#include "kernels/descriptors.h"
#include "kernels/onednn.h"

namespace ipex::kernels {

// Whether it is faster than gemm for this number of rows and this K, with at most twice its error.
bool inner_product_is_faster(int64_t rows, int64_t depth);
// The same for an unknown number of rows.
bool inner_product_may_be_faster(int64_t depth);

// The format of packed weights [k, n]; nullopt if the library has no kernel that reads blocks.
std::optional<dnnl::memory::desc> inner_product_format(int64_t depth, int64_t columns);

// a [m, k], b [k, n] in that format, bias [1, n] or empty, dst [m, n]. The primitive uses these descriptors.
dnnl::inner_product_forward::primitive_desc inner_product(const dnnl::memory::desc& a,
                                                          const dnnl::memory::desc& b,
                                                          const dnnl::memory::desc& bias,
                                                          const dnnl::memory::desc& dst,
                                                          const dnnl::primitive_attr& attributes);

}  // namespace ipex::kernels
