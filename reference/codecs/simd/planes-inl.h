// Bit splitting (../bit_planes.h) with vectors: codes of 2 to 8 bits, one per byte, to planes and
// back.
//
// Every plane is a pass of its own over the codes, which lie in the first-level cache. So the code
// knows planes of 4, 2 and 1 bits, and not the seven numbers of bits.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_PLANES_INL_H_
#undef ARLAB_CODECS_SIMD_PLANES_INL_H_
#else
#define ARLAB_CODECS_SIMD_PLANES_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Where each plane of a chunk begins, in wire order.
template <class Byte>
struct PlanePointers {
  std::array<Byte*, 3> at = {};
};

template <class Byte>
PlanePointers<Byte> planes_at(Byte* wire, std::size_t codes, unsigned bits) {
  PlanePointers<Byte> result;
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned) {
    result.at[plane++] = wire;
    wire += plane_bytes(codes, width);
  });
  return result;
}

/// The planes from element `first` on, a multiple of 8.
template <class Byte>
PlanePointers<Byte> advanced(PlanePointers<Byte> planes, std::size_t first, unsigned bits) {
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned) { planes.at[plane++] += first * width / 8; });
  return planes;
}

// ---------------------------------------------------------------- one plane, vectors of codes

HWY_INLINE ByteVector load_codes(const std::uint8_t* codes) { return hn::LoadU(U8(), codes); }

/// A vector of codes to the bytes of a plane of `width` bits; `shift` is 0 .. 7.
template <unsigned kWidth>
HWY_INLINE void pack_vector(const std::uint8_t* codes, unsigned shift, std::uint8_t* out) {
  if constexpr (kWidth == 1) {
    const ByteVector bit = hn::Set(U8(), static_cast<std::uint8_t>(1U << shift));
    hn::StoreMaskBits(U8(), hn::TestBit(load_codes(codes), bit), out);
  } else {
    // What moves into a byte from its neighbour is above the mask.
    const auto moved =
        hn::ShiftRightSame(hn::BitCast(U16(), load_codes(codes)), static_cast<int>(shift));
    const ByteVector own = hn::And(hn::BitCast(U8(), moved), hn::Set(U8(), (1 << kWidth) - 1));
    const Int16Vector pairs = joined_pairs<1 << kWidth>(own);
    if constexpr (kWidth == 4) {
      const hn::Rebind<std::uint8_t, I16> half;
      hn::StoreU(hn::DemoteTo(half, pairs), half, out);
    } else {
      hn::StoreU(hn::DemoteTo(QuarterU8(), weighted_pairs<1, 16>(pairs)), QuarterU8(), out);
    }
  }
}

HWY_INLINE ByteVector spread_nibbles(const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, U16> half;
  const Uint16Vector v = hn::PromoteTo(U16(), hn::LoadU(half, from));
  const Uint16Vector spread = hn::Or(v, hn::ShiftLeft<4>(v));
  return hn::BitCast(U8(), hn::And(spread, hn::Set(U16(), 0x0F0F)));
}

HWY_INLINE ByteVector spread_crumbs(const std::uint8_t* from) {
  Uint32Vector v = hn::PromoteTo(U32(), hn::LoadU(QuarterU8(), from));
  v = hn::And(hn::Or(v, hn::ShiftLeft<12>(v)), hn::Set(U32(), 0x000F000F));
  v = hn::And(hn::Or(v, hn::ShiftLeft<6>(v)), hn::Set(U32(), 0x03030303));
  return hn::BitCast(U8(), v);
}

/// Bytes of 0 or `value`.
HWY_INLINE ByteVector spread_bits(const std::uint8_t* from, ByteVector value) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, kBytes / 8);
  alignas(32) static constexpr std::uint8_t kByte[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                                         1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                                         2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  const ByteVector bytes =
      hn::TableLookupBytes(hn::BitCast(U8(), hn::Set(U32(), word)), hn::Load(U8(), kByte));
  const ByteVector bit = hn::BitCast(U8(), hn::Set(U64(), 0x8040201008040201));
  return hn::And(hn::VecFromMask(U8(), hn::Eq(hn::And(bytes, bit), bit)), value);
}

/// Writes one plane of so many codes.
HWY_INLINE void pack_plane(const std::uint8_t* codes, std::size_t count, unsigned width,
                           unsigned shift, std::uint8_t* out) {
  if (width == 8) {
    std::memcpy(out, codes, count);
    return;
  }
  const std::size_t per_byte = 8 / width;
  std::size_t done = 0;
  const auto pack = [&]<unsigned kWidth>() HWY_ATTR {
    for (; done + kBytes <= count; done += kBytes) {
      pack_vector<kWidth>(codes + done, shift, out + done * kWidth / 8);
    }
  };
  width == 4   ? pack.template operator()<4>()
  : width == 2 ? pack.template operator()<2>()
               : pack.template operator()<1>();
  const unsigned mask = (1U << width) - 1;
  for (; done < count; done += per_byte) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < per_byte && done + j < count; ++j) {
      byte |= ((codes[done + j] >> shift) & mask) << (j * width);
    }
    out[done / per_byte] = static_cast<std::uint8_t>(byte);
  }
}

/// Reads one plane of so many codes. The lowest comes first; others add to what is there.
HWY_INLINE void unpack_plane(const std::uint8_t* in, std::size_t count, unsigned width,
                             unsigned shift, std::uint8_t* codes) {
  if (width == 8) {
    std::memcpy(codes, in, count);
    return;
  }
  const std::size_t per_byte = 8 / width;
  const ByteVector bit = hn::Set(U8(), static_cast<std::uint8_t>(1U << shift));
  const auto merge = [&](const auto& part) HWY_ATTR {
    const std::uint8_t* from = in;
    std::size_t i = 0;
    for (; i + kBytes <= count; i += kBytes, from += kBytes * width / 8) {
      const ByteVector own = part(from);
      hn::StoreU(shift == 0 ? own : hn::Or(own, load_codes(codes + i)), U8(), codes + i);
    }
    return i;
  };
  std::size_t i = 0;
  if (width == 4) {
    i = merge([](const std::uint8_t* from) HWY_ATTR { return spread_nibbles(from); });
  } else if (width == 1) {
    i = merge([&](const std::uint8_t* from) HWY_ATTR { return spread_bits(from, bit); });
  } else if (shift == 0) {
    i = merge([](const std::uint8_t* from) HWY_ATTR { return spread_crumbs(from); });
  } else {  // above four bits
    i = merge([](const std::uint8_t* from) HWY_ATTR {
      return hn::BitCast(U8(), hn::ShiftLeft<4>(hn::BitCast(U16(), spread_crumbs(from))));
    });
  }
  const unsigned mask = (1U << width) - 1;
  for (; i < count; ++i) {
    const unsigned part = (in[i / per_byte] >> (i % per_byte * width)) & mask;
    codes[i] = static_cast<std::uint8_t>((shift == 0 ? 0U : codes[i]) | (part << shift));
  }
}

// ---------------------------------------------------------------- all planes of a tile

/// As pack_planes, each plane at its own place.
HWY_INLINE void pack_tile(const std::uint8_t* codes, std::size_t count, unsigned bits,
                          const PlanePointers<std::byte>& planes) {
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned shift) HWY_ATTR {
    pack_plane(codes, count, width, shift, reinterpret_cast<std::uint8_t*>(planes.at[plane++]));
  });
}

/// As unpack_planes.
HWY_INLINE void unpack_tile(const PlanePointers<const std::byte>& planes, std::size_t count,
                            unsigned bits, std::uint8_t* codes) {
  std::size_t plane = 0;
  for_each_plane(bits, [&](unsigned width, unsigned shift) HWY_ATTR {
    const auto* const in = reinterpret_cast<const std::uint8_t*>(planes.at[plane++]);
    unpack_plane(in, count, width, shift, codes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
