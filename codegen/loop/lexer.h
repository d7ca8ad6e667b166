// Tokens of Loop IR text. Blanks, newlines and comments only separate tokens, with one exception: a token
// knows whether it begins a line, which distinguishes the mask of a store from an if statement.
#pragma once

#include <string_view>

namespace ipex::loop {

struct Token {
  enum Kind { kEnd, kWord, kNumber, kSymbol } kind = kEnd;
  std::string_view text;
  int line = 1, column = 1;
  bool begins_line = true;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip_space();
  void word();
  void number();

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1, previous_line_ = 0;
};

}  // namespace ipex::loop
