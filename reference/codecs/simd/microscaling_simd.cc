// The block-scaled codecs with vectors. ../SPEC.md, "Microscaling (mx*)" and "NVFP4 (nvfp4)", says
// what is computed; here is how, and why the bits are the same.
//
// Encoding a wire chunk takes two passes, the second from cache: the largest magnitudes of its
// blocks, all scales at once; then the elements. Blocks of zeros and blocks that are not finite go
// through the same code, and are set right after.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/microscaling_simd.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/microscaling.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/block_scales-inl.h"
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/minifloat_codes-inl.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

#if ARLAB_HAS_LANES

#include "reference/codecs/simd/bit_planes-inl.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kChunk = kWireChunk;
constexpr std::size_t kPair = 2 * kBytes;

// ---------------------------------------------------------------- a chunk

/// Where the planes and the scales of a chunk lie.
template <class Byte>
struct ChunkWire {
  Byte* planes[2];
  Byte* scales;
};

template <class Standard>
constexpr std::size_t chunk_bytes(std::size_t elements) {
  return planes_bytes(elements, Standard::Element::kBits) + blocks_of(elements, Standard::kBlock);
}
template <class Standard, class Byte>
ChunkWire<Byte> wire_of_chunk(Byte* wire, std::size_t elements) {
  constexpr unsigned kBits = Standard::Element::kBits;
  const auto planes = planes_at(wire, elements, kBits);
  return {{planes.at[0], planes.at[1]}, wire + planes_bytes(elements, kBits)};
}

/// Sets the codes of blocks to 0 that have no multiplier.
template <class Standard>
void clear_blocks(const typename Standard::Scales& scales, std::size_t blocks,
                  const ChunkWire<std::uint8_t>& wire) {
  for (std::size_t b = 0; b < blocks; ++b) {
    if (scales.multiplier[b] != 0) continue;
    std::size_t plane = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned) {
      const std::size_t bytes = Standard::kBlock * width / 8;
      std::memset(wire.planes[plane++] + b * bytes, 0, bytes);
    });
  }
}

/// Nibbles of two vectors of codes, whose bytes are in blocks of 4 (from fp32) or 8.
template <bool kFromFloats>
HWY_INLINE ByteVector joined_nibbles(ByteVector first, ByteVector second) {
  const ByteVector joined = narrow_blocks(joined_pairs<16>(first), joined_pairs<16>(second));
  if constexpr (kFloats != 8) {
    return joined;
  } else if constexpr (kFromFloats) {
    // Pairs of bytes of the lower and of the upper block of each source in turn.
    alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 1, 8,  9,  2, 3, 10, 11,
                                                            4, 5, 12, 13, 6, 7, 14, 15};
    return hn::TableLookupBytes(ordered_halves(joined), hn::LoadDup128(U8(), kOrder));
  } else {
    return ordered_bytes(joined);
  }
}

/// So many elements, a multiple of 8 blocks. With kStream the codes of 4 and 8 bits go past the
/// caches, to addresses that 16 divides.
template <class Standard, class Payload, bool kCount, bool kStream>
HWY_INLINE void encode_chunk(const typename Payload::Element* x, std::size_t count,
                             ExponentRule rule, float header, const ChunkWire<std::uint8_t>& wire,
                             std::uint64_t& clamped) {
  using Format = typename Standard::Element;
  alignas(32) typename Payload::Element largest[Standard::kBlocks];
  typename Standard::Scales scales;
  const std::size_t blocks = count / Standard::kBlock;
  largest_magnitudes<Standard::kBlock>(x, blocks, largest);
  Standard::template find_scales<Payload>(largest, blocks, rule, header, wire.scales, scales);

  const auto from_floats = [&](std::size_t first) HWY_ATTR {
    return float_codes_of<Standard, Payload, kCount>(x, first, scales, clamped);
  };
  if constexpr (Format::kBits == 4) {
    bool done = false;
    if constexpr (Standard::kBlock == 32 && Payload::kIsWord) {
      if (scales.smallest_one >= 3) {
        const auto codes = [&](std::size_t first) HWY_ATTR {
          std::uint64_t found = 0;
          const ByteVector result = fp4_codes<Payload, kCount>(x, scales.one, first, found);
          if (kCount && scales.multiplier[first / 32] != 0) clamped += found;
          return result;
        };
        for (std::size_t i = 0; i < count; i += kPair) {
          fetch_ahead(x + i + kChunk, kPair * sizeof(*x));  // the next chunk
          store_vector<kStream>(joined_nibbles<false>(codes(i), codes(i + kBytes)),
                                wire.planes[0] + i / 2);
        }
        done = true;
      }
    }
    if (!done) {
      for (std::size_t i = 0; i < count; i += kPair) {
        hn::StoreU(joined_nibbles<true>(from_floats(i), from_floats(i + kBytes)), U8(),
                   wire.planes[0] + i / 2);
      }
    }
  } else if constexpr (Format::kBits == 8) {
    Fp8Limits<Format, Payload, Standard::kBlocks> limits;
    if constexpr (Payload::kIsWord) limits.find(scales.one, blocks);
    for (std::size_t i = 0; i < count; i += kBytes) {
      fetch_ahead(x + i + kChunk, kBytes * sizeof(*x));  // the next chunk
      ByteVector codes;
      bool plain = false;
      if constexpr (Payload::kIsWord) {
        std::uint64_t found = 0;
        codes = ordered_halves(fp8_codes<Format, Payload, kCount>(x, limits, i, plain, found));
        if (kCount && plain && scales.multiplier[i / 32] != 0) clamped += found;
      }
      if (!plain) codes = ordered_bytes(from_floats(i));
      store_vector<kStream>(codes, wire.planes[0] + i);
    }
  } else {
    alignas(32) std::uint8_t codes[kChunk];
    for (std::size_t i = 0; i < count; i += kBytes) {
      hn::Store(ordered_bytes(from_floats(i)), U8(), codes + i);
    }
    pack_nibbles(codes, count, wire.planes[0]);
    pack_crumbs(codes, count, 4, wire.planes[1]);
  }
  if (scales.all_coded) return;
  if constexpr (kStream) hwy::FlushStream();  // what is stored as usual must come after
  clear_blocks<Standard>(scales, blocks, wire);
}

/// Which magnitudes of 16-bit elements have which code of NVFP4, for every block scale. A code
/// grows with the magnitude, and a message has at most 126 scales, so what is left for an element
/// is to be compared with the smallest magnitudes of the seven codes but 0.
template <class Payload>
class ThresholdsByScale {
 public:
  /// From so many elements of a message on it pays.
  static constexpr std::size_t kFromElements = 32768;
  static constexpr std::size_t kCodes = 7;

  explicit ThresholdsByScale(float g) {
    // The smallest fp32 numbers that are rounded to a code: its distance to the one before halved,
    // or the next number, where such a tie goes to the one before.
    alignas(32) static constexpr float kReached[8] = {0x1.000002p-2f, 0.75f, 0x1.400002p0f, 1.75f,
                                                      0x1.400002p1f,  3.5f,  0x1.400002p2f, 8.0f};
    for (std::size_t scale = 1; scale < kScales; ++scale) {
      const float multiplier = g / e4m3fn_to_float(static_cast<std::uint8_t>(scale));
      const FloatVector by = hn::Set(F32(), multiplier);
      alignas(32) std::int32_t below[8];
      for (std::size_t k = 0; k < 8; k += kFloats) {
        // Rounding to fp32 moves the quotient, and where products reach the number, by 2^-23. A
        // dtype's numbers are 2^-12 apart or more, so the least to reach it is the nearest to the
        // quotient or the next.
        const FloatVector reached = hn::Load(F32(), kReached + k);
        const HalfUint16Vector nearest = Payload::from_float(hn::Div(reached, by));
        const auto is_reached = hn::Ge(hn::Mul(Payload::to_float(nearest), by), reached);
        const Int32Vector minus_reached = hn::VecFromMask(I32(), hn::RebindMask(I32(), is_reached));
        hn::Store(hn::Add(hn::PromoteTo(I32(), nearest), minus_reached), I32(), below + k);
      }
      for (std::size_t k = 0; k < kCodes; ++k) {
        hn::Store(hn::Set(I16(), static_cast<std::int16_t>(below[k])), I16(), below_[scale][k]);
      }
    }
    for (const std::size_t scale : {std::size_t{0}, kScales}) {  // of blocks without codes
      std::fill_n(below_[scale][0], kCodes * kWords, std::int16_t{0x7FFF});
    }
  }

  /// Minus the codes of kWords elements, without signs.
  HWY_INLINE Int16Vector minus_codes(const std::uint16_t* x, std::uint8_t scale) const {
    const auto& below = below_[scale];
    const Int16Vector m = magnitudes(x);
    const auto reaches = [&](std::size_t k) HWY_ATTR {
      return hn::VecFromMask(I16(), hn::Gt(m, hn::Load(I16(), below[k])));
    };
    return hn::Add(hn::Add(hn::Add(reaches(0), reaches(1)), hn::Add(reaches(2), reaches(3))),
                   hn::Add(hn::Add(reaches(4), reaches(5)), reaches(6)));
  }

 private:
  static constexpr std::size_t kScales = 0x7F;

  alignas(32) std::int16_t below_[kScales + 1][kCodes][kWords];
};

/// NVFP4 of so many 16-bit elements, a multiple of 8 blocks, by comparisons.
template <class Payload>
HWY_INLINE void encode_by_scale(const std::uint16_t* x, std::size_t count, float header,
                                const ThresholdsByScale<Payload>& thresholds,
                                const ChunkWire<std::uint8_t>& wire) {
  constexpr std::size_t kBlock = NvFp4::kBlock;
  alignas(32) std::uint16_t largest[NvFp4::kBlocks];
  const std::size_t blocks = count / kBlock;
  largest_magnitudes<kBlock>(x, blocks, largest);
  const bool all_coded = NvFp4::find_scale_bytes<Payload>(largest, blocks, header, wire.scales);
  const auto codes = [&](std::size_t first) HWY_ATTR {
    const std::uint16_t* const second = x + first + kWords;
    const Int16Vector low = thresholds.minus_codes(x + first, wire.scales[first / kBlock]);
    const Int16Vector high = thresholds.minus_codes(second, wire.scales[(first + kWords) / kBlock]);
    const auto signs = narrow_signed(hn::BitCast(I16(), hn::LoadU(U16(), x + first)),
                                     hn::BitCast(I16(), hn::LoadU(U16(), second)));
    const auto sign_bits = hn::ShiftRight<4>(hn::BitCast(U16(), signs));
    const ByteVector sign = hn::And(hn::BitCast(U8(), sign_bits), hn::Set(U8(), 0x08));
    return hn::Sub(sign, hn::BitCast(U8(), narrow_signed(low, high)));
  };
  for (std::size_t i = 0; i < count; i += kPair) {
    fetch_ahead(x + i + kChunk, kPair * sizeof(*x));
    hn::StoreU(joined_nibbles<false>(codes(i), codes(i + kBytes)), U8(), wire.planes[0] + i / 2);
  }
  if (all_coded) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    const bool is_coded = wire.scales[b] != 0 && wire.scales[b] != 0x7F;
    if (!is_coded) std::memset(wire.planes[0] + b * kBlock / 2, 0, kBlock / 2);
  }
}

/// Elements that a chunk's functions take at once: 8 blocks, and whole vectors of packed codes.
template <class Standard>
constexpr std::size_t padded(std::size_t elements) {
  constexpr std::size_t kUnit = std::max<std::size_t>(8 * Standard::kBlock, 4 * kBytes);
  return (elements + kUnit - 1) / kUnit * kUnit;
}

/// The wire of a padded chunk.
template <class Standard>
struct PaddedWire {
  static constexpr std::size_t kPlaneBytes = kChunk * std::min(Standard::Element::kBits, 8U) / 8;

  alignas(32) std::uint8_t bytes[kPlaneBytes + Standard::kBlocks] = {};

  ChunkWire<std::uint8_t> at() { return wire_of_chunk<Standard>(bytes, kChunk); }

  /// Calls f(padded bytes, wire bytes, how many) for every part of the wire of `count` elements.
  template <class F>
  void for_each_part(std::size_t count, const ChunkWire<std::uint8_t>& padded_wire, const F& f) {
    std::size_t plane = 0;
    std::size_t offset = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned) {
      f(padded_wire.planes[plane++], offset, plane_bytes(count, width));
      offset += plane_bytes(count, width);
    });
    f(padded_wire.scales, offset, blocks_of(count, Standard::kBlock));
  }
};

template <class Standard, class Payload, bool kCount>
void encode_message(std::span<const typename Payload::Element> x, std::uint8_t* wire,
                    ExponentRule rule, std::uint64_t& clamped) {
  const float header = Standard::template header<Payload>(x);
  std::memcpy(wire, &header, Standard::kHeaderBytes);
  wire += Standard::kHeaderBytes;
  constexpr bool kMayCompare = std::is_same_v<Standard, NvFp4> && Payload::kIsWord && !kCount;
  if constexpr (kMayCompare) {
    if (x.size() >= ThresholdsByScale<Payload>::kFromElements) {
      const ThresholdsByScale<Payload> thresholds(header);
      for (; x.size() >= kChunk; x = x.subspan(kChunk)) {
        encode_by_scale<Payload>(x.data(), kChunk, header, thresholds,
                                 wire_of_chunk<Standard>(wire, kChunk));
        wire += chunk_bytes<Standard>(kChunk);
      }
    }
  }
  // Little of a large payload's wire would stay in the caches, and what goes past them is not read
  // first.
  constexpr bool kMayStream =
      Standard::Element::kBits != 6 && !kCount && chunk_bytes<Standard>(kChunk) % 16 == 0;
  const bool streamed = kMayStream && x.size_bytes() >= kStreamedPayload &&
                        reinterpret_cast<std::uintptr_t>(wire) % 16 == 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, x.size() - begin);
    const auto at = wire_of_chunk<Standard>(wire, count);
    if (kMayStream && streamed && count == kChunk) {
      find_pages_ahead(wire + chunk_bytes<Standard>(kChunk), chunk_bytes<Standard>(kChunk));
      encode_chunk<Standard, Payload, kCount, kMayStream>(x.data() + begin, count, rule, header, at,
                                                          clamped);
    } else if (padded<Standard>(count) == count) {
      encode_chunk<Standard, Payload, kCount, false>(x.data() + begin, count, rule, header, at,
                                                     clamped);
    } else {
      // Zeros change no scale, have code 0, and are never clamped.
      typename Payload::Element elements[kChunk];
      std::copy_n(x.data() + begin, count, elements);
      std::fill(elements + count, elements + padded<Standard>(count), typename Payload::Element{0});
      PaddedWire<Standard> own;
      const auto padded_wire = own.at();
      encode_chunk<Standard, Payload, kCount, false>(elements, padded<Standard>(count), rule,
                                                     header, padded_wire, clamped);
      own.for_each_part(count, padded_wire,
                        [&](std::uint8_t* part, std::size_t offset, std::size_t bytes) {
                          std::memcpy(wire + offset, part, bytes);
                        });
    }
    wire += chunk_bytes<Standard>(count);
  }
  if (streamed) hwy::FlushStream();
}

// ---------------------------------------------------------------- decode

/// One block by the scalar formats: scales and codes that stand for no ordinary number.
template <class Standard, class Payload>
void decode_block_exactly(const ChunkWire<const std::uint8_t>& wire, std::size_t block,
                          float multiplier, typename Payload::Element* out) {
  for (std::size_t i = 0; i < Standard::kBlock; ++i) {
    const std::size_t at = block * Standard::kBlock + i;
    unsigned code = 0;
    std::size_t plane = 0;
    for_each_plane(Standard::Element::kBits, [&](unsigned width, unsigned shift) {
      const std::size_t per_byte = 8 / width;
      const unsigned byte = wire.planes[plane++][at / per_byte];
      code |= ((byte >> (at % per_byte * width)) & ((1U << width) - 1)) << shift;
    });
    const float value = Standard::Element::value(static_cast<std::uint8_t>(code)) * multiplier;
    out[i] = Payload::Arithmetic::from_float(value);
  }
}

/// The eight magnitudes of e2m1 times the multiplier.
template <class Payload>
HWY_INLINE WordsOfBlock scaled_magnitudes(float multiplier) {
  alignas(32) static constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f,
                                                       2.0f, 3.0f, 4.0f, 6.0f};
  const FloatVector by = hn::Set(F32(), multiplier);
  return eight_words([by](std::size_t i) HWY_ATTR {
    return Payload::from_float(hn::Mul(hn::Load(F32(), kMagnitudes + i), by));
  });
}

/// At element `i` of steps of kStep: every 64 elements, whose wire is a line or less.
template <std::size_t kStep>
HWY_INLINE void fetch_elements(WireAhead ahead, std::size_t i) {
  if (kStep >= 2 * WireAhead::kUnit || i % (2 * WireAhead::kUnit) == 0) {
    ahead.fetch(i / WireAhead::kUnit);
  }
}

/// 16-bit elements of e2m1 codes, whose products are no NaN.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_fp4(const std::uint8_t* nibbles, const float* multipliers, std::size_t count,
                           WireAhead ahead, std::uint16_t* out) {
  constexpr std::size_t kBlock = Standard::kBlock;
  if constexpr (kBlock >= kBytes) {
    // A pass of its own: loads put a table into both halves of a vector for nothing.
    alignas(32) std::uint16_t tables[8 * Standard::kBlocks];
    const hn::FixedTag<std::uint16_t, 8> eight;
    for (std::size_t b = 0; b < count / kBlock; ++b) {
      hn::Store(scaled_magnitudes<Payload>(multipliers[b]), eight, tables + 8 * b);
    }
    for (std::size_t i = 0; i < count; i += kBytes) {
      fetch_elements<kBytes>(ahead, i);
      const auto table = signed_table(hn::LoadDup128(U16(), tables + i / kBlock * 8));
      store_values_of_nibbles<kStream>(table, nibbles + i / 2, out + i);
    }
  } else {
    static_assert(kBytes == 2 * kBlock);
    for (std::size_t i = 0, b = 0; i < count; i += kBytes, b += 2) {
      fetch_elements<kBytes>(ahead, i);
      const WordsOfBlock lower = scaled_magnitudes<Payload>(multipliers[b]);
      const WordsOfBlock upper = scaled_magnitudes<Payload>(multipliers[b + 1]);
      store_values<kStream>(signed_table(joined_blocks(lower, upper)),
                            spread_nibbles(nibbles + i / 2), out + i);
    }
  }
}

/// What the 16 codes of NVFP4 mean with every block scale that is positive and finite. A message
/// has at most these 127 of them, so nothing is left to multiply or to round but this.
template <class Payload>
class ValuesByScale {
 public:
  /// From so many elements of a message on it pays.
  static constexpr std::size_t kFromElements = 32768;

  /// False when a product may not be finite.
  bool fill(float g) {
    if (!std::isfinite(NvFp4::multiplier(kScales - 1, g))) return false;
    for (std::size_t scale = 0; scale < kScales; ++scale) {
      const float multiplier = NvFp4::multiplier(static_cast<std::uint8_t>(scale), g);
      const WordsOfBlock values = scaled_magnitudes<Payload>(multiplier);
      const ValueTable table = signed_table(joined_blocks(values, values));
      hn::Store(first_block(table.low), kHalf, low_[scale]);
      hn::Store(first_block(table.high), kHalf, high_[scale]);
    }
    return true;
  }

  static HWY_INLINE bool has_all(const std::uint8_t* scales, std::size_t blocks) {
    const hn::FixedTag<std::int8_t, 8> eight;
    const auto last = hn::Set(eight, std::int8_t{kScales - 1});
    auto wrong = hn::Zero(eight);
    for (std::size_t b = 0; b < blocks; b += 8) {
      const auto scale = hn::LoadU(eight, reinterpret_cast<const std::int8_t*>(scales) + b);
      wrong = hn::Or(wrong, hn::Or(scale, hn::VecFromMask(eight, hn::Gt(scale, last))));
    }
    return hn::AllFalse(eight, hn::Lt(wrong, hn::Zero(eight)));
  }

  /// The table of two blocks, or of one that fills a vector.
  HWY_INLINE ValueTable table(std::uint8_t first, [[maybe_unused]] std::uint8_t second) const {
    return {joined_blocks(hn::Load(kHalf, low_[first]), hn::Load(kHalf, low_[second])),
            joined_blocks(hn::Load(kHalf, high_[first]), hn::Load(kHalf, high_[second]))};
  }

 private:
  static constexpr std::size_t kScales = 0x7F;
  static constexpr hn::FixedTag<std::uint8_t, 16> kHalf = {};

  alignas(32) std::uint8_t low_[kScales][16];
  alignas(32) std::uint8_t high_[kScales][16];
};

template <class Payload, bool kStream>
HWY_INLINE void decode_by_scale(const ChunkWire<const std::uint8_t>& wire,
                                const ValuesByScale<Payload>& values, std::size_t count,
                                WireAhead ahead, std::uint16_t* out) {
  constexpr std::size_t kBlocksOfVector = kBytes / NvFp4::kBlock;
  const std::uint8_t* scale = wire.scales;
  for (std::size_t i = 0; i < count; i += kBytes, scale += kBlocksOfVector) {
    fetch_elements<kBytes>(ahead, i);
    store_values<kStream>(values.table(scale[0], scale[kBlocksOfVector - 1]),
                          spread_nibbles(wire.planes[0] + i / 2), out + i);
  }
}

/// Elements of codes in bytes: as fp16 patterns, which lack 2^kBiasBelowHalf, times the multiplier,
/// which may have it. Codes that stand for NaN come out wrong.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_bytes(const std::uint8_t* codes, const float* multipliers, std::size_t count,
                             typename Payload::Element* out) {
  using Format = typename Standard::Element;
  constexpr int kSignBit = Format::kBits - 1;
  const hn::Rebind<std::uint8_t, U16> half;
  for (std::size_t i = 0; i < count; i += kWords) {
    const Uint16Vector code = hn::PromoteTo(U16(), hn::LoadU(half, codes + i));
    const Uint16Vector magnitude = hn::And(code, hn::Set(U16(), (1 << kSignBit) - 1));
    const Uint16Vector sign = hn::Xor(code, magnitude);
    const Uint16Vector bits = hn::Or(hn::ShiftLeft<10 - Format::kMantissa>(magnitude),
                                     hn::ShiftLeft<15 - kSignBit>(sign));
    const FloatVector by = hn::Set(F32(), multipliers[i / Standard::kBlock]);
    const auto product = [by](HalfUint16Vector value) HWY_ATTR {
      FloatVector v = HalfLanes::to_float(value);
      if constexpr (!Standard::kFolds) {
        constexpr std::uint32_t kPower = (127 + Format::kBiasBelowHalf) << 23;
        v = hn::Mul(v, float_of(hn::Set(U32(), kPower)));
      }
      return hn::Mul(v, by);
    };
    Payload::template store<kStream>(product(lower_words(bits)), out + i);
    Payload::template store<kStream>(product(upper_words(bits)), out + i + kFloats);
  }
}

/// For each block, what decode_fp8_block needs to know of its scale.
struct Fp8Blocks {
  static constexpr std::size_t kBlocks = kChunk / 32;

  alignas(32) std::int8_t lowest[kBlocks];   // codes whose values are normal numbers of the dtype,
  alignas(32) std::int8_t highest[kBlocks];  // and finite
  alignas(32) std::uint16_t shift[kBlocks];  // from the format's exponent to the dtype's, in place
};

template <class Format, class Payload>
HWY_INLINE void find_fp8_blocks(const std::uint8_t* scales, std::size_t blocks, Fp8Blocks& found) {
  constexpr std::int32_t kBiases = Payload::kBias - (1 - Format::kMinExponent) - 127;
  constexpr std::int32_t kMostExponent = 2 * Payload::kBias;
  constexpr int kMantissa = Format::kMantissa;
  const hn::Rebind<std::int8_t, F32> few_bytes;
  const Int32Vector one = hn::Set(I32(), 1);
  for (std::size_t b = 0; b < blocks; b += kFloats) {
    const Int32Vector scale = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), scales + b));
    const Int32Vector shift = hn::Add(scale, hn::Set(I32(), kBiases));
    const Int32Vector lowest = hn::ShiftLeft<kMantissa>(hn::Max(one, hn::Sub(one, shift)));
    const Int32Vector above =
        hn::ShiftLeft<kMantissa>(hn::Sub(hn::Set(I32(), kMostExponent + 1), shift));
    const Int32Vector finite =
        hn::Min(hn::Sub(above, one), hn::Set(I32(), std::int32_t{Format::kTop}));
    const auto is_nan = hn::Eq(scale, hn::Set(I32(), std::int32_t{kE8m0Nan}));
    const Int32Vector highest = hn::IfThenElse(is_nan, hn::Set(I32(), -1), finite);
    // Saturated to a byte, a lowest code still excludes all, and a highest below 0, too.
    hn::StoreU(hn::DemoteTo(few_bytes, lowest), few_bytes, found.lowest + b);
    hn::StoreU(hn::DemoteTo(few_bytes, highest), few_bytes, found.highest + b);
    const auto moved = hn::ShiftLeft<Payload::kMantissaBits>(hn::BitCast(U32(), shift));
    hn::StoreU(hn::TruncateTo(HalfU16(), moved), HalfU16(), found.shift + b);
  }
}

/// A block of an 8-bit format as 16-bit elements, if its codes are all 0 or stand for normal
/// numbers of the dtype; else false. Then the exponent is all that has to change.
template <class Format, class Payload, bool kStream>
HWY_INLINE bool decode_fp8_block(const std::uint8_t* codes, std::size_t block,
                                 const Fp8Blocks& blocks, std::uint16_t* out) {
  constexpr int kDown = 8 - (Payload::kMantissaBits - Format::kMantissa);
  constexpr std::uint16_t kKept =
      static_cast<std::uint16_t>(0x8000 | (0x7F << (Payload::kMantissaBits - Format::kMantissa)));
  const SignedByteVector lowest = hn::Set(I8(), blocks.lowest[block]);
  const SignedByteVector highest = hn::Set(I8(), blocks.highest[block]);
  const SignedByteVector zero = hn::Zero(I8());
  SignedByteVector wrong = zero;
  for (std::size_t i = 0; i < 32; i += kBytes) {
    const SignedByteVector code =
        hn::BitCast(I8(), hn::And(hn::LoadU(U8(), codes + i), hn::Set(U8(), 0x7F)));
    const auto below = hn::And(hn::Gt(code, zero), hn::Gt(lowest, code));
    wrong = hn::Or(wrong, hn::VecFromMask(I8(), hn::Or(below, hn::Gt(code, highest))));
  }
  if (!hn::AllTrue(I8(), hn::Eq(wrong, zero))) return false;
  const hn::Rebind<std::uint8_t, U16> half;
  const Uint16Vector shift = hn::Set(U16(), blocks.shift[block]);
  for (std::size_t i = 0; i < 32; i += kWords) {
    const Uint16Vector code = hn::ShiftLeft<8>(hn::PromoteTo(U16(), hn::LoadU(half, codes + i)));
    const Uint16Vector spread = hn::BitCast(U16(), hn::ShiftRight<kDown>(hn::BitCast(I16(), code)));
    const Uint16Vector bits = hn::And(spread, hn::Set(U16(), kKept));
    const auto is_zero = hn::Eq(hn::Add(bits, bits), hn::Zero(U16()));
    store_vector<kStream>(hn::Add(bits, hn::IfThenZeroElse(is_zero, shift)), out + i);
  }
  return true;
}

/// Whether a block has a code that stands for a NaN.
template <class Format>
HWY_INLINE bool has_nan(const std::uint8_t* codes) {
  auto any = hn::Zero(I8());
  for (std::size_t i = 0; i < 32; i += kBytes) {
    const auto code = hn::BitCast(I8(), hn::And(hn::LoadU(U8(), codes + i), hn::Set(U8(), 0x7F)));
    const auto last = hn::Set(I8(), std::int8_t{Format::kFirstNan - 1});
    any = hn::Or(any, hn::VecFromMask(I8(), hn::Gt(code, last)));
  }
  return !hn::AllTrue(I8(), hn::Eq(any, hn::Zero(I8())));
}

/// So many elements, a multiple of 8 blocks.
template <class Standard, class Payload, bool kStream>
HWY_INLINE void decode_chunk(const ChunkWire<const std::uint8_t>& wire, std::size_t count,
                             float header, WireAhead ahead, typename Payload::Element* out) {
  using Format = typename Standard::Element;
  constexpr std::size_t kBlock = Standard::kBlock;
  alignas(32) float multipliers[Standard::kBlocks];
  const std::size_t blocks = count / kBlock;
  constexpr int kFold = Format::kBits == 4 && Payload::kIsWord ? 0 : Format::kBiasBelowHalf;
  const bool ordinary =
      Standard::template find_multipliers<kFold>(wire.scales, blocks, header, multipliers);
  if constexpr (Format::kBits == 4 && Payload::kIsWord) {
    decode_fp4<Standard, Payload, kStream>(wire.planes[0], multipliers, count, ahead, out);
  } else if constexpr (Format::kBits == 8) {
    Fp8Blocks fp8;
    if constexpr (Payload::kIsWord) find_fp8_blocks<Format, Payload>(wire.scales, blocks, fp8);
    for (std::size_t b = 0; b < blocks; ++b) {
      ahead.fetch(b);
      const std::uint8_t* const codes = wire.planes[0] + b * kBlock;
      typename Payload::Element* const to = out + b * kBlock;
      if constexpr (Payload::kIsWord) {
        if (decode_fp8_block<Format, Payload, kStream>(codes, b, fp8, to)) continue;
      }
      if (Standard::template is_ordinary<kFold>(wire.scales[b], header) &&
          !has_nan<Format>(codes)) {
        decode_bytes<Standard, Payload, kStream>(codes, multipliers + b, kBlock, to);
      } else {
        decode_block_exactly<Standard, Payload>(wire, b,
                                                Standard::multiplier(wire.scales[b], header), to);
      }
    }
    return;
  } else {
    alignas(32) std::uint8_t codes[kChunk];
    const std::byte* const first = reinterpret_cast<const std::byte*>(wire.planes[0]);
    const std::byte* const second = reinterpret_cast<const std::byte*>(wire.planes[1]);
    unpack_tile(PlanePointers<const std::byte>{{first, second, nullptr}}, count, Format::kBits,
                codes);
    for (std::size_t b = 0; b < blocks; ++b) {
      ahead.fetch(b);
      decode_bytes<Standard, Payload, kStream>(codes + b * kBlock, multipliers + b, kBlock,
                                               out + b * kBlock);
    }
  }
  if (ordinary) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    if (!Standard::template is_ordinary<kFold>(wire.scales[b], header)) {
      decode_block_exactly<Standard, Payload>(wire, b, Standard::multiplier(wire.scales[b], header),
                                              out + b * kBlock);
    }
  }
}

/// Where decoded chunks go: to their place, by a buffer or directly, or directly past the caches.
/// The last may end within a block and always goes by the buffer.
enum class Way { buffered, direct, streamed };

/// Calls f(elements decoded, where they belong, how many) for every chunk that is in the buffer.
template <class Standard, class Payload, Way kWay, class F>
HWY_INLINE void for_each_decoded(const std::uint8_t* wire, std::span<typename Payload::Element> x,
                                 const F& f) {
  float header = 0;
  std::memcpy(&header, wire, Standard::kHeaderBytes);
  wire += Standard::kHeaderBytes;
  constexpr std::size_t kChunkBytes = chunk_bytes<Standard>(kChunk);
  constexpr bool kMayBeByScale = std::is_same_v<Standard, NvFp4> && Payload::kIsWord;
  std::conditional_t<kMayBeByScale, ValuesByScale<Payload>, std::monostate> values;
  bool by_scale = false;
  if constexpr (kMayBeByScale) {
    by_scale = x.size() >= ValuesByScale<Payload>::kFromElements && values.fill(header);
  }
  alignas(32) typename Payload::Element decoded[kChunk];
  for (std::size_t begin = 0; begin < x.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, x.size() - begin);
    typename Payload::Element* const out = x.data() + begin;
    if (padded<Standard>(count) == count) {
      const bool more = x.size() - begin >= 2 * kChunk;
      // Two chunks ahead: the next one's scales lie behind its codes, but are read first.
      const bool two_more = x.size() - begin >= 3 * kChunk;
      const WireAhead ahead(two_more ? wire + 2 * kChunkBytes : wire,
                            kChunkBytes / (kChunk / WireAhead::kUnit));
      if (kWay == Way::streamed && more) find_pages_ahead(out + kChunk, kChunk * sizeof(*out));
      const auto at = wire_of_chunk<Standard>(wire, count);
      typename Payload::Element* const to = kWay == Way::buffered ? decoded : out;
      bool done = false;
      if constexpr (kMayBeByScale) {
        done = by_scale && values.has_all(at.scales, count / Standard::kBlock);
        if (done) decode_by_scale<Payload, kWay == Way::streamed>(at, values, count, ahead, to);
      }
      if (!done) {
        decode_chunk<Standard, Payload, kWay == Way::streamed>(at, count, header, ahead, to);
      }
      if (kWay == Way::buffered) f(decoded, out, count);
    } else {
      PaddedWire<Standard> own;
      const auto at = own.at();
      own.for_each_part(count, at, [&](std::uint8_t* part, std::size_t offset, std::size_t bytes) {
        std::memcpy(part, wire + offset, bytes);
      });
      decode_chunk<Standard, Payload, false>({{at.planes[0], at.planes[1]}, at.scales},
                                             padded<Standard>(count), header, WireAhead(wire, 0),
                                             decoded);
      f(decoded, out, count);
    }
    wire += chunk_bytes<Standard>(count);
  }
}

template <class Standard, class Payload>
void decode_message(const std::uint8_t* wire, std::span<typename Payload::Element> x) {
  using Element = typename Payload::Element;
  const auto copy = [](const Element* from, Element* to, std::size_t count) {
    std::copy_n(from, count, to);
  };
  if (is_streamed(x)) {
    for_each_decoded<Standard, Payload, Way::streamed>(wire, x, copy);
    hwy::FlushStream();
  } else {
    for_each_decoded<Standard, Payload, Way::direct>(wire, x, copy);
  }
}

template <class Standard, class Payload>
void decode_add_message(const std::uint8_t* wire, std::span<typename Payload::Element> sum) {
  using Element = typename Payload::Element;
  for_each_decoded<Standard, Payload, Way::buffered>(
      wire, sum, [](const Element* addend, Element* to, std::size_t count) HWY_ATTR {
        add_elements<Payload>(addend, count, to);
      });
}

// ---------------------------------------------------------------- what the dispatch table holds

template <class F>
void with_standard(BlockFormat format, const F& f) {
  switch (format) {
    case BlockFormat::mx_e4m3:
      return f.template operator()<Microscaling<E4M3>>();
    case BlockFormat::mx_e5m2:
      return f.template operator()<Microscaling<E5M2>>();
    case BlockFormat::mx_e2m3:
      return f.template operator()<Microscaling<E2M3>>();
    case BlockFormat::mx_e3m2:
      return f.template operator()<Microscaling<E3M2>>();
    case BlockFormat::mx_e2m1:
      return f.template operator()<Microscaling<E2M1>>();
    case BlockFormat::nvfp4:
      return f.template operator()<NvFp4>();
  }
}

void microscaling_encode(const MicroscalingKind& kind, const Codec&, DType dtype,
                         std::span<const std::byte> payload, std::span<std::byte> wire,
                         EncodeCounts* counts) {
  auto* const out = reinterpret_cast<std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, payload, [&]<class Payload>(auto x) {
      std::uint64_t ignored = 0;
      counts != nullptr
          ? encode_message<Standard, Payload, true>(x, out, kind.rule, counts->clamped)
          : encode_message<Standard, Payload, false>(x, out, kind.rule, ignored);
    });
  });
}

void microscaling_decode(const MicroscalingKind& kind, const Codec&, DType dtype,
                         std::span<const std::byte> wire, std::span<std::byte> payload) {
  const auto* const in = reinterpret_cast<const std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, payload,
                 [&]<class Payload>(auto x) { decode_message<Standard, Payload>(in, x); });
  });
}

void microscaling_decode_add(const MicroscalingKind& kind, const Codec&, DType dtype,
                             std::span<const std::byte> wire, std::span<std::byte> sum) {
  const auto* const in = reinterpret_cast<const std::uint8_t*>(wire.data());
  with_standard(kind.format, [&]<class Standard>() {
    with_payload(dtype, sum,
                 [&]<class Payload>(auto x) { decode_add_message<Standard, Payload>(in, x); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<MicroscalingKind> microscaling_functions() {
#if ARLAB_HAS_LANES
  return {microscaling_encode, microscaling_decode, microscaling_decode_add};
#else
  return scalar_functions<MicroscalingKind>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(microscaling_functions);

CodecFunctions<MicroscalingKind> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(microscaling_functions)();
}

}  // namespace

CodecPtr accelerated_microscaling(const CodecPtr& scalar) {
  const auto kind = parse_microscaling(scalar->name());
  return kind ? std::make_shared<AcceleratedCodec<MicroscalingKind>>(scalar, *kind,
                                                                     functions_of_this_processor)
              : nullptr;
}

}  // namespace arlab

#endif  // HWY_ONCE
