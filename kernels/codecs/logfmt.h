// logfmt<n>-g<G>, logarithmic values: reference/codecs/SPEC.md, "LogFMT (logfmt*)".
//
// G = 8, 16, ... 2048: a group of 1 to 256 lanes.
//
// Whole tiles of 16-bit elements are worked on with the processor's own logarithms and powers of two, which are near those
// of the specification: where a result is so near to a boundary between two that the difference could matter, which is
// rare, it is found again as the specification says.
#pragma once

#include "kernels/codecs/pairs.h"
#include "kernels/codecs/wire_piece.h"
#include "reference/codecs/formats/logfmt.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct LogFmtParameters : LogCodes {
  LaneGroup group = {};
};

template <class Element>
struct LogFmt : LogFmtParameters {
  static constexpr bool kWholeTiles = kHasPairs<Element>;
  static constexpr Tuning kTuning =
      kWholeTiles
          ? Tuning{.resident_blocks = kFastBlocks, .tuned = true, .batch = (kFastBatch + 1) / 2}
          : Tuning{};
  static constexpr std::size_t kMostTileBytes = kTile + kTile / 32 * 4;
  static constexpr bool kClampsFp16Sums = false;

  struct Encoded {
    Codes8 codes;
    LogRange range;
  };

  ARLAB_HOST_DEVICE explicit LogFmt(const LogFmtParameters& parameters)
      : LogFmtParameters(parameters) {}

  /// Whether groups have 32 elements or more: kernels have room for the metadata of these.
  ARLAB_HOST_DEVICE bool has_long_groups() const { return kWholeTiles && group.log2 >= 5; }
  ARLAB_HOST_DEVICE std::size_t groups_of(std::size_t elements) const {
    return group.groups_of(elements);
  }
  ARLAB_HOST_DEVICE std::size_t chunk_bytes(std::size_t elements) const {
    return bytes_of_planes(elements, bits) + groups_of(elements) * 4;
  }
  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    const std::size_t rest = elements % WireChunk::kElements;
    return elements / WireChunk::kElements * chunk_bytes(WireChunk::kElements) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& payload, Position at) const {
    if constexpr (kWholeTiles) {
      if (at.is_in_whole_tile()) return encode_whole(payload);
    }
    const Float8 x = to_floats(payload);
    const int lanes = group.lanes();
    const bool finite = group_is_finite(x, at.count(), lanes);
    float largest = 0;
    float smallest = kInfinity32;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const float magnitude = magnitude_of(x.value[i]);
      largest = max_of(largest, magnitude);
      if (magnitude != 0) smallest = min_of(smallest, magnitude);
    }
    largest = group_reduce(largest, lanes, [](float a, float b) { return max_of(a, b); });
    smallest = group_reduce(smallest, lanes, [](float a, float b) { return min_of(a, b); });
    return encode_range(x, finite, smallest, largest);
  }

  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    if constexpr (kWholeTiles) {
      Pack8<Element> x;
      return decode_by_approximation(e, x) ? x : decode_rare(bits, e);
    } else {
      return from_floats<Element>(values_of({bits}, e));
    }
  }
  ARLAB_DEVICE static Float8 values_of(LogCodes format, const Encoded& e) {
    const LogValues values(e.range);
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      x.value[i] = e.range.is_finite()
                       ? format.dequantize(e.codes[i], values, largest_finite<Element>())
                       : float_of(kNanBits);
    }
    return x;
  }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if constexpr (kWholeTiles) {
      if (at.elements == kTile) return store_tile(e, wire);
    }
    if (at.count() != 0) store_piece(e, piece_of(wire, at));
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    if constexpr (kWholeTiles) {
      if (at.elements == kTile) return load_tile(wire);
    }
    if (at.count() == 0) return {};
    return load_piece(piece_of(const_cast<std::uint8_t*>(wire), at));
  }

 protected:
  ARLAB_DEVICE WirePiece piece_of(std::uint8_t* wire, Position at) const {
    const WireChunk chunk = chunk_of(wire, at, chunk_bytes(WireChunk::kElements));
    return {chunk.planes,
            chunk.elements,
            chunk.first,
            at.count(),
            groups_of(chunk.elements),
            group.group_of(chunk.first),
            group.index_in_group(chunk.first) == 0};
  }
  ARLAB_DEVICE void store_piece(const Encoded& e, const WirePiece& piece) const {
    store_planes(e.codes, bits, piece.planes, piece.codes, piece.first, piece.count);
    if (!piece.is_first_of_group) return;
    MetadataArrays array(piece, bits);
    store_word(array.next(2), e.range.lo);
    store_word(array.next(2), e.range.step);
  }
  ARLAB_DEVICE Encoded load_piece(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(bits, piece.planes, piece.codes, piece.first, piece.count);
    MetadataArrays array(piece, bits);
    e.range.lo = load_word<std::uint16_t>(array.next(2));
    e.range.step = load_word<std::uint16_t>(array.next(2));
    return e;
  }

  /// Encodes elements of a group whose magnitudes, but for zeros, are from `smallest` to `largest`.
  ARLAB_DEVICE Encoded encode_range(const Float8& x, bool finite, float smallest,
                                    float largest) const {
    Encoded e;
    e.range = finite ? range_of(smallest, largest) : LogRange::nan();
    if (!finite || largest == 0) return e;
    e.codes = quantize_all({bits}, x, e.range);
    return e;
  }

 private:
  // ---- whole tiles

  ARLAB_DEVICE Encoded encode_whole(const Pack8<Element>& payload) const {
    // Magnitudes as 15 bits, and 2^15 less them, which is largest for the smallest that is not 0.
    std::uint32_t largest = 0;
    std::uint32_t smallest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t magnitudes = payload.word[i] & splat(0x7FFF);
      largest = max_u16x2(largest, magnitudes);
      smallest = max_u16x2(smallest, (splat(0x8000) - magnitudes) & splat(0x7FFF));
    }
    const std::uint32_t both = smallest_of_lanes<-1>(
        max_u16x2(low_halves(largest, smallest), high_halves(largest, smallest)), group.log2 - 3,
        [](std::uint32_t a, std::uint32_t b) ARLAB_INLINED_LAMBDA { return max_u16x2(a, b); });
    Encoded e;
    e.range = LogRange::nan();
    if ((both & 0xFFFF) >= Element::kInfinity) return e;
    e.range = {};
    if (both == 0) return e;
    const float hi = Element::to_float(both & 0xFFFF);
    const float least = Element::to_float(0x8000 - (both >> 16));
    e.range = range_by_approximation(least, hi);
    if (!quantize_by_approximation(payload, e)) e.codes = quantize_rare(bits, payload, e.range);
    return e;
  }

  ARLAB_DEVICE static LogValues values_of(const LogRange& range) {
    LogValues values;
    values.lo = Fp16::to_float(range.lo);
    values.step = Fp16::to_float(range.step);
    return values;
  }
  /// How far log2(x) and the specification's may be from each other, of a logarithm.
  ARLAB_DEVICE static float error_of_log2(float logarithm) {
    return (magnitude_of(logarithm) + 4) * 0x1p-21f;
  }
  /// range_of(), for numbers.
  ARLAB_DEVICE LogRange range_by_approximation(float least, float largest) const {
    const float hi = approximate_log2(largest);
    const float lo = approximate_log2(least);
    const float error = error_of_log2(hi) + error_of_log2(lo);
    const float one_step = approximate_reciprocal(static_cast<float>(sign_bit() - 2));
    const float step = (hi - lo) * one_step;
    const float error_of_step = error * one_step + step * 0x1p-21f;
    const std::uint32_t range = half2_of_floats(lo - error, step - error_of_step);
    const bool is_sure = range == half2_of_floats(lo + error, step + error_of_step);
    if (!is_sure || !(lo > kLeastLog2) || hi - lo > 31 || bits == 2)
      return range_of_rare(bits, least, largest);
    return {static_cast<std::uint16_t>(range), static_cast<std::uint16_t>(range >> 16)};
  }
  /// Between these, values are normal numbers.
  static constexpr float kLeastLog2 = -120;
  static constexpr float kMostLog2 = 127;

  /// Where codes are on a logarithmic scale: an element's code is its place, rounded.
  struct Places {
    bool exist;    ///< whether approximations are near enough to say so
    float steps;   ///< in a unit of the logarithm
    float before;  ///< the place of 1
    float sure;  ///< no farther from a whole number, a place is rounded as the specification has it
    ARLAB_DEVICE float of(float x) const {
      // The logarithm of 0 is an infinity, whose low bits are 0 when it is rounded.
      return fused_multiply_add(approximate_log2(magnitude_of(x)), steps, before);
    }
    /// The code is in the low half.
    ARLAB_DEVICE static float rounded(float place) { return place + (0x1.8p23f + 1); }
    ARLAB_DEVICE static float distance(float place, float rounded) {
      return magnitude_of(place - (rounded - (0x1.8p23f + 1)));
    }
  };
  ARLAB_DEVICE static Places places_of(LogCodes format, const LogValues& values) {
    const float range = static_cast<float>(format.sign_bit() - 2) * values.step;
    const float most = max_of(magnitude_of(values.lo), magnitude_of(values.lo + range));
    Places places;
    // Elements are below the first value by the rounding of lo only, and by less than half a step.
    places.exist = values.lo > kLeastLog2 && values.lo + range < kMostLog2 && range < 31 &&
                   values.step > most * 0x1p-10f;
    places.steps = approximate_reciprocal(values.step);
    // A code's boundary to the next is where their mean is.
    const float mean =
        approximate_log2(fused_multiply_add(approximate_exp2(values.step), 0.5f, 0.5f));
    places.before = 0.5f - (values.lo + mean) * places.steps;
    places.sure = 0.5f - (error_of_log2(most) * 2) * places.steps;
    return places;
  }
  /// The codes; false where one of them is not sure.
  ARLAB_DEVICE bool quantize_by_approximation(const Pack8<Element>& payload, Encoded& e) const {
    const Float8 x = to_floats(payload);
    const Places places = places_of({bits}, values_of(e.range));
    if (!places.exist) return false;
    std::uint32_t code[kPerThread];
    float farthest = 0;  // from a whole number
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const float place = places.of(x.value[i]);
      const float rounded = Places::rounded(place);
      code[i] = float_bits(rounded);
      // For 0 this is a NaN, which is left out.
      farthest = __builtin_fmaxf(farthest, Places::distance(place, rounded));
    }
    std::uint32_t pair[4];
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      pair[i] = min_s16x2(low_halves(code[2 * i], code[2 * i + 1]), splat(sign_bit() - 1));
      const std::uint32_t negative = (pair[i] + splat(0x7FFF)) & payload.word[i] & splat(0x8000);
      pair[i] |= negative >> (16 - bits);
    }
    e.codes = codes_of_pairs(pair);
    return farthest <= places.sure;
  }
  /// The codes as the specification says.
  ARLAB_DEVICE static Codes8 quantize_all(LogCodes format, const Float8& x, const LogRange& range) {
    const LogValues values(range);
    Codes8 codes;
#pragma unroll 1
    for (std::size_t i = 0; i < kPerThread; ++i) {
      codes.set(i, format.quantize(element_at(x, i), values));
    }
    return codes;
  }

  /// As values_of(), rounded; false where that is not sure.
  ARLAB_DEVICE bool decode_by_approximation(const Encoded& e, Pack8<Element>& result) const {
    const LogValues values = values_of(e.range);
    std::uint32_t nearest = 0;  // to a tie, by halves, as near_ties() has it
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t codes = e.codes.in_order(i);
      const std::uint32_t magnitudes = codes & in_each_byte(sign_bit() - 1);
      // 0x80 in bytes that have one.
      const std::uint32_t signs = codes << (8 - bits) & in_each_byte(0x80);
      const std::uint32_t numbers = (magnitudes + in_each_byte(0x7F)) & in_each_byte(0x80);
      const std::uint32_t of_numbers = numbers | (numbers - (numbers >> 7));  // 0xFF of those
      constexpr std::uint32_t kBytes[4] = {0x7440, 0x7441, 0x7442, 0x7443};
      float value[4];
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        // The magnitude's code behind 2^23, less that and 1.
        const float number =
            float_of(permute_bytes(magnitudes, 0x4B000000, kBytes[k])) - (0x1p23f + 1);
        value[k] = approximate_exp2(fused_multiply_add(number, values.step, values.lo));
      }
#pragma unroll
      for (unsigned k = 0; k < 2; ++k) {
        const std::uint32_t of_both = permute_bytes(of_numbers, 0, k == 0 ? 0x1100 : 0x3322);
        nearest = max_u16x2(nearest, near_ties(value[2 * k], value[2 * k + 1]));
        result.word[2 * i + k] =
            (pair_of_floats<Element>(value[2 * k], value[2 * k + 1]) & of_both) |
            permute_bytes(signs, 0, k == 0 ? 0x1404 : 0x3424);
      }
    }
    return are_normal({bits}, values) && !is_near_tie(max_of(nearest & 0xFFFF, nearest >> 16));
  }
  /// Whether all values are normal numbers of the dtype.
  ARLAB_DEVICE static bool are_normal(LogCodes format, const LogValues& values) {
    constexpr float kLeast = Element::kDType == DType::fp16 ? -13.0f : kLeastLog2;
    constexpr float kMost = Element::kDType == DType::fp16 ? 15.5f : kMostLog2;
    const float last =
        fused_multiply_add(static_cast<float>(format.sign_bit() - 2), values.step, values.lo);
    return values.lo > kLeast && values.lo < kMost && last > kLeast && last < kMost;
  }
  /// In halves, how far the fp32 bits behind a number's last one are from where it is rounded in the other direction.
  ARLAB_DEVICE static std::uint32_t near_ties(float low, float high) {
    constexpr unsigned kBitsBehind = Element::kDType == DType::fp16 ? 13 : 16;
    const std::uint32_t behind = low_halves(float_bits(low), float_bits(high))
                                 << (16 - kBitsBehind);
    return behind + splat(0x8000 - kNearTies);
  }
  /// How near to a tie counts as near, in units of 2^-16 of the payload's last bit.
  static constexpr std::uint32_t kNearTies = Element::kDType == DType::fp16 ? 128 : 16;
  /// Whether the power of two of the specification might be rounded in the other direction.
  ARLAB_DEVICE static bool is_near_tie(std::uint32_t of_near_ties) {
    return of_near_ties >= 0x10000 - 2 * kNearTies;
  }

  // Static: an object that is copied, to know its width as a constant, would go to memory for them.
  ARLAB_DEVICE_RARE static LogRange range_of_rare(unsigned bits, float least, float largest) {
    return LogCodes{bits}.range_of(least, largest);
  }
  ARLAB_DEVICE_RARE static Codes8 quantize_rare(unsigned bits, Pack8<Element> payload,
                                                LogRange range) {
    const LogCodes format{bits};
    const Float8 x = to_floats(payload);
    const LogValues values(range);
    const Places places = places_of(format, values);
    Codes8 codes;
    std::uint32_t unsure = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const float place = places.of(x.value[i]);
      const float rounded = Places::rounded(place);
      const std::uint32_t nearest = float_bits(rounded) & 0xFFFF;
      const std::uint32_t code = nearest < format.sign_bit() ? nearest : format.sign_bit() - 1;
      // For 0 the distance is a NaN.
      const bool is_sure = places.exist && !(Places::distance(place, rounded) > places.sure);
      if (is_sure) codes.set(i, signed_code(format, code, x.value[i]));
      unsure |= (is_sure ? 0u : 1u) << i;
    }
#pragma unroll 1
    for (std::size_t i = 0; unsure >> i != 0; ++i) {
      if ((unsure >> i & 1) == 0) continue;
      codes.set(i, quantize_unsure(format, places, element_at(x, i), values));
    }
    return codes;
  }
  ARLAB_DEVICE static std::uint32_t signed_code(LogCodes format, std::uint32_t code, float x) {
    return code != 0 && x < 0 ? code | format.sign_bit() : code;
  }
  /// A place that is known by less than a quarter of a step says between which two values the element is: these decide.
  ARLAB_DEVICE static std::uint32_t quantize_unsure(LogCodes format, const Places& places, float x,
                                                    const LogValues& values) {
    const std::uint32_t below = float_bits(Places::rounded(places.of(x) - 0.5f)) & 0xFFFF;
    const bool is_between = below >= 1 && below + 1 < format.sign_bit();
    if (!places.exist || !(places.sure > 0.25f) || !is_between) return format.quantize(x, values);
    const float magnitude = magnitude_of(x);
    const bool is_below = magnitude - values[below] < values[below + 1] - magnitude;
    return signed_code(format, is_below ? below : below + 1, x);
  }
  ARLAB_DEVICE_RARE static Pack8<Element> decode_rare(unsigned bits, Encoded e) {
    const LogCodes format{bits};
    const LogValues values(e.range);
    const bool is_normal = are_normal(format, values);
    const bool is_nan = !e.range.is_finite();
    Float8 x;
    std::uint32_t unsure = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint32_t magnitude = e.codes[i] & (format.sign_bit() - 1);
      const float number = static_cast<float>(magnitude) - 1;
      const float value = approximate_exp2(fused_multiply_add(number, values.step, values.lo));
      const bool is_sure =
          is_nan || magnitude == 0 || (is_normal && !is_near_tie(near_ties(value, value) & 0xFFFF));
      const float of_magnitude = magnitude == 0 ? 0.0f : value;
      const float of_code = (e.codes[i] & format.sign_bit()) != 0 ? -of_magnitude : of_magnitude;
      x.value[i] = is_nan ? float_of(kNanBits) : of_code;
      unsure |= (is_sure ? 0u : 1u) << i;
    }
#pragma unroll 1
    for (std::size_t i = 0; unsure >> i != 0; ++i) {
      if ((unsure >> i & 1) == 0) continue;
      const float value = format.dequantize(e.codes[i], values, largest_finite<Element>());
#pragma unroll
      for (std::size_t k = 0; k < kPerThread; ++k) x.value[k] = k == i ? value : x.value[k];
    }
    return from_floats<Element>(x);
  }

  // For a message that is one whole tile.
  ARLAB_DEVICE void store_tile(const Encoded& e, std::uint8_t* wire) const {
    const unsigned first = thread_index() * static_cast<unsigned>(kPerThread);
    store_planes<true>(e.codes, bits, wire, kTile, first, kPerThread);
    if ((first & ((1u << group.log2) - 1)) != 0) return;
    TileMetadata at(bits, group);
    store_word<true>(wire + at.next(2), e.range.lo);
    store_word<true>(wire + at.next(2), e.range.step);
  }
  ARLAB_DEVICE Encoded load_tile(const std::uint8_t* wire) const {
    Encoded e;
    e.codes = load_planes<true>(bits, wire, kTile, thread_index() * kPerThread, kPerThread);
    TileMetadata at(bits, group);
    e.range.lo = load_word<std::uint16_t, true>(wire + at.next(2));
    e.range.step = load_word<std::uint16_t, true>(wire + at.next(2));
    return e;
  }

  /// Where i is not known at compile time, without an array in memory.
  ARLAB_DEVICE static float element_at(const Float8& x, std::size_t i) {
    float element = 0;
#pragma unroll
    for (std::size_t k = 0; k < kPerThread; ++k) element = k == i ? x.value[k] : element;
    return element;
  }
};

/// The same of a width that kernels know.
template <class Element, unsigned Bits>
struct LogFmtOf : private LogFmt<Element> {
  using Base = LogFmt<Element>;
  using Base::has_long_groups;
  using Base::kClampsFp16Sums;
  using Base::kTuning;
  using Base::wire_bytes;
  using typename Base::Encoded;
  static constexpr std::size_t kMostTileBytes = kTile / 8 * Bits + kTile / 32 * 4;

  ARLAB_HOST_DEVICE explicit LogFmtOf(const LogFmtParameters& parameters) : Base(parameters) {}

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position at) const {
    return of_width().encode(x, at);
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position at) const {
    return of_width().decode(e, at);
  }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    of_width().store(e, wire, at);
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    return of_width().load(wire, at);
  }

 private:
  ARLAB_DEVICE Base of_width() const {
    Base codec = *this;
    codec.bits = Bits;
    return codec;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
