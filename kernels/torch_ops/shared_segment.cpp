// See the header. The kernel's futexes and locks of files are used directly: std::atomic waits only for
// threads of one process, and the locks and conditions of pthread do not tell that another process has ended.
#include "kernels/torch_ops/shared_segment.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

namespace ipex::torch_ops {

using namespace std::chrono_literals;

// Written by one rank, read by all: a cache line of its own.
struct alignas(64) SharedSegment::Counter {
  std::atomic<uint32_t> value;  // pieces; wraps around
  std::atomic<uint32_t>
      sleepers;  // that wait in the kernel. Too high after one was killed, which only costs time
};

struct SharedSegment::Header {
  struct Rank {
    Counter steps[2];
    alignas(64) Call call;
  };
  enum Failure : uint32_t { kNone, kBeingWritten, kWritten };

  int64_t bytes;
  alignas(64) std::atomic<uint32_t> failure;
  char text[1020];
  alignas(64) Rank ranks[];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

namespace {

// A waiting rank first expects the others to be a few instructions behind, and then as long as one piece
// takes.
constexpr int kPauses = 64;
constexpr auto kYielding = 50us;
// Between two looks at whether the other rank is there.
constexpr auto kSleep = 20ms;
constexpr int64_t kPage = 4096;

[[noreturn]] void refuse(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("shared memory of the ranks: ") + what);
}

void check(bool done, const char* what) {
  if (!done) refuse(what);
}

void sleep_while(const std::atomic<uint32_t>& value, uint32_t seen) {
  constexpr auto nanoseconds = std::chrono::nanoseconds(kSleep).count();
  const timespec limit{.tv_sec = 0, .tv_nsec = nanoseconds};
  syscall(SYS_futex, &value, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(const std::atomic<uint32_t>& value) {
  syscall(SYS_futex, &value, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// The lock that a rank holds as long as it lives.
struct flock lock_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

int64_t SharedSegment::bytes() const {
  const int64_t header = sizeof(Header) + ranks_ * sizeof(Header::Rank);
  return (header + kPage - 1) / kPage * kPage + 2 * kPieceBytes * (ranks_ + 1);
}

SharedSegment::SharedSegment(int file, int rank, int ranks) : file_(file), rank_(rank), ranks_(ranks) {
  check(file_ >= 0, "cannot be opened");
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(file_);
    errno = error;
    refuse("cannot be mapped");
  }
  memory_ = static_cast<std::byte*>(memory);
}

SharedSegment::~SharedSegment() {
  munmap(memory_, bytes());
  close(file_);  // releases the lock
}

std::shared_ptr<SharedSegment> SharedSegment::create(int ranks) {
  const int file = memfd_create("ipex-ccl", MFD_CLOEXEC);
  check(file >= 0, "cannot be created");
  // Beyond the end of the file, mapped memory would raise a signal. The kernel fills what follows with zeros.
  std::shared_ptr<SharedSegment> segment(new SharedSegment(file, 0, ranks));
  check(ftruncate(file, segment->bytes()) == 0, "cannot be made as large as needed");
  auto* header = new (segment->memory_) Header;
  header->bytes = segment->bytes();
  struct flock lock = lock_of(0);
  check(fcntl(file, F_SETLK, &lock) == 0, "has no locks");
  return segment;
}

std::shared_ptr<SharedSegment> SharedSegment::open(const std::string& path, int rank, int ranks) {
  std::shared_ptr<SharedSegment> segment(
      new SharedSegment(::open(path.c_str(), O_RDWR | O_CLOEXEC), rank, ranks));
  struct stat status = {};
  check(fstat(segment->file_, &status) == 0, "cannot be looked at");
  const auto* header = reinterpret_cast<const Header*>(segment->memory_);
  errno = EINVAL;
  check(status.st_size == segment->bytes() && header->bytes == segment->bytes(), "is that of another group");
  struct flock lock = lock_of(rank);
  check(fcntl(segment->file_, F_SETLK, &lock) == 0, "has no locks");
  return segment;
}

std::string SharedSegment::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_);
}

std::byte* SharedSegment::results(uint32_t piece) const {
  return memory_ + bytes() - (1 + piece % 2) * kPieceBytes;
}

std::byte* SharedSegment::slot(int rank, uint32_t piece) const {
  return memory_ + bytes() - (2 * (2 + rank) - piece % 2) * kPieceBytes;
}

SharedSegment::Call& SharedSegment::call(int rank) const {
  return reinterpret_cast<Header*>(memory_)->ranks[rank].call;
}

SharedSegment::Counter& SharedSegment::counter(int rank, Step step) const {
  return reinterpret_cast<Header*>(memory_)->ranks[rank].steps[static_cast<int>(step)];
}

void SharedSegment::signal(Step step, uint32_t pieces) {
  Counter& mine = counter(rank_, step);
  // A rank that is about to sleep counts itself before it looks at the value, so one of both sees the other.
  mine.value.store(pieces);
  if (mine.sleepers.load() != 0) wake_all(mine.value);
}

void SharedSegment::wait(int rank, Step step, uint32_t pieces, Clock::time_point deadline) {
  Counter& other = counter(rank, step);
  const auto is_reached = [&](uint32_t value) { return static_cast<int32_t>(value - pieces) >= 0; };
  for (int i = 0; i < kPauses; ++i) {
    if (is_reached(other.value.load(std::memory_order_acquire))) return;
    _mm_pause();
  }
  for (const auto end = Clock::now() + kYielding; Clock::now() < end;) {
    if (is_reached(other.value.load(std::memory_order_acquire))) return;
    sched_yield();
  }
  while (true) {
    ++other.sleepers;
    const uint32_t seen = other.value.load();
    if (!is_reached(seen)) sleep_while(other.value, seen);
    --other.sleepers;
    // It may have finished its step and ended after that.
    const bool ended = has_ended(rank);
    if (is_reached(other.value.load(std::memory_order_acquire))) return;
    throw_if_failed();
    if (aborted_) C10_THROW_ERROR(DistBackendError, "the process group was aborted");
    if (ended)
      C10_THROW_ERROR(DistBackendError,
                      c10::str("rank ", rank, " of the ", ranks_,
                               " ranks in this group has ended or left the group; its output may tell why"));
    if (Clock::now() >= deadline)
      C10_THROW_ERROR(
          DistBackendError,
          c10::str("timed out: rank ", rank, " of the ", ranks_,
                   " ranks in this group did not take part. Look at what it does instead. If it only needs "
                   "longer, pass a larger timeout to init_process_group or new_group"));
  }
}

bool SharedSegment::has_ended(int rank) const {
  struct flock lock = lock_of(rank);
  return fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

void SharedSegment::fail(const std::string& text) {
  auto* header = reinterpret_cast<Header*>(memory_);
  uint32_t expected = Header::kNone;
  if (!header->failure.compare_exchange_strong(expected, Header::kBeingWritten)) return;
  const size_t length = std::min(text.size(), sizeof header->text - 1);
  std::memcpy(header->text, text.data(), length);
  header->text[length] = 0;
  header->failure.store(Header::kWritten);
}

void SharedSegment::throw_if_failed() const {
  const auto* header = reinterpret_cast<const Header*>(memory_);
  if (header->failure.load(std::memory_order_acquire) == Header::kWritten)
    C10_THROW_ERROR(DistBackendError, std::string(header->text));
}

}  // namespace ipex::torch_ops
