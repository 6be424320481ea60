// int<b>-gtensor-static<s>:<z> and int<b>-gtensor-sym-static<s> on elements of 16 bits, in tuned kernels: reference/codecs/SPEC.md,
// "Given scales (-static)".
//
// A block of the format, whose elements all become NaN where one is no finite number, is two tiles, of which different threads know. So
// kernels write NaN to the elements of one wave, and collectives/spread_nans.h to the rest of the block, behind the collective.
#pragma once

#include "kernels/codecs/anybit.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Elements of 32 lanes: a tile's wire says of each so many whether one is no finite number, in a byte behind the codes.
inline constexpr std::size_t kNanElements = 32 * kPerThread;

template <unsigned Bits>
struct GivenTileBytes {
  static constexpr std::size_t kTileBytes = kTile / 8 * Bits + 16;
};
/// Where the width is an argument.
template <>
struct GivenTileBytes<0> {
  static constexpr std::size_t kMostTileBytes = GivenTileBytes<8>::kTileBytes;
};

template <class Element, unsigned Bits>
struct GivenAnyBit : AnyBitWidth<Bits>, GivenTileBytes<Bits> {
  static constexpr Tuning kTuning = {
      .resident_blocks = kFastBlocks, .tuned = true, .batch = kFastBatch};
  static constexpr bool kClampsFp16Sums = false;
  using AnyBitWidth<Bits>::bits;

  bool symmetric;
  float scale;
  float inverse;
  float zero;  ///< 0 of symmetric codes

  struct Encoded {
    Codes8 codes;
    std::uint8_t has_nan = 0;
  };

  ARLAB_HOST_DEVICE GivenAnyBit(const AnyBitParameters& p, float given_scale, float given_zero)
      : AnyBitWidth<Bits>(p.bits),
        symmetric(p.symmetric),
        scale(given_scale),
        inverse(1.0f / given_scale),
        zero(given_zero) {}

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return bytes_of_planes(elements, bits) + kTile / kNanElements;
  }

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& payload, Position at) const {
    const float bias = arithmetic().bias();
    const float top = arithmetic().top() - bias;
    const Float8 x = to_floats(payload);
    std::uint32_t code[kPerThread];
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const float steps = (x.value[i] - zero) * inverse;
      code[i] = float_bits(max_or_nan(min_or_nan(steps, top), -bias) + (0x1.8p23f + bias));
    }
    const auto pair = [&](std::size_t i)
                          ARLAB_INLINED_LAMBDA { return low_halves(code[i], code[i + 4]); };
    const bool has_nan = any_of_wave(!are_finite(payload, at.count()));
    return {{pair(0) | pair(2) << 8, pair(1) | pair(3) << 8},
            static_cast<std::uint8_t>(has_nan ? 1 : 0)};
  }

  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    return decode_unchecked(e);
  }
  /// For sums, which are checked in the end.
  ARLAB_DEVICE Pack8<Element> decode_unchecked(const Encoded& e) const {
    Pack8<Element> x = pairs_of_floats<Element>(values(e.codes));
#pragma unroll
    for (std::uint32_t& word : x.word) word = e.has_nan != 0 ? splat(Element::kNaN) : word;
    return x;
  }
  /// decode_unchecked() sees to these.
  ARLAB_DEVICE static bool may_be_non_finite(const Encoded&) { return false; }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if (at.elements == kTile) {
      store_planes<true>(e.codes, bits, wire, kTile, at.first, kPerThread);
    } else if (at.count() != 0) {
      store_planes(e.codes, bits, wire, at.elements, at.first, at.count());
    }
    if (at.first % kNanElements == 0) *nan_byte(wire, at) = e.has_nan;
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    Encoded e;
    if (at.elements == kTile) {
      e.codes = load_planes<true>(bits, wire, kTile, at.first, kPerThread);
    } else if (at.count() != 0) {
      e.codes = load_planes(bits, wire, at.elements, at.first, at.count());
    }
    e.has_nan = *nan_byte(const_cast<std::uint8_t*>(wire), at);
    return e;
  }

 private:
  ARLAB_DEVICE AnyBitCodes arithmetic() const { return {bits, symmetric, false}; }

  /// Whether the first `count` elements are finite.
  ARLAB_DEVICE static bool are_finite(const Pack8<Element>& x, std::size_t count) {
    std::uint32_t largest = 0;
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint32_t word = x.word[i] & splat(0x7FFF);
      if (count < 2 * i + 2) word &= count == 2 * i + 1 ? 0xFFFF : 0;
      largest = max_u16x2(largest, word);
    }
    return max_of(largest & 0xFFFF, largest >> 16) < Element::kInfinity;
  }

  ARLAB_DEVICE Float8 values(const Codes8& codes) const {
    constexpr float kBehind = 0x1p23f;  // below it and a code's sum, nothing is lost
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const float code = float_of(float_bits(kBehind) | codes[i]) - (kBehind + arithmetic().bias());
      x.value[i] = symmetric ? code * scale : zero + code * scale;
    }
    constexpr float kLargest = largest_finite<Element>();
    if (arithmetic().top() * scale + magnitude_of(zero) < kLargest) return x;
#pragma unroll
    for (float& each : x.value) each = limited(each, kLargest);
    return x;
  }

  ARLAB_DEVICE std::uint8_t* nan_byte(std::uint8_t* wire, Position at) const {
    return wire + bytes_of_planes(at.elements, bits) + at.first / kNanElements;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
