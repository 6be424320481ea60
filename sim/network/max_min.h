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
// Flows influence each other only over a chain of common resources, so only the connected
// components in which something changed are solved again, each on its own. A component with m
// resources and k flow-resource pairs takes O((m + k) log m): the next resource to fill comes from
// a heap whose keys may be too low, never too high (levels only rise), and are put right when they
// come up.
//
// The result is a function of the component alone, bit for bit: resources fill in the order of
// (level, number), and flows that settle together take the same amount from everything, so it does
// not matter in which order they are walked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/network/block_pool.h"
#include "sim/network/growing_array.h"
#include "sim/network/network.h"
#include "sim/network/zeroed_array.h"

namespace arlab {

/// A flow's place in its engine's table; used again when the flow is gone.
using FlowSlot = std::uint32_t;

inline constexpr double kNoRateCap = std::numeric_limits<double>::infinity();
/// Of a message that no resource limits.
inline constexpr ResourceId kNoLimit = 0xFFFFFFFF;

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
  /// Of a slot, before insert(); > 0.
  void set_cap(FlowSlot flow, double gb_per_s) {
    if (gb_per_s != kNoRateCap && flow >= caps_.size()) caps_.resize(flow + 1, kNoRateCap);
    if (flow < caps_.size()) caps_[flow] = gb_per_s;
  }
  double cap_of(FlowSlot flow) const { return flow < caps_.size() ? caps_[flow] : kNoRateCap; }
  /// Calls visit(flow) for the flows whose first resource it is.
  template <class Visit>
  void for_each_that_begins_with(ResourceId resource, Visit visit) const {
    std::uint32_t next = resources_[resource].users > 0 ? resources_[resource].first_use : kNone;
    for (; next != kNone; next = uses_[next].next) {
      if (flows_[uses_[next].flow].first_use == next) visit(uses_[next].flow);
    }
  }
  /// How many uses by flows a resource has.
  std::uint32_t users(ResourceId resource) const { return resources_[resource].users; }

  /// Whether flows may have come or gone since all components were solved.
  bool any_changed() const { return !changed_.empty(); }
  /// Collects a connected component in which flows came or went since it was last solved. False
  /// when there is none left. One that was collected must be solved or postponed.
  bool next_component();
  /// The flows of the collected component, until the next next_component().
  std::span<const FlowSlot> flows() const;
  /// How many uses of resources by flows the collected component has.
  std::uint64_t uses() const { return is_lone_ ? 1 : component_uses_; }
  /// Their rates in GB/s, in the same order; all > 0.
  std::span<const double> solve();
  /// After solve(): the full resource at whose level the i-th flow settled, or kNoLimit for its
  /// cap.
  ResourceId limit(std::size_t i) const { return is_lone_ ? lone_limit() : limits_[i]; }
  /// Whether the component is one flow on one resource; then the latter is its rate.
  bool is_lone() const { return is_lone_; }
  double lone_rate() const {
    return std::min(cap_of(lone_flow_), network_.capacity_gb_per_s(lone_resource_));
  }
  ResourceId lone_limit() const {
    return cap_of(lone_flow_) < network_.capacity_gb_per_s(lone_resource_) ? kNoLimit
                                                                           : lone_resource_;
  }
  /// Leaves the component to a later next_component(); flows may then be removed first.
  void postpone();

  /// Ask the processor for what remove() will read: one after the other, with time between.
  void prefetch_flow(FlowSlot flow) const { __builtin_prefetch(&flows_[flow]); }
  void prefetch_uses(FlowSlot flow) const { __builtin_prefetch(&uses_[flows_[flow].first_use]); }
  /// Returns the resource.
  ResourceId prefetch_first_resource(FlowSlot flow) const {
    const ResourceId resource = uses_[flows_[flow].first_use].resource;
    __builtin_prefetch(&resources_[resource]);
    return resource;
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// One use of a resource by a flow: an element of the resource's list.
  struct Use {
    ResourceId resource;
    FlowSlot flow;
    std::uint32_t next;
    std::uint32_t previous;
  };
  struct FlowUses {
    std::uint32_t first_use = 0;
    std::uint32_t uses = 0;
    std::uint32_t room = 0;       ///< for uses at first_use; stays with the slot
    std::uint32_t local = kNone;  ///< index into component_flows_
  };
  /// All zero: nobody has used it yet.
  struct ResourceUses {
    std::uint32_t first_use;  ///< if there are users
    std::uint32_t users;
    std::uint32_t place;  ///< in component_resources_, from 1 on; 0: not there
    bool changed;         ///< is in changed_
  };
  struct Filling {
    ResourceId resource;
    std::uint32_t rising;  ///< uses by flows that have not settled
    double left;           ///< capacity that settled flows leave, GB/s
  };
  struct Level {
    double gb_per_s;
    ResourceId resource;
    std::uint32_t local;
  };

  void mark_changed(ResourceId resource) {
    if (resources_[resource].changed) return;
    resources_[resource].changed = true;
    changed_.push_back(resource);
  }
  void collect(ResourceId start);
  void reach(ResourceId resource);
  void settle(FlowSlot flow, double gb_per_s, ResourceId limit);
  void fill();
  void forget_component();

  const Network& network_;
  GrowingArray<FlowUses> flows_;         ///< by slot, up to the last that was ever inserted
  std::vector<double> caps_;             ///< by slot; empty until a flow has one
  ZeroedArray<ResourceUses> resources_;  ///< by number
  BlockPool<Use> uses_;
  std::vector<ResourceId> changed_;  ///< from next_changed_ on, in the order in which they changed
  std::size_t next_changed_ = 0;

  // The collected component. A flow that is alone on its only resource is so frequent, and so easy,
  // that it goes without the lists.
  bool is_lone_ = false;
  ResourceId lone_resource_ = 0;
  FlowSlot lone_flow_ = 0;
  std::uint64_t component_uses_ = 0;
  std::vector<FlowSlot> component_flows_;
  std::vector<Filling> component_resources_;
  std::vector<double> rates_;       ///< of component_flows_; negative until settled
  std::vector<ResourceId> limits_;  ///< of component_flows_
  std::vector<Level> levels_;       ///< heap
  std::vector<FlowSlot> by_cap_;    ///< flows with a cap, lowest first
};

// ---------------------------------------------------------------- inline: once per message

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
  std::uint32_t use = uses.first_use;
  for (const ResourceId id : resources) {
    ResourceUses& resource = resources_[id];
    if (resource.users++ == 0) {
      uses_[use] = {id, flow, kNone, kNone};
      became_busy(id);
    } else {
      uses_[use] = {id, flow, resource.first_use, kNone};
      uses_[resource.first_use].previous = use;
    }
    resource.first_use = use++;
  }
  mark_changed(resources[0]);  // leads to the others
}

template <class Visit>
void MaxMinRates::remove(FlowSlot flow, Visit visit) {
  const FlowUses& uses = flows_[flow];
  for (std::uint32_t i = 0; i < uses.uses; ++i) {
    const Use use = uses_[uses.first_use + i];
    ResourceUses& resource = resources_[use.resource];
    (use.previous == kNone ? resource.first_use : uses_[use.previous].next) = use.next;
    if (use.next != kNone) uses_[use.next].previous = use.previous;
    const bool became_idle = --resource.users == 0;
    if (!became_idle) mark_changed(use.resource);
    visit(use.resource, became_idle);
  }
}

inline bool MaxMinRates::next_component() {
  if (!component_flows_.empty()) forget_component();
  while (next_changed_ < changed_.size()) {
    const ResourceId start = changed_[next_changed_++];
    ResourceUses& resource = resources_[start];
    // Not if a component that was solved meanwhile contained it, or its flows have left.
    if (!resource.changed) continue;
    resource.changed = false;
    if (resource.users == 0) continue;
    lone_flow_ = uses_[resource.first_use].flow;
    is_lone_ = resource.users == 1 && flows_[lone_flow_].uses == 1;
    lone_resource_ = start;
    if (!is_lone_) collect(start);
    return true;
  }
  changed_.clear();
  next_changed_ = 0;
  return false;
}

inline std::span<const FlowSlot> MaxMinRates::flows() const {
  if (is_lone_) return {&lone_flow_, 1};
  return component_flows_;
}

}  // namespace arlab
