// The arithmetic of optimizer steps, for one range of elements of one parameter.
//
// A parameter is stored in one of four ways (Storage). A kernel works on small tiles: it brings the values of
// a tile to the type of the arithmetic, f32 or f64, runs one loop that is the same for all ways of storage,
// and writes the tile back. So a parameter that is split into two bf16 halves gets the same bits as an f32
// parameter with the same gradients. Kernels are compiled for each ISA without contraction to fused
// multiply-adds, so that all ISAs give the same bits.
#pragma once

#include <cstdint>

namespace ipex::torch_ops {

enum class Storage : uint8_t {
  kPlain,     // f32 or f64
  kSplit,     // `param` holds the upper halves of f32 values as bf16, `param2` the lower halves
  kBf16Copy,  // f32; `param2` gets the values rounded to bf16
  kF16Copy,   // f32; `param2` gets the values rounded to f16
};

enum class GradientType : uint8_t { kSame, kBf16, kF16 };  // kSame: the type of the arithmetic

// The memory of one parameter. All pointers have the same order of elements.
struct StepMemory {
  void* param = nullptr;
  void* param2 = nullptr;
  const void* grad = nullptr;
  void* states[3] = {};  // in the type of the arithmetic
  Storage storage = Storage::kPlain;
  GradientType grad_type = GradientType::kSame;
};

// Which of these a kernel reads depends on the optimizer.
struct StepScalars {
  double grad_scale = 1;    // gradients are divided by it; negative to maximize
  double lr = 0;            // Adam: divided by the first bias correction
  double weight_decay = 0;  // added to the gradient, times the parameter. Lamb: added to the update
  double shrink = 1;        // Adam: decoupled weight decay multiplies the parameter by it
  double momentum = 0;
  double dampening = 0;
  double beta1 = 0, beta2 = 0;
  double bias1 = 1, bias2 = 1;  // bias corrections. Adam reads the square root of the second from bias2
  double eps = 0;
  bool nesterov = false;
  bool first = false;  // the momentum buffer has no value yet
};

// Elements [begin, end) of the parameter; gradient i is at grad[i + grad_shift]. A kernel of norms writes two
// sums of squares to `sums`; the others do not use it.
using StepKernel = void (*)(const StepMemory& memory, const StepScalars& scalars, int64_t begin, int64_t end,
                            int64_t grad_shift, double* sums);

struct OptimizerKernels {
  StepKernel sgd;         // states: momentum buffer, or null
  StepKernel adagrad;     // states: sum of squares
  StepKernel adam;        // states: averages of the gradient and of its square, maximum of the latter or null
  StepKernel lamb_norms;  // updates the averages; sums: of the parameter and of its update
  StepKernel lamb;        // applies the update
  StepKernel lars_norms;  // sums: of the parameter and of the gradient
};

// For this CPU, or for IPEX_TARGET.
const OptimizerKernels& optimizer_kernels(bool f64);

const OptimizerKernels& optimizer_kernels_avx2(bool f64);
const OptimizerKernels& optimizer_kernels_avx512(bool f64);

}  // namespace ipex::torch_ops
