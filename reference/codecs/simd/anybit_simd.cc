// The any-bit integer codecs with vectors. ../SPEC.md, "Any-bit integers (int*)", says what is
// computed, and ../formats/anybit.h in numbers; here it is in vectors of numbers.
//
// Left to the scalar codec: chunks with something that is not finite; a last block that is shorter
// than the others, when it has spikes or a transform; and blocks above 4096 elements with those.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/anybit_simd.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/formats/anybit.h"
#include "reference/codecs/integer_scale.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {
#if ARLAB_HAS_LANES

using Metadata = AnyBitFormat::Metadata;

// ---------------------------------------------------------------- blocks

/// Metadata of a tile's blocks.
struct Blocks {
  alignas(32) float zero[kBlockSlots];    // encode: subtracted; decode: added, or subtracted
  alignas(32) float factor[kBlockSlots];  // encode: 1 / scale, or the integer scale; decode: scale
  alignas(32) std::int32_t bias[kBlockSlots];  // encode: added to the integer
  // As they travel. bf16, or int8 in the first bytes.
  alignas(32) std::uint16_t scale_bits[kBlockSlots];
  alignas(32) std::uint16_t zero_bits[kBlockSlots];

  std::int8_t* scale_codes() { return reinterpret_cast<std::int8_t*>(scale_bits); }
  std::int8_t* zero_codes() { return reinterpret_cast<std::int8_t*>(zero_bits); }
};

/// RN to bf16, with +0 for -0; an infinity stays one, and a NaN is not finite.
HWY_INLINE FloatVector bf16_metadata(FloatVector x) {
  return hn::Add(BfloatLanes::to_float(BfloatLanes::from_float(x)), hn::Zero(F32()));
}
HWY_INLINE auto is_finite(FloatVector x) { return hn::Lt(hn::Abs(x), hn::Inf(F32())); }

inline constexpr std::array<float, 256> kIntegerScales = [] {
  std::array<float, 256> scales = {};
  for (int s = -128; s < 128; ++s) {
    scales[static_cast<std::size_t>(s + 128)] = scale_of(static_cast<std::int8_t>(s));
  }
  return scales;
}();

/// integer_scale() of every lane: ten steps per binade, and the mantissa says which of them.
HWY_INLINE Int32Vector integer_scales(FloatVector scale) {
  const Int32Vector bits = hn::BitCast(I32(), scale);
  const Int32Vector exponent = hn::Sub(hn::ShiftRight<23>(bits), hn::Set(I32(), 127));
  const Int32Vector mantissa = hn::And(bits, hn::Set(I32(), 0x007FFFFF));
  Int32Vector s = hn::Mul(exponent, hn::Set(I32(), 10));
  for (std::int8_t k = 1; k < 10; ++k) {
    const auto tenth = std::bit_cast<std::int32_t>(scale_of(k));
    const auto reached = hn::Gt(mantissa, hn::Set(I32(), (tenth & 0x007FFFFF) - 1));
    s = hn::Sub(s, hn::VecFromMask(I32(), reached));
  }
  return hn::Min(hn::Max(s, hn::Set(I32(), -128)), hn::Set(I32(), 127));
}

// ---------------------------------------------------------------- codes

/// Elements in steps of the scale, to be rounded.
///
/// With a measured scale, |q| < 2^26: elements are at most the block's range and the rounding of
/// the zero away from it. Elements that differ are at least 2^-24 of the zero apart, so the
/// rounding, 2^-9 of it, is at most 2^15 ranges; and the scale, when 1 / scale is finite, is at
/// least 2^-9 of the range. Given scales may be any, and where the zero is rounded down, x - zero
/// may be an infinity; the conversion makes -2^31 of what is too large, so that has to be less.
template <bool kDivides>
HWY_INLINE FloatVector scaled(const float* from, FloatVector zero, FloatVector factor) {
  const FloatVector x = hn::LoadU(F32(), from);
  const FloatVector q = kDivides ? hn::Div(x, factor) : hn::Mul(hn::Sub(x, zero), factor);
  return hn::Min(q, hn::Set(F32(), 0x1p30f));
}

// ---------------------------------------------------------------- ../hadamard.h

/// Butterflies of a stride below the number of lanes: a + b in the lane of a, a - b = a + (-b) in
/// the lane of b, which is the same number.
template <std::size_t kStride>
HWY_INLINE FloatVector butterflies_within(FloatVector x) {
  constexpr std::uint32_t kSign = 0x80000000;
  alignas(32) static constexpr std::uint32_t kSigns[8] = {0,
                                                          kStride == 1 ? kSign : 0,
                                                          kStride == 2 ? kSign : 0,
                                                          kStride <= 2 ? kSign : 0,
                                                          kStride == 4 ? kSign : 0,
                                                          kStride != 2 ? kSign : 0,
                                                          kStride != 1 ? kSign : 0,
                                                          kSign};
  const FloatVector negated = float_of(hn::Xor(bits_of(x), hn::Load(U32(), kSigns)));
  if constexpr (kStride == 1) {
    return hn::Add(hn::Shuffle2301(x), negated);
  } else if constexpr (kStride == 2) {
    return hn::Add(hn::Shuffle1032(x), negated);
  } else {
    return hn::Add(hn::ConcatLowerUpper(F32(), x, x), negated);
  }
}

/// As hadamard(), of all blocks of `group` numbers, a power of two from 8 on.
void transform(float* x, std::size_t count, std::size_t group) {
  const FloatVector factor =
      hn::Set(F32(), static_cast<float>(1.0 / std::sqrt(static_cast<double>(group))));
  for (std::size_t i = 0; i < count; i += kFloats) {
    FloatVector v = butterflies_within<2>(butterflies_within<1>(hn::Load(F32(), x + i)));
    if constexpr (kFloats == 8) v = butterflies_within<4>(v);
    hn::Store(group == kFloats ? hn::Mul(v, factor) : v, F32(), x + i);
  }
  for (std::size_t stride = kFloats; stride < group; stride *= 2) {
    const FloatVector by = 2 * stride == group ? factor : hn::Set(F32(), 1.0f);
    for (std::size_t begin = 0; begin < count; begin += 2 * stride) {
      for (std::size_t i = begin; i < begin + stride; i += kFloats) {
        const FloatVector a = hn::Load(F32(), x + i);
        const FloatVector b = hn::Load(F32(), x + i + stride);
        hn::Store(hn::Mul(hn::Add(a, b), by), F32(), x + i);
        hn::Store(hn::Mul(hn::Sub(a, b), by), F32(), x + i + stride);
      }
    }
  }
}

// ---------------------------------------------------------------- the family

struct AnyBit : ByScalarCodec {
  AnyBit(const AnyBitFormat& format, const Codec& codec, DType type, std::size_t elements,
         const std::byte*)
      : ByScalarCodec{codec, type},
        f(format),
        layout(anybit_layout(format, elements)),
        metadata(format, size_of(type)),
        numbers{format.bits, format.symmetric, is_integer()} {}

  const AnyBitFormat& f;
  AnyBitLayout layout;
  AnyBitMetadata metadata;
  AnyBitCodes numbers;

  bool is_integer() const { return f.metadata == Metadata::integer_spikes; }
  bool has_spikes() const { return f.metadata != Metadata::scales; }
  std::uint8_t top() const { return static_cast<std::uint8_t>((1U << f.bits) - 1); }
  std::size_t group() const { return layout.block; }

  std::size_t chunk() const { return layout.chunk; }
  std::size_t chunk_bytes(std::size_t elements) const {
    return anybit_chunk_bytes(f, dtype, elements, layout.block);
  }

  // ---- encode

  /// Step 1, of blocks whose extremes are known, up to a vector of them. False if a scale or a zero
  /// is not finite.
  bool measure(const float* low, const float* high, std::size_t count, Blocks& blocks) const {
    const FloatVector top_code =
        hn::Set(F32(), static_cast<float>((1U << (f.symmetric ? f.bits - 1 : f.bits)) - 1));
    auto finite = hn::Eq(top_code, top_code);
    for (std::size_t b = 0; b < count; b += kFloats) {
      const FloatVector mn = hn::Load(F32(), low + b);
      const FloatVector mx = hn::Load(F32(), high + b);
      FloatVector scale = hn::Set(F32(), f.given ? f.given->scale : 0.0f);
      FloatVector zero = hn::Set(F32(), f.given ? f.given->zero : 0.0f);
      Int32Vector bias = hn::Set(I32(), f.symmetric ? 1 << (f.bits - 1) : 0);
      if (f.symmetric && !f.given) {
        scale = bf16_metadata(hn::Div(hn::Max(hn::Abs(mn), hn::Abs(mx)), top_code));
      } else if (!f.given) {
        scale = bf16_metadata(hn::Div(hn::Sub(mx, mn), top_code));
        zero = bf16_metadata(mn);
      }
      finite = hn::And(finite, hn::And(is_finite(scale), is_finite(zero)));
      if (is_integer()) {
        const Int32Vector code = integer_scales(scale);
        scale = hn::GatherIndex(F32(), kIntegerScales.data(), hn::Add(code, hn::Set(I32(), 128)));
        const FloatVector point = hn::Div(hn::Neg(mn), scale);
        bias =
            nearest_int(hn::Min(hn::Max(point, hn::Set(F32(), -128.0f)), hn::Set(F32(), 127.0f)));
        zero = hn::Zero(F32());
        const hn::Rebind<std::int8_t, F32> bytes;
        hn::StoreU(hn::DemoteTo(bytes, code), bytes, blocks.scale_codes() + b);
        hn::StoreU(hn::DemoteTo(bytes, bias), bytes, blocks.zero_codes() + b);
        hn::Store(scale, F32(), blocks.factor + b);
      } else {
        hn::StoreU(BfloatLanes::upper_words(bits_of(scale)), HalfU16(), blocks.scale_bits + b);
        hn::StoreU(BfloatLanes::upper_words(bits_of(zero)), HalfU16(), blocks.zero_bits + b);
        const FloatVector factor = hn::Div(hn::Set(F32(), 1.0f), scale);
        hn::Store(hn::IfThenElseZero(is_finite(factor), factor), F32(), blocks.factor + b);
      }
      hn::Store(zero, F32(), blocks.zero + b);
      hn::Store(bias, I32(), blocks.bias + b);
    }
    return hn::AllTrue(F32(), finite);
  }

  /// The codes of blocks of `size` numbers, a multiple of 8. Returns how many were clamped.
  template <bool kDivides, bool kCounts>
  std::uint64_t quantize(const float* x, std::size_t count, std::size_t size, const Blocks& blocks,
                         std::uint8_t* codes) const {
    std::uint64_t clamped = 0;
    for (std::size_t b = 0; b < count; ++b) {
      const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
      const FloatVector factor = hn::Set(F32(), blocks.factor[b]);
      const Int16Vector bias = hn::Set(I16(), static_cast<std::int16_t>(blocks.bias[b]));
      const FloatVector code_0 = hn::Set(F32(), static_cast<float>(-blocks.bias[b]));
      // Numbers beyond the end of a block are never clamped, and the next block writes over them.
      const std::size_t end = (b + 1) * size;
      encode_numbers(
          b * size, end,
          [&](std::size_t i)
              HWY_ATTR { return i < end ? scaled<kDivides>(x + i, zero, factor) : code_0; },
          [&](const FloatVector(&four)[4])
              HWY_ATTR { return integer_codes<kCounts>(four, bias, top(), clamped); },
          codes);
    }
    return clamped;
  }
  template <class Payload, bool kCounts>
  bool encode(Tile& tile, std::span<const typename Payload::Element> x, std::byte* wire,
              std::uint64_t& clamped) const {
    using Element = typename Payload::Element;
    const std::size_t size = std::min(rounded_up(group(), 8), kTile);
    const std::size_t count = blocks_of(x.size(), group());
    const std::size_t codes = anybit_codes(f, x.size());
    const bool is_padded = x.size() != count * group();
    if (is_padded && (has_spikes() || f.hadamard)) return false;
    const auto planes = planes_at(wire, codes, f.bits);
    alignas(32) float low[kBlockSlots];
    alignas(32) float high[kBlockSlots];
    alignas(32) std::uint16_t low_index[kBlockSlots];
    alignas(32) std::uint16_t high_index[kBlockSlots];
    Blocks blocks;
    // Fills up the last block of a tile.
    const auto pad = [&](std::size_t elements, std::size_t some, float with) {
      std::fill(tile.x + elements, tile.x + some * size, with);
    };
    using Size = std::size_t;
    const auto code_tile = [&](Size first, Size elements, Size some) HWY_ATTR {
      pad(elements, some, blocks.zero[some - 1]);  // is never clamped
      clamped += is_integer() ? quantize<true, kCounts>(tile.x, some, size, blocks, tile.codes)
                              : quantize<false, kCounts>(tile.x, some, size, blocks, tile.codes);
      pack_tile(tile.codes, elements, f.bits, advanced(planes, first, f.bits));
    };
    bool fits = true;
    float smallest = kInfinity;
    float largest = -kInfinity;
    const auto measure_tile = [&](Size first, Size elements, Size some) HWY_ATTR {
      pad(elements, some, tile.x[(some - 1) * size]);  // changes no extreme
      if (f.hadamard) transform(tile.x, elements, size);
      const auto itself = [](FloatVector v) { return Extremes{v, v}; };
      find_extremes(tile.x, some, size, itself, low, high);
      if (has_spikes()) {  // the first smallest and the first largest number of every block
        for (Size b = 0; b < some; ++b) {
          float* const block = tile.x + b * size;
          low_index[b] = static_cast<std::uint16_t>(hn::Find(F32(), low[b], block, size));
          high_index[b] = static_cast<std::uint16_t>(hn::Find(F32(), high[b], block, size));
          block[low_index[b]] = 0;
          block[high_index[b]] = 0;
        }
        find_extremes(tile.x, some, size, itself, low, high);
      }
      smallest = std::min(smallest, low[0]);
      largest = std::max(largest, high[0]);
      if (group() > kTile) return;
      fits = measure(low, high, some, blocks);
      if (fits) code_tile(first, elements, some);
    };
    const float below = f.hadamard ? 0x1p100f : kInfinity;  // no sum of a transform overflows
    if (!for_each_tile<Payload>(x, size, below, tile.x, measure_tile) || !fits) return false;
    if (group() > kTile) {
      std::fill_n(low, kFloats, smallest);
      std::fill_n(high, kFloats, largest);
      if (!measure(low, high, 1, blocks)) return false;
      for_each_tile<Payload>(x, size, kInfinity, tile.x, code_tile);
    }

    std::byte* out = write_scales(blocks, count, wire + planes_bytes(codes, f.bits));
    if (!has_spikes()) return true;
    for (const auto* index : {low_index, high_index}) {
      for (std::size_t b = 0; b < count; ++b) put<Element>(out, x[b * group() + index[b]]);
    }
    for (const auto* index : {low_index, high_index}) {
      for (std::size_t b = 0; b < count; ++b) {
        is_integer() ? put(out, static_cast<std::uint8_t>(index[b])) : put(out, index[b]);
      }
    }
    return true;
  }

  std::byte* write_scales(const Blocks& blocks, std::size_t count, std::byte* out) const {
    const std::size_t bytes = metadata.arrays()[0] * count;
    if (f.given) {
      std::memset(out, 0, bytes);
      return out + bytes;
    }
    std::memcpy(out, blocks.scale_bits, bytes);
    if (f.symmetric) return out + bytes;
    std::memcpy(out + bytes, blocks.zero_bits, bytes);
    return out + 2 * bytes;
  }

  // ---- decode

  /// Reads the metadata before the spikes of so many blocks. False if something is not finite.
  bool read_scales(const std::byte*& in, std::size_t count, Blocks& blocks) const {
    const std::size_t rounded = rounded_up(count, kFloats);
    const auto fill = [&](float* to, float value) { std::fill_n(to, rounded, value); };
    if (f.given) {
      fill(blocks.factor, f.given->scale);
      fill(blocks.zero, f.symmetric ? numbers.bias() : f.given->zero);
      const std::span flags(in, count);
      in += count;
      return std::ranges::find(flags, std::byte{0xFF}) == flags.end();
    }
    if (is_integer()) {
      fill(blocks.factor, 0);
      fill(blocks.zero, 0);
      for (std::size_t b = 0; b < count; ++b) {
        const auto code = static_cast<std::size_t>(take<std::int8_t>(in) + 128);
        blocks.factor[b] = kIntegerScales[code];
      }
      for (std::size_t b = 0; b < count; ++b) {
        blocks.zero[b] = static_cast<float>(take<std::int8_t>(in));
      }
      return true;
    }
    const auto read = [&](float* to) HWY_ATTR {
      alignas(32) std::uint16_t bits[kBlockSlots];
      std::memcpy(bits, in, 2 * count);
      std::fill(bits + count, bits + rounded, std::uint16_t{0});
      in += 2 * count;
      auto finite = hn::Eq(hn::Zero(F32()), hn::Zero(F32()));
      for (std::size_t b = 0; b < count; b += kFloats) {
        const FloatVector value = load_elements<BfloatLanes>(bits + b);
        hn::Store(value, F32(), to + b);
        finite = hn::And(finite, is_finite(value));
      }
      return hn::AllTrue(F32(), finite);
    };
    bool finite = read(blocks.factor);
    if (f.symmetric) {
      fill(blocks.zero, numbers.bias());
    } else {
      finite = read(blocks.zero) && finite;
    }
    return finite;
  }

  /// The value of a code is zero + code * scale, or (code - zero) * scale.
  bool is_affine() const { return !f.symmetric && !is_integer(); }
  template <bool kAffine>
  static HWY_INLINE FloatVector value_of(FloatVector code, FloatVector zero, FloatVector scale) {
    return kAffine ? hn::Add(zero, hn::Mul(code, scale)) : hn::Mul(hn::Sub(code, zero), scale);
  }

  /// Whether no value's magnitude is beyond `most`.
  template <bool kAffine>
  bool all_within(float most, const Blocks& blocks, std::size_t count) const {
    auto within = hn::Eq(hn::Zero(F32()), hn::Zero(F32()));
    for (std::size_t b = 0; b < count; b += kFloats) {
      const FloatVector zero = hn::Load(F32(), blocks.zero + b);
      const FloatVector scale = hn::Load(F32(), blocks.factor + b);
      for (const auto code : {std::uint8_t{0}, top()}) {
        const FloatVector value = value_of<kAffine>(hn::Set(F32(), code), zero, scale);
        within = hn::And(within, hn::Le(hn::Abs(value), hn::Set(F32(), most)));
      }
    }
    return hn::AllTrue(F32(), within);
  }

  /// Codes of blocks to elements, or to fp32 numbers.
  template <class Payload, bool kAffine>
  void dequantize(const std::uint8_t* codes, std::size_t elements, const Blocks& blocks,
                  typename Payload::Element* out) const {
    const std::size_t size = group();
    for (std::size_t first = 0, b = 0; first < elements; first += size, ++b) {
      const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
      const FloatVector scale = hn::Set(F32(), blocks.factor[b]);
      for (std::size_t i = first; i < std::min(first + size, elements); i += kFloats) {
        const auto code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), codes + i));
        Payload::store(value_of<kAffine>(hn::ConvertTo(F32(), code), zero, scale), out + i);
      }
    }
  }

  template <class Payload>
  bool decode(Tile& tile, const std::byte* wire, std::size_t elements, std::size_t first,
              std::size_t count, typename Payload::Element* out) const {
    return is_affine() ? decode_as<Payload, true>(tile, wire, elements, first, count, out)
                       : decode_as<Payload, false>(tile, wire, elements, first, count, out);
  }

  template <class Payload, bool kAffine>
  bool decode_as(Tile& tile, const std::byte* wire, std::size_t elements, std::size_t first,
                 std::size_t count, typename Payload::Element* out) const {
    using Element = typename Payload::Element;
    const std::size_t block_count = blocks_of(elements, group());
    Blocks blocks;
    const std::byte* in = wire + planes_bytes(anybit_codes(f, elements), f.bits);
    if (!read_scales(in, block_count, blocks)) return false;
    // Sums of a transform are of at most 2^16 values, and limited afterwards; other values that are
    // to be limited are rare.
    const float most = f.hadamard ? 0x1p90f : Payload::kLargest;
    if (!all_within<kAffine>(most, blocks, block_count)) return false;
    const std::byte* const minima = in;
    const std::byte* const maxima = minima + block_count * sizeof(Element);
    for (std::size_t i = 0; has_spikes() && i < 2 * block_count; ++i) {
      if (!Payload::is_finite(entry<Element>(minima, i))) return false;
    }
    const std::size_t codes = f.hadamard ? block_count * group() : count;
    unpack_tile(advanced(planes_at(wire, anybit_codes(f, elements), f.bits), first, f.bits), codes,
                f.bits, tile.codes);
    if (f.hadamard) {
      dequantize<FloatLanes, kAffine>(tile.codes, codes, blocks, tile.x);
      transform(tile.x, codes, group());
      const FloatVector limit = hn::Set(F32(), Payload::kLargest);
      for (std::size_t i = 0; i < count; i += kFloats) {
        const FloatVector v = hn::Load(F32(), tile.x + i);
        Payload::store(hn::Min(hn::Max(v, hn::Neg(limit)), limit), out + i);
      }
    } else {
      dequantize<Payload, kAffine>(tile.codes, count, blocks, out);
    }
    if (!has_spikes()) return true;

    const std::byte* const indices = maxima + block_count * sizeof(Element);
    const auto index_at = [&](std::size_t i) -> std::size_t {
      return is_integer() ? std::to_integer<std::size_t>(indices[i])
                          : entry<std::uint16_t>(indices, i);
    };
    for (std::size_t b = 0; b < block_count; ++b) {
      // Foreign bytes may hold an index behind a short last block; it stands for no element.
      const std::size_t size = std::min(group(), count - b * group());
      Element* const block = out + b * group();
      const std::size_t low = index_at(b);
      const std::size_t high = index_at(block_count + b);
      if (low < size) block[low] = entry<Element>(minima, b);
      if (high < size) block[high] = entry<Element>(maxima, b);
    }
    return true;
  }

  template <class T>
  static T entry(const std::byte* array, std::size_t i) {
    T value;
    std::memcpy(&value, array + i * sizeof(T), sizeof(T));
    return value;
  }
};

template <class F>
void choose_family(const AnyBitFormat&, const F& f) {
  f.template operator()<AnyBit>();
}

#endif  // ARLAB_HAS_LANES

CodecFunctions<AnyBitFormat> anybit_functions() { return ARLAB_VECTOR_FUNCTIONS(AnyBitFormat); }
}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(anybit_functions);

CodecPtr accelerated_anybit(const CodecPtr& scalar) {
  const std::optional<AnyBitFormat> format = parse_anybit(scalar->name());
  if (!format) return nullptr;
  const bool plain = format->metadata == AnyBitFormat::Metadata::scales && !format->hadamard;
  if (!plain && format->group > kWireChunk) return nullptr;  // rare
  return accelerated_as(scalar, *format, [] { return HWY_DYNAMIC_DISPATCH(anybit_functions)(); });
}

}  // namespace arlab
#endif  // HWY_ONCE
