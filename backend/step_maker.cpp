// See step_maker.h. Selects the kind of step for each node.
#include "backend/step_maker.h"

#include <algorithm>

#include "backend/sort_steps.h"
#include "codegen/loop/simplify.h"
#include "runtime/time_limit.h"

namespace ipex::graph {

MadeSteps make_steps(PlacedBuffers& placed, const CompileOptions& options, kernels::LibraryPlans& library) {
  return StepMaker(placed, options, library).run();
}

MadeSteps StepMaker::run() {
  const auto count = static_cast<int32_t>(g_.nodes.size());
  for (int32_t n = 0; n < count; ++n) {
    check_time("lowering", g_.nodes[n].source);
    emit(n);
    copy_outputs(n);
  }
  copy_outputs(PlacedBuffers::kAtEnd);
  copy_mutations();
  return std::move(made_);
}

void StepMaker::add_step(std::unique_ptr<Step> step, bool hoisted) {
  made_.steps.push_back(std::move(step));
  made_.hoisted.push_back(hoisted);
}

void StepMaker::emit(int32_t n) {
  const Node& node = g_.nodes[n];
  if (!placed_.is_needed[n] || node.op() == Op::kInput || node.op() == Op::kConstant || is_empty(n)) return;
  switch (node.op()) {
    case Op::kGroup:
      return node.get<Group>().batch ? emit_batch(n) : emit_kernel(n, *node.get<Group>().body);
    case Op::kMatMul:
    case Op::kConv:
    case Op::kConvBackward:
    case Op::kLstm:
      // If the pipeline stopped before choose_implementations, no implementation is set.
      return choice_of(node).by == Implementation::kLibrary || node.op() == Op::kLstm
                 ? emit_library(n)
                 : emit_kernel(n, body_of(g_, n));
    case Op::kExtern:
      return emit_extern(n);
    case Op::kSort:
    case Op::kSearch:
      return add_library(
          n, {make_sort_step(node, g_.symbols, placed_.specs_of(node.operands), read_results(n))});
    default:
      return emit_kernel(n, body_of(g_, n));
  }
}

bool StepMaker::is_empty(int32_t n) const {
  const Node& node = g_.nodes[n];
  return node.op() != Op::kExtern && std::all_of(node.types.begin(), node.types.end(), [](const Type& type) {
           return std::any_of(type.shape.begin(), type.shape.end(),
                              [](const Dim& dim) { return loop::as_const_int(dim) == 0; });
         });
}

std::vector<TensorSpec> StepMaker::read_results(int32_t n) {
  std::vector<TensorSpec> results = placed_.specs_of(placed_.results_of(n));
  for (size_t r = 0; r < results.size(); ++r)
    if (!placed_.is_read({n, static_cast<int32_t>(r)})) results[r].buffer = -1;
  return results;
}

}  // namespace ipex::graph
