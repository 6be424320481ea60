// The smallest and the largest element of many blocks at once.
//
// Elements are compared as integers: two's complement numbers that order as the elements do, with
// -0 and +0 both 0, and with infinities and NaNs beyond every finite element on either side. A
// block's vectors of extremes are reduced to one lane by transposing: several blocks share every
// step.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_EXTREMES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_EXTREMES_INL_H_
#undef ARLAB_CODECS_SIMD_EXTREMES_INL_H_
#else
#define ARLAB_CODECS_SIMD_EXTREMES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- elements of a dtype, and keys

/// What the any-bit codecs need of a dtype's elements: values, and keys that order as they do.
template <class Lanes>
struct HalfWordElements : Lanes {
  using Element = std::uint16_t;
  using Key = std::int16_t;
  using Keys = I16;
  static constexpr std::size_t kKeyLanes = 2 * kFloats;
  static constexpr Key kInfinityKey = static_cast<Key>(Lanes::kInfinity);
  static constexpr Element kNaNElement = Lanes::kNaN;

  static bool is_nan(Element x) { return (x & 0x7FFF) > Lanes::kInfinity; }
  static bool is_finite(Element x) { return (x & 0x7FFF) < Lanes::kInfinity; }

  static HWY_INLINE FloatVector load(const Element* from) {
    return Lanes::to_float(hn::LoadU(HalfU16(), from));
  }
  static HWY_INLINE void store(FloatVector x, Element* to) {
    hn::StoreU(Lanes::from_float(x), HalfU16(), to);
  }
  static HWY_INLINE hn::Vec<Keys> keys(const Element* from) {
    return keys_of(hn::BitCast(I16(), hn::LoadU(U16(), from)));
  }
  static HWY_INLINE hn::Vec<Keys> keys_of(Int16Vector bits) {
    const Int16Vector magnitude = hn::And(bits, hn::Set(I16(), 0x7FFF));
    return with_sign(magnitude, bits);
  }
  static HWY_INLINE FloatVector values(hn::Vec<hn::Rebind<Key, F32>> key) {
    const hn::Rebind<Key, F32> d;
    const auto negative = hn::ShiftRight<15>(key);
    const auto magnitude = hn::Sub(hn::Xor(key, negative), negative);
    const auto sign = hn::And(key, hn::Set(d, std::numeric_limits<Key>::min()));
    return Lanes::to_float(hn::BitCast(HalfU16(), hn::Or(magnitude, sign)));
  }
};

/// All numbers are below 2^kTopExponent, and kLargest is what saturates.
struct HalfElements : HalfWordElements<HalfLanes> {
  static constexpr float kLargest = 65504.0f;
  static constexpr int kTopExponent = 16;
};
struct BfloatElements : HalfWordElements<BfloatLanes> {
  static constexpr float kLargest = 0x1.FEp127f;
  static constexpr int kTopExponent = 128;
};

struct FloatElements {
  using Element = float;
  using Key = std::int32_t;
  using Keys = I32;
  static constexpr std::size_t kKeyLanes = kFloats;
  static constexpr Key kInfinityKey = 0x7F800000;
  static constexpr Element kNaNElement = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kLargest = std::numeric_limits<float>::max();
  static constexpr int kTopExponent = 128;

  static bool is_nan(Element x) { return x != x; }
  static bool is_finite(Element x) { return x - x == 0; }

  static HWY_INLINE FloatVector load(const Element* from) { return hn::LoadU(F32(), from); }
  static HWY_INLINE void store(FloatVector x, Element* to) { hn::StoreU(x, F32(), to); }
  static HWY_INLINE hn::Vec<Keys> keys(const Element* from) {
    return keys_of(hn::BitCast(I32(), hn::LoadU(F32(), from)));
  }
  static HWY_INLINE hn::Vec<Keys> keys_of(Int32Vector bits) {
    const Int32Vector magnitude = hn::And(bits, hn::Set(I32(), 0x7FFFFFFF));
    return with_sign(magnitude, bits);
  }
  static HWY_INLINE FloatVector values(Int32Vector key) {
    const Int32Vector negative = hn::ShiftRight<31>(key);
    const Int32Vector magnitude = hn::Sub(hn::Xor(key, negative), negative);
    const Int32Vector sign = hn::And(key, hn::Set(I32(), std::numeric_limits<Key>::min()));
    return hn::BitCast(F32(), hn::Or(magnitude, sign));
  }
};

// ---------------------------------------------------------------- reduction by transposing

/// Two vectors whose 128-bit blocks repeat units of kUnitBytes, to one of twice the unit with the
/// larger of each two candidates.
template <std::size_t kUnitBytes, class D, class V>
HWY_INLINE V merged(D d, V a, V b) {
  static_assert(kUnitBytes >= 2 && kUnitBytes <= 16);
  if constexpr (kUnitBytes == 16) {
    return hn::Max(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else {
    using Unit =
        std::conditional_t<kUnitBytes == 2, std::uint16_t,
                           std::conditional_t<kUnitBytes == 4, std::uint32_t, std::uint64_t>>;
    const hn::Repartition<Unit, D> units;
    const auto x = hn::BitCast(units, a);
    const auto y = hn::BitCast(units, b);
    return hn::Max(hn::BitCast(d, hn::InterleaveLower(units, x, y)),
                   hn::BitCast(d, hn::InterleaveUpper(units, x, y)));
  }
}

/// Two rows of lanes to be reduced to their largest: for blocks, those that hold the complement of
/// the smallest, and the largest.
template <class V>
struct RowPair {
  V low;
  V high;
};

/// Reduces kRows pairs of rows; `row(i)` makes the i-th.
template <std::size_t kRows, class D, class F>
HWY_INLINE auto reduced(D d, const F& row, std::size_t first) {
  if constexpr (kRows == 1) {
    return row(first);
  } else {
    constexpr std::size_t kUnitBytes = kRows / 2 * sizeof(hn::TFromD<D>);
    const auto a = reduced<kRows / 2>(d, row, first);
    const auto b = reduced<kRows / 2>(d, row, first + kRows / 2);
    return RowPair<hn::Vec<D>>{merged<kUnitBytes>(d, a.low, b.low),
                               merged<kUnitBytes>(d, a.high, b.high)};
  }
}

/// For blocks 0 .. count - 1: low[b] and high[b] are the largest lanes of row(b)'s vectors. Both
/// arrays are written up to the next multiple of half a vector.
template <class D, class F>
HWY_INLINE void reduce_rows(D d, std::size_t count, const F& row, hn::TFromD<D>* low,
                            hn::TFromD<D>* high) {
  constexpr std::size_t kRows = kBytes / sizeof(hn::TFromD<D>) / 2;
  const hn::Half<D> half;
  for (std::size_t b = 0; b < count; b += kRows) {
    const auto existing = [&](std::size_t i) HWY_ATTR { return row(std::min(b + i, count - 1)); };
    const auto pair = reduced<kRows>(d, existing, 0);
    const auto all = merged<kRows * sizeof(hn::TFromD<D>)>(d, pair.low, pair.high);
    hn::StoreU(hn::LowerHalf(half, all), half, low + b);
    hn::StoreU(hn::UpperHalf(half, all), half, high + b);
  }
}

// ---------------------------------------------------------------- extremes of blocks

inline constexpr std::size_t kMostBlocks = 512;               // of 8 elements in a wire chunk
inline constexpr std::size_t kBlockSlots = kMostBlocks + 16;  // vectors may run over the end

/// Keys of the extremes of every block of a chunk.
template <class Elements>
struct Extremes {
  alignas(32) typename Elements::Key complement_of_low[kBlockSlots];
  alignas(32) typename Elements::Key high[kBlockSlots];

  typename Elements::Key low(std::size_t block) const {
    return static_cast<typename Elements::Key>(~complement_of_low[block]);
  }
  /// Whether all are, of the first `count` blocks.
  bool all_finite(std::size_t count) const {
    auto most_low = complement_of_low[0];
    auto most_high = high[0];
    for (std::size_t b = 0; b < count; ++b) {
      most_low = std::max(most_low, complement_of_low[b]);
      most_high = std::max(most_high, high[b]);
    }
    return most_low < Elements::kInfinityKey - 1 && most_high < Elements::kInfinityKey;
  }
  bool finite(std::size_t block) const {
    return high[block] < Elements::kInfinityKey && low(block) > -Elements::kInfinityKey;
  }
};

/// The rows of one block, whose length is a multiple of the lanes of a key vector. A kGroup of 0:
/// known only at run time.
template <class Elements, std::size_t kGroup>
HWY_INLINE RowPair<hn::Vec<typename Elements::Keys>> extremes_of_block(
    const typename Elements::Element* x, std::size_t group) {
  constexpr std::size_t kLanes = Elements::kKeyLanes;
  const std::size_t size = kGroup == 0 ? group : kGroup;
  auto low = Elements::keys(x);
  auto high = low;
  for (std::size_t i = kLanes; i < size; i += kLanes) {
    const auto key = Elements::keys(x + i);
    low = hn::Min(low, key);
    high = hn::Max(high, key);
  }
  return {hn::Not(low), high};
}

/// Extremes of blocks as bits, without the sign bit of the lowest, to keys. False if some block has
/// no sign bit that is set, or none that is not.
template <class Elements>
HWY_INLINE bool to_keys(std::size_t blocks, Extremes<Elements>& extremes) {
  const typename Elements::Keys d;
  auto all = hn::Zero(d);
  const auto one = hn::Set(d, typename Elements::Key{1});
  std::size_t b = 0;
  for (; b + Elements::kKeyLanes <= blocks; b += Elements::kKeyLanes) {
    const auto magnitude = hn::Load(d, extremes.complement_of_low + b);
    all = hn::Or(all, hn::Or(magnitude, hn::Load(d, extremes.high + b)));
    // The complement of -m is m - 1.
    hn::Store(hn::Sub(magnitude, one), d, extremes.complement_of_low + b);
  }
  bool holds = hn::AllFalse(d, hn::Lt(all, hn::Zero(d)));
  for (; b < blocks; ++b) {
    holds &= extremes.complement_of_low[b] >= 0 && extremes.high[b] >= 0;
    --extremes.complement_of_low[b];
  }
  return holds;
}

/// The same without keys, for blocks that have both a sign bit that is set and one that is not: as
/// signed numbers, the bits of the largest element are the largest, and as unsigned numbers those
/// of the smallest. Infinities and NaNs are beyond all others in both.
template <class Elements, std::size_t kGroup>
HWY_INLINE RowPair<hn::Vec<typename Elements::Keys>> extremes_of_signed_block(
    const typename Elements::Element* x, std::size_t group) {
  using Key = typename Elements::Key;
  constexpr std::size_t kLanes = Elements::kKeyLanes;
  const typename Elements::Keys d;
  const hn::RebindToUnsigned<typename Elements::Keys> magnitudes;
  const std::size_t size = kGroup == 0 ? group : kGroup;
  const auto bits = [&](std::size_t i)
                        HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const Key*>(x + i)); };
  auto high = bits(0);
  auto low = hn::BitCast(magnitudes, high);
  for (std::size_t i = kLanes; i < size; i += kLanes) {
    high = hn::Max(high, bits(i));
    low = hn::Max(low, hn::BitCast(magnitudes, bits(i)));
  }
  // Without the sign bit, unsigned numbers order as signed ones.
  return {hn::Xor(hn::BitCast(d, low), hn::Set(d, std::numeric_limits<Key>::min())), high};
}

/// The same for whole vectors of blocks of 16-bit elements: of kFloats blocks in turn, the smallest
/// elements without their signs, then the largest. False if a block has no sign bit that is set,
/// none that is not, or something that is not finite.
template <class Elements, std::size_t kGroup>
HWY_INLINE bool find_magnitudes(const std::uint16_t* x, std::size_t blocks, std::size_t group,
                                std::uint16_t* magnitudes) {
  const I16 d;
  const Uint16Vector largest_finite = hn::Set(U16(), Elements::kInfinity - 1);
  Uint16Vector beyond = hn::Zero(U16());
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const auto row = [&](std::size_t i) HWY_ATTR {
      return extremes_of_signed_block<Elements, kGroup>(x + (b + i) * group, group);
    };
    const auto pair = reduced<kFloats>(d, row, 0);
    const auto both = hn::BitCast(U16(), merged<2 * kFloats>(d, pair.low, pair.high));
    beyond = hn::Or(beyond, hn::SaturatedSub(both, largest_finite));
    hn::Store(both, U16(), magnitudes + 2 * b);
  }
  return hn::AllTrue(U16(), hn::Eq(beyond, hn::Zero(U16())));
}

/// The extremes of blocks by that, if it holds for all of them; else `extremes` is to be written
/// again.
template <class Elements, std::size_t kGroup>
HWY_INLINE bool find_signed_extremes(const typename Elements::Element* x, std::size_t blocks,
                                     std::size_t group, Extremes<Elements>& extremes) {
  const typename Elements::Keys d;
  reduce_rows(
      d, blocks,
      [&](std::size_t b)
          HWY_ATTR { return extremes_of_signed_block<Elements, kGroup>(x + b * group, group); },
      extremes.complement_of_low, extremes.high);
  return to_keys<Elements>(blocks, extremes);
}

template <class Elements>
void find_extremes(const typename Elements::Element* x, std::size_t blocks, std::size_t group,
                   Extremes<Elements>& extremes) {
  const auto find = [&]<std::size_t kGroup>() HWY_ATTR {
    if (find_signed_extremes<Elements, kGroup>(x, blocks, group, extremes)) return;
    reduce_rows(
        typename Elements::Keys(), blocks,
        [&](std::size_t b)
            HWY_ATTR { return extremes_of_block<Elements, kGroup>(x + b * group, group); },
        extremes.complement_of_low, extremes.high);
  };
  switch (group) {
    case 32:
      return find.template operator()<32>();
    case 64:
      return find.template operator()<64>();
    case 128:
      return find.template operator()<128>();
    default:
      return find.template operator()<0>();
  }
}

/// The extremes of one block of any length.
template <class Elements>
void find_extremes_of_one(const typename Elements::Element* x, std::size_t count,
                          Extremes<Elements>& extremes) {
  using Keys = typename Elements::Keys;
  constexpr std::size_t kLanes = Elements::kKeyLanes;
  typename Elements::Element last[kLanes];  // the rest; the first element again changes nothing
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < kLanes; ++i) last[i] = whole + i < count ? x[whole + i] : x[0];
  auto low = Elements::keys(last);
  auto high = low;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const auto key = Elements::keys(x + i);
    low = hn::Min(low, key);
    high = hn::Max(high, key);
  }
  reduce_rows(
      Keys(), 1, [&](std::size_t) HWY_ATTR { return RowPair<hn::Vec<Keys>>{hn::Not(low), high}; },
      extremes.complement_of_low, extremes.high);
}

// ---------------------------------------------------------------- where the extremes are

/// Indices of the first smallest and the first largest element of every block.
struct ExtremeIndices {
  std::uint16_t low[kBlockSlots];
  std::uint16_t high[kBlockSlots];
  // The elements themselves, if they are known.
  bool has_values = false;
  alignas(32) std::uint16_t minimum[kBlockSlots];
  alignas(32) std::uint16_t maximum[kBlockSlots];
};

#if ARLAB_AVX2
/// Words of 0 or all ones to bits, in the order of narrow_blocks.
HWY_INLINE std::uint32_t bits_of_words(Int16Vector low, Int16Vector high) {
  std::uint32_t bits = 0;
  const auto set = hn::MaskFromVec(hn::BitCast(U8(), narrow_signed(low, high)));
  hn::StoreMaskBits(U8(), set, reinterpret_cast<std::uint8_t*>(&bits));
  return bits;
}

/// For 16-bit elements in blocks of 32: all of them compared give the bits of one integer.
template <class Elements>
void find_indices_of_32(const std::uint16_t* x, std::size_t blocks,
                        const Extremes<Elements>& extremes, ExtremeIndices& indices) {
  const hn::FixedTag<std::uint16_t, 8> eight;
  for (std::size_t b = 0; b < blocks; ++b, x += 32) {
    // Dealt to the halves so that narrowing puts them in order.
    const auto keys_at = [&](std::size_t i) HWY_ATTR {
      return Elements::keys_of(hn::BitCast(
          I16(), hn::Combine(U16(), hn::LoadU(eight, x + i + 16), hn::LoadU(eight, x + i))));
    };
    const Int16Vector first = keys_at(0);
    const Int16Vector second = keys_at(8);
    const auto index_of = [&](std::int16_t key) HWY_ATTR {
      const Int16Vector wanted = hn::Set(I16(), key);
      const auto equal = [wanted](Int16Vector v)
                             HWY_ATTR { return hn::VecFromMask(I16(), hn::Eq(v, wanted)); };
      return static_cast<std::uint16_t>(
          std::countr_zero(bits_of_words(equal(first), equal(second))));
    };
    indices.low[b] = index_of(extremes.low(b));
    indices.high[b] = index_of(extremes.high[b]);
  }
}

/// Extremes of blocks of 32 that are no zeros, with their indices, and the blocks with +0 in their
/// places. False, and all is to be written again, if it cannot be done.
template <class Elements>
bool take_extremes_of_32(const std::uint16_t* x, std::size_t blocks, ExtremeIndices& indices,
                         std::uint16_t* without) {
  constexpr std::size_t kSize = 32;
  alignas(32) std::uint16_t magnitudes[2 * kBlockSlots];
  if (blocks % kFloats != 0 || !find_magnitudes<Elements, kSize>(x, blocks, kSize, magnitudes)) {
    return false;
  }
  auto any_zero = hn::Zero(U16());
  const hn::FixedTag<std::uint16_t, 8> eight;
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const Uint16Vector both = hn::Load(U16(), magnitudes + 2 * b);
    any_zero = hn::Or(any_zero, hn::VecFromMask(U16(), hn::Eq(both, hn::Zero(U16()))));
    hn::Store(hn::Or(hn::LowerHalf(eight, both), hn::Set(eight, 0x8000)), eight,
              indices.minimum + b);
    hn::Store(hn::UpperHalf(eight, both), eight, indices.maximum + b);
  }
  if (!hn::AllTrue(U16(), hn::Eq(any_zero, hn::Zero(U16())))) return false;

  // Bit i of a mask is of element i, but with the middle bytes exchanged.
  alignas(32) static constexpr std::uint8_t kElement[32] = {
      0, 1, 2,  3,  4,  5,  6,  7,  16, 17, 18, 19, 20, 21, 22, 23,
      8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31};
  for (std::size_t b = 0; b < blocks; ++b, x += kSize, without += kSize) {
    const Uint16Vector first = hn::LoadU(U16(), x);
    const Uint16Vector second = hn::LoadU(U16(), x + 16);
    const auto equal = [](Uint16Vector v, Uint16Vector wanted)
                           HWY_ATTR { return hn::VecFromMask(U16(), hn::Eq(v, wanted)); };
    const auto mask_of = [](Uint16Vector low, Uint16Vector high) HWY_ATTR {
      return bits_of_words(hn::BitCast(I16(), low), hn::BitCast(I16(), high));
    };
    const Uint16Vector smallest = hn::Set(U16(), indices.minimum[b]);
    const Uint16Vector largest = hn::Set(U16(), indices.maximum[b]);
    const Uint16Vector low[2] = {equal(first, smallest), equal(second, smallest)};
    const Uint16Vector high[2] = {equal(first, largest), equal(second, largest)};
    const std::uint32_t low_mask = mask_of(low[0], low[1]);
    const std::uint32_t high_mask = mask_of(high[0], high[1]);
    hn::Store(hn::AndNot(hn::Or(low[0], high[0]), first), U16(), without);
    hn::Store(hn::AndNot(hn::Or(low[1], high[1]), second), U16(), without + 16);
    if (HWY_LIKELY(((low_mask & (low_mask - 1)) | (high_mask & (high_mask - 1))) == 0)) {
      indices.low[b] = kElement[std::countr_zero(low_mask)];
      indices.high[b] = kElement[std::countr_zero(high_mask)];
      continue;
    }
    // Several are equal: only the first is taken.
    const auto first_of = [](std::uint32_t mask) {
      return static_cast<std::uint16_t>(
          std::countr_zero((mask & 0xFF0000FF) | (mask & 0xFF00) << 8 | (mask >> 8 & 0xFF00)));
    };
    indices.low[b] = first_of(low_mask);
    indices.high[b] = first_of(high_mask);
    std::copy_n(x, kSize, without);
    without[indices.low[b]] = 0;
    without[indices.high[b]] = 0;
  }
  return true;
}
#endif

/// Needs blocks of at most 32767 elements.
template <class Elements>
void find_indices(const typename Elements::Element* x, std::size_t blocks, std::size_t group,
                  const Extremes<Elements>& extremes, ExtremeIndices& indices) {
  using Keys = typename Elements::Keys;
  using Key = typename Elements::Key;
  constexpr std::size_t kLanes = Elements::kKeyLanes;
#if ARLAB_AVX2
  if constexpr (sizeof(Key) == 2) {
    if (group == 32) return find_indices_of_32(x, blocks, extremes, indices);
  }
#endif
  const Keys d;
  // An element that equals the extreme counts kLast minus its index, others 0: the first wins.
  constexpr Key kLast = 32767;
  const auto first_ranks = hn::Sub(hn::Set(d, kLast), hn::Iota(d, 0));
  const auto step = hn::Set(d, static_cast<Key>(kLanes));
  alignas(32) Key low[kBlockSlots];
  alignas(32) Key high[kBlockSlots];
  reduce_rows(
      d, blocks,
      [&](std::size_t b) HWY_ATTR {
        const auto smallest = hn::Set(d, extremes.low(b));
        const auto largest = hn::Set(d, extremes.high[b]);
        auto low_rank = hn::Zero(d);
        auto high_rank = low_rank;
        auto ranks = first_ranks;
        for (std::size_t i = 0; i < group; i += kLanes) {
          const auto key = Elements::keys(x + b * group + i);
          const auto is_low = hn::VecFromMask(d, hn::Eq(key, smallest));
          const auto is_high = hn::VecFromMask(d, hn::Eq(key, largest));
          low_rank = hn::Max(low_rank, hn::And(is_low, ranks));
          high_rank = hn::Max(high_rank, hn::And(is_high, ranks));
          ranks = hn::Sub(ranks, step);
        }
        return RowPair<hn::Vec<Keys>>{low_rank, high_rank};
      },
      low, high);
  for (std::size_t b = 0; b < blocks; ++b) {
    indices.low[b] = static_cast<std::uint16_t>(kLast - low[b]);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    indices.high[b] = static_cast<std::uint16_t>(kLast - high[b]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
