// logfmt<n>-g<G> with vectors, for G that are multiples of 32. ../SPEC.md, "LogFMT (logfmt*)", says
// what is computed; here is how, and why the bits are the same.
//
// The code of a magnitude m grows with m: between the values v(K - 1) < v(K), K - 1 is meant while
// RN(m - v(K-1)) < RN(v(K) - m), the left side grows with m, and the right side falls. So for every
// K there is a smallest m of the payload's dtype, the threshold T(K), that gets K or more, and the
// code is the number of thresholds that m reaches. Blocks' thresholds are found with one block per
// lane; then there is nothing left but comparisons.
//
// This needs values that ascend, far from the ends of fp32's range; other blocks are left to the
// scalar codec.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/logfmt_simd.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/portable_log-inl.h"
#include "reference/codecs/wire_chunks.h"

#if ARLAB_HAS_LANES

#include "reference/codecs/simd/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kTile = kWireChunk;  // elements whose codes are kept in bytes
constexpr std::size_t kStep = 32;          // every group is a multiple of it
constexpr std::size_t kMostLevels = 128;   // magnitudes of a code

/// Sizes of a wire, in elements and bytes.
struct Layout {
  unsigned bits;
  std::size_t group;

  std::size_t chunk_elements() const { return arlab::chunk_elements(group); }
  std::size_t blocks_of(std::size_t elements) const { return arlab::blocks_of(elements, group); }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, bits) + 4 * blocks_of(elements);
  }
  std::size_t levels() const { return std::size_t{1} << (bits - 1); }
};

// ---------------------------------------------------------------- extremes

/// For magnitudes as integers, what grows as they fall, and is the smallest number of all for 0.
/// Its own inverse.
HWY_INLINE Int16Vector falling(Int16Vector m) { return hn::Sub(hn::Set(I16(), -32768), m); }
HWY_INLINE Int32Vector falling(Int32Vector m) {
  return hn::Sub(hn::Set(I32(), std::numeric_limits<std::int32_t>::min()), m);
}

/// The largest magnitudes of `blocks` blocks, and the smallest but zeros, which are 0 if there are
/// only zeros. Written up to a multiple of kWords. A kGroup of 0: known only at run time.
template <std::size_t kGroup, class Element>
HWY_INLINE void find_magnitudes(const Element* x, std::size_t blocks, std::size_t group_given,
                                Element* largest, Element* smallest) {
  constexpr std::size_t kLanes = kBytes / sizeof(Element);
  const std::size_t group = kGroup == 0 ? group_given : kGroup;
  using Row = decltype(magnitudes(x));
  const hn::DFromV<Row> d;
  constexpr std::size_t kRows = 8;
  const std::size_t rounded = (blocks + kWords - 1) / kWords * kWords;
  for (std::size_t first = 0; first < rounded; first += kRows) {
    Row high[kRows];
    Row low[kRows];
    for (std::size_t b = 0; b < kRows; ++b) {
      const Element* const block = x + std::min(first + b, blocks - 1) * group;
      high[b] = magnitudes(block);
      low[b] = falling(high[b]);
      for (std::size_t i = kLanes; i < group; i += kLanes) {
        const Row m = magnitudes(block + i);
        high[b] = hn::Max(high[b], m);
        low[b] = hn::Max(low[b], falling(m));
      }
    }
    largest_of_rows(
        kRows, [&](std::size_t b) HWY_ATTR { return high[b]; }, as_signed(largest + first));
    largest_of_rows(
        kRows, [&](std::size_t b) HWY_ATTR { return low[b]; }, as_signed(smallest + first));
  }
  auto* const keys = as_signed(smallest);
  for (std::size_t b = 0; b < rounded; b += kLanes) {
    hn::Store(falling(hn::Load(d, keys + b)), d, keys + b);
  }
}

// ---------------------------------------------------------------- thresholds

/// What a block's elements are compared with: one less than T(K). The largest number for a
/// threshold that nothing reaches.
template <class Payload>
using Threshold = std::conditional_t<Payload::kIsWord, std::int16_t, std::int32_t>;

/// So many blocks, of so many magnitudes beside 0, go through all steps together.
template <class Payload, std::size_t kMostBlocks, std::size_t kMostValues>
struct Batch {
  static constexpr std::size_t kBlocks = kMostBlocks;
  static constexpr std::size_t kVectors = kBlocks / kFloats;

  alignas(32) typename Payload::Element largest[kBlocks];
  alignas(32) typename Payload::Element smallest[kBlocks];
  alignas(32) std::uint16_t lo_bits[kBlocks];  // as they travel
  alignas(32) std::uint16_t step_bits[kBlocks];
  alignas(32) float lo[kBlocks];
  alignas(32) float step[kBlocks];
  alignas(32) float value[kMostValues * kBlocks];  // of K, block b at [(K - 1) * kBlocks + b]
  alignas(32) Threshold<Payload> threshold[kMostValues * kBlocks];
  // A bit for every block of a vector.
  std::uint8_t coded[kVectors + 8];  // not only zeros, and finite; stores may write 8 bytes
  std::uint8_t constant[kVectors];   // all values are the same
  std::uint8_t plain[kVectors + 8];  // not for the scalar codec

  bool is_left(std::size_t block) const {
    const unsigned left = coded[block / kFloats] & ~unsigned{plain[block / kFloats]};
    return (left >> block % kFloats & 1) != 0;
  }
};

/// lo and step of blocks whose magnitudes are known. `blocks` is a multiple of kWords, here and
/// below, and `values` the number of magnitudes.
template <class Payload, class Blocks>
HWY_INLINE void find_ranges(std::size_t blocks, std::size_t values, Blocks& batch) {
  const FloatVector nan = float_of(hn::Set(U32(), 0x7FC00000));
  const FloatVector intervals = floats_set(static_cast<float>(values - 1));
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const FloatVector high = Payload::load(batch.largest + b);
    const auto is_finite =
        hn::RebindMask(F32(), hn::Lt(hn::BitCast(I32(), high), hn::Set(I32(), 0x7F800000)));
    const auto is_coded = hn::And(is_finite, hn::Gt(high, hn::Zero(F32())));
    const FloatVector hi = log2_fp32(high);
    FloatVector low = hi;
    FloatVector width = hn::Zero(F32());
    if (values > 1) {
      const FloatVector lowest = log2_fp32(Payload::load(batch.smallest + b));
      low = hn::Max(lowest, hn::Sub(hi, floats_set(32.0f)));
      width = hn::Div(hn::Sub(hi, low), intervals);
    }
    low = hn::IfThenElse(is_finite, hn::IfThenElseZero(is_coded, low), nan);
    width = hn::IfThenElseZero(is_coded, width);
    const HalfUint16Vector lo_half = HalfLanes::from_float(low);
    const HalfUint16Vector step_half = HalfLanes::from_float(width);
    hn::StoreU(lo_half, HalfU16(), batch.lo_bits + b);
    hn::StoreU(step_half, HalfU16(), batch.step_bits + b);
    const FloatVector lo = HalfLanes::to_float(lo_half);
    const FloatVector step = HalfLanes::to_float(step_half);
    hn::Store(lo, F32(), batch.lo + b);
    hn::Store(step, F32(), batch.step + b);
    // Values from 2^-100 on have a normal middle in every dtype.
    const FloatVector last = hn::Add(lo, hn::Mul(intervals, step));
    const auto is_plain =
        hn::And(hn::Ge(lo, floats_set(-100.0f)), hn::Le(last, floats_set(kPlainExponent)));
    hn::StoreMaskBits(F32(), is_coded, batch.coded + b / kFloats);
    hn::StoreMaskBits(F32(), is_plain, batch.plain + b / kFloats);
  }
}

template <class Blocks>
HWY_INLINE void find_values(std::size_t blocks, std::size_t values, Blocks& batch) {
  for (std::size_t k = 0; k < values; ++k) {
    const FloatVector index = floats_set(static_cast<float>(k));
    for (std::size_t b = 0; b < blocks; b += kFloats) {
      const FloatVector y =
          hn::Add(hn::Load(F32(), batch.lo + b), hn::Mul(index, hn::Load(F32(), batch.step + b)));
      hn::Store(plain_exp2_fp32(y), F32(), batch.value + k * Blocks::kBlocks + b);
    }
  }
}

/// RN((v0 + v1) / 2) is within 2^-23 of the middle, and so is the real number from which on the
/// rounded differences are no longer less. Neighbours in a 16-bit dtype are 2^-12 apart or more,
/// so T is the dtype's nearest number to it, or the next: what the definition says of the nearest
/// decides.
template <class Payload>
HWY_INLINE Int32Vector word_threshold(FloatVector v0, FloatVector v1) {
  const FloatVector middle = hn::Mul(hn::Add(v0, v1), floats_set(0.5f));
  const HalfUint16Vector nearest = Payload::from_float(middle);
  const FloatVector m = Payload::to_float(nearest);
  const auto is_below = hn::Lt(hn::Sub(m, v0), hn::Sub(v1, m));
  const Int32Vector minus_below = hn::VecFromMask(I32(), hn::RebindMask(I32(), is_below));
  return hn::Sub(hn::PromoteTo(I32(), nearest), minus_below);
}

/// In fp32 five neighbours of the middle are tried; `found` where T is one of them.
HWY_INLINE Int32Vector float_threshold(FloatVector v0, FloatVector v1, hn::Mask<F32>& found) {
  const FloatVector middle = hn::Mul(hn::Add(v0, v1), floats_set(0.5f));
  const Int32Vector first = hn::Sub(hn::BitCast(I32(), middle), hn::Set(I32(), 2));
  Int32Vector below = hn::Zero(I32());  // minus how many are
  for (std::int32_t i = 0; i < 5; ++i) {
    const FloatVector m = hn::BitCast(F32(), hn::Add(first, hn::Set(I32(), i)));
    const auto is_below = hn::Lt(hn::Sub(m, v0), hn::Sub(v1, m));
    below = hn::Add(below, hn::VecFromMask(I32(), hn::RebindMask(I32(), is_below)));
  }
  const auto is_inside = hn::And(hn::Lt(below, hn::Zero(I32())), hn::Gt(below, hn::Set(I32(), -5)));
  found = hn::RebindMask(F32(), is_inside);
  return hn::Sub(first, below);
}

/// Blocks whose values do not ascend are no longer plain, unless they are all the same, of which
/// only the first is meant.
template <class Payload, class Blocks>
HWY_INLINE void find_thresholds(std::size_t blocks, std::size_t values, Blocks& batch) {
  constexpr std::size_t kHalves = kWords / kFloats;
  constexpr std::size_t kStride = Blocks::kBlocks;
  const Int32Vector one = hn::Set(I32(), 1);
  for (std::size_t b = 0; b < blocks; b += kWords) {
    FloatVector below[kHalves] = {hn::Zero(F32()), hn::Zero(F32())};
    hn::Mask<F32> is_plain[kHalves] = {hn::Eq(below[0], below[0]), hn::Eq(below[0], below[0])};
    for (std::size_t k = 0; k < values; ++k) {
      Int32Vector compared[kHalves];
      for (std::size_t h = 0; h < kHalves; ++h) {
        const std::size_t at = b + h * kFloats;
        const FloatVector value = hn::Load(F32(), batch.value + k * kStride + at);
        is_plain[h] = hn::And(is_plain[h], hn::Gt(value, below[h]));
        if constexpr (Payload::kIsWord) {
          compared[h] = hn::Sub(word_threshold<Payload>(below[h], value), one);
        } else {
          hn::Mask<F32> found;
          compared[h] = hn::Sub(float_threshold(below[h], value, found), one);
          is_plain[h] = hn::And(is_plain[h], found);
          hn::Store(compared[h], I32(), batch.threshold + k * kStride + at);
        }
        below[h] = value;
        if (k == 0) {
          const auto is_constant = hn::Eq(hn::Load(F32(), batch.step + at), hn::Zero(F32()));
          std::uint8_t bits[8] = {};
          hn::StoreMaskBits(F32(), hn::And(is_plain[h], is_constant), bits);
          batch.constant[at / kFloats] = bits[0];
        }
      }
      if constexpr (Payload::kIsWord) {
        const Int16Vector words = narrow_blocks(compared[0], compared[1]);
        hn::Store(hn::BitCast(I16(), ordered_halves(hn::BitCast(U8(), words))), I16(),
                  batch.threshold + k * kStride + b);
      }
    }
    for (std::size_t h = 0; h < kHalves; ++h) {
      const std::size_t v = b / kFloats + h;
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(F32(), is_plain[h], bits);
      batch.plain[v] = static_cast<std::uint8_t>(batch.plain[v] & (bits[0] | batch.constant[v]));
    }
  }
  // What equals the value before it is never meant; and nothing is, in a block without codes.
  constexpr unsigned kAll = (1U << kFloats) - 1;
  for (std::size_t v = 0; v < blocks / kFloats; ++v) {
    unsigned rest = (batch.constant[v] | ~unsigned{batch.coded[v]}) & kAll;
    for (; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
      for (std::size_t k = batch.coded[v] >> lane & 1; k < values; ++k) {
        batch.threshold[k * kStride + v * kFloats + lane] =
            std::numeric_limits<Threshold<Payload>>::max();
      }
    }
  }
}

// ---------------------------------------------------------------- encode

/// Codes of a block of 16-bit elements, a byte each; thresholds are kStride apart. A kLevels of 0:
/// known only at run time.
template <std::size_t kLevels, std::size_t kStride>
HWY_INLINE void encode_elements(const std::uint16_t* x, std::size_t count,
                                const std::int16_t* thresholds, std::size_t levels_given,
                                std::uint8_t* codes) {
  const std::size_t levels = kLevels == 0 ? levels_given : kLevels;
  const ByteVector sign_bit = hn::Set(U8(), static_cast<std::uint8_t>(levels));
  for (std::size_t i = 0; i < count; i += kBytes) {
    const Int16Vector low = hn::BitCast(I16(), hn::LoadU(U16(), x + i));
    const Int16Vector high = hn::BitCast(I16(), hn::LoadU(U16(), x + i + kWords));
    const Int16Vector low_magnitude = hn::And(low, hn::Set(I16(), 0x7FFF));
    const Int16Vector high_magnitude = hn::And(high, hn::Set(I16(), 0x7FFF));
    Int16Vector low_code = hn::Zero(I16());
    Int16Vector high_code = hn::Zero(I16());
    for (std::size_t k = 0; k + 1 < levels; ++k) {
      const Int16Vector compared = hn::Set(I16(), thresholds[k * kStride]);
      low_code = hn::Sub(low_code, hn::VecFromMask(I16(), hn::Gt(low_magnitude, compared)));
      high_code = hn::Sub(high_code, hn::VecFromMask(I16(), hn::Gt(high_magnitude, compared)));
    }
    const ByteVector code = narrow_blocks(low_code, high_code);
    const SignedByteVector sign = hn::BroadcastSignBit(narrow_signed(low, high));
    const auto is_zero = hn::Eq(code, hn::Zero(U8()));
    const ByteVector sign_code =
        hn::IfThenZeroElse(is_zero, hn::And(hn::BitCast(U8(), sign), sign_bit));
    hn::StoreU(ordered_halves(hn::Or(code, sign_code)), U8(), codes + i);
  }
}

template <std::size_t kLevels, std::size_t kStride>
HWY_INLINE void encode_elements(const float* x, std::size_t count, const std::int32_t* thresholds,
                                std::size_t levels_given, std::uint8_t* codes) {
  const std::size_t levels = kLevels == 0 ? levels_given : kLevels;
  const ByteVector sign_bit = hn::Set(U8(), static_cast<std::uint8_t>(levels));
  for (std::size_t i = 0; i < count; i += kBytes) {
    Int32Vector bits[4];
    Int32Vector code[4];
    for (std::size_t j = 0; j < 4; ++j) {
      bits[j] = hn::BitCast(I32(), hn::LoadU(F32(), x + i + j * kFloats));
      code[j] = hn::Zero(I32());
    }
    for (std::size_t k = 0; k + 1 < levels; ++k) {
      const Int32Vector compared = hn::Set(I32(), thresholds[k * kStride]);
      for (std::size_t j = 0; j < 4; ++j) {
        const Int32Vector magnitude = hn::And(bits[j], hn::Set(I32(), 0x7FFFFFFF));
        code[j] = hn::Sub(code[j], hn::VecFromMask(I32(), hn::Gt(magnitude, compared)));
      }
    }
    const ByteVector all =
        narrow_blocks(narrow_blocks(code[0], code[1]), narrow_blocks(code[2], code[3]));
    const SignedByteVector sign = hn::BroadcastSignBit(
        narrow_signed(narrow_blocks(bits[0], bits[1]), narrow_blocks(bits[2], bits[3])));
    const auto is_zero = hn::Eq(all, hn::Zero(U8()));
    const ByteVector sign_code =
        hn::IfThenZeroElse(is_zero, hn::And(hn::BitCast(U8(), sign), sign_bit));
    hn::StoreU(ordered_bytes(hn::Or(all, sign_code)), U8(), codes + i);
  }
}

/// Gathers codes in bytes and packs them.
class CodeWriter {
 public:
  CodeWriter(std::byte* wire, std::size_t elements, unsigned bits)
      : planes_(planes_at(wire, elements, bits)), bits_(bits) {}

  /// Room for the next codes, at most kTile.
  std::uint8_t* room(std::size_t count) {
    if (filled_ + count > kTile) flush();
    filled_ += count;
    return codes_ + filled_ - count;
  }
  void flush() {
    pack_tile(codes_, filled_, bits_, advanced(planes_, written_, bits_));
    written_ += filled_;
    filled_ = 0;
  }

 private:
  PlanePointers<std::byte> planes_;
  unsigned bits_;
  std::size_t written_ = 0;
  std::size_t filled_ = 0;
  alignas(32) std::uint8_t codes_[kTile];
};

/// One block of any length by the scalar codec.
template <class Element>
void encode_block_exactly(const Codec& scalar, DType dtype, std::span<const Element> x,
                          const Layout& layout, CodeWriter& writer, std::uint16_t& lo,
                          std::uint16_t& step) {
  std::vector<std::byte> wire(layout.chunk_bytes(x.size()));
  scalar.encode(dtype, std::as_bytes(x), wire);
  std::vector<std::uint8_t> codes(x.size());
  const std::byte* const rest = unpack_planes(wire.data(), layout.bits, codes);
  std::memcpy(&lo, rest, 2);
  std::memcpy(&step, rest + 2, 2);
  for (std::size_t i = 0; i < codes.size(); i += kTile) {
    const std::size_t count = std::min(kTile, codes.size() - i);
    std::copy_n(codes.begin() + static_cast<std::ptrdiff_t>(i), count, writer.room(count));
  }
}

template <class Payload, std::size_t kLevels>
void encode_chunk(const Codec& scalar, DType dtype, std::span<const typename Payload::Element> x,
                  const Layout& layout, std::byte* wire) {
  using Element = typename Payload::Element;
  const std::size_t blocks = layout.blocks_of(x.size());
  const std::size_t whole = x.size() / layout.group;
  std::byte* const lo_wire = wire + planes_bytes(x.size(), layout.bits);
  std::byte* const step_wire = lo_wire + 2 * blocks;
  CodeWriter writer(wire, x.size(), layout.bits);
  // A whole chunk, unless there are many values.
  Batch<Payload, kLevels == 0 ? kWords : kTile / kStep, kLevels == 0 ? kMostLevels : kLevels> batch;
  const std::size_t values = kLevels == 0 ? layout.levels() - 1 : kLevels - 1;
  for (std::size_t first = 0; first < blocks; first += batch.kBlocks) {
    const std::size_t some = std::min(batch.kBlocks, blocks - first);
    const std::size_t vectorized = std::min(batch.kBlocks, whole - std::min(whole, first));
    if (vectorized != 0) {
      const Element* const from = x.data() + first * layout.group;
      if (layout.group == kStep) {
        find_magnitudes<kStep>(from, vectorized, kStep, batch.largest, batch.smallest);
      } else {
        find_magnitudes<0>(from, vectorized, layout.group, batch.largest, batch.smallest);
      }
      const std::size_t rounded = (vectorized + kWords - 1) / kWords * kWords;
      find_ranges<Payload>(rounded, values, batch);
      find_values(rounded, values, batch);
      find_thresholds<Payload>(rounded, values, batch);
    }
    for (std::size_t b = 0; b < some; ++b) {
      const std::size_t begin = (first + b) * layout.group;
      const std::size_t size = std::min(layout.group, x.size() - begin);
      const auto encode = [&](std::size_t i, std::size_t count) HWY_ATTR {
        encode_elements<kLevels, batch.kBlocks>(x.data() + begin + i, count, batch.threshold + b,
                                                layout.levels(), writer.room(count));
      };
      if (b >= vectorized || batch.is_left(b)) {
        encode_block_exactly(scalar, dtype, x.subspan(begin, size), layout, writer,
                             batch.lo_bits[b], batch.step_bits[b]);
      } else if (size == kStep) {
        encode(0, kStep);
      } else {
        for (std::size_t i = 0; i < size; i += kTile) encode(i, std::min(kTile, size - i));
      }
    }
    std::memcpy(lo_wire + 2 * first, batch.lo_bits, 2 * some);
    std::memcpy(step_wire + 2 * first, batch.step_bits, 2 * some);
  }
  writer.flush();
}

template <class Payload, std::size_t kLevels>
void encode_message(const Codec& scalar, DType dtype, std::span<const typename Payload::Element> x,
                    const Layout& layout, std::byte* wire) {
  const std::size_t most = layout.chunk_elements();
  for (std::size_t begin = 0; begin < x.size(); begin += most) {
    const std::size_t count = std::min(most, x.size() - begin);
    encode_chunk<Payload, kLevels>(scalar, dtype, x.subspan(begin, count), layout, wire);
    wire += layout.chunk_bytes(count);
  }
}

// ---------------------------------------------------------------- decode

/// lo and step of the blocks of a tile.
struct TileRanges {
  static constexpr std::size_t kBlocks = kTile / kStep;

  alignas(32) float lo[kBlocks];
  alignas(32) float step[kBlocks];
  bool plain;  // plain_exp2_fp32 gives all values
};

template <class Payload>
HWY_INLINE void load_ranges(const std::byte* lo_wire, const std::byte* step_wire,
                            std::size_t blocks, float last_index, TileRanges& ranges) {
  alignas(32) std::uint16_t bits[TileRanges::kBlocks] = {};
  const std::size_t rounded = (blocks + kFloats - 1) / kFloats * kFloats;
  const auto load = [&](const std::byte* wire, float* to) HWY_ATTR {
    std::memcpy(bits, wire, 2 * blocks);
    for (std::size_t b = 0; b < rounded; b += kFloats) {
      hn::Store(load_elements<HalfLanes>(bits + b), F32(), to + b);
    }
  };
  load(lo_wire, ranges.lo);
  load(step_wire, ranges.step);
  const FloatVector least = floats_set(-kPlainExponent);
  const FloatVector most = floats_set(std::min(kPlainExponent, Payload::kLargestPower));
  auto plain = hn::Eq(least, least);
  for (std::size_t b = 0; b < rounded; b += kFloats) {
    const FloatVector lo = hn::Load(F32(), ranges.lo + b);
    const FloatVector step = hn::Load(F32(), ranges.step + b);
    // A step may be negative in foreign bytes.
    const FloatVector last = hn::Add(lo, hn::Mul(floats_set(last_index), step));
    plain = hn::And(plain, hn::And(hn::And(hn::Ge(lo, least), hn::Le(lo, most)),
                                   hn::And(hn::Ge(last, least), hn::Le(last, most))));
  }
  ranges.plain = hn::AllTrue(F32(), plain);
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

/// The values that the codes stand for, at most the largest number of the dtype.
template <class Payload, bool kPlain>
HWY_INLINE FloatVector values_of(const CodeLanes& codes, float lo, float step) {
  const FloatVector y = hn::Add(floats_set(lo), hn::Mul(codes.index, floats_set(step)));
  const FloatVector value =
      kPlain ? plain_exp2_fp32(y) : hn::Min(exp2_fp32(y), floats_set(Payload::kLargest));
  return hn::Or(hn::And(value, codes.is_some), codes.sign);
}

/// Elements of a tile of 16-bit elements by a table for every block, for codes of at most 4 bits:
/// nibbles if kNibbles, else bytes. `count` is rounded up to kStep.
template <class Payload, bool kPlain, bool kStream, bool kNibbles>
HWY_INLINE void decode_by_tables(const std::uint8_t* codes, std::size_t count, unsigned bits,
                                 std::size_t group, const TileRanges& ranges, std::uint16_t* out) {
  // The values of the first eight codes; with 4 bits, the others have the other sign. All tables
  // come before all elements, because a table takes long, but many can be under way.
  alignas(32) std::uint16_t values[TileRanges::kBlocks * 8];
  const std::size_t blocks = (count + group - 1) / group;
  for (std::size_t j = 0; j < 8; j += kFloats) {
    const CodeLanes lanes = code_lanes(hn::Iota(U32(), static_cast<std::uint32_t>(j)), bits);
    for (std::size_t b = 0; b < blocks; ++b) {
      const FloatVector value = values_of<Payload, kPlain>(lanes, ranges.lo[b], ranges.step[b]);
      hn::StoreU(Payload::from_float(value), HalfU16(), values + b * 8 + j);
    }
  }
  for (std::size_t begin = 0, b = 0; begin < count; begin += group, ++b) {
    const ValueTable table = signed_table(hn::LoadDup128(U16(), values + b * 8));
    const std::size_t end = std::min(begin + group, count);
    for (std::size_t i = begin; i < end; i += kBytes) {
      if constexpr (kNibbles) {
        store_values_of_nibbles<kStream>(table, codes + i / 2, out + i);
      } else {
        store_values<kStream>(table, hn::LoadU(U8(), codes + i), out + i);
      }
    }
  }
}

/// Elements of a tile, each by itself.
template <class Payload, bool kPlain, bool kStream>
HWY_INLINE void decode_directly(const std::uint8_t* codes, std::size_t count, unsigned bits,
                                std::size_t group, const TileRanges& ranges,
                                typename Payload::Element* out) {
  for (std::size_t begin = 0, b = 0; begin < count; begin += group, ++b) {
    for (std::size_t i = begin; i < std::min(begin + group, count); i += kFloats) {
      const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), codes + i));
      Payload::template store<kStream>(
          values_of<Payload, kPlain>(code_lanes(code, bits), ranges.lo[b], ranges.step[b]),
          out + i);
    }
  }
}

/// A tile from its planes; `out` has room for `rounded` elements, a multiple of kStep.
template <class Payload, bool kPlain, bool kStream>
HWY_INLINE void decode_tile(const PlanePointers<const std::byte>& planes, std::size_t count,
                            std::size_t rounded, const Layout& layout, const TileRanges& ranges,
                            typename Payload::Element* out) {
  alignas(32) std::uint8_t codes[kTile];
  const unsigned bits = layout.bits;
  const std::size_t group = std::min(layout.group, kTile);
  if constexpr (Payload::kIsWord) {
    if (bits == 4 && rounded == count) {
      const auto* const nibbles = reinterpret_cast<const std::uint8_t*>(planes.at[0]);
      decode_by_tables<Payload, kPlain, kStream, true>(nibbles, count, 4, group, ranges, out);
      return;
    }
  }
  unpack_tile(planes, count, bits, codes);
  std::fill(codes + count, codes + rounded, std::uint8_t{0});
  if constexpr (Payload::kIsWord) {
    if (bits <= 4) {
      decode_by_tables<Payload, kPlain, kStream, false>(codes, rounded, bits, group, ranges, out);
      return;
    }
  }
  decode_directly<Payload, kPlain, kStream>(codes, rounded, bits, group, ranges, out);
}

/// Where decoded tiles go: to their place, by a buffer or directly, or directly past the caches.
/// The last may end within a vector and then goes by the buffer.
enum class Way { buffered, direct, streamed };

/// Calls f(elements decoded, where they belong, how many) for every tile that is in the buffer.
template <class Payload, Way kWay, class F>
HWY_INLINE void for_each_decoded(const std::byte* wire, std::span<typename Payload::Element> x,
                                 const Layout& layout, const F& f) {
  using Element = typename Payload::Element;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  alignas(32) Element decoded[kTile];
  TileRanges ranges;
  const auto last_index = static_cast<float>(layout.levels() - 2);
  for (std::size_t begin = 0; begin < x.size(); begin += layout.chunk_elements()) {
    const std::size_t chunk = std::min(layout.chunk_elements(), x.size() - begin);
    const auto planes = planes_at(wire, chunk, layout.bits);
    const std::byte* const lo_wire = wire + planes_bytes(chunk, layout.bits);
    const std::byte* const step_wire = lo_wire + 2 * layout.blocks_of(chunk);
    // A tile is a whole chunk, or a part of the only block of a chunk.
    for (std::size_t first = 0; first < chunk; first += kTile) {
      const std::size_t count = std::min(kTile, chunk - first);
      const std::size_t rounded = (count + kStep - 1) / kStep * kStep;
      const std::size_t blocks = layout.blocks_of(count);
      Element* const out = x.data() + begin + first;
      const bool is_direct = kWay != Way::buffered && rounded == count;
      Element* const to = is_direct ? out : decoded;
      load_ranges<Payload>(lo_wire, step_wire, blocks, last_index, ranges);
      const auto tile_planes = advanced(planes, first, layout.bits);
      if (!ranges.plain) {
        decode_tile<Payload, false, false>(tile_planes, count, rounded, layout, ranges, to);
        for (std::size_t b = 0; b < blocks; ++b) {
          if (std::isfinite(ranges.lo[b]) && std::isfinite(ranges.step[b])) continue;
          const std::size_t size = std::min(layout.group, rounded - b * layout.group);
          std::fill_n(to + b * layout.group, size, Payload::Arithmetic::from_float(kNan));
        }
      } else if (is_direct) {
        decode_tile<Payload, true, kWay == Way::streamed>(tile_planes, count, rounded, layout,
                                                          ranges, to);
      } else {
        decode_tile<Payload, true, false>(tile_planes, count, rounded, layout, ranges, to);
      }
      if (!is_direct) f(decoded, out, count);
    }
    wire += layout.chunk_bytes(chunk);
  }
}

template <class Payload>
void decode_message(const std::byte* wire, std::span<typename Payload::Element> x,
                    const Layout& layout) {
  using Element = typename Payload::Element;
  const auto copy = [](const Element* from, Element* to, std::size_t count) {
    std::copy_n(from, count, to);
  };
  // A group of 16-byte pieces keeps every tile as aligned as the first.
  if (is_streamed(x)) {
    for_each_decoded<Payload, Way::streamed>(wire, x, layout, copy);
    hwy::FlushStream();
  } else {
    for_each_decoded<Payload, Way::direct>(wire, x, layout, copy);
  }
}

template <class Payload>
void decode_add_message(const std::byte* wire, std::span<typename Payload::Element> sum,
                        const Layout& layout) {
  using Element = typename Payload::Element;
  for_each_decoded<Payload, Way::buffered>(
      wire, sum, layout, [](const Element* addend, Element* to, std::size_t count) HWY_ATTR {
        add_elements<Payload>(addend, count, to);
      });
}

// ---------------------------------------------------------------- what the dispatch table holds

void logfmt_encode(const unsigned& bits, const Codec& scalar, DType dtype,
                   std::span<const std::byte> payload, std::span<std::byte> wire,
                   EncodeCounts*) {  // nothing is ever clamped
  const Layout layout{bits, scalar.info().block};
  with_payload(dtype, payload, [&]<class Payload>(auto x) {
    switch (bits) {
      case 2:
        return encode_message<Payload, 2>(scalar, dtype, x, layout, wire.data());
      case 3:
        return encode_message<Payload, 4>(scalar, dtype, x, layout, wire.data());
      case 4:
        return encode_message<Payload, 8>(scalar, dtype, x, layout, wire.data());
      default:
        return encode_message<Payload, 0>(scalar, dtype, x, layout, wire.data());
    }
  });
}

void logfmt_decode(const unsigned& bits, const Codec& scalar, DType dtype,
                   std::span<const std::byte> wire, std::span<std::byte> payload) {
  const Layout layout{bits, scalar.info().block};
  with_payload(dtype, payload,
               [&]<class Payload>(auto x) { decode_message<Payload>(wire.data(), x, layout); });
}

void logfmt_decode_add(const unsigned& bits, const Codec& scalar, DType dtype,
                       std::span<const std::byte> wire, std::span<std::byte> sum) {
  const Layout layout{bits, scalar.info().block};
  with_payload(dtype, sum,
               [&]<class Payload>(auto x) { decode_add_message<Payload>(wire.data(), x, layout); });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<unsigned> logfmt_functions() {
#if ARLAB_HAS_LANES
  return {logfmt_encode, logfmt_decode, logfmt_decode_add};
#else
  return scalar_functions<unsigned>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(logfmt_functions);

CodecFunctions<unsigned> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(logfmt_functions)();
}

}  // namespace

CodecPtr accelerated_logfmt(const CodecPtr& scalar) {
  constexpr std::string_view kName = "logfmt";
  const std::string& name = scalar->name();
  if (!name.starts_with(kName) || scalar->info().block % 32 != 0) return nullptr;
  return std::make_shared<AcceleratedCodec<unsigned>>(
      scalar, static_cast<unsigned>(name[kName.size()] - '0'), functions_of_this_processor);
}

}  // namespace arlab

#endif  // HWY_ONCE
