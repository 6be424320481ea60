// Block Hadamard transform (../hadamard.h) with vectors.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#undef ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#else
#define ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Butterflies of a stride below the number of lanes: a + b in the lane of a, a - b = a + (-b) in
/// the lane of b, which is the same number.
template <std::size_t kStride>
HWY_INLINE FloatVector butterflies_within(FloatVector x) {
  constexpr std::uint32_t kSign = 0x80000000;
  alignas(32) static constexpr std::uint32_t kSigns[8] = {0,
                                                          kStride == 1 ? kSign : 0,
                                                          kStride == 2 ? kSign : 0,
                                                          kStride <= 2 ? kSign : 0,
                                                          kStride == 4 ? kSign : 0,
                                                          kStride != 2 ? kSign : 0,
                                                          kStride != 1 ? kSign : 0,
                                                          kSign};
  const FloatVector negated = float_of(hn::Xor(bits_of(x), hn::Load(U32(), kSigns)));
  if constexpr (kStride == 1) {
    return hn::Add(hn::Shuffle2301(x), negated);
  } else if constexpr (kStride == 2) {
    return hn::Add(hn::Shuffle1032(x), negated);
  } else {
    return hn::Add(hn::ConcatLowerUpper(F32(), x, x), negated);
  }
}

HWY_INLINE FloatVector butterflies_within_vector(FloatVector x) {
  x = butterflies_within<2>(butterflies_within<1>(x));
  if constexpr (kFloats == 8) x = butterflies_within<4>(x);
  return x;
}

inline float hadamard_factor(std::size_t size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
}

/// Butterflies between vectors, from a stride of kStride vectors on.
template <std::size_t kVectors, std::size_t kStride = 1>
HWY_INLINE void butterflies_between(FloatVector (&x)[kVectors]) {
  if constexpr (kStride < kVectors) {
    for (std::size_t first = 0; first < kVectors; first += 2 * kStride) {
      for (std::size_t i = first; i < first + kStride; ++i) {
        const FloatVector a = x[i];
        const FloatVector b = x[i + kStride];
        x[i] = hn::Add(a, b);
        x[i + kStride] = hn::Sub(a, b);
      }
    }
    butterflies_between<kVectors, 2 * kStride>(x);
  }
}

/// kVectors consecutive vectors, all strides within them, without the factor.
template <std::size_t kVectors>
HWY_INLINE void transform_vectors(FloatVector (&x)[kVectors]) {
  for (FloatVector& v : x) v = butterflies_within_vector(v);
  butterflies_between(x);
}

/// As many vectors as stay in registers.
inline constexpr std::size_t kHadamardVectors = 8;

/// Consecutive blocks of kSize elements, all of a block in registers.
template <std::size_t kSize>
void transform_small_blocks(float* x, std::size_t count) {
  constexpr std::size_t kVectors = kSize / kFloats;
  const FloatVector factor = hn::Set(F32(), hadamard_factor(kSize));
  for (std::size_t b = 0; b < count; ++b, x += kSize) {
    FloatVector v[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) v[i] = hn::LoadU(F32(), x + i * kFloats);
    transform_vectors(v);
    for (std::size_t i = 0; i < kVectors; ++i) {
      hn::StoreU(hn::Mul(v[i], factor), F32(), x + i * kFloats);
    }
  }
}

/// One block of more than fits into registers.
inline void transform_large_block(float* x, std::size_t size) {
  constexpr std::size_t kPart = kHadamardVectors * kFloats;
  for (std::size_t first = 0; first < size; first += kPart) {
    FloatVector v[kHadamardVectors];
    for (std::size_t i = 0; i < kHadamardVectors; ++i) {
      v[i] = hn::LoadU(F32(), x + first + i * kFloats);
    }
    transform_vectors(v);
    for (std::size_t i = 0; i < kHadamardVectors; ++i) {
      hn::StoreU(v[i], F32(), x + first + i * kFloats);
    }
  }
  const FloatVector factor = hn::Set(F32(), hadamard_factor(size));
  for (std::size_t stride = kPart; stride < size; stride *= 2) {
    const bool last = 2 * stride == size;
    for (std::size_t first = 0; first < size; first += 2 * stride) {
      for (std::size_t i = first; i < first + stride; i += kFloats) {
        const FloatVector a = hn::LoadU(F32(), x + i);
        const FloatVector b = hn::LoadU(F32(), x + i + stride);
        const FloatVector sum = hn::Add(a, b);
        const FloatVector difference = hn::Sub(a, b);
        hn::StoreU(last ? hn::Mul(sum, factor) : sum, F32(), x + i);
        hn::StoreU(last ? hn::Mul(difference, factor) : difference, F32(), x + i + stride);
      }
    }
  }
}

/// In place; `size` is a power of two of at least 8.
inline void transform_blocks(float* x, std::size_t count, std::size_t size) {
  switch (size) {
    case 8:
      return transform_small_blocks<8>(x, count);
    case 16:
      return transform_small_blocks<16>(x, count);
    case 32:
      return transform_small_blocks<32>(x, count);
    default:
      break;
  }
  if (size == kHadamardVectors * kFloats) {
    return transform_small_blocks<kHadamardVectors * kFloats>(x, count);
  }
  for (std::size_t b = 0; b < count; ++b) transform_large_block(x + b * size, size);
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
