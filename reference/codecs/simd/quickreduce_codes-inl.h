// The codes of the QuickReduce formats: scaled elements to bytes, and bytes to the wire.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_QUICKREDUCE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_QUICKREDUCE_CODES_INL_H_
#undef ARLAB_CODECS_SIMD_QUICKREDUCE_CODES_INL_H_
#else
#define ARLAB_CODECS_SIMD_QUICKREDUCE_CODES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/planes-inl.h"
#include "reference/codecs/simd/quickreduce_simd.h"
#include "reference/formats/half.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kAtom = kQuickReduceAtom;
inline constexpr std::size_t kGroup = 64;  // elements: two interleaved blocks
inline constexpr std::size_t kGroups = kAtom / kGroup;
inline constexpr std::size_t kBlocks = 2 * kGroups;
inline constexpr std::size_t kScaleBytes = 2 * kBlocks;
inline constexpr std::size_t kVectorsOfGroup = kGroup / kFloats;

// ---------------------------------------------------------------- arithmetic in the payload dtype

struct Fp16 : HalfLanes {
  static constexpr std::uint16_t kEpsilon = 0x0001;  // 2^-24
  // eps is the spacing of the smallest d. So m / d is at most 1.5 L and d / (d + eps) at most 2,
  // in magnitude, but not both; and if d or d + eps is 0, x * 65504 is small.
  static constexpr bool kScaledElementsFit = true;
  /// The largest scale that cannot overflow when multiplied by `largest` or less.
  static constexpr std::uint16_t largest_plain_scale(float largest) {
    const auto bits = std::bit_cast<std::uint32_t>(65504.0f / largest);
    return static_cast<std::uint16_t>((bits - (112u << 23)) >> 13);
  }
};

struct Bf16 : BfloatLanes {
  static constexpr std::uint16_t kEpsilon = 0x33D7;  // 1e-7
  static constexpr bool kScaledElementsFit = false;  // d + eps may cancel
  static constexpr std::uint16_t largest_plain_scale(float) { return 0x7F7F; }
};

/// The two numbers of a group in the lanes of even and odd elements.
HWY_INLINE FloatVector load_pair(const float* pair) {
  std::uint64_t both;
  std::memcpy(&both, pair, sizeof(both));
  return hn::BitCast(F32(), hn::Set(U64(), both));
}

// ---------------------------------------------------------------- codes: scaled elements to bytes

/// Integers -L .. L-1, stored with a bias of L.
template <int L>
struct IntegerCode {
  static constexpr bool kSignedScale = true;
  static constexpr bool kHasMinusZero = false;
  static constexpr float kScale = -1.0f / L;
  static constexpr float kLargest = L;

  /// Scaled elements (rounded to the dtype's significand), four vectors, to codes in the order of
  /// narrow_blocks.
  template <class Lanes, bool kCount>
  static HWY_INLINE ByteVector encode(const FloatVector (&w)[4], std::uint64_t& clamped) {
    if constexpr (!kCount && L <= 8 && Lanes::kScaledElementsFit) {
      // |w| <= 3 * L, so that 8 bits hold every integer. The largest codes saturate upwards, the
      // smallest downwards.
      const Int16Vector first = narrow_blocks(nearest_int(w[0]), nearest_int(w[1]));
      const Int16Vector second = narrow_blocks(nearest_int(w[2]), nearest_int(w[3]));
      const SignedByteVector raised =
          hn::SaturatedAdd(narrow_signed(first, second), hn::Set(I8(), std::int8_t{128 - L}));
      return hn::SaturatedSub(hn::BitCast(U8(), raised), bytes_set(128 - 2 * L));
    }
    // |w| < 2^15, so that 16 bits hold every integer, and the bias saturates where it does not fit.
    const Int16Vector bias = hn::Set(I16(), L);
    const Int16Vector low =
        hn::SaturatedAdd(narrow_blocks(nearest_int(w[0]), nearest_int(w[1])), bias);
    const Int16Vector high =
        hn::SaturatedAdd(narrow_blocks(nearest_int(w[2]), nearest_int(w[3])), bias);
    if constexpr (kCount) {
      const Uint16Vector top = hn::Set(U16(), 2 * L - 1);  // negative codes lie above it, too
      clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), low), top));
      clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), high), top));
    }
    ByteVector codes = narrow_blocks(low, high);
    if constexpr (2 * L - 1 < 255) codes = hn::Min(codes, bytes_set(2 * L - 1));
    return codes;
  }

  static HWY_INLINE FloatVector value(const std::uint8_t* codes) {
    const Int32Vector wide = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), codes));
    return hn::ConvertTo(F32(), hn::Sub(wide, hn::Set(I32(), L)));
  }
  /// The same of a code of at most four bits.
  static constexpr float value_of(int code) { return static_cast<float>(code - L); }
  static HWY_INLINE bool has_nan(ByteVector) { return false; }
};

/// A small float with `kMantissa` mantissa bits, whose smallest normal number is 2^kMinExponent and
/// largest code `kTop`.
template <int kMantissa, int kMinExponent, std::uint32_t kTop, bool kSignedZero>
struct FloatCode {
  static constexpr bool kHasMinusZero = kSignedZero;

  template <class, bool kCount>
  static HWY_INLINE ByteVector encode(const FloatVector (&w)[4], std::uint64_t& clamped) {
    const Int16Vector low =
        narrow_blocks(element<kCount>(w[0], clamped), element<kCount>(w[1], clamped));
    const Int16Vector high =
        narrow_blocks(element<kCount>(w[2], clamped), element<kCount>(w[3], clamped));
    return narrow_blocks(low, high);
  }

 private:
  /// Adding 2^k whose last place is the spacing of the codes around |w| rounds |w| to them, and
  /// leaves the number of spacings in the low bits. Below the smallest normal number the spacing
  /// stays the same. Codes count spacings, and 2^kMantissa of them per binade.
  template <bool kCount>
  static HWY_INLINE Int32Vector element(FloatVector w, std::uint64_t& clamped) {
    const Uint32Vector bits = bits_of(w);
    const Uint32Vector magnitude = hn::And(bits, hn::Set(U32(), 0x7FFFFFFF));
    constexpr std::uint32_t kSmallestNormal = (127 + kMinExponent) << 23;
    const auto at_least = hn::Max(hn::BitCast(I32(), magnitude), hn::Set(I32(), kSmallestNormal));
    const Uint32Vector binade = hn::And(hn::BitCast(U32(), at_least), hn::Set(U32(), 0x7F800000));
    const Uint32Vector rounder = hn::Add(binade, hn::Set(U32(), (23 - kMantissa) << 23));
    const Uint32Vector rounded = bits_of(hn::Add(float_of(magnitude), float_of(rounder)));
    const Uint32Vector spacings = hn::Sub(rounded, rounder);
    const Uint32Vector start = hn::Sub(hn::ShiftRight<23 - kMantissa>(binade),
                                       hn::Set(U32(), kSmallestNormal >> (23 - kMantissa)));
    const Int32Vector code = hn::BitCast(I32(), hn::Add(start, spacings));
    const Int32Vector top = hn::Set(I32(), kTop);
    if constexpr (kCount) clamped += hn::CountTrue(I32(), hn::Gt(code, top));
    const Int32Vector kept = hn::Min(code, top);
    const Int32Vector sign = hn::BitCast(
        I32(), hn::And(hn::ShiftRight<31 - kSignBit>(bits), hn::Set(U32(), 1u << kSignBit)));
    if constexpr (kSignedZero) return hn::Or(kept, sign);
    return hn::IfThenZeroElse(hn::Eq(kept, hn::Zero(I32())), hn::Or(kept, sign));
  }
  static constexpr int kSignBit = std::bit_width(kTop);
};

/// fp8 e4m3fnuz.
struct Fp8Code : FloatCode<3, -7, 0x7F, false> {
  static constexpr bool kSignedScale = false;
  static constexpr float kScale = half_to_float(0x1C44);  // nearest 1/240
  static constexpr float kLargest = 240.0f;

  static HWY_INLINE FloatVector value(const std::uint8_t* codes) {
    // As fp16, whose exponent has 7 more of bias: that makes subnormals right, too. 0x80 is NaN.
    const HalfUint16Vector wide = hn::PromoteTo(HalfU16(), hn::LoadU(QuarterU8(), codes));
    const HalfUint16Vector magnitude = hn::And(wide, hn::Set(HalfU16(), 0x7F));
    const HalfUint16Vector sign = hn::Xor(wide, magnitude);
    const HalfUint16Vector half = hn::Or(hn::ShiftLeft<7>(magnitude), hn::ShiftLeft<8>(sign));
    const HalfUint16Vector nan = hn::Set(HalfU16(), HalfLanes::kNaN);
    const auto is_nan = hn::Eq(wide, hn::Set(HalfU16(), 0x80));
    return hn::Mul(HalfLanes::to_float(hn::IfThenElse(is_nan, nan, half)), hn::Set(F32(), 0x1p7f));
  }
  static HWY_INLINE bool has_nan(ByteVector codes) {
    return !hn::AllFalse(U8(), hn::Eq(codes, bytes_set(0x80)));
  }
};

/// fp4 e2m1.
struct Fp4Code : FloatCode<1, 0, 0x7, true> {
  static constexpr bool kSignedScale = true;
  static constexpr float kScale = half_to_float(0x3155);  // nearest 1/6
  static constexpr float kLargest = 6.0f;

  static constexpr float value_of(int code) {
    constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8];
  }
  static HWY_INLINE bool has_nan(ByteVector) { return false; }
};

// ---------------------------------------------------------------- packing: codes to wire bytes

struct Q6Packing {
  static HWY_INLINE void pack_blocks(Codes codes, std::byte* wire, std::size_t unit) {
    const ByteVector low = bytes_set(0x0F);
    NibblePairs::pack_blocks({hn::And(codes.first, low), hn::And(codes.second, low)}, wire, unit);
    const Codes high{shift_right_16<4>(codes.first), shift_right_16<4>(codes.second)};
    CrumbsInOrder::pack(ordered(high), wire + 1024, unit);
  }
  static HWY_INLINE Codes unpack(const std::byte* wire, std::size_t unit) {
    const Codes low = NibblePairs::unpack(wire, unit);
    const Codes high = CrumbsInOrder::unpack(wire + 1024, unit);
    return {hn::Or(low.first, shift_left_32<4>(high.first)),
            hn::Or(low.second, shift_left_32<4>(high.second))};
  }
};

struct Q3Packing {
  static HWY_INLINE void pack_blocks(Codes codes, std::byte* wire, std::size_t unit) {
    CrumbsInOrder::pack(ordered(codes), wire, unit);
    BitsInOrder::pack<2>(ordered(codes), wire + 512, unit);
  }
  static HWY_INLINE Codes unpack(const std::byte* wire, std::size_t unit) {
    const Codes low = CrumbsInOrder::unpack(wire, unit);
    const Codes high = BitsInOrder::unpack(wire + 512, unit, 4);
    return {hn::Or(low.first, high.first), hn::Or(low.second, high.second)};
  }
};

/// Packings of codes in element order.
template <class Plane>
struct Ordered : Plane {
  template <bool kStream = false>
  static HWY_INLINE void pack_blocks(Codes codes, std::byte* wire, std::size_t unit) {
    if constexpr (kStream) {
      Plane::template pack<true>(ordered(codes), wire, unit);
    } else {
      Plane::pack(ordered(codes), wire, unit);
    }
  }
};

template <QuickReduceFormat kFormat>
struct Traits;
template <>
struct Traits<QuickReduceFormat::q3> {
  using Code = IntegerCode<4>;
  using Packing = Q3Packing;
};
template <>
struct Traits<QuickReduceFormat::q4> {
  using Code = IntegerCode<8>;
  using Packing = NibblePairs;
};
template <>
struct Traits<QuickReduceFormat::q6> {
  using Code = IntegerCode<32>;
  using Packing = Q6Packing;
};
template <>
struct Traits<QuickReduceFormat::q8> {
  using Code = IntegerCode<128>;
  using Packing = Ordered<SwappedBytes>;
};
template <>
struct Traits<QuickReduceFormat::fp4> {
  using Code = Fp4Code;
  using Packing = Ordered<NibblesInOrder>;
};
template <>
struct Traits<QuickReduceFormat::fp8> {
  using Code = Fp8Code;
  using Packing = Ordered<PlainBytes>;
};

// ---------------------------------------------------------------- halves of vectors

using U16x8 = hn::FixedTag<std::uint16_t, 8>;
using U32x4 = hn::FixedTag<std::uint32_t, 4>;
using U64x2 = hn::FixedTag<std::uint64_t, 2>;
using Patterns = hn::Vec<U16x8>;  // four even and four odd elements, in turn

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
