// block_products: a product of matrices becomes blocks, packed panels and a micro-kernel.
//
//   for i in 0..M { for j in 0..N { for k in 0..K reduce(s) {} yield(s + a[i, k]*b[k, j]); rest } }
//     =>  for parallel block {
//           alloc sums[rows of the block][kPanels*W], panels[kPanels][terms][W];
//           for piece of K {
//             for p in panels { panels[p][k][..] = b[k, columns of p] }
//             for t in tiles of R rows { for p in panels {
//               for k in piece reduce(R x W/V states) {} yield(fma(a[row, k], panels[p][k], state)) } } }
//           for i in rows { for j in columns { let s = sums[i][j]; rest } } }
//
// As it stands the nest reads a column of b for every element, and at best keeps one row of sums in
// registers. A tile of R rows by two vectors of columns loads two vectors and R scalars for 2*R fused
// multiply-adds; a panel of b stays in L1 while the rows pass, the sums and all panels of a block in L2. This
// is the layered scheme of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008); a
// is read where it lies, as a tile of it is used for several panels at once, unless its rows crowd L1.
//
// Edges cost no second micro-kernel. Rows beyond the last one are the last one again, and their sums are
// dropped. The last panel ends with the last column, so that its first columns may be the previous panel's
// too; `rest` runs once for each element, as before.
#include <algorithm>

#include "codegen/passes/loop_nest.h"
#include "codegen/passes/loop_tree.h"
#include "codegen/passes/passes.h"
#include "codegen/product_tile.h"

namespace ipex::loop {

namespace {

constexpr int64_t kPanels = 4;             // in a block
constexpr int64_t kPanelBytes = 12 << 10;  // of a panel: with the rows that pass it, in L1
constexpr int64_t kBlockRows = 240;        // their sums beside the panels, in L2
constexpr int64_t kLeastRows = 8, kLeastTerms = 16;

// A nest that is a product, taken apart.
struct Product {
  std::vector<For> levels;  // without bodies
  size_t row = 0, column = 0;
  For terms;                       // the reduction
  Expr a, b;                       // the loads, their indices in loop variables only
  std::vector<Stmt> before, rest;  // of the innermost body: index lets, and what uses the sum
};

const Expr& index_of(const Expr& load) { return load->args[0]; }

class ProductBlocker {
 public:
  ProductBlocker(const Function& f, const Target& target) : tree_(f), names_(f), target_(target) {}

  Block run(const Block& body) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : body->stmts) {
      const auto* loop = std::get_if<For>(&stmt);
      const std::optional<Product> product = loop ? match(*loop) : std::nullopt;
      out.push_back(product ? Stmt(blocked(*product)) : stmt);
    }
    return make_block(std::move(out));
  }

 private:
  // ---- is it a product? ----

  std::optional<Product> match(const For& root) const {
    Product p;
    const For* innermost = &root;
    for (;; innermost = &std::get<For>(innermost->body->stmts[0])) {
      if (innermost->kind != ForKind::kSerial || innermost->reduction ||
          !tree_.reorderable(tree_.id_of(*innermost)))
        return std::nullopt;
      for (const For& outer : p.levels)
        if (uses(innermost->begin, outer.var) || uses(innermost->end, outer.var)) return std::nullopt;
      p.levels.push_back(*innermost);
      p.levels.back().body = nullptr;
      const std::vector<Stmt>& stmts = innermost->body->stmts;
      if (stmts.size() != 1 || !std::holds_alternative<For>(stmts[0]) || std::get<For>(stmts[0]).reduction)
        break;
    }
    const bool found = take_apart(*innermost->body, p) && find_factors(p) && find_roles(p);
    return found ? std::optional(std::move(p)) : std::nullopt;
  }

  // Lets of indices, one reduction, then lets and stores.
  static bool take_apart(const BlockNode& body, Product& p) {
    size_t i = 0;
    for (; i < body.stmts.size(); ++i) {
      const auto* let = std::get_if<Let>(&body.stmts[i]);
      if (!let || let->value->type != kIndex || loads(let->value)) break;
      p.before.push_back(*let);
    }
    if (i == body.stmts.size() || !std::holds_alternative<For>(body.stmts[i])) return false;
    p.terms = std::get<For>(body.stmts[i]);
    p.rest.assign(body.stmts.begin() + static_cast<std::ptrdiff_t>(i) + 1, body.stmts.end());
    return p.terms.kind == ForKind::kSerial && p.terms.reduction &&
           std::all_of(p.rest.begin(), p.rest.end(), [](const Stmt& stmt) {
             return std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt);
           });
  }

  // s + a*b of one float type, from 0.
  static bool find_factors(Product& p) {
    const Reduction& r = *p.terms.reduction;
    const auto terms = as_const_int(p.terms.end);
    if (r.states.size() != 1 || as_const_int(p.terms.begin) != 0 || !terms || *terms < kLeastTerms)
      return false;
    const State& s = r.states[0];
    if (s.type != Type{Dtype::kF32} && s.type != Type{Dtype::kF64}) return false;
    if (!equal(s.init, make_const(s.type, 0)) || !equal(s.identity, s.init)) return false;
    Substitution lets;
    for (const Stmt& stmt : p.before) inline_let(stmt, lets);
    const auto found = summed_factors(p.terms, std::move(lets));
    if (!found) return false;
    p.a = found->a;
    p.b = found->b;
    const auto plain = [](const Expr& e) { return e->is(ExprKind::kLoad) && e->args.size() == 1; };
    return plain(p.a) && plain(p.b) && !loads(index_of(p.a)) && !loads(index_of(p.b));
  }

  // Columns are what the results lie side by side along; b has them and a does not. Of the loops that a has
  // and b does not, the innermost is the rows; b is packed anew for each iteration of all the others.
  bool find_roles(Product& p) const {
    const auto column = [&](size_t level) {
      return std::all_of(p.rest.begin(), p.rest.end(), [&](const Stmt& stmt) {
        const auto* store = std::get_if<Store>(&stmt);
        return !store || LoopTree::constant_stride(with_lets(store->index, p), p.levels[level].var) == 1;
      });
    };
    p.column = p.levels.size();
    while (p.column-- > 0 && !column(p.column)) {
    }
    if (p.column >= p.levels.size()) return false;
    const std::string& j = p.levels[p.column].var;
    if (uses(index_of(p.a), j)) std::swap(p.a, p.b);
    if (uses(index_of(p.a), j) || !LoopTree::constant_stride(index_of(p.b), j)) return false;
    p.row = p.levels.size();
    for (size_t level = p.levels.size(); level-- > 0 && p.row == p.levels.size();)
      if (uses(index_of(p.a), p.levels[level].var) && !uses(index_of(p.b), p.levels[level].var))
        p.row = level;
    if (p.row == p.levels.size()) return false;
    for (const Expr* load : {&p.a, &p.b})
      if (!LoopTree::stride(index_of(*load), p.terms.var)) return false;
    const auto columns = extent(p.levels[p.column]), rows = extent(p.levels[p.row]);
    return columns && *columns >= width(p) && (!rows || *rows >= kLeastRows);
  }

  static Expr with_lets(const Expr& e, const Product& p) {
    Substitution lets;
    for (const std::vector<Stmt>* stmts : {&p.before, &p.rest})
      for (const Stmt& stmt : *stmts)
        if (const auto* let = std::get_if<Let>(&stmt); let && let->value->type == kIndex)
          inline_let(stmt, lets);
    return substitute(e, lets);
  }

  static std::optional<int64_t> extent(const For& loop) {
    return as_const_int(simplify(loop.end - loop.begin));
  }

  // ---- the blocks ----

  int lanes(const Product& p) const { return target_.lanes(p.a->type.dtype); }
  int64_t width(const Product& p) const { return kTileVectors * lanes(p); }

  // What one block works on, as expressions over the variables bound at its start.
  struct Shape {
    int64_t width, tile;
    int64_t terms, pieces;  // terms in a piece, the last one may have fewer
    int64_t columns;        // of all blocks
    int64_t most_panels;    // of a block
    Expr first_row, rows;   // in the row loop's range; rows there are
    Expr block_rows;        // rows of a block, whole tiles
    Expr column_block, panels;
    std::string sums, packed, tile_a;
  };

  static Expr min(Expr a, Expr b) { return make_apply(ScalarOp::min_, {std::move(a), std::move(b)}); }

  For blocked(const Product& p) {
    const For &rows = p.levels[p.row], &columns = p.levels[p.column];
    const int64_t item = itemsize(p.a->type.dtype);
    Shape s{.width = width(p), .tile = tile_rows(target_)};
    s.columns = *extent(columns);
    const int64_t all_terms = *as_const_int(p.terms.end);
    s.pieces = (all_terms * s.width * item + kPanelBytes - 1) / kPanelBytes;
    s.terms = (all_terms + s.pieces - 1) / s.pieces;
    s.pieces = (all_terms + s.terms - 1) / s.terms;
    const int64_t panels = (s.columns + s.width - 1) / s.width;
    s.most_panels = std::min(panels, kPanels);
    const int64_t column_blocks = (panels + kPanels - 1) / kPanels;

    // Blocks of rows are alike, so that threads that share them out finish together.
    const Expr row_count = simplify(rows.end - rows.begin);
    const Expr row_blocks = simplify(ceildiv(row_count, index_const(kBlockRows)));
    const Expr tile = index_const(s.tile);
    s.block_rows = simplify(ceildiv(ceildiv(row_count, row_blocks), tile) * tile);

    const int64_t least_rows = std::min(as_const_int(s.block_rows).value_or(kLeastRows), kBlockRows);
    const int64_t block_terms = least_rows * s.most_panels * s.width * all_terms;
    For block{.var = names_.fresh("block"), .kind = ForKind::kParallel};
    block.grain = std::max<int64_t>(kGrainTerms / block_terms, 1);
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
    const Expr most_panels = index_const(s.most_panels),
               panels_left = index_const(panels) - s.column_block * most_panels;
    s.panels =
        panels % s.most_panels == 0 ? most_panels : let(body, "panel_count", min(most_panels, panels_left));
    s.sums = names_.fresh("sums");
    s.packed = names_.fresh("panels");
    s.tile_a = names_.fresh("tile_a");
    const Dtype dtype = p.a->type.dtype;
    const Expr most_rows = index_const((kBlockRows + s.tile - 1) / s.tile * s.tile);
    body.push_back(
        Alloc{s.sums, dtype, simplify(min(s.block_rows, most_rows) * index_const(s.most_panels * s.width))});
    body.push_back(Alloc{s.packed, dtype, index_const(s.most_panels * s.terms * s.width)});
    if (crowds_cache(p)) body.push_back(Alloc{s.tile_a, dtype, index_const(s.tile * s.terms)});
    if (s.pieces > 1) body.emplace_back(clear(p, s));
    body.emplace_back(add_pieces(p, s));
    body.emplace_back(finish(p, s));
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

  // Where the columns of a block's panel begin.
  static Expr first_column(const Product& p, const Shape& s, const Expr& panel) {
    const Expr wanted = (s.column_block * index_const(s.most_panels) + panel) * index_const(s.width);
    return p.levels[p.column].begin + min(wanted, index_const(s.columns - s.width));
  }

  static Expr sum_at(const Shape& s, const Expr& row, const Expr& panel) {
    return (row * index_const(s.most_panels) + panel) * index_const(s.width);
  }

  For clear(const Product& p, const Shape& s) {
    For each = vector_loop("cleared", s.block_rows * index_const(s.most_panels * s.width), p);
    each.body = make_block({Store{s.sums, make_var(each.var), make_const({p.a->type.dtype}, 0), nullptr}});
    return each;
  }

  For add_pieces(const Product& p, const Shape& s) {
    For piece = loop("piece", index_const(s.pieces));
    std::vector<Stmt> body;
    const Expr begin = let(body, "first_term", make_var(piece.var) * index_const(s.terms));
    const Expr count = simplify(min(index_const(s.terms), p.terms.end - begin));
    const Expr terms = as_const_int(p.terms.end) == s.terms * s.pieces ? index_const(s.terms)
                                                                       : let(body, "term_count", count);
    body.emplace_back(pack(p, s, begin, terms));
    body.emplace_back(multiply(p, s, begin, terms));
    piece.body = make_block(std::move(body));
    return piece;
  }

  For pack(const Product& p, const Shape& s, const Expr& begin, const Expr& terms) {
    For panel = loop("panel", s.panels), term = loop("term", terms);
    For column = vector_loop("column", index_const(s.width), p);
    const Expr k = make_var(term.var), j = make_var(column.var);
    std::vector<Stmt> body;
    const Expr first = let(body, "first_column", first_column(p, s, make_var(panel.var)));
    const Expr from =
        substitute(index_of(p.b), {{p.levels[p.column].var, first + j}, {p.terms.var, begin + k}});
    const Expr to = (make_var(panel.var) * index_const(s.terms) + k) * index_const(s.width) + j;
    column.body = make_block(
        {Store{s.packed, simplify(to), make_load(p.b->name, p.b->type.dtype, simplify(from)), nullptr}});
    term.body = make_block({std::move(column)});
    body.emplace_back(std::move(term));
    panel.body = make_block(std::move(body));
    return panel;
  }

  static bool crowds_cache(const Product& p) {
    const auto apart = LoopTree::constant_stride(index_of(p.a), p.levels[p.row].var);
    return LoopTree::constant_stride(index_of(p.a), p.terms.var) == 1 && apart &&
           rows_crowd_cache(*apart * itemsize(p.a->type.dtype));
  }

  For multiply(const Product& p, const Shape& s, const Expr& begin, const Expr& terms) {
    const Expr tile_size = index_const(s.tile);
    For tile = loop("tile", ceildiv(s.rows, tile_size)), panel = loop("panel", s.panels),
        term = loop("term", terms);
    const Dtype dtype = p.a->type.dtype;
    const Expr k = make_var(term.var);
    const Expr a_step = *LoopTree::stride(index_of(p.a), p.terms.var);

    std::vector<Stmt> rows, body;
    ProductTile product{.term = term};
    const auto a_row = [&](const Expr& r) {
      const Expr row = min(make_var(tile.var) * tile_size + r, s.rows - index_const(1));
      return substitute(index_of(p.a), {{p.levels[p.row].var, s.first_row + row}, {p.terms.var, begin}});
    };
    const bool copies = crowds_cache(p);
    if (copies) {
      For row = loop("row", tile_size), copied = vector_loop("copied", terms, p);
      std::vector<Stmt> copy;
      const Expr at = let(copy, "a_row", a_row(make_var(row.var))), k = make_var(copied.var);
      copied.body = make_block({Store{s.tile_a, simplify(make_var(row.var) * index_const(s.terms) + k),
                                      make_load(p.a->name, dtype, simplify(at + k)), nullptr}});
      copy.emplace_back(std::move(copied));
      row.body = make_block(std::move(copy));
      rows.emplace_back(std::move(row));
    }
    for (int64_t r = 0; r < s.tile; ++r) {
      const Expr value = copies ? make_load(s.tile_a, dtype, k + index_const(r * s.terms))
                                : make_load(p.a->name, dtype,
                                            simplify(let(rows, "a_row", a_row(index_const(r))) + k * a_step));
      product.a.push_back(value);
    }
    const auto vector_at = [&](const Expr& first, int64_t v) {
      return make_ramp(simplify(first + index_const(v * lanes(p))), index_const(1), lanes(p));
    };
    const Expr packed = (make_var(panel.var) * index_const(s.terms) + k) * index_const(s.width);
    for (int64_t v = 0; v < kTileVectors; ++v)
      product.b.push_back(make_load(s.packed, dtype, vector_at(packed, v)));
    std::vector<Expr> places;
    for (int64_t r = 0; r < s.tile; ++r) {
      const Expr row = make_var(tile.var) * tile_size + index_const(r);
      for (int64_t v = 0; v < kTileVectors; ++v) {
        places.push_back(vector_at(sum_at(s, row, make_var(panel.var)), v));
        if (s.pieces > 1) product.start.push_back(make_load(s.sums, dtype, places.back()));
      }
    }
    const std::vector<Expr> sums = loop::multiply(product, names_, body);
    for (size_t i = 0; i < sums.size(); ++i) body.push_back(Store{s.sums, places[i], sums[i], nullptr});
    panel.body = make_block(std::move(body));
    rows.emplace_back(std::move(panel));
    tile.body = make_block(std::move(rows));
    return tile;
  }

  // What came after the reduction, for each element.
  For finish(const Product& p, const Shape& s) {
    For row = loop("row", s.rows), panel = loop("panel", s.panels);
    const Expr i = make_var(row.var), c = make_var(panel.var);
    std::vector<Stmt> around, body;
    const Expr first = let(around, "first_column", first_column(p, s, c));
    For column = p.levels[p.column];
    // A panel begins behind its own first column where the columns end first.
    const Expr own = column.begin + (s.column_block * index_const(s.most_panels) + c) * index_const(s.width);
    const bool whole = s.columns % s.width == 0;
    column.begin = simplify(whole ? first : own);
    column.end = simplify(first + index_const(s.width));
    column.kind = ForKind::kVector;
    column.lanes = lanes(p);
    const Expr j = make_var(column.var);
    body.push_back(Let{p.levels[p.row].var, simplify(s.first_row + i)});
    body.insert(body.end(), p.before.begin(), p.before.end());
    const Dtype dtype = p.a->type.dtype;
    body.push_back(Let{p.terms.reduction->states[0].name,
                       make_load(s.sums, dtype, simplify(sum_at(s, i, c) + (j - first)))});
    body.insert(body.end(), p.rest.begin(), p.rest.end());
    column.body = make_block(std::move(body));
    around.emplace_back(std::move(column));
    panel.body = make_block(std::move(around));
    row.body = make_block({std::move(panel)});
    return row;
  }

  LoopTree tree_;
  Names names_;
  const Target& target_;
};

}  // namespace

Function block_products(const Function& f, const Target& target) {
  Function out = f;
  out.body = ProductBlocker(f, target).run(f.body);
  return out;
}

}  // namespace ipex::loop
