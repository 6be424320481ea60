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
// cells say that fits have not seen. Intervals that a file declares of its numbers (Quantity::low) count as further constants.
// So every latency has an interval, also where no fit says anything of its machine.
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
inline constexpr double kIntervalSigmas = 1.6448536269514722;  ///< half a normal 90 % interval

struct LatencyInterval {
  double low_us = 0;
  double high_us = 0;
};

/// In what a run may lie beyond those that a fit has seen.
enum class Beyond : std::uint8_t {
  ranks,
  algorithm,
  codec,
  larger,
  smaller,
  kin,         ///< another chip of the generation
  generation,  ///< a chip of another generation
  laboratory,  ///< the fit is of one laboratory's times
  host,        ///< over PCIe: the fit is of one host
  fabric,      ///< a network between servers whose times no fit has seen
  dtype,       ///< never timed on the chip
  unmeasured,  ///< no time of these kernels, or of the library, on this machine or a like one
};
inline constexpr std::size_t kBeyonds = 12;
std::string_view name_of(Beyond beyond);

/// Percent by which each extrapolation widens an interval, added to sigma in squares, for each doubling of ranks or of bytes,
/// else once. With them, 90 % of the cells of hold-outs that differ in this alone lie in their intervals. `arlab validate`
/// computes them (widening_percent): from published tables, and from kernels with `--against measured`; the larger counts.
/// No hold-out of tables in the tree has the last five: MODEL.md says where they come from.
using Widening = std::array<double, kBeyonds>;
inline constexpr Widening kWidening = {8, 8.9, 14.6, 4.3, 3, 8, 29, 6, 15, 1.5, 12, 45};

struct Extrapolation {
  std::optional<Beyond> in;  ///< nothing: it does not widen the interval
  double times = 1;          ///< doublings of ranks or bytes
  std::string reason;        ///< empty: of all runs alike, and not worth a word
};

/// A run, as far as it matters whether a fit has seen its like.
struct CollectiveRun {
  bool library = false;  ///< the vendor's, not a kernel of arlab
  Rank ranks = 0;
  std::uint64_t bytes = 0;
  std::string algorithm = {};  ///< the one that ran
  std::vector<std::string> codecs = {};
  std::optional<DType> dtype = {};
  bool apart = false;  ///< on ranks of several servers, though one has as many
};
CollectiveRun run_of(const SimulationResult& result);

/// The machine with what a run assumes of it as numbers of its own, and without the network that it does not use.
Topology with_assumptions(const Topology& topology, const CollectiveRun& run);

/// Whether it is one of several servers.
bool is_across(const Topology& topology, const CollectiveRun& run);

/// The fit of what it runs on: inside one of several servers the server's, unless the machine's own has seen such.
const std::optional<Uncertainty>& fit_of(const Topology& topology, const CollectiveRun& run);

/// Whether the file only guesses what kernels take for bf16.
bool guesses_bf16(const Device& device);

/// Returns the aspects of a run to which the machine's constants were not fitted, as far as its file says; that no fit is of
/// this machine, where none is; and that a world is too large to tell unequal chunks apart.
std::vector<Extrapolation> extrapolations_of(const Topology& topology, const CollectiveRun& run);

/// In words.
std::vector<std::string> reasons_of(std::span<const Extrapolation> extrapolations);

/// The same, and in what a machine that somebody has differs from those of a fit: laboratory and host, without words.
std::vector<Extrapolation> extrapolations_elsewhere(const Topology& topology,
                                                    const CollectiveRun& run);

/// Whether the library's messages go over PCIe alone, by the chip.
bool is_over_pcie(const Device& device);

/// Returns in words what is assumed of the machine: the network between servers, a host's floor, kernels that cannot run.
std::vector<std::string> assumed_of(const Topology& topology, const CollectiveRun& run);

/// A standard deviation, widened.
double widened(double sigma_percent, std::span<const Extrapolation> extrapolations,
               const Widening& widening = kWidening);

/// One standard deviation of latencies of runs that the fit has seen the like of, in percent.
/// `elasticities`: of all constants of the machine's uncertainty.
double sigma_percent_of(const Uncertainty& known, std::span<const Elasticity> elasticities);
double sigma_percent_of(const Topology& topology,
                        const std::function<double(const Topology&)>& latency_us);

LatencyInterval interval_of(double latency_us, double sigma_percent);

/// Constants whose latency is not simulated again count as this much.
inline constexpr double kConstantsPercent = 6;

/// One standard deviation of any latency, in percent: of constants, of intervals that the file declares or that are assumed, of
/// scatter, widened. Without `latency_us` no constant is changed, and kConstantsPercent counts.
double sigma_percent_of(const Topology& topology, const CollectiveRun& run,
                        std::span<const Extrapolation> beyond,
                        const std::function<double(const Topology&)>& latency_us = nullptr);

/// The interval of any latency; of a guessed run (guess_interval()) its own.
LatencyInterval interval_of(const Topology& topology, const CollectiveRun& run, double latency_us,
                            std::span<const Extrapolation> beyond,
                            const std::function<double(const Topology&)>& again = nullptr);

/// Where a machine has kernels of another one (imported machines without a measurement of their own), a time
/// of few bytes is a guess: so many times it, as far as public times of such machines were off.
inline constexpr double kGuessLow = 0.4;
inline constexpr double kGuessHigh = 2.5;
/// "times below 128 KiB are guesses: x 0.4 to 2.5"; empty where a machine has none.
std::string guess_in_words(const Topology& topology);
/// Returns the interval of a guessed run of so many bytes.
std::optional<LatencyInterval> guess_interval(const Topology& topology, std::uint64_t bytes,
                                              double latency_us);

}  // namespace arlab
