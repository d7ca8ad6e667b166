#include "runtime/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include "runtime/error.h"

namespace ipex {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCpus = 1 << 16;  // more than any kernel has, so that a damaged text asks for little memory

std::optional<std::string> read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!stream || !std::getline(stream, line)) return std::nullopt;
  return line;
}

CpuList online_cpus(const fs::path& system) {
  const auto text = read_line(system / "cpu/online");
  return text ? parse_cpu_list(*text) : thread_affinity();
}

// A mask of the kernel of any size.
class CpuMask {
 public:
  explicit CpuMask(int cpus) : set_(CPU_ALLOC(cpus)), bytes_(CPU_ALLOC_SIZE(cpus)) {
    if (set_) CPU_ZERO_S(bytes_, set_.get());
  }
  cpu_set_t* get() const { return set_.get(); }
  size_t bytes() const { return bytes_; }
  int size() const { return static_cast<int>(bytes_ * 8); }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set_;
  size_t bytes_;
};

}  // namespace

CpuList parse_cpu_list(std::string_view text) {
  const auto fail = [all = std::string(text)](const std::string& why) {
    throw UserError("'" + all + "' is not a list of CPUs such as 0-3,8: " + why);
  };
  const auto blank = " \t\r\n";
  const size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(blank) - first + 1);
  CpuList cpus;
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&] {
    int value = -1;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value >= kMaxCpus) fail("a number is missing or too large");
    at = next;
    return value;
  };
  while (true) {
    const int from = number();
    int to = from;
    if (at != end && *at == '-') {
      ++at;
      to = number();
      if (to < from) fail("a range goes backwards");
    }
    for (int cpu = from; cpu <= to; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    if (*at++ != ',') fail("numbers and ranges are separated by commas");
  }
  std::ranges::sort(cpus);
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list_text(CpuList cpus) {
  std::ranges::sort(cpus);
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] <= cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (cpus[last] != cpus[i]) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> numa_nodes(const fs::path& system) {
  const auto text = read_line(system / "node/has_cpu");
  return text ? parse_cpu_list(*text) : std::vector<int>{0};
}

CpuList cores_of_node(int node, const fs::path& system) {
  const std::vector<int> nodes = numa_nodes(system);
  if (std::ranges::find(nodes, node) == nodes.end())
    throw UserError("NUMA node " + std::to_string(node) +
                    " has no CPUs; the nodes with CPUs are: " + cpu_list_text(nodes));
  const auto text = read_line(system / "node" / ("node" + std::to_string(node)) / "cpulist");
  const CpuList online = online_cpus(system);
  CpuList cpus, cores;
  if (text)
    cpus = parse_cpu_list(*text);
  else
    cpus = online;
  for (const int cpu : cpus) {
    if (std::ranges::find(online, cpu) == online.end()) continue;
    const fs::path topology = system / "cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    const auto siblings = read_line(topology / "thread_siblings_list");
    // The first online CPU of the core: its siblings may be offline.
    bool is_first = true;
    if (siblings)
      for (const int sibling : parse_cpu_list(*siblings))
        if (sibling < cpu && std::ranges::find(online, sibling) != online.end()) is_first = false;
    if (is_first) cores.push_back(cpu);
  }
  return cores;
}

CpuList thread_affinity() {
  for (int cpus = 1024; cpus <= kMaxCpus; cpus *= 2) {
    const CpuMask mask(cpus);
    if (mask.get() && sched_getaffinity(0, mask.bytes(), mask.get()) == 0) {
      CpuList allowed;
      for (int cpu = 0; cpu < mask.size(); ++cpu)
        if (CPU_ISSET_S(cpu, mask.bytes(), mask.get())) allowed.push_back(cpu);
      return allowed;
    }
    if (errno != EINVAL) break;  // EINVAL: the kernel's mask is larger
  }
  throw std::system_error(errno, std::generic_category(), "read the affinity mask of a thread");
}

int set_thread_affinity(const CpuList& cpus) noexcept {
  if (cpus.empty()) return EINVAL;
  const CpuMask mask(std::max(1024, *std::ranges::max_element(cpus) + 1));
  if (!mask.get()) return ENOMEM;
  for (const int cpu : cpus)
    if (cpu >= 0) CPU_SET_S(cpu, mask.bytes(), mask.get());
  return sched_setaffinity(0, mask.bytes(), mask.get()) == 0 ? 0 : errno;
}

}  // namespace ipex
