// The numbers of a constant: conversion between bytes, numbers and text, and queries for literals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

Number decode_number(const std::byte* bytes, Dtype dtype);
// Appends the number in the dtype, rounded for float types. Throws UserError if an integer type cannot hold
// it.
void encode_number(Number number, Dtype dtype, std::vector<std::byte>& bytes);

// The fewest digits that read back exactly, with a point or an exponent.
std::string print_number(double value);
std::string print_number(double value, Dtype dtype);  // `dtype` is a float type
// ` value=[1,2,3]` for a few numbers; ` data="..."` in base 64 for more, and for NaNs, whose bits it keeps.
std::string print_payload(const ConstantData& data, Dtype dtype);
std::vector<std::byte> decode_base64(std::string_view text);  // UserError

// The number, if `value` is a literal or a view of one.
std::optional<Number> literal_value(const Graph& graph, Value value);
bool is_literal(const Graph& graph, Value value, int64_t number);

}  // namespace ipex::graph
