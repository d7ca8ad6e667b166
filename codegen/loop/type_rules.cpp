// The types of expressions, and what a name may look like.
#include "codegen/loop/type_rules.h"

#include <algorithm>
#include <array>

namespace ipex::loop {
namespace {

bool in_domain(Domain domain, Dtype dtype) {
  if (is_half(dtype)) return false;
  switch (domain) {
    case Domain::kAny:
      return true;
    case Domain::kNumber:
      return dtype != Dtype::kBool;
    case Domain::kFloatOnly:
      return is_float(dtype);
    case Domain::kIntOnly:
      return is_int(dtype);
    case Domain::kBits:
      return !is_float(dtype);
  }
  return false;
}

std::string_view describe(Domain domain) {
  switch (domain) {
    case Domain::kAny:
      return "any type but f16 and bf16 (cast to f32 first)";
    case Domain::kNumber:
      return "integers, f32 and f64";
    case Domain::kFloatOnly:
      return "f32 and f64";
    case Domain::kIntOnly:
      return "integers";
    case Domain::kBits:
      return "integers and b1";
  }
  return "";
}

std::string quote(std::string_view text) { return "'" + std::string(text) + "'"; }

// A bitcast keeps the width. Unlike arithmetic, it accepts half types, whose bits are an i16.
std::string bitcast_error(ScalarOp op, Type from, Type to) {
  bool to_int = op == ScalarOp::bitcast_int_;
  Dtype number = to_int ? from.dtype : to.dtype, bits = to_int ? to.dtype : from.dtype;
  if (is_float(number) && is_int(bits) && info(bits).is_signed && itemsize(number) == itemsize(bits) &&
      from.lanes == to.lanes)
    return "";
  return std::string(info(op).name) + " from " + to_string(from) + " to " + to_string(to) +
         ": it reinterprets the bits of a float as the signed integer of its width, or back";
}

}  // namespace

std::string to_string(Type type) {
  std::string text(name(type.dtype));
  if (type.lanes != 1) text += "x" + std::to_string(type.lanes);
  return text;
}

Type apply_type(ScalarOp op, std::span<const Expr> args) {
  Type first = args[0]->type;
  if (op == ScalarOp::bitcast_int_) {
    constexpr std::array by_bytes = {Dtype::kI16, Dtype::kI32, Dtype::kI64};
    int64_t bytes = itemsize(first.dtype);
    return first.with_dtype(by_bytes[bytes == 2 ? 0 : bytes == 4 ? 1 : 2]);
  }
  if (op == ScalarOp::bitcast_float_)
    return first.with_dtype(itemsize(first.dtype) == 4 ? Dtype::kF32 : Dtype::kF64);
  switch (info(op).result) {
    case ResultRule::kSame:
      return first;
    case ResultRule::kBoolean:
      return first.with_dtype(Dtype::kBool);
    case ResultRule::kSecond:
      return args[1]->type;
  }
  return first;
}

std::string apply_error(ScalarOp op, std::span<const Expr> args, Type result) {
  const ScalarOpInfo& row = info(op);
  if (args.size() != row.arity)
    return std::string(row.name) + " takes " + std::to_string(row.arity) + " operands, got " +
           std::to_string(args.size());
  for (const Expr& arg : args)
    if (!arg) return std::string(row.name) + " has a null operand";
  if (op == ScalarOp::bitcast_int_ || op == ScalarOp::bitcast_float_)
    return bitcast_error(op, args[0]->type, result);
  size_t first = op == ScalarOp::select_ ? 1 : 0;
  if (first == 1 && args[0]->type != Type{Dtype::kBool, args[1]->type.lanes})
    return "select's condition is " + to_string(args[0]->type) + ", expected " +
           to_string({Dtype::kBool, args[1]->type.lanes});
  Type type = args[first]->type;
  for (size_t i = first + 1; i < args.size(); ++i)
    if (args[i]->type != type)
      return "operands of " + quote(row.name) + " differ in type: " + to_string(type) + " and " +
             to_string(args[i]->type);
  const bool only_f32 = op == ScalarOp::pair_bf16_ || op == ScalarOp::dot_bf16_ || op == ScalarOp::scale_ ||
                        op == ScalarOp::lookup_;
  if (only_f32 && type.dtype != Dtype::kF32)
    return quote(row.name) + " of " + to_string(type) + ": it takes f32";
  if (!in_domain(row.domain, type.dtype))
    return quote(row.name) + " of " + to_string(type) + ": it takes " + std::string(describe(row.domain));
  if (result != apply_type(op, args))
    return quote(row.name) + " gives " + to_string(apply_type(op, args)) + ", not " + to_string(result);
  return "";
}

std::string load_error(const Expr& index, const Expr& mask) {
  if (!index || index->type.dtype != Dtype::kI64)
    return "an index is i64, got " + (index ? to_string(index->type) : std::string("none"));
  if (mask && mask->type != index->type.with_dtype(Dtype::kBool))
    return "a mask has the index's lanes: expected " + to_string(index->type.with_dtype(Dtype::kBool)) +
           ", got " + to_string(mask->type);
  return "";
}

std::string ramp_error(const Expr& base, const Expr& stride, int lanes) {
  if (lanes < 2) return "ramp needs at least 2 lanes, got " + std::to_string(lanes);
  if (base->type != stride->type || base->type.is_vector() || !is_int(base->type.dtype))
    return "ramp takes two integer scalars of one type, got " + to_string(base->type) + " and " +
           to_string(stride->type);
  return "";
}

std::string broadcast_error(const Expr& x, int lanes) {
  if (lanes < 2) return "broadcast needs at least 2 lanes, got " + std::to_string(lanes);
  if (x->type.is_vector()) return "broadcast takes a scalar, got " + to_string(x->type);
  return "";
}

std::string shuffle_error(const Expr& a, const Expr& b, const std::vector<int>& mask) {
  if (a->type != b->type || !a->type.is_vector())
    return "shuffle takes two vectors of one type, got " + to_string(a->type) + " and " + to_string(b->type);
  if (mask.size() < 2) return "shuffle needs at least 2 lanes, got " + std::to_string(mask.size());
  for (int selected : mask)
    if (selected < 0 || selected >= 2 * a->type.lanes)
      return "shuffle selects lane " + std::to_string(selected) + " of " + std::to_string(2 * a->type.lanes);
  return "";
}

std::string reduce_lanes_error(ScalarOp op, const Expr& x) {
  constexpr std::array allowed = {ScalarOp::add_,    ScalarOp::mul_,   ScalarOp::min_,   ScalarOp::max_,
                                  ScalarOp::bitand_, ScalarOp::bitor_, ScalarOp::bitxor_};
  if (std::find(allowed.begin(), allowed.end(), op) == allowed.end())
    return "reduce_lanes." + std::string(info(op).name) +
           ": the operation is one of add mul min max bitand bitor bitxor";
  if (!x->type.is_vector()) return "reduce_lanes takes a vector, got " + to_string(x->type);
  if (!in_domain(info(op).domain, x->type.dtype))
    return "reduce_lanes." + std::string(info(op).name) + " of " + to_string(x->type) + ": it takes " +
           std::string(describe(info(op).domain));
  return "";
}

bool is_name(std::string_view text) {
  constexpr std::array<std::string_view, 18> reserved = {
      "for",    "let", "alloc", "if",   "else",   "call",    "func", "serial", "parallel",
      "vector", "inf", "inff",  "infd", "inff16", "infbf16", "nan",  "nanf",   "nand"};
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !letter(text[0]) || text == "nanf16" || text == "nanbf16") return false;
  for (size_t i = 1; i < text.size(); ++i)
    if (!letter(text[i]) && !digit(text[i]) && !(text[i] == '.' && text[i - 1] != '.' && i + 1 < text.size()))
      return false;
  return std::find(reserved.begin(), reserved.end(), text) == reserved.end();
}

}  // namespace ipex::loop
