#include "backend/convolutions/winograd_builder.h"

#include <algorithm>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_load;
using loop::ScalarOp;
using loop::simplify;

namespace {

Expr half(const Expr& x) { return make_apply(ScalarOp::mul_, {x, loop::make_const(x->type, 0.5)}); }

}  // namespace

ExprRow<4> WinogradBuilder::input_row(const ExprRow<4>& d) {
  return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
}

ExprRow<4> WinogradBuilder::filter_row(const ExprRow<3>& g) {
  const Expr outer = g[0] + g[2];
  return {g[0], half(outer + g[1]), half(outer - g[1]), g[2]};
}

ExprRow<2> WinogradBuilder::output_row(const ExprRow<4>& m) {
  return {m[0] + m[1] + m[2], m[1] - m[2] - m[3]};
}

ExprRow<4> WinogradBuilder::output_row_back(const ExprRow<2>& y) {
  return {y[0], y[0] + y[1], y[0] - y[1], make_apply(ScalarOp::neg_, {y[1]})};
}

ExprRow<3> WinogradBuilder::filter_row_back(const ExprRow<4>& u) {
  const Expr sum = half(u[1] + u[2]);
  return {u[0] + sum, half(u[1] - u[2]), sum + u[3]};
}

WinogradShape WinogradBuilder::set_shape(const Tensor& x, const Tensor& results) {
  const auto known = [](const Dim& dim) { return *as_const_int(dim); };
  terms_ = known(x.shape[1]);
  columns_ = known(results.shape[1]);
  const WinogradShape shape{terms_, columns_, known(results.shape[2]), known(results.shape[3]),
                            std::max<int64_t>(hint(results.shape[0], graph_), 1)};
  tiles_across_ = loop::divided_up(shape.width, kOut);
  tiles_of_image_ = shape.tiles_of_image();
  tiles_ = simplify(results.shape[0] * index_const(tiles_of_image_));
  return shape;
}

Expr WinogradBuilder::position(const Tensor& x, const std::vector<Expr>& index) {
  Expr at = x.layout.offset;
  for (size_t d = 0; d < index.size(); ++d) at = at + index[d] * x.layout.strides[d];
  return simplify(at);
}

WinogradBuilder::Place WinogradBuilder::place_of(Body& out, const Expr& tile) {
  const Expr number = let(out, "tile_number", tile), all = index_const(tiles_of_image_),
             across = index_const(tiles_across_);
  const Expr in_image = let(out, "in_image", floormod(number, all));
  return {let(out, "image", floordiv(number, all)),
          let(out, "top", floordiv(in_image, across) * index_const(kOut)),
          let(out, "left", floormod(in_image, across) * index_const(kOut))};
}

Expr WinogradBuilder::is_negative(const Expr& x) {
  return make_apply(ScalarOp::ne_,
                    {make_apply(ScalarOp::shr_, {simplify(x), index_const(63)}), index_const(0)});
}

template <size_t n>
std::array<ExprRow<n>, n> WinogradBuilder::pairs(Body& out, const ExprRow<n>& rows,
                                                 const ExprRow<n>& columns) {
  std::array<ExprRow<n>, n> holds;
  for (size_t r = 0; r < n; ++r)
    for (size_t q = 0; q < n; ++q) {
      const Expr pair = both(rows[r], columns[q]);
      holds[r][q] = rows[r] && columns[q] ? let(out, "holds", pair) : pair;
    }
  return holds;
}

std::array<ExprRow<2>, 2> WinogradBuilder::existing(Body& out, const Place& at, const Tensor& results) {
  const auto second = [&](const Expr& first, const Dim& size) {
    return *as_const_int(size) % kOut == 0 ? Expr()
                                           : let(out, "exists", is_negative(first + index_const(1) - size));
  };
  return pairs<2>(out, {Expr(), second(at.row, results.shape[2])},
                  {Expr(), second(at.column, results.shape[3])});
}

// Rows and columns beyond an edge of the image are zeros and are not read.
void WinogradBuilder::transform_input(Body& out, const Tensor& x, const Place& at, const Groups& groups,
                                      const std::string& parts, const Destination& to) {
  const auto* winograd = node_.get_if<Winograd>();
  const Ints& padding = winograd ? winograd->padding : node_.get<WeightGradient>().padding;
  struct Side {  // the rows or the columns of the window
    Expr first;
    ExprRow<kTile> inside;  // null: always inside
  };
  const auto side = [&](std::string_view name, const Expr& result, int64_t before, const Dim& size,
                        int64_t tiles) {
    Side all{let(out, name, result - index_const(before)), {}};
    const int64_t last = (tiles - 1) * kOut - before;
    for (int64_t k = 0; k < kTile; ++k) {
      const Expr place = all.first + index_const(k);
      const Expr inside = both(k < before ? is_negative(index_const(-1) - place) : Expr(),
                               last + k >= *as_const_int(size) ? is_negative(place - size) : Expr());
      if (inside) all.inside[k] = let(out, "inside", inside);
    }
    return all;
  };
  const Side rows = side("input_top", at.row, padding[0], x.shape[2], tiles_of_image_ / tiles_across_),
             columns = side("input_left", at.column, padding[1], x.shape[3], tiles_across_);
  const auto inside = pairs<kTile>(out, rows.inside, columns.inside);
  const Expr width = index_const(groups.width);
  serial(out, "group", groups.begin, groups.end, [&](const Expr& group, Body& of_group) {
    vectors(of_group, "lane", width, [&](const Expr& lane, Body& lanes) {
      const Expr channel = group * width + lane;
      std::array<ExprRow<4>, kTile> d;
      for (int64_t q = 0; q < kTile; ++q) {
        ExprRow<4> column;
        for (int64_t r = 0; r < kTile; ++r) {
          const Expr from = position(x, {at.image, channel, simplify(rows.first + index_const(r)),
                                         simplify(columns.first + index_const(q))});
          column[r] = let(lanes, "x", make_load(x.buffer, x.dtype, from, inside[r][q]));
        }
        const ExprRow<4> once = input_row(column);
        for (int64_t r = 0; r < kTile; ++r) d[r][q] = let(lanes, "d", once[r]);
      }
      for (int64_t r = 0; r < kTile; ++r) {
        const ExprRow<4> twice = input_row(d[r]);
        for (int64_t q = 0; q < kTile; ++q) store(lanes, parts, to(r * kTile + q, group, lane), twice[q]);
      }
    });
  });
}

}  // namespace ipex::graph
