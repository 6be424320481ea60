// Codes, one per byte: to the planes of the wire (../bit_planes.h) and back, and of small floats from
// numbers and back.
//
// Every plane is a pass of its own over the codes, which lie in the first-level cache. So the code
// knows planes of 4, 2 and 1 bits, and not the seven numbers of bits.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_CODES_INL_H_
#undef ARLAB_CODECS_SIMD_CODES_INL_H_
#else
#define ARLAB_CODECS_SIMD_CODES_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Where each plane of a chunk begins, in wire order.
template <class Byte>
struct PlanePointers {
  std::array<Byte*, 3> at = {};
};

template <class Byte>
PlanePointers<Byte> planes_at(Byte* wire, std::size_t codes, unsigned bits) {
  PlanePointers<Byte> result;
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned) {
    result.at[plane++] = wire;
    wire += plane_bytes(codes, width);
  });
  return result;
}

/// The planes from element `first` on, a multiple of 8.
template <class Byte>
PlanePointers<Byte> advanced(PlanePointers<Byte> planes, std::size_t first, unsigned bits) {
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned) { planes.at[plane++] += first * width / 8; });
  return planes;
}

// ---------------------------------------------------------------- one plane, vectors of codes

HWY_INLINE ByteVector load_codes(const std::uint8_t* codes) { return hn::LoadU(U8(), codes); }

/// A vector of codes to the bytes of a plane of `width` bits; `shift` is 0 .. 7.
template <unsigned kWidth>
HWY_INLINE void pack_vector(const std::uint8_t* codes, unsigned shift, std::uint8_t* out) {
  if constexpr (kWidth == 1) {
    const ByteVector bit = hn::Set(U8(), static_cast<std::uint8_t>(1U << shift));
    hn::StoreMaskBits(U8(), hn::TestBit(load_codes(codes), bit), out);
  } else {
    // Bits that move into a byte from its neighbour are above the mask.
    const auto moved =
        hn::ShiftRightSame(hn::BitCast(U16(), load_codes(codes)), static_cast<int>(shift));
    const auto own = hn::And(moved, hn::Set(U16(), ((1 << kWidth) - 1) * 0x0101));
    const Int16Vector pairs = hn::BitCast(
        I16(), hn::And(hn::Or(own, hn::ShiftRight<8 - kWidth>(own)), hn::Set(U16(), 0xFF)));
    if constexpr (kWidth == 4) {
      const hn::Rebind<std::uint8_t, I16> half;
      hn::StoreU(hn::DemoteTo(half, pairs), half, out);
    } else {
      hn::StoreU(hn::DemoteTo(QuarterU8(), weighted_pairs<1, 16>(pairs)), QuarterU8(), out);
    }
  }
}

HWY_INLINE ByteVector spread_4_bit(const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, U16> half;
  const Uint16Vector v = hn::PromoteTo(U16(), hn::LoadU(half, from));
  const Uint16Vector spread = hn::Or(v, hn::ShiftLeft<4>(v));
  return hn::BitCast(U8(), hn::And(spread, hn::Set(U16(), 0x0F0F)));
}

HWY_INLINE ByteVector spread_2_bit(const std::uint8_t* from) {
  Uint32Vector v = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), from));
  v = hn::And(hn::Or(v, hn::ShiftLeft<12>(v)), hn::Set(U32(), 0x000F000F));
  v = hn::And(hn::Or(v, hn::ShiftLeft<6>(v)), hn::Set(U32(), 0x03030303));
  return hn::BitCast(U8(), v);
}

/// Bytes of 0 or `value`.
HWY_INLINE ByteVector spread_bits(const std::uint8_t* from, ByteVector value) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, kBytes / 8);
  alignas(32) static constexpr std::uint8_t kByte[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                                         1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                                         2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  const ByteVector bytes =
      hn::TableLookupBytes(hn::BitCast(U8(), hn::Set(U32(), word)), hn::Load(U8(), kByte));
  const ByteVector bit = hn::BitCast(U8(), hn::Set(U64(), 0x8040201008040201));
  return hn::And(hn::VecFromMask(U8(), hn::Eq(hn::And(bytes, bit), bit)), value);
}

/// Writes one plane of so many codes, which are 0 from there to the end of a vector.
HWY_INLINE void pack_plane(const std::uint8_t* codes, std::size_t count, unsigned width,
                           unsigned shift, std::uint8_t* out) {
  const auto pack = [&]<unsigned kWidth>() HWY_ATTR {
    std::size_t i = 0;
    for (; i + kBytes <= count; i += kBytes) {
      pack_vector<kWidth>(codes + i, shift, out + i * kWidth / 8);
    }
    std::uint8_t rest[kBytes];
    pack_vector<kWidth>(codes + i, shift, rest);
    std::memcpy(out + i * kWidth / 8, rest, plane_bytes(count - i, kWidth));
  };
  switch (width) {
    case 8:
      std::memcpy(out, codes, count);
      return;
    case 4:
      return pack.template operator()<4>();
    case 2:
      return pack.template operator()<2>();
    default:
      return pack.template operator()<1>();
  }
}

/// Reads one plane of so many codes, and zeros to the end of a vector. The lowest comes first; others
/// add to what is there.
HWY_INLINE void unpack_plane(const std::uint8_t* in, std::size_t count, unsigned width,
                             unsigned shift, std::uint8_t* codes) {
  const auto unpack = [&](const auto& spread) HWY_ATTR {
    const auto merge = [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
      const ByteVector own = spread(from);
      hn::StoreU(shift == 0 ? own : hn::Or(own, load_codes(to)), U8(), to);
    };
    const std::uint8_t* from = in;
    std::size_t i = 0;
    for (; i + kBytes <= count; i += kBytes, from += kBytes * width / 8) merge(from, codes + i);
    std::uint8_t rest[kBytes] = {};
    std::memcpy(rest, from, plane_bytes(count - i, width));
    merge(rest, codes + i);
  };
  const ByteVector bit = hn::Set(U8(), static_cast<std::uint8_t>(1U << shift));
  if (width == 8) {
    std::memcpy(codes, in, count);
    std::memset(codes + count, 0, kBytes);
  } else if (width == 4) {
    unpack([](const std::uint8_t* from) HWY_ATTR { return spread_4_bit(from); });
  } else if (width == 1) {
    unpack([&](const std::uint8_t* from) HWY_ATTR { return spread_bits(from, bit); });
  } else if (shift == 0) {
    unpack([](const std::uint8_t* from) HWY_ATTR { return spread_2_bit(from); });
  } else {  // above four bits
    unpack([](const std::uint8_t* from) HWY_ATTR {
      return hn::BitCast(U8(), hn::ShiftLeft<4>(hn::BitCast(U16(), spread_2_bit(from))));
    });
  }
}

/// As pack_planes, each plane at its own place. Writes zeros behind the codes.
HWY_INLINE void pack_tile(std::uint8_t* codes, std::size_t count, unsigned bits,
                          const PlanePointers<std::byte>& planes) {
  std::memset(codes + count, 0, kBytes);
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned shift) HWY_ATTR {
    pack_plane(codes, count, width, shift, reinterpret_cast<std::uint8_t*>(planes.at[plane++]));
  });
}

/// As unpack_planes; zeros to the end of a vector follow.
HWY_INLINE void unpack_tile(const PlanePointers<const std::byte>& planes, std::size_t count,
                            unsigned bits, std::uint8_t* codes) {
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned shift) HWY_ATTR {
    const auto* const in = reinterpret_cast<const std::uint8_t*>(planes.at[plane++]);
    unpack_plane(in, count, width, shift, codes);
  });
}

// ---------------------------------------------------------------- numbers to codes

/// Codes of numbers first .. last - 1, a vector of bytes at a time: scaled(i) makes a vector of
/// numbers, encode(four of them) their codes in the order of narrow_blocks.
template <class Scaled, class Encode>
HWY_INLINE void encode_numbers(std::size_t first, std::size_t last, const Scaled& scaled,
                               const Encode& encode, std::uint8_t* codes) {
  for (std::size_t i = first; i < last; i += kBytes) {
    const FloatVector four[4] = {scaled(i), scaled(i + kFloats), scaled(i + 2 * kFloats),
                                 scaled(i + 3 * kFloats)};
    hn::StoreU(ordered_bytes(encode(four)), U8(), codes + i);
  }
}

/// The nearest integers plus a bias, at most `top` and at least 0. Every |x| < 2^31, or far below 0.
template <bool kCounts>
HWY_INLINE ByteVector integer_codes(const FloatVector (&x)[4], Int16Vector bias, std::uint8_t top,
                                    std::uint64_t& clamped) {
  const Int16Vector low =
      hn::SaturatedAdd(narrow_blocks(nearest_int(x[0]), nearest_int(x[1])), bias);
  const Int16Vector high =
      hn::SaturatedAdd(narrow_blocks(nearest_int(x[2]), nearest_int(x[3])), bias);
  if constexpr (kCounts) {
    const Uint16Vector most = hn::Set(U16(), top);  // negative codes lie above it, too
    clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), low), most));
    clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), high), most));
  }
  return hn::Min(narrow_blocks(low, high), hn::Set(U8(), top));
}

// ---------------------------------------------------------------- small floats

/// `kTop` is the code of the largest value, 2^kMinExponent the smallest normal number.
template <Minifloat kFormat, unsigned kCodeBits, int kExponentOfLargest>
struct ElementFormat {
  static constexpr unsigned kBits = kCodeBits;
  static constexpr int kMantissa = kFormat.mantissa_bits;
  static constexpr int kMinExponent = 1 - kFormat.bias;
  static constexpr int kLargestExponent = kExponentOfLargest;
  static constexpr float kLargest = minifloat_to_float<kFormat>(kFormat.max_finite());
  static constexpr int kFold = 15 - kFormat.bias;  // for_each_half
  static constexpr std::uint8_t kTop = static_cast<std::uint8_t>(kFormat.max_finite());
  /// NaNs of 8 bits: the code of minus zero, or those whose magnitude's code is larger than this.
  static constexpr bool kMinusZeroIsNan = kFormat.special == SpecialCodes::minus_zero_is_nan;
  static constexpr std::uint8_t kLargestNumber = static_cast<std::uint8_t>(
      kFormat.special == SpecialCodes::infinity_and_nan ? kTop + 1 : kTop);
};

/// Whether one of the codes, of 8 bits, stands for a NaN.
template <class Format>
bool has_nan(const std::uint8_t* codes, std::size_t count) {
  auto any = hn::Ne(hn::Zero(U8()), hn::Zero(U8()));
  for (std::size_t i = 0; i < count; i += kBytes) {
    const ByteVector code = hn::Load(U8(), codes + i);
    const ByteVector magnitude = hn::And(code, hn::Set(U8(), 0x7F));
    any = hn::Or(any, Format::kMinusZeroIsNan
                          ? hn::Eq(code, hn::Set(U8(), 0x80))
                          : hn::Gt(magnitude, hn::Set(U8(), Format::kLargestNumber)));
  }
  return !hn::AllFalse(U8(), any);
}

using E4M3 = ElementFormat<kE4m3fn, 8, 8>;
using E5M2 = ElementFormat<kE5m2, 8, 15>;
using E2M3 = ElementFormat<kE2m3, 6, 2>;
using E3M2 = ElementFormat<kE3m2, 6, 4>;
using E2M1 = ElementFormat<kE2m1, 4, 2>;

/// The highest bits are the signs of four vectors of numbers.
HWY_INLINE ByteVector sign_bytes(const FloatVector (&x)[4]) {
  const auto narrowed = [&](std::size_t i) HWY_ATTR {
    const auto words = narrow_blocks(hn::BitCast(I32(), x[i]), hn::BitCast(I32(), x[i + 1]));
    return hn::BitCast(I16(), hn::ShiftRight<8>(hn::BitCast(U16(), words)));
  };
  return narrow_blocks(narrowed(0), narrowed(2));
}

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
  ByteVector sign = sign_bytes(x);
  if constexpr (Format::kBits < 8) {
    sign = hn::BitCast(U8(), hn::ShiftRight<8 - Format::kBits>(hn::BitCast(U16(), sign)));
  }
  return hn::Or(magnitude, hn::And(sign, hn::Set(U8(), 1 << (Format::kBits - 1))));
}

/// Calls f(first, words) for the words of low and high bytes, half a vector at a time. The halves of
/// interleaved bytes lie apart, if there are several 128-bit blocks.
template <class F>
HWY_INLINE void for_each_half_of(ByteVector low, ByteVector high, const F& f) {
  constexpr std::size_t kNext = kFloats == 8 ? 16 : 4;
  const Uint16Vector first = hn::BitCast(U16(), hn::InterleaveLower(U8(), low, high));
  const Uint16Vector second = hn::BitCast(U16(), hn::InterleaveUpper(U8(), low, high));
  f(std::size_t{0}, hn::LowerHalf(HalfU16(), first));
  f(kNext, hn::UpperHalf(HalfU16(), first));
  f(std::size_t{8}, hn::LowerHalf(HalfU16(), second));
  f(8 + kNext, hn::UpperHalf(HalfU16(), second));
}

/// Calls f(first, fp16 patterns) for half a vector of words of codes at a time. They lack 2^kFold.
template <class Format, class F>
HWY_INLINE void for_each_half(ByteVector codes, const F& f) {
  constexpr int kUp = 8 - Format::kBits;  // shift of the sign
  for_each_half_of(hn::Zero(U8()), codes, [&](std::size_t at, HalfUint16Vector v) HWY_ATTR {
    const HalfUint16Vector magnitude = hn::And(v, hn::Set(HalfU16(), 0x7FFF >> kUp));
    const HalfUint16Vector sign = hn::Xor(v, magnitude);
    f(at, hn::Or(hn::ShiftRight<kUp + Format::kMantissa - 2>(hn::ShiftLeft<kUp>(magnitude)),
                 hn::ShiftLeft<kUp>(sign)));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
