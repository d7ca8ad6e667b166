// See prepack.h. A pack step is a plan of one reorder; padding that the format needs is zeroed by it.
#include "kernels/prepack.h"

#include "kernels/descriptors.h"
#include "kernels/planned_step.h"

namespace ipex::kernels {
namespace {

// All that says where an element lies.
std::string layout_text(const dnnl::memory::desc& desc) {
  std::string text = std::to_string(static_cast<int>(desc.get_data_type())) + "/" +
                     std::to_string(static_cast<int>(desc.get_format_kind())) + "/" +
                     std::to_string(desc.get_size());
  for (const Dims& numbers : {desc.get_dims(), desc.get_padded_dims(), desc.get_padded_offsets(),
                              desc.get_strides(), desc.get_inner_blks(), desc.get_inner_idxs()}) {
    text += "/";
    for (const auto n : numbers) text += std::to_string(n) + ",";
  }
  return text;
}

}  // namespace

TensorSpec packed_operand(int buffer, const dnnl::memory::desc& packed) {
  TensorSpec spec;
  spec.buffer = buffer;
  spec.dtype = Dtype::kU8;
  spec.sizes = {static_cast<int64_t>(packed.get_size())};
  spec.strides = {1};
  return spec;
}

std::unique_ptr<Step> make_pack_step(const TensorSpec& weights, const dnnl::memory::desc& given, int buffer,
                                     const dnnl::memory::desc& packed) {
  auto step = std::make_unique<PlannedStep>(
      "onednn.pack", std::vector<TensorSpec>{packed_operand(buffer, packed), weights}, [=](const Resolved&) {
        Plan plan;
        plan.copy(plan.operand(1, given), plan.operand(0, packed));
        plan.detail = packed_text(packed);
        return plan;
      });
  if (weights.offset.is_const())
    step->recipe = "pack " + layout_text(given) + " at " + std::to_string(weights.offset.constant()) +
                   " to " + layout_text(packed);
  step->implied = true;
  step->info.bytes = static_cast<int64_t>(given.get_size() + packed.get_size());
  return step;
}

std::string packed_text(const dnnl::memory::desc& packed) {
  std::string blocks;
  for (const auto block : packed.get_inner_blks())
    blocks += (blocks.empty() ? "" : "x") + std::to_string(block);
  return (blocks.empty() ? "plain" : blocks + " blocks") + ", " + std::to_string(packed.get_size()) +
         " bytes";
}

}  // namespace ipex::kernels
