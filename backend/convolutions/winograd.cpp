#include "backend/convolutions/winograd.h"

#include "backend/convolutions/winograd_builder.h"
#include "backend/lower/post_ops.h"
#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_load;
using loop::make_var;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

namespace {

class WinogradLowering : WinogradBuilder {
 public:
  WinogradLowering(const Graph& body, const std::vector<OperandLayout>& inputs,
                   const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : WinogradBuilder(body, inputs, outputs, target) {}

  loop::Function filter(const std::string& name) {
    const Tensor &w = inputs_[0], &u = outputs_[0];
    const bool gradient = node_.get<WinogradFilter>().gradient;
    const Expr terms = u.shape[2], width = u.shape[3];
    Body body;
    parallel(body, u.shape[1] * terms, index_const(kPlanes * loop::kTileVectors * lanes()),
             [&](const Expr& part, Body& inner) {
               const Expr of_panel = let(inner, "panel", floordiv(part, terms)),
                          term = let(inner, "channel", floormod(part, terms));
               vectors(inner, "column", width, [&](const Expr& column, Body& lanes) {
                 const Expr out = of_panel * width + column;
                 std::array<ExprRow<4>, kWindow> once;
                 for (int64_t r = 0; r < kWindow; ++r) {
                   ExprRow<3> g;
                   for (int64_t q = 0; q < kWindow; ++q) {
                     // The gradient of the data is a convolution by the rotated window with exchanged
                     // channels.
                     const int64_t row = gradient ? kWindow - 1 - r : r,
                                   column_in_row = gradient ? kWindow - 1 - q : q;
                     const Expr at = position(w, {gradient ? term : out, gradient ? out : term,
                                                  index_const(row), index_const(column_in_row)});
                     g[q] = let(lanes, "w", make_load(w.buffer, w.dtype, at));
                   }
                   once[r] = filter_row(g);
                   for (Expr& x : once[r]) x = let(lanes, "g", x);
                 }
                 for (int64_t q = 0; q < kTile; ++q) {
                   const ExprRow<4> column_of_u = filter_row({once[0][q], once[1][q], once[2][q]});
                   for (int64_t r = 0; r < kTile; ++r)
                     store(lanes, u.buffer, position(u, {index_const(r * kTile + q), of_panel, term, column}),
                           column_of_u[r]);
                 }
               });
             });
    return function(name, std::move(body));
  }

  loop::Function convolution(const std::string& name) {
    const Tensor& y = outputs_[0];
    const WinogradShape shape = set_shape(inputs_[0], y);
    panel_ = *as_const_int(inputs_[1].shape[3]);
    const auto found = winograd_blocks(shape, panel_, target_);
    IPEX_CHECK(found, "winograd: channels of x must fill vectors, channels of the result must fill panels");
    const WinogradBlocks& blocks = *found;
    const int64_t tile_rows = loop::tile_rows(target_);
    block_columns_ = columns_ / blocks.column_blocks;
    block_rows_ = loop::divided_up(blocks.tiles, tile_rows) * tile_rows;
    input_plane_ = block_rows_ * terms_ + kApart;
    sum_plane_ = block_rows_ * block_columns_ + kApart;
    const Expr size = index_const(blocks.tiles), column_blocks = index_const(blocks.column_blocks);
    Body body;
    parallel(body, ceildiv(tiles_, size) * column_blocks,
             index_const(blocks.tiles * kPlanes * terms_ * block_columns_),
             [&](const Expr& part, Body& inner) {
               const Expr columns = let(inner, "column_block", floormod(part, column_blocks)),
                          first = let(inner, "first_tile", floordiv(part, column_blocks) * size),
                          count = let(inner, "tile_count", least(size, tiles_ - first));
               const std::string parts = alloc(inner, "parts", index_const(kPlanes * input_plane_)),
                                 sums = alloc(inner, "sums", index_const(kPlanes * sum_plane_));
               // The last tile is repeated to fill the rows of the micro-kernel.
               const Expr rows =
                   let(inner, "row_count", ceildiv(count, index_const(tile_rows)) * index_const(tile_rows));
               serial(inner, "tile", index_const(0), rows, [&](const Expr& tile, Body& each) {
                 const auto to = [&](int64_t plane, const Expr&, const Expr& lane) {
                   return index_const(plane * input_plane_) + tile * index_const(terms_) + lane;
                 };
                 const Place at = place_of(each, least(first + tile, tiles_ - index_const(1)));
                 transform_input(each, inputs_[0], at, {terms_, index_const(0), index_const(1)}, parts, to);
               });
               multiply(inner, columns, rows, parts, sums);
               serial(inner, "tile", index_const(0), count, [&](const Expr& tile, Body& each) {
                 transform_sums(each, tile, first + tile, columns, sums);
               });
             });
    return function(name, std::move(body));
  }

 private:
  // In each plane: the matrix of tiles by terms times the matrix of terms by columns.
  void multiply(Body& out, const Expr& column_block, const Expr& row_count, const std::string& parts,
                const std::string& sums) {
    const Tensor& u = inputs_[1];
    const int64_t tile_rows = loop::tile_rows(target_), panels = block_columns_ / panel_,
                  vectors = panel_ / lanes();
    const bool cached = kPlanes * terms_ * columns_ * itemsize(dtype_) <= target_.l2_bytes;
    serial(out, "plane", index_const(0), index_const(kPlanes), [&](const Expr& plane, Body& of_plane) {
      serial(of_plane, "panel", index_const(0), index_const(panels), [&](const Expr& p, Body& of_panel) {
        const Expr number = column_block * index_const(panels) + p;
        const Expr filter =
            let(of_panel, "filter", position(u, {plane, number, index_const(0), index_const(0)}));
        const Expr tiles = floordiv(row_count, index_const(tile_rows));
        serial(of_panel, "rows", index_const(0), tiles, [&](const Expr& t, Body& body) {
          const Expr row = t * index_const(tile_rows);
          const Expr a = let(body, "a_row", plane * index_const(input_plane_) + row * index_const(terms_));
          const Expr c = let(
              body, "sum_row",
              plane * index_const(sum_plane_) + row * index_const(block_columns_) + p * index_const(panel_));
          loop::ProductTile tile{.k = {.var = names_.fresh("term")}};
          tile.k.begin = index_const(0);
          tile.k.end = index_const(terms_);
          const Expr term = make_var(tile.k.var);
          for (int64_t r = 0; r < tile_rows; ++r)
            tile.a.push_back(load(parts, a + index_const(r * terms_) + term));
          for (int64_t v = 0; v < vectors; ++v)
            tile.b.push_back(make_load(u.buffer, dtype_, vector_at(filter + term * u.layout.strides[2], v)));
          const std::vector<Expr> results =
              cached ? loop::multiply(tile, names_, body)
                     : loop::multiply_with_prefetch(std::move(tile), next_panel(plane, number, t, tiles),
                                                    names_, body);
          for (int64_t r = 0; r < tile_rows; ++r)
            for (int64_t v = 0; v < vectors; ++v)
              body.push_back(Store{sums, vector_at(c + index_const(r * block_columns_), v),
                                   results[r * vectors + v], nullptr});
        });
      });
    });
  }

  // The lines of the next panel to prefetch during one of the `passes` over this panel. After the last panel
  // it is that panel itself.
  loop::PrefetchLines next_panel(const Expr& plane, const Expr& number, const Expr& pass,
                                 const Expr& passes) const {
    const Tensor& u = inputs_[1];
    const int64_t in_line = loop::kCacheLine / itemsize(dtype_), lines = terms_ * panel_ / in_line;
    const Expr of_pass = simplify(ceildiv(index_const(lines), passes));
    const Expr begin = position(u, {plane, number + index_const(1), index_const(0), index_const(0)});
    return {of_pass, [=, &u](const Expr& line) {
              const Expr at = begin + (pass * of_pass + line) * index_const(in_line);
              return make_load(u.buffer, u.dtype, least(at, u.layout.extent - index_const(1)));
            }};
  }

  // Results beyond the edges are not stored, and their post-op operands are not read.
  void transform_sums(Body& out, const Expr& row, const Expr& tile, const Expr& column_block,
                      const std::string& sums) {
    const Tensor& y = outputs_[0];
    const Place at = place_of(out, tile);
    const auto exists = existing(out, at, y);
    vectors(out, "column", index_const(block_columns_), [&](const Expr& column, Body& lanes) {
      const Expr channel = let(lanes, "channel", column_block * index_const(block_columns_) + column);
      std::array<ExprRow<4>, kOut> s;
      for (int64_t q = 0; q < kTile; ++q) {
        ExprRow<4> m;
        for (int64_t r = 0; r < kTile; ++r)
          m[r] = let(lanes, "m",
                     load(sums, index_const((r * kTile + q) * sum_plane_) +
                                    row * index_const(block_columns_) + column));
        const ExprRow<2> once = output_row(m);
        for (int64_t r = 0; r < kOut; ++r) s[r][q] = let(lanes, "s", once[r]);
      }
      for (int64_t r = 0; r < kOut; ++r) {
        const ExprRow<2> values = output_row(s[r]);
        for (int64_t q = 0; q < kOut; ++q) {
          const Expr mask = exists[r][q];
          const std::vector<Expr> index{at.image, channel, simplify(at.row + index_const(r)),
                                        simplify(at.column + index_const(q))};
          lanes.push_back(Store{y.buffer, position(y, index), finished(lanes, values[q], index, mask), mask});
        }
      }
    });
  }

  Expr finished(Body& out, Expr sum, const std::vector<Expr>& index, const Expr& mask) {
    const auto operand = [&](size_t k) {
      const Tensor& x = inputs_[k];
      std::vector<Expr> at;
      for (size_t d = 0; d < x.shape.size(); ++d) {
        const Expr& full = index[index.size() - x.shape.size() + d];
        at.push_back(as_const_int(x.shape[d]) == 1 ? index_const(0) : full);
      }
      return loop::make_cast(dtype_, make_load(x.buffer, x.dtype, position(x, at), mask));
    };
    size_t next = 2;
    if (has_bias(node_)) {
      const Tensor& bias = inputs_[next++];
      sum = sum + make_load(bias.buffer, bias.dtype, position(bias, {index[1]}));
    }
    return with_post_ops(node_, sum, next, operand, [&](const Expr& x) { return let(out, "acc", x); });
  }

  int64_t panel_ = 0;                           // adjacent columns in u
  int64_t block_rows_ = 0, block_columns_ = 0;  // per part; rows are tiles
  int64_t input_plane_ = 0, sum_plane_ = 0;     // elements per plane of scratch memory
};

}  // namespace

loop::Function lower_winograd_filter(const Graph& body, const std::vector<OperandLayout>& inputs,
                                     const std::vector<OperandLayout>& outputs, const std::string& name,
                                     const loop::Target& target) {
  return WinogradLowering(body, inputs, outputs, target).filter(name);
}

loop::Function lower_winograd(const Graph& body, const std::vector<OperandLayout>& inputs,
                              const std::vector<OperandLayout>& outputs, const std::string& name,
                              const loop::Target& target) {
  return WinogradLowering(body, inputs, outputs, target).convolution(name);
}

}  // namespace ipex::graph
