// Convolutions of windows of 3 x 3 by Winograd's minimal filtering, F(2 x 2, 3 x 3): four results of a tile
// are found by 16 products of transformed numbers, where their windows hold 36.
//
// Winograd, Arithmetic complexity of computations, 1980; Lavin and Gray, Fast algorithms for convolutional
// neural networks, CVPR 2016. With tiles this small the transforms add and halve only, and the error is less
// than that of the library's sum over windows. An infinity in a window gives NaN, where the sum gives an
// infinity of either sign: two infinite terms are subtracted. No other window has it.
#pragma once

#include <optional>

#include "backend/lower/lower.h"

namespace ipex::graph {

inline constexpr int64_t kWinogradTile = 4, kWinogradOutputs = 2;  // along a dim
inline constexpr int64_t kWinogradPlanes = kWinogradTile * kWinogradTile;

// A convolution by this method: x[batch, terms, ..], result [batch, columns, height, width].
struct WinogradShape {
  int64_t terms, columns;  // channels
  int64_t height, width;   // of the result
  int64_t batch;           // expected, where it is not known

  int64_t tiles_of_image() const;
};

// A part of the work: so many tiles by one of `column_blocks` blocks of columns.
struct WinogradBlocks {
  int64_t tiles, column_blocks;
  double cycles;  // expected of the slowest thread, for all of the convolution
};
// nullopt: the channels fill no vectors, or no panels of so many columns.
std::optional<WinogradBlocks> winograd_blocks(const WinogradShape& shape, int64_t panel,
                                              const loop::Target& target);
// Whether it takes less time than the library's sum over windows; `weights_stay`: their transform is computed
// once.
bool winograd_best(const WinogradShape& shape, bool weights_stay, const loop::Target& target);

// The gradient of the weights of a convolution, in planes of products: of Winograd's method, or one a tap.
enum class WeightGradientMethod : uint8_t { kLibrary, kTaps, kWinograd };
WeightGradientMethod weight_gradient_method(const WinogradShape& shape, int64_t taps, bool winograd_applies,
                                            const loop::Target& target);
// Its work: shares of the positions (tiles, or single ones), each with its own sums, by groups of panels of
// terms. What one lays out no other reads: threads on two chiplets would wait for each other's lines (17 ms
// for 11, 64 by 64 channels of 16 x 56 x 56, two threads on Zen 4).
struct WeightGradientParts {
  int64_t shares, groups, panels;  // panels of a group
};
// Positions that are laid out before they are multiplied, at most: two panels of them stay in L1, and longer
// sums are less exact.
inline constexpr int64_t kMaxPositions = 128;
WeightGradientParts weight_gradient_parts(const WinogradShape& shape, int64_t planes,
                                          const loop::Target& target);

int64_t winograd_panel(const loop::Target& target);  // columns of the micro-kernel

// The weights' transform: [16, columns / panel, terms, panel], a panel as wide as the micro-kernel.
Shape winograd_filter_shape(const WinogradShape& shape, const loop::Target& target);
loop::Function lower_winograd_filter(const Graph& body, const std::vector<OperandLayout>& inputs,
                                     const std::vector<OperandLayout>& outputs, const std::string& name,
                                     const loop::Target& target);
loop::Function lower_winograd(const Graph& body, const std::vector<OperandLayout>& inputs,
                              const std::vector<OperandLayout>& outputs, const std::string& name,
                              const loop::Target& target);
loop::Function lower_weight_gradient(const Graph& body, const std::vector<OperandLayout>& inputs,
                                     const std::vector<OperandLayout>& outputs, const std::string& name,
                                     const loop::Target& target);

}  // namespace ipex::graph
