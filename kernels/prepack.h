// The step that converts weights to the library's format, once per version of the weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/onednn.h"
#include "runtime/executable.h"

namespace ipex::kernels {

// Weights to pack: the operand, its layout, the target format, and its offset in the target buffer.
struct WeightsToPack {
  TensorSpec weights;
  dnnl::memory::desc given, packed;
  int64_t offset = 0;  // bytes
};

// The packed weights as an operand: opaque bytes.
TensorSpec packed_operand(int buffer, const dnnl::memory::desc& packed, int64_t offset = 0);

// One step packs all weights of a library step into one buffer.
std::unique_ptr<Step> make_pack_step(const std::vector<WeightsToPack>& all, int buffer);

// A description for reports: "16x64 blocks, 9437184 bytes".
std::string packed_text(const dnnl::memory::desc& packed);

}  // namespace ipex::kernels
