// What the files with kernels of their own share: work that threads take in pieces, and their scratch memory.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

#include "runtime/parallel.h"

namespace ipex::torch_ops {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// call(T()) for the C++ type T of a floating-point type.
template <class Call>
void with_type(c10::ScalarType type, Call call) {
  if (type == c10::ScalarType::Float)
    call(float());
  else if (type == c10::ScalarType::Double)
    call(double());
  else if (type == c10::ScalarType::BFloat16)
    call(c10::BFloat16());
  else
    call(c10::Half());
}

// Memory that a thread uses again for its next piece of work. It holds no values between uses.
class Scratch {
 public:
  template <class T>
  T* get(int slot, int64_t count) {
    Slot& memory = slots_[slot];
    const auto bytes = count * static_cast<int64_t>(sizeof(T));
    if (memory.bytes < bytes) {
      memory.data.reset(new (std::align_val_t(64)) char[bytes]);
      memory.bytes = bytes;
    }
    return reinterpret_cast<T*>(memory.data.get());
  }

 private:
  struct Free {
    void operator()(char* data) const { ::operator delete[](data, std::align_val_t(64)); }
  };
  struct Slot {
    std::unique_ptr<char[], Free> data;
    int64_t bytes = 0;
  };
  Slot slots_[4];
};

// Calls work(piece, scratch) for each piece in [0, pieces) in one parallel region; a thread that is free
// takes the next piece. Results must not depend on which thread does a piece. `work` must not throw.
template <class Work>
void for_each_piece(int64_t pieces, Work&& work) {
  struct Closure {
    Work& work;
    int64_t pieces;
    std::atomic<int64_t> next{0};
  } closure{work, pieces};
  const auto run = [](void* data, int64_t, int64_t, int64_t) {
    auto& shared = *static_cast<Closure*>(data);
    Scratch scratch;
    for (int64_t piece; (piece = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.pieces;)
      shared.work(piece, scratch);
  };
  parallel_for(0, std::min<int64_t>(pieces, num_threads()), 1, run, &closure);
}

// Calls work(begin, end, scratch) for pieces of [0, count) of at least `grain`.
template <class Work>
void for_each_range(int64_t count, int64_t grain, Work&& work) {
  constexpr int64_t kPiecesPerThread = 4;
  const int64_t step =
      std::max(grain, (count + num_threads() * kPiecesPerThread - 1) / (num_threads() * kPiecesPerThread));
  for_each_piece((count + step - 1) / step, [&](int64_t piece, Scratch& scratch) {
    work(piece * step, std::min(count, (piece + 1) * step), scratch);
  });
}

}  // namespace ipex::torch_ops
