#include "kernels/torch_ops/graph_program.h"

#include <utility>
#include <vector>

#include "backend/compile.h"
#include "runtime/code_pages.h"

namespace ipex::torch_ops {

TensorProgram compile_graph(const std::string& text, bool alias_outputs) {
  graph::Graph graph = graph::parse(text);
  std::vector<bool> written(graph.inputs.size(), false);
  for (const graph::InputMutation& mutation : graph.mutations) written[mutation.input] = true;
  CompileOptions options;
  options.target = loop::current_target();
  options.alias_outputs = alias_outputs;
  const CompiledGraph compiled = compile(std::move(graph), options);
  release_code_pages(reinterpret_cast<const void*>(&ipex::compile));  // LLVM's, in the same library
  const std::vector<bool> kept(written.size(), true);
  return {compiled.executable, std::move(written), kept};
}

}  // namespace ipex::torch_ops
