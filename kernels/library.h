// The interface to oneDNN steps: matmul, convolution and LSTM. It does not use oneDNN's types.
//
// Every maker throws Unsupported if oneDNN has only a reference implementation (for an LSTM: none at all).
// The caller then lowers the op in another way. Primitives for static shapes are created at once; those for
// symbolic shapes are cached by sizes. Scratchpads come from the caching allocator. Steps are re-entrant.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cpu.h"
#include "runtime/executable.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

// A fused epilogue (post-op). Text form: "relu", "clip:0:6", "add", "sum". See post_op_rows().
struct PostOp {
  std::string name;
  float alpha = 0, beta = 0;
  std::optional<TensorSpec> operand;  // for binary ops and sum (sum: the buffer shared with the result)
};
struct PostOpRow {
  std::string_view name;       // text name
  std::string_view pointwise;  // equivalent row of pointwise.def ("" for sum)
  int parameters;              // number of parameters after the name
  bool takes_operand;
  bool keeps_nan;  // false: oneDNN turns NaN into a number, so fuse it only where NaN cannot matter
  bool pays;       // false: a separate kernel that reads and writes the result again is faster
};
std::span<const PostOpRow> post_op_rows();
PostOp parse_post_op(std::string_view text);  // without operand; UserError when unknown

// When a maker queries oneDNN for implementations, and which it accepts.
enum class Planning {
  kJudge,  // at once; Unsupported if there is only a reference implementation
  kAny,    // at once; accepts any implementation, because there is no alternative
  kLater,  // in the first run: the step is for another machine
};
// Whether every CPU of this ISA has fast implementations for the type.
bool runs_on(Isa isa, Dtype dtype);

// With this many rows or more in f32, a packed copy of the weights is not worth its memory.
inline constexpr int64_t kMinUnpackedRows = 128;

struct MatMulDesc {
  TensorSpec a, b, dst;            // [.., M, K], [.., K, N], [.., M, N]; any strides
  std::optional<TensorSpec> bias;  // broadcast to [.., M, N]
  std::vector<PostOp> post;
  bool pack_b = false;  // b depends on static inputs only, so oneDNN may choose its format
  Planning planning = Planning::kJudge;
};

struct ConvDesc {
  TensorSpec x, w, dst;  // x [N, C, spatial...], w [O, C/groups, k...] (transposed: [C, O/groups, k...])
  std::optional<TensorSpec> bias;  // [O]
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
  std::vector<PostOp> post;
  bool pack_w = false;
  Planning planning = Planning::kJudge;
};

// A library step, and the step that packs its weights, if packing is requested and the library prefers
// another format. The packing step reads the weights and writes the packed buffer, which the main step reads.
struct LibrarySteps {
  std::unique_ptr<Step> main;
  std::unique_ptr<Step> pack;  // may be null
  int64_t packed_bytes = 0;
};
// `packed_buffer`: the id of a buffer that the caller reserves for packed weights.
LibrarySteps make_matmul(const MatMulDesc& desc, int packed_buffer);
LibrarySteps make_conv(const ConvDesc& desc, int packed_buffer);
// dst is the gradient of x (data) or of w (weights). Operands may have any strides.
struct ConvBackwardDesc {
  TensorSpec grad;  // gradient of the convolution's result
  TensorSpec x, w;  // only the shape of the unused one matters
  TensorSpec dst;
  bool weights = false;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
  Planning planning = Planning::kJudge;
};
std::unique_ptr<Step> make_conv_backward(const ConvBackwardDesc& desc);

// One layer of an LSTM in one direction, for inference. Gates are in the order input, forget, cell, output.
// Cell states and bias are f32; all other tensors have the same type.
struct LstmDesc {
  TensorSpec x, h, c;              // [T, N, I], [N, H], [N, H]
  TensorSpec w_input, w_hidden;    // [4 H, I], [4 H, H]
  std::optional<TensorSpec> bias;  // [4 H]
  TensorSpec dst, h_last, c_last;  // [T, N, H], [N, H], [N, H]
  bool reverse = false;            // process the sequence from its last step to its first
  bool pack = false;               // the weights depend on static inputs only
  Planning planning = Planning::kJudge;
};
LibrarySteps make_lstm(const LstmDesc& desc, int packed_buffer);

std::string onednn_version();
const void* onednn_code();  // an address in oneDNN's code
// Prints each primitive that runs (1), and each that is created too (2), to standard output; 0: nothing.
void set_onednn_verbose(int level);

}  // namespace ipex::kernels
