// Reads a topology from TOML. The schema is in sim/topology/machines/README.md.

#include <optional>
#include <utility>

#include "sim/topology/quantities.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

LinkType read_link_type(Section& section, std::string name) {
  LinkType type;
  type.name = std::move(name);
  type.bandwidth_gb_per_s = section.quantity("bandwidth_gb_per_s");
  type.latency_us = section.quantity("latency_us");
  section.reject_other_keys();
  return type;
}

void read_graph(Section& file, Topology& topology) {
  topology.switches = file.optional_integer("switches", 0, kMaxTopologyRanks).value_or(0);
  Section links = file.section("links", "a table of link types");
  for (const std::string& name : links.keys()) {
    Section type = links.section(name, "a table of quantities");
    topology.link_types.push_back(read_link_type(type, name));
  }
  if (file.has("domains")) {
    Section domains = file.section("domains", "a table of sharing domains");
    for (const std::string& name : domains.keys()) {
      Section domain = domains.section(name, "a table of quantities");
      topology.domains.push_back({name, domain.quantity("bandwidth_gb_per_s")});
      domain.reject_other_keys();
    }
  }
  file.for_each("edges", [&topology](Section& edge) {
    Edge read;
    read.from = edge.node("from");
    read.to = edge.node("to");
    read.type = edge.text("type");
    if (edge.has("domain")) read.domain = edge.text("domain");
    read.duplex = edge.optional_flag("duplex").value_or(true);
    topology.edges.push_back(std::move(read));
  });
}

void read_shape(Section& file, Topology& topology) {
  switch (topology.kind) {
    case TopologyKind::numa:
      topology.group_size = file.count("group_size");
      break;
    case TopologyKind::fat_tree:
      topology.group_size = file.count("group_size");
      topology.leaf_servers = file.count("leaf_servers");
      break;
    case TopologyKind::dragonfly:
      topology.group_size = file.count("group_size");
      topology.ranks_per_router = file.count("ranks_per_router");
      break;
    case TopologyKind::torus:
      topology.shape = file.extents("shape");
      break;
    default:
      break;
  }
}

Uncertainty read_uncertainty(Section section) {
  Uncertainty read;
  read.scatter_percent = section.number("scatter_percent");
  read.note = section.text("note");
  read.constants = section.texts("constants");
  read.sigma_percent = section.numbers("sigma_percent");
  read.correlation = section.rows_of_numbers("correlation");
  section.reject_other_keys();
  return read;
}

}  // namespace

Topology parse_topology(std::string_view text, std::string_view origin) {
  const toml::table table = parse_toml(text, origin);
  Section file(table, origin, "");
  Topology topology;
  topology.name = file.text("name");
  topology.summary = file.text("summary");
  topology.kind = file.choice("kind", kTopologyKinds);
  topology.ranks = file.count("ranks");
  const bool forwards = topology.kind == TopologyKind::ring || topology.kind == TopologyKind::torus;
  topology.devices_forward = file.optional_flag("devices_forward").value_or(forwards);
  read_shape(file, topology);
  if (topology.kind == TopologyKind::graph) {
    read_graph(file, topology);
  } else {
    for (const std::string& name : link_types_of(topology.kind)) {
      Section section = file.section(name, "a table of quantities");
      topology.link_types.push_back(read_link_type(section, name));
    }
  }
  file.for_each("faults", [&topology](Section& fault) {
    topology.faults.push_back({fault.node("from"), fault.node("to"),
                               fault.number("bandwidth_factor"), fault.text("note")});
  });
  file.for_each("stragglers", [&topology](Section& straggler) {
    Straggler read;
    read.rank = straggler.integer("rank", 0, kMaxTopologyRanks - 1);
    read.delay_us = straggler.quantity("delay_us");
    topology.stragglers.push_back(std::move(read));
  });

  if (file.has("stores")) topology.device.stores.emplace();
  if (file.has("blocks")) topology.device.blocks.emplace();
  if (file.has("small")) topology.device.small.emplace();
  if (file.has("places")) topology.device.places.emplace();
  if (file.has("library")) topology.device.library.emplace();
  if (file.has("compute")) topology.device.compute.emplace();
  // Sections are opened at their first quantity and closed when the next one begins.
  std::optional<Section> section;
  std::string section_name;
  for_each_quantity_of(topology.device, [&](const std::string& key, Quantity& quantity) {
    const std::size_t dot = key.find('.');
    const std::string name = key.substr(0, dot);
    if (name != section_name) {
      if (section) section->reject_other_keys();
      section.emplace(file.section(name, "a table of quantities"));
      section_name = name;
      if (name == "device") topology.device.name = section->text("name");
    }
    const std::string last = key.substr(dot + 1);
    if (is_optional_quantity(key) && !section->has(last)) return;
    quantity = section->quantity(last);
  });
  section->reject_other_keys();
  if (file.has("uncertainty")) {
    topology.uncertainty = read_uncertainty(file.section("uncertainty", "a table"));
  }
  file.reject_other_keys();

  require_valid(topology, origin);
  return topology;
}

Topology read_topology(const std::filesystem::path& path) {
  return parse_topology(read_text_file(path, "topology file"), printable(path.string()));
}

}  // namespace arlab
