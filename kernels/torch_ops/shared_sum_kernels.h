// Sums of the ranks' tensors, of one instruction set; see shared_all_reduce.cpp. Included by each_isa.h.

// sources[0] + sources[1] + ..., in this order and in f32 (f64 for doubles), rounded once, to both places.
// `result` may be one of the sources.
template <class T, int kSources>
void sum_of(const T* const* sources, int64_t count, int64_t elements, T* result, T* shared) {
  const auto n = kSources ? kSources : count;
  int64_t i = 0;
  for (; i + kLanes<T> <= elements; i += kLanes<T>) {
    auto sum = load(sources[0] + i);
    for (int64_t s = 1; s < n; ++s) sum += load(sources[s] + i);
    store(result + i, sum);
    store(shared + i, sum);
  }
  if (i == elements) return;
  // The rest, as a vector of which some elements are zeros.
  T rest[kLanes<T>];
  VectorOf<T> sum = {};
  for (int64_t s = 0; s < n; ++s) {
    std::fill_n(rest, kLanes<T>, T(0));
    std::copy(sources[s] + i, sources[s] + elements, rest);
    sum = s == 0 ? load(rest) : sum + load(rest);
  }
  store(rest, sum);
  std::copy_n(rest, elements - i, result + i);
  std::copy_n(rest, elements - i, shared + i);
}

template <class T>
void sum_of_any(const T* const* sources, int64_t count, int64_t elements, T* result, T* shared) {
  (count == 2 ? sum_of<T, 2> : sum_of<T, 0>)(sources, count, elements, result, shared);
}
