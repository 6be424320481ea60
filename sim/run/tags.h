// Tags by which the engine knows the messages and timers of a run.
#pragma once

#include <cstdint>

namespace arlab {

// Messages: their number, and
inline constexpr std::uint64_t kHalf = std::uint64_t{1}
                                       << 32;  ///< one of two that take different routes
inline constexpr std::uint64_t kOtherWay = std::uint64_t{1} << 33;  ///< this is the second

/// Timers for a stage: it begins, its own work is done, its last message is there. Others: a rank's channel is free; a link
/// changes, or a flow of others. For a message: its first byte to be there.
enum class RunTimer : std::uint64_t { begin, done, arrived, free, change, first_byte };
inline constexpr std::uint64_t kRunTimers = 8;

inline std::uint64_t timer_tag(std::uint32_t subject, RunTimer timer) {
  return subject * kRunTimers + static_cast<std::uint64_t>(timer);
}

}  // namespace arlab
