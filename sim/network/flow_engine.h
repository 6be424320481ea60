// The flow-level engine: messages are fluid, and share what they cross max-min fairly.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/engine.h"
#include "sim/network/growing_array.h"
#include "sim/network/max_min.h"

namespace arlab {

/// A message flows over all links of its route at once (cut-through), at its max-min fair rate over
/// these links, their sharing domains and its cap. It is sent when its last byte has left, and
/// delivered the sum of the latencies later; capacity is taken while it is being sent. An empty
/// message takes no capacity and no time but the latencies. Messages between the same nodes do not
/// queue: they share.
///
/// Rates are solved again once per instant in which messages start or end, in the components of the
/// network that this touches; a message whose rate stays the same keeps its end to the bit. What is
/// simultaneous happens in a fixed order: messages that end together are delivered in the order of
/// their starts if their latencies agree.
class FlowEngine final : public NetworkEngine {
 public:
  FlowEngine(const Network& network, NetworkClient& client);

 private:
  static constexpr std::uint32_t kSent = kFirstOwnKind;  ///< the first of a component is sent
  static constexpr std::uint32_t kDelivered = kFirstOwnKind + 1;

  struct Flow {             // a cache line
    double left = 0;        ///< bytes that had not been sent at `since`
    double gb_per_s = 0;    ///< since then; 0 when not solved yet, or sent
    Picoseconds since = 0;  ///< once sent: when it is delivered
    Picoseconds end = 0;    ///< when the last byte leaves, if the rate stays
    Picoseconds started = 0;
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    ResourceId limit = kNoLimit;          ///< of its last rate
    std::uint32_t number : 31 = 0;        ///< in the order of starts; wraps
    std::uint32_t event_pending : 1 = 0;  ///< a kSent event of time `end` is in the queue
  };
  static_assert(sizeof(Flow) == 64);
  void start(const Message& message) override;
  void handle(const Event& event) override;
  void prepare(std::span<const Event> events) override;
  void complete_instant() override;
  /// A counter has the beginning of a busy span subtracted when it begins, its end added when it
  /// ends.
  Picoseconds busy_until_now(ResourceId resource) const override {
    return counters_[resource].busy + (rates_.users(resource) > 0 ? now() : 0);
  }

  FlowSlot acquire();
  void finish_sending(FlowSlot slot);
  void mark_sent(FlowSlot slot, Picoseconds latency);
  /// Says whether any rate had to be solved for.
  bool solve_changed();
  void change_rate(FlowSlot slot, double gb_per_s, ResourceId limit);
  void deliver(FlowSlot slot);

  MaxMinRates rates_;
  GrowingArray<Flow> flows_;  ///< by slot
  std::vector<FlowSlot> free_;
  std::vector<FlowSlot> sent_;    ///< in this instant, not yet on their way to delivery
  std::vector<FlowSlot> ending_;  ///< scratch
  std::vector<ResourceId> path_;  ///< scratch
  std::uint32_t next_number_ = 0;
};

}  // namespace arlab
