// Layouts of weights and activations; see conv_shape.h.
#include "kernels/conv_shape.h"

#include "runtime/error.h"

namespace ipex::kernels {

void add_row_dim(TensorSpec& spec) {
  if (spec.sizes.size() < 2) return;
  spec.sizes.insert(spec.sizes.end() - 1, 1);
  spec.strides.insert(spec.strides.end() - 1, 1);
}

TensorView library_weights(const TensorView& w, int64_t groups, bool transposed) {
  TensorView view = w;
  const int64_t first = w.sizes[0] / groups, first_stride = w.strides[0];
  view.sizes[0] = first;
  if (transposed) {
    std::swap(view.sizes[0], view.sizes[1]);
    std::swap(view.strides[0], view.strides[1]);
  }
  if (groups > 1) {
    view.sizes.insert(view.sizes.begin(), groups);
    view.strides.insert(view.strides.begin(), first_stride * first);
  }
  return with_plain_strides(view, row_major_order(static_cast<int>(view.sizes.size())));
}

Activations activations(const TensorView& x, const TensorView& y, ActivationForm form,
                        const std::string& what) {
  const int rank = static_cast<int>(x.sizes.size());
  const std::vector<int> first = row_major_order(rank), last = channels_last_order(rank);
  // A tensor with one channel or one pixel is in both orders. It then uses the order of the other tensor, or
  // channels-last.
  const bool x_last = nests(x, last), y_last = nests(y, last);
  const bool x_first = nests(x, first), y_first = nests(y, first);
  const auto layout = [&](const TensorView& view, bool is_last, bool is_first, bool other_last) {
    Activation result;
    const bool use_last = is_last && (other_last || !is_first);
    result.view = with_plain_strides(view, use_last ? last : first);
    result.given = describe(result.view, what);
    if (form == ActivationForm::kChannelsLast) {
      result.used = describe_dense(view, last, what);
      result.view.strides = dense_strides(view.sizes, last);
    } else {
      if (!is_last && !is_first) throw Unsupported(what + ": " + text(view) + " needs a copy");
      result.used = result.given;
    }
    return result;
  };
  return {layout(x, x_last, x_first, y_last), layout(y, y_last, y_first, x_last)};
}

Quality conv_quality(const dnnl::primitive_desc_base& desc) {
  const Quality found = quality(desc);
  return found == Quality::kGemm && desc.scratchpad_desc().get_size() == 0 ? Quality::kDirect : found;
}

std::string refusal(const std::string& what, const TensorView& x, const TensorView& w, const TensorView& y) {
  return what + ": input " + text(x) + ", weight " + text(w) + ", result " + text(y) +
         ": oneDNN has no implementation better than its reference one; lower the op in another way";
}

int64_t conv_flops(const TensorView& y, const TensorView& x, const TensorView& w, bool transposed) {
  // Each element of the result (or of the input, if transposed) is multiplied with each weight of its
  // channel.
  const TensorView& centre = transposed ? x : y;
  int64_t taps = 1;
  for (size_t d = 1; d < w.sizes.size(); ++d) taps *= w.sizes[d];
  return count_flops(centre.numel(), taps);
}

}  // namespace ipex::kernels
