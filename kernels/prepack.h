// The step that rewrites weights in the format the library wants, once per version of the weights.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace ipex::kernels {

// Weights to pack: where they are, their layout there, the format wanted, and where in the buffer it goes.
struct WeightsToPack {
  TensorSpec weights;
  dnnl::memory::desc given, packed;
  int64_t offset = 0;  // bytes
};

// The packed weights as an operand: opaque bytes.
TensorSpec packed_operand(int buffer, const dnnl::memory::desc& packed, int64_t offset = 0);

// One step packs all weights of a library step into one buffer.
std::unique_ptr<Step> make_pack_step(const std::vector<WeightsToPack>& all, int buffer);

// "16x64 blocks, 9437184 bytes": for people.
std::string packed_text(const dnnl::memory::desc& packed);

}  // namespace ipex::kernels
