// Codebooks whose levels a block has in shared memory: a level is found, and decoded, by looking it up there. In registers, the levels
// would be trees of selections.
#pragma once

#include "kernels/codecs/scaled.h"
#include "reference/codecs/formats/codebook.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// How many bits codes have: a constant, or 0 for an argument.
template <unsigned kConstant>
struct CodebookBits {
  static constexpr unsigned kBits = kConstant;
};
template <>
struct CodebookBits<0> {
  static constexpr unsigned kMostBits = 8;
};

template <std::size_t kElements, unsigned kConstantBits>
struct CodebookInMemory : Codebook<kElements>, CodebookBits<kConstantBits> {
  using typename Codebook<kElements>::Scale;

  ARLAB_HOST_DEVICE constexpr explicit CodebookInMemory(const Codebook<kElements>& codebook)
      : Codebook<kElements>(codebook) {}

  ARLAB_HOST_DEVICE constexpr unsigned bits() const {
    if constexpr (kConstantBits != 0) return kConstantBits;
    return this->levels.bits;
  }

  /// Codes that no level has stand for the last one, and nothing is above the middle before them.
  ARLAB_DEVICE void begin() const {
    Table& table = table_of_block();
    const unsigned code = thread_index();
    if (code < kCodes) {
      const auto& level = this->levels.level;
      const unsigned last = this->levels.count - 1;
      table.level[code] = level[code < last ? code : last];
      table.middle_before[code] =
          code != 0 && code <= last ? (level[code - 1] + level[code]) * 0.5f : kInfinity32;
    }
    __syncthreads();
  }

  ARLAB_DEVICE ScaledCode quantize(float x, float factor) const {
    const Table& table = table_of_block();
    const float value = x * factor;
    unsigned code = 0;
#pragma unroll
    for (unsigned step = kCodes / 2; step > 0; step /= 2) {
      if (value > table.middle_before[code + step]) code += step;
    }
    return {code, false};
  }
  ARLAB_DEVICE float dequantize(std::uint32_t code, Scale scale) const {
    return table_of_block().level[code] * scale;
  }

 private:
  static constexpr unsigned kCodes = 1u << (kConstantBits != 0 ? kConstantBits : 8);
  static_assert(kCodes <= kThreads);

  struct Table {
    float level[kCodes];
    float middle_before[kCodes];
  };
  ARLAB_DEVICE static Table& table_of_block() {
    ARLAB_SHARED_ARRAY(Table, table, 1);
    return table[0];
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
