// The step that rewrites weights in the format the library wants, once per version of the weights.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <string>

#include "runtime/executable.h"

namespace ipex::kernels {

// The packed weights as an operand: opaque bytes.
TensorSpec packed_operand(int buffer, const dnnl::memory::desc& packed);

std::unique_ptr<Step> make_pack_step(const TensorSpec& weights, const dnnl::memory::desc& given, int buffer,
                                     const dnnl::memory::desc& packed);

// "16x64 blocks, 9437184 bytes": for people.
std::string packed_text(const dnnl::memory::desc& packed);

}  // namespace ipex::kernels
