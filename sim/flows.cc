#include "sim/flows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "sim/network/max_min.h"
#include "sim/topology/fabric.h"
#include "sim/topology/routes.h"

namespace arlab {
namespace {

void require_flows(std::span<const Flow> flows, Rank ranks) {
  std::set<Flow> seen;
  for (const Flow& flow : flows) {
    const auto [from, to] = flow;
    if (from >= ranks || to >= ranks || from == to) {
      fail("flow {}>{}: allowed are two different ranks from 0 to {}", from, to, ranks - 1);
    }
    if (!seen.insert(flow).second) fail("flow {}>{} is named twice", from, to);
  }
  if (flows.empty()) fail("there are no flows; allowed is a list like 0>1 2>3");
}

std::optional<Rank> number_in(std::string_view text) {
  Rank value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

/// From each of some ranks to each of others.
std::vector<Flow> every_pair(Rank senders, Rank first_receiver, Rank end_of_receivers) {
  std::vector<Flow> flows;
  for (Rank from = 0; from < senders; ++from) {
    for (Rank to = first_receiver; to < end_of_receivers; ++to) {
      if (from != to) flows.emplace_back(from, to);
    }
  }
  return flows;
}

std::vector<Flow> flows_of_word(std::string_view word, Rank ranks) {
  if (word == "all") return every_pair(ranks, 0, ranks);
  const std::size_t sign = word.find('>');
  if (sign != std::string_view::npos) {
    const auto from = number_in(word.substr(0, sign));
    const auto to = number_in(word.substr(sign + 1));
    if (from && to) return {{*from, *to}};
  }
  const std::size_t digits = std::min(word.find_first_of("0123456789"), word.size());
  const std::string_view name = word.substr(0, digits);
  const std::uint64_t number = number_in(word.substr(digits)).value_or(0);
  for (Rank k = 1; k <= ranks && number > 0; ++k) {
    const std::uint64_t all = std::uint64_t{k} * (k - 1);
    if (name == "all" && all == number) return every_pair(k, 0, k);
    const std::uint64_t cross = std::uint64_t{k} * k;
    if (name == "cross" && cross == number && 2 * k <= ranks) return every_pair(k, k, 2 * k);
  }
  if (name == "dist" && number > 0 && number < ranks) {
    std::vector<Flow> flows;
    for (Rank from = 0; from < ranks; ++from) {
      flows.emplace_back(from, (from + static_cast<Rank>(number)) % ranks);
    }
    return flows;
  }
  fail(
      "{} is no flow: allowed are 0>1, and of {} ranks all, all12 (every pair of the first four, "
      "which are 12), cross16 (each of the first four to each of the next), dist1 to dist{}",
      quote(word), ranks, ranks - 1);
}

/// Max-min rates of flows, of which some run at a time.
class SharedRates {
 public:
  SharedRates(const Fabric& fabric, std::span<const Flow> flows) : rates_(fabric.network()) {
    const Network& network = fabric.network();
    Routes routes(fabric);
    const auto add_way = [&](std::uint32_t flow, std::span<const LinkId> route) {
      if (route.empty()) return;  // there is no other one
      flow_of_.push_back(flow);
      std::vector<ResourceId>& way = ways_.emplace_back(route.begin(), route.end());
      for (const LinkId link : route) {
        const DomainId domain = network.properties(link).domain;
        if (domain != kNoDomain) way.push_back(network.resource_of(domain));
      }
    };
    for (std::uint32_t f = 0; f < flows.size(); ++f) {
      first_way_.push_back(static_cast<std::uint32_t>(ways_.size()));
      add_way(f, routes.route(flows[f].first, flows[f].second));
      add_way(f, routes.other_route(flows[f].first, flows[f].second));
    }
    first_way_.push_back(static_cast<std::uint32_t>(ways_.size()));
    got_.resize(flows.size());
  }

  /// By flow, of those that run.
  const std::vector<double>& rates(std::span<const std::uint32_t> running) {
    for_each_way(running, [this](std::uint32_t way) {
      rates_.insert(way, ways_[way], [](ResourceId) {});
      got_[flow_of_[way]] = 0;
    });
    rates_.solve();
    for (std::size_t g = 0; g < rates_.changed_groups(); ++g) {
      const MaxMinRates::Group group = rates_.changed_group(g);
      for (const FlowSlot way : group.flows) got_[flow_of_[way]] += group.gb_per_s;
    }
    for_each_way(running, [this](std::uint32_t way) { rates_.remove(way, [](auto, auto) {}); });
    return got_;
  }

 private:
  template <class Visit>
  void for_each_way(std::span<const std::uint32_t> running, Visit visit) const {
    for (const std::uint32_t f : running) {
      for (std::uint32_t way = first_way_[f]; way < first_way_[f + 1]; ++way) visit(way);
    }
  }

  MaxMinRates rates_;
  std::vector<std::vector<ResourceId>> ways_;
  std::vector<std::uint32_t> flow_of_;    ///< by way
  std::vector<std::uint32_t> first_way_;  ///< by flow
  std::vector<double> got_;
};

/// Transfers that ranks with one copy at a time may be at: all combinations, where these are few, else a sample with a fixed
/// seed.
class TransferSample {
 public:
  explicit TransferSample(std::span<const Flow> flows) : shares_(flows.size()) {
    std::map<Rank, std::vector<std::uint32_t>> by_rank;
    for (std::uint32_t f = 0; f < flows.size(); ++f) by_rank[flows[f].first].push_back(f);
    for (auto& [rank, own] : by_rank) {
      moments_ = std::min<std::uint64_t>(moments_ * own.size(), kMostMoments + 1);
      for (const std::uint32_t f : own) shares_[f] = 1.0 / static_cast<double>(own.size());
      of_rank_.push_back(std::move(own));
    }
  }

  bool any() const { return moments_ > 1; }
  const std::vector<std::vector<std::uint32_t>>& of_rank() const { return of_rank_; }
  double& share(std::uint32_t flow) { return shares_[flow]; }

  /// Calls visit(flows that run, how often).
  template <class Visit>
  void for_each_moment(Visit visit) const {
    std::vector<std::uint32_t> running(of_rank_.size());
    if (moments_ <= kMostMoments) {
      for (std::uint64_t moment = 0; moment < moments_; ++moment) {
        double weight = 1;
        std::uint64_t rest = moment;
        for (std::size_t i = 0; i < running.size(); ++i) {
          running[i] = of_rank_[i][rest % of_rank_[i].size()];
          rest /= of_rank_[i].size();
          weight *= shares_[running[i]];
        }
        visit(running, weight);
      }
      return;
    }
    std::mt19937 random(1);
    for (std::uint32_t sample = 0; sample < kSamples; ++sample) {
      for (std::size_t i = 0; i < running.size(); ++i) {
        double left = static_cast<double>(random()) * 0x1p-32;
        for (const std::uint32_t f : of_rank_[i]) {
          running[i] = f;
          left -= shares_[f];
          if (left < 0) break;
        }
      }
      visit(running, 1.0);
    }
  }

 private:
  static constexpr std::uint64_t kMostMoments = 4096;
  static constexpr std::uint32_t kSamples = 2048;  // the sum is then within 1 % of that of more

  std::vector<double> shares_;                       ///< share of a rank's time, by flow
  std::vector<std::vector<std::uint32_t>> of_rank_;  ///< flows
  std::uint64_t moments_ = 1;
};

std::vector<double> rates_of_copies(SharedRates& sharing, std::span<const Flow> flows) {
  constexpr int kRounds = 16;  // after which shares stand still
  TransferSample turns(flows);
  std::vector<double> speeds(flows.size(), 1);
  for (int round = 0; round < (turns.any() ? kRounds : 1); ++round) {
    std::vector<double> sum(flows.size(), 0);
    std::vector<double> weights(flows.size(), 0);
    turns.for_each_moment([&](std::span<const std::uint32_t> running, double weight) {
      const std::vector<double>& rates = sharing.rates(running);
      for (const std::uint32_t f : running) {
        sum[f] += weight * rates[f];
        weights[f] += weight;
      }
    });
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (weights[f] > 0) speeds[f] = sum[f] / weights[f];
    }
    for (const std::vector<std::uint32_t>& own : turns.of_rank()) {
      double time = 0;
      for (const std::uint32_t f : own) time += 1 / speeds[f];
      for (const std::uint32_t f : own) turns.share(f) = 1 / speeds[f] / time;
    }
  }
  for (std::uint32_t f = 0; f < flows.size(); ++f) speeds[f] *= turns.share(f);
  return speeds;
}

/// Root ports by which writes leave a switch, with the destination root complexes and the writing ranks.
using Crossings = std::map<LinkId, std::map<NodeId, std::set<Rank>>>;

void add(const Topology& topology, const Fabric& fabric, Routes& routes, const Flow& flow,
         Crossings& crossings) {
  std::vector<LinkId> ports;
  for (const LinkId link : routes.route(flow.first, flow.second)) {
    if (topology.link_type(fabric.class_of(link)).root_port) ports.push_back(link);
  }
  if (ports.size() < 2) return;  // it stays behind its switch
  if (!topology.link_type(fabric.class_of(ports.front())).collapses) return;
  const NodeId complex = fabric.network().ends(ports.back()).from;
  crossings[ports.front()][complex].insert(flow.first);
}

void describe(const Fabric& fabric, const Crossings& crossings, Mover mover,
              std::vector<std::string>& found) {
  for (const auto& [port, complexes] : crossings) {
    std::set<Rank> senders;
    for (const auto& [complex, ranks] : complexes) senders.insert(ranks.begin(), ranks.end());
    const bool takes_turns = mover == Mover::copies && senders.size() < 2;
    if (complexes.size() < 2 || takes_turns) continue;
    std::vector<std::string> names;
    for (const auto& [complex, ranks] : complexes) names.push_back(fabric.describe_node(complex));
    const std::string text = fmt::format("{} to {}", fabric.describe(port), fmt::join(names, ", "));
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
}

}  // namespace

bool has_root_ports(const Topology& topology) {
  return std::any_of(topology.link_types.begin(), topology.link_types.end(),
                     [](const LinkType& type) { return type.root_port; });
}

std::vector<Flow> flows_of(std::string_view words, Rank ranks) {
  std::vector<Flow> flows;
  std::istringstream stream{std::string(words)};
  for (std::string word; stream >> word;) {
    const std::vector<Flow> more = flows_of_word(word, ranks);
    flows.insert(flows.end(), more.begin(), more.end());
  }
  require_flows(flows, ranks);
  return flows;
}

std::vector<double> flow_rates(const Topology& topology, std::span<const Flow> flows, Mover mover) {
  require_flows(flows, topology.ranks.value);
  const bool copies = mover == Mover::copies;
  const Fabric fabric(topology, copies ? topology.device.copy_efficiency.value : 1);
  SharedRates sharing(fabric, flows);
  if (copies) return rates_of_copies(sharing, flows);
  std::vector<std::uint32_t> all(flows.size());
  std::iota(all.begin(), all.end(), 0);
  return sharing.rates(all);
}

std::vector<std::string> collapses(const Topology& topology, std::span<const Flow> flows,
                                   Mover mover) {
  std::vector<std::string> found;
  if (!has_root_ports(topology)) return found;
  require_flows(flows, topology.ranks.value);
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
