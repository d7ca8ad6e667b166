// The common base of Winograd's convolutions and of gradients of weights: tiles, the transforms of one row,
// and the transform of the input.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "backend/convolutions/winograd.h"
#include "backend/lower/index.h"
#include "backend/lower/nest_builder.h"

namespace ipex::graph {

template <size_t n>
using ExprRow = std::array<loop::Expr, n>;

class WinogradBuilder : protected NestBuilder {
 protected:
  static constexpr int64_t kTile = kWinogradTile, kOut = kWinogradOutputs, kPlanes = kWinogradPlanes;
  static constexpr int64_t kWindow = 3;
  // Padding in elements, so that data that is written together is not a multiple of 4 KB apart, which would
  // map it to one set of L1.
  static constexpr int64_t kApart = 2 * loop::kCacheLine / 4;

  WinogradBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                  const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : NestBuilder(body, inputs, outputs, target) {}

  // Sets the sizes for a convolution from `x` to `results`.
  WinogradShape set_shape(const Tensor& x, const Tensor& results);

  struct Place {  // of a tile's first result
    loop::Expr image, row, column;
  };
  Place place_of(Body& out, const loop::Expr& tile);
  static loop::Expr position(const Tensor& x, const std::vector<loop::Expr>& index);

  // The conjunctions [r][q] of rows[r] and columns[q].
  template <size_t n>
  std::array<ExprRow<n>, n> pairs(Body& out, const ExprRow<n>& rows, const ExprRow<n>& columns);
  // x < 0, but not as a comparison of indices: partition_loops would duplicate the transform for that.
  static loop::Expr is_negative(const loop::Expr& x);
  // By row and column: whether the result of the tile exists.
  std::array<ExprRow<kOut>, kOut> existing(Body& out, const Place& at, const Tensor& results);

  struct Groups {  // the groups begin, .., end - 1 of `width` channels
    int64_t width;
    loop::Expr begin, end;
  };
  // Transforms the window of x of the tile `at`, for these channels, and stores each number to `parts` at the
  // position that `to` gives.
  using Destination =
      std::function<loop::Expr(int64_t plane, const loop::Expr& group, const loop::Expr& lane)>;
  void transform_input(Body& out, const Tensor& x, const Place& at, const Groups& groups,
                       const std::string& parts, const Destination& to);

  // B^T d, G g, A^T m and the adjoints of the last two, for one row or column.
  static ExprRow<4> input_row(const ExprRow<4>& d);
  static ExprRow<4> filter_row(const ExprRow<3>& g);
  static ExprRow<2> output_row(const ExprRow<4>& m);
  static ExprRow<4> output_row_back(const ExprRow<2>& y);
  static ExprRow<3> filter_row_back(const ExprRow<4>& u);

  int64_t terms_ = 0, columns_ = 0;  // input and output channels
  int64_t tiles_across_ = 0, tiles_of_image_ = 0;
  loop::Expr tiles_;  // number of tiles
};

}  // namespace ipex::graph
