#include "backend/kernel_steps.h"

#include <algorithm>
#include <array>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

constexpr size_t kInlinePointers = 64;
constexpr int64_t kTaskElements = 16 << 10;  // worth a thread, and short enough to share out evenly

}  // namespace

KernelStep::KernelStep(std::string kernel) {
  info.kind = StepKind::kKernel;
  info.name = std::move(kernel);
}

void KernelStep::link(std::shared_ptr<const FunctionLibrary> library) {
  function_ = library->lookup(info.name);
  library_ = std::move(library);
}

JitStep::JitStep(std::string kernel, std::vector<int> buffers)
    : KernelStep(std::move(kernel)), buffers_(std::move(buffers)) {}

void JitStep::run(RunContext& context) const {
  if (buffers_.size() <= kInlinePointers) {
    std::array<void*, kInlinePointers> pointers;
    for (size_t k = 0; k < buffers_.size(); ++k) pointers[k] = context.data(buffers_[k]);
    return function_(pointers.data(), context.symbols());
  }
  std::vector<void*> pointers;
  for (int buffer : buffers_) pointers.push_back(context.data(buffer));
  function_(pointers.data(), context.symbols());
}

BatchStep::BatchStep(std::string kernel, std::vector<int64_t> strides)
    : KernelStep(std::move(kernel)), strides_(std::move(strides)) {
  IPEX_CHECK(strides_.size() <= kInlinePointers, "a batched kernel has few parameters");
}

void BatchStep::add(Entry entry) {
  const int index = static_cast<int>(entries_.size());
  for (int64_t begin = 0; begin < entry.count; begin += kTaskElements) {
    if (tasks_.empty() || last_task_count_ >= kTaskElements) {
      tasks_.push_back(pieces_.size());
      last_task_count_ = 0;
    }
    pieces_.push_back({index, begin, std::min(kTaskElements, entry.count - begin)});
    last_task_count_ += pieces_.back().count;
  }
  entries_.push_back(std::move(entry));
}

void BatchStep::run(RunContext& context) const {
  struct Closure {
    const BatchStep* step;
    RunContext* context;
  } closure{this, &context};
  const auto body = [](void* data, int64_t begin, int64_t end, int64_t) {
    const auto& [step, context] = *static_cast<Closure*>(data);
    step->run_tasks(*context, begin, end);
  };
  parallel_for(0, static_cast<int64_t>(tasks_.size()), 1, body, &closure);
}

void BatchStep::run_tasks(RunContext& context, int64_t begin, int64_t end) const {
  const size_t last = static_cast<size_t>(end) < tasks_.size() ? tasks_[end] : pieces_.size();
  std::array<void*, kInlinePointers> pointers;
  for (size_t p = tasks_[begin]; p < last; ++p) {
    const Piece& piece = pieces_[p];
    const Entry& entry = entries_[piece.entry];
    for (size_t k = 0; k < strides_.size(); ++k)
      pointers[k] =
          static_cast<char*>(context.data(entry.buffers[k])) + entry.offsets[k] + piece.begin * strides_[k];
    function_(pointers.data(), &piece.count);
  }
}

}  // namespace ipex
