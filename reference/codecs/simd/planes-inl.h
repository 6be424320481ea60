// Codes of a few bits, packed into bytes and unpacked: eight consecutive elements ("a thread") fill
// one word of a plane.
//
// Functions work on a unit of two byte vectors, one code per byte in element order: 64 or 32
// elements. `unit` counts units from the start of the plane.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_PLANES_INL_H_
#undef ARLAB_CODECS_SIMD_PLANES_INL_H_
#else
#define ARLAB_CODECS_SIMD_PLANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kUnit = 2 * kBytes;  // elements

struct Codes {
  ByteVector first;
  ByteVector second;
};

HWY_INLINE Codes ordered(Codes blocks) {
  return {ordered_bytes(blocks.first), ordered_bytes(blocks.second)};
}

HWY_INLINE std::uint8_t* byte_pointer(std::byte* at) { return reinterpret_cast<std::uint8_t*>(at); }
HWY_INLINE const std::uint8_t* byte_pointer(const std::byte* at) {
  return reinterpret_cast<const std::uint8_t*>(at);
}

/// The same 16 byte indices for every 128-bit block.
HWY_INLINE ByteVector block_indices(const std::uint8_t (&indices)[16]) {
  return hn::LoadDup128(U8(), indices);
}

HWY_INLINE ByteVector bytes_set(std::uint8_t value) { return hn::Set(U8(), value); }

/// Shifts within lanes of 16 or 32 bits.
template <int kBits>
HWY_INLINE ByteVector shift_right_16(ByteVector v) {
  return hn::BitCast(U8(), hn::ShiftRight<kBits>(hn::BitCast(U16(), v)));
}
template <int kBits>
HWY_INLINE ByteVector shift_right_32(ByteVector v) {
  return hn::BitCast(U8(), hn::ShiftRight<kBits>(hn::BitCast(U32(), v)));
}
template <int kBits>
HWY_INLINE ByteVector shift_left_32(ByteVector v) {
  return hn::BitCast(U8(), hn::ShiftLeft<kBits>(hn::BitCast(U32(), v)));
}

/// A table of 16 codes, looked up per byte; bytes must be below 16.
HWY_INLINE ByteVector look_up(const std::uint8_t (&table)[16], ByteVector v) {
  return hn::TableLookupBytes(block_indices(table), v);
}

// ---------------------------------------------------------------- one byte per element

/// kStream: past the caches, to an address that 16 divides.
template <bool kStream>
HWY_INLINE void store_packed(ByteVector v, std::uint8_t* to) {
  kStream ? stream_vector(v, to) : hn::StoreU(v, U8(), to);
}

struct PlainBytes {
  template <bool kStream = false>
  static HWY_INLINE void pack(Codes codes, std::byte* plane, std::size_t unit) {
    std::uint8_t* const out = byte_pointer(plane) + unit * kUnit;
    store_packed<kStream>(codes.first, out);
    store_packed<kStream>(codes.second, out + kBytes);
  }
  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit) {
    const std::uint8_t* const in = byte_pointer(plane) + unit * kUnit;
    return {hn::LoadU(U8(), in), hn::LoadU(U8(), in + kBytes)};
  }
};

/// The bytes of a thread hold its elements in the order 0 2 1 3 4 6 5 7.
struct SwappedBytes {
  static HWY_INLINE ByteVector swapped(ByteVector v) {
    alignas(16) static constexpr std::uint8_t kSwap[16] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                           8, 10, 9, 11, 12, 14, 13, 15};
    return hn::TableLookupBytes(v, block_indices(kSwap));
  }
  template <bool kStream = false>
  static HWY_INLINE void pack(Codes codes, std::byte* plane, std::size_t unit) {
    PlainBytes::pack<kStream>({swapped(codes.first), swapped(codes.second)}, plane, unit);
  }
  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit) {
    const Codes codes = PlainBytes::unpack(plane, unit);
    return {swapped(codes.first), swapped(codes.second)};
  }
};

// ---------------------------------------------------------------- four bits per element

/// The low 8 bytes of every 128-bit block of both vectors, in element order.
HWY_INLINE ByteVector joined_half_blocks(ByteVector first, ByteVector second) {
  return hn::BitCast(U8(),
                     hn::ConcatEven(U64(), hn::BitCast(U64(), second), hn::BitCast(U64(), first)));
}

/// The inverse: each 8 bytes twice, in both halves of a 128-bit block.
HWY_INLINE Codes doubled_half_blocks(ByteVector v) {
  const hn::Vec<U64> words = hn::BitCast(U64(), v);
  if constexpr (kFloats == 8) {
    alignas(32) static constexpr std::int32_t kFirst[8] = {0, 1, 0, 1, 2, 3, 2, 3};
    alignas(32) static constexpr std::int32_t kSecond[8] = {4, 5, 4, 5, 6, 7, 6, 7};
    const Uint32Vector lanes = hn::BitCast(U32(), v);
    return {hn::BitCast(U8(), hn::TableLookupLanes(lanes, hn::SetTableIndices(U32(), kFirst))),
            hn::BitCast(U8(), hn::TableLookupLanes(lanes, hn::SetTableIndices(U32(), kSecond)))};
  } else {
    return {hn::BitCast(U8(), hn::InterleaveLower(U64(), words, words)),
            hn::BitCast(U8(), hn::InterleaveUpper(U64(), words, words))};
  }
}

/// The even elements of a thread in the low half word, the odd ones in the high: QuickReduce.
struct NibblePairs {
  /// From codes in the order in which narrow_blocks leaves them.
  template <bool kStream = false>
  static HWY_INLINE void pack_blocks(Codes codes, std::byte* plane, std::size_t unit) {
    // A 32-bit lane's upper half, times 16, is added to its lower half. Of 256 bits, one 128-bit
    // block has elements 0 .. 3 of four threads, the other elements 4 .. 7.
    alignas(16) static constexpr std::uint8_t kZip[2][16] = {
        {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15},
        {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}};
    const auto pairs = [](ByteVector v)
                           HWY_ATTR { return weighted_pairs<1, 16>(hn::BitCast(I16(), v)); };
    const auto words = narrow_words(pairs(codes.first), pairs(codes.second));
    const ByteVector ordered = ordered_halves(hn::BitCast(U8(), words));
    store_packed<kStream>(hn::TableLookupBytes(ordered, block_indices(kZip[kFloats == 8])),
                          byte_pointer(plane) + unit * kBytes);
  }

  static HWY_INLINE ByteVector spread(ByteVector v) {
    // Byte e of the wire has element e in its low bits, and the one two further in its high bits.
    alignas(16) static constexpr std::uint8_t kPick[16] = {0, 2, 0, 2, 1, 3, 1, 3,
                                                           4, 6, 4, 6, 5, 7, 5, 7};
    const ByteVector twice = hn::TableLookupBytes(v, block_indices(kPick));
    const ByteVector low = hn::And(twice, hn::BitCast(U8(), hn::Set(U32(), 0x00000F0F)));
    const ByteVector high =
        hn::And(shift_right_32<4>(twice), hn::BitCast(U8(), hn::Set(U32(), 0x0F0F0000)));
    return hn::Or(low, high);
  }
  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit) {
    const ByteVector v = hn::LoadU(U8(), byte_pointer(plane) + unit * kBytes);
    const Codes twice = doubled_half_blocks(v);
    return {spread(twice.first), spread(twice.second)};
  }
};

/// Element i in bits 4 * (i mod 2) of byte i / 2.
struct NibblesInOrder {
  static HWY_INLINE ByteVector gathered(ByteVector v) {
    alignas(16) static constexpr std::uint8_t kPick[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                           0, 2, 4, 6, 8, 10, 12, 14};
    return hn::TableLookupBytes(hn::Or(v, shift_right_16<4>(v)), block_indices(kPick));
  }
  static HWY_INLINE void pack(Codes codes, std::byte* plane, std::size_t unit) {
    hn::StoreU(joined_half_blocks(gathered(codes.first), gathered(codes.second)), U8(),
               byte_pointer(plane) + unit * kBytes);
  }

  static HWY_INLINE ByteVector spread(ByteVector v) {
    alignas(16) static constexpr std::uint8_t kPick[16] = {0, 0, 1, 1, 2, 2, 3, 3,
                                                           4, 4, 5, 5, 6, 6, 7, 7};
    const ByteVector twice = hn::TableLookupBytes(v, block_indices(kPick));
    const ByteVector low = hn::And(twice, hn::BitCast(U8(), hn::Set(U16(), 0x000F)));
    const ByteVector high =
        hn::And(shift_right_16<4>(twice), hn::BitCast(U8(), hn::Set(U16(), 0x0F00)));
    return hn::Or(low, high);
  }
  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit) {
    const ByteVector v = hn::LoadU(U8(), byte_pointer(plane) + unit * kBytes);
    const Codes twice = doubled_half_blocks(v);
    return {spread(twice.first), spread(twice.second)};
  }
};

// ---------------------------------------------------------------- two bits and one bit

/// Element i in bits 2 * (i mod 4) of byte i / 4.
struct CrumbsInOrder {
  /// Bits above the lowest two of a byte are ignored.
  static HWY_INLINE void pack(Codes codes, std::byte* plane, std::size_t unit) {
    using FewBytes = hn::Rebind<std::uint8_t, U32>;
    std::uint8_t* const out = byte_pointer(plane) + unit * (kUnit / 4);
    const auto store = [](ByteVector v, std::uint8_t* to) HWY_ATTR {
      const ByteVector own = hn::And(v, bytes_set(0x03));
      const ByteVector pairs = hn::Or(own, shift_right_16<6>(own));
      const ByteVector fours = hn::Or(pairs, shift_right_32<12>(pairs));
      const Uint32Vector words = hn::And(hn::BitCast(U32(), fours), hn::Set(U32(), 0xFF));
      hn::StoreU(hn::TruncateTo(FewBytes(), words), FewBytes(), to);
    };
    store(codes.first, out);
    store(codes.second, out + kFloats);
  }

  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit) {
    const std::uint8_t* const in = byte_pointer(plane) + unit * (kUnit / 4);
    const auto load = [](const std::uint8_t* from) HWY_ATTR {
      const hn::Rebind<std::uint8_t, U32> few;
      Uint32Vector v = hn::PromoteTo(U32(), hn::LoadU(few, from));
      v = hn::And(hn::Or(v, hn::ShiftLeft<12>(v)), hn::Set(U32(), 0x000F000F));
      v = hn::And(hn::Or(v, hn::ShiftLeft<6>(v)), hn::Set(U32(), 0x03030303));
      return hn::BitCast(U8(), v);
    };
    return {load(in), load(in + kFloats)};
  }
};

/// Element i in bit i mod 8 of byte i / 8.
struct BitsInOrder {
  /// Packs bit `kBit` of every byte.
  template <std::uint8_t kBit>
  static HWY_INLINE void pack(Codes codes, std::byte* plane, std::size_t unit) {
    std::uint8_t* const out = byte_pointer(plane) + unit * (kUnit / 8);
    const ByteVector bit = bytes_set(1u << kBit);
    hn::StoreMaskBits(U8(), hn::TestBit(codes.first, bit), out);
    hn::StoreMaskBits(U8(), hn::TestBit(codes.second, bit), out + kBytes / 8);
  }

  /// Bytes of 0 or `value`.
  static HWY_INLINE Codes unpack(const std::byte* plane, std::size_t unit, std::uint8_t value) {
    const auto load = [value](const std::uint8_t* from) HWY_ATTR {
      std::uint8_t bits[8] = {};  // LoadMaskBits may read 8 bytes
      std::memcpy(bits, from, kBytes / 8);
      return hn::IfThenElseZero(hn::LoadMaskBits(U8(), bits), bytes_set(value));
    };
    const std::uint8_t* const in = byte_pointer(plane) + unit * (kUnit / 8);
    return {load(in), load(in + kBytes / 8)};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
