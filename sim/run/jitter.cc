#include "sim/run/jitter.h"

#include <cmath>

namespace arlab {
namespace {

/// Where the numbers of launches' chances begin; those of messages are the messages' own.
constexpr std::uint64_t kLaunches = std::uint64_t{1} << 63;

/// A number from 0 to below 1 that follows from what it is for.
double chance(std::uint64_t seed, std::uint64_t what) {
  // SplitMix64 (Steele, Lea, Flood 2014), twice.
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ what) >> 11) * 0x1p-53;
}

/// A time of an exponential distribution.
double exponential(double mean, std::uint64_t seed, std::uint64_t what) {
  return mean > 0 ? -mean * std::log1p(-chance(seed, what)) : 0;
}

}  // namespace

double RunJitter::launch_us(std::uint32_t job, Rank rank) const {
  return exponential(mean_.launch_us, seed_, kLaunches | std::uint64_t{job} << 32 | rank);
}

double RunJitter::message_us(MessageId message) const {
  return exponential(mean_.message_us, seed_, message);
}

}  // namespace arlab
