// What comes of a sweep over inputs x ranks x algorithms x codecs? Rows go to results.csv as they
// are computed, so that a sweep that was interrupted can be resumed; then a summary and plots.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/distributed.h"
#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/reduction.h"
#include "experiments/lab/results_file.h"
#include "experiments/lab/simulate.h"
#include "experiments/lab/study_file.h"
#include "experiments/lab/tensor_source.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/csv.h"
#include "reference/definitions.h"
#include "reference/json.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "sim/simulator.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kColumns = words_in(
    "input tensor dtype ranks algorithm codec elements wire_bits_per_element sqnr_db "
    "token_sqnr_db token_sqnr_p1_db channel_sqnr_db channel_sqnr_p1_db max_abs_error rmse "
    "cosine exact sqnr_vs_uncompressed_db ranks_identical encoded clamped flushed "
    "non_finite simulated_latency_us");

// The first columns are the key.
constexpr std::size_t kKeyColumns = 6;

// ---------------------------------------------------------------- points

/// All points that share one tensor.
struct Sample {
  const StudyInput* input;
  Rank ranks;
  std::string file;           // empty for a synthetic input
  std::string tensor;         // name in a .safetensors file
  DType dtype = DType::fp16;  // as the tensor has it
  std::uint64_t bytes = 0;    // of all ranks; 0 until check_samples()
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
    sample.bytes = elements * size_of(dtype) * sample.ranks;
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
  AlgorithmOptions options = {{"group_size", group_size}};
  if (study.inner_codec) options.set("inner_codec", *study.inner_codec);
  return options;
}

/// Whether the data decide how long the wires of a point are, and all of them by one codec, so that their measured length
/// can be simulated. With an inner codec beside it their longest wires are.
bool takes_measured_wires(const Study& study, const Codec& codec) {
  return codec.info().has_variable_wire && !study.inner_codec;
}

/// Simulated latencies by (ranks, algorithm, codec, dtype); they do not depend on the sample, but for wires whose length was
/// measured on it.
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
    return known_[key] = simulated_us(ranks, algorithm, codec, dtype);
  }

  /// Of wires that have so many bits per element; at most as many as long ones can have, of which short ones have more.
  Json latency_us(Rank ranks, const std::string& algorithm, const CodecPtr& codec, DType dtype,
                  double wire_bits) const {
    if (!study_.simulate) return nullptr;
    constexpr std::size_t kMany = std::size_t{1} << 20;
    const double most = 8.0 * static_cast<double>(codec->wire_bytes(dtype, kMany)) / kMany;
    const CodecPtr as_sent = with_measured_wires(codec, std::min(wire_bits, most));
    return simulated_us(ranks, algorithm, as_sent, dtype);
  }

 private:
  double simulated_us(Rank ranks, const std::string& algorithm, const CodecPtr& codec,
                      DType dtype) const {
    const AlgorithmOptions options = algorithm_options(study_, group_size(ranks));
    const CodecPtr inner = find_inner_codec(options, codec);
    const Codecs codecs(*codec, *inner);
    const ScheduleRequest request{.world_size = ranks,
                                  .elements = simulated_elements(*study_.simulate, dtype),
                                  .alignment = codecs.alignment(),
                                  .options = options};
    return arlab::simulate({find_algorithm(algorithm), request, codecs, dtype, *topology_})
        .latency_us;
  }

  const Study& study_;
  std::optional<Topology> topology_;
  std::map<std::tuple<Rank, std::string, std::string, DType>, double> known_;
};

/// The key columns of a row; they identify its point.
ResultsFile::Cells row_key(const Sample& sample, const Point& point) {
  return {sample.input->name,           sample.tensor,   std::string(name_of(sample.dtype)),
          std::to_string(sample.ranks), point.algorithm, point.codec};
}

/// What a row says by name, but for the latency.
std::map<std::string, Json> figures_of_point(const Sample& sample, const Point& point,
                                             const Tensor& inputs, const ExactResult& exact,
                                             const AlgorithmOptions& options) {
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
  for (const Figure& field : reduction_fields(reduction, exact)) figures[field.name] = field.value;
  figures["elements"] = inputs.elements_per_rank();
  return figures;
}

/// The rest of the row, as CSV.
std::string csv_of(const std::map<std::string, Json>& figures) {
  std::vector<Cell> values;
  for (std::size_t c = kKeyColumns; c < kColumns.size(); ++c) {
    values.push_back(figures.at(kColumns[c]));
  }
  std::string text = csv_line(values);
  text.pop_back();  // the line feed
  return text;
}

/// Of points that share a sample. The latencies are found one by one: who finds them need not be safe from other threads. They
/// come first, as they may be refused, but for those that depend on the data.
std::vector<Outcome> outcomes_of(const Study& study, const Sample& sample,
                                 std::span<const Point> points, LatencyTable& latencies,
                                 unsigned threads) {
  const Tensor inputs = load_sample(study, sample);
  std::map<Collective, ExactResult> exact;
  for (const Point& point : points) {
    const Collective collective = find_algorithm(point.algorithm).collective;
    if (!exact.contains(collective)) exact[collective] = exact_result(collective, inputs);
  }
  const AlgorithmOptions options = algorithm_options(study, latencies.group_size(sample.ranks));
  std::vector<Json> latency(points.size());
  std::vector<std::map<std::string, Json>> figures(points.size());
  std::vector<Outcome> outcomes(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    outcomes[i] = outcome_of([&] {
      latency[i] = latencies.latency_us(sample.ranks, points[i].algorithm,
                                        find_codec(points[i].codec), inputs.dtype);
      return std::string();
    });
  }
  parallel_for(points.size(), threads, [&](unsigned, std::size_t i) {
    if (!outcomes[i].error.empty()) return;
    const Collective collective = find_algorithm(points[i].algorithm).collective;
    outcomes[i] = outcome_of([&] {
      figures[i] = figures_of_point(sample, points[i], inputs, exact.at(collective), options);
      return std::string();
    });
  });
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!outcomes[i].error.empty()) continue;
    outcomes[i] = outcome_of([&] {
      const CodecPtr codec = find_codec(points[i].codec);
      Json& us = figures[i]["simulated_latency_us"];
      us = takes_measured_wires(study, *codec)
               ? latencies.latency_us(sample.ranks, points[i].algorithm, codec, inputs.dtype,
                                      figures[i].at("wire_bits_per_element").get<double>())
               : latency[i];
      return csv_of(figures[i]);
    });
  }
  return outcomes;
}

// ---------------------------------------------------------------- results.csv

using HashOfFile = std::function<std::string(const std::string&)>;

/// What of a study is defined at run time.
Json own_definitions_of(const Study& study) {
  std::vector<std::string> names = study.algorithms;
  names.insert(names.end(), study.codecs.begin(), study.codecs.end());
  if (study.inner_codec) names.push_back(*study.inner_codec);
  return own_definitions(names);
}

/// Everything that decides the rows of samples: two runs with equal definitions have equal rows.
Json definition(const Study& study, const Json& own, std::span<const Sample> samples,
                const HashOfFile& hash_of) {
  Json json = {{"program", program_definition()},
               {"dtype", std::string(name_of(study.dtype))},
               {"ranks", study.ranks},
               {"algorithms", study.algorithms},
               {"codecs", study.codecs}};
  for (const std::string& algorithm : study.algorithms) {
    if (is_schedule_file(algorithm)) json["schedules"][algorithm] = hash_of(algorithm);
  }
  json.update(own);
  if (study.inner_codec) json["inner_codec"] = *study.inner_codec;
  for (const Sample& sample : samples) {
    Json entry = {{"name", sample.input->name}, {"ranks", sample.ranks}};
    if (sample.file.empty()) {
      entry["synthetic"] = sample.input->synthetic;
      entry["elements"] = sample.input->elements;
    } else {
      entry["tensor"] = sample.tensor;
      entry["hash"] = hash_of(sample.file);
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
      // With what it takes from other files.
      json["simulate"]["hash"] = fmt::format("{:016x}", quick_hash(to_toml(topology)));
    }
  }
  return json;
}

/// Of latencies of codecs whose wires the data make.
std::string said_of_wires(const Study& study) {
  const bool varies = std::ranges::any_of(study.codecs, [](const std::string& name) {
    return find_codec(name)->info().has_variable_wire;
  });
  if (!varies) return "";
  return study.inner_codec ? ", at most: wires of variable length count as the longest"
                           : ", wires of variable length as long as each tensor made them";
}

std::string provenance(const Study& study) {
  std::string text = "all columns exact (computed from bits by arlab " ARLAB_VERSION ")";
  if (study.inner_codec) text += fmt::format("; inside groups codec {}", *study.inner_codec);
  if (study.simulate) {
    text += fmt::format(
        "; simulated_latency_us is simulated (model {}, topology {}, {} bytes per rank{})",
        kSimulatorModel, study.simulate->topology, study.simulate->bytes, said_of_wires(study));
    const std::vector<std::string> guessed = guessed_codecs(study.codecs);
    if (!guessed.empty()) text += fmt::format(", a guess with {}", fmt::join(guessed, ", "));
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
  return value.is_number() ? decibels(std::round(value.get<double>() * steps) / steps) : value;
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
    std::vector<double> bits;  // tensors differ in it where the data decide
    std::uint64_t non_finite = 0;
    double flushed = 0;
    double encoded = 0;
    std::optional<bool> identical;  // none where ranks are to end with different data
    bool lost = false;              // some tensor has no error figure
    std::vector<double> latency_us;
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
    group.bits.push_back(number_of(row[column("wire_bits_per_element")]));
    group.flushed += number_of(row[column("flushed")]);
    group.encoded += number_of(row[column("encoded")]);
    if (const std::string& cell = row[column("ranks_identical")]; !cell.empty()) {
      group.identical = group.identical.value_or(true) && cell == "true";
    }
    if (const std::string& cell = row[column("simulated_latency_us")]; !cell.empty()) {
      group.latency_us.push_back(number_of(cell));
    }
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
    table.rows.push_back({key[0], whole_number(key[1]), key[2], key[3], median(g.bits),
                          g.lost ? Json(nullptr) : rounded(median(g.token_sqnr_db), 100),
                          g.lost ? Json(nullptr) : rounded(median(sqnr), 100), rounded(worst, 100),
                          largest, rounded(g.encoded > 0 ? 100 * g.flushed / g.encoded : 0.0, 100),
                          g.non_finite, Cell(g.identical), rounded(median(g.latency_us), 10)});
  }
  return table;
}

// ---------------------------------------------------------------- the run

struct StudyRequest {
  std::string file;
  std::string out;
  bool resume = false;
  std::string highlight;
  bool no_plots = false;
};

std::vector<BoundField> fields(StudyRequest& r) {
  return {field("file", &r.file, "The study (.toml)").by_place("FILE"),
          field("out", &r.out, "Folder for the results", "results/<study>"),
          field("resume", &r.resume, "Keep the rows that an interrupted run has left")
              .changes_no_result(),
          field("highlight", &r.highlight,
                "Codecs or algorithms that stand out in plots, separated by commas", "none")
              .excludes("no_plots"),
          field("no_plots", &r.no_plots, "Tables only, no PNG").changes_no_result()};
}

fs::path folder_of(const StudyRequest& options) {
  if (!options.out.empty()) return options.out;
  // main/study.toml is the study "main"; heavy_tails.toml is "heavy_tails".
  const fs::path path = located_path(options.file);
  return fs::path("results") /
         (path.stem() == "study" ? path.parent_path().filename() : path.stem());
}

class StudyRun final : public Run {
 public:
  explicit StudyRun(StudyRequest options)
      : options_(std::move(options)),
        study_(read_study(options_.file)),
        folder_(folder_of(options_)),
        own_(own_definitions_of(study_)),
        sweep_(checked_sweep(study_, options_.highlight)),
        lock_(folder_),
        results_(folder_ / "results.csv",
                 {study_.title, command_line(), provenance(study_),
                  json_line(definition(study_, own_, sweep_.samples,
                                       [this](const std::string& file) { return hash_of(file); }))},
                 kColumns, keys()) {
    if (options_.resume) require_told(own_, "--resume");
  }

  void open() override {
    if (options_.resume) {
      results_.resume();
    } else {
      results_.start_anew();
    }
    if (rows() > 0) write_progress(fmt::format("resuming after {} points\n", rows()));
    start_progress();
    progress().show(rows());
  }

  std::size_t points() const override { return results_.points(); }
  std::size_t rows() const override { return results_.rows(); }

  std::vector<Part> missing() const override {
    // Loading the tensor is for several points; how many are lost when a worker is, is bounded.
    constexpr std::size_t kMostPoints = 16;
    constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
    std::vector<Part> parts;
    std::size_t last = SIZE_MAX;
    for (std::size_t i = 0; i < sweep_.points.size(); ++i) {
      if (results_.has(i)) continue;
      const std::size_t sample = sweep_.points[i].sample;
      if (sample != last) {
        const std::uint64_t bytes = std::max<std::uint64_t>(sweep_.samples[sample].bytes, 1);
        parts.push_back({{}, std::clamp<std::size_t>(kMostBytes / bytes, 1, kMostPoints)});
      }
      last = sample;
      parts.back().points.push_back(i);
    }
    return parts;
  }

  std::string task(std::span<const std::size_t> points) const override {
    if (located_sweep_.samples.empty()) {
      located_study_ = read_study(located_path(options_.file));
      located_sweep_ = make_sweep(located_study_);
    }
    const Sample& sample = located_sweep_.samples[located_sweep_.points[points[0]].sample];
    Json json = {
        {"kind", "study"},
        {"study", located_study_.path.string()},
        {"definition", definition(located_study_, own_, {&sample, 1},
                                  [this](const std::string& file) { return hash_of(file); })},
        {"input", sample.input->name},
        {"ranks", sample.ranks},
        {"tensor", sample.tensor}};
    for (const std::size_t i : points) {
      const Point& point = located_sweep_.points[i];
      json["points"].push_back({point.algorithm, point.codec});
    }
    return json_line(json);
  }

  void append(std::span<const std::size_t> points, std::span<const Outcome> outcomes) override {
    std::vector<std::size_t> done;
    std::vector<std::string> rows;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!outcomes[i].error.empty()) {
        lose(points[i], outcomes[i].error);
        continue;
      }
      const ResultsFile::Cells key = key_of(points[i]);
      std::string row = csv_line(std::vector<Cell>(key.begin(), key.end()));
      row.back() = ',';  // was the line feed
      done.push_back(points[i]);
      rows.push_back(row + outcomes[i].values);
    }
    if (!done.empty()) results_.append(done, rows);
    progress().show(results_.rows());
  }

  std::string name(std::size_t point) const override {
    const Sample& sample = sweep_.samples[sweep_.points[point].sample];
    std::string text = fmt::format("input '{}'", sample.input->name);
    if (!sample.tensor.empty()) text += fmt::format(" tensor '{}'", sample.tensor);
    return text + fmt::format(" ranks {} algorithm {} codec {}", sample.ranks,
                              sweep_.points[point].algorithm, sweep_.points[point].codec);
  }

  void compute() override {
    const IgnoredPipes ignored;
    open();
    LatencyTable latencies(study_);
    for (const Part& part : missing()) {
      std::vector<Point> points;
      for (const std::size_t i : part.points) points.push_back(sweep_.points[i]);
      const auto outcomes =
          outcomes_of(study_, sweep_.samples[points[0].sample], points, latencies, 0);
      // Without the rest of the tensor's points, as the run is given up.
      for (const Outcome& outcome : outcomes) {
        if (!outcome.error.empty()) throw InvalidInput(outcome.error);
      }
      append(part.points, outcomes);
    }
  }

  Result finish() override {
    const auto rows = results_.finish();
    Result report{"arlab.study/1",
                  {{"title", study_.title},
                   {"points", rows.size()},
                   {"results", (folder_ / "results.csv").string(), "every point"},
                   {"summary", (folder_ / "summary.csv").string(), "the table below"},
                   {"error_figures", "exact", "computed from bits"},
                   {"latency_figures", study_.simulate ? Json("simulated") : Json(nullptr),
                    study_.simulate ? fmt::format("model {}, topology {}, {} bytes per rank{}",
                                                  kSimulatorModel, study_.simulate->topology,
                                                  study_.simulate->bytes, said_of_wires(study_))
                                    : "not simulated"}},
                  "summary_rows",
                  summarise(rows),
                  {"input", "ranks", "algorithm", "codec", "wire_bits", "median_token_sqnr_db",
                   "worst_sqnr_db", "simulated_latency_us"}};
    if (study_.simulate) mark_guesses(report);
    write_file(folder_ / "summary.csv", render_csv(report.rows));
    const std::string folder = folder_.string();
    if (!options_.no_plots) {
      report.picture = {"study",
                        folder,
                        {},
                        fmt::format("the results are in {} (--no-plots leaves out plots)", folder),
                        {folder}};
      if (!options_.highlight.empty()) {
        auto& arguments = report.picture->arguments;
        arguments.insert(arguments.end(), {"--highlight", options_.highlight});
      }
    }
    return report;
  }

  void finish_others() override { results_.finish(); }

 private:
  static Sweep checked_sweep(const Study& study, const std::string& highlight) {
    for (const std::string& name :
         highlight.empty() ? std::vector<std::string>() : names_in(highlight, "--highlight")) {
      if (std::ranges::count(study.codecs, name) + std::ranges::count(study.algorithms, name) ==
          0) {
        fail("--highlight names {}: allowed are codecs and algorithms of the study", quote(name));
      }
    }
    Sweep sweep = make_sweep(study);
    check_samples(study, sweep);
    return sweep;
  }

  ResultsFile::Cells key_of(std::size_t point) const {
    return row_key(sweep_.samples[sweep_.points[point].sample], sweep_.points[point]);
  }
  std::vector<ResultsFile::Cells> keys() const {
    std::vector<ResultsFile::Cells> keys;
    for (std::size_t i = 0; i < sweep_.points.size(); ++i) keys.push_back(key_of(i));
    return keys;
  }

  std::string remedy() const override {
    return fmt::format("{} has the others, and --resume tries these again",
                       (folder_ / "results.csv").string());
  }

  /// As it was when the run began.
  std::string hash_of(const std::string& file) const {
    std::string& hash = hashes_[located_path(file)];
    if (hash.empty()) hash = known_hash_of_file(file);
    return hash;
  }

  StudyRequest options_;
  Study study_;
  fs::path folder_;
  Json own_;  // own_definitions_of() the study when the run began
  Sweep sweep_;
  mutable Study located_study_;  // the same, with located_path() names of files, for tasks
  mutable Sweep located_sweep_;
  FolderLock lock_;
  mutable std::map<std::string, std::string> hashes_;  // by located_path() name
  ResultsFile results_;
};

}  // namespace

std::vector<Outcome> study_values_of(const Json& task) {
  const Study study = read_study(task.at("study").get<std::string>());
  const auto name = task.at("input").get<std::string>();
  const auto input = std::find_if(study.inputs.begin(), study.inputs.end(),
                                  [&](const StudyInput& one) { return one.name == name; });
  std::vector<Point> points;
  for (const Json& point : task.at("points")) {
    points.push_back({0, point.at(0).get<std::string>(), point.at(1).get<std::string>()});
  }
  Sample sample = {};
  const Outcome defined = outcome_of([&] {
    if (input == study.inputs.end()) return std::string();
    sample.input = &*input;
    sample.ranks = task.at("ranks").get<Rank>();
    sample.tensor = task.at("tensor").get<std::string>();
    sample.dtype = study.dtype;
    if (!input->file.empty()) sample.file = file_for(study, *input, sample.ranks);
    return json_line(
        definition(study, own_definitions_of(study), {&sample, 1}, known_hash_of_file));
  });
  // A file that is gone is the matter of these points. Other points need not have it.
  if (!defined.error.empty()) return std::vector<Outcome>(points.size(), defined);
  require_same_definition(task.at("definition"), parse_json<Json>(defined.values));
  LatencyTable latencies(study);
  std::vector<Outcome> outcomes;
  const Outcome loaded = outcome_of([&] {
    outcomes = outcomes_of(study, sample, points, latencies, 1);
    return std::string();
  });
  return loaded.error.empty() ? outcomes : std::vector<Outcome>(points.size(), loaded);
}

Question study_question() {
  return shared_question<StudyRun, StudyRequest>(
      "study", "Run a sweep from a TOML file: CSV, summary and plots", study_keys());
}

}  // namespace arlab::lab
