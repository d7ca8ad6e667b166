#include "kernels/torch_ops/script/size_template.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace ipex::torch_ops::script {
namespace {

constexpr size_t kMaxFactors = 3;    // of a product of sizes
constexpr int64_t kMaxDivisor = 32;  // strides of convolutions, after each other

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

struct Pieces {
  std::vector<std::string> between;
  std::vector<int64_t> numbers;
};

// Splits a text at its integers. Digits in names, types and fractions are part of the text between.
Pieces split(const std::string& text) {
  const auto is_digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])) != 0; };
  const auto in_word = [&](size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_' || text[i] == '.' ||
           text[i] == '%';
  };
  Pieces pieces;
  std::string between;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_digit(end)) ++end;
    const bool number =
        end > i && end - i < 18 && (i == 0 || !in_word(i - 1)) && (end == text.size() || !in_word(end));
    if (number) {
      pieces.between.push_back(std::exchange(between, {}));
      pieces.numbers.push_back(std::stoll(text.substr(i, end - i)));
      i = end;
    } else {
      end = std::max(end, i + 1);
      between.append(text, i, end - i);
      i = end;
    }
  }
  pieces.between.push_back(between);
  return pieces;
}

}  // namespace

int64_t SizeTemplate::Atom::value(std::span<const int64_t> symbols) const {
  return floor_div(symbols[symbol] + add, divisor);
}

std::string SizeTemplate::Atom::text() const {
  const std::string name = "s" + std::to_string(symbol);
  if (divisor == 1) return name;
  return "((" + name + " + " + std::to_string(add) + ") // " + std::to_string(divisor) + ")";
}

int64_t SizeTemplate::value(const Number& number, std::span<const int64_t> symbols) const {
  int64_t product = number.factor;
  for (const size_t atom : number.atoms) product *= atoms_[atom].value(symbols);
  return product + number.add;
}

std::string SizeTemplate::text(const Number& number) const {
  if (number.atoms.empty()) return std::to_string(number.add);
  std::string result;
  for (const size_t atom : number.atoms) result += (result.empty() ? "" : " * ") + atoms_[atom].text();
  if (number.factor != 1) result += " * " + std::to_string(number.factor);
  if (number.add != 0) result += (number.add > 0 ? " + " : " - ") + std::to_string(std::abs(number.add));
  return number.factor == 1 && number.add == 0 && number.atoms.size() == 1 ? result : "(" + result + ")";
}

// Finds a function for the values that a number has in the samples.
struct SizeTemplate::Fitter {
  SizeTemplate& result;
  std::vector<std::vector<int64_t>> symbols;  // by sample

  std::vector<int64_t> values_of(const Atom& atom) const {
    std::vector<int64_t> values;
    for (const auto& each : symbols) values.push_back(atom.value(each));
    return values;
  }

  // factor * base + add with integers; add only if `affine`.
  static std::optional<Number> linear(const std::vector<int64_t>& values, const std::vector<int64_t>& base,
                                      bool affine) {
    Number number;
    const auto other = std::find_if(base.begin(), base.end(), [&](int64_t b) { return b != base[0]; });
    if (other == base.end()) return std::nullopt;
    const int64_t other_value = values[other - base.begin()];
    if (affine) {
      if ((other_value - values[0]) % (*other - base[0]) != 0) return std::nullopt;
      number.factor = (other_value - values[0]) / (*other - base[0]);
    } else {
      if (base[0] == 0 || values[0] % base[0] != 0) return std::nullopt;
      number.factor = values[0] / base[0];
    }
    number.add = values[0] - number.factor * base[0];
    for (size_t i = 0; i < values.size(); ++i)
      if (number.factor * base[i] + number.add != values[i]) return std::nullopt;
    return number;
  }

  // Products of `left` more atoms, from `first` on, after those in `chosen`.
  std::optional<Number> product(const std::vector<int64_t>& values, const std::vector<int64_t>& base,
                                size_t first, size_t left, bool affine, std::vector<size_t>& chosen) const {
    if (left == 0) {
      std::optional<Number> number = linear(values, base, affine);
      if (number) number->atoms = chosen;
      return number;
    }
    for (size_t atom = first; atom < result.atoms_.size(); ++atom) {
      std::vector<int64_t> longer = values_of(result.atoms_[atom]);
      for (size_t i = 0; i < longer.size(); ++i) longer[i] *= base[i];
      chosen.push_back(atom);
      if (auto number = product(values, longer, atom, left - 1, affine, chosen)) return number;
      chosen.pop_back();
    }
    return std::nullopt;
  }

  std::optional<Number> operator()(const std::vector<int64_t>& values) {
    if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; }))
      return Number{0, values[0], {}};
    const std::vector<int64_t> ones(values.size(), 1);
    for (size_t factors = 1; factors <= kMaxFactors; ++factors)
      for (const bool affine : {false, true}) {
        std::vector<size_t> chosen;
        if (auto number = product(values, ones, 0, factors, affine, chosen)) return number;
      }
    return quotient(values);
  }

  // A quotient of a size becomes an atom, because products with it follow: strides.
  std::optional<Number> quotient(const std::vector<int64_t>& values) {
    for (size_t symbol = 0; symbol < result.symbols_.size(); ++symbol)
      for (int64_t divisor = 2; divisor <= kMaxDivisor; ++divisor)
        for (int64_t add = 0; add < divisor; ++add) {
          const Atom atom{symbol, add, divisor};
          auto number = linear(values, values_of(atom), true);
          if (!number) continue;
          number->atoms = {result.atoms_.size()};
          result.atoms_.push_back(atom);
          return number;
        }
    return std::nullopt;
  }
};

std::optional<SizeTemplate> SizeTemplate::fit(std::span<const SizedText> all, size_t least) {
  std::vector<Pieces> pieces;
  std::vector<SizedText> samples;
  const SizedText& last = all.back();
  const Pieces wanted = split(last.text);
  for (const SizedText& sample : all) {
    Pieces own = split(sample.text);
    bool fits = own.between == wanted.between;
    for (size_t i = 0; i < sample.sizes.size(); ++i)
      fits = fits && (sample.sizes[i] > 1 || sample.sizes[i] == last.sizes[i]);
    if (!fits) continue;
    pieces.push_back(std::move(own));
    samples.push_back(sample);
  }
  if (samples.size() < least) return std::nullopt;
  SizeTemplate result;
  Fitter fitter{result, std::vector<std::vector<int64_t>>(samples.size())};
  std::vector<std::vector<int64_t>> known;
  for (size_t i = 0; i < samples[0].sizes.size(); ++i) {
    std::vector<int64_t> sizes;
    for (const SizedText& sample : samples) sizes.push_back(sample.sizes[i]);
    const bool varies =
        std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size != sizes[0]; });
    if (!varies || std::find(known.begin(), known.end(), sizes) != known.end()) continue;
    result.atoms_.push_back({result.symbols_.size()});
    result.symbols_.push_back(i);
    for (size_t s = 0; s < sizes.size(); ++s) fitter.symbols[s].push_back(sizes[s]);
    known.push_back(std::move(sizes));
  }
  if (result.symbols_.empty()) return std::nullopt;
  result.between_ = pieces[0].between;
  for (size_t n = 0; n < pieces[0].numbers.size(); ++n) {
    std::vector<int64_t> values;
    for (const Pieces& each : pieces) values.push_back(each.numbers[n]);
    const std::optional<Number> number = fitter(values);
    if (!number) return std::nullopt;
    result.numbers_.push_back(*number);
  }
  for (size_t n = 0; n < result.numbers_.size(); ++n)
    result.text_ += result.between_[n] + result.text(result.numbers_[n]);
  result.text_ += result.between_.back();
  std::string symbols;
  for (size_t s = 0; s < result.symbols_.size(); ++s)
    symbols += (s ? ", s" : "s") + std::to_string(s) + "=" + std::to_string(fitter.symbols.back()[s]);
  const size_t body = result.text_.find(" {\n");  // the end of the line `graph ...`
  if (body == std::string::npos) return std::nullopt;
  result.text_.insert(body, " symbols(" + symbols + ")");
  return result;
}

std::optional<std::vector<int64_t>> SizeTemplate::match(const SizedText& sample) const {
  std::vector<int64_t> symbols;
  for (const size_t position : symbols_) {
    symbols.push_back(sample.sizes[position]);
    if (symbols.back() < 2) return std::nullopt;
  }
  const Pieces pieces = split(sample.text);
  if (pieces.between != between_) return std::nullopt;
  for (size_t n = 0; n < numbers_.size(); ++n)
    if (pieces.numbers[n] != value(numbers_[n], symbols)) return std::nullopt;
  return symbols;
}

}  // namespace ipex::torch_ops::script
