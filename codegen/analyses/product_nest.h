// Recognises a loop nest that multiplies matrices, and describes it by its parts.
//
//   for i in 0..M { for j in 0..N { for k in 0..K reduce(s) {} yield(s + a[i, k]*b[k, j]); epilogue } }
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/target.h"

namespace ipex::loop {

// A matrix that is multiplied; its index is expressed in loop variables only. Where the CPU multiplies pairs
// of bf16, K counts pairs. If pairs are contiguous in memory, the buffer is declared as f32 and the pair is
// the f32 at `index`. If they are not, the pair is packed from the two elements at 2*k and 2*k + 1.
struct Operand {
  std::string buffer;
  Dtype dtype;
  Expr index;
  bool packs_on_load = false;

  // The load of the operand at `k`, which replaces the variable of the loop over K. Other variables are
  // replaced too.
  Expr at(Substitution variables, const std::string& k_var, const Expr& k) const;
};

inline constexpr int64_t kMinRows = 8;  // of a product that is blocked

struct Product {
  std::vector<For> levels;  // without their bodies
  size_t row = 0, column = 0;
  For k_loop;  // the reduction; it counts pairs where packed_bf16 is set
  Operand a, b;
  bool packed_bf16 = false;
  // The innermost body: lets of indices before the reduction, and what uses its result.
  std::vector<Stmt> index_lets, epilogue;

  const For& rows() const { return levels[row]; }
  const For& columns() const { return levels[column]; }
  Dtype dtype() const { return k_loop.reduction->states[0].type.dtype; }  // of the sums and of packed panels
};

class ProductMatcher {
 public:
  ProductMatcher(const Function& f, const Target& target);

  std::optional<Product> match(const For& root);
  // The buffers that the matched products read as pairs of bf16.
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
