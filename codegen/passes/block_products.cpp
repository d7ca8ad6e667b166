// block_products: cache and register blocking of matrix products. A product becomes blocks, packed panels and
// a micro-kernel.
//
//   for i in 0..M { for j in 0..N { for k in 0..K reduce(s) {} yield(s + a[i, k]*b[k, j]); epilogue } }
//     =>  for parallel block {
//           alloc sums[rows of the block][P*W], panels[P][length of a block of K][W];
//           for block of K {
//             for p in panels { panels[p][k][..] = b[k, columns of p] }
//             for t in tiles of R rows { for p in panels {
//               for k in block of K reduce(R x W/V states) {} yield(fma(a[row, k], panels[p][k], s)) } } }
//           for i in rows { for j in columns { let s = sums[i][j]; epilogue } } }
//
// The original nest reads a column of b for every element, or keeps at best one row of sums in registers. A
// tile of R rows by V vectors of columns loads V vectors and R scalars for R*V fused multiply-adds. For each
// tile, a panel of b streams from L2, while the part of b that will be packed next is prefetched. This is the
// scheme of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008) with the roles of
// a and b exchanged. a is not packed.
//
// Edges need no second micro-kernel. Rows beyond the last one repeat the last row, and their sums are
// dropped. The last panel ends at the last column, so its first columns may also belong to the panel before
// it. The epilogue runs once for each element, as before.
//
// In bf16, K counts pairs of elements (product_nest.h), which dot_bf16 multiplies.
#include <algorithm>

#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/product_nest.h"
#include "codegen/passes/passes.h"
#include "codegen/product_tile.h"

namespace ipex::loop {

namespace {

// The largest sizes of a block, its panels and its tiles.
struct Sizes {
  int64_t tile_rows, tile_vectors;
  int64_t panels;           // in a block
  int64_t max_panel_bytes;  // of a panel within one block of K
  int64_t rows;             // in a block
};

class ProductBlocker {
 public:
  ProductBlocker(const Function& f, const Target& target)
      : f_(f), products_(f, target), names_(f), target_(target) {}

  Function run() {
    Function out = f_;
    std::vector<Stmt> body;
    for (const Stmt& stmt : f_.body->stmts) {
      const auto* loop = std::get_if<For>(&stmt);
      const std::optional<Product> product = loop ? products_.match(*loop) : std::nullopt;
      body.push_back(product ? Stmt(blocked(*product)) : stmt);
    }
    out.body = make_block(std::move(body));
    for (Buffer& buffer : out.buffers)
      if (products_.packed_buffers().count(buffer.name) > 0) declare_packed(buffer);
    return out;
  }

 private:
  // ---- the blocks ----

  int lanes(const Product& p) const { return target_.lanes(p.dtype()); }

  // The panels of a block take a part of L2. The rows of a, the sums and prefetched lines share the rest.
  Sizes sizes(const Product& p) const {
    const auto [rows, vectors] = tile_shape(p);
    const int64_t width = vectors * lanes(p) * itemsize(p.dtype());
    // If K is strided in memory, packing copies four cache lines at a time, which 16 columns of f32 do not
    // fill.
    const int64_t panels = !p.packed_bf16 && k_is_strided(p) ? divided_up(4 * kCacheLine, width) : 1;
    return {rows, vectors, panels, target_.l2_bytes / (p.packed_bf16 ? 8 : 4) / panels, 512};
  }

  // Work on rows and columns beyond the last is wasted. A shape that wastes less is preferred to one that
  // multiplies faster.
  std::pair<int64_t, int64_t> tile_shape(const Product& p) const {
    const auto rows = extent(p.rows());
    const int64_t columns = *extent(p.columns());
    const auto time = [&](const TileShape& c) {
      const int64_t width = c.vectors * lanes(p);
      const auto waste = [](int64_t n, int64_t step) {
        return static_cast<double>(divided_up(n, step) * step) / static_cast<double>(n);
      };
      constexpr double kImpossible = 1e9;  // a panel cannot be wider than the matrix
      return width > columns ? kImpossible
                             : c.relative_time * (rows ? waste(*rows, c.rows) : 1) * waste(columns, width);
    };
    const TileShape* best = nullptr;
    for (const TileShape& shape : target_.tile_shapes)
      if (shape.rows > 0 && (!best || time(shape) < time(*best))) best = &shape;
    return {best->rows, best->vectors};
  }

  // What one block works on, as expressions over the variables that are bound at its start.
  struct Shape {
    int64_t width, tile;
    int64_t k_block, k_blocks;  // the length of a block of K (the last may be shorter), their number
    int64_t columns;            // of all blocks
    int64_t max_panels;         // in a block
    Expr first_row, rows;       // the first row in the range of the row loop; the number of rows
    Expr block_rows;            // rows of a block, in whole tiles
    Expr column_block, panels;
    std::string sums, packed;
  };

  // As few blocks as the sizes allow, or more if threads would have to wait for each other otherwise. Each
  // block packs its own panels.
  Expr blocks_of_rows(const Product& p, const Sizes& limits, int64_t column_blocks) const {
    const auto rows = extent(p.rows());
    if (!rows) return simplify(ceildiv(p.rows().end - p.rows().begin, index_const(limits.rows)));
    int64_t others = column_blocks;
    for (size_t level = 0; level < p.levels.size(); ++level)
      if (level != p.row && level != p.column) others *= extent(p.levels[level]).value_or(target_.threads);
    const auto time = [&](int64_t blocks) {
      return divided_up(blocks * others, target_.threads) *
             (divided_up(*rows, blocks) + target_.packing_cost_rows);
    };
    int64_t best = divided_up(*rows, limits.rows);
    for (int64_t blocks = best + 1; blocks <= std::min(*rows / limits.tile_rows, best * target_.threads);
         ++blocks)
      if (time(blocks) < time(best)) best = blocks;
    return index_const(best);
  }

  // At least min_count blocks of K; up to half as many more if all of them are then whole prefetch strips.
  static int64_t k_block_count(int64_t k_count, int64_t min_count) {
    for (int64_t k_blocks = min_count; k_blocks <= min_count + std::max<int64_t>(min_count / 2, 1);
         ++k_blocks)
      if (k_count % (k_blocks * kPrefetchStrip) == 0) return k_blocks;
    return min_count;
  }

  static Expr min(Expr a, Expr b) { return make_apply(ScalarOp::min_, {std::move(a), std::move(b)}); }

  For blocked(const Product& p) {
    const For &rows = p.rows(), &columns = p.columns();
    const int64_t item = itemsize(p.dtype());
    const Sizes limits = sizes(p);
    Shape s{.width = limits.tile_vectors * lanes(p), .tile = limits.tile_rows};
    s.columns = *extent(columns);
    const int64_t total_k = *as_const_int(p.k_loop.end);
    s.k_blocks = k_block_count(total_k, divided_up(total_k * s.width * item, limits.max_panel_bytes));
    s.k_block = divided_up(total_k, s.k_blocks);
    s.k_blocks = divided_up(total_k, s.k_block);
    const int64_t panels = divided_up(s.columns, s.width);
    s.max_panels = std::min(panels, limits.panels);
    const int64_t column_blocks = divided_up(panels, limits.panels);

    // All blocks have the same number of rows, so that the threads finish at the same time.
    const Expr row_count = simplify(rows.end - rows.begin);
    const Expr row_blocks = blocks_of_rows(p, limits, column_blocks);
    const Expr tile = index_const(s.tile);
    s.block_rows = simplify(ceildiv(ceildiv(row_count, row_blocks), tile) * tile);

    const int64_t min_rows = std::min(as_const_int(s.block_rows).value_or(kMinRows), limits.rows);
    const int64_t block_fmas = min_rows * s.max_panels * s.width * total_k;
    For block{.var = names_.fresh("block"), .kind = ForKind::kParallel};
    block.grain = std::max<int64_t>(target_.grain_fmas / block_fmas, 1);
    block.begin = index_const(0);
    std::vector<Stmt> body;
    Expr left = make_var(block.var), count = index_const(1);
    const auto digit = [&](const std::string& name, const Expr& size, const Expr& begin) {
      body.push_back(Let{name, simplify(begin + floormod(left, size))});
      left = floordiv(left, size);
      count = count * size;
      return make_var(name);
    };
    s.column_block = digit(names_.fresh("column_block"), index_const(column_blocks), index_const(0));
    const Expr row_block = digit(names_.fresh("row_block"), row_blocks, index_const(0));
    for (size_t level = p.levels.size(); level-- > 0;)
      if (level != p.row && level != p.column)
        digit(p.levels[level].var, simplify(p.levels[level].end - p.levels[level].begin),
              p.levels[level].begin);
    block.end = simplify(count);

    s.first_row = let(body, "first_row", rows.begin + row_block * s.block_rows);
    s.rows = let(body, "rows", min(s.block_rows, rows.end - s.first_row));
    const Expr max_panels = index_const(s.max_panels),
               panels_left = index_const(panels) - s.column_block * max_panels;
    s.panels =
        panels % s.max_panels == 0 ? max_panels : let(body, "panel_count", min(max_panels, panels_left));
    const Expr max_rows = index_const(divided_up(limits.rows, s.tile) * s.tile);
    const auto alloc = [&](std::string_view name, const Expr& size) {
      body.push_back(Alloc{names_.fresh(name), p.dtype(), simplify(size)});
      return std::get<Alloc>(body.back()).buffer;
    };
    s.sums = alloc("sums", min(s.block_rows, max_rows) * index_const(s.max_panels * s.width));
    s.packed = alloc("panels", index_const(s.max_panels * s.k_block * s.width));
    if (s.k_blocks > 1) body.emplace_back(clear_sums(p, s));
    body.emplace_back(accumulate_k_blocks(p, s));
    body.emplace_back(apply_epilogue(p, s));
    block.body = make_block(std::move(body));
    return block;
  }

  Expr let(std::vector<Stmt>& body, std::string_view name, const Expr& value) {
    body.push_back(Let{names_.fresh(name), simplify(value)});
    return make_var(std::get<Let>(body.back()).name, value->type);
  }

  For loop(std::string_view name, Expr end) {
    return {.var = names_.fresh(name), .begin = index_const(0), .end = simplify(end)};
  }

  For vector_loop(std::string_view name, Expr end, const Product& p) {
    For out = loop(name, std::move(end));
    out.kind = ForKind::kVector;
    out.lanes = lanes(p);
    return out;
  }

  // Where the columns of a panel of the block begin.
  static Expr first_column(const Product& p, const Shape& s, const Expr& panel) {
    const Expr wanted = (s.column_block * index_const(s.max_panels) + panel) * index_const(s.width);
    return p.columns().begin + min(wanted, index_const(s.columns - s.width));
  }

  static Expr sum_at(const Shape& s, const Expr& row, const Expr& panel) {
    return (row * index_const(s.max_panels) + panel) * index_const(s.width);
  }

  For clear_sums(const Product& p, const Shape& s) {
    For each = vector_loop("cleared", s.block_rows * index_const(s.max_panels * s.width), p);
    each.body = make_block({Store{s.sums, make_var(each.var), make_const({p.dtype()}, 0), nullptr}});
    return each;
  }

  For accumulate_k_blocks(const Product& p, const Shape& s) {
    For k_block = loop("piece", index_const(s.k_blocks));
    std::vector<Stmt> body;
    const Expr begin = let(body, "first_term", make_var(k_block.var) * index_const(s.k_block));
    const Expr count = simplify(min(index_const(s.k_block), p.k_loop.end - begin));
    const Expr k_count = as_const_int(p.k_loop.end) == s.k_block * s.k_blocks
                             ? index_const(s.k_block)
                             : let(body, "term_count", count);
    body.emplace_back(pack(p, s, begin, k_count));
    body.emplace_back(multiply(p, s, make_var(k_block.var), begin, k_count));
    k_block.body = make_block(std::move(body));
    return k_block;
  }

  For pack(const Product& p, const Shape& s, const Expr& begin, const Expr& k_count) {
    For panel = loop("panel", s.panels), k_loop = loop("term", k_count);
    For column = vector_loop("column", index_const(s.width), p);
    const Expr k = make_var(k_loop.var), j = make_var(column.var);
    std::vector<Stmt> body;
    const Expr first = let(body, "first_column", first_column(p, s, make_var(panel.var)));
    const Expr from = p.b.at({{p.columns().var, first + j}}, p.k_loop.var, begin + k);
    const Expr to = (make_var(panel.var) * index_const(s.k_block) + k) * index_const(s.width) + j;
    column.body = make_block({Store{s.packed, simplify(to), from, nullptr}});
    k_loop.body = make_block({std::move(column)});
    body.emplace_back(std::move(k_loop));
    panel.body = make_block(std::move(body));
    return panel;
  }

  For multiply(const Product& p, const Shape& s, const Expr& k_block, const Expr& begin,
               const Expr& k_count) {
    const int64_t vectors = s.width / lanes(p);
    const Expr tile_size = index_const(s.tile), tiles = simplify(ceildiv(s.rows, tile_size));
    For tile = loop("tile", tiles), panel = loop("panel", s.panels), k_loop = loop("term", k_count);
    const Dtype dtype = p.dtype();
    const Expr k = make_var(k_loop.var);

    std::vector<Stmt> rows, body;
    ProductTile product{.k = k_loop, .packed_bf16 = p.packed_bf16};
    const auto a_row = [&](const Expr& r) {
      const Expr row = min(make_var(tile.var) * tile_size + r, s.rows - index_const(1));
      return substitute(p.a.index, {{p.rows().var, s.first_row + row}, {p.k_loop.var, begin}});
    };
    for (int64_t r = 0; r < s.tile; ++r) {
      const Expr at = let(rows, "a_row", a_row(index_const(r)));
      const Expr step = *LoopTree::stride(p.a.index, p.k_loop.var);
      product.a.push_back(make_load(p.a.buffer, dtype, simplify(at + k * step)));
    }
    const auto vector_at = [&](const Expr& first, int64_t v) {
      return make_ramp(simplify(first + index_const(v * lanes(p))), index_const(1), lanes(p));
    };
    const Expr packed = (make_var(panel.var) * index_const(s.k_block) + k) * index_const(s.width);
    for (int64_t v = 0; v < vectors; ++v)
      product.b.push_back(make_load(s.packed, dtype, vector_at(packed, v)));
    std::vector<Expr> places;
    for (int64_t r = 0; r < s.tile; ++r) {
      const Expr row = make_var(tile.var) * tile_size + index_const(r);
      for (int64_t v = 0; v < vectors; ++v)
        places.push_back(vector_at(sum_at(s, row, make_var(panel.var)), v));
    }
    std::vector<Expr> sums;
    const bool packs_more = s.k_blocks > 1 || s.columns > s.max_panels * s.width;
    if (packs_more) {
      const Expr passes = simplify(ceildiv(s.block_rows, tile_size) * index_const(s.max_panels)),
                 pass = make_var(tile.var) * index_const(s.max_panels) + make_var(panel.var);
      sums = multiply_with_prefetch(std::move(product), next_panel_lines(p, s, k_block, pass, passes), names_,
                                    body);
    } else {
      sums = loop::multiply(product, names_, body);
    }
    // The sum over each block of K starts at zero: adding all products to one running sum would lose digits.
    for (size_t i = 0; i < sums.size(); ++i) {
      const Expr sum = s.k_blocks > 1
                           ? make_apply(ScalarOp::add_, {make_load(s.sums, dtype, places[i]), sums[i]})
                           : sums[i];
      body.push_back(Store{s.sums, places[i], sum, nullptr});
    }
    panel.body = make_block(std::move(body));
    rows.emplace_back(std::move(panel));
    tile.body = make_block(std::move(rows));
    return tile;
  }

  // Whether K is strided in memory. If it is not, each column of b is contiguous.
  static bool k_is_strided(const Product& p) {
    return LoopTree::constant_stride(p.b.index, p.k_loop.var) != 1;
  }

  // The lines to prefetch during one of `passes` passes over a tile: a share of what is packed next, which is
  // the next block of K or the first one of the next block of columns. A pass prefetches one or more rows of
  // contiguous lines, or a part of a row if there are more passes than rows. Rows beyond the last one repeat
  // the last row.
  PrefetchLines next_panel_lines(const Product& p, const Shape& s, const Expr& k_block, const Expr& pass,
                                 const Expr& passes) const {
    const bool strided = k_is_strided(p);
    const int64_t columns = s.width * s.max_panels, k_count = s.k_block * (p.b.packs_on_load ? 2 : 1);
    const int64_t per_line = kCacheLine / itemsize(p.b.dtype), rows = strided ? k_count : columns,
                  lines = divided_up(strided ? columns : k_count, per_line);
    const int64_t parts = std::clamp(as_const_int(passes).value_or(1) / rows, int64_t{1}, lines);
    const int64_t part_lines = divided_up(lines, parts);
    const Expr pass_rows = simplify(ceildiv(index_const(rows), passes)), one = index_const(1);
    const auto at = [=, &p, &s](const Expr& line) {
      const Expr part = index_const(parts), of_part = index_const(part_lines);
      const Expr row = min(floordiv(pass, part) * pass_rows + floordiv(line, of_part), index_const(rows - 1));
      const Expr in_row = (floormod(pass, part) * of_part + floormod(line, of_part)) * index_const(per_line);
      const Expr next = k_block + one, k_blocks = index_const(s.k_blocks);
      const Expr column =
          min((s.column_block + floordiv(next, k_blocks)) * index_const(columns) + (strided ? in_row : row),
              index_const(s.columns) - one);
      const Expr k = min(floormod(next, k_blocks) * index_const(k_count) + (strided ? row : in_row),
                         p.k_loop.end * index_const(p.b.packs_on_load ? 2 : 1) - one);
      const Expr index =
          substitute(p.b.index, {{p.columns().var, p.columns().begin + column}, {p.k_loop.var, k}});
      return make_load(p.b.buffer, p.b.dtype, simplify(index));
    };
    return {simplify(pass_rows * index_const(part_lines)), at};
  }

  // What follows the reduction, for each element.
  For apply_epilogue(const Product& p, const Shape& s) {
    For row = loop("row", s.rows), panel = loop("panel", s.panels);
    const Expr i = make_var(row.var), c = make_var(panel.var);
    std::vector<Stmt> around, body;
    const Expr first = let(around, "first_column", first_column(p, s, c));
    For column = p.columns();
    // The last panel may overlap the one before it: its epilogue skips the columns that are already done.
    const Expr own = column.begin + (s.column_block * index_const(s.max_panels) + c) * index_const(s.width);
    const bool whole = s.columns % s.width == 0;
    column.begin = simplify(whole ? first : own);
    column.end = simplify(first + index_const(s.width));
    column.kind = ForKind::kVector;
    column.lanes = lanes(p);
    const Expr j = make_var(column.var);
    body.push_back(Let{p.rows().var, simplify(s.first_row + i)});
    body.insert(body.end(), p.index_lets.begin(), p.index_lets.end());
    const Dtype dtype = p.dtype();
    body.push_back(Let{p.k_loop.reduction->states[0].name,
                       make_load(s.sums, dtype, simplify(sum_at(s, i, c) + (j - first)))});
    body.insert(body.end(), p.epilogue.begin(), p.epilogue.end());
    column.body = make_block(std::move(body));
    around.emplace_back(std::move(column));
    panel.body = make_block(std::move(around));
    row.body = make_block({std::move(panel)});
    return row;
  }

  const Function& f_;
  ProductMatcher products_;
  Names names_;
  const Target& target_;
};

}  // namespace

Function block_products(const Function& f, const Target& target) { return ProductBlocker(f, target).run(); }

}  // namespace ipex::loop
