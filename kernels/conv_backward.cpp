// Gradients of a convolution: of its input (data) and of its weights. oneDNN requires a forward descriptor as
// a hint; no forward primitive runs.
#include <optional>

#include "kernels/conv_shape.h"
#include "kernels/library.h"
#include "kernels/planned_step.h"
#include "kernels/step_fields.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

enum Operand { kDst, kGrad, kOther };  // kOther: w for the gradient of the input, x for that of the weights

std::string step_name(const ConvBackwardDesc& desc) {
  return std::string(desc.transposed ? "onednn.conv_transpose_backward_" : "onednn.conv_backward_") +
         (desc.weights ? "weights" : "data");
}

struct Attempt {
  dnnl::primitive_desc_base desc;
  Activations activations;
  Quality quality = Quality::kNone;
};

// The oneDNN types of plain and transposed convolutions under common names.
struct Plain {
  using Forward = dnnl::convolution_forward::primitive_desc;
  using Data = dnnl::convolution_backward_data::primitive_desc;
  using Weights = dnnl::convolution_backward_weights::primitive_desc;
  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
};
struct Transposed {
  using Forward = dnnl::deconvolution_forward::primitive_desc;
  using Data = dnnl::deconvolution_backward_data::primitive_desc;
  using Weights = dnnl::deconvolution_backward_weights::primitive_desc;
  static constexpr auto kAlgorithm = dnnl::algorithm::deconvolution_direct;
};

dnnl::memory::desc with_type(const dnnl::memory::desc& desc, dnnl::memory::data_type type) {
  return dnnl::memory::desc(desc.get_dims(), type, desc.get_strides());
}

template <class Kind>
dnnl::primitive_desc_base make_desc(const ConvBackwardDesc& desc, const Activations& activations,
                                    const TensorView& weights, const std::string& what) {
  const auto& engine = cpu_engine();
  const auto [stride, dilation, low, high] = geometry(desc);
  const auto attributes = base_attributes();
  const auto& x = activations.x.used;
  const auto& y = activations.y.used;
  const auto type = y.get_data_type();
  const auto any = [&](dnnl::memory::data_type of) {
    return dnnl::memory::desc(weights.sizes, of, dnnl::memory::format_tag::any);
  };
  const typename Kind::Forward hint(engine, dnnl::prop_kind::forward_training, Kind::kAlgorithm,
                                    with_type(x, type), any(type), y, stride, dilation, low, high,
                                    dnnl::primitive_attr(), true);
  if (!hint) return {};
  const auto w = any(data_type(weights.dtype, what));
  if (desc.weights)
    return typename Kind::Weights(engine, Kind::kAlgorithm, x, w, y, stride, dilation, low, high, hint,
                                  attributes, true);
  return typename Kind::Data(engine, Kind::kAlgorithm, x, w, y, stride, dilation, low, high, hint, attributes,
                             true);
}

Plan build(const ConvBackwardDesc& desc, const Resolved& resolved) {
  Plan plan;
  const std::string what = step_name(desc);
  const auto& [dst, grad, other] =
      std::tie(resolved.operands[kDst], resolved.operands[kGrad], resolved.operands[kOther]);
  if (dst.numel() == 0 || grad.numel() == 0 || other.numel() == 0) {
    if (dst.numel() > 0) plan.fill_with_zeros(kDst, dst);
    plan.detail = "empty";
    return plan;
  }
  const TensorView& x = desc.weights ? other : dst;
  const TensorView& w = desc.weights ? dst : other;
  const TensorView weights = library_weights(w, desc.groups, desc.transposed);
  std::optional<Attempt> best;
  for (ActivationForm form : {ActivationForm::kAsGiven, ActivationForm::kChannelsLast}) {
    try {
      Attempt tried{{}, activations(x, grad, form, what)};
      tried.desc = desc.transposed ? make_desc<Transposed>(desc, tried.activations, weights, what)
                                   : make_desc<Plain>(desc, tried.activations, weights, what);
      tried.quality = conv_quality(tried.desc);
      if (!best || tried.quality > best->quality) best = std::move(tried);
      if (best->quality == Quality::kDirect) break;
    } catch (const Unsupported&) {
      if (form == ActivationForm::kChannelsLast) throw;
    }
  }
  const Quality needed = resolved.must_succeed ? Quality::kReference : Quality::kGemm;
  if (!best || best->quality < needed) throw Unsupported(refusal(what, x, w, grad));

  const Activation& ax = best->activations.x;
  const Activation& ay = best->activations.y;
  const auto w_given = describe(weights, what);
  const auto w_used =
      best->desc.query_md(desc.weights ? dnnl::query::diff_weights_md : dnnl::query::weights_md);
  Plan::Arguments arguments = {{DNNL_ARG_DIFF_DST, plan.in_layout(plan.operand(kGrad, ay.given), ay.used)}};
  const auto& given = desc.weights ? w_given : ax.given;
  const auto& used = desc.weights ? w_used : ax.used;
  if (desc.weights)
    arguments.emplace_back(DNNL_ARG_SRC, plan.in_layout(plan.operand(kOther, ax.given), ax.used));
  else
    arguments.emplace_back(DNNL_ARG_WEIGHTS, plan.in_layout(plan.operand(kOther, w_given), w_used));
  const int result = plan.operand(kDst, given);
  const int written = given == used ? result : plan.scratch(used);
  arguments.emplace_back(desc.weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DIFF_SRC, written);
  plan.add(best->desc, std::move(arguments));
  if (written != result) plan.copy(written, result);

  plan.detail = best->desc.impl_info_str();
  if (ay.given != ay.used) plan.detail += ", copies grad";
  if (ax.given != ax.used) plan.detail += ", copies x";
  if (w_given != w_used) plan.detail += ", copies w";
  return plan;
}

}  // namespace

std::unique_ptr<Step> make_conv_backward(const ConvBackwardDesc& given) {
  using Desc = ConvBackwardDesc;
  const Desc desc = as_2d_convolution(given, {&Desc::grad, &Desc::x, &Desc::w, &Desc::dst});
  const std::vector<TensorSpec> operands = {desc.dst, desc.grad, desc.weights ? desc.x : desc.w};
  auto step = std::make_unique<PlannedStep>(
      step_name(desc), operands, [=](const Resolved& resolved) { return build(desc, resolved); },
      desc.planning);
  step->text = to_line("onednn.conv_backward", desc);
  const Resolved likely = resolve_likely(operands);
  const TensorView& x = likely.operands[desc.weights ? kOther : kDst];
  const TensorView& w = likely.operands[desc.weights ? kDst : kOther];
  step->info.flops = conv_flops(likely.operands[kGrad], x, w, desc.transposed);
  return step;
}

}  // namespace ipex::kernels
