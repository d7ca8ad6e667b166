// Includes vectors.h and then the file IPEX_KERNELS once for each instruction set, in the namespaces avx2 and
// avx512. There is no include guard: a file that has vector code includes this one, inside a namespace of its
// own, and target_features.h before it.
IPEX_BEGIN_TARGET("avx2,fma,f16c")
namespace avx2 {
#define IPEX_VECTOR_BYTES 32
#include "kernels/torch_ops/vectors.h"
// After vectors.h:
#include IPEX_KERNELS
#undef IPEX_VECTOR_BYTES
}  // namespace avx2
IPEX_END_TARGET

IPEX_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
namespace avx512 {
#define IPEX_VECTOR_BYTES 64
#include "kernels/torch_ops/vectors.h"
// After vectors.h:
#include IPEX_KERNELS
#undef IPEX_VECTOR_BYTES
}  // namespace avx512
IPEX_END_TARGET
