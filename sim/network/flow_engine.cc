#include "sim/network/flow_engine.h"

#include <algorithm>

namespace arlab {

FlowEngine::FlowEngine(const Network& network, NetworkClient& client)
    : NetworkEngine(network, client), rates_(network), lanes_(network.resources()) {}

FlowSlot FlowEngine::acquire() {
  if (free_.empty()) {
    rates_.add_slot();
    return static_cast<FlowSlot>(flows_.append());
  }
  const FlowSlot slot = free_.back();
  free_.pop_back();
  // Messages tend to start in bursts; have the slots of the next ones at hand.
  constexpr std::size_t kAhead = 6;
  if (free_.size() > kAhead) {
    const FlowSlot* end = free_.data() + free_.size();
    __builtin_prefetch(&flows_[*(end - kAhead)], 1);
  }
  return slot;
}

// ---------------------------------------------------------------- starts

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
  flow.number = next_number_++ & kNumberMask;
  flow.event_pending = 0;
  if (message.bytes == 0) {
    Picoseconds latency = 0;
    for (const LinkId link : message.route) latency += network_.properties(link).latency;
    mark_sent(slot, latency);
    return;
  }

  rates_.set_cap(slot, message.rate_cap_gb_per_s);
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
  for (const ResourceId resource : path) {
    if (lanes_[resource].alone != 0) end_alone(resource);
  }
  if (path.size() == 1 && lanes_[path[0]].is_busy == 0) {
    lanes_[path[0]].counters.busy -= now();
    go_alone(slot, path[0]);
  } else {
    share(slot, path);
  }
}

void FlowEngine::share(FlowSlot slot, std::span<const ResourceId> path) {
  set_state(flows_[slot], State::sharing);
  rates_.insert(slot, path, [this](ResourceId resource) {
    Lane& lane = lanes_[resource];
    lane.is_busy = 1;
    lane.counters.busy -= now();
  });
}

// ---------------------------------------------------------------- alone on a link

void FlowEngine::go_alone(FlowSlot slot, LinkId link) {
  Flow& flow = flows_[slot];
  const LinkProperties& properties = network_.properties(link);
  change_rate(slot, std::min(rates_.cap_of(slot), properties.bandwidth_gb_per_s), link);
  require_reachable(flow.end, properties.latency, flow.tag);
  set_state(flow, State::alone);
  flow.limit = link;
  lanes_[link].alone = slot + 1;
  // In the instant in which it is sent, not before, it is known what else is delivered in it.
  if (properties.latency == 0 || trace_ != nullptr) queue_.push({flow.end, kSent, slot});
  if (properties.latency > 0) queue_.push({flow.end + properties.latency, kDelivered, slot});
}

void FlowEngine::leave_alone(FlowSlot slot) {
  Flow& flow = flows_[slot];
  const LinkProperties& properties = network_.properties(flow.limit);
  Lane& lane = lanes_[flow.limit];
  lane.alone = 0;
  lane.counters.bytes += flow.bytes;
  lane.counters.busy += flow.end;
  if (flow.gb_per_s < properties.bandwidth_gb_per_s) flow.limit = kNoLimit;  // its cap
  set_state(flow, State::sent);
  flow.since = flow.end + properties.latency;
  if (properties.latency == 0) queue_.push({now(), kDelivered, slot});
  if (trace_ != nullptr) trace_->on_sent(flow.tag, flow.end);
}

void FlowEngine::end_alone(LinkId link) {
  const FlowSlot slot = lanes_[link].alone - 1;
  Flow& flow = flows_[slot];
  if (flow.end <= now() && flow.started < now()) {
    leave_alone(slot);
    return;
  }
  if (flow.started == now()) {  // the two start together: as if there had been no rate yet
    flow.gb_per_s = 0;
    flow.end = kNever;
  }
  flow.event_pending = 0;
  lanes_[link].alone = 0;
  lanes_[link].counters.busy += now();  // share() subtracts it
  share(slot, {&link, 1});
}

// ---------------------------------------------------------------- ends

void FlowEngine::handle(const Event& event) {
  // Since the event was pushed, the rate may have changed or the slot may have a new owner.
  const FlowSlot slot = event.subject;
  Flow& flow = flows_[slot];
  const State state = state_of(flow);
  if (event.kind == kSent) {
    if (flow.end != now() || flow.gb_per_s == 0) return;
    if (state == State::alone) leave_alone(slot);
    if (state == State::sharing) finish_sending(slot);
    return;
  }
  if (state == State::alone) {
    if (flow.end + network_.properties(flow.limit).latency != now()) return;
    leave_alone(slot);
  } else if (state != State::sent || flow.since != now()) {
    return;
  }
  set_state(flow, State::arrived);
  arrived_.push_back(slot);
}

void FlowEngine::finish_sending(FlowSlot slot) {
  Picoseconds latency = 0;
  rates_.remove(slot, [&](ResourceId resource, bool became_idle) {
    if (resource < network_.links()) latency += network_.properties(resource).latency;
    Lane& lane = lanes_[resource];
    lane.counters.bytes += flows_[slot].bytes;
    if (!became_idle) return;
    lane.is_busy = 0;
    lane.counters.busy += now();
  });
  mark_sent(slot, latency);
}

void FlowEngine::mark_sent(FlowSlot slot, Picoseconds latency) {
  Flow& flow = flows_[slot];
  require_reachable(now(), latency, flow.tag);
  set_state(flow, State::sent);
  flow.left = 0;
  flow.gb_per_s = 0;
  flow.end = now();
  flow.since = now() + latency;
  queue_.push({flow.since, kDelivered, slot});
  if (trace_ != nullptr) trace_->on_sent(flow.tag, now());
}

void FlowEngine::prepare(std::span<const Event> events) {
  // What an event leads to is found step by step; each step is taken for all events before the
  // next, so that the memory works on many at a time.
  for (const Event& event : events) {
    if (event.kind != kTimer) __builtin_prefetch(&flows_[event.subject], 1);
  }
  for (const Event& event : events) {
    if (event.kind == kTimer) continue;
    const Flow& flow = flows_[event.subject];
    if (flow.limit != kNoLimit) __builtin_prefetch(&lanes_[flow.limit], 1);
    if (state_of(flow) == State::sharing) rates_.prefetch_flow(event.subject);
  }
}

void FlowEngine::complete_instant() {
  if (!arrived_.empty()) {
    deliver_arrived();
    if (queue_.any_ready()) return;
  }
  solve_changed();
  if (any_rate_set_ && trace_ != nullptr) trace_->on_solved(now());
  any_rate_set_ = false;
}

void FlowEngine::deliver_arrived() {
  // Events were pushed in an order that nobody can foresee; the order of starts is one that
  // everybody can.
  const auto started_before = [this](FlowSlot a, FlowSlot b) {
    const std::uint32_t apart = std::uint32_t{flows_[a].number} - flows_[b].number;
    return (apart & ((kNumberMask + 1) / 2)) != 0;
  };
  if (arrived_.size() > 1 && !std::is_sorted(arrived_.begin(), arrived_.end(), started_before)) {
    std::sort(arrived_.begin(), arrived_.end(), started_before);
  }
  for (const FlowSlot slot : arrived_) deliver(slot);
  arrived_.clear();
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

// ---------------------------------------------------------------- rates

void FlowEngine::solve_changed() {
  while (rates_.next_component()) {
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
      rates_.remove(first, [&](ResourceId link, bool) {
        lanes_[link].is_busy = 0;
        go_alone(first, link);
      });
      continue;
    }
    const std::span<const double> rates = rates_.solve();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      change_rate(slots[i], rates[i], rates_.limit(i));
      if (flows_[slots[i]].end < flows_[first].end) first = slots[i];
    }
    if (flows_[first].event_pending == 0) {
      flows_[first].event_pending = 1;
      queue_.push({flows_[first].end, kSent, first});
    }
  }
}

void FlowEngine::change_rate(FlowSlot slot, double gb_per_s, ResourceId limit) {
  Flow& flow = flows_[slot];
  any_rate_set_ = true;
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

// ---------------------------------------------------------------- usage

NetworkEngine::Counters FlowEngine::counters_until_now(ResourceId resource) const {
  const Lane& lane = lanes_[resource];
  Counters counters = lane.counters;
  if (lane.is_busy != 0) counters.busy += now();
  if (lane.alone != 0) {
    const Flow& flow = flows_[lane.alone - 1];
    counters.busy += std::min(flow.end, now());
    if (flow.end <= now()) counters.bytes += flow.bytes;
  }
  return counters;
}

}  // namespace arlab
