#include "sim/run/causes.h"

#include <algorithm>

namespace arlab {
namespace {

constexpr std::size_t kNumbers = 6;
constexpr unsigned kSpanBits = 3;
using Numbers = std::array<std::uint64_t, kNumbers>;

Numbers numbers_of(const Cause& cause) {
  return {static_cast<std::uint64_t>(cause.time),
          static_cast<std::uint64_t>(cause.network),
          cause.before,
          cause.subject,
          cause.limit,
          std::uint64_t{cause.latency} << kSpanBits | static_cast<std::uint64_t>(cause.span)};
}

Cause cause_of(const Numbers& numbers) {
  Cause cause{.time = static_cast<Picoseconds>(numbers[0]),
              .network = static_cast<Picoseconds>(numbers[1]),
              .before = static_cast<CauseId>(numbers[2]),
              .subject = static_cast<std::uint32_t>(numbers[3]),
              .limit = static_cast<std::uint32_t>(numbers[4]),
              .span = static_cast<Span>(numbers[5] % (1U << kSpanBits))};
  cause.latency = (numbers[5] >> kSpanBits) & static_cast<std::uint64_t>(Cause::kMostLatency);
  return cause;
}

/// Maps differences that are small in either direction to small numbers.
std::uint64_t folded(std::uint64_t difference) {
  return difference << 1 ^ (difference >> 63 == 0 ? 0 : UINT64_MAX);
}
std::uint64_t unfolded(std::uint64_t number) {
  return number >> 1 ^ (number % 2 == 0 ? 0 : UINT64_MAX);
}

}  // namespace

void Causes::pack() {
  constexpr std::size_t kMostBytes = 1 + kNumbers * 10;  // 7 bits of a number in each
  std::array<std::uint8_t, kBlock * kMostBytes> bytes;
  std::uint8_t* end = bytes.data();
  Numbers last = {};
  Numbers steps = {};
  for (const Cause& cause : block_) {
    const Numbers numbers = numbers_of(cause);
    std::uint8_t& which = *end++ = 0;
    for (std::size_t i = 0; i < kNumbers; ++i) {
      const std::uint64_t step = numbers[i] - last[i];
      if (step != steps[i]) {
        which = static_cast<std::uint8_t>(which | 1U << i);
        std::uint64_t rest = folded(step - steps[i]);
        for (; rest >= 0x80; rest >>= 7) *end++ = static_cast<std::uint8_t>(rest | 0x80);
        *end++ = static_cast<std::uint8_t>(rest);
      }
      steps[i] = step;
    }
    last = numbers;
  }
  const auto size = static_cast<std::size_t>(end - bytes.data());
  first_byte_.push_back(packed_.append(size));
  std::copy_n(bytes.data(), size, &packed_[first_byte_.back()]);
}

Cause Causes::operator[](CauseId id) const {
  if (id / kBlock == first_byte_.size()) return block_[id % kBlock];
  const std::uint8_t* next = &packed_[first_byte_[id / kBlock]];
  Numbers numbers = {};
  Numbers steps = {};
  for (std::uint32_t cause = 0; cause <= id % kBlock; ++cause) {
    const std::uint8_t which = *next++;
    for (std::size_t i = 0; i < kNumbers; ++i) {
      if ((which >> i) % 2 == 1) {
        std::uint64_t difference = 0;
        unsigned bits = 0;
        for (; *next >= 0x80; bits += 7) difference |= std::uint64_t{*next++ & 0x7FU} << bits;
        difference |= std::uint64_t{*next++} << bits;
        steps[i] += unfolded(difference);
      }
      numbers[i] += steps[i];
    }
  }
  return cause_of(numbers);
}

}  // namespace arlab
