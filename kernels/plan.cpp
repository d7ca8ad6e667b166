// See plan.h. Primitives are executed by oneDNN's C function, because the C++ one builds a new argument list
// in each call.
#include "kernels/plan.h"

#include <cstring>

#include "kernels/engine.h"
#include "runtime/alignment.h"
#include "runtime/arena.h"

namespace ipex::kernels {
namespace {

// Calls visit(address) for the elements of a strided view, in row-major order.
template <class Visit>
void each_element(char* data, const TensorView& layout, const Visit& visit, size_t dim = 0) {
  if (dim == layout.sizes.size()) return visit(data);
  const int64_t step = layout.strides[dim] * itemsize(layout.dtype);
  for (int64_t i = 0; i < layout.sizes[dim]; ++i) each_element(data + i * step, layout, visit, dim + 1);
}

}  // namespace

struct Plan::Context {
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;                   // by slot
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by stage
};

Plan::Plan() : pool_(std::make_unique<Pool>()) {}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;

int Plan::operand(int index, const dnnl::memory::desc& desc) {
  slots_.push_back({desc, index});
  return static_cast<int>(slots_.size()) - 1;
}

int Plan::scratch(const dnnl::memory::desc& desc) {
  slots_.push_back({desc, -1, scratch_bytes_});
  scratch_bytes_ += aligned(static_cast<int64_t>(desc.get_size()));
  return static_cast<int>(slots_.size()) - 1;
}

int Plan::zeros(const dnnl::memory::desc& desc) {
  const int slot = scratch(desc);
  slots_[slot].zero = true;
  return slot;
}

int Plan::in_layout(int slot, const dnnl::memory::desc& desc) {
  return slots_[slot].desc == desc ? slot : copied(slot, desc);
}

int Plan::copied(int slot, const dnnl::memory::desc& desc) {
  const int target = scratch(desc);
  copy(slot, target);
  return target;
}

void Plan::copy(int from, int to) {
  const auto& engine = cpu_engine();
  const dnnl::reorder::primitive_desc desc(engine, slots_[from].desc, engine, slots_[to].desc,
                                           base_attributes());
  add(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Plan::add(const dnnl::primitive_desc_base& desc, Arguments arguments) {
  const dnnl::memory::desc scratchpad = desc.scratchpad_desc();
  if (scratchpad.get_size() > 0) arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratch(scratchpad));
  stages_.push_back({dnnl::primitive(desc.get()), std::move(arguments)});
}

void Plan::fill_with_zeros(int operand_index, const TensorView& layout) {
  fills_.emplace_back(operand_index, layout);
}

void Plan::gather(int operand_index, const TensorView& layout) {
  gathers_.push_back({operand_index, layout, scratch_bytes_});
  scratch_bytes_ += aligned(layout.numel() * itemsize(layout.dtype));
}

std::unique_ptr<Plan::Context> Plan::borrow() const {
  {
    std::lock_guard lock(pool_->mutex);
    if (!pool_->idle.empty()) {
      auto context = std::move(pool_->idle.back());
      pool_->idle.pop_back();
      return context;
    }
  }
  auto context = std::make_unique<Context>();
  context->stream = dnnl::stream(cpu_engine());
  for (const Slot& slot : slots_)
    context->memories.push_back(dnnl::memory(slot.desc, cpu_engine(), DNNL_MEMORY_NONE));
  for (const Stage& stage : stages_) {
    auto& list = context->arguments.emplace_back();
    for (const auto& [argument, slot] : stage.arguments)
      list.push_back({argument, context->memories[slot].get()});
  }
  return context;
}

void Plan::run(std::span<void* const> operands) const {
  for (const auto& [index, layout] : fills_)
    each_element(static_cast<char*>(operands[index]), layout,
                 [bytes = itemsize(layout.dtype)](char* element) { std::memset(element, 0, bytes); });
  if (stages_.empty()) return;
  std::unique_ptr<Context> context = borrow();
  CachedBlock block;
  if (scratch_bytes_ > 0) block = allocate_block(static_cast<size_t>(scratch_bytes_));
  char* const scratch = static_cast<char*>(block.get());
  for (const Gather& gather : gathers_) {
    char* to = scratch + gather.offset;
    each_element(static_cast<char*>(operands[gather.operand]), gather.layout,
                 [&to, bytes = itemsize(gather.layout.dtype)](const char* element) {
                   std::memcpy(to, element, bytes);
                   to += bytes;
                 });
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    void* data = slot.operand >= 0 ? operands[slot.operand] : scratch + slot.offset;
    for (const Gather& gather : gathers_)
      if (gather.operand == slot.operand) data = scratch + gather.offset;
    if (slot.zero) std::memset(data, 0, slot.desc.get_size());
    check(dnnl_memory_set_data_handle(context->memories[i].get(), data), "memory of a oneDNN step");
  }
  for (size_t i = 0; i < stages_.size(); ++i) {
    const auto& list = context->arguments[i];
    check(dnnl_primitive_execute(stages_[i].primitive.get(), context->stream.get(),
                                 static_cast<int>(list.size()), list.data()),
          "execution of a oneDNN step");
  }
  // A oneDNN that was built for SYCL returns from `execute` before the results are there.
  check(dnnl_stream_wait(context->stream.get()), "the end of a oneDNN step");
  std::lock_guard lock(pool_->mutex);
  pool_->idle.push_back(std::move(context));
}

}  // namespace ipex::kernels
