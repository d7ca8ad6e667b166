// The numbers in a constant: between bytes of a dtype, text, and what passes compare with 0 and 1.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

Number decode_number(const std::byte* bytes, Dtype dtype);
// Appends the number in the dtype, rounded if a float; UserError when an integer type does not hold it.
void encode_number(Number number, Dtype dtype, std::vector<std::byte>& bytes);

// Fewest digits that read back exactly, with a point or an e.
std::string print_number(double value);
std::string print_number(double value, Dtype dtype);  // of a float dtype
// ` value=[1,2,3]` for a few numbers, ` data="..."` in base 64 for more, or where NaNs have bits of their
// own.
std::string print_payload(const ConstantData& data, Dtype dtype);
std::vector<std::byte> decode_base64(std::string_view text);  // UserError

// The one number that `value` holds everywhere: a literal, through views of it.
std::optional<Number> literal_value(const Graph& graph, Value value);
bool is_literal(const Graph& graph, Value value, int64_t number);

}  // namespace ipex::graph
