// Codecs whose groups are not whole lanes of one wave: any-bit and logarithmic groups of other
// sizes than 8, 16, ... 256, given scales, one scale for the whole message, NVFP4. Their groups are
// measured first (statistics.h), by kernels of their own; then every thread encodes its eight
// elements by itself.
//
// A codec here has
//   block(elements)        elements that share metadata on the wire
//   group(elements)        elements that are measured together: a block, or the message
//   transform()            0, or the size of the Hadamard transform ahead of everything
//   include(...)           eight elements into their group's Statistics
//   encode, decode         this thread's eight elements
//   limit                  of what is decoded: beyond it nothing goes to the payload
//   store, load            ... in a piece of a wire
//   store_header, load_header, header_bytes()   where kHasHeader: what a message has once
// Without a transform, `decode` gives values of the payload; with one, those before the transform.
#pragma once

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/logfmt.h"
#include "kernels/codecs/statistics.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// As Codec::info().block; the whole message is a block of SIZE_MAX elements.
inline constexpr std::size_t kWholeMessage = SIZE_MAX;

ARLAB_HOST_DEVICE std::size_t blocks_of(std::size_t elements, std::size_t block) {
  return elements / block + (elements % block != 0 ? 1 : 0);
}

/// Where a thread's eight elements are in their group, and how large the group is.
struct GroupPosition {
  std::size_t index;     ///< of the first
  std::size_t elements;  ///< of the group; less at the end of a message
  std::size_t count;     ///< of the eight, how many exist
};

// ---------------------------------------------------------------- any-bit integers

struct MeasuredAnyBitParameters {
  AnyBitParameters format = {};  ///< but for `group`
  std::size_t block = 0;         ///< or kWholeMessage
  bool given = false;            ///< scale and zero are given, nothing but finiteness is measured
  float given_scale = 0;
  float given_zero = 0;
};

template <class Number>
struct MeasuredAnyBit : private AnyBit<Number> {
  using Base = AnyBit<Number>;
  using Encoded = typename Base::Encoded;
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = false;

  std::size_t block_elements;
  bool given;
  float given_scale;
  float given_zero;

  ARLAB_HOST_DEVICE explicit MeasuredAnyBit(const MeasuredAnyBitParameters& p)
      : Base(p.format),
        block_elements(p.block),
        given(p.given),
        given_scale(p.given_scale),
        given_zero(p.given_zero) {}

  ARLAB_HOST_DEVICE unsigned code_bits() const { return Base::bits; }
  ARLAB_HOST_DEVICE std::size_t block(std::size_t elements) const {
    return block_elements == kWholeMessage ? elements : block_elements;
  }
  ARLAB_HOST_DEVICE std::size_t group(std::size_t elements) const { return block(elements); }
  ARLAB_HOST_DEVICE std::size_t transform() const { return 0; }
  ARLAB_HOST_DEVICE std::size_t metadata_bytes() const {
    if (given) return 1;
    const std::size_t word = Base::word_bytes();
    const std::size_t scales = Base::symmetric ? word : 2 * word;
    return Base::spikes == Spikes::none ? scales : scales + 2 * Base::kElementBytes + 2 * word;
  }

  ARLAB_DEVICE void include(Statistics& s, const Floats8& x, const GroupPosition& at) const {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= at.count) continue;
      const auto index = static_cast<std::uint32_t>(at.index + i);
      s.include_low(x.value[i], index);
      s.include_high(x.value[i], index);
      if (!is_finite(x.value[i])) s.non_finite = 1;
    }
  }

  ARLAB_DEVICE Encoded encode(const Floats8& elements, const Statistics& s,
                              const GroupPosition& at) const {
    Floats8 x = elements;
    Encoded e;
    float mn = s.low;
    float mx = s.high;
    if (Base::spikes != Spikes::none) {
      e.minimum = Number::from_float(s.low);
      e.maximum = Number::from_float(s.high);
      e.minimum_index = s.low_index;
      e.maximum_index = s.high_index;
      const auto mine = static_cast<std::uint32_t>(at.index);
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        if (s.low_index == mine + i || s.high_index == mine + i) x.value[i] = 0;
      }
      // The spikes are now zeros. Other elements, if there are any, lie between the second ones:
      // of two elements that differ both are spikes.
      const std::size_t spikes = s.low_index == s.high_index ? 1 : 2;
      mn = at.elements > spikes ? min_of(0.0f, s.second_low) : 0.0f;
      mx = at.elements > spikes ? max_of(0.0f, s.second_high) : 0.0f;
    }
    typename Base::Scale scale;
    if (given) {
      scale.value = given_scale;
      scale.zero = given_zero;
    } else {
      scale = Base::scale_of_range(mn, mx);
    }
    if (s.non_finite == 0 && is_finite(scale.value) && is_finite(scale.zero)) {
      Base::quantize(x, scale, e);
      if (given) e.scales = 0;
    } else {
      e = Base::non_finite();
      if (given) e.scales = kGivenNonFinite;
    }
    return e;
  }

  ARLAB_DEVICE Floats8 decode(const Encoded& e, std::size_t index) const {
    return Base::dequantize(e, scale_of(e), index);
  }
  ARLAB_DEVICE float limit(const Encoded& e) const { return Base::limit_of(e, scale_of(e)); }
  /// True when the whole block decodes to NaN.
  ARLAB_DEVICE bool is_nan(const Encoded& e) const {
    return given ? e.scale() == kGivenNonFinite : Base::is_non_finite(e, Base::scale_of_wire(e));
  }

  ARLAB_DEVICE void store(const Encoded& e, const WirePiece& piece) const {
    if (!given) return Base::store_piece(e, piece);
    store_planes(e.codes, code_bits(), piece.planes, piece.codes, piece.first, piece.count);
    if (!piece.is_first_of_group) return;
    *MetadataArrays(piece, code_bits()).next(1) = static_cast<std::uint8_t>(e.scale());
  }
  ARLAB_DEVICE Encoded load(const WirePiece& piece) const {
    if (!given) return Base::load_piece(piece);
    Encoded e;
    e.codes = load_planes(code_bits(), piece.planes, piece.codes, piece.first, piece.count);
    e.scales = *MetadataArrays(piece, code_bits()).next(1);
    return e;
  }

 private:
  ARLAB_DEVICE typename Base::Scale scale_of(const Encoded& e) const {
    if (given) return {given_scale, given_zero};
    return Base::scale_of_wire(e);
  }

  static constexpr std::uint32_t kGivenNonFinite = 0xFF;
};

struct MeasuredHadamardParameters {
  MeasuredAnyBitParameters integers = {};
  float scale = 0;  ///< RN(1 / sqrt(block), fp32)
};

/// The same behind a transform of a block. A kernel of its own: the transform takes registers.
template <class Number>
struct MeasuredHadamard : MeasuredAnyBit<Number> {
  static constexpr bool kTransforms = true;
  float transform_scale;

  ARLAB_HOST_DEVICE explicit MeasuredHadamard(const MeasuredHadamardParameters& p)
      : MeasuredAnyBit<Number>(p.integers), transform_scale(p.scale) {}

  ARLAB_HOST_DEVICE std::size_t transform() const { return this->block_elements; }
};

// ---------------------------------------------------------------- logarithmic values

struct MeasuredLogFmtParameters {
  unsigned bits = 0;
  std::size_t block = 0;
};

template <class Number>
struct MeasuredLogFmt : private LogFmt<Number> {
  using Base = LogFmt<Number>;
  using Encoded = typename Base::Encoded;
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = false;

  std::size_t block_elements;

  ARLAB_HOST_DEVICE explicit MeasuredLogFmt(const MeasuredLogFmtParameters& p)
      : Base(LogFmtParameters{p.bits, {}}), block_elements(p.block) {}

  ARLAB_HOST_DEVICE unsigned code_bits() const { return Base::bits; }
  ARLAB_HOST_DEVICE std::size_t block(std::size_t) const { return block_elements; }
  ARLAB_HOST_DEVICE std::size_t group(std::size_t) const { return block_elements; }
  ARLAB_HOST_DEVICE std::size_t transform() const { return 0; }
  ARLAB_HOST_DEVICE std::size_t metadata_bytes() const { return 4; }

  /// Of magnitudes; the smallest is that of the elements that are not zero.
  ARLAB_DEVICE void include(Statistics& s, const Floats8& x, const GroupPosition& at) const {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= at.count) continue;
      const float magnitude = magnitude_of(x.value[i]);
      if (magnitude != 0) s.low = min_of(s.low, magnitude);
      s.high = max_of(s.high, magnitude);
      if (!is_finite(magnitude)) s.non_finite = 1;
    }
  }
  ARLAB_DEVICE Encoded encode(const Floats8& x, const Statistics& s, const GroupPosition&) const {
    return Base::encode_range(x, s.non_finite == 0, s.low, s.high);
  }
  ARLAB_DEVICE Floats8 decode(const Encoded& e, std::size_t) const { return Base::values_of(e); }
  // `decode` sees to these.
  ARLAB_DEVICE float limit(const Encoded&) const { return kInfinity32; }
  ARLAB_DEVICE bool is_nan(const Encoded&) const { return false; }
  ARLAB_DEVICE void store(const Encoded& e, const WirePiece& piece) const {
    Base::store_piece(e, piece);
  }
  ARLAB_DEVICE Encoded load(const WirePiece& piece) const { return Base::load_piece(piece); }
};

// ---------------------------------------------------------------- NVFP4

struct NvFp4Parameters {
  bool vllm = false;   ///< roundings as in vLLM's kernel
  bool given = false;  ///< the tensor scale; nothing is measured, and it is not on the wire
  float given_scale = 0;
};

/// nvfp4*: reference/codecs/SPEC.md, "NVFP4 (nvfp4)". Its blocks of 16 are two lanes; what is
/// measured first is the largest magnitude of the message.
template <class Number>
struct NvFp4 {
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = true;
  static constexpr std::size_t kBlock = 16;
  static constexpr std::uint8_t kNan = 0x7F;

  struct Encoded {
    Codes8 codes;
    std::uint8_t scale = 0;
    float tensor_scale = 0;
  };

  bool vllm;
  bool given;
  float given_scale;

  ARLAB_HOST_DEVICE explicit NvFp4(const NvFp4Parameters& p)
      : vllm(p.vllm), given(p.given), given_scale(p.given_scale) {}

  ARLAB_HOST_DEVICE std::size_t header_bytes() const { return given ? 0 : 4; }

  ARLAB_HOST_DEVICE unsigned code_bits() const { return 4; }
  ARLAB_HOST_DEVICE std::size_t block(std::size_t) const { return kBlock; }
  ARLAB_HOST_DEVICE std::size_t group(std::size_t elements) const { return elements; }
  ARLAB_HOST_DEVICE std::size_t transform() const { return 0; }
  ARLAB_HOST_DEVICE std::size_t metadata_bytes() const { return 1; }

  ARLAB_DEVICE void include(Statistics& s, const Floats8& x, const GroupPosition& at) const {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i < at.count && is_finite(x.value[i])) s.high = max_of(s.high, magnitude_of(x.value[i]));
    }
  }

  // Formats are copied here and below: nvcc's device code sees their values, not the objects.

  ARLAB_DEVICE Encoded encode(const Floats8& x, const Statistics& s,
                              const GroupPosition& at) const {
    const bool finite = group_is_finite(x, at.count, 2);
    float amax = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) amax = max_of(amax, magnitude_of(x.value[i]));
    amax = combine_lanes(amax, 2, [](float a, float b) { return max_of(a, b); });
    Encoded e;
    // The bound keeps g / scale finite for the smallest scale.
    e.tensor_scale = s.high > 0 ? min_of(448.0f * 6.0f / s.high, 0x1p118f) : 1.0f;
    if (given) e.tensor_scale = given_scale;
    if (!finite) e.scale = kNan;
    if (!finite) return e;
    const float g = e.tensor_scale;
    const float wanted = vllm ? g * (amax * (1.0f / 6.0f)) : g * amax / 6.0f;
    e.scale = static_cast<std::uint8_t>(
        minifloat_from_float(Minifloat{kE4m3fn}, wanted, Overflow::saturate));
    if (e.scale == 0) return e;
    const float scale = minifloat_to_float(Minifloat{kE4m3fn}, e.scale);
    const float multiplier = vllm ? 1.0f / (scale * (1.0f / g)) : g / scale;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      e.codes.set(
          i, minifloat_from_float(Minifloat{kE2m1}, x.value[i] * multiplier, Overflow::saturate));
    }
    return e;
  }
  ARLAB_DEVICE Floats8 decode(const Encoded& e, std::size_t) const {
    const float multiplier = minifloat_to_float(Minifloat{kE4m3fn}, e.scale) / e.tensor_scale;
    Floats8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      x.value[i] = minifloat_to_float(Minifloat{kE2m1}, e.codes[i]) * multiplier;
    }
    return x;
  }
  ARLAB_DEVICE float limit(const Encoded&) const { return kInfinity32; }
  ARLAB_DEVICE bool is_nan(const Encoded&) const { return false; }

  ARLAB_DEVICE void store(const Encoded& e, const WirePiece& piece) const {
    store_planes(e.codes, 4, piece.planes, piece.codes, piece.first, piece.count);
    if (piece.is_first_of_group) *MetadataArrays(piece, 4).next(1) = e.scale;
  }
  ARLAB_DEVICE Encoded load(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(4, piece.planes, piece.codes, piece.first, piece.count);
    e.scale = *MetadataArrays(piece, 4).next(1);
    return e;
  }
  ARLAB_DEVICE void store_header(const Encoded& e, std::uint8_t* header) const {
    if (!given) store_word(header, float_bits(e.tensor_scale));
  }
  ARLAB_DEVICE void load_header(Encoded& e, const std::uint8_t* header) const {
    e.tensor_scale = given ? given_scale : float_of(load_word<std::uint32_t>(header));
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
