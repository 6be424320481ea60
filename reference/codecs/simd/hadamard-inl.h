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

/// In place; `size` is a power of two of at least 8.
inline void transform_block(float* x, std::size_t size) {
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  const FloatVector scale = hn::Set(F32(), factor);
  // Four vectors at a time take the strides within them and, where there are so many, the next two.
  if (size >= 4 * kFloats) {
    const bool last = size == 4 * kFloats;
    for (std::size_t i = 0; i < size; i += 4 * kFloats) {
      FloatVector a = butterflies_within_vector(hn::LoadU(F32(), x + i));
      FloatVector b = butterflies_within_vector(hn::LoadU(F32(), x + i + kFloats));
      FloatVector c = butterflies_within_vector(hn::LoadU(F32(), x + i + 2 * kFloats));
      FloatVector d = butterflies_within_vector(hn::LoadU(F32(), x + i + 3 * kFloats));
      const FloatVector e = hn::Add(a, b);
      const FloatVector f = hn::Sub(a, b);
      const FloatVector g = hn::Add(c, d);
      const FloatVector h = hn::Sub(c, d);
      a = hn::Add(e, g);
      b = hn::Add(f, h);
      c = hn::Sub(e, g);
      d = hn::Sub(f, h);
      if (last) {
        a = hn::Mul(a, scale);
        b = hn::Mul(b, scale);
        c = hn::Mul(c, scale);
        d = hn::Mul(d, scale);
      }
      hn::StoreU(a, F32(), x + i);
      hn::StoreU(b, F32(), x + i + kFloats);
      hn::StoreU(c, F32(), x + i + 2 * kFloats);
      hn::StoreU(d, F32(), x + i + 3 * kFloats);
    }
    if (last) return;
  } else {
    for (std::size_t i = 0; i < size; i += kFloats) {
      hn::StoreU(butterflies_within_vector(hn::LoadU(F32(), x + i)), F32(), x + i);
    }
  }
  for (std::size_t stride = size >= 4 * kFloats ? 4 * kFloats : kFloats; stride < size;
       stride *= 2) {
    for (std::size_t first = 0; first < size; first += 2 * stride) {
      for (std::size_t i = first; i < first + stride; i += kFloats) {
        const FloatVector a = hn::LoadU(F32(), x + i);
        const FloatVector b = hn::LoadU(F32(), x + i + stride);
        hn::StoreU(hn::Add(a, b), F32(), x + i);
        hn::StoreU(hn::Sub(a, b), F32(), x + i + stride);
      }
    }
  }
  for (std::size_t i = 0; i < size; i += kFloats) {
    hn::StoreU(hn::Mul(hn::LoadU(F32(), x + i), scale), F32(), x + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
