// The body of a vector loop for a whole vector of its iterations: the loop variable is a ramp, what does not
// depend on it stays scalar, and conditions that differ between lanes become masks.
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
  // mask: lanes that exist, null for all; at least one does. Everything emitted inside is under it.
  Widener(Names& names, int lanes, Expr mask) : names_(names), lanes_(lanes), mask_(std::move(mask)) {}

  void bind(const std::string& name, Expr value) { bound_[name] = std::move(value); }
  Expr expr(const Expr& e);  // scalar when uniform
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
  Expr name_it(std::string_view base, Expr value,
               std::vector<Stmt>& out);  // lets a non-trivial value, returns the variable

  Names& names_;
  int lanes_;
  Expr mask_;
  std::map<std::string, Expr> bound_;           // variables of the loop body: their scalar or vector values
  std::map<std::string, std::string> scratch_;  // allocated inside: one element a lane
  std::unordered_map<const ExprNode*, Expr> memo_;  // within one expr() call
  int depth_ = 0;
  bool may_be_empty_ = false;  // inside a loop some of whose iterations no lane takes part in
};

// Index arithmetic on ramps that keeps them ramps where it can.
Expr ramp_apply(ScalarOp op, const Expr& a, const Expr& b);

}  // namespace ipex::loop
