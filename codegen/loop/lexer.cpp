// Splits text into tokens: words, numbers with their type suffix, symbols of one or two characters.
#include "codegen/loop/lexer.h"

#include <algorithm>
#include <array>

namespace ipex::loop {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Token Lexer::next() {
  skip_space();
  Token token{Token::kEnd, {}, line_, static_cast<int>(at_ - line_start_) + 1, line_ != previous_line_};
  previous_line_ = line_;
  if (at_ == text_.size()) return token;
  size_t begin = at_;
  if (is_letter(text_[at_])) {
    token.kind = Token::kWord;
    word();
  } else if (is_digit(text_[at_])) {
    token.kind = Token::kNumber;
    number();
  } else {
    token.kind = Token::kSymbol;
    constexpr std::array<std::string_view, 6> pairs = {"..", "//", "==", "!=", "<=", ">="};
    std::string_view two = text_.substr(at_, 2);
    at_ += std::find(pairs.begin(), pairs.end(), two) != pairs.end() ? 2 : 1;
  }
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

void Lexer::skip_space() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
    if (at_ == text_.size()) return;
    if (text_[at_] == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    } else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r') {
      return;
    }
  }
}

// A dot is part of a word only between its characters: `m.other` is a word, but `s0..n` is a range.
void Lexer::word() {
  auto inner = [](char c) { return is_letter(c) || is_digit(c); };
  while (inner(peek()) || (peek() == '.' && inner(peek(1)))) ++at_;
}

// Digits, fraction, exponent, then the letters of a type suffix. `0..8` is a range, not a fraction.
void Lexer::number() {
  while (is_digit(peek())) ++at_;
  if (peek() == '.' && peek(1) != '.') {
    ++at_;
    while (is_digit(peek())) ++at_;
  }
  bool sign = peek(1) == '+' || peek(1) == '-';
  if (peek() == 'e' && is_digit(peek(sign ? 2 : 1))) {
    at_ += sign ? 2 : 1;
    while (is_digit(peek())) ++at_;
  }
  while (is_letter(peek()) || is_digit(peek())) ++at_;
}

}  // namespace ipex::loop
