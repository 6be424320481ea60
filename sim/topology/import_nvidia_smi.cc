// The matrix of `nvidia-smi topo -m`, as a terminal shows it or as people paste it: with colours, as a
// Markdown table, with columns that have lost the blank between them.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "sim/topology/import_host.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

/// Equivalence classes, numbered by their first member.
class Classes {
 public:
  explicit Classes(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

// ---------------------------------------------------------------- words

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Without what terminals take for colours and underlines, and what tables draw between columns.
std::string without_drawing(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view kBlanks[] = {"|", "\u2502", "\u2503", "\u00a0", "*", "`"};
    const auto* const blank =
        std::find_if(std::begin(kBlanks), std::end(kBlanks),
                     [&](std::string_view each) { return text.substr(i).starts_with(each); });
    if (blank != std::end(kBlanks)) {
      plain += ' ';
      i += blank->size() - 1;
    } else if (text[i] == '\x1b') {
      while (i + 1 < text.size() && !is_letter(text[i + 1])) ++i;
      ++i;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (!words.empty() && words.front() == ">") words.erase(words.begin());  // quoted in a mail
  return words;
}

/// The line below the head of a table: --- | :---: | ---
bool is_rule(const std::vector<std::string>& words) {
  return !words.empty() && std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return word.find_first_not_of("-:=+") == std::string::npos;
  });
}

/// The columns that a word of the head names, several where the blanks between them are lost:
/// NIC2NIC3, GPU7CPU. Ends `going` at the first that is no device (CPU Affinity).
std::vector<std::string> columns_in(const std::string& word, bool& going) {
  constexpr std::string_view kGlued[] = {"GPU", "NIC", "mlx4_", "mlx5_", "bnxt_re", "irdma"};
  std::vector<std::string> columns;
  std::size_t at = 0;
  while (at < word.size()) {
    const std::string_view rest = std::string_view(word).substr(at);
    std::size_t length = 0;
    for (const std::string_view prefix : kGlued) {
      if (!rest.starts_with(prefix) || rest.size() == prefix.size()) continue;
      length = prefix.size();
      while (length < rest.size() && is_digit(rest[length])) ++length;
      if (length == prefix.size()) length = 0;
    }
    // mlx5_bond_0, rdmap16s27: cards of other names stand by themselves.
    const bool is_name = at == 0 && is_letter(word[0]) && !word.starts_with("CPU") &&
                         !word.starts_with("NUMA") && !word.starts_with("GPU") &&
                         std::any_of(word.begin(), word.end(), is_digit);
    if (length == 0 && is_name) length = rest.size();
    if (length == 0) {
      going = false;
      break;
    }
    columns.emplace_back(rest.substr(0, length));
    at += length;
  }
  return columns;
}

struct Entry {
  Distance distance = Distance::self;
  std::uint32_t links = 0;
};

constexpr std::pair<std::string_view, Distance> kEntries[] = {
    {"X", Distance::self},          {"PIX", Distance::one_bridge}, {"PXB", Distance::bridges},
    {"PHB", Distance::host_bridge}, {"NODE", Distance::node},      {"SYS", Distance::system},
    {"SOC", Distance::system}};

/// The connection at the beginning of a text, and how long it is; 0 where there is none.
std::pair<Entry, std::size_t> entry_at(std::string_view text) {
  for (const auto& [word, distance] : kEntries) {
    if (text.starts_with(word)) return {{distance, 0}, word.size()};
  }
  std::uint32_t links = 0;
  if (text.starts_with("NV")) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 2, end, links);
    if (error == std::errc() && links >= 1 && links <= kMostLinks) {
      return {{Distance::nvlink, links}, static_cast<std::size_t>(stop - text.data())};
    }
  }
  return {};
}

struct Row {
  std::vector<Entry> entries;
  std::vector<std::string> words;
};

/// As many connections as there are columns. Affinities behind them are ignored.
Row row_of(const std::vector<std::string>& words, std::size_t columns, std::string_view origin,
           const std::string& where) {
  Row row;
  for (const std::string& word : words) {
    std::size_t at = 0;
    while (at < word.size() && row.entries.size() < columns) {
      const auto [entry, length] = entry_at(std::string_view(word).substr(at));
      if (length == 0) {
        fail("{}: {}: {} is no connection; allowed are X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS",
             origin, where, quote(word));
      }
      row.entries.push_back(entry);
      row.words.push_back(word.substr(at, length));
      at += length;
    }
  }
  if (row.entries.size() < columns) {
    fail("{}: {}: {} entries for {} columns", origin, where, row.entries.size(), columns);
  }
  return row;
}

// ---------------------------------------------------------------- what goes with the matrix

double number_after(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + key.size(), nullptr);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> fields;
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

/// The GPUs' links by nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv, which
/// may ask for more.
std::vector<PcieLink> queried_links_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<PcieLink> links;
  constexpr std::string_view kKeys[] = {"pcie.link.gen.max", "pcie.link.width.max"};
  std::size_t column[] = {SIZE_MAX, SIZE_MAX};
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (!in_table) {
      for (std::size_t i = 0; i < fields.size(); ++i) {
        for (std::size_t k = 0; k < 2; ++k) {
          if (fields[i].find(kKeys[k]) != std::string::npos) column[k] = i;
        }
      }
      in_table = column[0] != SIZE_MAX && column[1] != SIZE_MAX;
      continue;
    }
    if (std::max(column[0], column[1]) >= fields.size()) break;
    constexpr double kGigaTransfers[] = {0, 2.5, 5, 8, 16, 32, 64};
    const long generation = std::strtol(fields[column[0]].c_str(), nullptr, 10);
    const long lanes = std::strtol(fields[column[1]].c_str(), nullptr, 10);
    if (generation < 1 || generation >= std::ssize(kGigaTransfers) || lanes < 1 || lanes > 64)
      break;
    links.push_back(*pcie_link(kGigaTransfers[generation], static_cast<unsigned>(lanes),
                               fmt::format("(generation {}) by nvidia-smi", generation)));
  }
  return links;
}

/// The same by lspci -vv, where bridges and audio devices of NVIDIA have links, too.
std::vector<PcieLink> listed_links_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<PcieLink> links;
  bool in_gpu = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("controller: ") != std::string::npos ||
        line.find("ridge: ") != std::string::npos ||
        line.find("Audio device: ") != std::string::npos) {
      in_gpu = line.find("NVIDIA") != std::string::npos &&
               (line.find("3D") != std::string::npos || line.find("VGA") != std::string::npos);
    }
    if (!in_gpu || line.find("LnkCap:") == std::string::npos) continue;
    in_gpu = false;
    const auto link = pcie_link(number_after(line, "Speed "),
                                static_cast<unsigned>(number_after(line, "Width x")), "by lspci");
    if (link) links.push_back(*link);
  }
  return links;
}

/// One for each GPU: as many as the text says, or the first for all.
std::vector<PcieLink> pcie_of_gpus(const std::string& text, Rank gpus) {
  std::vector<PcieLink> links = queried_links_in(text);
  if (links.empty()) links = listed_links_in(text);
  if (links.empty()) return std::vector<PcieLink>(gpus, assumed_pcie("the text has no rate"));
  if (links.size() == gpus) return links;
  const bool alike = std::all_of(links.begin(), links.end(), [&](const PcieLink& each) {
    return each.gb_per_s == links.front().gb_per_s;
  });
  const auto slowest = std::min_element(
      links.begin(), links.end(),
      [](const PcieLink& a, const PcieLink& b) { return a.gb_per_s.value < b.gb_per_s.value; });
  PcieLink link = *slowest;
  if (!alike) {
    link.gb_per_s.source = Source::assumed;
    link.gb_per_s.note += fmt::format("; the slowest of {} links for {} GPUs", links.size(), gpus);
  }
  return std::vector<PcieLink>(gpus, link);
}

/// By the name of a card in the text, as lspci has it.
Quantity card_rate_in(std::string_view text) {
  constexpr std::pair<std::string_view, double> kCards[] = {
      {"ConnectX-8", 100},  {"ConnectX-7", 50},  {"ConnectX-6", 25},
      {"ConnectX-5", 12.5}, {"BlueField-3", 50}, {"BlueField-2", 25}};
  for (const auto& [card, gb_per_s] : kCards) {
    if (text.find(card) == std::string_view::npos) continue;
    return number(gb_per_s, Source::datasheet, fmt::format("{}, the fastest there is", card));
  }
  return number(25, Source::assumed, "200 Gbit/s; the text does not say what the cards are");
}

/// The name of a column's card, as the legend has it: NIC0 is mlx5_0.
std::string card_named(const std::string& column, std::string_view text) {
  const std::size_t at = text.find(column + ": ");
  if (at == std::string_view::npos) return column;
  const std::size_t begin = at + column.size() + 2;
  return std::string(text.substr(begin, text.find_first_of(" \t\r\n", begin) - begin));
}

// ---------------------------------------------------------------- the matrix

struct Matrix {
  std::vector<std::string> devices;  ///< GPUs, then network cards
  Rank gpus = 0;
  std::vector<std::vector<Entry>> entries;

  const Entry& at(std::size_t a, std::size_t b) const { return entries[a][b]; }
};

Matrix read_matrix(std::string_view text, std::string_view origin) {
  std::istringstream lines(without_drawing(text));
  Matrix matrix;
  std::vector<std::string>& devices = matrix.devices;
  std::vector<Row> rows;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = words_of(line);
    if (is_rule(words)) continue;
    if (words.empty()) {
      if (!rows.empty()) break;  // the legend follows
      continue;
    }
    if (devices.empty()) {
      bool going = words.front().starts_with("GPU0");
      if (going) columns_in(words.front(), going);
      for (const std::string& word : going ? words : std::vector<std::string>()) {
        for (std::string& column : columns_in(word, going)) devices.push_back(std::move(column));
        if (!going) break;  // CPU Affinity, NUMA Affinity
      }
      continue;
    }
    if (rows.size() == devices.size()) break;
    const std::string& device = devices[rows.size()];
    if (words.front() != device) {
      // GPU1NV18, without the blank
      const std::string_view glued =
          std::string_view(words.front()).substr(std::min(device.size(), words.front().size()));
      if (!words.front().starts_with(device) || entry_at(glued).second == 0) break;
      words.front() = std::string(glued);
    } else {
      words.erase(words.begin());
    }
    rows.push_back(row_of(words, devices.size(), origin, fmt::format("row {}", device)));
  }
  if (devices.empty()) fail("{}: there is no line that begins with GPU0, GPU1, ...", origin);
  if (devices.size() > kMostGpus + kMostCards) {
    fail("{}: {} devices are too many; allowed are {}", origin, devices.size(),
         kMostGpus + kMostCards);
  }
  matrix.gpus = static_cast<Rank>(std::count_if(
      devices.begin(), devices.end(), [](const auto& name) { return name.starts_with("GPU"); }));
  for (Rank i = 0; i < matrix.gpus; ++i) {
    if (devices[i] != fmt::format("GPU{}", i)) {
      fail("{}: column {} is {}; expected is GPU{}", origin, i, quote(devices[i]), i);
    }
  }
  if (matrix.gpus > kMostGpus) fail("{}: more than {} GPUs", origin, kMostGpus);
  // Rows of network cards are sometimes left out.
  if (rows.size() < matrix.gpus) {
    fail("{}: there are {} columns of GPUs, but only {} rows", origin, matrix.gpus, rows.size());
  }
  matrix.entries.assign(devices.size(), std::vector<Entry>(devices.size()));
  for (std::size_t a = 0; a < rows.size(); ++a) {
    for (std::size_t b = 0; b < devices.size(); ++b) {
      const Entry& entry = rows[a].entries[b];
      matrix.entries[a][b] = entry;
      if ((entry.distance == Distance::self) != (a == b)) {
        fail("{}: row {}: X belongs on the diagonal, and nowhere else", origin, devices[a]);
      }
      const Entry& mirrored = matrix.entries[b][a];
      if (b < a && (mirrored.distance != entry.distance || mirrored.links != entry.links)) {
        fail("{}: row {}: to {} it says {}, the other way {}", origin, devices[a], devices[b],
             rows[a].words[b], rows[b].words[a]);
      }
      if (a < matrix.gpus && b >= matrix.gpus) matrix.entries[b][a] = entry;
    }
  }
  return matrix;
}

void take_nvlinks(const Matrix& matrix, Host& host) {
  const std::uint32_t links = host.gpus > 1 ? matrix.at(0, 1).links : 0;
  bool every_pair = links > 0;
  for (Rank a = 0; a < host.gpus; ++a) {
    for (Rank b = 0; b < host.gpus; ++b) {
      every_pair = every_pair && (a == b || matrix.at(a, b).links == links);
    }
  }
  const bool switched = every_pair && (host.gpus - 1) * links > kLinksOfAGpu;
  host.to_switch.assign(host.gpus, switched ? links : 0);
  host.direct.assign(host.gpus, std::vector<std::uint32_t>(host.gpus));
  for (Rank a = 0; a < host.gpus && !switched; ++a) {
    for (Rank b = 0; b < host.gpus; ++b) host.direct[a][b] = matrix.at(a, b).links;
  }
}

/// NVLink hides where on PCIe two GPUs are: a network card that is near both shows it.
void take_pcie(const Matrix& matrix, Host& host) {
  const std::size_t devices = matrix.devices.size();
  Classes bridges(devices);
  Classes complexes(devices);
  Classes nodes(devices);
  for (std::size_t a = 0; a < devices; ++a) {
    for (std::size_t b = 0; b < devices; ++b) {
      const Distance distance = matrix.at(a, b).distance;
      if (a == b || distance == Distance::nvlink) continue;
      if (distance <= Distance::bridges) bridges.join(a, b);
      if (distance <= Distance::host_bridge) complexes.join(a, b);
      if (distance <= Distance::node) nodes.join(a, b);
    }
  }
  std::map<std::size_t, Rank> cpu_numbers;
  std::map<std::size_t, Rank> complex_numbers;
  std::map<std::size_t, Rank> hub_numbers;
  std::map<std::size_t, std::size_t> members;
  for (std::size_t i = 0; i < devices; ++i) ++members[bridges.find(i)];
  const auto numbered = [](std::map<std::size_t, Rank>& numbers, std::size_t of) {
    return numbers.try_emplace(of, static_cast<Rank>(numbers.size())).first->second;
  };
  for (std::size_t i = 0; i < host.gpus; ++i) {
    const Rank cpu = numbered(cpu_numbers, nodes.find(i));
    const Rank complex = numbered(complex_numbers, complexes.find(i));
    if (complex == host.cpu_of_complex.size()) host.cpu_of_complex.push_back(cpu);
    Rank hub = Host::kNone;
    if (members[bridges.find(i)] > 1) {
      hub = numbered(hub_numbers, bridges.find(i));
      if (hub == host.complex_of_hub.size()) host.complex_of_hub.push_back(complex);
    }
    host.cpu.push_back(cpu);
    host.complex.push_back(complex);
    host.hub.push_back(hub);
  }
  host.hubs = static_cast<Rank>(hub_numbers.size());
  host.cpus = static_cast<Rank>(cpu_numbers.size());
}

}  // namespace

Host read_nvidia_smi(std::string_view text, std::string_view origin) {
  const Matrix matrix = read_matrix(text, origin);
  Host host;
  host.tool = "nvidia-smi topo -m";
  host.gpus = matrix.gpus;
  take_nvlinks(matrix, host);
  take_pcie(matrix, host);
  host.nvlink = number(20.6, Source::assumed,
                       "one NVLink of A100 to H200, as NCCL counts it; the matrix has no rates");
  host.socket = number(16, Source::assumed,
                       "between NUMA nodes, as NCCL takes for AMD; the matrix does not say");
  host.pcie = pcie_of_gpus(std::string(text), host.gpus);
  PcieLink uplink = *std::max_element(
      host.pcie.begin(), host.pcie.end(),
      [](const PcieLink& a, const PcieLink& b) { return a.gb_per_s.value < b.gb_per_s.value; });
  uplink.gb_per_s.source = Source::assumed;
  uplink.gb_per_s.note += "; an uplink as a GPU";
  host.upstream.assign(host.hubs, uplink);
  const Quantity rate = card_rate_in(text);
  const std::map<std::string, CardPort> ports = ports_in(text);
  for (std::size_t card = host.gpus; card < matrix.devices.size(); ++card) {
    Distance nearest = Distance::elsewhere;
    for (Rank gpu = 0; gpu < host.gpus; ++gpu) {
      nearest = std::min(nearest, matrix.at(gpu, card).distance);
    }
    const auto port = ports.find(card_named(matrix.devices[card], text));
    if (port != ports.end() && port->second.is_down) {
      host.remarks.push_back(fmt::format("without {}, whose port is down", port->first));
      continue;
    }
    const bool is_stated = port != ports.end() && port->second.gb_per_s.value > 0;
    host.cards.push_back({matrix.devices[card], nearest, is_stated ? port->second.gb_per_s : rate});
  }
  return host;
}

}  // namespace arlab
