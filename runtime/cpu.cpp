// CPUID by the compiler's builtins, which also check that the operating system saves the wide registers.
#include "runtime/cpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/log.h"

namespace ipex {
namespace {

constexpr std::array<std::string_view, 3> kIsaNames = {"avx2", "avx512", "avx512_bf16"};

// Values of ATEN_CPU_CAPABILITY: those of PyTorch, and the finer ones of Intel Extension for PyTorch.
constexpr std::pair<std::string_view, Isa> kCapabilities[] = {
    {"default", Isa::kAvx2},           {"avx2", Isa::kAvx2},          {"avx2_vnni", Isa::kAvx2},
    {"avx512", Isa::kAvx512},          {"avx512_vnni", Isa::kAvx512}, {"avx512_bf16", Isa::kAvx512Bf16},
    {"avx512_fp16", Isa::kAvx512Bf16}, {"amx", Isa::kAvx512Bf16},
};

// The highest Isa that ATEN_CPU_CAPABILITY allows. "default" means no vectors, and AVX2 is our lowest.
Isa capability_limit() {
  constexpr Isa kNoLimit = Isa::kAvx512Bf16;
  const std::string text = env::get("ATEN_CPU_CAPABILITY");
  if (text.empty()) return kNoLimit;
  for (const auto& [name, isa] : kCapabilities)
    if (name == text) return isa;
  static std::atomic_flag warned;
  if (!warned.test_and_set()) {
    std::string names;
    for (const auto& [name, isa] : kCapabilities) names += (names.empty() ? "" : ", ") + std::string(name);
    log(LogLevel::kWarning,
        "ATEN_CPU_CAPABILITY=" + text + " is unknown and sets no limit: use one of " + names);
  }
  return kNoLimit;
}

}  // namespace

std::string_view name(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

Isa parse_isa(std::string_view text) {
  for (size_t i = 0; i < kIsaNames.size(); ++i)
    if (kIsaNames[i] == text) return static_cast<Isa>(i);
  throw UserError("unknown target '" + std::string(text) + "': use avx2, avx512 or avx512_bf16");
}

bool cpu_supports(Isa isa) {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx512Bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    if (cpu_supports(isa)) isas.push_back(isa);
  return isas;
}

Isa current_isa() {
  const std::vector<Isa> supported = supported_isas();
  if (supported.empty())
    throw UserError("this CPU does not support AVX2 with FMA and F16C, which ipex needs");
  const std::string wanted = env::get("IPEX_TARGET");
  if (wanted.empty()) return std::min(supported.back(), capability_limit());
  const Isa isa = parse_isa(wanted);
  if (cpu_supports(isa)) return isa;
  std::string names;
  for (Isa s : supported) names += (names.empty() ? "" : ", ") + std::string(name(s));
  throw UserError("IPEX_TARGET=" + wanted + ", but this CPU does not support it: use one of " + names);
}

}  // namespace ipex
