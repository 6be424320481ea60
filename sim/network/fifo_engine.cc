#include "sim/network/fifo_engine.h"

#include <algorithm>

namespace arlab {

FifoEngine::FifoEngine(const Network& network, NetworkClient& client)
    : NetworkEngine(network, client), servers_(network.resources()) {}

void FifoEngine::start(const Message& message) {
  auto slot = static_cast<std::uint32_t>(parcels_.size());
  if (free_.empty()) {
    parcels_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  auto servers = static_cast<std::uint32_t>(message.route.size());
  for (const LinkId link : message.route)
    servers += network_.properties(link).domain != kNoDomain ? 1 : 0;
  parcels_[slot] = {.rate_cap_gb_per_s = message.rate_cap_gb_per_s,
                    .started = now(),
                    .sent = kNever,
                    .tail = now(),
                    .bytes = message.bytes,
                    .tag = message.tag,
                    .first_server = servers_on_way_.allocate(servers),
                    .servers = servers,
                    .next = 0,
                    .longest = 0,
                    .limit = kNoLimit};
  std::uint32_t server = parcels_[slot].first_server;
  for (const LinkId link : message.route) {
    const DomainId domain = network_.properties(link).domain;
    if (domain != kNoDomain) servers_on_way_[server++] = network_.resource_of(domain);
    servers_on_way_[server++] = link;
  }
  queue_.push({now(), kHeadArrives, slot});
}

void FifoEngine::handle(const Event& event) {
  if (event.kind == kHeadArrives) {
    serve(event.subject);
  } else {
    deliver(event.subject);
  }
}

void FifoEngine::serve(std::uint32_t slot) {
  Parcel& parcel = parcels_[slot];
  const ResourceId resource = servers_on_way_[parcel.first_server + parcel.next];
  const bool is_link = resource < network_.links();
  const double rate = std::min(network_.capacity_gb_per_s(resource), parcel.rate_cap_gb_per_s);
  const double duration = static_cast<double>(parcel.bytes) / rate * 1e3;
  require_reachable(std::max(now(), servers_[resource].free_at()),
                    transfer_time(static_cast<double>(parcel.bytes), rate), parcel.tag);

  Server& server = servers_[resource];
  if (server.free_at() <= now()) server = {.busy_since = now(), .work = 0};
  const Picoseconds begin = server.free_at();
  server.work =
      std::max(server.work + duration, static_cast<double>(parcel.tail - server.busy_since));
  const Picoseconds end = server.free_at();
  counters_[resource].busy += end - begin;
  counters_[resource].bytes += parcel.bytes;
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
  } else {
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
  servers_on_way_.release(parcel.first_server, parcel.servers);
  free_.push_back(slot);  // the client may start its next message in it
  client_.on_delivered(delivery);
}

Picoseconds FifoEngine::busy_until_now(ResourceId resource) const {
  const Picoseconds ahead = servers_[resource].free_at() - now();
  return counters_[resource].busy - std::max<Picoseconds>(0, ahead);
}

}  // namespace arlab
