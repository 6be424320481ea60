// What is a machine or fabric made of, where do its numbers come from, and what could it carry? In what do two of them
// differ? And a machine file out of what another tool says.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/tensors/file.h"
#include "reference/words.h"
#include "sim/flows.h"
#include "sim/simulator.h"
#include "sim/topology/bisection.h"
#include "sim/topology/fabric.h"
#include "sim/topology/import.h"
#include "sim/topology/routes.h"
#include "sim/topology/toml_section.h"
#include "sim/uncertainty.h"

namespace arlab::lab {
namespace {

constexpr Rank kMostDrawnRanks = 64;
constexpr Rank kMostRanksOfMatrix = 16;
/// All routes of so many ranks are looked at; of more, those between some.
constexpr Rank kAllPairsRanks = 256;
constexpr Rank kSampledSources = 8;
constexpr Rank kSampledTargets = 128;

// ---------------------------------------------------------------- links by class

/// The section of the file that a class of links comes from.
const LinkType& type_of(const Topology& t, const std::string& link_class) {
  if (t.kind == TopologyKind::graph) return t.link_type(link_class);
  if (link_class == "port_out" || link_class == "port_in") return t.link_type("link");
  if (link_class == "downlink") return t.link_type("uplink");
  for (const std::string_view way : {"_out", "_in"}) {  // nic_out, pcie_in, ...
    if (link_class.ends_with(way)) {
      return t.link_type(link_class.substr(0, link_class.size() - way.size()));
    }
  }
  return t.link_type(link_class);
}

struct ClassFigures {
  std::uint64_t links = 0;
  double slowest_gb_per_s = 0;
  double latency_us = 0;

  void add(std::uint64_t count, const LinkProperties& properties) {
    if (links == 0 || properties.bandwidth_gb_per_s < slowest_gb_per_s) {
      slowest_gb_per_s = properties.bandwidth_gb_per_s;
    }
    latency_us = us_from_picoseconds(properties.latency);
    links += count;
  }
};

Table link_classes(const Topology& t, const Fabric& fabric) {
  const Network& network = fabric.network();
  std::vector<ClassFigures> figures(fabric.classes().size());
  network.for_each_single_link(
      [&](LinkId link) { figures[fabric.class_index(link)].add(1, network.properties(link)); });
  for (const Network::FullMesh& mesh : network.full_meshes()) {
    figures[fabric.class_index(mesh.first_link)].add(std::uint64_t{mesh.count} * (mesh.count - 1),
                                                     network.properties(mesh.first_link));
  }
  Table table{{"link_class", "links", "bandwidth_gb_per_s", "slowest_gb_per_s", "latency_us",
               "bandwidth_source", "latency_source"},
              {}};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const LinkType& type = type_of(t, fabric.classes()[i]);
    const bool any = figures[i].links > 0;
    table.rows.push_back({fabric.classes()[i], figures[i].links, type.bandwidth_gb_per_s.value,
                          any ? Cell(figures[i].slowest_gb_per_s) : Cell(),
                          any ? Cell(figures[i].latency_us) : Cell(),
                          name_of(type.bandwidth_gb_per_s.source),
                          name_of(type.latency_us.source)});
  }
  return table;
}

// ---------------------------------------------------------------- pairs of ranks

struct Pair {
  double gb_per_s = 0;  ///< 0: there is no way
  double latency_us = 0;
  std::size_t hops = 0;
};

Pair pair_of(const Network& network, Routes& routes, Rank from, Rank to) {
  Pair pair;
  try {
    const std::span<const LinkId> route = routes.route(from, to);
    pair.hops = route.size();
    for (const LinkId link : route) {
      const LinkProperties& p = network.properties(link);
      double gb_per_s = p.bandwidth_gb_per_s;
      if (p.domain != kNoDomain) {
        gb_per_s = std::min(gb_per_s, network.capacity_gb_per_s(network.resource_of(p.domain)));
      }
      pair.gb_per_s = pair.gb_per_s == 0 ? gb_per_s : std::min(pair.gb_per_s, gb_per_s);
      pair.latency_us += us_from_picoseconds(p.latency);
    }
  } catch (const InvalidInput&) {
    pair = {};
  }
  return pair;
}

struct Pairs {
  std::vector<Pair> list;  ///< by source, in the order of receivers
  std::string which;       ///< in words

  /// Lower median of the pairs that have a way.
  template <class Get>
  Json summary(Get get) const {
    std::vector<double> values;
    for (const Pair& pair : list) {
      if (pair.hops > 0) values.push_back(static_cast<double>(get(pair)));
    }
    if (values.empty()) return nullptr;
    std::sort(values.begin(), values.end());
    return {{"min", values.front()},
            {"median", values[(values.size() - 1) / 2]},
            {"max", values.back()}};
  }
  std::uint64_t unreachable() const {
    return static_cast<std::uint64_t>(
        std::count_if(list.begin(), list.end(), [](const Pair& p) { return p.hops == 0; }));
  }
};

/// From 0 to below `ranks`, evenly spread.
std::vector<Rank> some(Rank count, Rank ranks) {
  std::vector<Rank> chosen(std::min(count, ranks));
  for (Rank i = 0; i < chosen.size(); ++i) {
    chosen[i] = static_cast<Rank>(std::uint64_t{i} * ranks / chosen.size());
  }
  return chosen;
}

Pairs pairs_of(const Topology& t, const Fabric& fabric) {
  const Rank ranks = t.ranks.value;
  Pairs pairs;
  std::vector<Rank> from;
  std::vector<Rank> to;
  if (ranks <= kAllPairsRanks) {
    from = to = some(ranks, ranks);
    pairs.which = "all pairs";
  } else {
    const FabricShifts shifts = shifts_of(t);
    const bool alike = shifts.any || !shifts.extents.empty();
    from = some(alike ? 1 : kSampledSources, ranks);
    to = some(kSampledTargets, ranks);
    for (Rank near = 1; near < kSampledTargets; ++near) to.push_back(near);
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    pairs.which = fmt::format("a sample: from {} to {} of {} ranks",
                              alike ? "any rank (all are alike)" : fmt::format("{}", from.size()),
                              to.size(), ranks);
  }
  Routes routes(fabric);
  for (const Rank source : from) {
    for (const Rank target : to) {
      if (target != source) {
        pairs.list.push_back(pair_of(fabric.network(), routes, source, target));
      }
    }
  }
  return pairs;
}

/// A row per sender; null on the diagonal and where there is no way.
template <class Get>
Json matrix_of(const Pairs& pairs, Rank ranks, Get get) {
  Json rows = Json::array();
  std::size_t next = 0;
  for (Rank from = 0; from < ranks; ++from) {
    Json row = Json::array();
    for (Rank to = 0; to < ranks; ++to) {
      if (to == from) {
        row.push_back(nullptr);
        continue;
      }
      const Pair& pair = pairs.list[next++];
      row.push_back(pair.hops > 0 ? Json(get(pair)) : Json(nullptr));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

double bandwidth_of(const Pair& pair) { return pair.gb_per_s; }
std::size_t hops_of(const Pair& pair) { return pair.hops; }
double latency_of(const Pair& pair) { return pair.latency_us; }

// ---------------------------------------------------------------- lists

Table quantities(const Topology& t) {
  Table table{{"quantity", "value", "source", "note"}, {}};
  for (const NamedQuantity& each : quantities_of(t)) {
    table.rows.push_back(
        {each.key, each.quantity.value, name_of(each.quantity.source), each.quantity.note});
  }
  return table;
}

Table faults(const Topology& t) {
  Table table{{"from", "to", "bandwidth_factor", "note"}, {}};
  for (const LinkFault& fault : t.faults) {
    table.rows.push_back(
        {describe(fault.from), describe(fault.to), fault.bandwidth_factor, fault.note});
  }
  return table;
}

Table stragglers(const Topology& t) {
  Table table{{"rank", "delay_us", "source", "note"}, {}};
  for (const Straggler& each : t.stragglers) {
    table.rows.push_back(
        {each.rank, each.delay_us.value, name_of(each.delay_us.source), each.delay_us.note});
  }
  return table;
}

/// A matrix with the ranks beside it.
Table table_of_matrix(const Json& matrix) {
  Table table{{"from\\to"}, {}};
  for (std::size_t to = 0; to < matrix.size(); ++to) table.columns.push_back(fmt::format("{}", to));
  for (std::size_t from = 0; from < matrix.size(); ++from) {
    table.rows.push_back({from});
    for (const Json& cell : matrix[from]) table.rows.back().push_back(cell);
  }
  return table;
}

/// Returns an object of JSON in words for people.
Figure range_of(const char* name, const Json& summary, const char* unit, const char* note) {
  if (summary.is_null()) return {name, summary, note, "there are no pairs"};
  return {name, summary, note,
          fmt::format("{} {}, median {}, at most {}", cell_text(summary["min"]), unit,
                      cell_text(summary["median"]), cell_text(summary["max"]))};
}

// ---------------------------------------------------------------- two topologies

/// A row of a comparison; numbers have a ratio.
std::vector<Cell> compared(const std::string& what, const Json& a, const Json& b) {
  Json ratio = nullptr;
  if (a.is_number() && b.is_number() && a.get<double>() != 0) {
    ratio = b.get<double>() / a.get<double>();
  }
  return {what, a, b, ratio};
}

/// All-reduces that this many ranks can run: halving_doubling, say, takes powers of two only.
std::vector<std::reference_wrapper<const Algorithm>> all_reduces(Rank ranks) {
  std::vector<std::reference_wrapper<const Algorithm>> algorithms;
  for (const Algorithm& each : all_algorithms()) {
    if (each.collective != Collective::all_reduce) continue;
    try {
      each.write({.world_size = ranks, .elements = ranks, .only_rank = 0});
      algorithms.emplace_back(each);
    } catch (const InvalidInput&) {
      continue;
    }
  }
  return algorithms;
}

/// The fastest algorithm in us, with its name in front of it; `refused` gets those that are not
/// tried at such a size. Where PCIe collapses (sim/flows.h) a time is not reached: such an algorithm
/// is taken only where there is no other.
std::pair<std::string, double> fastest(const Topology& t, const CodecPtr& codec,
                                       std::uint64_t bytes, std::set<std::string>& refused) {
  std::pair<std::string, double> best{"", 0};
  bool best_collapses = false;
  for (const Algorithm& algorithm : all_reduces(t.ranks.value)) {
    ScheduleRequest request{.world_size = t.ranks.value,
                            .elements = bytes / size_of(DType::fp16),
                            .alignment = codec->info().alignment};
    if (algorithm.option("group_size") != nullptr) {
      request.options.set("group_size", default_group_size(t, t.ranks.value));
    }
    try {
      // Where one rank cannot stand for all, a simulation of more takes minutes.
      constexpr Rank kMostDifferentRanks = 1024;
      const bool alike =
          algorithm.symmetry && algorithm.symmetry(request).kind != RankSymmetry::none;
      if (!alike && t.ranks.value > kMostDifferentRanks) {
        refused.insert(fmt::format("{} on {}", algorithm.name, t.name));
        continue;
      }
      const SimulationResult result =
          arlab::simulate({algorithm, request, {*codec, *codec}, DType::fp16, t, {}});
      const bool collapses = !result.collapses.empty();
      const bool faster =
          collapses == best_collapses ? result.latency_us < best.second : best_collapses;
      if (!best.first.empty() && !faster) continue;
      best = {algorithm.name, result.latency_us};
      best_collapses = collapses;
    } catch (const InvalidInput&) {
      refused.insert(fmt::format("{} on {}", algorithm.name, t.name));
    }
  }
  if (best.first.empty()) fail("topology '{}': no all-reduce of it can be simulated", t.name);
  return best;
}

/// All reduces of both, the fastest algorithm of each.
Table compared_times(const Topology& a, const Topology& b, std::set<std::string>& refused) {
  Table table{{"bytes", "codec", "algorithm_a", "a_us", "algorithm_b", "b_us", "b_over_a"}, {}};
  if (a.ranks.value < 2 || b.ranks.value < 2) return table;
  for (const std::uint64_t bytes :
       {std::uint64_t{32} << 10, std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
    for (const char* name : {"fp16", "qr-q4"}) {
      const CodecPtr codec = find_codec(name);
      const auto [algorithm_a, us_a] = fastest(a, codec, bytes, refused);
      const auto [algorithm_b, us_b] = fastest(b, codec, bytes, refused);
      table.rows.push_back({bytes, name, algorithm_a, us_a, algorithm_b, us_b, us_b / us_a});
    }
  }
  return table;
}

/// "one_shot, two_shot, ..."
std::string names_of_all_reduces(Rank ranks) {
  std::vector<std::string> names;
  for (const Algorithm& each : all_reduces(ranks)) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// For people.
std::string listed(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

Result figures_of(const Topology& t, const Fabric& fabric, const Pairs& pairs) {
  const Rank ranks = t.ranks.value;
  const Bisection bisection = bisection_of(fabric, ranks);
  const std::vector<std::string> narrow = oversubscribed_leaves(t, fabric);
  const std::string halves =
      ranks < 2 ? "there are no two halves"
                : fmt::format("10^9 bytes/s, one direction, ranks below {} and the others{}",
                              bisection.first_half, bisection.exact ? "" : "; at most");
  return {
      "arlab.topology/1",
      {{"topology", t.name},
       {"summary", t.summary},
       {"caveat", t.caveat.empty() ? Json(nullptr) : Json(t.caveat),
        "why its times are not to be trusted"},
       {"kind", name_of(t.kind)},
       {"device", t.device.name},
       {"ranks", ranks},
       {"switches", fabric.network().nodes() - ranks},
       {"nodes", nodes_in_words(t), "names in [[edges]] and [[faults]]"},
       {"links", fabric.network().links(), "directed"},
       {"bisection_gb_per_s", bisection.gb_per_s(), halves},
       {"bisection_method", words_for(bisection.method)},
       {"bisection_exact", bisection.exact,
        bisection.exact ? "" : "sharing domains bind: maybe less than this is possible"},
       {"pairs", pairs.which, "that the next three are about"},
       range_of("pair_gb_per_s", pairs.summary(bandwidth_of), "GB/s", "narrowest link of the way"),
       range_of("pair_hops", pairs.summary(hops_of), "links", "links of the way"),
       range_of("pair_latency_us", pairs.summary(latency_of), "us",
                "latencies of the links of the way"),
       {"unreachable_pairs", pairs.unreachable(),
        pairs.unreachable() > 0 ? "there is no way from one to the other" : ""},
       {"oversubscribed", Json(narrow),
        narrow.empty() ? "" : "leaves whose cards exceed the uplink", listed(narrow)}},
      "link_classes",
      link_classes(t, fabric)};
}

/// Returns the command's JSON with the script's additions.
Json drawing(Json json, const Topology& t, const Fabric& fabric) {
  const Network& network = fabric.network();
  json["shape"] = t.shape;
  json["group_size"] = t.group_size.value;
  json["ranks_per_router"] = t.ranks_per_router.value;
  json["inside"] = std::string(name_of(t.inside));
  json["switch_sorts"] = Json::array();
  for (const SwitchSort& sort : switches_of(t)) json["switch_sorts"].push_back(sort.count);
  Json edges = Json::array();
  const auto add = [&](LinkId link) {
    const LinkEnds ends = network.ends(link);
    const LinkProperties& properties = network.properties(link);
    edges.push_back({{"from", ends.from},
                     {"to", ends.to},
                     {"class", std::string(fabric.class_of(link))},
                     {"gb_per_s", properties.bandwidth_gb_per_s}});
  };
  network.for_each_single_link(add);
  for (const Network::FullMesh& mesh : network.full_meshes()) {
    for (LinkId i = 0; i < mesh.count * (mesh.count - 1); ++i) add(mesh.first_link + i);
  }
  json["edges"] = std::move(edges);
  return json;
}

/// All of it, with the data of a picture where it is not too large for one.
Result result_of(const Topology& t, const std::string& picture) {
  const Fabric fabric(t);
  const Pairs pairs = pairs_of(t, fabric);
  Result result = figures_of(t, fabric, pairs);
  const Rank ranks = t.ranks.value;
  const bool small = ranks <= kMostRanksOfMatrix;
  const Json gb_per_s = small ? matrix_of(pairs, ranks, bandwidth_of) : Json(nullptr);
  const Json hops = small ? matrix_of(pairs, ranks, hops_of) : Json(nullptr);
  const std::string toml = to_toml(t);
  result.appendix = {{"pair_matrix_gb_per_s", gb_per_s},     {"pair_matrix_hops", hops},
                     {"faults", to_json(faults(t))},         {"stragglers", to_json(stragglers(t))},
                     {"quantities", to_json(quantities(t))}, {"toml", toml}};
  if (ranks <= kMostDrawnRanks) {
    result.picture = {"topology", picture, drawing(to_json(result), t, fabric),
                      fmt::format("topology '{}' is as printed", t.name)};
  } else if (!picture.empty()) {
    fail("topology '{}' is too large to draw: {} devices; allowed are at most {}", t.name, ranks,
         kMostDrawnRanks);
  }
  if (small && ranks > 1) {
    result.sections = {{"bandwidth from rank to rank, GB/s (narrowest link of the way):",
                        table_of_matrix(gb_per_s),
                        {},
                        true},
                       {"links on the way from rank to rank:", table_of_matrix(hops), {}, true}};
  }
  if (!t.faults.empty()) {
    result.sections.push_back({"faults: links with a share of their bandwidth", faults(t)});
  }
  if (!t.stragglers.empty()) {
    result.sections.push_back({"stragglers: ranks that are late", stragglers(t)});
  }
  result.sections.push_back({"all quantities, and where they come from:", quantities(t)});
  result.text = toml;
  return result;
}

constexpr const char* kWhich = "Load this topology (see arlab list topologies) or .toml file";

struct ShowRequest {
  std::string topology;
  std::string out;
};

std::vector<BoundField> fields(ShowRequest& r) {
  return {field("topology", &r.topology, kWhich).by_place("TOPOLOGY"),
          field("out", &r.out, "Draw it into this .png or .svg, up to 64 devices")};
}

Result show_topology(const ShowRequest& request) {
  if (!request.out.empty()) require_output_name("--out", request.out, {".png", ".svg"});
  return result_of(find_topology(request.topology), request.out);
}

struct FlowsRequest {
  std::string topology;
  std::vector<std::string> flows;
  std::string by = "stores";
};

std::vector<BoundField> fields(FlowsRequest& r) {
  return {field("topology", &r.topology, kWhich).by_place("TOPOLOGY"),
          field("flows", &r.flows,
                "Run these flows, sender>receiver: \"0>1 2>3\"; all: every pair; all12: of the "
                "first four; cross16: each of the first four to each of the next; dist3: every "
                "rank to the third after it")
              .required(),
          field("by", &r.by, "Move bytes by a kernel's stores, or by copy engines")
              .among({"stores", "copies"})};
}

Result rates_of_flows(const FlowsRequest& request) {
  const Topology t = find_topology(request.topology);
  const std::vector<Flow> flows =
      flows_of(fmt::format("{}", fmt::join(request.flows, " ")), t.ranks.value);
  const Mover mover = request.by == "copies" ? Mover::copies : Mover::stores;
  const std::vector<double> rates = flow_rates(t, flows, mover);
  double sum = 0;
  for (const double rate : rates) sum += rate;
  const std::vector<std::string> found = collapses(t, flows, mover);
  Result report{"arlab.topology.flows/1"};
  report.figures = {{"topology", t.name, t.summary},
                    {"by", request.by, ""},
                    {"sum_gb_per_s", sum, "GB/s, all flows together"},
                    {"collapses", Json(found), found.empty() ? "" : kCollapses, in_words(found)}};
  report.rows_name = "flows";
  report.rows.columns = {"from", "to", "gb_per_s"};
  for (std::size_t i = 0; i < flows.size(); ++i) {
    report.rows.rows.push_back(
        {std::uint64_t{flows[i].first}, std::uint64_t{flows[i].second}, rates[i]});
  }
  return report;
}

struct CompareRequest {
  std::string topology;
  std::string other;
};

std::vector<BoundField> fields(CompareRequest& r) {
  return {field("topology", &r.topology, kWhich).by_place("TOPOLOGY"),
          field("other", &r.other, "Compare with this topology or .toml file").by_place("OTHER")};
}

/// Compares two topologies and names them.
Result compare_topologies(const CompareRequest& request) {
  const Topology a = find_topology(request.topology);
  const Topology b = find_topology(request.other);
  const Json of_a = to_json(result_of(a, ""));
  const Json of_b = to_json(result_of(b, ""));
  Result report{"arlab.topology.compare/1"};
  report.figures = {{"a", a.name, a.summary}, {"b", b.name, b.summary}};
  report.rows_name = "differences";
  report.rows.columns = {"quantity", "a", "b", "b_over_a"};
  const auto add = [&](const std::string& what, const Json& x, const Json& y) {
    if (x != y) report.rows.rows.push_back(compared(what, x, y));
  };
  for (const char* field : {"kind", "device", "ranks", "switches", "links", "bisection_gb_per_s"}) {
    add(field, of_a[field], of_b[field]);
  }
  for (const char* field : {"pair_gb_per_s", "pair_hops", "pair_latency_us"}) {
    for (const char* part : {"min", "median", "max"}) {
      const auto of = [&](const Json& json) {
        return json[field].is_null() ? Json(nullptr) : json[field][part];
      };
      add(fmt::format("{}.{}", field, part), of(of_a), of(of_b));
    }
  }
  // The other topology shows nothing for quantities that only one has.
  std::map<std::string, std::pair<Json, Json>> values;
  std::vector<std::string> order;
  const auto collect = [&](const Json& json, bool first) {
    for (const Json& row : json["quantities"]) {
      const std::string key = row["quantity"];
      if (!values.contains(key)) order.push_back(key);
      (first ? values[key].first : values[key].second) = row["value"];
    }
  };
  collect(of_a, true);
  collect(of_b, false);
  for (const std::string& key : order) {
    if (key != "ranks") add(key, values[key].first, values[key].second);
  }
  add("faults", of_a["faults"].size(), of_b["faults"].size());
  add("stragglers", of_a["stragglers"].size(), of_b["stragglers"].size());
  std::set<std::string> refused;
  const Table times = compared_times(a, b, refused);
  const std::string provenance =
      fmt::format("simulated: model {}, topologies {} and {}", kSimulatorModel, name_with_caveat(a),
                  name_with_caveat(b));
  const std::string of_first = names_of_all_reduces(a.ranks.value);
  const std::string of_second = names_of_all_reduces(b.ranks.value);
  std::string tried =
      of_first == of_second ? of_first : fmt::format("{} on a, {} on b", of_first, of_second);
  if (!refused.empty()) {
    tried += fmt::format("; too large to try: {}", fmt::join(refused, ", "));
  }
  report.appendix = {
      {"times", to_json(times)}, {"times_provenance", provenance}, {"times_of", tried}};
  report.sections = {
      {fmt::format("all-reduce of all ranks, fp16 tensors, fastest of {} ({}):", tried, provenance),
       times,
       {},
       true}};
  return report;
}

// ---------------------------------------------------------------- what another tool says

struct ImportRequest {
  std::string file;
  std::string out;
  std::string from;
  std::string base;
  std::optional<std::uint32_t> servers;
  bool no_nvlink = false;
};

std::vector<BoundField> fields(ImportRequest& r) {
  return {field("file", &r.file, "Read this file").by_place("FILE"),
          field("out", &r.out, "Write this .toml", "standard output"),
          field("from", &r.from,
                "Read the format of nvidia-smi (topo -m), amd-smi (topology, or rocm-smi "
                "--showtopo), nccl-xml (NCCL_TOPO_DUMP_FILE) or astra-sim (network file)",
                "as the file looks"),
          field("base", &r.base,
                "Take device and software from this topology, and its links if it is of the same "
                "kind or the file does not mention NVLink",
                "kernels of h100-8, of mi300x-8 for AMD's GPUs"),
          field("no_nvlink", &r.no_nvlink,
                "Assume no NVLink for GPUs that the file lists by PCI class only"),
          field("servers", &r.servers, "Connect N of these servers by their network cards", "one")
              .from(1, kMaxTopologyRanks)};
}

/// Returns the machine file's values from the text, and the assumed ones; of the device nothing.
Result what_was_read(const Topology& t, const std::string& out) {
  Table numbers{{"quantity", "value", "source", "note"}, {}};
  std::vector<std::string> assumed;
  for (const NamedQuantity& each : quantities_of(t)) {
    if (each.key.starts_with("overhead.")) break;  // the device begins
    numbers.rows.push_back(
        {each.key, each.quantity.value, name_of(each.quantity.source), each.quantity.note});
    if (each.quantity.source == Source::assumed) assumed.push_back(each.key);
  }
  return {"arlab.topology.import/1",
          {{"out", out},
           {"topology", t.name, t.summary},
           {"kind", name_of(t.kind)},
           {"guesses", t.guessed_below_bytes > 0 ? Cell(guess_in_words(t)) : Cell(),
            "kernels are of another machine"},
           {"assumed", Json(assumed), "what the file does not state", listed(assumed)}},
          "numbers",
          std::move(numbers)};
}

/// A machine file; where that is written to a file, what it has from where.
Result import_machine(const ImportRequest& r) {
  if (!r.out.empty()) require_output_name("--out", r.out, {".toml"});
  const std::filesystem::path path(r.file);
  ImportOptions options{.servers = r.servers, .no_nvlink = r.no_nvlink};
  if (!r.from.empty()) {
    options.format = member_named(r.from, "--from", std::span<const ImportFormat>(kImportFormats));
  }
  if (!r.base.empty()) options.base = find_topology(r.base);
  options.name = std::filesystem::path(r.out.empty() ? r.file : r.out).stem().string();
  const Topology t =
      import_topology(read_text_file(path, "file to import"), one_line(path.string()), options);
  if (!r.out.empty()) {
    write_file(r.out, to_toml(t));
    return what_was_read(t, r.out);
  }
  Result result = result_of(t, "");
  result.is_text = true;
  return result;
}

}  // namespace

Question topology_flows_question() {
  return question<FlowsRequest>(
      "topology flows",
      "Predict the bandwidth of concurrent flows between ranks, and where PCIe collapses",
      rates_of_flows);
}

Question topology_show_question() {
  return question<ShowRequest>(
      "topology show", "Show a topology: links, bandwidths, the source of every number, a picture",
      show_topology, {}, {Format::toml});
}

Question topology_compare_question() {
  return question<CompareRequest>("topology compare", "Compare two topologies, and times on both",
                                  compare_topologies);
}

Question topology_import_question() {
  return question<ImportRequest>("topology import",
                                 "Convert another tool's file into a machine file", import_machine,
                                 {}, {Format::toml});
}

}  // namespace arlab::lab
