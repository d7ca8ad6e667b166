// torch_ipex::*_fused_step: one step of an optimizer for one parameter. torch_ipex::*_fused_steps: the same
// for a list of parameters, in one parallel loop. Parameters, states, `param2` and step counters are updated
// in place; gradients are only read. See optimizer_kernels.h for `param2`.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/optimizer_step.h"
#include "kernels/torch_ops/sparse_rows.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;

void check_not_negative(const char* op, const char* name, double value) {
  TORCH_CHECK(value >= 0, op, ": ", name, " must not be negative, got ", value);
}

void check_beta(const char* op, const char* name, double value) {
  TORCH_CHECK(value >= 0 && value < 1, op, ": ", name, " must be in [0, 1), got ", value);
}

double signed_scale(bool maximize, double grad_scale) { return maximize ? -grad_scale : grad_scale; }

// Element i of a list that is as long as the parameters, or empty.
Tensor element(const char* op, TensorList list, size_t i, size_t count, const char* name) {
  if (list.empty()) return {};
  TORCH_CHECK(list.size() == count, op, ": ", count, " params but ", list.size(), " ", name);
  return list[i];
}

// Adds one to a step counter and returns it.
double advance(const Tensor& step) {
  TORCH_CHECK(step.numel() == 1 && step.device().is_cpu(), "a step counter must be one number on the CPU");
  if (step.scalar_type() == at::kFloat) return *step.mutable_data_ptr<float>() += 1;
  TORCH_CHECK(step.scalar_type() == at::kDouble, "a step counter must be float32 or float64, got ",
              step.scalar_type());
  return *step.mutable_data_ptr<double>() += 1;
}

std::vector<double> advance_all(const char* op, TensorList steps, size_t count) {
  TORCH_CHECK(steps.size() == count, op, ": ", count, " params but ", steps.size(), " state_steps");
  std::vector<double> values;
  for (const Tensor& step : steps) values.push_back(advance(step));
  return values;
}

void check_dense(const char* op, const char* optimizer, TensorList grads) {
  for (const Tensor& grad : grads)
    TORCH_CHECK(!grad.is_sparse(), op, ": ", optimizer,
                " does not support sparse gradients, please consider SparseAdam instead");
}

// ---- SGD and Lars ----

struct SgdOptions {
  double lr, momentum, weight_decay, dampening;
  bool nesterov, first, maximize;
  double grad_scale;
};

struct LarsOptions {
  double eeta, eps;
};

// Lars is SGD with its own learning rate for each parameter.
void sgd(const char* op, TensorList params, TensorList grads, TensorList buffers, TensorList params2,
         const SgdOptions& options, const std::optional<LarsOptions>& lars = std::nullopt) {
  check_not_negative(op, "lr", options.lr);
  check_not_negative(op, "momentum", options.momentum);
  check_not_negative(op, "weight_decay", options.weight_decay);
  TORCH_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), op,
              ": Nesterov momentum requires a momentum and zero dampening");
  TORCH_CHECK(options.momentum == 0 || buffers.size() == params.size(), op, ": momentum needs momentum_buf");
  StepScalars scalars;
  scalars.grad_scale = signed_scale(options.maximize, options.grad_scale);
  scalars.lr = options.lr;
  scalars.weight_decay = options.weight_decay;
  scalars.momentum = options.momentum;
  scalars.dampening = options.dampening;
  scalars.nesterov = options.nesterov;
  scalars.first = options.first;
  std::vector<StepParameter> parameters;
  for (size_t i = 0; i < params.size(); ++i) {
    TORCH_CHECK(!grads[i].is_sparse(), op, ": use packed_add for sparse gradients");
    parameters.push_back({params[i],
                          element(op, grads, i, params.size(), "grads"),
                          element(op, params2, i, params.size(), "params2"),
                          {},
                          scalars});
    if (options.momentum != 0) parameters.back().states.push_back({"momentum_buf", buffers[i]});
  }
  OptimizerStep step(op, std::move(parameters));
  if (lars) {
    const auto sums = step.run_norms(&OptimizerKernels::lars_norms);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double param_norm = std::sqrt(sums[i][0]),
                   grad_norm = std::sqrt(sums[i][1]) / std::abs(options.grad_scale);
      if (param_norm > 0 && grad_norm > 0)
        step.scalars(i).lr *=
            lars->eeta * param_norm / (grad_norm + options.weight_decay * param_norm + lars->eps);
    }
  }
  step.run(&OptimizerKernels::sgd);
  step.finish();
}

void sgd_steps(TensorList params, TensorList grads, TensorList momentum_bufs, TensorList params2, double lr,
               double momentum, double weight_decay, double dampening, bool nesterov, bool first,
               bool maximize, double grad_scale) {
  sgd("sgd_fused_steps", params, grads, momentum_bufs, params2,
      {lr, momentum, weight_decay, dampening, nesterov, first, maximize, grad_scale});
}

void lars_steps(TensorList params, TensorList grads, TensorList momentum_bufs, TensorList params2, double lr,
                double momentum, double weight_decay, double eeta, double eps, double dampening,
                bool nesterov, bool first, bool maximize, double grad_scale) {
  check_dense("lars_fused_steps", "Lars", grads);
  check_not_negative("lars_fused_steps", "eeta", eeta);
  check_not_negative("lars_fused_steps", "eps", eps);
  sgd("lars_fused_steps", params, grads, momentum_bufs, params2,
      {lr, momentum, weight_decay, dampening, nesterov, first, maximize, grad_scale}, LarsOptions{eeta, eps});
}

// Returns the momentum buffer, which the first step makes.
OptionalTensor sgd_one(const char* op, const Tensor& param, const Tensor& grad,
                       const OptionalTensor& momentum_buf, const Tensor& param2, SgdOptions options,
                       const std::optional<LarsOptions>& lars) {
  OptionalTensor buffer = momentum_buf;
  options.first = options.momentum != 0 && !is_given(momentum_buf);
  if (options.first) {
    const auto type = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    buffer = at::empty_like(param, param.options().dtype(type));
  }
  const Tensor state = tensor_of(buffer);
  sgd(op, param, grad, options.momentum == 0 ? TensorList() : TensorList(state), param2, options, lars);
  return buffer;
}

OptionalTensor sgd_step(const Tensor& param, const Tensor& grad, const OptionalTensor& momentum_buf,
                        const Tensor& param2, double momentum, double lr, double weight_decay,
                        double dampening, bool nesterov) {
  return sgd_one("sgd_fused_step", param, grad, momentum_buf, param2,
                 {lr, momentum, weight_decay, dampening, nesterov, false, false, 1}, std::nullopt);
}

OptionalTensor lars_step(const Tensor& param, const Tensor& grad, const OptionalTensor& momentum_buf,
                         const Tensor& param2, double momentum, double lr, double eeta, double eps,
                         double weight_decay, double dampening, bool nesterov) {
  check_not_negative("lars_fused_step", "eeta", eeta);
  check_not_negative("lars_fused_step", "eps", eps);
  return sgd_one("lars_fused_step", param, grad, momentum_buf, param2,
                 {lr, momentum, weight_decay, dampening, nesterov, false, false, 1}, LarsOptions{eeta, eps});
}

// ---- Adagrad ----

void adagrad(const char* op, TensorList params, TensorList grads, TensorList state_sums, TensorList params2,
             const std::vector<double>& steps, double lr, double weight_decay, double lr_decay, double eps,
             bool maximize, double grad_scale) {
  check_not_negative(op, "lr", lr);
  check_not_negative(op, "weight_decay", weight_decay);
  check_not_negative(op, "lr_decay", lr_decay);
  check_not_negative(op, "eps", eps);
  StepScalars scalars;
  scalars.grad_scale = signed_scale(maximize, grad_scale);
  scalars.weight_decay = weight_decay;
  scalars.eps = eps;
  std::vector<StepParameter> dense;
  for (size_t i = 0; i < params.size(); ++i) {
    scalars.lr = lr / (1 + (steps[i] - 1) * lr_decay);
    StepParameter parameter{params[i],
                            element(op, grads, i, params.size(), "grads"),
                            element(op, params2, i, params.size(), "params2"),
                            {{"state_sum", element(op, state_sums, i, params.size(), "state_sums")}},
                            scalars};
    if (parameter.grad.is_sparse()) {
      TORCH_CHECK(weight_decay == 0, "weight_decay option is not compatible with sparse gradients");
      step_rows(op, std::move(parameter), &OptimizerKernels::adagrad);
    } else {
      dense.push_back(std::move(parameter));
    }
  }
  OptimizerStep step(op, std::move(dense));
  step.run(&OptimizerKernels::adagrad);
  step.finish();
}

void adagrad_steps(TensorList params, TensorList grads, TensorList state_sums, TensorList params2,
                   TensorList state_steps, double lr, double weight_decay, double lr_decay, double eps,
                   bool maximize, double grad_scale) {
  const char* op = "adagrad_fused_steps";
  adagrad(op, params, grads, state_sums, params2, advance_all(op, state_steps, params.size()), lr,
          weight_decay, lr_decay, eps, maximize, grad_scale);
}

void adagrad_step(const Tensor& param, const Tensor& grad, const Tensor& state_sum, const Tensor& param2,
                  double step, double lr, double weight_decay, double lr_decay, double eps) {
  adagrad("adagrad_fused_step", param, grad, state_sum, param2, {step}, lr, weight_decay, lr_decay, eps,
          false, 1);
}

// ---- Adam, AdamW and Lamb ----

struct AdamOptions {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad = false, decoupled = false, maximize = false;
  double grad_scale = 1;
  bool lamb = false;
};

StepScalars adam_scalars(const AdamOptions& options, double step) {
  StepScalars scalars;
  scalars.grad_scale = signed_scale(options.maximize, options.grad_scale);
  scalars.beta1 = options.beta1;
  scalars.beta2 = options.beta2;
  scalars.eps = options.eps;
  scalars.lr = options.lr;
  scalars.weight_decay = options.decoupled ? 0 : options.weight_decay;
  scalars.bias1 = 1 - std::pow(options.beta1, step);
  scalars.bias2 = 1 - std::pow(options.beta2, step);
  if (options.lamb) return scalars;
  scalars.lr = options.lr / scalars.bias1;
  scalars.bias2 = std::sqrt(scalars.bias2);
  if (options.decoupled) scalars.shrink = 1 - options.lr * options.weight_decay;
  return scalars;
}

void adam(const char* op, TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList params2, const std::vector<double>& steps,
          const AdamOptions& options) {
  check_not_negative(op, "lr", options.lr);
  check_not_negative(op, "weight_decay", options.weight_decay);
  check_not_negative(op, "eps", options.eps);
  check_beta(op, "beta1", options.beta1);
  check_beta(op, "beta2", options.beta2);
  check_dense(op, options.lamb ? "Lamb" : "Adam", grads);
  TORCH_CHECK(!options.amsgrad || max_exp_avg_sqs.size() == params.size(), op,
              ": amsgrad needs max_exp_avg_sq");
  std::vector<StepParameter> parameters;
  const size_t count = params.size();
  for (size_t i = 0; i < count; ++i) {
    parameters.push_back({params[i],
                          element(op, grads, i, count, "grads"),
                          element(op, params2, i, count, "params2"),
                          {{"exp_avg", element(op, exp_avgs, i, count, "exp_avgs")},
                           {"exp_avg_sq", element(op, exp_avg_sqs, i, count, "exp_avg_sqs")}},
                          adam_scalars(options, steps[i])});
    if (options.amsgrad) parameters.back().states.push_back({"max_exp_avg_sq", max_exp_avg_sqs[i]});
  }
  OptimizerStep step(op, std::move(parameters));
  if (options.lamb) {
    const auto sums = step.run_norms(&OptimizerKernels::lamb_norms);
    for (size_t i = 0; i < sums.size(); ++i)
      if (sums[i][0] != 0 && sums[i][1] != 0)
        step.scalars(i).lr *= std::sqrt(sums[i][0]) / std::sqrt(sums[i][1]);
    step.run(&OptimizerKernels::lamb);
  } else {
    step.run(&OptimizerKernels::adam);
  }
  step.finish();
}

void adam_steps(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs, TensorList params2, TensorList state_steps, double lr,
                double beta1, double beta2, double weight_decay, double eps, bool amsgrad, bool decoupled,
                bool maximize, double grad_scale) {
  const char* op = "adam_fused_steps";
  adam(op, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, params2,
       advance_all(op, state_steps, params.size()),
       {lr, beta1, beta2, weight_decay, eps, amsgrad, decoupled, maximize, grad_scale});
}

void lamb_steps(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList params2, TensorList state_steps, double lr, double beta1, double beta2,
                double weight_decay, double eps, bool maximize, double grad_scale) {
  const char* op = "lamb_fused_steps";
  adam(op, params, grads, exp_avgs, exp_avg_sqs, {}, params2, advance_all(op, state_steps, params.size()),
       {lr, beta1, beta2, weight_decay, eps, false, false, maximize, grad_scale, true});
}

void adam_step(const Tensor& param, const Tensor& exp_avg, const Tensor& exp_avg_sq,
               const Tensor& max_exp_avg_sq, const Tensor& grad, const Tensor& param2, bool amsgrad,
               double step, double beta1, double beta2, double lr, double weight_decay, double eps) {
  adam("adam_fused_step", param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, param2, {step},
       {lr, beta1, beta2, weight_decay, eps, amsgrad});
}

void adamw_step(const Tensor& param, const Tensor& exp_avg, const Tensor& exp_avg_sq,
                const Tensor& max_exp_avg_sq, const Tensor& grad, const Tensor& param2, bool amsgrad,
                double step, double beta1, double beta2, double lr, double weight_decay, double eps) {
  adam("adamw_fused_step", param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, param2, {step},
       {lr, beta1, beta2, weight_decay, eps, amsgrad, true});
}

void lamb_step(const Tensor& param, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& grad,
               const Tensor& param2, double step, double beta1, double beta2, double lr, double weight_decay,
               double eps) {
  adam("lamb_fused_step", param, grad, exp_avg, exp_avg_sq, {}, param2, {step},
       {lr, beta1, beta2, weight_decay, eps, false, false, false, 1, true});
}

template <class Library>
void register_kernels(Library& m) {
  m.impl("sgd_fused_step", sgd_step);
  m.impl("sgd_fused_steps", sgd_steps);
  m.impl("lars_fused_step", lars_step);
  m.impl("lars_fused_steps", lars_steps);
  m.impl("adagrad_fused_step", adagrad_step);
  m.impl("adagrad_fused_steps", adagrad_steps);
  m.impl("adam_fused_step", adam_step);
  m.impl("adamw_fused_step", adamw_step);
  m.impl("adam_fused_steps", adam_steps);
  m.impl("lamb_fused_step", lamb_step);
  m.impl("lamb_fused_steps", lamb_steps);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "sgd_fused_step(Tensor(a!) param, Tensor grad, Tensor(b!)? momentum_buf, Tensor(c!) param2, "
      "float momentum, float lr, float weight_decay, float dampening, bool nesterov) -> Tensor(b!)?");
  m.def(
      "lars_fused_step(Tensor(a!) param, Tensor grad, Tensor(b!)? momentum_buf, Tensor(c!) param2, "
      "float momentum, float lr, float eeta, float eps, float weight_decay, float dampening, "
      "bool nesterov) -> Tensor(b!)?");
  m.def(
      "adagrad_fused_step(Tensor(a!) param, Tensor grad, Tensor(b!) state_sum, Tensor(c!) param2, "
      "float step, float lr, float weight_decay, float lr_decay, float eps) -> ()");
  m.def(
      "adam_fused_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, "
      "Tensor(d!) max_exp_avg_sq, Tensor grad, Tensor(e!) param2, bool amsgrad, float step, float beta1, "
      "float beta2, float lr, float weight_decay, float eps) -> ()");
  m.def(
      "adamw_fused_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, "
      "Tensor(d!) max_exp_avg_sq, Tensor grad, Tensor(e!) param2, bool amsgrad, float step, float beta1, "
      "float beta2, float lr, float weight_decay, float eps) -> ()");
  m.def(
      "lamb_fused_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor grad, "
      "Tensor(d!) param2, float step, float beta1, float beta2, float lr, float weight_decay, "
      "float eps) -> ()");
  // Of each parameter: its tensors, and None or an empty list where there are none. The momentum buffers of
  // `first` steps are written without being read.
  m.def(
      "sgd_fused_steps(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_bufs, "
      "Tensor(c!)[] params2, *, float lr, float momentum, float weight_decay, float dampening, "
      "bool nesterov, bool first, bool maximize=False, float grad_scale=1.) -> ()");
  m.def(
      "lars_fused_steps(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_bufs, "
      "Tensor(c!)[] params2, *, float lr, float momentum, float weight_decay, float eeta, float eps, "
      "float dampening=0., bool nesterov=False, bool first, bool maximize=False, float grad_scale=1.) -> ()");
  m.def(
      "adagrad_fused_steps(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] state_sums, "
      "Tensor(c!)[] params2, Tensor(d!)[] state_steps, *, float lr, float weight_decay, float lr_decay, "
      "float eps, bool maximize=False, float grad_scale=1.) -> ()");
  m.def(
      "adam_fused_steps(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, "
      "Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] params2, "
      "Tensor(f!)[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float eps, "
      "bool amsgrad=False, bool decoupled=False, bool maximize=False, float grad_scale=1.) -> ()");
  m.def(
      "lamb_fused_steps(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, "
      "Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] params2, Tensor(e!)[] state_steps, *, float lr, float beta1, "
      "float beta2, float weight_decay, float eps, bool maximize=False, float grad_scale=1.) -> ()");
}
// A sparse gradient has the dispatch key of sparse tensors.
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(torch_ipex, SparseCPU, m) { register_kernels(m); }

}  // namespace ipex::torch_ops
