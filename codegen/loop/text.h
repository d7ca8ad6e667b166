// Loop IR as text, both ways. Grammar in codegen/README.md.
//
//   func softmax(in x: f32[64*s0], out y: f32[64*s0]) symbols(s0) {
//     for parallel(grain=4) r in 0..64 {
//       for vector(lanes=16, unroll=4) c in 0..s0 reduce(m: f32 = -inff) {
//         let t: f32 = x[r*s0 + c]
//       } yield(max(m, t)) merge(max(m, m.other))
//       for c1 in 0..s0 {
//         y[r*s0 + c1] = exp(x[r*s0 + c1] - m)
//       }
//     }
//   }
//
// A state is `name: type = init`, and `name: type = init identity(x)` when the identity differs. A mask
// follows as `if mask` after the store's value (on its line: an `if` on a line of its own is a statement),
// and as `x[index if mask]` in a load. Vector types are f32x16; ramp(base, stride, lanes), broadcast(x,
// lanes), reduce_lanes.add(x), shuffle(a, b, [0, 4, 1, 5]), cast.f32(x). + - * on any type and // %
// (floordiv, floormod) and comparisons are infix, comparison < + - < * // % < unary; `-x` is neg(x), of a
// constant the negative constant. The rest is name(args); a scalar operand beside a vector is broadcast.
// bitcast_float.bf16(x) names its result where it is not the default (f32 <-> i32, f64 <-> i64). Integer
// constants are i64 unless suffixed (1i32, 1b1); float constants print with the fewest digits that read back
// exactly, f32 with suffix f (0.5f), f64 with d, the half types with their name (0.5bf16); inf and nan
// likewise (-inff, nand). A float constant without suffix reads as f32. All NaNs are one constant. `for
// serial|parallel|vector(grain=, lanes=, unroll=)`: options that are 1 are left out, and so is a plain
// `serial`. The type of a `let` may be left out. A Call is `call name(args)`; `{ ... }` is a nested block; #
// starts a comment. In parse_expr a name that is not in scope is an i64 variable; a name in scope may be
// indexed, as a buffer of that dtype.
#pragma once

#include <string>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

std::string print(const Expr& e);
std::string print(const Function& f);
std::string print(const std::vector<Function>& module);
Function parse_function(std::string_view text);             // ParseError with line:column
std::vector<Function> parse_module(std::string_view text);  // several functions
Expr parse_expr(std::string_view text, const std::vector<std::pair<std::string, Type>>& scope = {});

// Names bound once, types agree, buffers known, indices i64, masks b1, half types only in
// Const/Load/Store/Cast/Var/Broadcast/bitcasts. Throws InternalError naming the function and the offending
// text.
void verify(const Function& f);

}  // namespace ipex::loop
