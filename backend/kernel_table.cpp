// See kernel_table.h.
#include "backend/kernel_table.h"

#include "backend/step_info.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"

namespace ipex::graph {

std::string KernelTable::next_name(const Graph& body) const {
  return "k" + std::to_string(functions.size()) + kernel_suffix(body);
}

loop::Function KernelTable::lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                                  const std::vector<OperandLayout>& outputs, const loop::Target& target) {
  std::string key = print(body);
  for (const std::vector<OperandLayout>* layouts : {&inputs, &outputs})
    for (const OperandLayout& layout : *layouts) {
      for (const Dim& stride : layout.strides) key += loop::print(stride) + ",";
      key += loop::print(layout.offset) + ":" + loop::print(layout.extent) + ";";
    }
  auto known = lowered.find(key);
  if (known == lowered.end())
    known = lowered.emplace(key, loop::simplify(graph::lower(body, inputs, outputs, "", target))).first;
  loop::Function f = known->second;
  f.name = next_name(body);
  return f;
}

void KernelTable::add(loop::Function f, KernelStep& step) {
  const auto [same, is_new] = names.try_emplace(recipe_of(f), f.name);
  step.rename(same->second);
  if (is_new) functions.push_back(std::move(f));
  unlinked.push_back(&step);
}

std::string recipe_of(loop::Function f) {
  f.name = "hoisted";
  return loop::print(f);
}

std::shared_ptr<const FunctionLibrary> link_kernels(const KernelTable& kernels, const loop::Target& target,
                                                    loop::CompileStats* stats) {
  if (kernels.functions.empty()) return nullptr;
  auto library = loop::schedule_and_compile(kernels.functions, target, stats);
  for (KernelStep* step : kernels.unlinked) step->link(library);
  return library;
}

}  // namespace ipex::graph
