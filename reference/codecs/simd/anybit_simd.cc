// The any-bit integer codecs with vectors. ../SPEC.md, "Any-bit integers (int*)", says what is
// computed; here is how, and why the bits are the same.
//
// A chunk is encoded in passes over data that stay in the first-level cache: the extremes of its
// blocks, the scales of several blocks at once, the codes, the planes. Blocks that are not finite
// take the same way and are overwritten. Two things are left to the scalar codec: a last block that
// is shorter than the others, when it has spikes or a transform; and blocks above 4096 elements
// with those.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/anybit_simd.cc"
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/bit_planes-inl.h"
#include "reference/codecs/simd/byte_codes-inl.h"
#include "reference/codecs/simd/extremes-inl.h"
#include "reference/codecs/simd/hadamard-inl.h"
#include "reference/codecs/simd/integers-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/lookup-inl.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

using Metadata = AnyBitFormat::Metadata;

/// From this payload size on, decoded elements go past the caches, as in quickreduce_simd.cc.
constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

/// What all functions need.
struct Context {
  const AnyBitFormat& f;
  const Codec& scalar;
  DType dtype;
  AnyBitMetadata arrays;
};

bool has_spikes(const AnyBitFormat& f) { return f.metadata != Metadata::scales; }

/// Whether a block of any length can be coded without the scalar codec.
bool is_plain(const AnyBitFormat& f) { return !has_spikes(f) && !f.hadamard; }

/// Where one chunk's wire begins, and how many blocks it has.
template <class Byte>
struct Chunk {
  PlanePointers<Byte> planes;
  Byte* metadata;
  std::size_t blocks;
};

/// What chunks of one size have in common. Divisions, so not for every chunk again.
struct ChunkShape {
  ChunkShape(const Context& c, std::size_t elements, std::size_t block)
      : metadata(planes_bytes(anybit_codes(c.f, elements), c.f.bits)),
        blocks(blocks_of(elements, block)),
        full_blocks(elements / block),
        bytes(anybit_chunk_bytes(c.f, c.dtype, elements, block)),
        bytes_per_unit(bytes / blocks_of(elements, WireAhead::kUnit)) {
    std::size_t plane = 0;
    std::size_t at = 0;
    for_each_plane(c.f.bits, [&](unsigned width, unsigned) {
      offsets[plane++] = at;
      at += plane_bytes(anybit_codes(c.f, elements), width);
    });
  }

  /// Whether every plane begins so, and the next chunk, if this one does.
  bool aligned_to(std::size_t bytes_of_alignment) const {
    const auto divides = [&](std::size_t offset) { return offset % bytes_of_alignment == 0; };
    return divides(bytes) && std::ranges::all_of(offsets, divides);
  }

  template <class Byte>
  Chunk<Byte> at(Byte* wire) const {
    Chunk<Byte> chunk{{}, wire + metadata, blocks};
    for (std::size_t i = 0; i < offsets.size(); ++i) chunk.planes.at[i] = wire + offsets[i];
    return chunk;
  }

  std::array<std::size_t, 3> offsets = {};
  std::size_t metadata;
  std::size_t blocks;
  std::size_t full_blocks;
  std::size_t bytes;
  std::size_t bytes_per_unit;  // of elements, rounded down
};

template <class T>
T read_entry(const std::byte* array, std::size_t i) {
  T value;
  std::memcpy(&value, array + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void write_entry(std::byte* array, std::size_t i, T value) {
  std::memcpy(array + i * sizeof(T), &value, sizeof(T));
}

/// The arrays of metadata of a chunk, one after the other.
template <class Byte>
class MetadataArrays {
 public:
  MetadataArrays(const Chunk<Byte>& chunk, std::size_t first)
      : at_(chunk.metadata), blocks_(chunk.blocks), first_(first) {}
  /// The next array's entry of block `first`.
  Byte* next(std::size_t bytes_per_block) {
    Byte* const entry = at_ + first_ * bytes_per_block;
    at_ += blocks_ * bytes_per_block;
    return entry;
  }

 private:
  Byte* at_;
  std::size_t blocks_;
  std::size_t first_;
};

// ---------------------------------------------------------------- encode

/// `bad_minimum` is what stands for the minimum of a block that is not finite.
template <class Elements, class Index>
void write_spikes(MetadataArrays<std::byte>& arrays, std::size_t count, std::size_t group,
                  const typename Elements::Element* x, const Blocks& blocks,
                  const ExtremeIndices& indices, typename Elements::Element bad_minimum) {
  using Element = typename Elements::Element;
  std::byte* const minima = arrays.next(sizeof(Element));
  std::byte* const maxima = arrays.next(sizeof(Element));
  std::byte* const low = arrays.next(sizeof(Index));
  std::byte* const high = arrays.next(sizeof(Index));
  if (sizeof(Element) == 2 && indices.has_values) {
    std::memcpy(minima, indices.minimum, 2 * count);
    std::memcpy(maxima, indices.maximum, 2 * count);
  } else {
    for (std::size_t b = 0; b < count; ++b) {
      write_entry(minima, b, x[b * group + indices.low[b]]);
      write_entry(maxima, b, x[b * group + indices.high[b]]);
    }
  }
  if constexpr (sizeof(Index) == 2) {
    std::memcpy(low, indices.low, 2 * count);
    std::memcpy(high, indices.high, 2 * count);
  } else {
    for (std::size_t b = 0; b < count; ++b) write_entry(low, b, static_cast<Index>(indices.low[b]));
    for (std::size_t b = 0; b < count; ++b) {
      write_entry(high, b, static_cast<Index>(indices.high[b]));
    }
  }
  if (!blocks.any_bad) return;
  for (std::size_t b = 0; b < count; ++b) {
    if (!blocks.bad[b]) continue;
    write_entry(minima, b, bad_minimum);
    write_entry(maxima, b, Element{});
    write_entry(low, b, Index{});
    write_entry(high, b, Index{});
  }
}

/// Writes the metadata of blocks first .. first + count - 1; `x` are their elements.
template <class Elements>
void write_metadata(const Context& c, const Chunk<std::byte>& chunk, std::size_t first,
                    std::size_t count, std::size_t group, const typename Elements::Element* x,
                    const Blocks& blocks, const ExtremeIndices& indices) {
  MetadataArrays<std::byte> arrays(chunk, first);
  if (c.f.given) {
    std::byte* const flags = arrays.next(1);
    for (std::size_t b = 0; b < count; ++b)
      flags[b] = blocks.bad[b] ? std::byte{0xFF} : std::byte{0};
    return;
  }
  const bool integer = c.f.metadata == Metadata::integer_spikes;
  if (integer) {
    std::memcpy(arrays.next(1), blocks.scale_code, count);
    std::memcpy(arrays.next(1), blocks.zero_code, count);
  } else {
    std::memcpy(arrays.next(2), blocks.scale_bits, 2 * count);
    if (!c.f.symmetric) std::memcpy(arrays.next(2), blocks.zero_bits, 2 * count);
  }
  if (!has_spikes(c.f)) return;

  if (integer) {
    write_spikes<Elements, std::uint8_t>(arrays, count, group, x, blocks, indices,
                                         Elements::kNaNElement);
  } else {
    write_spikes<Elements, std::uint16_t>(arrays, count, group, x, blocks, indices, {});
  }
}

/// Planes of blocks whose length is a multiple of the lanes of a key vector. Returns how many codes
/// were clamped.
template <class Elements, bool kCount>
std::uint64_t encode_lanes(const AnyBitFormat& f, const typename Elements::Element* x,
                           std::size_t count, std::size_t group, Blocks& blocks,
                           ExtremeIndices& indices, Storing storing,
                           const PlanePointers<std::byte>& planes) {
  using Element = typename Elements::Element;
  std::fill_n(blocks.bad, count, false);
  blocks.any_bad = false;
  Extremes<Elements> extremes;
  if (!has_spikes(f)) {
    measure_blocks<Elements>(f, x, count, group, extremes, blocks);
    return quantize_to_planes<Elements, kCount>(f, x, count, group, blocks, storing, planes);
  }

  alignas(32) Element without_spikes[kTile];
  indices.has_values = false;
#if ARLAB_AVX2
  if constexpr (sizeof(Element) == 2) {
    indices.has_values = group == 32 && f.metadata == Metadata::spikes &&
                         take_extremes_of_32<Elements>(x, count, indices, without_spikes);
  }
#endif
  if (!indices.has_values) {
    find_extremes<Elements>(x, count, group, extremes);
    find_indices<Elements>(x, count, group, extremes, indices);
    // By vectors: they are not aligned alike, which slows the instructions that memcpy chooses.
    const hn::Repartition<Element, F32> d;
    for (std::size_t i = 0; i < count * group; i += Elements::kKeyLanes) {
      hn::Store(hn::LoadU(d, x + i), d, without_spikes + i);
    }
    for (std::size_t b = 0; b < count; ++b) {
      without_spikes[b * group + indices.low[b]] = Element{};
      without_spikes[b * group + indices.high[b]] = Element{};
    }
    if (!extremes.all_finite(count)) {
      blocks.any_bad = true;
      for (std::size_t b = 0; b < count; ++b) blocks.bad[b] = !extremes.finite(b);
    }
  }
  measure_blocks<Elements>(f, without_spikes, count, group, extremes, blocks);
  return quantize_to_planes<Elements, kCount>(f, without_spikes, count, group, blocks, storing,
                                              planes);
}

#if ARLAB_AVX2
/// Eight codes of each of eight blocks, saturated to bytes: the first four, and the others. Four
/// codes of four blocks are in each part.
struct NarrowCodes {
  ByteVector first;
  ByteVector second;
};
HWY_INLINE NarrowCodes narrowed(const Int32Vector (&code)[8]) {
  return {narrow_blocks(narrow_blocks(code[0], code[1]), narrow_blocks(code[2], code[3])),
          narrow_blocks(narrow_blocks(code[4], code[5]), narrow_blocks(code[6], code[7]))};
}

/// Clamped to four bits, as a word per block.
HWY_INLINE Uint32Vector joined_nibbles(const NarrowCodes& codes) {
  const auto pairs = [](ByteVector narrow) HWY_ATTR {
    const auto words = hn::BitCast(U64(), hn::Min(narrow, hn::Set(U8(), 15)));
    return hn::Or(words, hn::ShiftRight<28>(words));  // two codes of a block are four bytes apart
  };
  alignas(16) static constexpr std::uint8_t kByBlock[16] = {0, 8,  4, 12, 1, 9,  5, 13,
                                                            2, 10, 6, 14, 3, 11, 7, 15};
  const auto odd = hn::BitCast(U32(), hn::ShiftLeft<32>(pairs(codes.second)));
  const ByteVector bytes =
      hn::BitCast(U8(), hn::OddEven(odd, hn::BitCast(U32(), pairs(codes.first))));
  return hn::BitCast(U32(), hn::TableLookupBytes(bytes, hn::LoadDup128(U8(), kByBlock)));
}

/// The plane of transformed blocks of 32 with codes of four bits, eight blocks at a time. False,
/// and nothing is written, for others, and where the minimum of vectors could miss what is not
/// finite.
template <class Elements>
bool encode_side_by_side(const AnyBitFormat& f, const typename Elements::Element* x,
                         std::size_t count, Blocks& blocks, std::uint8_t* plane) {
  if (f.bits != 4 || f.symmetric || count % kSide != 0) return false;
  std::fill_n(blocks.bad, count, false);
  blocks.any_bad = false;
  alignas(32) float values[kTile];
  Extremes<FloatElements> extremes;
  alignas(32) std::uint16_t words[kSideBlock * kSide];
  // As extremes_of_signed_block does it: the units that compare floats are those that add.
  Uint32Vector low = hn::Zero(U32());
  Int32Vector high = hn::Set(I32(), std::numeric_limits<std::int32_t>::min());
  float* own = values;
  transform_side_by_side(
      count / kSide,
      [&](std::size_t group) HWY_ATTR {
        for (std::size_t i = 0; i < 2; ++i) {
          const auto* const from = x + group * kSide * kSideBlock + 16 * i;
          Uint16Vector columns[8];
          transpose_words([&](std::size_t b)
                              HWY_ATTR { return hn::LoadU(U16(), from + b * kSideBlock); },
                          columns);
          for (std::size_t j = 0; j < 8; ++j) {
            hn::Store(columns[j], U16(), words + place_of_words(2 * i, j));
          }
        }
      },
      [&](std::size_t group) { return values + group * kSide * kSideBlock; },
      [&](std::size_t row, std::size_t i)
          HWY_ATTR { return Elements::load(words + place_of_words(row, i)); },
      [&](std::size_t row, std::size_t i, FloatVector v) HWY_ATTR {
        low = hn::Max(low, bits_of(v));
        high = hn::Max(high, hn::BitCast(I32(), v));
        hn::Store(v, F32(), own + (8 * row + i) * kFloats);
      },
      [&](std::size_t group) HWY_ATTR {
        const std::size_t first = group * kSide;
        const Uint32Vector sign = hn::Set(U32(), 0x80000000);
        hn::Store(hn::BitCast(I32(), hn::Xor(low, sign)), I32(),
                  extremes.complement_of_low + first);
        hn::Store(high, I32(), extremes.high + first);
        low = hn::Zero(U32());
        high = hn::BitCast(I32(), sign);
        own += kSide * kSideBlock;
      });
  if (!to_keys<FloatElements>(count, extremes)) return false;
  measure<FloatElements>(f, extremes, count, blocks);
  // A block that is not finite has a multiplier of 0, and a NaN becomes the smallest integer: its
  // codes are 0.
  // Codes are joined after the next are under way, as in quantize_crumbs.
  const auto codes_of = [&](std::size_t part) HWY_ATTR {  // a fourth of eight blocks
    const std::size_t first = part / 4 * kSide;
    const FloatVector zero = hn::Load(F32(), blocks.zero + first);
    const FloatVector multiplier = hn::Load(F32(), blocks.multiplier + first);
    Int32Vector code[8];
    for (std::size_t j = 0; j < 8; ++j) {
      const FloatVector v = hn::Load(F32(), values + (8 * part + j) * kFloats);
      code[j] = nearest_int(hn::Mul(hn::Sub(v, zero), multiplier));
    }
    return narrowed(code);
  };
  const std::size_t parts = 4 * count / kSide;
  NarrowCodes codes = codes_of(0);
  for (std::size_t first = 0; first < count; first += kSide) {
    Uint32Vector words[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t part = 4 * first / kSide + i;
      const NarrowCodes next = codes_of(std::min(part + 1, parts - 1));
      words[i] = joined_nibbles(codes);
      codes = next;
    }
    transpose_quads(words);
    const hn::Half<U32> half;
    for (std::size_t b = 0; b < 4; ++b) {
      auto* const to = reinterpret_cast<std::uint32_t*>(plane + (first + b) * kSideBlock / 2);
      hn::StoreU(hn::LowerHalf(half, words[b]), half, to);
      hn::StoreU(hn::UpperHalf(half, words[b]), half, to + kSide / 2 * kSideBlock / 8);
    }
  }
  return true;
}
#endif

/// Planes of blocks of a multiple of 8 elements, at most a tile of them.
template <class Elements, bool kCount>
std::uint64_t encode_blocks(const AnyBitFormat& f, const typename Elements::Element* x,
                            std::size_t count, std::size_t group, Blocks& blocks,
                            ExtremeIndices& indices, Storing storing,
                            const PlanePointers<std::byte>& planes) {
  if (!f.hadamard && group % Elements::kKeyLanes == 0) {
    return encode_lanes<Elements, kCount>(f, x, count, group, blocks, indices, storing, planes);
  }
#if ARLAB_AVX2
  if constexpr (!kCount && sizeof(*x) == 2) {
    if (f.hadamard && group == kSideBlock &&
        encode_side_by_side<Elements>(f, x, count, blocks,
                                      reinterpret_cast<std::uint8_t*>(planes.at[0]))) {
      return 0;
    }
  }
#endif
  alignas(32) float values[kTile];
  const auto transform = [&]<std::size_t kVectors>() HWY_ATTR {
    const auto at = [](std::size_t b, std::size_t i) { return (b * kVectors + i) * kFloats; };
    transform_in_registers<kVectors>(
        count, [&](std::size_t b, std::size_t i) HWY_ATTR { return Elements::load(x + at(b, i)); },
        [&](std::size_t b, std::size_t i, FloatVector v)
            HWY_ATTR { hn::Store(v, F32(), values + at(b, i)); });
  };
  if (!f.hadamard || !with_registers(group, transform)) {
    for (std::size_t i = 0; i < count * group; i += kFloats) {
      hn::Store(Elements::load(x + i), F32(), values + i);
    }
    if (f.hadamard) transform_blocks(values, count, group);
  }
  return encode_lanes<FloatElements, kCount>(f, values, count, group, blocks, indices, storing,
                                             planes);
}

/// One plain block of any length, as block `index` of the chunk; `first` is its first element.
template <class Elements, bool kCount>
std::uint64_t encode_one(const Context& c, const typename Elements::Element* x, std::size_t count,
                         const Chunk<std::byte>& chunk, std::size_t index, std::size_t first) {
  Extremes<Elements> extremes;
  Blocks blocks;
  blocks.bad[0] = false;
  find_extremes_of_one<Elements>(x, count, extremes);
  measure<Elements>(c.f, extremes, 1, blocks);
  std::uint64_t clamped = 0;
  for (std::size_t tile = 0; tile < count; tile += kTile) {
    alignas(32) std::uint8_t codes[kCodeSlots];
    const std::size_t size = std::min(kTile, count - tile);
    const std::size_t eights = size / 8 * 8;
    clamped += quantize<Elements, kCount>(c.f, x + tile, 1, eights, blocks, codes);
    if (eights < size) {
      float rest[8];  // filled with what never counts as clamped
      std::fill(std::begin(rest), std::end(rest), blocks.zero[0]);
      for (std::size_t i = 0; i < size - eights; i += 1) {
        typename Elements::Element lanes[kFloats] = {x[tile + eights + i]};
        float values[kFloats];
        hn::StoreU(Elements::load(lanes), F32(), values);
        rest[i] = values[0];
      }
      clamped += quantize<FloatElements, kCount>(c.f, rest, 1, 8, blocks, codes + eights);
    }
    pack_tile(codes, size, c.f.bits, advanced(chunk.planes, first + tile, c.f.bits));
  }
  write_metadata<Elements>(c, chunk, index, 1, count, x, blocks, ExtremeIndices());
  return clamped;
}

/// A short last block with spikes or a transform: its wire as a message of its own, taken apart.
void encode_rest(const Context& c, std::span<const std::byte> payload,
                 const Chunk<std::byte>& chunk, std::size_t first, EncodeCounts* counts) {
  const std::size_t elements = payload.size() / size_of(c.dtype);
  std::vector<std::byte> wire(c.scalar.wire_bytes(c.dtype, elements));
  c.scalar.encode(c.dtype, payload, wire, counts);
  std::vector<std::uint8_t> codes(anybit_codes(c.f, elements));
  const std::byte* in = unpack_planes(wire.data(), c.f.bits, codes);
  pack_tile(codes.data(), codes.size(), c.f.bits, advanced(chunk.planes, first, c.f.bits));
  MetadataArrays<std::byte> arrays(chunk, chunk.blocks - 1);
  for (const std::size_t bytes : c.arrays.arrays()) {
    std::memcpy(arrays.next(bytes), in, bytes);
    in += bytes;
  }
}

template <class Elements, bool kCount>
void encode_message(const Context& c, std::span<const typename Elements::Element> x,
                    std::byte* wire, EncodeCounts* counts) {
  std::uint64_t clamped = 0;
  const auto [block, chunk_elements] = anybit_layout(c.f, x.size());
  const bool whole_blocks = block <= kTile && block % 8 == 0;
  Blocks blocks;
  ExtremeIndices indices;
  const ChunkShape whole(c, chunk_elements, block);
  ChunkShape last = whole;
  // Little of a large payload's wire would stay in the caches, and what goes past them is not read
  // first. Chunks that follow are as well aligned.
  const bool streamed = x.size_bytes() >= kStreamedBytes && whole.aligned_to(16) &&
                        reinterpret_cast<std::uintptr_t>(wire) % 16 == 0;
  const Storing storing = streamed ? Storing::streamed : Storing::usual;
  for (std::size_t begin = 0; begin < x.size(); begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, x.size() - begin);
    const ChunkShape& shape = count == chunk_elements ? whole : last = ChunkShape(c, count, block);
    const Chunk<std::byte> chunk = shape.at(wire);
    const auto* const from = x.data() + begin;
    std::size_t done = 0;
    if (whole_blocks && count >= block) {
      const std::size_t full = shape.full_blocks;
      done = full * block;
      if (streamed && count == chunk_elements) find_pages_ahead(wire + shape.bytes, shape.bytes);
      clamped += encode_blocks<Elements, kCount>(c.f, from, full, block, blocks, indices,
                                                 count == chunk_elements ? storing : Storing::usual,
                                                 chunk.planes);
      write_metadata<Elements>(c, chunk, 0, full, block, from, blocks, indices);
    }
    if (done < count && is_plain(c.f)) {
      clamped +=
          encode_one<Elements, kCount>(c, from + done, count - done, chunk, chunk.blocks - 1, done);
    } else if (done < count) {
      encode_rest(c, std::as_bytes(x.subspan(begin + done, count - done)), chunk, done, counts);
    }
    wire += shape.bytes;
  }
  if (streamed) hwy::FlushStream();
  if constexpr (kCount) counts->clamped += clamped;
}

// ---------------------------------------------------------------- decode

/// bf16 values of so many blocks. `largest` becomes as large as the largest magnitude's bits.
HWY_INLINE void read_bfloats(const std::byte* wire, std::size_t count, float* values,
                             Int16Vector& largest) {
  const auto read = [&](const std::uint16_t* bits, float* to) HWY_ATTR {
    const Uint16Vector magnitudes = hn::And(hn::LoadU(U16(), bits), hn::Set(U16(), 0x7FFF));
    largest = hn::Max(largest, hn::BitCast(I16(), magnitudes));
    hn::Store(BfloatElements::load(bits), F32(), to);
    hn::Store(BfloatElements::load(bits + kFloats), F32(), to + kFloats);
  };
  std::size_t b = 0;
  for (; b + 2 * kFloats <= count; b += 2 * kFloats) {
    read(reinterpret_cast<const std::uint16_t*>(wire) + b, values + b);
  }
  if (b < count) {
    std::uint16_t rest[2 * kFloats] = {};
    std::memcpy(rest, wire + 2 * b, 2 * (count - b));
    read(rest, values + b);
  }
}

/// Spikes that are not finite leave their blocks without a limit. `arrays` comes to the minima.
template <class Elements>
void lift_limits(MetadataArrays<const std::byte> arrays, std::size_t count, Blocks& blocks) {
  using Element = typename Elements::Element;
  const std::byte* const minima = arrays.next(sizeof(Element));
  const std::byte* const maxima = arrays.next(sizeof(Element));
  for (std::size_t b = 0; b < count; ++b) {
    if (!Elements::is_finite(read_entry<Element>(minima, b)) ||
        !Elements::is_finite(read_entry<Element>(maxima, b))) {
      blocks.limit[b] = std::numeric_limits<float>::infinity();
    }
  }
}

/// Reads what the decoder needs of blocks first .. first + count - 1. Returns whether all elements
/// are in range; if not, the blocks' limits are set.
template <class Elements>
bool read_metadata(const Context& c, const Chunk<const std::byte>& chunk, std::size_t first,
                   std::size_t count, Blocks& blocks) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::size_t rounded = (count + kFloats - 1) / kFloats * kFloats;
  MetadataArrays<const std::byte> arrays(chunk, first);
  const float constant_zero = c.f.given && !c.f.symmetric ? c.f.given->zero
                              : c.f.symmetric             ? static_cast<float>(1U << (c.f.bits - 1))
                                                          : 0.0f;
  if (c.f.given) {
    const std::byte* const flags = arrays.next(1);
    std::fill_n(blocks.zero, rounded, constant_zero);
    std::fill_n(blocks.multiplier, rounded, c.f.given->scale);
    for (std::size_t b = 0; b < count; ++b) {
      if (flags[b] == std::byte{0xFF}) blocks.multiplier[b] = kNaN;
    }
    return find_limits<Elements>(c.f, count, blocks);
  }
  if (c.f.metadata == Metadata::integer_spikes) {
    std::memcpy(blocks.scale_code, arrays.next(1), count);
    std::memcpy(blocks.zero_code, arrays.next(1), count);
    auto spikes = arrays;
    const std::byte* const minima = spikes.next(sizeof(typename Elements::Element));
    std::fill_n(blocks.zero, rounded, 0.0f);
    std::fill_n(blocks.multiplier, rounded, 0.0f);
    for (std::size_t b = 0; b < count; ++b) {
      blocks.bad[b] = Elements::is_nan(read_entry<typename Elements::Element>(minima, b));
      blocks.multiplier[b] =
          blocks.bad[b] ? kNaN
                        : kIntegerScales[static_cast<std::size_t>(blocks.scale_code[b] + 128)];
      blocks.zero[b] = static_cast<float>(blocks.zero_code[b]);
    }
    if (find_limits<Elements>(c.f, count, blocks)) return true;
    lift_limits<Elements>(arrays, count, blocks);
    return false;
  }
  const std::byte* const scales = arrays.next(2);
  Int16Vector largest = hn::Zero(I16());
  read_bfloats(scales, count, blocks.multiplier, largest);
  if (c.f.symmetric) {
    std::fill_n(blocks.zero, rounded, constant_zero);
  } else {
    read_bfloats(arrays.next(2), count, blocks.zero, largest);
  }
  const int too_large = (127 + plain_exponent<Elements>(c.f)) << 7;  // as bf16
  const bool plain =
      hn::AllTrue(I16(), hn::Lt(largest, hn::Set(I16(), static_cast<std::int16_t>(too_large))));
  if (has_spikes(c.f)) {
    for (std::size_t b = 0; b < count; ++b) {
      blocks.bad[b] = !plain && BfloatElements::is_nan(read_entry<std::uint16_t>(scales, b));
    }
  }
  if (plain || find_limits<Elements>(c.f, count, blocks)) return true;
  if (has_spikes(c.f)) lift_limits<Elements>(arrays, count, blocks);
  return false;
}

/// Puts the spikes of blocks 0 .. count - 1 back.
template <class Elements, class Index>
void put_spikes_back(const Context& c, const Chunk<const std::byte>& chunk, std::size_t count,
                     std::size_t group, const Blocks& blocks, typename Elements::Element* out) {
  using Element = typename Elements::Element;
  MetadataArrays<const std::byte> arrays(chunk, 0);
  arrays.next(sizeof(Index));                      // scales
  if (!c.f.symmetric) arrays.next(sizeof(Index));  // zeros
  const std::byte* const minima = arrays.next(sizeof(Element));
  const std::byte* const maxima = arrays.next(sizeof(Element));
  const std::byte* const low = arrays.next(sizeof(Index));
  const std::byte* const high = arrays.next(sizeof(Index));
  for (std::size_t b = 0; b < count; ++b, out += group) {
    if (blocks.bad[b]) continue;
    const auto put = [&](std::size_t index, Element value) {
      if (index >= group) return;  // foreign bytes
      out[index] = Elements::is_nan(value) ? Elements::kNaNElement : value;
    };
    put(read_entry<Index>(low, b), read_entry<Element>(minima, b));
    put(read_entry<Index>(high, b), read_entry<Element>(maxima, b));  // the maximum last
  }
}

/// Elements of codes of transformed blocks of kVectors vectors.
template <class Elements, Decoding kDecoding, std::size_t kVectors, bool kInRange>
void decode_transformed(const std::uint8_t* codes, std::size_t count, const Blocks& blocks,
                        typename Elements::Element* out) {
  const auto at = [](std::size_t b, std::size_t i) { return (b * kVectors + i) * kFloats; };
  transform_in_registers<kVectors>(
      count,
      [&](std::size_t b, std::size_t i) HWY_ATTR {
        const auto code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), codes + at(b, i)));
        return value_of<kDecoding>(hn::ConvertTo(F32(), code), hn::Set(F32(), blocks.zero[b]),
                                   hn::Set(F32(), blocks.multiplier[b]));
      },
      [&](std::size_t b, std::size_t i, FloatVector v) HWY_ATTR {
        if constexpr (kInRange) {
          Elements::store(v, out + at(b, i));
        } else {
          Elements::store(limited(v, hn::Set(F32(), blocks.limit[b])), out + at(b, i));
        }
      });
}

/// The same for blocks of `group` elements. False if they do not fit into registers; then there are
/// only their codes.
template <class Elements>
bool decode_in_registers(const AnyBitFormat& f, const PlanePointers<const std::byte>& planes,
                         std::uint8_t* codes, std::size_t count, std::size_t group,
                         const Blocks& blocks, bool in_range, typename Elements::Element* out) {
  const bool affine = decoding_of(f) == Decoding::affine;
  unpack_tile(planes, count * group, f.bits, codes);
  return with_registers(group, [&]<std::size_t kVectors>() HWY_ATTR {
    const auto run = [&]<Decoding kDecoding>() HWY_ATTR {
      in_range
          ? decode_transformed<Elements, kDecoding, kVectors, true>(codes, count, blocks, out)
          : decode_transformed<Elements, kDecoding, kVectors, false>(codes, count, blocks, out);
    };
    affine ? run.template operator()<Decoding::affine>()
           : run.template operator()<Decoding::offset>();
  });
}

/// Decodes blocks straight from their planes, from the first on; returns how many, which may be
/// none.
template <class Elements>
std::size_t decode_directly(const AnyBitFormat& f, const PlanePointers<const std::byte>& planes,
                            std::size_t count, std::size_t group, const Blocks& blocks,
                            bool in_range, Storing storing, WireAhead ahead,
                            typename Elements::Element* out) {
  return f.bits == 8
             ? decode_bytes<Elements>(f, planes, count, group, blocks, in_range, storing, ahead,
                                      out)
             : look_up<Elements>(f, planes, count, group, blocks, in_range, storing, ahead, out);
}

/// Elements of blocks of a multiple of 8 elements, at most a tile of them.
template <class Elements>
void decode_blocks(const Context& c, const Chunk<const std::byte>& chunk, std::size_t count,
                   std::size_t group, Blocks& blocks, typename Elements::Element* out) {
  alignas(32) std::uint8_t codes[kCodeSlots];
  const bool in_range = read_metadata<Elements>(c, chunk, 0, count, blocks);
  if (!c.f.hadamard) {
    const std::size_t done =
        decode_directly<Elements>(c.f, chunk.planes, count, group, blocks, in_range, Storing::usual,
                                  WireAhead(chunk.metadata, 0), out);
    if (done < count) {
      const std::size_t first = done * group;
      unpack_tile(advanced(chunk.planes, first, c.f.bits), count * group - first, c.f.bits,
                  codes + first);
      dequantize<Elements>(c.f, codes, count, group, blocks, done, in_range, out);
    }
    if (c.f.metadata == Metadata::spikes) {
      put_spikes_back<Elements, std::uint16_t>(c, chunk, count, group, blocks, out);
    } else if (c.f.metadata == Metadata::integer_spikes) {
      put_spikes_back<Elements, std::uint8_t>(c, chunk, count, group, blocks, out);
    }
    return;
  }
  if (decode_in_registers<Elements>(c.f, chunk.planes, codes, count, group, blocks, in_range, out))
    return;
  alignas(32) float values[kTile];
  dequantize<FloatElements>(c.f, codes, count, group, blocks, 0, true, values);
  transform_blocks(values, count, group);
  for (std::size_t b = 0; b < count; ++b) {
    const FloatVector limit = in_range ? hn::Inf(F32()) : hn::Set(F32(), blocks.limit[b]);
    for (std::size_t i = b * group; i < (b + 1) * group; i += kFloats) {
      Elements::store(limited(hn::Load(F32(), values + i), limit), out + i);
    }
  }
}

/// Decodes straight past the caches, if these blocks are such that it can be done.
template <class Elements>
bool stream_blocks(const Context& c, const Chunk<const std::byte>& chunk, std::size_t count,
                   std::size_t group, WireAhead ahead, Blocks& blocks,
                   typename Elements::Element* out) {
  if (!is_plain(c.f) || reinterpret_cast<std::uintptr_t>(out) % 16 != 0) return false;
  const bool in_range = read_metadata<Elements>(c, chunk, 0, count, blocks);
  return decode_directly<Elements>(c.f, chunk.planes, count, group, blocks, in_range,
                                   Storing::streamed, ahead, out) == count;
}

/// Up to a tile of elements of one plain block; `blocks` has its metadata in slot 0.
template <class Elements>
void decode_tile(const Context& c, const PlanePointers<const std::byte>& planes, std::size_t count,
                 const Blocks& blocks, bool in_range, typename Elements::Element* out) {
  if (count == kTile &&
      decode_directly<Elements>(c.f, planes, 1, count, blocks, in_range, Storing::usual,
                                WireAhead(planes.at[0], 0), out) == 1)
    return;
  alignas(32) std::uint8_t codes[kCodeSlots];
  std::memset(codes + count / 8 * 8, 0, 8);
  unpack_tile(planes, count, c.f.bits, codes);
  const std::size_t eights = count / 8 * 8;
  dequantize<Elements>(c.f, codes, 1, eights, blocks, 0, in_range, out);
  if (eights == count) return;
  typename Elements::Element rest[8];
  dequantize<Elements>(c.f, codes + eights, 1, 8, blocks, 0, in_range, rest);
  std::copy_n(rest, count - eights, out + eights);
}

/// A short last block with spikes or a transform: put together as a message of its own.
void decode_rest(const Context& c, const Chunk<const std::byte>& chunk, std::size_t first,
                 std::span<std::byte> out) {
  const std::size_t elements = out.size() / size_of(c.dtype);
  std::vector<std::byte> wire(c.scalar.wire_bytes(c.dtype, elements));
  std::vector<std::uint8_t> codes(anybit_codes(c.f, elements));
  unpack_tile(advanced(chunk.planes, first, c.f.bits), codes.size(), c.f.bits, codes.data());
  std::byte* at = pack_planes(codes, c.f.bits, wire.data());
  MetadataArrays<const std::byte> arrays(chunk, chunk.blocks - 1);
  for (const std::size_t bytes : c.arrays.arrays()) {
    std::memcpy(at, arrays.next(bytes), bytes);
    at += bytes;
  }
  c.scalar.decode(c.dtype, wire, out);
}

/// Where decoded elements go: at most a tile at a time is decoded to `place`, then `put`.
template <class Elements>
class Stored {
 public:
  explicit Stored(typename Elements::Element* to) : to_(to) {}
  static constexpr bool kStreams = false;
  typename Elements::Element* place(std::size_t first) const { return to_ + first; }
  void put(std::size_t, std::size_t) const {}

 private:
  typename Elements::Element* to_;
};

/// Stored past the caches; the destination is aligned to 16 bytes.
template <class Elements>
class Streamed {
 public:
  explicit Streamed(typename Elements::Element* to) : to_(to) {}
  ~Streamed() { hwy::FlushStream(); }
  static constexpr bool kStreams = true;
  typename Elements::Element* destination(std::size_t first) const { return to_ + first; }
  typename Elements::Element* place(std::size_t) { return tile_; }
  void put(std::size_t first, std::size_t count) const {
    const hn::FixedTag<typename Elements::Element, 16 / sizeof(tile_[0])> d;
    const std::size_t lanes = hn::Lanes(d);
    std::size_t i = 0;
    if (first % lanes == 0) {
      for (; i + lanes <= count; i += lanes) hn::Stream(hn::Load(d, tile_ + i), d, to_ + first + i);
    }
    std::copy(tile_ + i, tile_ + count, to_ + first + i);
  }

 private:
  typename Elements::Element* to_;
  alignas(32) typename Elements::Element tile_[kTile];
};

/// Added to what is there.
template <class Elements>
class Added {
 public:
  Added(DType dtype, typename Elements::Element* to) : dtype_(dtype), to_(to) {}
  static constexpr bool kStreams = false;
  typename Elements::Element* place(std::size_t) { return tile_; }
  void put(std::size_t first, std::size_t count) const {
    auto* const sum = to_ + first;
    std::size_t i = 0;
    for (; i + kFloats <= count; i += kFloats) {
      const FloatVector added = hn::Add(Elements::load(sum + i), Elements::load(tile_ + i));
      Elements::store(canonical(added), sum + i);
    }
    add_native(dtype_, false, std::as_writable_bytes(std::span(sum + i, count - i)),
               std::as_bytes(std::span(tile_ + i, count - i)));
  }

 private:
  DType dtype_;
  typename Elements::Element* to_;
  alignas(32) typename Elements::Element tile_[kTile];
};

template <class Elements, class Output>
void decode_message(const Context& c, const std::byte* wire, std::size_t elements,
                    Output&& output) {
  const auto [block, chunk_elements] = anybit_layout(c.f, elements);
  const bool whole_blocks = block <= kTile && block % 8 == 0;
  Blocks blocks;
  const ChunkShape whole(c, chunk_elements, block);
  ChunkShape last = whole;
  for (std::size_t begin = 0; begin < elements; begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, elements - begin);
    const ChunkShape& shape = count == chunk_elements ? whole : last = ChunkShape(c, count, block);
    const auto chunk = shape.at(wire);
    std::size_t done = 0;
    if (whole_blocks && count >= block) {
      const std::size_t full = shape.full_blocks;
      done = full * block;
      bool streamed = false;
      // The next chunk, or at least what is read of it first.
      const bool more = elements - begin >= 2 * chunk_elements;
      if constexpr (!std::remove_reference_t<Output>::kStreams) {
        if (more) fetch_ahead(wire + shape.bytes + shape.metadata, shape.bytes - shape.metadata);
      } else {
        if (more) {
          find_pages_ahead(output.destination(begin + chunk_elements),
                           chunk_elements * sizeof(typename Elements::Element));
        }
        // Two chunks ahead: the next one's metadata lie behind its codes, but are read first.
        const bool two_more = elements - begin >= 3 * chunk_elements;
        const WireAhead ahead(two_more ? wire + 2 * shape.bytes : wire, shape.bytes_per_unit);
        streamed = stream_blocks<Elements>(c, chunk, full, block, ahead, blocks,
                                           output.destination(begin));
      }
      if (!streamed) {
        decode_blocks<Elements>(c, chunk, full, block, blocks, output.place(begin));
        output.put(begin, done);
      }
    }
    if (done < count && is_plain(c.f)) {
      const bool in_range = read_metadata<Elements>(c, chunk, chunk.blocks - 1, 1, blocks);
      for (; done < count; done += kTile) {
        const std::size_t size = std::min(kTile, count - done);
        decode_tile<Elements>(c, advanced(chunk.planes, done, c.f.bits), size, blocks, in_range,
                              output.place(begin + done));
        output.put(begin + done, size);
      }
    } else if (done < count) {
      auto* const place = output.place(begin + done);
      decode_rest(c, chunk, done, std::as_writable_bytes(std::span(place, count - done)));
      output.put(begin + done, count - done);
    }
    wire += shape.bytes;
  }
}

// ---------------------------------------------------------------- what the dispatch table holds

/// Calls f<Elements>.
template <class F>
void with_elements(DType dtype, const F& f) {
  switch (dtype) {
    case DType::fp16:
      return f.template operator()<HalfElements>();
    case DType::bf16:
      return f.template operator()<BfloatElements>();
    case DType::fp32:
      return f.template operator()<FloatElements>();
  }
}

/// Typed views of a payload.
template <class Elements>
std::span<const typename Elements::Element> typed(std::span<const std::byte> bytes) {
  using Element = typename Elements::Element;
  return {reinterpret_cast<const Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}
template <class Elements>
typename Elements::Element* typed(std::byte* bytes) {
  return reinterpret_cast<typename Elements::Element*>(bytes);
}

void anybit_encode(const AnyBitFormat& f, const Codec& scalar, DType dtype,
                   std::span<const std::byte> payload, std::span<std::byte> wire,
                   EncodeCounts* counts) {
  const Context c{f, scalar, dtype, AnyBitMetadata(f, size_of(dtype))};
  with_elements(dtype, [&]<class Elements>() {
    counts != nullptr
        ? encode_message<Elements, true>(c, typed<Elements>(payload), wire.data(), counts)
        : encode_message<Elements, false>(c, typed<Elements>(payload), wire.data(), nullptr);
  });
}

void anybit_decode(const AnyBitFormat& f, const Codec& scalar, DType dtype,
                   std::span<const std::byte> wire, std::span<std::byte> payload) {
  const Context c{f, scalar, dtype, AnyBitMetadata(f, size_of(dtype))};
  const bool streamed = payload.size() >= kStreamedBytes &&
                        reinterpret_cast<std::uintptr_t>(payload.data()) % 16 == 0;
  with_elements(dtype, [&]<class Elements>() {
    auto* const to = typed<Elements>(payload.data());
    const std::size_t elements = payload.size() / size_of(dtype);
    streamed ? decode_message<Elements>(c, wire.data(), elements, Streamed<Elements>(to))
             : decode_message<Elements>(c, wire.data(), elements, Stored<Elements>(to));
  });
}

void anybit_decode_add(const AnyBitFormat& f, const Codec& scalar, DType dtype,
                       std::span<const std::byte> wire, std::span<std::byte> sum) {
  const Context c{f, scalar, dtype, AnyBitMetadata(f, size_of(dtype))};
  with_elements(dtype, [&]<class Elements>() {
    decode_message<Elements>(c, wire.data(), sum.size() / size_of(dtype),
                             Added<Elements>(dtype, typed<Elements>(sum.data())));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<AnyBitFormat> anybit_functions() {
#if ARLAB_HAS_LANES
  return {anybit_encode, anybit_decode, anybit_decode_add};
#else
  return scalar_functions<AnyBitFormat>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(anybit_functions);

CodecFunctions<AnyBitFormat> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(anybit_functions)();
}

}  // namespace

CodecPtr accelerated_anybit(const CodecPtr& scalar) {
  const std::optional<AnyBitFormat> format = parse_anybit(scalar->name());
  if (!format) return nullptr;
  const bool plain = format->metadata == AnyBitFormat::Metadata::scales && !format->hadamard;
  if (!plain && format->group > kWireChunk) return nullptr;  // rare
  return std::make_shared<AcceleratedCodec<AnyBitFormat>>(scalar, *format,
                                                          functions_of_this_processor);
}

}  // namespace arlab

#endif  // HWY_ONCE
