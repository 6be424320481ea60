// What the engine knows the messages and timers of a run by.
#pragma once

#include <cstdint>

namespace arlab {

// Messages: their number, and
inline constexpr std::uint64_t kHalf = std::uint64_t{1}
                                       << 32;  ///< one of two that take different routes
inline constexpr std::uint64_t kOtherWay = std::uint64_t{1} << 33;  ///< this is the second

/// Timers: of a stage to begin, of its own work to be done, of its last message to be there; of a
/// rank's channel to be free; of a link to change, or a flow of others. Of a message: of its first byte to
/// be there.
enum class RunTimer : std::uint64_t { begin, done, arrived, free, change, first_byte };
inline constexpr std::uint64_t kRunTimers = 8;

inline std::uint64_t timer_tag(std::uint32_t subject, RunTimer timer) {
  return subject * kRunTimers + static_cast<std::uint64_t>(timer);
}

}  // namespace arlab
