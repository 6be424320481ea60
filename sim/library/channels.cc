#include "sim/library/channels.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "reference/collectives/ring.h"

namespace arlab {
namespace {

/// Directed links that do not work.
using DeadLinks = std::set<std::pair<Rank, Rank>>;

std::vector<RankOrder> rings_of_mesh(Rank ranks, const DeadLinks& dead, std::uint64_t most) {
  const Rank middle = ranks - 1;
  std::vector<RankOrder> rings;
  const auto add = [&](const RankOrder& ring) {
    for (Rank i = 0; i < ranks; ++i) {
      if (dead.contains({ring[i], ring[(i + 1) % ranks]})) return;
    }
    if (rings.size() < most) rings.push_back(ring);
  };
  for (Rank turn = 0; turn < middle && rings.size() < most; ++turn) {
    RankOrder ring{middle};
    for (const Rank rank : walk_of_ring(turn, middle, false)) ring.push_back(rank);
    add(ring);
    if (ranks % 2 == 1 || ranks == 2) continue;
    std::reverse(ring.begin(), ring.end());
    add(ring);
  }
  return rings;
}

}  // namespace

std::vector<RankOrder> channel_orders(const Topology& topology, Rank world_size,
                                      std::uint64_t most) {
  RankOrder identity(world_size);
  std::iota(identity.begin(), identity.end(), Rank{0});
  std::vector<RankOrder> orders;
  if (topology.kind == TopologyKind::full_mesh && world_size > 2) {
    DeadLinks dead;
    for (const LinkFault& fault : topology.faults) {
      if (fault.bandwidth_factor == 0) dead.emplace(fault.from.number, fault.to.number);
    }
    orders = rings_of_mesh(world_size, dead, most);
  }
  if (topology.kind == TopologyKind::ring && world_size == topology.ranks.value && world_size > 2) {
    orders = {identity, RankOrder(identity.rbegin(), identity.rend())};
  }
  if (orders.empty()) orders = {identity};
  return orders;
}

bool sends_to_all(const Plan& plan) {
  const std::uint64_t others = plan.world_size - 1;
  std::set<std::pair<Rank, Rank>> pairs;
  for (const PlannedMessage& message : plan.messages) pairs.emplace(message.from, message.to);
  return pairs.size() == (plan.lists_one_rank() ? others : plan.world_size * others);
}

void append_channels(Plan& plan, const Plan& copy, const RankOrder& order) {
  const auto stages = static_cast<std::uint32_t>(plan.stages.size());
  const auto messages = static_cast<std::uint32_t>(plan.messages.size());
  const auto consumers = static_cast<std::uint32_t>(plan.consumers.size());
  const auto dependents = static_cast<std::uint32_t>(plan.dependents.size());
  for (Stage stage : copy.stages) {
    stage.rank = order[stage.rank];
    stage.channel += plan.channels;
    stage.first_message += messages;
    stage.first_dependent += dependents;
    plan.stages.push_back(stage);
  }
  for (PlannedMessage message : copy.messages) {
    message.from = order[message.from];
    message.to = order[message.to];
    message.stage += stages;
    message.first_consumer += consumers;
    plan.messages.push_back(message);
  }
  for (const StageId consumer : copy.consumers) plan.consumers.push_back(stages + consumer);
  for (const StageId dependent : copy.dependents) plan.dependents.push_back(stages + dependent);
  plan.channels += copy.channels;
}

Plan in_channels(const std::vector<Plan>& copies, const std::vector<RankOrder>& orders) {
  if (copies.empty() || copies.size() != orders.size()) {
    throw std::logic_error("in_channels: every copy needs an order");
  }
  Plan plan = copies.front();
  plan.elements = 0;
  plan.stages.clear();
  plan.messages.clear();
  plan.consumers.clear();
  plan.dependents.clear();
  plan.channels = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].lists_one_rank() || orders[i].size() != plan.world_size) {
      throw std::logic_error("in_channels: a copy lists one rank, or its order has other ranks");
    }
    plan.elements += copies[i].elements;
    append_channels(plan, copies[i], orders[i]);
  }
  return plan;
}

}  // namespace arlab
