// What is known about the values of integer expressions: numeric intervals, and proofs with symbolic bounds
// such as 0 <= j < s. Both are sound but incomplete: "no" means "not proved".
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "codegen/loop/polynomial.h"

namespace ipex::loop {

// Inclusive. The smallest and largest int64_t mean that there is no bound.
struct Interval {
  static constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  int64_t low = kLow, high = kHigh;
  bool bounded() const { return low != kLow && high != kHigh; }
};

class Bounds {
 public:
  // name is in [low, high); null: unknown.
  void set_range(const std::string& name, const Expr& low, const Expr& high);
  void set_interval(const std::string& name, Interval interval);
  // The variable holds tensor data, not an index: sums and products of it may wrap.
  void set_data(const std::string& name);

  Interval interval(const Expr& e) const;  // of every lane
  Interval interval(const Polynomial& p) const;

  // Whether no intermediate value wraps, so that order and division have the same meaning as for integers.
  // Indices are assumed not to wrap; values from memory must be bounded.
  bool is_exact(const Polynomial& p) const;

  bool is_nonnegative(const Polynomial& p) const;
  bool is_positive(const Polynomial& p) const { return is_nonnegative(add(p, -1)); }
  bool is_less(const Polynomial& a, const Polynomial& b) const { return is_positive(add(b, a, -1)); }
  bool is_within(const Polynomial& p, const Polynomial& size) const {
    return is_nonnegative(p) && is_less(p, size);
  }

 private:
  struct Entry {
    Interval interval;
    std::optional<Polynomial> low, last;  // symbolic bounds
    bool data = false;
  };
  bool prove(const Polynomial& p, int depth, int& budget) const;
  // Replaces the part of p that is linear in `atom` by a bound. Returns false if no bound proves that p is
  // nonnegative.
  bool prove_without(const Expr& atom, const Polynomial& p, int depth, int& budget) const;
  std::vector<Polynomial> product_bounds(const Expr& atom, const Polynomial& factor, bool rising) const;
  bool is_index(const Expr& atom) const;
  const Entry* find(const std::string& name) const;

  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace ipex::loop
