#include "backend/lower/winograd.h"

#include <algorithm>
#include <array>

#include "backend/lower/nest_builder.h"
#include "backend/lower/post_ops.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_load;
using loop::make_ramp;
using loop::make_var;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

namespace {

constexpr int64_t kTile = kWinogradTile, kOut = kWinogradOutputs, kPlanes = kWinogradPlanes, kWindow = 3;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t rounded_up(int64_t a, int64_t b) { return divided_up(a, b) * b; }

int64_t panel_of(const loop::Target& target) { return loop::kTileVectors * target.lanes(Dtype::kF32); }

template <int64_t n>
using Row = std::array<Expr, n>;

Expr half(const Expr& x) { return make_apply(ScalarOp::mul_, {x, loop::make_const(x->type, 0.5)}); }

// B^T d, G g and A^T m of the paper, of one row or column.
Row<4> input_row(const Row<4>& d) { return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]}; }
Row<4> filter_row(const Row<3>& g) {
  const Expr outer = g[0] + g[2];
  return {g[0], half(outer + g[1]), half(outer - g[1]), g[2]};
}
Row<2> output_row(const Row<4>& m) { return {m[0] + m[1] + m[2], m[1] - m[2] - m[3]}; }

class WinogradBuilder : NestBuilder {
 public:
  WinogradBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                  const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : NestBuilder(body, inputs, outputs, target) {}

  loop::Function filter(const std::string& name) {
    const Tensor &w = inputs_[0], &u = outputs_[0];
    const bool gradient = node_.attr<bool>("gradient");
    const Expr terms = u.shape[2], width = u.shape[3];
    Body body;
    parallel(body, u.shape[1] * terms, index_const(kPlanes * loop::kTileVectors * lanes()),
             [&](const Expr& part, Body& inner) {
               const Expr of_panel = let(inner, "panel", floordiv(part, terms)),
                          term = let(inner, "channel", floormod(part, terms));
               vectors(inner, "column", width, [&](const Expr& column, Body& lanes) {
                 const Expr out = of_panel * width + column;
                 std::array<Row<4>, kWindow> once;
                 for (int64_t r = 0; r < kWindow; ++r) {
                   Row<3> g;
                   for (int64_t q = 0; q < kWindow; ++q) {
                     // The gradient of the data is the convolution by the window turned around, channels
                     // exchanged.
                     const int64_t row = gradient ? kWindow - 1 - r : r,
                                   column_in_row = gradient ? kWindow - 1 - q : q;
                     const Expr at = place(w, {gradient ? term : out, gradient ? out : term, index_const(row),
                                               index_const(column_in_row)});
                     g[q] = let(lanes, "w", make_load(w.buffer, w.dtype, at));
                   }
                   once[r] = filter_row(g);
                   for (Expr& x : once[r]) x = let(lanes, "g", x);
                 }
                 for (int64_t q = 0; q < kTile; ++q) {
                   const Row<4> column_of_u = filter_row({once[0][q], once[1][q], once[2][q]});
                   for (int64_t r = 0; r < kTile; ++r)
                     store(lanes, u.buffer, place(u, {index_const(r * kTile + q), of_panel, term, column}),
                           column_of_u[r]);
                 }
               });
             });
    return function(name, std::move(body));
  }

  loop::Function convolution(const std::string& name) {
    const Tensor& x = inputs_[0];
    const Tensor& y = outputs_[0];
    const auto& padding = node_.attr<std::vector<int64_t>>("padding");
    top_padding_ = padding[0];
    left_padding_ = padding[1];
    const auto known = [](const Dim& dim) { return *as_const_int(dim); };
    terms_ = known(x.shape[1]);
    columns_ = known(y.shape[1]);
    panel_ = known(inputs_[1].shape[3]);
    const WinogradShape shape{terms_, columns_, known(y.shape[2]), known(y.shape[3]),
                              std::max<int64_t>(hint(y.shape[0], graph_), 1)};
    const WinogradBlocks blocks = *winograd_blocks(shape, panel_, target_);
    tiles_across_ = divided_up(shape.width, kOut);
    tiles_of_image_ = shape.tiles_of_image();
    block_columns_ = columns_ / blocks.column_blocks;
    block_rows_ = rounded_up(blocks.tiles, loop::tile_rows(target_));
    input_plane_ = block_rows_ * terms_ + kApart;
    sum_plane_ = block_rows_ * block_columns_ + kApart;
    const Expr tiles = simplify(y.shape[0] * index_const(tiles_of_image_)), size = index_const(blocks.tiles),
               column_blocks = index_const(blocks.column_blocks);
    Body body;
    parallel(body, ceildiv(tiles, size) * column_blocks,
             index_const(blocks.tiles * kPlanes * terms_ * block_columns_),
             [&](const Expr& part, Body& inner) {
               const Expr columns = let(inner, "column_block", floormod(part, column_blocks)),
                          first = let(inner, "first_tile", floordiv(part, column_blocks) * size),
                          count = let(inner, "tile_count", least(size, tiles - first));
               const std::string parts = alloc(inner, "inputs", index_const(kPlanes * input_plane_)),
                                 sums = alloc(inner, "sums", index_const(kPlanes * sum_plane_));
               // The last rows of a micro-kernel are the last tile's again.
               const Expr rows = let(inner, "row_count",
                                     ceildiv(count, index_const(loop::tile_rows(target_))) *
                                         index_const(loop::tile_rows(target_)));
               serial(inner, "tile", index_const(0), rows, [&](const Expr& tile, Body& each) {
                 transform_input(each, tile, least(first + tile, tiles - index_const(1)), parts);
               });
               multiply(inner, columns, rows, parts, sums);
               serial(inner, "tile", index_const(0), count, [&](const Expr& tile, Body& each) {
                 transform_sums(each, tile, first + tile, columns, sums);
               });
             });
    return function(name, std::move(body));
  }

 private:
  // Planes a multiple of 4 KB apart would share one set of L1.
  static constexpr int64_t kApart = 2 * loop::kCacheLine / 4;

  struct Place {  // of a tile's first result
    Expr image, row, column;
  };

  static Expr place(const Tensor& x, const std::vector<Expr>& index) {
    Expr at = x.layout.offset;
    for (size_t d = 0; d < index.size(); ++d) at = at + index[d] * x.layout.strides[d];
    return simplify(at);
  }

  Place place_of(Body& out, const Expr& tile) {
    const Expr number = let(out, "tile_number", tile), all = index_const(tiles_of_image_),
               across = index_const(tiles_across_);
    const Expr in_image = let(out, "in_image", floormod(number, all));
    return {let(out, "image", floordiv(number, all)),
            let(out, "top", floordiv(in_image, across) * index_const(kOut)),
            let(out, "left", floormod(in_image, across) * index_const(kOut))};
  }

  static Expr both(const Expr& a, const Expr& b) { return make_apply(ScalarOp::bitand_, {a, b}); }

  static void branch(Body& out, const Expr& condition, Body yes, Body no) {
    out.push_back(loop::If{condition, loop::make_block(std::move(yes)), loop::make_block(std::move(no))});
  }

  // Beyond the edges lie zeros, which are not read.
  void transform_input(Body& out, const Expr& row, const Expr& tile, const std::string& parts) {
    const Tensor& x = inputs_[0];
    const Place at = place_of(out, tile);
    const Expr top = let(out, "input_top", at.row - index_const(top_padding_)),
               left = let(out, "input_left", at.column - index_const(left_padding_));
    const auto inside = [&](const Expr& first, int64_t count, const Dim& size) {
      return both(make_apply(ScalarOp::ge_, {first, index_const(0)}),
                  make_apply(ScalarOp::le_, {simplify(first + index_const(count)), size}));
    };
    const Expr whole =
        let(out, "whole", both(inside(top, kTile, x.shape[2]), inside(left, kTile, x.shape[3])));
    const auto transform = [&](bool at_edge) {
      Body body;
      Row<4> rows, columns;
      for (int64_t i = 0; at_edge && i < kTile; ++i) {
        rows[i] = let(body, "row_inside", inside(simplify(top + index_const(i)), 1, x.shape[2]));
        columns[i] = let(body, "column_inside", inside(simplify(left + index_const(i)), 1, x.shape[3]));
      }
      vectors(body, "channel", index_const(terms_), [&](const Expr& channel, Body& lanes) {
        std::array<Row<4>, kTile> d;
        for (int64_t q = 0; q < kTile; ++q) {
          Row<4> column;
          for (int64_t r = 0; r < kTile; ++r) {
            const Expr from = place(
                x, {at.image, channel, simplify(top + index_const(r)), simplify(left + index_const(q))});
            const Expr mask = at_edge ? both(rows[r], columns[q]) : nullptr;
            column[r] = let(lanes, "x", make_load(x.buffer, x.dtype, from, mask));
          }
          const Row<4> once = input_row(column);
          for (int64_t r = 0; r < kTile; ++r) d[r][q] = let(lanes, "d", once[r]);
        }
        for (int64_t r = 0; r < kTile; ++r) {
          const Row<4> twice = input_row(d[r]);
          for (int64_t q = 0; q < kTile; ++q)
            store(lanes, parts,
                  index_const((r * kTile + q) * input_plane_) + row * index_const(terms_) + channel,
                  twice[q]);
        }
      });
      return body;
    };
    branch(out, whole, transform(false), transform(true));
  }

  // In each plane rows of tiles by terms, times terms by columns.
  void multiply(Body& out, const Expr& column_block, const Expr& row_count, const std::string& parts,
                const std::string& sums) {
    const Tensor& u = inputs_[1];
    const int64_t tile_rows = loop::tile_rows(target_), panels = block_columns_ / panel_,
                  vectors = panel_ / lanes();
    const int width = static_cast<int>(lanes());
    const bool cached = kPlanes * terms_ * columns_ * itemsize(dtype_) <= target_.l2_bytes;
    serial(out, "plane", index_const(0), index_const(kPlanes), [&](const Expr& plane, Body& of_plane) {
      serial(of_plane, "panel", index_const(0), index_const(panels), [&](const Expr& p, Body& of_panel) {
        const Expr number = column_block * index_const(panels) + p;
        const Expr filter =
            let(of_panel, "filter", place(u, {plane, number, index_const(0), index_const(0)}));
        const Expr tiles = floordiv(row_count, index_const(tile_rows));
        serial(of_panel, "rows", index_const(0), tiles, [&](const Expr& t, Body& body) {
          const Expr row = t * index_const(tile_rows);
          const Expr a = let(body, "a_row", plane * index_const(input_plane_) + row * index_const(terms_));
          const Expr c = let(
              body, "sum_row",
              plane * index_const(sum_plane_) + row * index_const(block_columns_) + p * index_const(panel_));
          loop::ProductTile tile{.term = {.var = names_.fresh("term")}};
          tile.term.begin = index_const(0);
          tile.term.end = index_const(terms_);
          const Expr term = make_var(tile.term.var);
          const auto vector_at = [&](const Expr& at, int64_t v) {
            return make_ramp(simplify(at + index_const(v * width)), index_const(1), width);
          };
          for (int64_t r = 0; r < tile_rows; ++r)
            tile.a.push_back(load(parts, a + index_const(r * terms_) + term));
          for (int64_t v = 0; v < vectors; ++v)
            tile.b.push_back(make_load(u.buffer, dtype_, vector_at(filter + term * u.layout.strides[2], v)));
          const std::vector<Expr> results =
              cached ? loop::multiply(tile, names_, body)
                     : loop::multiply_in_runs(std::move(tile), next_panel(plane, number, t, tiles), names_,
                                              body);
          for (int64_t r = 0; r < tile_rows; ++r)
            for (int64_t v = 0; v < vectors; ++v)
              body.push_back(Store{sums, vector_at(c + index_const(r * block_columns_), v),
                                   results[r * vectors + v], nullptr});
        });
      });
    });
  }

  // A share of the panel that follows, for each of the `passes` over this one; the last panel is its own.
  loop::LinesAhead next_panel(const Expr& plane, const Expr& number, const Expr& pass,
                              const Expr& passes) const {
    const Tensor& u = inputs_[1];
    const int64_t in_line = loop::kCacheLine / itemsize(dtype_), lines = divided_up(terms_ * panel_, in_line);
    const Expr of_pass = simplify(ceildiv(index_const(lines), passes));
    const Expr begin = place(u, {plane, number + index_const(1), index_const(0), index_const(0)});
    return {of_pass, [=, this, &u](const Expr& line) {
              const Expr at = begin + (pass * of_pass + line) * index_const(in_line);
              return make_load(u.buffer, u.dtype, least(at, u.layout.extent - index_const(1)));
            }};
  }

  // Results beyond the edges are not stored, nor is what belongs to them read.
  void transform_sums(Body& out, const Expr& row, const Expr& tile, const Expr& column_block,
                      const std::string& sums) {
    const Tensor& y = outputs_[0];
    const Place at = place_of(out, tile);
    const auto second = [&](const Expr& first, const Dim& size) {
      return make_apply(ScalarOp::lt_, {simplify(first + index_const(1)), size});
    };
    const std::array<Expr, 2> exists{let(out, "second_row", second(at.row, y.shape[2])),
                                     let(out, "second_column", second(at.column, y.shape[3]))};
    const auto transform = [&](bool at_edge) {
      Body body;
      vectors(body, "column", index_const(block_columns_), [&](const Expr& column, Body& lanes) {
        const Expr channel = let(lanes, "channel", column_block * index_const(block_columns_) + column);
        std::array<Row<4>, kOut> s;
        for (int64_t q = 0; q < kTile; ++q) {
          Row<4> m;
          for (int64_t r = 0; r < kTile; ++r)
            m[r] = let(lanes, "m",
                       load(sums, index_const((r * kTile + q) * sum_plane_) +
                                      row * index_const(block_columns_) + column));
          const Row<2> once = output_row(m);
          for (int64_t r = 0; r < kOut; ++r) s[r][q] = let(lanes, "s", once[r]);
        }
        for (int64_t r = 0; r < kOut; ++r) {
          const Row<2> values = output_row(s[r]);
          for (int64_t q = 0; q < kOut; ++q) {
            Expr mask;
            if (at_edge && r > 0) mask = exists[0];
            if (at_edge && q > 0) mask = mask ? both(mask, exists[1]) : exists[1];
            const std::vector<Expr> index{at.image, channel, simplify(at.row + index_const(r)),
                                          simplify(at.column + index_const(q))};
            lanes.push_back(Store{y.buffer, place(y, index), finished(lanes, values[q], index, mask), mask});
          }
        }
      });
      return body;
    };
    const bool even = *as_const_int(y.shape[2]) % kOut == 0 && *as_const_int(y.shape[3]) % kOut == 0;
    if (!even) return branch(out, both(exists[0], exists[1]), transform(false), transform(true));
    for (loop::Stmt& stmt : transform(false)) out.push_back(std::move(stmt));
  }

  Expr finished(Body& out, Expr sum, const std::vector<Expr>& index, const Expr& mask) {
    const auto operand = [&](size_t k) {
      const Tensor& x = inputs_[k];
      std::vector<Expr> at;
      for (size_t d = 0; d < x.shape.size(); ++d) {
        const Expr& full = index[index.size() - x.shape.size() + d];
        at.push_back(as_const_int(x.shape[d]) == 1 ? index_const(0) : full);
      }
      return loop::make_cast(dtype_, make_load(x.buffer, x.dtype, place(x, at), mask));
    };
    size_t next = 2;
    if (node_.attr_or<bool>("bias", false)) {
      const Tensor& bias = inputs_[next++];
      sum = sum + make_load(bias.buffer, bias.dtype, place(bias, {index[1]}));
    }
    return with_post_ops(node_, sum, next, operand, [&](const Expr& x) { return let(out, "acc", x); });
  }

  int64_t top_padding_ = 0, left_padding_ = 0;
  int64_t terms_ = 0, columns_ = 0, panel_ = 0;  // channels of x and of the result; columns side by side in u
  int64_t tiles_across_ = 0, tiles_of_image_ = 0;
  int64_t block_rows_ = 0, block_columns_ = 0;  // of a part; rows are tiles
  int64_t input_plane_ = 0, sum_plane_ = 0;     // elements of scratch
};

}  // namespace

int64_t WinogradShape::tiles_of_image() const { return divided_up(height, kOut) * divided_up(width, kOut); }

std::optional<WinogradBlocks> winograd_blocks(const WinogradShape& shape, int64_t panel,
                                              const loop::Target& target) {
  const int64_t lanes = target.lanes(Dtype::kF32), rows = loop::tile_rows(target);
  if (shape.columns % panel != 0 || shape.terms % lanes != 0) return std::nullopt;
  constexpr int64_t kMostTiles = 96;  // of a part
  const int64_t tiles = shape.batch * shape.tiles_of_image();
  const auto cost = [&](int64_t of_block, int64_t column_blocks) {
    constexpr double kTransform = 40;  // a vector of 16 numbers: loads, sums, stores
    constexpr double kSpilled = 40;    // what L2 does not hold of them, there and back
    constexpr double kStreamed = 8;    // bytes of weights a cycle, from beyond L2
    const auto terms = static_cast<double>(shape.terms), all_lanes = static_cast<double>(lanes),
               columns = static_cast<double>(shape.columns / column_blocks),
               block_rows = static_cast<double>(rounded_up(of_block, rows));
    const double products = block_rows * kPlanes * terms * columns / (2 * all_lanes);
    const double weights = kPlanes * terms * columns * sizeof(float) / kStreamed;
    const bool spills = block_rows * kPlanes * (terms + columns) * sizeof(float) > target.l2_bytes;
    const double transforms =
        block_rows * (kTransform + (spills ? kSpilled : 0)) * (terms + columns) / all_lanes;
    const int64_t blocks = divided_up(tiles, of_block) * column_blocks;
    return static_cast<double>(divided_up(blocks, target.threads)) *
           (std::max(products, weights) + transforms);
  };
  std::optional<WinogradBlocks> best;
  for (int64_t column_blocks = 1; column_blocks <= target.threads; column_blocks *= 2) {
    if (shape.columns % (column_blocks * panel) != 0) break;
    for (int64_t of_block = rows; of_block <= kMostTiles; ++of_block) {
      const double cycles = cost(of_block, column_blocks);
      if (!best || cycles < best->cycles) best = {of_block, column_blocks, cycles};
    }
  }
  return best;
}

bool winograd_best(const WinogradShape& shape, bool weights_stay, const loop::Target& target) {
  if (target.isa != Isa::kAvx2) return false;  // not measured elsewhere
  const std::optional<WinogradBlocks> blocks = winograd_blocks(shape, panel_of(target), target);
  if (!blocks) return false;
  constexpr double kLibrary = 0.87;  // of what the CPU can multiply
  constexpr double kFilter = 8;      // cycles a weight
  const double filter = weights_stay ? 0 : kFilter * static_cast<double>(shape.terms * shape.columns);
  const double products = static_cast<double>(shape.batch * shape.height * shape.width * shape.terms *
                                              shape.columns * kWindow * kWindow);
  const double direct = products / (2 * kLibrary * target.lanes(Dtype::kF32));
  return blocks->cycles < (direct - filter) / std::max(target.threads, 1);
}

Shape winograd_filter_shape(const WinogradShape& shape, const loop::Target& target) {
  const int64_t panel = panel_of(target);
  return {index_const(kPlanes), index_const(shape.columns / panel), index_const(shape.terms),
          index_const(panel)};
}

loop::Function lower_winograd_filter(const Graph& body, const std::vector<OperandLayout>& inputs,
                                     const std::vector<OperandLayout>& outputs, const std::string& name,
                                     const loop::Target& target) {
  return WinogradBuilder(body, inputs, outputs, target).filter(name);
}

loop::Function lower_winograd(const Graph& body, const std::vector<OperandLayout>& inputs,
                              const std::vector<OperandLayout>& outputs, const std::string& name,
                              const loop::Target& target) {
  return WinogradBuilder(body, inputs, outputs, target).convolution(name);
}

}  // namespace ipex::graph
