// The QuickReduce codecs with vectors. ../SPEC.md, "QuickReduce (qr-*)", says what is computed, and
// ../formats/quickreduce.h in numbers; here it is in vectors of numbers, rounded to the dtype where
// that says so.
//
// Left to the scalar codec: atoms with something that is not finite, blocks whose eps nearly cancels
// d, so that scaled elements would not fit into 16 bits, and scales whose products may overflow.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/quickreduce_simd.cc"
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/formats/quickreduce.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {
#if ARLAB_HAS_LANES

constexpr std::size_t kAtom = 2048;  // elements
constexpr std::size_t kGroup = 64;   // elements: two interleaved blocks
constexpr std::size_t kBlocks = kAtom / kGroup * 2;

// ---------------------------------------------------------------- codes

/// Integers -L .. L-1, stored with a bias of L.
template <int L>
struct Integers : QuickReduceIntegers<L> {
  static constexpr unsigned kBits = std::bit_width(2U * L - 1);
  static constexpr bool kMayBeNan = false;
  static constexpr float kLargest = L;
  static constexpr bool kHasMinusZero = false;

  /// |w| < 2^15, so that 16 bits hold every integer, and the bias saturates where it does not fit.
  template <bool kCounts>
  static HWY_INLINE ByteVector encode(const FloatVector (&w)[4], std::uint64_t& clamped) {
    return integer_codes<kCounts>(w, hn::Set(I16(), L), 2 * L - 1, clamped);
  }
  /// Calls f(first, values) for the codes in order.
  template <class F>
  static HWY_INLINE void decode(const std::uint8_t* codes, std::size_t count, const F& f) {
    for (std::size_t i = 0; i < count; i += kFloats) {
      const Int32Vector code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), codes + i));
      f(i, hn::ConvertTo(F32(), hn::Sub(code, hn::Set(I32(), L))));
    }
  }
};

template <class Code, Minifloat kFormat>
struct Floats : Code {
  using Format = ElementFormat<kFormat, 1 + kFormat.exponent_bits + kFormat.mantissa_bits, 0>;
  static constexpr unsigned kBits = Format::kBits;
  static constexpr float kLargest = Format::kLargest;
  static constexpr bool kMayBeNan = kFormat.special == SpecialCodes::minus_zero_is_nan;
  static constexpr bool kHasMinusZero = !kMayBeNan;
  static constexpr std::uint8_t kSignBit = 1 << (kBits - 1);

  template <bool kCounts>
  static HWY_INLINE ByteVector encode(const FloatVector (&w)[4], std::uint64_t& clamped) {
    const ByteVector codes = float_codes<Format, kCounts>(w, clamped);
    if constexpr (kHasMinusZero) return codes;
    return hn::IfThenZeroElse(hn::Eq(codes, hn::Set(U8(), kSignBit)), codes);
  }
  template <class F>
  static HWY_INLINE void decode(const std::uint8_t* codes, std::size_t count, const F& f) {
    for (std::size_t i = 0; i < count; i += kBytes) {
      for_each_half<Format>(hn::LoadU(U8(), codes + i),
                            [&](std::size_t at, HalfUint16Vector bits) HWY_ATTR {
                              constexpr float kFold = 1 << Format::kFold;
                              f(i + at, hn::Mul(HalfLanes::to_float(bits), hn::Set(F32(), kFold)));
                            });
    }
  }
};

// ---------------------------------------------------------------- places of codes

/// Codes of threads, of eight elements each, in another order. `kOrder` has two threads.
template <bool kBack>
void reorder(const std::uint8_t* order, std::uint8_t* codes) {
  alignas(16) std::uint8_t own[16];
  for (std::uint8_t i = 0; i < 16; ++i) own[kBack ? order[i] : i] = kBack ? i : order[i];
  const ByteVector picked = hn::LoadDup128(U8(), own);
  for (std::size_t i = 0; i < kAtom; i += kBytes) {
    hn::Store(hn::TableLookupBytes(hn::Load(U8(), codes + i), picked), U8(), codes + i);
  }
}

// How a thread's elements lie on the wire, in planes of their bits (../bit_planes.h), where not in order.
/// The even elements in the low half of a word of nibbles, the odd ones in the high.
inline constexpr std::uint8_t kNibblePairs[16] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                  8, 10, 12, 14, 9, 11, 13, 15};
inline constexpr std::uint8_t kSwappedBytes[16] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                   8, 10, 9, 11, 12, 14, 13, 15};

// ---------------------------------------------------------------- the family

/// Numbers as integers that order as what sets a scale is sought: by magnitude, and on a tie the
/// negative one is larger.
HWY_INLINE Uint32Vector key_of(FloatVector x) {
  return hn::Or(hn::Add(bits_of(x), bits_of(x)), hn::ShiftRight<31>(bits_of(x)));
}
HWY_INLINE FloatVector of_key(Uint32Vector key) {
  return float_of(hn::Or(hn::ShiftRight<1>(key), hn::ShiftLeft<31>(key)));
}

/// The two numbers of a group in the lanes of even and odd elements.
HWY_INLINE FloatVector load_pair(const float* pair) {
  std::uint64_t both;
  std::memcpy(&both, pair, sizeof(both));
  return hn::BitCast(F32(), hn::Set(U64(), both));
}

template <class Code, const std::uint8_t* kOrder = nullptr>
struct QuickReduce : ByScalarCodec {
  static constexpr bool kClampsSums = true;
  static constexpr bool kTakesFp32 = false;
  static constexpr std::size_t kCodeBytes = kAtom * Code::kBits / 8;
  // GCC with UndefinedBehaviorSanitizer takes no comparison with a null pointer for a constant.
  static constexpr bool kReorders =
      !std::is_same_v<std::integral_constant<const std::uint8_t*, kOrder>,
                      std::integral_constant<const std::uint8_t*, nullptr>>;

  QuickReduce(const std::string&, const Codec& codec, DType type, std::size_t, const std::byte*)
      : ByScalarCodec{codec, type} {}

  static constexpr std::size_t chunk() { return kAtom; }
  static constexpr std::size_t chunk_bytes(std::size_t) { return kCodeBytes + 2 * kBlocks; }

  /// Step 1, of the two blocks of every group: keys.
  static void find_extremes(const float* x, std::uint32_t* extremes) {
    for (std::size_t group = 0; group < kAtom; group += kGroup) {
      Uint32Vector largest = hn::Zero(U32());
      for (std::size_t i = 0; i < kGroup; i += kFloats) {
        largest = hn::Max(largest, key_of(hn::Load(F32(), x + group + i)));
      }
      *extremes++ = hn::GetLane(hn::MaxOfLanes(U32(), hn::DupEven(largest)));
      *extremes++ = hn::GetLane(hn::MaxOfLanes(U32(), hn::DupOdd(largest)));
    }
  }

  /// Steps 2 and 3: d to the wire, e for the next step. False when a scaled element may be too large
  /// for that.
  template <class Payload>
  static bool find_scales(const std::uint32_t* extremes, std::byte* wire, float* multipliers) {
    constexpr bool kIsHalf = std::is_same_v<Payload, HalfLanes>;
    constexpr std::uint16_t kEpsilon = kIsHalf ? kQuickReduceEpsilonFp16 : kQuickReduceEpsilonBf16;
    const FloatVector k = Payload::to_float(Payload::round(hn::Set(F32(), Code::kScale)));
    const FloatVector epsilon = Payload::to_float(hn::Set(HalfU16(), kEpsilon));
    const FloatVector limit = hn::Set(F32(), 32000.0f);
    auto fits = hn::Eq(limit, limit);
    alignas(32) std::uint16_t scales[kBlocks];
    for (std::size_t b = 0; b < kBlocks; b += kFloats) {
      const Uint32Vector key = hn::Load(U32(), extremes + b);
      const FloatVector m = Code::kSignedScale ? of_key(key) : hn::Abs(of_key(key));
      const HalfUint16Vector d = Payload::from_float(hn::Mul(m, k));
      hn::Store(d, HalfU16(), scales + b);
      const FloatVector shifted =
          Payload::to_float(Payload::from_float(hn::Add(Payload::to_float(d), epsilon)));
      const FloatVector e = Payload::to_float(Payload::reciprocal(shifted));
      hn::Store(e, F32(), multipliers + b);
      // In fp16 they always fit: eps is the spacing of the smallest d, so m / d is at most 1.5 L and
      // d / (d + eps) at most 2, but not both; and if d or d + eps is 0, x * 65504 is small.
      fits = hn::And(fits, hn::Lt(hn::Abs(hn::Mul(m, e)), limit));
    }
    std::memcpy(wire, scales, 2 * kBlocks);
    return kIsHalf || hn::AllTrue(F32(), fits);
  }

  template <class Payload, bool kCounts>
  bool encode(Tile& tile, std::span<const typename Payload::Element> x, std::byte* wire,
              std::uint64_t& clamped) const {
    alignas(32) std::uint32_t extremes[kBlocks];
    alignas(32) float multipliers[kBlocks];
    // Elements behind the end count as +0, which is never clamped.
    if (!load_tile<Payload>(x.data(), x.size(), kAtom, kInfinity, tile.x)) return false;
    find_extremes(tile.x, extremes);
    if (!find_scales<Payload>(extremes, wire + kCodeBytes, multipliers)) return false;
    for (std::size_t group = 0; group < kAtom; group += kGroup) {
      const FloatVector e = load_pair(multipliers + group / kGroup * 2);
      encode_numbers(
          group, group + kGroup,
          [&](std::size_t i) HWY_ATTR {
            const FloatVector v = hn::Load(F32(), tile.x + i);
            const FloatVector w = rounded_significand<Payload::kLostBits>(hn::Mul(v, e));
            if constexpr (!Code::kHasMinusZero) return w;
            return hn::Or(w, hn::And(hn::Xor(v, e), hn::SignBit(F32())));  // a rounded -0 is +0
          },
          [&](const FloatVector(&four)[4])
              HWY_ATTR { return Code::template encode<kCounts>(four, clamped); },
          tile.codes);
    }
    auto* const out = reinterpret_cast<std::uint8_t*>(wire);
    // The lowest plane last, since reordering for it is for no other.
    if constexpr (Code::kBits == 6) pack_plane(tile.codes, kAtom, 2, 4, out + kAtom / 2);
    if constexpr (kReorders) reorder<false>(kOrder, tile.codes);
    if constexpr (Code::kBits == 6) {
      pack_plane(tile.codes, kAtom, 4, 0, out);
    } else {
      pack_tile(tile.codes, kAtom, Code::kBits, planes_at(wire, kAtom, Code::kBits));
    }
    return true;
  }

  /// The largest scale with products that need no clamping.
  template <class Payload>
  static constexpr float kMostScale =
      std::is_same_v<Payload, HalfLanes> ? 65504.0f / Code::kLargest : BfloatLanes::kLargest;

  template <class Payload>
  bool decode(Tile& tile, const std::byte* wire, std::size_t, std::size_t, std::size_t elements,
              std::uint16_t* out) const {
    alignas(32) std::uint16_t bits[kBlocks];
    alignas(32) float scales[kBlocks];
    std::memcpy(bits, wire + kCodeBytes, 2 * kBlocks);
    auto fits = hn::Eq(hn::Zero(F32()), hn::Zero(F32()));
    for (std::size_t b = 0; b < kBlocks; b += kFloats) {
      const FloatVector d = load_elements<Payload>(bits + b);
      hn::Store(d, F32(), scales + b);
      fits = hn::And(fits, hn::Le(hn::Abs(d), hn::Set(F32(), kMostScale<Payload>)));
    }
    if (!hn::AllTrue(F32(), fits)) return false;
    if constexpr (Code::kBits == 6) {
      const auto* const at = reinterpret_cast<const std::uint8_t*>(wire);
      unpack_plane(at, kAtom, 4, 0, tile.codes);
      reorder<true>(kOrder, tile.codes);
      unpack_plane(at + kAtom / 2, kAtom, 2, 4, tile.codes);
    } else {
      unpack_tile(planes_at(wire, kAtom, Code::kBits), kAtom, Code::kBits, tile.codes);
      if constexpr (kReorders) reorder<true>(kOrder, tile.codes);
    }
    if constexpr (Code::kMayBeNan) {
      if (has_nan<typename Code::Format>(tile.codes, kAtom)) return false;
    }
    for (std::size_t first = 0; first < elements; first += kGroup) {
      const FloatVector pair = load_pair(scales + first / kGroup * 2);
      const std::size_t count = std::min(kGroup, rounded_up(elements - first, kBytes));
      Code::decode(tile.codes + first, count, [&](std::size_t i, FloatVector value) HWY_ATTR {
        Payload::store(hn::Mul(value, pair), out + first + i);
      });
    }
    return true;
  }
};

template <class F>
void choose_family(const std::string& name, const F& f) {
  if (name == "qr-q3") f.template operator()<QuickReduce<Integers<4>>>();
  if (name == "qr-q4") f.template operator()<QuickReduce<Integers<8>, kNibblePairs>>();
  if (name == "qr-q6") f.template operator()<QuickReduce<Integers<32>, kNibblePairs>>();
  if (name == "qr-q8") f.template operator()<QuickReduce<Integers<128>, kSwappedBytes>>();
  if (name == "qr-fp4") f.template operator()<QuickReduce<Floats<QuickReduceFp4, kE2m1>>>();
  if (name == "qr-fp8") f.template operator()<QuickReduce<Floats<QuickReduceFp8, kE4m3fnuz>>>();
}

#endif  // ARLAB_HAS_LANES

CodecFunctions<std::string> quickreduce_functions() { return ARLAB_VECTOR_FUNCTIONS(std::string); }
}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(quickreduce_functions);

CodecPtr accelerated_quickreduce(const CodecPtr& scalar) {
  for (const char* name : {"qr-q3", "qr-q4", "qr-q6", "qr-q8", "qr-fp4", "qr-fp8"}) {
    if (scalar->name() != name) continue;
    return accelerated_as(scalar, scalar->name(),
                          [] { return HWY_DYNAMIC_DISPATCH(quickreduce_functions)(); });
  }
  return nullptr;
}

}  // namespace arlab
#endif  // HWY_ONCE
