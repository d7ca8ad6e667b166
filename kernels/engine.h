// The one oneDNN engine of the process, the attributes every primitive starts from, and its errors in our
// terms.
#pragma once

#include <dnnl.hpp>
#include <string>

namespace ipex::kernels {

const dnnl::engine& cpu_engine();

// Scratchpad memory comes from us and fp32 stays fp32, whatever oneDNN's environment variables say.
dnnl::primitive_attr base_attributes();

// How good an implementation is; the order is the order of preference.
enum class Quality { kNone, kReference, kGemm, kDirect };
Quality quality(const dnnl::primitive_desc_base& desc);

// oneDNN makes the kernels of its f32 gemm at the first product, all of them (20 to 30 ms a process): whoever
// plans a step of this quality has them made, while other threads plan other steps, so that no call waits for
// it.
void prepare(Quality quality);

// Unsupported when oneDNN cannot do it, bad_alloc when memory ran out, InternalError otherwise.
[[noreturn]] void rethrow(const dnnl::error& error, const std::string& what);
void check(dnnl_status_t status, const char* what);

}  // namespace ipex::kernels
