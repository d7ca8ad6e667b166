// Sizes known only at run time: small postfix programs over the graph's symbols, evaluated per call. backend/
// translates a Dim to this form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ipex {

class SizeExpr {
 public:
  enum class Code : uint8_t { kConst, kSymbol, kAdd, kSub, kMul, kFloorDiv, kFloorMod, kMin, kMax };
  struct Instr {
    Code code;
    int64_t value = 0;  // kConst: the constant; kSymbol: the symbol's index
  };

  SizeExpr(int64_t constant = 0) : program_{{Code::kConst, constant}} {}  // NOLINT: integers are sizes
  explicit SizeExpr(std::vector<Instr> program) : program_(std::move(program)) {}

  bool is_const() const { return program_.size() == 1 && program_[0].code == Code::kConst; }
  int64_t constant() const { return program_[0].value; }
  int64_t eval(const int64_t* symbols) const {
    return is_const() ? program_[0].value : eval_program(symbols);
  }
  const std::vector<Instr>& program() const { return program_; }
  // In infix notation: "2 * batch + 1".
  std::string text(std::span<const std::string> symbols) const;

 private:
  int64_t eval_program(const int64_t* symbols) const;
  std::vector<Instr> program_;
};

}  // namespace ipex
