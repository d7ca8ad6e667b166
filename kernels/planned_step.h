// A Step that makes its Plan from the sizes of its operands: at once when they are static, else at the first
// run with each set of sizes. Plans are kept by sizes, strides, thread count and which operands share the
// result's memory.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/library.h"
#include "kernels/plan.h"
#include "runtime/executable.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

// What a plan is made for.
struct Resolved {
  std::vector<TensorView> operands;  // data is null
  std::vector<bool> shares_result;   // by operand: starts at the first element of operand 0, a result
  // The op has already been given to us: a slow implementation is better than none.
  bool must_succeed = false;
};
using BuildPlan = std::function<Plan(const Resolved&)>;

class PlannedStep final : public Step {
 public:
  // The first `results` operands are written, the others read. Throws Unsupported when no good plan exists
  // for the operands' sizes; sizes that are not known yet are tried with likely values.
  PlannedStep(std::string name, std::vector<TensorSpec> operands, BuildPlan build,
              Planning planning = Planning::kJudge, int results = 1);
  ~PlannedStep() override;

  void run(RunContext& context) const override;

  // The same step over other buffers, with the plans made so far. Its line of a saved program is left to the
  // caller.
  std::unique_ptr<Step> over(const std::map<int, int>& buffers) const;

 private:
  PlannedStep(const PlannedStep& other, const std::map<int, int>& buffers);

  using Key = std::vector<int64_t>;
  struct Entry {
    Key key;
    std::shared_ptr<const Plan> plan;
  };

  Plan build(const Resolved& resolved) const;
  void append_sizes(const int64_t* symbols, Key& key) const;
  std::shared_ptr<const Plan> find(const Key& key) const;
  std::shared_ptr<const Plan> insert(const Key& key, Plan plan) const;

  std::vector<TensorSpec> operands_;
  BuildPlan build_plan_;
  bool is_static_ = true;
  mutable std::mutex mutex_;
  mutable std::list<Entry> plans_;  // latest used first
};

// The operands at sizes to judge a step by: the real ones when static, else with every symbol at one likely
// value.
Resolved resolve_likely(std::span<const TensorSpec> operands);

}  // namespace ipex::kernels
