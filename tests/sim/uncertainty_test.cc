// Elasticities and intervals with numbers that can be checked on paper.

#include "sim/uncertainty.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sim/topology/quantities.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

constexpr double kNormal90 = 1.6448536269514722;

Topology with_uncertainty(double correlation) {
  Topology t = machine(TopologyKind::full_mesh, 2);
  t.uncertainty = Uncertainty{.scatter_percent = 3,
                              .note = "n",
                              .constants = {"overhead.launch_us", "link.bandwidth_gb_per_s"},
                              .sigma_percent = {10, 5},
                              .correlation = {{}, {correlation}}};
  return t;
}

/// launch^2 / bandwidth.
double powers(const Topology& t) {
  const double launch_us = t.device.launch_us.value;
  return launch_us * launch_us / t.link_type("link").bandwidth_gb_per_s.value;
}

TEST(Uncertainty, ElasticitiesAreExponents) {
  const Topology t = machine(TopologyKind::full_mesh, 2);
  std::map<std::string, double> by_key;
  for (const Elasticity& each : elasticities_of(t, powers)) {
    by_key[each.key] = each.percent_per_percent;
  }
  EXPECT_NEAR(by_key.at("overhead.launch_us"), 2, 1e-12);
  EXPECT_NEAR(by_key.at("link.bandwidth_gb_per_s"), -1, 1e-12);
  EXPECT_EQ(by_key.at("overhead.step_us"), 0);
  // What is at a bound moves to the other side only; what is 0, or not in the file, not at all.
  Topology bound = t;
  bound.device.latency_overlap.value = 1;
  bound.device.all_to_all_efficiency.value = 1;
  bound.device.message_us.value = 0;
  const auto shares = [](const Topology& at) {
    return at.device.latency_overlap.value * std::sqrt(at.device.all_to_all_efficiency.value);
  };
  by_key.clear();
  for (const Elasticity& each : elasticities_of(bound, shares)) {
    by_key[each.key] = each.percent_per_percent;
  }
  EXPECT_NEAR(by_key.at("device.latency_overlap"), 1, 1e-12);
  EXPECT_NEAR(by_key.at("device.all_to_all_efficiency"), 0.5, 1e-12);
  EXPECT_FALSE(by_key.contains("overhead.message_us"));
  const std::vector<std::string> one = {"overhead.launch_us"};
  EXPECT_EQ(elasticities_of(t, powers, one).size(), 1u);
}

/// Twice 10 % and once 5 % with the other sign, and 3 %: 20^2 + 5^2 -+ 2 r 20 5 + 3^2.
TEST(Uncertainty, IntervalsAreThoseOfANormalDistribution) {
  for (const double correlation : {-1.0, 0.0, 0.5, 1.0}) {
    const Topology t = with_uncertainty(correlation);
    const auto interval = interval_of(t, powers);
    ASSERT_TRUE(interval.has_value());
    const double sigma = std::sqrt(400 + 25 - 2 * correlation * 100 + 9) / 100;
    EXPECT_NEAR(interval->high_us / powers(t), std::exp(kNormal90 * sigma), 1e-9) << correlation;
    EXPECT_NEAR(interval->low_us * interval->high_us, powers(t) * powers(t), 1e-9);
  }
  EXPECT_FALSE(interval_of(machine(TopologyKind::full_mesh, 2), powers).has_value());
}

TEST(Uncertainty, WhatDoesNotFitTogetherIsRefused) {
  const auto message = [](auto change) {
    Topology t = with_uncertainty(0);
    change(*t.uncertainty);
    return message_of([&] { require_valid(t, "m.toml"); });
  };
  EXPECT_NO_THROW(require_valid(with_uncertainty(0), "m.toml"));
  const char* shape = "m.toml: section 'uncertainty' does not fit together";
  expect_contains(message([](Uncertainty& u) { u.sigma_percent.pop_back(); }), shape);
  expect_contains(message([](Uncertainty& u) { u.correlation[1].clear(); }), shape);
  expect_contains(message([](Uncertainty& u) { u.correlation[1][0] = 1.5; }), shape);
  expect_contains(message([](Uncertainty& u) { u.scatter_percent = std::nan(""); }), shape);
  Topology t = with_uncertainty(0);
  t.uncertainty->constants[0] = "overhead.lunch_us";
  expect_contains(message_of([&] { parse_topology(to_toml(t), "m.toml"); }),
                  "m.toml: key 'uncertainty.constants': there is no quantity 'overhead.lunch_us'");
}

}  // namespace
}  // namespace arlab
