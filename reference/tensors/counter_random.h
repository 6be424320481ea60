// Random numbers by position instead of by sequence: number i of a stream costs the same for every
// i, so that ranks and ranges can be filled in any order and by any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/tensors/portable_math.h"

namespace arlab {

/// A bijection of 64-bit words in which every input bit flips every output bit half of the time:
/// the finalizer of SplitMix64 (Steele, Lea, Flood 2014; Stafford's variant 13 of MurmurHash3).
constexpr std::uint64_t mix_bits(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

/// One stream of independent uniform 64-bit words: SplitMix64 started at a hash of its names.
class RandomStream {
 public:
  /// `purpose` keeps apart the streams that one rank of one seed uses.
  constexpr RandomStream(std::uint64_t seed, std::uint64_t rank, std::uint64_t purpose = 0)
      : start_(mix_bits(mix_bits(mix_bits(seed + kStep) + rank) + purpose)) {}

  /// Word number `index`.
  constexpr std::uint64_t word(std::uint64_t index) const {
    return mix_bits(start_ + (index + 1) * kStep);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  // odd, 2^64 / golden ratio

  std::uint64_t start_;
};

/// A word as a number in the open interval (0, 1), symmetric about 1/2: (n + 1/2) / 2^52, exactly,
/// from its upper 52 bits.
constexpr double unit_interval(std::uint64_t word) {
  return (static_cast<double>(static_cast<std::int64_t>(word >> 12)) + 0.5) * 0x1p-52;
}

/// A word as a number in the open interval (-1/2, 1/2), symmetric about 0: (n + 1/2) / 2^53,
/// exactly, from its upper 53 bits.
constexpr double centred_interval(std::uint64_t word) {
  return (static_cast<double>(static_cast<std::int64_t>(word) >> 11) + 0.5) * 0x1p-53;
}

/// A sign from the lowest bit of a word, which the intervals do not use: -1 or +1.
constexpr double random_sign(std::uint64_t word) { return (word & 1) != 0 ? -1.0 : 1.0; }

/// A standard normal out of one word, by the inverse of its distribution; at most 8.3 either way.
inline double standard_normal(std::uint64_t word) {
  return normal_quantile(centred_interval(word));
}

/// out[i] = standard_normal(random.word(first + i)). Written as loops over simple steps, which
/// compilers vectorize: about half as long as one after the other.
inline void standard_normals(const RandomStream& random, std::uint64_t first,
                             std::span<double> out) {
  std::array<double, 512> buffer;
  while (!out.empty()) {
    const auto q = std::span(buffer).first(std::min(buffer.size(), out.size()));
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = centred_interval(random.word(first + i));
    for (std::size_t i = 0; i < q.size(); ++i) out[i] = normal_quantile_centre(q[i]);
    for (std::size_t i = 0; i < q.size(); ++i) {
      if (std::abs(q[i]) > kNormalCentre) out[i] = normal_quantile(q[i]);
    }
    first += q.size();
    out = out.subspan(q.size());
  }
}

}  // namespace arlab
