// The oneDNN engine of the process, the common attributes of all primitives, the quality of implementations,
// and the translation of oneDNN's errors.
#pragma once

#include <string>

#include "kernels/onednn.h"

namespace ipex::kernels {

const dnnl::engine& cpu_engine();

// We provide scratchpad memory, and fp32 stays fp32, whatever oneDNN's environment variables say.
dnnl::primitive_attr base_attributes();

// The quality of an implementation, in ascending order: reference, im2col or gemm, oneDNN's own kernels.
enum class Quality { kNone, kReference, kGemm, kDirect };
Quality quality(const dnnl::primitive_desc_base& desc);

// oneDNN generates all kernels of its f32 gemm at the first product, which takes 20 to 30 ms per process.
// Planning a step of this quality triggers that, while other threads plan other steps, so that no call has to
// wait.
void prepare(Quality quality);

// Throws Unsupported for an unsupported primitive, bad_alloc when out of memory, else InternalError.
[[noreturn]] void rethrow(const dnnl::error& error, const std::string& what);
void check(dnnl_status_t status, const char* what);

}  // namespace ipex::kernels
