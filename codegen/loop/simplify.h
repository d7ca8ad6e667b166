// The simplifier for indices, shapes and kernel arithmetic.
//
//   pre: a verified expression; `ranges` bounds variables (low inclusive, high exclusive); a variable without
//        a range is unknown, and symbols are >= 1 unless stated otherwise
//   post: the same value for every binding within the ranges, never more nodes; integer sums and products are
//         in a canonical order, so that equal() decides equality of the usual shape and index expressions;
//         floats are bit-identical (only x*1 and x+(-0.0) are simplified)
//
// Index arithmetic on variables and symbols is assumed not to overflow i64. Loaded values may wrap, and no
// rule assumes otherwise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/loop/ir.h"

namespace ipex::loop {

struct Range {
  Expr low, high;  // null: unknown
};
using Ranges = std::map<std::string, Range>;
// Symbols are at least 1, or at least what `lows` says.
Ranges symbol_ranges(const std::vector<std::string>& symbols, const std::map<std::string, int64_t>& lows);

Expr simplify(const Expr& e, const Ranges& ranges = {});
Function simplify(const Function& f);  // also removes unused lets, dead ifs, and loops of no or one iteration
bool provably_equal(const Expr& a, const Expr& b);
bool provably_even(const Expr& index);
bool provably_less(const Expr& a, const Expr& b, const Ranges& ranges = {});

}  // namespace ipex::loop
