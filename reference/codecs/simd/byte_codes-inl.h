// Decoding codes of eight bits to fp16 or bf16. Their plane is the codes, one byte each, so
// elements are computed straight from the wire.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_BYTE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_BYTE_CODES_INL_H_
#undef ARLAB_CODECS_SIMD_BYTE_CODES_INL_H_
#else
#define ARLAB_CODECS_SIMD_BYTE_CODES_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "reference/codecs/anybit.h"
#include "reference/codecs/simd/integers-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Codes 0 .. 255 of 16 consecutive bytes, a vector of them at a time.
HWY_INLINE FloatVector codes_of_bytes(ByteVector doubled, std::size_t vector) {
  // Every 128-bit part of `doubled` has all 16 bytes. Indices from 0x80 on give 0.
  alignas(32) static constexpr std::array<std::uint8_t, 64> kPick = [] {
    std::array<std::uint8_t, 64> pick = {};
    for (std::size_t i = 0; i < pick.size(); ++i) {
      pick[i] = static_cast<std::uint8_t>(i % 4 == 0 ? i / 4 : 0x80);
    }
    return pick;
  }();
  const ByteVector picked =
      hn::TableLookupBytesOr0(doubled, hn::Load(U8(), kPick.data() + vector * kBytes));
  return hn::ConvertTo(F32(), hn::BitCast(I32(), picked));
}

/// Two vectors of elements to 16 consecutive bytes each, or together.
template <class Elements, bool kStreamed>
HWY_INLINE void store_two(FloatVector first, FloatVector second, std::uint16_t* to) {
  const HalfUint16Vector low = Elements::from_float(first);
  const HalfUint16Vector high = Elements::from_float(second);
  // Joining them would take the pipes that shuffle, of which there are few.
  for (const auto& [v, at] : {std::pair(low, to), std::pair(high, to + kFloats)}) {
    kStreamed ? hn::Stream(v, HalfU16(), at) : hn::StoreU(v, HalfU16(), at);
  }
}

/// Blocks of a multiple of kUnits units of WireAhead, whose elements are all in range.
template <class Elements, Decoding kDecoding, bool kStreamed, std::size_t kUnits>
void dequantize_plane(const std::uint8_t* plane, std::size_t count, std::size_t group,
                      const Blocks& blocks, WireAhead ahead, std::uint16_t* out) {
  constexpr std::size_t kStep = kUnits * WireAhead::kUnit;
  constexpr std::size_t kVectors = kStep / kFloats;
  for (std::size_t b = 0; b < count; ++b) {
    const FloatVector zero = hn::Set(F32(), blocks.zero[b]);
    const FloatVector scale = hn::Set(F32(), blocks.multiplier[b]);
    for (std::size_t first = b * group; first < (b + 1) * group; first += kStep) {
      if constexpr (kStreamed) {
        for (std::size_t i = 0; i < kUnits; ++i) ahead.fetch(first / WireAhead::kUnit + i);
      }
      // Several vectors step by step: one vector's steps wait for each other.
      FloatVector values[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i) {
        const std::size_t at = i * kFloats / 16 * 16;
        const ByteVector bytes = hn::LoadDup128(U8(), plane + first + at);
        values[i] = value_of<kDecoding>(codes_of_bytes(bytes, i - at / kFloats), zero, scale);
      }
      for (std::size_t i = 0; i < kVectors; i += 2) {
        store_two<Elements, kStreamed>(values[i], values[i + 1], out + first + i * kFloats);
      }
    }
  }
}

/// Decodes blocks from the first on; returns how many, which are all or none. Only what is streamed
/// fetches ahead.
template <class Elements>
std::size_t decode_bytes(const AnyBitFormat& f, const PlanePointers<const std::byte>& planes,
                         std::size_t count, std::size_t group, const Blocks& blocks, bool in_range,
                         Storing storing, WireAhead ahead, typename Elements::Element* out) {
  if constexpr (sizeof(typename Elements::Element) == 2) {
    if (!in_range || group % WireAhead::kUnit != 0) return 0;
    const auto* const plane = reinterpret_cast<const std::uint8_t*>(planes.at[0]);
    const auto run_units = [&]<Decoding kDecoding, std::size_t kUnits>() HWY_ATTR {
      storing == Storing::streamed ? dequantize_plane<Elements, kDecoding, true, kUnits>(
                                         plane, count, group, blocks, ahead, out)
                                   : dequantize_plane<Elements, kDecoding, false, kUnits>(
                                         plane, count, group, blocks, ahead, out);
    };
    const auto run = [&]<Decoding kDecoding>() HWY_ATTR {
      group % (2 * WireAhead::kUnit) == 0 ? run_units.template operator()<kDecoding, 2>()
                                          : run_units.template operator()<kDecoding, 1>();
    };
    decoding_of(f) == Decoding::affine ? run.template operator()<Decoding::affine>()
                                       : run.template operator()<Decoding::offset>();
    return count;
  } else {
    return 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard
