// Compiled graphs through text and back: what an artifact does with a program.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "backend/compile.h"
#include "kernels/step_table.h"
#include "runtime/program.h"

namespace ipex::test {

// Names for what `parts` take; static inputs are weights. Nullopt where no input tells a symbol.
inline std::optional<Interface> interface_of(const Executable::Parts& parts) {
  Interface interface;
  interface.symbols.resize(static_cast<size_t>(parts.symbol_count));
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    interface.inputs.push_back({"input" + std::to_string(i), ""});
    for (size_t d = 0; d < parts.inputs[i].sizes.size(); ++d) {
      const auto& program = parts.inputs[i].sizes[d].program();
      if (program.size() == 1 && program[0].code == SizeExpr::Code::kSymbol)
        interface.symbols[program[0].value] = {"s" + std::to_string(program[0].value), static_cast<int>(i),
                                               false, static_cast<int>(d)};
    }
  }
  for (const auto& symbol : interface.symbols)
    if (symbol.input < 0) return std::nullopt;
  for (int i : parts.static_inputs) interface.inputs[i].member = "weights/" + interface.inputs[i].name;
  for (size_t k = 0; k < parts.outputs.size(); ++k) {
    Interface::Result& result = interface.results.emplace_back();
    result.name = "output" + std::to_string(k);
    result.index = static_cast<int>(k);
  }
  return interface;
}

inline std::vector<std::string> constant_members(const Executable::Parts& parts) {
  std::vector<std::string> members(parts.buffers.size());
  for (size_t b = 0; b < members.size(); ++b)
    if (parts.buffers[b].kind == BufferKind::kConstant) members[b] = "constants/" + std::to_string(b);
  return members;
}

// The executable that the text of `compiled` describes; the text of that one is the same.
inline std::shared_ptr<const Executable> through_text(const CompiledGraph& compiled) {
  const Executable::Parts& parts = compiled.executable->parts();
  const auto interface = interface_of(parts);
  if (!interface) return compiled.executable;
  const std::string text = print_program(*interface, parts, constant_members(parts));
  Program program = parse_program(text, kernels::read_step, compiled.kernels);
  EXPECT_EQ(print_program(program.interface, program.parts, program.constants), text);
  for (size_t b = 0; b < parts.buffers.size(); ++b)
    program.parts.buffers[b].constant = parts.buffers[b].constant;
  return std::make_shared<const Executable>(std::move(program.parts));
}

}  // namespace ipex::test
