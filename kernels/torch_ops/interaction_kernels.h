// Vector code of interaction.cpp; see each_isa.h for how it is included.
//
// Forward: products of rows in blocks of kRows by 4, summed along the width in registers. Backward: the
// gradients of the products as a symmetric matrix, times the rows.

inline constexpr int kRows = IPEX_VECTOR_BYTES == 64 ? 4 : 2;

// A block of the elements of T, and how products of two blocks are added to f32 sums.
template <class T>
struct Dot {
  using Block = Floats;
  static constexpr int64_t kStep = kLanes<float>;
  static Block read(const T* memory) { return load(memory); }
  static Floats add(Floats sum, Block a, Block b) { return sum + a * b; }
};
#ifdef IPEX_DOT_BF16
template <>
struct Dot<c10::BFloat16> {
  using Block = __m512bh;
  static constexpr int64_t kStep = 32;
  static Block read(const c10::BFloat16* memory) { return load_as<Block>(memory); }
  static Floats add(Floats sum, Block a, Block b) {
    return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), a, b));
  }
};
#endif

#if IPEX_VECTOR_BYTES == 64
// The sums of neighbouring quads of lanes of `a`, then of `b`.
inline Floats add_quads(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// Writes the sum of each vector: sums[r * stride + c] = sum of acc[r][c].
inline void store_sums(const Floats (&acc)[kRows][4], float* sums, int64_t stride) {
  // Lanes 4k to 4k + 3 of quads[r] hold parts of the sums of acc[r][0] to acc[r][3].
  Floats quads[4];
  for (int r = 0; r < 4; ++r) {
    const Floats* v = acc[r];
    Floats pairs[2];
    for (int i = 0; i < 2; ++i)
      pairs[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12,
                                         28, 13, 29) +
                 __builtin_shufflevector(v[2 * i], v[2 * i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                         14, 30, 15, 31);
    quads[r] = __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13,
                                       28, 29) +
               __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15,
                                       30, 31);
  }
  const Floats all = add_quads(add_quads(quads[0], quads[1]), add_quads(quads[2], quads[3]));
  store_as(sums, __builtin_shufflevector(all, all, 0, 1, 2, 3));
  store_as(sums + stride, __builtin_shufflevector(all, all, 4, 5, 6, 7));
  store_as(sums + 2 * stride, __builtin_shufflevector(all, all, 8, 9, 10, 11));
  store_as(sums + 3 * stride, __builtin_shufflevector(all, all, 12, 13, 14, 15));
}
#else
inline void store_sums(const Floats (&acc)[kRows][4], float* sums, int64_t stride) {
  for (int r = 0; r < kRows; ++r) {
    __m256 v[4];
    for (int i = 0; i < 4; ++i) v[i] = reinterpret_cast<__m256>(acc[r][i]);
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(sums + r * stride, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
}
#endif

// sums[r * stride + c] = rows[r] * columns[c] for kRows by 4 rows of `width` elements, a multiple of kStep.
template <class T>
inline void multiply(const T* const* rows, const T* const* columns, int64_t width, float* sums,
                     int64_t stride) {
  Floats acc[kRows][4];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 4; ++c) acc[r][c] = Floats{};
  for (int64_t k = 0; k < width; k += Dot<T>::kStep) {
    typename Dot<T>::Block column[4];
    for (int c = 0; c < 4; ++c) column[c] = Dot<T>::read(columns[c] + k);
    for (int r = 0; r < kRows; ++r) {
      const auto row = Dot<T>::read(rows[r] + k);
      for (int c = 0; c < 4; ++c) acc[r][c] = Dot<T>::add(acc[r][c], row, column[c]);
    }
  }
  store_sums(acc, sums, stride);
}

template <class T>
void forward(const Interaction& op, int64_t begin, int64_t end, Scratch& scratch) {
  constexpr int64_t kStep = Dot<T>::kStep, kWidth = kLanes<float>;
  const int64_t n = op.count, rows = round_up(n, 4), stride = round_up(n, kWidth);
  const int64_t width = round_up(op.width, kStep), pairs = n * (n - 1) / 2;
  // Rows of other widths are copied, so that zeros follow them. One more row of zeros stands for missing
  // rows.
  const bool copies = width != op.width;
  T* padded = scratch.get<T>(0, (copies ? rows : 1) * width);
  std::memset(static_cast<void*>(padded), 0, (copies ? rows : 1) * width * sizeof(T));
  float* sums = scratch.get<float>(1, rows * stride);
  T* packed = scratch.get<T>(2, pairs + kWidth);
  const T** row = scratch.get<const T*>(3, rows);
  for (int64_t i = n; i < rows; ++i) row[i] = padded + (copies ? i * width : 0);
  for (int64_t b = begin; b < end; ++b) {
    for (int64_t i = 0; i < n; ++i) {
      row[i] = op.row<T>(i, b);
      if (!copies) continue;
      std::memcpy(static_cast<void*>(padded + i * width), row[i], op.width * sizeof(T));
      row[i] = padded + i * width;
    }
    for (int64_t i = 0; i < n; i += kRows)
      for (int64_t j = 0; j < i + kRows - 1; j += 4)
        multiply(row + i, row + j, width, sums + i * stride + j, stride);
    // Each row writes whole vectors; what is too much is overwritten by the next row.
    int64_t next = 0;
    for (int64_t i = 1; i < n; next += i++)
      for (int64_t j = 0; j < i; j += kWidth) store(packed + next + j, load(sums + i * stride + j));
    T* out = static_cast<T*>(op.result) + b * (op.width + pairs);
    std::memcpy(static_cast<void*>(out), op.row<T>(0, b), op.width * sizeof(T));
    std::memcpy(static_cast<void*>(out + op.width), packed, pairs * sizeof(T));
  }
}

// What gradients are sums of: f32 factors times rows, or words of two bf16 factors times two interleaved
// rows. The factors of gradients in bf16 are bf16 numbers, so that nothing is rounded.
template <class T>
struct Term {
  using Row = T;
  using Factor = float;  // as it is stored
  static constexpr int64_t kRows = 1;
  static Floats read(const T* row) { return load(row); }
  static Floats add(Floats sum, const float* factor, Floats row) { return sum + *factor * row; }
};
#ifdef IPEX_DOT_BF16
template <>
struct Term<c10::BFloat16> {
  using Row = uint32_t;
  using Factor = c10::BFloat16;
  static constexpr int64_t kRows = 2;
  static __m512bh read(const uint32_t* rows) { return load_as<__m512bh>(rows); }
  static Floats add(Floats sum, const c10::BFloat16* factors, __m512bh rows) {
    uint32_t word;
    std::memcpy(&word, static_cast<const void*>(factors), sizeof word);
    return reinterpret_cast<Floats>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(Words{} + word), rows));
  }
};
#endif

// Four rows r of gradients, kVectors vectors from `column`: initial[r] + sum over terms t of factors[r] of t
// times terms[t]. Only row 0 has an initial value.
template <class T, int kVectors>
inline void combine(const typename Term<T>::Factor* const* factors, const typename Term<T>::Row* const* terms,
                    int64_t count, const T* initial, T* const* grads, int64_t column) {
  constexpr int64_t kWidth = kLanes<float>;
  Floats acc[4][kVectors];
  for (int r = 0; r < 4; ++r)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Floats{};
  if (initial)
    for (int v = 0; v < kVectors; ++v) acc[0][v] = load(initial + column + v * kWidth);
  for (int64_t t = 0; t < count; ++t) {
    decltype(Term<T>::read(terms[t])) block[kVectors];
    for (int v = 0; v < kVectors; ++v) block[v] = Term<T>::read(terms[t] + column + v * kWidth);
    for (int r = 0; r < 4; ++r)
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = Term<T>::add(acc[r][v], factors[r] + t * Term<T>::kRows, block[v]);
  }
  for (int r = 0; r < 4; ++r)
    for (int v = 0; v < kVectors && grads[r]; ++v) store(grads[r] + column + v * kWidth, acc[r][v]);
}

// The terms of one sample, for the columns that whole vectors cover.
template <class T>
inline void make_terms(const T* const* rows, const T** terms, T*, int64_t count, int64_t) {
  for (int64_t i = 0; i < count; ++i) terms[i] = rows[i];
}
#ifdef IPEX_DOT_BF16
inline void make_terms(const c10::BFloat16* const* rows, const uint32_t** terms, uint32_t* memory,
                       int64_t count, int64_t width) {
  constexpr int64_t kWidth = kLanes<float>;
  for (int64_t t = 0; t < count; ++t) {
    uint32_t* out = memory + t * width;
    terms[t] = out;
    for (int64_t c = 0; c + kWidth <= width; c += kWidth)
      store_as(out + c, __builtin_convertvector(load_as<Shorts>(rows[2 * t] + c), Words) |
                            (__builtin_convertvector(load_as<Shorts>(rows[2 * t + 1] + c), Words) << 16));
  }
}
#endif

template <class T>
void backward(const Interaction& op, int64_t begin, int64_t end, Scratch& scratch) {
  using Factor = typename Term<T>::Factor;
  using Row = typename Term<T>::Row;
  constexpr int64_t kWidth = kLanes<float>;
  constexpr int kVectors = IPEX_VECTOR_BYTES == 64 ? 4 : 2;
  const int64_t n = op.count, pairs = n * (n - 1) / 2;
  const int64_t stride = round_up(n, Term<T>::kRows), count = stride / Term<T>::kRows;
  const int64_t rows = round_up(n, 4);
  Factor* factors = scratch.get<Factor>(0, rows * stride);
  std::memset(static_cast<void*>(factors), 0, rows * stride * sizeof(Factor));
  const T** row = scratch.get<const T*>(1, stride);
  const Row** terms = scratch.get<const Row*>(2, count);
  Row* interleaved = scratch.get<Row>(3, count * op.width);
  for (int64_t b = begin; b < end; ++b) {
    const T* grad = static_cast<const T*>(op.grad) + b * (op.width + pairs);
    const T* pair = grad + op.width;
    // If n is odd, the last row takes part twice, the second time with factors of zero.
    for (int64_t i = 0; i < stride; ++i) row[i] = op.row<T>(std::min(i, n - 1), b);
    make_terms(row, terms, interleaved, count, op.width);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j) factors[i * stride + j] = factors[j * stride + i] = *pair++;
    for (int64_t i = 0; i < n; i += 4) {
      const Factor* factor[4];
      T* grads[4];
      for (int r = 0; r < 4; ++r) {
        factor[r] = factors + (i + r) * stride;
        grads[r] = i + r < n ? static_cast<T*>(op.grads[i + r]) + b * op.width : nullptr;
      }
      const T* initial = i == 0 ? grad : nullptr;
      int64_t column = 0;
      for (; column + kVectors * kWidth <= op.width; column += kVectors * kWidth)
        combine<T, kVectors>(factor, terms, count, initial, grads, column);
      for (; column + kWidth <= op.width; column += kWidth)
        combine<T, 1>(factor, terms, count, initial, grads, column);
      for (; column < op.width; ++column)
        for (int r = 0; r < 4 && grads[r]; ++r) {
          float sum = initial && r == 0 ? static_cast<float>(initial[column]) : 0;
          for (int64_t j = 0; j < n; ++j)
            sum += static_cast<float>(factor[r][j]) * static_cast<float>(row[j][column]);
          grads[r][column] = static_cast<T>(sum);
        }
    }
  }
}
