// Perfect nests taken apart and put together: what collapsing, permuting and tiling share.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/target.h"

namespace ipex::loop {

// `outer` holds nothing but `inner`, and hands its states straight down and up again: together they are one
// reduction.
bool passes_through(const For& outer, const For& inner);

// The serial loops of a perfect nest, outermost first; each body but the last is left empty. All of them
// reduce, passing states through, or none does.
std::vector<For> perfect_levels(const For& outermost);
For join_levels(std::vector<For> levels);

// The iterations of a nest as one array: how many they are, and which one this is.
struct Flattened {
  Expr size, position;
};
Flattened flattened(const std::vector<For>& levels);

// order[i] is the level whose range moves to position i. Reductions stay with their position, so states keep
// flowing.
void permute_levels(std::vector<For>& levels, const std::vector<size_t>& order);

// Gives a reduction other states: their names in its body, yields and merges; init and identity are taken
// over.
void rename_states(For& loop, const std::vector<State>& states);

// merge[i] with the two partial results put in.
Expr merged(const Reduction& reduction, size_t i, const std::vector<Expr>& left,
            const std::vector<Expr>& right);

inline int64_t divided_up(int64_t n, int64_t step) { return (n + step - 1) / step; }

// How many vector registers its states take.
int64_t registers(const Reduction& reduction, const Target& target);

// Adds what a let binds to `lets`, with those inlined; false for any other statement.
bool inline_let(const Stmt& stmt, Substitution& lets);

// The factors of what a loop adds up: {a, b} for  reduce(s) { lets } yield(s + a*b),  its lets and `lets`
// inlined.
struct Factors {
  Expr a, b;
};
std::optional<Factors> summed_factors(const For& loop, Substitution lets = {});

// Rebuilds a block with every loop over `var` replaced; InternalError when there is none.
Block replace_loop(const Block& block, const std::string& var,
                   const std::function<std::vector<Stmt>(For)>& fn);

// What every variable of a function lies within: symbols are at least 1, loop variables between their bounds.
Ranges variable_ranges(const Function& f);

bool loads(const Expr& e);                                   // does it read a buffer?
std::map<std::string, int> count_loads(const Block& block);  // by buffer
int64_t node_count(const Block& block);                      // statements and nodes of expressions

// The buffer, of bf16 and an even number of them, as one of half as many f32, each the bits of a pair.
void declare_packed(Buffer& buffer);

// Copies of everything bound inside, under names not used in the function so far.
Block fresh_copy(const Block& block, Names& names);

}  // namespace ipex::loop
