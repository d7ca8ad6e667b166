// Serialization of structures as text. One line of a saved program is a word and named fields:
//
//   onednn.matmul dst=%2:f32[s0,4]{4,1} a=%0:f32[s0,8]{8,1} b=%1:f32[8,4]{4,1} post=[{name="relu"}] pack=true
//
// One function per structure, `fields(io, value)`, serves reading and writing: it calls io(key, member) for
// each member in the order of the text. Structures nest in braces, lists in brackets. A size is an integer or
// a postfix program over the symbols s0, s1, ..., such as "(s0 4 *)". An empty optional is left out. The
// reader validates its input: text that does not parse, or that names a buffer or symbol that does not exist,
// is a ParseError.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor.h"

namespace ipex {

class FieldWriter {
 public:
  explicit FieldWriter(std::string_view word) : text_(word) {}

  template <class T>
  void operator()(std::string_view key, const T& value) {
    if (!text_.empty() && text_.back() != '{') text_ += ' ';
    text_.append(key) += '=';
    put(value);
  }
  template <class T>
  void operator()(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  // An enumerator, written as its name in `names`.
  template <class Enum, class Names>
  void choice(std::string_view key, Enum value, const Names& names) {
    (*this)(key, std::string(names[static_cast<size_t>(value)]));
  }
  const std::string& text() const { return text_; }

 private:
  void put(bool value) { text_ += value ? "true" : "false"; }
  void put(int value) { text_ += std::to_string(value); }
  void put(int64_t value) { text_ += std::to_string(value); }
  void put(float value);
  void put(const std::string& value);  // quoted
  void put(Dtype value) { text_ += name(value); }
  void put(const SizeExpr& value);
  void put(const TensorSpec& value);
  template <class T>
  void put(const std::vector<T>& values) {
    text_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) text_ += ',';
      put(values[i]);
    }
    text_ += ']';
  }
  template <class T>
    requires requires(FieldWriter& io, T& value) { fields(io, value); }
  void put(const T& value) {
    text_ += '{';
    fields(*this, const_cast<T&>(value));  // a writer changes nothing
    text_ += '}';
  }

  std::string text_;
};

class FieldReader {
 public:
  // The number of buffers and symbols that the text may refer to.
  struct Limits {
    int buffers = 0, symbols = 0;
  };
  // `where` begins every message: "program.txt:12".
  FieldReader(std::string_view line, std::string where, Limits limits);

  const std::string& word() const { return word_; }

  template <class T>
  void operator()(std::string_view key, T& value) {
    if (!take_key(key)) fail("expected '" + std::string(key) + "='");
    get(value);
  }
  template <class T>
  void operator()(std::string_view key, std::optional<T>& value) {
    value.reset();
    if (take_key(key)) get(value.emplace());
  }
  template <class Enum, class Names>
  void choice(std::string_view key, Enum& value, const Names& names) {
    std::string text;
    (*this)(key, text);
    for (size_t i = 0; i < std::size(names); ++i)
      if (names[i] == text) return void(value = static_cast<Enum>(i));
    fail("unknown " + std::string(key) + " before");
  }
  void require_buffer(int buffer) const {
    if (buffer < 0 || buffer >= limits_.buffers) fail("a buffer before does not exist");
  }
  void finish();  // fails if text is left
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool take_key(std::string_view key);
  bool take(char c);
  void expect(char c);
  void get(bool& value);
  void get(int& value);
  void get(int64_t& value);
  void get(float& value);
  void get(std::string& value);
  void get(Dtype& value);
  void get(SizeExpr& value);
  void get(TensorSpec& value);
  void get(std::vector<SizeExpr>& values, char open, char close);
  template <class T>
  void get(std::vector<T>& values) {
    values.clear();
    expect('[');
    if (take(']')) return;
    do get(values.emplace_back());
    while (take(','));
    expect(']');
  }
  template <class T>
    requires requires(FieldReader& io, T& value) { fields(io, value); }
  void get(T& value) {
    expect('{');
    fields(*this, value);
    expect('}');
  }

  std::string_view line_;
  size_t at_ = 0;
  std::string where_, word_;
  Limits limits_;
};

// The line of a structure.
template <class T>
std::string to_line(std::string_view word, const T& value) {
  FieldWriter writer(word);
  fields(writer, const_cast<T&>(value));
  return writer.text();
}

}  // namespace ipex
