// Options, results and timelines of a simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/wide_count.h"
#include "sim/network/engine.h"
#include "sim/plan.h"
#include "sim/topology/fabric.h"
#include "sim/topology/topology.h"

namespace arlab {

inline constexpr std::string_view kSimulatorModel = "event-driven";

/// Where the latency goes, along the chain of events that ends last; the parts add up to it.
struct LatencyBreakdown {
  double launch_us = 0;           ///< kernel launch, and the delay of a straggler
  double synchronisation_us = 0;  ///< flags and latencies of links
  double wire_us = 0;             ///< links at their bandwidth, and queues before them
  double contention_us = 0;       ///< stores of the sender that get in each other's way
  double codec_us = 0;            ///< encode, decode, sums, as far as the wire does not hide them
  double release_us = 0;          ///< releases of tiles, as far as nothing hides them
  double agreement_us = 0;  ///< an all-reduce of scales that ranks share, before the collective
  bool operator==(const LatencyBreakdown&) const = default;
};

/// Traffic of one class of links.
struct LinkClassUse {
  std::string link_class;
  std::uint64_t links = 0;  ///< links that carried anything
  WideCount bytes = 0;      ///< wire bytes; over several hops a message counts on each
  double utilisation = 0;   ///< bytes / (bandwidth * latency), of the busiest link of the class
  std::string busiest;      ///< in words
  bool operator==(const LinkClassUse&) const = default;
};

struct SimulationResult {
  std::string model;  ///< kSimulatorModel
  std::string topology;
  std::string algorithm;
  Collective collective = Collective::all_reduce;
  std::string codec;
  std::string inner_codec;  ///< where it is another one; else empty
  DType dtype = DType::fp16;
  Rank world_size = 1;
  std::optional<LibraryChoice> library;  ///< choice of NCCL or RCCL, if it runs
  std::uint64_t payload_bytes = 0;       ///< payload of one rank
  WideCount wire_bytes = 0;              ///< over all sends
  WideCount wire_elements = 0;           ///< payload elements that these bytes carry
  /// Ranks that were simulated: 1 when all do the same and one stands for them.
  Rank simulated_ranks = 1;

  Picoseconds latency = 0;
  double latency_us = 0;
  double equal_chunks_factor = 1;  ///< Plan's: the latency is at most so many times too long
  double algbw_gb_per_s = 0;       ///< payload bytes / latency
  double busbw_gb_per_s = 0;       ///< algbw * bus_bandwidth_factor()
  /// The largest quantum in which rates were solved for; 0: exact.
  double quantum_us = 0;
  /// About the most that the latency may be too long by for it: two quanta for each message of the
  /// chain that ends last.
  double quantum_error_us = 0;
  LatencyBreakdown breakdown;
  std::vector<LinkClassUse> links;  ///< classes that carried anything
  /// The bottleneck in words: the largest part of the breakdown, the link or rank that makes most
  /// of it, its share.
  std::string bottleneck;
  std::vector<std::string> collapses = {};  ///< collapses of PCIe, which are not simulated: flows.h
  bool operator==(const SimulationResult&) const = default;
};

/// Bus over algorithmic bandwidth as nccl-tests define it: 2 (n - 1) / n for an all-reduce,
/// (n - 1) / n for an all-to-all, a reduce-scatter and an all-gather, 1 for a broadcast; a dispatch
/// and combine is two all-to-alls.
double bus_bandwidth_factor(Collective collective, Rank world_size);

/// The timeline of a run; all times count from the call of the collective. Plans that are folded have none. See
/// trace/perfetto.h.
class SimulationTrace {
 public:
  virtual ~SimulationTrace() = default;
  /// Kinds of a rank's work in a stage.
  enum class Work : std::uint8_t { flags, encode, decode, reduce, forward };
  /// Called before all others: what the numbers of links mean. The fabric is gone when the
  /// simulation ends.
  virtual void on_fabric(const Fabric& /*fabric*/) {}
  /// The rank's kernel runs from now on; before that it was launched, or late.
  virtual void on_launched(Rank /*rank*/, Picoseconds /*ready*/) {}
  virtual void on_work(Rank /*rank*/, Work /*work*/, std::uint32_t /*step*/, Picoseconds /*begin*/,
                       Picoseconds /*end*/) {}
  virtual void on_message(const PlannedMessage& /*message*/, std::uint32_t /*step*/,
                          std::span<const LinkId> /*route*/, Picoseconds /*begin*/,
                          Picoseconds /*delivered*/) {}
  /// A link of its route carries the message, from when it begins to flow until it has left, as on
  /// all others.
  virtual void on_link(const PlannedMessage& /*message*/, std::uint32_t /*step*/, LinkId /*link*/,
                       Picoseconds /*begin*/, Picoseconds /*end*/) {}
  /// From now on the message of this number, of those that are simulated, takes this share
  /// of the link's bandwidth; 0 in the end.
  virtual void on_share(MessageId /*message*/, LinkId /*link*/, double /*share*/,
                        Picoseconds /*now*/) {}
};

/// The largest simulation that is not refused: it takes about ten seconds and two gigabytes.
inline constexpr std::uint64_t kMostCrossings = std::uint64_t{1} << 26;
/// About a second.
inline constexpr std::uint64_t kExactSolved = std::uint64_t{1} << 24;

struct SimulateOptions {
  /// Simulates the schedule as the vendor's library runs it: uncompressed, by the protocol that it
  /// takes for this size. Only with a codec that sends the values as they are.
  bool library = false;
  /// Messages that a rank sends alike to all others leave it once, and the switch spreads them (Topology::in_switch).
  bool multicast = false;
  SimulationTrace* trace = nullptr;
  /// Links that the messages cross, all together.
  std::uint64_t most_crossings = kMostCrossings;
  /// Rates that messages share are solved for at most once in such a time: 0 is exact, however long
  /// it takes. Nothing: exact until NetworkEngine::solved() is beyond exact_solved, then with a
  /// quantum that grows by itself (run/quantum.h).
  std::optional<double> quantum_us = {};
  std::uint64_t exact_solved = kExactSolved;
  /// Number of the run, among those that Topology::jitter makes differ; any number.
  std::uint64_t seed = 0;
};

}  // namespace arlab
