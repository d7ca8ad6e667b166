// See prepack.h. The plan of a pack step has one reorder per weight, which also zeroes padding.
#include "kernels/prepack.h"

#include <algorithm>

#include "kernels/descriptors.h"
#include "kernels/planned_step.h"

namespace ipex::kernels {
namespace {

// A text with all properties that determine where an element is stored.
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

TensorSpec packed_operand(int buffer, const dnnl::memory::desc& packed, int64_t offset) {
  TensorSpec spec;
  spec.buffer = buffer;
  spec.dtype = Dtype::kU8;
  spec.sizes = {static_cast<int64_t>(packed.get_size())};
  spec.strides = {1};
  spec.offset = offset;
  return spec;
}

std::unique_ptr<Step> make_pack_step(const std::vector<WeightsToPack>& all, int buffer) {
  const int count = static_cast<int>(all.size());
  std::vector<TensorSpec> operands;
  for (const WeightsToPack& p : all) operands.push_back(packed_operand(buffer, p.packed, p.offset));
  for (const WeightsToPack& p : all) operands.push_back(p.weights);
  auto step = std::make_unique<PlannedStep>(
      "onednn.pack", std::move(operands),
      [=](const Resolved&) {
        Plan plan;
        for (int i = 0; i < count; ++i) {
          plan.copy(plan.operand(count + i, all[i].given), plan.operand(i, all[i].packed));
          plan.detail += (i ? "; " : "") + packed_text(all[i].packed);
        }
        return plan;
      },
      Planning::kJudge, count);
  const bool known =
      std::ranges::all_of(all, [](const WeightsToPack& p) { return p.weights.offset.is_const(); });
  for (const WeightsToPack& p : all) {
    if (known)
      step->recipe += (step->recipe.empty() ? "pack " : "; ") + layout_text(p.given) + " at " +
                      std::to_string(p.weights.offset.constant()) + " to " + layout_text(p.packed);
    step->info.bytes += static_cast<int64_t>(p.given.get_size() + p.packed.get_size());
  }
  step->implied = true;
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
