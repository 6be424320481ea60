// Bit splitting (Flash Communication V2, figure 3): codes of b bits as planes of 8, 4, 2 and 1
// bits. SPEC.md, "Wire chunks and bit planes".
//
// b is split widest first, low bits first: 8 = 8, 7 = 4+2+1, 6 = 4+2, 5 = 4+1, 4 = 4, 3 = 2+1,
// 2 = 2. Within a plane of width w, element i sits in bits (i * w) mod 8 and up of byte i * w / 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace arlab {

/// Calls f(width, shift) for every plane of a b-bit code, in wire order: the plane holds bits shift
/// .. shift + width - 1 of each code.
template <class F>
constexpr void for_each_plane(unsigned bits, F&& f) {
  unsigned shift = 0;
  for (const unsigned width : {8U, 4U, 2U, 1U}) {
    if (bits - shift >= width) {
      f(width, shift);
      shift += width;
    }
  }
}

constexpr std::size_t plane_bytes(std::size_t elements, unsigned width) {
  return (elements * width + 7) / 8;
}

/// Bytes of all planes together.
constexpr std::size_t planes_bytes(std::size_t elements, unsigned bits) {
  std::size_t bytes = 0;
  for_each_plane(bits, [&](unsigned width, unsigned) { bytes += plane_bytes(elements, width); });
  return bytes;
}

/// Writes the planes of the codes one after the other; unused bits of a last byte are 0. Returns
/// the end of what it wrote.
inline std::byte* pack_planes(std::span<const std::uint8_t> codes, unsigned bits, std::byte* out) {
  for_each_plane(bits, [&](unsigned width, unsigned shift) {
    const std::size_t per_byte = 8 / width;
    const unsigned mask = (1U << width) - 1;
    for (std::size_t first = 0; first < codes.size(); first += per_byte) {
      unsigned byte = 0;
      for (std::size_t j = 0; j < per_byte && first + j < codes.size(); ++j) {
        byte |= ((codes[first + j] >> shift) & mask) << (j * width);
      }
      *out++ = static_cast<std::byte>(byte);
    }
  });
  return out;
}

/// Reads what pack_planes wrote. Returns the end of what it read.
inline const std::byte* unpack_planes(const std::byte* in, unsigned bits,
                                      std::span<std::uint8_t> codes) {
  for (std::uint8_t& code : codes) code = 0;
  for_each_plane(bits, [&](unsigned width, unsigned shift) {
    const std::size_t per_byte = 8 / width;
    const unsigned mask = (1U << width) - 1;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const unsigned byte = std::to_integer<unsigned>(in[i / per_byte]);
      const unsigned part = (byte >> (i % per_byte * width)) & mask;
      codes[i] = static_cast<std::uint8_t>(codes[i] | (part << shift));
    }
    in += plane_bytes(codes.size(), width);
  });
  return in;
}

}  // namespace arlab
