// Runs models compiled by `ipexc compile`, without Python, a compiler or libtorch.
//
//   const ipex::Model model = ipex::Model::load("resnet50.ipex");
//   std::vector<float> image(3 * 224 * 224), logits(1000);
//   const ipex::TensorView x = ipex::view(image.data(), {1, 3, 224, 224});
//   ipex::TensorView y = ipex::view(logits.data(), {1, 1000});
//   model.run({&x, 1}, {&y, 1});
//
// Errors are exceptions from <ipex/error.h>, derived from std::exception: UserError for an unsuitable file or
// input, IndexError for an index outside of its tensor, CheckError for data that the model refuses (an
// integer divided by zero), and OutOfMemory. A C interface is in <ipex/model_c.h>.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/tensor_view.h"

namespace ipex {

// A size of an input or result: fixed (low == high), or dynamic within [low, high].
struct Dim {
  std::string name;  // such as "batch" or "batch + 1"; empty if fixed
  int64_t low = 0, high = 0;
  bool is_fixed() const { return low == high; }
};

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<Dim> sizes;
};

// A row-major tensor with memory of its own.
class [[gnu::visibility("default")]] Tensor {
 public:
  Tensor() = default;
  Tensor(Dtype dtype, std::vector<int64_t> sizes);
  const TensorView& view() const { return view_; }
  template <class T>
  std::span<const T> values() const {
    return {static_cast<const T*>(view_.data), static_cast<size_t>(view_.numel())};
  }

 private:
  std::shared_ptr<void> memory_;
  TensorView view_;
};

struct ModelOptions {
  std::string weights;         // file of weights that are not in the artifact; empty: <path>.weights
  bool verify_weights = true;  // check their checksums, which reads all of them once
  bool prepare = true;         // pack weights while loading instead of in the first run
  int threads = 0;  // threads of a run; 0: OpenMP's setting for the calling thread (OMP_NUM_THREADS)
};

// A loaded model. Any number of threads may run it at once: they share its weights and code, and each run has
// its own working memory. Copies refer to the same model.
class [[gnu::visibility("default")]] Model {
 public:
  // UserError for a file that is missing, damaged, of another format, or for another CPU. If `ipexc pack` has
  // written packed weights for this CPU to <path>.packed, they are mapped instead of packed again.
  static Model load(const std::string& path, const ModelOptions& options = {});

  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;
  const std::string& isa() const;  // the ISA selected for this CPU, such as "avx512_bf16"

  // Buffers of the model that a run writes to, by name. They may be read or overwritten between runs. Runs of
  // a model with such buffers execute one after the other.
  std::map<std::string, TensorView> state() const;

  // The sizes of the outputs for inputs of these sizes. No data is read.
  std::vector<std::vector<int64_t>> output_sizes(std::span<const TensorView> inputs) const;

  // `inputs`: in the order of inputs(), with any strides; inputs that the model writes to are written.
  // `outputs`: in the order of outputs(), with memory, sizes and strides from the caller. UserError, with the
  // tensor and dimension, if sizes or types are wrong.
  void run(std::span<const TensorView> inputs, std::span<TensorView> outputs) const;
  std::vector<Tensor> run(std::span<const TensorView> inputs) const;
  std::map<std::string, Tensor> run(const std::map<std::string, TensorView>& inputs) const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A row-major view of memory of the caller.
template <class T>
TensorView view(T* data, std::vector<int64_t> sizes);

namespace detail {
template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return Dtype::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return Dtype::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return Dtype::kI8;
  if constexpr (std::is_same_v<T, int16_t>) return Dtype::kI16;
  if constexpr (std::is_same_v<T, int32_t>) return Dtype::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return Dtype::kI64;
  if constexpr (std::is_same_v<T, double>) return Dtype::kF64;
  return Dtype::kF32;
}
}  // namespace detail

inline TensorView row_major_view(void* data, Dtype dtype, std::vector<int64_t> sizes) {
  TensorView v{data, dtype, std::move(sizes)};
  v.strides.resize(v.sizes.size());
  int64_t step = 1;
  for (size_t d = v.sizes.size(); d-- > 0; step *= v.sizes[d] > 1 ? v.sizes[d] : 1) v.strides[d] = step;
  return v;
}

// For 16-bit floats, which have no C++ type here, use row_major_view(data, Dtype::kBF16, sizes).
template <class T>
TensorView view(T* data, std::vector<int64_t> sizes) {
  using Element = std::remove_const_t<T>;
  static_assert(std::is_same_v<Element, float> || detail::dtype_of<Element>() != Dtype::kF32,
                "no tensor has elements of this type");
  return row_major_view(const_cast<Element*>(data), detail::dtype_of<Element>(), std::move(sizes));
}

}  // namespace ipex
