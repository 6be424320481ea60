// Messages in, deliveries out, one clock: what a driver sees of the engine (flow_engine.h).
//
// A driver derives from NetworkClient, starts messages and timers, and calls run(). Whatever
// happens is reported by calls of the client, which may start more: a delivered message lets a
// device compute (a timer) and then send.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/event_queue.h"
#include "sim/network/growing_array.h"
#include "sim/network/max_min.h"
#include "sim/network/network.h"

namespace arlab {

using TimerId = std::uint32_t;

struct Message {
  std::span<const LinkId> route;  ///< read during the call only
  std::uint64_t bytes = 0;        ///< at most kMaxMessageBytes
  std::uint64_t tag = 0;          ///< whatever the driver knows it by; need not be unique
  /// A sender or a protocol may be slower than every link; > 0.
  double rate_cap_gb_per_s = kNoRateCap;
  /// Among messages of one stream that begin with the same link, only those of the lowest turn flow. The others wait at the
  /// sender, even if they have begun.
  std::uint32_t turn = 0;
  std::uint32_t stream = 0;
  /// The links are those of a tree, a multicast or what a switch adds up, in any order, each as often
  /// as the message crosses it. It flows over all of them at one rate, and is delivered `tree_latency`
  /// after it has been sent.
  bool is_tree = false;
  Picoseconds tree_latency = 0;
  bool tells_flow = false;  ///< asks for NetworkClient::on_flowing()
};

/// Every smaller count is exact in a double.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 53;

struct Delivery {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  Picoseconds started = 0;    ///< when the driver handed it in
  Picoseconds sent = 0;       ///< when the last byte left the sender
  Picoseconds delivered = 0;  ///< when the last byte arrived: now
  /// The full resource that set its last rate. kNoLimit: its own cap, or it was empty.
  ResourceId limit = kNoLimit;
};

class NetworkClient {
 public:
  virtual ~NetworkClient() = default;
  virtual void on_delivered(const Delivery& delivery) = 0;
  virtual void on_timer(std::uint64_t tag) = 0;
  /// The message has begun to flow, and its first byte arrives at this time, now or later. Once, of a
  /// message that tells_flow; perhaps within send().
  virtual void on_flowing(std::uint64_t /*tag*/, Picoseconds /*first_byte*/) {}
};

/// For timelines and tests; an engine without one does not pay for it.
class NetworkTrace {
 public:
  virtual ~NetworkTrace() = default;
  virtual void on_started(const Message& /*message*/, Picoseconds /*now*/) {}
  /// From now on the message flows at this rate.
  virtual void on_rate(std::uint64_t /*tag*/, double /*gb_per_s*/, Picoseconds /*now*/) {}
  /// All rates are right again until the next event.
  virtual void on_solved(Picoseconds /*now*/) {}
  /// The last byte has left the sender.
  virtual void on_sent(std::uint64_t /*tag*/, Picoseconds /*now*/) {}
};

/// Use of a link or a sharing domain until now.
struct ResourceUsage {
  /// Bytes of messages that were sent, once per crossing.
  std::uint64_t bytes = 0;
  Picoseconds busy = 0;    ///< time with at least one message on it
  double utilisation = 0;  ///< bytes / (capacity * now); 0 at time 0
};

/// Not for use by several threads; engines of different threads may share a network.
class NetworkEngine {
 public:
  virtual ~NetworkEngine() = default;
  NetworkEngine(const NetworkEngine&) = delete;
  NetworkEngine& operator=(const NetworkEngine&) = delete;

  Picoseconds now() const { return queue_.now(); }

  /// Starts a message now. Throws InvalidInput when the route is none, the cap not positive, the
  /// message too large, or it would take longer than kNever even if no other came.
  void send(const Message& message);

  /// Calls client.on_timer(tag) at `time`, which must not be in the past.
  TimerId call_at(Picoseconds time, std::uint64_t tag);
  /// The timer must not have rung yet. The clock may still stop at its time.
  void cancel(TimerId timer);

  /// Runs until nothing is left to happen, or up to and including `until`. Throws InvalidInput when
  /// a message would take longer than kNever.
  void run(Picoseconds until = kNever - 1);

  /// The usage of a link or, as network.resource_of(domain), of a sharing domain.
  ResourceUsage usage(ResourceId resource) const;
  /// ResourceUsage::bytes alone: quicker, of a million links.
  std::uint64_t bytes_on(ResourceId resource) const { return counters_until_now(resource).bytes; }

  /// Returns the cost so far of solving for shared rates: the number of rates solved, summed over all solutions, each once per
  /// resource that it crosses.
  std::uint64_t solved() const { return solved_; }

  /// Null for none.
  void set_trace(NetworkTrace* trace) { trace_ = trace; }

 protected:
  NetworkEngine(const Network& network, NetworkClient& client);

  static constexpr std::uint32_t kTimer = 0;  ///< Event::kind; the others are the engine's own
  static constexpr std::uint32_t kFirstOwnKind = 1;

  /// Counters of a resource; engines keep them beside their other state.
  struct Counters {
    std::uint64_t bytes;
    Picoseconds busy;
  };

  /// The message is valid.
  virtual void start(const Message& message) = 0;
  virtual void handle(const Event& event) = 0;
  /// These events will be handled before long, if they are not overtaken by new ones.
  virtual void prepare(std::span<const Event> /*events*/) {}
  /// All events of now have been handled; may push more of now.
  virtual void complete_instant() {}
  virtual Counters counters_until_now(ResourceId resource) const = 0;

  /// Throws InvalidInput when 64 bits do not hold the sum. Few links are fast enough for that to
  /// come before kNever.
  static void add_bytes(Counters& counters, std::uint64_t bytes) {
    if (__builtin_add_overflow(counters.bytes, bytes, &counters.bytes)) fail_uncountable();
  }

  /// Throws InvalidInput unless the instant comes before kNever.
  static void require_reachable(Picoseconds from, Picoseconds duration, std::uint64_t tag) {
    if (duration >= kNever - from) fail_unreachable(tag);
  }

  const Network& network_;
  NetworkClient& client_;
  NetworkTrace* trace_ = nullptr;
  EventQueue queue_;
  std::uint64_t solved_ = 0;

 private:
  void require_tree(const Message& message) const;
  [[noreturn]] static void fail_unreachable(std::uint64_t tag);
  [[noreturn]] static void fail_uncountable();

  struct Timer {
    std::uint64_t tag = 0;
    TimerId next = kNoTimer;
    TimerId previous = kNoTimer;
    std::uint32_t batch = 0;
  };
  /// Timers that are set one after the other for the same instant, with no event between, ring one
  /// after the other and need one event.
  struct Batch {
    TimerId first = kNoTimer;
    TimerId last = kNoTimer;
  };
  static constexpr TimerId kNoTimer = 0xFFFFFFFF;

  /// A batch with an event of its own, or the last one if the timer may go there.
  std::uint32_t batch_for(Picoseconds time);
  void ring(std::uint32_t batch);

  GrowingArray<Timer> timers_;
  std::vector<TimerId> free_timers_;
  GrowingArray<Batch> batches_;  ///< by Event::subject
  std::vector<std::uint32_t> free_batches_;
  std::uint32_t last_batch_ = 0;
  Picoseconds last_batch_time_ = -1;   ///< the time of last_batch_, while it may grow
  std::size_t pushed_with_batch_ = 0;  ///< as EventQueue::pushed(), when last_batch_ began
};

}  // namespace arlab
