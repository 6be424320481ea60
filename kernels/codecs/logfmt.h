// logfmt<n>-g<G>, logarithmic values: reference/codecs/SPEC.md, "LogFMT (logfmt*)".
//
// G = 8, 16, 32, 64, 128 or 256: a group of 1 to 32 lanes.
#pragma once

#include "kernels/codecs/wire_piece.h"
#include "reference/codecs/formats/logfmt.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct LogFmtParameters : LogCodes {
  LaneGroup group = {};
};

template <class Element>
struct LogFmt : LogFmtParameters {
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;

  struct Encoded {
    Codes8 codes;
    LogRange range;
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

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& payload, Position at) const {
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
    return from_floats<Element>(values_of(e));
  }
  ARLAB_DEVICE Float8 values_of(const Encoded& e) const {
    const LogValues values(e.range);
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      x.value[i] = e.range.is_finite() ? dequantize(e.codes[i], values, largest_finite<Element>())
                                       : float_of(kNanBits);
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

  /// Of a group whose magnitudes, but for zeros, are from `smallest` to `largest`.
  ARLAB_DEVICE Encoded encode_range(const Float8& x, bool finite, float smallest,
                                    float largest) const {
    Encoded e;
    e.range = finite ? range_of(smallest, largest) : LogRange::nan();
    if (!finite || largest == 0) return e;
    const LogValues values(e.range);
#pragma unroll 1
    for (std::size_t i = 0; i < kPerThread; ++i) {
      e.codes.set(i, quantize(element_at(x, i), values));
    }
    return e;
  }

 private:
  /// Where i is not known at compile time, without an array in memory.
  ARLAB_DEVICE static float element_at(const Float8& x, std::size_t i) {
    float element = 0;
#pragma unroll
    for (std::size_t k = 0; k < kPerThread; ++k) element = k == i ? x.value[k] : element;
    return element;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
