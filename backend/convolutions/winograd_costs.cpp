// Cost models of Winograd's method: when it is faster than the library, and in which block sizes.
#include <algorithm>

#include "backend/convolutions/winograd.h"
#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"
#include "codegen/product_tile.h"

namespace ipex::graph {

using loop::divided_up;

namespace {

constexpr int64_t kPlanes = kWinogradPlanes;
constexpr double kTransform = 40;       // cycles per vector of transforming 16 numbers: loads, sums, stores
constexpr double kSpilled = 40;         // additional cycles if the transformed numbers do not fit into L2
constexpr double kStreamed = 8;         // bytes of weights per cycle from L3 or memory
constexpr int64_t kMaxSums = 16 << 20;  // of a gradient of weights, over all planes and shares

int64_t rounded_up(int64_t a, int64_t b) { return divided_up(a, b) * b; }

double products_a_cycle(const loop::Target& target) {
  return target.vector_multiplies * target.lanes(Dtype::kF32);
}

// The library's sum over windows.
double direct_cycles(const WinogradShape& shape, const loop::Target& target) {
  constexpr double kLibrary = 0.87;  // of the CPU's peak
  const int64_t products = shape.batch * shape.height * shape.width * shape.terms * shape.columns * 9;
  return static_cast<double>(products) / (kLibrary * products_a_cycle(target));
}

}  // namespace

int64_t WinogradShape::tiles_of_image() const {
  return divided_up(height, kWinogradOutputs) * divided_up(width, kWinogradOutputs);
}

std::optional<WinogradBlocks> winograd_blocks(const WinogradShape& shape, int64_t panel,
                                              const loop::Target& target) {
  const int64_t lanes = target.lanes(Dtype::kF32), rows = loop::tile_rows(target);
  if (shape.columns % panel != 0 || shape.terms % lanes != 0) return std::nullopt;
  constexpr int64_t kMaxTiles = 96;  // per part: the scratch of all threads must fit into L3
  const int64_t tiles = shape.batch * shape.tiles_of_image();
  const auto cost = [&](int64_t of_block, int64_t column_blocks) {
    const auto terms = static_cast<double>(shape.terms), all_lanes = static_cast<double>(lanes),
               columns = static_cast<double>(shape.columns / column_blocks),
               block_rows = static_cast<double>(rounded_up(of_block, rows));
    const double products = block_rows * kPlanes * terms * columns / products_a_cycle(target);
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
    const int64_t tile_bytes = kPlanes * (shape.terms + shape.columns / column_blocks) * 4;
    const int64_t most = std::clamp(4 * target.l2_bytes / tile_bytes, rows, kMaxTiles);
    for (int64_t of_block = rows; of_block <= most; ++of_block) {
      const double cycles = cost(of_block, column_blocks);
      if (!best || cycles < best->cycles) best = {of_block, column_blocks, cycles};
    }
  }
  return best;
}

bool winograd_best(const WinogradShape& shape, bool weights_stay, const loop::Target& target) {
  const auto blocks = winograd_blocks(shape, winograd_panel(target), target);
  if (!blocks) return false;
  constexpr double kFilter = 40;  // cycles per weight; 512 by 512 channels write 26 MB to memory
  const double filter = weights_stay ? 0 : kFilter * static_cast<double>(shape.terms * shape.columns);
  return blocks->cycles < (direct_cycles(shape, target) - filter) / std::max(target.threads, 1);
}

WeightGradientParts weight_gradient_parts(const WinogradShape& shape, int64_t planes,
                                          const loop::Target& target) {
  const int64_t threads = std::max(target.threads, 1), panels = shape.terms / winograd_panel(target);
  const int64_t most_shares =
      std::clamp<int64_t>(kMaxSums / (planes * shape.terms * shape.columns), 1, threads);
  const int64_t of_group = divided_up(panels, std::min(divided_up(threads, most_shares), panels));
  const int64_t groups = divided_up(panels, of_group);
  return {std::clamp<int64_t>(threads / groups, 1, most_shares), groups, of_group};
}

WeightGradientMethod weight_gradient_method(const WinogradShape& shape, int64_t taps, bool winograd_applies,
                                            const loop::Target& target) {
  using enum WeightGradientMethod;
  const int64_t lanes = target.lanes(Dtype::kF32);
  if (shape.terms % winograd_panel(target) != 0 || shape.columns % lanes != 0 ||
      std::max(taps, kPlanes) * shape.terms * shape.columns > kMaxSums)
    return kLibrary;
  // The library reaches half of the CPU's peak, a third with a stride; with AVX-512 (Zen 4) 75 and 60 %. Zen
  // 3, two threads, batch 16, ms of kernel and library: 1 x 1, 256 by 1024 channels of 14 x 14 12 and 18; 64
  // by 256 channels of 56 x 56 20 and 16, because of the cost of packing; 3 x 3 with stride 2 28 and 65;
  // Winograd's method 16 to 25 and 47 to 66.
  const double share =
      taps > 1 && !winograd_applies ? target.library_strided_gradient : target.library_gradient;
  constexpr double kMinGain = 1.15;
  constexpr double kFromMemory = 30, kCopied = 12, kWeight = 4;  // cycles per vector, per sum
  const int64_t weights = shape.terms * shape.columns, positions = shape.batch * shape.height * shape.width;
  const auto with_sums = [&](int64_t count, int64_t planes, double of_channel, double of_copy) {
    const auto [shares, groups, of_group] = weight_gradient_parts(shape, planes, target);
    const int64_t of_share = divided_up(count, shares);
    const int64_t chunks = shares * divided_up(of_share, kMaxPositions);
    const auto terms = static_cast<double>(shape.terms),
               columns = static_cast<double>(shape.columns * groups),
               sums = static_cast<double>(planes * weights);
    const double packing = of_channel * (terms + columns) + of_copy * terms;
    return static_cast<double>(count) *
               (sums / products_a_cycle(target) + packing / static_cast<double>(lanes)) +
           static_cast<double>(chunks) * sums * 8 / kStreamed + kWeight * sums * static_cast<double>(shares);
  };
  const double by_taps = with_sums(positions, taps, kFromMemory, kCopied * static_cast<double>(taps - 1));
  const double by_winograd =
      with_sums(shape.batch * shape.tiles_of_image(), kPlanes, kTransform + kSpilled, 0);
  const double library =
      static_cast<double>(positions * taps * weights) / (share * products_a_cycle(target)) / kMinGain;
  if (winograd_applies && by_winograd < std::min(by_taps, library)) return kWinograd;
  return by_taps < library ? kTaps : kLibrary;
}

int64_t winograd_panel(const loop::Target& target) { return loop::kTileVectors * target.lanes(Dtype::kF32); }

Shape winograd_filter_shape(const WinogradShape& shape, const loop::Target& target) {
  const int64_t panel = winograd_panel(target);
  return {loop::index_const(kPlanes), loop::index_const(shape.columns / panel),
          loop::index_const(shape.terms), loop::index_const(panel)};
}

}  // namespace ipex::graph
