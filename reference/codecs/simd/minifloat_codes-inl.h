// Scaled elements to the codes of the small floats of microscaling and NVFP4.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_MINIFLOAT_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_MINIFLOAT_CODES_INL_H_
#undef ARLAB_CODECS_SIMD_MINIFLOAT_CODES_INL_H_
#else
#define ARLAB_CODECS_SIMD_MINIFLOAT_CODES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "reference/codecs/simd/tiles-inl.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- element formats

/// `kTop` is the code of the largest value, 2^kMinExponent the smallest normal number.
template <Minifloat kFormat, unsigned kCodeBits, int kExponentOfLargest>
struct ElementFormat {
  static constexpr unsigned kBits = kCodeBits;
  static constexpr int kMantissa = kFormat.mantissa_bits;
  static constexpr int kMinExponent = 1 - kFormat.bias;
  static constexpr int kLargestExponent = kExponentOfLargest;
  static constexpr float kLargest = minifloat_to_float<kFormat>(kFormat.max_finite());
  /// half_patterns() lack 2^kFold.
  static constexpr int kFold = kBits == 4 ? 0 : 15 - kFormat.bias;
  static constexpr std::uint8_t kTop = static_cast<std::uint8_t>(kFormat.max_finite());
  /// The smallest magnitude code that is a NaN.
  static constexpr std::uint8_t kFirstNan = static_cast<std::uint8_t>(
      kFormat.special == SpecialCodes::infinity_and_nan ? kTop + 2 : kTop + 1);
};

using E4M3 = ElementFormat<kE4m3fn, 8, 8>;
using E5M2 = ElementFormat<kE5m2, 8, 15>;
using E2M3 = ElementFormat<kE2m3, 6, 2>;
using E3M2 = ElementFormat<kE3m2, 6, 4>;
using E2M1 = ElementFormat<kE2m1, 4, 2>;

// ---------------------------------------------------------------- elements to codes

/// Four vectors of scaled elements. Adding 2^k whose last place is the spacing of the format around
/// |x| rounds |x| to it, and leaves the number of spacings in the low bits; below the smallest
/// normal number the spacing stays the same. Codes count spacings, 2^kMantissa of them per binade,
/// so a code is that number plus the exponent shifted. One multiply-add of the sum's halves does
/// it.
template <class Format, bool kCount>
HWY_INLINE ByteVector float_codes(const FloatVector (&x)[4], std::uint64_t& clamped) {
  constexpr int kMantissa = Format::kMantissa;
  constexpr std::int32_t kSmallestNormal = (127 + Format::kMinExponent) << 23;
  constexpr std::int32_t kLift = (23 - kMantissa) << 23;
  constexpr int kUnit = 7 - kMantissa;  // the exponent's last bit is 2^7 in the upper half
  constexpr std::int16_t kBase = static_cast<std::int16_t>((kSmallestNormal + kLift) >> 16);
  const auto weighted = [](FloatVector v) HWY_ATTR {
    const Int32Vector exponent =
        hn::And(hn::BitCast(I32(), v), hn::Set(I32(), std::int32_t{0x7F800000}));
    const Int32Vector binade = hn::Max(exponent, hn::Set(I32(), kSmallestNormal));
    const Int32Vector rounder = hn::Add(binade, hn::Set(I32(), kLift));
    const FloatVector sum = hn::Add(hn::Abs(v), hn::BitCast(F32(), rounder));
    return weighted_pairs<1 << kUnit, 1>(hn::BitCast(I16(), sum));
  };
  const auto codes = [&](FloatVector first, FloatVector second) HWY_ATTR {
    const Int16Vector both = narrow_blocks(weighted(first), weighted(second));
    const Int16Vector code = hn::ShiftRight<kUnit>(hn::Sub(both, hn::Set(I16(), kBase)));
    if constexpr (kCount) {
      clamped += hn::CountTrue(I16(), hn::Gt(code, hn::Set(I16(), std::int16_t{Format::kTop})));
    }
    return code;
  };
  const ByteVector magnitude =
      hn::Min(narrow_blocks(codes(x[0], x[1]), codes(x[2], x[3])), hn::Set(U8(), Format::kTop));
  const auto narrowed = [](FloatVector first, FloatVector second) HWY_ATTR {
    return narrow_blocks(hn::BitCast(I32(), first), hn::BitCast(I32(), second));
  };
  ByteVector sign = hn::BitCast(U8(), narrow_signed(narrowed(x[0], x[1]), narrowed(x[2], x[3])));
  if constexpr (Format::kBits < 8) {
    sign = hn::BitCast(U8(), hn::ShiftRight<8 - Format::kBits>(hn::BitCast(U16(), sign)));
  }
  return hn::Or(magnitude, hn::And(sign, hn::Set(U8(), 1 << (Format::kBits - 1))));
}

/// Calls f(first, fp16 patterns) for half a vector of words of codes at a time. They lack 2^kFold.
template <class Format, class F>
HWY_INLINE void for_each_half(ByteVector codes, const F& f) {
  if constexpr (Format::kBits == 4) {  // all that is not 0 is in the high bytes
    alignas(16) static constexpr std::uint8_t kHigh[16] = {0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42,
                                                           0x44, 0x46, 0x80, 0xB8, 0xBC, 0xBE,
                                                           0xC0, 0xC2, 0xC4, 0xC6};
    const ByteVector high = hn::TableLookupBytes(hn::LoadDup128(U8(), kHigh), codes);
    for_each_half_of(hn::Zero(U8()), high, f);
    return;
  }
  constexpr int kUp = 8 - Format::kBits;  // of the sign
  constexpr int kDown = Format::kMantissa < 2 ? 0 : Format::kMantissa - 2;
  for_each_half_of(hn::Zero(U8()), codes, [&](std::size_t at, HalfUint16Vector v) HWY_ATTR {
    const HalfUint16Vector magnitude = hn::And(v, hn::Set(HalfU16(), 0x7FFF >> kUp));
    f(at, hn::Or(hn::ShiftRight<kDown>(magnitude), hn::ShiftLeft<kUp>(hn::Xor(v, magnitude))));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
