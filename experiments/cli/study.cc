// arlab study: a sweep over inputs x ranks x algorithms x codecs. Rows go to results.csv as they
// are computed, so that a sweep that was interrupted can be resumed; then a summary and plots.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/reduction.h"
#include "experiments/cli/study_file.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "sim/simulator.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::vector<std::string> kColumns = {"input",
                                           "tensor",
                                           "dtype",
                                           "ranks",
                                           "algorithm",
                                           "codec",
                                           "elements",
                                           "wire_bits_per_element",
                                           "sqnr_db",
                                           "max_abs_error",
                                           "rmse",
                                           "cosine",
                                           "exact",
                                           "sqnr_vs_uncompressed_db",
                                           "ranks_identical",
                                           "encoded",
                                           "clamped",
                                           "flushed",
                                           "non_finite",
                                           "simulated_latency_us"};

// ---------------------------------------------------------------- points

/// All points that share one tensor.
struct Sample {
  const StudyInput* input;
  Rank ranks;
  std::string file;    // empty for a synthetic input
  std::string tensor;  // name in a .safetensors file
};

struct Point {
  std::size_t sample;
  std::string algorithm;
  std::string codec;
};

struct Sweep {
  std::vector<Sample> samples;
  std::vector<Point> points;  // those of one sample stand together
};

std::string file_for(const Study& study, const StudyInput& input, Rank ranks) {
  std::string file = input.file;
  if (const auto at = file.find("{ranks}"); at != std::string::npos) {
    file.replace(at, std::string("{ranks}").size(), std::to_string(ranks));
  }
  return (study.path.parent_path() / file).lexically_normal().string();
}

Sweep make_sweep(const Study& study) {
  Sweep sweep;
  for (const StudyInput& input : study.inputs) {
    for (const Rank ranks : study.ranks) {
      if (input.file.empty()) {
        sweep.samples.push_back({&input, ranks, "", ""});
        continue;
      }
      const std::string file = file_for(study, input, ranks);
      std::vector<std::string> tensors = input.tensors;
      if (tensors.empty() && file.ends_with(".safetensors")) {
        for (const SafetensorsEntry& entry : list_safetensors(file)) tensors.push_back(entry.name);
      }
      if (tensors.empty()) tensors.emplace_back();
      for (const std::string& tensor : tensors)
        sweep.samples.push_back({&input, ranks, file, tensor});
    }
  }
  for (std::size_t i = 0; i < sweep.samples.size(); ++i) {
    for (const std::string& algorithm : study.algorithms) {
      for (const std::string& codec : study.codecs) sweep.points.push_back({i, algorithm, codec});
    }
  }
  return sweep;
}

Tensor load_sample(const Study& study, const Sample& sample) {
  TensorSource source;
  source.ranks = sample.ranks;
  if (sample.file.empty()) {
    source.synthetic = sample.input->synthetic;
    source.elements = std::to_string(sample.input->elements);
  } else {
    source.file = sample.file;
    source.tensor = sample.tensor;
    if (sample.file.ends_with(".npy")) source.dtype = name_of(study.dtype);
  }
  return source.load(study.dtype);
}

/// Elements per rank that stand for the bytes of the simulation.
std::uint64_t simulated_elements(const StudySimulation& simulate, DType dtype) {
  return std::max<std::uint64_t>(1, simulate.bytes / size_of(dtype));
}

/// Throws InvalidInput when an algorithm of the study cannot cut `elements` into equal slots.
void require_slots(const Study& study, Rank ranks, std::uint64_t elements,
                   const std::string& where) {
  for (const std::string& name : study.algorithms) {
    if (!has_slots(find_algorithm(name).collective) || elements % ranks == 0) continue;
    fail("{}: {}: {} elements per rank do not make {} equal slots, which {} needs",
         study.path.string(), where, elements, ranks, name);
  }
}

/// Throws InvalidInput for everything that would stop the sweep on its way: a tensor that cannot be
/// had, a codec that does not take its dtype, elements that do not make equal slots.
void check_samples(const Study& study, const Sweep& sweep) {
  for (const Sample& sample : sweep.samples) {
    DType dtype = study.dtype;
    std::uint64_t elements = sample.input->elements;
    if (sample.file.empty()) {
      make_synthetic(sample.input->synthetic, dtype, 1, 1);
    } else {
      const Tensor tensor = load_sample(study, sample);
      if (tensor.elements_per_rank() == 0) fail("{}: there are no elements to reduce", sample.file);
      dtype = tensor.dtype;
      elements = tensor.elements_per_rank();
    }
    require_slots(study, sample.ranks, elements, fmt::format("input '{}'", sample.input->name));
    if (study.simulate) {
      require_slots(study, sample.ranks, simulated_elements(*study.simulate, dtype), "simulate");
    }
    for (const std::string& name : study.codecs) {
      const CodecPtr codec = find_codec(name);
      if (codec->takes(dtype)) continue;
      fail("{}: input '{}' is {}, which codec {} does not take", study.path.string(),
           sample.input->name, name_of(dtype), name);
    }
  }
}

/// Simulated latencies by (ranks, algorithm, codec, dtype); they do not depend on the sample.
class LatencyTable {
 public:
  explicit LatencyTable(const Study& study) : study_(study) {
    if (study.simulate) topology_ = find_topology(study.simulate->topology);
  }

  Json latency_us(Rank ranks, const std::string& algorithm, const Codec& codec, DType dtype) {
    if (!study_.simulate) return nullptr;
    const auto key = std::tuple(ranks, algorithm, codec.name(), dtype);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const ScheduleRequest request{.world_size = ranks,
                                  .elements = simulated_elements(*study_.simulate, dtype),
                                  .alignment = codec.info().alignment};
    const SimulationResult result =
        simulate(find_algorithm(algorithm), request, codec, dtype, *topology_);
    return known_[key] = result.latency_us;
  }

 private:
  const Study& study_;
  std::optional<Topology> topology_;
  std::map<std::tuple<Rank, std::string, std::string, DType>, double> known_;
};

/// The key columns of a row; they identify its point.
std::vector<Json> row_key(const Sample& sample, const Point& point, DType dtype) {
  return {sample.input->name, sample.tensor,   std::string(name_of(dtype)),
          sample.ranks,       point.algorithm, point.codec};
}

std::vector<Json> run_point(const Sample& sample, const Point& point, const Tensor& inputs,
                            const ExactResult& exact, Json latency_us) {
  const CodecPtr codec = find_codec(point.codec);
  const Schedule schedule = make_schedule(point.algorithm, {.world_size = sample.ranks,
                                                            .elements = inputs.elements_per_rank(),
                                                            .alignment = codec->info().alignment});
  const Reduction reduction =
      run_reduction(schedule, *codec, inputs, exact, {.threads = 1, .count = true});
  std::map<std::string, Json> figures;
  for (const Field& field : reduction_fields(reduction, exact)) figures[field.name] = field.value;
  figures["elements"] = inputs.elements_per_rank();
  figures["simulated_latency_us"] = std::move(latency_us);
  std::vector<Json> row = row_key(sample, point, inputs.dtype);
  for (std::size_t c = row.size(); c < kColumns.size(); ++c) row.push_back(figures.at(kColumns[c]));
  return row;
}

// ---------------------------------------------------------------- results.csv

std::uint64_t hash_of_file(const std::string& path) {
  InputFile file{fs::path(path)};
  std::vector<std::byte> bytes(file.remaining());
  file.read(std::span<std::byte>(bytes));
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const std::byte b : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001B3u;
  return hash;
}

/// Everything that decides the rows: two runs with equal definitions have equal rows.
std::string definition(const Study& study, const Sweep& sweep) {
  Json json = {{"program", "arlab " ARLAB_VERSION},
               {"dtype", std::string(name_of(study.dtype))},
               {"ranks", study.ranks},
               {"algorithms", study.algorithms},
               {"codecs", study.codecs}};
  for (const Sample& sample : sweep.samples) {
    Json entry = {{"name", sample.input->name}, {"ranks", sample.ranks}};
    if (sample.file.empty()) {
      entry["synthetic"] = sample.input->synthetic;
      entry["elements"] = sample.input->elements;
    } else {
      entry["tensor"] = sample.tensor;
      entry["fnv1a"] = fmt::format("{:016x}", hash_of_file(sample.file));
    }
    json["samples"].push_back(std::move(entry));
  }
  if (study.simulate) {
    json["simulate"] = {{"model", std::string(kSimulatorModel)},
                        {"topology", study.simulate->topology},
                        {"bytes", study.simulate->bytes}};
    if (study.simulate->topology.ends_with(".toml")) {
      json["simulate"]["fnv1a"] = fmt::format("{:016x}", hash_of_file(study.simulate->topology));
    }
  }
  return json_line(json);
}

constexpr std::string_view kFirstWords = "# arlab.study/1: ";
constexpr const char* kDefinitionMark = "# definition: ";

std::string file_header(const Study& study, const std::string& command,
                        const std::string& definition_line) {
  std::string header = fmt::format("{}{}\n# command: {}\n", kFirstWords, study.title, command);
  header += "# provenance: all columns exact (computed from bits by arlab " ARLAB_VERSION ")";
  if (study.simulate) {
    header += fmt::format(
        "; simulated_latency_us is simulated (model {}, topology {}, {} bytes per rank)",
        kSimulatorModel, study.simulate->topology, study.simulate->bytes);
  }
  header += fmt::format("\n{}{}\n", kDefinitionMark, definition_line);
  return header + csv_line({kColumns.begin(), kColumns.end()});
}

/// True for an empty cell or a number.
bool is_figure(const std::string& cell) {
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  return cell.empty() ||
         (end == cell.c_str() + cell.size() && !std::isspace(static_cast<unsigned char>(cell[0])));
}

bool is_text_column(const std::string& column) {
  static const std::vector<std::string> kText = {"input", "tensor", "dtype",          "algorithm",
                                                 "codec", "exact",  "ranks_identical"};
  return std::find(kText.begin(), kText.end(), column) != kText.end();
}

/// A line of a results file, cut at its commas (cells are quoted only where a name holds a comma).
std::vector<std::string> cut_csv_line(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        cells.back() += '"';
        ++i;
      } else {
        quoted = !quoted;
      }
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

/// Rows of an interrupted run, and where the last complete one ends in the file.
struct Resumed {
  std::vector<std::vector<std::string>> rows;
  std::uintmax_t bytes = 0;
};

Resumed read_partial_results(const fs::path& path, const std::string& definition_line) {
  Resumed resumed;
  std::ifstream file(path, std::ios::binary);
  if (!file) return resumed;
  const std::string header_line = csv_line({kColumns.begin(), kColumns.end()});
  bool same_study = false;
  bool in_rows = false;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // a last line without newline was cut off
    if (in_rows) {
      auto cells = cut_csv_line(line);
      if (cells.size() != kColumns.size()) break;
      for (std::size_t c = 0; c < cells.size(); ++c) {
        if (is_text_column(kColumns[c]) || is_figure(cells[c])) continue;
        fail("{}: row {} has {} in column {}, which is not a number; leave out --resume",
             path.string(), resumed.rows.size() + 1, quote(cells[c]), kColumns[c]);
      }
      resumed.rows.push_back(std::move(cells));
    } else if (line + "\n" == header_line) {
      in_rows = true;
    } else if (line == kDefinitionMark + definition_line) {
      same_study = true;
    }
    resumed.bytes += line.size() + 1;
  }
  if (!in_rows) {  // interrupted before the first row: nothing is lost by starting again
    file.clear();
    file.seekg(0);
    std::string start(kFirstWords.size(), '\0');
    file.read(start.data(), static_cast<std::streamsize>(start.size()));
    start.resize(static_cast<std::size_t>(file.gcount()));
    if (kFirstWords.starts_with(start)) return {};
  }
  if (!in_rows || !same_study) {
    fail(
        "{} is of another study, other data or another version; leave out --resume or name another "
        "--out",
        path.string());
  }
  return resumed;
}

// ---------------------------------------------------------------- progress

class Progress {
 public:
  explicit Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

  void show(std::size_t done) {
    const std::size_t percent = total_ == 0 ? 100 : 100 * done / total_;
    if (!terminal_) {  // a line per tenth, for logs
      if (percent / 10 == last_ / 10 && done != total_) return;
      if (percent == last_) return;
      fmt::print(stderr, "{:3}% of {} points\n", percent, total_);
    } else {
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
      if (first_ == kUnset) first_ = done;
      const double left = done > first_ ? seconds / static_cast<double>(done - first_) *
                                              static_cast<double>(total_ - done)
                                        : 0;
      fmt::print(stderr, "\r[{:<40}] {}/{} points, {:.0f} s left ",
                 std::string(40 * percent / 100, '#'), done, total_, left);
      if (done == total_) fmt::print(stderr, "\n");
    }
    last_ = percent;
  }

 private:
  static constexpr std::size_t kUnset = SIZE_MAX;
  std::size_t total_;
  bool terminal_;
  std::size_t last_ = 0;
  std::size_t first_ = kUnset;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// ---------------------------------------------------------------- summary

double number(const std::string& cell) { return cell.empty() ? std::nan("") : std::stod(cell); }

Json median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// To so many steps per unit: 100 leaves two decimals.
Json rounded(const Json& value, double steps) {
  return value.is_number() ? Json(std::round(value.get<double>() * steps) / steps) : value;
}

/// One line per (input, ranks, algorithm, codec): the median over tensors, and the worst.
Table summarise(const std::vector<std::vector<std::string>>& rows) {
  const auto column = [](const char* name) {
    return static_cast<std::size_t>(std::find(kColumns.begin(), kColumns.end(), name) -
                                    kColumns.begin());
  };
  struct Group {
    std::vector<double> sqnr_db;
    double max_abs_error = 0;
    double bits = 0;
    std::uint64_t non_finite = 0;
    double flushed = 0;
    double encoded = 0;
    std::optional<bool> identical;  // none where ranks are to end with different data
    bool lost = false;              // some tensor has no error figure
    std::string latency;
  };
  std::vector<std::vector<std::string>> order;
  std::map<std::vector<std::string>, Group> groups;
  for (const auto& row : rows) {
    std::vector<std::string> key = {row[column("input")], row[column("ranks")],
                                    row[column("algorithm")], row[column("codec")]};
    if (!groups.contains(key)) order.push_back(key);
    Group& group = groups[key];
    group.sqnr_db.push_back(number(row[column("sqnr_db")]));
    // A tensor whose finite sums became infinite has no error figure; then the group has none.
    const double error = number(row[column("max_abs_error")]);
    if (error > group.max_abs_error) group.max_abs_error = error;
    group.lost = group.lost || std::isnan(error);
    group.non_finite += std::stoull(row[column("non_finite")]);
    group.bits = number(row[column("wire_bits_per_element")]);
    group.flushed += number(row[column("flushed")]);
    group.encoded += number(row[column("encoded")]);
    if (const std::string& cell = row[column("ranks_identical")]; !cell.empty()) {
      group.identical = group.identical.value_or(true) && cell == "true";
    }
    group.latency = row[column("simulated_latency_us")];
  }
  Table table{
      {"input", "ranks", "algorithm", "codec", "wire_bits", "median_sqnr_db", "worst_sqnr_db",
       "max_abs_error", "flushed_percent", "non_finite", "ranks_identical", "simulated_latency_us"},
      {}};
  for (const auto& key : order) {
    const Group& g = groups[key];
    std::vector<double> sqnr = g.sqnr_db;
    std::erase_if(sqnr, [](double v) { return std::isnan(v); });
    const Json worst =
        sqnr.empty() || g.lost ? Json(nullptr) : Json(*std::min_element(sqnr.begin(), sqnr.end()));
    const Json largest = g.lost ? Json(nullptr) : Json(g.max_abs_error);
    table.rows.push_back({key[0], std::stoi(key[1]), key[2], key[3], g.bits,
                          g.lost ? Json(nullptr) : rounded(median(sqnr), 100), rounded(worst, 100),
                          largest, rounded(g.encoded > 0 ? 100 * g.flushed / g.encoded : 0.0, 100),
                          g.non_finite, g.identical ? Json(*g.identical) : Json(nullptr),
                          g.latency.empty() ? Json(nullptr) : rounded(std::stod(g.latency), 10)});
  }
  return table;
}

// ---------------------------------------------------------------- the command

struct StudyCommand {
  std::string file;
  std::string out;
  bool resume = false;
  bool no_plots = false;
  Format format = Format::table;

  void run() const {
    const Study study = read_study(file);
    const fs::path folder = out.empty() ? fs::path("results") / study_name() : fs::path(out);
    const Sweep sweep = make_sweep(study);
    const auto rows = run_sweep(study, sweep, folder);

    Report report{
        "arlab.study/1",
        {{"title", study.title},
         {"points", rows.size()},
         {"results", (folder / "results.csv").string(), "every point"},
         {"summary", (folder / "summary.csv").string(), "the table below"},
         {"error_figures", "exact", "computed from bits"},
         {"latency_figures", study.simulate ? Json("simulated") : Json(nullptr),
          study.simulate ? fmt::format("model {}, topology {}, {} bytes per rank", kSimulatorModel,
                                       study.simulate->topology, study.simulate->bytes)
                         : "not simulated"}},
        "summary_rows",
        summarise(rows)};
    const std::string summary = render_csv(report.rows);
    write_file(folder / "summary.csv", {std::as_bytes(std::span(summary))});
    print(report, format);
    if (!no_plots) {
      draw("plot_study.py", {folder.string()},
           fmt::format("the results are in {} (--no-plots leaves out plots)", folder.string()));
    }
  }

  std::string study_name() const {
    // main/study.toml is the study "main"; heavy_tails.toml is "heavy_tails".
    const fs::path path = fs::absolute(file);
    return path.stem() == "study" ? path.parent_path().filename().string() : path.stem().string();
  }

  std::string command_line() const {
    std::string text = "arlab study " + file;
    if (!out.empty()) text += " --out " + out;
    return text;
  }

  std::vector<std::vector<std::string>> run_sweep(const Study& study, const Sweep& sweep,
                                                  const fs::path& folder) const {
    const std::string definition_line = definition(study, sweep);
    const std::string header = file_header(study, command_line(), definition_line);
    const fs::path results = folder / "results.csv";
    check_samples(study, sweep);
    std::error_code error;
    fs::create_directories(folder, error);
    if (!fs::is_directory(folder))
      fail("cannot make the folder {}: {}", folder.string(), error.message());

    Resumed done;
    if (resume) done = read_partial_results(results, definition_line);
    std::ofstream file_out;
    if (done.bytes > 0) {
      fs::resize_file(results, done.bytes);
      file_out.open(results, std::ios::binary | std::ios::app);
      if (!done.rows.empty()) fmt::print(stderr, "resuming after {} points\n", done.rows.size());
    } else {
      file_out.open(results, std::ios::binary | std::ios::trunc);
      file_out << header << std::flush;
    }
    if (done.rows.size() > sweep.points.size())
      fail("{} has more rows than the study has points", results.string());

    LatencyTable latencies(study);
    Progress progress(sweep.points.size());
    progress.show(done.rows.size());
    std::vector<std::vector<std::string>> rows = std::move(done.rows);
    while (rows.size() < sweep.points.size()) {
      const std::size_t first = rows.size();
      const Sample& sample = sweep.samples[sweep.points[first].sample];
      std::size_t last = first;
      while (last < sweep.points.size() && sweep.points[last].sample == sweep.points[first].sample)
        ++last;
      for (const std::string& line :
           run_sample(study, sample, {&sweep.points[first], last - first}, latencies)) {
        file_out << line;
        rows.push_back(cut_csv_line(line.substr(0, line.size() - 1)));
      }
      file_out.flush();
      if (!file_out) fail("cannot write {}", results.string());
      progress.show(rows.size());
    }
    return rows;
  }

  static std::vector<std::string> run_sample(const Study& study, const Sample& sample,
                                             std::span<const Point> points,
                                             LatencyTable& latencies) {
    const Tensor inputs = load_sample(study, sample);
    if (inputs.elements_per_rank() == 0) fail("{}: there are no elements to reduce", sample.file);
    std::map<Collective, ExactResult> exact;
    std::vector<Json> latency;
    for (const Point& point : points) {
      const Collective collective = find_algorithm(point.algorithm).collective;
      if (!exact.contains(collective)) exact[collective] = exact_result(collective, inputs);
      latency.push_back(latencies.latency_us(sample.ranks, point.algorithm,
                                             *find_codec(point.codec), inputs.dtype));
    }
    std::vector<std::string> lines(points.size());
    parallel_for(points.size(), 0, [&](unsigned, std::size_t i) {
      const Collective collective = find_algorithm(points[i].algorithm).collective;
      lines[i] = csv_line(run_point(sample, points[i], inputs, exact.at(collective), latency[i]));
    });
    return lines;
  }
};

}  // namespace

void add_study(CLI::App& app) {
  auto command = std::make_shared<StudyCommand>();
  CLI::App* sub =
      app.add_subcommand("study", "Run a sweep from a TOML file: CSV, summary and plots");
  sub->add_option("FILE", command->file, "The study (.toml)")->required();
  sub->add_option("--out", command->out, "Folder for the results [results/<study>]");
  sub->add_flag("--resume", command->resume, "Keep the rows that an interrupted run has left");
  sub->add_flag("--no-plots", command->no_plots, "Tables only, no PNG");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
