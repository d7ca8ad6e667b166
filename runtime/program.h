// A saved program: an Executable as text, with the names that its callers know. print and parse are inverse.
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
// One line an entry, in this order; steps last, in the order they run. A step's line begins with the word of
// its maker (kernels/step_table.cpp; kernel_steps.h); the step that packs a library step's weights has no
// line of its own. Lifetimes follow from the steps.
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

// What callers of a program know of it.
struct Interface {
  // A size that is known per call: read from an input, refused outside of [low, high].
  struct Symbol {
    std::string name;
    int input = -1;  // the executable's; -1, never in an artifact: the caller knows the size
    bool is_stride = false;
    int dim = 0;                      // -1, never in an artifact: the input is an integer, the size itself
    int64_t divisor = 1, offset = 0;  // the size is divisor * the symbol + offset
    int64_t value(int64_t size) const { return (size - offset) / divisor; }
    int64_t low = 0, high = std::numeric_limits<int64_t>::max();
  };
  // What the program relies on beside the ranges of its symbols: refused where the number is below 0.
  struct Condition {
    std::string text;  // for people
    SizeExpr nonnegative = 0;
  };
  struct Input {
    std::string name;
    std::string member;  // of the artifact, for a weight; empty: given by the caller
    bool written =
        false;  // a run writes it: the caller's tensor, or a buffer of the model that a call changes
    bool is_weight() const { return !member.empty() && !written; }
  };
  // What a call returns, in order; tensors are outputs of the executable.
  struct Result {
    enum class Kind { kNone, kConstant, kDim, kArgument, kSame, kTensor };
    static constexpr std::array<std::string_view, 6> kKinds = {"none",     "constant", "dim",
                                                               "argument", "same",     "tensor"};
    Kind kind = Kind::kTensor;
    std::string name;
    int index = 0;         // kArgument: the executable's input; kSame: earlier result; kTensor: output
    SizeExpr dim = 0;      // kDim: the number; of a view: its offset, in elements
    std::string constant;  // kConstant, as JSON
    // The view that the caller sees of the output, or of the input (never in an artifact), where it is not
    // that itself.
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
  std::vector<std::string> constants;  // by buffer: the artifact's member with a constant's data
};

// A step made from its line, with the step that packs its weights into `packed_buffer`.
struct MadeSteps {
  std::unique_ptr<Step> main;
  std::unique_ptr<Step> pack = nullptr;
  int packed_buffer = -1;
  int64_t packed_bytes = 0;
};
// Asked by several threads at once.
using StepReader = std::function<MadeSteps(FieldReader& io)>;

// `constants` as in Program. Unsupported, naming the step and the model's source line, for a step that has no
// text.
std::string print_program(const Interface& interface, const Executable::Parts& parts,
                          const std::vector<std::string>& constants);

// ParseError for text that is damaged or contradicts itself: what it returns can be run, as far as that can
// be told without knowing what kernels do. `kernels` may be null: such a program is only looked at. The data
// of constants is left to the caller.
Program parse_program(std::string_view text, const StepReader& read_step,
                      std::shared_ptr<const FunctionLibrary> kernels);

}  // namespace ipex
