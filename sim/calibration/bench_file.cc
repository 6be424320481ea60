#include "sim/calibration/bench_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/csv.h"
#include "reference/tensors/file.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kColumns = {"platform", "machine", "ranks",   "algorithm", "codec",
                                           "dtype",    "bytes",   "time_us", "library"};
/// Optional columns: wire bits follow from the codec; rows limited to some multiprocessors are skipped.
constexpr const char* kWireBits = "wire_bits";
constexpr const char* kBudget = "sms";
/// Libraries of others, of which there is no model.
constexpr std::string_view kNotSimulated[] = {"torch_symm_mem", "flashinfer"};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// h200 of h200-8.
std::string family_of(const std::string& topology) {
  return topology.substr(0, topology.rfind('-'));
}

/// Whether `name` begins with all words of `words`: NVIDIA H200 SXM with NVIDIA H200, not NVIDIA
/// H20.
bool begins_with_words(const std::string& name, const std::string& words) {
  return name.starts_with(words) && (name.size() == words.size() || name[words.size()] == ' ');
}

/// Reads one file, row by row.
class BenchReader {
 public:
  BenchReader(const fs::path& path, BenchFiles& result) : path_(path), result_(result) {}

  void read() {
    const CsvTable csv = read_csv(path_);
    header_ = header_of(path_);
    find_columns(csv.rows[0]);
    for (std::size_t r = 1; r < csv.rows.size(); ++r) {
      row_ = &csv.rows[r];
      line_ = csv.lines[r];
      read_row();
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: line {}: {}", path_.string(), line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void find_columns(const std::vector<std::string>& names) {
    const auto is_known = [](const std::string& name) {
      return name == kWireBits || name == kBudget || std::ranges::count(kColumns, name) > 0;
    };
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!is_known(names[i]) || !places_.emplace(names[i], i).second) refuse_columns();
    }
    for (const std::string& name : kColumns) {
      if (!places_.contains(name) && !header_.contains(name)) refuse_columns();
    }
  }
  [[noreturn]] void refuse_columns() const {
    fail(
        "{}: the columns must be {}; those that are the same everywhere may stand in comments: # "
        "dtype: bf16",
        path_.string(), join(kColumns));
  }

  std::string text(const std::string& column) const {
    const auto place = places_.find(column);
    std::string cell = place == places_.end() ? header_.at(column) : (*row_)[place->second];
    if (cell.empty()) fail_here("column '{}' is empty", column);
    return cell;
  }

  std::uint64_t whole_number(const std::string& column, double most) const {
    const std::string cell = text(column);
    const double value = number_of(cell);
    if (!(value >= 1 && value <= most && value == std::floor(value))) {
      fail_here("column '{}' is '{}': allowed is a whole number from 1 to {:.0f}", column,
                printable(cell), most);
    }
    return static_cast<std::uint64_t>(value);
  }

  /// Rethrows what find() throws, with the line.
  template <class Find>
  auto named(Find find) const {
    try {
      return find();
    } catch (const InvalidInput& error) {
      fail_here("{}", error.what());
    }
  }

  void read_row() {
    const std::string platform = text("platform");
    if (platform != "cuda" && platform != "rocm" && platform != "host") {
      fail_here("platform '{}' is unknown; allowed are cuda, rocm, host", printable(platform));
    }
    std::string library = text("library");
    library = library.substr(0, library.find(' '));  // its version follows
    const bool vendors = library == "nccl" || library == "rccl";
    const bool is_others = std::ranges::count(kNotSimulated, library) > 0;
    if (library != "arlab" && !vendors && !is_others) {
      fail_here(
          "library '{}' is unknown; allowed are arlab, nccl, rccl, torch_symm_mem, flashinfer",
          printable(library));
    }
    Measurement cell;
    const auto ranks = static_cast<Rank>(whole_number("ranks", kMaxTopologyRanks));
    cell.dtype = named([&] { return parse_dtype(text("dtype")); });
    cell.bytes = whole_number("bytes", static_cast<double>(kMaxElements));
    if (cell.bytes % size_of(cell.dtype) != 0) {
      fail_here("{} bytes are no whole number of {} elements", cell.bytes, name_of(cell.dtype));
    }
    cell.value = number_of(text("time_us"));
    if (!(cell.value > 0 && cell.value < 1e15)) {
      fail_here("column 'time_us' is '{}': allowed is a number above 0",
                printable(text("time_us")));
    }
    const auto budget = places_.find(kBudget);
    const bool has_budget = budget != places_.end() && !(*row_)[budget->second].empty();
    if (is_others || platform == "host" || has_budget) {
      ++result_.left_out;  // the simulator has no model of it; a CPU's time
      return;
    }
    std::string& topology = topologies_[{text("machine"), ranks}];
    if (topology.empty()) topology = named([&] { return machine_named(text("machine"), ranks); });
    cell.topology = topology;
    cell.library = vendors;
    cell.algorithm = text("algorithm");
    // The library chooses for itself; at the sizes that matter it takes rings.
    if (cell.library && cell.algorithm == "all_reduce") cell.algorithm = "ring";
    named([&] { return find_algorithm(cell.algorithm).name; });
    cell.codec = text("codec");
    const CodecPtr codec = named([&] { return find_codec(cell.codec); });
    if (!codec->takes(cell.dtype)) {
      fail_here("codec {} does not take {}", cell.codec, name_of(cell.dtype));
    }
    if (cell.library && cell.codec != name_of(cell.dtype)) {
      fail_here("{} sends values as they are: codec must be {}, not {}", library,
                name_of(cell.dtype), cell.codec);
    }
    cell.row = std::to_string(cell.bytes);
    cell.column =
        fmt::format("{}{} {}", cell.library ? library + " " : "", cell.algorithm, cell.codec);
    if (cell.codec != name_of(cell.dtype)) cell.column += fmt::format(" {}", name_of(cell.dtype));
    cell.table = table_of(cell.topology);
    if (!seen_.emplace(cell.table, cell.column, cell.bytes).second) {
      fail_here("{} of {} bytes on {} is there twice; one row per measurement", cell.column,
                cell.bytes, cell.topology);
    }
    result_.measurements.cells.push_back(std::move(cell));
  }

  /// Returns the index of this file's table for a topology.
  std::size_t table_of(const std::string& topology) {
    std::vector<MeasurementTable>& tables = result_.measurements.tables;
    const auto [place, is_new] = tables_.try_emplace(topology, tables.size());
    if (is_new) {
      tables.push_back({fmt::format("{}: {}", path_.stem().string(), topology),
                        path_.filename().string(), Source::measured, TableQuantity::latency_us});
      if (const auto said = header_.find("kernels"); said != header_.end()) {
        tables.back().commit = said->second.substr(0, said->second.find_first_of("; "));
      }
    }
    return place->second;
  }

  const fs::path& path_;
  BenchFiles& result_;
  std::map<std::pair<std::string, Rank>, std::string> topologies_;  ///< by machine
  std::map<std::string, std::string> header_;                       ///< from comments
  std::map<std::string, std::size_t> places_;                       ///< by column
  std::map<std::string, std::size_t> tables_;                       ///< by topology
  std::set<std::tuple<std::size_t, std::string, std::uint64_t>> seen_;
  const std::vector<std::string>* row_ = nullptr;
  std::size_t line_ = 0;
};

/// Rows of a table are its sizes, in ascending order.
void number_rows(Measurements& measurements) {
  for (std::size_t t = 0; t < measurements.tables.size(); ++t) {
    std::set<std::uint64_t> sizes;
    for (const Measurement& cell : measurements.cells) {
      if (cell.table == t) sizes.insert(cell.bytes);
    }
    for (Measurement& cell : measurements.cells) {
      if (cell.table != t) continue;
      cell.row_number =
          static_cast<std::size_t>(std::distance(sizes.begin(), sizes.find(cell.bytes)));
    }
  }
}

/// The constants that latencies of kernels and of NCCL can tell; a fit leaves out those that its
/// cells do not depend on. One value whatever the number of ranks: it is one machine. Constants that no such measurement tells
/// apart stay as they are: the latency of a link; the bandwidth of one, where there are `programs`, whose wires and codecs
/// overlap by a constant of their own; what one flag more costs; the launch of a small kernel, which the one before hides; and
/// what is said to be 0.
std::vector<std::string> constants_of(const Device& device, bool programs) {
  std::vector<std::string> keys = {"device.codec_overlap"};
  const auto add = [&keys](std::initializer_list<const char*> more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  const auto add_unless_0 = [&keys](const char* key, const Quantity& quantity) {
    if (quantity.value > 0) keys.emplace_back(key);
  };
  // Instruction costs come from the codec's row.
  if (device.codecs.empty()) {
    add({"device.codec_gops_per_s"});
    if (device.blocks) add({"device.decode_cost"});
  }
  if (!programs) add({"link.bandwidth_gb_per_s"});
  if (device.blocks) add({"blocks.meet_us"});
  // one_shot and two_shot have kernels with Lamport slots and sentinels, which say little of those with flags.
  if (programs || !device.small || !device.sentinels) {
    add({"overhead.launch_us", "device.latency_overlap"});
    if (device.blocks) {
      add_unless_0("overhead.step_us", device.step_us);
      add({"blocks.load_us", "blocks.release_us", "blocks.phase_us"});
    } else {
      add({"device.codec_tile_us_per_op"});
      add_unless_0("overhead.message_us", device.message_us);
    }
  }
  if (device.small) {
    add({"small.step_us", "small.message_us", "small.work_cost", "small.wire_cost"});
  }
  if (device.sentinels) {
    add({"sentinels.launch_us", "sentinels.step_us", "sentinels.access_us"});
    add_unless_0("sentinels.fill_us", device.sentinels->fill_us);
    add({"sentinels.fill_turns", "sentinels.turn_cost"});
  }
  if (device.library) {
    const Library& library = *device.library;
    add({"library.low_latency_us", "library.low_latency_efficiency", "library.simple_us"});
    add_unless_0("library.low_latency_max_bytes", library.low_latency_max_bytes);
    add_unless_0("library.simple_hop_us", library.simple_hop_us);
    add_unless_0("library.drift_us", library.drift_us);
    if (library.ll128) add({"library.ll128.fixed_us", "library.ll128.efficiency"});
  }
  return keys;
}

/// Bytes of a rank that kernels for small tensors are for, at most.
constexpr std::uint64_t kLargestSmall = std::uint64_t{4} << 20;

/// Whether there are times of algorithms other than one_shot and two_shot.
bool has_programs(const std::string& family, const Measurements& measurements) {
  return std::ranges::any_of(measurements.cells, [&family](const Measurement& cell) {
    const bool is_shot = cell.algorithm == "one_shot" || cell.algorithm == "two_shot";
    return family_of(cell.topology) == family && !cell.library && !is_shot;
  });
}

/// Every third codec, predicted by a fit on the others: one at a time would take minutes.
void add_codec_folds(FitDefinition& fit, const std::string& family,
                     const Measurements& measurements) {
  constexpr std::size_t kFolds = 3;
  std::map<std::string, std::set<std::string>> columns;  // by codec
  for (const Measurement& cell : measurements.cells) {
    if (family_of(cell.topology) != family || cell.library) continue;
    columns[cell.codec].insert(cell.column);
  }
  if (columns.size() < 2 * kFolds) return;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    HoldOut hold_out{.name =
                         fmt::format("a third of the codecs, fitted on the others ({})", fold + 1)};
    std::size_t i = 0;
    for (const auto& [codec, of_it] : columns) {
      if (i++ % kFolds != fold) continue;
      hold_out.columns.insert(hold_out.columns.end(), of_it.begin(), of_it.end());
    }
    fit.hold_outs.push_back(std::move(hold_out));
  }
}

FitDefinition fit_of(const std::string& family, const Measurements& measurements) {
  FitDefinition fit;
  fit.name = family;
  std::map<Rank, std::vector<std::string>> tables;  // by ranks
  std::vector<CodecTimes> known_codecs;
  std::set<std::size_t> known;
  std::set<std::string> codecs;
  std::set<std::string> algorithms_of_large;  // tensors
  bool many_sizes = false;
  std::string predicted_from;
  for (const Measurement& cell : measurements.cells) {
    if (family_of(cell.topology) != family) continue;
    many_sizes = many_sizes || cell.row_number > 0;
    if (!cell.library) codecs.insert(cell.codec);
    if (!cell.library && cell.bytes > kLargestSmall) algorithms_of_large.insert(cell.algorithm);
    if (!known.insert(cell.table).second) continue;
    const std::string& name = measurements.tables[cell.table].name;
    fit.tables.push_back(name);
    const Topology machine = find_topology(cell.topology);
    tables[machine.ranks.value].push_back(name);
    fit.shared =
        constants_of(machine.device, machine.device.blocks && has_programs(family, measurements));
    if (machine.device.blocks) fit.chosen = 3;  // blocks.load_us, two message_us
    known_codecs = machine.device.codecs;
    const std::optional<Uncertainty>& about = machine.uncertainty;
    if (about && about->kernels && about->kernels->device != machine.device.name) {
      predicted_from = about->kernels->device;
      fit.neutral.machines = {cell.topology};
    }
  }
  // The machine file has what another device's times say.
  if (!predicted_from.empty()) {
    fit.hold_outs.push_back({.name = fmt::format("all, predicted from {}", predicted_from)});
  }
  // With a single number of steps, step and launch times cannot be told apart.
  if (algorithms_of_large.size() < 2) std::erase(fit.shared, "sentinels.launch_us");
  for (const CodecTimes& each : known_codecs) {
    std::string_view codec = each.codec;
    if (codec.ends_with(kInPrograms)) codec.remove_suffix(kInPrograms.size());
    if (!codecs.contains(std::string(codec))) continue;
    for (const char* what : {"slots", "cycles"}) {
      fit.shared.push_back(fmt::format("codecs.{}.{}", each.codec, what));
    }
  }
  if (tables.size() > 1) {
    const Rank fewest = tables.begin()->first;
    for (auto more = std::next(tables.begin()); more != tables.end(); ++more) {
      fit.hold_outs.push_back({});
      HoldOut& hold_out = fit.hold_outs.back();
      hold_out.name = fmt::format("{} GPUs, fitted on {}", more->first, fewest);
      hold_out.tables = more->second;
      for (auto other = std::next(tables.begin()); other != tables.end(); ++other) {
        if (other != more) {
          hold_out.ignored.insert(hold_out.ignored.end(), other->second.begin(),
                                  other->second.end());
        }
      }
    }
  }
  if (many_sizes) {
    fit.hold_outs.push_back(
        {.name = "every second size, fitted on the others", .rows = HeldRows::odd});
  }
  add_codec_folds(fit, family, measurements);
  return fit;
}

struct ListedMachine {
  std::string name;
  std::string device;  ///< in small letters
  Rank ranks;
};
std::vector<ListedMachine> listed_machines() {
  std::vector<ListedMachine> all;
  for (const std::string& name : listed_topologies()) {
    const Topology topology = find_topology(name);
    all.push_back({name, lower(topology.device.name), topology.ranks.value});
  }
  return all;
}

}  // namespace

std::map<std::string, std::string> header_of(const fs::path& file) {
  std::map<std::string, std::string> header;
  std::istringstream in(read_text_file(file, "table"));
  for (std::string line; std::getline(in, line) && line.starts_with("# ");) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos)
      header.emplace(line.substr(2, colon - 2), line.substr(colon + 2));
  }
  return header;
}

bool is_variant(std::string_view machine) {
  return machine.find("-symmetric-") != std::string_view::npos;
}

std::string machine_named(const std::string& machine, Rank ranks) {
  // Read once: a file of times has many lines, and asks for each.
  static const std::vector<ListedMachine> listed = listed_machines();
  std::string wanted = lower(machine);
  std::set<std::string> families;
  std::vector<std::string> found;
  for (const ListedMachine& each : listed) {
    families.insert(family_of(each.name));
    if (each.name == wanted) wanted = family_of(wanted);
  }
  for (const ListedMachine& each : listed) {
    if (each.ranks != ranks) continue;
    const bool is_so_called = family_of(each.name) == wanted;
    if (is_so_called || (!is_variant(each.name) && begins_with_words(each.device, wanted))) {
      found.push_back(each.name);
    }
  }
  if (found.size() == 1) return found[0];
  fail("there is no machine '{}' with {} ranks: {}", printable(machine), ranks,
       instead_of(machine, {{families.begin(), families.end()},
                            "machines are",
                            "`arlab list topologies` has all, with their ranks"}));
}

std::vector<std::string> machines_like(const std::string& topology) {
  std::vector<std::string> names;
  for (const std::string& name : listed_topologies()) {
    // Several servers (h200-2x8) have the constants of their base.
    const bool is_one_server = name.find('x', name.rfind('-')) == std::string::npos;
    if (is_one_server && family_of(name) == family_of(topology)) names.push_back(name);
  }
  return names;
}

BenchFiles read_bench_files(std::span<const fs::path> files) {
  BenchFiles result;
  for (const fs::path& path : files) BenchReader(path, result).read();
  Measurements& measurements = result.measurements;
  if (measurements.cells.empty()) {
    fail("{}: there is no row of a GPU by arlab or nccl, which alone are simulated",
         files.empty() ? "no files" : files[0].string());
  }
  number_rows(measurements);
  std::set<std::string> families;
  for (const Measurement& cell : measurements.cells) families.insert(family_of(cell.topology));
  for (const std::string& family : families)
    measurements.fits.push_back(fit_of(family, measurements));
  return result;
}

}  // namespace arlab
