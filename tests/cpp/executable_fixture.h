// What tests of Executable share: programs of single numbers, built a buffer and a step at a time.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/executable.h"

namespace ipex::testing {

using Body = std::function<void(RunContext&)>;

class FunctionStep final : public Step {
 public:
  FunctionStep(std::vector<int> reads_, std::vector<int> writes_, Body body) : body_(std::move(body)) {
    reads = std::move(reads_);
    writes = std::move(writes_);
    info.name = "test.step";
  }
  void run(RunContext& context) const override { body_(context); }

 private:
  Body body_;
};

inline int64_t& number(const RunContext& context, int buffer) {
  return *static_cast<int64_t*>(context.data(buffer));
}

// Builds Parts a buffer and a step at a time; every buffer holds one int64 unless said otherwise.
struct Builder {
  Executable::Parts parts;

  int buffer(BufferKind kind, int index = -1, SizeExpr bytes = 8) {
    parts.buffers.push_back({kind, index, std::move(bytes), nullptr});
    return static_cast<int>(parts.buffers.size()) - 1;
  }
  int input(bool is_static = false) {
    const int index = static_cast<int>(parts.inputs.size());
    parts.inputs.push_back({.dtype = Dtype::kI64});
    if (is_static) parts.static_inputs.push_back(index);
    return buffer(BufferKind::kInput, index);
  }
  int output() {
    parts.outputs.emplace_back();
    return buffer(BufferKind::kOutput, static_cast<int>(parts.outputs.size()) - 1);
  }
  int temporary(int first, int last, SizeExpr bytes = 8, int in_place_of = -1) {
    const int b = buffer(BufferKind::kTemporary, -1, std::move(bytes));
    parts.lifetimes.push_back({b, first, last, in_place_of});
    return b;
  }
  void step(std::vector<int> reads, std::vector<int> writes, Body body, bool hoisted = false) {
    parts.steps.push_back(
        std::make_unique<FunctionStep>(std::move(reads), std::move(writes), std::move(body)));
    parts.hoisted.push_back(hoisted);
  }
  Executable build() { return Executable(std::move(parts)); }
};

inline int64_t run(const Executable& executable, std::vector<int64_t> inputs,
                   std::vector<int64_t> symbols = {}, std::vector<InputVersion> versions = {}) {
  std::vector<void*> in;
  for (int64_t& input : inputs) in.push_back(&input);
  int64_t result = -1;
  void* out[] = {&result};
  executable.run(in, std::span(out, executable.parts().outputs.size()), symbols, versions);
  return result;
}

inline InputVersion version(uint64_t v, bool trackable = true) {
  return {.version = v, .trackable = trackable};
}

}  // namespace ipex::testing
