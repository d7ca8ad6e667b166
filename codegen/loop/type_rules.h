// Which operand types an expression may have, and which type it gets. The constructors, the parser (which
// adds a position) and the verifier (which adds a function) share these rules.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// The type of op for operands with the same number of lanes, according to the table. A bitcast gives the type
// of the same width: f32 and f64 for integers.
Type apply_type(ScalarOp op, std::span<const Expr> args);

// Why the node would be ill-typed; empty if it is correct.
std::string apply_error(ScalarOp op, std::span<const Expr> args, Type result);
std::string load_error(const Expr& index, const Expr& mask);
std::string ramp_error(const Expr& base, const Expr& stride, int lanes);
std::string broadcast_error(const Expr& x, int lanes);
std::string shuffle_error(const Expr& a, const Expr& b, const std::vector<int>& mask);
std::string reduce_lanes_error(ScalarOp op, const Expr& x);

std::string to_string(Type type);  // "f32", "f32x16"

// What a name must look like so that the text form can be read back: letters, digits, `_` and inner dots, and
// not a word of the grammar.
bool is_name(std::string_view text);

}  // namespace ipex::loop
