// A saved program: an Executable as text, with the names in its interface. Printing and parsing are inverse.
//
//   ipex.program version=1 symbols=1 buffers=5
//   symbol name="batch" input=0 stride=false dim=0 divisor=1 offset=0 low=1 high=64
//   buffer kind="input" index=0
//   buffer kind="temporary" bytes=(s0 3072 *) takes=2
//   input name="x" spec=%0:f32[s0,768]{768,1}
//   input name="fc.weight" member="weights/fc.weight" spec=%1:f32[768,768]{768,1}
//   input name="calls" member="weights/calls" written=true spec=%3:i64[]{}
//   output spec=%3:f32[s0,768]{768,1} alias=-1
//   result kind="tensor" name="y" index=0 ...
//   kernel name="k0_add_gelu" reads=[4,2] writes=[3] hoisted=false bytes=9 flops=3 sources=["m.py:7 gelu"]
//   end
//
// Each entry is a line, in this order. Steps come last, in execution order. The first word of a step's line
// is its kind (kernels/step_table.cpp, kernel_steps.h). The step that packs the weights of a library step has
// no line of its own. Lifetimes are computed from the steps.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/executable.h"
#include "runtime/fields.h"
#include "runtime/function_library.h"

namespace ipex {

// The interface of a program for its callers.
struct Interface {
  // A symbolic size, which a call reads from an input. It must be in [low, high].
  struct Symbol {
    std::string name;
    int input = -1;  // input of the executable; -1 (never in an artifact): the caller provides the size
    bool is_stride = false;
    int dim = 0;                      // -1 (never in an artifact): the input is an integer, the size itself
    int64_t divisor = 1, offset = 0;  // size = divisor * symbol + offset
    int64_t value(int64_t size) const { return (size - offset) / divisor; }
    int64_t low = 0, high = std::numeric_limits<int64_t>::max();
  };
  // A condition on several symbols: a call is refused if the expression is negative.
  struct Condition {
    std::string text;  // for messages
    SizeExpr nonnegative = 0;
  };
  struct Input {
    std::string name;
    std::string member;    // weights and buffers: member of the artifact; empty: an argument of the call
    bool written = false;  // whether a run writes to it
    bool is_weight() const { return !member.empty() && !written; }
  };
  // The results of a call, in order. Tensors are outputs of the executable.
  struct Result {
    enum class Kind { kNone, kConstant, kDim, kArgument, kSame, kTensor };
    static constexpr std::array<std::string_view, 6> kKinds = {"none",     "constant", "dim",
                                                               "argument", "same",     "tensor"};
    Kind kind = Kind::kTensor;
    std::string name;
    int index = 0;         // kArgument: input of the executable; kSame: earlier result; kTensor: output
    SizeExpr dim = 0;      // kDim: the number; of a view: its offset, in elements
    std::string constant;  // kConstant: the value as JSON
    // The view of the output, or (never in an artifact) of the input, that the caller sees, if it is one.
    std::optional<std::vector<SizeExpr>> sizes, strides;
    std::optional<Dtype> dtype;
  };
  std::vector<std::string> symbol_names() const;
  std::vector<Symbol> symbols;
  std::vector<Condition> conditions;
  std::vector<Input> inputs;  // of the executable
  std::vector<Result> results;
};

struct Program {
  static constexpr int64_t kVersion = 2;
  Interface interface;
  Executable::Parts parts;
  std::vector<std::string> constants;  // by buffer: the artifact's member with the data of a constant
};

// A step read from a line, and optionally the step that packs its weights into `packed_buffer`.
struct MadeSteps {
  std::unique_ptr<Step> main;
  std::unique_ptr<Step> pack = nullptr;
  int packed_buffer = -1;
  int64_t packed_bytes = 0;
};
// Called by several threads at once.
using StepReader = std::function<MadeSteps(FieldReader& io)>;

// `constants`: as in Program. Unsupported, with the step and the model's source line, for a step without a
// text.
std::string print_program(const Interface& interface, const Executable::Parts& parts,
                          const std::vector<std::string>& constants);

// ParseError for text that is damaged or inconsistent: the result can be run, as far as that can be checked
// without knowing the kernels. If `kernels` is null, the program can only be inspected. The caller sets the
// data of constants.
Program parse_program(std::string_view text, const StepReader& read_step,
                      std::shared_ptr<const FunctionLibrary> kernels);

}  // namespace ipex
