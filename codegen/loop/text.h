// Prints and parses Loop IR. The grammar is in codegen/README.md.
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
// A state is `name: type = init`, or `name: type = init identity(x)` if the identity differs. The mask of a
// store follows its value as `if mask`, on the same line (an `if` on a line of its own is a statement). The
// mask of a load is written `x[index if mask]`.
//
// Vector types are written f32x16. Vector expressions are ramp(base, stride, lanes), broadcast(x, lanes),
// reduce_lanes.add(x), shuffle(a, b, [0, 4, 1, 5]) and cast.f32(x). + - * (on any type), // % (floordiv,
// floormod) and comparisons are infix; precedence grows from comparisons over + - and * // % to unary minus.
// `-x` is neg(x), or the negative constant if x is a constant. All other operations are name(args). A scalar
// operand beside a vector is broadcast. bitcast_float.bf16(x) names its result type if it is not the default
// (f32 <-> i32, f64 <-> i64).
//
// Integer constants are i64 without a suffix (1i32, 1b1). Float constants print with the fewest digits that
// read back exactly; f32 has the suffix f (0.5f), f64 has d, half types have their name (0.5bf16), and so do
// inf and nan (-inff, nand). A float constant without a suffix is read as f32. All NaNs are one constant.
//
// `for serial|parallel|vector(grain=, lanes=, unroll=)`: options that are 1 are omitted, and so is a plain
// `serial`. The type of a `let` may be omitted. A Call is `call name(args)`, `{ ... }` is a nested block, and
// # starts a comment. In parse_expr, a name that is not in scope is an i64 variable, and a name in scope may
// be indexed as a buffer of that dtype.
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

// Names are bound once, types agree, buffers are known, indices are i64, masks are b1, and half types occur
// only in Const, Load, Store, Cast, Var, Broadcast and bitcasts. Throws InternalError with the function and
// the offending text.
void verify(const Function& f);

}  // namespace ipex::loop
