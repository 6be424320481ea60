// The closed-form model: how long a schedule takes, from one formula per step.
//
// It is a stand-in until the event-driven simulator replaces it. It knows no tiles, no overlap
// between steps and no variation between ranks; read its numbers as estimates. How far it is from
// published tables is in sim/README.md.
//
//   latency = launch + sum over steps s of T(s)
//   T(s)    = synchronisation + start-up + max(wire, QDQ)
//
//   synchronisation   step overhead + message overhead * peers of the busiest rank + latency of the
//                     longest route; 0 when nothing is sent in the step
//   start-up          until the first tile is encoded: once per step in which the codec works
//   wire              max over links of wire bytes / bandwidth: sends of a step share links fairly
//   and
//                     run at the same time
//   QDQ               max over ranks of element-operations / rate of the device, where operations =
//                     encode and decode as CodecCost counts them + one per addition of a sum
//
// Wire and QDQ overlap within a step, because kernels encode tile by tile while earlier tiles
// travel (QuickReduce's design). A value that ends in an output encoded is decoded in the step that
// makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/schedule.h"
#include "sim/topology/topology.h"

namespace arlab {

inline constexpr std::string_view kClosedFormModel = "closed-form";

/// Where the latency goes; the parts add up to it. The overlapped time of a step is booked to the
/// longer of wire and codec.
struct LatencyBreakdown {
  double launch_us = 0;
  double synchronisation_us = 0;
  double wire_us = 0;
  double codec_us = 0;
  bool operator==(const LatencyBreakdown&) const = default;
};

/// What one class of links carried.
struct LinkClassUse {
  LinkClass link_class = LinkClass::link;
  std::size_t links = 0;    ///< that carried anything
  std::uint64_t bytes = 0;  ///< wire bytes; over several hops a message counts on each
  double utilisation = 0;   ///< busy share of the whole latency, of the busiest link of the class
  bool operator==(const LinkClassUse&) const = default;
};

struct StepTime {
  std::uint32_t step = 0;
  double synchronisation_us = 0;
  double startup_us = 0;
  double wire_us = 0;      ///< of the busiest link
  double codec_us = 0;     ///< QDQ and sums of the busiest rank
  double total_us = 0;     ///< synchronisation + start-up + max(wire, codec)
  std::string bottleneck;  ///< in words; of several equally busy links or ranks the first
  bool operator==(const StepTime&) const = default;
};

struct SimulationResult {
  std::string model;  ///< kClosedFormModel
  std::string topology;
  std::string algorithm;
  std::string codec;
  DType dtype = DType::fp16;
  Rank world_size = 1;
  std::uint64_t payload_bytes = 0;  ///< of one rank
  std::uint64_t wire_bytes = 0;     ///< over all sends

  double latency_us = 0;
  double algbw_gb_per_s = 0;  ///< payload bytes / latency
  double busbw_gb_per_s = 0;  ///< algbw * bus_bandwidth_factor()
  LatencyBreakdown breakdown;
  std::vector<LinkClassUse> links;  ///< classes that carried anything
  std::string bottleneck;           ///< largest part of the breakdown, in words, with its share
  std::vector<StepTime> steps;      ///< in order
  bool operator==(const SimulationResult&) const = default;
};

/// Bus over algorithmic bandwidth as nccl-tests define it: 2 (n - 1) / n for an all-reduce,
/// (n - 1) / n for an all-to-all; a dispatch and combine is two of these.
double bus_bandwidth_factor(Collective collective, Rank world_size);

/// The ranks of the schedule are the first world_size devices of the topology. The result does not
/// depend on the order of ops within a step. Whether the schedule is correct is the question
/// of check(), not of this function. Throws InvalidInput when the topology is too small,
/// the schedule refers to what does not exist or cuts a block of the codec, or the codec does not
/// take the dtype.
SimulationResult simulate_closed_form(const Schedule& schedule, const Codec& codec, DType dtype,
                                      const Topology& topology);

}  // namespace arlab
