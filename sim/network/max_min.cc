#include "sim/network/max_min.h"

#include <algorithm>

namespace arlab {
namespace {

constexpr double kRising = -1;

}  // namespace

MaxMinRates::MaxMinRates(const Network& network)
    : network_(network), resources_(network.resources()) {}

// ---------------------------------------------------------------- components

void MaxMinRates::reach(ResourceId resource) {
  ResourceUses& uses = resources_[resource];
  if (uses.place != 0) return;
  component_resources_.push_back({resource, uses.users, network_.capacity_gb_per_s(resource)});
  uses.place = static_cast<std::uint32_t>(component_resources_.size());
}

void MaxMinRates::collect(ResourceId start) {
  component_uses_ = 0;
  reach(start);
  for (std::size_t r = 0; r < component_resources_.size(); ++r) {
    ResourceUses& resource = resources_[component_resources_[r].resource];
    resource.changed = false;
    for (std::uint32_t u = resource.first_use; u != kNone; u = uses_[u].next) {
      const FlowSlot slot = uses_[u].flow;
      FlowUses& flow = flows_[slot];
      if (flow.local != kNone) continue;
      flow.local = static_cast<std::uint32_t>(component_flows_.size());
      component_flows_.push_back(slot);
      component_uses_ += flow.uses;
      for (std::uint32_t i = 0; i < flow.uses; ++i) reach(uses_[flow.first_use + i].resource);
    }
  }
}

void MaxMinRates::forget_component() {
  for (const FlowSlot flow : component_flows_) flows_[flow].local = kNone;
  for (const Filling& filling : component_resources_) resources_[filling.resource].place = 0;
  component_flows_.clear();
  component_resources_.clear();
}

void MaxMinRates::postpone() {
  if (is_lone_) mark_changed(lone_resource_);
  for (const Filling& filling : component_resources_) mark_changed(filling.resource);
}

// ---------------------------------------------------------------- progressive filling

void MaxMinRates::settle(FlowSlot flow, double gb_per_s, ResourceId limit) {
  const FlowUses& uses = flows_[flow];
  rates_[uses.local] = gb_per_s;
  limits_[uses.local] = limit;
  for (std::uint32_t i = 0; i < uses.uses; ++i) {
    Filling& filling =
        component_resources_[resources_[uses_[uses.first_use + i].resource].place - 1];
    filling.left -= gb_per_s;
    --filling.rising;
  }
}

void MaxMinRates::fill() {
  double level = 0;
  // Levels only rise. Rounding may say otherwise, or leave nothing at all for a last slow flow.
  const auto level_of = [&level](const Filling& filling) {
    return std::max(level, filling.left / filling.rising);
  };
  const auto later = [](const Level& a, const Level& b) {
    return a.gb_per_s != b.gb_per_s ? a.gb_per_s > b.gb_per_s : a.resource > b.resource;
  };

  levels_.clear();
  for (std::uint32_t local = 0; local < component_resources_.size(); ++local) {
    const Filling& filling = component_resources_[local];
    levels_.push_back({level_of(filling), filling.resource, local});
  }
  std::make_heap(levels_.begin(), levels_.end(), later);
  by_cap_.clear();
  for (const FlowSlot flow : component_flows_) {
    if (cap_of(flow) != kNoRateCap) by_cap_.push_back(flow);
  }
  std::sort(by_cap_.begin(), by_cap_.end(),
            [this](FlowSlot a, FlowSlot b) { return cap_of(a) < cap_of(b); });
  std::size_t next_cap = 0;

  while (!levels_.empty()) {
    const Level lowest = levels_.front();
    std::pop_heap(levels_.begin(), levels_.end(), later);
    levels_.pop_back();
    const Filling& filling = component_resources_[lowest.local];
    if (filling.rising == 0) continue;
    const double now = level_of(filling);
    if (now > lowest.gb_per_s) {
      levels_.push_back({now, lowest.resource, lowest.local});
      std::push_heap(levels_.begin(), levels_.end(), later);
      continue;
    }

    // Caps below come first; each leaves more for the others.
    bool capped = false;
    while (next_cap < by_cap_.size() && cap_of(by_cap_[next_cap]) <= now) {
      const FlowSlot flow = by_cap_[next_cap++];
      if (rates_[flows_[flow].local] != kRising) continue;
      level = cap_of(flow);
      settle(flow, level, kNoLimit);
      capped = true;
    }
    if (capped) {
      levels_.push_back(lowest);
      std::push_heap(levels_.begin(), levels_.end(), later);
      continue;
    }

    level = now;
    for (std::uint32_t u = resources_[lowest.resource].first_use; u != kNone; u = uses_[u].next) {
      const FlowSlot flow = uses_[u].flow;
      if (rates_[flows_[flow].local] == kRising) settle(flow, level, lowest.resource);
    }
  }
}

std::span<const double> MaxMinRates::solve() {
  if (is_lone_) {
    rates_.assign(1, lone_rate());
  } else {
    rates_.assign(component_flows_.size(), kRising);
    limits_.resize(component_flows_.size());
    fill();
  }
  return rates_;
}

}  // namespace arlab
