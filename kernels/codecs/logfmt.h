// logfmt<n>-g<G>, logarithmic values: reference/codecs/SPEC.md, "LogFMT (logfmt*)".
//
// G = 8, 16, 32, 64, 128 or 256: a group of 1 to 32 lanes.
#pragma once

#include "kernels/codecs/wire_piece.h"
#include "reference/formats/portable_log.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct LogFmtParameters {
  unsigned bits = 0;
  LaneGroup group = {};
};

template <class Number>
struct LogFmt : LogFmtParameters {
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;

  struct Encoded {
    Codes8 codes;
    std::uint32_t lo = 0;  // fp16 patterns
    std::uint32_t step = 0;
  };

  ARLAB_HOST_DEVICE explicit LogFmt(const LogFmtParameters& parameters)
      : LogFmtParameters(parameters) {}

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

  ARLAB_DEVICE Encoded encode(const Eight<Number>& payload, Position at) const {
    const Floats8 x = to_floats(payload);
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
    largest = combine_lanes(largest, lanes, [](float a, float b) { return max_of(a, b); });
    smallest = combine_lanes(smallest, lanes, [](float a, float b) { return min_of(a, b); });
    return encode_range(x, finite, smallest, largest);
  }

  ARLAB_DEVICE Eight<Number> decode(const Encoded& e, Position) const {
    return from_floats<Number>(values_of(e));
  }
  ARLAB_DEVICE Floats8 values_of(const Encoded& e) const {
    const Values values(e);
    const bool is_nan = (e.lo & 0x7C00) == 0x7C00 || (e.step & 0x7C00) == 0x7C00;
    Floats8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      // The last rounding saturates (SPEC.md, "Saturation").
      const float magnitude =
          min_of(values[e.codes[i] & (sign_bit() - 1)], largest_finite<Number>());
      x.value[i] = (e.codes[i] & sign_bit()) != 0 ? -magnitude : magnitude;
      if (is_nan) x.value[i] = float_of(kNanBits);
    }
    return x;
  }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if (at.count() != 0) store_piece(e, piece_of(wire, at));
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
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
    store_word(array.next(2), static_cast<std::uint16_t>(e.lo));
    store_word(array.next(2), static_cast<std::uint16_t>(e.step));
  }
  ARLAB_DEVICE Encoded load_piece(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(bits, piece.planes, piece.codes, piece.first, piece.count);
    MetadataArrays array(piece, bits);
    e.lo = load_word<std::uint16_t>(array.next(2));
    e.step = load_word<std::uint16_t>(array.next(2));
    return e;
  }

  /// Of a group whose magnitudes, but for zeros, are from `smallest` to `largest`.
  ARLAB_DEVICE Encoded encode_range(const Floats8& x, bool finite, float smallest,
                                    float largest) const {
    Encoded e;
    if (!finite) e.lo = Fp16::kNaN;
    if (!finite || largest == 0) return e;

    const float hi = log2_fp32(largest);
    float lo = max_of(log2_fp32(smallest), hi - 32.0f);
    float step = 0;
    if (bits == 2) {
      lo = hi;
    } else {
      step = (hi - lo) / static_cast<float>((1u << (bits - 1)) - 2);
    }
    e.lo = Fp16::from_float(lo);
    e.step = Fp16::from_float(step);
    const Values values(e);
#pragma unroll 1
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint32_t element = element_bits_at(x, i);
      const std::uint32_t code = nearest(values, float_of(element & 0x7FFFFFFFu));
      e.codes.set(i, code | (code != 0 && element >> 31 != 0 ? sign_bit() : 0));
    }
    return e;
  }

 private:
  ARLAB_DEVICE std::uint32_t sign_bit() const { return 1u << (bits - 1); }

  /// The values of a group's codes, computed when asked for.
  struct Values {
    float lo;
    float step;
    ARLAB_DEVICE explicit Values(const Encoded& e)
        : lo(Fp16::to_float(e.lo)), step(Fp16::to_float(e.step)) {}
    ARLAB_DEVICE float operator[](std::uint32_t code) const {
      return code == 0 ? 0.0f : exp2_fp32(lo + static_cast<float>(code - 1) * step);
    }
  };

  /// Element i where i is not known at compile time, without an array in memory.
  ARLAB_DEVICE static std::uint32_t element_bits_at(const Floats8& x, std::size_t i) {
    std::uint32_t bits = 0;
#pragma unroll
    for (std::size_t k = 0; k < kPerThread; ++k) bits = k == i ? float_bits(x.value[k]) : bits;
    return bits;
  }

  /// The first code, from 1 on, whose value is not below `magnitude`; as std::lower_bound probes.
  ARLAB_DEVICE std::uint32_t first_not_below(const Values& values, float magnitude) const {
    std::uint32_t first = 1;
    std::uint32_t length = sign_bit() - 1;
    while (length > 0) {
      const std::uint32_t half = length / 2;
      const bool below = values[first + half] < magnitude;
      first = below ? first + half + 1 : first;
      length = below ? length - half - 1 : half;
    }
    return first;
  }

  ARLAB_DEVICE std::uint32_t nearest(const Values& values, float magnitude) const {
    const std::uint32_t above = first_not_below(values, magnitude);
    if (above == sign_bit()) return first_not_below(values, values[sign_bit() - 1]);
    return magnitude - values[above - 1] < values[above] - magnitude ? above - 1 : above;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
