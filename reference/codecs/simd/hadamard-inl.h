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

/// Butterflies of strides below kVectors vectors, all of which stay in registers. Stage by stage: one
/// vector's stages wait for each other, so all vectors go through one before the next.
template <std::size_t kVectors>
HWY_INLINE void butterflies_in_registers(float* x, FloatVector factor) {
  FloatVector v[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) v[i] = hn::Load(F32(), x + i * kFloats);
  for (FloatVector& part : v) part = butterflies_within<1>(part);
  for (FloatVector& part : v) part = butterflies_within<2>(part);
  if constexpr (kFloats == 8) {
    for (FloatVector& part : v) part = butterflies_within<4>(part);
  }
  for (std::size_t stride = 1; stride < kVectors; stride *= 2) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      if ((i & stride) != 0) continue;
      const FloatVector a = v[i];
      const FloatVector b = v[i + stride];
      v[i] = hn::Add(a, b);
      v[i + stride] = hn::Sub(a, b);
    }
  }
  for (std::size_t i = 0; i < kVectors; ++i) {
    hn::Store(hn::Mul(v[i], factor), F32(), x + i * kFloats);
  }
}

/// As hadamard(), of all blocks of `group` numbers, a power of two from 8 on.
inline void transform(float* x, std::size_t count, std::size_t group) {
  const FloatVector factor =
      hn::Set(F32(), static_cast<float>(1.0 / std::sqrt(static_cast<double>(group))));
  const auto in_registers = [&]<std::size_t kVectors>(FloatVector by) HWY_ATTR {
    for (std::size_t i = 0; i < count; i += kVectors * kFloats) {
      butterflies_in_registers<kVectors>(x + i, by);
    }
  };
  constexpr std::size_t kMost = 8;  // vectors in registers
  switch (group / kFloats) {
    case 1:
      return in_registers.template operator()<1>(factor);
    case 2:
      return in_registers.template operator()<2>(factor);
    case 4:
      return in_registers.template operator()<4>(factor);
    case kMost:
      return in_registers.template operator()<kMost>(factor);
    default:
      in_registers.template operator()<kMost>(hn::Set(F32(), 1.0f));
  }
  for (std::size_t stride = kMost * kFloats; stride < group; stride *= 2) {
    const FloatVector by = 2 * stride == group ? factor : hn::Set(F32(), 1.0f);
    for (std::size_t i = 0; i < count; i += kFloats) {
      if ((i & stride) != 0) continue;
      const FloatVector a = hn::Load(F32(), x + i);
      const FloatVector b = hn::Load(F32(), x + i + stride);
      hn::Store(hn::Mul(hn::Add(a, b), by), F32(), x + i);
      hn::Store(hn::Mul(hn::Sub(a, b), by), F32(), x + i + stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
