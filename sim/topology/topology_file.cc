// Reads a topology from TOML. Meanings of keys: sim/topology/machines/README.md, and for the device the comments in
// sim/device/device.h.

#include <fmt/ranges.h>

#include <optional>
#include <set>
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
  if (section.has("both_ways_gb_per_s")) {
    type.both_ways_gb_per_s = section.quantity("both_ways_gb_per_s");
  }
  type.root_port = section.optional_flag("root_port").value_or(false);
  type.collapses = section.optional_flag("collapses").value_or(true);
  if (!type.collapses && !type.root_port) {
    section.refuse("collapses", "it is of links with root_port = true");
  }
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
      if (file.has("nics")) topology.nics = file.count("nics");
      if (file.has("pcie_switches")) topology.pcie_switches = file.count("pcie_switches");
      if (file.has("inside")) topology.inside = file.choice("inside", kServerInsides);
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

void read_in_switch(Section& file, Topology& topology) {
  const bool in_servers =
      topology.kind == TopologyKind::fat_tree && topology.inside == ServerInside::switched;
  const bool has_switch = topology.kind == TopologyKind::switched || in_servers;
  if (!has_switch || !file.has("switch")) return;
  Section section = file.section("switch", "a table of what the switch does");
  InSwitch& in_switch = topology.in_switch;
  in_switch.multicast = section.optional_flag("multicast").value_or(false);
  in_switch.reduction = section.optional_flag("reduction").value_or(false);
  if (in_switch.reduction) {
    in_switch.reduction_efficiency = section.quantity("reduction_efficiency");
  }
  section.reject_other_keys();
}

/// The sections of links that a file must have, and those that it may have.
std::vector<std::string> link_sections(Section& file, const Topology& topology) {
  if (topology.kind != TopologyKind::fat_tree) return link_types_of(topology.kind);
  std::vector<std::string> names;
  for (const char* optional : {"link", "pcie", "root"}) {
    if (file.has(optional)) names.emplace_back(optional);
  }
  names.insert(names.end(), {"nic", "uplink"});
  return names;
}

// ---------------------------------------------------------------- files that build on another

/// Keys that say what connects the devices; they mean something else in every kind.
constexpr const char* kShapeKeys[] = {"group_size",
                                      "leaf_servers",
                                      "ranks_per_router",
                                      "nics",
                                      "pcie_switches",
                                      "inside",
                                      "shape",
                                      "switches",
                                      "links",
                                      "domains",
                                      "edges",
                                      "bridge",
                                      "pcie",
                                      "root",
                                      "nic",
                                      "uplink",
                                      "local",
                                      "global",
                                      "faults",
                                      "link_events",
                                      "background",
                                      "device_overrides",
                                      "devices_forward"};
constexpr int kMostBases = 8;

/// Replaces values of `base` by those of `own`; a number goes with where it comes from.
void merge(toml::table& base, const toml::table& own) {
  for (const auto& [key, node] : own) {
    toml::node* known = base.get(key);
    const toml::table* section = node.as_table();
    const bool both = section != nullptr && known != nullptr && known->is_table();
    if (both && !section->contains("value") && !known->as_table()->contains("value")) {
      merge(*known->as_table(), *section);
    } else {
      base.insert_or_assign(key, node);
    }
  }
}

/// A base's [uncertainty] is no longer of constants that the file replaces or goes without.
void forget_replaced(toml::table& merged, const toml::table& own, std::string_view section) {
  toml::table* known = merged[section].as_table();
  if (known == nullptr || own.contains(section)) return;
  toml::array* keys = (*known)["constants"].as_array();
  toml::array* sigma = (*known)["sigma_percent"].as_array();
  toml::array* rows = (*known)["correlation"].as_array();
  if (keys == nullptr || sigma == nullptr || rows == nullptr) return;  // refused when it is read
  if (sigma->size() != keys->size() || rows->size() != keys->size()) return;
  const auto erase_at = [](toml::array& array, std::size_t at) {
    if (at < array.size()) array.erase(array.cbegin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t i = keys->size(); i-- > 0;) {
    const std::string key = (*keys)[i].value_or(std::string());
    if (merged.at_path(key) && !own.at_path(key)) continue;
    for (toml::array* array : {keys, sigma, rows}) erase_at(*array, i);
    for (toml::node& row : *rows) {
      if (row.is_array()) erase_at(*row.as_array(), i);
    }
  }
  if (keys->empty()) merged.erase(section);
}

/// Another fabric has a floor of its own, and no fit that is of the base's.
void forget_fabric(toml::table& base, const toml::table& own) {
  const auto fabric = own["library"]["network"]["fabric"].value<std::string>();
  const auto network = base["library"]["network"];
  if (!fabric || !network || *fabric == network["fabric"].value_or("roce")) return;
  base["library"].as_table()->erase("network");
  base.erase("uncertainty");
}

/// Edges of its own make another host of a PCIe machine, whose fixed costs nobody has measured.
void assume_host(toml::table& base, const toml::table& own) {
  toml::table* library = base["library"].as_table();
  const toml::table* links = base["links"].as_table();
  if (library == nullptr || links == nullptr || !own.contains("edges")) return;
  const bool over_pcie = std::ranges::any_of(*links, [](const auto& each) {
    return each.second.is_table() && (*each.second.as_table())["root_port"].value_or(false);
  });
  if (!over_pcie || library->contains("host_floor_us")) return;
  library->insert(
      "host_floor_us",
      toml::table{{"value", 22.0},
                  {"interval", toml::array{8.0, 55.0}},
                  {"source", "assumed"},
                  {"note", "another host: four took 24 to 59 us for 32 KiB on 8 GPUs"}});
}

/// Four former sections became [library]; the second name is that inside of it.
constexpr std::pair<std::string_view, std::string_view> kFormerSections[] = {
    {"nccl", ""}, {"nccl_ll128", "ll128"}, {"nccl_nvls", "nvls"}, {"library_network", "network"}};

/// Files with the former names are read for one version more.
void rename_former(toml::table& own, std::string_view origin) {
  toml::table library;
  for (const auto& [former, inner] : kFormerSections) {
    const toml::table* section = own[former].as_table();
    if (section == nullptr) continue;
    if (inner.empty() && own.contains("library")) {
      fail("{}: sections 'nccl' and 'library' are one; allowed is [library]", origin);
    }
    if (inner.empty()) {
      merge(library, *section);
    } else {
      library.insert_or_assign(inner, *section);
    }
    own.erase(former);
  }
  if (!library.empty()) merge(own, toml::table{{"library", library}});
  toml::array* constants = own["uncertainty"]["constants"].as_array();
  if (constants == nullptr) return;
  for (toml::node& node : *constants) {
    const std::string name = node.value_or(std::string());
    const std::size_t dot = name.find('.');
    for (const auto& [former, inner] : kFormerSections) {
      if (dot == std::string::npos || name.substr(0, dot) != former) continue;
      *node.as_string() =
          fmt::format("library{}{}{}", inner.empty() ? "" : ".", inner, name.substr(dot));
    }
  }
}

/// The table of a file, with what it takes from its bases. `bases`: how many are open.
toml::table read_table(std::string_view text, std::string_view origin,
                       const std::filesystem::path& folder, int bases) {
  toml::table own = parse_toml(text, origin);
  rename_former(own, origin);
  if (!own.contains("base")) return own;
  const std::string name = Section(own, origin, "").text("base");
  if (bases == kMostBases) {
    fail("{}: key 'base': more than {} files build on each other", origin, kMostBases);
  }
  own.erase("base");
  toml::table base;
  // A file beside this one goes before a machine that the library carries.
  const std::filesystem::path beside = folder / (name + ".toml");
  std::error_code error;
  const bool is_beside = !folder.empty() &&
                         std::filesystem::path(origin).filename() != beside.filename() &&
                         std::filesystem::is_regular_file(beside, error);
  if (is_beside || name.ends_with(".toml")) {
    const std::filesystem::path path = is_beside ? beside : folder / name;
    base = read_table(read_text_file(path, "topology file"), printable(path.string()),
                      path.parent_path(), bases + 1);
  } else {
    try {
      base = parse_toml(to_toml(find_topology(name)), name);
    } catch (const InvalidInput& error) {
      fail("{}: key 'base': {}", origin, error.what());
    }
  }
  // A machine that builds on it has another name.
  if (toml::table* known = base["uncertainty"].as_table()) {
    if (!known->contains("machines") && base.contains("name")) {
      known->insert("machines", toml::array(base["name"].value_or(std::string())));
    }
  }
  base.erase("name");
  const std::string file = std::filesystem::path(origin).filename().string();
  base.insert_or_assign("summary", fmt::format("as {}, with changes in {}", name, file));
  if (own.contains("group_size") || own.contains("inside")) base.erase("server_uncertainty");
  const auto text_of = [](const toml::table& table, const char* key) {
    return table[key].value_or(std::string());
  };
  const auto count_of = [](const toml::table& table, const char* key) {
    return table[key]["value"].value<std::int64_t>();
  };
  if (own.contains("kind") && text_of(own, "kind") != text_of(base, "kind")) {
    for (const char* key : kShapeKeys) base.erase(key);
    base.erase("server_uncertainty");
    if (text_of(own, "kind") == "graph") base.erase("link");
    const bool fat_tree = text_of(own, "kind") == "fat_tree";
    const auto of_server = count_of(own, "group_size").value_or(0);
    const bool same_servers = fat_tree && of_server == count_of(base, "ranks");
    // The uncertainty holds for one server with these links only; a fat tree may be made of such servers.
    const std::string links = own["inside"].value_or("switch") + text_of(base, "kind");
    const bool same_links = links == "switchswitch" || links == "meshfull_mesh";
    if (toml::node* known = base.get("uncertainty"); known && same_servers && same_links) {
      base.insert_or_assign("server_uncertainty", std::move(*known));
    }
    base.erase("uncertainty");
    if (!same_servers) base.erase("switch");
    if (fat_tree && of_server == 1) {
      // In a server of one GPU nothing passes over links of the base.
      if (toml::table* library = base["library"].as_table()) library->erase("nvls");
    } else if (!same_servers && base.erase("library") > 0 && own.contains("library") &&
               !own["library"]["channels"]) {
      fail("{}: [library] of base '{}' is of servers of its {} GPUs; others need a whole one",
           origin, name, count_of(base, "ranks").value_or(0));
    }
  }
  // Two models of a kernel; a file that has one does without the other.
  if (own.contains("blocks")) base.erase("stores");
  // Another device has another memory.
  toml::table* device = base["device"].as_table();
  const auto own_device = own["device"]["name"].value<std::string>();
  if (device != nullptr && own_device &&
      own_device != base["device"]["name"].value<std::string>()) {
    device->erase("memory_gb");
  }
  if (own.contains("stores")) {
    for (const char* section : {"blocks", "codecs", "small", "sentinels"}) base.erase(section);
  }
  assume_host(base, own);
  forget_fabric(base, own);
  merge(base, own);
  for (const char* section : {"uncertainty", "server_uncertainty"}) {
    forget_replaced(base, own, section);
  }
  return base;
}

/// Opens a section of quantities, `library.nvls` inside of `library`; nothing where there is none.
void open_section(Section& file, const std::string& name, std::optional<Section>& opened) {
  constexpr const char* kForm = "a table of quantities";
  const std::size_t dot = name.find('.');
  const std::string whole = name.substr(0, dot);
  opened.reset();
  if (!file.has(whole)) return;
  Section section = file.section(whole, kForm);
  if (dot == std::string::npos) {
    if (whole == "library") {
      for (const char* inner : {"ll128", "nvls", "network"}) section.has(inner);
    }
    opened.emplace(std::move(section));
  } else if (section.has(name.substr(dot + 1))) {
    opened.emplace(section.section(name.substr(dot + 1), kForm));
  }
}

/// Once the device of all ranks is known: theirs, but for the quantities that are named.
void read_device_override(Section& section, Topology& topology) {
  DeviceOverride read{section.ranks("ranks"), topology.device};
  bool any = false;
  std::optional<Section> part;
  std::string part_name;
  for_each_quantity_of(read.device, [&](const std::string& key, Quantity& quantity) {
    const std::size_t dot = key.rfind('.');
    const std::string name = key.substr(0, dot);
    if (name != part_name) {
      if (part) part->reject_other_keys();
      open_section(section, name, part);
      part_name = name;
    }
    if (!part || !part->has(key.substr(dot + 1))) return;
    quantity = part->quantity(key.substr(dot + 1));
    any = true;
  });
  if (part) part->reject_other_keys();
  if (!any) section.refuse("ranks", "nothing is said of them; needed is a quantity of the device");
  topology.device_overrides.push_back(std::move(read));
}

void read_varying(Section& file, Topology& topology) {
  file.for_each("link_events", [&topology](Section& event) {
    topology.link_events.push_back({event.node("from"), event.node("to"), event.number("at_us"),
                                    event.number("bandwidth_factor"), event.text("note")});
  });
  file.for_each("background", [&topology](Section& flow) {
    topology.background.push_back({flow.node("from"), flow.node("to"), flow.number("gb_per_s"),
                                   flow.number("from_us"), flow.number("until_us"),
                                   flow.text("note")});
  });
  if (file.has("jitter")) {
    Section jitter = file.section("jitter", "a table of launch_us and message_us");
    if (jitter.has("launch_us")) topology.jitter.launch_us = jitter.number("launch_us");
    if (jitter.has("message_us")) topology.jitter.message_us = jitter.number("message_us");
    jitter.reject_other_keys();
  }
}

/// Once for a file: require_valid() is called for each simulation.
void require_quantities(const Topology& topology, const std::vector<std::string>& names,
                        std::string_view origin) {
  std::set<std::string> known;
  for_each_quantity(topology,
                    [&known](const std::string& key, const Quantity&) { known.insert(key); });
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    fail("{}: key 'uncertainty.constants': there is no quantity '{}'", origin, name);
  }
}

std::vector<CodecTimes> read_codecs(Section section) {
  std::vector<CodecTimes> codecs;
  section.has("note");
  for (const std::string& name : section.keys()) {
    if (name == "note") continue;
    Section row = section.section(name, "a table of instructions, slots and cycles");
    const auto instructions = [&row](const std::string& dtype) {
      const std::vector<double> two = row.numbers(dtype);
      if (two.size() != 2) row.refuse(dtype, "it must be two numbers: of encode, and of decode");
      return CodecTimes::Instructions{two[0], two[1]};
    };
    codecs.push_back({name, instructions("fp16"), instructions("bf16"), row.number("slots"),
                      row.number("cycles")});
    row.reject_other_keys();
  }
  return codecs;
}

// A fit of kernels names their codecs; a library sends the values as they are.
FittedTo read_fitted_to(Section section, bool has_codecs) {
  FittedTo read;
  read.device = section.text("device");
  read.ranks = section.ranks("ranks");
  if (read.ranks.empty() || read.ranks[0] == 0 || !std::ranges::is_sorted(read.ranks)) {
    section.refuse("ranks", "it must be numbers of ranks, in ascending order");
  }
  const std::vector<double> bytes = section.numbers("bytes");
  if (bytes.size() != 2 || !(bytes[0] >= 1 && bytes[0] <= bytes[1] && bytes[1] < 0x1p60)) {
    section.refuse("bytes", "it must be two numbers: the least payload of one rank, and the most");
  }
  read.least_bytes = static_cast<std::uint64_t>(bytes[0]);
  read.most_bytes = static_cast<std::uint64_t>(bytes[1]);
  read.algorithms = section.texts("algorithms");
  if (section.has("dtypes")) {
    for (const std::string& name : section.texts("dtypes")) {
      read.dtypes.push_back(parse_dtype(name));
    }
  }
  if (has_codecs) {
    read.codecs = section.texts("codecs");
    if (section.has("commit")) read.commit = section.text("commit");
  }
  section.reject_other_keys();
  return read;
}

Uncertainty read_uncertainty(Section section, const std::string& machine) {
  Uncertainty read;
  read.scatter_percent = section.number("scatter_percent");
  read.note = section.text("note");
  read.machines = {machine};
  if (section.has("machines")) read.machines = section.texts("machines");
  read.constants = section.texts("constants");
  read.sigma_percent = section.numbers("sigma_percent");
  read.correlation = section.rows("correlation");
  if (section.has("kernels")) {
    const char* form = "a table: device, ranks, bytes, algorithms, dtypes, codecs, commit";
    read.kernels = read_fitted_to(section.section("kernels", form), true);
  }
  if (section.has("library")) {
    const char* form = "a table: device, ranks, bytes, algorithms, dtypes";
    read.library = read_fitted_to(section.section("library", form), false);
  }
  section.reject_other_keys();
  return read;
}

}  // namespace

Topology parse_topology(std::string_view text, std::string_view origin,
                        const std::filesystem::path& folder) {
  const toml::table table = read_table(text, origin, folder, 0);
  Section file(table, origin, "");
  file.has("base");  // a key that is allowed, of which nothing is left here
  Topology topology;
  topology.name = file.text("name");
  topology.summary = file.text("summary");
  if (file.has("caveat")) topology.caveat = file.text("caveat");
  constexpr std::int64_t kMostGuessed = std::int64_t{1} << 30;
  topology.guessed_below_bytes =
      file.optional_integer("guessed_below_bytes", 0, kMostGuessed).value_or(0);
  topology.kind = file.choice("kind", kTopologyKinds);
  topology.ranks = file.count("ranks");
  const bool forwards = topology.kind == TopologyKind::ring || topology.kind == TopologyKind::torus;
  topology.devices_forward = file.optional_flag("devices_forward").value_or(forwards);
  read_shape(file, topology);
  if (topology.kind == TopologyKind::graph) {
    read_graph(file, topology);
  } else {
    for (const std::string& name : link_sections(file, topology)) {
      Section section = file.section(name, "a table of quantities");
      topology.link_types.push_back(read_link_type(section, name));
    }
  }
  read_in_switch(file, topology);
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
  read_varying(file, topology);

  if (file.has("stores")) topology.device.stores.emplace();
  if (file.has("blocks")) topology.device.blocks.emplace();
  if (file.has("codecs")) {
    topology.device.codecs = read_codecs(file.section("codecs", "a table of codecs"));
  }
  if (file.has("small")) topology.device.small.emplace();
  if (file.has("sentinels")) topology.device.sentinels.emplace();
  if (file.has("compute")) topology.device.compute.emplace();
  std::optional<Section> section;
  open_section(file, "library", section);
  if (section) {
    Library& library = topology.device.library.emplace();
    if (section->has("ll128")) library.ll128.emplace();
    if (section->has("nvls")) library.nvls.emplace();
    section.reset();
  }
  // Sections are opened at their first quantity and closed when the next one begins.
  std::string section_name;
  for_each_quantity_of(topology.device, [&](const std::string& key, Quantity& quantity) {
    const std::size_t dot = key.rfind('.');
    const std::string name = key.substr(0, dot);
    if (name != section_name) {
      if (section) section->reject_other_keys();
      open_section(file, name, section);
      section_name = name;
      const bool is_optional = name == "library.network" || name == "tails";
      if (!section && !is_optional) file.section(name, "a table of quantities");
      if (name == "device") topology.device.name = section->text("name");
      if (name == "blocks" && section->has("measured")) {
        topology.device.blocks->measured = section->texts("measured");
      }
      if (name == "library" && section->has("algorithms")) {
        topology.device.library->algorithms = section->texts("algorithms");
      }
      if (name == "library") {
        topology.device.library->peer_to_peer =
            section->optional_flag("peer_to_peer").value_or(true);
      }
      if (name == "library.network" && section) {
        LibraryNetwork& network = topology.device.library->network;
        network.ll128 = section->optional_flag("ll128").value_or(true);
        if (section->has("fabric")) network.fabric = section->choice("fabric", kNetFabrics);
      }
    }
    if (!section) return;
    const std::string last = key.substr(dot + 1);
    if (is_optional_quantity(key) && !section->has(last)) return;
    quantity = section->quantity(last);
  });
  if (section) section->reject_other_keys();
  file.for_each("device_overrides",
                [&topology](Section& each) { read_device_override(each, topology); });
  for (const auto& [key, known] : {std::pair("uncertainty", &topology.uncertainty),
                                   std::pair("server_uncertainty", &topology.server_uncertainty)}) {
    if (file.has(key)) *known = read_uncertainty(file.section(key, "a table"), topology.name);
  }
  file.reject_other_keys();
  for (const auto* known : {&topology.uncertainty, &topology.server_uncertainty}) {
    if (*known) require_quantities(topology, (*known)->constants, origin);
  }

  require_valid(topology, origin);
  return topology;
}

Topology read_topology(const std::filesystem::path& path) {
  Topology topology =
      parse_topology(read_text_file(path, "topology file"), printable(path.string()),
                     path.has_parent_path() ? path.parent_path() : ".");
  if (!topology.uncertainty) return topology;
  // Another machine may have the name of one that was measured, and say by which fit that one was.
  const std::vector<std::string> listed = listed_topologies();
  if (std::ranges::count(listed, topology.name) == 0) return topology;
  const Topology measured = find_topology(topology.name);
  const bool has_its_fit =
      measured.uncertainty && measured.uncertainty->note == topology.uncertainty->note;
  if (has_its_fit && topology != measured) {
    std::erase(topology.uncertainty->machines, topology.name);
  }
  return topology;
}

// ---------------------------------------------------------------- writing

namespace {

/// A string of TOML.
std::string text_of(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

template <class T>
std::string sourced_text(const std::string& key, const Sourced<T>& number) {
  const std::string interval =
      number.has_interval() ? fmt::format(", interval = [{}, {}]", number.low, number.high) : "";
  return fmt::format("{} = {{ value = {}, source = \"{}\", note = {}{} }}\n", key, number.value,
                     name_of(number.source), text_of(number.note), interval);
}

/// Keys of a network that are no numbers.
std::string text_of(const LibraryNetwork& network) {
  std::string text;
  if (network.fabric) text += fmt::format("fabric = \"{}\"\n", name_of(*network.fabric));
  if (!network.ll128) text += "ll128 = false\n";
  return text;
}

std::string edges_text(const Topology& t) {
  std::string text;
  for (const Edge& edge : t.edges) {
    text += fmt::format("\n[[edges]]\nfrom = \"{}\"\nto = \"{}\"\ntype = {}\n", describe(edge.from),
                        describe(edge.to), text_of(edge.type));
    if (!edge.domain.empty()) text += fmt::format("domain = {}\n", text_of(edge.domain));
    if (!edge.duplex) text += "duplex = false\n";
  }
  return text;
}

std::string conditions_text(const Topology& t) {
  std::string text;
  for (const LinkFault& fault : t.faults) {
    text += fmt::format(
        "\n[[faults]]\nfrom = \"{}\"\nto = \"{}\"\nbandwidth_factor = {}\nnote = {}\n",
        describe(fault.from), describe(fault.to), fault.bandwidth_factor, text_of(fault.note));
  }
  for (const Straggler& straggler : t.stragglers) {
    text += fmt::format("\n[[stragglers]]\nrank = {}\n{}", straggler.rank,
                        sourced_text("delay_us", straggler.delay_us));
  }
  for (const LinkEvent& event : t.link_events) {
    text += fmt::format(
        "\n[[link_events]]\nfrom = \"{}\"\nto = \"{}\"\nat_us = {}\nbandwidth_factor = {}\n"
        "note = {}\n",
        describe(event.from), describe(event.to), event.at_us, event.bandwidth_factor,
        text_of(event.note));
  }
  for (const BackgroundFlow& flow : t.background) {
    text += fmt::format(
        "\n[[background]]\nfrom = \"{}\"\nto = \"{}\"\ngb_per_s = {}\nfrom_us = {}\n"
        "until_us = {}\nnote = {}\n",
        describe(flow.from), describe(flow.to), flow.gb_per_s, flow.from_us, flow.until_us,
        text_of(flow.note));
  }
  for (const DeviceOverride& each : t.device_overrides) {
    text += fmt::format("\n[[device_overrides]]\nranks = [{}]\n", fmt::join(each.ranks, ", "));
    std::map<std::string, const Quantity*> of_all;
    for_each_quantity_of(t.device, [&](const std::string& key, const Quantity& quantity) {
      of_all[key] = &quantity;
    });
    for_each_quantity_of(each.device, [&](const std::string& key, const Quantity& quantity) {
      if (quantity != *of_all.at(key)) text += sourced_text(key, quantity);
    });
  }
  if (t.jitter.any()) {
    text += fmt::format("\n[jitter]\nlaunch_us = {}\nmessage_us = {}\n", t.jitter.launch_us,
                        t.jitter.message_us);
  }
  return text;
}

}  // namespace

std::string to_toml(const Uncertainty& u, std::string_view section) {
  const auto names = [](std::vector<std::string> list) {
    for (std::string& each : list) each = text_of(each);
    return fmt::format("[{}]", fmt::join(list, ", "));
  };
  std::string text = fmt::format("\n[{}]\nscatter_percent = {}\nnote = {}\n", section,
                                 u.scatter_percent, text_of(u.note));
  text += fmt::format("machines = {}\nconstants = [\n", names(u.machines));
  for (const std::string& key : u.constants) text += fmt::format("  {},\n", text_of(key));
  text +=
      fmt::format("]\nsigma_percent = [{}]\ncorrelation = [\n", fmt::join(u.sigma_percent, ", "));
  for (const std::vector<double>& row : u.correlation) {
    text += fmt::format("  [{}],\n", fmt::join(row, ", "));
  }
  text += "]\n";
  const auto add = [&](const char* whose, const std::optional<FittedTo>& to) {
    if (!to) return;
    text += fmt::format("\n[{}.{}]\ndevice = {}\nranks = [{}]\nbytes = [{}, {}]\nalgorithms = {}\n",
                        section, whose, text_of(to->device), fmt::join(to->ranks, ", "),
                        to->least_bytes, to->most_bytes, names(to->algorithms));
    if (!to->dtypes.empty()) {
      std::vector<std::string> dtypes;
      for (const DType dtype : to->dtypes) dtypes.emplace_back(name_of(dtype));
      text += fmt::format("dtypes = {}\n", names(dtypes));
    }
    if (!to->codecs.empty()) text += fmt::format("codecs = {}\n", names(to->codecs));
    if (!to->commit.empty()) text += fmt::format("commit = {}\n", text_of(to->commit));
  };
  add("kernels", u.kernels);
  add("library", u.library);
  return text;
}

std::string to_toml(const CodecTimes& c) {
  return fmt::format("{} = {{ fp16 = [{}, {}], bf16 = [{}, {}], slots = {}, cycles = {} }}\n",
                     text_of(c.codec), c.fp16.encode, c.fp16.decode, c.bf16.encode, c.bf16.decode,
                     c.slots, c.cycles);
}

std::string to_toml(const Topology& t) {
  std::string text = fmt::format("name = {}\nsummary = {}\nkind = \"{}\"\n", text_of(t.name),
                                 text_of(t.summary), name_of(t.kind));
  if (!t.caveat.empty()) text += fmt::format("caveat = {}\n", text_of(t.caveat));
  if (t.guessed_below_bytes > 0)
    text += fmt::format("guessed_below_bytes = {}\n", t.guessed_below_bytes);
  for_each_count(
      t, [&text](const char* key, const Count& count) { text += sourced_text(key, count); });
  if (t.inside != ServerInside::switched)
    text += fmt::format("inside = \"{}\"\n", name_of(t.inside));
  if (t.kind == TopologyKind::torus) {
    text += fmt::format("shape = [{}]\n", fmt::join(t.shape, ", "));
  }
  if (t.kind == TopologyKind::graph) text += fmt::format("switches = {}\n", t.switches);
  const bool forwards = t.kind == TopologyKind::ring || t.kind == TopologyKind::torus;
  if (t.devices_forward != forwards) {
    text += fmt::format("devices_forward = {}\n", t.devices_forward);
  }
  if (t.kind == TopologyKind::graph && t.link_types.empty()) text += "\n[links]\n";
  const InSwitch& in_switch = t.in_switch;
  if (in_switch.multicast || in_switch.reduction) {
    text += fmt::format("\n[switch]\nmulticast = {}\nreduction = {}\n", in_switch.multicast,
                        in_switch.reduction);
    if (in_switch.reduction) {
      text += sourced_text("reduction_efficiency", in_switch.reduction_efficiency);
    }
  }
  std::string section;
  for_each_quantity(t, [&](const std::string& key, const Quantity& quantity) {
    const std::size_t dot = key.rfind('.');
    if (key.starts_with("stragglers.") || key.starts_with("switch.")) return;
    if (is_optional_quantity(key) && !is_given(quantity)) return;
    if (const std::string name = key.substr(0, dot); name != section) {
      section = name;
      text += fmt::format("\n[{}]\n", section);
      if (section.starts_with("links.") && t.link_type(section.substr(6)).root_port) {
        text += "root_port = true\n";
        if (!t.link_type(section.substr(6)).collapses) text += "collapses = false\n";
      }
      if (section == "device") text += fmt::format("name = {}\n", text_of(t.device.name));
      const auto names = [](std::vector<std::string> list) {
        for (std::string& each : list) each = text_of(each);
        return fmt::format("[{}]", fmt::join(list, ", "));
      };
      if (section == "library") {
        text += fmt::format("algorithms = {}\n", names(t.device.library->algorithms));
        if (!t.device.library->peer_to_peer) text += "peer_to_peer = false\n";
      }
      if (section == "library.network") text += text_of(t.device.library->network);
      if (section == "blocks" && !t.device.blocks->measured.empty()) {
        text += fmt::format("measured = {}\n", names(t.device.blocks->measured));
      }
    }
    text += sourced_text(key.substr(dot + 1), quantity);
  });
  if (t.device.library && text.find("\n[library.network]\n") == std::string::npos) {
    const std::string plain = text_of(t.device.library->network);
    if (!plain.empty()) text += "\n[library.network]\n" + plain;
  }
  if (!t.device.codecs.empty()) text += "\n[codecs]\n";
  for (const CodecTimes& codec : t.device.codecs) text += to_toml(codec);
  if (t.uncertainty) text += to_toml(*t.uncertainty);
  if (t.server_uncertainty) text += to_toml(*t.server_uncertainty, "server_uncertainty");
  return text + edges_text(t) + conditions_text(t);
}

}  // namespace arlab
