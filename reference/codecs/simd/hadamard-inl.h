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

inline float hadamard_factor(std::size_t size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
}

/// Butterflies between vectors of blocks of kVectors, from a stride of kStride vectors on.
template <std::size_t kVectors, std::size_t kStride = 1, std::size_t kCount>
HWY_INLINE void butterflies_between(FloatVector (&x)[kCount]) {
  if constexpr (kStride < kVectors) {
    for (std::size_t first = 0; first < kCount; first += 2 * kStride) {
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

/// As many vectors as stay in registers.
inline constexpr std::size_t kHadamardVectors = 8;

/// Blocks of kVectors vectors, all strides within them, without the factor. Stage by stage: one
/// vector's stages wait for each other, so all vectors go through one before the next.
template <std::size_t kVectors, std::size_t kCount>
HWY_INLINE void transform_vectors(FloatVector (&x)[kCount]) {
  for (FloatVector& v : x) v = butterflies_within<1>(v);
  for (FloatVector& v : x) v = butterflies_within<2>(v);
  if constexpr (kFloats == 8) {
    for (FloatVector& v : x) v = butterflies_within<4>(v);
  }
  butterflies_between<kVectors>(x);
}

/// Transforms blocks of kVectors vectors: load(block, i) makes vector i of a block, and
/// store(block, i, vector) takes it. As many blocks at a time as registers hold.
template <std::size_t kVectors, class Load, class Store>
HWY_INLINE void transform_in_registers(std::size_t blocks, const Load& load, const Store& store) {
  static_assert(kVectors <= kHadamardVectors);
  const FloatVector factor = hn::Set(F32(), hadamard_factor(kVectors * kFloats));
  const auto transform = [&]<std::size_t kTogether>(std::size_t b) HWY_ATTR {
    FloatVector v[kTogether * kVectors];
    for (std::size_t i = 0; i < kTogether * kVectors; ++i)
      v[i] = load(b + i / kVectors, i % kVectors);
    transform_vectors<kVectors>(v);
    for (std::size_t i = 0; i < kTogether * kVectors; ++i) {
      store(b + i / kVectors, i % kVectors, hn::Mul(v[i], factor));
    }
  };
  constexpr std::size_t kTogether = kHadamardVectors / kVectors;
  std::size_t b = 0;
  for (; b + kTogether <= blocks; b += kTogether) transform.template operator()<kTogether>(b);
  for (; b < blocks; ++b) transform.template operator()<1>(b);
}

/// Consecutive blocks.
template <std::size_t kVectors>
void transform_small_blocks(float* x, std::size_t count) {
  const auto at = [x](std::size_t b, std::size_t i) { return x + (b * kVectors + i) * kFloats; };
  transform_in_registers<kVectors>(
      count, [&](std::size_t b, std::size_t i) HWY_ATTR { return hn::LoadU(F32(), at(b, i)); },
      [&](std::size_t b, std::size_t i, FloatVector v)
          HWY_ATTR { hn::StoreU(v, F32(), at(b, i)); });
}

/// Calls f<kVectors>() if blocks of so many elements are transformed in registers.
template <class F>
HWY_INLINE bool with_registers(std::size_t size, const F& f) {
  switch (size / kFloats) {
    case 1:
      return f.template operator()<1>(), true;
    case 2:
      return f.template operator()<2>(), true;
    case 4:
      return f.template operator()<4>(), true;
    case 8:
      return f.template operator()<8>(), true;
    default:
      return false;
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
    transform_vectors<kHadamardVectors>(v);
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
  if (with_registers(size, [&]<std::size_t kVectors>()
                               HWY_ATTR { transform_small_blocks<kVectors>(x, count); })) {
    return;
  }
  for (std::size_t b = 0; b < count; ++b) transform_large_block(x + b * size, size);
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
