// Decoding codes of two to five bits to fp16 or bf16 by looking them up.
//
// What a code stands for depends on nothing but its block's scale and zero, so a table of all codes
// is exact by construction. Tables have 16 elements, split into their low and their high bytes, for
// byte shuffles; a fifth bit chooses between two tables.
//
// Codes are taken from the planes in units of two byte vectors. Every 128-bit part of a vector has
// a table of its own, so a unit is one block, or part of one, or two blocks of half a unit.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_LOOKUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#undef ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#else
#define ARLAB_CODECS_SIMD_LOOKUP_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/simd/bit_planes-inl.h"
#include "reference/codecs/simd/integers-inl.h"
#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kLookupUnit = 2 * kBytes;  // elements
inline constexpr std::size_t kParts = kBytes / 16;      // 128-bit parts of a vector
inline constexpr std::size_t kPartElements = 32;        // elements of a unit in one part

/// Indices into the tables: of elements 0 .. 15 of each part, and of elements 16 .. 31. With five
/// bits, `upper` are all ones where the second table counts. In the second part, eights of elements
/// are swapped; see store_parts.
struct UnitCodes {
  ByteVector index[2];
  ByteVector upper[2];
};

/// Bytes that differ from part to part: first[i] in the first, second[i] in the second.
HWY_INLINE ByteVector part_bytes(const std::uint8_t (&first)[16],
                                 const std::uint8_t (&second)[16]) {
#if ARLAB_X86_256
  return hn::ConcatUpperLower(U8(), hn::LoadDup128(U8(), second), hn::LoadDup128(U8(), first));
#else
  (void)second;
  return hn::Load(U8(), first);
#endif
}

HWY_INLINE void read_nibbles(const std::byte* plane, std::size_t first, UnitCodes& codes) {
  ByteVector v = hn::LoadU(U8(), reinterpret_cast<const std::uint8_t*>(plane) + first / 2);
#if ARLAB_X86_256
  alignas(16) static constexpr std::uint8_t kInOrder[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                            8, 9, 10, 11, 12, 13, 14, 15};
  alignas(16) static constexpr std::uint8_t kSwapped[16] = {4,  5,  6,  7,  0, 1, 2,  3,
                                                            12, 13, 14, 15, 8, 9, 10, 11};
  v = hn::TableLookupBytes(v, part_bytes(kInOrder, kSwapped));
#endif
  const ByteVector mask = hn::Set(U8(), 0x0F);
  const ByteVector even = hn::And(v, mask);
  const ByteVector odd = hn::And(hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), v))), mask);
  codes.index[0] = hn::InterleaveLower(U8(), even, odd);
  codes.index[1] = hn::InterleaveUpper(U8(), even, odd);
}

/// The bytes of a unit's crumbs or bits, in every part.
template <std::size_t kElementsPerByte>
HWY_INLINE ByteVector unit_bytes(const std::byte* plane, std::size_t first) {
  const std::byte* const from = plane + first / kElementsPerByte;
  constexpr std::size_t kSize = kLookupUnit / kElementsPerByte;
  if constexpr (kSize == 16) {
    return hn::LoadDup128(U8(), reinterpret_cast<const std::uint8_t*>(from));
  } else if constexpr (kSize == 8) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    return hn::BitCast(U8(), hn::Set(U64(), word));
  } else {
    std::uint32_t word;
    static_assert(kSize == sizeof(word));
    std::memcpy(&word, from, sizeof(word));
    return hn::BitCast(U8(), hn::Set(U32(), word));
  }
}

/// Crumbs become indices without being shifted into place: 0 .. 3, or four times that.
HWY_INLINE void read_crumbs(const std::byte* plane, std::size_t first, UnitCodes& codes) {
  alignas(16) static constexpr std::uint8_t kByte[4][16] = {
      {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
      {10, 10, 10, 10, 11, 11, 11, 11, 8, 8, 8, 8, 9, 9, 9, 9},
      {4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7},
      {14, 14, 14, 14, 15, 15, 15, 15, 12, 12, 12, 12, 13, 13, 13, 13}};
  const ByteVector v = unit_bytes<4>(plane, first);
  const auto low_half = hn::BitCast(U8(), hn::Set(U32(), 0x00000C03));
  const auto high_half = hn::BitCast(U8(), hn::Set(U32(), 0x0C030000));
  for (std::size_t i = 0; i < 2; ++i) {
    const ByteVector fours = hn::TableLookupBytes(v, part_bytes(kByte[2 * i], kByte[2 * i + 1]));
    const auto shifted = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), fours)));
    codes.index[i] = hn::Or(hn::And(fours, low_half), hn::And(shifted, high_half));
  }
}

/// All ones for the elements whose bit is set.
HWY_INLINE void read_bits(const std::byte* plane, std::size_t first, ByteVector (&set)[2]) {
  alignas(16) static constexpr std::uint8_t kByte[4][16] = {
      {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
      {5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4},
      {2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3},
      {7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 6}};
  const ByteVector v = unit_bytes<8>(plane, first);
  const ByteVector bit = hn::BitCast(U8(), hn::Set(U64(), 0x8040201008040201));
  for (std::size_t i = 0; i < 2; ++i) {
    const ByteVector bytes = hn::TableLookupBytes(v, part_bytes(kByte[2 * i], kByte[2 * i + 1]));
    set[i] = hn::VecFromMask(U8(), hn::Eq(hn::And(bytes, bit), bit));
  }
}

template <unsigned kBits>
HWY_INLINE UnitCodes read_unit(const PlanePointers<const std::byte>& planes, std::size_t first) {
  UnitCodes codes;
  if constexpr (kBits >= 4) {
    read_nibbles(planes.at[0], first, codes);
    if constexpr (kBits == 5) read_bits(planes.at[1], first, codes.upper);
  } else {
    read_crumbs(planes.at[0], first, codes);
    if constexpr (kBits == 3) {
      alignas(16) static constexpr std::uint8_t kCodes[16] = {0, 1, 2, 3, 1, 0, 0, 0,
                                                              2, 0, 0, 0, 3, 0, 0, 0};
      const ByteVector to_codes = hn::LoadDup128(U8(), kCodes);
      ByteVector set[2];
      read_bits(planes.at[1], first, set);
      for (std::size_t i = 0; i < 2; ++i) {
        codes.index[i] = hn::Or(hn::TableLookupBytes(to_codes, codes.index[i]),
                                hn::And(set[i], hn::Set(U8(), 4)));
      }
    }
  }
  return codes;
}

/// Elements in the tables of a block: eight for two bits, too, whose codes come twice.
template <unsigned kBits>
inline constexpr std::size_t kTableElements = kBits <= 3 ? 8 : std::size_t{1} << kBits;

/// Which block's table the parts of a vector have: every one the same, or two blocks in turn.
enum class Tables { shared, paired };

/// Where eights of elements are in the tables. Those of two blocks in turn are side by side, so
/// that one load takes both.
template <unsigned kBits, Tables kTables>
constexpr std::size_t table_position(std::size_t first_block, std::size_t eight) {
  return first_block * kTableElements<kBits> + eight * (kTables == Tables::paired ? 16 : 8);
}

/// What every code of every block stands for. A pass of its own: tables are then joined by loads,
/// which cost less than moving parts of vectors.
template <class Elements, Decoding kDecoding, unsigned kBits, Tables kTables, bool kCanonical>
void fill_tables(std::size_t count, const Blocks& blocks, std::uint16_t* tables) {
  constexpr std::size_t kSize = kTableElements<kBits>;
  const FloatVector nan = float_of(hn::Set(U32(), 0x7FC00000));
  FloatVector codes[kSize / kFloats];
  for (std::size_t i = 0; i < kSize / kFloats; ++i) {
    codes[i] = hn::Iota(F32(), static_cast<float>(i * kFloats));
  }
  const auto fill = [&](std::size_t block, std::uint16_t* eights, std::size_t stride) HWY_ATTR {
    const FloatVector zero = hn::Set(F32(), blocks.zero[block]);
    const FloatVector scale = hn::Set(F32(), blocks.multiplier[block]);
    for (std::size_t i = 0; i < kSize; i += kFloats) {
      FloatVector value = value_of<kDecoding>(codes[i / kFloats], zero, scale);
      if constexpr (kCanonical) value = hn::IfThenElse(hn::Eq(value, value), value, nan);
      Elements::store(value, eights + i / 8 * stride + i % 8);
    }
  };
  constexpr std::size_t kTogether = kTables == Tables::paired ? 2 : 1;
  for (std::size_t b = 0; b < count; b += kTogether) {
    std::uint16_t* const to = tables + table_position<kBits, kTables>(b, 0);
    for (std::size_t i = 0; i < kTogether; ++i) fill(b + i, to + 8 * i, 8 * kTogether);
  }
}

/// The low and the high bytes of 16 elements, in every part.
struct ValueTable {
  ByteVector low;
  ByteVector high;
};

/// The tables of 16 elements (8 for up to three bits) from eight `eight` on, of a block or of it
/// and the next, for all indices that read_unit makes.
template <unsigned kBits, Tables kTables>
HWY_INLINE ValueTable value_table(const std::uint16_t* tables, std::size_t block,
                                  std::size_t eight) {
  const auto load = [&](std::size_t i) HWY_ATTR {
    const std::uint16_t* const from = tables + table_position<kBits, kTables>(block, i);
    return hn::BitCast(
        U8(), kTables == Tables::paired ? hn::LoadU(U16(), from) : hn::LoadDup128(U16(), from));
  };
  const ByteVector lower = load(eight);
  if constexpr (kBits <= 3) {
    // With two bits, index 4 * k is code k again.
    alignas(16) static constexpr std::uint8_t kLow[2][16] = {
        {0, 2, 4, 6, 2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0},
        {0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0}};
    const ByteVector low = hn::LoadDup128(U8(), kLow[kBits - 2]);
    const ByteVector high = hn::Or(low, hn::Set(U8(), 1));
    return {hn::TableLookupBytes(lower, low), hn::TableLookupBytes(lower, high)};
  } else {
    alignas(16) static constexpr std::uint8_t kSplit[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                            1, 3, 5, 7, 9, 11, 13, 15};
    const ByteVector split = hn::LoadDup128(U8(), kSplit);
    const auto first = hn::BitCast(U64(), hn::TableLookupBytes(lower, split));
    const auto second = hn::BitCast(U64(), hn::TableLookupBytes(load(eight + 1), split));
    return {hn::BitCast(U8(), hn::InterleaveLower(U64(), first, second)),
            hn::BitCast(U8(), hn::InterleaveUpper(U64(), first, second))};
  }
}

/// Looked up elements 0 .. 7 and 8 .. 15 of each part, or 16 .. 23 and 24 .. 31. In the second part
/// it is the other way round, so that exchanging parts once is enough.
struct UnitValues {
  ByteVector first;
  ByteVector second;
};

template <unsigned kBits>
HWY_INLINE UnitValues values_of_codes(const UnitCodes& codes, std::size_t half,
                                      const ValueTable& table, const ValueTable& upper) {
  ByteVector low = hn::TableLookupBytes(table.low, codes.index[half]);
  ByteVector high = hn::TableLookupBytes(table.high, codes.index[half]);
  if constexpr (kBits == 5) {
    const auto is_upper = hn::MaskFromVec(codes.upper[half]);
    low = hn::IfThenElse(is_upper, hn::TableLookupBytes(upper.low, codes.index[half]), low);
    high = hn::IfThenElse(is_upper, hn::TableLookupBytes(upper.high, codes.index[half]), high);
  }
  return {hn::InterleaveLower(U8(), low, high), hn::InterleaveUpper(U8(), low, high)};
}

/// The elements of a unit to their places.
HWY_INLINE void store_unit(const UnitValues (&halves)[2], std::uint16_t* out) {
  std::uint8_t* to = reinterpret_cast<std::uint8_t*>(out);
  for (const UnitValues& values : halves) {
#if ARLAB_X86_256
    constexpr std::size_t kSecondPart = 2 * kPartElements;
    const ByteVector exchanged = hn::ConcatLowerUpper(U8(), values.second, values.second);
    hn::StoreU(hn::ConcatUpperLower(U8(), exchanged, values.first), U8(), to);
    hn::StoreU(hn::ConcatUpperLower(U8(), values.first, exchanged), U8(), to + kSecondPart);
    to += kBytes;
#else
    hn::StoreU(values.first, U8(), to);
    hn::StoreU(values.second, U8(), to + kBytes);
    to += 2 * kBytes;
#endif
  }
}

/// Past the caches, in pieces of 16 bytes, since large arrays are seldom aligned to more; one after
/// the other, because the processor gathers them into lines.
HWY_INLINE void stream_unit(const UnitValues (&halves)[2], std::uint16_t* out) {
  const hn::FixedTag<std::uint8_t, 16> piece;
  std::uint8_t* to = reinterpret_cast<std::uint8_t*>(out);
  const auto stream = [&](hn::Vec<hn::FixedTag<std::uint8_t, 16>> v) HWY_ATTR {
    hn::Stream(v, piece, to);
    to += 16;
  };
#if ARLAB_X86_256
  for (const UnitValues& values : halves) {
    stream(hn::LowerHalf(piece, values.first));
    stream(hn::LowerHalf(piece, values.second));
  }
  for (const UnitValues& values : halves) {
    stream(hn::UpperHalf(piece, values.second));
    stream(hn::UpperHalf(piece, values.first));
  }
#else
  for (const UnitValues& values : halves) {
    stream(values.first);
    stream(values.second);
  }
#endif
}

template <unsigned kBits, bool kStreamed>
HWY_INLINE void look_up_unit(const UnitCodes& codes, const ValueTable& table,
                             const ValueTable& upper, std::uint16_t* out) {
  const UnitValues halves[2] = {values_of_codes<kBits>(codes, 0, table, upper),
                                values_of_codes<kBits>(codes, 1, table, upper)};
  if constexpr (kStreamed) {
    stream_unit(halves, out);
  } else {
    store_unit(halves, out);
  }
}

template <class Elements, Decoding kDecoding, unsigned kBits, bool kCanonical, bool kStreamed>
std::size_t look_up_blocks(const PlanePointers<const std::byte>& planes, std::size_t count,
                           std::size_t group, const Blocks& blocks, std::uint16_t* out) {
  if (group != kPartElements && group % kLookupUnit != 0) return 0;
  alignas(32) std::uint16_t tables[kWireChunk / kPartElements * kTableElements<kBits>];
  const PlanePointers<const std::byte> from = planes;  // which stores cannot change
  const auto run = [&]<Tables kTables>() HWY_ATTR {
    constexpr std::size_t kStep = kTables == Tables::paired ? kParts : 1;
    const std::size_t done = count / kStep * kStep;
    const std::size_t size = kTables == Tables::paired ? kLookupUnit : group;
    fill_tables<Elements, kDecoding, kBits, kTables, kCanonical>(done, blocks, tables);
    for (std::size_t b = 0; b < done; b += kStep) {
      const ValueTable table = value_table<kBits, kTables>(tables, b, 0);
      ValueTable upper = table;
      if constexpr (kBits == 5) upper = value_table<kBits, kTables>(tables, b, 2);
      const std::size_t first = b * group;
      for (std::size_t i = first; i < first + size; i += kLookupUnit) {
        look_up_unit<kBits, kStreamed>(read_unit<kBits>(from, i), table, upper, out + i);
      }
    }
    return done;
  };
  if (group % kLookupUnit == 0) return run.template operator()<Tables::shared>();
  if constexpr (kParts == 2) return run.template operator()<Tables::paired>();
  return 0;
}

/// Where looked up elements go: to the caches, or past them, to an address that 16 divides.
enum class Storing { usual, streamed };

/// Decodes blocks from the first on; returns how many, which may be none.
template <class Elements>
std::size_t look_up(const AnyBitFormat& f, const PlanePointers<const std::byte>& planes,
                    std::size_t count, std::size_t group, const Blocks& blocks, bool finite,
                    Storing storing, typename Elements::Element* out) {
  if constexpr (sizeof(typename Elements::Element) == 2) {
    const auto run = [&]<Decoding kDecoding, unsigned kBits>() HWY_ATTR {
      if (storing == Storing::streamed) {
        return look_up_blocks<Elements, kDecoding, kBits, true, true>(planes, count, group, blocks,
                                                                      out);
      }
      return finite ? look_up_blocks<Elements, kDecoding, kBits, false, false>(planes, count, group,
                                                                               blocks, out)
                    : look_up_blocks<Elements, kDecoding, kBits, true, false>(planes, count, group,
                                                                              blocks, out);
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
