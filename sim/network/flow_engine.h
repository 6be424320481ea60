// The flow-level engine: messages are fluid, and share what they cross max-min fairly.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/network/block_pool.h"
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
/// Unless they are of different turns (Message::turn). A kernel sends in order: what it sends in one
/// step it spreads over its peers, but what it sends in the next leaves after that. So while
/// messages of a turn leave over the first link of their way, those of later turns wait, and take no
/// capacity anywhere. When one of an earlier turn comes, they stop until it has left; a message that
/// comes a picosecond too late thus changes the times of others by a picosecond.
///
/// Rates are solved again once per instant in which messages start or end, where this changes them
/// (max_min.h); a message whose rate stays the same keeps its end to the bit. What is
/// simultaneous happens in a fixed order: timers first, then deliveries in the order of the starts
/// of their messages.
///
/// Where messages start and end one by one, that is too often for large networks. With a quantum, rates
/// are solved for again at most once in such a time: what starts meanwhile begins to flow at its end,
/// and what others leave free stays free until then. Ends are exact at the rates that there are. So
/// no message flows sooner than it may, and rates are those of at most a quantum ago.
///
/// Messages whose route is a single link that only such messages use, by far the most frequent,
/// need no solving: each gets an equal share. And they need one event instead of two: as long as no
/// other comes, it is known when the first of them leaves, and when it is delivered. What has left
/// since is found out when that happens or another comes; events that were pushed before then mean
/// nothing any more when they come up. Where many share the link, or one has a cap, MaxMinRates
/// takes over.
class FlowEngine final : public NetworkEngine {
 public:
  /// `streams`: how many may take turns on a link without regard for each other.
  FlowEngine(const Network& network, NetworkClient& client, std::uint32_t streams = 1);

  /// From now on rates that messages share are solved for again this long after the last time at the
  /// soonest; 0, as at first: at once.
  void set_quantum(Picoseconds quantum) { quantum_ = quantum; }

  /// The bandwidth of a link that is stored by itself is about to change, at this instant.
  void before_change(LinkId link);

  /// Rest of a message that was taken off its way.
  struct Withdrawn {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    Picoseconds started = 0;  ///< when the driver handed it in
    bool has_flowed = false;  ///< has told what Message::tells_flow asks for
  };
  /// Takes all out that has not yet left over the link, in the order in which it was handed in.
  std::vector<Withdrawn> withdraw(LinkId link);

  /// From now on a flow that never ends takes its max-min share, up to a rate. It takes no turns, and
  /// is not counted in bytes of links. Returns what stop_background() wants.
  FlowSlot start_background(std::span<const LinkId> route, double gb_per_s);
  void stop_background(FlowSlot flow);

 private:
  static constexpr std::uint32_t kNumberBits = 28;
  static constexpr std::uint32_t kNumberMask = (1 << kNumberBits) - 1;
  static constexpr std::uint32_t kSent = kFirstOwnKind;  ///< the first of a lane or group
  static constexpr std::uint32_t kDelivered = kFirstOwnKind + 1;
  static constexpr std::uint32_t kSentAlone =
      kFirstOwnKind + 2;  ///< one of a group, before it is solved for again
  static constexpr std::uint32_t kSolve = kFirstOwnKind + 3;  ///< the quantum is over

  enum class State : std::uint32_t {
    sharing,  ///< in rates_
    in_lane,  ///< it is in the lane of the link Flow::limit
    sent,
    arrived,  ///< in arrived_, or its slot is free
    waiting   ///< for its turn
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
    ResourceId limit = kNoLimit;             ///< resource that limited its last rate
    std::uint32_t number : kNumberBits = 0;  ///< in the order of starts; wraps
    std::uint32_t state : 3 = 0;             ///< a State
    std::uint32_t event_pending : 1 = 0;     ///< there is an event for `end`
  };
  static_assert(sizeof(Flow) == 64);
  /// State of a resource in the engine; all zero: nothing yet.
  struct Lane {
    /// The beginning of a busy span is subtracted when it begins, its end added when it ends.
    Counters counters;
    FlowSlot first;  ///< the first flow in the lane
    std::uint32_t users : 30;
    std::uint32_t is_shared : 1;  ///< by messages in rates_; then the lane is empty
    /// Others have waited for their turn: from then on each end has an event of its own.
    std::uint32_t is_awaited : 1;
    // About the messages of one stream that begin with the link:
    std::uint32_t turn;             ///< the turn of those that leave now
    std::uint32_t leaving : 31;     ///< how many they are; 0 between turns
    std::uint32_t any_waiting : 1;  ///< whether some wait for other turns
  };
  static_assert(sizeof(Lane) == 32);
  static constexpr FlowSlot kNobody = 0xFFFFFFFF;
  static constexpr std::uint64_t kBackground = UINT64_MAX;  ///< Flow::bytes
  /// A message that waits for its turn.
  struct Waiting {
    std::uint32_t turn = 0;
    FlowSlot next = kNobody;
    std::uint32_t first_resource = 0;  ///< index in paths_
    std::uint32_t resources = 0;
    Picoseconds way = kTold;  ///< the latency of its way, if it tells_flow and has not yet
  };
  static constexpr Picoseconds kTold = -1;
  /// More go to rates_. That keeps simultaneous starts on one link linear.
  static constexpr std::uint32_t kMostInLane = 8;
  /// The messages in a lane, and how they come to leave it.
  struct LaneMembers {
    struct Member {
      FlowSlot slot;
      Flow* flow;
    };
    std::array<Member, kMostInLane> members;
    std::uint32_t size = 0;
    double bandwidth_gb_per_s = 0;
    double cap_gb_per_s = kNoRateCap;  ///< cap of each message

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
  FlowSlot acquire(std::uint64_t bytes, std::uint64_t tag);
  /// The links of a route with their domains; valid until the next call.
  std::span<const ResourceId> path_of(std::span<const LinkId> route);
  void leave_shared(FlowSlot slot, std::uint64_t bytes);
  static bool is_background(const Flow& flow) { return flow.bytes == kBackground; }
  /// A message's turn has come: it flows from now on.
  void begin(FlowSlot slot, std::span<const ResourceId> path);
  void share(FlowSlot slot, std::span<const ResourceId> path);

  std::uint32_t stream_of(FlowSlot slot) const {
    return slot < streams_.size() ? streams_[slot] : 0;
  }
  /// The index in lanes_ at which messages of a stream that begin with the link take turns.
  std::size_t queue_of(LinkId first_link, std::uint32_t stream) const {
    if (stream == 0) return first_link;
    return network_.resources() + (stream - std::size_t{1}) * network_.links() + first_link;
  }
  void wait(FlowSlot slot, std::span<const ResourceId> path, std::uint32_t turn, std::size_t queue,
            Picoseconds way = kTold);
  /// All messages of a stream that leave over the link wait again.
  void pause(LinkId link, std::uint32_t stream);
  void pause_in_lane(LinkId link, std::uint32_t stream);
  void stop(Flow& flow, double rate);
  /// A message that began with the link has left it.
  void leave_queue(FlowSlot slot, LinkId first_link);
  /// Begins the next turn of every queue that is between turns.
  void take_turns();

  /// Puts it into the link's lane, if it may go there.
  bool enter_lane(FlowSlot slot, LinkId link, const LinkProperties& properties);
  /// The last one of a link in rates_ becomes the first in its lane.
  void return_to_lane(FlowSlot slot, LinkId link);
  /// All messages that are in the lane go to rates_.
  void close_lane(LinkId link);
  LaneMembers crowd_of(LinkId link);
  /// Lets go what has been sent before now; and now, if asked or if its rate was not set now.
  void update_lane(LinkId link, bool and_now = false);
  /// Has an event for the first of a lane to leave it.
  void expect_first(const LaneMembers::Member& first, const LinkProperties& properties);
  void set_lane(LinkId link, const LaneMembers& crowd, const LinkProperties& properties);
  void leave_lane(const LaneMembers::Member& member, const LinkProperties& link, bool capped);
  void change_in_lane(Flow& flow, Picoseconds at, double rate, double new_rate,
                      const LinkProperties& link);
  bool waits_for_sent(LinkId link, const LinkProperties& properties) const;
  /// It has flowed at a rate until `at`, and goes on at another.
  static void flow_on(Flow& flow, Picoseconds at, double rate, double new_rate);

  void finish_group(FlowSlot slot);
  void finish_sending(FlowSlot slot);
  void mark_sent(FlowSlot slot, Picoseconds latency);
  /// When rates that have changed may be solved for again.
  Picoseconds next_solve() const;
  void solve_changed();
  void change_rate(FlowSlot slot, double gb_per_s, ResourceId limit);
  /// A flow that has arrived, with its number, so that sorting need not look at the flows.
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
  void set_state(Flow& flow, State state) { flow.state = static_cast<std::uint32_t>(state) & 7; }

  MaxMinRates rates_;
  ZeroedArray<Lane> lanes_;   ///< by resource; then what queue_of() says
  GrowingArray<Flow> flows_;  ///< by slot
  std::vector<FlowSlot> free_;
  std::vector<Arrived> arrived_;        ///< in this instant
  std::vector<FlowSlot> ending_;        ///< scratch
  std::vector<ResourceId> path_;        ///< scratch
  std::vector<std::uint32_t> streams_;  ///< by slot; empty while all are of the first
  std::unordered_map<FlowSlot, Picoseconds> tree_latencies_;  ///< by message over a tree
  std::vector<Waiting> waiting_;                              ///< by slot; empty until one waits
  std::unordered_map<std::size_t, FlowSlot> lines_;  ///< by queue_of(): the first that waits
  std::vector<std::size_t> between_turns_;           ///< queue_of(): some wait, none leaves
  BlockPool<ResourceId> paths_;                      ///< paths of messages that wait
  std::vector<ResourceId> waiting_path_;             ///< scratch
  std::vector<FlowSlot> pausing_;                    ///< scratch
  std::uint32_t next_number_ = 0;
  bool any_rate_set_ = false;  ///< since the last on_solved()
  Picoseconds quantum_ = 0;
  Picoseconds not_before_ = 0;   ///< rates are solved for again
  Picoseconds called_for_ = -1;  ///< the last kSolve
};

}  // namespace arlab
