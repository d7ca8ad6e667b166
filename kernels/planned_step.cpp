// The cache of plans; see planned_step.h.
#include "kernels/planned_step.h"

#include <algorithm>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex::kernels {
namespace {

constexpr size_t kMaxPlans = 64;
// Values to try for symbolic sizes, most likely first. Inconsistent ones (a kernel larger than its input)
// fail.
constexpr int64_t kLikelySizes[] = {64, 512, 7};

int symbol_count(std::span<const TensorSpec> operands) {
  int64_t count = 0;
  const auto visit = [&](const SizeExpr& expr) {
    for (const auto& instr : expr.program())
      if (instr.code == SizeExpr::Code::kSymbol) count = std::max(count, instr.value + 1);
  };
  for (const TensorSpec& operand : operands) {
    std::ranges::for_each(operand.sizes, visit);
    std::ranges::for_each(operand.strides, visit);
  }
  return static_cast<int>(count);
}

Resolved resolve_all(std::span<const TensorSpec> operands, const int64_t* symbols) {
  Resolved resolved;
  for (const TensorSpec& operand : operands) resolved.operands.push_back(resolve(operand, symbols));
  resolved.shares_result.assign(operands.size(), false);
  return resolved;
}

}  // namespace

Resolved resolve_likely(std::span<const TensorSpec> operands) {
  const std::vector<int64_t> symbols(symbol_count(operands), kLikelySizes[0]);
  return resolve_all(operands, symbols.data());
}

PlannedStep::PlannedStep(std::string name, std::vector<TensorSpec> operands, BuildPlan build,
                         Planning planning, int results)
    : operands_(std::move(operands)), results_(results), build_plan_(std::move(build)) {
  info.kind = StepKind::kLibrary;
  info.name = std::move(name);
  for (size_t i = 0; i < operands_.size(); ++i) {
    is_static_ &= operands_[i].is_static();
    std::vector<int>& list = i < static_cast<size_t>(results) ? writes : reads;
    if (std::ranges::find(list, operands_[i].buffer) == list.end()) list.push_back(operands_[i].buffer);
  }
  if (planning == Planning::kLater) return;
  std::string why;
  for (int64_t value : kLikelySizes) {
    const std::vector<int64_t> symbols(symbol_count(operands_), value);
    Resolved resolved = resolve_all(operands_, symbols.data());
    resolved.must_succeed = planning == Planning::kAny;
    Key key{num_threads()};
    for (size_t i = 1; i < operands_.size(); ++i) {
      resolved.shares_result[i] = operands_[i].buffer == operands_[0].buffer;
      key.push_back(resolved.shares_result[i]);
    }
    append_sizes(symbols.data(), key);
    try {
      info.detail = insert(key, this->build(resolved))->detail;
      return;
    } catch (const std::exception& error) {
      if (is_static_) throw;
      why = error.what();
    }
  }
  throw Unsupported(info.name + ": no plan for any likely size (" + why + "); lower the op in another way");
}

PlannedStep::PlannedStep(const PlannedStep& other, const std::map<int, int>& buffers)
    : Step(other),
      operands_(other.operands_),
      results_(other.results_),
      build_plan_(other.build_plan_),
      is_static_(other.is_static_) {
  for (TensorSpec& operand : operands_) operand.buffer = buffers.at(operand.buffer);
  for (std::vector<int>* list : {&reads, &writes})
    for (int& buffer : *list) buffer = buffers.at(buffer);
  std::lock_guard lock(other.mutex_);
  plans_ = other.plans_;
}

PlannedStep::~PlannedStep() = default;

std::unique_ptr<Step> PlannedStep::over(const std::map<int, int>& buffers) const {
  return std::unique_ptr<Step>(new PlannedStep(*this, buffers));
}

Plan PlannedStep::build(const Resolved& resolved) const {
  try {
    return build_plan_(resolved);
  } catch (const dnnl::error& error) {
    rethrow(error, info.name);
  }
}

void PlannedStep::append_sizes(const int64_t* symbols, Key& key) const {
  if (is_static_) return;
  for (const TensorSpec& operand : operands_) {
    for (const SizeExpr& size : operand.sizes) key.push_back(size.eval(symbols));
    for (const SizeExpr& stride : operand.strides) key.push_back(stride.eval(symbols));
  }
}

std::shared_ptr<const Plan> PlannedStep::find(const Key& key) const {
  std::lock_guard lock(mutex_);
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if (it->key != key) continue;
    plans_.splice(plans_.begin(), plans_, it);
    return it->plan;
  }
  return nullptr;
}

std::shared_ptr<const Plan> PlannedStep::insert(const Key& key, Plan plan) const {
  std::lock_guard lock(mutex_);
  plans_.push_front({key, std::make_shared<const Plan>(std::move(plan))});
  if (plans_.size() > kMaxPlans) plans_.pop_back();
  return plans_.front().plan;
}

void PlannedStep::run(RunContext& context) const {
  // Thread-local, so that a run allocates nothing. Steps do not run inside each other.
  thread_local std::vector<void*> pointers;
  thread_local Key key;
  pointers.clear();
  for (const TensorSpec& operand : operands_)
    pointers.push_back(static_cast<char*>(context.data(operand.buffer)) +
                       operand.offset.eval(context.symbols()) * itemsize(operand.dtype));
  key.assign(1, num_threads());
  for (size_t i = 1; i < pointers.size(); ++i) key.push_back(pointers[i] == pointers[0]);
  append_sizes(context.symbols(), key);

  std::shared_ptr<const Plan> plan = find(key);
  if (!plan) {
    Resolved resolved = resolve_all(operands_, context.symbols());
    for (size_t i = 1; i < pointers.size(); ++i) resolved.shares_result[i] = pointers[i] == pointers[0];
    resolved.must_succeed = true;
    std::vector<std::pair<int, TensorView>> gathered;
    for (size_t i = results_; i < operands_.size(); ++i) {
      TensorView& operand = resolved.operands[i];
      if (is_describable(operand)) continue;
      gathered.emplace_back(static_cast<int>(i), operand);
      operand.strides = dense_strides(operand.sizes, row_major_order(static_cast<int>(operand.sizes.size())));
      resolved.shares_result[i] = false;
    }
    Plan built = build(resolved);
    for (const auto& [operand, layout] : gathered) built.gather(operand, layout);
    plan = insert(key, std::move(built));
  }
  plan->run(pointers);
}

}  // namespace ipex::kernels
