// A tile of a matrix product, the micro-kernel of every kernel that multiplies: rows by vectors of sums that
// stay in registers while one loop runs over the terms.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/rewrite.h"
#include "codegen/target.h"

namespace ipex::loop {

// Two vectors of b are loaded for as many rows as the registers have room for: two loads and a scalar a row
// feed two multiply-adds a row.
inline constexpr int64_t kTileVectors = 2;
inline constexpr int64_t kMaxPackedVectors = 4;  // most of a tile of pairs, which block_products shapes
int64_t tile_rows(const Target& target);

inline constexpr int64_t kGrainFmas = 128 << 10;  // multiply-adds worth waking a thread for
// Whether block_products is as fast as the library on packed weights, for f32 whose rows lie as it wants
// them.
bool blocking_beats_library(Isa isa, int64_t rows, int64_t terms, int64_t columns);
// Rows that lie so many bytes apart share a few sets of L1 and drive each other out: they are better copied.
bool rows_conflict_in_cache(int64_t bytes_apart);

struct ProductTile {
  For k;                     // the loop over the terms, without a body
  std::vector<Expr> a;       // a scalar a row, at the term
  std::vector<Expr> b;       // vectors of columns, at the term
  std::vector<Expr> start;   // of the sums, row by row; empty: zeros
  bool packed_bf16 = false;  // a and b are pairs of bf16, two terms in one
};

// Gives `loop` a state for each sum of the tile, named after `base`; they begin as tile.start says. What they
// become is the caller's to yield. Returns them, row by row.
std::vector<Expr> add_sums(const ProductTile& tile, For& loop, std::string_view base, Names& names);

//   for term reduce(rows x vectors states) { let b } yield(fma(a[row], b[vector], state))     # or dot_bf16
//
// several terms a step, and what is left of them in a second loop behind it;
// appended to `out`. Returns the sums, row by row.
std::vector<Expr> multiply(ProductTile tile, Names& names, std::vector<Stmt>& out);

// Lines of memory that are asked for during one pass of a tile over its terms, by their number.
struct PrefetchLines {
  Expr lines;
  std::function<Expr(const Expr& line)> at;  // a load from one
};
inline constexpr int64_t kPrefetchStrip = 32;  // of a run
// The tile's terms, a run after the other. Before each run a few of the lines `ahead` are asked for: weights
// come from memory, and what needs them next would wait for them as long as a tenth of the products of 128
// rows take. All at once they would keep this panel's own lines from L1.
//
//   for run reduce(sums) { prefetch(..)  for term in run reduce(sums) {..} } yield(sums)
std::vector<Expr> multiply_with_prefetch(ProductTile tile, const PrefetchLines& ahead, Names& names,
                                         std::vector<Stmt>& out);

}  // namespace ipex::loop
