// The one list of a topology's counts and quantities, which checking, listing and calibration
// share.
#pragma once

#include <string>

#include "sim/topology/topology.h"

namespace arlab {

/// Calls visit(key, count) for every count that a topology of its kind has.
template <class AnyTopology, class Visit>
void for_each_count(AnyTopology& topology, Visit visit) {
  using enum TopologyKind;
  visit("ranks", topology.ranks);
  if (topology.kind == numa || topology.kind == fat_tree || topology.kind == dragonfly) {
    visit("group_size", topology.group_size);
  }
  if (topology.kind == fat_tree) {
    visit("leaf_servers", topology.leaf_servers);
    if (topology.nics.value > 0) visit("nics", topology.nics);
    if (topology.pcie_switches.value > 0) visit("pcie_switches", topology.pcie_switches);
  }
  if (topology.kind == dragonfly) visit("ranks_per_router", topology.ranks_per_router);
}

/// Calls visit(key, quantity) for every quantity of a topology, in the order of the file; the key
/// is dotted: link.bandwidth_gb_per_s. `AnyTopology` is Topology or const Topology.
template <class AnyTopology, class Visit>
void for_each_quantity(AnyTopology& topology, Visit visit) {
  const std::string prefix = topology.kind == TopologyKind::graph ? "links." : "";
  for (auto& type : topology.link_types) {
    visit(prefix + type.name + ".bandwidth_gb_per_s", type.bandwidth_gb_per_s);
    visit(prefix + type.name + ".latency_us", type.latency_us);
    if (type.both_ways_gb_per_s) {
      visit(prefix + type.name + ".both_ways_gb_per_s", *type.both_ways_gb_per_s);
    }
  }
  for (auto& domain : topology.domains) {
    visit("domains." + domain.name + ".bandwidth_gb_per_s", domain.bandwidth_gb_per_s);
  }
  if (topology.in_switch.reduction) {
    visit(std::string("switch.reduction_efficiency"), topology.in_switch.reduction_efficiency);
  }
  for_each_quantity_of(topology.device, visit);
  for (std::size_t i = 0; i < topology.stragglers.size(); ++i) {
    visit("stragglers." + std::to_string(i) + ".delay_us", topology.stragglers[i].delay_us);
  }
}

}  // namespace arlab
