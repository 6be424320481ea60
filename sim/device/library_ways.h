// What the vendor's library takes as tensors grow. What it takes for one: library_choice.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/device/library_choice.h"

namespace arlab {

/// A way that the library takes from so many bytes of a rank on.
struct LibraryWay {
  LibraryChoice choice;
  std::uint64_t from_bytes = 0;
};

/// What it takes for so many bytes, then with what it goes on for more, in that order. Throws as
/// library_choice() does.
std::vector<LibraryWay> library_ways(const Device& device, Collective collective, Rank world_size,
                                     std::uint64_t bytes,
                                     std::optional<LibraryAlgorithm> algorithm = std::nullopt);

}  // namespace arlab
