// See sort.h. The elements of each row become entries of (key, position), which are ordered. Values are then
// copied from x by position, so that they keep their bits.
#include "kernels/sort.h"

#include <limits>

#include "kernels/rows.h"
#include "kernels/sort_keys.h"
#include "kernels/sort_row.h"
#include "kernels/step_fields.h"
#include "runtime/arena.h"

namespace ipex::kernels {
namespace {

using Narrow = uint64_t;                       // for keys of up to 32 bits
__extension__ using Wide = unsigned __int128;  // for 64-bit keys, and rows of more than 2^32 elements

void copy_item(char* to, const char* from, int64_t bytes) {
  switch (bytes) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    default:
      std::memcpy(to, from, 8);
  }
}

class SortStep final : public Step {
 public:
  explicit SortStep(const SortDesc& desc) : desc_(desc) {
    info.kind = StepKind::kLibrary;
    info.name = "sort." + std::string(kSortKinds[static_cast<size_t>(desc.kind)]);
    text = to_line("sort", desc);
    reads = {desc.x.buffer};
    for (const TensorSpec* result : {&desc_.values, &desc_.indices})
      if (result->buffer >= 0) writes.push_back(result->buffer);
  }

  void run(RunContext& context) const override {
    const TensorView x = context.view(desc_.x);
    if (itemsize(x.dtype) == 8 || x.sizes[desc_.axis] > std::numeric_limits<uint32_t>::max())
      run_rows<Wide>(context, x);
    else
      run_rows<Narrow>(context, x);
  }

 private:
  template <class Entry>
  void run_rows(RunContext& context, const TensorView& x) const {
    const int64_t n = x.sizes[desc_.axis], rows = row_count(x, desc_.axis);
    const int64_t k = desc_.k.eval(context.symbols());
    Results results(context, desc_);
    if (rows == 0 || results.count == 0) return;
    if (n == 0) return fill_empty(results, x, rows);
    const bool use_heap = desc_.kind == SortKind::kTop && x.strides[desc_.axis] == 1 &&
                          SortRow<Entry>::uses_heap(n, results.count);
    const bool needs_scratch = desc_.kind == SortKind::kAll && desc_.ordered;
    const size_t bytes = static_cast<size_t>(n) * sizeof(Entry) * (needs_scratch ? 2 : 1);
    const int64_t threads = std::min<int64_t>(num_threads(), rows);
    const CachedBlock memory = allocate_block(bytes * static_cast<size_t>(threads));
    parallel_rows(rows, n, [&](int64_t begin, int64_t end, int64_t thread) {
      auto* entries = reinterpret_cast<Entry*>(static_cast<char*>(memory.get()) + bytes * thread);
      for (int64_t row = begin; row < end; ++row) {
        const char* source = row_begin(x, x, desc_.axis, row);
        const Entry* ordered = with_keys(x.dtype, [&](auto key) {
          using Key = decltype(key);
          if (use_heap) return top_by_heap<Key>(source, n, results.count, entries);
          gather<Key>(source, x.strides[desc_.axis], n, entries);
          return order(x.dtype, entries, n, k, results.count);
        });
        results.write(x, row, source, ordered);
      }
    });
  }

  // The results of one run, written row by row.
  struct Results {
    Results(RunContext& context, const SortDesc& desc) : axis(desc.axis) {
      const TensorSpec& any = desc.values.buffer >= 0 ? desc.values : desc.indices;
      count = any.sizes[axis].eval(context.symbols());
      if (desc.values.buffer >= 0) values = context.view(desc.values);
      if (desc.indices.buffer >= 0) indices = context.view(desc.indices);
    }
    template <class Entry>
    void write(const TensorView& x, int64_t row, const char* source, const Entry* ordered) const {
      const int64_t bytes = itemsize(x.dtype);
      if (values.data) {
        char* to = row_begin(values, x, axis, row);
        for (int64_t i = 0; i < count; ++i)
          copy_item(to + i * values.strides[axis] * bytes,
                    source + SortRow<Entry>::position(ordered[i]) * x.strides[axis] * bytes, bytes);
      }
      if (indices.data) {
        auto* to = reinterpret_cast<int64_t*>(row_begin(indices, x, axis, row));
        for (int64_t i = 0; i < count; ++i)
          to[i * indices.strides[axis]] = SortRow<Entry>::position(ordered[i]);
      }
    }
    int axis;
    int64_t count = 0;
    TensorView values, indices;
  };

  template <class Key>
  typename Key::Bits key_in_order(const char* source, int64_t i) const {
    using Bits = typename Key::Bits;
    const Bits flip = desc_.descending ? std::numeric_limits<Bits>::max() : 0;
    return static_cast<Bits>(key_at<Key>(source, i) ^ flip);
  }

  template <class Key, class Entry>
  void gather(const char* source, int64_t stride, int64_t n, Entry* entries) const {
    for (int64_t i = 0; i < n; ++i)
      entries[i] = SortRow<Entry>::make(key_in_order<Key>(source, i * stride), i);
  }

  // SortRow::top with a heap, for a contiguous row. Few elements enter the heap, so blocks of elements are
  // compared at once and skipped, without making entries.
  template <class Key, class Entry>
  const Entry* top_by_heap(const char* source, int64_t n, int64_t k, Entry* entries) const {
    using Row = SortRow<Entry>;
    using Bits = typename Key::Bits;
    constexpr int64_t kBlock = 16;
    constexpr auto less = Row::key_less;
    gather<Key>(source, 1, k, entries);
    std::make_heap(entries, entries + k, less);
    for (int64_t begin = k; begin < n; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, n);
      if (end == begin + kBlock) {
        const auto worst = static_cast<Bits>(Row::key(entries[0]));
        Bits any = 0;  // of the keys' width, so that the compiler vectorizes the loop
        for (int64_t i = 0; i < kBlock; ++i)
          any |= key_in_order<Key>(source, begin + i) < worst ? std::numeric_limits<Bits>::max() : 0;
        if (any == 0) continue;
      }
      for (int64_t i = begin; i < end; ++i) {
        entries[k] = Row::make(key_in_order<Key>(source, i), i);
        if (less(entries[k], entries[0])) std::pop_heap(entries, entries + k + 1, less);
      }
    }
    std::sort_heap(entries, entries + k, less);
    return entries;
  }

  // Moves the requested elements to the front of the returned entries.
  template <class Entry>
  const Entry* order(Dtype dtype, Entry* entries, int64_t n, int64_t k, int64_t count) const {
    using Row = SortRow<Entry>;
    switch (desc_.kind) {
      case SortKind::kAll:
        desc_.ordered ? Row::stable_sort(entries, n, entries + n) : Row::sort(entries, n);
        break;
      case SortKind::kTop:
        Row::top(entries, n, count, desc_.ordered);
        break;
      case SortKind::kKth:
        entries[0] = Row::kth(entries, n, k);
        break;
      case SortKind::kMedian:
      case SortKind::kNanMedian:
        entries[0] = median(dtype, entries, n);
        break;
      case SortKind::kMode:
        entries[0] = Row::mode(entries, n);
        break;
    }
    return entries;
  }

  template <class Entry>
  Entry median(Dtype dtype, Entry* entries, int64_t n) const {
    using Row = SortRow<Entry>;
    return with_keys(dtype, [&](auto key_type) {
      using Key = decltype(key_type);
      auto is_nan = [](Entry e) { return is_nan_key<Key>(static_cast<typename Key::Bits>(Row::key(e))); };
      const int64_t nans = Key::kHasNan ? std::count_if(entries, entries + n, is_nan) : 0;
      if (nans > 0 && desc_.kind == SortKind::kMedian) return *std::find_if(entries, entries + n, is_nan);
      return Row::nth(entries, n, std::max<int64_t>(0, n - 1 - nans) / 2);
    });
  }

  // Fills results with the median of an empty tensor, as in eager: NaN, or for integers the result of
  // converting NaN.
  static void fill_empty(const Results& results, const TensorView& x, int64_t rows) {
    if (!results.values.data) return;
    const int64_t bytes = itemsize(x.dtype);
    const uint64_t nan = with_keys(x.dtype, [&](auto key_type) -> uint64_t {
      using Bits = typename decltype(key_type)::Bits;
      return decltype(key_type)::kHasNan ? std::numeric_limits<Bits>::max() >> 1 : uint64_t{1} << 63;
    });
    for (int64_t row = 0; row < rows; ++row)
      copy_item(row_begin(results.values, x, results.axis, row), reinterpret_cast<const char*>(&nan), bytes);
  }

  SortDesc desc_;
};

}  // namespace

std::unique_ptr<Step> make_sort(const SortDesc& desc) { return std::make_unique<SortStep>(desc); }

}  // namespace ipex::kernels
