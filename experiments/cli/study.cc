// arlab study: a sweep over inputs x ranks x algorithms x codecs. Rows go to results.csv as they
// are computed, so that a sweep that was interrupted can be resumed; then a summary and plots.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>

#include "experiments/cli/commands.h"
#include "experiments/cli/hashes.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/reduction.h"
#include "experiments/cli/results_file.h"
#include "experiments/cli/study_file.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/csv.h"
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
                                           "token_sqnr_db",
                                           "token_sqnr_p1_db",
                                           "channel_sqnr_db",
                                           "channel_sqnr_p1_db",
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
  std::string file;           // empty for a synthetic input
  std::string tensor;         // name in a .safetensors file
  DType dtype = DType::fp16;  // as the tensor has it
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
        sweep.samples.push_back({&input, ranks, "", "", study.dtype});
        continue;
      }
      const std::string file = file_for(study, input, ranks);
      std::vector<std::string> tensors = input.tensors;
      if (tensors.empty() && file.ends_with(".safetensors")) {
        for (const SafetensorsEntry& entry : list_safetensors(file)) tensors.push_back(entry.name);
      }
      if (tensors.empty()) tensors.emplace_back();
      for (const std::string& tensor : tensors) {
        if (one_line(tensor) != tensor) {
          fail("{}: tensor {} has no name of one line; name the others with tensors = [...]", file,
               quote(tensor));
        }
        sweep.samples.push_back({&input, ranks, file, tensor, study.dtype});
      }
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

/// Throws InvalidInput when an algorithm of the study cannot cut `elements` into equal slots, or is a
/// schedule of another size.
void require_slots(const Study& study, Rank ranks, std::uint64_t elements,
                   const std::string& where) {
  for (const std::string& name : study.algorithms) {
    if (is_schedule_file(name)) {
      try {
        (void)make_schedule(name, {.world_size = ranks, .elements = elements});
      } catch (const InvalidInput& error) {
        fail("{}: {}: {}", study.path.string(), where, error.what());
      }
    }
    if (!has_slots(find_algorithm(name).collective) || elements % ranks == 0) continue;
    fail("{}: {}: {} elements per rank do not make {} equal slots, which {} needs",
         study.path.string(), where, elements, ranks, name);
  }
}

/// Throws InvalidInput for everything that would stop the sweep on its way: a tensor that cannot be
/// had, a codec that does not take its dtype, elements that do not make equal slots. Notes the
/// samples' dtypes.
void check_samples(const Study& study, Sweep& sweep) {
  for (Sample& sample : sweep.samples) {
    DType& dtype = sample.dtype;
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
    std::vector<std::string> codecs = study.codecs;
    if (study.inner_codec) codecs.push_back(*study.inner_codec);
    for (const std::string& name : codecs) {
      const CodecPtr codec = find_codec(name);
      if (codec->takes(dtype)) continue;
      fail("{}: input '{}' is {}, which codec {} does not take", study.path.string(),
           sample.input->name, name_of(dtype), name);
    }
  }
}

AlgorithmOptions algorithm_options(const Study& study, Rank group_size) {
  return {.group_size = group_size, .inner_codec = study.inner_codec};
}

/// Simulated latencies by (ranks, algorithm, codec, dtype); they do not depend on the sample.
class LatencyTable {
 public:
  explicit LatencyTable(const Study& study) : study_(study) {
    if (study.simulate) topology_ = find_topology(study.simulate->topology);
  }

  /// Of hierarchical algorithms: what is simulated is what is measured.
  Rank group_size(Rank ranks) const {
    return topology_ ? default_group_size(*topology_, ranks) : default_group_size(ranks);
  }

  Json latency_us(Rank ranks, const std::string& algorithm, const CodecPtr& codec, DType dtype) {
    if (!study_.simulate) return nullptr;
    const auto key = std::tuple(ranks, algorithm, codec->name(), dtype);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const AlgorithmOptions options = algorithm_options(study_, group_size(ranks));
    const CodecPtr inner = find_inner_codec(options, codec);
    const Codecs codecs(*codec, *inner);
    const ScheduleRequest request{.world_size = ranks,
                                  .elements = simulated_elements(*study_.simulate, dtype),
                                  .alignment = codecs.alignment(),
                                  .options = options};
    const SimulationResult result =
        simulate(find_algorithm(algorithm), request, codecs, dtype, *topology_);
    return known_[key] = result.latency_us;
  }

 private:
  const Study& study_;
  std::optional<Topology> topology_;
  std::map<std::tuple<Rank, std::string, std::string, DType>, double> known_;
};

/// The key columns of a row; they identify its point.
ResultsFile::Cells row_key(const Sample& sample, const Point& point) {
  return {sample.input->name,           sample.tensor,   std::string(name_of(sample.dtype)),
          std::to_string(sample.ranks), point.algorithm, point.codec};
}

std::vector<Json> run_point(const Sample& sample, const Point& point, const Tensor& inputs,
                            const ExactResult& exact, const AlgorithmOptions& options,
                            Json latency_us) {
  const CodecPtr codec = find_codec(point.codec);
  const CodecPtr inner = find_inner_codec(options, codec);
  const Codecs codecs(*codec, *inner);
  const Schedule schedule = make_schedule(point.algorithm, {.world_size = sample.ranks,
                                                            .elements = inputs.elements_per_rank(),
                                                            .alignment = codecs.alignment(),
                                                            .options = options});
  const Reduction reduction = run_reduction(schedule, codecs, inputs, channels_of(inputs.shape),
                                            exact, {.threads = 1, .count = true});
  std::map<std::string, Json> figures;
  for (const Field& field : reduction_fields(reduction, exact)) figures[field.name] = field.value;
  figures["elements"] = inputs.elements_per_rank();
  figures["simulated_latency_us"] = std::move(latency_us);
  const ResultsFile::Cells key = row_key(sample, point);
  std::vector<Json> row(key.begin(), key.end());
  for (std::size_t c = row.size(); c < kColumns.size(); ++c) row.push_back(figures.at(kColumns[c]));
  return row;
}

// ---------------------------------------------------------------- results.csv

/// Everything that decides the rows: two runs with equal definitions have equal rows.
std::string definition(const Study& study, const Sweep& sweep) {
  std::map<std::string, std::string> hashes;  // of files; tensors of one are samples
  Json json = {
      {"program", fmt::format("arlab {} {}", ARLAB_VERSION, quick_hash_of_file(program_file()))},
      {"dtype", std::string(name_of(study.dtype))},
      {"ranks", study.ranks},
      {"algorithms", study.algorithms},
      {"codecs", study.codecs}};
  for (const std::string& algorithm : study.algorithms) {
    if (!is_schedule_file(algorithm)) continue;
    json["schedules"][algorithm] = quick_hash_of_file(algorithm);
  }
  if (study.inner_codec) json["inner_codec"] = *study.inner_codec;
  for (const Sample& sample : sweep.samples) {
    Json entry = {{"name", sample.input->name}, {"ranks", sample.ranks}};
    if (sample.file.empty()) {
      entry["synthetic"] = sample.input->synthetic;
      entry["elements"] = sample.input->elements;
    } else {
      entry["tensor"] = sample.tensor;
      std::string& hash = hashes[sample.file];
      if (hash.empty()) hash = quick_hash_of_file(sample.file);
      entry["hash"] = hash;
    }
    json["samples"].push_back(std::move(entry));
  }
  if (study.simulate) {
    json["simulate"] = {{"model", std::string(kSimulatorModel)},
                        {"topology", study.simulate->topology},
                        {"bytes", study.simulate->bytes}};
    const Topology topology = find_topology(study.simulate->topology);
    for (const Rank ranks : study.ranks) {
      const Rank group_size = default_group_size(topology, ranks);
      if (group_size == default_group_size(ranks)) continue;
      json["simulate"]["group_sizes"][std::to_string(ranks)] = group_size;
    }
    if (study.simulate->topology.ends_with(".toml")) {
      json["simulate"]["hash"] = quick_hash_of_file(study.simulate->topology);
    }
  }
  return json_line(json);
}

std::string provenance(const Study& study) {
  std::string text = "all columns exact (computed from bits by arlab " ARLAB_VERSION ")";
  if (study.inner_codec) text += fmt::format("; inside groups codec {}", *study.inner_codec);
  if (study.simulate) {
    text += fmt::format(
        "; simulated_latency_us is simulated (model {}, topology {}, {} bytes per rank)",
        kSimulatorModel, study.simulate->topology, study.simulate->bytes);
  }
  return text;
}

// ---------------------------------------------------------------- progress

/// While it exists, nobody who stops listening ends the program.
class IgnoredPipes {
 public:
  IgnoredPipes() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredPipes() { std::signal(SIGPIPE, before_); }
  IgnoredPipes(const IgnoredPipes&) = delete;
  IgnoredPipes& operator=(const IgnoredPipes&) = delete;

 private:
  void (*before_)(int);
};

class Progress {
 public:
  explicit Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

  void show(std::size_t done) {
    const std::size_t percent = total_ == 0 ? 100 : 100 * done / total_;
    if (!terminal_) {  // a line per tenth, for logs
      if (percent / 10 == last_ / 10 && done != total_) return;
      if (percent == last_) return;
      write_progress(fmt::format("{:3}% of {} points\n", percent, total_));
    } else {
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
      if (first_ == kUnset) first_ = done;
      const double left = done > first_ ? seconds / static_cast<double>(done - first_) *
                                              static_cast<double>(total_ - done)
                                        : 0;
      write_progress(fmt::format("\r[{:<40}] {}/{} points, {:.0f} s left {}",
                                 std::string(40 * percent / 100, '#'), done, total_, left,
                                 done == total_ ? "\n" : ""));
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

std::uint64_t whole_number(const std::string& cell) {
  return static_cast<std::uint64_t>(number_of(cell));
}

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
    std::vector<double> token_sqnr_db;
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
    group.sqnr_db.push_back(number_of(row[column("sqnr_db")]));
    group.token_sqnr_db.push_back(number_of(row[column("token_sqnr_db")]));
    // A tensor whose finite sums became infinite has no error figure; then the group has none.
    const double error = number_of(row[column("max_abs_error")]);
    if (error > group.max_abs_error) group.max_abs_error = error;
    group.lost = group.lost || std::isnan(error);
    group.non_finite += whole_number(row[column("non_finite")]);
    group.bits = number_of(row[column("wire_bits_per_element")]);
    group.flushed += number_of(row[column("flushed")]);
    group.encoded += number_of(row[column("encoded")]);
    if (const std::string& cell = row[column("ranks_identical")]; !cell.empty()) {
      group.identical = group.identical.value_or(true) && cell == "true";
    }
    group.latency = row[column("simulated_latency_us")];
  }
  Table table{{"input", "ranks", "algorithm", "codec", "wire_bits", "median_token_sqnr_db",
               "median_sqnr_db", "worst_sqnr_db", "max_abs_error", "flushed_percent", "non_finite",
               "ranks_identical", "simulated_latency_us"},
              {}};
  for (const auto& key : order) {
    const Group& g = groups[key];
    std::vector<double> sqnr = g.sqnr_db;
    std::erase_if(sqnr, [](double v) { return std::isnan(v); });
    const Json worst =
        sqnr.empty() || g.lost ? Json(nullptr) : Json(*std::min_element(sqnr.begin(), sqnr.end()));
    const Json largest = g.lost ? Json(nullptr) : Json(g.max_abs_error);
    table.rows.push_back({key[0], whole_number(key[1]), key[2], key[3], g.bits,
                          g.lost ? Json(nullptr) : rounded(median(g.token_sqnr_db), 100),
                          g.lost ? Json(nullptr) : rounded(median(sqnr), 100), rounded(worst, 100),
                          largest, rounded(g.encoded > 0 ? 100 * g.flushed / g.encoded : 0.0, 100),
                          g.non_finite, g.identical ? Json(*g.identical) : Json(nullptr),
                          g.latency.empty() ? Json(nullptr) : rounded(number_of(g.latency), 10)});
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
    Sweep sweep = make_sweep(study);
    check_samples(study, sweep);
    const FolderLock lock(folder);
    const auto rows = run_sweep(study, sweep, folder / "results.csv");

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
      draw("study", {folder.string()},
           fmt::format("the results are in {} (--no-plots leaves out plots)", folder.string()));
    }
  }

  std::string study_name() const {
    // main/study.toml is the study "main"; heavy_tails.toml is "heavy_tails".
    std::error_code error;
    const fs::path path = fs::absolute(file, error);
    return path.stem() == "study" ? path.parent_path().filename().string() : path.stem().string();
  }

  /// Without --resume and --no-plots, which leave the results as they are.
  std::string called_as() const {
    std::string text = "arlab study " + shell_quote(file);
    if (!out.empty()) text += " --out " + shell_quote(out);
    return text;
  }

  std::vector<ResultsFile::Cells> run_sweep(const Study& study, const Sweep& sweep,
                                            const fs::path& path) const {
    std::vector<ResultsFile::Cells> keys;
    for (const Point& point : sweep.points) {
      keys.push_back(row_key(sweep.samples[point.sample], point));
    }
    ResultsFile results(path,
                        {study.title, called_as(), provenance(study), definition(study, sweep)},
                        kColumns, std::move(keys));
    if (resume) {
      results.resume();
    } else {
      results.start_anew();
    }

    const IgnoredPipes ignored;
    if (results.rows() > 0) {
      write_progress(fmt::format("resuming after {} points\n", results.rows()));
    }
    LatencyTable latencies(study);
    Progress progress(results.points());
    progress.show(results.rows());
    for (std::size_t first = 0; first < sweep.points.size();) {
      const std::size_t sample = sweep.points[first].sample;
      std::vector<std::size_t> missing;
      std::size_t next = first;
      for (; next < sweep.points.size() && sweep.points[next].sample == sample; ++next) {
        if (!results.has(next)) missing.push_back(next);
      }
      first = next;
      if (missing.empty()) continue;
      results.append(missing, run_sample(study, sweep, missing, latencies));
      progress.show(results.rows());
    }
    return results.finish();
  }

  /// Rows of points that share a sample.
  static std::vector<std::vector<Json>> run_sample(const Study& study, const Sweep& sweep,
                                                   std::span<const std::size_t> points,
                                                   LatencyTable& latencies) {
    const Sample& sample = sweep.samples[sweep.points[points[0]].sample];
    const Tensor inputs = load_sample(study, sample);
    std::map<Collective, ExactResult> exact;
    std::vector<Json> latency;
    for (const std::size_t i : points) {
      const Point& point = sweep.points[i];
      const Collective collective = find_algorithm(point.algorithm).collective;
      if (!exact.contains(collective)) exact[collective] = exact_result(collective, inputs);
      latency.push_back(latencies.latency_us(sample.ranks, point.algorithm, find_codec(point.codec),
                                             inputs.dtype));
    }
    const AlgorithmOptions options = algorithm_options(study, latencies.group_size(sample.ranks));
    std::vector<std::vector<Json>> rows(points.size());
    parallel_for(points.size(), 0, [&](unsigned, std::size_t i) {
      const Point& point = sweep.points[points[i]];
      const Collective collective = find_algorithm(point.algorithm).collective;
      rows[i] = run_point(sample, point, inputs, exact.at(collective), options, latency[i]);
    });
    return rows;
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
