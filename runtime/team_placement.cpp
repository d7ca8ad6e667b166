#include "runtime/team_placement.h"

#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "runtime/error.h"

namespace ipex {

class PlacedTeam {
 public:
  uint64_t id;  // never used again
  std::vector<CpuList> masks;
  CpuList before;  // the mask of the first thread before it was ever placed
};

namespace {

std::atomic<uint64_t> next_id{1};

thread_local std::unique_ptr<const PlacedTeam> own_team;  // of a thread that starts regions

// The place that this thread took last.
struct Place {
  uint64_t team = 0;
  int thread = 0;
};
thread_local Place own_place;

// Whether the runtime ends threads when a region uses fewer. Those of LLVM and Intel keep them.
bool ends_threads() {
  static const bool is_llvm = dlsym(RTLD_DEFAULT, "__kmpc_fork_call") != nullptr;
  return !is_llvm;
}

CpuList sorted_union(const std::vector<CpuList>& masks) {
  CpuList all;
  for (const CpuList& mask : masks) all.insert(all.end(), mask.begin(), mask.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// The mask of each thread, in a region of as many threads.
std::vector<CpuList> read_masks(int threads) {
  if (threads == 1) return {thread_affinity()};
  std::vector<CpuList> masks(threads);
#pragma omp parallel num_threads(threads)
  try {
    masks[omp_get_thread_num()] = thread_affinity();
  } catch (const std::exception&) {
    // Left empty: the thread gets the mask of all.
  }
  const CpuList all = sorted_union(masks);
  for (CpuList& mask : masks)
    if (mask.empty()) mask = all;  // a limit of the system made the team smaller
  return masks;
}

// Returns the first error number, or 0.
int write_masks(const std::vector<CpuList>& masks, uint64_t team) {
  if (masks.size() == 1) {
    own_place = {team, 0};
    return set_thread_affinity(masks[0]);
  }
  std::atomic<int> first_error{0};
#pragma omp parallel num_threads(static_cast<int>(masks.size()))
  {
    const int thread = omp_get_thread_num();
    const int error = set_thread_affinity(masks[thread]);
    own_place = {team, thread};
    int none = 0;
    if (error) first_error.compare_exchange_strong(none, error);
  }
  return first_error;
}

CpuList openmp_places() {
  CpuList cpus;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    CpuList ids(omp_get_place_num_procs(place));
    omp_get_place_proc_ids(place, ids.data());
    cpus.insert(cpus.end(), ids.begin(), ids.end());
  }
  return cpus;
}

}  // namespace

CpuList TeamPlacement::cpus() const {
  CpuList all;
  const auto add = [&](const CpuList& mask) {
    for (const int cpu : mask)
      if (std::ranges::find(all, cpu) == all.end()) all.push_back(cpu);
  };
  // The first thread of a pinned team may use all its CPUs, but its own comes first.
  std::ranges::for_each(masks, add);
  return all;
}

TeamPlacement one_thread_each(const CpuList& cpus) {
  if (cpus.empty()) throw UserError("a team of threads needs at least one CPU");
  TeamPlacement placement;
  for (const int cpu : cpus) placement.masks.push_back({cpu});
  if (cpus.size() > 2 && ends_threads()) placement.masks[0] = cpus;
  return placement;
}

TeamPlacement current_placement() {
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  // Threads that the runtime made since then take their places in the next loop.
  if (own_team && static_cast<int>(own_team->masks.size()) == threads) return {own_team->masks, true};
  return {read_masks(threads), own_team != nullptr};
}

std::vector<CpuList> team_masks() { return read_masks(omp_in_parallel() ? 1 : omp_get_max_threads()); }

void place_team(const TeamPlacement& placement) {
  IPEX_CHECK(!placement.masks.empty(), "a mask for each thread");
  if (omp_in_parallel()) throw UserError("a thread inside a parallel region has no team to move");
  const int now = omp_get_max_threads(), then = static_cast<int>(placement.masks.size());
  auto team = std::make_unique<PlacedTeam>(next_id++, placement.masks,
                                           own_team ? own_team->before : thread_affinity());
  // Threads that leave the team may come back for a larger one: they get the CPUs of all.
  std::vector<CpuList> masks = placement.masks;
  masks.resize(std::max(now, then), sorted_union(placement.masks));
  const std::vector<CpuList> former =
      own_team && static_cast<int>(own_team->masks.size()) == now ? own_team->masks : read_masks(now);
  if (const int error = write_masks(masks, team->id)) {
    std::vector<CpuList> back = former;
    back.resize(masks.size(), sorted_union(former));
    write_masks(back, own_team ? own_team->id : 0);
    throw UserError("cannot run threads on the CPUs " + cpu_list_text(placement.cpus()) + ": " +
                    std::generic_category().message(error) + "; the process may use " +
                    cpu_list_text(allowed_cpus()));
  }
  omp_set_num_threads(then);
  own_team = placement.is_pinned ? std::move(team) : nullptr;
}

CpuList allowed_cpus() {
  CpuList cpus = own_team ? own_team->before : thread_affinity();
  const CpuList places = openmp_places();
  cpus.insert(cpus.end(), places.begin(), places.end());
  return sorted_union({cpus});
}

const PlacedTeam* placed_team() { return own_team.get(); }

void take_place(const PlacedTeam& team, int thread) noexcept {
  if (own_place.team == team.id && own_place.thread == thread) return;
  if (thread >= static_cast<int>(team.masks.size())) return;
  set_thread_affinity(team.masks[thread]);  // no error: the system accepted these CPUs in place_team()
  own_place = {team.id, thread};
}

}  // namespace ipex
