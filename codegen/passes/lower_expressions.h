// Replaces an operation by several: the walk over a function that lower_math and legalize share. A value that
// a replacement uses more than once is bound by a let before the statement, so that text and compile time
// stay linear in the number of operations.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/rewrite.h"

namespace ipex::loop {

class Binder {
 public:
  explicit Binder(Names& names) : names_(names) {}

  // Binds `value` to a name, so that it can be used any number of times. Variables and constants are returned
  // unchanged.
  Expr bind(std::string_view base, Expr value);
  std::vector<Stmt> take() { return std::move(lets_); }

 private:
  Names& names_;
  std::vector<Stmt> lets_;
};

// Rebuilds every expression that is executed, bottom-up: each node is passed to `rewrite` after its children.
// The merge of a Reduction is only a description and stays unchanged.
using Rewrite = std::function<Expr(const Expr&, Binder&)>;
Function lower_expressions(const Function& f, const Rewrite& rewrite);

}  // namespace ipex::loop
