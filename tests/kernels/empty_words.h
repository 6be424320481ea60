// Inputs whose wires are full of words like kEmpty (kernels/transport/sentinel_slots.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/transport/sentinel_slots.h"
#include "reference/codecs/registry.h"

namespace arlab::kernels {

/// A tile of fp16 of codec fp16 or qr-q4.
inline std::vector<std::byte> tile_like_empty(const Codec& codec) {
  constexpr std::size_t kTileElements = 2048;
  std::vector<std::byte> wire(codec.wire_bytes(DType::fp16, kTileElements));
  std::vector<std::uint32_t> words(wire.size() / 4, kEmpty);
  if (codec.name() == "qr-q4") {
    // Codes, eight words of each block; the first word's are at the bound, so that scales stay 1.
    for (std::size_t i = 0; i < 256; i += 8) words[i] = 0;
    for (std::size_t i = 256; i < words.size(); ++i) words[i] = 0x3C003C00;
  }
  std::memcpy(wire.data(), words.data(), wire.size());
  std::vector<std::byte> tile(kTileElements * 2);
  codec.decode(DType::fp16, wire, tile);
  std::vector<std::byte> again(wire.size());
  codec.encode(DType::fp16, tile, again);
  if (again != wire) throw std::logic_error("the tile does not encode to words like kEmpty");
  return tile;
}

/// Overwrites tiles of an fp16 tensor: all but every third.
inline void put_tiles_like_empty(const Codec& codec, std::span<std::byte> tensor) {
  const std::vector<std::byte> tile = tile_like_empty(codec);
  for (std::size_t i = 0; (i + 1) * tile.size() <= tensor.size(); ++i) {
    if (i % 3 != 0) std::memcpy(tensor.data() + i * tile.size(), tile.data(), tile.size());
  }
}

}  // namespace arlab::kernels
