// A compiled graph: a sequence of steps over buffers, executed by one call. It does not depend on LLVM,
// oneDNN, Python or libtorch.
//
// Buffers are inputs and outputs (pointers of the caller), constants (owned), temporaries (in an arena
// planned by liveness), hoisted values (computed once from static inputs, and kept until one of them
// changes), and provided values (a step allocates the memory when it runs, such as an Extern step for its
// result).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/arena.h"
#include "runtime/size_expr.h"
#include "runtime/tensor.h"

namespace ipex {

enum class BufferKind { kInput, kOutput, kConstant, kTemporary, kHoisted, kProvided };

struct BufferInfo {
  BufferKind kind = BufferKind::kTemporary;
  int index = -1;                        // position among inputs or outputs
  SizeExpr bytes = 0;                    // temporaries, hoisted, constants
  std::shared_ptr<const void> constant;  // kConstant: 64-byte aligned data
};

// The steps during which a temporary is live.
struct Lifetime {
  int buffer = -1;
  int first_step = 0;  // first and last step that touch the buffer, inclusive
  int last_step = 0;
  // A buffer of the same size that is last used by our first step, so that we may take over its memory; -1:
  // none.
  int in_place_of = -1;
};

// A weak reference to a storage: its identity is not reused, but its contents may be freed.
class StoragePin {
 public:
  virtual ~StoragePin() = default;
  virtual bool alive() const = 0;  // whether the contents still exist
};

// Information about the memory of static inputs, from its owner.
class InputMemory {
 public:
  virtual ~InputMemory() = default;
  // While the result lives, no other storage has this identity.
  virtual std::shared_ptr<const StoragePin> pin(const void* storage) const = 0;
  virtual uint64_t checksum(const void* data, size_t bytes) const = 0;  // never 0
  virtual uint32_t written(const void* storage) const = 0;              // current InputVersion::written
};

// The version of one static input (a parameter or buffer). Its contents have changed if `storage`, `data` or
// `version` has changed. They may have changed if `written` has changed, and at any time while `exposed`:
// then the contents are compared.
struct InputVersion {
  const void* storage = nullptr;  // identity of the storage object
  const void* data = nullptr;
  uint64_t version = 0;    // PyTorch's count of writes
  uint32_t written = 0;    // changes with every possible write that `version` does not count; 0: none yet
  bool exposed = false;    // writes that `version` does not count are possible at any time
  bool trackable = false;  // false: nothing is known, and values derived from it must not be kept
  const InputMemory* memory = nullptr;  // null: it outlives every run, and all writes are counted
};

class Executable;

// The state of one run. Steps get their operands from it.
class RunContext {
 public:
  void* data(int buffer) const { return buffers_[buffer]; }
  void* const* buffers() const { return buffers_.data(); }
  const int64_t* symbols() const { return symbols_; }
  TensorView view(const TensorSpec& spec) const;
  std::span<const InputVersion> input_versions() const {
    return versions_;
  }  // one per input; empty: none is trackable

  // Sets the memory of a provided buffer. The owner is released after the buffer's last step.
  void provide(int buffer, void* data, std::shared_ptr<void> owner);

 private:
  friend class Executable;
  friend class Hoisting;
  std::vector<void*> buffers_;
  std::vector<std::shared_ptr<void>> owners_;  // by buffer; only kProvided buffers have one
  const int64_t* symbols_ = nullptr;
  std::span<const InputVersion> versions_;
};

enum class StepKind { kKernel, kLibrary, kExtern, kCopy };
std::string_view name(StepKind kind);

struct StepInfo {
  StepKind kind = StepKind::kKernel;
  std::string name;                  // kernel name, "onednn.matmul", "aten::topk"
  std::string detail;                // fused epilogues, implementation, or why an op is Extern
  std::vector<std::string> sources;  // "model.py:12 linear", one per op in it
  int64_t bytes = 0;                 // memory traffic, in and out, for the hint sizes
  int64_t flops = 0;
  Dtype multiplies = Dtype::kF32;  // operand type of most multiplications: selects the machine's peak
};

class Step {
 public:
  virtual ~Step() = default;
  // Must be re-entrant: a step that keeps state between runs synchronizes it itself.
  virtual void run(RunContext& context) const = 0;

  StepInfo info;
  std::vector<int> reads;   // buffers
  std::vector<int> writes;  // buffers
  // A text (or its digest) that identifies the computation of a hoisted step without naming buffers: steps
  // with equal recipes compute equal values from equal operands. Empty: it equals no other step.
  std::string recipe;
  // The line of a saved program that recreates this step (program.h); empty: it cannot be saved.
  std::string text;
  bool implied = false;  // the line of a later step recreates this one too
};

// Observes every step of a run, on the thread that runs it. end() is not called for a step that throws.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void begin(const StepInfo& step, int index) = 0;
  virtual void end() = 0;
};

struct OutputSpec {
  TensorSpec spec;
  // >= 0: the output is (a view of) this input's memory and no buffer is allocated.
  int alias_input = -1;
};

struct MemoryPlan {
  // A separate allocation for a large temporary, or for several that use it in place. It is allocated before
  // its first step and freed after its last, so that it can reuse the memory of released inputs, and outputs
  // can reuse its memory.
  struct Block {
    int64_t bytes = 0;
    int first_step = 0, last_step = 0;
    std::vector<int> buffers;
  };
  std::vector<int64_t> offsets;  // by buffer; -1: not in the arena
  std::vector<Block> blocks;     // by first step
  std::vector<int> ends;         // indices of blocks, by last step
  int64_t arena_bytes = 0;       // after reuse
  int64_t naive_bytes = 0;       // sum of all temporaries

  int64_t peak_bytes() const;  // the arena and the maximum of simultaneously live blocks
};

// The lifetimes of temporary and provided buffers; in_place[b]: the buffer whose memory b may take over, or
// -1.
std::vector<Lifetime> lifetimes(std::span<const BufferInfo> buffers,
                                std::span<const std::unique_ptr<Step>> steps, std::span<const int> in_place);

// Places temporaries by liveness: first fit over buffers sorted by size. Those with `has_own_block` get a
// separate block. `bytes`: size by buffer.
MemoryPlan plan_arena(std::span<const Lifetime> lifetimes, std::span<const int64_t> bytes, int buffer_count,
                      const std::function<bool(const Lifetime&)>& has_own_block = nullptr);

// A caller that manages memory during a run: it allocates outputs when they are first written, and frees
// inputs after their last use. This lowers the peak memory.
class RunMemory {
 public:
  virtual ~RunMemory() = default;
  // Memory for an output with a buffer of its own. Called once, before the first step that writes it; not
  // called for outputs without elements, which no step writes.
  virtual void* output(int index) = 0;
  // The last step that uses this input is done. Not called for static inputs.
  virtual void release_input(int index) = 0;
};

class Executable {
 public:
  struct Parts {
    std::vector<BufferInfo> buffers;
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<bool> hoisted;        // by step: depends on static inputs only, run once per version of them
    std::vector<int> static_inputs;   // positions of inputs that are parameters or buffers
    std::vector<Lifetime> lifetimes;  // of kTemporary and kProvided buffers
    std::vector<TensorSpec> inputs;   // expected layout, for checks by the caller
    std::vector<OutputSpec> outputs;
    int symbol_count = 0;
  };
  explicit Executable(Parts parts);
  ~Executable();

  const Parts& parts() const { return parts_; }
  // The placement of temporaries for these values of the symbols.
  MemoryPlan plan(std::span<const int64_t> symbols) const;

  // Computes the hoisted values now instead of in the first run; `inputs` that are not static may be null.
  void prepare(std::span<void* const> inputs, std::span<const InputVersion> versions) const;

  struct HoistedValue {
    int buffer;
    std::span<const std::byte> bytes;
  };
  // The buffers of hoisted values, and the values that prepare() computed.
  const std::vector<int>& hoisted_buffers() const;
  std::vector<HoistedValue> hoisted_values() const;
  // Sets the values of all hoisted buffers, for inputs of these versions, instead of computing them. `owner`
  // keeps their memory alive.
  void adopt(std::span<const HoistedValue> values, const std::shared_ptr<const void>& owner,
             std::span<const InputVersion> versions) const;

  // inputs, outputs: data pointers in order; symbols: values in the graph's order; versions: one per input,
  // or empty. Thread-safe. Throws what a step throws, and the error of runtime/index_errors.def for an
  // out-of-range index.
  void run(std::span<void* const> inputs, std::span<void* const> outputs, std::span<const int64_t> symbols,
           std::span<const InputVersion> versions, StepObserver* observer = nullptr) const;
  // The same, where `memory` allocates outputs and frees inputs, on the calling thread.
  void run(std::span<void* const> inputs, RunMemory& memory, std::span<const int64_t> symbols,
           std::span<const InputVersion> versions, StepObserver* observer = nullptr) const;

 private:
  struct State;
  struct Frame;
  std::unique_ptr<Frame> take_frame() const;
  void return_frame(std::unique_ptr<Frame> frame) const;
  // Finds, for each step, the outputs that it uses first and the inputs that it uses last.
  void find_first_and_last_uses();
  // Outputs come from `outputs`, or from `memory` if that is empty.
  void run_steps(std::span<void* const> inputs, std::span<void* const> outputs, RunMemory* memory,
                 std::span<const int64_t> symbols, std::span<const InputVersion> versions,
                 StepObserver* observer) const;
  // Sets the frame's pointers; the caller owns the arena.
  void bind(Frame& frame, std::span<void* const> inputs, std::span<void* const> outputs, char* arena) const;
  void run_step(Frame& frame, int index) const;
  Parts parts_;
  std::unique_ptr<State> state_;
};

}  // namespace ipex
