// logfmt<n>-g<G> with vectors, for G that are multiples of 32. ../SPEC.md, "LogFMT (logfmt*)", says
// what is computed, and ../formats/logfmt.h in numbers; here it is in vectors, and why the bits are
// the same.
//
// The code of a magnitude m grows with m: between the values v(K - 1) < v(K), K - 1 is meant while
// RN(m - v(K-1)) < RN(v(K) - m), the left side grows with m, and the right side falls. So for every
// K there is a smallest m, the threshold T(K), that gets K or more, and the code is the number of
// thresholds that m reaches. Blocks' thresholds are found with one block per lane; then there is
// nothing left but comparisons.
//
// This needs values that ascend, far from the ends of fp32's range; other blocks are encoded number
// by number, and chunks with others decoded by the scalar codec.
//
// Processor time of `arlab reduce` of 64 MiB as logfmt4-g32 by two_shot on 8 ranks: 2.5 s with it, 19.2 s without (medians of
// three, one core of a Xeon, 2026-11-29).

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/logfmt_simd.cc"
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {
#if ARLAB_HAS_LANES

// ---------------------------------------------------------------- ../../formats/portable_log.h

HWY_INLINE FloatVector floats_set(float value) { return hn::Set(F32(), value); }

/// x * (c[0] + y * (c[1] + y * ...)), each product and sum rounded.
template <std::size_t kCount>
HWY_INLINE FloatVector nested_product(FloatVector x, FloatVector y, const float (&c)[kCount]) {
  FloatVector sum = floats_set(c[kCount - 1]);
  for (std::size_t i = kCount - 1; i > 0; --i) {
    sum = hn::Add(floats_set(c[i - 1]), hn::Mul(y, sum));
  }
  return hn::Mul(x, sum);
}

/// log2 of positive finite values.
HWY_INLINE FloatVector log2_fp32(FloatVector x) {
  const auto is_subnormal = hn::Lt(hn::BitCast(I32(), x), hn::Set(I32(), 0x00800000));
  const FloatVector lifted = hn::Mul(x, floats_set(0x1p24f));
  const FloatVector normal = hn::IfThenElse(hn::RebindMask(F32(), is_subnormal), lifted, x);
  const Int32Vector lift = hn::IfThenElseZero(is_subnormal, hn::Set(I32(), -24));

  const Int32Vector sqrt_half = hn::Set(I32(), 0x3F3504F3);
  const Int32Vector above = hn::Sub(hn::BitCast(I32(), normal), sqrt_half);
  const Int32Vector exponent = hn::Add(lift, hn::ShiftRight<23>(above));
  const FloatVector m =
      hn::BitCast(F32(), hn::Add(hn::And(above, hn::Set(I32(), 0x007FFFFF)), sqrt_half));
  const FloatVector one = floats_set(1.0f);
  const FloatVector t = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const FloatVector series =
      nested_product(t, hn::Mul(t, t), {2.885390082f, 0.961796694f, 0.577078016f, 0.412198583f});
  return hn::Add(hn::ConvertTo(F32(), exponent), series);
}

/// For |y| <= kPlainExponent the multiplications by powers of two are exact: they only add to the
/// exponent.
inline constexpr float kPlainExponent = 120.0f;
HWY_INLINE FloatVector exp2_fp32(FloatVector y) {
  const FloatVector magic = floats_set(0x1.8p23f);
  const FloatVector sum = hn::Add(y, magic);  // the nearest integer in the lowest bits
  const FloatVector f = hn::Mul(hn::Sub(y, hn::Sub(sum, magic)), floats_set(0.693147181f));
  const FloatVector series = nested_product(
      f, f, {1.0f, 0.5f, 0.166666667f, 0.0416666667f, 0.00833333333f, 0.00138888889f});
  const FloatVector mantissa = hn::Add(floats_set(1.0f), series);  // between 0.7 and 1.42
  return float_of(hn::Add(bits_of(mantissa), hn::ShiftLeft<23>(bits_of(sum))));
}

// ---------------------------------------------------------------- blocks

constexpr std::size_t kStep = 32;  // every group is a multiple of it
constexpr std::size_t kSlots = kTile / kStep + 8;
constexpr std::size_t kMostLevels = 128;  // magnitudes of a code

/// Metadata of a tile's blocks.
struct Blocks {
  alignas(32) std::uint16_t lo_bits[kSlots];  // as they travel
  alignas(32) std::uint16_t step_bits[kSlots];
  alignas(32) float lo[kSlots];
  alignas(32) float step[kSlots];
  /// Bits of one number less than T(K), at [(K - 1) * kSlots + block]; the largest integer for a
  /// threshold that nothing reaches.
  alignas(32) std::int32_t threshold[kMostLevels * kSlots];
  alignas(32) std::int32_t ascends[kSlots];  // not 0: the thresholds are right
};

/// T(K) of the values before it and of it: the middle, or a neighbour of that, of which five are
/// tried. `found` where T is one of them.
HWY_INLINE Int32Vector threshold_of(FloatVector v0, FloatVector v1, hn::Mask<I32>& found) {
  const FloatVector middle = hn::Mul(hn::Add(v0, v1), floats_set(0.5f));
  const Int32Vector first = hn::Sub(hn::BitCast(I32(), middle), hn::Set(I32(), 2));
  Int32Vector below = hn::Zero(I32());  // minus how many are
  for (std::int32_t i = 0; i < 5; ++i) {
    const FloatVector m = hn::BitCast(F32(), hn::Add(first, hn::Set(I32(), i)));
    const auto is_below = hn::Lt(hn::Sub(m, v0), hn::Sub(v1, m));
    below = hn::Add(below, hn::VecFromMask(I32(), hn::RebindMask(I32(), is_below)));
  }
  found = hn::And(hn::Lt(below, hn::Zero(I32())), hn::Gt(below, hn::Set(I32(), -5)));
  return hn::Sub(first, below);
}

/// Codes of numbers, a byte each, a multiple of 32; thresholds are kSlots apart. A kLevels of 0:
/// known only at run time.
template <std::size_t kLevels>
HWY_INLINE void quantize_block(const float* x, std::size_t count, const std::int32_t* thresholds,
                               std::size_t levels_given, std::uint8_t* codes) {
  const std::size_t levels = kLevels == 0 ? levels_given : kLevels;
  const ByteVector sign_bit = hn::Set(U8(), static_cast<std::uint8_t>(levels));
  const auto encode = [&](const FloatVector(&four)[4]) HWY_ATTR {
    Int32Vector code[4] = {hn::Zero(I32()), hn::Zero(I32()), hn::Zero(I32()), hn::Zero(I32())};
    for (std::size_t k = 0; k + 1 < levels; ++k) {
      const Int32Vector compared = hn::Set(I32(), thresholds[k * kSlots]);
      for (std::size_t j = 0; j < 4; ++j) {
        const auto is_more = hn::Gt(hn::BitCast(I32(), hn::Abs(four[j])), compared);
        code[j] = hn::Sub(code[j], hn::VecFromMask(I32(), is_more));
      }
    }
    const ByteVector all =
        narrow_blocks(narrow_blocks(code[0], code[1]), narrow_blocks(code[2], code[3]));
    const auto is_zero = hn::Eq(all, hn::Zero(U8()));
    const auto sign = hn::BitCast(U8(), hn::BroadcastSignBit(hn::BitCast(I8(), sign_bytes(four))));
    return hn::Or(all, hn::IfThenZeroElse(is_zero, hn::And(sign, sign_bit)));
  };
  encode_numbers(
      0, count, [x](std::size_t i) HWY_ATTR { return hn::LoadU(F32(), x + i); }, encode, codes);
}

/// Magnitudes' codes less 1 as floats, all bits set but for code 0, and signs.
struct CodeLanes {
  FloatVector index;
  FloatVector is_some;
  FloatVector sign;
};
HWY_INLINE CodeLanes code_lanes(Uint32Vector code, unsigned bits) {
  const Int32Vector magnitude =
      hn::BitCast(I32(), hn::And(code, hn::Set(U32(), (1U << (bits - 1)) - 1)));
  const Uint32Vector sign = hn::Xor(code, hn::BitCast(U32(), magnitude));
  return {hn::ConvertTo(F32(), hn::Sub(magnitude, hn::Set(I32(), 1))),
          hn::BitCast(F32(), hn::VecFromMask(I32(), hn::Gt(magnitude, hn::Zero(I32())))),
          float_of(hn::ShiftLeftSame(sign, static_cast<int>(32 - bits)))};
}

// ---------------------------------------------------------------- the family

struct LogFmt : ByScalarCodec {
  LogFmt(unsigned code_bits, const Codec& codec, DType type, std::size_t, const std::byte*)
      : ByScalarCodec{codec, type}, bits(code_bits), group(codec.info().block) {}

  unsigned bits;
  std::size_t group;

  std::size_t levels() const { return std::size_t{1} << (bits - 1); }
  std::size_t chunk() const { return chunk_elements(group); }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, bits) + 4 * blocks_of(elements, group);
  }

  // ---- encode

  /// The smallest magnitudes but zeros, infinity if there are only zeros, and the largest ones.
  static void find_magnitudes(const float* x, std::size_t count, std::size_t size, float* smallest,
                              float* largest) {
    const auto magnitudes_of = [](FloatVector v) HWY_ATTR {
      const FloatVector m = hn::Abs(v);
      const auto is_zero = hn::Eq(m, hn::Zero(F32()));
      return Extremes{hn::IfThenElse(is_zero, hn::Inf(F32()), m), m};
    };
    find_extremes(x, count, size, magnitudes_of, smallest, largest);
  }

  /// Measures blocks with known magnitudes, up to a vector of them.
  void measure(const float* smallest, const float* largest, std::size_t count,
               Blocks& blocks) const {
    const FloatVector intervals = floats_set(static_cast<float>(levels() - 2));
    for (std::size_t b = 0; b < count; b += kFloats) {
      const FloatVector high = hn::Load(F32(), largest + b);
      const auto is_some = hn::Gt(high, hn::Zero(F32()));
      const FloatVector hi = log2_fp32(high);
      FloatVector low = hi;
      FloatVector width = hn::Zero(F32());
      if (bits > 2) {
        const FloatVector least = log2_fp32(hn::Load(F32(), smallest + b));
        low = hn::Max(least, hn::Sub(hi, floats_set(32.0f)));
        width = hn::Div(hn::Sub(hi, low), intervals);
      }
      const HalfUint16Vector lo_bits = HalfLanes::from_float(hn::IfThenElseZero(is_some, low));
      const HalfUint16Vector step_bits = HalfLanes::from_float(hn::IfThenElseZero(is_some, width));
      hn::Store(lo_bits, HalfU16(), blocks.lo_bits + b);
      hn::Store(step_bits, HalfU16(), blocks.step_bits + b);
      const FloatVector lo = HalfLanes::to_float(lo_bits);
      const FloatVector step = HalfLanes::to_float(step_bits);

      const FloatVector last = hn::Add(lo, hn::Mul(intervals, step));
      auto ascends = hn::RebindMask(I32(), hn::And(hn::Ge(lo, floats_set(-kPlainExponent)),
                                                   hn::Le(last, floats_set(kPlainExponent))));
      // Among equal values only the first is meant, and among zeros none.
      auto is_meant = hn::RebindMask(I32(), is_some);
      const auto is_first = hn::RebindMask(I32(), hn::Eq(step, hn::Zero(F32())));
      FloatVector below = hn::Zero(F32());
      for (std::size_t k = 0; k + 1 < levels(); ++k) {
        const FloatVector value =
            exp2_fp32(hn::Add(lo, hn::Mul(floats_set(static_cast<float>(k)), step)));
        hn::Mask<I32> found;
        const Int32Vector threshold = threshold_of(below, value, found);
        const auto is_right = hn::And(found, hn::RebindMask(I32(), hn::Gt(value, below)));
        ascends = hn::AndNot(hn::AndNot(is_right, is_meant), ascends);
        hn::Store(hn::IfThenElse(is_meant, hn::Sub(threshold, hn::Set(I32(), 1)),
                                 hn::Set(I32(), std::numeric_limits<std::int32_t>::max())),
                  I32(), blocks.threshold + k * kSlots + b);
        is_meant = hn::AndNot(is_first, is_meant);
        below = value;
      }
      hn::Store(hn::VecFromMask(I32(), ascends), I32(), blocks.ascends + b);
    }
  }

  void quantize(const float* x, std::size_t count, std::size_t size, const Blocks& blocks,
                std::uint8_t* codes) const {
    for (std::size_t b = 0; b < count; ++b, x += size, codes += size) {
      const std::int32_t* const thresholds = blocks.threshold + b;
      if (blocks.ascends[b] == 0) {
        const LogValues values(LogRange{blocks.lo_bits[b], blocks.step_bits[b]});
        for (std::size_t i = 0; i < size; ++i) {
          codes[i] = static_cast<std::uint8_t>(LogCodes{bits}.quantize(x[i], values));
        }
      } else if (bits == 4) {
        quantize_block<8>(x, size, thresholds, 8, codes);
      } else {
        quantize_block<0>(x, size, thresholds, levels(), codes);
      }
    }
  }

  template <class Payload, bool>
  bool encode(Tile& tile, std::span<const typename Payload::Element> x, std::byte* wire,
              std::uint64_t&) const {  // nothing is ever clamped
    alignas(32) float smallest[kSlots];
    alignas(32) float largest[kSlots];
    Blocks blocks;
    const auto planes = planes_at(wire, x.size(), bits);
    const std::size_t count = blocks_of(x.size(), group);
    const std::size_t size = std::min(group, kTile);
    const auto code_tile = [&](std::size_t first, std::size_t elements, std::size_t some) HWY_ATTR {
      quantize(tile.x, some, size, blocks, tile.codes);
      pack_tile(tile.codes, elements, bits, advanced(planes, first, bits));
    };
    float least = kInfinity;
    float most = 0;
    const bool finite = for_each_tile<Payload>(
        x, size, kInfinity, tile.x,
        [&](std::size_t first, std::size_t elements, std::size_t some) HWY_ATTR {
          find_magnitudes(tile.x, some, size, smallest, largest);
          least = std::min(least, smallest[0]);
          most = std::max(most, largest[0]);
          if (group > kTile) return;
          measure(smallest, largest, some, blocks);
          code_tile(first, elements, some);
        });
    if (!finite) return false;
    if (group > kTile) {
      std::fill_n(smallest, kFloats, least);
      std::fill_n(largest, kFloats, most);
      measure(smallest, largest, 1, blocks);
      for_each_tile<Payload>(x, size, kInfinity, tile.x, code_tile);
    }
    std::byte* const out = wire + planes_bytes(x.size(), bits);
    std::memcpy(out, blocks.lo_bits, 2 * count);
    std::memcpy(out + 2 * count, blocks.step_bits, 2 * count);
    return true;
  }

  // ---- decode

  template <class Payload>
  bool decode(Tile& tile, const std::byte* wire, std::size_t elements, std::size_t first,
              std::size_t count, typename Payload::Element* out) const {
    alignas(32) std::uint16_t half[kSlots] = {};
    alignas(32) float lo[kSlots];
    alignas(32) float step[kSlots];
    const std::size_t block_count = blocks_of(elements, group);
    const std::byte* in = wire + planes_bytes(elements, bits);
    for (float* const to : {lo, step}) {
      std::memcpy(half, in, 2 * block_count);
      in += 2 * block_count;
      for (std::size_t b = 0; b < block_count; b += kFloats) {
        hn::Store(load_elements<HalfLanes>(half + b), F32(), to + b);
      }
    }
    const FloatVector least = floats_set(-kPlainExponent);
    const FloatVector most = floats_set(std::min(kPlainExponent, Payload::kLargestPower));
    auto plain = hn::Eq(least, least);
    for (std::size_t b = 0; b < block_count; b += kFloats) {
      const FloatVector begin = hn::Load(F32(), lo + b);
      // A step may be negative in foreign bytes.
      const FloatVector intervals = floats_set(static_cast<float>(levels() - 2));
      const FloatVector last = hn::Add(begin, hn::Mul(intervals, hn::Load(F32(), step + b)));
      plain = hn::And(plain, hn::And(hn::And(hn::Ge(begin, least), hn::Le(begin, most)),
                                     hn::And(hn::Ge(last, least), hn::Le(last, most))));
    }
    if (!hn::AllTrue(F32(), plain)) return false;

    unpack_tile(advanced(planes_at(wire, elements, bits), first, bits), count, bits, tile.codes);
    const auto values = [&](std::size_t b, const CodeLanes& codes) HWY_ATTR {
      const FloatVector y =
          hn::Add(hn::Set(F32(), lo[b]), hn::Mul(codes.index, hn::Set(F32(), step[b])));
      return hn::Or(hn::And(exp2_fp32(y), codes.is_some), codes.sign);
    };
    if constexpr (Payload::kIsWord) {
      if (bits <= 4) {
        const auto of_first = [&](std::size_t b, std::size_t k) HWY_ATTR {
          return values(b, code_lanes(hn::Iota(U32(), static_cast<std::uint32_t>(k)), bits));
        };
        decode_by_tables<Payload>(tile.codes, count, group, of_first, out);
        return true;
      }
    }
    for (std::size_t i = 0; i < count; i += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), tile.codes + i));
      Payload::store(values(i / group, code_lanes(code, bits)), out + i);
    }
    return true;
  }
};

template <class F>
void choose_family(unsigned, const F& f) {
  f.template operator()<LogFmt>();
}

#endif  // ARLAB_HAS_LANES

CodecFunctions<unsigned> logfmt_functions() { return ARLAB_VECTOR_FUNCTIONS(unsigned); }
}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(logfmt_functions);

CodecPtr accelerated_logfmt(const CodecPtr& scalar) {
  const std::optional<LogFmtName> format = parse_logfmt(scalar->name());
  if (!format || format->group % 32 != 0) return nullptr;
  return accelerated_as(scalar, format->bits,
                        [] { return HWY_DYNAMIC_DISPATCH(logfmt_functions)(); });
}

}  // namespace arlab
#endif  // HWY_ONCE
