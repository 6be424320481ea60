// Laws of every network and every set of messages: random ones, against slow definitions.
//
// What is not here, because it is not true: that more bandwidth on one link never makes anything
// later. A faster link lets its messages take more of the links behind it (a case by hand is in
// timing_test.cc). It is true, and tested, for a set of simultaneous messages when everything
// becomes faster by the same factor, and when they share one resource only.
//
// Speed is not tested. Measured on 2026-11-29, on one core of a Xeon (GCC 12, -O3), in million messages
// per second of processor time: all-to-all of 1024 ranks over links of their own 8.7 (sizes equal; 134 MB)
// and 4.9 (sizes random), a ring of 4096 16.5 and 6.5, through a switch of 256 3.8, 1024 to one 0.015.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "sim/network/flow_engine.h"
#include "tests/sim/network/dice.h"
#include "tests/sim/network/recorder.h"

namespace arlab {
namespace {

struct Sending {
  Picoseconds time = 0;
  std::vector<LinkId> route;
  std::uint64_t bytes = 0;
  double cap = kNoRateCap;
  std::uint32_t turn = 0;
  std::uint32_t stream = 0;
};

struct Case {
  Network network;
  std::vector<Sending> sendings;  ///< in the order of times; the index is the tag
};

struct Shape {
  bool simultaneous = false;  ///< all start at 0
  double speed = 1;           ///< factor on all bandwidths and caps
  double latency = 1;         ///< factor on all latencies
  int copies = 1;             ///< networks beside each other; messages go through the last
};

/// Up to 9 nodes, 20 links, 3 domains, 60 messages over up to 5 links. Bandwidths of few values, so
/// that levels tie, or of many.
Case random_case(std::uint64_t seed, const Shape& shape = {}) {
  Case result;
  LinkId first_link = 0;
  for (int copy = 0; copy < shape.copies; ++copy) {
    Dice dice(seed);
    Network& network = result.network;
    const std::uint32_t nodes = 2 + dice.below(8);
    const NodeId first_node = network.add_devices(nodes, Forwarding::yes);
    const bool round_numbers = dice.one_in(2);
    const auto bandwidth = [&] {
      return shape.speed * (round_numbers ? 10.0 * (1 + dice.below(4)) : dice.between(0.1, 100));
    };
    const std::uint32_t domains = dice.below(4);
    const DomainId first_domain = network.domains();
    for (std::uint32_t i = 0; i < domains; ++i) network.add_domain(bandwidth());
    const std::uint32_t links = 1 + dice.below(20);
    first_link = network.links();
    for (std::uint32_t i = 0; i < links; ++i) {
      const NodeId from = dice.below(nodes);
      const NodeId to = (from + 1 + dice.below(nodes - 1)) % nodes;
      const bool shares = domains > 0 && dice.one_in(3);
      const double bandwidth_gb_per_s = bandwidth();
      const double latency_us = shape.latency * 0.1 * dice.below(20);
      network.add_link(first_node + from, first_node + to,
                       {bandwidth_gb_per_s, latency_us,
                        shares ? first_domain + dice.below(domains) : kNoDomain});
    }
    if (copy + 1 < shape.copies) continue;

    const std::uint32_t messages = 1 + dice.below(60);
    const bool equal_sizes = dice.one_in(3);
    Picoseconds time = 0;
    for (std::uint32_t i = 0; i < messages; ++i) {
      Sending sending;
      LinkId link = first_link + dice.below(links);
      const std::uint32_t hops = 1 + dice.below(5);
      for (std::uint32_t hop = 0; hop < hops; ++hop) {
        sending.route.push_back(link);
        std::vector<LinkId> onwards;
        for (LinkId next = first_link; next < network.links(); ++next) {
          if (network.ends(next).from == network.ends(link).to) onwards.push_back(next);
        }
        if (onwards.empty()) break;
        link = onwards[dice.below(static_cast<std::uint32_t>(onwards.size()))];
      }
      sending.bytes = dice.one_in(10) ? 0 : equal_sizes ? 100'000 : 1 + dice.below(300'000);
      const double cap = dice.between(0.5, 30) * shape.speed;
      if (dice.one_in(4)) sending.cap = cap;
      const Picoseconds pause = dice.one_in(2) ? 0 : dice.below(3'000'000);
      if (!shape.simultaneous) time += pause;
      sending.time = time;
      result.sendings.push_back(sending);
    }
  }
  return result;
}

/// Resources of a route, with repetitions.
std::vector<ResourceId> resources_of(const Network& network, std::span<const LinkId> route) {
  std::vector<ResourceId> resources;
  for (const LinkId link : route) {
    resources.push_back(link);
    const DomainId domain = network.properties(link).domain;
    if (domain != kNoDomain) resources.push_back(network.resource_of(domain));
  }
  return resources;
}

Picoseconds latency_of(const Network& network, std::span<const LinkId> route) {
  Picoseconds latency = 0;
  for (const LinkId link : route) latency += network.properties(link).latency;
  return latency;
}

/// Deliveries by tag.
std::vector<Delivery> run(const Case& c, NetworkTrace* trace = nullptr, Rig* keep = nullptr) {
  std::optional<Rig> own;
  if (keep == nullptr) own.emplace(c.network, 2u);
  Rig& rig = keep != nullptr ? *keep : *own;
  rig.engine.set_trace(trace);
  for (std::size_t tag = 0; tag < c.sendings.size(); ++tag) {
    const Sending& s = c.sendings[tag];
    rig.at(s.time, [&rig, &s, tag] {
      rig.engine.send({.route = s.route,
                       .bytes = s.bytes,
                       .tag = tag,
                       .rate_cap_gb_per_s = s.cap,
                       .turn = s.turn,
                       .stream = s.stream});
    });
  }
  rig.engine.run();
  EXPECT_EQ(rig.deliveries.size(), c.sendings.size());
  std::vector<Delivery> by_tag(c.sendings.size());
  for (const Delivery& delivery : rig.deliveries) by_tag[delivery.tag] = delivery;
  return by_tag;
}

// ---------------------------------------------------------------- max-min rates

struct LiveFlow {
  std::vector<ResourceId> resources;
  double cap = kNoRateCap;
  double rate = 0;
  double bytes = 0;
  double sent = 0;
  Picoseconds since = 0;
  int changes = 0;
};

/// Progressive filling by its definition: all rise together, who meets a limit stays behind.
std::map<std::uint64_t, double> fair_rates(const Network& network,
                                           const std::map<std::uint64_t, LiveFlow>& flows) {
  std::map<std::uint64_t, long double> rates;
  std::map<std::uint64_t, bool> rising;
  for (const auto& [tag, flow] : flows) rising[tag] = true;
  for (;;) {
    std::vector<long double> left(network.resources());
    std::vector<int> users(network.resources());
    for (ResourceId r = 0; r < network.resources(); ++r) left[r] = network.capacity_gb_per_s(r);
    for (const auto& [tag, flow] : flows) {
      for (const ResourceId r : flow.resources) {
        left[r] -= rates[tag];
        users[r] += rising[tag] ? 1 : 0;
      }
    }
    long double step = std::numeric_limits<long double>::infinity();
    for (ResourceId r = 0; r < network.resources(); ++r) {
      if (users[r] > 0) step = std::min(step, left[r] / users[r]);
    }
    for (const auto& [tag, flow] : flows) {
      if (rising[tag]) step = std::min(step, flow.cap - rates[tag]);
    }
    if (!std::isfinite(static_cast<double>(step))) break;
    step = std::max(step, 0.0L);
    for (const auto& [tag, flow] : flows) {
      if (rising[tag]) rates[tag] += step;
    }
    for (const auto& [tag, flow] : flows) {
      if (!rising[tag]) continue;
      bool limited = rates[tag] >= flow.cap * (1 - 1e-15L);
      for (const ResourceId r : flow.resources) {
        limited = limited || left[r] - users[r] * step <= 1e-13L * network.capacity_gb_per_s(r);
      }
      if (limited) rising[tag] = false;
    }
  }
  std::map<std::uint64_t, double> result;
  for (const auto& [tag, rate] : rates) result[tag] = static_cast<double>(rate);
  return result;
}

/// Follows an engine and checks its rates whenever it says that they are right.
class RateChecker : public NetworkTrace {
 public:
  explicit RateChecker(const Network& network) : network_(network) {}

  int solved = 0;
  int crowded = 0;  ///< solutions with 10 or more messages

  void on_started(const Message& message, Picoseconds now) override {
    if (message.bytes == 0) return;
    LiveFlow& flow = flows_[message.tag];
    flow.resources = resources_of(network_, message.route);
    flow.cap = message.rate_cap_gb_per_s;
    flow.bytes = static_cast<double>(message.bytes);
    flow.since = now;
  }
  void on_rate(std::uint64_t tag, double gb_per_s, Picoseconds now) override {
    LiveFlow& flow = flows_.at(tag);
    flow.sent += bytes_in(now - flow.since, flow.rate);
    flow.since = now;
    flow.rate = gb_per_s;
    ++flow.changes;
  }
  void on_sent(std::uint64_t tag, Picoseconds now) override {
    const auto found = flows_.find(tag);
    if (found == flows_.end()) return;  // empty
    const LiveFlow& flow = found->second;
    // Conservation: what has flowed is the message, up to the rounding of its end.
    const double sent = flow.sent + bytes_in(now - flow.since, flow.rate);
    EXPECT_NEAR(sent, flow.bytes, bytes_in(1, flow.rate) + 1e-9 * flow.bytes);
    flows_.erase(found);
  }
  void on_solved(Picoseconds) override {
    ++solved;
    crowded += flows_.size() >= 10 ? 1 : 0;
    constexpr double kClose = 1e-9;
    std::vector<double> used(network_.resources());
    std::vector<double> fastest(network_.resources());
    for (const auto& [tag, flow] : flows_) {
      for (const ResourceId r : flow.resources) {
        used[r] += flow.rate;
        fastest[r] = std::max(fastest[r], flow.rate);
      }
    }
    for (ResourceId r = 0; r < network_.resources(); ++r) {
      EXPECT_LE(used[r], network_.capacity_gb_per_s(r) * (1 + kClose));
    }
    const auto fair = fair_rates(network_, flows_);
    for (const auto& [tag, flow] : flows_) {
      EXPECT_NEAR(flow.rate, fair.at(tag), kClose * fair.at(tag)) << "message " << tag;
      EXPECT_LE(flow.rate, flow.cap);
      // The certificate: at its cap, or with a full resource on which no message is faster.
      bool certified = flow.rate == flow.cap;
      for (const ResourceId r : flow.resources) {
        const bool full = used[r] >= network_.capacity_gb_per_s(r) * (1 - kClose);
        certified = certified || (full && flow.rate >= fastest[r] * (1 - kClose));
      }
      EXPECT_TRUE(certified) << "message " << tag;
    }
  }

 private:
  const Network& network_;
  std::map<std::uint64_t, LiveFlow> flows_;  ///< by tag
};

TEST(FlowProperties, RatesAreMaxMinFairAfterEveryChange) {
  int solved = 0;
  int crowded = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed);
    RateChecker checker(c.network);
    run(c, &checker);
    solved += checker.solved;
    crowded += checker.crowded;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(solved, 5000);
  EXPECT_GT(crowded, 1000);
}

/// Follows messages that take turns: when they flow, of which turn they are.
class TurnChecker : public NetworkTrace {
 public:
  explicit TurnChecker(const Case& c) : case_(c) {}

  int waited = 0;
  int stopped = 0;

  void on_started(const Message& message, Picoseconds) override {
    if (message.bytes > 0) rate_[message.tag] = 0;
  }
  void on_rate(std::uint64_t tag, double gb_per_s, Picoseconds) override {
    stopped += gb_per_s == 0 && rate_.at(tag) > 0 ? 1 : 0;
    rate_.at(tag) = gb_per_s;
  }
  void on_sent(std::uint64_t tag, Picoseconds) override { rate_.erase(tag); }
  /// Among messages that begin alike, the lowest turn flows, all of it, and no other.
  void on_solved(Picoseconds) override {
    std::map<std::pair<LinkId, std::uint32_t>, std::uint32_t> lowest;
    for (const auto& [tag, rate] : rate_) {
      const Sending& s = case_.sendings[tag];
      const auto place = lowest.try_emplace({s.route[0], s.stream}, s.turn).first;
      place->second = std::min(place->second, s.turn);
    }
    for (const auto& [tag, rate] : rate_) {
      const Sending& s = case_.sendings[tag];
      EXPECT_EQ(rate > 0, (s.turn == lowest.at({s.route[0], s.stream}))) << "message " << tag;
      waited += rate == 0 ? 1 : 0;
    }
  }

 private:
  const Case& case_;
  std::map<std::uint64_t, double> rate_;  ///< by tag, of those that have not left
};

TEST(FlowProperties, OnlyTheLowestTurnOfASenderFlows) {
  int waited = 0;
  int stopped = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Case c = random_case(seed);
    Dice dice(seed);
    for (Sending& sending : c.sendings) {
      sending.turn = dice.below(5);
      sending.stream = dice.below(2);
    }
    TurnChecker checker(c);
    const std::vector<Delivery> traced = run(c, &checker);
    waited += checker.waited;
    stopped += checker.stopped;
    // Without a trace most events are others.
    const std::vector<Delivery> quiet = run(c);
    for (std::size_t tag = 0; tag < traced.size(); ++tag) {
      EXPECT_EQ(quiet[tag].sent, traced[tag].sent) << "message " << tag;
      EXPECT_EQ(quiet[tag].delivered, traced[tag].delivered) << "message " << tag;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(waited, 1000);
  EXPECT_GT(stopped, 100);
}

/// One large component per instant, in which bottlenecks follow each other.
TEST(FlowProperties, RatesAreMaxMinFairInACrowd) {
  Dice dice(5);
  Case c;
  constexpr std::uint32_t kNodes = 30;
  c.network.add_devices(kNodes);
  const NodeId hub = c.network.add_switches(1);
  for (NodeId node = 0; node < kNodes; ++node) {
    c.network.add_link(node, hub, {dice.between(1, 100), 0});
    c.network.add_link(hub, node, {dice.between(1, 100), 0});
  }
  for (int i = 0; i < 250; ++i) {
    const NodeId from = dice.below(kNodes);
    const NodeId to = (from + 1 + dice.below(kNodes - 1)) % kNodes;
    c.sendings.push_back({.time = dice.below(4) * 1'000'000,
                          .route = {2 * from, 2 * to + 1},
                          .bytes = 1 + dice.below(100'000)});
  }
  RateChecker checker(c.network);
  run(c, &checker);
  EXPECT_GT(checker.crowded, 150);
}

// ---------------------------------------------------------------- bytes and bounds

TEST(FlowProperties, BytesAreConservedAndBoundsHold) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed);
    Rig rig(c.network);
    const std::vector<Delivery> deliveries = run(c, nullptr, &rig);
    const auto messages = static_cast<Picoseconds>(c.sendings.size());
    std::vector<std::uint64_t> bytes(c.network.resources());
    std::vector<Picoseconds> first(c.network.resources(), kNever);
    std::vector<Picoseconds> last(c.network.resources(), 0);
    for (std::size_t tag = 0; tag < c.sendings.size(); ++tag) {
      const Sending& s = c.sendings[tag];
      const Delivery& d = deliveries[tag];
      EXPECT_EQ(d.started, s.time);
      EXPECT_EQ(d.bytes, s.bytes);
      EXPECT_LE(d.started, d.sent);
      // A single message takes its latency and its slowest link. An instant is rounded once per cause.
      const Picoseconds latency = latency_of(c.network, s.route);
      double slowest = s.cap;
      std::map<ResourceId, int> uses;
      for (const ResourceId r : resources_of(c.network, s.route)) {
        slowest = std::min(slowest, c.network.capacity_gb_per_s(r));
        bytes[r] += s.bytes;
        if (s.bytes == 0) continue;
        first[r] = std::min(first[r], d.started);
        last[r] = std::max(last[r], d.delivered);
      }
      const Picoseconds alone = latency + transfer_time(static_cast<double>(s.bytes), slowest);
      EXPECT_GE(d.delivered - d.started, alone - messages);
    }
    for (ResourceId r = 0; r < c.network.resources(); ++r) {
      // Conservation, and what a resource takes for all that crosses it.
      const ResourceUsage usage = rig.engine.usage(r);
      EXPECT_EQ(usage.bytes, bytes[r]);
      EXPECT_LE(usage.utilisation, 1 + 1e-6);
      EXPECT_LE(usage.busy, rig.engine.now());
      if (bytes[r] == 0) continue;
      const Picoseconds least =
          transfer_time(static_cast<double>(bytes[r]), c.network.capacity_gb_per_s(r));
      EXPECT_GE(last[r] - first[r], least - messages);
      EXPECT_GE(usage.busy, least - messages);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FlowProperties, ARunRepeatsBitForBit) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed);
    const auto once = run(c);
    const auto again = run(c);
    // Beside two idle copies of itself: other numbers of nodes and links, the same order.
    const auto beside = run(random_case(seed, {.copies = 3}));
    for (std::size_t tag = 0; tag < once.size(); ++tag) {
      EXPECT_EQ(once[tag].delivered, again[tag].delivered);
      EXPECT_EQ(once[tag].sent, beside[tag].sent);
      EXPECT_EQ(once[tag].delivered, beside[tag].delivered);
    }
  }
}

/// Components neither see each other nor the order in which they are solved.
TEST(FlowProperties, IndependentPartsDoNotTouchEachOther) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Case alone = random_case(seed);
    Case both = random_case(seed, {.copies = 2});
    // The messages of the second copy, and the same ones in the first, at other times.
    const LinkId links = alone.network.links();
    std::vector<std::pair<Sending, std::size_t>> all;
    for (std::size_t tag = 0; tag < alone.sendings.size(); ++tag) {
      all.emplace_back(both.sendings[tag], tag);
      Sending other = alone.sendings[tag];
      other.time += seed % 2 == 0 ? 0 : 700'000;
      ASSERT_LT(other.route[0], links);
      all.emplace_back(other, tag + alone.sendings.size());
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first.time < b.first.time; });
    both.sendings.clear();
    for (const auto& [sending, tag] : all) both.sendings.push_back(sending);
    const auto apart = run(alone);
    const auto together = run(both);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t tag = all[i].second % apart.size();
      EXPECT_EQ(together[i].sent - together[i].started, apart[tag].sent - apart[tag].started);
    }
  }
}

/// The order in which simultaneous messages are handed in does not matter.
TEST(FlowProperties, OrderOfSimultaneousStartsDoesNotMatter) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed, {.simultaneous = true});
    Case shuffled = c;
    std::vector<std::size_t> order(c.sendings.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Dice dice(seed);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[dice.below(static_cast<std::uint32_t>(i))]);
    }
    for (std::size_t i = 0; i < order.size(); ++i) shuffled.sendings[i] = c.sendings[order[i]];
    const auto one = run(c);
    const auto other = run(shuffled);
    for (std::size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(one[order[i]].delivered, other[i].delivered);
    }
  }
}

/// Theorem: rates of a max-min solution are proportional to the capacities. So when all of these grow
/// by a factor, a set of simultaneous messages goes through the same stages that much faster.
TEST(FlowProperties, AFasterNetworkIsFasterByTheSameFactor) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const auto slow = run(random_case(seed, {.simultaneous = true, .latency = 0}));
    const auto fast = run(random_case(seed, {.simultaneous = true, .speed = 4, .latency = 0}));
    for (std::size_t tag = 0; tag < slow.size(); ++tag) {
      EXPECT_NEAR(static_cast<double>(slow[tag].sent), 4 * static_cast<double>(fast[tag].sent),
                  4 * static_cast<double>(slow.size()));
    }
  }
}

/// Theorem: with one shared resource (and caps) no message of a simultaneous set ends later when
/// the resource is faster. While each has sent at least as much as with the slower one, the remaining
/// ones are among those remaining there; the level to which they fill more is not lower.
TEST(FlowProperties, AFasterSharedLinkMakesNobodyLater) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    Case slow;
    Case fast;
    const double bandwidth = dice.between(1, 50);
    for (Case* c : {&slow, &fast}) {
      c->network.add_devices(2);
      c->network.add_link(0, 1, {bandwidth * (c == &fast ? 1.3 : 1), 1});
    }
    const std::uint32_t messages = 1 + dice.below(40);
    for (std::uint32_t i = 0; i < messages; ++i) {
      Sending sending{.time = 0, .route = {0}, .bytes = 1 + dice.below(100'000)};
      if (dice.one_in(3)) sending.cap = dice.between(0.1, 10);
      slow.sendings.push_back(sending);
      fast.sendings.push_back(sending);
    }
    const auto before = run(slow);
    const auto after = run(fast);
    for (std::size_t tag = 0; tag < before.size(); ++tag) {
      EXPECT_LE(after[tag].delivered, before[tag].delivered + messages);
    }
  }
}

}  // namespace
}  // namespace arlab
