#include "backend/lower/winograd_builder.h"

#include <algorithm>

#include "codegen/loop/simplify.h"
#include "codegen/passes/loop_nest.h"

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

Expr WinogradBuilder::both(const Expr& a, const Expr& b) { return make_apply(ScalarOp::bitand_, {a, b}); }

void WinogradBuilder::branch(Body& out, const Expr& condition, Body yes, Body no) {
  out.push_back(loop::If{condition, loop::make_block(std::move(yes)), loop::make_block(std::move(no))});
}

void WinogradBuilder::each_tile(Body& out, const Place& at, const Tensor& results,
                                const std::function<void(Body& body, const Exists& exists)>& write) {
  const Dim &rows = results.shape[2], &columns = results.shape[3];
  if (*as_const_int(rows) % kOut == 0 && *as_const_int(columns) % kOut == 0)
    return write(out, [](int64_t, int64_t) { return Expr(); });
  const auto second = [&](std::string_view name, const Expr& first, const Dim& size) {
    return let(out, name, make_apply(ScalarOp::lt_, {simplify(first + index_const(1)), size}));
  };
  const Expr row = second("second_row", at.row, rows), column = second("second_column", at.column, columns);
  Body whole, cut;
  write(whole, [](int64_t, int64_t) { return Expr(); });
  write(cut, [&](int64_t r, int64_t q) {
    if (r > 0 && q > 0) return both(row, column);
    return r > 0 ? row : q > 0 ? column : Expr();
  });
  branch(out, both(row, column), std::move(whole), std::move(cut));
}

// A window across an edge is first copied, with the zeros that lie beyond.
void WinogradBuilder::transform_input(Body& out, const Tensor& x, const Expr& tile, const Groups& groups,
                                      const std::string& parts, const Destination& to) {
  const auto& padding = node_.attr<std::vector<int64_t>>("padding");
  const Place at = place_of(out, tile);
  const Expr top = let(out, "input_top", at.row - index_const(padding[0])),
             left = let(out, "input_left", at.column - index_const(padding[1]));
  const auto inside = [&](const Expr& first, int64_t count, const Dim& size) {
    return both(make_apply(ScalarOp::ge_, {first, index_const(0)}),
                make_apply(ScalarOp::le_, {simplify(first + index_const(count)), size}));
  };
  const auto given = [&](const Expr& r, const Expr& q, const Expr& channel) {
    const Expr from = position(x, {at.image, channel, simplify(top + r), simplify(left + q)});
    return make_load(x.buffer, x.dtype, from);
  };
  const Expr channels = index_const(terms_), side = index_const(kTile), width = index_const(groups.width),
             first = simplify(groups.begin * width), count = simplify((groups.end - groups.begin) * width);
  const auto transform = [&](Body& body,
                             const std::function<Expr(int64_t, int64_t, const Expr&)>& number_at) {
    serial(body, "group", groups.begin, groups.end, [&](const Expr& group, Body& of_group) {
      vectors(of_group, "lane", width, [&](const Expr& lane, Body& lanes) {
        const Expr channel = group * width + lane;
        std::array<ExprRow<4>, kTile> d;
        for (int64_t q = 0; q < kTile; ++q) {
          ExprRow<4> column;
          for (int64_t r = 0; r < kTile; ++r) column[r] = let(lanes, "x", number_at(r, q, channel));
          const ExprRow<4> once = input_row(column);
          for (int64_t r = 0; r < kTile; ++r) d[r][q] = let(lanes, "d", once[r]);
        }
        for (int64_t r = 0; r < kTile; ++r) {
          const ExprRow<4> twice = input_row(d[r]);
          for (int64_t q = 0; q < kTile; ++q) store(lanes, parts, to(r * kTile + q, group, lane), twice[q]);
        }
      });
    });
  };
  Body within, across;
  transform(within, [&](int64_t r, int64_t q, const Expr& channel) {
    return given(index_const(r), index_const(q), channel);
  });
  const std::string window = alloc(across, "window", index_const(kPlanes * terms_));
  serial(across, "place", index_const(0), index_const(kPlanes), [&](const Expr& place, Body& body) {
    const Expr r = let(body, "window_row", floordiv(place, side)),
               q = let(body, "window_column", floormod(place, side));
    const auto copy = [&](bool is_inside) {
      Body copied;
      vectors(copied, "channel", count, [&](const Expr& lane, Body& lanes) {
        const Expr channel = first + lane;
        store(lanes, window, place * channels + channel, is_inside ? given(r, q, channel) : number(0));
      });
      return copied;
    };
    branch(body, both(inside(top + r, 1, x.shape[2]), inside(left + q, 1, x.shape[3])), copy(true),
           copy(false));
  });
  transform(across, [&](int64_t r, int64_t q, const Expr& channel) {
    return load(window, index_const(r * kTile + q) * channels + channel);
  });
  const Expr whole = both(inside(top, kTile, x.shape[2]), inside(left, kTile, x.shape[3]));
  branch(out, let(out, "whole", whole), std::move(within), std::move(across));
}

}  // namespace ipex::graph
