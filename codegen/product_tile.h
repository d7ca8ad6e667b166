// The micro-kernel of every kernel that multiplies matrices: a register tile of rows by vectors of sums,
// which stay in registers during one loop over K.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/rewrite.h"
#include "codegen/target.h"

namespace ipex::loop {

// Each step loads two vectors of b and one scalar for each row, and performs two multiply-adds per row. A
// tile has as many rows as the registers have room for.
inline constexpr int64_t kTileVectors = 2;
inline constexpr int64_t kMaxPackedVectors = 4;  // of a tile of packed bf16 pairs
int64_t tile_rows(const Target& target);

// Whether block_products is as fast as the library on packed weights of f32 whose rows are contiguous.
bool blocking_beats_library(const Target& target, int64_t rows, int64_t k, int64_t columns);
// Whether rows at this distance in bytes conflict in L1: they share a few sets and evict each other, so that
// copying them is faster.
bool rows_conflict_in_cache(const Target& target, int64_t bytes_apart);

struct ProductTile {
  For k;                     // the loop over K, without a body
  std::vector<Expr> a;       // one scalar per row, at k
  std::vector<Expr> b;       // vectors of columns, at k
  std::vector<Expr> start;   // initial values of the sums, row by row; empty: zeros
  bool packed_bf16 = false;  // a and b are pairs of bf16; K counts pairs
};

// Gives `loop` one state for each sum of the tile, named after `base`, with the initial values of tile.start.
// The caller adds the yields. Returns the states, row by row.
std::vector<Expr> add_sums(const ProductTile& tile, For& loop, std::string_view base, Names& names);

//   for k reduce(rows x vectors states) { let b } yield(fma(a[row], b[vector], state))     # or dot_bf16
//
// Appends this loop to `out`, unrolled, and a second loop for the remainder. Returns the sums, row by row.
std::vector<Expr> multiply(ProductTile tile, Names& names, std::vector<Stmt>& out);

// Cache lines to prefetch while a tile runs over K, by their number.
struct PrefetchLines {
  Expr lines;
  std::function<Expr(const Expr& line)> at;  // a load from that line
};
inline constexpr int64_t kPrefetchStrip = 32;  // steps of K between two groups of prefetches
// Multiplies a tile in strips of K, and prefetches some of the lines `ahead` before each strip. Weights come
// from memory, and the code that needs them next would wait for them as long as a tenth of the time that a
// product of 128 rows takes. Prefetching all of the lines at once would evict this panel's own lines from L1.
//
//   for strip reduce(sums) { prefetch(..); for k in strip reduce(sums) {..} } yield(sums)
std::vector<Expr> multiply_with_prefetch(ProductTile tile, const PrefetchLines& ahead, Names& names,
                                         std::vector<Stmt>& out);

}  // namespace ipex::loop
