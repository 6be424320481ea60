// Where a message stands that is encoded, for codecs whose bits depend on more than its elements: random numbers that are the
// same wherever and in whatever order they are drawn, and what a codec carries from call to call.
#pragma once

#include <cstdint>
#include <span>

namespace arlab {

struct EncodeContext {
  std::uint64_t seed = 0;
  std::uint32_t call = 0;  ///< calls of the communicator before this one
  std::uint32_t rank = 0;  ///< the encoding one
  std::uint32_t world_size = 1;
  std::uint32_t step = 0;  ///< encodings that the values have behind them: 0 for a rank's own input
  std::uint32_t chunk = 0;     ///< in the schedule
  std::uint64_t position = 0;  ///< first element's place in the rank's tensor
  /// For codecs that have one: a number per element of the message, 0 before the first call, which the encoder changes. Empty
  /// where it is not kept: it is then as before the first call.
  std::span<float> state = {};
  /// For codecs that share scales: the statistics of the message from all ranks, the largest each (Codec::measure). Empty: no
  /// other rank was asked, and the message's own statistics count.
  std::span<const float> shared = {};

  /// The context of the message's elements from `first` on.
  EncodeContext at(std::uint64_t first) const {
    EncodeContext part = *this;
    part.position += first;
    if (!state.empty()) part.state = state.subspan(first);
    return part;
  }
};

struct PhiloxCounter {
  std::uint32_t word[4];
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four random words of a counter and a key.
constexpr PhiloxCounter philox4x32(PhiloxCounter x, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * x.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * x.word[2];
    x = {{static_cast<std::uint32_t>(b >> 32) ^ x.word[1] ^ k0, static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ x.word[3] ^ k1, static_cast<std::uint32_t>(a)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

/// Operations of philox4x32(): ten rounds of two products of 32 by 32 bits (low and high half), four exclusive ors, two additions.
inline constexpr double kPhiloxOps = 100;

/// 24 random bits of the message's element i: SPEC.md, "Stochastic rounding (-stoch)". Positions beyond 2^32 use the rank's high bits.
constexpr std::uint32_t random_bits(const EncodeContext& context, std::uint64_t i) {
  const std::uint64_t position = context.position + i;
  const auto above = static_cast<std::uint32_t>(position >> 32) << 16;
  const PhiloxCounter counter = {
      {static_cast<std::uint32_t>(position), context.rank ^ above, context.step, context.call}};
  return philox4x32(counter, context.seed).word[0] >> 8;
}

}  // namespace arlab
