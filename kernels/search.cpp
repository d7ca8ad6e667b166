// Binary search of values in sorted rows. As in ATen, a comparison with NaN moves to the right.
#include "kernels/rows.h"
#include "kernels/sort.h"
#include "kernels/sort_keys.h"
#include "kernels/step_fields.h"
#include "runtime/abi.h"
#include "runtime/index_errors.h"

namespace ipex::kernels {
namespace {

class SearchStep final : public Step {
 public:
  explicit SearchStep(const SearchDesc& desc) : desc_(desc) {
    info.kind = StepKind::kLibrary;
    info.name = "search";
    text = to_line("search", desc);
    reads = {desc.sorted.buffer, desc.values.buffer};
    if (desc.sorter) reads.push_back(desc.sorter->buffer);
    writes = {desc.dst.buffer};
  }

  void run(RunContext& context) const override {
    const TensorView sorted = context.view(desc_.sorted);
    with_keys(sorted.dtype, [&](auto key) { search<decltype(key)>(context, sorted); });
  }

 private:
  template <class Key>
  void search(RunContext& context, const TensorView& sorted) const {
    const TensorView values = context.view(desc_.values), dst = context.view(desc_.dst);
    TensorView sorter;
    if (desc_.sorter) sorter = context.view(*desc_.sorter);
    const int row_dim = static_cast<int>(sorted.sizes.size()) - 1;
    const int64_t n = sorted.sizes[row_dim], stride = sorted.strides[row_dim];
    const bool one_row = row_dim == 0;
    const int64_t width = one_row ? 1 : std::max<int64_t>(1, values.sizes[row_dim]);
    constexpr int64_t kStepsPerSearch = 16;
    parallel_rows(values.numel(), kStepsPerSearch, [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = one_row ? 0 : i / width;
        const char* rows = row_begin(sorted, sorted, row_dim, row);
        const auto* order =
            sorter.data ? reinterpret_cast<const int64_t*>(row_begin(sorter, sorted, row_dim, row)) : nullptr;
        const auto value = key_at<Key>(row_begin(values, values, -1, i), 0);
        int64_t low = 0, high = n;
        while (low < high) {
          const int64_t middle = low + (high - low) / 2;
          const int64_t at = order ? order[middle * sorter.strides[row_dim]] : middle;
          if (at < 0 || at >= n) {
            ipex_report_index(at, n, *index_error_code("sorter", 0));
            break;
          }
          const auto key = key_at<Key>(rows, at * stride);
          const bool before = desc_.right ? key <= value : key < value;
          if (before || is_nan_key<Key>(key) || is_nan_key<Key>(value))
            low = middle + 1;
          else
            high = middle;
        }
        char* to = row_begin(dst, values, -1, i);
        if (dst.dtype == Dtype::kI32)
          *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(low);
        else
          *reinterpret_cast<int64_t*>(to) = low;
      }
    });
  }

  SearchDesc desc_;
};

}  // namespace

std::unique_ptr<Step> make_search(const SearchDesc& desc) { return std::make_unique<SearchStep>(desc); }

}  // namespace ipex::kernels
