// See engine.h. The engine is never destroyed, because primitives may outlive all static objects at exit.
#include "kernels/engine.h"

#include <array>
#include <atomic>
#include <new>

#include "kernels/library.h"
#include "runtime/error.h"

namespace ipex::kernels {

const dnnl::engine& cpu_engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::primitive_attr base_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

Quality quality(const dnnl::primitive_desc_base& desc) {
  if (!desc) return Quality::kNone;
  const std::string_view implementation = desc.impl_info_str();
  const auto mentions = [&](std::string_view part) {
    return implementation.find(part) != std::string_view::npos;
  };
  if (mentions("ref")) return Quality::kReference;
  return mentions("gemm:") && !mentions("brgemm:") ? Quality::kGemm : Quality::kDirect;
}

void prepare(Quality quality) {
  static std::atomic_flag started;
  if (quality != Quality::kGemm || started.test_and_set()) return;
  constexpr int kSize = 4;  // a single element would use another code path
  std::array<float, kSize * kSize> a{}, b{}, c;
  check(dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0f, a.data(), kSize, b.data(), kSize, 0.0f, c.data(),
                   kSize),
        "a first product");
}

void rethrow(const dnnl::error& error, const std::string& what) {
  switch (error.status) {
    case dnnl_out_of_memory:
      throw std::bad_alloc();
    case dnnl_unimplemented:
      throw Unsupported(what +
                        ": oneDNN has no implementation of it on this CPU; lower the op in another way");
    default:
      throw InternalError(what + ": oneDNN reports status " + std::to_string(error.status) + ", " +
                          error.what());
  }
}

void check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) rethrow(dnnl::error(status, "call failed"), what);
}

bool runs_on(Isa isa, Dtype dtype) {
  // Without AVX512-BF16, oneDNN emulates bf16. On Zen 4 as avx512, its matrix products take 2.3 to 2.9 times
  // as long as f32 products with casts, and convolutions 1.9 to 5 times. And with odd K, an infinity in the
  // last term becomes NaN. f16 needs AVX512-FP16, which is not part of our ISAs.
  return dtype == Dtype::kF32 || (dtype == Dtype::kBF16 && isa == Isa::kAvx512Bf16);
}

std::string onednn_version() {
  const dnnl::version_t* version = dnnl::version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

void set_onednn_verbose(int level) { check(dnnl_set_verbose(level), "set the verbose level"); }

const void* onednn_code() { return reinterpret_cast<const void*>(&dnnl_primitive_create); }

}  // namespace ipex::kernels
