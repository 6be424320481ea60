// Decoding codes of two to five bits to fp16 or bf16 by looking them up.
//
// What a code stands for depends on nothing but its block's scale and zero, so a table of all codes
// is exact by construction. Tables have 16 elements, split into their low and their high bytes, for
// byte shuffles; a fifth bit chooses between two tables. Those of four bits are kept as elements
// and split when they are used, by multiplications: shuffles are what the processor has least of.
//
// Codes are taken from the planes in units of 32 elements. Of a vector of 256 bits, each 128-bit
// part has every other eight elements, so that interleaving looked up bytes puts the elements in
// order. Both parts then look up in the same table, which a load puts into both for nothing.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_LOOKUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#undef ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#else
#define ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/simd/bit_planes-inl.h"
#include "reference/codecs/simd/integers-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kLookupUnit = 32;                     // elements
inline constexpr std::size_t kUnitVectors = kLookupUnit / kBytes;  // 1 or 2
inline constexpr std::size_t kParts = kBytes / 16;                 // 128-bit parts of a vector

/// Indices into the tables. With five bits, `upper` are all ones where the second table counts.
struct UnitCodes {
  // Written out, since what a compiler adds at the end of a file is for no target.
  HWY_INLINE UnitCodes() {}  // NOLINT(modernize-use-equals-default)
  ByteVector index[kUnitVectors];
  ByteVector upper[kUnitVectors];
};

/// Vector i of a unit, for bytes that hold kElementsPerByte elements each: which byte every element
/// is in.
template <std::size_t kElementsPerByte>
HWY_INLINE ByteVector bytes_of_elements(std::size_t vector) {
  alignas(32) static constexpr std::array<std::uint8_t, kLookupUnit> kByte = [] {
    std::array<std::uint8_t, kLookupUnit> bytes = {};
    for (std::size_t i = 0; i < kLookupUnit; ++i) {
      // In a part, the first eight elements are followed by those kParts eights further on.
      const std::size_t eight = i / 8;
      const std::size_t dealt = kParts == 2 ? eight % 2 * 2 + eight / 2 : eight;
      bytes[i] = static_cast<std::uint8_t>((8 * dealt + i % 8) / kElementsPerByte);
    }
    return bytes;
  }();
  return hn::Load(U8(), kByte.data() + vector * kBytes);
}

HWY_INLINE void read_nibbles(const std::byte* plane, std::size_t unit, UnitCodes& codes) {
  const ByteVector v =
      hn::LoadDup128(U8(), reinterpret_cast<const std::uint8_t*>(plane) + kLookupUnit / 2 * unit);
  for (std::size_t i = 0; i < kUnitVectors; ++i) {
    const ByteVector twice = hn::TableLookupBytes(v, bytes_of_elements<2>(i));
    const ByteVector own = hn::And(twice, hn::BitCast(U8(), hn::Set(U16(), 0xF00F)));
    codes.index[i] = hn::BitCast(U8(), joined_pairs<16>(own));
  }
}

/// The bytes of a unit's crumbs or bits, over and over.
template <class Word>
HWY_INLINE ByteVector repeated_word(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return hn::BitCast(U8(), hn::Set(hn::Repartition<Word, F32>(), word));
}

/// Crumbs become indices without being shifted into place: 0 .. 3, or four times that.
HWY_INLINE void read_crumbs(const std::byte* plane, std::size_t unit, UnitCodes& codes) {
  const ByteVector v = repeated_word<std::uint64_t>(plane + kLookupUnit / 4 * unit);
  const auto low_half = hn::BitCast(U8(), hn::Set(U32(), 0x00000C03));
  const auto high_half = hn::BitCast(U8(), hn::Set(U32(), 0x0C030000));
  for (std::size_t i = 0; i < kUnitVectors; ++i) {
    const ByteVector fours = hn::TableLookupBytes(v, bytes_of_elements<4>(i));
    const auto shifted = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), fours)));
    codes.index[i] = hn::Or(hn::And(fours, low_half), hn::And(shifted, high_half));
  }
}

/// All ones for the elements whose bit is set.
HWY_INLINE void read_bits(const std::byte* plane, std::size_t unit,
                          ByteVector (&set)[kUnitVectors]) {
  const ByteVector v = repeated_word<std::uint32_t>(plane + kLookupUnit / 8 * unit);
  const ByteVector bit = hn::BitCast(U8(), hn::Set(U64(), 0x8040201008040201));
  for (std::size_t i = 0; i < kUnitVectors; ++i) {
    const ByteVector bytes = hn::TableLookupBytes(v, bytes_of_elements<8>(i));
    set[i] = hn::VecFromMask(U8(), hn::Eq(hn::And(bytes, bit), bit));
  }
}

template <unsigned kBits>
HWY_INLINE UnitCodes read_unit(const PlanePointers<const std::byte>& planes, std::size_t unit) {
  UnitCodes codes;
  if constexpr (kBits >= 4) {
    read_nibbles(planes.at[0], unit, codes);
    if constexpr (kBits == 5) read_bits(planes.at[1], unit, codes.upper);
  } else {
    read_crumbs(planes.at[0], unit, codes);
    if constexpr (kBits == 3) {
      alignas(16) static constexpr std::uint8_t kCodes[16] = {0, 1, 2, 3, 1, 0, 0, 0,
                                                              2, 0, 0, 0, 3, 0, 0, 0};
      const ByteVector to_codes = hn::LoadDup128(U8(), kCodes);
      ByteVector set[kUnitVectors];
      read_bits(planes.at[1], unit, set);
      for (std::size_t i = 0; i < kUnitVectors; ++i) {
        codes.index[i] = hn::Or(hn::TableLookupBytes(to_codes, codes.index[i]),
                                hn::And(set[i], hn::Set(U8(), 4)));
      }
    }
  }
  return codes;
}

/// Tables of 16 elements that a block has.
template <unsigned kBits>
inline constexpr std::size_t kTables = kBits == 5 ? 2 : 1;

/// The low and the high bytes of 16 elements, in every part.
struct SplitTable {
  ByteVector low;
  ByteVector high;
};

/// Tables of as many blocks as a vector has parts lie side by side. With up to three bits, low
/// bytes before high ones; else block by block, eight elements of even codes before those of odd
/// ones.
template <unsigned kBits>
inline constexpr std::size_t kTableBytes = 2 * kTables<kBits> * kBytes;
template <unsigned kBits>
inline constexpr bool kSplitLate = kBits >= 4;

/// Table `table` of the block that is in part `part`.
template <unsigned kBits>
HWY_INLINE SplitTable load_table(const std::uint8_t* tables, std::size_t part, std::size_t table) {
  if constexpr (kSplitLate<kBits>) {
    // A load that begins a byte off is a shift for nothing.
    const std::uint8_t* const even = tables + (part * kTables<kBits> + table) * 32;
    const std::uint8_t* const odd = even + 16;
    const auto is_high = hn::MaskFromVec(hn::BitCast(U8(), hn::Set(U16(), 0xFF00)));
    return {hn::IfThenElse(is_high, hn::LoadDup128(U8(), odd - 1), hn::LoadDup128(U8(), even)),
            hn::IfThenElse(is_high, hn::LoadDup128(U8(), odd), hn::LoadDup128(U8(), even + 1))};
  } else {
    const std::uint8_t* const from = tables + table * 2 * kBytes + part * 16;
    return {hn::LoadDup128(U8(), from), hn::LoadDup128(U8(), from + kBytes)};
  }
}

/// What eight codes of a block stand for.
template <class Elements, Decoding kDecoding, bool kInRange>
HWY_INLINE hn::Vec<hn::FixedTag<std::uint16_t, 8>> eight_values(std::size_t block,
                                                                const Blocks& blocks,
                                                                const float* codes) {
  const FloatVector zero = hn::Set(F32(), blocks.zero[block]);
  const FloatVector scale = hn::Set(F32(), blocks.multiplier[block]);
  const auto some = [&](std::size_t first) HWY_ATTR {
    FloatVector value = value_of<kDecoding>(hn::Load(F32(), codes + first), zero, scale);
    if constexpr (!kInRange) value = limited(value, hn::Set(F32(), blocks.limit[block]));
    return Elements::from_float(value);
  };
  return eight_words(some);
}

/// The tables of kParts blocks; `next` is the second, or again the first.
template <class Elements, Decoding kDecoding, unsigned kBits, bool kInRange>
HWY_INLINE void fill_tables(std::size_t block, std::size_t next, const Blocks& blocks,
                            std::uint8_t* tables) {
  if constexpr (kSplitLate<kBits>) {
    alignas(32) static constexpr float kCodes[32] = {0,  2,  4,  6,  8,  10, 12, 14, 1,  3,  5,
                                                     7,  9,  11, 13, 15, 16, 18, 20, 22, 24, 26,
                                                     28, 30, 17, 19, 21, 23, 25, 27, 29, 31};
    const hn::FixedTag<std::uint16_t, 8> eight;
    const hn::FixedTag<std::uint8_t, 16> bytes;
    for (std::size_t part = 0; part < kParts; ++part) {
      for (std::size_t i = 0; i < 2 * kTables<kBits>; ++i) {
        const auto values = eight_values<Elements, kDecoding, kInRange>(part == 0 ? block : next,
                                                                        blocks, kCodes + 8 * i);
        hn::Store(hn::BitCast(bytes, values), bytes, tables);
        tables += 2 * hn::Lanes(eight);
      }
    }
  } else {
    alignas(32) static constexpr float kCodes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto of_block = [&](std::size_t b) HWY_ATTR {
      return eight_values<Elements, kDecoding, kInRange>(b, blocks, kCodes);
    };
    const ByteVector values = hn::BitCast(U8(), joined_blocks(of_block(block), of_block(next)));
    // With two bits, index 4 * k is code k again.
    alignas(16) static constexpr std::uint8_t kLow[2][16] = {
        {0, 2, 4, 6, 2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0},
        {0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0}};
    const ByteVector low = hn::LoadDup128(U8(), kLow[kBits - 2]);
    const ByteVector high = hn::Or(low, hn::Set(U8(), 1));
    hn::Store(hn::TableLookupBytes(values, low), U8(), tables);
    hn::Store(hn::TableLookupBytes(values, high), U8(), tables + kBytes);
  }
}

/// The elements of a unit to their places.
template <unsigned kBits, bool kStreamed>
HWY_INLINE void look_up_unit(const UnitCodes& codes, const SplitTable& table,
                             const SplitTable& upper, std::uint16_t* out) {
  for (std::size_t i = 0; i < kUnitVectors; ++i) {
    ByteVector low = hn::TableLookupBytes(table.low, codes.index[i]);
    ByteVector high = hn::TableLookupBytes(table.high, codes.index[i]);
    if constexpr (kBits == 5) {
      const auto is_upper = hn::MaskFromVec(codes.upper[i]);
      low = hn::IfThenElse(is_upper, hn::TableLookupBytes(upper.low, codes.index[i]), low);
      high = hn::IfThenElse(is_upper, hn::TableLookupBytes(upper.high, codes.index[i]), high);
    }
    const auto store = [](ByteVector v, std::uint16_t* to) HWY_ATTR {
      const Uint16Vector words = hn::BitCast(U16(), v);
      kStreamed ? stream_vector(words, to) : hn::StoreU(words, U16(), to);
    };
    store(hn::InterleaveLower(U8(), low, high), out + i * kBytes);
    store(hn::InterleaveUpper(U8(), low, high), out + i * kBytes + kBytes / 2);
  }
}

/// Blocks number kParts * vector and, but for `only_first`, the next. A kGroup of 0: known only at
/// run time.
template <unsigned kBits, bool kStreamed, std::size_t kGroup>
HWY_INLINE void look_up_vector(const PlanePointers<const std::byte>& planes, std::size_t vector,
                               bool only_first, std::size_t group, const std::uint8_t* all_tables,
                               WireAhead ahead, std::uint16_t* out) {
  const std::size_t units = (kGroup == 0 ? group : kGroup) / kLookupUnit;
  const std::uint8_t* const tables = all_tables + vector * kTableBytes<kBits>;
  for (std::size_t part = 0; part < (only_first ? 1 : kParts); ++part) {
    const SplitTable table = load_table<kBits>(tables, part, 0);
    SplitTable upper = table;
    if constexpr (kBits == 5) upper = load_table<kBits>(tables, part, 1);
    const std::size_t first = (vector * kParts + part) * units;
    for (std::size_t unit = first; unit < first + units; ++unit) {
      if (kStreamed && unit % 2 == 0) ahead.fetch(unit);
      look_up_unit<kBits, kStreamed>(read_unit<kBits>(planes, unit), table, upper,
                                     out + unit * kLookupUnit);
    }
  }
}

template <class Elements, Decoding kDecoding, unsigned kBits, bool kInRange, bool kStreamed,
          std::size_t kGroup>
void look_up_blocks(const PlanePointers<const std::byte>& planes, std::size_t count,
                    std::size_t group, const Blocks& blocks, WireAhead ahead, std::uint16_t* out) {
  // Tables are filled some blocks ahead. The processor does that while it shuffles, for which it
  // has other units, and no load waits for a store that is on its way.
  constexpr std::size_t kAhead = 4;
  constexpr std::size_t kMost = kWireChunk / kLookupUnit / kParts;
  alignas(32) std::uint8_t tables[kMost * kTableBytes<kBits>];
  const PlanePointers<const std::byte> from = planes;  // which stores cannot change
  const std::size_t vectors = (count + kParts - 1) / kParts;
  const std::size_t whole = count / kParts;
  const std::size_t start = std::min(kAhead, whole);
  for (std::size_t v = 0; v < start; ++v) {
    fill_tables<Elements, kDecoding, kBits, kInRange>(kParts * v, kParts * v + 1, blocks,
                                                      tables + v * kTableBytes<kBits>);
  }
  std::size_t done = 0;
  for (std::size_t v = start; v < whole; ++v, ++done) {
    fill_tables<Elements, kDecoding, kBits, kInRange>(kParts * v, kParts * v + 1, blocks,
                                                      tables + v * kTableBytes<kBits>);
    look_up_vector<kBits, kStreamed, kGroup>(from, done, false, group, tables, ahead, out);
  }
  if (whole < vectors) {
    fill_tables<Elements, kDecoding, kBits, kInRange>(kParts * whole, kParts * whole, blocks,
                                                      tables + whole * kTableBytes<kBits>);
  }
  for (; done < vectors; ++done) {
    look_up_vector<kBits, kStreamed, kGroup>(from, done, done == whole, group, tables, ahead, out);
  }
}

/// Decodes blocks from the first on; returns how many, which may be none. Only what is streamed
/// fetches ahead.
template <class Elements>
std::size_t look_up(const AnyBitFormat& f, const PlanePointers<const std::byte>& planes,
                    std::size_t count, std::size_t group, const Blocks& blocks, bool in_range,
                    Storing storing, WireAhead ahead, typename Elements::Element* out) {
  if constexpr (sizeof(typename Elements::Element) == 2) {
    if (group % kLookupUnit != 0) return 0;
    const auto run = [&]<Decoding kDecoding, unsigned kBits>() HWY_ATTR -> std::size_t {
      const auto decode = [&]<bool kInRange, bool kStreamed>() HWY_ATTR {
        if (group == kLookupUnit) {
          look_up_blocks<Elements, kDecoding, kBits, kInRange, kStreamed, kLookupUnit>(
              planes, count, group, blocks, ahead, out);
        } else {
          look_up_blocks<Elements, kDecoding, kBits, kInRange, kStreamed, 0>(planes, count, group,
                                                                             blocks, ahead, out);
        }
      };
      if (!in_range) {
        decode.template operator()<false, false>();  // rare
      } else if (storing == Storing::streamed) {
        decode.template operator()<true, true>();
      } else {
        decode.template operator()<true, false>();
      }
      return count;
    };
    const auto with_bits = [&]<Decoding kDecoding>() HWY_ATTR -> std::size_t {
      switch (f.bits) {
        case 2:
          return run.template operator()<kDecoding, 2>();
        case 3:
          return run.template operator()<kDecoding, 3>();
        case 4:
          return run.template operator()<kDecoding, 4>();
        case 5:
          return run.template operator()<kDecoding, 5>();
        default:
          return 0;
      }
    };
    return decoding_of(f) == Decoding::affine ? with_bits.template operator()<Decoding::affine>()
                                              : with_bits.template operator()<Decoding::offset>();
  } else {
    return 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
