// The text of a Graph for all sizes, found from its texts for several sizes.
//
// Importing a graph for one call gives constant sizes. Texts for several calls differ in numbers only, and
// most of these are simple functions of the sizes of the arguments. A template has such a function in place
// of each number. Nothing relies on a guess: a template is used for a call only if it gives the text that was
// imported for that call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ipex::torch_ops::script {

struct SizedText {
  std::string text;
  std::vector<int64_t> sizes;  // of the arguments
};

class SizeTemplate {
 public:
  // A template that gives the last of these texts and all that differ from it in numbers only, at least
  // `least`; none if some number is not such a function. The texts have the same number of sizes. Texts for a
  // size of 1 where the last has another count as different.
  static std::optional<SizeTemplate> fit(std::span<const SizedText> samples, size_t least);

  // With symbols s0, s1, ... for sizes.
  const std::string& text() const { return text_; }
  // The values of the symbols, if the template gives this text for these sizes. Symbols are at least 2,
  // because code for sizes 0 and 1 is another.
  std::optional<std::vector<int64_t>> match(const SizedText& sample) const;

 private:
  // floor((symbol + add) / divisor)
  struct Atom {
    size_t symbol;
    int64_t add = 0, divisor = 1;
    int64_t value(std::span<const int64_t> symbols) const;
    std::string text() const;
  };
  // factor * product of atoms + add; a constant if there are no atoms.
  struct Number {
    int64_t factor = 0, add = 0;
    std::vector<size_t> atoms;
  };
  struct Fitter;

  int64_t value(const Number& number, std::span<const int64_t> symbols) const;
  std::string text(const Number& number) const;

  std::vector<size_t> symbols_;  // positions in the sizes
  std::vector<Atom> atoms_;
  std::vector<std::string> between_;  // the text between the numbers
  std::vector<Number> numbers_;
  std::string text_;
};

}  // namespace ipex::torch_ops::script
