// Simplifies one expression at a time, using what is known about the variables around it. The statement walk
// of simplify.cpp has one for a whole function, and tells it about loops and lets as it reaches them.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/loop/bounds.h"
#include "codegen/loop/eval.h"

namespace ipex::loop {

class ExprSimplifier {
 public:
  Bounds bounds;

  Expr simplify(const Expr& e);
  // From now on, `name` is replaced by `value`, which is already simplified.
  void bind(const std::string& name, Expr value);
  void unbind(const std::string& name);

 private:
  // Index arithmetic: sums, products, floor division of i64.
  Expr index(const Expr& e);
  Polynomial polynomial(const Expr& e);
  std::optional<Expr> from_lanes(const Polynomial& p, int lanes) const;

  // Everything else: the operands first, then the rules of the operation.
  Expr structural(const Expr& e);
  Expr load(const Expr& e) const;
  Expr cast(const Expr& e) const;
  bool keeps_ramp(const Expr& cast) const;
  Expr ramp(const Expr& e) const;
  Expr reduce_lanes(const Expr& e) const;
  Expr apply(const Expr& e);
  std::optional<Expr> fold(const Expr& e) const;
  Expr int_arithmetic(const Expr& e) const;
  Expr float_arithmetic(const Expr& e) const;
  Expr bits(const Expr& e);
  Expr comparison(const Expr& e);
  Expr min_max(const Expr& e);
  Expr absolute(const Expr& e);
  Expr select(const Expr& e) const;
  std::optional<std::pair<Polynomial, Polynomial>> comparable(const Expr& a, const Expr& b);
  std::optional<bool> compare_ints(ScalarOp op, const Expr& a, const Expr& b);

  std::unordered_map<std::string, Expr> bound_;
  // Results for nodes that several trees share, which would otherwise be visited once per use. The map keeps
  // its keys alive.
  std::unordered_map<Expr, Expr> shared_;
};

}  // namespace ipex::loop
