// logfmt<n>-g<G> (spec section 3) with vectors, for G that are multiples of 32. ../logfmt.cc says
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
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/portable_log-inl.h"

#if ARLAB_HAS_LANES

#include "reference/codecs/simd/bit_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kTile = 4096;       // elements whose codes are kept in bytes
constexpr std::size_t kBatch = 8;         // blocks whose thresholds are kept
constexpr std::size_t kStep = 32;         // every group is a multiple of it
constexpr std::size_t kMostLevels = 128;  // magnitudes of a code

/// Sizes of a wire, in elements and bytes.
struct Layout {
  unsigned bits;
  std::size_t group;

  std::size_t chunk_elements() const { return group >= kTile ? group : kTile / group * group; }
  std::size_t blocks_of(std::size_t elements) const { return (elements + group - 1) / group; }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, bits) + 4 * blocks_of(elements);
  }
  std::size_t levels() const { return std::size_t{1} << (bits - 1); }
};

// ---------------------------------------------------------------- extremes

/// For magnitudes as integers, what grows as they fall, and is the smallest number of all for 0.
HWY_INLINE Int16Vector falling(Int16Vector m) { return hn::Sub(hn::Set(I16(), -32768), m); }
HWY_INLINE Int32Vector falling(Int32Vector m) {
  return hn::Sub(hn::Set(I32(), std::numeric_limits<std::int32_t>::min()), m);
}
inline void from_falling(std::uint16_t& key) { key = static_cast<std::uint16_t>(0x8000U - key); }
inline void from_falling(float& key) {
  key = std::bit_cast<float>(0x80000000U - std::bit_cast<std::uint32_t>(key));
}

/// The largest magnitudes of `blocks` blocks, and the smallest but zeros, which are 0 if there are
/// only zeros. Written up to kBatch.
template <class Element>
HWY_INLINE void find_magnitudes(const Element* x, std::size_t blocks, std::size_t group,
                                Element* largest, Element* smallest) {
  constexpr std::size_t kLanes = kBytes / sizeof(Element);
  const auto row = [&](std::size_t b, const auto& f) HWY_ATTR {
    const Element* const block = x + std::min(b, blocks - 1) * group;
    auto best = f(magnitudes(block));
    for (std::size_t i = kLanes; i < group; i += kLanes) {
      best = hn::Max(best, f(magnitudes(block + i)));
    }
    return best;
  };
  largest_of_rows(
      kBatch, [&](std::size_t b) HWY_ATTR { return row(b, [](auto m) HWY_ATTR { return m; }); },
      as_signed(largest));
  largest_of_rows(
      kBatch,
      [&](std::size_t b) HWY_ATTR { return row(b, [](auto m) HWY_ATTR { return falling(m); }); },
      as_signed(smallest));
  for (std::size_t b = 0; b < kBatch; ++b) from_falling(smallest[b]);
}

// ---------------------------------------------------------------- thresholds

/// Lanes of blocks.
struct Range {
  FloatVector lo;
  FloatVector step;
};

/// RN((v0 + v1) / 2) is within 2^-23 of the middle, and so is the real number from which on the
/// rounded differences are no longer less. Neighbours in a 16-bit dtype are 2^-12 apart or more,
/// so T is the dtype's nearest number to it, or the next: what the definition says of the nearest
/// decides.
template <class Payload>
HWY_INLINE HalfUint16Vector threshold_word(FloatVector v0, FloatVector v1) {
  const FloatVector middle = hn::Mul(hn::Add(v0, v1), floats_set(0.5f));
  const HalfUint16Vector nearest = Payload::from_float(middle);
  const FloatVector m = Payload::to_float(nearest);
  const auto is_below = hn::Lt(hn::Sub(m, v0), hn::Sub(v1, m));
  const Uint32Vector one_more =
      hn::IfThenElseZero(hn::RebindMask(U32(), is_below), hn::Set(U32(), 1));
  return hn::Add(nearest, hn::TruncateTo(HalfU16(), one_more));
}

/// In fp32 five neighbours of the middle are tried; `found` where T is one of them.
HWY_INLINE Int32Vector threshold_float(FloatVector v0, FloatVector v1, hn::Mask<F32>& found) {
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

/// What a block's elements are compared with: one less than T(K), for block b of a batch at
/// [K * kBatch + b]. The largest number for a threshold that nothing reaches.
template <class Payload>
using Thresholds = std::conditional_t<Payload::kIsWord, std::int16_t, std::int32_t>;

/// Thresholds of kFloats blocks. Returns a mask of the blocks that the scalar codec has to encode;
/// nothing is reached in blocks without `is_coded`.
template <class Payload>
HWY_INLINE hn::Mask<F32> find_thresholds(const Range& range, hn::Mask<F32> is_coded,
                                         std::size_t levels, Thresholds<Payload>* out) {
  const FloatVector zero = hn::Zero(F32());
  const auto is_constant = hn::Eq(range.step, zero);
  FloatVector below = zero;
  auto is_plain = hn::Eq(zero, zero);
  for (std::size_t k = 1; k < levels; ++k, out += kBatch) {
    const FloatVector index = floats_set(static_cast<float>(k - 1));
    const FloatVector value = exp2_fp32(hn::Add(range.lo, hn::Mul(index, range.step)));
    auto is_reached = is_coded;
    if (k == 1) {
      is_plain = hn::Gt(value, floats_set(0x1p-100f));
    } else {
      // Where all values are the same, only the first is meant.
      is_plain = hn::And(is_plain, hn::Or(is_constant, hn::Gt(value, below)));
      is_reached = hn::AndNot(is_constant, is_reached);
    }
    const Int32Vector never = hn::Set(I32(), std::numeric_limits<Thresholds<Payload>>::max());
    if constexpr (Payload::kIsWord) {
      const Int32Vector threshold =
          hn::BitCast(I32(), hn::PromoteTo(U32(), threshold_word<Payload>(below, value)));
      const Int32Vector compared = hn::IfThenElse(hn::RebindMask(I32(), is_reached),
                                                  hn::Sub(threshold, hn::Set(I32(), 1)), never);
      hn::StoreU(hn::DemoteTo(HalfI16(), compared), HalfI16(), out);
    } else {
      hn::Mask<F32> found;
      const Int32Vector threshold = threshold_float(below, value, found);
      is_plain = hn::And(is_plain, hn::Or(found, hn::Not(is_reached)));
      hn::StoreU(hn::IfThenElse(hn::RebindMask(I32(), is_reached),
                                hn::Sub(threshold, hn::Set(I32(), 1)), never),
                 I32(), out);
    }
    below = value;
  }
  is_plain = hn::And(is_plain, hn::Lt(below, floats_set(0x1p126f)));
  return hn::And(is_coded, hn::Not(is_plain));
}

/// lo and step as they travel, and the thresholds, of kBatch blocks. Returns a bit for every block
/// that the scalar codec has to encode.
template <class Payload>
HWY_INLINE std::uint64_t find_batch(const typename Payload::Element* largest,
                                    const typename Payload::Element* smallest, unsigned bits,
                                    std::uint16_t* lo_bits, std::uint16_t* step_bits,
                                    Thresholds<Payload>* thresholds) {
  const std::size_t levels = std::size_t{1} << (bits - 1);
  std::uint64_t left = 0;
  for (std::size_t b = 0; b < kBatch; b += kFloats) {
    const FloatVector high = Payload::load(largest + b);
    const auto is_finite =
        hn::RebindMask(F32(), hn::Lt(hn::BitCast(I32(), high), hn::Set(I32(), 0x7F800000)));
    const auto is_coded = hn::And(is_finite, hn::Gt(high, hn::Zero(F32())));
    const FloatVector hi = log2_fp32(high);
    FloatVector lo = hi;
    FloatVector step = hn::Zero(F32());
    if (bits > 2) {
      lo = hn::Max(log2_fp32(Payload::load(smallest + b)), hn::Sub(hi, floats_set(32.0f)));
      step = hn::Div(hn::Sub(hi, lo), floats_set(static_cast<float>(levels - 2)));
    }
    const FloatVector nan = float_of(hn::Set(U32(), 0x7FC00000));
    lo = hn::IfThenElse(is_finite, hn::IfThenElseZero(is_coded, lo), nan);
    step = hn::IfThenElseZero(is_coded, step);
    const HalfUint16Vector lo_half = HalfLanes::from_float(lo);
    const HalfUint16Vector step_half = HalfLanes::from_float(step);
    hn::StoreU(lo_half, HalfU16(), lo_bits + b);
    hn::StoreU(step_half, HalfU16(), step_bits + b);
    const Range range{HalfLanes::to_float(lo_half), HalfLanes::to_float(step_half)};
    const auto rest = find_thresholds<Payload>(range, is_coded, levels, thresholds + b);
    std::uint8_t rest_bits[8] = {};
    hn::StoreMaskBits(F32(), rest, rest_bits);
    left |= std::uint64_t{rest_bits[0]} << b;
  }
  return left;
}

// ---------------------------------------------------------------- encode

/// Codes of a block of 16-bit elements, a byte each. A kLevels of 0: known only at run time.
template <std::size_t kLevels>
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
      const Int16Vector compared = hn::Set(I16(), thresholds[k * kBatch]);
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

template <std::size_t kLevels>
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
      const Int32Vector compared = hn::Set(I32(), thresholds[k * kBatch]);
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
  alignas(32) Element largest[kBatch];
  alignas(32) Element smallest[kBatch];
  alignas(32) Thresholds<Payload> thresholds[kMostLevels * kBatch];
  alignas(16) std::uint16_t lo[kBatch];
  alignas(16) std::uint16_t step[kBatch];
  for (std::size_t first = 0; first < blocks; first += kBatch) {
    const std::size_t batch = std::min(kBatch, blocks - first);
    const std::size_t vectors = std::min(kBatch, whole - std::min(whole, first));
    std::uint64_t left = ~std::uint64_t{0};
    if (vectors != 0) {
      const Element* const from = x.data() + first * layout.group;
      find_magnitudes(from, vectors, layout.group, largest, smallest);
      left = find_batch<Payload>(largest, smallest, layout.bits, lo, step, thresholds);
      if (vectors < kBatch) left |= ~std::uint64_t{0} << vectors;
    }
    for (std::size_t b = 0; b < batch; ++b) {
      const std::size_t begin = (first + b) * layout.group;
      const std::size_t size = std::min(layout.group, x.size() - begin);
      if ((left >> b & 1) != 0) {
        encode_block_exactly(scalar, dtype, x.subspan(begin, size), layout, writer, lo[b], step[b]);
        continue;
      }
      for (std::size_t i = 0; i < size; i += kTile) {
        const std::size_t count = std::min(kTile, size - i);
        encode_elements<kLevels>(x.data() + begin + i, count, thresholds + b, layout.levels(),
                                 writer.room(count));
      }
    }
    std::memcpy(lo_wire + 2 * first, lo, 2 * batch);
    std::memcpy(step_wire + 2 * first, step, 2 * batch);
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

inline float half_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return half_to_float(bits);
}

/// Values of magnitude codes, given as floats less 1; that of code 0 is 0.
HWY_INLINE FloatVector values_of(FloatVector code_less_one, float lo, float step) {
  const FloatVector value =
      exp2_fp32(hn::Add(floats_set(lo), hn::Mul(code_less_one, floats_set(step))));
  return hn::IfThenElseZero(hn::Ge(code_less_one, hn::Zero(F32())), value);
}

/// 16-bit values of the codes first .. first + kFloats - 1.
template <class Payload>
HWY_INLINE HalfUint16Vector words_of_codes(std::int32_t first, unsigned bits, float lo,
                                           float step) {
  const Int32Vector code = hn::Iota(I32(), first);
  const Int32Vector levels = hn::Set(I32(), 1 << (bits - 1));
  const Int32Vector magnitude = hn::And(code, hn::Sub(levels, hn::Set(I32(), 1)));
  const auto is_negative = hn::TestBit(code, levels);
  const FloatVector less_one = hn::ConvertTo(F32(), hn::Sub(magnitude, hn::Set(I32(), 1)));
  const FloatVector sign =
      hn::IfThenElseZero(hn::RebindMask(F32(), is_negative), float_of(hn::Set(U32(), 0x80000000)));
  return Payload::from_float(hn::Or(values_of(less_one, lo, step), sign));
}

/// A block's elements by a table, for codes of at most 4 bits. `count` may be rounded up.
template <class Payload>
HWY_INLINE void decode_by_table(const std::uint8_t* codes, std::size_t count, unsigned bits,
                                float lo, float step, std::uint16_t* out) {
  // The first eight codes; with 4 bits, the others have the other sign.
  const HalfUint16Vector first = words_of_codes<Payload>(0, bits, lo, step);
#if ARLAB_X86_256
  const WordsOfBlock values = first;
#else
  const WordsOfBlock values =
      hn::Combine(U16(), words_of_codes<Payload>(kFloats, bits, lo, step), first);
#endif
  const ValueTable table = signed_table(both_blocks(values, values));
  for (std::size_t i = 0; i < count; i += kBytes) {
    store_values(table, hn::LoadU(U8(), codes + i), out + i);
  }
}

/// A block's elements each by itself.
template <class Payload>
HWY_INLINE void decode_directly(const std::uint8_t* codes, std::size_t count, unsigned bits,
                                float lo, float step, typename Payload::Element* out) {
  const Uint32Vector magnitude_mask = hn::Set(U32(), (1U << (bits - 1)) - 1);
  const int to_sign = static_cast<int>(32 - bits);
  for (std::size_t i = 0; i < count; i += kFloats) {
    const Uint32Vector code = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), codes + i));
    const Uint32Vector magnitude = hn::And(code, magnitude_mask);
    const FloatVector less_one =
        hn::ConvertTo(F32(), hn::Sub(hn::BitCast(I32(), magnitude), hn::Set(I32(), 1)));
    const Uint32Vector sign = hn::ShiftLeftSame(hn::Xor(code, magnitude), to_sign);
    Payload::store(hn::Or(values_of(less_one, lo, step), float_of(sign)), out + i);
  }
}

/// Calls f(elements decoded, where they belong, how many) for every tile; with kDirect only for the
/// last, which may end within a vector.
template <class Payload, bool kDirect, class F>
HWY_INLINE void for_each_decoded(const std::byte* wire, std::span<typename Payload::Element> x,
                                 const Layout& layout, const F& f) {
  using Element = typename Payload::Element;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  alignas(32) std::uint8_t codes[kTile];
  alignas(32) Element decoded[kTile];
  for (std::size_t begin = 0; begin < x.size(); begin += layout.chunk_elements()) {
    const std::size_t chunk = std::min(layout.chunk_elements(), x.size() - begin);
    const auto planes = planes_at(wire, chunk, layout.bits);
    const std::byte* const lo_wire = wire + planes_bytes(chunk, layout.bits);
    const std::byte* const step_wire = lo_wire + 2 * layout.blocks_of(chunk);
    // A tile is a whole chunk, or a part of the only block of a chunk.
    for (std::size_t first = 0; first < chunk; first += kTile) {
      const std::size_t count = std::min(kTile, chunk - first);
      unpack_tile(advanced(planes, first, layout.bits), count, layout.bits, codes);
      const std::size_t rounded = (count + kStep - 1) / kStep * kStep;
      std::fill(codes + count, codes + rounded, std::uint8_t{0});
      Element* const out = x.data() + begin + first;
      Element* const to = kDirect && rounded == count ? out : decoded;
      for (std::size_t i = 0; i < rounded; i += std::min(layout.group, kTile)) {
        const std::size_t size = std::min(layout.group, rounded - i);
        const std::size_t block = (first + i) / layout.group;
        const float lo = half_at(lo_wire + 2 * block);
        const float step = half_at(step_wire + 2 * block);
        if (std::isnan(lo)) {
          std::fill_n(to + i, size, Payload::Arithmetic::from_float(kNan));
          continue;
        }
        if constexpr (Payload::kIsWord) {
          if (layout.bits <= 4) {
            decode_by_table<Payload>(codes + i, size, layout.bits, lo, step, to + i);
            continue;
          }
        }
        decode_directly<Payload>(codes + i, size, layout.bits, lo, step, to + i);
      }
      if (to == decoded) f(decoded, out, count);
    }
    wire += layout.chunk_bytes(chunk);
  }
}

template <class Payload>
void decode_message(const std::byte* wire, std::span<typename Payload::Element> x,
                    const Layout& layout) {
  using Element = typename Payload::Element;
  if (is_streamed(x)) {
    for_each_decoded<Payload, false>(wire, x, layout,
                                     [](const Element* from, Element* to, std::size_t count)
                                         HWY_ATTR { stream_elements(from, count, to); });
    hwy::FlushStream();
  } else {
    for_each_decoded<Payload, true>(
        wire, x, layout,
        [](const Element* from, Element* to, std::size_t count) { std::copy_n(from, count, to); });
  }
}

template <class Payload>
void decode_add_message(const std::byte* wire, std::span<typename Payload::Element> sum,
                        const Layout& layout) {
  using Element = typename Payload::Element;
  for_each_decoded<Payload, false>(wire, sum, layout,
                                   [](const Element* addend, Element* to, std::size_t count)
                                       HWY_ATTR { add_elements<Payload>(addend, count, to); });
}

// ---------------------------------------------------------------- what the dispatch table holds

void logfmt_encode(unsigned bits, const Codec& scalar, DType dtype,
                   std::span<const std::byte> payload, std::span<std::byte> wire) {
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

void logfmt_decode(unsigned bits, const Codec& scalar, DType dtype, std::span<const std::byte> wire,
                   std::span<std::byte> payload) {
  const Layout layout{bits, scalar.info().block};
  with_payload(dtype, payload,
               [&]<class Payload>(auto x) { decode_message<Payload>(wire.data(), x, layout); });
}

void logfmt_decode_add(unsigned bits, const Codec& scalar, DType dtype,
                       std::span<const std::byte> wire, std::span<std::byte> sum) {
  const Layout layout{bits, scalar.info().block};
  with_payload(dtype, sum,
               [&]<class Payload>(auto x) { decode_add_message<Payload>(wire.data(), x, layout); });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#else  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

void logfmt_encode(unsigned, const Codec& scalar, DType dtype, std::span<const std::byte> payload,
                   std::span<std::byte> wire) {
  scalar.encode(dtype, payload, wire);
}
void logfmt_decode(unsigned, const Codec& scalar, DType dtype, std::span<const std::byte> wire,
                   std::span<std::byte> payload) {
  scalar.decode(dtype, wire, payload);
}
void logfmt_decode_add(unsigned, const Codec& scalar, DType dtype, std::span<const std::byte> wire,
                       std::span<std::byte> sum) {
  scalar.decode_add(dtype, wire, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(logfmt_encode);
HWY_EXPORT(logfmt_decode);
HWY_EXPORT(logfmt_decode_add);

class AcceleratedLogFmt final : public Codec {
 public:
  AcceleratedLogFmt(CodecPtr scalar, unsigned bits)
      : Codec(scalar->info()), scalar_(std::move(scalar)), bits_(bits) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return scalar_->wire_bytes(dtype, elements);
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {  // nothing is ever clamped
    HWY_DYNAMIC_DISPATCH(logfmt_encode)(bits_, *scalar_, dtype, payload, wire);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    HWY_DYNAMIC_DISPATCH(logfmt_decode)(bits_, *scalar_, dtype, wire, payload);
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    HWY_DYNAMIC_DISPATCH(logfmt_decode_add)(bits_, *scalar_, dtype, wire, sum);
  }

  CodecPtr scalar_;
  unsigned bits_;
};

}  // namespace

CodecPtr accelerated_logfmt(const CodecPtr& scalar) {
  constexpr std::string_view kName = "logfmt";
  const std::string& name = scalar->name();
  if (!name.starts_with(kName) || scalar->info().block % 32 != 0) return nullptr;
  return std::make_shared<AcceleratedLogFmt>(scalar,
                                             static_cast<unsigned>(name[kName.size()] - '0'));
}

}  // namespace arlab

#endif  // HWY_ONCE
