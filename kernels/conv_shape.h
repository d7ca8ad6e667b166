// Common parts of a convolution and its two gradients: geometry, weights in oneDNN's dim order, and the
// choice of a layout for the activations. oneDNN's fast implementations need channels-last activations.
// Contiguous (NCHW) ones use its im2col implementation or are copied, whichever is better.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "kernels/onednn.h"
#include "kernels/plan.h"

namespace ipex::kernels {

struct ConvGeometry {
  Dims stride, dilation, padding_low, padding_high;  // in oneDNN's convention: dilation counts from 0
};
// `Desc`: ConvDesc or ConvBackwardDesc.
template <class Desc>
ConvGeometry geometry(const Desc& desc) {
  ConvGeometry g{desc.stride, desc.dilation, desc.padding, desc.padding};
  for (int64_t& d : g.dilation) --d;
  if (desc.transposed)
    for (size_t i = 0; i < desc.output_padding.size(); ++i) g.padding_high[i] -= desc.output_padding[i];
  return g;
}

// Converts a 1-d convolution to a 2-d one over images with one row, for which oneDNN has more
// implementations. A depthwise convolution of 512 channels of length 256 with kernel size 4 takes 0.06 ms
// instead of 1.1 ms. `tensors`: members of the description.
void add_row_dim(TensorSpec& spec);
template <class Desc>
Desc as_2d_convolution(Desc desc, std::initializer_list<TensorSpec Desc::*> tensors) {
  if (desc.stride.size() != 1) return desc;
  desc.stride.insert(desc.stride.begin(), 1);
  desc.dilation.insert(desc.dilation.begin(), 1);
  desc.padding.insert(desc.padding.begin(), 0);
  if (!desc.output_padding.empty()) desc.output_padding.insert(desc.output_padding.begin(), 0);
  for (TensorSpec Desc::* tensor : tensors) add_row_dim(desc.*tensor);
  return desc;
}

// A view of torch's weights ([O, I/g, k...], transposed [I, O/g, k...]) with oneDNN's dims ([g,] O/g, I/g,
// k...).
TensorView library_weights(const TensorView& w, int64_t groups, bool transposed);

// The layout in which activations are passed to the primitive.
enum class ActivationForm { kAsGiven, kChannelsLast };

// The layouts of one activation tensor: `given` by the step, and `used` by the primitive.
struct Activation {
  TensorView view;
  dnnl::memory::desc given, used;
};
struct Activations {
  Activation x, y;
};
// `x` is the convolution's input, `y` its result (or their gradients). Unsupported if a tensor cannot be used
// in the given layout.
Activations activations(const TensorView& x, const TensorView& y, ActivationForm form,
                        const std::string& what);

// Like quality(), but an im2col implementation without an im2col buffer (for 1x1 kernels) counts as direct.
Quality conv_quality(const dnnl::primitive_desc_base& desc);

// The message for a convolution that oneDNN does not support well, with its shapes.
std::string refusal(const std::string& what, const TensorView& x, const TensorView& w, const TensorView& y);

int64_t conv_flops(const TensorView& y, const TensorView& x, const TensorView& w, bool transposed);

}  // namespace ipex::kernels
