// torch_ipex::batch_norm: batch norm in training, which normalizes by the statistics of the batch and updates
// the running ones. It computes in f32, or in f64 for f64. The result has the dtype and the layout of the
// input.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <bit>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using c10::ScalarType;

struct Operands {
  const Tensor& input;
  const OptionalTensor &weight, &bias, &running_mean, &running_var;
  double momentum, eps;
};

// What the backward pass needs, by channel.
struct Statistics {
  Tensor mean, scale;  // scale: 1 / standard deviation
};

Tensor definition(const Operands& o) {
  return at::batch_norm(o.input, o.weight, o.bias, o.running_mean, o.running_var, /*training=*/true,
                        o.momentum, o.eps, /*cudnn_enabled=*/false);
}

// Whether the compiler has a kernel: ATen has the same choice of types.
bool is_compiled(const Operands& o) {
  const ScalarType own = o.input.scalar_type(), wide = at::toOpMathType(own);
  const auto fits = [&](const OptionalTensor& by_channel) {
    return !is_given(by_channel) || (by_channel->dim() == 1 && by_channel->size(0) == o.input.size(1) &&
                                     (by_channel->scalar_type() == own || by_channel->scalar_type() == wide));
  };
  return o.eps > 0 && is_given(o.running_mean) == is_given(o.running_var) && at::isFloatingType(own) &&
         o.input.dim() >= 2 && o.input.dim() <= 5 && o.input.numel() != 0 && fits(o.weight) && fits(o.bias) &&
         fits(o.running_mean) && fits(o.running_var);
}

// Lines of a graph over values [batch, channels, ...] and values by channel.
class Lines {
 public:
  Lines(ScalarType own, const Dims& dims)
      : wide_(at::toOpMathType(own)), own_(type_text(own, dims)), all_(type_text(wide_, dims)) {
    Dims kept(dims.size(), "1");
    kept[1] = dims[1];
    kept_ = type_text(wide_, kept);
    channels_ = type_text(wide_, {dims[1]});
    for (size_t d = 0; d < dims.size(); ++d) {
      every_ += (d ? "," : "") + std::to_string(d);
      if (d == 1) continue;
      axes_ += (d ? "," : "") + std::to_string(d);
      count_ += (d ? "*(" : "(") + dims[d] + ")";
    }
  }

  Lines& all(const char* name, const std::string& node) { return add(name, "pointwise." + node, all_); }
  Lines& kept(const char* name, const std::string& node) { return add(name, "pointwise." + node, kept_); }
  Lines& channels(const std::string& name, const std::string& node) { return add(name, node, channels_); }
  Lines& in_own_type(const char* name, const char* from) {
    return add(name, "pointwise.cast(%" + std::string(from) + ")", own_);
  }
  Lines& variance_and_mean(const char* variance, const char* mean, const char* of) {
    text_ += "%" + std::string(variance) + ", ";
    return add(mean,
               "reduce.var_mean(%" + std::string(of) + ") axes=[" + axes_ + "] correction=0.0 keepdim=true",
               kept_ + ", " + kept_);
  }
  Lines& sum(const char* name, const char* of) {
    return channels(name, "reduce.sum(%" + std::string(of) + ") axes=[" + axes_ + "] keepdim=false");
  }
  // Values by channel, with the other dims of 1 if `is_kept`, as values of every element.
  Lines& spread(const std::string& name, std::string from, bool is_kept = false) {
    if (!is_kept) add(name + "k", "reshape(%" + from + ")", kept_), from = name + "k";
    return add(name, "expand(%" + from + ") dims=[" + every_ + "]", all_);
  }
  Lines& kept_constant(const std::string& name, double value) {
    add(name + "0", "constant value=" + number_text(value), type_text(wide_, {}));
    return add(name, "expand(%" + name + "0) dims=[]", kept_);
  }
  // 1 / the number of elements of a channel.
  Lines& share(const std::string& name) {
    const std::string one = type_text(wide_, {});
    add(name + "n", "full value=dim(" + count_ + ")", "i64[]");
    add(name + "f", "pointwise.cast(%" + name + "n)", one);
    add(name + "0", "pointwise.reciprocal(%" + name + "f)", one);
    return channels(name, "expand(%" + name + "0) dims=[]");
  }
  std::string take() { return std::move(text_); }

 private:
  Lines& add(const std::string& name, const std::string& node, const std::string& type) {
    text_ += "%" + name + " = " + node + " : " + type + "\n";
    return *this;
  }

  const ScalarType wide_;
  std::string text_, own_, all_, kept_, channels_, axes_, every_, count_;
};

bool is_last(const Tensor& input) { return input.suggest_memory_format() != c10::MemoryFormat::Contiguous; }

void update(const OptionalTensor& running, const Tensor& value, double momentum, double scale) {
  if (!is_given(running)) return;
  const Tensor wide = running->to(value.scalar_type());  // statistics of bf16 are rounded once
  wide.mul_(1 - momentum).add_(value, momentum * scale);
  if (!wide.is_same(*running)) running->copy_(wide);
  count_write(*running);
}

Tensor forward(const Operands& o, Statistics* statistics) {
  const bool weighted = is_given(o.weight), biased = is_given(o.bias), last = is_last(o.input);
  const ScalarType own = o.input.scalar_type();
  const auto body = [&](std::span<const Dims> dims) {
    Lines lines(own, dims[0]);
    lines.all("f", "cast(%x)").variance_and_mean("v", "m", "f").kept_constant("e", o.eps);
    lines.kept("ve", "add(%v, %e)").kept("r", "rsqrt(%ve)").spread("ms", "m", true).spread("rs", "r", true);
    lines.all("d", "sub(%f, %ms)").all("n0", "mul(%d, %rs)");
    std::string result = "n0";
    if (weighted) {
      lines.channels("fw", "pointwise.cast(%w)").spread("ws", "fw").all("n1", "mul(%n0, %ws)");
      result = "n1";
    }
    if (biased) {
      lines.channels("fb", "pointwise.cast(%b)").spread("bs", "fb").all("n2", "add(%" + result + ", %bs)");
      result = "n2";
    }
    lines.in_own_type("y", result.c_str());
    for (const char* name : {"m", "r", "v"})
      lines.channels(std::string("o") + name, std::string("reshape(%") + name + ")");
    return lines.take() + "return %y" + strides_text(last, dims[0]) + ", %om{1}, %or{1}, %ov{1}";
  };
  c10::SmallVector<OpInput, 3> inputs{{"x", o.input, false, all_but_channels(o.input.dim())}};
  if (weighted) inputs.push_back({"w", *o.weight});
  if (biased) inputs.push_back({"b", *o.bias});
  const OpSettings settings{weighted, biased, last, std::bit_cast<int64_t>(o.eps)};
  const auto results = run_compiled("batch_norm", inputs, settings, body);
  const double count = static_cast<double>(o.input.numel() / o.input.size(1));
  update(o.running_mean, results[1], o.momentum, 1);
  update(o.running_var, results[3], o.momentum, count / (count - 1));
  if (statistics) *statistics = {results[1], results[2]};
  return results[0];
}

using Gradients = std::array<Tensor, 3>;

Gradients backward(const Tensor& grad, const Tensor& input, const OptionalTensor& weight,
                   const Statistics& statistics, std::array<bool, 3> mask) {
  const bool weighted = is_given(weight), last = is_last(input);
  const ScalarType own = input.scalar_type();
  const auto body = [&](std::span<const Dims> dims) {
    Lines lines(own, dims[1]);
    lines.all("h", "cast(%g)").all("f", "cast(%x)").spread("ms", "m").spread("rs", "r");
    // The products with normalized values are summed: with centred values the sum could overflow.
    lines.all("d", "sub(%f, %ms)")
        .all("n", "mul(%d, %rs)")
        .all("p", "mul(%h, %n)")
        .sum("pt", "p")
        .sum("ht", "h");
    std::string results;
    if (mask[0]) {
      lines.share("k").channels("pk", "pointwise.mul(%pt, %k)").channels("hk", "pointwise.mul(%ht, %k)");
      lines.channels("q", "pointwise.mul(%pk, %r)").spread("qs", "q").spread("hs", "hk");
      lines.all("d1", "mul(%d, %qs)").all("d2", "sub(%h, %d1)").all("d3", "sub(%d2, %hs)");
      if (weighted) lines.channels("fw", "pointwise.cast(%w)").channels("s", "pointwise.mul(%r, %fw)");
      lines.spread("ss", weighted ? "s" : "r").all("d4", "mul(%d3, %ss)").in_own_type("dx", "d4");
      results = "%dx" + strides_text(last, dims[1]);
    }
    const auto parameter = [&](bool wanted, const char* name) {
      if (!wanted) return;
      results += (results.empty() ? "%" : ", %") + std::string(name) + "{1}";
    };
    parameter(mask[1], "pt");
    parameter(mask[2], "ht");
    return lines.take() + "return " + results;
  };
  const uint32_t free = all_but_channels(input.dim());
  c10::SmallVector<OpInput, 5> inputs{
      {"g", grad, false, free}, {"x", input, false, free}, {"m", statistics.mean}, {"r", statistics.scale}};
  if (weighted && mask[0]) inputs.push_back({"w", *weight});
  const OpSettings settings{weighted, last, mask[0], mask[1], mask[2]};
  const auto results = run_compiled("batch_norm_backward", inputs, settings, body);
  Gradients gradients;
  int next = 0;
  for (int i = 0; i < 3; ++i)
    if (mask[i]) gradients[i] = results[next++];
  return gradients;
}

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& running_mean,
                        const OptionalTensor& running_var, double momentum, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    Statistics statistics;
    const Tensor result =
        torch_ops::forward({input, weight, bias, running_mean, running_var, momentum, eps}, &statistics);
    context->save_for_backward({input, tensor_of(weight), statistics.mean, statistics.scale});
    context->saved_data["eps"] = eps;
    if (is_given(bias)) context->saved_data["bias_type"] = static_cast<int64_t>(bias->scalar_type());
    return result;
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    Tensors all(7);
    if (!grads[0].defined()) return all;
    const Tensors saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1];
    const bool weighted = weight.defined(), biased = context->saved_data.count("bias_type") != 0;
    // Operands that are not given are not counted.
    const std::array<bool, 3> mask = {context->needs_input_grad(0), weighted && context->needs_input_grad(1),
                                      biased && context->needs_input_grad(weighted ? 2 : 1)};
    if (at::GradMode::is_enabled() || !all_dense(grads[0])) {  // can be differentiated again
      const auto as_weight = [&](const Tensor& t) { return weighted ? t.to(weight.scalar_type()) : t; };
      std::tie(all[0], all[1], all[2]) = at::native_batch_norm_backward(
          grads[0], input, weight, {}, {}, as_weight(saved[2]), as_weight(saved[3]), true,
          context->saved_data["eps"].toDouble(), mask);
    } else {
      at::AutoDispatchBelowADInplaceOrView below;
      Gradients gradients = torch_ops::backward(grads[0], input, weight, {saved[2], saved[3]}, mask);
      std::move(gradients.begin(), gradients.end(), all.begin());
    }
    if (mask[1]) all[1] = all[1].to(weight.scalar_type());
    if (mask[2]) all[2] = all[2].to(static_cast<ScalarType>(context->saved_data["bias_type"].toInt()));
    return all;
  }
};

// As torch.nn.functional.batch_norm, which checks this before it calls an operator.
void check_count(const Tensor& input) {
  c10::SymInt count = 1;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) count *= input.sym_size(d);
  TORCH_CHECK_VALUE(input.dim() < 2 || count != 1,
                    "Expected more than 1 value per channel when training, got input size ",
                    input.sym_sizes());
}

Tensor kernel(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
              const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
              double eps) {
  check_count(input);
  const Operands operands{input, weight, bias, running_mean, running_var, momentum, eps};
  return is_compiled(operands) ? forward(operands, nullptr) : definition(operands);
}

Tensor by_definition(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
                     double eps) {
  check_count(input);
  return definition({input, weight, bias, running_mean, running_var, momentum, eps});
}

Tensor autograd(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
                double eps) {
  check_count(input);
  const Operands operands{input, weight, bias, running_mean, running_var, momentum, eps};
  if (!all_dense(input, weight, bias, running_mean, running_var) || !is_compiled(operands))
    return definition(operands);
  if (needs_gradient(input, weight, bias))
    return BatchNormFunction::apply(input, weight, bias, running_mean, running_var, momentum, eps);
  at::AutoDispatchBelowADInplaceOrView below;
  return forward(operands, nullptr);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? "
      "running_var, float momentum, float eps) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("batch_norm", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) { m.impl("batch_norm", by_definition); }
TORCH_LIBRARY_IMPL(torch_ipex, FuncTorchBatched, m) { m.impl("batch_norm", by_definition); }
TORCH_LIBRARY_IMPL(torch_ipex, Functionalize, m) { m.impl("batch_norm", by_definition); }
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("batch_norm", autograd); }

}  // namespace ipex::torch_ops
