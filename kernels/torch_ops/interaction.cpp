// torch_ipex::interaction_forward and interaction_backward: the products of all pairs of features of a DLRM.
//
// Of n tensors [batch, width], the result has a row for each sample: the row of the first tensor, then the
// products of its rows i and j for all j < i. One pass reads the rows and writes the result; the composition
// writes the stacked rows, the full matrix of products and the selected products.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <immintrin.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/target_features.h"
#include "kernels/torch_ops/workers.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

// The memory of one call.
struct Interaction {
  int64_t count = 0, width = 0;
  std::vector<const void*> inputs;
  std::vector<int64_t> strides;  // between rows, in elements
  void* result = nullptr;        // forward
  const void* grad = nullptr;    // backward
  std::vector<void*> grads;

  template <class T>
  const T* row(int64_t input, int64_t sample) const {
    return static_cast<const T*>(inputs[input]) + sample * strides[input];
  }
};

#define IPEX_KERNELS "kernels/torch_ops/interaction_kernels.h"
#include "kernels/torch_ops/each_isa.h"

IPEX_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512bf16")
#define IPEX_VECTOR_BYTES 64
#define IPEX_DOT_BF16
namespace avx512_bf16 {
#include "kernels/torch_ops/vectors.h"
// After vectors.h:
#include IPEX_KERNELS
}  // namespace avx512_bf16
IPEX_END_TARGET

using Kernel = void (*)(const Interaction&, int64_t begin, int64_t end, Scratch&);

Kernel forward_kernel_for(c10::ScalarType dtype) {
  const Isa isa = current_isa();
  if (dtype == at::kFloat) return isa == Isa::kAvx2 ? avx2::forward<float> : avx512::forward<float>;
  return isa == Isa::kAvx2     ? avx2::forward<c10::BFloat16>
         : isa == Isa::kAvx512 ? avx512::forward<c10::BFloat16>
                               : avx512_bf16::forward<c10::BFloat16>;
}

Kernel backward_kernel_for(c10::ScalarType dtype) {
  const Isa isa = current_isa();
  if (dtype == at::kFloat) return isa == Isa::kAvx2 ? avx2::backward<float> : avx512::backward<float>;
  return isa == Isa::kAvx2     ? avx2::backward<c10::BFloat16>
         : isa == Isa::kAvx512 ? avx512::backward<c10::BFloat16>
                               : avx512_bf16::backward<c10::BFloat16>;
}

void check(TensorList inputs) {
  TORCH_CHECK(!inputs.empty(), "interaction expects at least one tensor");
  for (const Tensor& input : inputs) {
    TORCH_CHECK(input.dim() == 2, "interaction expects tensors [batch, width], got ", input.sizes());
    TORCH_CHECK(input.sym_sizes() == inputs[0].sym_sizes(), "interaction expects tensors of one size, got ",
                inputs[0].sym_sizes(), " and ", input.sym_sizes());
    TORCH_CHECK(input.scalar_type() == inputs[0].scalar_type(),
                "interaction expects tensors of one dtype, got ", inputs[0].scalar_type(), " and ",
                input.scalar_type());
  }
}

// By ATen ops, which can be differentiated again.
Tensor forward_definition(TensorList inputs) {
  check(inputs);
  const auto n = static_cast<int64_t>(inputs.size());
  if (n == 1) return inputs[0].clone();
  const Tensor rows = at::stack(inputs, 1), products = rows.bmm(rows.transpose(1, 2));
  Tensors parts{inputs[0]};
  for (int64_t i = 1; i < n; ++i) parts.push_back(products.select(1, i).narrow(1, 0, i));
  return at::cat(parts, 1);
}

Tensors backward_definition(const Tensor& grad, TensorList inputs) {
  const auto n = static_cast<int64_t>(inputs.size());
  const c10::SymInt width = inputs[0].sym_size(1);
  const Tensor first = grad.narrow_symint(1, 0, width);
  if (n == 1) return {first.clone()};
  // The lower triangle row by row, each followed by zeros.
  Tensors lower;
  int64_t next = 0;
  for (int64_t i = 0; i < n; next += i++) {
    const Tensor part = grad.narrow_symint(1, width + next, i);
    lower.push_back(at::constant_pad_nd(part, {0, n - i}));
  }
  const Tensor triangle = at::stack(lower, 1);
  const Tensor products = (triangle + triangle.transpose(1, 2)).bmm(at::stack(inputs, 1));
  Tensors grads = products.unbind(1);
  grads[0] = grads[0] + first;
  return grads;
}

bool has_kernel(TensorList inputs) {
  const c10::ScalarType dtype = inputs[0].scalar_type();
  return (dtype == at::kFloat || dtype == at::kBFloat16) && inputs[0].numel() != 0;
}

// Products of a sample are worth a piece of their own from about this many multiplications.
constexpr int64_t kGrain = 1 << 17;

int64_t grain(const Interaction& op) {
  return std::max<int64_t>(1, kGrain / (op.count * op.count * op.width));
}

// `contiguous` keeps the copies alive.
Interaction describe(TensorList inputs, Tensors& contiguous) {
  Interaction op{static_cast<int64_t>(inputs.size()), inputs[0].size(1)};
  for (const Tensor& input : inputs) {
    const Tensor& rows = contiguous.emplace_back(
        input.stride(1) == 1 && !has_lazy_values(input) ? input : materialized(input).contiguous());
    op.inputs.push_back(rows.const_data_ptr());
    op.strides.push_back(rows.stride(0));
  }
  return op;
}

Tensor forward_kernel(TensorList inputs) {
  check(inputs);
  if (!has_kernel(inputs)) return forward_definition(inputs);
  Tensors contiguous;
  Interaction op = describe(inputs, contiguous);
  const int64_t batch = inputs[0].size(0);
  Tensor result = at::empty({batch, op.width + op.count * (op.count - 1) / 2}, inputs[0].options());
  op.result = result.mutable_data_ptr();
  const Kernel kernel = forward_kernel_for(result.scalar_type());
  for_each_range(batch, grain(op),
                 [&](int64_t begin, int64_t end, Scratch& scratch) { kernel(op, begin, end, scratch); });
  return result;
}

Tensors backward_kernel(const Tensor& grad, TensorList inputs) {
  check(inputs);
  if (!has_kernel(inputs)) return backward_definition(grad, inputs);
  Tensors contiguous, grads;
  Interaction op = describe(inputs, contiguous);
  TORCH_CHECK(grad.scalar_type() == inputs[0].scalar_type() && grad.dim() == 2 &&
                  grad.size(0) == inputs[0].size(0) &&
                  grad.size(1) == op.width + op.count * (op.count - 1) / 2,
              "interaction_backward: the gradient ", grad.sizes(), " does not fit the inputs");
  const Tensor rows = materialized(grad).contiguous();
  op.grad = rows.const_data_ptr();
  for (const Tensor& input : inputs) {
    grads.push_back(at::empty(input.sizes(), input.options()));
    op.grads.push_back(grads.back().mutable_data_ptr());
  }
  const Kernel kernel = backward_kernel_for(rows.scalar_type());
  for_each_range(rows.size(0), grain(op),
                 [&](int64_t begin, int64_t end, Scratch& scratch) { kernel(op, begin, end, scratch); });
  return grads;
}

// ---- the operators ----

Tensor call_forward(TensorList inputs) {
  static const auto op = typed_operator<Tensor(TensorList)>("torch_ipex::interaction_forward");
  return op.call(inputs);
}

Tensors call_backward(const Tensor& grad, TensorList inputs) {
  static const auto op =
      typed_operator<Tensors(const Tensor&, TensorList)>("torch_ipex::interaction_backward");
  return op.call(grad, inputs);
}

struct InteractionFunction : torch::autograd::Function<InteractionFunction> {
  using Context = torch::autograd::AutogradContext;

  static Tensor forward(Context* context, TensorList inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward(inputs.vec());
    return call_forward(inputs);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const Tensors saved = context->get_saved_variables();
    if (!grads[0].defined()) return Tensors(saved.size());
    return at::GradMode::is_enabled() ? backward_definition(grads[0], saved) : call_backward(grads[0], saved);
  }
};

Tensor forward_autograd(TensorList inputs) {
  if (!all_dense(inputs)) return forward_definition(inputs);
  if (needs_gradient(inputs)) return InteractionFunction::apply(inputs);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_forward(inputs);
}

Tensors backward_autograd(const Tensor& grad, TensorList inputs) {
  if (!all_dense(grad) || !all_dense(inputs) || needs_gradient(grad) || needs_gradient(inputs))
    return backward_definition(grad, inputs);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_backward(grad, inputs);
}

Tensor forward_autocast(TensorList inputs) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  Tensors cast;
  for (const Tensor& input : inputs) cast.push_back(autocast_operand(input));
  return call_forward(cast);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("interaction_forward(Tensor[] input) -> Tensor");
  m.def("interaction_backward(Tensor grad, Tensor[] input) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("interaction_forward", forward_kernel);
  m.impl("interaction_backward", backward_kernel);
}
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("interaction_forward", forward_definition);
  m.impl("interaction_backward", backward_definition);
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) {
  m.impl("interaction_forward", forward_autograd);
  m.impl("interaction_backward", backward_autograd);
}
TORCH_LIBRARY_IMPL(torch_ipex, FuncTorchBatchedDecomposition, m) {
  m.impl("interaction_forward", forward_definition);
  m.impl("interaction_backward", backward_definition);
}
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("interaction_forward", forward_autocast); }

}  // namespace ipex::torch_ops
