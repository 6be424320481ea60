#include "sim/network/flow_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace arlab {
namespace {

std::uint64_t whole_bytes(double bytes) { return static_cast<std::uint64_t>(std::ceil(bytes)); }

}  // namespace

FlowEngine::FlowEngine(const Network& network, NetworkClient& client, std::uint32_t streams)
    : NetworkEngine(network, client),
      rates_(network),
      lanes_(network.resources() + (streams - std::size_t{1}) * network.links()) {}

FlowSlot FlowEngine::acquire() {
  if (free_.empty()) return static_cast<FlowSlot>(flows_.append());
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

FlowSlot FlowEngine::acquire(std::uint64_t bytes, std::uint64_t tag) {
  const FlowSlot slot = acquire();
  Flow& flow = flows_[slot];
  flow.left = static_cast<double>(bytes);
  flow.gb_per_s = 0;
  flow.since = now();
  flow.end = kNever;
  flow.started = now();
  flow.bytes = bytes;
  flow.tag = tag;
  flow.limit = kNoLimit;
  flow.number = next_number_++ & kNumberMask;
  flow.event_pending = 0;
  return slot;
}

std::span<const ResourceId> FlowEngine::path_of(std::span<const LinkId> route) {
  if (route.size() == 1 && network_.properties(route[0]).domain == kNoDomain) return route;
  path_.clear();
  for (const LinkId link : route) {
    path_.push_back(link);
    const DomainId domain = network_.properties(link).domain;
    if (domain != kNoDomain) path_.push_back(network_.resource_of(domain));
  }
  return path_;
}

void FlowEngine::start(const Message& message) {
  const FlowSlot slot = acquire(message.bytes, message.tag);
  Picoseconds way = kTold;
  if (message.bytes == 0 || message.tells_flow) {
    way = 0;
    for (const LinkId link : message.route) way += network_.properties(link).latency;
    if (message.is_tree) way = message.tree_latency;
  }
  if (message.bytes == 0) {
    mark_sent(slot, way);
    if (message.tells_flow) client_.on_flowing(message.tag, now() + way);
    return;
  }
  if (message.is_tree) tree_latencies_[slot] = message.tree_latency;

  rates_.set_cap(slot, message.rate_cap_gb_per_s);
  const std::span<const ResourceId> path = path_of(message.route);
  const LinkId link = path[0];
  if (lanes_[link].users > 0) update_lane(link);
  if (message.stream != 0 && slot >= streams_.size()) streams_.resize(slot + 1);
  if (slot < streams_.size()) streams_[slot] = message.stream;
  const std::size_t number = queue_of(link, message.stream);
  Lane& queue = lanes_[number];
  if (queue.leaving > 0 && message.turn < queue.turn) pause(link, message.stream);
  if (queue.leaving > 0 ? message.turn > queue.turn : queue.any_waiting) {
    wait(slot, path, message.turn, number, way);
    return;
  }
  queue.turn = message.turn;
  ++queue.leaving;
  begin(slot, path);
  if (way != kTold) client_.on_flowing(message.tag, now() + way);
}

void FlowEngine::begin(FlowSlot slot, std::span<const ResourceId> path) {
  if (path.size() == 1 && enter_lane(slot, path[0], network_.properties(path[0]))) return;
  for (const ResourceId resource : path) {
    if (lanes_[resource].users > 0) close_lane(resource);
  }
  share(slot, path);
}

void FlowEngine::share(FlowSlot slot, std::span<const ResourceId> path) {
  set_state(flows_[slot], State::sharing);
  rates_.insert(slot, path, [this](ResourceId resource) {
    Lane& lane = lanes_[resource];
    lane.is_shared = 1;
    lane.counters.busy -= now();
  });
}

// ---------------------------------------------------------------- turns

void FlowEngine::wait(FlowSlot slot, std::span<const ResourceId> path, std::uint32_t turn,
                      std::size_t queue, Picoseconds way) {
  set_state(flows_[slot], State::waiting);
  if (slot >= waiting_.size()) waiting_.resize(flows_.size());
  Waiting& own = waiting_[slot];
  own.turn = turn;
  own.way = way;
  own.resources = static_cast<std::uint32_t>(path.size());
  own.first_resource = paths_.allocate(own.resources);
  for (std::uint32_t i = 0; i < own.resources; ++i) paths_[own.first_resource + i] = path[i];

  FlowSlot* place = &lines_.try_emplace(queue, kNobody).first->second;
  while (*place != kNobody && waiting_[*place].turn <= turn) place = &waiting_[*place].next;
  own.next = *place;
  *place = slot;
  lanes_[queue].any_waiting = 1;

  Lane& lane = lanes_[path[0]];
  if (lane.is_awaited) return;
  lane.is_awaited = 1;
  if (lane.users == 0) return;
  const LaneMembers crowd = crowd_of(path[0]);
  LaneMembers::Member first = crowd.members[0];
  for (const LaneMembers::Member& member : std::span(crowd.members).first(crowd.size)) {
    if (member.flow->end < first.flow->end) first = member;
  }
  queue_.push({first.flow->end, kSent, first.slot});
}

void FlowEngine::pause(LinkId link, std::uint32_t stream) {
  const std::size_t queue = queue_of(link, stream);
  if (!lanes_[link].is_shared) {
    pause_in_lane(link, stream);
  } else {
    pausing_.clear();
    rates_.for_each_that_begins_with(link, [&](FlowSlot slot) {
      if (stream_of(slot) == stream && !is_background(flows_[slot])) pausing_.push_back(slot);
    });
    for (const FlowSlot slot : pausing_) {
      Flow& flow = flows_[slot];
      if (flow.end == now()) {
        finish_sending(slot);
        continue;
      }
      waiting_path_.clear();
      rates_.remove(slot, [&](ResourceId resource, bool became_idle) {
        waiting_path_.push_back(resource);
        if (!became_idle) return;
        lanes_[resource].is_shared = 0;
        lanes_[resource].counters.busy += now();
      });
      stop(flow, flow.gb_per_s);
      wait(slot, waiting_path_, lanes_[queue].turn, queue);
      --lanes_[queue].leaving;
    }
  }
  between_turns_.push_back(queue);
}

void FlowEngine::pause_in_lane(LinkId link, std::uint32_t stream) {
  const std::size_t queue = queue_of(link, stream);
  const LinkProperties& properties = network_.properties(link);
  LaneMembers crowd = crowd_of(link);
  const double rate = crowd.rate();
  pausing_.clear();
  std::uint32_t stay = 0;
  for (std::uint32_t i = 0; i < crowd.size; ++i) {
    const LaneMembers::Member member = crowd.members[i];
    if (stream_of(member.slot) != stream) {
      crowd.members[stay++] = member;
      continue;
    }
    stop(*member.flow, rate);
    pausing_.push_back(member.slot);
  }
  crowd.size = stay;
  if (stay == 0) lanes_[link].counters.busy += now();
  for (std::uint32_t i = 0; i < stay; ++i) {
    change_in_lane(*crowd.members[i].flow, now(), rate, crowd.rate(), properties);
  }
  lanes_[link].is_awaited = 1;
  set_lane(link, crowd, properties);
  for (const FlowSlot slot : pausing_) {
    wait(slot, {&link, 1}, lanes_[queue].turn, queue);
    --lanes_[queue].leaving;
  }
}

void FlowEngine::stop(Flow& flow, double rate) {
  flow.left = std::max(0.0, flow.left - bytes_in(now() - flow.since, rate));
  flow.since = now();
  flow.end = kNever;
  flow.gb_per_s = 0;
  flow.event_pending = 0;
  any_rate_set_ = true;
  if (trace_ != nullptr) trace_->on_rate(flow.tag, 0, now());
}

void FlowEngine::leave_queue(FlowSlot slot, LinkId first_link) {
  const std::size_t index = queue_of(first_link, stream_of(slot));
  Lane& queue = lanes_[index];
  if (--queue.leaving == 0 && queue.any_waiting) between_turns_.push_back(index);
}

void FlowEngine::take_turns() {
  for (std::size_t q = 0; q < between_turns_.size(); ++q) {
    Lane& queue = lanes_[between_turns_[q]];
    if (queue.leaving > 0 || !queue.any_waiting) continue;
    FlowSlot& first = lines_.at(between_turns_[q]);
    queue.turn = waiting_[first].turn;
    while (first != kNobody && waiting_[first].turn == queue.turn) {
      const FlowSlot slot = first;
      Waiting& own = waiting_[slot];
      first = own.next;
      queue.any_waiting = first != kNobody;
      ++queue.leaving;
      flows_[slot].since = now();
      waiting_path_.clear();
      for (std::uint32_t i = 0; i < own.resources; ++i) {
        waiting_path_.push_back(paths_[own.first_resource + i]);
      }
      paths_.release(own.first_resource, own.resources);
      if (lanes_[waiting_path_[0]].users > 0) update_lane(waiting_path_[0]);
      begin(slot, waiting_path_);
      if (const Picoseconds way = std::exchange(own.way, kTold); way != kTold) {
        client_.on_flowing(flows_[slot].tag, now() + way);
      }
    }
  }
  between_turns_.clear();
}

// ---------------------------------------------------------------- lanes

Picoseconds FlowEngine::LaneMembers::first_end() const {
  Picoseconds first = members[0].flow->end;
  for (std::uint32_t i = 1; i < size; ++i) first = std::min(first, members[i].flow->end);
  return first;
}

template <class Left, class Change>
void FlowEngine::LaneMembers::advance(Left left, Change change) {
  const Picoseconds at = first_end();
  const double before = rate();
  std::uint32_t stay = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (members[i].flow->end == at) {
      left(members[i]);
    } else {
      members[stay++] = members[i];
    }
  }
  size = stay;
  for (std::uint32_t i = 0; i < size; ++i) change(*members[i].flow, at, before, rate());
}

FlowEngine::LaneMembers FlowEngine::crowd_of(LinkId link) {
  const Lane& lane = lanes_[link];
  LaneMembers crowd;
  crowd.bandwidth_gb_per_s = network_.properties(link).bandwidth_gb_per_s;
  for (FlowSlot slot = lane.first; crowd.size < lane.users;) {
    Flow& flow = flows_[slot];
    crowd.members[crowd.size++] = {slot, &flow};
    slot = flow.next_in_lane;
  }
  if (crowd.size == 1) crowd.cap_gb_per_s = rates_.cap_of(lane.first);
  return crowd;
}

bool FlowEngine::enter_lane(FlowSlot slot, LinkId link, const LinkProperties& properties) {
  Lane& lane = lanes_[link];
  if (lane.is_shared) return false;
  if (lane.users == 0) {
    lane.counters.busy -= now();
    lane.users = 1;
    lane.first = slot;
    Flow& flow = flows_[slot];
    set_state(flow, State::in_lane);
    flow.limit = link;
    const double rate = std::min(rates_.cap_of(slot), properties.bandwidth_gb_per_s);
    change_in_lane(flow, now(), 0, rate, properties);
    expect_first({slot, &flow}, properties);
    return true;
  }
  LaneMembers crowd = crowd_of(link);
  const bool any_cap = rates_.cap_of(slot) != kNoRateCap || crowd.cap_gb_per_s != kNoRateCap;
  if (any_cap || crowd.size == kMostInLane) return false;
  const double rate = crowd.rate();
  Flow& flow = flows_[slot];
  set_state(flow, State::in_lane);
  flow.limit = link;
  crowd.members[crowd.size++] = {slot, &flow};
  const double new_rate = crowd.rate();
  for (std::uint32_t i = 0; i < crowd.size; ++i) {
    change_in_lane(*crowd.members[i].flow, now(), rate, new_rate, properties);
  }
  set_lane(link, crowd, properties);
  return true;
}

void FlowEngine::update_lane(LinkId link, bool and_now) {
  Lane& lane = lanes_[link];
  const auto is_over = [&](const Flow& flow, Picoseconds end) {
    return end < now() || (end == now() && (and_now || flow.since < now()));
  };
  const LinkProperties& properties = network_.properties(link);
  if (lane.users == 1) {
    Flow& flow = flows_[lane.first];
    if (!is_over(flow, flow.end)) return;
    lane.users = 0;
    lane.counters.busy += flow.end;
    const bool capped = rates_.cap_of(lane.first) < properties.bandwidth_gb_per_s;
    leave_lane({lane.first, &flow}, properties, capped);
    return;
  }
  LaneMembers crowd = crowd_of(link);
  const std::uint32_t before = crowd.size;
  while (crowd.size > 0) {
    const Picoseconds end = crowd.first_end();
    if (!is_over(*crowd.members[0].flow, end)) break;
    crowd.advance([&](const LaneMembers::Member& member) { leave_lane(member, properties, false); },
                  [&](Flow& flow, Picoseconds at, double rate, double new_rate) {
                    change_in_lane(flow, at, rate, new_rate, properties);
                  });
    if (crowd.size == 0) lane.counters.busy += end;
  }
  if (crowd.size < before) set_lane(link, crowd, properties);
}

/// Until the trace has been told, or when nothing lies between being sent and being delivered, or
/// others wait for their turn, the event is that the first is sent.
bool FlowEngine::waits_for_sent(LinkId link, const LinkProperties& properties) const {
  return properties.latency == 0 || trace_ != nullptr || lanes_[link].is_awaited;
}

void FlowEngine::set_lane(LinkId link, const LaneMembers& crowd, const LinkProperties& properties) {
  Lane& lane = lanes_[link];
  lane.users = crowd.size & 0x3FFFFFFF;
  if (crowd.size == 0) return;
  lane.first = crowd.members[0].slot;
  LaneMembers::Member first = crowd.members[0];
  for (std::uint32_t i = 1; i < crowd.size; ++i) {
    crowd.members[i - 1].flow->next_in_lane = crowd.members[i].slot;
    if (crowd.members[i].flow->end < first.flow->end) first = crowd.members[i];
  }
  expect_first(first, properties);
}

void FlowEngine::expect_first(const LaneMembers::Member& first, const LinkProperties& properties) {
  if (first.flow->event_pending) return;
  first.flow->event_pending = 1;
  if (waits_for_sent(first.flow->limit, properties)) {
    queue_.push({first.flow->end, kSent, first.slot});
  } else {
    queue_.push({first.flow->end + properties.latency, kDelivered, first.slot});
  }
}

void FlowEngine::flow_on(Flow& flow, Picoseconds at, double rate, double new_rate) {
  // The rest follows from the rate and the whole picoseconds since the last change, not from a rounded end: errors do not add
  // up.
  flow.left = std::max(0.0, flow.left - bytes_in(at - flow.since, rate));
  flow.since = at;
  flow.end = at + std::min(transfer_time(flow.left, new_rate), kNever - at);
}

void FlowEngine::change_in_lane(Flow& flow, Picoseconds at, double rate, double new_rate,
                                const LinkProperties& link) {
  flow_on(flow, at, rate, new_rate);
  require_reachable(flow.end, link.latency, flow.tag);
  flow.event_pending = 0;
  any_rate_set_ = true;
  if (trace_ != nullptr) trace_->on_rate(flow.tag, new_rate, at);
}

void FlowEngine::leave_lane(const LaneMembers::Member& member, const LinkProperties& link,
                            bool capped) {
  Flow& flow = *member.flow;
  const LinkId id = flow.limit;
  add_bytes(lanes_[id].counters, flow.bytes);
  if (capped) flow.limit = kNoLimit;
  set_state(flow, State::sent);
  flow.since = flow.end + link.latency;
  if (!flow.event_pending || waits_for_sent(id, link)) {
    queue_.push({flow.since, kDelivered, member.slot});
  }
  leave_queue(member.slot, id);
  if (trace_ != nullptr) trace_->on_sent(flow.tag, flow.end);
}

void FlowEngine::close_lane(LinkId link) {
  update_lane(link);
  Lane& lane = lanes_[link];
  if (lane.users == 0) return;
  const LaneMembers crowd = crowd_of(link);
  lane.users = 0;
  lane.counters.busy += now();  // share() subtracts it
  for (std::uint32_t i = 0; i < crowd.size; ++i) {
    Flow& flow = *crowd.members[i].flow;
    flow.gb_per_s = crowd.rate();
    flow.event_pending = 0;
    if (flow.started == now()) {  // together with another: as if there had been no rate yet
      flow.gb_per_s = 0;
      flow.end = kNever;
    } else if (quantum_ > 0 && flow.end <= next_solve()) {
      queue_.push({flow.end, kSentAlone, crowd.members[i].slot});
    }
    share(crowd.members[i].slot, {&link, 1});
  }
}

void FlowEngine::return_to_lane(FlowSlot slot, LinkId link) {
  const LinkProperties& properties = network_.properties(link);
  Flow& flow = flows_[slot];
  LaneMembers crowd;
  crowd.members[crowd.size++] = {slot, &flow};
  change_rate(slot, std::min(rates_.cap_of(slot), properties.bandwidth_gb_per_s), link);
  require_reachable(flow.end, properties.latency, flow.tag);
  set_state(flow, State::in_lane);
  flow.limit = link;
  flow.event_pending = 0;
  set_lane(link, crowd, properties);
}

// ---------------------------------------------------------------- ends

void FlowEngine::handle(const Event& event) {
  if (event.kind == kSolve) return;  // complete_instant() does it
  // Since the event was pushed, the rate may have changed or the slot may have a new owner.
  const FlowSlot slot = event.subject;
  Flow& flow = flows_[slot];
  if (event.kind == kSent || event.kind == kSentAlone) {
    if (flow.end != now()) return;
    if (state_of(flow) == State::in_lane) {
      update_lane(flow.limit, true);
    } else if (state_of(flow) == State::sharing && flow.gb_per_s > 0) {
      if (event.kind == kSent) {
        finish_group(slot);
      } else {
        finish_sending(slot);
      }
    }
    return;
  }
  if (state_of(flow) == State::in_lane) {
    if (flow.end + network_.properties(flow.limit).latency != now()) return;
    update_lane(flow.limit);
  }
  if (state_of(flow) != State::sent || flow.since != now()) return;
  set_state(flow, State::arrived);
  reserve_for_all(arrived_);
  arrived_.push_back({slot, flow.number});
}

/// Only one message of a group has an event; others may end in the same instant, or before rates are
/// solved for again.
void FlowEngine::finish_group(FlowSlot slot) {
  ending_.assign(1, slot);
  if (const ResourceId limit = rates_.limit_of(slot); limit != kNoLimit) {
    const Picoseconds until = next_solve();
    rates_.for_each_limited_by(limit, [&](FlowSlot other) {
      const Flow& flow = flows_[other];
      if (flow.end == now()) ending_.push_back(other);
      if (flow.end > now() && flow.end <= until) queue_.push({flow.end, kSentAlone, other});
    });
  }
  for (const FlowSlot ending : ending_) {
    if (state_of(flows_[ending]) == State::sharing) finish_sending(ending);
  }
}

void FlowEngine::finish_sending(FlowSlot slot) {
  Picoseconds latency = 0;
  LinkId first_link = kNoLimit;
  rates_.remove(slot, [&](ResourceId resource, bool became_idle) {
    if (first_link == kNoLimit) first_link = resource;
    if (resource < network_.links()) latency += network_.properties(resource).latency;
    Lane& lane = lanes_[resource];
    add_bytes(lane.counters, flows_[slot].bytes);
    if (!became_idle) return;
    lane.is_shared = 0;
    lane.counters.busy += now();
  });
  if (!tree_latencies_.empty()) {
    const auto tree = tree_latencies_.find(slot);
    if (tree != tree_latencies_.end()) {
      latency = tree->second;
      tree_latencies_.erase(tree);
    }
  }
  mark_sent(slot, latency);
  leave_queue(slot, first_link);
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
  // Consequences of an event are found step by step; each step is taken for all events before the next, so that many memory
  // accesses overlap.
  for (const Event& event : events) {
    if (event.kind != kTimer) __builtin_prefetch(&flows_[event.subject], 1);
  }
  for (const Event& event : events) {
    if (event.kind == kTimer) continue;
    const Flow& flow = flows_[event.subject];
    __builtin_prefetch(&lanes_[flow.limit == kNoLimit ? 0 : flow.limit], 1);
    if (state_of(flow) == State::sharing) rates_.prefetch_flow(event.subject);
  }
}

void FlowEngine::complete_instant() {
  if (!arrived_.empty()) {
    if (arrived_.size() == 1) {
      const FlowSlot slot = arrived_[0].slot;
      arrived_.clear();
      deliver(slot);
    } else {
      deliver_arrived();
    }
    if (queue_.any_ready()) return;
  }
  take_turns();
  if (rates_.any_changed()) {
    if (const Picoseconds at = next_solve(); at == now()) {
      solve_changed();
    } else if (called_for_ != at) {
      called_for_ = at;
      queue_.push({at, kSolve, 0});
    }
  }
  if (any_rate_set_ && trace_ != nullptr) trace_->on_solved(now());
  any_rate_set_ = false;
}

void FlowEngine::deliver_arrived() {
  // Events were pushed in an unpredictable order; the order of starts is predictable. Around a ring
  // with one late rank, arrivals are two sorted runs.
  const auto started_before = [](const Arrived& a, const Arrived& b) {
    const std::uint32_t apart = a.number - b.number;
    return (apart & ((kNumberMask + 1) / 2)) != 0;
  };
  const auto second = std::is_sorted_until(arrived_.begin(), arrived_.end(), started_before);
  if (std::is_sorted(second, arrived_.end(), started_before)) {
    std::inplace_merge(arrived_.begin(), second, arrived_.end(), started_before);
  } else {
    std::sort(arrived_.begin(), arrived_.end(), started_before);
  }
  for (const Arrived& arrived : arrived_) deliver(arrived.slot);
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
  reserve_for_all(free_);
  free_.push_back(slot);  // the client may start its next message in it
  client_.on_delivered(delivery);
}

// ---------------------------------------------------------------- rates

Picoseconds FlowEngine::next_solve() const { return std::max(now(), not_before_); }

void FlowEngine::solve_changed() {
  rates_.take_lone([this](FlowSlot slot, ResourceId link) {
    if (is_background(flows_[slot])) return;
    rates_.remove(slot, [&](ResourceId, bool) { lanes_[link].is_shared = 0; });
    return_to_lane(slot, link);
  });
  rates_.solve();
  solved_ = rates_.work();
  not_before_ = now() + quantum_;
  for (std::size_t g = 0; g < rates_.changed_groups(); ++g) {
    const MaxMinRates::Group group = rates_.changed_group(g);
    FlowSlot first = group.flows[0];
    for (std::size_t i = 0; i < group.flows.size(); ++i) {
      constexpr std::size_t kAhead = 8;
      if (i + kAhead < group.flows.size()) __builtin_prefetch(&flows_[group.flows[i + kAhead]], 1);
      const FlowSlot slot = group.flows[i];
      change_rate(slot, group.gb_per_s, group.limit);
      if (flows_[slot].end < flows_[first].end) first = slot;
    }
    if (flows_[first].event_pending == 0 && !is_background(flows_[first])) {
      flows_[first].event_pending = 1;
      queue_.push({flows_[first].end, kSent, first});
    }
  }
}

void FlowEngine::change_rate(FlowSlot slot, double gb_per_s, ResourceId limit) {
  Flow& flow = flows_[slot];
  any_rate_set_ = true;
  if (is_background(flow)) return;
  flow.end = std::max(flow.end, now());   // in a quantum it may have been missed
  if (gb_per_s == flow.gb_per_s) return;  // keeps its end, to the bit
  flow_on(flow, now(), flow.gb_per_s, gb_per_s);
  require_reachable(flow.end, 0, flow.tag);
  flow.gb_per_s = gb_per_s;
  flow.limit = limit;
  flow.event_pending = 0;
  if (trace_ != nullptr) trace_->on_rate(flow.tag, gb_per_s, now());
}

// ---------------------------------------------------------------- what others do to links

void FlowEngine::before_change(LinkId link) {
  not_before_ = now();
  if (lanes_[link].users > 0) close_lane(link);
  if (rates_.users(link) > 0) rates_.mark_changed(link);
}

/// It has taken so many bytes over all of its links.
void FlowEngine::leave_shared(FlowSlot slot, std::uint64_t bytes) {
  rates_.remove(slot, [&](ResourceId resource, bool became_idle) {
    Lane& lane = lanes_[resource];
    add_bytes(lane.counters, bytes);
    if (!became_idle) return;
    lane.is_shared = 0;
    lane.counters.busy += now();
  });
  set_state(flows_[slot], State::arrived);
}

std::vector<FlowEngine::Withdrawn> FlowEngine::withdraw(LinkId link) {
  if (lanes_[link].users > 0) close_lane(link);
  std::vector<std::pair<FlowSlot, LinkId>> out;  // with the first links of those that had a turn
  rates_.for_each_user(link, [&](FlowSlot slot) {
    if (out.empty() || out.back().first != slot) out.emplace_back(slot, rates_.first_of(slot));
  });
  std::vector<FlowSlot> taken;
  for (const auto& [slot, first_link] : out) {
    Flow& flow = flows_[slot];
    if (state_of(flow) != State::sharing) continue;  // it uses the link twice
    if (is_background(flow)) {
      leave_shared(slot, 0);
    } else if (flow.end == now()) {
      finish_sending(slot);
    } else {
      stop(flow, flow.gb_per_s);
      leave_shared(slot, flow.bytes - std::min(flow.bytes, whole_bytes(flow.left)));
      leave_queue(slot, first_link);
      taken.push_back(slot);
    }
  }
  for (auto& [queue, first] : lines_) {
    for (FlowSlot* place = &first; *place != kNobody;) {
      const FlowSlot slot = *place;
      const Waiting& own = waiting_[slot];
      bool crosses = false;
      for (std::uint32_t i = 0; i < own.resources; ++i) {
        crosses = crosses || paths_[own.first_resource + i] == link;
      }
      if (!crosses) {
        place = &waiting_[slot].next;
        continue;
      }
      *place = own.next;
      paths_.release(own.first_resource, own.resources);
      set_state(flows_[slot], State::arrived);
      taken.push_back(slot);
    }
    lanes_[queue].any_waiting = first != kNobody;
  }
  std::sort(taken.begin(), taken.end(), [this](FlowSlot a, FlowSlot b) {
    return std::pair(flows_[a].started, flows_[a].tag) <
           std::pair(flows_[b].started, flows_[b].tag);
  });
  std::vector<Withdrawn> list;
  for (const FlowSlot slot : taken) {
    const Flow& flow = flows_[slot];
    const bool has_flowed =
        slot >= waiting_.size() || std::exchange(waiting_[slot].way, kTold) == kTold;
    list.push_back(
        {flow.tag, std::max<std::uint64_t>(1, whole_bytes(flow.left)), flow.started, has_flowed});
    free_.push_back(slot);
  }
  return list;
}

FlowSlot FlowEngine::start_background(std::span<const LinkId> route, double gb_per_s) {
  network_.require_path(route);
  const FlowSlot slot = acquire(kBackground, 0);
  rates_.set_cap(slot, gb_per_s);
  if (slot < streams_.size()) streams_[slot] = 0;
  const std::span<const ResourceId> path = path_of(route);
  for (const ResourceId resource : path) {
    if (lanes_[resource].users > 0) close_lane(resource);
  }
  share(slot, path);
  return slot;
}

void FlowEngine::stop_background(FlowSlot slot) {
  if (state_of(flows_[slot]) == State::sharing) leave_shared(slot, 0);
  free_.push_back(slot);
}

// ---------------------------------------------------------------- usage

NetworkEngine::Counters FlowEngine::counters_until_now(ResourceId resource) const {
  const Lane& lane = lanes_[resource];
  Counters counters = lane.counters;
  if (lane.is_shared) counters.busy += now();
  if (lane.users == 0) return counters;
  // As update_lane() will find it, on a copy.
  std::array<Flow, kMostInLane> flows;
  LaneMembers crowd;
  crowd.bandwidth_gb_per_s = network_.capacity_gb_per_s(resource);
  if (lane.users == 1) crowd.cap_gb_per_s = rates_.cap_of(lane.first);
  for (FlowSlot slot = lane.first; crowd.size < lane.users; ++crowd.size) {
    Flow& flow = flows[crowd.size];
    flow = flows_[slot];
    crowd.members[crowd.size] = {slot, &flow};
    slot = flow.next_in_lane;
  }
  while (crowd.size > 0 && crowd.first_end() <= now()) {
    const Picoseconds end = crowd.first_end();
    crowd.advance(
        [&](const LaneMembers::Member& member) { add_bytes(counters, member.flow->bytes); },
        flow_on);
    if (crowd.size == 0) counters.busy += end;
  }
  if (crowd.size > 0) counters.busy += now();
  return counters;
}

}  // namespace arlab
