// A compiled graph: steps in order over buffers, run by one call. Knows nothing of LLVM, oneDNN, Python or
// libtorch.
//
// Buffers are inputs and outputs (pointers of the caller), constants (owned), temporaries (one arena, planned
// by liveness), hoisted values (computed once from static inputs, kept until one of them changes) and values
// whose memory a step provides itself while it runs (an Extern step's result).
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

// For which steps a temporary lives: the result of plan_memory.
struct Lifetime {
  int buffer = -1;
  int first_step = 0;  // first and last step that touch the buffer, inclusive
  int last_step = 0;
  int in_place_of =
      -1;  // buffer that may share this memory: its last step is our first, same bytes; -1: none
};

// A weak reference to a storage: reserves its identity, not its contents.
class StoragePin {
 public:
  virtual ~StoragePin() = default;
  virtual bool alive() const = 0;  // somebody still holds the contents
};

// Memory of static inputs, as those who own it know it.
class InputMemory {
 public:
  virtual ~InputMemory() = default;
  // `storage`'s identity is not used again while the result lives.
  virtual std::shared_ptr<const StoragePin> pin(const void* storage) const = 0;
  virtual uint64_t checksum(const void* data, size_t bytes) const = 0;  // never 0
  virtual uint32_t written(const void* storage) const = 0;              // InputVersion's, as of now
};

// The version of one static input (a parameter or buffer). Its contents have changed if `storage`, `data` or
// `version` has; they may have if `written` has, and at any time while `exposed`: then they are compared.
struct InputVersion {
  const void* storage = nullptr;  // identity of the storage object
  const void* data = nullptr;
  uint64_t version = 0;    // of writes that are counted
  uint32_t written = 0;    // another number after what may have been a write that is not counted; 0: none yet
  bool exposed = false;    // somebody may write to it without being counted
  bool trackable = false;  // false: nothing is known, and nothing derived from it may be kept
  const InputMemory* memory = nullptr;  // null: it outlives every run, and nobody writes to it uncounted
};

class Executable;

// What one run owns; a step reads its operands from here.
class RunContext {
 public:
  void* data(int buffer) const { return buffers_[buffer]; }
  void* const* buffers() const { return buffers_.data(); }
  const int64_t* symbols() const { return symbols_; }
  TensorView view(const TensorSpec& spec) const;
  std::span<const InputVersion> input_versions() const {
    return versions_;
  }  // one per input, empty: none trackable

  // A step that makes its own result memory hands it over; the owner is dropped after the buffer's last step.
  void provide(int buffer, void* data, std::shared_ptr<void> owner);

 private:
  friend class Executable;
  friend class Hoisting;
  std::vector<void*> buffers_;
  std::vector<std::shared_ptr<void>> owners_;  // by buffer; only kProvided have one
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
  int64_t bytes = 0;                 // memory traffic in and out for the hint sizes
  int64_t flops = 0;
  Dtype multiplies = Dtype::kF32;  // what most of the flops multiply: which limit of the machine holds
};

class Step {
 public:
  virtual ~Step() = default;
  // Immutable and re-entrant: state that a step keeps between runs is guarded by the step.
  virtual void run(RunContext& context) const = 0;

  StepInfo info;
  std::vector<int> reads;   // buffers
  std::vector<int> writes;  // buffers
  // What a hoisted step computes, as text that names no buffer or its digest: equal recipes make equal values
  // of equal operands. Empty: unlike any other step.
  std::string recipe;
  // The line of a saved program that makes this step again (program.h); empty: it cannot be saved.
  std::string text;
  bool implied = false;  // made again together with a later step, by that step's line
};

// Is told of every step of a run, on the thread that runs it. A step that throws has no end.
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
  // Of a large temporary, or of several that take it over in place: allocated before its first step, so that
  // it may lie where inputs were that are needed no more, and free for outputs after its last.
  struct Block {
    int64_t bytes = 0;
    int first_step = 0, last_step = 0;
    std::vector<int> buffers;
  };
  std::vector<int64_t> offsets;  // by buffer; -1: not in the arena
  std::vector<Block> blocks;     // by first step
  std::vector<int> ends;         // the blocks by last step
  int64_t arena_bytes = 0;       // after reuse
  int64_t naive_bytes = 0;       // sum of all temporaries

  int64_t peak_bytes() const;  // of the arena and of the blocks that live together
};

// First and last step of each temporary and provided buffer; in_place[b]: the buffer whose memory b may take
// over, or -1.
std::vector<Lifetime> lifetimes(std::span<const BufferInfo> buffers,
                                std::span<const std::unique_ptr<Step>> steps, std::span<const int> in_place);

// First-fit by liveness over buffers sorted by size, but for those of which `has_own_block` holds; pure.
// `bytes` by buffer.
MemoryPlan plan_arena(std::span<const Lifetime> lifetimes, std::span<const int64_t> bytes, int buffer_count,
                      const std::function<bool(const Lifetime&)>& has_own_block = nullptr);

// A caller that hands memory over while a run goes on: outputs when they are first written, inputs when
// nothing needs them any more. So the peak is that of what is alive, not of everything that goes in and out.
class RunMemory {
 public:
  virtual ~RunMemory() = default;
  // Where an output with a buffer of its own goes; asked once, before the first step that writes it. Outputs
  // without elements have no such step.
  virtual void* output(int index) = 0;
  // The last step that touches this input is done. Never called of static inputs.
  virtual void release_input(int index) = 0;
};

class Executable {
 public:
  struct Parts {
    std::vector<BufferInfo> buffers;
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<bool> hoisted;        // by step: depends on static inputs only; run once per version of them
    std::vector<int> static_inputs;   // positions of inputs that are parameters or buffers
    std::vector<Lifetime> lifetimes;  // of kTemporary and kProvided buffers
    std::vector<TensorSpec> inputs;   // expected layout, for checks by the caller
    std::vector<OutputSpec> outputs;
    int symbol_count = 0;
  };
  explicit Executable(Parts parts);
  ~Executable();

  const Parts& parts() const { return parts_; }
  // Where temporaries are when the symbols have these values.
  MemoryPlan plan(std::span<const int64_t> symbols) const;

  // Makes the hoisted values now instead of in the first run; `inputs` that are not static may be null.
  void prepare(std::span<void* const> inputs, std::span<const InputVersion> versions) const;

  struct HoistedValue {
    int buffer;
    std::span<const std::byte> bytes;
  };
  // The buffers that hold hoisted values, and the values that prepare() made.
  const std::vector<int>& hoisted_buffers() const;
  std::vector<HoistedValue> hoisted_values() const;
  // Takes the values of all of these buffers, for inputs of these versions, instead of making them; `owner`
  // keeps their memory.
  void adopt(std::span<const HoistedValue> values, const std::shared_ptr<const void>& owner,
             std::span<const InputVersion> versions) const;

  // inputs/outputs: data pointers in order; symbols: values in the graph's order; versions: one per input or
  // empty. Thread-safe. Throws what a step throws; IndexError, or the error of runtime/index_errors.def, for
  // an out-of-range index.
  void run(std::span<void* const> inputs, std::span<void* const> outputs, std::span<const int64_t> symbols,
           std::span<const InputVersion> versions, StepObserver* observer = nullptr) const;
  // The same; `memory` gives the outputs and takes the inputs back, on the calling thread.
  void run(std::span<void* const> inputs, RunMemory& memory, std::span<const int64_t> symbols,
           std::span<const InputVersion> versions, StepObserver* observer = nullptr) const;

 private:
  struct State;
  struct Frame;
  std::unique_ptr<Frame> take_frame() const;
  void give_back(std::unique_ptr<Frame> frame) const;
  // By step: the outputs that it is the first to touch, the inputs that it is the last to touch.
  void find_first_and_last();
  // The outputs are pointers, or none and `memory` gives them.
  void run_steps(std::span<void* const> inputs, std::span<void* const> outputs, RunMemory* memory,
                 std::span<const int64_t> symbols, std::span<const InputVersion> versions,
                 StepObserver* observer) const;
  // Points the frame's buffers at their memory; the arena is the caller's.
  void bind(Frame& frame, std::span<void* const> inputs, std::span<void* const> outputs, char* arena) const;
  void run_step(Frame& frame, int index) const;
  Parts parts_;
  std::unique_ptr<State> state_;
};

}  // namespace ipex
