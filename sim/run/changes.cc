#include "sim/run/changes.h"

#include "sim/run/later.h"

namespace arlab {

Changes::Changes(const Topology& topology, const Fabric& fabric, MessageRoutes& routes,
                 FlowEngine& engine)
    : topology_(topology),
      fabric_(fabric),
      routes_(routes),
      engine_(engine),
      background_(topology.background.size()) {
  for (std::size_t i = 0; i < topology.link_events.size(); ++i) {
    find_links(i);
    changes_.push_back({Change::links, i, later_by(0, topology.link_events[i].at_us)});
  }
  for (std::size_t i = 0; i < topology.background.size(); ++i) {
    const BackgroundFlow& flow = topology.background[i];
    for (const NodeName node : {flow.from, flow.to}) {
      if (node_of(node) < fabric.network().nodes()) continue;
      fail("{}: key 'background' {}: there is no {}", topology.name, i, arlab::describe(node));
    }
    if (flow.until_us == flow.from_us) continue;
    changes_.push_back({Change::begin, i, later_by(0, flow.from_us)});
    changes_.push_back({Change::end, i, later_by(0, flow.until_us)});
  }
}

NodeId Changes::node_of(NodeName name) const {
  return name.is_switch ? topology_.ranks.value + name.number : name.number;
}

/// Those between the nodes of an event, with their bandwidths as the topology's types have them.
void Changes::find_links(std::size_t event) {
  const LinkEvent& e = topology_.link_events[event];
  double factor = 1;
  for (const LinkFault& fault : topology_.faults) {
    if (fault.from == e.from && fault.to == e.to) factor = fault.bandwidth_factor;
  }
  const Network& network = fabric_.network();
  std::vector<std::pair<LinkId, double>>& links = event_links_.emplace_back();
  network.for_each_single_link([&](LinkId link) {
    const LinkEnds ends = network.ends(link);
    if (ends.from != node_of(e.from) || ends.to != node_of(e.to)) return;
    links.emplace_back(link, network.properties(link).bandwidth_gb_per_s / factor);
  });
  if (!links.empty()) return;
  fail("{}: key 'link_events' {}: there is no link from {} to {} that works at the start",
       topology_.name, event, arlab::describe(e.from), arlab::describe(e.to));
}

std::vector<FlowEngine::Withdrawn> Changes::happen(std::size_t change) {
  const Change& what = changes_[change];
  switch (what.kind) {
    case Change::links:
      return change_links(what.index);
    case Change::begin:
      begin_flow(what.index);
      break;
    case Change::end:
      engine_.stop_background(background_[what.index]);
      break;
  }
  return {};
}

void Changes::begin_flow(std::size_t index) {
  const BackgroundFlow& flow = topology_.background[index];
  try {
    background_[index] = engine_.start_background(
        routes_.real_route_of_nodes(node_of(flow.from), node_of(flow.to)), flow.gb_per_s);
  } catch (const InvalidInput&) {
    fail("{}: key 'background' {}: there is no way from {} to {}", topology_.name, index,
         arlab::describe(flow.from), arlab::describe(flow.to));
  }
}

std::vector<FlowEngine::Withdrawn> Changes::change_links(std::size_t index) {
  const LinkEvent& event = topology_.link_events[index];
  const std::size_t dead_before = dead_.size();
  std::vector<FlowEngine::Withdrawn> withdrawn;
  for (const auto& [link, gb_per_s] : event_links_[index]) {
    if (event.bandwidth_factor > 0) {
      engine_.before_change(link);
      routes_.set_bandwidth(link, gb_per_s * event.bandwidth_factor);
      dead_.erase(link);
      continue;
    }
    dead_.insert(link);
    const auto more = engine_.withdraw(link);
    withdrawn.insert(withdrawn.end(), more.begin(), more.end());
  }
  std::erase_if(failed_, [&](const LinkFault& fault) {
    return fault.from == event.from && fault.to == event.to;
  });
  if (event.bandwidth_factor == 0) failed_.push_back({event.from, event.to, 0, event.note});
  if (dead_.size() != dead_before) routes_.avoid(dead_, failed_);
  return withdrawn;
}

}  // namespace arlab
