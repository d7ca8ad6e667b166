// Execution and serialization of kernel steps; see kernel_steps.h.
#include "runtime/kernel_steps.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex {

void fields(auto& io, BatchStep::Entry& entry) {
  io("buffers", entry.buffers);
  io("offsets", entry.offsets);
  io("count", entry.count);
}

namespace {

constexpr size_t kInlinePointers = 64;
constexpr int64_t kTaskElements = 16 << 10;  // large enough for a task, small enough to balance the load
constexpr int64_t kMaxElements = int64_t{1} << 32;  // in one entry: limits the list of pieces
constexpr char kCallWord[] = "kernel", kBatchWord[] = "batch";

struct CallLine {
  std::string name;
  std::vector<int> reads, writes;
  std::optional<std::string> recipe;
};
void fields(auto& io, CallLine& line) {
  io("name", line.name);
  io("reads", line.reads);
  io("writes", line.writes);
  io("recipe", line.recipe);
}

struct BatchLine {
  std::string name;
  std::vector<int> reads, writes;
  std::vector<int64_t> strides;
  std::vector<BatchStep::Entry> entries;
};
void fields(auto& io, BatchLine& line) {
  io("name", line.name);
  io("reads", line.reads);
  io("writes", line.writes);
  io("strides", line.strides);
  io("entries", line.entries);
}

}  // namespace

void KernelStep::link(std::shared_ptr<const FunctionLibrary> library) {
  function_ = library->lookup(info.name);
  library_ = std::move(library);
}

std::unique_ptr<KernelStep> read_kernel_step(FieldReader& io) {
  if (io.word() == kCallWord) {
    CallLine line;
    fields(io, line);
    for (const auto* list : {&line.reads, &line.writes})
      for (const int buffer : *list) io.require_buffer(buffer);
    return std::make_unique<CallStep>(std::move(line.name), std::move(line.reads), std::move(line.writes),
                                      line.recipe.value_or(""));
  }
  if (io.word() != kBatchWord) return nullptr;
  BatchLine line;
  fields(io, line);
  if (line.strides.size() > kInlinePointers) io.fail("a batched kernel has too many parameters");
  auto step = std::make_unique<BatchStep>(line.name, line.strides);
  step->reads = std::move(line.reads);
  step->writes = std::move(line.writes);
  for (BatchStep::Entry& entry : line.entries) {
    if (entry.buffers.size() != line.strides.size() || entry.offsets.size() != line.strides.size() ||
        entry.count <= 0 || entry.count > kMaxElements)
      io.fail("an entry contradicts itself");
    for (const int buffer : entry.buffers)
      if (std::ranges::find(step->reads, buffer) == step->reads.end() &&
          std::ranges::find(step->writes, buffer) == step->writes.end())
        io.fail("an entry uses a buffer that the step does not declare");
    step->add(std::move(entry));
  }
  for (const auto* list : {&step->reads, &step->writes})
    for (const int buffer : *list) io.require_buffer(buffer);
  step->rename(std::move(line.name));
  return step;
}

CallStep::CallStep(std::string kernel, std::vector<int> reads, std::vector<int> writes, std::string recipe) {
  this->reads = std::move(reads);
  this->writes = std::move(writes);
  this->recipe = std::move(recipe);
  rename(std::move(kernel));
}

void CallStep::rename(std::string kernel) {
  info.name = std::move(kernel);
  text = to_line(kCallWord,
                 CallLine{info.name, reads, writes, recipe.empty() ? std::nullopt : std::optional(recipe)});
}

void CallStep::run(RunContext& context) const {
  std::array<void*, kInlinePointers> few;
  const size_t count = reads.size() + writes.size();
  std::vector<void*> many(count <= kInlinePointers ? 0 : count);
  void** const pointers = many.empty() ? few.data() : many.data();
  size_t next = 0;
  for (int buffer : reads) pointers[next++] = context.data(buffer);
  for (int buffer : writes) pointers[next++] = context.data(buffer);
  function_(pointers, context.symbols());
}

BatchStep::BatchStep(std::string kernel, std::vector<int64_t> strides) : strides_(std::move(strides)) {
  IPEX_CHECK(strides_.size() <= kInlinePointers, "a batched kernel has too many parameters");
  info.name = std::move(kernel);
}

void BatchStep::rename(std::string kernel) {
  info.name = std::move(kernel);
  text = to_line(kBatchWord, BatchLine{info.name, reads, writes, strides_, entries_});
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
