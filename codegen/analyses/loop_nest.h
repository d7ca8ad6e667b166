// Perfect nests and reductions: the queries and small rewrites that the passes share.
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

// Whether `outer` contains nothing but `inner`, and passes its states through unchanged in both directions.
// The two loops then form one reduction.
bool passes_through(const For& outer, const For& inner);

// The serial loops of a perfect nest, outermost first. Every body except the last is left empty. Either all
// of the loops are levels of one reduction or none of them reduces.
std::vector<For> perfect_levels(const For& outermost);
For join_levels(std::vector<For> levels);

// The iteration space of a nest as a one-dimensional array: its size, and the position of the current
// iteration.
struct Flattened {
  Expr size, position;
};
Flattened flattened(const std::vector<For>& levels);

// order[i] is the level whose range moves to position i. Reductions stay at their position, so that states
// still pass from level to level.
void permute_levels(std::vector<For>& levels, const std::vector<size_t>& order);

// Replaces the states of a reduction. The new names are substituted in its body, yields and merges; init and
// identity are those of the new states.
void rename_states(For& loop, const std::vector<State>& states);

// merge[i] applied to two partial results.
Expr merged(const Reduction& reduction, size_t i, const std::vector<Expr>& left,
            const std::vector<Expr>& right);

inline int64_t divided_up(int64_t n, int64_t step) { return (n + step - 1) / step; }

// How many vector registers the states of a reduction take.
int64_t registers(const Reduction& reduction, const Target& target);

// Adds the value of a let to `lets`, with the earlier lets inlined. Returns false for any other statement.
bool inline_let(const Stmt& stmt, Substitution& lets);

// The two factors of a sum of products: {a, b} for `reduce(s) { lets } yield(s + a*b)`. The lets of the loop
// and `lets` are inlined.
struct Factors {
  Expr a, b;
};
std::optional<Factors> summed_factors(const For& loop, Substitution lets = {});

// Replaces every loop over `var` in a block. Throws InternalError if there is none.
Block replace_loop(const Block& block, const std::string& var,
                   const std::function<std::vector<Stmt>(For)>& fn);

// The range of every variable of a function. Symbols are at least 1, and a loop variable lies between its
// bounds.
Ranges variable_ranges(const Function& f);

bool loads(const Expr& e);                                   // whether it reads a buffer
std::map<std::string, int> count_loads(const Block& block);  // loads from each buffer
int64_t node_count(const Block& block);                      // number of statements and expression nodes

// Declares a buffer that holds an even number of bf16 as half as many f32, each of which is the bits of a
// pair.
void declare_packed(Buffer& buffer);

// A copy of a block in which every bound name is replaced by a name that the function does not use yet.
Block fresh_copy(const Block& block, Names& names);

}  // namespace ipex::loop
