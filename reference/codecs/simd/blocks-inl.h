// What the block-scaled and the logarithmic codecs share: payload elements of any dtype, the
// extremes of many blocks at once, tables of 16 values, sums.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_BLOCKS_INL_H_
#undef ARLAB_CODECS_SIMD_BLOCKS_INL_H_
#else
#define ARLAB_CODECS_SIMD_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hwy/cache_control.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/planes-inl.h"
#include "reference/formats/payload_arithmetic.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

using HalfI16 = hn::RebindToSigned<HalfU16>;

inline constexpr std::size_t kWords = 2 * kFloats;

/// The first and the second half of the 16-bit lanes.
HWY_INLINE HalfUint16Vector lower_words(Uint16Vector v) { return hn::LowerHalf(HalfU16(), v); }
HWY_INLINE HalfUint16Vector upper_words(Uint16Vector v) { return hn::UpperHalf(HalfU16(), v); }

/// Stores a vector; with kStream past the caches, to an address that is aligned to 16 bytes.
template <bool kStream, class V, class T>
HWY_INLINE void store_vector(V v, T* to) {
  if constexpr (kStream) {
    stream_vector(v, to);
  } else {
    hn::StoreU(v, hn::DFromV<V>(), to);
  }
}

// ---------------------------------------------------------------- payload elements

/// 16-bit payload elements.
template <class Lanes, class ScalarArithmetic, int kMantissa, int kBiasOfExponent>
struct WordPayload : Lanes {
  using Element = std::uint16_t;
  using Arithmetic = ScalarArithmetic;
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kBias = kBiasOfExponent;
  static constexpr bool kIsWord = true;
  static constexpr Element kLargestFinite = Lanes::kInfinity - 1;

  static bool is_finite(Element bits) { return (bits & 0x7FFF) < Lanes::kInfinity; }

  static HWY_INLINE FloatVector load(const Element* from) { return load_elements<Lanes>(from); }
  /// RN, but not of a NaN.
  template <bool kStream>
  static HWY_INLINE void store(FloatVector x, Element* to) {
    store_vector<kStream && kFloats == 8>(Lanes::from_float(x), to);
  }
};

struct HalfPayload : WordPayload<HalfLanes, Fp16Arithmetic, 10, 15> {
  static constexpr float kLargest = 65504.0f;
  static constexpr float kLargestPower = 15.99f;  // 2 to it is below kLargest

  /// RN; a NaN becomes the canonical one.
  static HWY_INLINE void store_any(FloatVector x, Element* to) {
    const HalfUint16Vector bits = from_float(x);
    const auto magnitude =
        hn::BitCast(HalfI16(), hn::And(bits, hn::Set(HalfU16(), Arithmetic::kMagnitude)));
    const auto is_nan = hn::Gt(magnitude, hn::Set(HalfI16(), std::int16_t{kInfinity}));
    const auto nan = hn::Set(HalfU16(), kNaN);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(HalfU16(), is_nan), nan, bits), HalfU16(), to);
  }
};

struct BfloatPayload : WordPayload<BfloatLanes, Bf16Arithmetic, 7, 127> {
  static constexpr float kLargest = 0x1.FEp127f;
  static constexpr float kLargestPower = 127.99f;

  static HWY_INLINE void store_any(FloatVector x, Element* to) {
    hn::StoreU(round(x), HalfU16(), to);
  }
};

struct FloatPayload {
  using Element = float;
  using Arithmetic = Fp32Arithmetic;
  static constexpr bool kIsWord = false;
  static constexpr float kLargest = std::numeric_limits<float>::max();
  static constexpr float kLargestPower = 127.99f;

  static bool is_finite(Element x) { return std::isfinite(x); }
  static HWY_INLINE FloatVector load(const Element* from) { return hn::LoadU(F32(), from); }
  template <bool kStream>
  static HWY_INLINE void store(FloatVector x, Element* to) {
    store_vector<kStream>(x, to);
  }
  static HWY_INLINE void store_any(FloatVector x, Element* to) {
    const FloatVector nan = float_of(hn::Set(U32(), 0x7FC00000));
    hn::StoreU(hn::IfThenElse(hn::Eq(x, x), x, nan), F32(), to);
  }
};

/// Calls f<Payload>(elements of the payload).
template <class Byte, class F>
void with_payload(DType dtype, std::span<Byte> payload, const F& f) {
  switch (dtype) {
    case DType::fp16:
      return f.template operator()<HalfPayload>(as_u16(payload));
    case DType::bf16:
      return f.template operator()<BfloatPayload>(as_u16(payload));
    case DType::fp32:
      return f.template operator()<FloatPayload>(as_f32(payload));
  }
}

/// sum += addend: one addition and one rounding per element. With kClamps, a finite fp16 sum that
/// overflows becomes +-65504.
template <class Payload, bool kClamps = false>
HWY_INLINE void add_elements(const typename Payload::Element* addend, std::size_t count,
                             typename Payload::Element* sum) {
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const FloatVector v = hn::Add(Payload::load(sum + i), Payload::load(addend + i));
    if constexpr (kClamps) {
      hn::StoreU(Payload::round(v), HalfU16(), sum + i);
    } else {
      Payload::store_any(v, sum + i);
    }
  }
  add_native(Payload::Arithmetic::kDType, kClamps,
             std::as_writable_bytes(std::span(sum + i, count - i)),
             std::as_bytes(std::span(addend + i, count - i)));
}

/// From this payload size on, decoded elements go past the caches: a tensor that large would only
/// push out what is still needed, and stores that do not read first save a third of the traffic.
inline constexpr std::size_t kStreamedPayload = std::size_t{16} << 20;

template <class Element>
bool is_streamed(std::span<Element> payload) {
  return payload.size_bytes() >= kStreamedPayload &&
         reinterpret_cast<std::uintptr_t>(payload.data()) % 16 == 0;
}

// ---------------------------------------------------------------- largest of blocks

/// Both vectors' lanes of `tag` in turn, within 128-bit blocks; the larger of each two numbers.
template <class Tag, class V>
HWY_INLINE V largest_interleaved(Tag tag, V a, V b) {
  const hn::DFromV<V> d;
  const auto x = hn::BitCast(tag, a);
  const auto y = hn::BitCast(tag, b);
  return hn::Max(hn::BitCast(d, hn::InterleaveLower(tag, x, y)),
                 hn::BitCast(d, hn::InterleaveUpper(tag, x, y)));
}

/// The larger of each two numbers of the 128-bit blocks.
template <class V>
HWY_INLINE auto largest_of_halves(V v) {
  return hn::Max(first_block(v), last_block(v));
}

/// row(b) is a vector of 16-bit numbers of block b; largest[b] the largest of them. Eight blocks at
/// a time are transposed while their maxima are taken. `count` is a multiple of 8.
template <class Row>
HWY_INLINE void largest_of_rows(std::size_t count, const Row& row, std::int16_t* largest) {
  const hn::FixedTag<std::int16_t, 8> eight;
  for (std::size_t b = 0; b < count; b += 8) {
    const auto pair = [&](std::size_t i)
                          HWY_ATTR { return largest_interleaved(I16(), row(i), row(i + 1)); };
    const Int16Vector first = largest_interleaved(I32(), pair(b), pair(b + 2));
    const Int16Vector second = largest_interleaved(I32(), pair(b + 4), pair(b + 6));
    hn::StoreU(largest_of_halves(largest_interleaved(U64(), first, second)), eight, largest + b);
  }
}

/// The same for 32-bit numbers; `count` is a multiple of 4.
template <class Row>
HWY_INLINE void largest_of_rows(std::size_t count, const Row& row, std::int32_t* largest) {
  const hn::FixedTag<std::int32_t, 4> four;
  for (std::size_t b = 0; b < count; b += 4) {
    const Int32Vector first = largest_interleaved(I32(), row(b), row(b + 1));
    const Int32Vector second = largest_interleaved(I32(), row(b + 2), row(b + 3));
    hn::StoreU(largest_of_halves(largest_interleaved(U64(), first, second)), four, largest + b);
  }
}

/// Bits of magnitudes: numbers that order as the values do, from +0 to infinity and NaN.
HWY_INLINE Int16Vector magnitudes(const std::uint16_t* x) {
  return hn::BitCast(I16(), hn::And(hn::LoadU(U16(), x), hn::Set(U16(), 0x7FFF)));
}
HWY_INLINE Int32Vector magnitudes(const float* x) {
  return hn::BitCast(I32(), hn::Abs(hn::LoadU(F32(), x)));
}

inline std::int16_t* as_signed(std::uint16_t* keys) {
  return reinterpret_cast<std::int16_t*>(keys);
}
inline std::int32_t* as_signed(float* keys) { return reinterpret_cast<std::int32_t*>(keys); }

/// The largest magnitude of every block, or an infinity or a NaN when the block holds one. `blocks`
/// is a multiple of 8.
template <std::size_t kBlock, class Element>
HWY_INLINE void largest_magnitudes(const Element* x, std::size_t blocks, Element* largest) {
  constexpr std::size_t kLanes = kBytes / sizeof(Element);
  static_assert(kBlock % kLanes == 0);
  largest_of_rows(
      blocks,
      [x](std::size_t b) HWY_ATTR {
        auto row = magnitudes(x + b * kBlock);
        for (std::size_t i = kLanes; i < kBlock; i += kLanes) {
          row = hn::Max(row, magnitudes(x + b * kBlock + i));
        }
        return row;
      },
      as_signed(largest));
}

// ---------------------------------------------------------------- sixteen values by their codes

/// 16-bit values of 4-bit codes, their low and high bytes. Every 128-bit block has its own.
struct ValueTable {
  ByteVector low;
  ByteVector high;
};

using WordsOfBlock = hn::Vec<hn::FixedTag<std::uint16_t, 8>>;

/// For values of the codes 0 .. 7 in every 128-bit block; 8 .. 15 have the same with the other
/// sign.
HWY_INLINE ValueTable signed_table(Uint16Vector values) {
  alignas(16) static constexpr std::uint8_t kLow[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                        0, 2, 4, 6, 8, 10, 12, 14};
  alignas(16) static constexpr std::uint8_t kHigh[16] = {1, 3, 5, 7, 9, 11, 13, 15,
                                                         1, 3, 5, 7, 9, 11, 13, 15};
  alignas(16) static constexpr std::uint8_t kSigns[16] = {
      0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
  const ByteVector bytes = hn::BitCast(U8(), values);
  const ByteVector high = hn::TableLookupBytes(bytes, hn::LoadDup128(U8(), kHigh));
  return {hn::TableLookupBytes(bytes, hn::LoadDup128(U8(), kLow)),
          hn::Xor(high, hn::LoadDup128(U8(), kSigns))};
}

/// Stores low and high bytes of kBytes elements as words in element order.
template <bool kStream>
HWY_INLINE void store_words(ByteVector low, ByteVector high, std::uint16_t* to) {
  const Uint16Vector first = hn::BitCast(U16(), hn::InterleaveLower(U8(), low, high));
  const Uint16Vector second = hn::BitCast(U16(), hn::InterleaveUpper(U8(), low, high));
  if constexpr (kFloats == 8) {
    store_vector<kStream>(hn::ConcatLowerLower(U16(), second, first), to);
    store_vector<kStream>(hn::ConcatUpperUpper(U16(), second, first), to + kWords);
  } else {
    store_vector<kStream>(first, to);
    store_vector<kStream>(second, to + kWords);
  }
}

template <bool kStream>
HWY_INLINE void store_values(const ValueTable& table, ByteVector codes, std::uint16_t* to) {
  store_words<kStream>(hn::TableLookupBytes(table.low, codes),
                       hn::TableLookupBytes(table.high, codes), to);
}

/// The same for nibbles whose 128-bit blocks have the same table. Then eights of elements can be
/// dealt to the blocks in turn, and stored as they come.
template <bool kStream>
HWY_INLINE void store_values_of_nibbles(const ValueTable& table, const std::uint8_t* nibbles,
                                        std::uint16_t* to) {
  if constexpr (kFloats != 8) return store_values<kStream>(table, spread_nibbles(nibbles), to);
  alignas(32) static constexpr std::uint8_t kDealt[32] = {0, 0,  1,  1,  2,  2,  3,  3,  8,  8, 9,
                                                          9, 10, 10, 11, 11, 4,  4,  5,  5,  6, 6,
                                                          7, 7,  12, 12, 13, 13, 14, 14, 15, 15};
  const ByteVector twice =
      hn::TableLookupBytes(hn::LoadDup128(U8(), nibbles), hn::Load(U8(), kDealt));
  const ByteVector own = hn::And(twice, hn::BitCast(U8(), hn::Set(U16(), 0xF00F)));
  const ByteVector codes = hn::BitCast(U8(), joined_pairs<16>(own));
  const ByteVector low = hn::TableLookupBytes(table.low, codes);
  const ByteVector high = hn::TableLookupBytes(table.high, codes);
  store_vector<kStream>(hn::BitCast(U16(), hn::InterleaveLower(U8(), low, high)), to);
  store_vector<kStream>(hn::BitCast(U16(), hn::InterleaveUpper(U8(), low, high)), to + kWords);
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
