// Many standard normals at once.
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensors/counter_random.h"

namespace arlab {

/// out[i] = standard_normal(random.word(first + i)), several times as fast as one after the other.
void standard_normals(const RandomStream& random, std::uint64_t first, std::span<double> out);

}  // namespace arlab
