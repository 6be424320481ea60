// The one list of a topology's quantities, which reading, checking and listing share.
#pragma once

#include "sim/topology/topology.h"

namespace arlab {

/// Calls visit(section, key, quantity) for every quantity that a topology of its kind has, in the
/// order of the file. `AnyTopology` is Topology or const Topology.
template <class AnyTopology, class Visit>
void for_each_quantity(AnyTopology& topology, Visit visit) {
  visit("link", "bandwidth_gb_per_s", topology.link_bandwidth_gb_per_s);
  visit("link", "latency_us", topology.link_latency_us);
  if (topology.kind == TopologyKind::numa) {
    visit("bridge", "bandwidth_gb_per_s", topology.bridge_bandwidth_gb_per_s);
    visit("bridge", "latency_us", topology.bridge_latency_us);
  }
  visit("overhead", "launch_us", topology.launch_overhead_us);
  visit("overhead", "step_us", topology.step_overhead_us);
  visit("overhead", "message_us", topology.message_overhead_us);
  visit("device", "codec_gops_per_s", topology.codec_gops_per_s);
  visit("device", "codec_startup_us", topology.codec_startup_us);
}

}  // namespace arlab
