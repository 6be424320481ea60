// The driver of all families. A message is coded tile by tile, and a tile in passes over data that
// stay in the first-level cache: its elements as fp32 numbers, the extremes of its blocks, the
// scales of several blocks at once, codes of a byte each, planes. So a family is arithmetic on
// vectors of fp32 numbers, and knows neither dtypes nor where bytes go.
//
// Rare cases (numbers that are not finite, scales that no encoder writes) are left to the scalar codec: a chunk of the wire is
// a message of its own.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_TILES_INL_H_
#undef ARLAB_CODECS_SIMD_TILES_INL_H_
#else
#define ARLAB_CODECS_SIMD_TILES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "reference/codecs/codec.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/codes-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/wire_chunks.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kWords = 2 * kFloats;  // words in a vector
inline constexpr std::size_t kTile = kWireChunk;    // elements
/// Blocks of 8 elements in a tile; vectors of them may run over the end.
inline constexpr std::size_t kBlockSlots = kTile / 8 + 8;

struct Tile {
  // Vectors may run over the end, too.
  alignas(32) float x[kTile + kBytes];
  alignas(32) std::uint8_t codes[kTile + kBytes];
};

constexpr std::size_t rounded_up(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// ---------------------------------------------------------------- elements

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Elements as fp32 numbers, and zeros up to `padded` and to the end of a vector of bytes. Whether all
/// magnitudes are below a number; a NaN is not.
template <class Payload>
HWY_INLINE bool load_tile(const typename Payload::Element* x, std::size_t count, std::size_t padded,
                          float below, float* values) {
  Int32Vector largest = hn::Zero(I32());  // bits of magnitudes, which order as numbers do
  const auto take = [&](const typename Payload::Element* from, std::size_t i) HWY_ATTR {
    const FloatVector v = Payload::load(from);
    hn::Store(v, F32(), values + i);
    largest = hn::Max(largest, hn::BitCast(I32(), hn::Abs(v)));
  };
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) take(x + i, i);
  if (i < count) {
    typename Payload::Element rest[kFloats] = {};
    std::copy_n(x + i, count - i, rest);
    take(rest, i);
    i += kFloats;
  }
  for (; i < rounded_up(padded, kBytes); i += kFloats)
    hn::Store(hn::Zero(F32()), F32(), values + i);
  return hn::GetLane(hn::MaxOfLanes(I32(), largest)) < std::bit_cast<std::int32_t>(below);
}

/// sum += addend: one addition and one rounding per element. With kClamps, a finite fp16 sum that
/// overflows becomes +-65504.
template <class Payload, bool kClamps>
HWY_INLINE void add_elements(std::span<const typename Payload::Element> addend,
                             typename Payload::Element* sum) {
  std::size_t i = 0;
  for (; i + kFloats <= addend.size(); i += kFloats) {
    const FloatVector v = hn::Add(Payload::load(sum + i), Payload::load(&addend[i]));
    if constexpr (kClamps) {
      hn::StoreU(Payload::round(v), HalfU16(), sum + i);
    } else {
      Payload::store(canonical(v), sum + i);
    }
  }
  const auto rest = addend.subspan(i);
  add_native(Payload::Arithmetic::kDType, kClamps,
             std::as_writable_bytes(std::span(sum + i, rest.size())), std::as_bytes(rest));
}

/// Loads the elements of a chunk as tiles of numbers, filled up with zeros to blocks of `size`, and
/// calls f(first element, elements, blocks). False when a magnitude is not below a number.
template <class Payload, class F>
HWY_INLINE bool for_each_tile(std::span<const typename Payload::Element> x, std::size_t size,
                              float below, float* values, const F& f) {
  for (std::size_t first = 0; first < x.size(); first += kTile) {
    const std::size_t elements = std::min(kTile, x.size() - first);
    const std::size_t blocks = blocks_of(elements, size);
    if (!load_tile<Payload>(&x[first], elements, blocks * size, below, values)) return false;
    f(first, elements, blocks);
  }
  return true;
}

// ---------------------------------------------------------------- extremes of blocks

/// The least and the largest numbers of a block, lane by lane.
struct Extremes {
  FloatVector low;
  FloatVector high;
};

/// Those of f(numbers) of blocks of a multiple of 8 numbers that follow each other. Up to a multiple of 8
/// blocks the last one's are repeated. `low` may be nullptr itself.
template <class F, class Low>
HWY_INLINE void find_extremes(const float* x, std::size_t blocks, std::size_t size, const F& f,
                              Low low, float* high) {
  constexpr bool kHasLow = std::is_pointer_v<Low>;
  for (std::size_t b = 0; b < blocks; ++b, x += size) {
    Extremes e = f(hn::Load(F32(), x));
    for (std::size_t i = kFloats; i < size; i += kFloats) {
      const Extremes next = f(hn::Load(F32(), x + i));
      e = {hn::Min(e.low, next.low), hn::Max(e.high, next.high)};
    }
    if constexpr (kHasLow) low[b] = hn::GetLane(hn::MinOfLanes(F32(), e.low));
    high[b] = hn::GetLane(hn::MaxOfLanes(F32(), e.high));
  }
  const std::size_t rest = rounded_up(blocks, 8) - blocks;
  if constexpr (kHasLow) std::fill_n(low + blocks, rest, low[blocks - 1]);
  std::fill_n(high + blocks, rest, high[blocks - 1]);
}

// ---------------------------------------------------------------- few codes

/// 16-bit elements of codes of at most four bits, whose highest is a sign: values(b, k) makes those
/// of the codes from k on in block b. Blocks are of half a vector of bytes, or of whole ones.
template <class Payload, class Values>
HWY_INLINE void decode_by_tables(const std::uint8_t* codes, std::size_t elements, std::size_t group,
                                 const Values& values, std::uint16_t* out) {
  // Low and high bytes of the values of eight codes, and of eight with the other sign.
  alignas(16) static constexpr std::uint8_t kLow[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                        0, 2, 4, 6, 8, 10, 12, 14};
  alignas(16) static constexpr std::uint8_t kHigh[16] = {1, 3, 5, 7, 9, 11, 13, 15,
                                                         1, 3, 5, 7, 9, 11, 13, 15};
  alignas(16) static constexpr std::uint8_t kSigns[16] = {
      0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
  const auto words = [&](std::size_t b) HWY_ATTR {
    const auto some = Payload::from_float(values(b, 0));
    if constexpr (kFloats == 8) {
      return some;
    } else {
      return hn::Combine(U16(), Payload::from_float(values(b, kFloats)), some);
    }
  };
  for (std::size_t first = 0, b = 0; first < elements; first += std::max(group, kBytes)) {
    const auto lower = words(b++);
    const auto upper = group < kBytes ? words(b++) : lower;
    ByteVector bytes;
    if constexpr (kFloats == 8) {
      bytes = hn::BitCast(U8(), hn::Combine(U16(), upper, lower));
    } else {
      bytes = hn::BitCast(U8(), lower);
    }
    const ByteVector low = hn::TableLookupBytes(bytes, hn::LoadDup128(U8(), kLow));
    const ByteVector high = hn::Xor(hn::TableLookupBytes(bytes, hn::LoadDup128(U8(), kHigh)),
                                    hn::LoadDup128(U8(), kSigns));
    for (std::size_t i = first; i < std::min(first + group, elements); i += kBytes) {
      const ByteVector code = hn::Load(U8(), codes + i);
      const auto store = [&](std::size_t at, HalfUint16Vector v)
                             HWY_ATTR { hn::StoreU(v, HalfU16(), out + i + at); };
      for_each_half_of(hn::TableLookupBytes(low, code), hn::TableLookupBytes(high, code), store);
    }
  }
}

// ---------------------------------------------------------------- messages

/// Members of a family that the driver uses:
///   chunk()                                elements of a chunk of the wire
///   chunk_bytes(elements)                  of its wire
///   encode<Payload, kCounts>(tile, x, wire, clamped)
///                                          a chunk, or false: it is for the scalar codec. With
///                                          kCounts, adds the elements that were clamped
///   decode<Payload>(tile, wire, elements, first, count, out)
///                                          elements first .. first + count - 1 of a chunk of so
///                                          many, at most a tile; or false. May write up to the end
///                                          of a vector of bytes
///   kClampsSums, kTakesFp32                as CodecInfo says
///   kHeaderBytes, write_header             what a message begins with; the constructor reads it
///   encode_exactly, decode_exactly, decode_add_exactly: what the scalar codec does with a chunk
struct UsualFamily {
  static constexpr bool kClampsSums = false;
  static constexpr bool kTakesFp32 = true;
  static constexpr std::size_t kHeaderBytes = 0;
};
struct ByScalarCodec : UsualFamily {
  const Codec& scalar;
  DType dtype;

  ByScalarCodec(const Codec& codec, DType type) : scalar(codec), dtype(type) {}

  template <class Payload>
  static void write_header(std::span<const typename Payload::Element>, std::byte*) {}

  void encode_exactly(std::span<const std::byte> x, std::span<std::byte> wire,
                      EncodeCounts* counts) const {
    scalar.encode(dtype, x, wire, counts);
  }
  void decode_exactly(std::span<const std::byte> wire, std::span<std::byte> x) const {
    scalar.decode(dtype, wire, x);
  }
  void decode_add_exactly(std::span<const std::byte> wire, std::span<std::byte> sum) const {
    scalar.decode_add(dtype, wire, sum);
  }
};

template <class Payload, class Family>
void encode_message(const Family& family, std::span<const typename Payload::Element> x,
                    std::byte* wire, EncodeCounts* counts) {
  Tile tile;
  for (std::size_t begin = 0; begin < x.size(); begin += family.chunk()) {
    const auto part = x.subspan(begin, std::min(family.chunk(), x.size() - begin));
    const std::size_t bytes = family.chunk_bytes(part.size());
    std::uint64_t clamped = 0;
    const bool done = counts == nullptr
                          ? family.template encode<Payload, false>(tile, part, wire, clamped)
                          : family.template encode<Payload, true>(tile, part, wire, clamped);
    if (done) {
      if (counts != nullptr) counts->clamped += clamped;
    } else {
      family.encode_exactly(std::as_bytes(part), {wire, bytes}, counts);
    }
    wire += bytes;
  }
}

template <bool kAdds, class Payload, class Family>
void decode_message(const Family& family, const std::byte* wire,
                    std::span<typename Payload::Element> x) {
  using Element = typename Payload::Element;
  Tile tile;
  alignas(32) Element decoded[kTile + kBytes];
  for (std::size_t begin = 0; begin < x.size(); begin += family.chunk()) {
    const auto chunk = x.subspan(begin, std::min(family.chunk(), x.size() - begin));
    const std::size_t bytes = family.chunk_bytes(chunk.size());
    for (std::size_t first = 0; first < chunk.size(); first += kTile) {
      const auto part = chunk.subspan(first, std::min(kTile, chunk.size() - first));
      const bool direct = !kAdds && part.size() % kBytes == 0;
      Element* const to = direct ? part.data() : decoded;
      if (!family.template decode<Payload>(tile, wire, chunk.size(), first, part.size(), to)) {
        const std::span<const std::byte> own(wire, bytes);
        kAdds ? family.decode_add_exactly(own, std::as_writable_bytes(chunk))
              : family.decode_exactly(own, std::as_writable_bytes(chunk));
        break;  // the whole chunk
      }
      if constexpr (kAdds) {
        add_elements<Payload, Family::kClampsSums>({to, part.size()}, part.data());
      } else if (!direct) {
        std::copy_n(to, part.size(), part.data());
      }
    }
    wire += bytes;
  }
}

// ---------------------------------------------------------------- what the dispatch tables hold

/// Chooses the family that codes a format: choose_family(format, f) beside each family calls f.operator()<Family>(), whose
/// constructor takes the format, the scalar codec, the dtype, the elements of the message and its wire.
template <class Format, class Byte, class F>
void with_family(const Format& format, const Codec& scalar, DType dtype, std::span<Byte> payload,
                 const std::byte* wire, const F& f) {
  choose_family(format, [&]<class Family>() {
    const auto with = [&]<class Payload>(auto x) {
      f.template operator()<Payload, Family>(
          x, [&] { return Family(format, scalar, dtype, x.size(), wire); });
    };
    if (dtype == DType::fp16) with.template operator()<HalfLanes>(as_u16(payload));
    if (dtype == DType::bf16) with.template operator()<BfloatLanes>(as_u16(payload));
    if constexpr (Family::kTakesFp32) {
      if (dtype == DType::fp32) with.template operator()<FloatLanes>(as_f32(payload));
    }
  });
}

template <class Format>
void encode_format(const Format& format, const Codec& scalar, DType dtype,
                   std::span<const std::byte> payload, std::span<std::byte> wire,
                   EncodeCounts* counts) {
  with_family(format, scalar, dtype, payload, wire.data(),
              [&]<class Payload, class Family>(auto x, const auto& family) {
                Family::template write_header<Payload>(x, wire.data());
                encode_message<Payload>(family(), x, wire.data() + Family::kHeaderBytes, counts);
              });
}
template <class Format, bool kAdds>
void decode_format(const Format& format, const Codec& scalar, DType dtype,
                   std::span<const std::byte> wire, std::span<std::byte> payload) {
  with_family(format, scalar, dtype, payload, wire.data(),
              [&]<class Payload, class Family>(auto x, const auto& family) {
                decode_message<kAdds, Payload>(family(), wire.data() + Family::kHeaderBytes, x);
              });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

/// The functions of a format for this target: none where it has no vectors.
#undef ARLAB_VECTOR_FUNCTIONS
#if ARLAB_HAS_LANES
#define ARLAB_VECTOR_FUNCTIONS(Format)                                               \
  {encode_format<Format>, decode_format<Format, false>, decode_format<Format, true>, \
   hwy::TargetName(HWY_TARGET)}
#else
#define ARLAB_VECTOR_FUNCTIONS(Format) \
  {                                    \
  }
#endif
#endif  // per-target include guard
