// Walking and rebuilding trees: the few functions that every pass is written with.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "codegen/loop/ir.h"

namespace ipex::loop {

using ExprFn = std::function<Expr(const Expr&)>;

// The same operation on other operands, which may have another number of lanes. The type is derived again,
// and scalars beside vectors are broadcast.
Expr with_args(const Expr& e, std::vector<Expr> args);

// Rebuilds e bottom-up, passing each node to fn after its children. Unchanged subtrees are shared.
Expr transform(const Expr& e, const ExprFn& fn);
// Applies transform with fn to every expression of a block, and optionally rewrites statements. stmt_fn gets
// each statement after its children and returns its replacements (none, one or several). If it is null,
// statements stay.
using StmtFn = std::function<std::vector<Stmt>(Stmt)>;
Block transform(const Block& b, const ExprFn& fn, const StmtFn& stmt_fn = nullptr);
Block transform_stmts(const Block& b, const StmtFn& stmt_fn);  // leaves expressions unchanged

using Substitution = std::map<std::string, Expr>;
Expr substitute(const Expr& e, const Substitution& s);  // replaces variables by expressions
Block substitute(const Block& b, const Substitution& s);
// Copies the block and renames everything that is bound inside.
Block rename_bound(const Block& b, const std::string& suffix);

void visit(const Expr& e, const std::function<void(const ExprNode&)>& fn);  // pre-order
void visit(const Block& b, const std::function<void(const Stmt&)>& stmt_fn,
           const std::function<void(const ExprNode&)>& expr_fn);
std::set<std::string> free_vars(const Expr& e);
std::set<std::string> bound_names(const Block& b);  // variables, states and buffers
bool uses(const Expr& e, const std::string& var);

// e written as sum(coefficient * var) + rest in the given variables, if it is affine in them.
struct Affine {
  std::map<std::string, Expr> coefficients;  // absent: 0
  Expr rest;
};
std::optional<Affine> affine(const Expr& e, const std::set<std::string>& vars);

// Generates names that a function does not use.
class Names {
 public:
  explicit Names(const Function& f);
  Names() = default;
  std::string fresh(std::string_view base);
  void reserve(std::string name) { used_.insert(std::move(name)); }
  bool contains(std::string_view name) const { return used_.contains(name); }

 private:
  std::set<std::string, std::less<>> used_;
  std::map<std::string, int, std::less<>> next_;  // for each base name, the suffix to try first
};

}  // namespace ipex::loop
