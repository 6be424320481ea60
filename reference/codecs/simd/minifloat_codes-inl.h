// Scaled elements to the codes of the small floats of microscaling and NVFP4.
//
// Codes come in bytes, kBytes elements at a time. Scaled elements are rounded in one of two ways.
//   fp32      scaled by a multiplication, rounded by adding a power of two (`float_codes`): always.
//   integer   on the bits of 16-bit elements, whose exponent a power of two only shifts: twice as
//             fast, where both the elements and what they are compared with are normal numbers
//             (`fp4_codes`, `fp8_codes`).

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

#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- element formats

/// `kTop` is the code of the largest value, 2^kMinExponent the smallest normal number.
template <Minifloat kFormat, unsigned kCodeBits, int kLargestExponent>
struct ElementFormat {
  static constexpr unsigned kBits = kCodeBits;
  static constexpr int kMantissa = kFormat.mantissa_bits;
  static constexpr int kMinExponent = 1 - kFormat.bias;
  static constexpr int kEmax = kLargestExponent;
  static constexpr float kLargest = minifloat_to_float<kFormat>(kFormat.max_finite());
  static constexpr int kBiasBelowHalf = 15 - kFormat.bias;
  static constexpr std::uint8_t kTop = static_cast<std::uint8_t>(kFormat.max_finite());
  /// The smallest magnitude code that is a NaN.
  static constexpr std::uint8_t kFirstNan = static_cast<std::uint8_t>(
      kFormat.special == SpecialCodes::infinity_and_nan ? kTop + 2 : kTop + 1);

  static float value(std::uint8_t code) { return minifloat_to_float<kFormat>(code); }
};

using E4M3 = ElementFormat<kE4m3fn, 8, 8>;
using E5M2 = ElementFormat<kE5m2, 8, 15>;
using E2M3 = ElementFormat<kE2m3, 6, 2>;
using E3M2 = ElementFormat<kE3m2, 6, 4>;
using E2M1 = ElementFormat<kE2m1, 4, 2>;

/// fp32 magnitudes rounded to a format, saturated only by what `top` says: the codes without signs.
template <class Format>
HWY_INLINE Uint32Vector magnitude_codes(FloatVector x) {
  // See float_codes.
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(127 + Format::kMinExponent)
                                            << 23;
  constexpr int kShift = 23 - Format::kMantissa;
  const Uint32Vector exponent = hn::And(bits_of(x), hn::Set(U32(), 0x7F800000));
  const Int32Vector binade =
      hn::Max(hn::BitCast(I32(), exponent), hn::Set(I32(), std::int32_t{kSmallestNormal}));
  const Uint32Vector rounder =
      hn::Add(hn::BitCast(U32(), binade), hn::Set(U32(), std::uint32_t{kShift} << 23));
  const Uint32Vector sum = bits_of(hn::Add(hn::Abs(x), float_of(rounder)));
  const Uint32Vector start =
      hn::ShiftRight<kShift>(hn::Sub(hn::BitCast(U32(), binade), hn::Set(U32(), kSmallestNormal)));
  return hn::Add(start, hn::Sub(sum, rounder));
}

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

/// The same from memory, elements in order.
template <class Standard, class Payload, bool kCount>
HWY_INLINE ByteVector float_codes_of(const typename Payload::Element* x, std::size_t first,
                                     const typename Standard::Scales& scales,
                                     std::uint64_t& clamped) {
  FloatVector scaled[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t at = first + i * kFloats;
    scaled[i] =
        hn::Mul(Payload::load(x + at), hn::Set(F32(), scales.multiplier[at / Standard::kBlock]));
  }
  std::uint64_t count = 0;
  const ByteVector codes = float_codes<typename Standard::Element, kCount>(scaled, count);
  if constexpr (kCount) {
    // Blocks of NVFP4 are as long as two vectors of floats, or more: count where there is a block.
    if (scales.multiplier[first / Standard::kBlock] != 0 &&
        scales.multiplier[(first + kBytes - 1) / Standard::kBlock] != 0) {
      clamped += count;
    } else {
      for (std::size_t i = 0; i < 4; i += 2) {
        if (scales.multiplier[(first + i * kFloats) / Standard::kBlock] == 0) continue;
        const FloatVector zero = hn::Zero(F32());
        const FloatVector half[4] = {scaled[i], scaled[i + 1], zero, zero};
        float_codes<typename Standard::Element, true>(half, clamped);
      }
    }
  }
  return codes;
}

/// e2m1 of 16-bit elements whose scale has an exponent field of at least 3. Bytes are in blocks of
/// 8, as narrow_blocks leaves them.
///
/// The code depends on the exponent and two mantissa bits of x / scale, if what lies exactly on a
/// boundary 1.01 or 1.11 times a power of two falls to the even side: the lower at .01, where the
/// bit before the last is 0. So 1 is subtracted from such bits, and what else then falls into the
/// bucket below is a power of two (1 and above), whose code that bucket has, too; or 0.25, which
/// is a tie and becomes 0. Buckets count from 0 at 0.5 to 15 below 8; a table has their codes, but
/// for those below 0: 1 from 0.25 on, else 0.
template <class Payload, bool kCount>
HWY_INLINE ByteVector fp4_codes(const std::uint16_t* x, const std::int16_t* ones, std::size_t first,
                                std::uint64_t& clamped) {
  constexpr int kMantissa = Payload::kMantissaBits;
  const std::int16_t one = ones[first / 32];
  const Int16Vector offset =
      hn::Set(I16(), static_cast<std::int16_t>(((one - 1) << kMantissa) + 1));
  const Uint16Vector low = hn::LoadU(U16(), x + first);
  const Uint16Vector high = hn::LoadU(U16(), x + first + kWords);
  const auto bucket = [&](Uint16Vector v) HWY_ATTR {
    const Uint16Vector magnitude = hn::And(v, hn::Set(U16(), 0x7FFF));
    const Uint16Vector is_upper = hn::And(hn::ShiftRight<kMantissa - 1>(v), hn::Set(U16(), 1));
    const Int16Vector placed = hn::BitCast(I16(), hn::Add(magnitude, is_upper));
    return hn::ShiftRight<kMantissa - 2>(hn::Sub(placed, offset));
  };
  const SignedByteVector buckets = narrow_signed(bucket(low), bucket(high));
  if constexpr (kCount) {
    clamped += hn::CountTrue(I8(), hn::Gt(buckets, hn::Set(I8(), 14)));  // from 7 on
  }
  // One less than the codes of 0.5, 0.625, 0.75, ...
  alignas(16) static constexpr std::uint8_t kCodes[16] = {0, 0, 1, 1, 1, 2, 2, 3,
                                                          3, 4, 4, 5, 5, 6, 6, 6};
  const SignedByteVector table = hn::BitCast(I8(), hn::LoadDup128(U8(), kCodes));
  const SignedByteVector upper = hn::TableLookupBytesOr0(table, buckets);
  const SignedByteVector reached =
      hn::VecFromMask(I8(), hn::Gt(buckets, hn::Set(I8(), -5)));  // -1 from 0.25 on
  const ByteVector magnitude = hn::BitCast(U8(), hn::Sub(upper, reached));
  const ByteVector sign =
      hn::BitCast(U8(), narrow_signed(hn::BitCast(I16(), low), hn::BitCast(I16(), high)));
  const ByteVector sign_bit =
      hn::And(hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), sign))), hn::Set(U8(), 0x08));
  return hn::Or(magnitude, sign_bit);
}

/// For each block, what fp8_codes compares magnitudes with and subtracts from them; twice in a
/// lane, so that a load puts it into all 16-bit lanes.
template <class Format, class Payload, std::size_t kBlocks>
struct Fp8Limits {
  alignas(32) std::int32_t offset[kBlocks];  // to the code, before what is lost is shifted out
  alignas(32) std::int32_t below_normal[kBlocks];  // largest that is no normal number of both
  alignas(32) std::int32_t largest_zero[kBlocks];  // largest that rounds to 0

  /// Of so many blocks, a multiple of 8, from the exponent fields of their scales.
  HWY_INLINE void find(const std::int16_t* ones, std::size_t blocks) {
    constexpr int kMantissa = Payload::kMantissaBits;
    constexpr int kShift = kMantissa - Format::kMantissa;
    const auto number = [](int value) HWY_ATTR { return hn::Set(I32(), value); };
    const auto twice = [](Int32Vector v, std::int32_t* to) HWY_ATTR {
      const Int32Vector low = hn::And(v, hn::Set(I32(), 0xFFFF));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(v)), I32(), to);
    };
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const Int32Vector one = hn::PromoteTo(I32(), hn::LoadU(HalfI16(), ones + b));
      const Int32Vector smallest = hn::Add(one, number(Format::kMinExponent));  // exponent field
      const Int32Vector zero = hn::Sub(smallest, number(Format::kMantissa + 1));
      const Int32Vector before = hn::ShiftLeft<kMantissa>(hn::Sub(smallest, number(1)));
      twice(hn::Sub(before, number((1 << (kShift - 1)) - 1)), offset + b);
      const Int32Vector normal = hn::ShiftLeft<kMantissa>(hn::Max(smallest, number(1)));
      twice(hn::Sub(normal, number(1)), below_normal + b);
      twice(hn::ShiftLeft<kMantissa>(hn::Max(zero, number(0))), largest_zero + b);
    }
  }
};

/// An 8-bit format of 16-bit elements, in the same order. False in `plain` where an element is
/// neither a normal number of both formats nor rounds to 0.
///
/// Shifting the exponent leaves the integer's carry to round: what is above a half of the last
/// place that is kept, and a half if that place is odd.
template <class Format, class Payload, bool kCount, std::size_t kBlocks>
HWY_INLINE ByteVector fp8_codes(const std::uint16_t* x,
                                const Fp8Limits<Format, Payload, kBlocks>& limits,
                                std::size_t first, bool& plain, std::uint64_t& clamped) {
  constexpr int kShift = Payload::kMantissaBits - Format::kMantissa;
  const auto words = [block = first / 32](const std::int32_t* values)
                         HWY_ATTR { return hn::BitCast(I16(), hn::Set(I32(), values[block])); };
  const Int16Vector offset = words(limits.offset);
  const Int16Vector below_normal = words(limits.below_normal);
  const Int16Vector largest_zero = words(limits.largest_zero);
  const Uint16Vector low = hn::LoadU(U16(), x + first);
  const Uint16Vector high = hn::LoadU(U16(), x + first + kWords);
  auto between = hn::Zero(I16());
  const auto code = [&](Uint16Vector v) HWY_ATTR {
    const Uint16Vector magnitude = hn::And(v, hn::Set(U16(), 0x7FFF));
    const Int16Vector m = hn::BitCast(I16(), magnitude);
    const Uint16Vector is_odd = hn::And(hn::ShiftRight<kShift>(v), hn::Set(U16(), 1));
    const Int16Vector carried = hn::BitCast(I16(), hn::Add(magnitude, is_odd));
    const Int16Vector rounded = hn::ShiftRight<kShift>(hn::Sub(carried, offset));
    const Int16Vector is_normal = hn::VecFromMask(I16(), hn::Gt(m, below_normal));
    const Int16Vector is_more = hn::VecFromMask(I16(), hn::Gt(m, largest_zero));
    between = hn::Or(between, hn::AndNot(is_normal, is_more));
    const Int16Vector result = hn::And(rounded, is_normal);
    if constexpr (kCount) {
      clamped += hn::CountTrue(I16(), hn::Gt(result, hn::Set(I16(), std::int16_t{Format::kTop})));
    }
    return result;
  };
  const ByteVector magnitude =
      hn::Min(narrow_blocks(code(low), code(high)), hn::Set(U8(), Format::kTop));
  plain = hn::AllTrue(I16(), hn::Eq(between, hn::Zero(I16())));
  const ByteVector sign =
      hn::BitCast(U8(), narrow_signed(hn::BitCast(I16(), low), hn::BitCast(I16(), high)));
  return hn::Or(magnitude, hn::And(sign, hn::Set(U8(), 0x80)));
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
