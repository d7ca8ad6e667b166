// See constants.h.
#include "backend/graph/constants.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "codegen/loop/half.h"
#include "runtime/error.h"

namespace ipex::graph {
namespace {

constexpr int64_t kMaxListed = 32;  // most numbers that are printed as a list
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

template <class T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
void write(T value, std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

template <class T>
void write_integer(Number number, Dtype dtype, std::vector<std::byte>& bytes) {
  const int64_t* value = std::get_if<int64_t>(&number);
  const int64_t largest = dtype == Dtype::kBool ? 1 : std::numeric_limits<T>::max();
  if (!value || *value < std::numeric_limits<T>::min() || *value > largest)
    throw UserError("constant: " + (value ? std::to_string(*value) : print_number(std::get<double>(number))) +
                    " is not a value of " + std::string(name(dtype)));
  write(static_cast<T>(*value), bytes);
}

std::string base64(const std::vector<std::byte>& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kBase64[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace

Number decode_number(const std::byte* bytes, Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
      return static_cast<int64_t>(read<uint8_t>(bytes));
    case Dtype::kI8:
      return static_cast<int64_t>(read<int8_t>(bytes));
    case Dtype::kI16:
      return static_cast<int64_t>(read<int16_t>(bytes));
    case Dtype::kI32:
      return static_cast<int64_t>(read<int32_t>(bytes));
    case Dtype::kI64:
      return read<int64_t>(bytes);
    case Dtype::kF16:
      return static_cast<double>(loop::f16_to_f32(read<uint16_t>(bytes)));
    case Dtype::kBF16:
      return static_cast<double>(loop::bf16_to_f32(read<uint16_t>(bytes)));
    case Dtype::kF32:
      return static_cast<double>(read<float>(bytes));
    case Dtype::kF64:
      return read<double>(bytes);
  }
  throw InternalError("constant of unknown dtype");
}

void encode_number(Number number, Dtype dtype, std::vector<std::byte>& bytes) {
  const double real = std::visit([](auto value) { return static_cast<double>(value); }, number);
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
      return write_integer<uint8_t>(number, dtype, bytes);
    case Dtype::kI8:
      return write_integer<int8_t>(number, dtype, bytes);
    case Dtype::kI16:
      return write_integer<int16_t>(number, dtype, bytes);
    case Dtype::kI32:
      return write_integer<int32_t>(number, dtype, bytes);
    case Dtype::kI64:
      return write_integer<int64_t>(number, dtype, bytes);
    case Dtype::kF16:
      return write(loop::f32_to_f16(static_cast<float>(real)), bytes);
    case Dtype::kBF16:
      return write(loop::f32_to_bf16(static_cast<float>(real)), bytes);
    case Dtype::kF32:
      return write(static_cast<float>(real), bytes);
    case Dtype::kF64:
      return write(real, bytes);
  }
}

namespace {

template <class Real>
std::string fewest_digits(Real value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

std::string print_number(double value) { return fewest_digits(value); }

std::string print_number(double value, Dtype dtype) {
  if (dtype == Dtype::kF64) return print_number(value);
  const std::string text = fewest_digits(static_cast<float>(value));
  // The parser reads a double. The digits of the float are enough unless that rounds twice.
  double back = 0;
  std::from_chars(text.data(), text.data() + text.size(), back);
  return static_cast<float>(back) == static_cast<float>(value) ? text : print_number(value);
}

std::string print_payload(const ConstantData& data, Dtype dtype) {
  const int64_t size = itemsize(dtype), count = static_cast<int64_t>(data.bytes.size()) / size;
  std::string list;
  bool listed = count <= kMaxListed;
  for (int64_t i = 0; listed && i < count; ++i) {
    const Number number = decode_number(data.bytes.data() + i * size, dtype);
    const double* real = std::get_if<double>(&number);
    listed = !real || !std::isnan(*real);
    list += (i ? "," : "") + (real ? print_number(*real, dtype) : std::to_string(std::get<int64_t>(number)));
  }
  return listed ? " value=[" + list + "]" : " data=\"" + base64(data.bytes) + "\"";
}

std::vector<std::byte> decode_base64(std::string_view text) {
  const size_t length = text.substr(0, text.find('=')).size();
  if (text.size() % 4 || text.size() - length > 2)
    throw UserError("constant data is not base 64: its length is not a multiple of 4");
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t word = 0;
    for (size_t k = i; k < i + 4; ++k) {
      const char* digit = k < length ? std::strchr(kBase64, text[k]) : kBase64;
      if (!digit || !*digit)
        throw UserError("constant data is not base 64: '" + std::string(1, text[k]) + "'");
      word = word << 6 | static_cast<uint32_t>(digit - kBase64);
    }
    for (size_t k = 0; k < 3 && i + k + 1 < length; ++k)
      bytes.push_back(static_cast<std::byte>(word >> (16 - 8 * k)));
  }
  return bytes;
}

std::optional<Number> literal_value(const Graph& graph, Value value) {
  const Node* node = &graph.node(value);
  while (is_view(node->op())) node = &graph.node(node->operands[0]);
  const auto* constant = node->get_if<Constant>();
  if (!constant || !constant->data) return constant ? constant->value : std::nullopt;
  const auto& bytes = constant->data->bytes;
  if (static_cast<int64_t>(bytes.size()) != itemsize(node->types[0].dtype)) return std::nullopt;
  return decode_number(bytes.data(), node->types[0].dtype);
}

bool is_literal(const Graph& graph, Value value, int64_t number) {
  const auto literal = literal_value(graph, value);
  if (!literal) return false;
  if (const int64_t* integer = std::get_if<int64_t>(&*literal)) return *integer == number;
  return std::get<double>(*literal) == static_cast<double>(number);
}

}  // namespace ipex::graph
