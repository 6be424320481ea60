// Codecs with a scale of the whole message, of elements of 16 bits: int<b>-gtensor[-sym], nvfp4, nvfp4-vllm and nvfp4-te.
//
// What their scale is made of is one word, the message's range. Blocks of a rank find it together ahead of the elements
// (schedule/run_measured.h); then a tile is encoded as with any other device codec. Beside DeviceCodec, one has
//   no_range()               the range of no elements
//   range_of(x)              that of a thread's eight
//   range_of_both(a, b)      of what has ranges a and b
//   set_range(range)         the message's, for what is encoded from now on
// In a slot, every tile has what a message has once.
#pragma once

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/scaled.h"
#include "reference/codecs/formats/nvfp4.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A kernel that measures and runs any program needs more registers than four blocks would leave it.
inline constexpr Tuning kTuningOfMessages = {
    .resident_blocks = kFastBlocks / 2, .tuned = true, .batch = kFastBatch};
/// Codecs that are told the range of a message before they encode it.
template <class Codec>
inline constexpr bool kMeasures = requires { Codec::no_range(); };

/// int<b>-gtensor[-sym]. A tile is a group as far as its wire goes.
template <class Element, AnyBitKind kKind, unsigned Bits>
struct AnyBitOfMessage : AnyBit<Element, MeasuredAnyBit<kKind, Bits>> {
  using Base = AnyBit<Element, MeasuredAnyBit<kKind, Bits>>;
  static constexpr Tuning kTuning = kTuningOfMessages;

  ARLAB_HOST_DEVICE explicit AnyBitOfMessage(const AnyBitParameters& p) : Base(p) {}

  ARLAB_DEVICE static std::uint32_t no_range() { return splat(Element::kInfinity); }
  ARLAB_DEVICE static std::uint32_t range_of(const Pack8<Element>& x) {
    return range_of_group<Element, 0>(x, 0);
  }
  ARLAB_DEVICE static std::uint32_t range_of_both(std::uint32_t a, std::uint32_t b) {
    return min_pair<Element>(a, b);
  }
  ARLAB_DEVICE void set_range(std::uint32_t range) { this->range = range; }
};

/// Blocks of NVFP4 with the conversions that GPUs have: of nvfp4-ts<g> and nvfp4-vllm-ts<g>, whose number is given, and of those below.
struct FastNvFp4Blocks : NvFp4Blocks {
  static constexpr unsigned kBits = 4;

  ARLAB_DEVICE ScaledCode quantize(float x, float factor) const {
    return {e2m1_of_float(x * factor), false};
  }
  ARLAB_DEVICE Float8 values_of(const Codes8& codes, Scale scale) const {
    const float whole = whole_scale(value_of_scale(scale));
    Float8 x = to_floats(bfloats_of_e2m1(codes.even | codes.odd << 4));
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] *= whole;
    return x;
  }
  ARLAB_DEVICE static float value_of_scale(Scale scale) {
#if defined(ARLAB_HAS_FP8_CONVERSIONS)
    return Fp16::to_float(half2_of_e4m3fn(scale) & 0xFFFF);
#else
    constexpr std::uint32_t kCodeOfOne = 2;
    return NvFp4Blocks{}.dequantize(kCodeOfOne, scale);
#endif
  }
};

/// nvfp4, nvfp4-vllm and nvfp4-te: behind a tile's codes and scales is the number of the message. The range is the largest finite magnitude.
template <class Element>
struct NvFp4OfMessage : Scaled<FastNvFp4Blocks, Element> {
  using Base = Scaled<FastNvFp4Blocks, Element>;
  static constexpr Tuning kTuning = kTuningOfMessages;
  static constexpr std::size_t kTileBytes = Base::kTileBytes + 16;

  struct Encoded {
    typename Base::Encoded blocks;
    float number = 0;
  };

  ARLAB_HOST_DEVICE explicit NvFp4OfMessage(const NvFp4Blocks& format)
      : Base(FastNvFp4Blocks{format}) {}

  ARLAB_DEVICE static std::uint32_t no_range() { return 0; }
  ARLAB_DEVICE static std::uint32_t range_of(const Pack8<Element>& x) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = max_u16x2(largest, x.word[i] & splat(0x7FFF));
    largest = max_of(largest & 0xFFFF, largest >> 16);
    if (largest < Element::kInfinity) return largest;
    largest = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint32_t magnitude = element_bits(x, i) & 0x7FFF;
      if (magnitude < Element::kInfinity) largest = max_of(largest, magnitude);
    }
    return largest;
  }
  ARLAB_DEVICE static std::uint32_t range_of_both(std::uint32_t a, std::uint32_t b) {
    return max_of(a, b);
  }
  ARLAB_DEVICE void set_range(std::uint32_t range) {
    this->number = this->number_of(Element::to_float(range));
  }

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return Base::wire_bytes(elements) + sizeof(float);
  }
  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position at) const {
    return {Base::encode(x, at), this->number};
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    const Float8 x =
        FastNvFp4Blocks{{e.number, this->rounding}}.values_of(e.blocks.codes, e.blocks.scale);
    if constexpr (kHasPackedArithmetic<Element>) {
      const Pack8<Element> pairs = pairs_of_floats<Element>(x);
      if (!any_non_finite(pairs)) return pairs;
    }
    return from_floats<Element>(x);
  }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    Base::store(e.blocks, wire, at);
    if (at.first == 0) store_word(wire + Base::wire_bytes(at.elements), float_bits(e.number));
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    return {Base::load(wire, at),
            float_of(load_word<std::uint32_t>(wire + Base::wire_bytes(at.elements)))};
  }

 private:
  // They would decode by this rank's tensor scale.
  using Base::decode_unchecked;
  using Base::may_be_non_finite;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
