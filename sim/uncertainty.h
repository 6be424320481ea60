// How much a simulated latency depends on every constant of a machine, and how uncertain it is for
// the uncertainty of those that were fitted.
//
// A machine's file may hold what a fit says of its constants (Topology::uncertainty): their standard
// deviations and correlations, and how far measured times scatter about the fit. With the
// elasticities e of the latency, d log T / d log c, and the covariance C of log c,
//
//   sigma^2 = e' C e + scatter^2,   interval = T exp(-z sigma) ... T exp(z sigma)
//
// with z of 90 % of a normal distribution. It is of runs like those in the tables of the fit, by a
// model that is right but for scatter; for what no table has in it, it is too narrow.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/topology/topology.h"

namespace arlab {

/// How a latency depends on one constant: when that grows by 1 %, it grows by so many per cent.
struct Elasticity {
  std::string key;
  double value = 0;  ///< the constant itself
  double percent_per_percent = 0;
  bool operator==(const Elasticity&) const = default;
};

/// The elasticities of all quantities but those that are 0, in the order of the file; or of those
/// named. `latency_us` simulates the same on a machine that differs in quantities only.
std::vector<Elasticity> elasticities_of(const Topology& topology,
                                        const std::function<double(const Topology&)>& latency_us,
                                        std::span<const std::string> keys = {});

inline constexpr double kIntervalPercent = 90;

struct LatencyInterval {
  double low_us = 0;
  double high_us = 0;
};

/// Nothing where the machine's file says nothing of uncertainty.
std::optional<LatencyInterval> interval_of(
    const Topology& topology, const std::function<double(const Topology&)>& latency_us);

/// The same from elasticities that are known, of all constants of the machine's uncertainty.
std::optional<LatencyInterval> interval_of(const Topology& topology, double latency_us,
                                           std::span<const Elasticity> elasticities);

}  // namespace arlab
