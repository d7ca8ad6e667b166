// One simplifier for indices, shapes and kernel arithmetic.
//
// precondition: verified expression; `ranges` bounds variables (inclusive low, exclusive high; absent:
// unknown; symbols are >= 1 unless given otherwise). postcondition: equal value for every binding in range,
// never more nodes; integer sums and products in a canonical order, so that equal() decides equality of the
// usual shape and index expressions; floating-point values bit-identical (x*1, x+(-0.0) only).
// Index arithmetic over variables and symbols is taken not to overflow i64; loaded values wrap, and no rule
// assumes otherwise.
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
// Symbols are at least 1, or what `lows` says.
Ranges symbol_ranges(const std::vector<std::string>& symbols, const std::map<std::string, int64_t>& lows);

Expr simplify(const Expr& e, const Ranges& ranges = {});
Function simplify(const Function& f);  // also drops unused lets, dead ifs, empty and single-trip loops
bool provably_equal(const Expr& a, const Expr& b);
bool provably_even(const Expr& index);
bool provably_less(const Expr& a, const Expr& b, const Ranges& ranges = {});

}  // namespace ipex::loop
