// Steps of batches: groups with the same computation on tensors of different sizes, such as the parameters of
// an optimizer step, run as one kernel over a table of tensors.
#include <algorithm>
#include <map>
#include <set>

#include "backend/passes/grouping.h"
#include "backend/step_info.h"
#include "backend/step_maker.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::graph {

using loop::index_const;

void StepMaker::emit_batch(int32_t n) {
  const int64_t number = *g_.nodes[n].get<Group>().batch;
  auto is_member = [&](int32_t m) {
    const auto* group = g_.nodes[m].get_if<Group>();
    return group && group->batch == number;
  };
  if (!emitted_batches_.insert(number).second) return;
  std::vector<int32_t> members, others;  // others: get kernels of their own after the step
  for (int32_t m = n; m < static_cast<int32_t>(g_.nodes.size()) && is_member(m); ++m)
    if (placed_.is_needed[m] && !is_empty(m)) (is_run_of_elements(m) ? members : others).push_back(m);
  if (!members.empty()) emit_batch_step(members, others);
  for (int32_t m : others) emit_kernel(m, *g_.nodes[m].get<Group>().body);
}

void StepMaker::emit_batch_step(const std::vector<int32_t>& members, const std::vector<int32_t>& others) {
  const Graph body = *flat_body(*g_.nodes[members[0]].get<Group>().body);
  auto layouts = [&](size_t count, auto type_of) {
    std::vector<OperandLayout> result;
    for (size_t k = 0; k < count; ++k) {
      const Shape& shape = type_of(k).shape;
      result.push_back({contiguous_strides(shape), index_const(0), numel(shape)});
    }
    return result;
  };
  loop::Function f = loop::simplify(lower_group(
      body, layouts(body.inputs.size(), [&](size_t k) { return body.nodes[body.inputs[k]].types[0]; }),
      layouts(body.outputs.size(), [&](size_t k) { return body.type(body.outputs[k].value); }),
      made_.kernels.next_name(body)));
  std::vector<int64_t> strides;
  for (const loop::Buffer& buffer : f.buffers)
    strides.push_back(loop::as_const_int(buffer.extent) ? 0 : itemsize(buffer.dtype));
  auto step = std::make_unique<BatchStep>(f.name, std::move(strides));
  add_entries(*step, members, others, f);
  step->info.detail = "over " + std::to_string(members.size()) + " tensors";
  ++made_.kernel_steps;
  f = loop::apply_schedule(f, loop::choose_schedule(f, options_.target, /*parallel=*/false));
  add_kernel(std::move(f), std::move(step), false);
}

bool StepMaker::is_run_of_elements(int32_t n) const {
  if (placed_.is_static[n]) return false;
  const Node& node = g_.nodes[n];
  const Shape& space = node.types[0].shape;
  const Strides strides = g_.layout({n, 0});
  if (!is_dense(space, strides)) return false;
  auto fits = [&](Value v) {
    const View view = resolve_view(g_, v);
    if (!loop::as_const_int(view.offset)) return false;
    return !equal(g_.type(v).shape, space) || same_strides(space, view.strides, strides);
  };
  const std::vector<Value> results = placed_.results_of(n);
  return std::all_of(node.operands.begin(), node.operands.end(), fits) &&
         std::all_of(results.begin(), results.end(), fits);
}

void StepMaker::add_entries(BatchStep& step, const std::vector<int32_t>& members,
                            const std::vector<int32_t>& others, const loop::Function& f) {
  std::map<int, int>
      readers;  // by buffer: the number of reading groups (members run concurrently, others later)
  for (const std::vector<int32_t>* nodes : {&members, &others})
    for (int32_t m : *nodes) {
      std::set<int> read;
      for (Value v : g_.nodes[m].operands) read.insert(placed_.buffer_of(resolve_view(g_, v).root));
      for (int buffer : read) ++readers[buffer];
    }
  for (int32_t m : members) {
    const Node& node = g_.nodes[m];
    BatchStep::Entry entry;
    entry.count = *loop::as_const_int(loop::simplify(numel(node.types[0].shape)));
    for (Value v : node.operands) {
      const View view = resolve_view(g_, v);
      entry.buffers.push_back(placed_.buffer_of(view.root));
      entry.offsets.push_back(*loop::as_const_int(view.offset) * itemsize(g_.type(v).dtype));
    }
    step.reads.insert(step.reads.end(), entry.buffers.begin(), entry.buffers.end());
    const std::set<int> own(entry.buffers.begin(), entry.buffers.end());
    auto free_to_write = [&](int input) { return readers[input] <= static_cast<int>(own.count(input)); };
    for (Value v : placed_.results_of(m)) {
      const std::string out = "out" + std::to_string(v.result);
      if (!placed_.owned.count(v))
        if (int input = mutation_target(v, f, out, entry.buffers, free_to_write); input >= 0)
          placed_.owned[v] = input;
      entry.buffers.push_back(placed_.buffer_of(v));
      entry.offsets.push_back(0);
      step.writes.push_back(entry.buffers.back());
    }
    describe(step, g_, m);
    if (entry.count > 0) step.add(std::move(entry));
  }
}

}  // namespace ipex::graph
