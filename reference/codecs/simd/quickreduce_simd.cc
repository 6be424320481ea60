// The QuickReduce codecs (spec section 1) with vectors. ../quickreduce.cc says what is computed;
// here is how, and why the bits are the same.
//
// Encoding an atom takes two passes over it, the second from cache. The first finds the extremes of
// its 64 blocks, as integer keys. All scales follow at once. The second scales, rounds and packs.
// Atoms with anything out of the ordinary are left to the scalar codec: a NaN or an infinity, and
// blocks whose eps nearly cancels d, so that scaled elements would not fit into 16 bits.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/quickreduce_simd.cc"
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/planes-inl.h"
#include "reference/codecs/simd/quickreduce_simd.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kAtom = kQuickReduceAtom;
constexpr std::size_t kGroup = 64;  // elements: two interleaved blocks
constexpr std::size_t kGroups = kAtom / kGroup;
constexpr std::size_t kBlocks = 2 * kGroups;
constexpr std::size_t kScaleBytes = 2 * kBlocks;
constexpr std::size_t kTogether = 4;  // atoms that are encoded together
constexpr std::size_t kVectorsOfGroup = kGroup / kFloats;

/// From this payload size on, decoded elements go past the caches: a tensor that large would only
/// push out what is still needed, and stores that do not read first save a third of the traffic.
constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

// ---------------------------------------------------------------- arithmetic in the payload's
// dtype

struct Fp16 : HalfLanes {
  static constexpr std::uint16_t kEpsilon = 0x0001;  // 2^-24
  // eps is the spacing of the smallest d. So m / d is at most 1.5 L and d / (d + eps) at most 2,
  // in magnitude; and if d or d + eps is 0, x * 65504 is small.
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
  template <bool kCount>
  static HWY_INLINE ByteVector encode(const FloatVector (&w)[4], std::uint64_t& clamped) {
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
  static constexpr bool kSignedScale = false;
  static constexpr bool kHasMinusZero = kSignedZero;

  template <bool kCount>
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
  static constexpr float kScale = 1.0f / 240.0f;
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
  static constexpr float kScale = 1.0f / 6.0f;
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
  static HWY_INLINE void pack_blocks(Codes codes, std::byte* wire, std::size_t unit) {
    Plane::pack(ordered(codes), wire, unit);
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

// ---------------------------------------------------------------- encode

using U16x8 = hn::FixedTag<std::uint16_t, 8>;
using U32x4 = hn::FixedTag<std::uint32_t, 4>;
using U64x2 = hn::FixedTag<std::uint64_t, 2>;
using Patterns = hn::Vec<U16x8>;  // four even and four odd elements, in turn

template <class V>
HWY_INLINE V larger_signed(V a, V b) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> as_signed;
  return hn::BitCast(d, hn::Max(hn::BitCast(as_signed, a), hn::BitCast(as_signed, b)));
}

#if ARLAB_X86_256
HWY_INLINE Patterns lower_half(Uint16Vector v) { return hn::LowerHalf(U16x8(), v); }
HWY_INLINE Patterns upper_half(Uint16Vector v) { return hn::UpperHalf(U16x8(), v); }
#else  // there is one half
HWY_INLINE Patterns lower_half(Uint16Vector v) { return v; }
HWY_INLINE Patterns upper_half(Uint16Vector v) { return v; }
#endif

/// Two elements of a block, of which one has its largest magnitude. As signed integers, all
/// patterns of positive numbers are above those of negative ones; as unsigned integers it is the
/// other way around; and in both, numbers of one sign order as their magnitudes.
struct Extremes {
  Patterns as_signed;
  Patterns as_unsigned;
};

template <bool kSigned>
HWY_INLINE Extremes group_extremes(const std::uint16_t* x) {
  constexpr std::size_t kLanes = 2 * kFloats;
  Uint16Vector v = hn::LoadU(U16(), x);
  if constexpr (kSigned) {
    Uint16Vector s = v;
    for (std::size_t i = kLanes; i < kGroup; i += kLanes) {
      const Uint16Vector next = hn::LoadU(U16(), x + i);
      s = larger_signed(s, next);
      v = hn::Max(v, next);
    }
    return {larger_signed(lower_half(s), upper_half(s)), hn::Max(lower_half(v), upper_half(v))};
  } else {
    // Without the sign, shifted out, one order is enough.
    v = hn::Add(v, v);
    for (std::size_t i = kLanes; i < kGroup; i += kLanes) {
      const Uint16Vector next = hn::LoadU(U16(), x + i);
      v = hn::Max(v, hn::Add(next, next));
    }
    const Patterns both = hn::Max(lower_half(v), upper_half(v));
    return {both, both};
  }
}

/// Transposes two groups (D: 32-bit lanes) or pairs of them (64-bit lanes), taking maxima.
template <bool kSigned, class D>
HWY_INLINE Extremes joined(D tag, const Extremes& a, const Extremes& b) {
  const auto lower = [tag](Patterns x, Patterns y) HWY_ATTR {
    return hn::BitCast(U16x8(), hn::InterleaveLower(tag, hn::BitCast(tag, x), hn::BitCast(tag, y)));
  };
  const auto upper = [tag](Patterns x, Patterns y) HWY_ATTR {
    return hn::BitCast(U16x8(), hn::InterleaveUpper(tag, hn::BitCast(tag, x), hn::BitCast(tag, y)));
  };
  const Patterns v =
      hn::Max(lower(a.as_unsigned, b.as_unsigned), upper(a.as_unsigned, b.as_unsigned));
  if constexpr (!kSigned) return {v, v};
  return {larger_signed(lower(a.as_signed, b.as_signed), upper(a.as_signed, b.as_signed)), v};
}

/// Keys order as the element that sets the scale is sought: by magnitude, and on a tie the negative
/// one is larger.
HWY_INLINE Patterns key_of(Patterns bits) {
  return hn::Or(hn::Add(bits, bits), hn::ShiftRight<15>(bits));
}
template <class Code>
HWY_INLINE HalfUint16Vector bits_of_key(HalfUint16Vector key) {
  const HalfUint16Vector magnitude = hn::ShiftRight<1>(key);
  return Code::kSignedScale ? hn::Or(magnitude, hn::ShiftLeft<15>(key)) : magnitude;
}

/// The keys of all blocks: of group g at [2 * g] (even elements) and [2 * g + 1] (odd). Returns the
/// largest ones.
template <bool kSigned>
HWY_NOINLINE Patterns find_keys(const std::uint16_t* x, std::uint16_t* keys) {
  Patterns largest = hn::Zero(U16x8());
  for (std::size_t g = 0; g < kGroups; g += 4, x += 4 * kGroup) {
    const Extremes first =
        joined<kSigned>(U32x4(), group_extremes<kSigned>(x), group_extremes<kSigned>(x + kGroup));
    const Extremes second = joined<kSigned>(U32x4(), group_extremes<kSigned>(x + 2 * kGroup),
                                            group_extremes<kSigned>(x + 3 * kGroup));
    const Extremes four = joined<kSigned>(U64x2(), first, second);
    const Patterns key =
        kSigned ? hn::Max(key_of(four.as_signed), key_of(four.as_unsigned)) : four.as_unsigned;
    largest = hn::Max(largest, key);
    hn::StoreU(key, U16x8(), keys + 2 * g);
  }
  return largest;
}

/// Steps 2 and 3 for all blocks of the atom: d to the wire, e for the next step. False when a
/// scaled element may be too large for the next step.
template <class Lanes, class Code>
HWY_NOINLINE bool find_scales(const std::uint16_t* keys, std::byte* wire_scales,
                              float* multipliers) {
  const hn::Repartition<std::uint8_t, HalfU16> bytes;
  const FloatVector k = Lanes::to_float(Lanes::round(hn::Set(F32(), Code::kScale)));
  const FloatVector epsilon = Lanes::to_float(hn::Set(HalfU16(), Lanes::kEpsilon));
  const FloatVector limit = hn::Set(F32(), 32000.0f);
  auto fits = hn::Eq(limit, limit);
  for (std::size_t b = 0; b < kBlocks; b += kFloats) {
    const FloatVector m = Lanes::to_float(bits_of_key<Code>(hn::LoadU(HalfU16(), keys + b)));
    const HalfUint16Vector d = Lanes::from_float(hn::Mul(m, k));
    hn::StoreU(hn::BitCast(bytes, d), bytes, byte_pointer(wire_scales) + 2 * b);
    const FloatVector shifted =
        Lanes::to_float(Lanes::from_float(hn::Add(Lanes::to_float(d), epsilon)));
    const FloatVector e = Lanes::to_float(Lanes::reciprocal(shifted));
    hn::StoreU(e, F32(), multipliers + b);
    if constexpr (!Lanes::kScaledElementsFit) {
      fits = hn::And(fits, hn::Lt(hn::Abs(hn::Mul(m, e)), limit));
    }
  }
  return Lanes::kScaledElementsFit || hn::AllTrue(F32(), fits);
}

/// At most kTogether consecutive atoms. False, and the wire is unfinished, when one of them is for
/// the scalar codec.
///
/// Several at a time, because the chain of operations from the extremes to the multipliers is long,
/// and the processor cannot look far enough ahead to do something else meanwhile. `next` is where
/// as many elements will be read afterwards: they are fetched while there is time.
template <QuickReduceFormat kFormat, class Lanes, bool kCount>
bool encode_together(const std::uint16_t* x, std::size_t atoms, const std::uint16_t* next,
                     std::byte* wire, std::uint64_t& clamped) {
  using Code = typename Traits<kFormat>::Code;
  using Packing = typename Traits<kFormat>::Packing;
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  std::uint16_t keys[kTogether * kBlocks];
  float multipliers[kTogether * kBlocks];
  Patterns largest = hn::Zero(U16x8());
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    largest =
        hn::Max(largest, find_keys<Code::kSignedScale>(x + atom * kAtom, keys + atom * kBlocks));
  }
  const Patterns infinity = hn::Set(U16x8(), 2 * Lanes::kInfinity);
  if (!hn::AllTrue(U16x8(), hn::Lt(largest, infinity))) return false;
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    std::byte* const scales = wire + atom * kWireBytes + quickreduce_code_bytes(kFormat);
    if (!find_scales<Lanes, Code>(keys + atom * kBlocks, scales, multipliers + atom * kBlocks)) {
      return false;
    }
  }

  const auto encode_vector = [&](const std::uint16_t* from, FloatVector e) HWY_ATTR {
    FloatVector w[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const FloatVector value = load_elements<Lanes>(from + i * kFloats);
      w[i] = rounded_significand<Lanes::kLostBits>(hn::Mul(value, e));
      // A rounded -0 is +0. Without a signed scale, e is positive.
      if constexpr (Code::kHasMinusZero) {
        w[i] = hn::Or(w[i], hn::And(value, hn::SignBit(F32())));
      }
    }
    return Code::template encode<kCount>(w, clamped);
  };
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    for (std::size_t unit = 0; unit < kAtom / kUnit; ++unit) {
      const FloatVector e = load_pair(multipliers + atom * kBlocks + unit * kUnit / kGroup * 2);
      const std::size_t at = atom * kAtom + unit * kUnit;
      const std::uint16_t* const from = x + at;
      for (std::size_t line = 0; line < kUnit; line += 32) hwy::Prefetch(next + at + line);
      const Codes codes{encode_vector(from, e), encode_vector(from + kBytes, e)};
      Packing::pack_blocks(codes, wire + atom * kWireBytes, unit);
    }
  }
  return true;
}

/// A whole atom, or the last one of a message, which is padded with zeros.
template <QuickReduceFormat kFormat, class Lanes, bool kCount>
void encode_atom(const Codec& scalar, DType dtype, std::span<const std::uint16_t> x,
                 std::span<std::byte> wire, EncodeCounts& counts) {
  std::uint64_t clamped = 0;
  bool done = false;
  if (x.size() == kAtom) {
    done = encode_together<kFormat, Lanes, kCount>(x.data(), 1, x.data(), wire.data(), clamped);
  } else if (!kCount) {  // padding must not be counted
    std::uint16_t padded[kAtom] = {};
    std::ranges::copy(x, padded);
    done = encode_together<kFormat, Lanes, false>(padded, 1, padded, wire.data(), clamped);
  }
  if (done) {
    counts.clamped += clamped;
  } else {
    scalar.encode(dtype, std::as_bytes(x), wire, kCount ? &counts : nullptr);
  }
}

template <QuickReduceFormat kFormat, class Lanes, bool kCount>
void encode_atoms(const Codec& scalar, DType dtype, std::span<const std::uint16_t> x,
                  std::byte* wire, EncodeCounts& counts) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  std::size_t begin = 0;
  while (begin < x.size()) {
    const auto rest = x.subspan(begin);
    std::uint64_t clamped = 0;
    const bool more = rest.size() >= 2 * kTogether * kAtom;
    const std::uint16_t* const next = rest.data() + (more ? kTogether * kAtom : 0);
    if (rest.size() >= kTogether * kAtom &&
        encode_together<kFormat, Lanes, kCount>(rest.data(), kTogether, next, wire, clamped)) {
      counts.clamped += clamped;
      begin += kTogether * kAtom;
      wire += kTogether * kWireBytes;
      continue;
    }
    // One by one: the last ones, or those beside an extraordinary one.
    const std::size_t atoms = std::min(kTogether, (rest.size() + kAtom - 1) / kAtom);
    for (std::size_t i = 0; i < atoms; ++i, begin += kAtom, wire += kWireBytes) {
      const auto part = x.subspan(begin, std::min(kAtom, x.size() - begin));
      encode_atom<kFormat, Lanes, kCount>(scalar, dtype, part, {wire, kWireBytes}, counts);
    }
  }
}

// ---------------------------------------------------------------- decode

/// The values of a group's codes, multiplied by their scales: any format.
template <QuickReduceFormat kFormat, class Lanes>
class GroupReader {
  using Code = typename Traits<kFormat>::Code;
  using Packing = typename Traits<kFormat>::Packing;

 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : scales_(scales) {
    for (std::size_t i = 0; i < kGroup / kUnit; ++i) {
      const Codes codes = Packing::unpack(wire, group * (kGroup / kUnit) + i);
      hn::Store(codes.first, U8(), codes_ + i * kUnit);
      hn::Store(codes.second, U8(), codes_ + i * kUnit + kBytes);
    }
  }
  /// Vector i of the group, in element order.
  HWY_INLINE FloatVector product(std::size_t i) const {
    return hn::Mul(Code::value(codes_ + i * kFloats), scales_);
  }

 private:
  FloatVector scales_;
  alignas(32) std::uint8_t codes_[kGroup];
};

/// q4 in fp16: every lane takes its four bits of the thread's word where they stand, so that it
/// holds the value times a power of two. That goes into the scale, which is exact for fp16, but not
/// for the small scales of bf16.
template <>
class GroupReader<QuickReduceFormat::q4, Fp16> {
  static constexpr std::size_t kParts = 8 / kFloats;  // vectors of a thread
  alignas(32) static constexpr std::uint32_t kMask[8] = {0x0000000F, 0x000F0000, 0x000000F0,
                                                         0x00F00000, 0x00000F00, 0x0F000000,
                                                         0x0000F000, 0xF0000000};
  alignas(32) static constexpr std::uint32_t kBias[8] = {0x00000008, 0x00080000, 0x00000080,
                                                         0x00800000, 0x00000800, 0x08000000,
                                                         0x00008000, 0x80000000};
  alignas(32) static constexpr float kPower[8] = {1,       0x1p-16f, 0x1p-4f,  0x1p-20f,
                                                  0x1p-8f, 0x1p-24f, 0x1p-12f, 0x1p-28f};

 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : words_(wire + 4 * 8 * group),
        scales_{hn::Mul(scales, hn::Load(F32(), kPower)),
                hn::Mul(scales, hn::Load(F32(), kPower + (kParts - 1) * kFloats))} {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    std::uint32_t word;
    std::memcpy(&word, words_ + 4 * (i / kParts), sizeof(word));
    const std::size_t part = i % kParts;
    const Uint32Vector bits =
        hn::And(hn::Set(U32(), word), hn::Load(U32(), kMask + part * kFloats));
    const Uint32Vector value = hn::Sub(bits, hn::Load(U32(), kBias + part * kFloats));
    return hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), value)), scales_[part]);
  }

 private:
  const std::byte* words_;
  FloatVector scales_[2];
};

/// q8: every lane takes its byte.
template <class Lanes>
class GroupReader<QuickReduceFormat::q8, Lanes> {
 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : bytes_(wire + kGroup * group), scales_(scales) {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    using Word = std::conditional_t<kFloats == 8, std::uint64_t, std::uint32_t>;
    constexpr std::uint8_t kNone = 0x80;  // gives 0
    alignas(32) static constexpr std::uint8_t kPick[32] = {
        0,     kNone, kNone, kNone, 2,     kNone, kNone, kNone, 1,     kNone, kNone,
        kNone, 3,     kNone, kNone, kNone, 4,     kNone, kNone, kNone, 6,     kNone,
        kNone, kNone, 5,     kNone, kNone, kNone, 7,     kNone, kNone, kNone};
    Word word;
    std::memcpy(&word, bytes_ + kFloats * i, sizeof(word));
    const hn::Repartition<Word, F32> words;
    const ByteVector bytes = hn::BitCast(U8(), hn::Set(words, word));
    const ByteVector codes = hn::TableLookupBytesOr0(bytes, hn::Load(U8(), kPick));
    const Int32Vector value = hn::Sub(hn::BitCast(I32(), codes), hn::Set(I32(), 128));
    return hn::Mul(hn::ConvertTo(F32(), value), scales_);
  }

 private:
  const std::byte* bytes_;
  FloatVector scales_;
};

/// fp8: the bytes are in order on the wire.
template <class Lanes>
class GroupReader<QuickReduceFormat::fp8, Lanes> {
 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : codes_(byte_pointer(wire) + kGroup * group), scales_(scales) {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    return hn::Mul(Fp8Code::value(codes_ + i * kFloats), scales_);
  }

 private:
  const std::uint8_t* codes_;
  FloatVector scales_;
};

/// Whether the atom's products need the exact rounding: scales that are not finite or that may
/// overflow, NaN codes.
template <QuickReduceFormat kFormat, class Lanes>
HWY_INLINE bool is_extraordinary(const std::byte* wire) {
  using Code = typename Traits<kFormat>::Code;
  constexpr std::size_t kCodeBytes = quickreduce_code_bytes(kFormat);
  const Uint16Vector limit = hn::Set(U16(), Lanes::largest_plain_scale(Code::kLargest));
  const Uint16Vector magnitude = hn::Set(U16(), 0x7FFF);
  Uint16Vector largest = hn::Zero(U16());
  for (std::size_t at = 0; at < kScaleBytes; at += kBytes) {
    const ByteVector bytes = hn::LoadU(U8(), byte_pointer(wire) + kCodeBytes + at);
    largest = hn::Max(largest, hn::And(hn::BitCast(U16(), bytes), magnitude));
  }
  bool found = !hn::AllFalse(U16(), hn::Gt(largest, limit));
  if constexpr (kFormat == QuickReduceFormat::fp8) {
    for (std::size_t at = 0; at < kCodeBytes; at += kBytes) {
      found |= Code::has_nan(hn::LoadU(U8(), byte_pointer(wire) + at));
    }
  }
  return found;
}

/// The scales of an atom as floats, in the order of the wire.
template <QuickReduceFormat kFormat, class Lanes>
HWY_INLINE void read_scales(const std::byte* wire, float* scales) {
  const hn::Repartition<std::uint8_t, HalfU16> bytes;
  const std::uint8_t* const from = byte_pointer(wire) + quickreduce_code_bytes(kFormat);
  for (std::size_t b = 0; b < kBlocks; b += kFloats) {
    const auto bits = hn::BitCast(HalfU16(), hn::LoadU(bytes, from + 2 * b));
    hn::StoreU(Lanes::to_float(bits), F32(), scales + b);
  }
}

template <bool kExact, class Lanes>
HWY_INLINE HalfUint16Vector rounded(FloatVector x) {
  return kExact ? Lanes::round(x) : Lanes::from_float(x);
}

/// How decoded elements are stored.
enum class Stores {
  cached,
  streamed,  // past the caches, to addresses aligned to 16 bytes
};

template <Stores kStores, class D, class V>
HWY_INLINE void store_elements(V elements, D d, std::uint16_t* out) {
  if constexpr (kStores == Stores::streamed) {
    hn::Stream(elements, d, out);
  } else {
    hn::StoreU(elements, d, out);
  }
}

/// Any format: each element's own product.
template <QuickReduceFormat kFormat, class Lanes, bool kExact>
struct GroupByProduct {
  template <Stores kStores>
  static HWY_INLINE void decode(const std::byte* wire, std::size_t group, const float* scales,
                                std::uint16_t* out) {
    const GroupReader<kFormat, Lanes> reader(wire, group, load_pair(scales));
    for (std::size_t i = 0; i < kVectorsOfGroup; ++i) {
      const HalfUint16Vector elements = rounded<kExact, Lanes>(reader.product(i));
      store_elements<kStores>(elements, HalfU16(), out + i * kFloats);
    }
  }
};

/// The codes of even and of odd elements. A 128-bit block holds those of four threads.
struct ParityCodes {
  ByteVector even;
  ByteVector odd;
};

template <QuickReduceFormat kFormat>
struct ParityReader;

template <>
struct ParityReader<QuickReduceFormat::q4> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    // The low half of a thread's word has its even elements.
    alignas(16) static constexpr std::uint8_t kHalves[16] = {0, 1, 4, 5, 8,  9,  12, 13,
                                                             2, 3, 6, 7, 10, 11, 14, 15};
    const ByteVector v = hn::LoadU(U8(), byte_pointer(wire) + unit * kBytes);
    const ByteVector halves = hn::TableLookupBytes(v, block_indices(kHalves));
    const ByteVector low = hn::And(halves, bytes_set(0x0F));
    const ByteVector high = hn::And(shift_right_16<4>(halves), bytes_set(0x0F));
    return {hn::InterleaveLower(low, high), hn::InterleaveUpper(U8(), low, high)};
  }
  static constexpr std::size_t thread(std::size_t block, std::size_t i) { return 4 * block + i; }
};

template <>
struct ParityReader<QuickReduceFormat::fp4> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    const ByteVector v = hn::LoadU(U8(), byte_pointer(wire) + unit * kBytes);
    return {hn::And(v, bytes_set(0x0F)), hn::And(shift_right_16<4>(v), bytes_set(0x0F))};
  }
  static constexpr std::size_t thread(std::size_t block, std::size_t i) { return 4 * block + i; }
};

template <>
struct ParityReader<QuickReduceFormat::q3> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    const Codes codes = Q3Packing::unpack(wire, unit);
    const auto first = hn::BitCast(I16(), codes.first);
    const auto second = hn::BitCast(I16(), codes.second);
    const auto low = hn::Set(I16(), 0x00FF);
    return {narrow_blocks(hn::And(first, low), hn::And(second, low)),
            narrow_blocks(hn::ShiftRight<8>(first), hn::ShiftRight<8>(second))};
  }
  /// Each block of the narrowed codes is half of one of the first and half of one of the second.
  static constexpr std::size_t thread(std::size_t block, std::size_t i) {
    return i < 2 ? 2 * block + i : kBytes / 8 + 2 * block + i - 2;
  }
};

/// Formats of few codes: the products of all codes with the two scales of the group, looked up.
template <QuickReduceFormat kFormat, class Lanes, bool kExact>
struct GroupByTable {
  using Code = typename Traits<kFormat>::Code;
  using Bytes16 = hn::FixedTag<std::uint8_t, 16>;

  /// The products of the 16 codes with a scale, as their low and their high bytes.
  struct Table {
    ByteVector low;
    ByteVector high;
  };

  static HWY_INLINE Table table(float scale) {
    alignas(32) static constexpr float kValues[16] = {
        Code::value_of(0),  Code::value_of(1),  Code::value_of(2),  Code::value_of(3),
        Code::value_of(4),  Code::value_of(5),  Code::value_of(6),  Code::value_of(7),
        Code::value_of(8),  Code::value_of(9),  Code::value_of(10), Code::value_of(11),
        Code::value_of(12), Code::value_of(13), Code::value_of(14), Code::value_of(15)};
    alignas(16) static constexpr std::uint8_t kSplit[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                            1, 3, 5, 7, 9, 11, 13, 15};
    const FloatVector d = hn::Set(F32(), scale);
    const auto eight = [d](const float* values) HWY_ATTR {
      const auto products = [d](const float* from) HWY_ATTR {
        return rounded<kExact, Lanes>(hn::Mul(hn::Load(F32(), from), d));
      };
#if ARLAB_X86_256
      const hn::Vec<U16x8> all = products(values);
#else
      const hn::Vec<U16x8> all = hn::Combine(U16x8(), products(values + 4), products(values));
#endif
      return hn::BitCast(
          U64x2(), hn::TableLookupBytes(hn::BitCast(Bytes16(), all), hn::Load(Bytes16(), kSplit)));
    };
    const hn::Vec<U64x2> first = eight(kValues);
    const hn::Vec<U64x2> second = eight(kValues + 8);
    const auto low = hn::BitCast(Bytes16(), hn::InterleaveLower(U64x2(), first, second));
    const auto high = hn::BitCast(Bytes16(), hn::InterleaveUpper(U64x2(), first, second));
#if ARLAB_X86_256
    return {hn::Combine(U8(), low, low), hn::Combine(U8(), high, high)};
#else
    return {low, high};
#endif
  }

  template <Stores kStores>
  static HWY_INLINE void decode(const std::byte* wire, std::size_t group, const float* scales,
                                std::uint16_t* out) {
    const Table even = table(scales[0]);
    const Table odd = table(scales[1]);
    for (std::size_t part = 0; part < kGroup / kUnit; ++part, out += kUnit) {
      const ParityCodes codes = ParityReader<kFormat>::read(wire, group * (kGroup / kUnit) + part);
      const ByteVector even_low = hn::TableLookupBytes(even.low, codes.even);
      const ByteVector even_high = hn::TableLookupBytes(even.high, codes.even);
      const ByteVector odd_low = hn::TableLookupBytes(odd.low, codes.odd);
      const ByteVector odd_high = hn::TableLookupBytes(odd.high, codes.odd);
      const auto lower = [](ByteVector a, ByteVector b) HWY_ATTR {
        return hn::BitCast(U16(), hn::InterleaveLower(U8(), a, b));
      };
      const auto upper = [](ByteVector a, ByteVector b) HWY_ATTR {
        return hn::BitCast(U16(), hn::InterleaveUpper(U8(), a, b));
      };
      const Uint16Vector even_01 = lower(even_low, even_high);
      const Uint16Vector even_23 = upper(even_low, even_high);
      const Uint16Vector odd_01 = lower(odd_low, odd_high);
      const Uint16Vector odd_23 = upper(odd_low, odd_high);
      store<kStores>(hn::InterleaveLower(U16(), even_01, odd_01), 0, out);
      store<kStores>(hn::InterleaveUpper(U16(), even_01, odd_01), 1, out);
      store<kStores>(hn::InterleaveLower(U16(), even_23, odd_23), 2, out);
      store<kStores>(hn::InterleaveUpper(U16(), even_23, odd_23), 3, out);
    }
  }

 private:
  /// Each block is one thread's elements.
  template <Stores kStores>
  static HWY_INLINE void store(Uint16Vector threads, std::size_t i, std::uint16_t* out) {
    constexpr auto kThread = ParityReader<kFormat>::thread;
    store_elements<kStores>(lower_half(threads), U16x8(), out + 8 * kThread(0, i));
    if constexpr (kFloats == 8) {
      store_elements<kStores>(upper_half(threads), U16x8(), out + 8 * kThread(1, i));
    }
  }
};

/// Which way is faster was measured.
template <QuickReduceFormat kFormat, class Lanes>
inline constexpr bool kByTable = kFormat == QuickReduceFormat::q3 ||
                                 kFormat == QuickReduceFormat::fp4 ||
                                 (kFormat == QuickReduceFormat::q4 && std::is_same_v<Lanes, Bf16>);

template <QuickReduceFormat kFormat, class Lanes, bool kExact>
using Group = std::conditional_t<kByTable<kFormat, Lanes>, GroupByTable<kFormat, Lanes, kExact>,
                                 GroupByProduct<kFormat, Lanes, kExact>>;

template <QuickReduceFormat kFormat, class Lanes, bool kExact, Stores kStores>
HWY_INLINE void decode_atom(const std::byte* wire, std::uint16_t* out) {
  float scales[kBlocks];
  read_scales<kFormat, Lanes>(wire, scales);
  for (std::size_t group = 0; group < kGroups; ++group, out += kGroup) {
    Group<kFormat, Lanes, kExact>::template decode<kStores>(wire, group, scales + 2 * group, out);
  }
}

/// One group added to `sum`. False, and nothing is changed, when a sum came out as an infinity or a
/// NaN, and the exact rounding was not asked for.
template <class Lanes, bool kExact>
HWY_INLINE bool add_group(const std::uint16_t* decoded, std::uint16_t* sum) {
  const HalfUint16Vector infinity = hn::Set(HalfU16(), Lanes::kInfinity);
  auto any = hn::Zero(HalfU16());
  HalfUint16Vector sums[kVectorsOfGroup];
  for (std::size_t i = 0; i < kVectorsOfGroup; ++i) {
    const FloatVector addend = load_elements<Lanes>(decoded + i * kFloats);
    const FloatVector old = load_elements<Lanes>(sum + i * kFloats);
    sums[i] = rounded<kExact, Lanes>(hn::Add(old, addend));
    if constexpr (!kExact) any = hn::Max(any, hn::And(sums[i], hn::Set(HalfU16(), 0x7FFF)));
  }
  if (!kExact && !hn::AllTrue(HalfU16(), hn::Lt(any, infinity))) return false;
  for (std::size_t i = 0; i < kVectorsOfGroup; ++i) {
    hn::StoreU(sums[i], HalfU16(), sum + i * kFloats);
  }
  return true;
}

/// Decoding and adding are two passes: each keeps the processor busy better than both in turn.
template <QuickReduceFormat kFormat, class Lanes>
void add_atom(const std::byte* wire, std::uint16_t* sum) {
  alignas(32) std::uint16_t decoded[kAtom];
  const bool exact = is_extraordinary<kFormat, Lanes>(wire);
  if (exact) {
    decode_atom<kFormat, Lanes, true, Stores::cached>(wire, decoded);
  } else {
    decode_atom<kFormat, Lanes, false, Stores::cached>(wire, decoded);
  }
  for (std::size_t at = 0; at < kAtom; at += kGroup) {
    if (exact || !add_group<Lanes, false>(decoded + at, sum + at)) {
      add_group<Lanes, true>(decoded + at, sum + at);
    }
  }
}

template <QuickReduceFormat kFormat, class Lanes, Stores kStores>
void decode_any_atom(const std::byte* wire, std::uint16_t* out) {
  if (is_extraordinary<kFormat, Lanes>(wire)) {
    decode_atom<kFormat, Lanes, true, Stores::cached>(wire, out);  // rare
  } else {
    decode_atom<kFormat, Lanes, false, kStores>(wire, out);
  }
}

template <QuickReduceFormat kFormat, class Lanes>
void decode_atoms(const std::byte* wire, std::span<std::uint16_t> x) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  const bool streamed =
      x.size_bytes() >= kStreamedBytes && reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0;
  const std::size_t whole = x.size() / kAtom * kAtom;
  for (std::size_t begin = 0; begin < whole; begin += kAtom, wire += kWireBytes) {
    streamed ? decode_any_atom<kFormat, Lanes, Stores::streamed>(wire, &x[begin])
             : decode_any_atom<kFormat, Lanes, Stores::cached>(wire, &x[begin]);
  }
  if (streamed) hwy::FlushStream();
  if (const auto rest = x.subspan(whole); !rest.empty()) {
    std::uint16_t atom[kAtom];
    decode_any_atom<kFormat, Lanes, Stores::cached>(wire, atom);
    std::copy_n(atom, rest.size(), rest.begin());
  }
}

template <QuickReduceFormat kFormat, class Lanes>
void add_atoms(const std::byte* wire, std::span<std::uint16_t> sum) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  for (std::size_t begin = 0; begin < sum.size(); begin += kAtom, wire += kWireBytes) {
    const auto part = sum.subspan(begin, std::min(kAtom, sum.size() - begin));
    if (part.size() == kAtom) {
      add_atom<kFormat, Lanes>(wire, part.data());
    } else {
      std::uint16_t padded[kAtom] = {};
      std::ranges::copy(part, padded);
      add_atom<kFormat, Lanes>(wire, padded);
      std::copy_n(padded, part.size(), part.begin());
    }
  }
}

// ---------------------------------------------------------------- what the dispatch table holds

/// Calls f<kFormat, Lanes>.
template <class F>
void with_format(QuickReduceFormat format, DType dtype, const F& f) {
  const auto with_dtype = [&]<QuickReduceFormat kFormat>() {
    dtype == DType::fp16 ? f.template operator()<kFormat, Fp16>()
                         : f.template operator()<kFormat, Bf16>();
  };
  switch (format) {
    case QuickReduceFormat::q3:
      return with_dtype.template operator()<QuickReduceFormat::q3>();
    case QuickReduceFormat::q4:
      return with_dtype.template operator()<QuickReduceFormat::q4>();
    case QuickReduceFormat::q6:
      return with_dtype.template operator()<QuickReduceFormat::q6>();
    case QuickReduceFormat::q8:
      return with_dtype.template operator()<QuickReduceFormat::q8>();
    case QuickReduceFormat::fp4:
      return with_dtype.template operator()<QuickReduceFormat::fp4>();
    case QuickReduceFormat::fp8:
      return with_dtype.template operator()<QuickReduceFormat::fp8>();
  }
}

void quickreduce_encode(const QuickReduceFormat& format, const Codec& scalar, DType dtype,
                        std::span<const std::byte> payload, std::span<std::byte> wire,
                        EncodeCounts* counts) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    EncodeCounts ignored;
    counts != nullptr
        ? encode_atoms<kFormat, Lanes, true>(scalar, dtype, as_u16(payload), wire.data(), *counts)
        : encode_atoms<kFormat, Lanes, false>(scalar, dtype, as_u16(payload), wire.data(), ignored);
  });
}

void quickreduce_decode(const QuickReduceFormat& format, const Codec&, DType dtype,
                        std::span<const std::byte> wire, std::span<std::byte> payload) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    decode_atoms<kFormat, Lanes>(wire.data(), as_u16(payload));
  });
}

void quickreduce_decode_add(const QuickReduceFormat& format, const Codec&, DType dtype,
                            std::span<const std::byte> wire, std::span<std::byte> sum) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    add_atoms<kFormat, Lanes>(wire.data(), as_u16(sum));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<QuickReduceFormat> quickreduce_functions() {
#if ARLAB_HAS_LANES
  return {quickreduce_encode, quickreduce_decode, quickreduce_decode_add};
#else
  return scalar_functions<QuickReduceFormat>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(quickreduce_functions);

CodecFunctions<QuickReduceFormat> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(quickreduce_functions)();
}

}  // namespace

CodecPtr accelerated_quickreduce(const CodecPtr& scalar) {
  constexpr std::pair<std::string_view, QuickReduceFormat> kFormats[] = {
      {"qr-q3", QuickReduceFormat::q3},   {"qr-q4", QuickReduceFormat::q4},
      {"qr-q6", QuickReduceFormat::q6},   {"qr-q8", QuickReduceFormat::q8},
      {"qr-fp4", QuickReduceFormat::fp4}, {"qr-fp8", QuickReduceFormat::fp8}};
  for (const auto& [name, format] : kFormats) {
    if (scalar->name() == name)
      return std::make_shared<AcceleratedCodec<QuickReduceFormat>>(scalar, format,
                                                                   functions_of_this_processor);
  }
  return nullptr;
}

}  // namespace arlab

#endif  // HWY_ONCE
