// Any-bit integers with bit splitting, int<b>-g<G>[-sym][-sr[-is]], had-int<b>-g<G>[-sym]:
// reference/codecs/SPEC.md, "Any-bit integers (int*)" and "Hadamard (had-*)".
//
// G = 8, 16, ... 256: a group of 1 to 32 lanes; without spikes and transforms to 2048, a group of several waves. Of a format, kernels know everything as
// constants (FixedAnyBit), or its kind and maybe its width (AnyBitOf), or nothing (AnyBitParameters):
// choice.h says which formats have which.
//
// Two ways to encode and to decode, with the same bits: one element at a time, for everything; and
// pairs of elements at a time, for whole tiles of 16-bit elements.
#pragma once

#include <bit>

#include "kernels/codecs/pairs.h"
#include "kernels/codecs/wire_piece.h"
#include "reference/codecs/formats/anybit.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

enum class Spikes { none, exact, integer_scale };

/// Whatever an any-bit format may be.
struct AnyBitParameters {
  static constexpr Tuning kTuning = {};
  static constexpr bool kMayReserve = true;
  static constexpr bool kMayTransform = true;

  unsigned bits = 0;
  LaneGroup group = {};
  bool symmetric = false;
  bool hadamard = false;
  Spikes spikes = Spikes::none;
  float hadamard_scale = 0;  ///< RN(1 / sqrt(group), fp32)
  bool stochastic = false;   ///< StochasticAnyBit

  ARLAB_HOST_DEVICE bool has_spikes() const { return spikes != Spikes::none; }
  ARLAB_HOST_DEVICE bool has_integer_scales() const { return spikes == Spikes::integer_scale; }
};

/// Integer scales, scale_of(), and what they divide by, of all codes: by the code's bits.
struct IntegerScales {
  float value[256] = {};
  float inverse[256] = {};
};
constexpr IntegerScales all_integer_scales() {
  IntegerScales scales;
  for (unsigned bits = 0; bits < 256; ++bits) {
    scales.value[bits] = scale_of(static_cast<std::int8_t>(bits));
    scales.inverse[bits] = 1.0f / scales.value[bits];
  }
  return scales;
}
static __device__ constexpr IntegerScales kIntegerScales = all_integer_scales();

/// Integer scales are fast of elements below this times the largest code: far from where scales end.
inline constexpr float kMostOfIntegerScales = 3000;
/// integer_scale(scale) of a bf16 value that may come of such elements. No such value's logarithm comes nearer
/// to the next tenth than 0.0004 (a test tries all).
ARLAB_DEVICE int integer_scale_of_bfloat(float scale) {
  const float tenths = approximate_log2(scale) * 10 + 128.0004f;
  return static_cast<int>(tenths > 0 ? tenths : 0.0f) - 128;
}
/// Returns rint(x / scale) in the low half, where inverse is RN(1 / scale) of an integer scale.
/// fp16 and bf16 have too few bits for a quotient to be as near to a half as the product with the
/// inverse is off (a test tries all).
ARLAB_DEVICE std::uint32_t rounded_quotient(float x, float inverse) {
  return float_bits(x * inverse + 0x1.8p23f);
}

/// Treatment of a group in a kernel.
enum class AnyBitKind { plain, symmetric, spiked, hadamard };
inline AnyBitKind kind_of(const AnyBitParameters& p) {
  return p.hadamard       ? AnyBitKind::hadamard
         : p.has_spikes() ? AnyBitKind::spiked
         : p.symmetric    ? AnyBitKind::symmetric
                          : AnyBitKind::plain;
}

/// A width that is known when kernels are compiled; 0: when they run.
template <unsigned Bits>
struct AnyBitWidth {
  static constexpr unsigned bits = Bits;
  ARLAB_HOST_DEVICE explicit AnyBitWidth(unsigned) {}
};
template <>
struct AnyBitWidth<0> {
  unsigned bits;
  ARLAB_HOST_DEVICE explicit AnyBitWidth(unsigned width) : bits(width) {}
};

/// Whether codes are symmetric, where the kind does not say it.
template <AnyBitKind kKind>
struct AnyBitSymmetry {
  bool symmetric;
  ARLAB_HOST_DEVICE explicit AnyBitSymmetry(bool is) : symmetric(is) {}
};
template <AnyBitKind kKind>
  requires(kKind == AnyBitKind::plain || kKind == AnyBitKind::symmetric)
struct AnyBitSymmetry<kKind> {
  static constexpr bool symmetric = kKind == AnyBitKind::symmetric;
  ARLAB_HOST_DEVICE explicit AnyBitSymmetry(bool) {}
};

/// The formats of a kind, and of a width if it is not 0, for dtypes of 16 bits: sizes of groups and the
/// kind of spikes' scales are arguments.
template <AnyBitKind kKind, unsigned Bits = 0>
struct AnyBitOf : AnyBitWidth<Bits>, AnyBitSymmetry<kKind> {
  static constexpr bool kMayReserve = kKind == AnyBitKind::spiked;
  static constexpr bool kMayTransform = kKind == AnyBitKind::hadamard;
  /// Spikes and transforms take registers.
  static constexpr bool kIsPlain = kKind == AnyBitKind::plain || kKind == AnyBitKind::symmetric;
  static constexpr Tuning kTuning = {.resident_blocks = kMayReserve ? kSpikedBlocks : kFastBlocks,
                                     .tuned = true,
                                     .batch = kIsPlain ? kFastBatch : (kFastBatch + 1) / 2};
  /// Whether groups have 32 elements or more: kernels have room for the metadata of these.
  ARLAB_HOST_DEVICE bool has_long_groups() const { return group.log2 >= 5; }
  /// Most wire bytes of a whole tile with long groups.
  static constexpr std::size_t kMostTileBytes =
      kTile / 8 * (Bits == 0 ? 8 : Bits) + kTile / 32 * (kKind == AnyBitKind::spiked ? 12 : 4);
  static constexpr bool hadamard = kMayTransform;
  static constexpr unsigned kMostBits = Bits == 0 ? 8 : Bits;

  LaneGroup group;
  bool integer_scales;
  float hadamard_scale;
  /// Divisor of a range, and RN(1 / divisor).
  float divisor;
  float reciprocal;

  ARLAB_HOST_DEVICE explicit AnyBitOf(const AnyBitParameters& p)
      : AnyBitWidth<Bits>(p.bits),
        AnyBitSymmetry<kKind>(p.symmetric),
        group(p.group),
        integer_scales(p.spikes == Spikes::integer_scale),
        hadamard_scale(p.hadamard_scale),
        divisor(static_cast<float>((1u << (p.symmetric ? p.bits - 1 : p.bits)) - 1)),
        reciprocal(1.0f / divisor) {}

  ARLAB_HOST_DEVICE static bool has_spikes() { return kMayReserve; }
  ARLAB_HOST_DEVICE bool has_integer_scales() const { return kMayReserve && integer_scales; }
};

/// The same with one group in a message, whose range is found ahead (message_scale.h). On the wire a tile is a group.
template <AnyBitKind kKind, unsigned Bits>
struct MeasuredAnyBit : AnyBitOf<kKind, Bits> {
  std::uint32_t range = 0;  ///< as range_of_group() has it

  ARLAB_HOST_DEVICE explicit MeasuredAnyBit(const AnyBitParameters& p) : AnyBitOf<kKind, Bits>(p) {
    this->group = {static_cast<unsigned>(std::countr_zero(kTile))};
  }
};

/// Constants in place of parameters: int<Bits>-g<2^Log2Group>, and -sr. For dtypes of 16 bits.
template <unsigned Bits, unsigned Log2Group, Spikes kSpikes = Spikes::none>
struct FixedAnyBit {
  static constexpr bool kMayReserve = kSpikes != Spikes::none;
  static constexpr bool kMayTransform = false;
  /// Spikes take registers.
  static constexpr Tuning kTuning = {
      .resident_blocks = kFastBlocks,
      .tuned = true,
      .batch = kSpikes == Spikes::none ? kFastBatch : (kFastBatch + 1) / 2};
  static constexpr unsigned bits = Bits;
  static constexpr unsigned kMostBits = Bits;
  static constexpr unsigned kLog2Group = Log2Group;
  static constexpr bool symmetric = false;
  static constexpr bool hadamard = false;
  static constexpr float hadamard_scale = 0;
  static constexpr float divisor = static_cast<float>((1u << Bits) - 1);
  static constexpr float reciprocal = 1.0f / divisor;
  /// Wire bytes of a whole tile.
  static constexpr std::size_t kTileBytes =
      kTile / 8 * bits + (kTile >> Log2Group) * (kSpikes == Spikes::none ? 4 : 12);

  static bool is(const AnyBitParameters& p) {
    return p.bits == bits && p.group.log2 == kLog2Group && !p.symmetric && !p.hadamard &&
           p.spikes == kSpikes && !p.stochastic;
  }
  ARLAB_HOST_DEVICE static bool has_spikes() { return kMayReserve; }
  ARLAB_HOST_DEVICE static bool has_integer_scales() { return false; }
};

template <class Format>
inline constexpr bool kIsFixed = requires { Format::kLog2Group; };
template <class Format>
inline constexpr bool kIsMeasured = requires { &Format::range; };
/// Whole tiles have a way of their own.
template <class Format, class Element>
inline constexpr bool kHasWholeTiles = Format::kTuning.tuned && kHasPairs<Element>;

template <class Element, class Format = AnyBitParameters>
struct AnyBit : Format {
  static constexpr Tuning kTuning = Format::kTuning;
  static constexpr bool kClampsFp16Sums = false;
  static constexpr std::size_t kElementBytes = sizeof(typename Element::Bits);

  using Format::bits;
  using Format::hadamard;
  using Format::hadamard_scale;
  using Format::has_integer_scales;
  using Format::has_spikes;
  using Format::symmetric;
  static constexpr bool kMayReserve = Format::kMayReserve;
  static constexpr bool kMayTransform = Format::kMayTransform;
  static constexpr bool kWholeTiles = kHasWholeTiles<Format, Element>;

  ARLAB_HOST_DEVICE explicit AnyBit(const AnyBitParameters& parameters)
    requires(!kIsFixed<Format>)
      : Format(parameters) {}
  AnyBit()
    requires(kIsFixed<Format>)
  = default;

  /// Codes, and the metadata of the thread's group as it stands on the wire.
  struct Encoded {
    Codes8 codes;
    std::uint32_t scales = 0;  ///< the scale in the low half, the zero in the high one
    std::uint32_t minimum = 0;
    std::uint32_t maximum = 0;
    std::uint32_t minimum_index = 0;
    std::uint32_t maximum_index = 0;

    ARLAB_DEVICE std::uint32_t scale() const { return scales & 0xFFFF; }
    ARLAB_DEVICE std::uint32_t zero() const { return scales >> 16; }
  };

  ARLAB_HOST_DEVICE LaneGroup group_size() const {
    if constexpr (kIsFixed<Format>) {
      return {Format::kLog2Group};
    } else {
      return Format::group;
    }
  }
  ARLAB_HOST_DEVICE int lanes() const { return group_size().lanes(); }
  ARLAB_DEVICE AnyBitCodes arithmetic() const { return {bits, symmetric, has_integer_scales()}; }
  ARLAB_DEVICE float top() const { return arithmetic().top(); }

  // ---------------------------------------------------------------- sizes

  ARLAB_HOST_DEVICE std::size_t groups_of(std::size_t elements) const {
    return group_size().groups_of(elements);
  }
  /// A Hadamard transform fills its last group.
  ARLAB_HOST_DEVICE std::size_t codes_of(std::size_t elements) const {
    return hadamard ? groups_of(elements) * group_size().size() : elements;
  }
  /// Bytes of one group's scale, zero or index.
  ARLAB_HOST_DEVICE std::size_t word_bytes() const { return has_integer_scales() ? 1 : 2; }
  ARLAB_HOST_DEVICE std::size_t chunk_bytes(std::size_t elements) const {
    std::size_t per_group = word_bytes() * (symmetric ? 1 : 2);
    if (has_spikes()) per_group += 2 * kElementBytes + 2 * word_bytes();
    return bytes_of_planes(codes_of(elements), bits) + groups_of(elements) * per_group;
  }
  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    const std::size_t full = elements / WireChunk::kElements;
    const std::size_t rest = elements % WireChunk::kElements;
    return full * chunk_bytes(WireChunk::kElements) + (rest == 0 ? 0 : chunk_bytes(rest));
  }

  /// How many of the thread's eight codes are on the wire.
  ARLAB_DEVICE std::size_t code_count(Position at) const {
    return Position{codes_of(at.elements), at.first}.count();
  }

  // ---------------------------------------------------------------- encode

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& payload, Position at) const {
    if constexpr (kIsMeasured<Format>) {
      return encode_whole(payload, at);
    } else if constexpr (kWholeTiles) {
      if (at.is_in_whole_tile()) return encode_whole(payload, at);
      return encode_rare(payload, at);
    }
    return encode_one_by_one(payload, at);
  }
  /// With RandomBits: rounded stochastically.
  template <class... Random>
  ARLAB_DEVICE Encoded encode_one_by_one(const Pack8<Element>& payload, Position at,
                                         const Random&... random) const {
    Float8 x = to_floats(payload);
    if (hadamard) {
      // Data behind the end take part as +0; a decoded sum holds other values there.
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        if (i >= at.count()) x.value[i] = 0;
      }
      transform(x);
    }
    const std::size_t count = hadamard ? kPerThread : at.count();
    bool finite = group_is_finite(x, count, lanes());
    Encoded e;
    if (has_spikes()) reserve_spikes(x, count, e);
    const AnyBitScale scale = measure(x, count);
    // Only now: lanes of other groups exchange values in there, too.
    finite = finite && is_finite(scale.value) && is_finite(scale.zero);
    if (finite) {
      quantize(x, scale, e, random...);
    } else {
      e = non_finite();
    }
    return e;
  }

  // ---------------------------------------------------------------- decode

  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position at) const {
    if constexpr (kWholeTiles) {
      bool is_rare = may_be_non_finite(e);
      // Lanes exchange values.
      if constexpr (kMayTransform) is_rare = any_of_wave(is_rare);
      if (!is_rare) return decode_whole(e, at);
      return decode_rare(e, at);
    }
    return decode_one_by_one(e, at);
  }
  ARLAB_DEVICE Pack8<Element> decode_one_by_one(const Encoded& e, Position at) const {
    const AnyBitScale scale = scale_of_wire(e);
    Float8 x = dequantize(e, scale, group_size().index_in_group(at.first));
    if (hadamard) transform(x);
    if (is_non_finite(e, scale)) x = all_nan();
    const float limit = limit_of(e, scale);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] = limited(x.value[i], limit);
    return from_floats<Element>(x);
  }

  // Rare cases of formats that are fast with whole tiles.
  template <class... Random>
  ARLAB_DEVICE_RARE Encoded encode_rare(Pack8<Element> payload, Position at,
                                        Random... random) const {
    return encode_one_by_one(payload, at, random...);
  }
  ARLAB_DEVICE_RARE Pack8<Element> decode_rare(Encoded e, Position at) const {
    return decode_one_by_one(e, at);
  }

  // ---------------------------------------------------------------- whole tiles

  static constexpr int kLog2Lanes = [] {
    if constexpr (kIsFixed<Format>) {
      return static_cast<int>(Format::kLog2Group) - 3;
    } else {
      return -1;
    }
  }();

  /// As encode(). A group with a NaN or an infinity needs nothing of its own: its scale becomes a
  /// NaN, and so do the products whose low bits are the codes, which are then 0.
  template <class... Random>
  ARLAB_DEVICE Encoded encode_whole(Pack8<Element> x, Position at, const Random&... random) const {
    const unsigned log2_lanes = group_size().log2 - 3;
    Encoded e;
    float mn;
    float mx;
    Float8 v;
    std::uint32_t spike_values = 0;
    std::uint32_t spike_indices = 0;
    if constexpr (kMayTransform) {
      v = to_floats(x);
      transform(v);
      range_of_floats(v, mn, mx);
    } else {
      std::uint32_t range = 0;
      if constexpr (kIsMeasured<Format>) {
        range = Format::range;
      } else {
        range = range_of_group<Element, kLog2Lanes>(x, log2_lanes);
      }
      if constexpr (kMayReserve) {
        if (has_integer_scales()) {
          // Where integer scales end, and where a value is no number: one by one, in all lanes of the wave,
          // since they exchange values.
          const float largest = max_or_nan(magnitude_of(Element::to_float(range & 0xFFFF)),
                                           magnitude_of(Element::to_float(range >> 16)));
          if (any_of_wave(!(largest < kMostOfIntegerScales * top())))
            return encode_rare(x, at, random...);
        }
        reserve_spikes_packed(x, range, spike_values, spike_indices);
        range = keep_non_finite<Element>(range, range_of_group<Element, kLog2Lanes>(x, log2_lanes));
      }
      mn = Element::to_float(range & 0xFFFF);
      mx = -Element::to_float(range >> 16);
      v = to_floats(x);
    }
    // Additions of +0: a -0 is written as +0.
    mn = mn + 0.0f;
    const float range =
        symmetric ? max_or_nan(magnitude_of(mn), magnitude_of(mx)) : (mx - mn) + 0.0f;
    const float quotient = divide_range(range);
    const bool is_nan = quotient != quotient;
    if constexpr (kMayReserve) {
      if (is_nan) spike_values = 0;
      if (is_nan) spike_indices = 0;
      e.minimum = spike_values & 0xFFFF;
      e.maximum = spike_values >> 16;
      e.minimum_index = spike_indices & 0xFFFF;
      e.maximum_index = spike_indices >> 16;
    }

    std::uint32_t code[kPerThread];
    if (has_integer_scales()) {
      const int scale_code =
          integer_scale_of_bfloat(Bf16::to_float(bfloat2_of_floats(quotient, 0) & 0xFFFF));
      const float inverse = kIntegerScales.inverse[scale_code & 0xFF];
      const std::uint32_t above = rounded_quotient(-mn, inverse) - float_bits(0x1.8p23f);
      const std::uint32_t zero = above < 127 ? above : 127;
      e.scales = (static_cast<std::uint32_t>(scale_code) & 0xFF) | zero << 16;
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        if constexpr (sizeof...(Random) == 0) {
          code[i] = rounded_quotient(v.value[i], inverse) + zero;
        } else {
          const float scale = kIntegerScales.value[scale_code & 0xFF];
          const float steps = divide_with_reciprocal(v.value[i], scale, inverse);
          code[i] = stochastic_sum(steps, 0x1.8p23f, random(i)...) + zero;
        }
      }
    } else {
      e.scales = is_nan ? Bf16::kNaN : bfloat2_of_floats(quotient, symmetric ? 0.0f : mn);
      // A tiny negative transformed number is rounded to -0, which is written as +0.
      if constexpr (kMayTransform) {
        if (e.zero() == 0x8000) e.scales &= 0xFFFF;
      }
      const float zero = Bf16::to_float(e.zero());
      const float inverse = inverse_of(Bf16::to_float(e.scale()));
      if constexpr (kMayTransform) {
        const float farthest = max_of(magnitude_of(mn - zero), magnitude_of(mx - zero));
#pragma unroll
        for (std::size_t i = 0; i < kPerThread; ++i) v.value[i] -= zero;
        if (!(farthest * inverse < kLargestCode)) limit_all(v, kLargestCode / inverse);
#pragma unroll
        for (std::size_t i = 0; i < kPerThread; ++i)
          code[i] = code_of(v.value[i], inverse, random(i)...);
      } else {
#pragma unroll
        for (std::size_t i = 0; i < kPerThread; ++i)
          code[i] = code_of(v.value[i] - zero, inverse, random(i)...);
      }
    }
    e.codes = clamped_codes(code, is_nan);
    return e;
  }
  /// A limit beyond all codes: for fp32 numbers that hardly differ, a zero in bf16 can be far from all.
  static constexpr float kLargestCode = 0x1p14f;
  ARLAB_DEVICE static void limit_all(Float8& x, float limit) {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] = limited(x.value[i], limit);
  }
  /// The codes of sums whose low halves are integers. Which bits a NaN has is the platform's: its
  /// codes are 0.
  ARLAB_DEVICE Codes8 clamped_codes(const std::uint32_t (&code)[kPerThread], bool is_nan) const {
    const std::uint32_t top_code = !kSaturates && is_nan ? 0 : (1u << bits) - 1;
    const auto pair = [&](std::size_t i) ARLAB_INLINED_LAMBDA {
      std::uint32_t codes = low_halves(code[i], code[i + 4]);
      if constexpr (!kSaturates) codes = max_s16x2(codes, 0);
      return min_s16x2(codes, splat(top_code));
    };
    return {pair(0) | pair(2) << 8, pair(1) | pair(3) << 8};
  }

  /// As decode(), but for infinities and NaNs.
  ARLAB_DEVICE Pack8<Element> decode_whole(const Encoded& e, Position at) const {
    Float8 x;
    if (has_integer_scales()) {
      const float scale = kIntegerScales.value[e.scale() & 0xFF];
      const float zero = static_cast<float>(static_cast<std::int8_t>(e.zero()));
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        x.value[i] = (float_of_code(e.codes[i]) - zero) * scale;
      }
    } else {
      const float scale = Bf16::to_float(e.scale());
      // The product is exact, and so is its sum with that of a code.
      const float zero = symmetric ? -(arithmetic().bias() * scale) : Bf16::to_float(e.zero());
      if constexpr (kInBf16) {
        const std::uint32_t scales = low_halves(e.scales, e.scales);
        const std::uint32_t zeros = splat(symmetric ? float_bits(zero) >> 16 : e.zero());
        Pack8<Element> result;
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          std::uint32_t pair[2];
          bfloat2_of_codes(e.codes, i, pair);
          result.word[2 * i] = fused_multiply_add_bfloat2(pair[0], scales, zeros);
          result.word[2 * i + 1] = fused_multiply_add_bfloat2(pair[1], scales, zeros);
        }
        if constexpr (kMayReserve)
          put_back_spikes(e, group_size().index_in_group(at.first), result);
        return result;
      } else {
#pragma unroll
        for (std::size_t i = 0; i < 4; ++i) {
          const std::uint32_t word = i % 2 == 0 ? e.codes.even : e.codes.odd;
          const std::uint32_t pair = even_bytes(word >> (i / 2 * 8));
          // Codes are subnormal fp16 numbers: times 2^-24. The product with a scale is exact.
          if constexpr (Element::kDType == DType::fp16) {
            const float scaled = scale * 0x1p24f;
            x.value[i] = fused_multiply_add(Fp16::to_float(pair & 0xFFFF), scaled, zero);
            x.value[i + 4] = fused_multiply_add(Fp16::to_float(pair >> 16), scaled, zero);
          } else {
            x.value[i] = fused_multiply_add(float_of_code(pair & 0xFFFF), scale, zero);
            x.value[i + 4] = fused_multiply_add(float_of_code(pair >> 16), scale, zero);
          }
        }
      }
    }
    if constexpr (kMayTransform) transform(x);
    Pack8<Element> result = pairs_of_floats<Element>(x);
    if constexpr (kMayReserve) put_back_spikes(e, group_size().index_in_group(at.first), result);
    return result;
  }

  /// Whether a value may have to be limited, or is a NaN.
  ARLAB_DEVICE bool may_be_non_finite(const Encoded& e) const {
    constexpr float kLargest = largest_finite<Element>();
    bool may_be = false;
    if (has_integer_scales()) {
      // Codes of up to 255 less zeros of at least -128. The marker of a NaN is a spike.
      may_be = !(kIntegerScales.value[e.scale() & 0xFF] * 384 < kLargest);
    } else {
      const float scale = magnitude_of(Bf16::to_float(e.scale()));
      float largest = fused_multiply_add(scale, top(), magnitude_of(Bf16::to_float(e.zero())));
      // Sums of so many, and the largest is never less than their scaled sum.
      if constexpr (kMayTransform) largest *= static_cast<float>(group_size().size());
      may_be = !(largest < kLargest);
      // Symmetric codes have zeros of their own sign where a scale is no positive number.
      if (symmetric) may_be = may_be || e.scale() - 1 >= 0x7FFF;
      // In bf16, a zero that an fp32 sum would lose might decide a tie.
      if constexpr (kInBf16) {
        const float zero = magnitude_of(Bf16::to_float(e.zero()));
        may_be = may_be || (zero < scale * 0x1p-16f && zero != 0);
      }
    }
    if constexpr (kMayReserve) {
      may_be = may_be || !half_is_finite<Element>(e.minimum) || !half_is_finite<Element>(e.maximum);
    }
    return may_be;
  }

  /// For sums of whole tiles, which are checked in the end.
  ARLAB_DEVICE Pack8<Element> decode_unchecked(const Encoded& e) const
    requires(kIsFixed<Format> && Element::kDType == DType::fp16)
  {
    return decode_whole(e, {kTile, thread_index() * kPerThread});
  }

  // ---------------------------------------------------------------- wire

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if constexpr (kWholeTiles) {
      if (at.elements == kTile) return store_tile(e, wire);
    }
    store_part(e, wire, at);
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    if constexpr (kWholeTiles) {
      if (at.elements == kTile) return load_tile(wire);
    }
    return load_part(wire, at);
  }

 protected:
  ARLAB_DEVICE void store_part(const Encoded& e, std::uint8_t* wire, Position at) const {
    const std::size_t count = code_count(at);
    if (count != 0) store_piece(e, piece_of(wire, at, count));
  }
  ARLAB_DEVICE Encoded load_part(const std::uint8_t* wire, Position at) const {
    const std::size_t count = code_count(at);
    if (count == 0) return {};
    return load_piece(piece_of(const_cast<std::uint8_t*>(wire), at, count));
  }

  // For a message that is one whole tile: as store_piece(), with offsets of 32 bits.
  ARLAB_DEVICE void store_tile(const Encoded& e, std::uint8_t* wire) const {
    const unsigned first = thread_index() * static_cast<unsigned>(kPerThread);
    store_planes<true>(e.codes, bits, wire, kTile, first, kPerThread);
    if ((first & ((1u << group_size().log2) - 1)) != 0) return;
    TileMetadata at = metadata_of_tile();
    const auto bytes = static_cast<unsigned>(word_bytes());
    store_metadata<true>(wire + at.next(bytes), e.scale(), bytes);
    if (!symmetric) store_metadata<true>(wire + at.next(bytes), e.zero(), bytes);
    if constexpr (kMayReserve) {
      if (!has_spikes()) return;
      store_metadata<true>(wire + at.next(kElementBytes), e.minimum, kElementBytes);
      store_metadata<true>(wire + at.next(kElementBytes), e.maximum, kElementBytes);
      store_metadata<true>(wire + at.next(bytes), e.minimum_index, bytes);
      store_metadata<true>(wire + at.next(bytes), e.maximum_index, bytes);
    }
  }
  ARLAB_DEVICE Encoded load_tile(const std::uint8_t* wire) const {
    Encoded e;
    e.codes = load_planes<true>(bits, wire, kTile, thread_index() * kPerThread, kPerThread);
    TileMetadata at = metadata_of_tile();
    const auto bytes = static_cast<unsigned>(word_bytes());
    e.scales = load_metadata<true>(wire + at.next(bytes), bytes);
    if (!symmetric) e.scales |= load_metadata<true>(wire + at.next(bytes), bytes) << 16;
    if constexpr (kMayReserve) {
      if (!has_spikes()) return e;
      e.minimum = load_metadata<true>(wire + at.next(kElementBytes), kElementBytes);
      e.maximum = load_metadata<true>(wire + at.next(kElementBytes), kElementBytes);
      e.minimum_index = load_metadata<true>(wire + at.next(bytes), bytes);
      e.maximum_index = load_metadata<true>(wire + at.next(bytes), bytes);
    }
    return e;
  }
  ARLAB_DEVICE TileMetadata metadata_of_tile() const { return {bits, group_size()}; }

  /// The thread's piece of a wire that has full-sized chunks only.
  ARLAB_DEVICE WirePiece piece_of(std::uint8_t* wire, Position at, std::size_t count) const {
    const WireChunk chunk = chunk_of(wire, at, chunk_bytes(WireChunk::kElements));
    return {chunk.planes,
            codes_of(chunk.elements),
            chunk.first,
            count,
            groups_of(chunk.elements),
            group_size().group_of(chunk.first),
            group_size().index_in_group(chunk.first) == 0};
  }

  ARLAB_DEVICE void store_piece(const Encoded& e, const WirePiece& piece) const {
    store_planes(e.codes, bits, piece.planes, piece.codes, piece.first, piece.count);
    if (piece.is_first_of_group) store_all_metadata(e, piece);
  }
  ARLAB_DEVICE void store_all_metadata(const Encoded& e, const WirePiece& piece) const {
    MetadataArrays array(piece, bits);
    store_metadata<false>(array.next(word_bytes()), e.scale(), word_bytes());
    if (!symmetric) store_metadata<false>(array.next(word_bytes()), e.zero(), word_bytes());
    if (!has_spikes()) return;
    store_metadata<false>(array.next(kElementBytes), e.minimum, kElementBytes);
    store_metadata<false>(array.next(kElementBytes), e.maximum, kElementBytes);
    store_metadata<false>(array.next(word_bytes()), e.minimum_index, word_bytes());
    store_metadata<false>(array.next(word_bytes()), e.maximum_index, word_bytes());
  }

  ARLAB_DEVICE Encoded load_piece(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(bits, piece.planes, piece.codes, piece.first, piece.count);
    load_all_metadata(e, piece);
    return e;
  }
  ARLAB_DEVICE void load_all_metadata(Encoded& e, const WirePiece& piece) const {
    MetadataArrays array(piece, bits);
    e.scales = load_metadata<false>(array.next(word_bytes()), word_bytes());
    if (!symmetric) e.scales |= load_metadata<false>(array.next(word_bytes()), word_bytes()) << 16;
    if (!has_spikes()) return;
    e.minimum = load_metadata<false>(array.next(kElementBytes), kElementBytes);
    e.maximum = load_metadata<false>(array.next(kElementBytes), kElementBytes);
    e.minimum_index = load_metadata<false>(array.next(word_bytes()), word_bytes());
    e.maximum_index = load_metadata<false>(array.next(word_bytes()), word_bytes());
  }

  template <bool kWhole>
  ARLAB_DEVICE static void store_metadata(std::uint8_t* at, std::uint32_t word, std::size_t bytes) {
    if (bytes == 1) *at = static_cast<std::uint8_t>(word);
    if (bytes == 2) store_word<kWhole>(at, static_cast<std::uint16_t>(word));
    if (bytes == 4) store_word<kWhole>(at, word);
  }
  template <bool kWhole>
  ARLAB_DEVICE static std::uint32_t load_metadata(const std::uint8_t* at, std::size_t bytes) {
    if (bytes == 1) return *at;
    if (bytes == 2) return load_word<std::uint16_t, kWhole>(at);
    return load_word<std::uint32_t, kWhole>(at);
  }

  // ---- packed

  /// fp16 has the range for this: 1 / scale is far from subnormal, and codes come out of an
  /// addition of 2^-b of them. Codes of symmetric formats may be negative.
  /// Codes, scales and zeros are bf16 numbers, and so is what they decode to: one rounding gives the bits of
  /// two, but for what may_be_non_finite() says.
  static constexpr bool kInBf16 =
      Element::kDType == DType::bf16 && kHasBfloat2Arithmetic && !kMayTransform;

  /// Codes of elements 4i to 4i + 3, as two pairs.
  ARLAB_DEVICE static void bfloat2_of_codes(const Codes8& codes, unsigned i,
                                            std::uint32_t (&pair)[2]) {
    const std::uint32_t word = codes.in_order(i);
    // The low seven bits behind 128; less 128, or less 0 where the eighth bit is set.
    if constexpr (Format::kMostBits <= 7) {
      pair[0] = add_bfloat2(permute_bytes(word, in_each_byte(0x43), 0x4140), splat(0xC300));
      pair[1] = add_bfloat2(permute_bytes(word, in_each_byte(0x43), 0x4342), splat(0xC300));
    } else {
      const std::uint32_t low = word & in_each_byte(0x7F);
      const std::uint32_t less = (~word >> 7 & in_each_byte(1)) * 0xC3;
      pair[0] = add_bfloat2(permute_bytes(low, in_each_byte(0x43), 0x4140),
                            permute_bytes(less, 0, 0x1404));
      pair[1] = add_bfloat2(permute_bytes(low, in_each_byte(0x43), 0x4342),
                            permute_bytes(less, 0, 0x3424));
    }
  }
  static constexpr bool kSaturates = kIsFixed<Format> && Element::kDType == DType::fp16;

  /// range / divisor. A NaN, and any infinity, for what is no number.
  ARLAB_DEVICE float divide_range(float range) const {
    if constexpr (Element::kDType != DType::fp16 || kMayTransform) {
      if (range != 0 && range < 0x1p-100f) return range / this->divisor;
    }
    return divide_with_reciprocal(range, this->divisor, this->reciprocal);
  }

  /// RN(1 / scale); 0 for an infinity, so that codes are those of 0. fp16 that saturates: any NaN
  /// for 0.
  ARLAB_DEVICE static float inverse_of(float scale) {
    if constexpr (!kSaturates) {
      if (!(scale >= 0x1p-100f && scale <= 0x1p100f)) {
        const float inverse = 1.0f / scale;
        return inverse > 0x1.FFFFFEp127f ? 0.0f : inverse;
      }
    }
    return reciprocal_of_bfloat(scale);
  }

  /// As range_of_group(), of values that were transformed: with an infinity or a NaN among them one of
  /// the two is no number.
  ARLAB_DEVICE void range_of_floats(const Float8& x, float& mn, float& mx) const {
    mn = x.value[0];
    mx = x.value[0];
#pragma unroll
    for (std::size_t i = 1; i < kPerThread; ++i) {
      mn = min_or_nan(mn, x.value[i]);
      mx = max_or_nan(mx, x.value[i]);
    }
#pragma unroll 1
    for (int mask = 1; mask < lanes(); mask *= 2) {
      mn = min_or_nan(mn, shuffle_xor(mn, mask, 32));
      mx = max_or_nan(mx, shuffle_xor(mx, mask, 32));
    }
  }

  /// Returns rint(above * inverse) in the low half, saturated at 0 and 2^b, or any number from
  /// -2^15 to 2^15 - 1 where it is. 0 or less for a NaN and for infinities.
  ARLAB_DEVICE std::uint32_t code_of(float above, float inverse) const {
    if constexpr (kSaturates) {
      const float unit = float_of((127u - bits) << 23);  // 2^-b
      return float_bits(multiply_saturated(above, inverse * unit) + 0x1.8p23f * unit);
    } else {
      return float_bits(above * inverse + (0x1.8p23f + arithmetic().bias()));
    }
  }

  ARLAB_DEVICE std::uint32_t code_of(float above, float inverse, std::uint32_t random) const {
    return stochastic_sum(above * inverse, 0x1.8p23f + arithmetic().bias(), random);
  }

  ARLAB_DEVICE static float float_of_code(std::uint32_t code) {
    return float_of(float_bits(0x1p23f) | code) - 0x1p23f;
  }

  /// Says in each half whether elements 2i and 2i + 1 of the thread have this place in the group.
  /// The thread's first one is element `first`.
  ARLAB_DEVICE static std::uint32_t is_at(std::uint32_t index, std::uint32_t first, std::size_t i) {
    const std::uint32_t own = index - first;
    const auto element = static_cast<std::uint32_t>(2 * i);
    const std::uint32_t inside = own < kPerThread ? own : kPerThread;
    return equal_small(low_halves(inside, inside), element | (element + 1) << 16);
  }

  /// As reserve_spikes(); `range` is that of the group. Of what is found, the minimum's is in the
  /// low halves, the maximum's in the high ones.
  ARLAB_DEVICE void reserve_spikes_packed(Pack8<Element>& x, std::uint32_t range,
                                          std::uint32_t& values, std::uint32_t& indices) const {
    const auto first =
        static_cast<std::uint32_t>(group_size().index_in_group(thread_index() * kPerThread));
    // Keys: twice the index, and the sign, which zeros may have; the least is the first.
    constexpr std::uint32_t kNone = splat(0x4000);
    const std::uint32_t least = low_halves(range, range);
    const std::uint32_t greatest = high_halves(range, range) ^ splat(0x8000);
    std::uint32_t low = 0;
    std::uint32_t high = 0;
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      const auto element = static_cast<std::uint32_t>(2 * i);
      const std::uint32_t key = (x.word[i] >> 15 & splat(1)) | 2 * (element | (element + 1) << 16);
      const std::uint32_t of_least = select_bits(equal_pair<Element>(x.word[i], least), key, kNone);
      const std::uint32_t of_greatest =
          select_bits(equal_pair<Element>(x.word[i], greatest), key, kNone);
      low = i == 0 ? of_least : min_s16x2(low, of_least);
      high = i == 0 ? of_greatest : min_s16x2(high, of_greatest);
    }
    std::uint32_t keys = min_s16x2(low_halves(low, high), high_halves(low, high));
    keys = smallest_of_lanes<kLog2Lanes>(keys + splat(2 * first), group_size().log2 - 3,
                                         [](std::uint32_t a, std::uint32_t b)
                                             ARLAB_INLINED_LAMBDA { return min_s16x2(a, b); });
    values = select_bits(splat(0x7FFF), range, keys << 15);
    indices = keys >> 1 & splat(0x7FFF);
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      x.word[i] &= ~(is_at(indices & 0xFFFF, first, i) | is_at(indices >> 16, first, i));
    }
  }

  ARLAB_DEVICE static void put_back_spikes(const Encoded& e, std::size_t first, Pack8<Element>& x) {
    const auto mine = static_cast<std::uint32_t>(first);
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      x.word[i] =
          select_bits(is_at(e.minimum_index, mine, i), low_halves(e.minimum, e.minimum), x.word[i]);
      x.word[i] =
          select_bits(is_at(e.maximum_index, mine, i), low_halves(e.maximum, e.maximum), x.word[i]);
    }
  }

  // ---- one by one

  /// Block Hadamard transform in Sylvester order: strides 1, 2, 4 inside a thread, the others
  /// between lanes.
  ARLAB_DEVICE void transform(Float8& x) const {
    transform_thread(x);
#pragma unroll 1
    for (int mask = 1; mask < lanes(); mask *= 2) {
      // The product is exact.
      const float sign = (static_cast<int>(threadIdx.x) & mask) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        x.value[i] = fused_multiply_add(x.value[i], sign, shuffle_xor(x.value[i], mask, 32));
      }
    }
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] *= hadamard_scale;
  }

  /// A value and where in the group it is.
  struct Spike {
    float value;
    std::uint32_t index;
  };

  /// The first of the smallest, or of the largest, of the group.
  template <class Before>
  ARLAB_DEVICE Spike first_extreme(const Float8& x, std::size_t count, float none,
                                   Before before) const {
    const std::uint32_t mine = threadIdx.x % static_cast<unsigned>(lanes()) * 8;
    Spike best{none, 0xFFFFFFFFu};
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= count) continue;
      if (best.index == 0xFFFFFFFFu || before(x.value[i], best.value)) {
        best = {x.value[i], mine + static_cast<std::uint32_t>(i)};
      }
    }
#pragma unroll 1
    for (int mask = 1; mask < lanes(); mask *= 2) {
      const Spike other{shuffle_xor(best.value, mask, 32), shuffle_xor(best.index, mask, 32)};
      const bool equal = !before(other.value, best.value) && !before(best.value, other.value);
      if (before(other.value, best.value) || (equal && other.index < best.index)) best = other;
    }
    return best;
  }

  /// Takes the first minimum and the first maximum out of the group, to travel as they are.
  ARLAB_DEVICE void reserve_spikes(Float8& x, std::size_t count, Encoded& e) const {
    const Spike low = first_extreme(x, count, kInfinity32, [](float a, float b) { return a < b; });
    const Spike high =
        first_extreme(x, count, -kInfinity32, [](float a, float b) { return a > b; });
    e.minimum = Element::from_float(low.value);
    e.maximum = Element::from_float(high.value);
    e.minimum_index = low.index;
    e.maximum_index = high.index;
    const std::uint32_t mine = threadIdx.x % static_cast<unsigned>(lanes()) * 8;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (low.index == mine + i || high.index == mine + i) x.value[i] = 0;
    }
  }

  ARLAB_DEVICE AnyBitScale measure(const Float8& x, std::size_t count) const {
    float mn = kInfinity32;
    float mx = -kInfinity32;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= count) continue;
      mn = min_of(mn, x.value[i]);
      mx = max_of(mx, x.value[i]);
    }
    mn = group_reduce(mn, lanes(), [](float a, float b) { return min_of(a, b); });
    mx = group_reduce(mx, lanes(), [](float a, float b) { return max_of(a, b); });
    return arithmetic().scale_of(mn, mx);
  }

  /// The codes of a finite group, and the scale as it travels.
  template <class... Random>
  ARLAB_DEVICE void quantize(const Float8& x, const AnyBitScale& scale, Encoded& e,
                             const Random&... random) const {
    const float factor = arithmetic().factor_of(scale);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      e.codes.set(i, arithmetic().quantize(x.value[i], scale, factor, random(i)...).bits);
    }
    const bool integer = has_integer_scales();
    e.scales =
        integer ? static_cast<std::uint32_t>(scale.code) & 0xFF : Bf16::from_float(scale.value);
    if (!symmetric) {
      e.scales |= (integer ? static_cast<std::uint32_t>(static_cast<int>(scale.zero)) & 0xFF
                           : Bf16::from_float(scale.zero))
                  << 16;
    }
  }

  /// As quantize(), of a finite group whose scale was measured.
  ARLAB_DEVICE void quantize_measured(const Float8& x, const AnyBitScale& scale, Encoded& e) const {
    const float factor = arithmetic().factor_of(scale);
    const float inverse = factor > 0x1.FFFFFEp127f ? 0.0f : factor;
    std::uint32_t code[kPerThread];
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      // In fp32, a zero that was rounded down can be infinitely far from an element: limited behind the product.
      const float steps = limited((x.value[i] - scale.zero) * inverse, kLargestCode);
      code[i] = float_bits(steps + (0x1.8p23f + arithmetic().bias()));
    }
    e.codes = clamped_codes(code, false);
    e.scales = Bf16::from_float(scale.value) | (symmetric ? 0 : Bf16::from_float(scale.zero) << 16);
  }

  /// The encoding of a group with a NaN or an infinity.
  ARLAB_DEVICE Encoded non_finite() const {
    Encoded e;
    e.scales = has_integer_scales() ? 0 : Bf16::kNaN;
    if (has_integer_scales()) e.minimum = Element::from_float(float_of(kNanBits));
    return e;
  }

  ARLAB_DEVICE AnyBitScale scale_of_wire(const Encoded& e) const {
    if (has_integer_scales()) {
      return {kIntegerScales.value[e.scale() & 0xFF],
              static_cast<float>(static_cast<std::int8_t>(e.zero()))};
    }
    return {Bf16::to_float(e.scale()), Bf16::to_float(e.zero())};
  }
  ARLAB_DEVICE bool is_non_finite(const Encoded& e, const AnyBitScale& scale) const {
    const float marker = has_integer_scales() ? Element::to_float(e.minimum) : scale.value;
    return marker != marker;
  }
  /// The last rounding saturates where all metadata is finite (SPEC.md, "Saturation").
  ARLAB_DEVICE float limit_of(const Encoded& e, const AnyBitScale& scale) const {
    bool finite = is_finite(scale.value) && is_finite(scale.zero);
    if (has_spikes()) {
      finite = finite && is_finite(Element::to_float(e.minimum)) &&
               is_finite(Element::to_float(e.maximum));
    }
    return finite ? largest_finite<Element>() : kInfinity32;
  }
  ARLAB_DEVICE static Float8 all_nan() {
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] = float_of(kNanBits);
    return x;
  }

  /// Decodes to values before the inverse transform. The thread's first element is element `first`
  /// of its group.
  ARLAB_DEVICE Float8 dequantize(const Encoded& e, const AnyBitScale& scale,
                                 std::size_t first) const {
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      x.value[i] = arithmetic().dequantize(e.codes[i], scale);
    }
    if (!has_spikes()) return x;
    // An index behind the end of a short group stands for no element.
    const auto mine = static_cast<std::uint32_t>(first);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (e.minimum_index == mine + i) x.value[i] = Element::to_float(e.minimum);
      if (e.maximum_index == mine + i) x.value[i] = Element::to_float(e.maximum);
    }
    return x;
  }
};

template <class Element, class Format = AnyBitParameters, Rounding kRounding = Rounding::stochastic>
struct StochasticAnyBit : AnyBit<Element, Format> {
  using Base = AnyBit<Element, Format>;
  bool stochastic;

  ARLAB_HOST_DEVICE explicit StochasticAnyBit(const AnyBitParameters& p)
      : Base(p), stochastic(p.stochastic) {}

  ARLAB_DEVICE typename Base::Encoded encode(const Pack8<Element>& payload, Position at,
                                             const EncodeContext& context) const {
    if (kRounding == Rounding::argument && !stochastic) return Base::encode(payload, at);
    if constexpr (Base::kWholeTiles) {
      if (at.is_in_whole_tile() && RandomBitsOfEight::is_for(context)) {
        return this->encode_whole(payload, at, RandomBitsOfEight(context, at.first));
      }
    }
    return encode_rare(payload, at, context);
  }

 private:
  ARLAB_DEVICE_RARE typename Base::Encoded encode_rare(Pack8<Element> payload, Position at,
                                                       EncodeContext context) const {
    return this->encode_one_by_one(payload, at, RandomBits{context, at.first});
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
