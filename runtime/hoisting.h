// Hoisted values: packed weights, casts and all other values that depend only on parameters and buffers. They
// are computed on first use and kept until their operands change. All executables of the process share them
// if they compute the same value from the same tensors: a model compiled for two batch sizes packs its
// weights once. An executable keeps one set of values for each set of tensors that it is called with, because
// equal layers that are compiled separately share one executable.
//
// The key of a value consists of the recipe of its step and, for each operand, the storage, address and
// version of the tensor, or the key of the hoisted value. So a change to one weight recomputes only what
// depends on that weight. Versions count writes; where writes may be uncounted, a checksum of the contents is
// compared, which is part of every key.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace ipex {

struct HoistedValue {
  void* data = nullptr;
  CachedBlock block;                                    // holds data, unless it was provided
  std::shared_ptr<const void> owner;                    // owner of provided data
  std::vector<std::shared_ptr<const StoragePin>> pins;  // the storages in its key
  std::vector<std::shared_ptr<const void>> constants;   // the constants in its key
};

class Hoisting {
 public:
  explicit Hoisting(const Executable::Parts& parts);
  ~Hoisting();

  bool any() const { return !kept_.empty(); }
  // Hoisted buffers that later steps read.
  const std::vector<int>& buffers() const { return kept_; }
  // Their values in the last bind, in this order; empty before the first.
  std::vector<const void*> values();
  // Sets values that were computed earlier from inputs of these versions; `owner` keeps them alive.
  void adopt(std::span<const void* const> values, const std::shared_ptr<const void>& owner,
             std::span<const InputVersion> versions);
  // Sets the context's hoisted buffers, and calls `run_step` for values that are missing. The result keeps
  // the values alive: hold it while the context is in use. Thread-safe.
  std::shared_ptr<const void> bind(RunContext& context, const std::function<void(int)>& run_step);
  // Drops values of freed storages in all executables of the process: they cannot be requested again. It is
  // cheap, and called at every compilation and recomputation.
  static void release_dead();
  // Whether a provided buffer outlives the run, so that its last step must not release it.
  bool keeps(int buffer) const;

 private:
  struct Set;
  class Call;
  class Registry;
  struct Recipe;
  struct HoistedStep {
    int step;
    std::shared_ptr<const Recipe> recipe;
  };
  using Key = std::vector<uint64_t>;

  static std::shared_ptr<const Recipe> intern(const std::string& text);
  // Removes from sets_ those for which the condition holds, and returns them. Call it under mutex_.
  std::vector<std::shared_ptr<const Set>> take_sets(auto condition);
  // The set that is valid for this call, or null.
  std::shared_ptr<const Set> find(Call& call);
  std::shared_ptr<const Set> compute(RunContext& context, const std::function<void(int)>& run_step,
                                     Call& call);
  std::vector<Key> keys(Call& call) const;

  const Executable::Parts& parts_;
  std::vector<HoistedStep> hoisted_steps_;        // in execution order
  std::vector<int> kept_;                         // buffers that later steps read
  std::vector<int> inputs_;                       // positions of the static inputs that hoisted steps read
  std::mutex mutex_;                              // guards sets_ and last_
  std::vector<std::shared_ptr<const Set>> sets_;  // oldest first
  size_t last_ = 0;                               // index of the set that the last call used
  std::mutex computing_;                          // one thread computes, others wait for it
};

}  // namespace ipex
