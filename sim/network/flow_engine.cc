#include "sim/network/flow_engine.h"

#include <algorithm>

namespace arlab {

FlowEngine::FlowEngine(const Network& network, NetworkClient& client)
    : NetworkEngine(network, client), rates_(network) {}

FlowSlot FlowEngine::acquire() {
  if (free_.empty()) {
    rates_.add_slot();
    return static_cast<FlowSlot>(flows_.append());
  }
  const FlowSlot slot = free_.back();
  free_.pop_back();
  // Messages tend to start in bursts; have the slots of the next ones at hand.
  constexpr std::size_t kAhead = 6;
  if (free_.size() > 2 * kAhead) {
    const FlowSlot* end = free_.data() + free_.size();
    __builtin_prefetch(&flows_[*(end - 2 * kAhead)]);
    rates_.prefetch_flow(*(end - 2 * kAhead));
    rates_.prefetch_uses(*(end - kAhead));
  }
  return slot;
}

void FlowEngine::start(const Message& message) {
  const FlowSlot slot = acquire();
  Flow& flow = flows_[slot];
  flow.left = static_cast<double>(message.bytes);
  flow.gb_per_s = 0;
  flow.since = now();
  flow.end = kNever;
  flow.started = now();
  flow.bytes = message.bytes;
  flow.tag = message.tag;
  flow.limit = kNoLimit;
  flow.number = next_number_++ & 0x7FFFFFFF;
  flow.event_pending = 0;
  if (message.bytes == 0) {
    Picoseconds latency = 0;
    for (const LinkId link : message.route) latency += network_.properties(link).latency;
    mark_sent(slot, latency);
    return;
  }

  std::span<const ResourceId> path = message.route;
  if (path.size() > 1 || network_.properties(path[0]).domain != kNoDomain) {
    path_.clear();
    for (const LinkId link : message.route) {
      path_.push_back(link);
      const DomainId domain = network_.properties(link).domain;
      if (domain != kNoDomain) path_.push_back(network_.resource_of(domain));
    }
    path = path_;
  }
  rates_.insert(slot, path, message.rate_cap_gb_per_s,
                [this](ResourceId resource) { counters_[resource].busy -= now(); });
}

void FlowEngine::handle(const Event& event) {
  if (event.kind == kDelivered) {
    deliver(event.subject);
    return;
  }
  // Since the event was pushed, the rate may have changed or the slot may have a new owner.
  const Flow& flow = flows_[event.subject];
  if (flow.gb_per_s > 0 && flow.end == now()) finish_sending(event.subject);
}

void FlowEngine::finish_sending(FlowSlot slot) {
  Picoseconds latency = 0;
  rates_.remove(slot, [&](ResourceId resource, bool became_idle) {
    if (resource < network_.links()) latency += network_.properties(resource).latency;
    counters_[resource].bytes += flows_[slot].bytes;
    if (became_idle) counters_[resource].busy += now();
  });
  mark_sent(slot, latency);
}

void FlowEngine::mark_sent(FlowSlot slot, Picoseconds latency) {
  Flow& flow = flows_[slot];
  require_reachable(now(), latency, flow.tag);
  flow.left = 0;
  flow.gb_per_s = 0;
  flow.end = now();
  flow.since = now() + latency;
  sent_.push_back(slot);
}

void FlowEngine::prepare(std::span<const Event> events) {
  // What an event leads to is found step by step; each step is taken for all events before the
  // next, so that the memory works on many at a time.
  for (const Event& event : events) {
    if (event.kind != kTimer) __builtin_prefetch(&flows_[event.subject]);
    if (event.kind == kSent) rates_.prefetch_flow(event.subject);
  }
  for (const Event& event : events) {
    if (event.kind == kSent) rates_.prefetch_uses(event.subject);
  }
  for (const Event& event : events) {
    if (event.kind != kSent) continue;
    __builtin_prefetch(&counters_[rates_.prefetch_first_resource(event.subject)]);
  }
}

void FlowEngine::complete_instant() {
  const bool any_solved = solve_changed();
  // Components were walked in an order that nobody can foresee; the order of starts is one that
  // everybody can.
  const auto started_before = [this](FlowSlot a, FlowSlot b) {
    const std::uint32_t apart = std::uint32_t{flows_[a].number} - flows_[b].number;
    return (apart & 0x40000000) != 0;
  };
  if (sent_.size() > 1 && !std::is_sorted(sent_.begin(), sent_.end(), started_before)) {
    std::sort(sent_.begin(), sent_.end(), started_before);
  }
  for (const FlowSlot slot : sent_) {
    queue_.push({flows_[slot].since, kDelivered, slot});
    if (trace_ != nullptr) trace_->on_sent(flows_[slot].tag, now());
  }
  sent_.clear();
  if (any_solved && trace_ != nullptr) trace_->on_solved(now());
}

bool FlowEngine::solve_changed() {
  bool any_solved = false;
  while (rates_.next_component()) {
    any_solved = true;
    const std::span<const FlowSlot> slots = rates_.flows();
    // Only one message of a component has an event; others may end in the same instant.
    ending_.clear();
    for (const FlowSlot slot : slots) {
      if (flows_[slot].end == now()) ending_.push_back(slot);
    }
    if (!ending_.empty()) {
      rates_.postpone();
      for (const FlowSlot slot : ending_) finish_sending(slot);
      continue;
    }

    FlowSlot first = slots[0];
    if (rates_.is_lone()) {
      change_rate(first, rates_.lone_rate(), rates_.lone_limit());
    } else {
      const std::span<const double> rates = rates_.solve();
      for (std::size_t i = 0; i < slots.size(); ++i) {
        change_rate(slots[i], rates[i], rates_.limit(i));
        if (flows_[slots[i]].end < flows_[first].end) first = slots[i];
      }
    }
    if (flows_[first].event_pending == 0) {
      flows_[first].event_pending = 1;
      queue_.push({flows_[first].end, kSent, first});
    }
  }
  return any_solved;
}

void FlowEngine::change_rate(FlowSlot slot, double gb_per_s, ResourceId limit) {
  Flow& flow = flows_[slot];
  if (gb_per_s == flow.gb_per_s) return;  // keeps its end, to the bit
  // What is left follows from the rate and the whole picoseconds since the last change, not from a
  // rounded end: errors do not add up.
  flow.left = std::max(0.0, flow.left - bytes_in(now() - flow.since, flow.gb_per_s));
  flow.since = now();
  flow.gb_per_s = gb_per_s;
  flow.limit = limit;
  const Picoseconds duration = transfer_time(flow.left, gb_per_s);
  require_reachable(now(), duration, flow.tag);
  flow.end = now() + duration;
  flow.event_pending = 0;
  if (trace_ != nullptr) trace_->on_rate(flow.tag, gb_per_s, now());
}

void FlowEngine::deliver(FlowSlot slot) {
  const Flow& flow = flows_[slot];
  const Delivery delivery{.tag = flow.tag,
                          .bytes = flow.bytes,
                          .started = flow.started,
                          .sent = flow.end,
                          .delivered = now(),
                          .limit = flow.limit};
  free_.push_back(slot);  // the client may start its next message in it
  client_.on_delivered(delivery);
}

}  // namespace arlab
