// Kernels of optimizer steps for AVX-512.
#define IPEX_ISA avx512
#ifdef __clang__
#define IPEX_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#else
#define IPEX_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")))
#endif
#include "kernels/torch_ops/optimizer_kernels.inc"

namespace ipex::torch_ops {

const OptimizerKernels& optimizer_kernels_avx512(bool f64) {
  return f64 ? avx512::kKernels<double> : avx512::kKernels<float>;
}

}  // namespace ipex::torch_ops
