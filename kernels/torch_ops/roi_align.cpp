// torch_ipex::ROIAlign_forward and ROIAlign_backward: regions of a feature map, interpolated to one size. The
// values are those of torchvision.ops.roi_align.
//
// The kernels read images with channels innermost. A contiguous image is copied to that layout, unless there
// are so few regions that they read less than the copy would. The result has the layout of the image.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <immintrin.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/target_features.h"
#include "kernels/torch_ops/workers.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

struct RoiAlign {
  const void* input = nullptr;  // the images; backward the gradients of the regions
  const void* boxes = nullptr;  // [regions, 5]: image, x1, y1, x2, y2
  void* result = nullptr;       // the regions; backward the gradients of the images
  int64_t regions = 0, channels = 0, height = 0, width = 0, pooled_height = 0, pooled_width = 0;
  int64_t sampling_ratio = 0;
  double spatial_scale = 1;
  bool aligned = false;
};

#define IPEX_KERNELS "kernels/torch_ops/roi_align_kernels.h"
#include "kernels/torch_ops/each_isa.h"

void check(const Tensor& input, const Tensor& rois, int64_t pooled_height, int64_t pooled_width) {
  TORCH_CHECK(input.dim() == 4, "ROIAlign expects images [batch, channels, height, width], got ",
              input.sym_sizes());
  TORCH_CHECK(rois.dim() == 2 && rois.sym_size(1) == 5,
              "ROIAlign expects regions [count, 5] of image, x1, y1, x2, y2, got ", rois.sym_sizes());
  TORCH_CHECK(pooled_height > 0 && pooled_width > 0, "ROIAlign expects a positive output size, got ",
              pooled_height, " and ", pooled_width);
  TORCH_CHECK(at::isFloatingType(input.scalar_type()) && at::isFloatingType(rois.scalar_type()),
              "ROIAlign expects floating-point numbers, got ", input.scalar_type(), " and ",
              rois.scalar_type());
}

// Contiguous boxes of the type that positions are computed in.
Tensor boxes_for(const Tensor& rois, c10::ScalarType type, int64_t images) {
  const Tensor boxes = materialized(rois).to(at::toOpMathType(type)).contiguous();
  const Tensor image = boxes.select(1, 0);
  if (boxes.size(0) == 0) return boxes;
  const auto least = image.min().item<double>(), most = image.max().item<double>();
  TORCH_CHECK_INDEX(least >= 0 && most < static_cast<double>(images),
                    "ROIAlign: the regions name images from ", least, " to ", most, ", but there are ",
                    images);
  return boxes;
}

bool is_last(const Tensor& tensor) {
  return tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

// Regions are worth a piece of their own from about this many products.
constexpr int64_t kGrain = 1 << 16;

Tensor forward_kernel(const Tensor& input, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                      int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  check(input, rois, pooled_height, pooled_width);
  const c10::ScalarType type = input.scalar_type();
  const Tensor boxes = boxes_for(rois, type, input.size(0));
  RoiAlign op{.boxes = boxes.const_data_ptr(),
              .regions = boxes.size(0),
              .channels = input.size(1),
              .height = input.size(2),
              .width = input.size(3),
              .pooled_height = pooled_height,
              .pooled_width = pooled_width,
              .sampling_ratio = sampling_ratio,
              .spatial_scale = spatial_scale,
              .aligned = aligned};
  const bool last = is_last(input);
  // Four samples stand for an adaptive number of them.
  const int64_t samples = sampling_ratio > 0 ? sampling_ratio * sampling_ratio : 4;
  const int64_t read = op.regions * pooled_height * pooled_width * samples;
  const bool planes = !last && read < input.size(0) * op.height * op.width;
  const auto layout = planes ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
  const Tensor images = materialized(input).contiguous(layout);
  Tensor result = at::empty({op.regions, op.channels, pooled_height, pooled_width},
                            input.options().memory_format(layout));
  if (result.numel() == 0 || input.numel() == 0) return result.zero_();
  op.input = images.const_data_ptr();
  op.result = result.mutable_data_ptr();
  const int64_t grain = std::max<int64_t>(1, kGrain / (pooled_height * pooled_width * samples * op.channels));
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const bool narrow = current_isa() == Isa::kAvx2;
    const auto kernel = planes ? (narrow ? avx2::forward_planes<T> : avx512::forward_planes<T>)
                               : (narrow ? avx2::forward<T> : avx512::forward<T>);
    for_each_range(op.regions, grain,
                   [&](int64_t begin, int64_t end, Scratch& scratch) { kernel(op, begin, end, scratch); });
  });
  return last || planes ? result : result.contiguous();
}

Tensor backward_kernel(const Tensor& grad, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                       int64_t pooled_width, int64_t batch_size, int64_t channels, int64_t height,
                       int64_t width, int64_t sampling_ratio, bool aligned, bool is_channels_last) {
  check(grad, rois, pooled_height, pooled_width);
  TORCH_CHECK(grad.size(0) == rois.size(0) && grad.size(1) == channels && grad.size(2) == pooled_height &&
                  grad.size(3) == pooled_width,
              "ROIAlign_backward expects gradients [", rois.size(0), ", ", channels, ", ", pooled_height,
              ", ", pooled_width, "], got ", grad.sizes());
  const c10::ScalarType type = grad.scalar_type(), sum = at::toOpMathType(type);
  const Tensor boxes = boxes_for(rois, type, batch_size);
  const Tensor grads = materialized(grad).contiguous(at::MemoryFormat::ChannelsLast);
  const Tensor sums = at::empty({batch_size, channels, height, width},
                                grad.options().dtype(sum).memory_format(at::MemoryFormat::ChannelsLast))
                          .zero_();
  const RoiAlign op{.input = grads.const_data_ptr(),
                    .boxes = boxes.const_data_ptr(),
                    .result = sums.mutable_data_ptr(),
                    .regions = boxes.size(0),
                    .channels = channels,
                    .height = height,
                    .width = width,
                    .pooled_height = pooled_height,
                    .pooled_width = pooled_width,
                    .sampling_ratio = sampling_ratio,
                    .spatial_scale = spatial_scale,
                    .aligned = aligned};
  // Channels of one piece: whole cache lines, so that threads share none.
  const int64_t lines = std::max<int64_t>(1, (channels + 15) / 16);
  const int64_t step = 16 * std::max<int64_t>(1, lines * batch_size / (4 * num_threads()));
  const int64_t pieces = (channels + step - 1) / step;
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const auto kernel = current_isa() == Isa::kAvx2 ? avx2::backward<T> : avx512::backward<T>;
    for_each_piece(sums.numel() && op.regions ? batch_size * pieces : 0,
                   [&](int64_t piece, Scratch& scratch) {
                     const int64_t begin = piece % pieces * step;
                     kernel(op, piece / pieces, begin, std::min(channels, begin + step), scratch);
                   });
  });
  const Tensor result = sums.to(type);
  return is_channels_last ? result : result.contiguous();
}

// By ATen ops, which can be differentiated again: a gather of the pixels around each sample. The number of
// samples must be given: an adaptive one depends on the boxes.
Tensor forward_definition(const Tensor& input, const Tensor& rois, double spatial_scale,
                          int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  check(input, rois, pooled_height, pooled_width);
  const c10::ScalarType sum = at::toOpMathType(input.scalar_type());
  const Tensor boxes = rois.to(sum);
  const c10::SymInt size[2] = {input.sym_size(2), input.sym_size(3)};
  const int64_t pooled[2] = {pooled_height, pooled_width};
  Tensor low[2], high[2], low_weight[2], high_weight[2];
  for (int axis = 0; axis < 2; ++axis) {
    const Tensor start = boxes.select(1, 2 - axis) * spatial_scale - (aligned ? 0.5 : 0.0);
    const Tensor end = boxes.select(1, 4 - axis) * spatial_scale - (aligned ? 0.5 : 0.0);
    const Tensor extent = aligned ? end - start : (end - start).clamp_min(1);
    const Tensor bin = extent / pooled[axis];
    const int64_t samples = pooled[axis] * sampling_ratio;
    const Tensor number = at::arange(samples, boxes.options());
    const Tensor position = start.unsqueeze(1) + bin.unsqueeze(1) * ((number + 0.5) / sampling_ratio);
    const Tensor outside = (position < -1).logical_or(position > size[axis]);
    const Tensor inside = position.clamp_min(0);
    const Tensor floor = inside.floor().clamp_max(size[axis] - 1);
    const Tensor fraction = (inside - floor).masked_fill(floor >= size[axis] - 1, 0);
    low[axis] = floor.masked_fill(outside, 0).to(at::kLong);
    high[axis] = (low[axis] + 1).clamp_max(size[axis] - 1);
    low_weight[axis] = (1 - fraction).masked_fill(outside, 0);
    high_weight[axis] = fraction.masked_fill(outside, 0);
  }
  // [regions, rows of samples, columns of samples, channels]
  const Tensor pixels = input.permute({0, 2, 3, 1}).reshape_symint({-1, input.sym_size(1)});
  const Tensor image = boxes.select(1, 0).to(at::kLong).unsqueeze(1).unsqueeze(2) * size[0] * size[1];
  Tensor samples;
  for (const auto& [row, row_weight] : {std::pair(low[0], low_weight[0]), std::pair(high[0], high_weight[0])})
    for (const auto& [column, column_weight] :
         {std::pair(low[1], low_weight[1]), std::pair(high[1], high_weight[1])}) {
      const Tensor at = image + row.unsqueeze(2) * size[1] + column.unsqueeze(1);
      const Tensor weight = (row_weight.unsqueeze(2) * column_weight.unsqueeze(1)).unsqueeze(3);
      const Tensor term = pixels.index_select(0, at.flatten())
                              .to(sum)
                              .reshape_symint({at.sym_size(0), at.sym_size(1), at.sym_size(2), -1}) *
                          weight;
      samples = samples.defined() ? samples + term : term;
    }
  return samples
      .reshape_symint(
          {boxes.sym_size(0), pooled_height, sampling_ratio, pooled_width, sampling_ratio, input.sym_size(1)})
      .mean(at::IntArrayRef{2, 4})
      .permute({0, 3, 1, 2})
      .to(input.scalar_type());
}

// ---- the operators ----

using Op = Tensor(const Tensor&, const Tensor&, double, int64_t, int64_t, int64_t, bool);
using BackwardOp = Tensor(const Tensor&, const Tensor&, double, int64_t, int64_t, int64_t, int64_t, int64_t,
                          int64_t, int64_t, bool, bool);

const c10::TypedOperatorHandle<Op>& op() {
  static const auto handle = typed_operator<Op>("torch_ipex::ROIAlign_forward");
  return handle;
}
const c10::TypedOperatorHandle<BackwardOp>& backward_op() {
  static const auto handle = typed_operator<BackwardOp>("torch_ipex::ROIAlign_backward");
  return handle;
}

struct RoiAlignFunction : torch::autograd::Function<RoiAlignFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, const Tensor& rois, double spatial_scale,
                        int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({rois});
    auto& data = context->saved_data;
    data["scale"] = spatial_scale;
    data["pooled"] = std::vector<int64_t>{pooled_height, pooled_width};
    data["sizes"] = input.sizes().vec();
    data["ratio"] = sampling_ratio;
    data["aligned"] = aligned;
    data["last"] = is_last(input);
    return op().call(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    Tensors all(7);
    if (!grads[0].defined()) return all;
    auto& data = context->saved_data;
    const auto pooled = data["pooled"].toIntVector(), sizes = data["sizes"].toIntVector();
    all[0] = backward_op().call(grads[0], context->get_saved_variables()[0], data["scale"].toDouble(),
                                pooled[0], pooled[1], sizes[0], sizes[1], sizes[2], sizes[3],
                                data["ratio"].toInt(), data["aligned"].toBool(), data["last"].toBool());
    return all;
  }
};

Tensor autograd(const Tensor& input, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  if (!all_dense(input, rois) && sampling_ratio > 0)
    return forward_definition(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio,
                              aligned);
  if (needs_gradient(input))
    return RoiAlignFunction::apply(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio,
                                   aligned);
  at::AutoDispatchBelowADInplaceOrView below;
  return op().call(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned);
}

// The result has the layout of the images.
Tensor meta(const Tensor& input, const Tensor& rois, double, int64_t pooled_height, int64_t pooled_width,
            int64_t, bool) {
  check(input, rois, pooled_height, pooled_width);
  const auto layout = input.suggest_memory_format() == at::MemoryFormat::ChannelsLast
                          ? at::MemoryFormat::ChannelsLast
                          : at::MemoryFormat::Contiguous;
  return at::empty_symint({rois.sym_size(0), input.sym_size(1), pooled_height, pooled_width},
                          input.options().memory_format(layout));
}

Tensor backward_meta(const Tensor& grad, const Tensor&, double, int64_t, int64_t, int64_t batch_size,
                     int64_t channels, int64_t height, int64_t width, int64_t, bool, bool is_channels_last) {
  return at::empty({batch_size, channels, height, width},
                   grad.options().memory_format(is_channels_last ? at::MemoryFormat::ChannelsLast
                                                                 : at::MemoryFormat::Contiguous));
}

// Positions keep their precision: only the images are cast, to the type of the layers around.
Tensor autocast(const Tensor& input, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  return op().call(autocast_operand(input), rois, spatial_scale, pooled_height, pooled_width, sampling_ratio,
                   aligned);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "ROIAlign_forward(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
      "int sampling_ratio, bool aligned) -> Tensor");
  m.def(
      "ROIAlign_backward(Tensor grad, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
      "int batch_size, int channels, int height, int width, int sampling_ratio, bool aligned, bool "
      "is_channels_last) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("ROIAlign_forward", forward_kernel);
  m.impl("ROIAlign_backward", backward_kernel);
}
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("ROIAlign_forward", meta);
  m.impl("ROIAlign_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("ROIAlign_forward", autograd); }
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("ROIAlign_forward", autocast); }

}  // namespace ipex::torch_ops
