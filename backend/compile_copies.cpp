// Copies: outputs that are views of other values, and, after all steps, updates of inputs whose old value was
// still needed.
#include <algorithm>

#include "backend/step_info.h"
#include "backend/step_maker.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::index_const;

void StepMaker::add_copy(Value v, const OperandLayout& to, int buffer) {
  const Type& type = g_.type(v);
  if (std::any_of(type.shape.begin(), type.shape.end(),
                  [](const Dim& d) { return loop::as_const_int(d) == 0; }))
    return;
  Graph body = g_.without_nodes();
  const Value x = body.add({Input{"x", false}, {}, {type}});
  body.inputs = {x.node};
  body.outputs = {{x, {}}};
  const int from = placed_.buffer_of(resolve_view(g_, v).root);
  loop::Function f = loop::simplify(lower_group(body, {layout_of(v)}, {to}, made_.kernels.next_name(body)));
  auto step = std::make_unique<CallStep>(f.name, std::vector<int>{from}, std::vector<int>{buffer});
  step->info.kind = StepKind::kCopy;
  step->info.bytes = 2 * bytes_hint(g_, v);
  ++made_.kernel_steps;
  add_kernel(std::move(f), std::move(step), false);
}

OperandLayout StepMaker::whole(const Shape& shape, const Strides& strides) const {
  return {strides, index_const(0), span(shape, strides)};
}

void StepMaker::copy_outputs(int32_t after) {
  const auto copies = placed_.output_copies.find(after);
  if (copies == placed_.output_copies.end()) return;
  for (int k : copies->second) {
    const GraphOutput& output = g_.outputs[k];
    const Shape& shape = g_.type(output.value).shape;
    const Strides strides = output.strides.empty() ? contiguous_strides(shape) : output.strides;
    const int buffer = placed_.add(BufferKind::kOutput, k, 0);
    add_copy(output.value, whole(shape, strides), buffer);
    TensorSpec spec{buffer, g_.type(output.value).dtype};
    for (const Dim& dim : shape) spec.sizes.push_back(to_size_expr(dim, g_.symbols));
    for (const Dim& stride : strides) spec.strides.push_back(to_size_expr(stride, g_.symbols));
    placed_.outputs[k] = {std::move(spec)};
  }
}

// All old values must be read before the first new one is written. An update that reads an updated input is
// staged in a temporary.
void StepMaker::copy_mutations() {
  struct Update {
    int input;
    Value value;
    int staged = -1;  // temporary buffer
  };
  std::vector<Update> updates;
  for (const InputMutation& m : g_.mutations) {
    if (written_.count(m.input)) continue;
    const View view = resolve_view(g_, m.value);
    const Value input{g_.inputs[m.input], 0};
    const Shape& shape = g_.type(m.value).shape;
    if (view.root == input && same_strides(shape, view.strides, g_.layout(input)) &&
        loop::as_const_int(view.offset) == 0)
      continue;  // the input already has this value
    updates.push_back({m.input, m.value});
  }
  for (Update& update : updates) {
    const View view = resolve_view(g_, update.value);
    if (!placed_.mutated.count(view.root.node)) continue;
    const Type& type = g_.type(update.value);
    update.staged =
        placed_.add(BufferKind::kTemporary, -1,
                    to_size_expr(numel(type.shape) * index_const(itemsize(type.dtype)), g_.symbols));
    add_copy(update.value, whole(type.shape, contiguous_strides(type.shape)), update.staged);
  }
  for (const Update& update : updates) {
    const Value input{g_.inputs[update.input], 0};
    const Shape& shape = g_.type(input).shape;
    Value from = update.value;
    if (update.staged >= 0) {
      // A new contiguous value for the staged data.
      from = g_.add({Reorder{}, {update.value}, {g_.type(update.value)}});
      placed_.is_static.push_back(false);
      placed_.owned[from] = update.staged;
    }
    add_copy(from, whole(shape, g_.layout(input)), placed_.owned.at(input));
  }
}

}  // namespace ipex::graph
