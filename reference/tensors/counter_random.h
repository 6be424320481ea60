// Random numbers by position instead of by sequence: number i of a stream costs the same for every
// i, so that ranks and ranges can be filled in any order and by any number of threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

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
  constexpr std::uint64_t word(std::uint64_t index) const { return mix_bits(before_mixing(index)); }
  /// Number `index` of the sequence that words are mix_bits() of: kStep more than the one before.
  constexpr std::uint64_t before_mixing(std::uint64_t index) const {
    return start_ + (index + 1) * kStep;
  }
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  // odd, 2^64 / golden ratio

 private:
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

}  // namespace arlab
