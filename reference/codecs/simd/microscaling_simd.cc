// The block-scaled codecs with vectors. ../SPEC.md, "Microscaling (mx*)" and "NVFP4 (nvfp4)", says
// what is computed, and ../formats/mx.h and nvfp4.h in numbers; here it is in vectors of numbers.
//
// The scalar codec takes chunks with elements that are not finite, with invalid scales or ones too large to be folded into the
// factors of elements, or with codes of NaNs.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/microscaling_simd.cc"
#include <algorithm>
#include <cstring>
#include <optional>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/nvfp4.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/scaled_reference.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/tiles-inl.h"
#include "reference/formats/e8m0.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

using BlockFormat = std::optional<Mx>;  // none: nvfp4

#if ARLAB_HAS_LANES

/// Scales of a tile's blocks, as they travel. Vectors of them may run over the end.
using ScaleBytes = std::uint8_t[kBlockSlots];

// ---------------------------------------------------------------- OCP microscaling

template <class ElementFormat>
struct Microscaling : ByScalarCodec {
  using Format = ElementFormat;
  static constexpr std::size_t kBlock = 32;

  Microscaling(const BlockFormat& format, const Codec& codec, DType type, std::size_t,
               const std::byte*)
      : ByScalarCodec{codec, type}, rule(format->rule) {}

  ExponentRule rule;

  /// Scales and what elements are multiplied by, of blocks whose largest magnitudes are known and
  /// finite. Returns whether no multiplier is 0, which is that of a block of zeros.
  bool find_scales(const float* largest, std::size_t count, std::uint8_t* scales,
                   float* multipliers) const {
    constexpr std::int32_t kHalf = 1 << (23 - Format::kMantissa - 1);
    // A magnitude that counts as the next power of two gets this carry into its exponent. Subnormal magnitudes are so small
    // that they get the smallest exponent by every rule; a quotient does up to 2^-127, which is the smallest scale.
    static_assert(Format::kLargestExponent >= 2);
    const std::int32_t carry = rule == ExponentRule::floor  ? 0
                               : rule == ExponentRule::even ? kHalf
                                                            : 0x7FFFFF;
    const bool divides = rule == ExponentRule::rceil;
    const Int32Vector down = hn::Set(I32(), divides ? 0 : Format::kLargestExponent);
    auto any_zero = hn::Ne(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < count; b += kFloats) {
      const FloatVector x = hn::Load(F32(), largest + b);
      const FloatVector sought = divides ? hn::Div(x, hn::Set(F32(), Format::kLargest)) : x;
      const Int32Vector bits = hn::BitCast(I32(), sought);
      const Int32Vector field = hn::ShiftRight<23>(hn::Add(bits, hn::Set(I32(), carry)));
      const Int32Vector above =
          hn::Min(hn::Max(hn::Sub(field, down), hn::Zero(I32())), hn::Set(I32(), 254));
      const Int32Vector code = hn::IfThenZeroElse(hn::Lt(bits, hn::Set(I32(), 0x00400001)), above);
      hn::StoreU(hn::DemoteTo(QuarterU8(), code), QuarterU8(), scales + b);
      // 2^(127 - code); 2^-127 is subnormal.
      const Int32Vector inverse = hn::Max(hn::ShiftLeft<23>(hn::Sub(hn::Set(I32(), 254), code)),
                                          hn::Set(I32(), 0x00400000));
      const auto is_zero = hn::Eq(hn::BitCast(I32(), x), hn::Zero(I32()));
      hn::Store(hn::BitCast(F32(), hn::IfThenZeroElse(is_zero, inverse)), F32(), multipliers + b);
      any_zero = hn::Or(any_zero, is_zero);
    }
    return hn::AllFalse(I32(), any_zero);
  }

  /// Finds the factors of a block's fp16 patterns in decoding. Powers of two may be multiplied in any order. False when that is
  /// not finite for all blocks.
  static bool find_multipliers(const ScaleBytes& scales, std::size_t count, float* multipliers) {
    constexpr int kFold = Format::kFold;
    auto all = hn::Eq(hn::Zero(I32()), hn::Zero(I32()));
    for (std::size_t b = 0; b < count; b += kFloats) {
      const Int32Vector code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), scales + b));
      const Int32Vector field = hn::Add(code, hn::Set(I32(), kFold));
      const Int32Vector power = hn::Max(hn::ShiftLeft<23>(field), hn::Set(I32(), 0x00400000));
      hn::Store(hn::BitCast(F32(), power), F32(), multipliers + b);
      all = hn::And(all, hn::Lt(code, hn::Set(I32(), 255 - kFold)));
    }
    return hn::AllTrue(I32(), all);
  }
};

// ---------------------------------------------------------------- NVFP4

struct NvFp4 : UsualFamily {
  using Format = E2M1;
  static constexpr std::size_t kBlock = NvFp4Blocks::kBlock;
  static constexpr std::size_t kHeaderBytes = sizeof(float);

  NvFp4(const BlockFormat&, const Codec&, DType type, std::size_t, const std::byte* wire)
      : dtype(type) {
    std::memcpy(&tensor_scale, wire, sizeof(float));
  }

  DType dtype;
  float tensor_scale = 1;

  template <class Payload>
  static void write_header(std::span<const typename Payload::Element> x, std::byte* wire) {
    FloatVector largest = hn::Zero(F32());
    const auto take = [&](const typename Payload::Element* from) HWY_ATTR {
      const FloatVector m = hn::Abs(Payload::load(from));
      largest = hn::Max(largest, hn::IfThenElseZero(hn::Lt(m, hn::Inf(F32())), m));
    };
    std::size_t i = 0;
    for (; i + kFloats <= x.size(); i += kFloats) take(&x[i]);
    typename Payload::Element rest[kFloats] = {};
    std::copy(x.begin() + static_cast<std::ptrdiff_t>(i), x.end(), rest);
    take(rest);
    const float found = NvFp4Blocks().number_of(hn::GetLane(hn::MaxOfLanes(F32(), largest)));
    std::memcpy(wire, &found, sizeof(float));
  }

  NvFp4Blocks blocks() const { return {.number = tensor_scale}; }
  void encode_exactly(std::span<const std::byte> x, std::span<std::byte> wire,
                      EncodeCounts* counts) const {
    const std::uint64_t clamped = encode_scaled(blocks(), dtype, x, wire);
    if (counts != nullptr) counts->clamped += clamped;
  }
  void decode_exactly(std::span<const std::byte> wire, std::span<std::byte> x) const {
    decode_scaled(blocks(), dtype, wire, x);
  }
  void decode_add_exactly(std::span<const std::byte> wire, std::span<std::byte> sum) const {
    alignas(float) std::byte decoded[kTile * sizeof(float)];
    decode_exactly(wire, {decoded, sum.size()});
    add_native(dtype, false, sum, {decoded, sum.size()});
  }

  /// e4m3 codes as what they stand for, without signs.
  static HWY_INLINE FloatVector scales_of(Uint32Vector codes) {
    const auto half = hn::TruncateTo(HalfU16(), hn::ShiftLeft<10 - E4M3::kMantissa>(codes));
    return hn::Mul(HalfLanes::to_float(half), hn::Set(F32(), 0x1p8f));
  }

  bool find_scales(const float* largest, std::size_t count, std::uint8_t* scales,
                   float* multipliers) const {
    const FloatVector given = hn::Set(F32(), tensor_scale);
    std::uint64_t ignored = 0;
    encode_numbers(
        0, count,
        [&](std::size_t b) HWY_ATTR {
          return hn::Div(hn::Mul(given, hn::Load(F32(), largest + b)), hn::Set(F32(), 6.0f));
        },
        [&](const FloatVector(&four)[4])
            HWY_ATTR { return float_codes<E4M3, false>(four, ignored); },
        scales);
    auto any_zero = hn::Ne(hn::Zero(U32()), hn::Zero(U32()));
    for (std::size_t b = 0; b < count; b += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), scales + b));
      const auto is_zero = hn::Eq(code, hn::Zero(U32()));
      const FloatVector multiplier = hn::Div(given, scales_of(code));
      hn::Store(hn::IfThenZeroElse(hn::RebindMask(F32(), is_zero), multiplier), F32(),
                multipliers + b);
      any_zero = hn::Or(any_zero, is_zero);
    }
    return hn::AllFalse(U32(), any_zero);
  }

  bool find_multipliers(const ScaleBytes& scales, std::size_t count, float* multipliers) const {
    const FloatVector given = hn::Set(F32(), tensor_scale);
    auto all = hn::Eq(given, given);  // false for a NaN
    for (std::size_t b = 0; b < count; b += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), scales + b));
      const Uint32Vector magnitude = hn::And(code, hn::Set(U32(), 0x7F));
      const FloatVector sign = float_of(hn::ShiftLeft<24>(hn::Xor(code, magnitude)));
      const FloatVector exact = hn::Div(hn::Or(scales_of(magnitude), sign), given);
      const FloatVector multiplier = hn::Mul(exact, hn::Set(F32(), 1 << Format::kFold));
      hn::Store(multiplier, F32(), multipliers + b);
      const auto is_nan = hn::RebindMask(F32(), hn::Eq(magnitude, hn::Set(U32(), 0x7F)));
      all = hn::And(all, hn::AndNot(is_nan, hn::Lt(hn::Abs(multiplier), hn::Inf(F32()))));
    }
    return hn::AllTrue(F32(), all);
  }
};

// ---------------------------------------------------------------- the family

template <class Standard>
struct BlockScaled : Standard {
  using Standard::Standard;
  using Format = typename Standard::Format;
  static constexpr std::size_t kBlock = Standard::kBlock;

  static constexpr std::size_t chunk() { return kTile; }
  static constexpr std::size_t chunk_bytes(std::size_t elements) {
    return planes_bytes(elements, Format::kBits) + blocks_of(elements, kBlock);
  }

  template <class Payload, bool kCounts>
  bool encode(Tile& tile, std::span<const typename Payload::Element> x, std::byte* wire,
              std::uint64_t& clamped) const {
    alignas(32) float largest[kBlockSlots];
    alignas(32) float multipliers[kBlockSlots];
    ScaleBytes scales;
    const std::size_t count = blocks_of(x.size(), kBlock);
    const std::size_t padded = count * kBlock;  // zeros change no scale and are never clamped
    if (!load_tile<Payload>(x.data(), x.size(), padded, kInfinity, tile.x)) return false;
    const auto magnitude = [](FloatVector v) HWY_ATTR { return Extremes{v, hn::Abs(v)}; };
    find_extremes(tile.x, count, kBlock, magnitude, nullptr, largest);
    const bool all_coded = this->find_scales(largest, count, scales, multipliers);
    for (std::size_t first = 0; first < padded; first += std::max(kBlock, kBytes)) {
      const FloatVector by = hn::Set(F32(), multipliers[first / kBlock]);
      const FloatVector next = hn::Set(F32(), multipliers[first / kBlock + 1]);
      encode_numbers(
          first, first + std::max(kBlock, kBytes),
          [&](std::size_t i) HWY_ATTR {
            return hn::Mul(hn::Load(F32(), tile.x + i), i < first + kBlock ? by : next);
          },
          [&](const FloatVector(&four)[4])
              HWY_ATTR { return float_codes<Format, kCounts>(four, clamped); },
          tile.codes);
    }
    for (std::size_t b = 0; !all_coded && b < count; ++b) {  // without the signs of zeros
      if (multipliers[b] == 0) std::memset(tile.codes + b * kBlock, 0, kBlock);
    }
    pack_tile(tile.codes, x.size(), Format::kBits, planes_at(wire, x.size(), Format::kBits));
    std::memcpy(wire + planes_bytes(x.size(), Format::kBits), scales, count);
    return true;
  }

  template <class Payload>
  bool decode(Tile& tile, const std::byte* wire, std::size_t, std::size_t, std::size_t elements,
              typename Payload::Element* out) const {
    alignas(32) float multipliers[kBlockSlots];
    const std::size_t count = blocks_of(elements, kBlock);
    ScaleBytes scales;
    std::memset(scales + count / 8 * 8, 0, 16);
    std::memcpy(scales, wire + planes_bytes(elements, Format::kBits), count);
    if (!this->find_multipliers(scales, count, multipliers)) return false;
    unpack_tile(planes_at(wire, elements, Format::kBits), elements, Format::kBits, tile.codes);
    if constexpr (Format::kBits == 8) {
      if (has_nan<Format>(tile.codes, elements)) return false;
    }
    if constexpr (Format::kBits == 4 && Payload::kIsWord) {
      // Without 2^kFold, as the patterns.
      alignas(32) static constexpr float kMagnitudes[8] = {
          0, 0x1p-15f, 0x1p-14f, 0x1.8p-14f, 0x1p-13f, 0x1.8p-13f, 0x1p-12f, 0x1.8p-12f};
      const auto products = [&](std::size_t b, std::size_t k) HWY_ATTR {
        return hn::Mul(hn::Load(F32(), kMagnitudes + k), hn::Set(F32(), multipliers[b]));
      };
      decode_by_tables<Payload>(tile.codes, elements, kBlock, products, out);
      return true;
    }
    for (std::size_t i = 0; i < elements; i += kBytes) {
      const auto store = [&](std::size_t at, HalfUint16Vector half) HWY_ATTR {
        const FloatVector by = hn::Set(F32(), multipliers[(i + at) / kBlock]);
        Payload::store(hn::Mul(HalfLanes::to_float(half), by), out + i + at);
      };
      for_each_half<Format>(hn::Load(U8(), tile.codes + i), store);
    }
    return true;
  }
};

template <class F>
void choose_family(const BlockFormat& format, const F& f) {
  if (!format) return f.template operator()<BlockScaled<NvFp4>>();
  const auto choose_if = [&]<class Element>(Element) {
    if (Element::kBits != format->bits()) return;
    if (Element::kMantissa != format->element().mantissa_bits) return;
    f.template operator()<BlockScaled<Microscaling<Element>>>();
  };
  choose_if(E4M3());
  choose_if(E5M2());
  choose_if(E2M3());
  choose_if(E3M2());
  choose_if(E2M1());
}

#endif  // ARLAB_HAS_LANES

CodecFunctions<BlockFormat> microscaling_functions() { return ARLAB_VECTOR_FUNCTIONS(BlockFormat); }
}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(microscaling_functions);

CodecPtr accelerated_microscaling(const CodecPtr& scalar) {
  const std::optional<Mx> format = Mx::parse(scalar->name());
  if (!format && scalar->name() != "nvfp4") return nullptr;
  return accelerated_as(scalar, format,
                        [] { return HWY_DYNAMIC_DISPATCH(microscaling_functions)(); });
}

}  // namespace arlab
#endif  // HWY_ONCE
