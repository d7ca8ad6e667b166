// A product of f32 matrices, b packed, as oneDNN's inner product.
//
// Without AVX-512, oneDNN 3.2 computes matrix products by a gemm that copies b anew at each call; its inner
// product reads weights in blocks, and one format of them serves any number of rows. On Zen 3, two threads,
// ms of a [m, k] x [k, n] by gemm and by inner product:
//   2x768x3072 0.43 and 0.08, 8x768x3072 0.63 and 0.22, 16x768x3072 0.86 and 0.46, 128x2048x8192 47 and 30,
//   256x512x512 0.86 and 0.84
// and where it is no better:
//   1x3072x768 0.10 and 0.10, 512x3072x768 25 and 51, 128x8192x2048 31 and 25, 1024x1024x1024 26 and 36.
// Of few rows it sums all terms in one chain: its error beside gemm's is 1.4 times at 256 terms, 1.95 at
// 768, 2.3 at 1024, 3.7 at 3072. From 96 rows on it sums in pieces: 1.3 to 1.65.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "kernels/descriptors.h"

namespace ipex::kernels {

// Whether it beats gemm for so many rows and terms, at no more than twice its error.
bool inner_product_pays(int64_t rows, int64_t depth);
// The same for a number of rows that is not known yet.
bool inner_product_may_pay(int64_t depth);

// The format of packed weights [k, n]; nullopt where the library has no kernel that reads blocks.
std::optional<dnnl::memory::desc> inner_product_format(int64_t depth, int64_t columns);

// a [m, k], b [k, n] in that format, bias [1, n] or empty, dst [m, n]; the arguments' descriptions are the
// result's own.
dnnl::inner_product_forward::primitive_desc inner_product(const dnnl::memory::desc& a,
                                                          const dnnl::memory::desc& b,
                                                          const dnnl::memory::desc& bias,
                                                          const dnnl::memory::desc& dst,
                                                          const dnnl::primitive_attr& attributes);

}  // namespace ipex::kernels
