// A Step that builds a Plan for the sizes of its operands: in the constructor if they are static, else in the
// first run with these sizes. Plans are cached by sizes, strides, thread count and which operands share the
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

// The input for building a plan.
struct Resolved {
  std::vector<TensorView> operands;  // data is null
  std::vector<bool> shares_result;   // by operand: starts at the first element of operand 0, a result
  // Accept a slow implementation, because the step already exists and there is no alternative.
  bool must_succeed = false;
};
using BuildPlan = std::function<Plan(const Resolved&)>;

class PlannedStep final : public Step {
 public:
  // The first `results` operands are written, the others are read. Throws Unsupported if there is no good
  // plan for the operands' sizes; symbolic sizes are tried with likely values.
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
  int results_;  // the first operands, which are written
  BuildPlan build_plan_;
  bool is_static_ = true;
  mutable std::mutex mutex_;
  mutable std::list<Entry> plans_;  // most recently used first
};

// The operands with their static sizes, or with a likely value for every symbol.
Resolved resolve_likely(std::span<const TensorSpec> operands);

}  // namespace ipex::kernels
