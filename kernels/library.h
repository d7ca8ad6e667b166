// oneDNN steps: matmul, convolution, LSTM. Descriptors in our terms; oneDNN's types stay in the .cpp files.
//
// Every maker throws Unsupported when oneDNN has no implementation better than its reference one (of an LSTM:
// none at all); the caller then lowers the op otherwise.
// Static shapes make their primitive at once; dynamic ones cache it by sizes. Scratchpads come from the
// caching allocator. Steps are re-entrant.
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

// One fused epilogue, applied in order: text form "relu", "clip:0:6", "add", "sum". See post_op_rows().
struct PostOp {
  std::string name;
  float alpha = 0, beta = 0;
  std::optional<TensorSpec> operand;  // for binary ones and sum (sum: the buffer shared with the result)
};
struct PostOpRow {
  std::string_view name;       // text name
  std::string_view pointwise;  // row of pointwise.def with the same meaning ("" for sum)
  int parameters;              // numbers after the name
  bool takes_operand;
  bool keeps_nan;  // false: oneDNN turns NaN into a number, so fuse only where NaN cannot matter
  bool pays;       // false: a kernel that reads and writes the result again costs less
};
std::span<const PostOpRow> post_op_rows();
PostOp parse_post_op(std::string_view text);  // without operand; UserError when unknown

// When a maker asks oneDNN for implementations, and which it takes.
enum class Planning {
  kJudge,  // at once; Unsupported when there is nothing better than a reference implementation
  kAny,    // at once, whatever there is: nothing else could compute it
  kLater,  // at the first run: the step is for another machine, this one cannot tell
};
// Every CPU of this ISA has implementations for the type that are worth having.
bool runs_on(Isa isa, Dtype dtype);

// Beside so many rows of f32, a weight is not worth a packed copy.
inline constexpr int64_t kManyRows = 128;

struct MatMulDesc {
  TensorSpec a, b, dst;            // [.., M, K], [.., K, N], [.., M, N]; any strides
  std::optional<TensorSpec> bias;  // broadcast to [.., M, N]
  std::vector<PostOp> post;
  bool pack_b = false;  // b depends on static inputs only: let oneDNN choose its format
  Planning planning = Planning::kJudge;
};

struct ConvDesc {
  TensorSpec x, w,
      dst;  // x [N, C, spatial...], w as torch: [O, C/groups, k...] ([C, O/groups, k...] transposed)
  std::optional<TensorSpec> bias;  // [O]
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
  std::vector<PostOp> post;
  bool pack_w = false;
  Planning planning = Planning::kJudge;
};

// A library step, preceded by the step that packs its weights when pack was asked for and the library wants
// another format. The packing step reads the weights' buffer and writes buffer `packed`, of packed_bytes,
// that the main step then reads.
struct LibrarySteps {
  std::unique_ptr<Step> main;
  std::unique_ptr<Step> pack;  // may be null
  int64_t packed_bytes = 0;
};
// `packed_buffer`: the buffer id the caller reserves for packed weights.
LibrarySteps make_matmul(const MatMulDesc& desc, int packed_buffer);
LibrarySteps make_conv(const ConvDesc& desc, int packed_buffer);
// dst is the gradient of x (data) or of w (weights); strides of all operands are honoured.
struct ConvBackwardDesc {
  TensorSpec grad;  // gradient of the convolution's result
  TensorSpec x, w;  // the unused one gives only its shape
  TensorSpec dst;
  bool weights = false;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
  Planning planning = Planning::kJudge;
};
std::unique_ptr<Step> make_conv_backward(const ConvBackwardDesc& desc);

// One layer of an LSTM in one direction, for inference; gates in the order input, forget, cell, output. Cells
// and bias are f32, the rest is of one type.
struct LstmDesc {
  TensorSpec x, h, c;              // [T, N, I], [N, H], [N, H]
  TensorSpec w_input, w_hidden;    // [4 H, I], [4 H, H]
  std::optional<TensorSpec> bias;  // [4 H]
  TensorSpec dst, h_last, c_last;  // [T, N, H], [N, H], [N, H]
  bool reverse = false;            // from the last step of the sequence to the first
  bool pack = false;               // the weights depend on static inputs only
  Planning planning = Planning::kJudge;
};
LibrarySteps make_lstm(const LstmDesc& desc, int packed_buffer);

std::string onednn_version();
const void* onednn_code();  // an address in its code

}  // namespace ipex::kernels
