// Instruction sets of this CPU. Every kernel is compiled for one Isa.
#pragma once

#include <string_view>
#include <vector>

namespace ipex {

enum class Isa { kAvx2, kAvx512, kAvx512Bf16 };

std::string_view name(Isa isa);        // "avx2", "avx512", "avx512_bf16"
Isa parse_isa(std::string_view text);  // throws UserError listing the known names
bool cpu_supports(Isa isa);
std::vector<Isa> supported_isas();  // ascending; empty on a CPU without AVX2

// The one that code is generated and chosen for: IPEX_TARGET, else the best one that the CPU supports and
// ATEN_CPU_CAPABILITY allows, PyTorch's limit for its own kernels. UserError if the CPU does not support it.
Isa current_isa();

}  // namespace ipex
