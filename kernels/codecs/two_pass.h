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
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/statistics.h"
#include "reference/codecs/formats/nvfp4.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// As Codec::info().block; the whole message is a block of SIZE_MAX elements.
inline constexpr std::size_t kWholeMessage = SIZE_MAX;

ARLAB_HOST_DEVICE std::size_t blocks_of(std::size_t elements, std::size_t block) {
  return elements / block + (elements % block != 0 ? 1 : 0);
}

/// Where a thread's eight elements are in their group, and how large the group is.
struct GroupPosition {
  std::size_t index;     ///< the thread's first element
  std::size_t elements;  ///< elements of the group; fewer at the end of a message
  std::size_t count;     ///< how many of the thread's eight exist
};

// ---------------------------------------------------------------- any-bit integers

struct TwoPassAnyBitParameters {
  AnyBitParameters format = {};  ///< but for `group`
  std::size_t block = 0;         ///< or kWholeMessage
  bool given = false;            ///< scale and zero are given, nothing but finiteness is measured
  float given_scale = 0;
  float given_zero = 0;
};

template <class Element>
struct TwoPassAnyBit : private AnyBit<Element> {
  using Base = AnyBit<Element>;
  using Encoded = typename Base::Encoded;
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = false;

  std::size_t block_elements;
  bool given;
  float given_scale;
  float given_zero;

  ARLAB_HOST_DEVICE explicit TwoPassAnyBit(const TwoPassAnyBitParameters& p)
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
    return !Base::has_spikes() ? scales : scales + 2 * Base::kElementBytes + 2 * word;
  }

  ARLAB_DEVICE void include(Statistics& s, const Float8& x, const GroupPosition& at) const {
    if (!Base::has_spikes()) {  // nothing needs to know where the extremes are
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        if (i >= at.count) continue;
        s.low = min_of(s.low, x.value[i]);
        s.high = max_of(s.high, x.value[i]);
        if (!is_finite(x.value[i])) s.non_finite = 1;
      }
      return;
    }
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= at.count) continue;
      const auto index = static_cast<std::uint32_t>(at.index + i);
      s.include_low(x.value[i], index);
      s.include_high(x.value[i], index);
      if (!is_finite(x.value[i])) s.non_finite = 1;
    }
  }

  ARLAB_DEVICE Encoded encode(const Float8& elements, const Statistics& s,
                              const GroupPosition& at) const {
    Float8 x = elements;
    Encoded e;
    float mn = s.low;
    float mx = s.high;
    if (Base::has_spikes()) {
      e.minimum = Element::from_float(s.low);
      e.maximum = Element::from_float(s.high);
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
    const AnyBitScale scale =
        given ? AnyBitScale{given_scale, given_zero} : Base::arithmetic().scale_of(mn, mx);
    if (s.non_finite == 0 && is_finite(scale.value) && is_finite(scale.zero)) {
      if (given || Base::has_integer_scales()) {
        Base::quantize(x, scale, e);
        if (given) e.scales = 0;
      } else {
        Base::quantize_measured(x, scale, e);
      }
    } else {
      e = Base::non_finite();
      if (given) e.scales = kGivenNonFinite;
    }
    return e;
  }

  ARLAB_DEVICE Float8 decode(const Encoded& e, std::size_t index) const {
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
  ARLAB_DEVICE AnyBitScale scale_of(const Encoded& e) const {
    if (given) return {given_scale, given_zero};
    return Base::scale_of_wire(e);
  }

  static constexpr std::uint32_t kGivenNonFinite = 0xFF;
};

struct TwoPassHadamardParameters {
  TwoPassAnyBitParameters integers = {};
  float scale = 0;  ///< RN(1 / sqrt(block), fp32)
};

/// The same behind a transform of a block. A kernel of its own: the transform takes registers.
template <class Element>
struct TwoPassHadamard : TwoPassAnyBit<Element> {
  static constexpr bool kTransforms = true;
  float transform_scale;

  ARLAB_HOST_DEVICE explicit TwoPassHadamard(const TwoPassHadamardParameters& p)
      : TwoPassAnyBit<Element>(p.integers), transform_scale(p.scale) {}

  ARLAB_HOST_DEVICE std::size_t transform() const { return this->block_elements; }
};

// ---------------------------------------------------------------- logarithmic values

struct TwoPassLogFmtParameters {
  unsigned bits = 0;
  std::size_t block = 0;
};

template <class Element>
struct TwoPassLogFmt : private LogFmt<Element> {
  using Base = LogFmt<Element>;
  using Encoded = typename Base::Encoded;
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = false;

  std::size_t block_elements;

  ARLAB_HOST_DEVICE explicit TwoPassLogFmt(const TwoPassLogFmtParameters& p)
      : Base(LogFmtParameters{{p.bits}, {}}), block_elements(p.block) {}

  ARLAB_HOST_DEVICE unsigned code_bits() const { return Base::bits; }
  ARLAB_HOST_DEVICE std::size_t block(std::size_t) const { return block_elements; }
  ARLAB_HOST_DEVICE std::size_t group(std::size_t) const { return block_elements; }
  ARLAB_HOST_DEVICE std::size_t transform() const { return 0; }
  ARLAB_HOST_DEVICE std::size_t metadata_bytes() const { return 4; }

  /// Includes the elements' magnitudes; the smallest is that of the elements that are not zero.
  ARLAB_DEVICE void include(Statistics& s, const Float8& x, const GroupPosition& at) const {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i >= at.count) continue;
      const float magnitude = magnitude_of(x.value[i]);
      if (magnitude != 0) s.low = min_of(s.low, magnitude);
      s.high = max_of(s.high, magnitude);
      if (!is_finite(magnitude)) s.non_finite = 1;
    }
  }
  ARLAB_DEVICE Encoded encode(const Float8& x, const Statistics& s, const GroupPosition&) const {
    return Base::encode_range(x, s.non_finite == 0, s.low, s.high);
  }
  ARLAB_DEVICE Float8 decode(const Encoded& e, std::size_t) const {
    return Base::values_of({Base::bits}, e);
  }
  // `decode` sees to these.
  ARLAB_DEVICE float limit(const Encoded&) const { return kInfinity32; }
  ARLAB_DEVICE bool is_nan(const Encoded&) const { return false; }
  ARLAB_DEVICE void store(const Encoded& e, const WirePiece& piece) const {
    Base::store_piece(e, piece);
  }
  ARLAB_DEVICE Encoded load(const WirePiece& piece) const { return Base::load_piece(piece); }
};

// ---------------------------------------------------------------- NVFP4

/// nvfp4, nvfp4-vllm and nvfp4-te, without the number of the message: its largest magnitude is measured, which makes it. Then blocks are those of NvFp4Blocks: two lanes.
template <class Element>
struct NvFp4 {
  static constexpr bool kClampsFp16Sums = false;
  static constexpr bool kTransforms = false;
  static constexpr bool kHasHeader = true;

  struct Encoded {
    Codes8 codes;
    std::uint8_t scale = 0;
    float number = 0;
  };

  NvFp4Rounding rounding;

  ARLAB_HOST_DEVICE explicit NvFp4(const NvFp4Blocks& blocks) : rounding(blocks.rounding) {}

  ARLAB_HOST_DEVICE std::size_t header_bytes() const { return 4; }

  ARLAB_HOST_DEVICE unsigned code_bits() const { return NvFp4Blocks().bits(); }
  ARLAB_HOST_DEVICE std::size_t block(std::size_t) const { return NvFp4Blocks::kBlock; }
  ARLAB_HOST_DEVICE std::size_t group(std::size_t elements) const { return elements; }
  ARLAB_HOST_DEVICE std::size_t transform() const { return 0; }
  ARLAB_HOST_DEVICE std::size_t metadata_bytes() const { return 1; }

  ARLAB_DEVICE void include(Statistics& s, const Float8& x, const GroupPosition& at) const {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if (i < at.count && is_finite(x.value[i])) s.high = max_of(s.high, magnitude_of(x.value[i]));
    }
  }

  ARLAB_DEVICE Encoded encode(const Float8& x, const Statistics& s, const GroupPosition& at) const {
    // The largest of no finite element is 0, not what statistics begin with.
    const float number = NvFp4Blocks{.rounding = rounding}.number_of(max_of(s.high, 0.0f));
    const auto blocks = encode_scaled(FastNvFp4Blocks{{number, rounding}}, x, at.count);
    return {blocks.codes, blocks.scale, number};
  }
  ARLAB_DEVICE Float8 decode(const Encoded& e, std::size_t) const {
    const float scale =
        NvFp4Blocks{e.number, rounding}.whole_scale(FastNvFp4Blocks::value_of_scale(e.scale));
    Float8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] = float_of_e2m1(e.codes[i]) * scale;
    return x;
  }
  ARLAB_DEVICE float limit(const Encoded&) const { return kInfinity32; }
  ARLAB_DEVICE bool is_nan(const Encoded&) const { return false; }

  ARLAB_DEVICE void store(const Encoded& e, const WirePiece& piece) const {
    store_planes(e.codes, code_bits(), piece.planes, piece.codes, piece.first, piece.count);
    if (piece.is_first_of_group) *MetadataArrays(piece, code_bits()).next(1) = e.scale;
  }
  ARLAB_DEVICE Encoded load(const WirePiece& piece) const {
    Encoded e;
    e.codes = load_planes(code_bits(), piece.planes, piece.codes, piece.first, piece.count);
    e.scale = *MetadataArrays(piece, code_bits()).next(1);
    return e;
  }
  ARLAB_DEVICE void store_header(const Encoded& e, std::uint8_t* header) const {
    store_word(header, float_bits(e.number));
  }
  ARLAB_DEVICE void load_header(Encoded& e, const std::uint8_t* header) const {
    e.number = float_of(load_word<std::uint32_t>(header));
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
