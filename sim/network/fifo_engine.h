// The FIFO engine: every link serves one message at a time, in the order of arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/block_pool.h"
#include "sim/network/engine.h"
#include "sim/network/growing_array.h"
#include "sim/network/zeroed_array.h"

namespace arlab {

/// A route is a row of servers: for every link its sharing domain, if it has one, then the link.
/// The head of a message arrives at a server, waits until all messages that arrived before it have
/// been served, and then goes on: through a link it takes the latency, through a domain no time.
/// The server is taken from then on for bytes / bandwidth (or the message's cap, if lower), and
/// until the tail has come through from the server before:
///
///   begin(k) = max(head(k), end of the message before)        head(k + 1) = begin(k) + latency(k)
///   end(k)   = max(begin(k) + bytes / bandwidth(k), tail(k))  tail(k + 1) = end(k) + latency(k)
///   delivered = tail behind the last link
///
/// So messages are cut through where servers are free and stored where they are not; buffers are
/// unbounded and nothing is held back by what is taken further on. Of heads that arrive in the same
/// instant, the one whose arrival became known first is served first. An empty message waits its
/// turn and then takes no time.
class FifoEngine final : public NetworkEngine {
 public:
  FifoEngine(const Network& network, NetworkClient& client);

 private:
  static constexpr std::uint32_t kHeadArrives = kFirstOwnKind;
  static constexpr std::uint32_t kDelivered = kFirstOwnKind + 1;

  struct Parcel {  // a cache line
    Picoseconds started = 0;
    Picoseconds sent = 0;  ///< kNever before the first link
    Picoseconds tail = 0;  ///< when the last byte arrives at the next server
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    Picoseconds longest = 0;         ///< time at a server so far, queue included
    ResourceId limit = kNoLimit;     ///< that server
    std::uint32_t first_server = 0;  ///< index into servers_on_way_; of a single one the server
    std::uint32_t servers = 0;
    std::uint32_t next : 31 = 0;  ///< index of the next server
    std::uint32_t tells_flow : 1 = 0;
  };
  static_assert(sizeof(Parcel) == 64);
  /// The end of what a server has taken on is busy_since + work. The sum is rounded when an instant
  /// is read from it, not when it grows: a long queue does not drift. All zero: nothing yet.
  struct Server {
    Picoseconds busy_since;
    double work;  ///< ps
    /// Runs ahead of now to the end of what the server has taken on, which is without gaps.
    Counters counters;

    Picoseconds free_at() const { return busy_since + round_to_picoseconds(work); }
  };

  void start(const Message& message) override;
  void handle(const Event& event) override;
  void prepare(std::span<const Event> events) override;
  Counters counters_until_now(ResourceId resource) const override;

  std::uint32_t acquire();
  double rate_cap_of(std::uint32_t slot) const {
    return slot < rate_caps_.size() ? rate_caps_[slot] : kNoRateCap;
  }
  void serve(std::uint32_t slot);
  void deliver(std::uint32_t slot);

  ZeroedArray<Server> servers_;    ///< by resource
  GrowingArray<Parcel> parcels_;   ///< by slot
  std::vector<double> rate_caps_;  ///< by slot, GB/s; empty until a message has one
  std::vector<std::uint32_t> free_;
  BlockPool<ResourceId> servers_on_way_;
  std::size_t heads_on_way_ = 0;  ///< kHeadArrives events in the queue
};

}  // namespace arlab
