// One layer of an LSTM in one direction. oneDNN needs sequences and states in row-major order, and prefers
// weights in its own blocked formats.
#include <optional>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "kernels/library.h"
#include "kernels/onednn.h"
#include "kernels/planned_step.h"
#include "kernels/prepack.h"
#include "kernels/step_fields.h"
#include "runtime/alignment.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

constexpr char kName[] = "onednn.lstm";
constexpr int64_t kGates = 4;

enum Operand { kDst, kHLast, kCLast, kX, kH, kC, kWInput, kWHidden, kBias };
constexpr int kResults = 3;

// oneDNN's tensors have dims for layers and directions, both 1 here, and separate dims for gates and hidden
// elements.

TensorView with_layer(TensorView view) {
  view.sizes.insert(view.sizes.begin(), {1, 1});
  view.strides.insert(view.strides.begin(), {0, 0});
  return view;
}

// Views [4 H, inputs] as [1, 1, inputs, 4, H].
TensorView library_weights(const TensorView& w) {
  const int64_t hidden = w.sizes[0] / kGates, row = w.strides[0], column = w.strides[1];
  return with_layer({nullptr, w.dtype, {w.sizes[1], kGates, hidden}, {column, hidden * row, row}});
}

TensorView library_bias(const TensorView& bias) {
  const int64_t hidden = bias.sizes[0] / kGates, stride = bias.strides[0];
  return with_layer({nullptr, bias.dtype, {kGates, hidden}, {hidden * stride, stride}});
}

TensorView library_operand(const Resolved& resolved, Operand which) {
  const TensorView& view = resolved.operands[which];
  switch (which) {
    case kDst:
    case kX:
      return view;
    case kWInput:
    case kWHidden:
      return library_weights(view);
    case kBias:
      return library_bias(view);
    default:
      return with_layer(view);
  }
}

std::vector<int> order_of(const TensorView& view) {
  return row_major_order(static_cast<int>(view.sizes.size()));
}
dnnl::memory::desc given(const TensorView& view) {
  return describe(with_plain_strides(view, order_of(view)), kName);
}
dnnl::memory::desc row_major(const TensorView& view) { return describe_dense(view, order_of(view), kName); }

// The formats of the two weights, for the input and for the hidden state.
struct Formats {
  dnnl::memory::desc input, hidden;
};

Formats given_formats(const Resolved& resolved) {
  return {given(library_operand(resolved, kWInput)), given(library_operand(resolved, kWHidden))};
}

using Primitive = dnnl::lstm_forward::primitive_desc;

Primitive make_desc(const LstmDesc& desc, const Resolved& resolved, const Formats& weights) {
  const auto operand = [&](Operand which) { return row_major(library_operand(resolved, which)); };
  const dnnl::memory::desc h = operand(kH);
  const int64_t hidden = resolved.operands[kH].sizes[1];
  const dnnl::memory::desc bias({1, 1, kGates, hidden}, dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::ldgo);
  return Primitive(cpu_engine(), dnnl::prop_kind::forward_inference,
                   desc.reverse ? dnnl::rnn_direction::unidirectional_right2left
                                : dnnl::rnn_direction::unidirectional_left2right,
                   operand(kX), h, operand(kC), weights.input, weights.hidden, bias, operand(kDst),
                   operand(kHLast), operand(kCLast), base_attributes(), true);
}

// Lets the library choose the formats of the weights. An opaque format may depend on other sizes too; then
// plain rows are used, which all its implementations accept.
Primitive choose_formats(const LstmDesc& desc, const Resolved& resolved, const Formats& weights) {
  using Tag = dnnl::memory::format_tag;
  const auto in = [](const dnnl::memory::desc& md, Tag tag) {
    return dnnl::memory::desc(md.get_dims(), md.get_data_type(), tag);
  };
  const auto opaque = [](const dnnl::memory::desc& md) {
    return md.get_format_kind() == dnnl::memory::format_kind::opaque;
  };
  const auto with = [&](Tag tag) {
    return make_desc(desc, resolved, {in(weights.input, tag), in(weights.hidden, tag)});
  };
  const Primitive chosen = with(Tag::any);
  if (!chosen || (!opaque(chosen.weights_layer_desc()) && !opaque(chosen.weights_iter_desc()))) return chosen;
  return with(Tag::ldigo);
}

// Whether the sequence or the state is empty.
bool is_empty(const Resolved& resolved) { return resolved.operands[kDst].numel() == 0; }

Plan build(const LstmDesc& desc, const std::optional<Formats>& packed, const Resolved& resolved) {
  Plan plan;
  const auto operand = [&](Operand which) {
    return plan.operand(which, given(library_operand(resolved, which)));
  };
  if (is_empty(resolved)) {
    if (resolved.operands[kH].numel() > 0) {
      plan.copy(operand(kH), operand(kHLast));
      plan.copy(operand(kC), operand(kCLast));
    }
    plan.detail = "empty";
    return plan;
  }
  const Formats weights = packed ? *packed : given_formats(resolved);
  Primitive chosen;
  if (packed) chosen = make_desc(desc, resolved, weights);
  if (!chosen) chosen = choose_formats(desc, resolved, weights);
  if (!chosen)
    throw Unsupported(std::string(kName) + ": oneDNN has no LSTM for " + text(resolved.operands[kX]) +
                      " on this CPU; lower the op in another way");

  Plan::Arguments arguments;
  const auto read = [&](int argument, int slot, const dnnl::memory::desc& used) {
    arguments.emplace_back(argument, plan.in_layout(slot, used));
  };
  read(DNNL_ARG_SRC_LAYER, operand(kX), chosen.src_layer_desc());
  read(DNNL_ARG_SRC_ITER, operand(kH), chosen.src_iter_desc());
  read(DNNL_ARG_SRC_ITER_C, operand(kC), chosen.src_iter_c_desc());
  read(DNNL_ARG_WEIGHTS_LAYER, plan.operand(kWInput, weights.input), chosen.weights_layer_desc());
  read(DNNL_ARG_WEIGHTS_ITER, plan.operand(kWHidden, weights.hidden), chosen.weights_iter_desc());
  // oneDNN's LSTM always has a bias.
  const auto bias = chosen.bias_desc();
  read(DNNL_ARG_BIAS, desc.bias ? operand(kBias) : plan.zeros(bias), bias);

  std::vector<std::pair<int, int>> copies;
  const auto write = [&](int argument, Operand which, const dnnl::memory::desc& used) {
    const int result = operand(which);
    const bool direct = given(library_operand(resolved, which)) == used;
    arguments.emplace_back(argument, direct ? result : plan.scratch(used));
    if (!direct) copies.emplace_back(arguments.back().second, result);
  };
  write(DNNL_ARG_DST_LAYER, kDst, chosen.dst_layer_desc());
  write(DNNL_ARG_DST_ITER, kHLast, chosen.dst_iter_desc());
  write(DNNL_ARG_DST_ITER_C, kCLast, chosen.dst_iter_c_desc());
  plan.add(chosen, std::move(arguments));
  for (const auto& [from, to] : copies) plan.copy(from, to);
  plan.detail = std::string(chosen.impl_info_str()) + (desc.bias ? " +bias" : "") +
                (desc.reverse ? ", reversed" : "") + (packed ? ", packed weights" : "");
  return plan;
}

// The formats for packed weights; nullopt if their sizes are not known.
std::optional<Formats> find_packing(const LstmDesc& desc, const Resolved& likely) {
  if (!desc.pack || !desc.w_input.is_static() || !desc.w_hidden.is_static() ||
      desc.planning == Planning::kLater || is_empty(likely))
    return std::nullopt;
  try {
    const Primitive chosen = choose_formats(desc, likely, given_formats(likely));
    if (!chosen) return std::nullopt;
    return Formats{chosen.weights_layer_desc(), chosen.weights_iter_desc()};
  } catch (const std::exception&) {
    return std::nullopt;  // building the step for unpacked weights reports the error
  }
}

}  // namespace

LibrarySteps make_lstm(const LstmDesc& desc, int packed_buffer) {
  std::vector<TensorSpec> operands = {desc.dst, desc.h_last, desc.c_last,  desc.x,
                                      desc.h,   desc.c,      desc.w_input, desc.w_hidden};
  if (desc.bias) operands.push_back(*desc.bias);
  const Resolved likely = resolve_likely(operands);

  LibrarySteps steps;
  const std::optional<Formats> packed = find_packing(desc, likely);
  if (packed) {
    const int64_t second = aligned(static_cast<int64_t>(packed->input.get_size()));
    const Formats plain = given_formats(likely);
    steps.pack = make_pack_step(
        {{desc.w_input, plain.input, packed->input}, {desc.w_hidden, plain.hidden, packed->hidden, second}},
        packed_buffer);
    steps.packed_bytes = second + static_cast<int64_t>(packed->hidden.get_size());
    operands[kWInput] = packed_operand(packed_buffer, packed->input);
    operands[kWHidden] = packed_operand(packed_buffer, packed->hidden, second);
  }
  steps.main = std::make_unique<PlannedStep>(
      kName, operands, [=](const Resolved& resolved) { return build(desc, packed, resolved); }, desc.planning,
      kResults);
  steps.main->text = to_line(kName, WithPacked<LstmDesc>{desc, packed_buffer});
  return steps;
}

}  // namespace ipex::kernels
