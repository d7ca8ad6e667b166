// What Winograd's convolutions and gradients of weights are written with: tiles, the transforms of one row,
// and the transform of the input, which both begin with.
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
  // Elements that keep what is written together from lying a multiple of 4 KB apart, in one set of L1.
  static constexpr int64_t kApart = 2 * loop::kCacheLine / 4;

  WinogradBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                  const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : NestBuilder(body, inputs, outputs, target) {}

  // Tiles of `results`, whose windows of `x` begin where `padding` says.
  WinogradShape set_shape(const Tensor& x, const Tensor& results);

  struct Place {  // of a tile's first result
    loop::Expr image, row, column;
  };
  Place place_of(Body& out, const loop::Expr& tile);
  static loop::Expr position(const Tensor& x, const std::vector<loop::Expr>& index);

  // [r][q]: whether rows[r] and columns[q] hold.
  template <size_t n>
  std::array<ExprRow<n>, n> pairs(Body& out, const ExprRow<n>& rows, const ExprRow<n>& columns);
  // x < 0, not as a comparison of indices, for which partition_loops would write a transform once more.
  static loop::Expr is_negative(const loop::Expr& x);
  // Whether the results of a tile exist, by row and column.
  std::array<ExprRow<kOut>, kOut> existing(Body& out, const Place& at, const Tensor& results);

  struct Groups {  // of `width` channels: begin, .., end - 1
    int64_t width;
    loop::Expr begin, end;
  };
  // The window of x of the tile `at`, transformed, to `parts`: of these channels, each number where `to`
  // says.
  using Destination =
      std::function<loop::Expr(int64_t plane, const loop::Expr& group, const loop::Expr& lane)>;
  void transform_input(Body& out, const Tensor& x, const Place& at, const Groups& groups,
                       const std::string& parts, const Destination& to);

  // B^T d, G g, A^T m and their adjoints, of one row or column.
  static ExprRow<4> input_row(const ExprRow<4>& d);
  static ExprRow<4> filter_row(const ExprRow<3>& g);
  static ExprRow<2> output_row(const ExprRow<4>& m);
  static ExprRow<4> output_row_back(const ExprRow<2>& y);
  static ExprRow<3> filter_row_back(const ExprRow<4>& u);

  int64_t terms_ = 0, columns_ = 0;  // channels of x and of the results
  int64_t tiles_across_ = 0, tiles_of_image_ = 0;
  loop::Expr tiles_;  // there are
};

}  // namespace ipex::graph
