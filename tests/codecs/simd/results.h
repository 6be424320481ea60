// Everything that a codec does with a payload, for comparing two codecs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab::testing {

using Bytes = std::vector<std::byte>;

/// Memory in which a span of `bytes` starts `offset` bytes behind an address that is aligned. Where
/// there is an offset, a byte follows the span, too.
struct Misaligned {
  Misaligned(std::size_t bytes, std::size_t offset, std::byte fill)
      : memory(bytes + offset + (offset > 0 ? 1 : 0), fill),
        span(std::span(memory).subspan(offset, bytes)),
        fill(fill) {}
  /// Whether what lies beside the span is as it was.
  bool is_intact() const {
    const std::size_t offset = memory.size() - span.size();
    return offset == 0 ||
           (std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(offset - 1),
                        [this](std::byte byte) { return byte == fill; }) &&
            memory.back() == fill);
  }
  Bytes memory;
  std::span<std::byte> span;
  std::byte fill;
};

struct Results {
  Bytes counted;
  Bytes uncounted;
  Bytes decoded;
  Bytes added;
  std::uint64_t clamped = 0;
  bool beside_is_intact = true;

  bool operator==(const Results&) const = default;
};

/// Everything that a codec does with a payload; the memory of payload and wire starts `offset`
/// elements and bytes behind an aligned address.
inline Results results(const Codec& codec, DType dtype, std::span<const std::byte> payload,
                       std::size_t offset = 0) {
  const std::size_t elements = payload.size() / size_of(dtype);
  const std::size_t wire_bytes = codec.wire_bytes(dtype, elements);
  Misaligned x(payload.size(), offset * size_of(dtype), std::byte{0x11});
  std::ranges::copy(payload, x.span.begin());
  Misaligned wire(wire_bytes, offset, std::byte{0x22});
  EncodeCounts counts;
  Results r;
  codec.encode(dtype, x.span, wire.span, &counts);
  r.counted.assign(wire.span.begin(), wire.span.end());
  r.clamped = counts.clamped;
  codec.encode(dtype, x.span, wire.span);
  r.uncounted.assign(wire.span.begin(), wire.span.end());
  codec.decode_add(dtype, wire.span, x.span);  // x + decode(encode(x))
  r.added.assign(x.span.begin(), x.span.end());
  codec.decode(dtype, wire.span, x.span);
  r.decoded.assign(x.span.begin(), x.span.end());
  r.beside_is_intact = x.is_intact() && wire.is_intact();
  return r;
}

/// The bits of element i of 16 bits.
inline std::uint16_t pattern_at(std::span<const std::byte> bytes, std::size_t i) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, &bytes[2 * i], 2);
  return bits;
}
inline void set_pattern(std::span<std::byte> bytes, std::size_t i, std::uint16_t bits) {
  std::memcpy(&bytes[2 * i], &bits, 2);
}

}  // namespace arlab::testing
