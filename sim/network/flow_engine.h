// The flow-level engine: messages are fluid, and share what they cross max-min fairly.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/engine.h"
#include "sim/network/growing_array.h"
#include "sim/network/max_min.h"
#include "sim/network/zeroed_array.h"

namespace arlab {

/// A message flows over all links of its route at once (cut-through), at its max-min fair rate over
/// these links, their sharing domains and its cap. It is sent when its last byte has left, and
/// delivered the sum of the latencies later; capacity is taken while it is being sent. An empty
/// message takes no capacity and no time but the latencies. Messages between the same nodes do not
/// queue: they share.
///
/// Rates are solved again once per instant in which messages start or end, in the components of the
/// network that this touches; a message whose rate stays the same keeps its end to the bit. What is
/// simultaneous happens in a fixed order: timers first, then deliveries in the order of the starts
/// of their messages.
///
/// Messages whose route is a single link that only such messages use, by far the most frequent,
/// need no solving: each gets an equal share. And they need one event instead of two: as long as no
/// other comes, it is known when the first of them leaves, and when it is delivered. What has left
/// since is found out when that happens or another comes; events that were pushed before then mean
/// nothing any more when they come up. Where many share the link, or one has a cap, MaxMinRates
/// takes over.
class FlowEngine final : public NetworkEngine {
 public:
  FlowEngine(const Network& network, NetworkClient& client);

 private:
  static constexpr std::uint32_t kNumberBits = 29;
  static constexpr std::uint32_t kNumberMask = (1 << kNumberBits) - 1;
  static constexpr std::uint32_t kSent = kFirstOwnKind;  ///< the first of a lane or component
  static constexpr std::uint32_t kDelivered = kFirstOwnKind + 1;

  enum class State : std::uint32_t {
    sharing,  ///< in rates_
    in_lane,  ///< of the link Flow::limit
    sent,
    arrived  ///< in arrived_, or its slot is free
  };
  struct Flow {       // a cache line
    double left = 0;  ///< bytes that had not been sent at `since`
    union {
      double gb_per_s = 0;    ///< sharing: since then; 0 when not solved yet
      FlowSlot next_in_lane;  ///< in_lane: the one after it
    };
    Picoseconds since = 0;  ///< once sent: when it is delivered
    Picoseconds end = 0;    ///< when the last byte leaves, if the rate stays
    Picoseconds started = 0;
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    ResourceId limit = kNoLimit;             ///< of its last rate
    std::uint32_t number : kNumberBits = 0;  ///< in the order of starts; wraps
    std::uint32_t state : 2 = 0;             ///< a State
    std::uint32_t event_pending : 1 = 0;     ///< there is an event for `end`
  };
  static_assert(sizeof(Flow) == 64);
  /// What the engine knows of a resource; all zero: nothing yet.
  struct Lane {
    /// The beginning of a busy span is subtracted when it begins, its end added when it ends.
    Counters counters;
    FlowSlot first;  ///< of those in the lane
    std::uint32_t users : 31;
    std::uint32_t is_shared : 1;  ///< by messages in rates_; then nobody is in the lane
  };
  /// More go to rates_. That keeps simultaneous starts on one link linear.
  static constexpr std::uint32_t kMostInLane = 8;
  /// The messages in a lane, and how they come to leave it.
  struct Crowd {
    struct Member {
      FlowSlot slot;
      Flow* flow;
    };
    std::array<Member, kMostInLane> members;
    std::uint32_t size = 0;
    double bandwidth_gb_per_s = 0;
    double cap_gb_per_s = kNoRateCap;  ///< of a single one

    double rate() const { return std::min(cap_gb_per_s, bandwidth_gb_per_s / size); }
    Picoseconds first_end() const;
    /// Takes the first to end out, and those that end with it. Calls left(member) for them and
    /// change(flow, now, rate before, rate) for the others.
    template <class Left, class Change>
    void advance(Left left, Change change);
  };

  void start(const Message& message) override;
  void handle(const Event& event) override;
  void prepare(std::span<const Event> events) override;
  void complete_instant() override;
  Counters counters_until_now(ResourceId resource) const override;

  FlowSlot acquire();
  void share(FlowSlot slot, std::span<const ResourceId> path);

  /// Puts it into the link's lane, if it may go there.
  bool enter_lane(FlowSlot slot, LinkId link, const LinkProperties& properties);
  /// The last one of a link in rates_ becomes the first in its lane.
  void return_to_lane(FlowSlot slot, LinkId link);
  /// All that are in the lane go to rates_.
  void close_lane(LinkId link);
  Crowd crowd_of(LinkId link);
  /// Lets go what has been sent before now; and now, if asked or if its rate was not set now.
  void update_lane(LinkId link, bool and_now = false);
  /// Has an event for the first of a lane to leave it.
  void expect_first(const Crowd::Member& first, const LinkProperties& properties);
  void set_lane(LinkId link, const Crowd& crowd, const LinkProperties& properties);
  void leave_lane(const Crowd::Member& member, const LinkProperties& link, bool capped);
  void change_in_lane(Flow& flow, Picoseconds at, double rate, double new_rate,
                      const LinkProperties& link);
  bool waits_for_sent(const LinkProperties& link) const;
  /// It has flowed at a rate until `at`, and goes on at another.
  static void flow_on(Flow& flow, Picoseconds at, double rate, double new_rate);

  void finish_sending(FlowSlot slot);
  void mark_sent(FlowSlot slot, Picoseconds latency);
  void solve_changed();
  void change_rate(FlowSlot slot, double gb_per_s, ResourceId limit);
  /// With its number, so that sorting need not look at the flows.
  struct Arrived {
    FlowSlot slot;
    std::uint32_t number;
  };
  void deliver_arrived();
  void deliver(FlowSlot slot);

  /// At most all messages that there ever were at a time go into a list; a million of them are not
  /// copied again and again while it grows.
  template <class Item>
  void reserve_for_all(std::vector<Item>& list) const {
    if (list.size() == list.capacity()) list.reserve(flows_.size());
  }

  State state_of(const Flow& flow) const { return static_cast<State>(flow.state); }
  void set_state(Flow& flow, State state) { flow.state = static_cast<std::uint32_t>(state) & 3; }

  MaxMinRates rates_;
  ZeroedArray<Lane> lanes_;   ///< by resource
  GrowingArray<Flow> flows_;  ///< by slot
  std::vector<FlowSlot> free_;
  std::vector<Arrived> arrived_;  ///< in this instant
  std::vector<FlowSlot> ending_;  ///< scratch
  std::vector<ResourceId> path_;  ///< scratch
  std::uint32_t next_number_ = 0;
  bool any_rate_set_ = false;  ///< since the last on_solved()
};

}  // namespace arlab
