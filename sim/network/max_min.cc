#include "sim/network/max_min.h"

#include <algorithm>
#include <functional>

namespace arlab {
namespace {

constexpr double kNoLevel = std::numeric_limits<double>::infinity();
/// Levels that differ by less are the same, rounded differently. No time tells them apart.
constexpr double kSame = 1e-12;

}  // namespace

MaxMinRates::MaxMinRates(const Network& network)
    : network_(network), resources_(network.resources()) {}

// ---------------------------------------------------------------- what flows take

void MaxMinRates::touch(ResourceId id) {
  ResourceUses& resource = resources_[id];
  resource.is_known = false;
  queue_again(id);
  if (resource.is_seen) return;
  resource.is_seen = true;
  seen_.push_back(id);
}

/// To a rate of 0: it rises from what it had, and is still of those that its limit limited.
void MaxMinRates::change(FlowSlot slot, double gb_per_s, ResourceId limit) {
  FlowUses& flow = flows_[slot];
  const FlowUses before = flow;
  flow.gb_per_s = gb_per_s;
  flow.limit = limit;
  const ExactRate rate = exact(gb_per_s);
  const ExactRate rate_before = exact(before.gb_per_s);
  work_ += flow.uses;
  for (std::uint32_t use = flow.first_use; use < flow.first_use + flow.uses; ++use) {
    const ResourceId id = uses_[use].resource;
    ResourceUses& resource = resources_[id];
    if ((before.limit == id) != (limit == id)) {
      if (limit == id) {
        enter_own(use);
      } else {
        leave_own(use);
      }
    }
    subtract(resource, id, before, rate_before);
    add(resource, id, flow, rate);
    if (gb_per_s == 0 && before.gb_per_s < resource.floor) {
      // Up to the floor it takes the level from now on, instead of what it had.
      resource.floor -= (resource.floor - before.gb_per_s) / (++resource.slope);
    }
    if (gb_per_s > 0 && resource.slope > 0) --resource.slope;
    resource.is_known = false;
    // When what rises settles, others fill no sooner.
    if (before.gb_per_s > 0) touch(id);
  }
  if (gb_per_s > 0) return;
  if (const double cap = cap_of(slot); cap != kNoRateCap) queue(cap, false, slot);
}

// ---------------------------------------------------------------- what is next to fill

double MaxMinRates::left_for_each(ResourceId id, ExactRate elsewhere, std::uint32_t users) const {
  const ExactRate left = exact(network_.capacity_gb_per_s(id)) - elsewhere;
  return static_cast<double>(left) * 0x1p-90 / users;
}

/// Returns whether flows that are limited at lower levels leave too little for those that something else limits.
bool MaxMinRates::is_overfull(ResourceId id) const {
  return left_for_each(id, resources_[id].elsewhere, 1) < -kSame * network_.capacity_gb_per_s(id);
}

/// It does not fill below, nor lets go what it limits.
double MaxMinRates::key_of(ResourceId id) const {
  const ResourceUses& resource = resources_[id];
  const std::uint32_t sharing = resource.rising + resource.limits;
  if (sharing == 0 && !is_overfull(id)) return kNoLevel;
  double key = resource.floor;
  if (!resource.is_known && sharing > 0) {
    key = std::max(key, left_for_each(id, resource.elsewhere, sharing));
  }
  if (resource.limits > 0) key = std::min(key, resource.level);
  return std::max(key, level_);
}

void MaxMinRates::queue(double gb_per_s, bool is_resource, std::uint32_t number) {
  levels_.push_back({gb_per_s, is_resource, number});
  std::push_heap(levels_.begin(), levels_.end(), std::greater<>());
}

void MaxMinRates::queue_again(ResourceId id) {
  if (resources_[id].is_touched) return;
  resources_[id].is_touched = true;
  touched_.push_back(id);
}

void MaxMinRates::queue_touched() {
  for (const ResourceId id : touched_) {
    ResourceUses& resource = resources_[id];
    if (!resource.is_touched) continue;
    resource.is_touched = false;
    const double key = key_of(id);
    if (key == kNoLevel || (resource.is_queued && resource.key <= key)) continue;
    resource.is_queued = true;
    resource.key = key;
    queue(key, true, id);
  }
  touched_.clear();
}

// ---------------------------------------------------------------- filling

/// The level at which it fills if all that something else limits keeps its rate, or takes that
/// level if it is less. Sets the floor.
double MaxMinRates::level_of(ResourceId id) {
  ResourceUses& resource = resources_[id];
  if (resource.is_known) return resource.floor;
  std::uint32_t sharing = resource.rising + resource.limits;
  double level = sharing > 0 ? left_for_each(id, resource.elsewhere, sharing) : 0;
  faster_.clear();
  if (resource.most_elsewhere > level) {
    work_ += resource.users - sharing;
    double most = 0;
    for (const User& user : users_of(id).subspan(resource.own)) {
      const double gb_per_s = flows_[user.flow].gb_per_s;
      most = std::max(most, gb_per_s);
      if (gb_per_s > level) faster_.push_back(gb_per_s);
    }
    resource.most_elsewhere = most;
  }
  std::sort(faster_.begin(), faster_.end(), std::greater<>());
  ExactRate elsewhere = resource.elsewhere;
  for (const double gb_per_s : faster_) {
    if (gb_per_s <= level) break;
    elsewhere -= exact(gb_per_s);
    level = left_for_each(id, elsewhere, ++sharing);
  }
  resource.floor = level;
  resource.slope = sharing;
  resource.is_known = true;
  return level;
}

/// The level has come to the resource's key.
void MaxMinRates::reach(ResourceId id) {
  ResourceUses& resource = resources_[id];
  const double level = level_of(id);
  const bool limits_any = resource.limits > 0;
  if (limits_any && level > resource.level * (1 + kSame) && level_ >= resource.level) {
    let_go(id);
    return;
  }
  // Levels only rise. Rounding may say otherwise, or leave nothing at all for a last slow flow.
  const double now = std::max(level_, key_of(id));
  if (now > level_) {
    queue_again(id);
    return;
  }
  const bool as_before = limits_any && level >= resource.level * (1 - kSame);
  settle(id, as_before ? resource.level : std::max(level, level_));
}

/// It does not fill at the level of before: what it limited rises.
void MaxMinRates::let_go(ResourceId id) {
  ResourceUses& resource = resources_[id];
  const double level = resource.floor;
  const std::uint32_t sharing = resource.slope;
  const std::span<const User> users = own_users_of(id);
  for (std::size_t i = 0; i < users.size(); ++i) {
    prefetch(users, i);
    const FlowSlot flow = users[i].flow;
    if (flows_[flow].gb_per_s > 0) change(flow, 0, id);  // not if it uses it twice
  }
  resource.floor = level;  // which counts them already
  resource.slope = sharing;
  resource.is_known = true;
}

/// Those that it limits, or the others.
void MaxMinRates::settle_users(ResourceId id, bool own, double gb_per_s) {
  settling_.clear();
  const std::span<const User> users =
      own ? own_users_of(id) : users_of(id).subspan(resources_[id].own);
  work_ += users.size();
  for (std::size_t i = 0; i < users.size(); ++i) {
    prefetch(users, i);
    const double rate = flows_[users[i].flow].gb_per_s;
    const bool settles = rate == 0 || (own ? rate != gb_per_s : rate > gb_per_s * (1 + kSame));
    if (settles) settling_.push_back(users[i].flow);
  }
  for (const FlowSlot flow : settling_) {
    if (flows_[flow].gb_per_s == gb_per_s && flows_[flow].limit == id) continue;  // uses it twice
    change(flow, gb_per_s, id);
  }
}

void MaxMinRates::settle(ResourceId id, double gb_per_s) {
  ResourceUses& resource = resources_[id];
  settle_users(id, true, gb_per_s);
  const double most = gb_per_s * (1 + kSame);
  if (resource.rising > 0 || resource.most_elsewhere > most) settle_users(id, false, gb_per_s);
  resource.most_elsewhere = std::min(resource.most_elsewhere, most);
  resource.level = gb_per_s;
  resource.is_touched = false;  // it is full
  if (resource.has_filled) return;
  resource.has_filled = true;
  filled_.push_back(id);
}

void MaxMinRates::reach_cap(FlowSlot flow, double gb_per_s) {
  const FlowUses& uses = flows_[flow];
  if (uses.uses == 0 || uses.gb_per_s > 0 || cap_of(flow) != gb_per_s) return;
  change(flow, gb_per_s, kNoLimit);
  capped_.push_back(flow);
}

void MaxMinRates::solve() {
  level_ = 0;
  for (const ResourceId id : changed_) {
    resources_[id].changed = false;
    if (resources_[id].users > 0) touch(id);
  }
  changed_.clear();
  queue_touched();
  while (!levels_.empty()) {
    const Level next = levels_.front();
    std::pop_heap(levels_.begin(), levels_.end(), std::greater<>());
    levels_.pop_back();
    if (next.is_resource) {
      ResourceUses& resource = resources_[next.number];
      if (!resource.is_queued || resource.key != next.gb_per_s) continue;
      resource.is_queued = false;
      if (key_of(next.number) > next.gb_per_s) {
        queue_again(next.number);
      } else {
        level_ = std::max(level_, next.gb_per_s);
        reach(next.number);
      }
    } else {
      level_ = std::max(level_, next.gb_per_s);
      reach_cap(next.number, next.gb_per_s);
    }
    queue_touched();
  }
  list_groups();
  for (const ResourceId id : seen_) {
    ResourceUses& resource = resources_[id];
    resource.floor = 0;
    resource.is_known = false;
    resource.is_seen = false;
  }
  seen_.clear();
}

void MaxMinRates::list_groups() {
  groups_.clear();
  flows_in_groups_.clear();
  for (const ResourceId id : filled_) {
    resources_[id].has_filled = false;
    work_ += resources_[id].limits;
    const std::size_t first = flows_in_groups_.size();
    for_each_limited_by(id, [this](FlowSlot flow) { flows_in_groups_.push_back(flow); });
    const std::size_t count = flows_in_groups_.size() - first;
    if (count > 0) groups_.push_back({id, resources_[id].level, first, count});
  }
  filled_.clear();
  for (const FlowSlot flow : capped_) {
    if (flows_[flow].limit != kNoLimit || flows_[flow].gb_per_s == 0) continue;
    groups_.push_back({kNoLimit, flows_[flow].gb_per_s, flows_in_groups_.size(), 1});
    flows_in_groups_.push_back(flow);
  }
  capped_.clear();
}

}  // namespace arlab
