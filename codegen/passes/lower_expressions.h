// Replacing one operation by several: the walk that lower_math and legalize share. What a replacement uses
// more than once is bound by a let in front of the statement, so that text and time stay linear in the number
// of operations.
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

  // `value` under a name, to be used any number of times. Names and constants are returned as they are.
  Expr bind(std::string_view base, Expr value);
  std::vector<Stmt> take() { return std::move(lets_); }

 private:
  Names& names_;
  std::vector<Stmt> lets_;
};

// Rebuilds every expression that runs, bottom-up, each node passed through `rewrite` after its children. A
// Reduction's merge is a description and stays as it is.
using Rewrite = std::function<Expr(const Expr&, Binder&)>;
Function lower_expressions(const Function& f, const Rewrite& rewrite);

}  // namespace ipex::loop
