// Max-min fair rates of flows over shared resources, kept up to date as flows come and go.
//
// A rate vector is max-min fair when no flow's rate can grow without taking from a flow that has
// no more than it. Equivalently: it exceeds no capacity, and every flow runs at its own cap or has
// a bottleneck, a resource that is full and on which no flow is faster. It exists, is unique, and
// progressive filling finds it:
//
//   all rates rise together from zero;
//   when a resource r is full, at the level  (capacity - rates of r's settled flows)
//                                            ------------------------------------ ,
//                                                   number of r's other flows
//   its other flows settle at that level; when the level reaches a flow's cap, that flow settles.
//
// Of thousands of flows that hang together, one that comes or goes changes the rates of few. So what
// is kept is solved again from where it changes: filling up from zero, all is as before until the
// level at which a resource that flows have come to or left fills anew. From there on
//
//   a resource that now fills at a higher level than before lets go the flows that it limited, which
//   may change all other resources on their way, at this level or above;
//   one that fills at a lower level than before limits all of its flows that were faster, which
//   leaves more of the other resources on their way, above this level;
//   all that is on none of these ways keeps its rate, to the bit.
//
// The next resource to fill comes from a heap whose keys may be too low, never too high, and are put
// right when they come up. A flow's rate on a resource is counted in exact integers: no rounding adds up, and the order in
// which flows come, go and settle leaves no trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sim/network/block_pool.h"
#include "sim/network/growing_array.h"
#include "sim/network/network.h"
#include "sim/network/zeroed_array.h"

namespace arlab {

/// A flow's place in its engine's table; used again when the flow is gone.
using FlowSlot = std::uint32_t;

inline constexpr double kNoRateCap = std::numeric_limits<double>::infinity();
/// Limit of a message that no resource limits.
inline constexpr ResourceId kNoLimit = 0xFFFFFFFF;

/// Sums of rates, in units of 2^-90 GB/s.
// NOLINTNEXTLINE(modernize-use-using): keeps __extension__
__extension__ typedef __int128 ExactRate;

class MaxMinRates {
 public:
  explicit MaxMinRates(const Network& network);

  /// Puts a flow over at least one resource into a free slot; one that occurs twice is used twice.
  /// Calls became_busy(resource) for those that had no flow.
  template <class BecameBusy>
  void insert(FlowSlot flow, std::span<const ResourceId> resources, BecameBusy became_busy);
  /// Calls visit(resource, became_idle) for every use, in the order of insert().
  template <class Visit>
  void remove(FlowSlot flow, Visit visit);
  /// Caps the rate of a slot's next flow; called before insert(), with more than 0.
  void set_cap(FlowSlot flow, double gb_per_s) {
    if (gb_per_s != kNoRateCap && flow >= caps_.size()) caps_.resize(flow + 1, kNoRateCap);
    if (flow < caps_.size()) caps_[flow] = gb_per_s;
  }
  double cap_of(FlowSlot flow) const { return flow < caps_.size() ? caps_[flow] : kNoRateCap; }
  /// Calls visit(flow) for the flows whose first resource it is.
  template <class Visit>
  void for_each_that_begins_with(ResourceId resource, Visit visit) const {
    for (const User& user : users_of(resource)) {
      if (flows_[user.flow].first_use == user.use) visit(user.flow);
    }
  }
  /// Calls visit(flow) for every use of the resource.
  template <class Visit>
  void for_each_user(ResourceId resource, Visit visit) const {
    for (const User& user : users_of(resource)) visit(user.flow);
  }
  /// How many uses by flows a resource has.
  std::uint32_t users(ResourceId resource) const { return resources_[resource].users; }

  /// To be called when a resource's capacity may have changed.
  void mark_changed(ResourceId resource) {
    if (resources_[resource].changed) return;
    resources_[resource].changed = true;
    changed_.push_back(resource);
  }

  /// Whether flows may have come or gone since rates were solved for.
  bool any_changed() const { return !changed_.empty(); }
  /// Calls visit(flow, resource) for flows that have become alone on their only resource; it removes
  /// them.
  template <class Visit>
  void take_lone(Visit visit);
  /// Brings all rates up to date. What one and the same resource limits, and a flow that its cap
  /// limits, are a group. changed_groups() then has all groups in which a rate may have changed, or
  /// that a flow has joined or left.
  void solve();
  struct Group {
    ResourceId limit = 0;  ///< the full resource; kNoLimit: the cap
    double gb_per_s = 0;
    std::span<const FlowSlot> flows;  ///< not empty
  };
  std::size_t changed_groups() const { return groups_.size(); }
  Group changed_group(std::size_t i) const {
    const Members& members = groups_[i];
    return {members.limit, members.gb_per_s,
            std::span(flows_in_groups_).subspan(members.first, members.count)};
  }
  /// Returns the cost of all solving so far: uses of resources by flows that were examined or changed.
  std::uint64_t work() const { return work_; }

  /// The first of the resources of a flow, as insert() had them.
  ResourceId first_of(FlowSlot flow) const { return uses_[flows_[flow].first_use].resource; }
  /// Returns the limiting resource of a solved flow.
  ResourceId limit_of(FlowSlot flow) const { return flows_[flow].limit; }
  /// Calls visit(flow) for what the resource limits; twice for a flow that uses it twice.
  template <class Visit>
  void for_each_limited_by(ResourceId resource, Visit visit) const {
    for (const User& user : own_users_of(resource)) visit(user.flow);
  }

  /// Asks the processor for what remove() will read.
  void prefetch_flow(FlowSlot flow) const { __builtin_prefetch(&flows_[flow]); }

 private:
  /// One use of a resource by a flow.
  struct Use {
    ResourceId resource;
    std::uint32_t place;  ///< in the resource's list
  };
  /// The same in the list of the resource. Lists lie in one piece: they are read far more often than
  /// they change.
  struct User {
    FlowSlot flow;
    std::uint32_t use;
  };
  struct FlowUses {
    std::uint32_t first_use = 0;
    std::uint32_t uses = 0;       ///< 0: not there
    std::uint32_t room = 0;       ///< for uses at first_use; stays with the slot
    ResourceId limit = kNoLimit;  ///< resource that limits its rate, or did before it began to rise
    double gb_per_s = 0;          ///< 0: it rises
  };
  /// All zero: not used yet.
  struct ResourceUses {
    ExactRate elsewhere;    ///< rates of those of its users that something else limits
    double level;           ///< GB/s; of those that it limits
    double most_elsewhere;  ///< GB/s; no flow that something else limits has more
    std::uint32_t users;
    std::uint32_t rising;      ///< uses by flows that rise
    std::uint32_t limits;      ///< uses by flows that it limits
    std::uint32_t first_user;  ///< index in users_; has `room` for them
    std::uint32_t room;
    std::uint32_t own;  ///< so many come first that it limits, or did before they began to rise

    // While rates are being solved for:
    double key;           ///< key of that entry in the heap which counts
    double floor;         ///< if above 0, it does not fill below; at this level or below ...
    std::uint32_t slope;  ///< ... what it takes grows at least that many times as fast as the level
    bool is_queued : 1;
    bool is_known : 1;    ///< the floor is the level, if nothing changes
    bool is_touched : 1;  ///< is in touched_
    bool is_seen : 1;     ///< is in seen_
    bool has_filled : 1;  ///< is in filled_
    bool changed : 1;     ///< is in changed_
  };
  /// When a resource fills, or a flow comes to its cap.
  struct Level {
    double gb_per_s;
    bool is_resource;
    std::uint32_t number;  ///< ResourceId or FlowSlot
    auto operator<=>(const Level&) const =
        default;  // NOLINT(modernize-use-nullptr): of the compiler
  };
  struct Members {
    ResourceId limit;
    double gb_per_s;
    std::size_t first;  ///< index in flows_in_groups_
    std::size_t count;
  };

  /// In two halves of 63 bits: to convert to 128 bits at once is a call of the library.
  static ExactRate exact(double gb_per_s) {
    const double upper = gb_per_s * 0x1p27;
    const auto whole = static_cast<std::int64_t>(upper);
    const double rest = (upper - static_cast<double>(whole)) * 0x1p63;
    return (ExactRate{whole} << 63) + static_cast<std::int64_t>(rest);
  }
  /// Asks the processor for what is soon to be known or changed of the flow: the flows of a resource lie
  /// anywhere.
  void prefetch(std::span<const User> users, std::size_t next) const {
    constexpr std::size_t kAhead = 8;
    if (next + kAhead >= users.size()) return;
    __builtin_prefetch(&flows_[users[next + kAhead].flow], 1);
    __builtin_prefetch(&uses_[users[next + kAhead].use], 1);
  }
  std::span<const User> users_of(ResourceId id) const {
    const ResourceUses& resource = resources_[id];
    return resource.users == 0 ? std::span<const User>()
                               : std::span(&users_[resource.first_user], resource.users);
  }
  std::span<const User> own_users_of(ResourceId id) const {
    return users_of(id).first(resources_[id].own);
  }
  void exchange(const ResourceUses& resource, std::uint32_t a, std::uint32_t b);
  void enter(FlowSlot flow, std::uint32_t use);
  void leave(std::uint32_t use);
  void enter_own(std::uint32_t use);
  void leave_own(std::uint32_t use);
  /// Counts what the flow takes from a resource that it uses, or takes it away.
  static void add(ResourceUses& resource, ResourceId id, const FlowUses& flow, ExactRate rate) {
    if (flow.gb_per_s == 0) {
      ++resource.rising;
    } else if (flow.limit == id) {
      ++resource.limits;
    } else {
      resource.elsewhere += rate;
      resource.most_elsewhere = std::max(resource.most_elsewhere, flow.gb_per_s);
    }
  }
  static void subtract(ResourceUses& resource, ResourceId id, const FlowUses& flow,
                       ExactRate rate) {
    if (flow.gb_per_s == 0) {
      --resource.rising;
    } else if (flow.limit == id) {
      --resource.limits;
    } else {
      resource.elsewhere -= rate;
    }
  }
  void change(FlowSlot slot, double gb_per_s, ResourceId limit);
  void touch(ResourceId resource);
  void queue_again(ResourceId id);
  void queue_touched();
  void queue(double gb_per_s, bool is_resource, std::uint32_t number);
  double left_for_each(ResourceId id, ExactRate elsewhere, std::uint32_t users) const;
  bool is_overfull(ResourceId id) const;
  double key_of(ResourceId id) const;
  double level_of(ResourceId id);
  void reach(ResourceId id);
  void let_go(ResourceId id);
  void settle(ResourceId id, double gb_per_s);
  void settle_users(ResourceId id, bool own, double gb_per_s);
  void reach_cap(FlowSlot flow, double gb_per_s);
  void list_groups();

  const Network& network_;
  GrowingArray<FlowUses> flows_;         ///< by slot, up to the last that was ever inserted
  std::vector<double> caps_;             ///< by slot; empty until a flow has one
  ZeroedArray<ResourceUses> resources_;  ///< by number
  BlockPool<Use> uses_;
  BlockPool<User> users_;
  std::vector<ResourceId> changed_;  ///< in the order in which they changed
  std::uint64_t work_ = 0;

  // While rates are being solved for:
  double level_ = 0;           ///< GB/s, up to which all has been filled
  std::vector<Level> levels_;  ///< heap, with entries that no longer count
  std::vector<ResourceId> touched_;
  std::vector<ResourceId> seen_;
  std::vector<ResourceId> filled_;
  std::vector<FlowSlot> capped_;
  std::vector<double> faster_;      ///< scratch
  std::vector<FlowSlot> settling_;  ///< scratch
  std::vector<Members> groups_;
  std::vector<FlowSlot> flows_in_groups_;
};

// ---------------------------------------------------------------- inline: once per message

inline void MaxMinRates::exchange(const ResourceUses& resource, std::uint32_t a, std::uint32_t b) {
  User& first = users_[resource.first_user + a];
  User& second = users_[resource.first_user + b];
  std::swap(first, second);
  uses_[first.use].place = a;
  uses_[second.use].place = b;
}

inline void MaxMinRates::enter(FlowSlot flow, std::uint32_t use) {
  ResourceUses& resource = resources_[uses_[use].resource];
  if (resource.users == resource.room) {
    const std::uint32_t room = std::max(1U, 2 * resource.room);
    const std::uint32_t first = users_.allocate(room);
    for (std::uint32_t i = 0; i < resource.users; ++i) {
      users_[first + i] = users_[resource.first_user + i];
    }
    if (resource.room > 0) users_.release(resource.first_user, resource.room);
    resource.first_user = first;
    resource.room = room;
  }
  uses_[use].place = resource.users++;
  users_[resource.first_user + uses_[use].place] = {flow, use};
}

inline void MaxMinRates::leave(std::uint32_t use) {
  ResourceUses& resource = resources_[uses_[use].resource];
  if (uses_[use].place < resource.own) leave_own(use);
  exchange(resource, uses_[use].place, --resource.users);
}

inline void MaxMinRates::enter_own(std::uint32_t use) {
  ResourceUses& resource = resources_[uses_[use].resource];
  exchange(resource, uses_[use].place, resource.own++);
}

inline void MaxMinRates::leave_own(std::uint32_t use) {
  ResourceUses& resource = resources_[uses_[use].resource];
  exchange(resource, uses_[use].place, --resource.own);
}

template <class BecameBusy>
void MaxMinRates::insert(FlowSlot flow, std::span<const ResourceId> resources,
                         BecameBusy became_busy) {
  if (flow >= flows_.size()) flows_.append(flow + 1 - flows_.size());
  FlowUses& uses = flows_[flow];
  uses.uses = static_cast<std::uint32_t>(resources.size());
  if (uses.room < uses.uses) {
    if (uses.room > 0) uses_.release(uses.first_use, uses.room);
    uses.first_use = uses_.allocate(uses.uses);
    uses.room = uses.uses;
  }
  uses.limit = kNoLimit;
  uses.gb_per_s = 0;
  std::uint32_t use = uses.first_use;
  for (const ResourceId id : resources) {
    ResourceUses& resource = resources_[id];
    ++resource.rising;
    if (resource.users == 0) became_busy(id);
    uses_[use] = {id, 0};
    enter(flow, use++);
    mark_changed(id);
  }
  if (const double cap = cap_of(flow); cap != kNoRateCap) queue(cap, false, flow);
}

template <class Visit>
void MaxMinRates::remove(FlowSlot flow, Visit visit) {
  FlowUses& uses = flows_[flow];
  const ExactRate rate = exact(uses.gb_per_s);
  for (std::uint32_t i = 0; i < uses.uses; ++i) {
    const ResourceId id = uses_[uses.first_use + i].resource;
    ResourceUses& resource = resources_[id];
    leave(uses.first_use + i);
    subtract(resource, id, uses, rate);
    const bool became_idle = resource.users == 0;
    if (!became_idle) mark_changed(id);
    visit(id, became_idle);
  }
  uses.uses = 0;
}

template <class Visit>
void MaxMinRates::take_lone(Visit visit) {
  for (const ResourceId id : changed_) {
    const ResourceUses& resource = resources_[id];
    if (resource.users != 1) continue;
    const FlowSlot flow = users_[resource.first_user].flow;
    if (flows_[flow].uses == 1) visit(flow, id);
  }
}

}  // namespace arlab
