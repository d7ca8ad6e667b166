// Rewrites the body of a vector loop for a whole vector of iterations: the loop variable becomes a ramp,
// values that do not depend on it stay scalar, and conditions that differ between lanes become masks.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/rewrite.h"

namespace ipex::loop {

class Widener {
 public:
  // mask: the active lanes, of which there is at least one; null if all are. Everything that is emitted is
  // under the mask.
  Widener(Names& names, int lanes, Expr mask) : names_(names), lanes_(lanes), mask_(std::move(mask)) {}

  void bind(const std::string& name, Expr value) { bound_[name] = std::move(value); }
  Expr expr(const Expr& e);  // scalar if it is the same in all lanes
  Expr vector(const Expr& e) { return wide(expr(e)); }
  Expr wide(Expr e) const { return e->type.is_vector() ? e : make_broadcast(std::move(e), lanes_); }
  void block(const Block& b, std::vector<Stmt>& out);

 private:
  Expr widen(const Expr& e);
  Expr load(const ExprNode& e);
  Expr apply(const ExprNode& e);
  void stmt(const Stmt& s, std::vector<Stmt>& out);
  void let(const Let& s, std::vector<Stmt>& out);
  void store(const Store& s, std::vector<Stmt>& out);
  void loop(const For& s, std::vector<Stmt>& out);
  For attempt(const For& s, const std::vector<bool>& vector_state, std::vector<bool>& needs_vector,
              std::vector<Stmt>& out);
  void branch(const If& s, std::vector<Stmt>& out);
  void call(const Call& s, std::vector<Stmt>& out);
  void under(const Expr& condition, const Block& body, std::vector<Stmt>& out);
  Expr both(const Expr& mask) const;  // mask_ and mask; either may be null
  // Binds a non-trivial value by a let, and returns the variable.
  Expr name_it(std::string_view base, Expr value, std::vector<Stmt>& out);

  Names& names_;
  int lanes_;
  Expr mask_;
  std::map<std::string, Expr> bound_;           // scalar or vector values of the variables of the loop body
  std::map<std::string, std::string> scratch_;  // buffers allocated inside, which get one element per lane
  std::unordered_map<const ExprNode*, Expr> memo_;  // within one call of expr()
  int depth_ = 0;
  bool may_be_empty_ = false;  // inside a loop that has iterations without an active lane
};

// Index arithmetic that keeps ramps where possible.
Expr ramp_apply(ScalarOp op, const Expr& a, const Expr& b);

}  // namespace ipex::loop
