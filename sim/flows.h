// What flows between ranks get when they run at the same time, and where PCIe collapses.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

/// What to say of collapses().
inline constexpr const char* kCollapses =
    "posted writes of one switch to several root ports: far slower than this, which is not "
    "simulated";

/// From one rank to another, different one.
using Flow = std::pair<Rank, Rank>;

/// Who moves the bytes.
enum class Mover : std::uint8_t {
  stores,  ///< a kernel, to all peers at once
  /// copy engines: at device.copy_efficiency of the bandwidth, and a rank's flows take turns in no
  /// order, each turn at its own speed
  copies,
};

/// What each flow gets, GB/s: its bytes, the same for all, over the time until it ends. The order of
/// turns has a fixed seed. Throws InvalidInput for ranks that are not there, and flows named twice.
std::vector<double> flow_rates(const Topology& topology, std::span<const Flow> flows, Mover mover);

/// Whether the topology says which links lead to root complexes.
bool has_root_ports(const Topology& topology);

/// In words, each place where flows of one switch that run at the same time leave it by one root
/// port for several others: posted writes collapse there, by ten times and more, which no sharing of
/// bandwidth explains, and which is not simulated. Of copies, flows of one rank take turns.
std::vector<std::string> collapses(const Topology& topology, std::span<const Flow> flows,
                                   Mover mover);

/// The same of what a plan sends in each step.
std::vector<std::string> collapses(const Topology& topology, const Plan& plan);

/// For people: "none", "at uplink switch0->switch4 and 2 more".
std::string in_words(const std::vector<std::string>& collapses);

}  // namespace arlab
