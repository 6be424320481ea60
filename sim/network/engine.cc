#include "sim/network/engine.h"

#include <utility>

#include "reference/error.h"

namespace arlab {

NetworkEngine::NetworkEngine(const Network& network, NetworkClient& client)
    : network_(network), client_(client) {}

void NetworkEngine::send(const Message& message) {
  // A single link, by far the most frequent, needs less.
  if (message.route.size() != 1 || message.route[0] >= network_.links()) {
    network_.require_path(message.route);
  }
  if (!(message.rate_cap_gb_per_s > 0)) {
    fail("message {}: a rate cap of {} GB/s is not allowed; it must be above 0", message.tag,
         message.rate_cap_gb_per_s);
  }
  if (message.bytes > kMaxMessageBytes) {
    fail("message {}: {} bytes are too many; allowed are at most {}", message.tag, message.bytes,
         kMaxMessageBytes);
  }
  if (trace_ != nullptr) trace_->on_started(message, now());
  start(message);
}

void NetworkEngine::call_at(Picoseconds time, std::uint64_t tag) {
  if (time < now() || time >= kNever) {
    fail("timer {}: {} ps is not between now, {} ps, and {} ps", tag, time, now(), kNever - 1);
  }
  const std::uint32_t timer = acquire_timer(tag);
  const bool follows_last = last_timer_ != kNoTimer && time == last_timer_time_ &&
                            queue_.pushed() == pushed_with_last_timer_;
  if (follows_last) {
    timers_[last_timer_].next = timer;
  } else {
    queue_.push({time, kTimer, timer});
  }
  last_timer_ = timer;
  last_timer_time_ = time;
  pushed_with_last_timer_ = queue_.pushed();
}

std::uint32_t NetworkEngine::acquire_timer(std::uint64_t tag) {
  std::uint32_t timer = free_timer_;
  if (timer == kNoTimer) {
    timer = static_cast<std::uint32_t>(timers_.append());
  } else {
    free_timer_ = timers_[timer].next;
  }
  timers_[timer] = {tag, kNoTimer};
  return timer;
}

void NetworkEngine::ring(std::uint32_t first) {
  last_timer_ = kNoTimer;
  for (std::uint32_t timer = first; timer != kNoTimer;) {
    const auto [tag, next] = timers_[timer];
    timers_[timer].next = std::exchange(free_timer_, timer);
    client_.on_timer(tag);
    timer = next;
  }
}

void NetworkEngine::run(Picoseconds until) {
  // Messages may have been started since the last run.
  do {
    do {
      while (queue_.any_ready()) {
        const Event event = queue_.take_ready();
        if (event.kind == kTimer) {
          ring(event.subject);
        } else {
          handle(event);
        }
      }
      complete_instant();
    } while (queue_.any_ready());
  } while (queue_.advance(until, [this](std::span<const Event> soon) { prepare(soon); }));
}

void NetworkEngine::fail_unreachable(std::uint64_t tag) {
  fail("message {}: it would end later than {} s after the start of the simulation", tag,
       us_from_picoseconds(kNever) * 1e-6);
}

ResourceUsage NetworkEngine::usage(ResourceId resource) const {
  const Counters counters = counters_until_now(resource);
  const Picoseconds elapsed = now();
  const double possible = bytes_in(elapsed, network_.capacity_gb_per_s(resource));
  return {.bytes = counters.bytes,
          .busy = counters.busy,
          .utilisation = elapsed > 0 ? static_cast<double>(counters.bytes) / possible : 0};
}

}  // namespace arlab
