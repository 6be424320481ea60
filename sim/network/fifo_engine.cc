#include "sim/network/fifo_engine.h"

#include <algorithm>

#include "reference/error.h"

namespace arlab {

FifoEngine::FifoEngine(const Network& network, NetworkClient& client)
    : NetworkEngine(network, client), servers_(network.resources()) {}

std::uint32_t FifoEngine::acquire() {
  if (free_.empty()) return static_cast<std::uint32_t>(parcels_.append());
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  // Messages tend to start in bursts; have the slots of the next ones at hand.
  constexpr std::size_t kAhead = 6;
  if (free_.size() > kAhead) __builtin_prefetch(&parcels_[*(free_.end() - kAhead)], 1);
  return slot;
}

void FifoEngine::start(const Message& message) {
  if (message.is_tree) {
    fail("message {}: a tree of links cannot be served link by link; allowed is max-min sharing",
         message.tag);
  }
  const std::uint32_t slot = acquire();
  auto servers = static_cast<std::uint32_t>(message.route.size());
  for (const LinkId link : message.route) {
    servers += network_.properties(link).domain != kNoDomain ? 1 : 0;
  }
  parcels_[slot] = {.started = now(),
                    .sent = kNever,
                    .tail = now(),
                    .bytes = message.bytes,
                    .tag = message.tag,
                    .longest = 0,
                    .limit = kNoLimit,
                    .first_server = message.route[0],
                    .servers = servers,
                    .next = 0,
                    .tells_flow = message.tells_flow ? 1U : 0U};
  if (message.rate_cap_gb_per_s != kNoRateCap && slot >= rate_caps_.size()) {
    rate_caps_.resize(slot + 1, kNoRateCap);
  }
  if (slot < rate_caps_.size()) rate_caps_[slot] = message.rate_cap_gb_per_s;
  if (servers > 1) {
    std::uint32_t server = servers_on_way_.allocate(servers);
    parcels_[slot].first_server = server;
    for (const LinkId link : message.route) {
      const DomainId domain = network_.properties(link).domain;
      if (domain != kNoDomain) servers_on_way_[server++] = network_.resource_of(domain);
      servers_on_way_[server++] = link;
    }
  }
  // Its turn comes after the heads that are known to arrive now.
  if (heads_on_way_ == 0) {
    serve(slot);
  } else {
    ++heads_on_way_;
    queue_.push({now(), kHeadArrives, slot});
  }
}

void FifoEngine::handle(const Event& event) {
  if (event.kind == kHeadArrives) {
    --heads_on_way_;
    serve(event.subject);
  } else {
    deliver(event.subject);
  }
}

void FifoEngine::prepare(std::span<const Event> events) {
  for (const Event& event : events) {
    if (event.kind != kTimer) __builtin_prefetch(&parcels_[event.subject], 1);
  }
}

void FifoEngine::serve(std::uint32_t slot) {
  Parcel& parcel = parcels_[slot];
  const ResourceId resource = parcel.servers == 1
                                  ? parcel.first_server
                                  : servers_on_way_[parcel.first_server + parcel.next];
  const bool is_link = resource < network_.links();
  const double rate = std::min(network_.capacity_gb_per_s(resource), rate_cap_of(slot));
  const double duration = static_cast<double>(parcel.bytes) / rate * 1e3;
  require_reachable(std::max(now(), servers_[resource].free_at()),
                    transfer_time(static_cast<double>(parcel.bytes), rate), parcel.tag);

  Server& server = servers_[resource];
  if (server.free_at() <= now()) {
    server.busy_since = now();
    server.work = 0;
  }
  const Picoseconds begin = server.free_at();
  server.work =
      std::max(server.work + duration, static_cast<double>(parcel.tail - server.busy_since));
  const Picoseconds end = server.free_at();
  server.counters.busy += end - begin;
  add_bytes(server.counters, parcel.bytes);
  if (trace_ != nullptr) trace_->on_service(parcel.tag, resource, begin, end);

  const Picoseconds spent = begin + round_to_picoseconds(duration) - now();
  if (spent > parcel.longest) {
    parcel.longest = spent;
    parcel.limit = resource;
  }

  const Picoseconds latency = is_link ? network_.properties(resource).latency : 0;
  require_reachable(end, latency, parcel.tag);
  parcel.tail = end + latency;
  if (is_link && parcel.sent == kNever) parcel.sent = end;
  if (++parcel.next == parcel.servers) {
    queue_.push({parcel.tail, kDelivered, slot});
    if (parcel.tells_flow) client_.on_flowing(parcel.tag, begin + latency);
  } else {
    ++heads_on_way_;
    queue_.push({begin + latency, kHeadArrives, slot});
  }
}

void FifoEngine::deliver(std::uint32_t slot) {
  const Parcel& parcel = parcels_[slot];
  const Delivery delivery{.tag = parcel.tag,
                          .bytes = parcel.bytes,
                          .started = parcel.started,
                          .sent = parcel.sent,
                          .delivered = now(),
                          .limit = parcel.limit};
  if (parcel.servers > 1) servers_on_way_.release(parcel.first_server, parcel.servers);
  free_.push_back(slot);  // the client may start its next message in it
  client_.on_delivered(delivery);
}

NetworkEngine::Counters FifoEngine::counters_until_now(ResourceId resource) const {
  const Server& server = servers_[resource];
  Counters counters = server.counters;
  counters.busy -= std::max<Picoseconds>(0, server.free_at() - now());
  return counters;
}

}  // namespace arlab
