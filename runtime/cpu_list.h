// Numbers of CPUs: the kernel's text form, the CPUs of a NUMA node, and the affinity mask of a thread.
//
// A CPU is a hardware thread, with the number that Linux gives it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ipex {

using CpuList = std::vector<int>;

// "0-3,8" -> 0 1 2 3 8, in ascending order. Blanks around the text are ignored. UserError for other text.
CpuList parse_cpu_list(std::string_view text);
// 0 1 2 3 8 -> "0-3,8"
std::string cpu_list_text(CpuList cpus);

// The NUMA nodes that have CPUs, and the first CPU of each core of one node, as the kernel numbers them. So
// sub-NUMA clusters, interleaved numbers and offline CPUs are right. `system` is the kernel's folder. Without
// files on nodes, all online CPUs are node 0. UserError for a node without CPUs.
inline const std::filesystem::path kSystemFolder = "/sys/devices/system";
std::vector<int> numa_nodes(const std::filesystem::path& system = kSystemFolder);
CpuList cores_of_node(int node, const std::filesystem::path& system = kSystemFolder);

// The CPUs on which the calling thread may run.
CpuList thread_affinity();
// Returns the error number of the system, or 0. EINVAL: none of the CPUs may be used.
int set_thread_affinity(const CpuList& cpus) noexcept;

}  // namespace ipex
