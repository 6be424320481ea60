// Elements to integer codes and back: the arithmetic of the any-bit codecs (../anybit.cc) with
// vectors.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_INTEGERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_INTEGERS_INL_H_
#undef ARLAB_CODECS_SIMD_INTEGERS_INL_H_
#else
#define ARLAB_CODECS_SIMD_INTEGERS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/integer_scale.h"
#include "reference/codecs/simd/bit_planes-inl.h"
#include "reference/codecs/simd/extremes-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- roundings

HWY_INLINE auto is_finite(FloatVector x) { return hn::Lt(hn::Abs(x), hn::Inf(F32())); }

/// RN to bf16 of what is no NaN.
HWY_INLINE FloatVector bf16_number(FloatVector x) {
  const Uint32Vector bits = bits_of(x);
  const Uint32Vector is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
  const Uint32Vector carried = hn::Add(bits, hn::Add(is_odd, hn::Set(U32(), 0x7FFF)));
  return float_of(hn::And(carried, hn::Set(U32(), 0xFFFF0000)));
}

/// RN to bf16, with +0 for -0; a NaN stays one.
HWY_INLINE FloatVector bf16_metadata(FloatVector x) {
  const FloatVector number = hn::Add(bf16_number(x), hn::Zero(F32()));
  return hn::IfThenElse(hn::Eq(x, x), number, float_of(hn::Set(U32(), 0x7FC00000)));
}

/// The upper halves of the lanes: the bits of a bf16 value.
HWY_INLINE HalfUint16Vector upper_halves(FloatVector x) {
  return hn::TruncateTo(HalfU16(), hn::ShiftRight<16>(bits_of(x)));
}

/// Any NaN becomes the canonical one.
HWY_INLINE FloatVector canonical(FloatVector x) {
  return hn::IfThenElse(hn::Eq(x, x), x, float_of(hn::Set(U32(), 0x7FC00000)));
}

/// The same, and what is beyond +-limit, infinities too, becomes that number.
HWY_INLINE FloatVector limited(FloatVector x, FloatVector limit) {
  const FloatVector inside = hn::Min(hn::Max(x, hn::Neg(limit)), limit);
  return hn::IfThenElse(hn::Eq(x, x), inside, float_of(hn::Set(U32(), 0x7FC00000)));
}

// ---------------------------------------------------------------- what is known of the blocks

/// Of every block, what elements and codes need, and what travels.
struct Blocks {
  alignas(32) float zero[kBlockSlots];        // encode: subtracted; decode: added, or subtracted
  alignas(32) float multiplier[kBlockSlots];  // encode: 1 / scale, or the divisor; decode: scale
  alignas(32) float limit[kBlockSlots];       // decode: of elements, unless all are in range
  std::int16_t bias[kBlockSlots];             // encode: added to the integer
  bool bad[kBlockSlots];                      // not finite
  bool any_bad = false;
  alignas(32) std::uint16_t scale_bits[kBlockSlots];
  alignas(32) std::uint16_t zero_bits[kBlockSlots];
  std::int8_t scale_code[kBlockSlots];
  std::int8_t zero_code[kBlockSlots];
};

inline constexpr std::array<float, 256> kIntegerScales = [] {
  std::array<float, 256> scales = {};
  for (int s = -128; s < 128; ++s) {
    scales[static_cast<std::size_t>(s + 128)] = scale_of(static_cast<std::int8_t>(s));
  }
  return scales;
}();

/// integer_scale() of every lane: ten steps per binade, and the mantissa says which of them.
HWY_INLINE Int32Vector integer_scales(FloatVector scale) {
  const Int32Vector bits = hn::BitCast(I32(), scale);
  const Int32Vector exponent = hn::Sub(hn::ShiftRight<23>(bits), hn::Set(I32(), 127));
  const Int32Vector mantissa = hn::And(bits, hn::Set(I32(), 0x007FFFFF));
  // 10 * exponent, without a multiplication of 32-bit lanes.
  Int32Vector s = hn::Add(hn::ShiftLeft<3>(exponent), hn::ShiftLeft<1>(exponent));
  for (std::int8_t k = 1; k < 10; ++k) {
    const auto tenth = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(scale_of(k)));
    const auto reached = hn::Gt(mantissa, hn::Set(I32(), (tenth & 0x007FFFFF) - 1));
    s = hn::Sub(s, hn::VecFromMask(I32(), reached));
  }
  return hn::Min(hn::Max(s, hn::Set(I32(), -128)), hn::Set(I32(), 127));
}

/// How a scale is found; one of them per format.
enum class Measure { asymmetric, symmetric, integer, given };

inline Measure measure_of(const AnyBitFormat& f) {
  if (f.given) return Measure::given;
  if (f.metadata == AnyBitFormat::Metadata::integer_spikes) return Measure::integer;
  return f.symmetric ? Measure::symmetric : Measure::asymmetric;
}

/// Integer scales and zero points of a vector of blocks, those from b on. Returns the scales; where
/// step 1 has none that is finite, that one.
HWY_INLINE FloatVector measure_integers(FloatVector low, FloatVector high, FloatVector top,
                                        Blocks& result, std::size_t b) {
  alignas(32) std::int32_t codes[kFloats];
  alignas(32) float scales[kFloats];
  const FloatVector measured = bf16_metadata(hn::Div(hn::Sub(high, low), top));
  hn::Store(integer_scales(measured), I32(), codes);
  for (std::size_t i = 0; i < kFloats; ++i) {
    scales[i] = kIntegerScales[static_cast<std::size_t>(codes[i] + 128)];
    result.scale_code[b + i] = static_cast<std::int8_t>(codes[i]);
  }
  const FloatVector scale = hn::Load(F32(), scales);
  const FloatVector point = hn::Div(hn::Neg(low), scale);
  const FloatVector kept = hn::Min(hn::Max(point, hn::Set(F32(), -128.0f)), hn::Set(F32(), 127.0f));
  hn::Store(nearest_int(kept), I32(), codes);
  for (std::size_t i = 0; i < kFloats; ++i) {
    result.zero_code[b + i] = static_cast<std::int8_t>(codes[i]);
    result.bias[b + i] = static_cast<std::int16_t>(codes[i]);
  }
  return hn::IfThenElse(is_finite(measured), scale, measured);
}

/// Marks the blocks of a vector, those from b on, where `finite` is false.
template <class Mask>
HWY_NOINLINE void mark_bad(Mask finite, std::size_t b, std::size_t blocks, Blocks& result) {
  alignas(32) float flags[kFloats];
  hn::Store(hn::IfThenElseZero(finite, hn::Set(F32(), 1.0f)), F32(), flags);
  for (std::size_t i = 0; i < std::min(kFloats, blocks - b); ++i) {
    if (flags[i] != 0) continue;
    result.bad[b + i] = true;
    result.any_bad = true;
  }
}

/// Step 1, the scales of several blocks at once. Blocks that are not finite are marked `bad`, which
/// some may be already.
template <class Elements, Measure kMeasure>
void measure_as(const AnyBitFormat& f, const Extremes<Elements>& extremes, std::size_t blocks,
                Blocks& result) {
  using Key = typename Elements::Key;
  const hn::Rebind<Key, F32> few_keys;
  const unsigned levels = 1U << (kMeasure == Measure::symmetric ? f.bits - 1 : f.bits);
  const FloatVector top = hn::Set(F32(), static_cast<float>(levels - 1));
  const FloatVector one = hn::Set(F32(), 1.0f);
  const FloatVector given_scale = hn::Set(F32(), f.given ? f.given->scale : 0.0f);
  const FloatVector given_zero = hn::Set(F32(), f.given ? f.given->zero : 0.0f);
  if constexpr (kMeasure != Measure::integer) {
    std::fill_n(result.bias, blocks,
                static_cast<std::int16_t>(f.symmetric ? 1 << (f.bits - 1) : 0));
  }
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const FloatVector low =
        Elements::values(hn::Not(hn::LoadU(few_keys, extremes.complement_of_low + b)));
    const FloatVector high = Elements::values(hn::LoadU(few_keys, extremes.high + b));
    FloatVector scale = given_scale;
    FloatVector zero = given_zero;
    if constexpr (kMeasure == Measure::integer) {
      scale = measure_integers(low, high, top, result, b);
    } else if constexpr (kMeasure == Measure::symmetric) {
      // As integers, a NaN is the largest.
      const Int32Vector low_magnitude = hn::BitCast(I32(), hn::Abs(low));
      const Int32Vector magnitude = hn::Max(low_magnitude, hn::BitCast(I32(), hn::Abs(high)));
      scale = bf16_metadata(hn::Div(hn::BitCast(F32(), magnitude), top));
    } else if constexpr (kMeasure == Measure::asymmetric) {
      scale = bf16_metadata(hn::Div(hn::Sub(high, low), top));
      zero = bf16_metadata(low);
    }

    if constexpr (kMeasure == Measure::integer) {
      hn::Store(scale, F32(), result.multiplier + b);
    } else {
      const FloatVector inverse = hn::Div(one, scale);
      hn::Store(hn::IfThenElseZero(is_finite(inverse), inverse), F32(), result.multiplier + b);
    }
    hn::Store(zero, F32(), result.zero + b);
    if constexpr (kMeasure == Measure::symmetric || kMeasure == Measure::asymmetric) {
      hn::StoreU(upper_halves(scale), HalfU16(), result.scale_bits + b);
      hn::StoreU(upper_halves(zero), HalfU16(), result.zero_bits + b);
    }

    // An infinity or a NaN among the elements is one of the extremes, and goes into the scale.
    auto finite = is_finite(scale);
    if constexpr (kMeasure == Measure::asymmetric) {
      finite = hn::And(finite, is_finite(zero));
    } else if constexpr (kMeasure == Measure::given) {
      finite = hn::And(is_finite(low), is_finite(high));
    }
    if (HWY_UNLIKELY(!hn::AllTrue(F32(), finite))) mark_bad(finite, b, blocks, result);
  }
  if (!result.any_bad) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    if (!result.bad[b]) continue;
    result.multiplier[b] = 0;
    result.zero[b] = 0;
    result.scale_bits[b] = BfloatLanes::kNaN;
    result.zero_bits[b] = 0;
    result.scale_code[b] = 0;
    result.zero_code[b] = 0;
  }
}

template <class Elements>
void measure(const AnyBitFormat& f, const Extremes<Elements>& extremes, std::size_t blocks,
             Blocks& result) {
  switch (measure_of(f)) {
    case Measure::asymmetric:
      return measure_as<Elements, Measure::asymmetric>(f, extremes, blocks, result);
    case Measure::symmetric:
      return measure_as<Elements, Measure::symmetric>(f, extremes, blocks, result);
    case Measure::integer:
      return measure_as<Elements, Measure::integer>(f, extremes, blocks, result);
    case Measure::given:
      return measure_as<Elements, Measure::given>(f, extremes, blocks, result);
  }
}

/// Step 1 from elements on, for blocks whose length is a multiple of the lanes of a key vector.
template <class Elements>
void measure_blocks(const AnyBitFormat& f, const typename Elements::Element* x, std::size_t blocks,
                    std::size_t group, Extremes<Elements>& extremes, Blocks& result) {
  find_extremes<Elements>(x, blocks, group, extremes);
  measure<Elements>(f, extremes, blocks, result);
}

// ---------------------------------------------------------------- elements to codes

inline constexpr std::size_t kTile = kWireChunk;      // elements that are coded at a time
inline constexpr std::size_t kCodeSlots = kTile + 8;  // eights of codes may run over the end

/// How a scaled element is found.
enum class Scaling {
  multiplied,  // by 1 / the measured scale
  limited,     // by 1 / the given scale, so that it may be as large as it likes
  divided      // by an integer scale
};

/// The integer of every element, saturated where it is far outside every code range.
///
/// With a measured scale, |q| < 2^26: elements are at most the block's range and the rounding of
/// the zero away from it. Elements that differ are at least 2^-24 of the zero apart, so the
/// rounding, 2^-9 of it, is at most 2^15 ranges; and the scale, when 1 / scale is finite, is at
/// least 2^-9 of the range. But where the zero is rounded down, x - zero may be an infinity though
/// the block's range is not: in fp32, whose elements have bits that bf16 has not.
template <class Elements, Scaling kScaling>
HWY_INLINE Int32Vector integers(const typename Elements::Element* from, FloatVector zero,
                                FloatVector multiplier) {
  FloatVector x = Elements::load(from);
  if constexpr (kScaling == Scaling::divided) {
    x = hn::Div(x, multiplier);
  } else {
    x = hn::Mul(hn::Sub(x, zero), multiplier);
  }
  // The conversion makes -2^31 of everything outside its range.
  constexpr bool kMayOverflow = std::is_same_v<typename Elements::Element, float>;
  if constexpr (kScaling != Scaling::multiplied || kMayOverflow)
    x = hn::Min(x, hn::Set(F32(), 0x1p30f));
  return nearest_int(x);
}

/// A block's elements to codes. Returns how many lay outside 0 .. top.
template <class Elements, Scaling kScaling, bool kBiased, bool kCount, std::size_t kGroup>
HWY_INLINE std::uint64_t quantize_block(const typename Elements::Element* x, std::size_t group,
                                        const Blocks& blocks, std::size_t b, std::uint8_t top,
                                        std::uint8_t* codes) {
  const std::size_t size = kGroup == 0 ? group : kGroup;
  const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
  const FloatVector multiplier = hn::Set(F32(), blocks.multiplier[b]);
  const Int16Vector bias = hn::Set(I16(), blocks.bias[b]);
  const ByteVector largest = hn::Set(U8(), top);
  const auto integers_at = [&](std::size_t i) HWY_ATTR {
    return integers<Elements, kScaling>(x + i, zero, multiplier);
  };
  const auto codes_at = [&](std::size_t i) HWY_ATTR {
    const Int16Vector q = narrow_blocks(integers_at(i), integers_at(i + kFloats));
    return kBiased ? hn::SaturatedAdd(q, bias) : q;
  };
  std::uint64_t clamped = 0;
  std::size_t i = 0;
  for (; i + kBytes <= size; i += kBytes) {
    hwy::Prefetch(x + i + kTile);  // the next chunk: the arithmetic hides some of its way
    const Int16Vector low = codes_at(i);
    const Int16Vector high = codes_at(i + 2 * kFloats);
    if constexpr (kCount) {
      const Uint16Vector most = hn::Set(U16(), top);  // negative codes lie above it, too
      clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), low), most));
      clamped += hn::CountTrue(U16(), hn::Gt(hn::BitCast(U16(), high), most));
    }
    const ByteVector all = hn::Min(narrow_blocks(low, high), largest);
    hn::StoreU(ordered_bytes(all), U8(), codes + i);
  }
  if constexpr (kGroup == 0) {
    const hn::Rebind<std::int16_t, F32> half;
    const hn::Rebind<std::uint16_t, F32> unsigned_half;
    for (; i < size; i += kFloats) {
      const auto code =
          hn::SaturatedAdd(hn::DemoteTo(half, integers_at(i)), hn::Set(half, blocks.bias[b]));
      if constexpr (kCount) {
        clamped += hn::CountTrue(
            unsigned_half, hn::Gt(hn::BitCast(unsigned_half, code), hn::Set(unsigned_half, top)));
      }
      const auto bytes = hn::Min(hn::DemoteTo(QuarterU8(), code), hn::Set(QuarterU8(), top));
      hn::StoreU(bytes, QuarterU8(), codes + i);
    }
  }
  return clamped;
}

#if ARLAB_AVX2
/// Blocks of one byte vector straight to the plane of two bits, for measured scales. Four codes
/// that are neighbours become a byte in a 32-bit lane.
template <class Elements>
HWY_INLINE void quantize_crumbs(const typename Elements::Element* x, std::size_t count,
                                const Blocks& blocks, std::uint8_t* plane) {
  constexpr std::size_t kTogether = 4;  // blocks
  const ByteVector largest = hn::Set(U8(), 3);
  struct Codes {
    ByteVector of[kTogether];
  };
  const auto codes_of = [&](std::size_t b) HWY_ATTR {
    const auto* const from = x + b * kBytes;
    hwy::Prefetch(from + kTile);
    const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
    const FloatVector multiplier = hn::Set(F32(), blocks.multiplier[b]);
    const auto codes_at = [&](std::size_t i) HWY_ATTR {
      return narrow_blocks(
          integers<Elements, Scaling::multiplied>(from + i, zero, multiplier),
          integers<Elements, Scaling::multiplied>(from + i + kFloats, zero, multiplier));
    };
    return narrow_blocks(codes_at(0), codes_at(2 * kFloats));
  };
  const auto pack = [&](const Codes& codes, std::uint8_t* to) HWY_ATTR {
    const auto bytes = [&](std::size_t i) HWY_ATTR {
      return joined_quads(joined_pairs<4>(hn::Min(codes.of[i], largest)));
    };
    const ByteVector all =
        narrow_blocks(narrow_blocks(bytes(0), bytes(1)), narrow_blocks(bytes(2), bytes(3)));
    // The lower part has the first byte of every eight elements, the upper part the second.
    const hn::Half<U8> half;
    const auto lower = hn::LowerHalf(half, all);
    const auto upper = hn::UpperHalf(half, all);
    hn::StoreU(hn::InterleaveLower(half, lower, upper), half, to);
    hn::StoreU(hn::InterleaveUpper(half, lower, upper), half, to + kBytes / 2);
  };
  // Codes are packed after the next are under way: what waits for results takes the place of what
  // could run.
  Codes codes = {{codes_of(0), codes_of(1), codes_of(2), codes_of(3)}};
  for (std::size_t b = kTogether; b < count; b += kTogether) {
    const Codes next = {{codes_of(b), codes_of(b + 1), codes_of(b + 2), codes_of(b + 3)}};
    pack(codes, plane + (b - kTogether) * kBytes / 4);
    codes = next;
  }
  pack(codes, plane + (count - kTogether) * kBytes / 4);
}

/// Whether quantize_crumbs can do it.
inline bool takes_crumbs(const AnyBitFormat& f, std::size_t count, std::size_t group,
                         const Blocks& blocks) {
  return f.bits == 2 && measure_of(f) == Measure::asymmetric && !blocks.any_bad &&
         group == kBytes && count % 4 == 0;
}
#endif

/// All blocks of a chunk, whose length is a multiple of 8. Returns how many codes were clamped.
template <class Elements, bool kCount>
std::uint64_t quantize(const AnyBitFormat& f, const typename Elements::Element* x,
                       std::size_t count, std::size_t group, const Blocks& blocks,
                       std::uint8_t* codes) {
  const auto top = static_cast<std::uint8_t>((1U << f.bits) - 1);
  std::uint64_t clamped = 0;
  const auto run = [&]<Scaling kScaling, bool kBiased, std::size_t kGroup>() HWY_ATTR {
    for (std::size_t b = 0; b < count; ++b) {
      const std::uint64_t here = quantize_block<Elements, kScaling, kBiased, kCount, kGroup>(
          x + b * group, group, blocks, b, top, codes + b * group);
      if constexpr (kCount) clamped += blocks.bad[b] ? 0 : here;
    }
  };
  if (f.metadata == AnyBitFormat::Metadata::integer_spikes) {
    run.template operator()<Scaling::divided, true, 0>();
  } else if (f.given) {
    run.template operator()<Scaling::limited, true, 0>();
  } else if (f.symmetric) {
    run.template operator()<Scaling::multiplied, true, 0>();
  } else if (group == 32) {
    run.template operator()<Scaling::multiplied, false, 32>();
  } else {
    run.template operator()<Scaling::multiplied, false, 0>();
  }
  if (blocks.any_bad) {
    for (std::size_t b = 0; b < count; ++b) {
      if (blocks.bad[b]) std::memset(codes + b * group, 0, group);
    }
  }
  return clamped;
}

/// The same, and the codes to their planes. What is `streamed` goes past the caches where that is
/// possible; the planes then begin at addresses that 16 divides.
template <class Elements, bool kCount>
std::uint64_t quantize_to_planes(const AnyBitFormat& f, const typename Elements::Element* x,
                                 std::size_t count, std::size_t group, const Blocks& blocks,
                                 Storing storing, const PlanePointers<std::byte>& planes) {
#if ARLAB_AVX2
  if (!kCount && takes_crumbs(f, count, group, blocks)) {
    quantize_crumbs<Elements>(x, count, blocks, reinterpret_cast<std::uint8_t*>(planes.at[0]));
    return 0;
  }
#endif
  alignas(32) std::uint8_t codes[kCodeSlots];
  const std::uint64_t clamped = quantize<Elements, kCount>(f, x, count, group, blocks, codes);
  pack_tile(codes, count * group, f.bits, planes, storing);
  return clamped;
}

// ---------------------------------------------------------------- codes to elements

/// The value of a code: zero + code * scale, or (code - zero) * scale.
enum class Decoding { affine, offset };

template <Decoding kDecoding>
HWY_INLINE FloatVector value_of(FloatVector code, FloatVector zero, FloatVector scale) {
  return kDecoding == Decoding::affine ? hn::Add(zero, hn::Mul(code, scale))
                                       : hn::Mul(hn::Sub(code, zero), scale);
}

inline Decoding decoding_of(const AnyBitFormat& f) {
  const bool integer = f.metadata == AnyBitFormat::Metadata::integer_spikes;
  return f.symmetric || integer ? Decoding::offset : Decoding::affine;
}

/// The exponent of a power of two: where no scale's and no zero's magnitude reaches it, all
/// elements are in range. Those before a transform are below 2^bits times that; behind it they are
/// below sqrt(group) times as much, and sums in it below `group` times.
template <class Elements>
int plain_exponent(const AnyBitFormat& f) {
  const int below = Elements::kTopExponent - static_cast<int>(f.bits);
  if (!f.hadamard) return below;
  const int log2_group = std::countr_zero(f.group);
  return below - (Elements::kTopExponent == 16 ? (log2_group + 1) / 2 : log2_group + 1);
}

/// Sets the limits of blocks 0 .. count - 1: the largest number of the dtype where scale and zero
/// are finite, else infinity. Returns whether all elements are in range: no code stands for a NaN
/// or for what has to be limited. Arrays of `blocks` are filled up to whole vectors.
template <class Elements>
bool find_limits(const AnyBitFormat& f, std::size_t count, Blocks& blocks) {
  const FloatVector top = hn::Set(F32(), static_cast<float>((1U << f.bits) - 1));
  const FloatVector largest = hn::Set(F32(), Elements::kLargest);
  float most = Elements::kLargest;
  if (f.hadamard) {
    // A 500th less than what would be enough, since every addition rounds.
    most = Elements::kTopExponent == 16 ? most * 0.998f / std::sqrt(static_cast<float>(f.group))
                                        : 0x1p90f;
  }
  const bool affine = decoding_of(f) == Decoding::affine;
  auto in_range = hn::Eq(top, top);
  for (std::size_t b = 0; b < count; b += kFloats) {
    const FloatVector zero = hn::Load(F32(), blocks.zero + b);
    const FloatVector scale = hn::Load(F32(), blocks.multiplier + b);
    const FloatVector first = affine ? zero : hn::Mul(zero, scale);
    const FloatVector last =
        affine ? hn::Add(zero, hn::Mul(top, scale)) : hn::Mul(hn::Sub(top, zero), scale);
    const auto fits = hn::And(hn::Le(hn::Abs(first), hn::Set(F32(), most)),
                              hn::Le(hn::Abs(last), hn::Set(F32(), most)));
    const auto finite = hn::And(is_finite(zero), is_finite(scale));
    hn::Store(hn::IfThenElse(finite, largest, hn::Inf(F32())), F32(), blocks.limit + b);
    in_range = hn::And(in_range, fits);
  }
  return hn::AllTrue(F32(), in_range);
}

/// By arithmetic: any block whose length is a multiple of 8.
template <class Elements, Decoding kDecoding, bool kInRange>
HWY_INLINE void dequantize_block(const std::uint8_t* codes, std::size_t group, const Blocks& blocks,
                                 std::size_t b, typename Elements::Element* out) {
  const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
  const FloatVector scale = hn::Set(F32(), blocks.multiplier[b]);
  for (std::size_t i = 0; i < group; i += kFloats) {
    const Int32Vector wide = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), codes + i));
    const FloatVector value = value_of<kDecoding>(hn::ConvertTo(F32(), wide), zero, scale);
    if constexpr (kInRange) {
      Elements::store(value, out + i);
    } else {
      Elements::store(limited(value, hn::Set(F32(), blocks.limit[b])), out + i);
    }
  }
}

/// Blocks of a chunk, whose length is a multiple of 8. `in_range`: no code stands for a NaN or for
/// what has to be limited.
template <class Elements, Decoding kDecoding>
void dequantize_as(const std::uint8_t* codes, std::size_t count, std::size_t group,
                   const Blocks& blocks, std::size_t first, bool in_range,
                   typename Elements::Element* out) {
  for (std::size_t b = first; b < count; ++b) {
    const std::uint8_t* const from = codes + b * group;
    if (in_range) {
      dequantize_block<Elements, kDecoding, true>(from, group, blocks, b, out + b * group);
    } else {
      dequantize_block<Elements, kDecoding, false>(from, group, blocks, b, out + b * group);
    }
  }
}

/// Blocks first .. count - 1 of a chunk; `codes` and `out` are those of block 0.
template <class Elements>
void dequantize(const AnyBitFormat& f, const std::uint8_t* codes, std::size_t count,
                std::size_t group, const Blocks& blocks, std::size_t first, bool in_range,
                typename Elements::Element* out) {
  if (decoding_of(f) == Decoding::affine) {
    dequantize_as<Elements, Decoding::affine>(codes, count, group, blocks, first, in_range, out);
  } else {
    dequantize_as<Elements, Decoding::offset>(codes, count, group, blocks, first, in_range, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
