#include "sim/network/engine.h"

#include <utility>

#include "reference/error.h"

namespace arlab {

NetworkEngine::NetworkEngine(const Network& network, NetworkClient& client)
    : network_(network), client_(client) {}

void NetworkEngine::send(const Message& message) {
  // A single link, by far the most frequent, needs less.
  if (message.is_tree) {
    require_tree(message);
  } else if (message.route.size() != 1 || message.route[0] >= network_.links()) {
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

void NetworkEngine::require_tree(const Message& message) const {
  if (message.route.empty() || message.tree_latency < 0) {
    fail("message {}: a tree needs links and a latency of 0 or more", message.tag);
  }
  for (const LinkId link : message.route) {
    if (link >= network_.links()) {
      fail("message {}: there is no link {}; allowed is 0 to {}", message.tag, link,
           network_.links() - 1);
    }
  }
}

namespace {

/// An index that is free, or one more.
template <class T>
std::uint32_t acquire(GrowingArray<T>& items, std::vector<std::uint32_t>& free) {
  if (free.empty()) return static_cast<std::uint32_t>(items.append());
  const std::uint32_t index = free.back();
  free.pop_back();
  return index;
}

}  // namespace

TimerId NetworkEngine::call_at(Picoseconds time, std::uint64_t tag) {
  if (time < now() || time >= kNever) {
    fail("timer {}: {} ps is not between now, {} ps, and {} ps", tag, time, now(), kNever - 1);
  }
  const std::uint32_t batch = batch_for(time);
  const TimerId timer = acquire(timers_, free_timers_);
  const TimerId previous = std::exchange(batches_[batch].last, timer);
  (previous == kNoTimer ? batches_[batch].first : timers_[previous].next) = timer;
  timers_[timer] = {tag, kNoTimer, previous, batch};
  return timer;
}

std::uint32_t NetworkEngine::batch_for(Picoseconds time) {
  if (time == last_batch_time_ && queue_.pushed() == pushed_with_batch_) return last_batch_;
  last_batch_ = acquire(batches_, free_batches_);
  batches_[last_batch_] = {};
  queue_.push({time, kTimer, last_batch_});
  last_batch_time_ = time;
  pushed_with_batch_ = queue_.pushed();
  return last_batch_;
}

void NetworkEngine::cancel(TimerId timer) {
  const auto [tag, next, previous, batch] = timers_[timer];
  (batches_[batch].first == timer ? batches_[batch].first : timers_[previous].next) = next;
  (next == kNoTimer ? batches_[batch].last : timers_[next].previous) = previous;
  free_timers_.push_back(timer);
}

void NetworkEngine::ring(std::uint32_t batch) {
  if (batch == last_batch_) last_batch_time_ = -1;  // events set now ring after all events of now
  while (batches_[batch].first != kNoTimer) {
    const TimerId timer = batches_[batch].first;
    batches_[batch].first = timers_[timer].next;
    free_timers_.push_back(timer);
    client_.on_timer(timers_[timer].tag);
  }
  free_batches_.push_back(batch);
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

void NetworkEngine::fail_uncountable() {
  fail("network: a link would carry more than {} bytes, which is all that can be counted",
       UINT64_MAX);
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
