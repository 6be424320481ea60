// Rates of flows between ranks that run at the same time, and where PCIe collapses.
//
// A kernel stores to all of its peers at once, and what it stores shares links max-min fairly. A copy
// engine serves one copy at a time, and no rank knows what the others do. So at any time every rank sends to one receiver, and
// a flow f of rank r has a share x_f of r's time. Its rate then is the max-min fair one beside the other ranks' flows of that
// time:
//
//   speed_f = mean over what the others send, each with its share, of the max-min rate of f
//   rate_f  = x_f speed_f, the same for all flows of a rank, as they have the same bytes: so that
//   x_f     = (1 / speed_f) / sum of 1 / speed over the flows of the rank
//
// Where n ranks send to each other through one switch, a port of capacity c into a rank is thus busy
// for 1 - (1 - 1 / (n - 1))^(n - 1) of the time: 0.70 c of 4 ranks, as measured, with no constant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

/// Text for collapses().
inline constexpr const char* kCollapses =
    "posted writes of one switch to several root complexes: far slower than this, which is not "
    "simulated";

/// From one rank to another, different one.
using Flow = std::pair<Rank, Rank>;

/// Flows in words, separated by spaces: "0>1 2>3"; "all", every pair of the topology's ranks; "all12",
/// of the first four, which make 12; "cross16", from each of the first four to each of the next four;
/// "dist3", from every rank to the third after it, round about.
std::vector<Flow> flows_of(std::string_view words, Rank ranks);

/// The mover of the bytes.
enum class Mover : std::uint8_t {
  stores,  ///< a kernel
  copies,  ///< copy engines, at device.copy_efficiency of the links' bandwidth
};

/// Returns the rate of each flow in GB/s while all of them run. Throws InvalidInput for ranks that are not there, and flows
/// named twice.
std::vector<double> flow_rates(const Topology& topology, std::span<const Flow> flows, Mover mover);

/// Whether the topology says which links lead to root complexes.
bool has_root_ports(const Topology& topology);

/// In words, each root port by which flows that run at the same time leave a switch for several root
/// complexes: posted writes collapse there, by ten times and more, which no sharing of bandwidth
/// explains, and which is not simulated. Copies of one rank take turns, which is no same time.
std::vector<std::string> collapses(const Topology& topology, std::span<const Flow> flows,
                                   Mover mover);

/// The same of what a plan sends in each step.
std::vector<std::string> collapses(const Topology& topology, const Plan& plan);

/// For people: "none", "at uplink switch0->switch4 and 2 more".
std::string in_words(const std::vector<std::string>& collapses);

}  // namespace arlab
