// The FIFO engine: every link serves one message at a time, in the order of arrival.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/block_pool.h"
#include "sim/network/engine.h"

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

  struct Parcel {
    double rate_cap_gb_per_s = 0;
    Picoseconds started = 0;
    Picoseconds sent = 0;  ///< kNever before the first link
    Picoseconds tail = 0;  ///< when the last byte arrives at the next server
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    std::uint32_t first_server = 0;  ///< index into servers_on_way_
    std::uint32_t servers = 0;
    std::uint32_t next = 0;       ///< of the servers
    Picoseconds longest = 0;      ///< time at a server so far, queue included
    ResourceId limit = kNoLimit;  ///< that server
  };
  /// The end of what a server has taken on is busy_since + work. The sum is rounded when an instant
  /// is read from it, not when it grows: a long queue does not drift.
  struct Server {
    Picoseconds busy_since = 0;
    double work = 0;  ///< ps

    Picoseconds free_at() const { return busy_since + round_to_picoseconds(work); }
  };

  void start(const Message& message) override;
  void handle(const Event& event) override;
  /// A counter runs ahead of now to the end of what the server has taken on, which is without gaps.
  Picoseconds busy_until_now(ResourceId resource) const override;

  void serve(std::uint32_t slot);
  void deliver(std::uint32_t slot);

  std::vector<Server> servers_;  ///< by resource
  std::vector<Parcel> parcels_;  ///< by slot
  std::vector<std::uint32_t> free_;
  BlockPool<ResourceId> servers_on_way_;
};

}  // namespace arlab
