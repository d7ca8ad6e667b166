// Cuts parameters into units, copies what has another layout, and runs kernels on all threads.
#include "kernels/torch_ops/optimizer_step.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "kernels/torch_ops/operators.h"
#include "runtime/cpu.h"
#include "runtime/parallel.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

constexpr int64_t kUnit = 16384;       // elements
constexpr int64_t kUnitsOfThread = 2;  // fewer are not worth a thread
constexpr int64_t kLine = 64;          // elements; parameters begin at multiples of it

bool is_empty(const Tensor& tensor) { return !tensor.defined() || tensor.numel() == 0; }

// Whether both have the same elements at the same offsets.
bool same_order(const Tensor& a, const Tensor& b) {
  for (int64_t dim = 0; dim < a.dim(); ++dim)
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  return true;
}

Storage storage_of(const char* op, const Tensor& param, const Tensor& param2) {
  const auto type = param.scalar_type();
  if (is_empty(param2)) {
    TORCH_CHECK(type == at::kFloat || type == at::kDouble, op,
                ": a parameter without param2 must be float32 or float64, got ", type);
    return Storage::kPlain;
  }
  const auto type2 = param2.scalar_type();
  if (type == at::kBFloat16 && type2 == at::kBFloat16) return Storage::kSplit;
  TORCH_CHECK(type == at::kFloat && (type2 == at::kBFloat16 || type2 == at::kHalf), op,
              ": param and param2 must be bfloat16 halves of float32 values, or float32 and its bfloat16 or "
              "float16 copy, got ",
              type, " and ", type2);
  return type2 == at::kHalf ? Storage::kF16Copy : Storage::kBf16Copy;
}

GradientType grad_type_of(const char* op, const Tensor& grad, bool f64) {
  const auto type = grad.scalar_type();
  if (type == (f64 ? at::kDouble : at::kFloat)) return GradientType::kSame;
  TORCH_CHECK(!f64 && (type == at::kBFloat16 || type == at::kHalf), op,
              ": unsupported dtype of grad: ", type);
  return type == at::kHalf ? GradientType::kF16 : GradientType::kBf16;
}

void check_sizes(const char* op, const Tensor& param, const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.sizes() == param.sizes(), op, ": param and ", name,
              " must have the same sizes, param sizes: ", param.sizes(), "; ", name,
              " sizes: ", tensor.sizes());
}

template <class Body>
void parallel(int64_t count, int64_t grain, Body body) {
  parallel_for(
      0, count, grain,
      [](void* closure, int64_t begin, int64_t end, int64_t) {
        for (int64_t i = begin; i < end; ++i) (*static_cast<Body*>(closure))(i);
      },
      &body);
}

}  // namespace

const OptimizerKernels& optimizer_kernels(bool f64) {
  return current_isa() == Isa::kAvx2 ? optimizer_kernels_avx2(f64) : optimizer_kernels_avx512(f64);
}

OptimizerStep::OptimizerStep(const char* op, std::vector<StepParameter> parameters) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const StepParameter& parameter : parameters) prepare(op, parameter);
  cut_into_pieces();
}

void OptimizerStep::prepare(const char* op, const StepParameter& given) {
  Work work;
  const bool sparse = given.grad.is_sparse();
  require_dense(given.param, std::string(op) + ": param");
  require_writable(given.param);
  check_sizes(op, given.param, given.grad, "grad");
  if (given.param.numel() == 0) {
    work_.push_back(work);
    return;
  }
  work.memory.storage = storage_of(op, given.param, given.param2);
  work.f64 = given.param.scalar_type() == at::kDouble;
  const Tensor grad = sparse ? given.grad._values() : materialized(given.grad);
  require_dense(grad, std::string(op) + ": grad");
  work.memory.grad_type = grad_type_of(op, grad, work.f64);

  // Rows of a sparse gradient are rows of a contiguous parameter.
  const bool dense = sparse ? given.param.is_contiguous() : given.param.is_non_overlapping_and_dense();
  const Tensor order = dense ? given.param : at::empty_like(given.param, at::MemoryFormat::Contiguous);
  const auto address = [](const Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); };

  work.memory.param = address(in_order(given.param, order, true));
  if (work.memory.storage != Storage::kPlain) {
    check_sizes(op, given.param, given.param2, "param2");
    work.memory.param2 = address(in_order(given.param2, order, true));
  }
  work.memory.grad =
      sparse ? address(operands_.emplace_back(grad.contiguous())) : address(in_order(grad, order, false));
  for (size_t k = 0; k < given.states.size(); ++k) {
    const auto& [name, state] = given.states[k];
    if (!state.defined()) continue;
    check_sizes(op, given.param, state, name);
    TORCH_CHECK(state.scalar_type() == (work.f64 ? at::kDouble : at::kFloat), op, ": ", name, " must be ",
                work.f64 ? "float64" : "float32", ", got ", state.scalar_type());
    work.memory.states[k] = address(in_order(state, order, true));
  }
  work.scalars = given.scalars;
  work.elements = given.param.numel();
  work_.push_back(work);
}

// The tensor, or a copy with the strides of `order`.
Tensor OptimizerStep::in_order(const Tensor& tensor, const Tensor& order, bool written) {
  if (written) written_.push_back(tensor);
  Tensor usable = tensor;
  if (!same_order(tensor, order)) {
    usable = at::empty_strided(order.sizes(), order.strides(), tensor.options());
    usable.copy_(tensor);
    if (written) copied_.push_back({tensor, usable});
  }
  return operands_.emplace_back(usable);
}

void OptimizerStep::cut_into_pieces() {
  int64_t position = 0;  // of the next parameter, among all elements
  for (size_t i = 0; i < work_.size(); ++i) {
    for (int64_t begin = 0; begin < work_[i].elements;) {
      const int64_t unit = (position + begin) / kUnit;
      if (static_cast<size_t>(unit) >= units_.size()) units_.push_back(pieces_.size());
      const int64_t end = std::min(work_[i].elements, (unit + 1) * kUnit - position);
      pieces_.push_back({i, begin, end});
      begin = end;
    }
    position += (work_[i].elements + kLine - 1) / kLine * kLine;
  }
  units_.push_back(pieces_.size());
}

void OptimizerStep::for_pieces(c10::function_ref<void(size_t)> run) {
  const auto run_unit = [&](int64_t unit) {
    for (size_t piece = units_[unit]; piece < units_[unit + 1]; ++piece) run(piece);
  };
  parallel(static_cast<int64_t>(units_.size()) - 1, kUnitsOfThread, run_unit);
}

void OptimizerStep::run(Kernel kernel) {
  const StepKernel kernels[2] = {optimizer_kernels(false).*kernel, optimizer_kernels(true).*kernel};
  for_pieces([&](size_t i) {
    const Piece& piece = pieces_[i];
    const Work& work = work_[piece.parameter];
    kernels[work.f64](work.memory, work.scalars, piece.begin, piece.end, 0, nullptr);
  });
}

std::vector<std::array<double, 2>> OptimizerStep::run_norms(Kernel kernel) {
  const StepKernel kernels[2] = {optimizer_kernels(false).*kernel, optimizer_kernels(true).*kernel};
  std::vector<std::array<double, 2>> parts(pieces_.size()), sums(work_.size());
  for_pieces([&](size_t i) {
    const Piece& piece = pieces_[i];
    const Work& work = work_[piece.parameter];
    kernels[work.f64](work.memory, work.scalars, piece.begin, piece.end, 0, parts[i].data());
  });
  for (size_t i = 0; i < pieces_.size(); ++i)
    for (int k = 0; k < 2; ++k) sums[pieces_[i].parameter][k] += parts[i][k];
  return sums;
}

void OptimizerStep::run_rows(Kernel kernel, c10::ArrayRef<int64_t> rows, int64_t width) {
  const Work& work = work_.front();
  const StepKernel function = optimizer_kernels(work.f64).*kernel;
  const auto run_row = [&](int64_t i) {
    const int64_t begin = rows[i] * width;
    function(work.memory, work.scalars, begin, begin + width, i * width - begin, nullptr);
  };
  parallel(static_cast<int64_t>(rows.size()), kUnit / std::max<int64_t>(width, 1) + 1, run_row);
}

void OptimizerStep::finish() {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [original, copy] : copied_) original.copy_(copy);
  for (const Tensor& tensor : written_) count_write(tensor);
}

}  // namespace ipex::torch_ops
