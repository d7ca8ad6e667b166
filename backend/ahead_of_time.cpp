// See ahead_of_time.h.
#include "backend/ahead_of_time.h"

#include <algorithm>
#include <set>

#include "codegen/llvm/shared_object.h"
#include "codegen/loop/cpp.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/error.h"

namespace ipex {

std::vector<std::string> name_constants(const Executable::Parts& parts,
                                        std::vector<ArtifactParts::Data>& all) {
  std::vector<std::string> members(parts.buffers.size());
  for (size_t b = 0; b < members.size(); ++b) {
    const BufferInfo& buffer = parts.buffers[b];
    if (buffer.kind != BufferKind::kConstant) continue;
    const auto* data = static_cast<const std::byte*>(buffer.constant.get());
    const std::span bytes(data, static_cast<size_t>(buffer.bytes.constant()));
    const auto same = std::ranges::find_if(
        all, [&](const ArtifactParts::Data& other) { return std::ranges::equal(other.bytes, bytes); });
    members[b] = same != all.end() ? same->member : "constants/" + std::to_string(all.size());
    if (same == all.end()) all.push_back({members[b], bytes});
  }
  return members;
}

AheadOfTime compile_ahead_of_time(const graph::Graph& graph, const Interface& interface,
                                  std::vector<Isa> isas, const ExternFactory& make_extern) {
  std::ranges::sort(isas);
  isas.erase(std::ranges::unique(isas).begin(), isas.end());
  AheadOfTime all;
  std::set<std::string> externs;
  for (const Isa isa : isas) {
    CompileOptions options;
    options.target = loop::portable_target(isa);
    options.alias_outputs = false;
    options.jit = false;
    options.make_extern = make_extern;
    const CompiledGraph& compiled = all.compiled.emplace_back(compile(graph, options));
    const Executable::Parts& parts = compiled.executable->parts();
    ArtifactParts::Variant& variant = all.variants.emplace_back();
    variant.isa = isa;
    variant.program = print_program(interface, parts, name_constants(parts, all.constants));
    if (!compiled.functions.empty())
      variant.kernels = loop::make_shared_object(compiled.functions, options.target);
    for (const auto& step : parts.steps)
      if (step->info.kind == StepKind::kExtern) externs.insert(step->info.name);
  }
  all.extern_ops.assign(externs.begin(), externs.end());
  return all;
}

std::string kernels_as_text(const CompiledGraph& compiled, Isa isa, KernelForm form) {
  const loop::Target target = loop::portable_target(isa);
  const char* comment = form == KernelForm::kCpp ? "// " : form == KernelForm::kLlvm ? "; " : "# ";
  std::string text(form == KernelForm::kCpp ? loop::cpp_prelude() : "");
  for (const loop::Function& function : compiled.functions) {
    for (const auto& step : compiled.executable->parts().steps)
      if (step->info.name == function.name)
        for (const std::string& source : step->info.sources) text += "\n" + (comment + source);
    text += '\n';
    if (form == KernelForm::kCpp) {
      text += loop::print_cpp(loop::run_scalar_pipeline({function}, target).at(0));
      continue;
    }
    const auto scheduled = loop::run_pipeline({function}, target);
    text += form == KernelForm::kLoop   ? loop::print(scheduled)
            : form == KernelForm::kLlvm ? loop::emit_llvm(scheduled, target)
                                        : loop::emit_assembly(scheduled, target);
  }
  return text;
}

std::vector<KernelTexts> texts_of_kernels(const CompiledGraph& compiled, Isa isa) {
  const loop::Target target = loop::portable_target(isa);
  std::vector<KernelTexts> texts;
  for (const loop::Function& function : compiled.functions) {
    const auto scheduled = loop::run_pipeline({function}, target);
    texts.push_back(
        {function.name, loop::print({function}), loop::print(scheduled), loop::emit_llvm(scheduled, target)});
  }
  return texts;
}

}  // namespace ipex
