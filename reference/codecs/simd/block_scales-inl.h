// The scales of blocks, of microscaling and of NVFP4: from the largest magnitudes of a chunk's
// blocks to what travels and what elements are multiplied by, and back.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_BLOCK_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_BLOCK_SCALES_INL_H_
#undef ARLAB_CODECS_SIMD_BLOCK_SCALES_INL_H_
#else
#define ARLAB_CODECS_SIMD_BLOCK_SCALES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/codecs/microscaling.h"
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/minifloat_codes-inl.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/e8m0.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- scales

template <std::size_t kBlocks>
struct BlockScales {
  alignas(32) float multiplier[kBlocks];  // of the elements; 0 where every code is 0
  alignas(32) std::int16_t one[kBlocks];  // exponent field, in the payload's dtype, of the scale
  bool all_coded;                         // no multiplier is 0
  std::int32_t smallest_one;
};

template <class D>
HWY_INLINE std::int32_t smallest_lane(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MinOfLanes(d, v));
}

/// OCP microscaling.
template <class Format>
struct Microscaling {
  static constexpr std::size_t kBlock = 32;
  static constexpr std::size_t kHeaderBytes = 0;
  static constexpr std::size_t kBlocks = kWireChunk / kBlock;
  using Element = Format;
  using Scales = BlockScales<kBlocks>;

  template <class Payload>
  static float header(std::span<const typename Payload::Element>) {
    return 0;
  }

  /// Scale bytes, multipliers and exponents of so many blocks, a multiple of 8, from their largest
  /// magnitudes.
  template <class Payload>
  static HWY_INLINE void find_scales(const typename Payload::Element* largest, std::size_t blocks,
                                     ExponentRule rule, float, std::uint8_t* bytes,
                                     Scales& scales) {
    constexpr std::int32_t kHalf = 1 << (23 - Format::kMantissa - 1);
    // What carries into the exponent of a magnitude that is to count as the next power of two.
    // Subnormal magnitudes are so small that they get the smallest exponent by every rule; a quotient
    // does up to 2^-127, which is the smallest scale.
    static_assert(Format::kEmax >= 2);
    const std::int32_t carry = rule == ExponentRule::floor  ? 0
                               : rule == ExponentRule::even ? kHalf
                                                            : 0x7FFFFF;
    const bool divides = rule == ExponentRule::rceil;
    const std::int32_t emax = divides ? 0 : Format::kEmax;
    auto all_coded = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    Int32Vector smallest = hn::Set(I32(), 1000);
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const FloatVector x = Payload::load(largest + b);
      const Int32Vector bits = hn::BitCast(I32(), x);
      const Int32Vector rounded =
          divides ? hn::BitCast(I32(), hn::Div(x, hn::Set(F32(), Format::kLargest))) : bits;
      const Int32Vector field = hn::ShiftRight<23>(hn::Add(rounded, hn::Set(I32(), carry)));
      const Int32Vector above = hn::Min(
          hn::Max(hn::Sub(field, hn::Set(I32(), emax)), hn::Zero(I32())), hn::Set(I32(), 254));
      const Int32Vector code =
          hn::IfThenZeroElse(hn::Lt(rounded, hn::Set(I32(), 0x00400001)), above);
      const auto is_zero = hn::Eq(bits, hn::Zero(I32()));
      const auto is_finite = hn::Lt(bits, hn::Set(I32(), 0x7F800000));
      const auto is_coded = hn::AndNot(is_zero, is_finite);
      const Int32Vector byte = hn::IfThenElse(is_finite, hn::IfThenZeroElse(is_zero, code),
                                              hn::Set(I32(), std::int32_t{kE8m0Nan}));
      hn::StoreU(hn::DemoteTo(QuarterU8(), byte), QuarterU8(), bytes + b);
      // 2^(127 - code); 2^-127 is subnormal.
      const Int32Vector inverse = hn::Max(hn::ShiftLeft<23>(hn::Sub(hn::Set(I32(), 254), code)),
                                          hn::Set(I32(), 0x00400000));
      hn::Store(hn::BitCast(F32(), hn::IfThenElseZero(is_coded, inverse)), F32(),
                scales.multiplier + b);
      if constexpr (Payload::kIsWord) {
        const Int32Vector one = hn::IfThenElse(
            is_coded, hn::Add(code, hn::Set(I32(), Payload::kBias - 127)), hn::Set(I32(), 16));
        hn::StoreU(hn::DemoteTo(HalfI16(), one), HalfI16(), scales.one + b);
        smallest = hn::Min(smallest, one);
      }
      all_coded = hn::And(all_coded, is_coded);
    }
    scales.all_coded = hn::AllTrue(I32(), all_coded);
    scales.smallest_one = smallest_lane(I32(), smallest);
  }

  static float multiplier(std::uint8_t scale, float) { return e8m0_to_float(scale); }

  /// What decoding multiplies a block's values by, times 2^kFold. False when that is not finite for
  /// all blocks.
  template <int kFold>
  static HWY_INLINE bool find_multipliers(const std::uint8_t* bytes, std::size_t blocks, float,
                                          float* multipliers) {
    auto all = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const Int32Vector code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), bytes + b));
      const Int32Vector field = hn::Add(code, hn::Set(I32(), kFold));
      const Int32Vector power = hn::Max(hn::ShiftLeft<23>(field), hn::Set(I32(), 0x00400000));
      hn::Store(hn::BitCast(F32(), power), F32(), multipliers + b);
      all = hn::And(all, hn::Lt(code, hn::Set(I32(), 255 - kFold)));
    }
    return hn::AllTrue(I32(), all);
  }
  template <int kFold>
  static bool is_ordinary(std::uint8_t scale, float) {
    return scale < 255 - kFold;
  }
  /// Powers of two may be multiplied in any order.
  static constexpr bool kFolds = true;
};

/// Largest magnitude of the finite elements, of 16-bit patterns.
HWY_INLINE std::uint16_t largest_finite(const std::uint16_t* x, std::size_t count,
                                        std::uint16_t infinity) {
  // The first pass takes all elements, which is enough when it finds no infinity and no NaN.
  for (const bool all : {true, false}) {
    const Int16Vector limit = hn::Set(I16(), static_cast<std::int16_t>(infinity));
    Int16Vector largest[4] = {hn::Zero(I16()), hn::Zero(I16()), hn::Zero(I16()), hn::Zero(I16())};
    std::size_t i = 0;
    for (; i + 4 * kWords <= count; i += 4 * kWords) {
      for (std::size_t j = 0; j < 4; ++j) {
        Int16Vector m = magnitudes(x + i + j * kWords);
        if (!all) m = hn::IfThenElseZero(hn::Lt(m, limit), m);
        largest[j] = hn::Max(largest[j], m);
      }
    }
    alignas(32) std::int16_t lanes[kWords];
    hn::Store(hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3])), I16(),
              lanes);
    std::int16_t result = *std::max_element(lanes, lanes + kWords);
    for (; i < count; ++i) {
      const auto m = static_cast<std::int16_t>(x[i] & 0x7FFF);
      if (all || m < static_cast<std::int16_t>(infinity)) result = std::max(result, m);
    }
    if (!all || result < static_cast<std::int16_t>(infinity)) {
      return static_cast<std::uint16_t>(result);
    }
  }
  return 0;
}

HWY_INLINE float largest_finite(const float* x, std::size_t count) {
  FloatVector largest = hn::Zero(F32());
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const FloatVector m = hn::Abs(hn::LoadU(F32(), x + i));
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Lt(m, hn::Inf(F32())), m));
  }
  float result = hn::GetLane(hn::MaxOfLanes(F32(), largest));
  for (; i < count; ++i) {
    if (std::isfinite(x[i])) result = std::max(result, std::abs(x[i]));
  }
  return result;
}

/// NVFP4.
struct NvFp4 {
  static constexpr std::size_t kBlock = 16;
  static constexpr std::size_t kHeaderBytes = sizeof(float);
  static constexpr std::size_t kBlocks = kWireChunk / kBlock;
  using Element = E2M1;
  using Scales = BlockScales<kBlocks>;

  template <class Payload>
  static float header(std::span<const typename Payload::Element> x) {
    float amax;
    if constexpr (Payload::kIsWord) {
      amax = Payload::Arithmetic::to_float(largest_finite(x.data(), x.size(), Payload::kInfinity));
    } else {
      amax = largest_finite(x.data(), x.size());
    }
    return amax > 0 ? std::min(448.0f * 6.0f / amax, 0x1p118f) : 1.0f;
  }

  /// The scale bytes alone; whether every block's scale is finite and not 0.
  template <class Payload>
  static HWY_INLINE bool find_scale_bytes(const typename Payload::Element* largest,
                                          std::size_t blocks, float g, std::uint8_t* bytes) {
    const FloatVector tensor_scale = hn::Set(F32(), g);
    auto all_coded = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const auto [code, is_coded] =
          scale_codes(Payload::load(largest + b), tensor_scale, bytes + b);
      all_coded = hn::And(all_coded, is_coded);
    }
    return hn::AllTrue(I32(), all_coded);
  }

  template <class Payload>
  static HWY_INLINE void find_scales(const typename Payload::Element* largest, std::size_t blocks,
                                     ExponentRule, float g, std::uint8_t* bytes, Scales& scales) {
    const FloatVector tensor_scale = hn::Set(F32(), g);
    auto all_coded = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const auto [code, is_coded] =
          scale_codes(Payload::load(largest + b), tensor_scale, bytes + b);
      // As fp16, whose exponent has 8 more of bias.
      const auto half = hn::TruncateTo(HalfU16(), hn::ShiftLeft<7>(hn::BitCast(U32(), code)));
      const FloatVector s = hn::Mul(HalfLanes::to_float(half), hn::Set(F32(), 0x1p8f));
      const FloatVector multiplier = hn::Div(tensor_scale, s);
      hn::Store(hn::IfThenElseZero(hn::RebindMask(F32(), is_coded), multiplier), F32(),
                scales.multiplier + b);
      all_coded = hn::And(all_coded, is_coded);
    }
    scales.all_coded = hn::AllTrue(I32(), all_coded);
    scales.smallest_one = 0;
  }

  struct ScaleCodes {
    Int32Vector code;
    hn::Mask<I32> is_coded;  // finite and not 0
  };
  /// Stores a byte for each of a vector of blocks whose largest magnitudes are x.
  static HWY_INLINE ScaleCodes scale_codes(FloatVector x, FloatVector tensor_scale,
                                           std::uint8_t* bytes) {
    const auto is_finite = hn::Lt(hn::BitCast(I32(), x), hn::Set(I32(), 0x7F800000));
    const FloatVector wanted = hn::Div(hn::Mul(tensor_scale, x), hn::Set(F32(), 6.0f));
    const Int32Vector code = hn::Min(hn::BitCast(I32(), magnitude_codes<E4M3>(wanted)),
                                     hn::Set(I32(), std::int32_t{E4M3::kTop}));
    const Int32Vector byte = hn::IfThenElse(is_finite, code, hn::Set(I32(), 0x7F));
    hn::StoreU(hn::DemoteTo(QuarterU8(), byte), QuarterU8(), bytes);
    return {code, hn::AndNot(hn::Eq(code, hn::Zero(I32())), is_finite)};
  }

  static float multiplier(std::uint8_t scale, float g) { return e4m3fn_to_float(scale) / g; }

  template <int>
  static HWY_INLINE bool find_multipliers(const std::uint8_t* bytes, std::size_t blocks, float g,
                                          float* multipliers) {
    const FloatVector tensor_scale = hn::Set(F32(), g);
    auto all = hn::Eq(tensor_scale, tensor_scale);  // false for a NaN
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), bytes + b));
      const Uint32Vector magnitude = hn::And(code, hn::Set(U32(), 0x7F));
      const auto half = hn::TruncateTo(HalfU16(), hn::ShiftLeft<7>(magnitude));
      const FloatVector value = hn::Mul(HalfLanes::to_float(half), hn::Set(F32(), 0x1p8f));
      const FloatVector sign = float_of(hn::ShiftLeft<24>(hn::Xor(code, magnitude)));
      const FloatVector s = hn::Or(value, sign);
      const auto is_number =
          hn::RebindMask(F32(), hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7F)));
      const FloatVector multiplier = hn::Div(s, tensor_scale);
      hn::Store(multiplier, F32(), multipliers + b);
      all = hn::And(all, hn::And(is_number, hn::Lt(hn::Abs(multiplier), hn::Inf(F32()))));
    }
    return hn::AllTrue(F32(), all);
  }
  template <int>
  static bool is_ordinary(std::uint8_t scale, float g) {
    return std::isfinite(multiplier(scale, g));
  }
  static constexpr bool kFolds = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
