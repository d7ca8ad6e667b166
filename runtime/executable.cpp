// Runs the steps of a compiled graph. A run owns a Frame (pointers by buffer) taken from a pool, so that
// calls from several threads share nothing but the hoisted values, and the steady state allocates only the
// arena, from cached blocks.
#include "runtime/executable.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex {

std::string_view name(StepKind kind) {
  static constexpr std::array<std::string_view, 4> kNames = {"kernel", "library", "extern", "copy"};
  return kNames[static_cast<size_t>(kind)];
}

TensorView RunContext::view(const TensorSpec& spec) const {
  TensorView view;
  view.dtype = spec.dtype;
  view.data = static_cast<char*>(buffers_[spec.buffer]) + spec.offset.eval(symbols_) * itemsize(spec.dtype);
  view.sizes.reserve(spec.sizes.size());
  view.strides.reserve(spec.strides.size());
  for (const SizeExpr& size : spec.sizes) view.sizes.push_back(size.eval(symbols_));
  for (const SizeExpr& stride : spec.strides) view.strides.push_back(stride.eval(symbols_));
  return view;
}

void RunContext::provide(int buffer, void* data, std::shared_ptr<void> owner) {
  buffers_[buffer] = data;
  owners_[buffer] = std::move(owner);
}

struct Executable::HoistedSet {
  std::vector<InputVersion> versions;       // of static_inputs, in order
  std::vector<std::shared_ptr<void>> pins;  // keep the identities in `versions` unique
  std::vector<void*> pointers;              // by buffer; null: not hoisted
  std::vector<CachedBlock> blocks;
  std::vector<std::shared_ptr<void>> owners;  // of kProvided buffers
};

struct Executable::Frame {
  RunContext context;
  MemoryPlan plan;
  std::vector<int64_t> plan_symbols;  // symbols the plan was made for
  bool planned = false;
};

struct Executable::State {
  std::mutex mutex;  // guards both members
  std::vector<std::unique_ptr<Frame>> frames;
  std::shared_ptr<const HoistedSet> hoisted;
  std::mutex hoisting;                    // one thread computes hoisted values, others wait
  std::vector<std::vector<int>> release;  // by step: provided buffers whose last step it is
  std::vector<int> hoisted_buffers;       // written by hoisted steps
  bool any_hoisted = false;
};

Executable::Executable(Parts parts) : parts_(std::move(parts)), state_(std::make_unique<State>()) {
  const size_t step_count = parts_.steps.size();
  IPEX_CHECK(parts_.hoisted.empty() || parts_.hoisted.size() == step_count, "one hoisted flag a step");
  parts_.hoisted.resize(step_count, false);
  state_->release.resize(step_count);
  for (size_t i = 0; i < step_count; ++i) {
    if (!parts_.hoisted[i]) continue;
    state_->any_hoisted = true;
    for (int buffer : parts_.steps[i]->writes) state_->hoisted_buffers.push_back(buffer);
  }
  std::vector<bool> kept(parts_.buffers.size(), false);
  for (int buffer : state_->hoisted_buffers) kept[buffer] = true;
  for (const Lifetime& life : parts_.lifetimes)
    if (parts_.buffers[life.buffer].kind == BufferKind::kProvided && !kept[life.buffer])
      state_->release[life.last_step].push_back(life.buffer);
}

Executable::~Executable() = default;

MemoryPlan Executable::plan(std::span<const int64_t> symbols) const {
  std::vector<int64_t> bytes(parts_.buffers.size());
  std::vector<Lifetime> lifetimes;
  for (const Lifetime& life : parts_.lifetimes) {
    const BufferInfo& buffer = parts_.buffers[life.buffer];
    if (buffer.kind != BufferKind::kTemporary) continue;
    bytes[life.buffer] = buffer.bytes.eval(symbols.data());
    lifetimes.push_back(life);
  }
  return plan_arena(lifetimes, bytes, static_cast<int>(bytes.size()));
}

void Executable::run_steps(Frame& frame, bool hoisted) const {
  IndexFault fault;
  IndexFaultScope scope(&fault);
  for (size_t i = 0; i < parts_.steps.size(); ++i) {
    if (parts_.hoisted[i] != hoisted) continue;
    parts_.steps[i]->run(frame.context);
    if (fault.set)
      throw IndexError("index " + std::to_string(fault.index) + " is out of bounds for dimension with size " +
                       std::to_string(fault.size) + " (in " + parts_.steps[i]->info.name + ")");
    for (int buffer : state_->release[i]) frame.context.owners_[buffer].reset();
  }
}

std::shared_ptr<const Executable::HoistedSet> Executable::hoisted_values(Frame& frame) const {
  const std::span<const InputVersion> all = frame.context.versions_;
  const bool versioned = !all.empty();
  auto current = [&](const HoistedSet& set) {
    if (!versioned) return false;
    for (size_t i = 0; i < parts_.static_inputs.size(); ++i)
      if (const InputVersion& v = all[parts_.static_inputs[i]]; !v.trackable || v != set.versions[i])
        return false;
    return true;
  };
  auto latest = [&] {
    std::lock_guard lock(state_->mutex);
    return state_->hoisted;
  };
  if (auto set = latest(); set && current(*set)) return set;

  std::lock_guard hoisting(state_->hoisting);
  if (auto set = latest(); set && current(*set)) return set;
  auto set = std::make_shared<HoistedSet>();
  for (int input : parts_.static_inputs) {
    const InputVersion version = versioned ? all[input] : InputVersion{};
    set->versions.push_back(version);
    if (version.pin) set->pins.push_back(version.pin(version.storage));
  }
  set->pointers.assign(parts_.buffers.size(), nullptr);
  for (int buffer : state_->hoisted_buffers) {
    if (parts_.buffers[buffer].kind == BufferKind::kProvided) continue;
    set->blocks.push_back(allocate_block(parts_.buffers[buffer].bytes.eval(frame.context.symbols_)));
    frame.context.buffers_[buffer] = set->blocks.back().get();
  }
  run_steps(frame, true);
  for (int buffer : state_->hoisted_buffers) {
    set->pointers[buffer] = frame.context.buffers_[buffer];
    if (frame.context.owners_[buffer]) set->owners.push_back(std::move(frame.context.owners_[buffer]));
  }
  std::lock_guard lock(state_->mutex);
  state_->hoisted = set;
  return set;
}

void Executable::run(std::span<void* const> inputs, std::span<void* const> outputs,
                     std::span<const int64_t> symbols, std::span<const InputVersion> versions) const {
  IPEX_CHECK(static_cast<int>(symbols.size()) == parts_.symbol_count, "one value a symbol");
  IPEX_CHECK(inputs.size() == parts_.inputs.size() && outputs.size() == parts_.outputs.size(),
             "one pointer an input and an output");
  std::unique_ptr<Frame> frame;
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->frames.empty()) {
      frame = std::move(state_->frames.back());
      state_->frames.pop_back();
    }
  }
  if (!frame) {
    frame = std::make_unique<Frame>();
    frame->context.buffers_.resize(parts_.buffers.size());
    frame->context.owners_.resize(parts_.buffers.size());
  }
  RunContext& context = frame->context;
  context.symbols_ = symbols.data();
  context.versions_ = versions;
  if (!frame->planned || !std::ranges::equal(frame->plan_symbols, symbols)) {
    frame->plan = plan(symbols);
    frame->plan_symbols.assign(symbols.begin(), symbols.end());
    frame->planned = true;
  }
  CachedBlock arena;
  if (frame->plan.arena_bytes > 0) arena = allocate_block(frame->plan.arena_bytes);
  for (size_t i = 0; i < parts_.buffers.size(); ++i) {
    const BufferInfo& buffer = parts_.buffers[i];
    switch (buffer.kind) {
      case BufferKind::kInput:
        context.buffers_[i] = inputs[buffer.index];
        break;
      case BufferKind::kOutput:
        context.buffers_[i] = outputs[buffer.index];
        break;
      case BufferKind::kConstant:
        context.buffers_[i] = const_cast<void*>(buffer.constant.get());
        break;
      case BufferKind::kTemporary:
        context.buffers_[i] =
            frame->plan.offsets[i] < 0 ? nullptr : static_cast<char*>(arena.get()) + frame->plan.offsets[i];
        break;
      case BufferKind::kHoisted:
      case BufferKind::kProvided:
        context.buffers_[i] = nullptr;
        break;
    }
  }
  std::shared_ptr<const HoistedSet> hoisted;  // holds what this run reads, even if another run replaces it
  if (state_->any_hoisted) {
    hoisted = hoisted_values(*frame);
    for (int buffer : state_->hoisted_buffers) context.buffers_[buffer] = hoisted->pointers[buffer];
  }
  run_steps(*frame, false);
  for (auto& owner : context.owners_) owner.reset();
  std::lock_guard lock(state_->mutex);
  state_->frames.push_back(std::move(frame));
}

}  // namespace ipex
