// Forward convolutions: 1-d to 3-d, grouped, dilated and transposed, with fused epilogues.
//
// Weights are passed to the primitive in its preferred format. Static weights are packed once; others (in
// training) are copied in each run, which is cheap compared with the convolution. Layouts of activations are
// tried in the order of ActivationForm.
#include <optional>

#include "kernels/conv_shape.h"
#include "kernels/library.h"
#include "kernels/planned_step.h"
#include "kernels/post_ops.h"
#include "kernels/prepack.h"
#include "kernels/step_fields.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

enum Operand { kDst, kX, kW, kBias };  // operands of post-ops follow the bias, or kW if there is none

std::string step_name(const ConvDesc& desc) {
  return desc.transposed ? "onednn.conv_transpose" : "onednn.conv";
}

struct Form {
  ActivationForm activations = ActivationForm::kAsGiven;
  OperandForm operands;
};

struct Attempt {
  dnnl::primitive_desc_base desc;
  Activations activations;
  std::optional<Epilogue> epilogue;
  Quality quality = Quality::kNone;
};

struct Problem {
  TensorView x, w, dst;  // w in torch's layout
  std::optional<dnnl::memory::desc> bias_given, bias;
  std::vector<BoundPostOp> post;
};

Problem make_problem(const ConvDesc& desc, const TensorView& w, const Resolved& resolved) {
  Problem p{resolved.operands[kX], w, resolved.operands[kDst]};
  const std::string what = step_name(desc);
  int next = kBias;
  if (desc.bias) {
    const TensorView bias = with_plain_strides(resolved.operands[next++], row_major_order(1));
    p.bias_given = describe(bias, what);
    p.bias = describe_dense(bias, row_major_order(1), what);
  }
  for (const PostOp& op : desc.post) {
    BoundPostOp bound{op};
    if (op.operand) {
      bound.shares_result = resolved.shares_result[next];
      bound.view = expand(resolved.operands[next], p.dst.sizes);
      bound.operand = next++;
    }
    p.post.push_back(std::move(bound));
  }
  return p;
}

Attempt attempt(const ConvDesc& desc, const Problem& p, const Form& form, const dnnl::memory::desc& weights) {
  const std::string what = step_name(desc);
  Attempt result;
  result.activations = activations(p.x, p.dst, form.activations, what);
  const auto& [x, dst] = result.activations;
  OperandForm operands = form.operands;
  operands.copy |= dst.given != dst.used;
  result.epilogue.emplace(p.post, dst.view, operands, what);
  const auto attributes = result.epilogue->attributes();
  const dnnl::memory::desc bias = p.bias.value_or(dnnl::memory::desc());
  const auto [stride, dilation, low, high] = geometry(desc);
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto& engine = cpu_engine();
  if (desc.transposed)
    result.desc = dnnl::deconvolution_forward::primitive_desc(
        engine, kind, dnnl::algorithm::deconvolution_direct, x.used, weights, bias, dst.used, stride,
        dilation, low, high, attributes, true);
  else
    result.desc = dnnl::convolution_forward::primitive_desc(engine, kind, dnnl::algorithm::convolution_direct,
                                                            x.used, weights, bias, dst.used, stride, dilation,
                                                            low, high, attributes, true);
  result.quality = conv_quality(result.desc);
  return result;
}

// The first direct implementation over all layouts and forms of operands, else the best one.
std::optional<Attempt> best_attempt(const ConvDesc& desc, const Problem& p,
                                    const dnnl::memory::desc& weights) {
  constexpr OperandForm kOperandForms[] = {{}, {.full = true}, {.full = true, .copy = true}};
  std::optional<Attempt> best;
  for (ActivationForm layout : {ActivationForm::kAsGiven, ActivationForm::kChannelsLast}) {
    for (const OperandForm& operands : kOperandForms) {
      try {
        Attempt tried = attempt(desc, p, {layout, operands}, weights);
        const Quality found = tried.quality;
        if (!best || found > best->quality) best = std::move(tried);
        if (found == Quality::kDirect) return best;
        if (found >= Quality::kGemm || !any_operand(p.post)) break;  // other operand forms would not help
      } catch (const Unsupported&) {
        if (layout == ActivationForm::kChannelsLast) throw;
        break;
      }
    }
  }
  return best;
}

dnnl::memory::desc any_format(const dnnl::memory::desc& weights) {
  return {weights.get_dims(), weights.get_data_type(), dnnl::memory::format_tag::any};
}

struct Packed {
  TensorView w;
  dnnl::memory::desc format;
};

Plan build(const ConvDesc& desc, const std::optional<Packed>& packed, const Resolved& resolved) {
  Plan plan;
  const std::string what = step_name(desc);
  const TensorView& w = packed ? packed->w : resolved.operands[kW];
  if (resolved.operands[kDst].numel() == 0) {
    plan.detail = "empty";
    return plan;
  }
  if (resolved.operands[kX].numel() == 0 || w.numel() == 0)
    throw Unsupported(what + ": all sums are empty; lower the op in another way");
  const Problem p = make_problem(desc, w, resolved);
  const dnnl::memory::desc given =
      packed ? packed->format : describe(library_weights(w, desc.groups, desc.transposed), what);

  std::optional<Attempt> chosen = packed ? best_attempt(desc, p, given) : std::nullopt;
  if (!chosen || chosen->quality < Quality::kDirect) {
    auto free = best_attempt(desc, p, any_format(given));
    if (!chosen || (free && free->quality > chosen->quality)) chosen = std::move(free);
  }
  const Quality needed = resolved.must_succeed ? Quality::kReference : Quality::kGemm;
  if (!chosen || chosen->quality < needed) throw Unsupported(refusal(what, p.x, w, p.dst));

  const auto& [x, dst] = chosen->activations;
  const auto wanted = chosen->desc.query_md(dnnl::query::weights_md);
  Plan::Arguments arguments = {
      {DNNL_ARG_SRC, plan.in_layout(plan.operand(kX, x.given), x.used)},
      {DNNL_ARG_WEIGHTS, plan.in_layout(plan.operand(kW, given), wanted)},
  };
  if (p.bias)
    arguments.emplace_back(DNNL_ARG_BIAS, plan.in_layout(plan.operand(kBias, *p.bias_given), *p.bias));
  chosen->epilogue->bind(plan, arguments);
  const int result = plan.operand(kDst, dst.given);
  const int written = dst.given == dst.used ? result : plan.scratch(dst.used);
  arguments.emplace_back(DNNL_ARG_DST, written);
  plan.add(chosen->desc, std::move(arguments));
  if (written != result) plan.copy(written, result);

  prepare(chosen->quality);
  plan.detail =
      std::string(chosen->desc.impl_info_str()) + (desc.bias ? " +bias" : "") + post_op_text(p.post);
  if (packed) plan.detail += ", packed w";
  if (wanted != given) plan.detail += ", copies w";
  if (x.given != x.used) plan.detail += ", copies x";
  if (written != result) plan.detail += ", copies dst";
  return plan;
}

struct Packing {
  Packed packed;
  dnnl::memory::desc given;
};

std::optional<Packing> find_packing(const ConvDesc& desc, const Resolved& likely) {
  if (!desc.pack_w || !desc.w.is_static() || desc.planning == Planning::kLater) return std::nullopt;
  Packing packing{{likely.operands[kW], {}}, {}};
  if (likely.operands[kDst].numel() == 0 || packing.packed.w.numel() == 0) return std::nullopt;
  try {
    packing.given =
        describe(library_weights(packing.packed.w, desc.groups, desc.transposed), step_name(desc));
    const auto chosen =
        best_attempt(desc, make_problem(desc, packing.packed.w, likely), any_format(packing.given));
    if (!chosen || chosen->quality < Quality::kGemm) return std::nullopt;
    packing.packed.format = chosen->desc.query_md(dnnl::query::weights_md);
  } catch (const std::exception&) {
    return std::nullopt;  // building the step for unpacked weights reports the error
  }
  if (packing.packed.format == packing.given) return std::nullopt;
  return packing;
}

}  // namespace

LibrarySteps make_conv(const ConvDesc& given, int packed_buffer) {
  ConvDesc desc = as_2d_convolution(given, {&ConvDesc::x, &ConvDesc::w, &ConvDesc::dst});
  if (given.stride.size() == 1)
    for (PostOp& op : desc.post)
      if (op.operand) add_row_dim(*op.operand);
  std::vector<TensorSpec> operands = {desc.dst, desc.x, desc.w};
  if (desc.bias) operands.push_back(*desc.bias);
  for (const PostOp& op : desc.post)
    if (op.operand) operands.push_back(*op.operand);
  const Resolved likely = resolve_likely(operands);

  LibrarySteps steps;
  std::optional<Packed> packed;
  if (auto packing = find_packing(desc, likely)) {
    packed = packing->packed;
    steps.pack = make_pack_step({{desc.w, packing->given, packed->format}}, packed_buffer);
    steps.packed_bytes = static_cast<int64_t>(packed->format.get_size());
    operands[kW] = packed_operand(packed_buffer, packed->format);
  }
  steps.main = std::make_unique<PlannedStep>(
      step_name(desc), operands, [=](const Resolved& resolved) { return build(desc, packed, resolved); },
      desc.planning);
  steps.main->text = to_line("onednn.conv", WithPacked<ConvDesc>{desc, packed_buffer});
  steps.main->info.flops =
      conv_flops(likely.operands[kDst], likely.operands[kX], likely.operands[kW], desc.transposed);
  return steps;
}

}  // namespace ipex::kernels
