// A loop nest that multiplies matrices, taken apart.
//
//   for i in 0..M { for j in 0..N { for k in 0..K reduce(s) {} yield(s + a[i, k]*b[k, j]) rest } }
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/target.h"

namespace ipex::loop {

// One factor at a term, its index in loop variables only. Where the CPU multiplies pairs of bf16, a term is a
// pair: the f32 at `index` where pairs lie in memory (the buffer is then declared as one of f32), else made
// of the two numbers at the terms 2*k and 2*k + 1 of `index`.
struct Operand {
  std::string buffer;
  Dtype dtype;
  Expr index;
  bool packs_on_load = false;

  // At `term`, which stands for the variable of the loop over the terms, with the other variables replaced.
  Expr at(Substitution variables, const std::string& k_var, const Expr& k) const;
};

inline constexpr int64_t kMinRows = 8;  // of a product

struct Product {
  std::vector<For> levels;  // without bodies
  size_t row = 0, column = 0;
  For k_loop;  // the reduction; of pairs, it counts them
  Operand a, b;
  bool packed_bf16 = false;
  std::vector<Stmt> index_lets, epilogue;  // of the innermost body: index lets, and what uses the sum

  const For& rows() const { return levels[row]; }
  const For& columns() const { return levels[column]; }
  Dtype dtype() const { return k_loop.reduction->states[0].type.dtype; }  // of the sums, and of panels
};

class ProductMatcher {
 public:
  ProductMatcher(const Function& f, const Target& target);

  std::optional<Product> match(const For& root);
  // Buffers of bf16 that the products matched so far read as pairs.
  const std::set<std::string>& packed_buffers() const { return packed_; }

 private:
  static bool match_body(const BlockNode& body, Product& p);
  bool find_operands(Product& p) const;
  std::optional<Operand> operand_of(const Expr& e, const For& k_loop, bool packed_bf16) const;
  bool find_dimensions(Product& p) const;

  LoopTree tree_;
  const Target& target_;
  std::set<std::string> packable_, packed_;
};

std::optional<int64_t> extent(const For& loop);

}  // namespace ipex::loop
