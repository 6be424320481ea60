// The flow-level engine: messages are fluid, and share what they cross max-min fairly.
#pragma once

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
/// A message that is alone on a single link, by far the most frequent, needs no solving, and one
/// event instead of two: its end is known when it starts, and so is its delivery. That it has left
/// the link is noted when it is delivered, or when the next message comes. If one comes earlier,
/// both go to MaxMinRates, and the event means nothing any more when it comes up.
class FlowEngine final : public NetworkEngine {
 public:
  FlowEngine(const Network& network, NetworkClient& client);

 private:
  static constexpr std::uint32_t kNumberBits = 29;
  static constexpr std::uint32_t kNumberMask = (1 << kNumberBits) - 1;
  static constexpr std::uint32_t kSent = kFirstOwnKind;  ///< alone, or the first of a component
  static constexpr std::uint32_t kDelivered = kFirstOwnKind + 1;

  enum class State : std::uint32_t {
    sharing,  ///< in rates_
    alone,    ///< the only message on a single link, which is Flow::limit until it has left
    sent,
    arrived  ///< in arrived_, or its slot is free
  };
  struct Flow {             // a cache line
    double left = 0;        ///< bytes that had not been sent at `since`
    double gb_per_s = 0;    ///< since then; 0 when not solved yet
    Picoseconds since = 0;  ///< once sent: when it is delivered
    Picoseconds end = 0;    ///< when the last byte leaves, if the rate stays
    Picoseconds started = 0;
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    ResourceId limit = kNoLimit;             ///< of its last rate
    std::uint32_t number : kNumberBits = 0;  ///< in the order of starts; wraps
    std::uint32_t state : 2 = 0;             ///< a State
    std::uint32_t event_pending : 1 = 0;     ///< sharing: a kSent event is in the queue
  };
  static_assert(sizeof(Flow) == 64);
  /// What the engine knows of a resource; all zero: nothing yet.
  struct Lane {
    /// The beginning of a busy span is subtracted when it begins, its end added when it ends.
    Counters counters;
    std::uint32_t alone;    ///< 1 + slot of the message in State::alone; 0 for none
    std::uint32_t is_busy;  ///< by messages in rates_
  };

  void start(const Message& message) override;
  void handle(const Event& event) override;
  void prepare(std::span<const Event> events) override;
  void complete_instant() override;
  Counters counters_until_now(ResourceId resource) const override;

  FlowSlot acquire();
  void share(FlowSlot slot, std::span<const ResourceId> path);
  /// Another message comes.
  void end_alone(LinkId link);
  void go_alone(FlowSlot slot, LinkId link);
  /// It has been sent, now or earlier.
  void leave_alone(FlowSlot slot);
  void finish_sending(FlowSlot slot);
  void mark_sent(FlowSlot slot, Picoseconds latency);
  void solve_changed();
  void change_rate(FlowSlot slot, double gb_per_s, ResourceId limit);
  void deliver_arrived();
  void deliver(FlowSlot slot);

  State state_of(const Flow& flow) const { return static_cast<State>(flow.state); }
  void set_state(Flow& flow, State state) { flow.state = static_cast<std::uint32_t>(state) & 3; }

  MaxMinRates rates_;
  ZeroedArray<Lane> lanes_;   ///< by resource
  GrowingArray<Flow> flows_;  ///< by slot
  std::vector<FlowSlot> free_;
  std::vector<FlowSlot> arrived_;  ///< in this instant
  std::vector<FlowSlot> ending_;   ///< scratch
  std::vector<ResourceId> path_;   ///< scratch
  std::uint32_t next_number_ = 0;
  bool any_rate_set_ = false;  ///< since the last on_solved()
};

}  // namespace arlab
