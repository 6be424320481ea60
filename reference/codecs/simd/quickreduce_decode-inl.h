// QuickReduce atoms to elements, and added to elements.
//
// An element is the product of its code and a scale. With few codes, the products of all codes with
// both scales of a group are looked up instead.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_QUICKREDUCE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_QUICKREDUCE_DECODE_INL_H_
#undef ARLAB_CODECS_SIMD_QUICKREDUCE_DECODE_INL_H_
#else
#define ARLAB_CODECS_SIMD_QUICKREDUCE_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "hwy/cache_control.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/planes-inl.h"
#include "reference/codecs/simd/quickreduce_codes-inl.h"
#include "reference/codecs/simd/quickreduce_simd.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// From this payload size on, decoded elements go past the caches: a tensor that large would only
/// push out what is still needed, and stores that do not read first save a third of the traffic.
inline constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

/// The values of a group's codes, multiplied by their scales: any format.
template <QuickReduceFormat kFormat, class Lanes>
class GroupReader {
  using Code = typename Traits<kFormat>::Code;
  using Packing = typename Traits<kFormat>::Packing;

 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : scales_(scales) {
    for (std::size_t i = 0; i < kGroup / kUnit; ++i) {
      const Codes codes = Packing::unpack(wire, group * (kGroup / kUnit) + i);
      hn::Store(codes.first, U8(), codes_ + i * kUnit);
      hn::Store(codes.second, U8(), codes_ + i * kUnit + kBytes);
    }
  }
  /// Vector i of the group, in element order.
  HWY_INLINE FloatVector product(std::size_t i) const {
    return hn::Mul(Code::value(codes_ + i * kFloats), scales_);
  }

 private:
  FloatVector scales_;
  alignas(32) std::uint8_t codes_[kGroup];
};

/// q4 in fp16: every lane takes its four bits of the thread's word where they stand, so that it
/// holds the value times a power of two. That goes into the scale, which is exact for fp16, but not
/// for the small scales of bf16.
template <>
class GroupReader<QuickReduceFormat::q4, Fp16> {
  static constexpr std::size_t kParts = 8 / kFloats;  // vectors of a thread
  alignas(32) static constexpr std::uint32_t kMask[8] = {0x0000000F, 0x000F0000, 0x000000F0,
                                                         0x00F00000, 0x00000F00, 0x0F000000,
                                                         0x0000F000, 0xF0000000};
  alignas(32) static constexpr std::uint32_t kBias[8] = {0x00000008, 0x00080000, 0x00000080,
                                                         0x00800000, 0x00000800, 0x08000000,
                                                         0x00008000, 0x80000000};
  alignas(32) static constexpr float kPower[8] = {1,       0x1p-16f, 0x1p-4f,  0x1p-20f,
                                                  0x1p-8f, 0x1p-24f, 0x1p-12f, 0x1p-28f};

 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : words_(wire + 4 * 8 * group),
        scales_{hn::Mul(scales, hn::Load(F32(), kPower)),
                hn::Mul(scales, hn::Load(F32(), kPower + (kParts - 1) * kFloats))} {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    std::uint32_t word;
    std::memcpy(&word, words_ + 4 * (i / kParts), sizeof(word));
    const std::size_t part = i % kParts;
    const Uint32Vector bits =
        hn::And(hn::Set(U32(), word), hn::Load(U32(), kMask + part * kFloats));
    const Uint32Vector value = hn::Sub(bits, hn::Load(U32(), kBias + part * kFloats));
    return hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), value)), scales_[part]);
  }

 private:
  const std::byte* words_;
  FloatVector scales_[2];
};

/// q8: every lane takes its byte.
template <class Lanes>
class GroupReader<QuickReduceFormat::q8, Lanes> {
 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : bytes_(wire + kGroup * group), scales_(scales) {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    using Word = std::conditional_t<kFloats == 8, std::uint64_t, std::uint32_t>;
    constexpr std::uint8_t kNone = 0x80;  // gives 0
    alignas(32) static constexpr std::uint8_t kPick[32] = {
        0,     kNone, kNone, kNone, 2,     kNone, kNone, kNone, 1,     kNone, kNone,
        kNone, 3,     kNone, kNone, kNone, 4,     kNone, kNone, kNone, 6,     kNone,
        kNone, kNone, 5,     kNone, kNone, kNone, 7,     kNone, kNone, kNone};
    Word word;
    std::memcpy(&word, bytes_ + kFloats * i, sizeof(word));
    const hn::Repartition<Word, F32> words;
    const ByteVector bytes = hn::BitCast(U8(), hn::Set(words, word));
    const ByteVector codes = hn::TableLookupBytesOr0(bytes, hn::Load(U8(), kPick));
    const Int32Vector value = hn::Sub(hn::BitCast(I32(), codes), hn::Set(I32(), 128));
    return hn::Mul(hn::ConvertTo(F32(), value), scales_);
  }

 private:
  const std::byte* bytes_;
  FloatVector scales_;
};

/// q8 in fp16: every lane takes its byte into its highest bits, signed, so that it holds the value
/// times 2^24. kReadFactor makes up for it.
template <>
class GroupReader<QuickReduceFormat::q8, Fp16> {
 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : scales_(scales) {
    for (std::size_t i = 0; i < kGroup / 16; ++i) {
      const ByteVector biased = hn::LoadDup128(U8(), byte_pointer(wire) + kGroup * group + 16 * i);
      codes_[i] = hn::Xor(biased, bytes_set(0x80));
    }
  }
  HWY_INLINE FloatVector product(std::size_t i) const {
    constexpr std::uint8_t kNone = 0x80;            // gives 0
    constexpr std::size_t kVectors = 16 / kFloats;  // of 16 bytes
    alignas(32) static constexpr std::uint8_t kPick[64] = {
        kNone, kNone, kNone, 0,     kNone, kNone, kNone, 2,     kNone, kNone, kNone, 1,     kNone,
        kNone, kNone, 3,     kNone, kNone, kNone, 4,     kNone, kNone, kNone, 6,     kNone, kNone,
        kNone, 5,     kNone, kNone, kNone, 7,     kNone, kNone, kNone, 8,     kNone, kNone, kNone,
        10,    kNone, kNone, kNone, 9,     kNone, kNone, kNone, 11,    kNone, kNone, kNone, 12,
        kNone, kNone, kNone, 14,    kNone, kNone, kNone, 13,    kNone, kNone, kNone, 15};
    const ByteVector value = hn::TableLookupBytesOr0(codes_[i / kVectors],
                                                     hn::Load(U8(), kPick + i % kVectors * kBytes));
    return hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), value)), scales_);
  }

 private:
  ByteVector codes_[kGroup / 16];
  FloatVector scales_;
};

/// fp8: the bytes are in order on the wire.
template <class Lanes>
class GroupReader<QuickReduceFormat::fp8, Lanes> {
 public:
  HWY_INLINE GroupReader(const std::byte* wire, std::size_t group, FloatVector scales)
      : codes_(byte_pointer(wire) + kGroup * group), scales_(scales) {}
  HWY_INLINE FloatVector product(std::size_t i) const {
    return hn::Mul(Fp8Code::value(codes_ + i * kFloats), scales_);
  }

 private:
  const std::uint8_t* codes_;
  FloatVector scales_;
};

/// Whether the atom's products need the exact rounding: scales that are not finite or that may
/// overflow, NaN codes.
template <QuickReduceFormat kFormat, class Lanes>
HWY_INLINE bool is_extraordinary(const std::byte* wire) {
  using Code = typename Traits<kFormat>::Code;
  constexpr std::size_t kCodeBytes = quickreduce_code_bytes(kFormat);
  const Uint16Vector limit = hn::Set(U16(), Lanes::largest_plain_scale(Code::kLargest));
  const Uint16Vector magnitude = hn::Set(U16(), 0x7FFF);
  Uint16Vector largest = hn::Zero(U16());
  for (std::size_t at = 0; at < kScaleBytes; at += kBytes) {
    const ByteVector bytes = hn::LoadU(U8(), byte_pointer(wire) + kCodeBytes + at);
    largest = hn::Max(largest, hn::And(hn::BitCast(U16(), bytes), magnitude));
  }
  bool found = !hn::AllFalse(U16(), hn::Gt(largest, limit));
  if constexpr (kFormat == QuickReduceFormat::fp8) {
    for (std::size_t at = 0; at < kCodeBytes; at += kBytes) {
      found |= Code::has_nan(hn::LoadU(U8(), byte_pointer(wire) + at));
    }
  }
  return found;
}

/// What a reader's values have to be multiplied with.
template <QuickReduceFormat kFormat, class Lanes>
inline constexpr float kReadFactor =
    kFormat == QuickReduceFormat::q8 && std::is_same_v<Lanes, Fp16> ? 0x1p-24f : 1.0f;

/// The scales of an atom as floats, in the order of the wire, times the reader's factor.
template <QuickReduceFormat kFormat, class Lanes>
HWY_INLINE void read_scales(const std::byte* wire, float* scales) {
  const hn::Repartition<std::uint8_t, HalfU16> bytes;
  const std::uint8_t* const from = byte_pointer(wire) + quickreduce_code_bytes(kFormat);
  for (std::size_t b = 0; b < kBlocks; b += kFloats) {
    const auto bits = hn::BitCast(HalfU16(), hn::LoadU(bytes, from + 2 * b));
    FloatVector scale = Lanes::to_float(bits);
    constexpr float kFactor = kReadFactor<kFormat, Lanes>;
    if constexpr (kFactor != 1.0f) scale = hn::Mul(scale, hn::Set(F32(), kFactor));
    hn::StoreU(scale, F32(), scales + b);
  }
}

template <bool kExact, class Lanes>
HWY_INLINE HalfUint16Vector rounded(FloatVector x) {
  return kExact ? Lanes::round(x) : Lanes::from_float(x);
}

/// How decoded elements are stored.
enum class Stores {
  cached,
  streamed,  // past the caches, to addresses aligned to 16 bytes
};

template <Stores kStores, class D, class V>
HWY_INLINE void store_elements(V elements, D d, std::uint16_t* out) {
  if constexpr (kStores == Stores::streamed) {
    hn::Stream(elements, d, out);
  } else {
    hn::StoreU(elements, d, out);
  }
}

/// Any format: each element's own product.
template <QuickReduceFormat kFormat, class Lanes, bool kExact>
struct GroupByProduct {
  template <Stores kStores>
  static HWY_INLINE void decode(const std::byte* wire, std::size_t group, const float* scales,
                                std::uint16_t* out) {
    const GroupReader<kFormat, Lanes> reader(wire, group, load_pair(scales));
    // Step by step with as many vectors as registers hold: one vector's steps wait for each other.
    constexpr std::size_t kTogether = 8;
    for (std::size_t first = 0; first < kVectorsOfGroup; first += kTogether) {
      FloatVector products[kTogether];
      for (std::size_t i = 0; i < kTogether; ++i) products[i] = reader.product(first + i);
      for (std::size_t i = 0; i < kTogether; ++i) {
        store_elements<kStores>(rounded<kExact, Lanes>(products[i]), HalfU16(),
                                out + (first + i) * kFloats);
      }
    }
  }
};

/// The codes of even and of odd elements. A 128-bit block holds those of four threads.
struct ParityCodes {
  ByteVector even;
  ByteVector odd;
};

template <QuickReduceFormat kFormat>
struct ParityReader;

/// Of q4 words.
HWY_INLINE ParityCodes parity_codes(ByteVector words) {
  // The low half of a thread's word has its even elements.
  alignas(16) static constexpr std::uint8_t kHalves[16] = {0, 1, 4, 5, 8,  9,  12, 13,
                                                           2, 3, 6, 7, 10, 11, 14, 15};
  const ByteVector halves = hn::TableLookupBytes(words, block_indices(kHalves));
  const ByteVector low = hn::And(halves, bytes_set(0x0F));
  const ByteVector high = hn::And(shift_right_16<4>(halves), bytes_set(0x0F));
  return {hn::InterleaveLower(low, high), hn::InterleaveUpper(U8(), low, high)};
}

template <>
struct ParityReader<QuickReduceFormat::q4> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    return parity_codes(hn::LoadU(U8(), byte_pointer(wire) + unit * kBytes));
  }
  static constexpr std::size_t thread(std::size_t block, std::size_t i) { return 4 * block + i; }
};

template <>
struct ParityReader<QuickReduceFormat::fp4> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    const ByteVector v = hn::LoadU(U8(), byte_pointer(wire) + unit * kBytes);
    return {hn::And(v, bytes_set(0x0F)), hn::And(shift_right_16<4>(v), bytes_set(0x0F))};
  }
  static constexpr std::size_t thread(std::size_t block, std::size_t i) { return 4 * block + i; }
};

template <>
struct ParityReader<QuickReduceFormat::q3> {
  static HWY_INLINE ParityCodes read(const std::byte* wire, std::size_t unit) {
    const Codes codes = Q3Packing::unpack(wire, unit);
    const auto first = hn::BitCast(I16(), codes.first);
    const auto second = hn::BitCast(I16(), codes.second);
    const auto low = hn::Set(I16(), 0x00FF);
    return {narrow_blocks(hn::And(first, low), hn::And(second, low)),
            narrow_blocks(hn::ShiftRight<8>(first), hn::ShiftRight<8>(second))};
  }
  /// Each block of the narrowed codes is half of one of the first and half of one of the second.
  static constexpr std::size_t thread(std::size_t block, std::size_t i) {
    return i < 2 ? 2 * block + i : kBytes / 8 + 2 * block + i - 2;
  }
};

/// Formats of few codes: the products of all codes with the two scales of the group, looked up.
template <QuickReduceFormat kFormat, class Lanes, bool kExact>
struct GroupByTable {
  using Code = typename Traits<kFormat>::Code;
  using Bytes16 = hn::FixedTag<std::uint8_t, 16>;

  /// The products of the 16 codes with a scale, as their low and their high bytes.
  struct Table {
    ByteVector low;
    ByteVector high;
  };

  static HWY_INLINE Table table(float scale) {
    alignas(32) static constexpr float kValues[16] = {
        Code::value_of(0),  Code::value_of(1),  Code::value_of(2),  Code::value_of(3),
        Code::value_of(4),  Code::value_of(5),  Code::value_of(6),  Code::value_of(7),
        Code::value_of(8),  Code::value_of(9),  Code::value_of(10), Code::value_of(11),
        Code::value_of(12), Code::value_of(13), Code::value_of(14), Code::value_of(15)};
    alignas(16) static constexpr std::uint8_t kSplit[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                            1, 3, 5, 7, 9, 11, 13, 15};
    const FloatVector d = hn::Set(F32(), scale);
    const auto eight = [d](const float* values) HWY_ATTR {
      const Patterns all = eight_words([&](std::size_t i) HWY_ATTR {
        return rounded<kExact, Lanes>(hn::Mul(hn::Load(F32(), values + i), d));
      });
      return hn::BitCast(
          U64x2(), hn::TableLookupBytes(hn::BitCast(Bytes16(), all), hn::Load(Bytes16(), kSplit)));
    };
    const hn::Vec<U64x2> first = eight(kValues);
    const hn::Vec<U64x2> second = eight(kValues + 8);
    const auto low = hn::BitCast(Bytes16(), hn::InterleaveLower(U64x2(), first, second));
    const auto high = hn::BitCast(Bytes16(), hn::InterleaveUpper(U64x2(), first, second));
    return {joined_blocks(low, low), joined_blocks(high, high)};
  }

  template <Stores kStores>
  static HWY_INLINE void decode(const std::byte* wire, std::size_t group, const float* scales,
                                std::uint16_t* out) {
    const Table even = table(scales[0]);
    const Table odd = table(scales[1]);
    for (std::size_t part = 0; part < kGroup / kUnit; ++part, out += kUnit) {
      const ParityCodes codes = ParityReader<kFormat>::read(wire, group * (kGroup / kUnit) + part);
      const ByteVector even_low = hn::TableLookupBytes(even.low, codes.even);
      const ByteVector even_high = hn::TableLookupBytes(even.high, codes.even);
      const ByteVector odd_low = hn::TableLookupBytes(odd.low, codes.odd);
      const ByteVector odd_high = hn::TableLookupBytes(odd.high, codes.odd);
      const auto lower = [](ByteVector a, ByteVector b) HWY_ATTR {
        return hn::BitCast(U16(), hn::InterleaveLower(U8(), a, b));
      };
      const auto upper = [](ByteVector a, ByteVector b) HWY_ATTR {
        return hn::BitCast(U16(), hn::InterleaveUpper(U8(), a, b));
      };
      const Uint16Vector even_01 = lower(even_low, even_high);
      const Uint16Vector even_23 = upper(even_low, even_high);
      const Uint16Vector odd_01 = lower(odd_low, odd_high);
      const Uint16Vector odd_23 = upper(odd_low, odd_high);
      store<kStores>(hn::InterleaveLower(U16(), even_01, odd_01), 0, out);
      store<kStores>(hn::InterleaveUpper(U16(), even_01, odd_01), 1, out);
      store<kStores>(hn::InterleaveLower(U16(), even_23, odd_23), 2, out);
      store<kStores>(hn::InterleaveUpper(U16(), even_23, odd_23), 3, out);
    }
  }

 private:
  /// Each block is one thread's elements.
  template <Stores kStores>
  static HWY_INLINE void store(Uint16Vector threads, std::size_t i, std::uint16_t* out) {
    constexpr auto kThread = ParityReader<kFormat>::thread;
    store_elements<kStores>(first_block(threads), U16x8(), out + 8 * kThread(0, i));
    if constexpr (kFloats == 8) {
      store_elements<kStores>(last_block(threads), U16x8(), out + 8 * kThread(1, i));
    }
  }
};

/// Which way is faster was measured.
template <QuickReduceFormat kFormat, class Lanes>
inline constexpr bool kByTable =
    kFormat == QuickReduceFormat::q3 || kFormat == QuickReduceFormat::fp4 ||
    (kFormat == QuickReduceFormat::q4 && std::is_same_v<Lanes, Bf16>);

template <QuickReduceFormat kFormat, class Lanes, bool kExact>
using Group = std::conditional_t<kByTable<kFormat, Lanes>, GroupByTable<kFormat, Lanes, kExact>,
                                 GroupByProduct<kFormat, Lanes, kExact>>;

/// Only what is streamed fetches ahead.
template <Stores kStores>
HWY_INLINE void fetch_group(WireAhead ahead, std::size_t group) {
  if constexpr (kStores == Stores::streamed) {
    for (std::size_t unit = 0; unit < kGroup / WireAhead::kUnit; ++unit) {
      ahead.fetch(kGroup / WireAhead::kUnit * group + unit);
    }
  }
}

/// A q4 atom whose products do not overflow. The products with -8 .. 7 are those with 1 .. 8, with
/// either sign, and 0 with the sign of the scale; so one vector of products makes a block's table.
/// Each step is a pass over the atom, which gives the processor many independent operations.
template <class Lanes, Stores kStores>
void decode_q4_atom(const std::byte* wire, WireAhead ahead, std::uint16_t* out) {
  float scales[kBlocks];
  read_scales<QuickReduceFormat::q4, Lanes>(wire, scales);
  alignas(32) std::uint16_t products[8 * kBlocks];
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const FloatVector scale = hn::Set(F32(), scales[b]);
    const auto some = [scale](std::size_t first) HWY_ATTR {
      const FloatVector codes = hn::Iota(F32(), static_cast<float>(first + 1));
      return Lanes::from_float(hn::Mul(codes, scale));
    };
    hn::Store(eight_words(some), U16x8(), products + 8 * b);
  }

  // Low and high bytes of the products of the codes 0 .. 15, of both blocks of a group.
  alignas(16) static constexpr std::uint8_t kLow[16] = {14,   12, 10, 8, 6, 4, 2,  0,
                                                        0x80, 0,  2,  4, 6, 8, 10, 12};
  alignas(16) static constexpr std::uint8_t kHigh[16] = {15, 13, 11, 9, 7, 5, 3,  1,
                                                         1,  1,  3,  5, 7, 9, 11, 13};
  alignas(16) static constexpr std::uint8_t kKept[16] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                                         0xFF, 0xFF, 0x80, 0xFF, 0xFF, 0xFF,
                                                         0xFF, 0xFF, 0xFF, 0xFF};
  alignas(16) static constexpr std::uint8_t kSigns[16] = {
      0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0, 0, 0, 0};
  alignas(32) std::uint8_t tables[32 * kBlocks];
  for (std::size_t group = 0; group < kGroups; ++group) {
    for (std::size_t at = 0; at < 32; at += kBytes) {
      const ByteVector both = hn::BitCast(U8(), hn::Load(U16(), products + 16 * group + at / 2));
      const ByteVector low = hn::TableLookupBytesOr0(both, block_indices(kLow));
      const ByteVector high = hn::TableLookupBytes(both, block_indices(kHigh));
      hn::Store(low, U8(), tables + 64 * group + at);
      hn::Store(hn::Xor(hn::And(high, block_indices(kKept)), block_indices(kSigns)), U8(),
                tables + 64 * group + 32 + at);
    }
  }

  constexpr std::size_t kUnits = kGroup / kUnit;
  for (std::size_t unit = 0; unit < kGroups * kUnits; ++unit, out += kUnit) {
    const std::size_t group = unit / kUnits;
    if (unit % kUnits == 0) fetch_group<kStores>(ahead, group);
    ByteVector wired = hn::LoadU(U8(), byte_pointer(wire) + kUnit / 2 * unit);
    if constexpr (kFloats == 8) {
      // Threads are dealt to the halves in turn, so that both have neighbours at the end.
      alignas(32) static constexpr std::int32_t kDealt[8] = {0, 2, 4, 6, 1, 3, 5, 7};
      const auto dealt = hn::SetTableIndices(U32(), kDealt);
      wired = hn::BitCast(U8(), hn::TableLookupLanes(hn::BitCast(U32(), wired), dealt));
    }
    const ParityCodes codes = parity_codes(wired);
    const std::uint8_t* const table = tables + 64 * group;
    const auto look_up = [](const std::uint8_t* from, ByteVector index) HWY_ATTR {
      return hn::TableLookupBytes(hn::LoadDup128(U8(), from), index);
    };
    const ByteVector even_low = look_up(table, codes.even);
    const ByteVector odd_low = look_up(table + 16, codes.odd);
    const ByteVector even_high = look_up(table + 32, codes.even);
    const ByteVector odd_high = look_up(table + 48, codes.odd);
    const Uint16Vector even[2] = {
        hn::BitCast(U16(), hn::InterleaveLower(U8(), even_low, even_high)),
        hn::BitCast(U16(), hn::InterleaveUpper(U8(), even_low, even_high))};
    const Uint16Vector odd[2] = {hn::BitCast(U16(), hn::InterleaveLower(U8(), odd_low, odd_high)),
                                 hn::BitCast(U16(), hn::InterleaveUpper(U8(), odd_low, odd_high))};
    const auto store = [out](Uint16Vector v, std::size_t at) HWY_ATTR {
      if constexpr (kStores == Stores::streamed) {
        stream_vector(v, out + at);
      } else {
        hn::StoreU(v, U16(), out + at);
      }
    };
    for (std::size_t i = 0; i < 2; ++i) {
      store(hn::InterleaveLower(U16(), even[i], odd[i]), kBytes * i);
      store(hn::InterleaveUpper(U16(), even[i], odd[i]), kBytes * i + kBytes / 2);
    }
  }
}

template <QuickReduceFormat kFormat, class Lanes, bool kExact, Stores kStores>
HWY_INLINE void decode_atom(const std::byte* wire, WireAhead ahead, std::uint16_t* out) {
  if constexpr (kFormat == QuickReduceFormat::q4 && !kExact) {
    return decode_q4_atom<Lanes, kStores>(wire, ahead, out);
  }
  float scales[kBlocks];
  read_scales<kFormat, Lanes>(wire, scales);
  for (std::size_t group = 0; group < kGroups; ++group, out += kGroup) {
    fetch_group<kStores>(ahead, group);
    Group<kFormat, Lanes, kExact>::template decode<kStores>(wire, group, scales + 2 * group, out);
  }
}

/// One group added to `sum`. False, and nothing is changed, when a sum came out as an infinity or a
/// NaN, and the exact rounding was not asked for.
template <class Lanes, bool kExact>
HWY_INLINE bool add_group(const std::uint16_t* decoded, std::uint16_t* sum) {
  const HalfUint16Vector infinity = hn::Set(HalfU16(), Lanes::kInfinity);
  auto any = hn::Zero(HalfU16());
  HalfUint16Vector sums[kVectorsOfGroup];
  for (std::size_t i = 0; i < kVectorsOfGroup; ++i) {
    const FloatVector addend = load_elements<Lanes>(decoded + i * kFloats);
    const FloatVector old = load_elements<Lanes>(sum + i * kFloats);
    sums[i] = rounded<kExact, Lanes>(hn::Add(old, addend));
    if constexpr (!kExact) any = hn::Max(any, hn::And(sums[i], hn::Set(HalfU16(), 0x7FFF)));
  }
  if (!kExact && !hn::AllTrue(HalfU16(), hn::Lt(any, infinity))) return false;
  for (std::size_t i = 0; i < kVectorsOfGroup; ++i) {
    hn::StoreU(sums[i], HalfU16(), sum + i * kFloats);
  }
  return true;
}

/// Decoding and adding are two passes: each keeps the processor busy better than both in turn.
template <QuickReduceFormat kFormat, class Lanes>
void add_atom(const std::byte* wire, std::uint16_t* sum) {
  alignas(32) std::uint16_t decoded[kAtom];
  const bool exact = is_extraordinary<kFormat, Lanes>(wire);
  if (exact) {
    decode_atom<kFormat, Lanes, true, Stores::cached>(wire, WireAhead(wire, 0), decoded);
  } else {
    decode_atom<kFormat, Lanes, false, Stores::cached>(wire, WireAhead(wire, 0), decoded);
  }
  for (std::size_t at = 0; at < kAtom; at += kGroup) {
    if (exact || !add_group<Lanes, false>(decoded + at, sum + at)) {
      add_group<Lanes, true>(decoded + at, sum + at);
    }
  }
}

template <QuickReduceFormat kFormat, class Lanes, Stores kStores>
void decode_any_atom(const std::byte* wire, WireAhead ahead, std::uint16_t* out) {
  if (is_extraordinary<kFormat, Lanes>(wire)) {
    decode_atom<kFormat, Lanes, true, Stores::cached>(wire, ahead, out);  // rare
  } else {
    decode_atom<kFormat, Lanes, false, kStores>(wire, ahead, out);
  }
}

template <QuickReduceFormat kFormat, class Lanes>
void decode_atoms(const std::byte* wire, std::span<std::uint16_t> x) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  const bool streamed =
      x.size_bytes() >= kStreamedBytes && reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0;
  const std::size_t whole = x.size() / kAtom * kAtom;
  for (std::size_t begin = 0; begin < whole; begin += kAtom, wire += kWireBytes) {
    const bool more = x.size() - begin >= 3 * kAtom;
    const WireAhead ahead(more ? wire + 2 * kWireBytes : wire,
                          kWireBytes / (kAtom / WireAhead::kUnit));
    if (streamed && more) find_pages_ahead(&x[begin + 2 * kAtom], kAtom * sizeof(x[0]));
    streamed ? decode_any_atom<kFormat, Lanes, Stores::streamed>(wire, ahead, &x[begin])
             : decode_any_atom<kFormat, Lanes, Stores::cached>(wire, ahead, &x[begin]);
  }
  if (streamed) hwy::FlushStream();
  if (const auto rest = x.subspan(whole); !rest.empty()) {
    std::uint16_t atom[kAtom];
    decode_any_atom<kFormat, Lanes, Stores::cached>(wire, WireAhead(wire, 0), atom);
    std::copy_n(atom, rest.size(), rest.begin());
  }
}

template <QuickReduceFormat kFormat, class Lanes>
void add_atoms(const std::byte* wire, std::span<std::uint16_t> sum) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  for (std::size_t begin = 0; begin < sum.size(); begin += kAtom, wire += kWireBytes) {
    const auto part = sum.subspan(begin, std::min(kAtom, sum.size() - begin));
    if (part.size() == kAtom) {
      add_atom<kFormat, Lanes>(wire, part.data());
    } else {
      std::uint16_t padded[kAtom] = {};
      std::ranges::copy(part, padded);
      add_atom<kFormat, Lanes>(wire, padded);
      std::copy_n(padded, part.size(), part.begin());
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
