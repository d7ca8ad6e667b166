// See fields.h. Numbers are converted by charconv, which is exact and independent of the locale.
#include "runtime/fields.h"

#include <algorithm>
#include <charconv>

#include "runtime/error.h"

namespace ipex {
namespace {

constexpr char kCodes[] = {0, 0, '+', '-', '*', '/', '%', '<', '>'};  // by SizeExpr::Code; < min, > max
constexpr size_t kMaxDepth = 64;                                      // stack of a size program

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

template <class T>
void append_number(std::string& text, T value) {
  char digits[64];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  IPEX_CHECK(error == std::errc(), "a number has a text");
  text.append(digits, end);
}

}  // namespace

void FieldWriter::put(float value) { append_number(text_, value); }

void FieldWriter::put(const std::string& value) {
  constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text_.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < ' ') {
      text_.append({'\\', 'x', kHex[static_cast<unsigned char>(c) >> 4], kHex[c & 15]});
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void FieldWriter::put(const SizeExpr& value) {
  if (value.is_const()) return put(value.constant());
  text_ += '(';
  for (const SizeExpr::Instr& instr : value.program()) {
    if (text_.back() != '(') text_ += ' ';
    if (instr.code == SizeExpr::Code::kConst) {
      put(instr.value);
    } else if (instr.code == SizeExpr::Code::kSymbol) {
      text_ += 's';
      put(instr.value);
    } else {
      text_ += kCodes[static_cast<size_t>(instr.code)];
    }
  }
  text_ += ')';
}

void FieldWriter::put(const TensorSpec& value) {
  const auto list = [&](char open, const std::vector<SizeExpr>& values, char close) {
    text_ += open;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) text_ += ',';
      put(values[i]);
    }
    text_ += close;
  };
  text_ += '%';
  put(value.buffer);
  text_.append(":").append(name(value.dtype));
  list('[', value.sizes, ']');
  list('{', value.strides, '}');
  if (value.offset.is_const() && value.offset.constant() == 0) return;
  text_ += '+';
  put(value.offset);
}

FieldReader::FieldReader(std::string_view line, std::string where, Limits limits)
    : line_(line), where_(std::move(where)), limits_(limits) {
  while (at_ < line_.size() && is_word(line_[at_])) ++at_;
  word_ = line_.substr(0, at_);
  if (word_.empty()) fail("expected a word");
}

void FieldReader::fail(const std::string& what) const {
  constexpr size_t kShown = 24;
  throw ParseError(where_ + ":" + std::to_string(at_ + 1) + ": " + what + " at '" +
                   std::string(line_.substr(at_, kShown)) + "'");
}

void FieldReader::finish() {
  if (at_ != line_.size()) fail("unexpected text");
}

bool FieldReader::take_key(std::string_view key) {
  size_t begin = at_;
  while (begin < line_.size() && line_[begin] == ' ') ++begin;
  const std::string_view rest = line_.substr(begin);
  if (!rest.starts_with(key) || rest.size() <= key.size() || rest[key.size()] != '=') return false;
  at_ = begin + key.size() + 1;
  return true;
}

bool FieldReader::take(char c) {
  if (at_ == line_.size() || line_[at_] != c) return false;
  ++at_;
  return true;
}

void FieldReader::expect(char c) {
  if (!take(c)) fail(std::string("expected '") + c + "'");
}

void FieldReader::get(bool& value) {
  const std::string_view rest = line_.substr(at_);
  value = rest.starts_with("true");
  if (!value && !rest.starts_with("false")) fail("expected true or false");
  at_ += value ? 4 : 5;
}

void FieldReader::get(int64_t& value) {
  const auto [end, error] = std::from_chars(line_.data() + at_, line_.data() + line_.size(), value);
  if (error != std::errc()) fail("expected an integer");
  at_ = static_cast<size_t>(end - line_.data());
}

void FieldReader::get(int& value) {
  int64_t wide = 0;
  get(wide);
  value = static_cast<int>(wide);
  if (value != wide) fail("the number before is too large");
}

void FieldReader::get(float& value) {
  const auto [end, error] = std::from_chars(line_.data() + at_, line_.data() + line_.size(), value);
  if (error != std::errc()) fail("expected a number");
  at_ = static_cast<size_t>(end - line_.data());
}

void FieldReader::get(std::string& value) {
  value.clear();
  expect('"');
  while (!take('"')) {
    if (at_ == line_.size()) fail("unfinished text");
    const bool escaped = take('\\');
    if (escaped && take('x')) {
      unsigned char code = 0;
      const char* begin = line_.data() + at_;
      const char* end = line_.data() + std::min(at_ + 2, line_.size());
      if (end - begin != 2 || std::from_chars(begin, end, code, 16).ptr != end) fail("expected two digits");
      value += static_cast<char>(code);
      at_ += 2;
      continue;
    }
    if (at_ == line_.size()) fail("unfinished text");
    value += line_[at_++];
  }
}

void FieldReader::get(Dtype& value) {
  const size_t begin = at_;
  while (at_ < line_.size() && is_word(line_[at_])) ++at_;
  const auto dtype = parse_dtype(line_.substr(begin, at_ - begin));
  if (!dtype) fail("unknown dtype before");
  value = *dtype;
}

void FieldReader::get(SizeExpr& value) {
  if (!take('(')) {
    int64_t constant = 0;
    get(constant);
    value = SizeExpr(constant);
    return;
  }
  std::vector<SizeExpr::Instr> program;
  size_t depth = 0;
  while (!take(')')) {
    take(' ');
    SizeExpr::Instr instr{SizeExpr::Code::kConst};
    const std::string_view rest = line_.substr(at_);
    size_t code = 0;
    for (size_t c = 2; c < std::size(kCodes); ++c)  // '-' before a digit is a sign, not an operator
      if (!rest.empty() && rest[0] == kCodes[c] && (rest.size() < 2 || rest[1] == ' ' || rest[1] == ')'))
        code = c;
    if (code) {
      if (depth < 2) fail("an operator without operands");
      instr.code = static_cast<SizeExpr::Code>(code);
      ++at_;
      --depth;
    } else {
      if (take('s')) instr.code = SizeExpr::Code::kSymbol;
      get(instr.value);
      if (instr.code == SizeExpr::Code::kSymbol && (instr.value < 0 || instr.value >= limits_.symbols))
        fail("the symbol before does not exist");
      if (++depth > kMaxDepth) fail("the size is nested too deeply");
    }
    program.push_back(instr);
  }
  if (depth != 1) fail("the size before does not leave a single value");
  value = SizeExpr(std::move(program));
}

void FieldReader::get(std::vector<SizeExpr>& values, char open, char close) {
  values.clear();
  expect(open);
  if (take(close)) return;
  do get(values.emplace_back(0));
  while (take(','));
  expect(close);
}

void FieldReader::get(TensorSpec& value) {
  expect('%');
  get(value.buffer);
  if (value.buffer < -1 || value.buffer >= limits_.buffers) fail("the buffer before does not exist");
  expect(':');
  get(value.dtype);
  get(value.sizes, '[', ']');
  get(value.strides, '{', '}');
  if (value.sizes.size() != value.strides.size()) fail("the numbers of sizes and strides before differ");
  value.offset = 0;
  if (take('+')) get(value.offset);
}

}  // namespace ipex
