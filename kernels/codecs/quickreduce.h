// The QuickReduce line codecs: reference/codecs/SPEC.md, "QuickReduce (qr-*)".
//
// A tile is an atom: 256 threads of 8 elements. Eight lanes hold 64 consecutive elements: two
// interleaved blocks of 32, the even elements and the odd ones. Two elements make a word, so the
// low halves of all words are one block and the high halves the other, and packed instructions work
// on both blocks at once. Codes are kept the same way, as "pairs": the code of an even element in
// the low half of a word, that of the odd one after it in the high half.
//
// Arithmetic is packed, in the payload's dtype. What is rare takes the scalar way: non-finite blocks, in
// fp16 finite results that overflow (only decoding and sums can), in bf16 a scale whose inverse is an
// infinity. Without packed bf16 (AMD): fp32 operations, each rounded to bf16.
#pragma once

#include "kernels/codecs/minifloats.h"
#include "reference/codecs/formats/quickreduce.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The codes of eight elements.
struct Pairs {
  std::uint32_t pair[4];
};

// ---------------------------------------------------------------- codes of elements

template <int L, class Element>
struct IntegerCode : QuickReduceIntegers<L> {
  static constexpr int kBound = L;  ///< no value is larger
  static constexpr bool kIsBf16 = Element::kDType == DType::bf16;
  /// bf16 has bits enough for the codes behind its own offset; else they go through fp16.
  static constexpr bool kInBf16 = kIsBf16 && L <= 32;

  /// The bits of 1024 in fp16, or of 128 in bf16, in which a code stands in the low bits.
  static constexpr std::uint32_t kOffset = kInBf16 ? 0x4300 : 0x6400;

  /// The codes of w (pairs): offset + L + w is rounded to an integer by the addition. What lies
  /// outside the codes is moved to the nearest; in fp16 nothing is below them up to L = 32, because
  /// |w| is at most L + L / 256 and rounding (a test tries all).
  ARLAB_DEVICE static std::uint32_t encode_pair(std::uint32_t w) {
    std::uint32_t sum = kInBf16 ? add_bfloat2(w, splat(kOffset + L))
                                : add_half2(kIsBf16 ? half2_of_bfloat2(w) : w, splat(kOffset + L));
    if constexpr (L > 32 || kIsBf16) sum = max_s16x2(sum, splat(kOffset));
    return min_s16x2(sum, splat(kOffset + 2 * L - 1));
  }
  ARLAB_DEVICE static std::uint32_t encode(float w) {
    return kOffset + QuickReduceIntegers<L>::encode(w).bits;
  }

  /// Pairs of the values; exact.
  ARLAB_DEVICE static std::uint32_t decode_pair(std::uint32_t pair) {
    if constexpr (!kIsBf16) return add_half2(pair, splat(0x8000 + kOffset + L));
    if constexpr (kInBf16) return add_bfloat2(pair, splat(0x8000 + kOffset + L));
    // The low seven bits behind 128; less 256, or 128 where the eighth bit is set.
    static_assert(!kIsBf16 || kInBf16 || L == 128);
    return add_bfloat2((pair & splat(0x7F)) | splat(0x4300), (pair & splat(0x80)) ^ splat(0xC380));
  }
  ARLAB_DEVICE static float decode(std::uint32_t code) {
    return QuickReduceIntegers<L>::decode(code - kOffset);
  }
};

template <class Element>
struct Fp8Code : QuickReduceFp8 {
  static constexpr std::uint32_t kOffset = 0;
  static constexpr int kBound = 256;

  ARLAB_DEVICE static std::uint32_t encode(float w) { return QuickReduceFp8::encode(w).bits; }
  ARLAB_DEVICE static std::uint32_t encode_pair(std::uint32_t w) {
#if defined(ARLAB_HAS_E4M3FN)
    // The bias of e4m3fn is less by one, so its code of 2w is the code of w, but for two: what
    // rounds to 240, where e4m3fn has a NaN, and -0, where e4m3fnuz has one.
    constexpr bool kIsBf16 = Element::kDType == DType::bf16;
    constexpr std::uint32_t k232 = kIsBf16 ? 0x4368 : 0x5B40;
    const std::uint32_t twice = add_pair<Element>(w, w);
    const std::uint32_t codes = kIsBf16 ? e4m3fn_of_bfloat2(twice) : e4m3fn_of_half2(twice);
    const std::uint32_t above = (w & splat(0x7FFF)) + splat(0x7FFF - k232);
    const std::uint32_t saturated = codes + (above >> 15 & splat(1));
    return saturated & (is_not(0x80, saturated) * 0xFF);
#else
    return encode(Element::to_float(w & 0xFFFF)) | encode(Element::to_float(w >> 16)) << 16;
#endif
  }
  /// Exponent and mantissa in their places of an fp16 are the value times 2^-7, of a bf16 times
  /// 2^-119. Codes of a NaN are not decoded here.
  ARLAB_DEVICE static std::uint32_t decode_pair(std::uint32_t pair) {
    constexpr bool kIsBf16 = Element::kDType == DType::bf16;
    const std::uint32_t magnitudes = (pair & splat(0x7F)) << (kIsBf16 ? 4 : 7);
    const std::uint32_t signs = (pair & splat(0x80)) << 8;
    return multiply_pair<Element>(magnitudes | signs, splat(kIsBf16 ? 0x7B00 : 0x5800));
  }
  /// Whether a code is the NaN, which no encoder here writes.
  ARLAB_DEVICE static bool has_nan(const Pairs& codes) {
    const std::uint32_t first = codes.pair[0] | codes.pair[1] << 8;
    const std::uint32_t second = codes.pair[2] | codes.pair[3] << 8;
    return (has_nan_byte(first) | has_nan_byte(second)) != 0;
  }

 private:
  /// Returns something other than 0 if a byte is 0x80.
  ARLAB_DEVICE static std::uint32_t has_nan_byte(std::uint32_t bytes) {
    const std::uint32_t zero_where = bytes ^ in_each_byte(0x80);
    return (zero_where - in_each_byte(1)) & bytes & in_each_byte(0x80);
  }
  /// 1 in each half that is not `code`, 0 in others; for codes of up to 8 bits.
  ARLAB_DEVICE static std::uint32_t is_not(std::uint32_t code, std::uint32_t pair) {
    return ((pair ^ splat(code)) + splat(0x7FFF)) >> 15 & splat(1);
  }
};

template <class Element>
struct Fp4Code : QuickReduceFp4 {
  static constexpr std::uint32_t kOffset = 0;
  static constexpr int kBound = 8;

  ARLAB_DEVICE static std::uint32_t encode(float w) { return QuickReduceFp4::encode(w).bits; }
  ARLAB_DEVICE static std::uint32_t encode_pair(std::uint32_t w) {
    return e2m1_of_pair<Element>(w);
  }
  /// As Fp8Code; the value times 2^-14, or 2^-126.
  ARLAB_DEVICE static std::uint32_t decode_pair(std::uint32_t pair) {
    constexpr bool kIsBf16 = Element::kDType == DType::bf16;
    const std::uint32_t magnitudes = (pair & splat(0x7)) << (kIsBf16 ? 6 : 9);
    const std::uint32_t signs = (pair & splat(0x8)) << 12;
    return multiply_pair<Element>(magnitudes | signs, splat(kIsBf16 ? 0x7E80 : 0x7400));
  }
};

// ---------------------------------------------------------------- planes: pairs to wire bytes
// Offsets are from the start of the atom; t is the thread.

/// The low four of `Bits` bits per element: the even elements of a thread in the low half word, the
/// odd in the high.
template <int Bits, std::uint32_t kOffset>
struct NibblePairs {
  static constexpr std::size_t kBytes = std::size_t{4} * kThreads;
  ARLAB_DEVICE static void store(const Pairs& p, std::uint8_t* plane, std::size_t t) {
    std::uint32_t word = 0;
    if constexpr (Bits > 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) word |= (p.pair[i] & splat(0xF)) << (4 * i);
    } else {
      // Instead of a mask for each, one subtraction of what is not code.
      constexpr std::uint32_t kOffsets = splat(kOffset) * 0x1111u;
#pragma unroll
      for (int i = 0; i < 4; ++i) word += p.pair[i] << (4 * i);
      word -= kOffsets;
    }
    reinterpret_cast<std::uint32_t*>(plane)[t] = word;
  }
  ARLAB_DEVICE static void load(Pairs& p, const std::uint8_t* plane, std::size_t t) {
    const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(plane)[t];
#pragma unroll
    for (int i = 0; i < 4; ++i) p.pair[i] |= word >> (4 * i) & splat(0xF);
  }
};

/// `Width` bits per element from bit `Shift` of its code on, in element order.
template <int Width, int Shift, class Word>
struct InOrder {
  static constexpr std::size_t kBytes = sizeof(Word) * kThreads;
  static constexpr std::uint32_t kMask = (1u << Width) - 1;
  ARLAB_DEVICE static void store(const Pairs& p, std::uint8_t* plane, std::size_t t) {
    Word word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = p.pair[i] >> Shift & splat(kMask);
      const std::uint32_t adjacent = (bits | bits >> (16 - Width)) & ((1u << 2 * Width) - 1);
      word = static_cast<Word>(word | static_cast<Word>(adjacent) << (2 * Width * i));
    }
    reinterpret_cast<Word*>(plane)[t] = word;
  }
  ARLAB_DEVICE static void load(Pairs& p, const std::uint8_t* plane, std::size_t t) {
    const Word word = reinterpret_cast<const Word*>(plane)[t];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto adjacent = static_cast<std::uint32_t>(word >> (2 * Width * i));
      const std::uint32_t bits = (adjacent & kMask) | (adjacent >> Width & kMask) << 16;
      p.pair[i] |= bits << Shift;
    }
  }
};

/// Eight bits per element; the bytes of a thread hold its elements in the order 0 2 1 3 4 6 5 7.
struct SwappedBytes {
  static constexpr std::size_t kBytes = std::size_t{8} * kThreads;
  ARLAB_DEVICE static void store(const Pairs& p, std::uint8_t* plane, std::size_t t) {
    auto* words = reinterpret_cast<std::uint32_t*>(plane) + 2 * t;
    words[0] = (p.pair[0] & splat(0xFF)) | (p.pair[1] & splat(0xFF)) << 8;
    words[1] = (p.pair[2] & splat(0xFF)) | (p.pair[3] & splat(0xFF)) << 8;
  }
  ARLAB_DEVICE static void load(Pairs& p, const std::uint8_t* plane, std::size_t t) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(plane) + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i) p.pair[i] |= words[i / 2] >> (i % 2 * 8) & splat(0xFF);
  }
};

template <class Low, class High>
struct TwoPlanes {
  static constexpr std::size_t kBytes = Low::kBytes + High::kBytes;
  ARLAB_DEVICE static void store(const Pairs& p, std::uint8_t* plane, std::size_t t) {
    Low::store(p, plane, t);
    High::store(p, plane + Low::kBytes, t);
  }
  ARLAB_DEVICE static void load(Pairs& p, const std::uint8_t* plane, std::size_t t) {
    Low::load(p, plane, t);
    High::load(p, plane + Low::kBytes, t);
  }
};

// ---------------------------------------------------------------- the six formats

template <class Element>
struct Q3 {
  using Code = IntegerCode<4, Element>;
  using Planes = TwoPlanes<InOrder<2, 0, std::uint16_t>, InOrder<1, 2, std::uint8_t>>;
};
template <class Element>
struct Q4 {
  using Code = IntegerCode<8, Element>;
  using Planes = NibblePairs<4, Code::kOffset>;
};
template <class Element>
struct Q6 {
  using Code = IntegerCode<32, Element>;
  using Planes = TwoPlanes<NibblePairs<6, Code::kOffset>, InOrder<2, 4, std::uint16_t>>;
};
template <class Element>
struct Q8 {
  using Code = IntegerCode<128, Element>;
  using Planes = SwappedBytes;
};
template <class Element>
struct QFp8 {
  using Code = Fp8Code<Element>;
  using Planes = InOrder<8, 0, std::uint64_t>;
};
template <class Element>
struct QFp4 {
  using Code = Fp4Code<Element>;
  using Planes = InOrder<4, 0, std::uint32_t>;
};

// ---------------------------------------------------------------- scales

/// The two scales of a group, as they travel, and what its elements are multiplied with.
struct GroupScales {
  std::uint32_t scale;    // d: even block in the low half
  std::uint32_t inverse;  // e
};

/// Steps 2 and 3 for both blocks. m: the elements that set the scales.
template <class Element, class Code>
ARLAB_DEVICE GroupScales scales_of_blocks(std::uint32_t m) {
  GroupScales group;
  if constexpr (Element::kDType == DType::fp16) {
    group.scale = multiply_half2(m, splat(Fp16Arithmetic::from_float_clamped(Code::kScale)));
    group.inverse = reciprocal_half2(add_half2(group.scale, splat(kQuickReduceEpsilonFp16)));
  } else if constexpr (kHasPackedArithmetic<Element>) {
    // Scales are at most 2^128 / 4, so that no inverse is subnormal.
    group.scale = multiply_bfloat2(m, splat(Bf16Arithmetic::from_float(Code::kScale)));
    group.inverse = reciprocal_bfloat2(add_bfloat2(group.scale, splat(kQuickReduceEpsilonBf16)));
  } else {
    const auto round = [](float x) { return Element::from_float(x); };
    const float k = Element::to_float(round(Code::kScale));
    const auto of_block = [&](std::uint32_t element, std::uint32_t& inverse) {
      const std::uint32_t d = round(Element::to_float(element) * k);
      const std::uint32_t shifted =
          round(Element::to_float(d) + Element::to_float(kQuickReduceEpsilonBf16));
      inverse = (shifted & 0x7FFF) == 0 ? Element::kInfinity | (shifted & 0x8000)
                                        : round(1.0f / Element::to_float(shifted));
      return d;
    };
    std::uint32_t even = 0;
    std::uint32_t odd = 0;
    group.scale = of_block(m & 0xFFFF, even) | of_block(m >> 16, odd) << 16;
    group.inverse = even | odd << 16;
  }
  return group;
}

/// The largest over the eight lanes of a group.
ARLAB_DEVICE std::uint32_t group_max(std::uint32_t v) {
  v = max_u16x2(v, shuffle_xor<1, 8>(v));
  v = max_u16x2(v, shuffle_xor<2, 8>(v));
  return max_u16x2(v, shuffle_xor<7, 8>(v));
}

/// Step 1: the elements that set the two scales.
template <class Element, class Code>
ARLAB_DEVICE std::uint32_t extremes(const Pack8<Element>& x) {
  std::uint32_t largest = 0;
  if constexpr (!Code::kSignedScale) {
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = max_u16x2(largest, x.word[i] & splat(0x7FFF));
    return group_max(largest);
  } else {
    // Turned left by a bit, the sign below the magnitude, the largest is what is looked for: the
    // largest magnitude, and of equal ones the negative.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t w = x.word[i];
      largest = max_u16x2(largest, select_bits(splat(0xFFFE), w << 1, w >> 15));
    }
    largest = group_max(largest);
    return select_bits(splat(0x7FFF), largest >> 1, largest << 15);
  }
}

// ---------------------------------------------------------------- the codec

template <template <class> class Format, class Element>
struct QuickReduce {
  using Code = typename Format<Element>::Code;
  using Planes = typename Format<Element>::Planes;
  struct Encoded {
    Pairs codes;  ///< each with Code::kOffset
    std::uint32_t scales;
    std::uint32_t extremes;  ///< the elements that set the scales; after encoding only
  };
  static constexpr Tuning kTuning = {
      .resident_blocks = kFastBlocks, .tuned = true, .batch = kFastBatch, .pads_tiles = true};
  static constexpr bool kClampsFp16Sums = true;
  static constexpr std::size_t kAtomBytes = Planes::kBytes + kThreads / 8 * 4;
  static constexpr std::size_t kTileBytes = kAtomBytes;

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return (elements + kTile - 1) / kTile * kAtomBytes;
  }

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position) const {
    Encoded e = encode_unchecked(x);
    if (is_non_finite(e)) mark_non_finite(e);
    return e;
  }

  /// Right unless is_non_finite(), and then after mark_non_finite().
  ARLAB_DEVICE Encoded encode_unchecked(const Pack8<Element>& x) const {
    Encoded e;
    e.extremes = extremes<Element, Code>(x);
    const GroupScales group = scales_of_blocks<Element, Code>(e.extremes);
    e.scales = group.scale;
    if constexpr (kHasPackedArithmetic<Element>) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        e.codes.pair[i] = Code::encode_pair(multiply_pair<Element>(x.word[i], group.inverse));
      }
      if constexpr (Element::kDType == DType::bf16) {
        if (is_non_finite(group.inverse)) encode_singly(x, group.inverse, e.codes);
      }
    } else {
      encode_singly(x, group.inverse, e.codes);
    }
    return e;
  }
  /// A block holds a NaN or an infinity.
  ARLAB_DEVICE bool is_non_finite(const Encoded& e) const { return is_non_finite(e.extremes); }
  /// Such a block gets the canonical NaN as scale, and codes 0.
  ARLAB_DEVICE void mark_non_finite(Encoded& e) const {
    const std::uint32_t keep =
        ((e.extremes & 0x7FFF) >= Element::kInfinity ? 0 : 0xFFFFu) |
        ((e.extremes >> 16 & 0x7FFF) >= Element::kInfinity ? 0 : 0xFFFF0000u);
    e.scales = select_bits(keep, e.scales, splat(Element::kNaN));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      e.codes.pair[i] = select_bits(keep, e.codes.pair[i], splat(Code::kOffset));
    }
  }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    std::uint8_t* atom = wire + at.first / kTile * kAtomBytes;
    const std::size_t t = at.first % kTile / kPerThread;
    Planes::store(e.codes, atom, t);
    if (t % 8 == 0) reinterpret_cast<std::uint32_t*>(atom + Planes::kBytes)[t / 8] = e.scales;
  }

  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    const std::uint8_t* atom = wire + at.first / kTile * kAtomBytes;
    const std::size_t t = at.first % kTile / kPerThread;
    constexpr std::uint32_t kOffset = splat(Code::kOffset);
    Encoded e{{{kOffset, kOffset, kOffset, kOffset}},
              reinterpret_cast<const std::uint32_t*>(atom + Planes::kBytes)[t / 8],
              0};
    Planes::load(e.codes, atom, t);
    return e;
  }

  /// Right unless an element of the result is an infinity or a NaN.
  ARLAB_DEVICE Pack8<Element> decode_unchecked(const Encoded& e) const
    requires kHasPackedArithmetic<Element>
  {
    Pack8<Element> values;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values.word[i] = multiply_pair<Element>(Code::decode_pair(e.codes.pair[i]), e.scales);
    }
    return values;
  }

  /// Whether infinities or NaNs may be what decode() gives.
  ARLAB_DEVICE bool may_be_non_finite(const Encoded& e) const {
    if constexpr (requires { Code::has_nan(e.codes); }) {
      if (Code::has_nan(e.codes)) return true;
    }
    if constexpr (Element::kDType != DType::fp16) return is_non_finite(e.scales);
    // With scales up to this nothing overflows, and needs no clamp.
    constexpr std::uint32_t kLargest =
        splat(Fp16Arithmetic::from_float_clamped(65504.0f / Code::kBound));
    return max_u16x2(e.scales & splat(0x7FFF), kLargest) != kLargest;
  }

  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    if constexpr (kHasPackedArithmetic<Element>) {
      const Pack8<Element> values = decode_unchecked(e);
      if (!may_be_non_finite(e)) return values;
    }
    const float even = Element::to_float(e.scales & 0xFFFF);
    const float odd = Element::to_float(e.scales >> 16);
    Float8 values;
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      values.value[2 * i] = Code::decode(e.codes.pair[i] & 0xFFFF) * even;
      values.value[2 * i + 1] = Code::decode(e.codes.pair[i] >> 16) * odd;
    }
    return from_floats<Element, true>(values);
  }

 private:
  ARLAB_DEVICE static void encode_singly(const Pack8<Element>& x, std::uint32_t inverses,
                                         Pairs& codes) {
    const auto code = [](std::uint32_t element, std::uint32_t inverse) {
      const float product = Element::to_float(element) * Element::to_float(inverse);
      return Code::encode(Element::to_float(Element::from_float_clamped(product)));
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      codes.pair[i] =
          code(x.word[i] & 0xFFFF, inverses & 0xFFFF) | code(x.word[i] >> 16, inverses >> 16) << 16;
    }
  }
  /// Whether either element of a pair is a NaN or an infinity.
  ARLAB_DEVICE static bool is_non_finite(std::uint32_t pair) {
    constexpr std::uint32_t kLargest = splat(Element::kInfinity - 1u);
    return max_u16x2(pair & splat(0x7FFF), kLargest) != kLargest;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
