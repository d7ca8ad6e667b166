// The machine that code is generated for, as data: every number and capability that a pass may ask for. A
// field describes the machine or is a threshold that was measured on one; numbers that belong to an algorithm
// are constants beside it. target.cpp has one row for each ISA.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "runtime/cpu.h"
#include "runtime/dtype.h"

namespace ipex::loop {

inline constexpr int64_t kCacheLine = 64;  // bytes, on every CPU with AVX2

// A register tile of a matrix product: rows times vectors of sums.
struct TileShape {
  int64_t rows, vectors;
  double relative_time;  // of a product that the tiles fill; 1 for the fastest shape
};

// What choose_schedule compares nests by. The unit is one vector operation, divided by its lanes.
struct CostModel {
  double strided_access = 8;     // one lane of a gather; a contiguous access costs 1 for four bytes a lane
  double uniform_access = 0.25;  // one lane of a value that is loaded once for all lanes
  double loop_entry = 64;
  double lane_merge = 240;         // reducing a vector of partial results to one result
  double tuple_merge_factor = 6;   // times lane_merge, where merging takes several instructions
  double ownership_test = 8;       // finding that a row belongs to another thread
  double serial_work = 32 << 10;   // a nest with less work runs on one thread
  double grain_work = 16 << 10;    // the least work that a thread is woken for
  double split_work = 256 << 10;   // the least work of a reduction that is split into two stages
  double chunk_work = 64 << 10;    // of one chunk of such a reduction
  double latency_bound_work = 10;  // additions a step; a reduction with more keeps a core busy without help
};

struct Target {
  // ---- the ISA ----
  Isa isa = Isa::kAvx2;
  const char* cpu = "";       // LLVM's -mcpu
  const char* features = "";  // LLVM's feature string
  const char* sleef = "";     // suffix of Sleef's functions on whole registers
  int vector_bytes = 32;      // of a register
  int vector_registers = 16;
  bool masked_memory = false;  // masked loads and stores of elements of 2 to 8 bytes cost no extra time
  bool native_bf16 = false;    // instructions convert to bf16 and multiply pairs of it
  bool two_register_permute = false;  // one instruction permutes the lanes of two registers
  bool scale_by_power = false;  // one instruction multiplies by a power of two and rounds denormals once
  int table_lanes = 8;          // entries of f32 of a table that one permutation of a register looks up
  int unpack_bytes = 16;        // unpack instructions interleave elements within groups of so many bytes

  // ---- the core ----
  bool matrix_tiles = false;  // this CPU has AMX, which the library uses and our kernels do not
  int vector_multiplies = 2;  // multiply-adds of a vector that begin in a cycle
  int accumulators = 4;       // independent sums that hide the latency of an addition
  int math_accumulators = 1;  // vectors in flight in a loop that computes functions or divides
  int scan_states = 8;        // states of a scan over several rows that stay in registers
  CostModel costs;

  // ---- memory ----
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;
  int64_t conflict_stride = 2048;       // bytes; rows at multiples of it share a few sets of L1
  int64_t distant_stride = 1 << 10;     // bytes; the hardware does not prefetch across rows so far apart
  int64_t distant_row_bytes = 1 << 10;  // the least row whose distant successor is worth a prefetch
  int64_t max_shuffled_stride = 4;      // elements; a larger stride is a gather instead of loads and shuffles
  int64_t max_transposed_bytes = 64;    // of a row of a block that is transposed in registers
  // Elements of a row of a tile, when a matrix that the caches do not hold is transposed; and of two bytes
  // each.
  int64_t transposed_line = 64, transposed_line_halves = 128;
  int64_t cached_elements = 64 << 10;   // of a matrix that stays in cache between two visits
  int64_t cached_rows = 64;             // of a vector of columns that stays in cache between two visits
  int64_t long_row_bytes = 512;         // a matrix with shorter rows is not summed row by row
  int64_t cached_sum_bytes = 16 << 10;  // sums that stay in L1 beside the rows that stream through it
  int64_t memory_streams = 8;           // rows that a thread reads at once without losing bandwidth

  // ---- matrix products ----
  std::array<TileShape, 3> tile_shapes = {};  // of f32, fastest first; zeros at the end
  int64_t max_tile_rows = 13;         // each row in flight takes an address in one of 16 general registers
  int64_t packing_cost_rows = 16;     // packing a panel takes as long as so many rows of products with it
  int64_t grain_fmas = 128 << 10;     // multiply-adds that are worth waking a thread for
  int64_t parallel_merge = 32 << 10;  // partial results that are worth merging on several threads
  // block_products is as fast as the library on packed weights of f32 from so many rows on, if the weights
  // have more elements than this.
  int64_t min_blocked_rows = 32, max_library_weights = -1;
  // It is as fast on weights that are not packed ahead for up to so many rows.
  int64_t max_unpacked_rows = std::numeric_limits<int64_t>::max();
  int64_t gradient_tile_rows = 6;  // of the product that computes the gradient of a convolution's weights
  // What the library's gradient of a convolution's weights reaches of the peak, and where windows have a
  // stride.
  double library_gradient = 0.55, library_strided_gradient = 0.55;

  int threads = 1;  // a hint for grains; results do not depend on it

  int lanes(Dtype dtype) const { return vector_bytes / static_cast<int>(itemsize(opmath(dtype))); }
};

Target target_for(Isa isa);
// With nominal caches and threads, for code that is to be the same whatever machine compiles it.
Target portable_target(Isa isa);
Target current_target();  // of runtime/cpu.h's current_isa()

}  // namespace ipex::loop
