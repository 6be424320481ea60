#include "sim/flows.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sim/simulator.h"
#include "sim/topology/fabric.h"
#include "sim/topology/quantities.h"
#include "sim/topology/routes.h"

namespace arlab {
namespace {

constexpr std::uint64_t kFlowBytes = std::uint64_t{1} << 28;
constexpr std::uint32_t kTurns = 64;  ///< of a flow; more change nothing
constexpr std::uint32_t kSeed = 1;

void require_flows(const Topology& topology, std::span<const Flow> flows) {
  std::set<Flow> seen;
  for (const Flow& flow : flows) {
    const auto [from, to] = flow;
    if (from >= topology.ranks.value || to >= topology.ranks.value || from == to) {
      fail("flow {}>{}: allowed are two different ranks from 0 to {}", from, to,
           topology.ranks.value - 1);
    }
    if (!seen.insert(flow).second) fail("flow {}>{} is named twice", from, to);
  }
  if (flows.empty()) fail("there are no flows; allowed is a list like 0>1 2>3");
}

/// A device that takes no time, on links as fast as the mover makes them.
Topology machine_of(Topology t, Mover mover) {
  const double share = mover == Mover::copies ? t.device.copy_efficiency.value : 1;
  for (LinkType& type : t.link_types) type.bandwidth_gb_per_s.value *= share;
  for (SharingDomain& domain : t.domains) domain.bandwidth_gb_per_s.value *= share;
  t.device = generic_device();
  for_each_quantity_of(t.device, [](const std::string& key, Quantity& quantity) {
    if (key.ends_with("_us")) quantity.value = kSmallestQuantity;
    if (key.ends_with("_per_s")) quantity.value = kLargestQuantity;
  });
  t.device_overrides.clear();
  t.stragglers.clear();
  return t;
}

/// When each flow is done.
class Ends : public SimulationTrace {
 public:
  explicit Ends(std::span<const Flow> flows) {
    for (const Flow& flow : flows) ends_[flow] = 0;
  }
  void on_message(const PlannedMessage& message, std::uint32_t, std::span<const LinkId>,
                  Picoseconds, Picoseconds delivered) override {
    Picoseconds& end = ends_.at({message.from, message.to});
    end = std::max(end, delivered);
  }
  double gb_per_s(const Flow& flow) const {
    return static_cast<double>(kFlowBytes) / (us_from_picoseconds(ends_.at(flow)) * 1e3);
  }

 private:
  std::map<Flow, Picoseconds> ends_;
};

/// Messages of a rank in one step share its link, those of different steps take turns.
Plan plan_of_flows(Rank ranks, std::span<const Flow> flows, Mover mover) {
  Plan plan;
  plan.algorithm = "flows";
  plan.world_size = ranks;
  plan.codec = "fp16";
  plan.wire_bytes_per_element = 2;
  const std::uint32_t turns = mover == Mover::copies ? kTurns : 1;
  std::mt19937 random(kSeed);
  std::vector<std::uint32_t> awaited(ranks, 0);
  std::vector<std::pair<Rank, std::uint32_t>> received;  // by whom, message
  for (Rank rank = 0; rank < ranks; ++rank) {
    std::vector<Rank> receivers;
    for (const Flow& flow : flows) {
      if (flow.first == rank) receivers.insert(receivers.end(), turns, flow.second);
    }
    if (receivers.empty()) continue;
    // Not std::shuffle, which every library does in its own way.
    for (std::size_t i = receivers.size() - 1; mover == Mover::copies && i > 0; --i) {
      std::swap(receivers[i], receivers[random() % (i + 1)]);
    }
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      if (i == 0 || mover == Mover::copies) {
        plan.stages.push_back({.step = static_cast<std::uint32_t>(i),
                               .rank = rank,
                               .first_message = static_cast<std::uint32_t>(plan.messages.size())});
      }
      ++plan.stages.back().messages;
      received.emplace_back(receivers[i], static_cast<std::uint32_t>(plan.messages.size()));
      plan.messages.push_back({.from = rank,
                               .to = receivers[i],
                               .stage = static_cast<StageId>(plan.stages.size() - 1),
                               .consumers = 1,
                               .bytes = kFlowBytes / turns,
                               .elements = kFlowBytes / turns / 2});
      ++awaited[receivers[i]];
    }
  }
  const auto last = static_cast<std::uint32_t>(plan.messages.size());
  std::map<Rank, StageId> receiving;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (awaited[rank] == 0) continue;
    receiving[rank] = static_cast<StageId>(plan.stages.size());
    plan.stages.push_back(
        {.step = last, .rank = rank, .first_message = last, .awaited = awaited[rank]});
  }
  for (const auto& [rank, message] : received) {
    plan.messages[message].first_consumer = static_cast<std::uint32_t>(plan.consumers.size());
    plan.consumers.push_back(receiving[rank]);
  }
  return plan;
}

/// Root ports that writes leave a switch by, those that they go to from there, and who writes.
using Crossings = std::map<LinkId, std::map<LinkId, std::set<Rank>>>;

void add(const Topology& topology, const Fabric& fabric, Routes& routes, const Flow& flow,
         Crossings& crossings) {
  std::vector<LinkId> ports;
  for (const LinkId link : routes.route(flow.first, flow.second)) {
    if (topology.link_type(fabric.class_of(link)).root_port) ports.push_back(link);
  }
  if (ports.size() >= 2) crossings[ports.front()][ports.back()].insert(flow.first);
}

void describe(const Fabric& fabric, const Crossings& crossings, Mover mover,
              std::vector<std::string>& found) {
  for (const auto& [out, to] : crossings) {
    std::set<Rank> senders;
    for (const auto& [in, ranks] : to) senders.insert(ranks.begin(), ranks.end());
    const bool takes_turns = mover == Mover::copies && senders.size() < 2;
    if (to.size() < 2 || takes_turns) continue;
    std::string text = fmt::format("{} to", fabric.describe(out));
    for (const auto& [in, ranks] : to) {
      text += fmt::format("{} {}", in == to.begin()->first ? "" : ",", fabric.describe(in));
    }
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
}

}  // namespace

bool has_root_ports(const Topology& topology) {
  return std::any_of(topology.link_types.begin(), topology.link_types.end(),
                     [](const LinkType& type) { return type.root_port; });
}

std::vector<double> flow_rates(const Topology& topology, std::span<const Flow> flows, Mover mover) {
  require_valid(topology, topology.name);
  require_flows(topology, flows);
  Ends ends(flows);
  const Plan plan = plan_of_flows(topology.ranks.value, flows, mover);
  simulate({plan, machine_of(topology, mover), {.trace = &ends}});
  std::vector<double> rates;
  for (const Flow& flow : flows) rates.push_back(ends.gb_per_s(flow));
  return rates;
}

std::vector<std::string> collapses(const Topology& topology, std::span<const Flow> flows,
                                   Mover mover) {
  std::vector<std::string> found;
  if (!has_root_ports(topology)) return found;
  require_flows(topology, flows);
  const Fabric fabric(topology);
  Routes routes(fabric);
  Crossings crossings;
  for (const Flow& flow : flows) add(topology, fabric, routes, flow, crossings);
  describe(fabric, crossings, mover, found);
  return found;
}

std::vector<std::string> collapses(const Topology& topology, const Plan& plan) {
  std::vector<std::string> found;
  if (!has_root_ports(topology)) return found;
  const Plan whole = plan.repeats_rank_0 ? with_all_ranks(plan) : plan;
  const Fabric fabric(topology);
  Routes routes(fabric);
  std::map<std::uint32_t, Crossings> by_step;
  for (const PlannedMessage& m : whole.messages) {
    add(topology, fabric, routes, {m.from, m.to}, by_step[whole.stages[m.stage].step]);
  }
  for (const auto& [step, crossings] : by_step) {
    describe(fabric, crossings, Mover::stores, found);
  }
  return found;
}

std::string in_words(const std::vector<std::string>& collapses) {
  if (collapses.empty()) return "none";
  const std::string first = "at " + collapses.front().substr(0, collapses.front().find(" to "));
  return collapses.size() == 1 ? first : fmt::format("{} and {} more", first, collapses.size() - 1);
}

}  // namespace arlab
