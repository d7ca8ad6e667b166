// Convolutions with 3 x 3 windows by Winograd's minimal filtering, F(2 x 2, 3 x 3): a tile of four results
// takes 16 multiplications of transformed numbers instead of 36.
//
// Winograd, Arithmetic complexity of computations, 1980; Lavin and Gray, Fast algorithms for convolutional
// neural networks, CVPR 2016. With tiles this small the transforms only add and halve, and the error is
// smaller than that of the library's sum over windows. An infinity in a window gives NaN instead of an
// infinity, because infinite terms are subtracted. Only tiles that contain the infinity are affected.
#pragma once

#include <optional>

#include "backend/lower/lower.h"

namespace ipex::graph {

inline constexpr int64_t kWinogradTile = 4, kWinogradOutputs = 2;  // along a dim
inline constexpr int64_t kWinogradPlanes = kWinogradTile * kWinogradTile;

// A convolution x[batch, terms, ..] to [batch, columns, height, width]. The names are those of the matrix
// products of the method: terms are input channels, columns are output channels.
struct WinogradShape {
  int64_t terms, columns;  // channels
  int64_t height, width;   // of the result
  int64_t batch;           // a hint if the batch is symbolic

  int64_t tiles_of_image() const;
};

// The partition of the work: a part is a number of tiles by one of `column_blocks` blocks of columns.
struct WinogradBlocks {
  int64_t tiles, column_blocks;
  double cycles;  // estimate for the slowest thread, for the whole convolution
};
// nullopt if the channels do not fill vectors, or panels of `panel` columns.
std::optional<WinogradBlocks> winograd_blocks(const WinogradShape& shape, int64_t panel,
                                              const loop::Target& target);
// Whether the method is faster than the library's sum over windows. `weights_stay`: the weights are
// parameters, whose transform is hoisted.
bool winograd_best(const WinogradShape& shape, bool weights_stay, const loop::Target& target);

// How the gradient of a convolution's weights is computed: one matrix product for each tap of the window, or
// for each plane of Winograd's method.
enum class WeightGradientMethod : uint8_t { kLibrary, kTaps, kWinograd };
WeightGradientMethod weight_gradient_method(const WinogradShape& shape, int64_t taps, bool winograd_applies,
                                            const loop::Target& target);
// The partition of its work: shares of the positions (tiles or single positions), each with its own sums, by
// groups of panels of terms. Each part reads only data that it packed itself, because sharing cache lines
// between chiplets is slow (17 instead of 11 ms for 64 by 64 channels of 16 x 56 x 56, two threads on Zen 4).
struct WeightGradientParts {
  int64_t shares, groups, panels;  // panels per group
};
// The largest number of positions that are packed before they are multiplied. Two panels of them stay in L1,
// and longer sums are less exact.
inline constexpr int64_t kMaxPositions = 128;
WeightGradientParts weight_gradient_parts(const WinogradShape& shape, int64_t planes,
                                          const loop::Target& target);

int64_t winograd_panel(const loop::Target& target);  // columns of the micro-kernel's tile

// The shape of the transformed weights: [16, columns / panel, terms, panel], with panels as wide as the
// micro-kernel's tile.
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
