// The square by which NVIDIA GPUs interpolate their tables of approximate functions.
#pragma once

#include <cstdint>

namespace arlab {

/// The square of 17 bits in units of 2^19: the sum of its partial products of two bits whose weight is 2^19 and more.
constexpr std::int64_t gpu_square(std::uint32_t x) {
  std::int64_t square = 0;
  for (unsigned i = 0; i < 17; ++i) {
    if ((x >> i & 1) == 0) continue;
    if (2 * i > 18) square += std::int64_t{1} << (2 * i);
    // Bits above i meet it twice; of these, those count whose products are heavy enough.
    const unsigned from = i >= 18 - i ? i + 1 : 18 - i;
    square += static_cast<std::int64_t>(x >> from) << (from + i + 1);
  }
  return square >> 19;
}

}  // namespace arlab
