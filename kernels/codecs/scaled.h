// The device code of a format that scales blocks (reference/codecs/scaled_format.h).
//
// A block is kBlock / 8 lanes, which find its largest magnitude among themselves.
#pragma once

#include "kernels/codecs/minifloats.h"
#include "reference/codecs/scaled_format.h"
#include "reference/formats/e8m0.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A thread's codes, and the scale of its block.
template <class Scale>
struct ScaledCodes {
  Codes8 codes;
  Scale scale = {};
};

/// Encodes eight elements, the first `count` of which are in the message; with RandomBits, rounded stochastically.
template <class Format, class... Random>
ARLAB_DEVICE ScaledCodes<typename Format::Scale> encode_scaled(const Format& format,
                                                               const Float8& x, std::size_t count,
                                                               const Random&... random) {
  // The largest in bits, which order as magnitudes do, infinities and NaNs above all numbers.
  std::uint32_t largest_bits = 0;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    const std::uint32_t own = float_bits(magnitude_of(x.value[i]));
    if (i < count && own > largest_bits) largest_bits = own;
  }
  constexpr int kLanes = static_cast<int>(Format::kBlock / kPerThread);
  const float largest = float_of(group_reduce(
      largest_bits, kLanes, [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }));
  ScaledCodes<typename Format::Scale> e;
  if (!is_finite(largest)) {
    e.scale = format.nan_scale();
    return e;
  }
  const auto block = format.scale_of(largest);
  e.scale = block.scale;
  if (block.factor == 0) return e;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    e.codes.set(i, format.quantize(x.value[i], block.factor, random(i)...).bits);
  }
  return e;
}
template <class Format>
ARLAB_DEVICE Float8 decode_scaled(const Format& format,
                                  const ScaledCodes<typename Format::Scale>& e) {
  Float8 x;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    x.value[i] = format.dequantize(e.codes[i], e.scale);
  }
  return x;
}

/// Formats whose bits are a constant, kBits, are tuned: that takes no more than constants, and compile time. A member that
/// says so, not a call of bits() in a concept, of which nvcc and the compiler of the host may think differently.
template <class Format>
concept FixedFormat = requires { Format::kBits; };

/// So are those whose bits are an argument of at most kMostBits, where kernels are compiled ahead.
template <class Format>
concept TunedFormat = FixedFormat<Format> || requires { Format::kMostBits; };

/// On the wire, in words of 16 bytes.
constexpr std::size_t tile_bytes_with(unsigned bits, std::size_t block, std::size_t scale_bytes) {
  return (kTile / 8 * bits + kTile / block * scale_bytes + 15) / 16 * 16;
}
template <class Format>
constexpr std::size_t tile_bytes_with(unsigned bits) {
  return tile_bytes_with(bits, Format::kBlock, sizeof(typename Format::Scale));
}

/// Codes are integers in two's complement, kIntegersPerUnit of them a unit, from -kLargestInteger to kLargestInteger.
template <class Format>
concept IntegerFormat = requires { Format::kLargestInteger; };

/// Tuning of tuned formats, and of others.
inline constexpr Tuning kTunedScales = {
    .resident_blocks = kFastBlocks, .tuned = true, .batch = kFastBatch};
inline constexpr Tuning kUntunedScales = {.resident_blocks = kFastBlocks - 1,
                                          .batch = (kFastBatch + 1) / 2};

template <class Format, bool kIsTuned>
struct ScaledTuning {
  static constexpr Tuning kTuning = kUntunedScales;
};
template <TunedFormat Format>
struct ScaledTuning<Format, true> {
  static constexpr Tuning kTuning = kTunedScales;
  static constexpr std::size_t kMostTileBytes = tile_bytes_with<Format>(Format::kMostBits);
};
template <FixedFormat Format>
struct ScaledTuning<Format, true> {
  static constexpr Tuning kTuning = kTunedScales;
  static constexpr std::size_t kTileBytes = tile_bytes_with<Format>(Format::kBits);
};

template <class Format, class Element, bool kIsTuned = kHasPairs<Element>>
struct Scaled : Format, ScaledTuning<Format, kIsTuned> {
  using Scale = typename Format::Scale;
  static constexpr bool kClampsFp16Sums = requires { requires Format::kClampsFp16Sums; };
  static constexpr std::size_t kBlock = Format::kBlock;

  using Encoded = ScaledCodes<Scale>;

  ARLAB_HOST_DEVICE constexpr explicit Scaled(const Format& format) : Format(format) {}

  ARLAB_HOST_DEVICE std::size_t chunk_bytes(std::size_t elements) const {
    return bytes_of_planes(elements, this->bits()) +
           (elements + kBlock - 1) / kBlock * sizeof(Scale);
  }
  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    const std::size_t rest = elements % WireChunk::kElements;
    return elements / WireChunk::kElements * chunk_bytes(WireChunk::kElements) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& payload, Position at) const {
    if constexpr (kHasPairs<Element> && TunedFormat<Format>) {
      if (at.is_in_whole_tile()) return encode_whole(payload);
    }
    return encode_scaled<Format>(*this, to_floats(payload), at.count());
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    if constexpr (kHasPackedArithmetic<Element> && TunedFormat<Format>) {
      const Pack8<Element> x = pairs(e);
      return any_non_finite(x) ? from_floats<Element>(values(e)) : x;
    } else {
      return from_floats<Element>(decode_scaled<Format>(*this, e));
    }
  }
  /// For sums, which are checked in the end.
  ARLAB_DEVICE Pack8<Element> decode_unchecked(const Encoded& e) const
    requires(kHasPackedArithmetic<Element> && TunedFormat<Format>)
  {
    return pairs(e);
  }
  ARLAB_DEVICE bool may_be_non_finite(const Encoded& e) const
    requires(kHasPackedArithmetic<Element> && TunedFormat<Format>)
  {
    return any_non_finite(pairs(e));
  }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if (at.elements == kTile) return store_tile(e, wire, at);
    if (at.count() == 0) return;
    const WireChunk chunk = chunk_of(wire, at, chunk_bytes(WireChunk::kElements));
    store_planes(e.codes, this->bits(), chunk.planes, chunk.elements, chunk.first, at.count());
    if (chunk.first % kBlock == 0) store_word(scale_in(chunk), scale_bits(e.scale));
  }

  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    Encoded e;
    if (at.elements == kTile) return load_tile(wire, at);
    if (at.count() == 0) return e;
    const WireChunk chunk =
        chunk_of(const_cast<std::uint8_t*>(wire), at, chunk_bytes(WireChunk::kElements));
    e.codes = load_planes(this->bits(), chunk.planes, chunk.elements, chunk.first, at.count());
    if constexpr (sizeof(Scale) == 1) {
      e.scale = *scale_in(chunk);
    } else {
      e.scale = float_of(load_word<std::uint32_t>(scale_in(chunk)));
    }
    return e;
  }

 protected:
  /// As encode_scaled(), where all elements of the tile are in the message.
  template <class... Random>
  ARLAB_DEVICE Encoded encode_whole(const Pack8<Element>& payload, const Random&... random) const {
    // Bits without their sign order as magnitudes do, with infinities and NaNs above all numbers.
    std::uint32_t pairs = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs = max_u16x2(pairs, payload.word[i] & splat(0x7FFF));
    const std::uint32_t largest = smallest_of_lanes<kLog2Lanes>(
        max_of(pairs & 0xFFFF, pairs >> 16), 0,
        [](std::uint32_t a, std::uint32_t b) ARLAB_INLINED_LAMBDA { return max_of(a, b); });
    Encoded e;
    if (largest >= Element::kInfinity) {
      e.scale = this->nan_scale();
      return e;
    }
    const auto block = this->scale_of(Element::to_float(largest));
    e.scale = block.scale;
    if (block.factor == 0) return e;
    if constexpr (sizeof...(Random) != 0) {
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        const float x = Element::to_float(element_bits(payload, i));
        if constexpr (MinifloatFormat<Format>) {
          e.codes.set(i,
                      stochastic_minifloat_code(this->element(), x * block.factor, random(i)...));
        } else {
          e.codes.set(i, this->quantize(x, block.factor, random(i)...).bits);
        }
      }
    } else if constexpr (kInBf16 && IntegerFormat<Format>) {
      // A sum whose last bit counts integers: codes are what the format's are in two's complement.
      const float behind = 0x1.8p23f / Format::kIntegersPerUnit;
      const Pack8<Element> x = scaled(payload, float_bits(block.factor) >> 16);
      std::uint32_t pair[4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        pair[i] = low_halves(float_bits(Element::to_float(x.word[i] & 0xFFFF) + behind),
                             float_bits(Element::to_float(x.word[i] >> 16) + behind));
        constexpr std::uint32_t kLargest = Format::kLargestInteger;
        pair[i] =
            min_s16x2(max_s16x2(pair[i], splat(0x10000 - kLargest)), splat(kLargest)) & splat(0xFF);
      }
      e.codes = codes_of_pairs(pair);
    } else if constexpr (kInBf16 && is_e2m1()) {
      const Pack8<Element> x = scaled(payload, float_bits(block.factor) >> 16);
      std::uint32_t pair[4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) pair[i] = e2m1_of_pair<Element>(x.word[i]);
      e.codes = codes_of_pairs(pair);
    } else {
      Float8 x = to_floats(payload);
      if constexpr (MinifloatFormat<Format> && kConvertsMinifloats) {
#pragma unroll
        for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] *= block.factor;
        e.codes = minifloat_codes(this->element(), x);
      } else {
#pragma unroll
        for (std::size_t i = 0; i < kPerThread; ++i) {
          e.codes.set(i, this->quantize(x.value[i], block.factor).bits);
        }
      }
    }
    return e;
  }

 private:
  static constexpr int kLog2Lanes = std::countr_zero(kBlock) - 3;

  /// Scales are powers of two, so that products of bf16 are exact, but for what is far below every code, and values are
  /// bf16 numbers.
  static constexpr bool kInBf16 = Element::kDType == DType::bf16 && kHasBfloat2Arithmetic &&
                                  FixedFormat<Format> && std::same_as<Scale, std::uint8_t>;
  static constexpr bool is_e2m1() {
    if constexpr (FixedFormat<Format> && MinifloatFormat<Format>) {
      return Format::element().mantissa_bits == 1;
    } else {
      return false;
    }
  }

  ARLAB_DEVICE static Pack8<Element> scaled(const Pack8<Element>& x, std::uint32_t factor) {
    Pack8<Element> result;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) result.word[i] = multiply_bfloat2(x.word[i], splat(factor));
    return result;
  }
  /// As decode(), but any NaN for a NaN, and maybe an infinity or a NaN for a value that overflows.
  ARLAB_DEVICE Pack8<Element> pairs(const Encoded& e) const {
    if constexpr (kInBf16 && IntegerFormat<Format>) {
      const std::uint32_t scale = bf16_of_scale(e.scale, Format::kIntegersPerUnit);
      Pack8<Element> x;
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        // The low seven bits behind 128, less 128 or, where the sign is set, 256.
        const std::uint32_t word = e.codes.in_order(i);
        const std::uint32_t low = word & in_each_byte(0x7F);
        const std::uint32_t sign = word & in_each_byte(0x80);
        constexpr std::uint32_t kSelect[2] = {0x4140, 0x4342};
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
          x.word[2 * i + j] =
              multiply_bfloat2(add_bfloat2(permute_bytes(low, in_each_byte(0x43), kSelect[j]),
                                           permute_bytes(sign, in_each_byte(0xC3), kSelect[j])),
                               splat(scale));
        }
      }
      return x;
    } else if constexpr (kInBf16 && is_e2m1()) {
      return scaled(bfloats_of_e2m1(e.codes.even | e.codes.odd << 4), bf16_of_scale(e.scale, 1));
    } else {
      return pairs_of_floats<Element>(values(e));
    }
  }
  /// 2^(code - 127) / divisor, a power of two; a NaN for a NaN.
  ARLAB_DEVICE static std::uint32_t bf16_of_scale(std::uint8_t code, float divisor) {
    return float_bits(e8m0_to_float(code) * (1 / divisor)) >> 16;
  }
  ARLAB_DEVICE Float8 values(const Encoded& e) const {
    if constexpr (MinifloatFormat<Format> && kConvertsMinifloats && !is_e2m1()) {
      Float8 x = minifloat_values(this->element(), e.codes);
      const float scale = this->value_of(e.scale);
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] *= scale;
      return x;
    } else if constexpr (requires { this->values_of(e.codes, e.scale); }) {
      return this->values_of(e.codes, e.scale);
    } else {
      return decode_scaled<Format>(*this, e);
    }
  }

  // For a message that is one whole tile.
  ARLAB_DEVICE void store_tile(const Encoded& e, std::uint8_t* wire, Position at) const {
    store_planes<true>(e.codes, this->bits(), wire, kTile, at.first, kPerThread);
    if (at.first % kBlock == 0) {
      reinterpret_cast<Scale*>(wire + kTile / 8 * this->bits())[at.first / kBlock] = e.scale;
    }
  }
  ARLAB_DEVICE Encoded load_tile(const std::uint8_t* wire, Position at) const {
    const auto* scales = reinterpret_cast<const Scale*>(wire + kTile / 8 * this->bits());
    Encoded e;
    e.codes = load_planes<true>(this->bits(), wire, kTile, at.first, kPerThread);
    e.scale = scales[at.first / kBlock];
    return e;
  }

  ARLAB_DEVICE std::uint8_t* scale_in(const WireChunk& chunk) const {
    return chunk.planes + bytes_of_planes(chunk.elements, this->bits()) +
           chunk.first / kBlock * sizeof(Scale);
  }
  ARLAB_DEVICE static std::uint8_t scale_bits(std::uint8_t scale) { return scale; }
  ARLAB_DEVICE static std::uint32_t scale_bits(float scale) { return float_bits(scale); }
};

/// The same, rounded stochastically.
template <StochasticFormat Format, class Element, bool kIsTuned = kHasPairs<Element>,
          Rounding kRounding = Rounding::stochastic>
struct StochasticScaled : Scaled<Format, Element, kIsTuned> {
  using Base = Scaled<Format, Element, kIsTuned>;
  using Base::Base;

  ARLAB_DEVICE typename Base::Encoded encode(const Pack8<Element>& payload, Position at,
                                             const EncodeContext& context) const {
    if (kRounding == Rounding::argument && !this->stochastic) return Base::encode(payload, at);
    if constexpr (kIsTuned) {
      if (at.is_in_whole_tile() && RandomBitsOfEight::is_for(context)) {
        return this->encode_whole(payload, RandomBitsOfEight(context, at.first));
      }
    }
    return encode_rare(payload, at, context);
  }

 private:
  ARLAB_DEVICE_RARE typename Base::Encoded encode_rare(Pack8<Element> payload, Position at,
                                                       EncodeContext context) const {
    return encode_scaled<Format>(*this, to_floats(payload), at.count(),
                                 RandomBits{context, at.first});
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
