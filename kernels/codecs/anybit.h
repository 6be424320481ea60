// Any-bit integers with bit splitting: int<b>-g<G>[-sym][-sr[-is]], had-int<b>-g<G>[-sym] (spec
// section 2; reference/codecs/anybit.cc is their definition, README.md beside it the wire format).
//
// G = 8, 16, 32, 64, 128 or 256: a group of 1 to 32 lanes. The parameters are values, not types:
// one kernel serves all of the family.
#pragma once

#include "kernels/codecs/wire_piece.h"
#include "reference/codecs/integer_scale.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

enum class Spikes { none, exact, integer_scale };

struct AnyBitParameters {
  unsigned bits = 0;
  LaneGroup group = {};
  bool symmetric = false;
  bool hadamard = false;
  Spikes spikes = Spikes::none;
  float hadamard_scale = 0;  ///< RN(1 / sqrt(group), fp32)
};

template <class Number>
struct AnyBit : AnyBitParameters {
  static constexpr bool kClampsFp16Sums = false;
  static constexpr std::size_t kElementBytes = sizeof(typename Number::Bits);

  ARLAB_HOST_DEVICE explicit AnyBit(const AnyBitParameters& parameters)
      : AnyBitParameters(parameters) {}

  /// Codes, and the metadata of the thread's group as it stands on the wire.
  struct Encoded {
    Codes8 codes;
    std::uint32_t scale = 0;
    std::uint32_t zero = 0;
    std::uint32_t minimum = 0;
    std::uint32_t maximum = 0;
    std::uint32_t minimum_index = 0;
    std::uint32_t maximum_index = 0;
  };

  ARLAB_HOST_DEVICE int lanes() const { return group.lanes(); }
  ARLAB_DEVICE float top() const { return static_cast<float>((1u << bits) - 1); }
  /// The code of the integer 0.
  ARLAB_DEVICE float bias() const {
    return symmetric ? static_cast<float>(1u << (bits - 1)) : 0.0f;
  }

  // ---------------------------------------------------------------- sizes

  ARLAB_HOST_DEVICE std::size_t groups_of(std::size_t elements) const {
    return group.groups_of(elements);
  }
  /// A Hadamard transform fills its last group.
  ARLAB_HOST_DEVICE std::size_t codes_of(std::size_t elements) const {
    return hadamard ? groups_of(elements) * group.size() : elements;
  }
  /// Bytes of one group's scale, zero or index.
  ARLAB_HOST_DEVICE std::size_t word_bytes() const {
    return spikes == Spikes::integer_scale ? 1 : 2;
  }
  ARLAB_HOST_DEVICE std::size_t chunk_bytes(std::size_t elements) const {
    std::size_t per_group = word_bytes() * (symmetric ? 1 : 2);
    if (spikes != Spikes::none) per_group += 2 * kElementBytes + 2 * word_bytes();
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

  ARLAB_DEVICE Encoded encode(const Eight<Number>& payload, Position at) const {
    Floats8 x = to_floats(payload);
    if (hadamard) {
      // What is behind the end takes part as +0; a decoded sum holds other values there.
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        if (i >= at.count()) x.value[i] = 0;
      }
      transform(x);
    }
    const std::size_t count = hadamard ? kPerThread : at.count();
    bool finite = group_is_finite(x, count, lanes());
    Encoded e;
    if (spikes != Spikes::none) reserve_spikes(x, count, e);
    const Scale scale = measure(x, count);
    // Only now: lanes of other groups exchange values in there, too.
    finite = finite && is_finite(scale.value) && is_finite(scale.zero);
    if (finite) {
      quantize(x, scale, e);
    } else {
      e = non_finite();
    }
    return e;
  }

  // ---------------------------------------------------------------- decode

  ARLAB_DEVICE Eight<Number> decode(const Encoded& e, Position at) const {
    const Scale scale = scale_of_wire(e);
    Floats8 x = dequantize(e, scale, group.index_in_group(at.first));
    if (hadamard) transform(x);
    if (is_non_finite(e, scale)) x = all_nan();
    return from_floats<Number>(x);
  }

  // ---------------------------------------------------------------- wire

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    const std::size_t count = code_count(at);
    if (count != 0) store_piece(e, piece_of(wire, at, count));
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    const std::size_t count = code_count(at);
    if (count == 0) return {};
    return load_piece(piece_of(const_cast<std::uint8_t*>(wire), at, count));
  }

 protected:
  /// Of a wire of full-sized wire chunks.
  ARLAB_DEVICE WirePiece piece_of(std::uint8_t* wire, Position at, std::size_t count) const {
    const WireChunk chunk = chunk_of(wire, at, chunk_bytes(WireChunk::kElements));
    return {chunk.planes,
            codes_of(chunk.elements),
            chunk.first,
            count,
            groups_of(chunk.elements),
            group.group_of(chunk.first),
            group.index_in_group(chunk.first) == 0};
  }

  ARLAB_DEVICE void store_piece(const Encoded& e, const WirePiece& piece) const {
    store_planes(e.codes, bits, piece.planes, piece.codes, piece.first, piece.count);
    if (!piece.is_first_of_group) return;
    MetadataArrays array(piece, bits);
    store_metadata(array.next(word_bytes()), e.scale, word_bytes());
    if (!symmetric) store_metadata(array.next(word_bytes()), e.zero, word_bytes());
    if (spikes == Spikes::none) return;
    store_metadata(array.next(kElementBytes), e.minimum, kElementBytes);
    store_metadata(array.next(kElementBytes), e.maximum, kElementBytes);
    store_metadata(array.next(word_bytes()), e.minimum_index, word_bytes());
    store_metadata(array.next(word_bytes()), e.maximum_index, word_bytes());
  }

  ARLAB_DEVICE Encoded load_piece(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(bits, piece.planes, piece.codes, piece.first, piece.count);
    MetadataArrays array(piece, bits);
    e.scale = load_metadata(array.next(word_bytes()), word_bytes());
    if (!symmetric) e.zero = load_metadata(array.next(word_bytes()), word_bytes());
    if (spikes == Spikes::none) return e;
    e.minimum = load_metadata(array.next(kElementBytes), kElementBytes);
    e.maximum = load_metadata(array.next(kElementBytes), kElementBytes);
    e.minimum_index = load_metadata(array.next(word_bytes()), word_bytes());
    e.maximum_index = load_metadata(array.next(word_bytes()), word_bytes());
    return e;
  }

  struct Scale {
    float value = 0;  ///< as the decoder uses it
    float zero = 0;
    int code = 0;  ///< with integer scales
  };

  ARLAB_DEVICE static void store_metadata(std::uint8_t* at, std::uint32_t word, std::size_t bytes) {
    if (bytes == 1) *at = static_cast<std::uint8_t>(word);
    if (bytes == 2) store_word(at, static_cast<std::uint16_t>(word));
    if (bytes == 4) store_word(at, word);
  }
  ARLAB_DEVICE static std::uint32_t load_metadata(const std::uint8_t* at, std::size_t bytes) {
    if (bytes == 1) return *at;
    if (bytes == 2) return load_word<std::uint16_t>(at);
    return load_word<std::uint32_t>(at);
  }

  /// Block Hadamard transform in Sylvester order (spec section 3): strides 1, 2, 4 inside a
  /// thread, the others between lanes.
  ARLAB_DEVICE void transform(Floats8& x) const {
    transform_thread(x);
#pragma unroll 1
    for (int mask = 1; mask < lanes(); mask *= 2) {
      const bool upper = (static_cast<int>(threadIdx.x) & mask) != 0;
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        const float other = exchange_xor(x.value[i], mask, 32);
        x.value[i] = upper ? other - x.value[i] : x.value[i] + other;
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
  ARLAB_DEVICE Spike first_extreme(const Floats8& x, std::size_t count, float none,
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
      const Spike other{exchange_xor(best.value, mask, 32), exchange_xor(best.index, mask, 32)};
      const bool equal = !before(other.value, best.value) && !before(best.value, other.value);
      if (before(other.value, best.value) || (equal && other.index < best.index)) best = other;
    }
    return best;
  }

  /// Takes the first minimum and the first maximum out of the group, to travel as they are.
  ARLAB_DEVICE void reserve_spikes(Floats8& x, std::size_t count, Encoded& e) const {
    const Spike low = first_extreme(x, count, kInfinity32, [](float a, float b) { return a < b; });
    const Spike high =
        first_extreme(x, count, -kInfinity32, [](float a, float b) { return a > b; });
    e.minimum = Number::from_float(low.value);
    e.maximum = Number::from_float(high.value);
    e.minimum_index = low.index;
    e.maximum_index = high.index;
    const std::uint32_t mine = threadIdx.x % static_cast<unsigned>(lanes()) * 8;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (low.index == mine + i || high.index == mine + i) x.value[i] = 0;
    }
  }

  /// RN to bf16, with +0 for -0.
  ARLAB_DEVICE static float bf16_metadata(float x) {
    return Bf16::to_float(Bf16::from_float(x)) + 0.0f;
  }

  ARLAB_DEVICE Scale measure(const Floats8& x, std::size_t count) const {
    float mn = kInfinity32;
    float mx = -kInfinity32;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= count) continue;
      mn = min_of(mn, x.value[i]);
      mx = max_of(mx, x.value[i]);
    }
    mn = combine_lanes(mn, lanes(), [](float a, float b) { return min_of(a, b); });
    mx = combine_lanes(mx, lanes(), [](float a, float b) { return max_of(a, b); });
    return scale_of_range(mn, mx);
  }

  /// Step 1 for a group whose values are from mn to mx.
  ARLAB_DEVICE Scale scale_of_range(float mn, float mx) const {
    Scale scale;
    if (spikes == Spikes::integer_scale) {
      const float exact = bf16_metadata((mx - mn) / top());
      scale.code = integer_scale(exact);
      const float rounded = scale_of(static_cast<std::int8_t>(scale.code));
      scale.value = is_finite(exact) ? rounded : exact;
      scale.zero = clamp_to(round_to_integer(-mn / rounded), -128, 127);
    } else if (symmetric) {
      const auto largest_code = static_cast<float>((1u << (bits - 1)) - 1);
      scale.value = bf16_metadata(max_of(magnitude_of(mn), magnitude_of(mx)) / largest_code);
    } else {
      scale.value = bf16_metadata((mx - mn) / top());
      scale.zero = bf16_metadata(mn);
    }
    return scale;
  }

  /// Step 2: the codes of a finite group, and the scale as it travels.
  ARLAB_DEVICE void quantize(const Floats8& x, const Scale& scale, Encoded& e) const {
    const bool integer = spikes == Spikes::integer_scale;
    const float inverse = 1.0f / scale.value;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      float q = 0;
      if (integer) {
        q = round_to_integer(x.value[i] / scale.value) + scale.zero;
      } else if (is_finite(inverse)) {
        q = round_to_integer((x.value[i] - scale.zero) * inverse);
      }
      e.codes.set(i, static_cast<std::uint32_t>(clamp_to(q + bias(), 0, top())));
    }
    e.scale =
        integer ? static_cast<std::uint32_t>(scale.code) & 0xFF : Bf16::from_float(scale.value);
    if (!symmetric) {
      e.zero = integer ? static_cast<std::uint32_t>(static_cast<int>(scale.zero)) & 0xFF
                       : Bf16::from_float(scale.zero);
    }
  }

  /// What stands for a group with a NaN or an infinity.
  ARLAB_DEVICE Encoded non_finite() const {
    Encoded e;
    e.scale = spikes == Spikes::integer_scale ? 0 : Bf16::kNaN;
    if (spikes == Spikes::integer_scale) e.minimum = Number::from_float(float_of(kNanBits));
    return e;
  }

  ARLAB_DEVICE Scale scale_of_wire(const Encoded& e) const {
    if (spikes == Spikes::integer_scale) {
      return {scale_of(static_cast<std::int8_t>(e.scale)),
              static_cast<float>(static_cast<std::int8_t>(e.zero))};
    }
    return {Bf16::to_float(e.scale), Bf16::to_float(e.zero)};
  }
  ARLAB_DEVICE bool is_non_finite(const Encoded& e, const Scale& scale) const {
    const float marker =
        spikes == Spikes::integer_scale ? Number::to_float(e.minimum) : scale.value;
    return marker != marker;
  }
  ARLAB_DEVICE static Floats8 all_nan() {
    Floats8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] = float_of(kNanBits);
    return x;
  }

  /// Step 3, before the transform. The thread's first element is element `first` of its group.
  ARLAB_DEVICE Floats8 dequantize(const Encoded& e, const Scale& scale, std::size_t first) const {
    Floats8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const auto code = static_cast<float>(e.codes[i]);
      if (spikes == Spikes::integer_scale) {
        x.value[i] = (code - scale.zero) * scale.value;
      } else if (symmetric) {
        x.value[i] = (code - bias()) * scale.value;
      } else {
        x.value[i] = scale.zero + code * scale.value;
      }
    }
    if (spikes == Spikes::none) return x;
    // An index behind the end of a short group stands for no element.
    const auto mine = static_cast<std::uint32_t>(first);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (e.minimum_index == mine + i) x.value[i] = Number::to_float(e.minimum);
      if (e.maximum_index == mine + i) x.value[i] = Number::to_float(e.maximum);
    }
    return x;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
