// See the header. The tensor is worked on in pieces that fit into the caches. Of each piece every rank owns
// one part: it adds that part of all ranks (a reduce-scatter), and the others copy the sum (an all-gather).
// So a rank copies what others own into its slot, reads its own part from where it is, and writes the sum to
// where it belongs and to the place of results.
//
// Two pieces are under way: a rank writes the slot of the next piece before it waits for others to write
// theirs of this one. Slots and results exist twice. Slot p may be overwritten by piece p + 2 because a rank
// only comes there after every other has announced the sums of piece p; results likewise, after every other
// has announced slot p + 2, which it does after copying the sums of piece p.
#include "kernels/torch_ops/shared_all_reduce.h"
#include "kernels/torch_ops/target_features.h"

#include <c10/util/Exception.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <type_traits>

#include "kernels/torch_ops/workers.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

#define IPEX_KERNELS "kernels/torch_ops/shared_sum_kernels.h"
#include "kernels/torch_ops/each_isa.h"

struct Part {
  int64_t begin = 0, end = 0;
};

// What one rank owns of a piece: whole cache lines.
template <class T>
Part part_of(int rank, int ranks, int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t each = round_up((elements + ranks - 1) / ranks, kLine);
  return {std::min(rank * each, elements), std::min((rank + 1) * each, elements)};
}

template <class T>
void copy(T* to, const T* from, Part part) {
  std::memcpy(static_cast<void*>(to + part.begin), from + part.begin, (part.end - part.begin) * sizeof(T));
}

std::string described(const SharedSegment::Call& call) {
  return c10::str(call.elements, " elements of ", static_cast<c10::ScalarType>(call.type));
}

}  // namespace

SharedAllReduce::SharedAllReduce(std::shared_ptr<SharedSegment> segment)
    : segment_(std::move(segment)), sources_(segment_->ranks()) {}

bool SharedAllReduce::takes(c10::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

void SharedAllReduce::run(const at::Tensor& tensor, SharedSegment::Clock::time_point deadline) {
  const SharedSegment::Call call{tensor.numel(), static_cast<int32_t>(tensor.scalar_type())};
  try {
    segment_->throw_if_failed();
    segment_->call(segment_->rank()) = call;
    with_type(tensor.scalar_type(), [&](auto value) {
      run_as(static_cast<decltype(value)*>(tensor.mutable_data_ptr()), tensor.numel(), deadline);
    });
  } catch (const std::exception& error) {
    const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error);
    const std::string text = with_backtrace ? with_backtrace->what_without_backtrace() : error.what();
    segment_->fail(text);
    C10_THROW_ERROR(DistBackendError, c10::str("all_reduce of ", described(call), ": ", text));
  }
}

void SharedAllReduce::check_calls() const {
  const auto& mine = segment_->call(segment_->rank());
  for (int rank = 0; rank < segment_->ranks(); ++rank)
    if (const auto& other = segment_->call(rank); other != mine)
      C10_THROW_ERROR(DistBackendError,
                      c10::str("the ranks add tensors that differ: rank ", rank, " has ", described(other),
                               ", rank ", segment_->rank(), " has ", described(mine)));
}

template <class T>
void SharedAllReduce::run_as(T* data, int64_t elements, SharedSegment::Clock::time_point deadline) {
  using Step = SharedSegment::Step;
  constexpr int64_t kPiece = SharedSegment::kPieceBytes / sizeof(T);
  const int me = segment_->rank(), ranks = segment_->ranks();
  const auto add = current_isa() == Isa::kAvx2 ? avx2::sum_of_any<T> : avx512::sum_of_any<T>;
  // Tensors without elements are compared too.
  const int64_t pieces = std::max<int64_t>(1, (elements + kPiece - 1) / kPiece);
  const auto length = [&](int64_t piece) { return std::min(kPiece, elements - piece * kPiece); };

  const auto write = [&](int64_t piece) {
    auto* slot = reinterpret_cast<T*>(segment_->slot(me, pieces_ + piece));
    const Part mine = part_of<T>(me, ranks, length(piece));
    copy(slot, data + piece * kPiece, {0, mine.begin});
    copy(slot, data + piece * kPiece, {mine.end, length(piece)});
    segment_->signal(Step::kWritten, pieces_ + piece + 1);
  };
  const auto wait_for_others = [&](Step step, int64_t piece, auto then) {
    // Not all ask the same rank first.
    for (int i = 1; i < ranks; ++i) {
      const int rank = (me + i) % ranks;
      segment_->wait(rank, step, pieces_ + piece + 1, deadline);
      then(rank);
    }
  };

  write(0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    T* here = data + piece * kPiece;
    auto* results = reinterpret_cast<T*>(segment_->results(pieces_ + piece));
    const Part mine = part_of<T>(me, ranks, length(piece));
    if (piece + 1 < pieces) write(piece + 1);
    auto* sources = reinterpret_cast<const T**>(sources_.data());
    sources[me] = here + mine.begin;
    wait_for_others(Step::kWritten, piece, [&](int rank) {
      sources[rank] = reinterpret_cast<T*>(segment_->slot(rank, pieces_ + piece)) + mine.begin;
    });
    if (piece == 0) check_calls();
    add(sources, ranks, mine.end - mine.begin, here + mine.begin, results + mine.begin);
    segment_->signal(Step::kReduced, pieces_ + piece + 1);
    wait_for_others(Step::kReduced, piece,
                    [&](int rank) { copy(here, results, part_of<T>(rank, ranks, length(piece))); });
  }
  pieces_ += static_cast<uint32_t>(pieces);
}

}  // namespace ipex::torch_ops
