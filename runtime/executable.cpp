// Runs the steps of a compiled graph. A run takes a Frame (pointers by buffer) from a pool, so that
// concurrent calls share only the hoisted values, and the steady state allocates only the arena, from cached
// blocks.
#include "runtime/executable.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/error.h"
#include "runtime/hoisting.h"
#include "runtime/index_errors.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

// Temporaries of this size or larger are not part of the arena, but allocated separately. They do not fit in
// the caches, so that reusing arena memory does not help, and they are few.
constexpr int64_t kMinBlock = int64_t{4} << 20;

}  // namespace

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

struct Executable::Frame {
  RunContext context;
  IndexFault fault;  // of the current step
  StepObserver* observer = nullptr;
  MemoryPlan plan;
  std::vector<CachedBlock> blocks;    // live blocks of the plan
  std::vector<int64_t> plan_symbols;  // symbols the plan was made for
  bool planned = false;
};

struct Executable::State {
  std::mutex mutex;  // guards frames
  std::vector<std::unique_ptr<Frame>> frames;
  std::vector<std::vector<int>> release;           // by step: provided buffers that it uses last
  std::vector<std::vector<int>> first_of_outputs;  // by step: buffers of outputs that it uses first
  std::vector<std::vector<int>> last_of_inputs;    // by step: buffers of inputs that it uses last
  std::unique_ptr<Hoisting> hoisting;
};

Executable::Executable(Parts parts) : parts_(std::move(parts)), state_(std::make_unique<State>()) {
  const size_t step_count = parts_.steps.size();
  IPEX_CHECK(parts_.hoisted.empty() || parts_.hoisted.size() == step_count, "one hoisted flag per step");
  parts_.hoisted.resize(step_count, false);
  state_->hoisting = std::make_unique<Hoisting>(parts_);
  state_->release.resize(step_count);
  for (const Lifetime& life : parts_.lifetimes)
    if (parts_.buffers[life.buffer].kind == BufferKind::kProvided && !state_->hoisting->keeps(life.buffer))
      state_->release[life.last_step].push_back(life.buffer);
  find_first_and_last_uses();
}

Executable::~Executable() = default;

void Executable::find_first_and_last_uses() {
  constexpr int kNever = -1;
  std::vector<int> first(parts_.buffers.size(), kNever), last(parts_.buffers.size(), kNever);
  for (size_t i = 0; i < parts_.steps.size(); ++i) {
    if (parts_.hoisted[i]) continue;  // reads only static inputs and writes only hoisted buffers
    for (const std::vector<int>* touched : {&parts_.steps[i]->reads, &parts_.steps[i]->writes})
      for (int buffer : *touched) {
        if (first[buffer] == kNever) first[buffer] = static_cast<int>(i);
        last[buffer] = static_cast<int>(i);
      }
  }
  std::vector<bool> stays(parts_.inputs.size(), false);
  for (int input : parts_.static_inputs) stays[input] = true;
  state_->first_of_outputs.resize(parts_.steps.size());
  state_->last_of_inputs.resize(parts_.steps.size());
  for (size_t b = 0; b < parts_.buffers.size(); ++b) {
    const BufferInfo& buffer = parts_.buffers[b];
    if (first[b] == kNever) continue;
    if (buffer.kind == BufferKind::kOutput) state_->first_of_outputs[first[b]].push_back(static_cast<int>(b));
    if (buffer.kind == BufferKind::kInput && !stays[buffer.index])
      state_->last_of_inputs[last[b]].push_back(static_cast<int>(b));
  }
}

MemoryPlan Executable::plan(std::span<const int64_t> symbols) const {
  std::vector<int64_t> bytes(parts_.buffers.size());
  std::vector<Lifetime> lifetimes;
  for (const Lifetime& life : parts_.lifetimes) {
    const BufferInfo& buffer = parts_.buffers[life.buffer];
    if (buffer.kind != BufferKind::kTemporary) continue;
    bytes[life.buffer] = buffer.bytes.eval(symbols.data());
    lifetimes.push_back(life);
  }
  return plan_arena(lifetimes, bytes, static_cast<int>(bytes.size()), [&](const Lifetime& life) {
    return bytes[life.buffer] >= kMinBlock && !parts_.hoisted[life.first_step];
  });
}

void Executable::run_step(Frame& frame, int index) const {
  const Step& step = *parts_.steps[index];
  if (frame.observer) frame.observer->begin(step.info, index);
  step.run(frame.context);
  if (frame.observer) frame.observer->end();
  if (frame.fault.set) raise_index_error(frame.fault.index, frame.fault.size, frame.fault.error);
  for (int buffer : state_->release[index]) frame.context.owners_[buffer].reset();
}

std::unique_ptr<Executable::Frame> Executable::take_frame() const {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->frames.empty()) {
      auto frame = std::move(state_->frames.back());
      state_->frames.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>();
  frame->context.buffers_.resize(parts_.buffers.size());
  frame->context.owners_.resize(parts_.buffers.size());
  return frame;
}

void Executable::return_frame(std::unique_ptr<Frame> frame) const {
  for (auto& owner : frame->context.owners_) owner.reset();
  std::lock_guard lock(state_->mutex);
  state_->frames.push_back(std::move(frame));
}

void Executable::bind(Frame& frame, std::span<void* const> inputs, std::span<void* const> outputs,
                      char* arena) const {
  for (size_t i = 0; i < parts_.buffers.size(); ++i) {
    const BufferInfo& buffer = parts_.buffers[i];
    void*& data = frame.context.buffers_[i];
    switch (buffer.kind) {
      case BufferKind::kInput:
        data = inputs[buffer.index];
        break;
      case BufferKind::kOutput:
        data = outputs.empty() ? nullptr : outputs[buffer.index];
        break;
      case BufferKind::kConstant:
        data = const_cast<void*>(buffer.constant.get());
        break;
      case BufferKind::kTemporary:
        data = !arena || frame.plan.offsets[i] < 0 ? nullptr : arena + frame.plan.offsets[i];
        break;
      case BufferKind::kHoisted:
      case BufferKind::kProvided:
        data = nullptr;
        break;
    }
  }
}

void Executable::prepare(std::span<void* const> inputs, std::span<const InputVersion> versions) const {
  IPEX_CHECK(inputs.size() == parts_.inputs.size(), "one pointer per input");
  if (!state_->hoisting->any()) return;
  std::unique_ptr<Frame> frame = take_frame();
  frame->observer = nullptr;  // the observer of the frame's last run may be gone
  frame->context.versions_ = versions;
  bind(*frame, inputs, {}, nullptr);
  state_->hoisting->bind(frame->context, [&](int step) { run_step(*frame, step); });
  return_frame(std::move(frame));
}

const std::vector<int>& Executable::hoisted_buffers() const { return state_->hoisting->buffers(); }

std::vector<Executable::HoistedValue> Executable::hoisted_values() const {
  std::vector<HoistedValue> values;
  const std::vector<const void*> data = state_->hoisting->values();
  for (size_t i = 0; i < data.size(); ++i) {
    const int buffer = hoisted_buffers()[i];
    const auto bytes = static_cast<size_t>(parts_.buffers[buffer].bytes.constant());
    values.push_back({buffer, {static_cast<const std::byte*>(data[i]), bytes}});
  }
  return values;
}

void Executable::adopt(std::span<const HoistedValue> values, const std::shared_ptr<const void>& owner,
                       std::span<const InputVersion> versions) const {
  std::vector<const void*> data;
  for (const HoistedValue& value : values) {
    IPEX_CHECK(value.buffer == hoisted_buffers()[data.size()], "all hoisted buffers in order");
    data.push_back(value.bytes.data());
  }
  state_->hoisting->adopt(data, owner, versions);
}

void Executable::run(std::span<void* const> inputs, std::span<void* const> outputs,
                     std::span<const int64_t> symbols, std::span<const InputVersion> versions,
                     StepObserver* observer) const {
  IPEX_CHECK(outputs.size() == parts_.outputs.size(), "one pointer per output");
  run_steps(inputs, outputs, nullptr, symbols, versions, observer);
}

void Executable::run(std::span<void* const> inputs, RunMemory& memory, std::span<const int64_t> symbols,
                     std::span<const InputVersion> versions, StepObserver* observer) const {
  run_steps(inputs, {}, &memory, symbols, versions, observer);
}

void Executable::run_steps(std::span<void* const> inputs, std::span<void* const> outputs, RunMemory* memory,
                           std::span<const int64_t> symbols, std::span<const InputVersion> versions,
                           StepObserver* observer) const {
  IPEX_CHECK(static_cast<int>(symbols.size()) == parts_.symbol_count, "one value per symbol");
  IPEX_CHECK(inputs.size() == parts_.inputs.size(), "one pointer per input");
  std::unique_ptr<Frame> frame = take_frame();
  frame->observer = observer;
  RunContext& context = frame->context;
  context.symbols_ = symbols.data();
  context.versions_ = versions;
  if (!frame->planned || !std::ranges::equal(frame->plan_symbols, symbols)) {
    frame->plan = plan(symbols);
    frame->blocks.resize(frame->plan.blocks.size());
    frame->plan_symbols.assign(symbols.begin(), symbols.end());
    frame->planned = true;
  }
  CachedBlock arena;
  if (frame->plan.arena_bytes > 0) arena = allocate_block(frame->plan.arena_bytes);
  bind(*frame, inputs, outputs, static_cast<char*>(arena.get()));
  frame->fault = {};
  IndexFaultScope scope(&frame->fault);
  std::shared_ptr<const void> hoisted;  // keeps the values of this run, even if another run replaces them
  if (state_->hoisting->any())
    hoisted = state_->hoisting->bind(context, [&](int step) { run_step(*frame, step); });
  const std::vector<MemoryPlan::Block>& blocks = frame->plan.blocks;
  const std::vector<int>& ends = frame->plan.ends;
  size_t begun = 0, ended = 0;
  for (int i = 0; i < static_cast<int>(parts_.steps.size()); ++i) {
    if (parts_.hoisted[i]) continue;
    if (memory)
      for (int b : state_->first_of_outputs[i]) context.buffers_[b] = memory->output(parts_.buffers[b].index);
    for (; begun < blocks.size() && blocks[begun].first_step == i; ++begun) {
      frame->blocks[begun] = allocate_block(blocks[begun].bytes);
      for (int b : blocks[begun].buffers) context.buffers_[b] = frame->blocks[begun].get();
    }
    run_step(*frame, i);
    if (memory)
      for (int b : state_->last_of_inputs[i]) memory->release_input(parts_.buffers[b].index);
    for (; ended < ends.size() && blocks[ends[ended]].last_step == i; ++ended)
      frame->blocks[ends[ended]].reset();
  }
  return_frame(std::move(frame));
}

}  // namespace ipex
