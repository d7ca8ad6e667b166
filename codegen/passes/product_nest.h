// A loop nest that multiplies matrices, taken apart.
//
//   for i in 0..M { for j in 0..N { for k in 0..K reduce(s) {} yield(s + a[i, k]*b[k, j]) rest } }
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/loop/rewrite.h"
#include "codegen/passes/loop_tree.h"
#include "codegen/target.h"

namespace ipex::loop {

// One factor at a term, its index in loop variables only. Where the CPU multiplies pairs of bf16, a term is a
// pair: the f32 at `index` where pairs lie in memory (the buffer is then declared as one of f32), else made
// of the two numbers at the terms 2*k and 2*k + 1 of `index`.
struct Factor {
  std::string buffer;
  Dtype dtype;
  Expr index;
  bool apart = false;

  // At `term`, which stands for the variable of the loop over the terms, with the other variables replaced.
  Expr at(Substitution variables, const std::string& term_variable, const Expr& term) const;
};

inline constexpr int64_t kLeastRows = 8;  // of a product

struct Product {
  std::vector<For> levels;  // without bodies
  size_t row = 0, column = 0;
  For terms;  // the reduction; of pairs, it counts them
  Factor a, b;
  bool pairs = false;
  std::vector<Stmt> before, rest;  // of the innermost body: index lets, and what uses the sum

  const For& rows() const { return levels[row]; }
  const For& columns() const { return levels[column]; }
  Dtype dtype() const { return terms.reduction->states[0].type.dtype; }  // of the sums, and of panels
};

class ProductMatcher {
 public:
  ProductMatcher(const Function& f, const Target& target);

  std::optional<Product> match(const For& root);
  // Buffers of bf16 that the products matched so far read as pairs.
  const std::set<std::string>& paired() const { return paired_; }

 private:
  static bool take_apart(const BlockNode& body, Product& p);
  bool find_factors(Product& p) const;
  std::optional<Factor> factor_of(const Expr& e, const For& terms, bool pairs) const;
  bool find_roles(Product& p) const;

  LoopTree tree_;
  const Target& target_;
  std::set<std::string> pairable_, paired_;
};

std::optional<int64_t> extent(const For& loop);

}  // namespace ipex::loop
