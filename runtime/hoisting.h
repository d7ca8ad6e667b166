// Hoisted values: packed weights, casts and whatever else depends only on parameters and buffers. Computed on
// first use, kept while what they were computed from stays the same, and shared by all executables of the
// process that compute the same thing from the same tensors (a model compiled for two batch sizes packs its
// weights once). An executable keeps a set of them for each set of tensors that it is called with: the layers
// of a model are one graph where they are compiled one by one.
//
// A value's key is the text of the step that makes it and, for each operand, the storage, address and version
// of the tensor, or the key of the hoisted value it is. A change to one weight recomputes what was made from
// that weight and nothing else. Identity is exact where writes are counted. Where they may have passed
// uncounted a checksum of the contents decides, which is a part of every key.
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
  std::shared_ptr<const void> owner;                    // of provided data
  std::vector<std::shared_ptr<const StoragePin>> pins;  // of the storages that its key names
  std::vector<std::shared_ptr<const void>> constants;   // that its key names
};

class Hoisting {
 public:
  explicit Hoisting(const Executable::Parts& parts);
  ~Hoisting();

  bool any() const { return !kept_.empty(); }
  // Those that later steps read.
  const std::vector<int>& buffers() const { return kept_; }
  // What they pointed at in the last bind, in this order; empty before the first.
  std::vector<const void*> values();
  // Takes values that were made before from inputs of these versions; `owner` keeps them.
  void adopt(std::span<const void* const> values, const std::shared_ptr<const void>& owner,
             std::span<const InputVersion> versions);
  // Points the context's hoisted buffers at their values, running `run_step` for what is not at hand. The
  // result keeps the values alive; hold it while the context is in use. Thread-safe.
  std::shared_ptr<const void> bind(RunContext& context, const std::function<void(int)>& run_step);
  // Drops, in every executable of the process, what was made from storages that are gone: nobody can ask for
  // it again. Cheap; called whenever something is compiled or recomputed.
  static void release_dead();
  // A provided buffer that outlives the run: not to be released after its last step.
  bool keeps(int buffer) const;

 private:
  struct Set;
  class Call;
  class Registry;
  struct Recipe;
  struct Maker {  // a hoisted step
    int step;
    std::shared_ptr<const Recipe> recipe;
  };
  using Key = std::vector<uint64_t>;

  static std::shared_ptr<const Recipe> intern(const std::string& text);
  // The sets of which the condition holds, which are no longer in sets_; under mutex_.
  std::vector<std::shared_ptr<const Set>> take_sets(auto condition);
  // A set that is as this call needs it; null: there is none.
  std::shared_ptr<const Set> find(Call& call);
  std::shared_ptr<const Set> compute(RunContext& context, const std::function<void(int)>& run_step,
                                     Call& call);
  std::vector<Key> keys(Call& call) const;

  const Executable::Parts& parts_;
  std::vector<Maker> makers_;                     // in order
  std::vector<int> kept_;                         // buffers that later steps read
  std::vector<int> inputs_;                       // positions of the static inputs that hoisted steps read
  std::mutex mutex_;                              // guards sets_ and last_
  std::vector<std::shared_ptr<const Set>> sets_;  // the oldest first
  size_t last_ = 0;                               // the one that the last call used
  std::mutex computing_;                          // one thread computes, others wait for its result
};

}  // namespace ipex
