// Reads tables of links between GPUs by AMD's tools: `rocm-smi --showtopo` and `amd-smi topology`, as a terminal shows it or as
// JSON, and the latter as CSV.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "reference/csv.h"
#include "reference/field.h"
#include "reference/json.h"
#include "sim/topology/import_host.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

using AmdJson = nlohmann::json;

std::vector<Rank> numbers_in(std::string_view text) {
  std::vector<Rank> numbers;
  bool is_inside = false;
  for (const char c : text) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && !is_inside) numbers.push_back(0);
    if (is_digit) numbers.back() = numbers.back() % 100'000 * 10 + static_cast<Rank>(c - '0');
    is_inside = is_digit;
  }
  return numbers;
}

std::string json_text(const AmdJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// GPU0, or a bus address: 0000:0c:00.0
bool names_gpu(std::string_view word) {
  return word.starts_with("GPU") || (word.find(':') < word.size() && word.find('.') < word.size());
}

/// Values of a text for pairs of GPUs.
class Tables {
 public:
  Tables(std::string_view text, std::string_view origin) : origin_(origin) {
    if (text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size())).find_first_of("{[") ==
        0)
      read_json(parse_json(text));
    else if (text.find("link_type_gpu_") != std::string_view::npos)
      read_csv(text);
    else
      read_text(text);
    if (type_.empty()) {
      fail(
          "{}: it has no table of link types (XGMI, PCIE), which rocm-smi --showtopo and amd-smi "
          "topology print",
          origin_);
    }
    require_whole(type_, "link types");
    require_whole(hops_, "hops");
    require_whole(bandwidth_, "bandwidths");
  }

  Rank gpus() const { return gpus_; }
  /// XGMI, PCIE, or what else there is.
  const std::string& type(Rank a, Rank b) const { return type_.at({a, b}); }
  /// 1: directly linked, 2: over a processor, or unknown.
  double hops(Rank a, Rank b) const { return hops_.empty() ? 1 : number_of(hops_.at({a, b})); }
  /// 50000-100000: MB/s of one link and of all between two GPUs; 0 where it is not known.
  std::pair<double, double> rates(Rank a, Rank b) const {
    if (bandwidth_.empty()) return {};
    const std::vector<Rank> rates = numbers_in(bandwidth_.at({a, b}));
    if (rates.size() != 2 || rates[0] == 0 || rates[1] < rates[0]) return {};
    return {rates[0], rates[1]};
  }
  bool knows_nodes() const {
    return numa_node_.size() == gpus_ && numa_node_.rbegin()->first < gpus_;
  }
  Rank node(Rank gpu) const { return numa_node_.at(gpu); }

 private:
  using Table = std::map<std::pair<Rank, Rank>, std::string>;

  /// The table that a title or a key names; nothing for those that are not needed.
  Table* named(std::string name) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
    return has("type")                      ? &type_
           : has("hops")                    ? &hops_
           : has("bw ") || has("bandwidth") ? &bandwidth_
                                            : nullptr;
  }

  void set(Table* table, std::size_t a, std::size_t b, std::string text) {
    if (table == nullptr) return;
    const std::size_t gpus = std::max(a, b) + 1;
    if (gpus > kMostGpus) fail("{}: more than {} GPUs", origin_, kMostGpus);
    gpus_ = std::max(gpus_, static_cast<Rank>(gpus));
    (*table)[{static_cast<Rank>(a), static_cast<Rank>(b)}] = std::move(text);
  }

  /// GPU[3] : (Topology) Numa Node: 1
  void set_node(std::string_view gpu, std::string_view node) {
    if (numbers_in(gpu).empty() || numbers_in(node).empty()) return;
    const bool is_known = node.find('-') == std::string_view::npos;
    numa_node_[numbers_in(gpu).front()] = is_known ? numbers_in(node).back() : 0;
  }

  void read_text(std::string_view text) {
    std::istringstream lines{std::string(text)};
    Table* table = nullptr;
    std::size_t columns = 0;
    std::size_t row = 0;
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string> words = words_in(line);
      const std::size_t node = line.find("Numa Node: ");
      if (node != std::string::npos) set_node(line.substr(0, node), line.substr(node));
      if (line.find("===") != std::string::npos || line.find(" TABLE") != std::string::npos ||
          line.starts_with("Legend")) {
        table = named(line);
        columns = row = 0;
      } else if (!words.empty() && columns == 0 && std::ranges::all_of(words, names_gpu)) {
        columns = words.size();
      } else if (!words.empty() && names_gpu(words[0]) && table != nullptr && row < columns) {
        if (words.size() != columns + 1) {
          fail("{}: row {} has {} entries for {} columns: {}", origin_, row, words.size() - 1,
               columns, quote(line));
        }
        for (std::size_t i = 0; i < columns; ++i) set(table, row, i, words[i + 1]);
        ++row;
      }
    }
  }

  /// amd-smi --csv: gpu,bdf,...,link_type_gpu_0,link_type_gpu_1,...
  void read_csv(std::string_view text) {
    std::istringstream lines{std::string(text)};
    std::vector<std::string> names;
    std::size_t row = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      const std::vector<std::string> cells = cut_csv_line(line);
      if (names.empty() && line.find("link_type_gpu_") != std::string::npos) {
        names = cells;
      } else if (!names.empty() && cells.size() == names.size()) {
        for (std::size_t i = 0; i < cells.size(); ++i) {
          if (const auto to = numbers_in(names[i]); !to.empty())
            set(named(names[i]), row, to.back(), cells[i]);
        }
        ++row;
      }
    }
  }

  void read_json(const AmdJson& json) {
    if (json.is_discarded()) fail("{}: it is not JSON", origin_);
    std::size_t gpu = 0;
    for (const auto& [key, value] : json.items()) {
      if (json.is_array()) read_links(gpu++, value);
      if (json.is_array() || !value.is_object()) continue;
      if (key == "system") read_system(value);
      if (value.contains("(Topology) Numa Node"))
        set_node(key, json_text(value["(Topology) Numa Node"]));
    }
  }

  /// amd-smi: [{"gpu": 0, "links": [{"gpu": 1, "link_type": "XGMI", "num_hops": 1, ...}]}]
  void read_links(std::size_t gpu, const AmdJson& json) {
    if (!json.is_object() || !json.contains("links") || !json["links"].is_array()) return;
    std::size_t to = 0;
    for (const AmdJson& link : json["links"]) {
      if (link.is_object()) {
        for (const auto& [key, value] : link.items()) set(named(key), gpu, to, json_text(value));
      }
      ++to;
    }
  }

  /// rocm-smi: {"system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI"}}
  void read_system(const AmdJson& system) {
    for (const auto& [key, value] : system.items()) {
      const std::vector<Rank> gpus = numbers_in(key);
      if (gpus.size() != 2) continue;
      set(named(key), gpus[0], gpus[1], json_text(value));
      set(named(key), gpus[1], gpus[0], json_text(value));
    }
  }

  void require_whole(const Table& table, const char* what) const {
    for (Rank a = 0; a < gpus_ && !table.empty(); ++a) {
      for (Rank b = 0; b < gpus_; ++b) {
        if (a == b || table.contains({a, b})) continue;
        fail("{}: the table of {} is not whole: GPU {} to GPU {} is missing of {} GPUs", origin_,
             what, a, b, gpus_);
      }
    }
  }

  std::string_view origin_;
  Rank gpus_ = 0;
  Table type_;
  Table hops_;
  Table bandwidth_;
  std::map<Rank, Rank> numa_node_;
};

// ---------------------------------------------------------------- a server of it

/// The xGMI links of each pair that is linked directly.
void take_links(const Tables& tables, Host& host, std::string_view origin) {
  host.direct.assign(host.gpus, std::vector<std::uint32_t>(host.gpus));
  host.to_switch.assign(host.gpus, 0);
  double least = 0;
  bool has_indirect = false;
  for (Rank a = 0; a < host.gpus; ++a) {
    for (Rank b = 0; b < host.gpus; ++b) {
      if (a == b || tables.type(a, b) == "PCIE") continue;
      const std::string& type = tables.type(a, b);
      if (type != "XGMI") {
        host.unknown_nvlink =
            fmt::format("the link from GPU {} to GPU {} is {}", a, b, quote(type));
      } else if (tables.type(b, a) != type) {
        fail("{}: GPU {} to GPU {} is {}, the other way {}", origin, a, b, type,
             quote(tables.type(b, a)));
      } else if (tables.hops(a, b) > 1) {
        has_indirect = true;
      } else {
        const auto [one, all] = tables.rates(a, b);
        const double links = one > 0 ? std::clamp(std::round(all / one), 1.0, 64.0) : 1;
        host.direct[a][b] = static_cast<std::uint32_t>(links);
        least = least == 0 ? one : std::min(least, one);
      }
    }
  }
  constexpr double kShare = 0.75;  // as RCCL counts 48 of the 64 GB/s of an MI300X
  host.nvlink = number(
      least > 0 ? least / 1000 * kShare : 48, Source::assumed,
      least > 0 ? fmt::format(
                      "three quarters of {:g} MB/s, which the tool states for one xGMI link", least)
                : "RCCL's topo.h: one xGMI link of MI300X; the text has no rates");
  if (has_indirect)
    host.remarks.emplace_back("pairs of GPUs that xGMI links over others go over PCIe");
}

/// GPUs of one NUMA node: as the text says, or those that PCIe joins over one processor.
void take_nodes(const Tables& tables, Host& host) {
  bool has_pcie = false;
  for (Rank a = 0; a < host.gpus; ++a) {
    Rank cpu = host.cpus;
    for (Rank b = 0; b < a; ++b) {
      const bool is_pcie = tables.type(a, b) == "PCIE";
      has_pcie = has_pcie || is_pcie;
      const bool together = tables.knows_nodes() ? tables.node(a) == tables.node(b)
                                                 : !is_pcie || tables.hops(a, b) <= 2;
      if (together) cpu = std::min(cpu, host.cpu[b]);
    }
    if (cpu == host.cpus) host.cpu_of_complex.push_back(host.cpus++);
    host.cpu.push_back(cpu);
  }
  host.complex = host.cpu;
  host.hub.assign(host.gpus, Host::kNone);
  if (!tables.knows_nodes() && has_pcie)
    host.remarks.emplace_back(
        "GPUs that the text does not tell apart are taken to be of one NUMA node");
}

}  // namespace

Host read_amd_smi(std::string_view text, std::string_view origin) {
  const Tables tables(text, origin);
  Host host;
  host.tool = "AMD's tool";
  host.link = "xGMI";
  host.kernels_of = "mi300x-8";
  host.gpus = tables.gpus();
  take_links(tables, host, origin);
  take_nodes(tables, host);
  host.socket = number(16, Source::assumed,
                       "between NUMA nodes, as NCCL takes for AMD; the text does not say");
  host.pcie.assign(host.gpus, assumed_pcie("the text has no rate"));
  for (const auto& [name, port] : ports_in(text)) {
    if (!port.is_down) host.cards.push_back({name, Distance::node, port.gb_per_s});
  }
  return host;
}

}  // namespace arlab
