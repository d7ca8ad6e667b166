// Vectors of one instruction set. each_isa.h includes this file several times, each time in a namespace of
// its own, between `#pragma GCC target` lines and with IPEX_VECTOR_BYTES set; so there is no include guard.
// The code is chosen at run time by current_isa().
//
// Masks without zeros avoid a false warning of GCC 12 about the intrinsics without masks.
//
// 16-bit floats are computed in f32. Conversions round to nearest, ties to even, and keep NaN.

using Floats [[gnu::vector_size(IPEX_VECTOR_BYTES)]] = float;
using Doubles [[gnu::vector_size(IPEX_VECTOR_BYTES)]] = double;
using Words [[gnu::vector_size(IPEX_VECTOR_BYTES)]] = uint32_t;
using Shorts [[gnu::vector_size(IPEX_VECTOR_BYTES / 2)]] = uint16_t;

template <class Vector, class Memory>
inline Vector load_as(const Memory* memory) {
  Vector vector;
  std::memcpy(&vector, memory, sizeof vector);
  return vector;
}
template <class Vector, class Memory>
inline void store_as(Memory* memory, Vector vector) {
  std::memcpy(static_cast<void*>(memory), &vector, sizeof vector);
}

// As many elements as a vector of the type that they are computed in.
inline Floats load(const float* memory) { return load_as<Floats>(memory); }
inline Doubles load(const double* memory) { return load_as<Doubles>(memory); }
inline Floats load(const c10::BFloat16* memory) {
  return reinterpret_cast<Floats>(__builtin_convertvector(load_as<Shorts>(memory), Words) << 16);
}
inline Floats load(const c10::Half* memory) {
#if IPEX_VECTOR_BYTES == 64
  return reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, load_as<__m256i>(memory)));
#else
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(load_as<__m128i>(memory)));
#endif
}

inline void store(float* memory, Floats vector) { store_as(memory, vector); }
inline void store(double* memory, Doubles vector) { store_as(memory, vector); }
inline void store(c10::BFloat16* memory, Floats vector) {
  const Words bits = reinterpret_cast<Words>(vector);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words is_nan = reinterpret_cast<Words>(vector != vector);
  store_as(memory, __builtin_convertvector((is_nan & 0x7fc0) | (~is_nan & rounded), Shorts));
}
inline void store(c10::Half* memory, Floats vector) {
#if IPEX_VECTOR_BYTES == 64
  store_as(memory,
           _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(vector), _MM_FROUND_TO_NEAREST_INT));
#else
  store_as(memory, _mm256_cvtps_ph(reinterpret_cast<__m256>(vector), _MM_FROUND_TO_NEAREST_INT));
#endif
}

inline Floats square_root(Floats vector) {
#if IPEX_VECTOR_BYTES == 64
  return reinterpret_cast<Floats>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(vector)));
#else
  return reinterpret_cast<Floats>(_mm256_sqrt_ps(reinterpret_cast<__m256>(vector)));
#endif
}
inline Doubles square_root(Doubles vector) {
#if IPEX_VECTOR_BYTES == 64
  return reinterpret_cast<Doubles>(_mm512_maskz_sqrt_pd(0xff, reinterpret_cast<__m512d>(vector)));
#else
  return reinterpret_cast<Doubles>(_mm256_sqrt_pd(reinterpret_cast<__m256d>(vector)));
#endif
}
inline float square_root(float value) { return std::sqrt(value); }
inline double square_root(double value) { return std::sqrt(value); }

// The vector that elements of T are computed in, and its number of elements.
template <class T>
using VectorOf = std::conditional_t<std::is_same_v<T, double>, Doubles, Floats>;
template <class T>
inline constexpr int64_t kLanes = IPEX_VECTOR_BYTES / (std::is_same_v<T, double> ? 8 : 4);
