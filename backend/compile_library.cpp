// Library steps of matrix products, convolutions and LSTMs, and steps that call ATen.
#include <algorithm>

#include "backend/clock.h"
#include "backend/implementations/library_description.h"
#include "backend/step_info.h"
#include "backend/step_maker.h"
#include "codegen/loop/simplify.h"
#include "kernels/check.h"

namespace ipex::graph {

void StepMaker::emit_library(int32_t n) {
  const Node& node = g_.nodes[n];
  const auto planning = library_planning(g_, node, options_);
  if (!planning)
    throw Unsupported("a library step of " + name_of(node.operation) + " for " +
                      std::string(name(options_.target.isa)));
  auto description = library_description(
      g_, n, *planning, [&](Value v) { return placed_.spec_of(v); },
      [&](Value v) { return placed_.is_hoisted(v); });
  const int packed_buffer = node.op() == Op::kConvBackward ? -1 : placed_.add(BufferKind::kHoisted, -1, 0);
  Clock clock;
  kernels::LibrarySteps steps = std::visit(
      [&](auto& each) {
        // The choice stays valid even if layouts or the machine have changed since it was made.
        if (!library_.refusal(each).empty()) each.planning = kernels::Planning::kAny;
        return library_.make(each, packed_buffer);
      },
      description);
  made_.primitives_ms += clock.lap();
  add_library(n, std::move(steps), packed_buffer);
}

void StepMaker::add_library(int32_t n, kernels::LibrarySteps steps, int packed_buffer) {
  if (steps.pack) {
    placed_.buffers[packed_buffer].bytes = steps.packed_bytes;
    steps.pack->info.sources = split_sources(g_.nodes[n].source);
    add_step(std::move(steps.pack), true);
  }
  describe(*steps.main, g_, n);
  ++made_.library_steps;
  add_step(std::move(steps.main), placed_.is_static[n]);
}

void StepMaker::emit_extern(int32_t n) {
  const Node& node = g_.nodes[n];
  const Extern& call = node.get<Extern>();
  if (call.overload == kernels::kCheck) {
    const std::string message = kernels::check_message(call.args);
    return add_library(n, {kernels::make_check({placed_.spec_of(node.operands[0]), message})});
  }
  if (!options_.make_extern)
    throw Unsupported(call.overload + ": an ATen call in a graph compiled without libtorch");
  std::unique_ptr<Step> step = options_.make_extern(node, placed_.specs_of(node.operands), read_results(n));
  describe(*step, g_, n);
  ++made_.extern_steps;
  made_.extern_ops.push_back(call.overload + (step->info.detail.empty() ? "" : ": " + step->info.detail));
  add_step(std::move(step), false);
}

}  // namespace ipex::graph
