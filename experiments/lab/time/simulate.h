// How long does a collective take on a machine, or each of several at once?
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/result.h"
#include "experiments/lab/sizes.h"
#include "sim/simulation.h"
#include "sim/uncertainty.h"

namespace arlab::lab {

struct SimulateRequest {
  std::string topology;
  CollectiveSpec collective;
  std::string codec;
  Sizes sizes;
  std::string dtype;
  std::optional<std::uint32_t> ranks;
  std::string placement;
  std::string workload;
  TailPlaceOptions tail;
  std::optional<double> wire_bits;
  std::optional<double> tail_wire_bits;
  std::optional<double> skew;
  std::optional<std::uint32_t> sms;
  std::optional<std::uint32_t> runs;
  std::optional<std::uint32_t> seed;
  std::optional<double> jitter_launch;
  std::optional<double> jitter_message;
  bool library = false;
  bool multicast = false;
  std::optional<double> quantum;
  std::string trace;
  bool sensitivity = false;
};
std::vector<BoundField> fields(SimulateRequest& request);

/// The text of extrapolated() for codecs with wires of a length that the data decide, where that length is not given.
inline constexpr const char* kLongestWires = "wires of variable length are as long as they can be";

/// Assumptions about tails behind sums in kernels of this algorithm, in words. `separate`: the time of tails behind kernels.
std::vector<std::string> assumed_of_tails(const Topology& topology, std::string_view algorithm,
                                          std::string_view separate);

/// Returns why no constants were fitted: to kernels with fewer multiprocessors, and with tails.
std::vector<Extrapolation> beyond_kernels(bool fewer, bool tails);

/// One collective of one size that has been simulated, and what else can be asked of it. Copies share all of it.
class Simulation {
 public:
  /// Throws InvalidInput for what does not fit, before anything is simulated.
  explicit Simulation(const SimulateRequest& request);

  const SimulationResult& times() const;
  const Topology& topology() const;
  /// Average over all sends, of wires of variable length the most that is possible (is_at_most()) or what was measured.
  double wire_bits_per_element() const;
  /// Whether the latency is that of the longest possible wires, as the data decide how long they are.
  bool is_at_most() const;

  /// How uncertain the latency is: two simulations for each fitted constant, once.
  LatencyInterval interval() const;
  /// Assumptions that neither request nor machine file makes, in words.
  std::vector<std::string> assumed() const;
  /// In what the run lies beyond those that the machine's constants were fitted to, in words.
  std::vector<std::string> extrapolated() const;

  /// Returns the latency's dependence on constants, most first.
  Table sensitivity() const;

  /// The timeline, of which a trace is made, as ui.perfetto.dev reads it: simulated again.
  std::string timeline() const;

  /// Figures as they are printed; without the interval, no time goes into one.
  Result result(bool with_interval = true) const;

 private:
  friend std::vector<Simulation> simulate_sizes(const SimulateRequest& request);
  struct State;
  explicit Simulation(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

/// Names that commas separate; of codecs, which may have commas themselves (abstract.h), and of what may be one file. Throws
/// InvalidInput for an empty one, and for one that stands twice.
std::vector<std::string> names_in(const std::string& list, const std::string& option);

/// A topology, an algorithm and a codec, of each of which a list may name several; a text that is empty is one.
using ListedRun = std::tuple<std::string, std::string, std::string>;
std::vector<ListedRun> listed_runs(const std::string& topologies, const std::string& algorithms,
                                   const std::string& codecs);
bool has_several_topologies(std::span<const ListedRun> runs);

/// Whether a request is of one collective of one size, which Simulation takes.
bool is_single(const SimulateRequest& request);

/// One for each size.
std::vector<Simulation> simulate_sizes(const SimulateRequest& request);

/// Figures by these names, as cells of a row; null for what a simulation does not have.
std::vector<Cell> cells_of(const Simulation& simulation, const std::vector<std::string>& columns);

/// Returns the meaning of latency_us_low and latency_us_high.
Figure interval_figure();

/// Adds the reasons of another size or collective, each reason once.
void add_new(std::vector<std::string>& reasons, const std::vector<std::string>& more);

/// In what runs lie beyond what a fit or a measurement has seen.
Figure extrapolated_figure(const std::vector<std::string>& reasons);
Figure assumed_figure(const std::vector<std::string>& assumed);
/// Adds the figure "assumed", where there is something of it.
void add_assumed(Result& result, const std::vector<std::string>& assumed);
/// The same of the rows of a table: what is not so for all of its algorithms and codecs names those that it is so for.
Figure extrapolated_figure(const Table& table);

/// The answer to any request: of one collective, a row for each size and for each of what is listed, or a row for each
/// collective of a workload.
Result simulate(const SimulateRequest& request);

}  // namespace arlab::lab
