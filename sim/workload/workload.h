// A workload: collectives of groups of ranks, at once on one fabric, and computations between them.
// Tensor parallelism in every server, experts across servers and gradients of everybody, say, each
// with its ranks, algorithm, codec, and begin or what it waits for; and what each of them loses to
// the others.
//
// Workloads are TOML files; README.md of this folder documents the schema.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulator.h"

namespace arlab {

/// Bytes that one rank has for another: [sender][receiver].
using PairBytes = std::vector<std::vector<std::uint64_t>>;

/// One collective of one group.
struct GroupCollective {
  std::string name;
  std::vector<Rank> ranks;  ///< ranks of the topology, in the order of the collective's own
  std::string algorithm;
  std::string codec;
  std::string dtype = {};   ///< empty: fp16, if the codec takes it
  std::uint64_t bytes = 0;  ///< payload of one rank
  double start_us = 0;
  AlgorithmOptions options = {};
  bool library = false;
  /// all_to_all: instead of equal slots. A rank's bytes to itself are not sent.
  PairBytes pair_bytes = {};
  /// Names of collectives and computations: it begins when all of them have ended on all their
  /// ranks, and not before start_us.
  std::vector<std::string> after = {};
};

/// A computation that each rank does alike. A rank does one computation at a time: that which can begin first, or stands first.
struct Computation {
  std::string name;
  std::vector<Rank> ranks;
  double us = 0;
  double flop = 0;  ///< instead: of a matrix product of a rank, by the machine's [compute]
  double start_us = 0;
  std::vector<std::string> after = {};
};

struct Workload {
  std::string name;
  std::string summary;
  std::vector<GroupCollective> collectives;
  std::vector<Computation> computations = {};
};

/// Collectives, and computations.
inline constexpr std::size_t kMaxCollectives = 1024;

/// Reads TOML text; `origin` names it in messages. Throws InvalidInput: file, key, what is allowed.
Workload parse_workload(std::string_view toml, std::string_view origin);
Workload read_workload(const std::filesystem::path& path);

/// Slots of an all-to-all whose receivers are not alike: rank r of `ranks` receives in proportion to
/// (r + 1)^-skew, of every sender, who sends `bytes` in all, its own slot included. 0: equal slots.
PairBytes skewed(Rank ranks, std::uint64_t bytes, double skew);

/// The plan of an all-to-all whose slots have these many elements, each rounded up to whole blocks of
/// the codecs. Its payload is that of the rank that sends most, its own slot included.
Plan unequal_all_to_all(const PairBytes& elements, const Codecs& codecs, DType dtype);

/// A collective or computation of the workload, at once with the others, and its time without them. A computation's result has
/// ranks, latency, and an algorithm that is called so.
struct GroupTime {
  SimulationResult result;  ///< latency from its own start; links of all that run with it
  double start_us = 0;
  double end_us = 0;
  double alone_us = 0;
  double slowdown = 1;  ///< latency together / alone
};

/// A workload on a machine: planned once, and run as often as is wanted. Times are of its
/// collectives in their order, then of its computations.
class PlannedWorkload {
 public:
  /// A waiting entry: a collective, or a computation.
  struct Entry {
    std::string name;
    std::vector<Rank> ranks;
    double start_us = 0;  ///< not before it
    std::vector<std::size_t> after;
    double computes_us = 0;
  };

  /// Throws InvalidInput when something names what is not there, does not fit, or can never begin
  /// because it waits for itself. The topology must outlive it.
  PlannedWorkload(const Workload& workload, const Topology& topology);

  /// All together; nothing is said about what they would be alone. Throws InvalidInput as
  /// simulate_together() does.
  std::vector<GroupTime> together(const SimulateOptions& options) const;
  /// And what each loses to the others.
  std::vector<GroupTime> compared(const SimulateOptions& options) const;

  /// Collectives in their order, then computations.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  bool is_collective(std::size_t entry) const { return entry < plans_.size(); }
  void find_what_they_wait_for(std::size_t entry, const std::vector<std::string>& names);
  void require_no_circle() const;

  const Topology& topology_;
  std::vector<PlacedPlan> plans_;
  std::vector<Entry> entries_;
};

inline std::vector<GroupTime> simulate_workload(const Workload& workload, const Topology& topology,
                                                const SimulateOptions& options = {}) {
  return PlannedWorkload(workload, topology).compared(options);
}

}  // namespace arlab
