// Common parts of codecs with fp32 arithmetic: values of a group of lanes, and planes of codes.
//
// Lanes whose group lies behind the end of the message take part in exchanges and write nothing.
#pragma once

#include "kernels/codecs/device_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr float kInfinity32 = std::numeric_limits<float>::infinity();

/// Combines what the waves of an aligned group of `waves` have found, of 32 lanes each. All threads of the block take part.
template <class T, class Combine>
ARLAB_DEVICE T combine_waves(T value, unsigned waves, Combine combine) {
  ARLAB_SHARED_ARRAY(T, of_wave, kThreads / 32);
  __syncthreads();  // earlier results have been read
  const unsigned wave = thread_index() / 32;
  if (thread_index() % 32 == 0) of_wave[wave] = value;
  __syncthreads();
#pragma unroll 1
  for (unsigned i = 1; i < waves; ++i) value = combine(value, of_wave[wave ^ i]);
  return value;
}

/// Combines the values of an aligned group of `lanes` lanes (a power of two), all of which get the result. Every lane of the wave
/// must take part, with the same `lanes`; above 32, every thread of the block.
template <class T, class Combine>
ARLAB_DEVICE T group_reduce(T value, int lanes, Combine combine) {
#pragma unroll 1
  for (int mask = 1; mask < 32 && mask < lanes; mask *= 2) {
    value = combine(value, shuffle_xor(value, mask, 32));
  }
  return lanes <= 32 ? value : combine_waves(value, static_cast<unsigned>(lanes) / 32, combine);
}

template <class T>
ARLAB_DEVICE T max_of(T a, T b) {
  return a > b ? a : b;
}
ARLAB_DEVICE float min_of(float a, float b) { return a < b ? a : b; }

/// True when all elements of the group that are in the message are finite.
ARLAB_DEVICE bool group_is_finite(const Float8& x, std::size_t count, int lanes) {
  std::uint32_t non_finite = 0;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    if (i < count && !is_finite(x.value[i])) non_finite = 1;
  }
  return group_reduce(non_finite, lanes, [](std::uint32_t a, std::uint32_t b) { return a | b; }) ==
         0;
}

/// The strides 1, 2, 4 of a Hadamard transform: those inside a thread.
ARLAB_DEVICE void transform_thread(Float8& x) {
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

/// Eight codes of up to 8 bits: element 2i in byte i of `even`, element 2i + 1 in byte i of `odd`.
struct Codes8 {
  std::uint32_t even = 0;
  std::uint32_t odd = 0;

  ARLAB_DEVICE std::uint32_t operator[](std::size_t i) const {
    return (i % 2 == 0 ? even : odd) >> (i / 2 * 8) & 0xFF;
  }
  ARLAB_DEVICE void set(std::size_t i, std::uint32_t code) {
    // No reference to one of them: where i is not known, clang would put both into scratch memory.
    const std::uint32_t bits = code << (i / 2 * 8);
    even |= i % 2 == 0 ? bits : 0;
    odd |= i % 2 == 0 ? 0 : bits;
  }
  /// The codes of elements 4i to 4i + 3, a byte each; from_order() goes back.
  ARLAB_DEVICE std::uint32_t in_order(unsigned i) const {
    return permute_bytes(even, odd, i == 0 ? 0x5140 : 0x7362);
  }
  ARLAB_DEVICE static Codes8 from_order(std::uint32_t first, std::uint32_t second) {
    return {permute_bytes(first, second, 0x6420), permute_bytes(first, second, 0x7531)};
  }
};

/// Codes of elements 2i and 2i + 1 are in the halves of pair[i].
ARLAB_DEVICE Codes8 codes_of_pairs(const std::uint32_t (&pair)[4]) {
  const std::uint32_t first = pair[0] | pair[1] << 8;
  const std::uint32_t second = pair[2] | pair[3] << 8;
  return {low_halves(first, second), high_halves(first, second)};
}

ARLAB_DEVICE constexpr std::uint32_t in_each_byte(std::uint32_t bits8) {
  return bits8 * 0x01010101u;
}

/// The plane of these codes' bits from `shift` on: `width` bits per element, in element order.
ARLAB_DEVICE std::uint64_t plane_of(const Codes8& codes, unsigned width, unsigned shift) {
  if (width == 8) {
    return codes.in_order(0) | static_cast<std::uint64_t>(codes.in_order(1)) << 32;
  }
  const std::uint32_t mask = in_each_byte((1u << width) - 1);
  // Byte i: the bits of elements 2i and 2i + 1.
  const std::uint32_t bits = (codes.even >> shift & mask) | (codes.odd >> shift & mask) << width;
  if (width == 4) return bits;
  if (width == 2) return even_bytes_adjacent(bits | bits >> 4);
  return bits * 0x01041040u >> 24;  // bytes 0 to 3 at bits 24, 26, 28 and 30, everything else below
}

/// Puts the bits of a plane where plane_of() found them.
ARLAB_DEVICE void add_plane(Codes8& codes, std::uint64_t plane, unsigned width, unsigned shift) {
  auto bits = static_cast<std::uint32_t>(plane);
  if (width == 8) {
    codes = Codes8::from_order(bits, static_cast<std::uint32_t>(plane >> 32));
    return;
  }
  if (width == 1) bits = (bits | bits << 12) & 0x000F000F;
  if (width == 2) bits = (bits | bits << 8) & 0x00FF00FF;
  if (width < 4) bits |= bits << (8 - 2 * width);
  const std::uint32_t mask = in_each_byte((1u << width) - 1);
  codes.even |= (bits & mask) << shift;
  codes.odd |= (bits >> width & mask) << shift;
}

/// Where the bits of a thread's codes begin: in their plane or, of codes that are whole bytes in every plane, behind the
/// begin of the first. Those need no more than 32 bits.
template <bool kWhole>
ARLAB_DEVICE auto place_in_plane(std::size_t codes, std::size_t first, unsigned width,
                                 unsigned shift) {
  if constexpr (kWhole) {
    return static_cast<unsigned>(codes / 8) * shift + static_cast<unsigned>(first / 8) * width;
  } else {
    return first / 8 * width;
  }
}

/// Writes or reads the planes of bit_planes.h at `planes`, which hold `codes` codes; these eight
/// are `first` and following, of which `count` exist. A plane of width w has w bytes of each
/// thread; with kWhole, all planes begin at multiples of 8.
template <bool kWhole = false>
ARLAB_DEVICE void store_planes(const Codes8& codes8, unsigned bits, std::uint8_t* planes,
                               std::size_t codes, std::size_t first, std::size_t count) {
  unsigned shift = 0;
#pragma unroll
  for (unsigned width = 8; width != 0; width /= 2) {
    if (bits - shift < width) continue;
    std::uint64_t packed = plane_of(codes8, width, shift);
    std::uint8_t* at = planes + place_in_plane<kWhole>(codes, first, width, shift);
    if (count == kPerThread) {
      if (width == 8) store_word<kWhole>(at, packed);
      if (width == 4) store_word<kWhole>(at, static_cast<std::uint32_t>(packed));
      if (width == 2) store_word<kWhole>(at, static_cast<std::uint16_t>(packed));
      if (width == 1) store_word<kWhole>(at, static_cast<std::uint8_t>(packed));
    } else {
      packed &= (std::uint64_t{1} << (count * width)) - 1;
      for (std::size_t byte = 0; 8 * byte < count * width; ++byte) {
        at[byte] = static_cast<std::uint8_t>(packed >> (8 * byte));
      }
    }
    if constexpr (!kWhole) planes += (codes * width + 7) / 8;
    shift += width;
  }
}

template <bool kWhole = false>
ARLAB_DEVICE Codes8 load_planes(unsigned bits, const std::uint8_t* planes, std::size_t codes,
                                std::size_t first, std::size_t count) {
  Codes8 codes8;
  unsigned shift = 0;
#pragma unroll
  for (unsigned width = 8; width != 0; width /= 2) {
    if (bits - shift < width) continue;
    const std::uint8_t* at = planes + place_in_plane<kWhole>(codes, first, width, shift);
    std::uint64_t packed = 0;
    if (count == kPerThread) {
      if (width == 8) packed = load_word<std::uint64_t, kWhole>(at);
      if (width == 4) packed = load_word<std::uint32_t, kWhole>(at);
      if (width == 2) packed = load_word<std::uint16_t, kWhole>(at);
      if (width == 1) packed = load_word<std::uint8_t, kWhole>(at);
    } else {
      for (std::size_t byte = 0; 8 * byte < count * width; ++byte) {
        packed |= static_cast<std::uint64_t>(at[byte]) << (8 * byte);
      }
      packed &= (std::uint64_t{1} << (count * width)) - 1;
    }
    add_plane(codes8, packed, width, shift);
    if constexpr (!kWhole) planes += (codes * width + 7) / 8;
    shift += width;
  }
  return codes8;
}

/// A wire chunk of 4096 elements, or the shorter last one of a message: planes, then metadata.
struct WireChunk {
  static constexpr std::size_t kElements = 4096;

  std::uint8_t* planes;  ///< the chunk's first byte
  std::size_t elements;  ///< elements of the chunk
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
