// A workload: collectives of groups of ranks, at once on one fabric. Tensor parallelism in every
// server, experts across servers and gradients of everybody, say, each with its ranks, algorithm,
// codec and begin; and what each of them loses to the others.
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
  /// all_to_all: instead of equal slots. Of what a rank sends to itself nothing is sent.
  PairBytes pair_bytes = {};
};

struct Workload {
  std::string name;
  std::string summary;
  std::vector<GroupCollective> collectives;
};

inline constexpr std::size_t kMaxCollectives = 1024;

/// Reads TOML text; `origin` names it in messages. Throws InvalidInput: file, key, what is allowed.
Workload parse_workload(std::string_view toml, std::string_view origin);
Workload read_workload(const std::filesystem::path& path);

/// Slots of an all-to-all whose receivers are not alike: rank r of `ranks` receives in proportion to
/// (r + 1)^-skew, of every sender, who sends `bytes` in all, its own slot included. 0: equal slots.
PairBytes skewed(Rank ranks, std::uint64_t bytes, double skew);

/// The plan of an all-to-all whose slots have these many elements, each rounded up to whole blocks of
/// the codecs. Its payload is what the rank that has most sends, its own slot included.
Plan unequal_all_to_all(const PairBytes& elements, const Codecs& codecs, DType dtype);

/// A collective of the workload, at once with the others, and what it would be without them.
struct GroupTime {
  SimulationResult result;  ///< its latency counts from its own start; links of the whole workload
  double start_us = 0;
  double alone_us = 0;
  double slowdown = 1;  ///< latency together / alone
};

/// Throws InvalidInput when a collective names what is not there, or does not fit.
std::vector<GroupTime> simulate_workload(const Workload& workload, const Topology& topology,
                                         const SimulateOptions& options = {});

/// The plan of one of them.
PlacedPlan placed_plan(const GroupCollective& collective, const Topology& topology);

}  // namespace arlab
