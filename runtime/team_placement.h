// On which CPUs the threads of an OpenMP team run. Works with every OpenMP runtime, because each thread of
// the team sets its own affinity mask.
//
// A team belongs to the thread that starts parallel regions, so that several threads can have teams on
// separate CPUs at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cpu_list.h"

namespace ipex {

struct TeamPlacement {
  // Thread i of the team may run on masks[i]. The team has masks.size() threads.
  std::vector<CpuList> masks;
  // False: the masks that the threads had before any call of place_team().
  bool is_pinned = true;

  // The CPUs of all masks, each once, in the order of the threads.
  CpuList cpus() const;
};

// A team with thread i on cpus[i].
//
// libgomp ends threads of a team when a region uses fewer, and a thread that it makes later gets the mask of
// the first. So in teams of more than two threads on libgomp the first thread may use all CPUs of the team;
// the others leave it cpus[0].
TeamPlacement one_thread_each(const CpuList& cpus);

// Of the calling thread's team, with as many threads as its next parallel region would have.
TeamPlacement current_placement();

// The masks that the threads of this team have now, as the system says.
std::vector<CpuList> team_masks();

// Moves the calling thread's team, and sets the number of its threads. UserError, with the team as it was, if
// the system refuses a CPU.
void place_team(const TeamPlacement& placement);

// The CPUs that the process may use: the calling thread's mask as it was before place_team(), and the places
// of OpenMP, which binds threads at its start if OMP_PROC_BIND is set.
CpuList allowed_cpus();

// For parallel loops: threads that the OpenMP runtime made since the last place_team().
class PlacedTeam;
const PlacedTeam* placed_team();  // of the calling thread; null: never placed
void take_place(const PlacedTeam& team,
                int thread) noexcept;  // by a member; does nothing if it has its place

}  // namespace ipex
