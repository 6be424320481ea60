// What codecs with fp32 arithmetic share: values of a group of lanes, and planes of codes.
//
// Lanes whose group lies behind the end of the message take part in exchanges and write nothing.
#pragma once

#include "kernels/codecs/payload.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr float kInfinity32 = __builtin_huge_valf();

/// Combines the values of an aligned group of `lanes` lanes (a power of two, up to 32), all of
/// which get the result. Every lane of the wave must take part, with the same `lanes`.
template <class T, class Combine>
ARLAB_DEVICE T combine_lanes(T value, int lanes, Combine combine) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) value = combine(value, exchange_xor(value, mask, 32));
  return value;
}

ARLAB_DEVICE float max_of(float a, float b) { return a > b ? a : b; }
ARLAB_DEVICE float min_of(float a, float b) { return a < b ? a : b; }
ARLAB_DEVICE float clamp_to(float x, float low, float high) { return min_of(max_of(x, low), high); }

/// RN to an integer for |x| < 2^22; larger values stay as they are, as in the reference.
ARLAB_DEVICE float round_to_integer(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return magnitude_of(x) < 0x1p22f ? (x + kMagic) - kMagic : x;
}

/// True when all elements of the group that are in the message are finite.
ARLAB_DEVICE bool group_is_finite(const Floats8& x, std::size_t count, int lanes) {
  std::uint32_t non_finite = 0;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    if (i < count && !is_finite(x.value[i])) non_finite = 1;
  }
  return combine_lanes(non_finite, lanes, [](std::uint32_t a, std::uint32_t b) { return a | b; }) ==
         0;
}

/// The strides 1, 2, 4 of a Hadamard transform: those inside a thread.
ARLAB_DEVICE void transform_thread(Floats8& x) {
#pragma unroll
  for (std::size_t stride = 1; stride < kPerThread; stride *= 2) {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x.value[i];
      const float b = x.value[i + stride];
      x.value[i] = a + b;
      x.value[i + stride] = a - b;
    }
  }
}

/// Eight codes of up to 8 bits: element i in byte i.
struct Codes8 {
  std::uint64_t bytes = 0;

  ARLAB_DEVICE std::uint32_t operator[](std::size_t i) const {
    return static_cast<std::uint32_t>(bytes >> (8 * i) & 0xFF);
  }
  ARLAB_DEVICE void set(std::size_t i, std::uint32_t code) {
    bytes |= static_cast<std::uint64_t>(code) << (8 * i);
  }
};

/// Writes or reads the planes of bit_planes.h at `planes`, which hold `codes` codes; these eight
/// are `first` and following, of which `count` exist. A plane of width w has w bytes of each
/// thread.
ARLAB_DEVICE void store_planes(const Codes8& codes8, unsigned bits, std::uint8_t* planes,
                               std::size_t codes, std::size_t first, std::size_t count) {
  unsigned shift = 0;
#pragma unroll
  for (unsigned width = 8; width != 0; width /= 2) {
    if (bits - shift < width) continue;
    std::uint64_t packed = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint64_t part = codes8[i] >> shift & ((1u << width) - 1);
      if (i < count) packed |= part << (width * i);
    }
    std::uint8_t* at = planes + first / 8 * width;
    if (count == kPerThread) {
      if (width == 8) store_word(at, packed);
      if (width == 4) store_word(at, static_cast<std::uint32_t>(packed));
      if (width == 2) store_word(at, static_cast<std::uint16_t>(packed));
      if (width == 1) store_word(at, static_cast<std::uint8_t>(packed));
    } else {
      for (std::size_t byte = 0; 8 * byte < count * width; ++byte) {
        at[byte] = static_cast<std::uint8_t>(packed >> (8 * byte));
      }
    }
    planes += (codes * width + 7) / 8;
    shift += width;
  }
}

ARLAB_DEVICE Codes8 load_planes(unsigned bits, const std::uint8_t* planes, std::size_t codes,
                                std::size_t first, std::size_t count) {
  Codes8 codes8;
  unsigned shift = 0;
#pragma unroll
  for (unsigned width = 8; width != 0; width /= 2) {
    if (bits - shift < width) continue;
    const std::uint8_t* at = planes + first / 8 * width;
    std::uint64_t packed = 0;
    if (count == kPerThread) {
      if (width == 8) packed = load_word<std::uint64_t>(at);
      if (width == 4) packed = load_word<std::uint32_t>(at);
      if (width == 2) packed = load_word<std::uint16_t>(at);
      if (width == 1) packed = load_word<std::uint8_t>(at);
    } else {
      for (std::size_t byte = 0; 8 * byte < count * width; ++byte) {
        packed |= static_cast<std::uint64_t>(at[byte]) << (8 * byte);
      }
    }
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const auto part = static_cast<std::uint32_t>(packed >> (width * i) & ((1u << width) - 1));
      if (i < count) codes8.set(i, part << shift);
    }
    planes += (codes * width + 7) / 8;
    shift += width;
  }
  return codes8;
}

/// A wire chunk of 4096 elements, or the shorter last one of a message: planes, then metadata.
struct WireChunk {
  static constexpr std::size_t kElements = 4096;

  std::uint8_t* planes;  ///< the chunk's first byte
  std::size_t elements;  ///< of the chunk
  std::size_t first;     ///< this thread's first element, from the start of the chunk
};

/// Bytes of planes of `codes` codes.
ARLAB_HOST_DEVICE std::size_t bytes_of_planes(std::size_t codes, unsigned bits) {
  std::size_t bytes = 0;
  unsigned shift = 0;
  for (unsigned width = 8; width != 0; width /= 2) {
    if (bits - shift < width) continue;
    bytes += (codes * width + 7) / 8;
    shift += width;
  }
  return bytes;
}

/// Finds a thread's chunk in a wire whose full chunks have `full_chunk_bytes`.
ARLAB_DEVICE WireChunk chunk_of(std::uint8_t* wire, Position at, std::size_t full_chunk_bytes) {
  const std::size_t index = at.first / WireChunk::kElements;
  const std::size_t begin = index * WireChunk::kElements;
  const std::size_t rest = at.elements - begin;
  return {wire + index * full_chunk_bytes,
          rest < WireChunk::kElements ? rest : WireChunk::kElements, at.first - begin};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
