// Memory that the ranks of one machine share, and their signals. Rank 0 creates it; it has no name, so
// nothing stays behind however the ranks end, and the size of /dev/shm is no limit.
//
// Each rank has a slot, where it puts what others shall read, and all share one place for results; both exist
// twice, for work that alternates between the two. A rank counts up when it has written its slot, and when it
// has written its part of the results; the others wait for these counts. Waiting yields the core, and then
// sleeps in the kernel, because the rank's own computation may need the core.
//
// A rank that waits notices within 20 ms that another one has ended: each holds a lock of the file, which the
// kernel releases with the process. An error of one rank is written down here, so that all raise it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ipex::torch_ops {

class SharedSegment {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Step { kWritten, kReduced };

  // What a rank is about to do, for the others to compare.
  struct Call {
    int64_t elements = 0;
    int32_t type = 0;
    bool operator==(const Call&) const = default;
  };

  static constexpr int64_t kPieceBytes = 512 << 10;

  // Both throw std::system_error where this machine or its sandbox refuses. `path` is that of rank 0's
  // object.
  static std::shared_ptr<SharedSegment> create(int ranks);
  static std::shared_ptr<SharedSegment> open(const std::string& path, int rank, int ranks);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Where other processes of this user, in this process namespace, can open the memory.
  std::string path() const;
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // kPieceBytes each. The last bit of `piece` selects one of the two.
  std::byte* slot(int rank, uint32_t piece) const;
  std::byte* results(uint32_t piece) const;
  Call& call(int rank) const;

  // This rank has finished a step of this many pieces.
  void signal(Step step, uint32_t pieces);
  // Waits until another rank has. Throws c10::DistBackendError if that rank has ended, if any rank has
  // failed, after abort(), and after `deadline`.
  void wait(int rank, Step step, uint32_t pieces, Clock::time_point deadline);

  // Makes this and all later waits of every rank throw this text. The first failure counts.
  void fail(const std::string& text);
  void throw_if_failed() const;
  // Makes the waits of this rank throw.
  void abort() { aborted_ = true; }

 private:
  struct Header;
  struct Counter;
  SharedSegment(int file, int rank, int ranks);
  Counter& counter(int rank, Step step) const;
  bool has_ended(int rank) const;
  int64_t bytes() const;

  int file_ = -1, rank_ = 0, ranks_ = 0;
  std::byte* memory_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace ipex::torch_ops
