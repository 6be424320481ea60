// How much a simulated latency depends on every constant of a machine, and how uncertain it is for
// the uncertainty of those that were fitted.
//
// A machine's file may hold what a fit says of its constants (Topology::uncertainty): their standard
// deviations and correlations, and how far measured times scatter about the fit. With the
// elasticities e of the latency, d log T / d log c, and the covariance C of log c,
//
//   sigma^2 = e' C e + scatter^2 + sum of (w_k d_k)^2,   interval = T exp(-z sigma) ... T exp(z sigma)
//
// with z of 90 % of a normal distribution. The sum is of all in which the run lies beyond what the fit
// has seen (Beyond): d_k says how far, and w_k (kWidening) how much that makes a prediction worse, as
// cells say that fits have not seen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulation.h"
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
inline constexpr double kIntervalSigmas = 1.6448536269514722;  ///< of a normal distribution

struct LatencyInterval {
  double low_us = 0;
  double high_us = 0;
};

/// In what a run may lie beyond those that a fit has seen.
enum class Beyond : std::uint8_t { ranks, algorithm, codec, larger, smaller, device };
inline constexpr std::size_t kBeyonds = 6;
std::string_view name_of(Beyond beyond);

/// By how much that widens an interval: percent that are added to sigma (as squares are added), for each
/// doubling of ranks or of bytes, else once. With these, 90 % of the cells lie in their intervals which
/// hold-outs predict that differ in this one thing. `arlab validate` computes them (widening_percent): of
/// published tables, and of kernels `--against measured`; where both say something the larger counts.
using Widening = std::array<double, kBeyonds>;
inline constexpr Widening kWidening = {8, 8.9, 14.6, 4.3, 3, 29};

struct Extrapolation {
  std::optional<Beyond> in;  ///< nothing: no hold-out says how much it widens, and it does not
  double times = 1;          ///< doublings of ranks or bytes
  std::string reason;
};

/// A run, as far as it matters whether a fit has seen its like.
struct CollectiveRun {
  bool library = false;  ///< the vendor's, not a kernel of arlab
  Rank ranks = 0;
  std::uint64_t bytes = 0;
  std::string algorithm;  ///< that ran
  std::vector<std::string> codecs;
  std::optional<DType> dtype = {};
};
CollectiveRun run_of(const SimulationResult& result);

/// What the machine's constants were not fitted to, as far as its file says what they were; that no fit is
/// of this machine, where none is; and that a world is too large to tell unequal chunks apart.
std::vector<Extrapolation> extrapolations_of(const Topology& topology, const CollectiveRun& run);

/// In words.
std::vector<std::string> reasons_of(std::span<const Extrapolation> extrapolations);

/// Whether nobody knows how far off its time may be: its dtype was not measured, and what that costs is a
/// guess of the machine's file (Device::bf16_cost).
bool is_of_guessed_dtype(const Topology& topology, const CollectiveRun& run);

/// A standard deviation, widened.
double widened(double sigma_percent, std::span<const Extrapolation> extrapolations,
               const Widening& widening = kWidening);

/// One standard deviation of latencies of runs that the fit has seen the like of, in percent.
/// `elasticities`: of all constants of the machine's uncertainty.
double sigma_percent_of(const Uncertainty& known, std::span<const Elasticity> elasticities);
double sigma_percent_of(const Topology& topology,
                        const std::function<double(const Topology&)>& latency_us);

LatencyInterval interval_of(double latency_us, double sigma_percent);

}  // namespace arlab
