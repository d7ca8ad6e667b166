// CPUID by the compiler's builtins, which also check that the operating system saves the wide registers.
#include "runtime/cpu.h"

#include <array>
#include <string>

#include "runtime/env.h"
#include "runtime/error.h"

namespace ipex {
namespace {

constexpr std::array<std::string_view, 3> kIsaNames = {"avx2", "avx512", "avx512_bf16"};

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
  if (wanted.empty()) return supported.back();
  const Isa isa = parse_isa(wanted);
  if (cpu_supports(isa)) return isa;
  std::string names;
  for (Isa s : supported) names += (names.empty() ? "" : ", ") + std::string(name(s));
  throw UserError("IPEX_TARGET=" + wanted + ", but this CPU does not support it: use one of " + names);
}

}  // namespace ipex
