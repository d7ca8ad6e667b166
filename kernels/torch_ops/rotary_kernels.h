// Vector code of rotary_embedding.cpp; see each_isa.h for how it is included.

using Ints [[gnu::vector_size(IPEX_VECTOR_BYTES)]] = int32_t;
using Longs [[gnu::vector_size(IPEX_VECTOR_BYTES)]] = int64_t;

// Positions of the lanes of Vector, with at(lane) in each.
template <class Vector, class At>
inline auto lanes(At at) {
  std::conditional_t<std::is_same_v<Vector, Doubles>, Longs, Ints> result{};
  for (size_t lane = 0; lane < sizeof(result) / sizeof(result[0]); ++lane)
    result[lane] = at(static_cast<int>(lane));
  return result;
}

// Pairs of x[i] and x[i + offset] for i in [0, count).
template <class T>
inline void rotate_distant(const T* x, const Angle<T>* sin, const Angle<T>* cos, int64_t count,
                           int64_t offset, T* y) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const auto a = load(x + i), b = load(x + i + offset), s = load(sin + i), c = load(cos + i);
    store(y + i, a * c - b * s);
    store(y + i + offset, b * c + a * s);
  }
  for (; i < count; ++i) {
    const Angle<T> a = static_cast<Angle<T>>(x[i]), b = static_cast<Angle<T>>(x[i + offset]);
    y[i] = static_cast<T>(a * cos[i] - b * sin[i]);
    y[i + offset] = static_cast<T>(b * cos[i] + a * sin[i]);
  }
}

// Lane i is lane index(i) of the vector. `index` must not capture.
template <class Vector, class Index, int... Lane>
inline Vector permuted(Vector v, Index index, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(v, v, index(Lane)...);
}

// Pairs of x[2i] and x[2i + 1] for i in [0, count).
template <class T>
inline void rotate_neighbours(const T* x, const Angle<T>* sin, const Angle<T>* cos, int64_t count, T* y) {
  using Vector = VectorOf<T>;
  constexpr int kWidth = static_cast<int>(kLanes<T>);
  using Lanes = std::make_integer_sequence<int, kWidth>;
  constexpr auto kSwapped = [](int lane) { return lane ^ 1; };
  constexpr auto kLower = [](int lane) { return lane / 2; };
  constexpr auto kUpper = [](int lane) { return kWidth / 2 + lane / 2; };
  const auto odd = lanes<Vector>([](int lane) { return lane & 1 ? -1 : 0; });
  const auto rotate = [&](int64_t at, Vector s, Vector c) {
    const Vector v = load(x + at), turned = permuted(v, kSwapped, Lanes()) * (odd ? s : -s);
    store(y + at, v * c + turned);
  };
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector s = load(sin + i), c = load(cos + i);
    rotate(2 * i, permuted(s, kLower, Lanes()), permuted(c, kLower, Lanes()));
    rotate(2 * i + kWidth, permuted(s, kUpper, Lanes()), permuted(c, kUpper, Lanes()));
  }
  for (; i < count; ++i) {
    const Angle<T> a = static_cast<Angle<T>>(x[2 * i]), b = static_cast<Angle<T>>(x[2 * i + 1]);
    y[2 * i] = static_cast<T>(a * cos[i] - b * sin[i]);
    y[2 * i + 1] = static_cast<T>(b * cos[i] + a * sin[i]);
  }
}

template <class T>
inline void rotate_heads(const Rotation& r, const T* x, const Angle<T>* angles, int64_t heads, T* y) {
  const Angle<T>* cos = angles + r.table_width / 2;
  for (int64_t head = 0; head < heads; ++head, x += r.width, y += r.width) {
    if (r.offset == 1) {
      rotate_neighbours(x, angles, cos, r.pairs, y);
      std::copy(x + 2 * r.pairs, x + r.width, y + 2 * r.pairs);
    } else {
      rotate_distant(x, angles, cos, r.pairs, r.offset, y);
      std::copy(x + r.pairs, x + r.offset, y + r.pairs);
      std::copy(x + r.offset + r.pairs, x + r.width, y + r.offset + r.pairs);
    }
  }
}

template <class T>
void rotate_tokens(const Rotation& r, int64_t begin, int64_t end) {
  const int64_t query = r.heads * r.width, key = r.key_heads * r.width;
  for (int64_t token = begin; token < end; ++token) {
    const T* x = static_cast<const T*>(r.input) + token / r.tokens * r.batch_stride +
                 token % r.tokens * r.token_stride;
    const auto* angles = static_cast<const Angle<T>*>(r.table) + r.positions[token] * r.table_width;
    rotate_heads(r, x, angles, r.heads, static_cast<T*>(r.query) + token * query);
    if (r.key_heads == 0) continue;
    rotate_heads(r, x + query, angles, r.key_heads, static_cast<T*>(r.key) + token * key);
    std::copy(x + query + key, x + query + 2 * key, static_cast<T*>(r.value) + token * key);
  }
}
