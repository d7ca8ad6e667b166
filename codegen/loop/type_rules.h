// Which operand types an expression may have, and what type it gets. One answer for the constructors, the
// parser (which adds a position) and the verifier (which adds a function).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// The type of op over operands of equal lanes: the table's rule; bitcasts give the type of the same width,
// f32 and f64 for the ints they are the bits of.
Type apply_type(ScalarOp op, std::span<const Expr> args);

// Why the node would be ill-typed; empty when it is fine.
std::string apply_error(ScalarOp op, std::span<const Expr> args, Type result);
std::string load_error(const Expr& index, const Expr& mask);
std::string ramp_error(const Expr& base, const Expr& stride, int lanes);
std::string broadcast_error(const Expr& x, int lanes);
std::string shuffle_error(const Expr& a, const Expr& b, const std::vector<int>& mask);
std::string reduce_lanes_error(ScalarOp op, const Expr& x);

std::string to_string(Type type);  // "f32", "f32x16"

// What a name must look like for the text form to read it back: letters, digits, `_`, inner dots; no word of
// the grammar.
bool is_name(std::string_view text);

}  // namespace ipex::loop
