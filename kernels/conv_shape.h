// What a convolution and its two gradients share: geometry, weights in oneDNN's dim order, and the choice of
// a layout for the activations. oneDNN's fast implementations take channels-last activations; contiguous
// (NCHW) ones go through its im2col implementation or are copied, whichever is better.
#pragma once

#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "kernels/plan.h"

namespace ipex::kernels {

struct ConvGeometry {
  Dims stride, dilation, padding_low, padding_high;  // oneDNN's: dilation counts from 0
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

// A convolution over one dim as one over images of one row, for which oneDNN has more implementations
// (depthwise ones: 512 channels of 256 with 4 weights each 1.1 -> 0.06 ms). `tensors`: of the description.
void give_rows(TensorSpec& spec);
template <class Desc>
Desc over_images(Desc desc, std::initializer_list<TensorSpec Desc::*> tensors) {
  if (desc.stride.size() != 1) return desc;
  desc.stride.insert(desc.stride.begin(), 1);
  desc.dilation.insert(desc.dilation.begin(), 1);
  desc.padding.insert(desc.padding.begin(), 0);
  if (!desc.output_padding.empty()) desc.output_padding.insert(desc.output_padding.begin(), 0);
  for (TensorSpec Desc::* tensor : tensors) give_rows(desc.*tensor);
  return desc;
}

// torch's weights ([O, I/g, k...], transposed [I, O/g, k...]) as oneDNN's ([g,] O/g, I/g, k...): a view.
TensorView library_weights(const TensorView& w, int64_t groups, bool transposed);

// How activations meet the primitive.
enum class ActivationForm { kAsGiven, kChannelsLast };

// Layout of one activation tensor: as the step has it, and as the primitive takes it.
struct Activation {
  TensorView view;
  dnnl::memory::desc given, used;
};
struct Activations {
  Activation x, y;
};
// Unsupported when a tensor cannot be taken as given. `x` is the convolution's input, `y` its result (or
// their gradients).
Activations activations(const TensorView& x, const TensorView& y, ActivationForm form,
                        const std::string& what);

// As quality(), where an im2col implementation that needs no im2col buffer (1x1 kernels) counts as direct.
Quality conv_quality(const dnnl::primitive_desc_base& desc);

// "onednn.conv x f32[..]{..}, w ..": what is said of a convolution that oneDNN refuses.
std::string refusal(const std::string& what, const TensorView& x, const TensorView& w, const TensorView& y);

int64_t conv_flops(const TensorView& y, const TensorView& x, const TensorView& w, bool transposed);

}  // namespace ipex::kernels
