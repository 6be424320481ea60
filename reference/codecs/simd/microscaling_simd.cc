// The block-scaled codecs (spec section 3) with vectors. ../microscaling.cc says what is computed;
// here is how, and why the bits are the same.
//
// Encoding a wire chunk takes two passes, the second from cache: the largest magnitudes of its
// blocks, all scales at once; then the elements. Scaled elements are rounded in one of two ways.
//   fp32      scaled by a multiplication, rounded by adding a power of two (`float_codes`): always.
//   integer   on the bits of 16-bit elements, whose exponent a power of two only shifts: twice as
//             fast, where both the elements and what they are compared with are normal numbers
//             (`fp4_codes`, `fp8_codes`).
// Blocks of zeros and blocks that are not finite go through the same code, and are set right after.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/microscaling_simd.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/microscaling.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

#if ARLAB_HAS_LANES

#include "reference/codecs/simd/bit_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kChunk = 4096;  // elements of a wire chunk
constexpr std::size_t kPair = 2 * kBytes;

// ---------------------------------------------------------------- element formats

/// `kTop` is the code of the largest value, 2^kMinExponent the smallest normal number.
template <Minifloat kFormat, unsigned kCodeBits, int kLargestExponent>
struct ElementFormat {
  static constexpr unsigned kBits = kCodeBits;
  static constexpr int kMantissa = kFormat.mantissa_bits;
  static constexpr int kMinExponent = 1 - kFormat.bias;
  static constexpr int kEmax = kLargestExponent;
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

// ---------------------------------------------------------------- scales

template <std::size_t kBlocks>
struct BlockScales {
  alignas(32) float multiplier[kBlocks];  // of the elements; 0 where every code is 0
  alignas(32) std::int16_t one[kBlocks];  // exponent field, in the payload's dtype, of the scale
  bool all_coded;                         // no multiplier is 0
  std::int32_t smallest_one;
};

template <class D>
HWY_INLINE std::int32_t smallest_lane(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MinOfLanes(d, v));
}

/// OCP microscaling.
template <class Format>
struct Microscaling {
  static constexpr std::size_t kBlock = 32;
  static constexpr std::size_t kHeaderBytes = 0;
  static constexpr std::size_t kBlocks = kChunk / kBlock;
  using Element = Format;
  using Scales = BlockScales<kBlocks>;

  template <class Payload>
  static float header(std::span<const typename Payload::Element>) {
    return 0;
  }

  /// Scale bytes, multipliers and exponents of so many blocks, a multiple of 8, from their largest
  /// magnitudes.
  template <class Payload>
  static HWY_INLINE void find_scales(const typename Payload::Element* largest, std::size_t blocks,
                                     ExponentRule rule, float, std::uint8_t* bytes,
                                     Scales& scales) {
    constexpr std::int32_t kHalf = 1 << (23 - Format::kMantissa - 1);
    // What carries into the exponent of a magnitude that is to count as the next power of two.
    // Subnormal magnitudes are so small that they get the smallest exponent by every rule.
    static_assert(Format::kEmax >= 2);
    const std::int32_t carry = rule == ExponentRule::floor  ? 0
                               : rule == ExponentRule::ceil ? 0x7FFFFF
                                                            : kHalf;
    auto all_coded = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    Int32Vector smallest = hn::Set(I32(), 1000);
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const FloatVector x = Payload::load(largest + b);
      const Int32Vector bits = hn::BitCast(I32(), x);
      const Int32Vector field = hn::ShiftRight<23>(hn::Add(bits, hn::Set(I32(), carry)));
      const Int32Vector code =
          hn::Min(hn::Max(hn::Sub(field, hn::Set(I32(), Format::kEmax)), hn::Zero(I32())),
                  hn::Set(I32(), 254));
      const auto is_zero = hn::Eq(bits, hn::Zero(I32()));
      const auto is_finite = hn::Lt(bits, hn::Set(I32(), 0x7F800000));
      const auto is_coded = hn::AndNot(is_zero, is_finite);
      const Int32Vector byte = hn::IfThenElse(is_finite, hn::IfThenZeroElse(is_zero, code),
                                              hn::Set(I32(), std::int32_t{kE8m0Nan}));
      hn::StoreU(hn::DemoteTo(QuarterU8(), byte), QuarterU8(), bytes + b);
      // 2^(127 - code); 2^-127 is subnormal.
      const Int32Vector inverse = hn::Max(hn::ShiftLeft<23>(hn::Sub(hn::Set(I32(), 254), code)),
                                          hn::Set(I32(), 0x00400000));
      hn::Store(hn::BitCast(F32(), hn::IfThenElseZero(is_coded, inverse)), F32(),
                scales.multiplier + b);
      if constexpr (Payload::kIsWord) {
        const Int32Vector one = hn::IfThenElse(
            is_coded, hn::Add(code, hn::Set(I32(), Payload::kBias - 127)), hn::Set(I32(), 16));
        hn::StoreU(hn::DemoteTo(HalfI16(), one), HalfI16(), scales.one + b);
        smallest = hn::Min(smallest, one);
      }
      all_coded = hn::And(all_coded, is_coded);
    }
    scales.all_coded = hn::AllTrue(I32(), all_coded);
    scales.smallest_one = smallest_lane(I32(), smallest);
  }

  static float multiplier(std::uint8_t scale, float) { return e8m0_to_float(scale); }

  /// What decoding multiplies a block's values by, times 2^kFold. False when that is not finite for
  /// all blocks.
  template <int kFold>
  static HWY_INLINE bool find_multipliers(const std::uint8_t* bytes, std::size_t blocks, float,
                                          float* multipliers) {
    auto all = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const Int32Vector code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), bytes + b));
      const Int32Vector field = hn::Add(code, hn::Set(I32(), kFold));
      const Int32Vector power = hn::Max(hn::ShiftLeft<23>(field), hn::Set(I32(), 0x00400000));
      hn::Store(hn::BitCast(F32(), power), F32(), multipliers + b);
      all = hn::And(all, hn::Lt(code, hn::Set(I32(), 255 - kFold)));
    }
    return hn::AllTrue(I32(), all);
  }
  template <int kFold>
  static bool is_ordinary(std::uint8_t scale, float) {
    return scale < 255 - kFold;
  }
  /// Powers of two may be multiplied in any order.
  static constexpr bool kFolds = true;
};

/// Largest magnitude of the finite elements, of 16-bit patterns.
HWY_INLINE std::uint16_t largest_finite(const std::uint16_t* x, std::size_t count,
                                        std::uint16_t infinity) {
  // The first pass takes all elements, which is enough when it finds no infinity and no NaN.
  for (const bool all : {true, false}) {
    const Int16Vector limit = hn::Set(I16(), static_cast<std::int16_t>(infinity));
    Int16Vector largest[4] = {hn::Zero(I16()), hn::Zero(I16()), hn::Zero(I16()), hn::Zero(I16())};
    std::size_t i = 0;
    for (; i + 4 * kWords <= count; i += 4 * kWords) {
      for (std::size_t j = 0; j < 4; ++j) {
        Int16Vector m = magnitudes(x + i + j * kWords);
        if (!all) m = hn::IfThenElseZero(hn::Lt(m, limit), m);
        largest[j] = hn::Max(largest[j], m);
      }
    }
    alignas(32) std::int16_t lanes[kWords];
    hn::Store(hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3])), I16(),
              lanes);
    std::int16_t result = *std::max_element(lanes, lanes + kWords);
    for (; i < count; ++i) {
      const auto m = static_cast<std::int16_t>(x[i] & 0x7FFF);
      if (all || m < static_cast<std::int16_t>(infinity)) result = std::max(result, m);
    }
    if (!all || result < static_cast<std::int16_t>(infinity)) {
      return static_cast<std::uint16_t>(result);
    }
  }
  return 0;
}

HWY_INLINE float largest_finite(const float* x, std::size_t count) {
  FloatVector largest = hn::Zero(F32());
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const FloatVector m = hn::Abs(hn::LoadU(F32(), x + i));
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Lt(m, hn::Inf(F32())), m));
  }
  float result = hn::GetLane(hn::MaxOfLanes(F32(), largest));
  for (; i < count; ++i) {
    if (std::isfinite(x[i])) result = std::max(result, std::abs(x[i]));
  }
  return result;
}

/// NVFP4.
struct NvFp4 {
  static constexpr std::size_t kBlock = 16;
  static constexpr std::size_t kHeaderBytes = sizeof(float);
  static constexpr std::size_t kBlocks = kChunk / kBlock;
  using Element = E2M1;
  using Scales = BlockScales<kBlocks>;

  template <class Payload>
  static float header(std::span<const typename Payload::Element> x) {
    float amax;
    if constexpr (Payload::kIsWord) {
      amax = Payload::Arithmetic::to_float(largest_finite(x.data(), x.size(), Payload::kInfinity));
    } else {
      amax = largest_finite(x.data(), x.size());
    }
    return amax > 0 ? std::min(448.0f * 6.0f / amax, 0x1p118f) : 1.0f;
  }

  template <class Payload>
  static HWY_INLINE void find_scales(const typename Payload::Element* largest, std::size_t blocks,
                                     ExponentRule, float g, std::uint8_t* bytes, Scales& scales) {
    const FloatVector tensor_scale = hn::Set(F32(), g);
    auto all_coded = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const FloatVector x = Payload::load(largest + b);
      const auto is_finite = hn::Lt(hn::BitCast(I32(), x), hn::Set(I32(), 0x7F800000));
      const FloatVector wanted = hn::Div(hn::Mul(tensor_scale, x), hn::Set(F32(), 6.0f));
      const Int32Vector code = hn::Min(hn::BitCast(I32(), magnitude_codes<E4M3>(wanted)),
                                       hn::Set(I32(), std::int32_t{E4M3::kTop}));
      const auto is_coded = hn::AndNot(hn::Eq(code, hn::Zero(I32())), is_finite);
      const Int32Vector byte = hn::IfThenElse(is_finite, code, hn::Set(I32(), 0x7F));
      hn::StoreU(hn::DemoteTo(QuarterU8(), byte), QuarterU8(), bytes + b);
      // As fp16, whose exponent has 8 more of bias.
      const auto half = hn::TruncateTo(HalfU16(), hn::ShiftLeft<7>(hn::BitCast(U32(), code)));
      const FloatVector s = hn::Mul(HalfLanes::to_float(half), hn::Set(F32(), 0x1p8f));
      const FloatVector multiplier = hn::Div(tensor_scale, s);
      hn::Store(hn::IfThenElseZero(hn::RebindMask(F32(), is_coded), multiplier), F32(),
                scales.multiplier + b);
      all_coded = hn::And(all_coded, is_coded);
    }
    scales.all_coded = hn::AllTrue(I32(), all_coded);
    scales.smallest_one = 0;
  }

  static float multiplier(std::uint8_t scale, float g) { return e4m3fn_to_float(scale) / g; }

  template <int>
  static HWY_INLINE bool find_multipliers(const std::uint8_t* bytes, std::size_t blocks, float g,
                                          float* multipliers) {
    const FloatVector tensor_scale = hn::Set(F32(), g);
    auto all = hn::Eq(tensor_scale, tensor_scale);  // false for a NaN
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), bytes + b));
      const Uint32Vector magnitude = hn::And(code, hn::Set(U32(), 0x7F));
      const auto half = hn::TruncateTo(HalfU16(), hn::ShiftLeft<7>(magnitude));
      const FloatVector value = hn::Mul(HalfLanes::to_float(half), hn::Set(F32(), 0x1p8f));
      const FloatVector sign = float_of(hn::ShiftLeft<24>(hn::Xor(code, magnitude)));
      const FloatVector s = hn::Or(value, sign);
      const auto is_number =
          hn::RebindMask(F32(), hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7F)));
      const FloatVector multiplier = hn::Div(s, tensor_scale);
      hn::Store(multiplier, F32(), multipliers + b);
      all = hn::And(all, hn::And(is_number, hn::Lt(hn::Abs(multiplier), hn::Inf(F32()))));
    }
    return hn::AllTrue(F32(), all);
  }
  template <int>
  static bool is_ordinary(std::uint8_t scale, float g) {
    return std::isfinite(multiplier(scale, g));
  }
  static constexpr bool kFolds = false;
};

// ---------------------------------------------------------------- elements to codes
// Codes come in bytes, kBytes elements at a time.

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

/// An 8-bit format of 16-bit elements, in the same order. False in `plain` where an element is
/// neither a normal number of both formats nor rounds to 0.
///
/// Shifting the exponent leaves the integer's carry to round: what is above a half of the last
/// place that is kept, and a half if that place is odd.
template <class Format, class Payload, bool kCount>
HWY_INLINE ByteVector fp8_codes(const std::uint16_t* x, const std::int16_t* ones, std::size_t first,
                                bool& plain, std::uint64_t& clamped) {
  constexpr int kMantissa = Payload::kMantissaBits;
  constexpr int kShift = kMantissa - Format::kMantissa;
  const int smallest_field = ones[first / 32] + Format::kMinExponent;
  const int zero_field = smallest_field - Format::kMantissa - 1;
  const auto words = [](int value)
                         HWY_ATTR { return hn::Set(I16(), static_cast<std::int16_t>(value)); };
  const Int16Vector offset =
      words((smallest_field - 1) * (1 << kMantissa) - ((1 << (kShift - 1)) - 1));
  const Int16Vector below_normal = words((std::max(smallest_field, 1) << kMantissa) - 1);
  const Int16Vector largest_zero = words(std::max(zero_field, 0) << kMantissa);
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

// ---------------------------------------------------------------- a chunk

/// Where the planes and the scales of a chunk lie.
template <class Byte>
struct ChunkWire {
  Byte* planes[2];
  Byte* scales;
};

template <class Standard>
constexpr std::size_t blocks_of(std::size_t elements) {
  return (elements + Standard::kBlock - 1) / Standard::kBlock;
}
template <class Standard>
constexpr std::size_t chunk_bytes(std::size_t elements) {
  return planes_bytes(elements, Standard::Element::kBits) + blocks_of<Standard>(elements);
}
template <class Standard, class Byte>
ChunkWire<Byte> wire_of_chunk(Byte* wire, std::size_t elements) {
  constexpr unsigned kBits = Standard::Element::kBits;
  const auto planes = planes_at(wire, elements, kBits);
  return {{planes.at[0], planes.at[1]}, wire + planes_bytes(elements, kBits)};
}

/// Sets the codes of blocks to 0 that have no multiplier.
template <class Standard>
void clear_blocks(const typename Standard::Scales& scales, std::size_t blocks,
                  const ChunkWire<std::uint8_t>& wire) {
  for (std::size_t b = 0; b < blocks; ++b) {
    if (scales.multiplier[b] != 0) continue;
    std::size_t plane = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned) {
      const std::size_t bytes = Standard::kBlock * width / 8;
      std::memset(wire.planes[plane++] + b * bytes, 0, bytes);
    });
  }
}

/// Nibbles of two vectors of codes, whose bytes are in blocks of 4 (from fp32) or 8.
template <bool kFromFloats>
HWY_INLINE ByteVector joined_nibbles(ByteVector first, ByteVector second) {
  const ByteVector joined = narrow_blocks(joined_pairs<16>(first), joined_pairs<16>(second));
#if ARLAB_X86_256
  if constexpr (kFromFloats) {
    // Pairs of bytes of the lower and of the upper block of each source in turn.
    alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 1, 8,  9,  2, 3, 10, 11,
                                                            4, 5, 12, 13, 6, 7, 14, 15};
    return hn::TableLookupBytes(ordered_halves(joined), hn::LoadDup128(U8(), kOrder));
  } else {
    return ordered_bytes(joined);
  }
#else
  return joined;
#endif
}

/// So many elements, a multiple of 8 blocks.
template <class Standard, class Payload, bool kCount>
HWY_INLINE void encode_chunk(const typename Payload::Element* x, std::size_t count,
                             ExponentRule rule, float header, const ChunkWire<std::uint8_t>& wire,
                             std::uint64_t& clamped) {
  using Format = typename Standard::Element;
  alignas(32) typename Payload::Element largest[Standard::kBlocks];
  typename Standard::Scales scales;
  const std::size_t blocks = count / Standard::kBlock;
  largest_magnitudes<Standard::kBlock>(x, blocks, largest);
  Standard::template find_scales<Payload>(largest, blocks, rule, header, wire.scales, scales);

  const auto from_floats = [&](std::size_t first) HWY_ATTR {
    return float_codes_of<Standard, Payload, kCount>(x, first, scales, clamped);
  };
  if constexpr (Format::kBits == 4) {
    bool done = false;
    if constexpr (Standard::kBlock == 32 && Payload::kIsWord) {
      if (scales.smallest_one >= 3) {
        const auto codes = [&](std::size_t first) HWY_ATTR {
          std::uint64_t found = 0;
          const ByteVector result = fp4_codes<Payload, kCount>(x, scales.one, first, found);
          if (kCount && scales.multiplier[first / 32] != 0) clamped += found;
          return result;
        };
        for (std::size_t i = 0; i < count; i += kPair) {
          hn::StoreU(joined_nibbles<false>(codes(i), codes(i + kBytes)), U8(),
                     wire.planes[0] + i / 2);
        }
        done = true;
      }
    }
    if (!done) {
      for (std::size_t i = 0; i < count; i += kPair) {
        hn::StoreU(joined_nibbles<true>(from_floats(i), from_floats(i + kBytes)), U8(),
                   wire.planes[0] + i / 2);
      }
    }
  } else if constexpr (Format::kBits == 8) {
    for (std::size_t i = 0; i < count; i += kBytes) {
      ByteVector codes;
      bool plain = false;
      if constexpr (Payload::kIsWord) {
        std::uint64_t found = 0;
        codes = ordered_halves(fp8_codes<Format, Payload, kCount>(x, scales.one, i, plain, found));
        if (kCount && plain && scales.multiplier[i / 32] != 0) clamped += found;
      }
      if (!plain) codes = ordered_bytes(from_floats(i));
      hn::StoreU(codes, U8(), wire.planes[0] + i);
    }
  } else {
    alignas(32) std::uint8_t codes[kChunk];
    for (std::size_t i = 0; i < count; i += kBytes) {
      hn::Store(ordered_bytes(from_floats(i)), U8(), codes + i);
    }
    pack_nibbles(codes, count, wire.planes[0]);
    pack_crumbs(codes, count, 4, wire.planes[1]);
  }
  if (!scales.all_coded) clear_blocks<Standard>(scales, blocks, wire);
}

/// Elements that a chunk's functions take at once: 8 blocks, and whole vectors of packed codes.
template <class Standard>
constexpr std::size_t padded(std::size_t elements) {
  constexpr std::size_t kUnit = std::max<std::size_t>(8 * Standard::kBlock, 4 * kBytes);
  return (elements + kUnit - 1) / kUnit * kUnit;
}

/// The wire of a padded chunk.
template <class Standard>
struct PaddedWire {
  static constexpr std::size_t kPlaneBytes = kChunk * std::min(Standard::Element::kBits, 8U) / 8;

  alignas(32) std::uint8_t bytes[kPlaneBytes + Standard::kBlocks] = {};

  ChunkWire<std::uint8_t> at() { return wire_of_chunk<Standard>(bytes, kChunk); }

  /// Calls f(padded bytes, wire bytes, how many) for every part of the wire of `count` elements.
  template <class F>
  void for_each_part(std::size_t count, const ChunkWire<std::uint8_t>& padded_wire, const F& f) {
    std::size_t plane = 0;
    std::size_t offset = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned) {
      f(padded_wire.planes[plane++], offset, plane_bytes(count, width));
      offset += plane_bytes(count, width);
    });
    f(padded_wire.scales, offset, blocks_of<Standard>(count));
  }
};

template <class Standard, class Payload, bool kCount>
void encode_message(std::span<const typename Payload::Element> x, std::uint8_t* wire,
                    ExponentRule rule, std::uint64_t& clamped) {
  const float header = Standard::template header<Payload>(x);
  std::memcpy(wire, &header, Standard::kHeaderBytes);
  wire += Standard::kHeaderBytes;
  for (std::size_t begin = 0; begin < x.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, x.size() - begin);
    if (padded<Standard>(count) == count) {
      encode_chunk<Standard, Payload, kCount>(x.data() + begin, count, rule, header,
                                              wire_of_chunk<Standard>(wire, count), clamped);
    } else {
      // Zeros change no scale, have code 0, and are never clamped.
      typename Payload::Element elements[kChunk];
      std::copy_n(x.data() + begin, count, elements);
      std::fill(elements + count, elements + padded<Standard>(count), typename Payload::Element{0});
      PaddedWire<Standard> own;
      const auto at = own.at();
      encode_chunk<Standard, Payload, kCount>(elements, padded<Standard>(count), rule, header, at,
                                              clamped);
      own.for_each_part(count, at, [&](std::uint8_t* part, std::size_t offset, std::size_t bytes) {
        std::memcpy(wire + offset, part, bytes);
      });
    }
    wire += chunk_bytes<Standard>(count);
  }
}

// ---------------------------------------------------------------- decode

/// One block by the scalar formats: scales and codes that stand for no ordinary number.
template <class Standard, class Payload>
void decode_block_exactly(const ChunkWire<const std::uint8_t>& wire, std::size_t block,
                          float multiplier, typename Payload::Element* out) {
  for (std::size_t i = 0; i < Standard::kBlock; ++i) {
    const std::size_t at = block * Standard::kBlock + i;
    unsigned code = 0;
    std::size_t plane = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned shift) {
      const std::size_t per_byte = 8 / width;
      const unsigned byte = wire.planes[plane++][at / per_byte];
      code |= ((byte >> (at % per_byte * width)) & ((1U << width) - 1)) << shift;
    });
    const float value = Standard::Element::value(static_cast<std::uint8_t>(code)) * multiplier;
    out[i] = Payload::Arithmetic::from_float(value);
  }
}

/// The eight magnitudes of e2m1 times the multiplier.
template <class Payload>
HWY_INLINE WordsOfBlock scaled_magnitudes(float multiplier) {
  alignas(32) static constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f,
                                                       2.0f, 3.0f, 4.0f, 6.0f};
  const FloatVector by = hn::Set(F32(), multiplier);
  const HalfUint16Vector first = Payload::from_float(hn::Mul(hn::Load(F32(), kMagnitudes), by));
#if ARLAB_X86_256
  return first;
#else
  const HalfUint16Vector second =
      Payload::from_float(hn::Mul(hn::Load(F32(), kMagnitudes + kFloats), by));
  return hn::Combine(U16(), second, first);
#endif
}

/// 16-bit elements of e2m1 codes, whose products are no NaN.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_fp4(const std::uint8_t* nibbles, const float* multipliers, std::size_t count,
                           std::uint16_t* out) {
  constexpr std::size_t kBlock = Standard::kBlock;
  if constexpr (kBlock >= kBytes) {
    // A pass of its own: loads put a table into both halves of a vector for nothing.
    alignas(32) std::uint16_t tables[8 * Standard::kBlocks];
    const hn::FixedTag<std::uint16_t, 8> eight;
    for (std::size_t b = 0; b < count / kBlock; ++b) {
      hn::Store(scaled_magnitudes<Payload>(multipliers[b]), eight, tables + 8 * b);
    }
    for (std::size_t i = 0; i < count; i += kBytes) {
      const auto table = signed_table(hn::LoadDup128(U16(), tables + i / kBlock * 8));
      store_values_of_nibbles<kStream>(table, nibbles + i / 2, out + i);
    }
  } else {
    static_assert(kBytes == 2 * kBlock);
    for (std::size_t i = 0, b = 0; i < count; i += kBytes, b += 2) {
      const WordsOfBlock lower = scaled_magnitudes<Payload>(multipliers[b]);
      const WordsOfBlock upper = scaled_magnitudes<Payload>(multipliers[b + 1]);
      store_values<kStream>(signed_table(both_blocks(lower, upper)),
                            spread_nibbles(nibbles + i / 2), out + i);
    }
  }
}

/// Elements of codes in bytes: as fp16 patterns, which lack 2^kBiasBelowHalf, times the multiplier,
/// which may have it. Codes that stand for NaN come out wrong.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_bytes(const std::uint8_t* codes, const float* multipliers, std::size_t count,
                             typename Payload::Element* out) {
  using Format = typename Standard::Element;
  constexpr int kSignBit = Format::kBits - 1;
  const hn::Rebind<std::uint8_t, U16> half;
  for (std::size_t i = 0; i < count; i += kWords) {
    const Uint16Vector code = hn::PromoteTo(U16(), hn::LoadU(half, codes + i));
    const Uint16Vector magnitude = hn::And(code, hn::Set(U16(), (1 << kSignBit) - 1));
    const Uint16Vector sign = hn::Xor(code, magnitude);
    const Uint16Vector bits = hn::Or(hn::ShiftLeft<10 - Format::kMantissa>(magnitude),
                                     hn::ShiftLeft<15 - kSignBit>(sign));
    const FloatVector by = hn::Set(F32(), multipliers[i / Standard::kBlock]);
    const auto product = [by](HalfUint16Vector value) HWY_ATTR {
      FloatVector v = HalfLanes::to_float(value);
      if constexpr (!Standard::kFolds) {
        constexpr std::uint32_t kPower = (127 + Format::kBiasBelowHalf) << 23;
        v = hn::Mul(v, float_of(hn::Set(U32(), kPower)));
      }
      return hn::Mul(v, by);
    };
    Payload::template store<kStream>(product(lower_words(bits)), out + i);
    Payload::template store<kStream>(product(upper_words(bits)), out + i + kFloats);
  }
}

/// For each block, what decode_fp8_block needs to know of its scale.
struct Fp8Blocks {
  static constexpr std::size_t kBlocks = kChunk / 32;

  alignas(32) std::int8_t lowest[kBlocks];   // codes whose values are normal numbers of the dtype,
  alignas(32) std::int8_t highest[kBlocks];  // and finite
  alignas(32) std::uint16_t shift[kBlocks];  // from the format's exponent to the dtype's, in place
};

template <class Format, class Payload>
HWY_INLINE void find_fp8_blocks(const std::uint8_t* scales, std::size_t blocks, Fp8Blocks& found) {
  constexpr std::int32_t kBiases = Payload::kBias - (1 - Format::kMinExponent) - 127;
  constexpr std::int32_t kMostExponent = 2 * Payload::kBias;
  constexpr int kMantissa = Format::kMantissa;
  const hn::Rebind<std::int8_t, F32> few_bytes;
  const Int32Vector one = hn::Set(I32(), 1);
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const Int32Vector scale = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), scales + b));
    const Int32Vector shift = hn::Add(scale, hn::Set(I32(), kBiases));
    const Int32Vector lowest = hn::ShiftLeft<kMantissa>(hn::Max(one, hn::Sub(one, shift)));
    const Int32Vector above =
        hn::ShiftLeft<kMantissa>(hn::Sub(hn::Set(I32(), kMostExponent + 1), shift));
    const Int32Vector finite =
        hn::Min(hn::Sub(above, one), hn::Set(I32(), std::int32_t{Format::kTop}));
    const auto is_nan = hn::Eq(scale, hn::Set(I32(), std::int32_t{kE8m0Nan}));
    const Int32Vector highest = hn::IfThenElse(is_nan, hn::Set(I32(), -1), finite);
    // Saturated to a byte, a lowest code still excludes all, and a highest below 0, too.
    hn::StoreU(hn::DemoteTo(few_bytes, lowest), few_bytes, found.lowest + b);
    hn::StoreU(hn::DemoteTo(few_bytes, highest), few_bytes, found.highest + b);
    const auto moved = hn::ShiftLeft<Payload::kMantissaBits>(hn::BitCast(U32(), shift));
    hn::StoreU(hn::TruncateTo(HalfU16(), moved), HalfU16(), found.shift + b);
  }
}

/// A block of an 8-bit format as 16-bit elements, if its codes are all 0 or stand for normal
/// numbers of the dtype; else false. Then the exponent is all that has to change.
template <class Format, class Payload, bool kStream>
HWY_INLINE bool decode_fp8_block(const std::uint8_t* codes, std::size_t block,
                                 const Fp8Blocks& blocks, std::uint16_t* out) {
  constexpr int kDown = 8 - (Payload::kMantissaBits - Format::kMantissa);
  constexpr std::uint16_t kKept =
      static_cast<std::uint16_t>(0x8000 | (0x7F << (Payload::kMantissaBits - Format::kMantissa)));
  const SignedByteVector lowest = hn::Set(I8(), blocks.lowest[block]);
  const SignedByteVector highest = hn::Set(I8(), blocks.highest[block]);
  const SignedByteVector zero = hn::Zero(I8());
  SignedByteVector wrong = zero;
  for (std::size_t i = 0; i < 32; i += kBytes) {
    const SignedByteVector code =
        hn::BitCast(I8(), hn::And(hn::LoadU(U8(), codes + i), hn::Set(U8(), 0x7F)));
    const auto below = hn::And(hn::Gt(code, zero), hn::Gt(lowest, code));
    wrong = hn::Or(wrong, hn::VecFromMask(I8(), hn::Or(below, hn::Gt(code, highest))));
  }
  if (!hn::AllTrue(I8(), hn::Eq(wrong, zero))) return false;
  const hn::Rebind<std::uint8_t, U16> half;
  const Uint16Vector shift = hn::Set(U16(), blocks.shift[block]);
  for (std::size_t i = 0; i < 32; i += kWords) {
    const Uint16Vector code = hn::ShiftLeft<8>(hn::PromoteTo(U16(), hn::LoadU(half, codes + i)));
    const Uint16Vector spread = hn::BitCast(U16(), hn::ShiftRight<kDown>(hn::BitCast(I16(), code)));
    const Uint16Vector bits = hn::And(spread, hn::Set(U16(), kKept));
    const auto is_zero = hn::Eq(hn::Add(bits, bits), hn::Zero(U16()));
    store_vector<kStream>(hn::Add(bits, hn::IfThenZeroElse(is_zero, shift)), out + i);
  }
  return true;
}

/// Whether a block has a code that stands for a NaN.
template <class Format>
HWY_INLINE bool has_nan(const std::uint8_t* codes) {
  auto any = hn::Zero(I8());
  for (std::size_t i = 0; i < 32; i += kBytes) {
    const auto code = hn::BitCast(I8(), hn::And(hn::LoadU(U8(), codes + i), hn::Set(U8(), 0x7F)));
    const auto last = hn::Set(I8(), std::int8_t{Format::kFirstNan - 1});
    any = hn::Or(any, hn::VecFromMask(I8(), hn::Gt(code, last)));
  }
  return !hn::AllTrue(I8(), hn::Eq(any, hn::Zero(I8())));
}

/// So many elements, a multiple of 8 blocks.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_chunk(const ChunkWire<const std::uint8_t>& wire, std::size_t count,
                             float header, typename Payload::Element* out) {
  using Format = typename Standard::Element;
  constexpr std::size_t kBlock = Standard::kBlock;
  alignas(32) float multipliers[Standard::kBlocks];
  const std::size_t blocks = count / kBlock;
  constexpr int kFold = Format::kBits == 4 && Payload::kIsWord ? 0 : Format::kBiasBelowHalf;
  const bool ordinary =
      Standard::template find_multipliers<kFold>(wire.scales, blocks, header, multipliers);
  if constexpr (Format::kBits == 4 && Payload::kIsWord) {
    decode_fp4<Standard, Payload, kStream>(wire.planes[0], multipliers, count, out);
  } else if constexpr (Format::kBits == 8) {
    Fp8Blocks fp8;
    if constexpr (Payload::kIsWord) find_fp8_blocks<Format, Payload>(wire.scales, blocks, fp8);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::uint8_t* const codes = wire.planes[0] + b * kBlock;
      typename Payload::Element* const to = out + b * kBlock;
      if constexpr (Payload::kIsWord) {
        if (decode_fp8_block<Format, Payload, kStream>(codes, b, fp8, to)) continue;
      }
      if (Standard::template is_ordinary<kFold>(wire.scales[b], header) &&
          !has_nan<Format>(codes)) {
        decode_bytes<Standard, Payload, kStream>(codes, multipliers + b, kBlock, to);
      } else {
        decode_block_exactly<Standard, Payload>(wire, b,
                                                Standard::multiplier(wire.scales[b], header), to);
      }
    }
    return;
  } else {
    alignas(32) std::uint8_t codes[kChunk];
    const std::byte* const first = reinterpret_cast<const std::byte*>(wire.planes[0]);
    const std::byte* const second = reinterpret_cast<const std::byte*>(wire.planes[1]);
    unpack_tile(PlanePointers<const std::byte>{{first, second, nullptr}}, count, Format::kBits,
                codes);
    decode_bytes<Standard, Payload, kStream>(codes, multipliers, count, out);
  }
  if (ordinary) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    if (!Standard::template is_ordinary<kFold>(wire.scales[b], header)) {
      decode_block_exactly<Standard, Payload>(wire, b, Standard::multiplier(wire.scales[b], header),
                                              out + b * kBlock);
    }
  }
}

/// Where decoded chunks go: to their place, by a buffer or directly, or directly past the caches.
/// The last may end within a block and always goes by the buffer.
enum class Way { buffered, direct, streamed };

/// Calls f(elements decoded, where they belong, how many) for every chunk that is in the buffer.
template <class Standard, class Payload, Way kWay, class F>
HWY_INLINE void for_each_decoded(const std::uint8_t* wire, std::span<typename Payload::Element> x,
                                 const F& f) {
  float header = 0;
  std::memcpy(&header, wire, Standard::kHeaderBytes);
  wire += Standard::kHeaderBytes;
  constexpr std::size_t kChunkBytes = chunk_bytes<Standard>(kChunk);
  alignas(32) typename Payload::Element decoded[kChunk];
  for (std::size_t begin = 0; begin < x.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, x.size() - begin);
    typename Payload::Element* const out = x.data() + begin;
    if (padded<Standard>(count) == count) {
      if (x.size() - begin >= 2 * kChunk) fetch_ahead(wire + kChunkBytes, kChunkBytes);
      decode_chunk<Standard, Payload, kWay == Way::streamed>(wire_of_chunk<Standard>(wire, count),
                                                             count, header,
                                                             kWay == Way::buffered ? decoded : out);
      if (kWay == Way::buffered) f(decoded, out, count);
    } else {
      PaddedWire<Standard> own;
      const auto at = own.at();
      own.for_each_part(count, at, [&](std::uint8_t* part, std::size_t offset, std::size_t bytes) {
        std::memcpy(part, wire + offset, bytes);
      });
      decode_chunk<Standard, Payload, false>({{at.planes[0], at.planes[1]}, at.scales},
                                             padded<Standard>(count), header, decoded);
      f(decoded, out, count);
    }
    wire += chunk_bytes<Standard>(count);
  }
}

template <class Standard, class Payload>
void decode_message(const std::uint8_t* wire, std::span<typename Payload::Element> x) {
  using Element = typename Payload::Element;
  const auto copy = [](const Element* from, Element* to, std::size_t count) {
    std::copy_n(from, count, to);
  };
  if (is_streamed(x)) {
    for_each_decoded<Standard, Payload, Way::streamed>(wire, x, copy);
    hwy::FlushStream();
  } else {
    for_each_decoded<Standard, Payload, Way::direct>(wire, x, copy);
  }
}

template <class Standard, class Payload>
void decode_add_message(const std::uint8_t* wire, std::span<typename Payload::Element> sum) {
  using Element = typename Payload::Element;
  for_each_decoded<Standard, Payload, Way::buffered>(
      wire, sum, [](const Element* addend, Element* to, std::size_t count) HWY_ATTR {
        add_elements<Payload>(addend, count, to);
      });
}

// ---------------------------------------------------------------- what the dispatch table holds

template <class F>
void with_standard(BlockFormat format, const F& f) {
  switch (format) {
    case BlockFormat::mx_e4m3:
      return f.template operator()<Microscaling<E4M3>>();
    case BlockFormat::mx_e5m2:
      return f.template operator()<Microscaling<E5M2>>();
    case BlockFormat::mx_e2m3:
      return f.template operator()<Microscaling<E2M3>>();
    case BlockFormat::mx_e3m2:
      return f.template operator()<Microscaling<E3M2>>();
    case BlockFormat::mx_e2m1:
      return f.template operator()<Microscaling<E2M1>>();
    case BlockFormat::nvfp4:
      return f.template operator()<NvFp4>();
  }
}

void microscaling_encode(const MicroscalingKind& kind, const Codec&, DType dtype,
                         std::span<const std::byte> payload, std::span<std::byte> wire,
                         EncodeCounts* counts) {
  auto* const out = reinterpret_cast<std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, payload, [&]<class Payload>(auto x) {
      std::uint64_t ignored = 0;
      counts != nullptr
          ? encode_message<Standard, Payload, true>(x, out, kind.rule, counts->clamped)
          : encode_message<Standard, Payload, false>(x, out, kind.rule, ignored);
    });
  });
}

void microscaling_decode(const MicroscalingKind& kind, const Codec&, DType dtype,
                         std::span<const std::byte> wire, std::span<std::byte> payload) {
  const auto* const in = reinterpret_cast<const std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, payload,
                 [&]<class Payload>(auto x) { decode_message<Standard, Payload>(in, x); });
  });
}

void microscaling_decode_add(const MicroscalingKind& kind, const Codec&, DType dtype,
                             std::span<const std::byte> wire, std::span<std::byte> sum) {
  const auto* const in = reinterpret_cast<const std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, sum,
                 [&]<class Payload>(auto x) { decode_add_message<Standard, Payload>(in, x); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<MicroscalingKind> microscaling_functions() {
#if ARLAB_HAS_LANES
  return {microscaling_encode, microscaling_decode, microscaling_decode_add};
#else
  return scalar_functions<MicroscalingKind>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(microscaling_functions);

CodecFunctions<MicroscalingKind> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(microscaling_functions)();
}

}  // namespace

CodecPtr accelerated_microscaling(const CodecPtr& scalar) {
  const auto kind = parse_microscaling(scalar->name());
  return kind ? std::make_shared<AcceleratedCodec<MicroscalingKind>>(scalar, *kind,
                                                                     functions_of_this_processor)
              : nullptr;
}

}  // namespace arlab

#endif  // HWY_ONCE
