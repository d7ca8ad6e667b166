// Kernels of optimizer steps for AVX2.
#define IPEX_ISA avx2
#define IPEX_KERNEL __attribute__((target("avx2,f16c")))
#include "kernels/torch_ops/optimizer_kernels.inc"

namespace ipex::torch_ops {

const OptimizerKernels& optimizer_kernels_avx2(bool f64) {
  return f64 ? avx2::kKernels<double> : avx2::kKernels<float>;
}

}  // namespace ipex::torch_ops
