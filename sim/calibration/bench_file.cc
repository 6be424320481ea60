#include "sim/calibration/bench_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/csv.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kColumns = {"platform", "machine", "ranks",   "algorithm", "codec",
                                           "dtype",    "bytes",   "time_us", "library"};

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
    for (const std::string& name : kColumns) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end() || names.size() != kColumns.size()) {
        fail("{}: the columns must be {}", path_.string(), join(kColumns));
      }
      places_[name] = static_cast<std::size_t>(found - names.begin());
    }
  }

  std::string text(const std::string& column) const {
    std::string cell = (*row_)[places_.at(column)];
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

  /// What find() throws, with the line.
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
    const std::string library = text("library");
    const bool vendors = library == "nccl" || library == "rccl";
    if (library != "arlab" && !vendors && library != "torch_symm_mem") {
      fail_here("library '{}' is unknown; allowed are arlab, nccl, rccl, torch_symm_mem",
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
    if (library == "torch_symm_mem" || platform == "host") {
      ++result_.left_out;  // kernels that the simulator knows nothing of; a CPU's time
      return;
    }
    cell.topology = named([&] { return machine_named(text("machine"), ranks); });
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

  /// Of this file.
  std::size_t table_of(const std::string& topology) {
    std::vector<MeasurementTable>& tables = result_.measurements.tables;
    const auto [place, is_new] = tables_.try_emplace(topology, tables.size());
    if (is_new) {
      tables.push_back({fmt::format("{}: {}", path_.stem().string(), topology),
                        path_.filename().string(), Source::measured, TableQuantity::latency_us});
    }
    return place->second;
  }

  const fs::path& path_;
  BenchFiles& result_;
  std::map<std::string, std::size_t> places_;  ///< by column
  std::map<std::string, std::size_t> tables_;  ///< by topology
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

/// The constants that latencies of all-reduces by kernels and by NCCL can tell; a fit leaves out
/// those that its cells do not depend on. One value whatever the number of ranks: it is one
/// machine. What no measurement of an all-reduce tells apart stays as it is: the latency of a link
/// and of a load; what one flag more costs, on a machine with blocks; and what is said to be 0.
std::vector<std::string> constants_of(const Device& device) {
  std::vector<std::string> keys = {"link.bandwidth_gb_per_s", "device.codec_gops_per_s",
                                   "device.codec_overlap"};
  const auto add = [&keys](std::initializer_list<const char*> more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  if (device.blocks) add({"device.decode_cost", "blocks.unpacked_cost"});
  if (device.small && device.sentinels) {
    // These run all small tensors; of those with flags in rounds large ones alone are left, of which
    // the latency of a step cannot be told.
    add({"blocks.spikes_cost", "blocks.fp8_cost", "blocks.bf16_cost"});
  } else {
    add({"overhead.launch_us", "device.codec_tile_us_per_op", "device.latency_overlap"});
    if (device.blocks) add({"overhead.step_us", "blocks.release_us"});
  }
  if (!device.blocks && device.message_us.value > 0) add({"overhead.message_us"});
  if (device.small) {
    add({"small.launch_us", "small.step_us", "small.message_us", "small.crowding_us",
         "small.tile_us_per_op", "small.wire_cost"});
  }
  if (device.sentinels) {
    add({"sentinels.launch_us", "sentinels.step_us", "sentinels.access_us",
         "sentinels.tile_us_per_op", "sentinels.fill_us", "sentinels.fill_turns"});
  }
  if (device.library) {
    add({"library.low_latency_us", "library.low_latency_efficiency",
         "library.low_latency_max_bytes", "library.simple_us"});
    if (device.library->simple_message_us.value > 0) add({"library.simple_message_us"});
    if (device.library->fill_gb_per_s.value > 0) {
      add({"library.fill_gb_per_s", "library.fill_bytes"});
    }
  }
  return keys;
}

FitDefinition fit_of(const std::string& family, const Measurements& measurements) {
  FitDefinition fit;
  fit.name = family;
  std::map<Rank, std::vector<std::string>> tables;  // by ranks
  std::set<std::size_t> known;
  bool many_sizes = false;
  for (const Measurement& cell : measurements.cells) {
    if (family_of(cell.topology) != family) continue;
    many_sizes = many_sizes || cell.row_number > 0;
    if (!known.insert(cell.table).second) continue;
    const std::string& name = measurements.tables[cell.table].name;
    fit.tables.push_back(name);
    const Topology machine = find_topology(cell.topology);
    tables[machine.ranks.value].push_back(name);
    fit.shared = constants_of(machine.device);
    if (machine.device.blocks) fit.chosen = 3;  // blocks.load_us, two message_us
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
    fit.hold_outs.push_back({.name = "every second size, fitted on the others",
                             .tables = {},
                             .ignored = {},
                             .columns = {},
                             .odd_rows = true});
  }
  return fit;
}

}  // namespace

std::string machine_named(const std::string& machine, Rank ranks) {
  const std::vector<std::string> listed = listed_topologies();
  std::string wanted = lower(machine);
  if (std::find(listed.begin(), listed.end(), wanted) != listed.end()) wanted = family_of(wanted);
  std::set<std::string> families;
  std::vector<std::string> found;
  for (const std::string& name : listed) {
    const std::string family = family_of(name);
    const Topology topology = find_topology(name);
    families.insert(family);
    if (topology.ranks.value != ranks) continue;
    if (family == wanted || begins_with_words(lower(topology.device.name), wanted)) {
      found.push_back(name);
    }
  }
  if (found.size() == 1) return found[0];
  fail(
      "there is no machine '{}' with {} ranks; machines are {}, with the ranks that arlab list "
      "topologies says",
      printable(machine), ranks, join({families.begin(), families.end()}));
}

std::vector<std::string> machines_like(const std::string& topology) {
  std::vector<std::string> names;
  for (const std::string& name : listed_topologies()) {
    if (family_of(name) == family_of(topology)) names.push_back(name);
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
