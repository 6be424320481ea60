// What comes of inputs x ranks x algorithms x codecs? A grid whose rows go to results.csv as they are computed, so that one that
// was interrupted can be resumed; then a summary and plots.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "experiments/lab/grids/grid.h"
#include "experiments/lab/grids/study_file.h"
#include "experiments/lab/points.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/request.h"
#include "experiments/lab/sizes.h"
#include "experiments/lab/time/simulate.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/csv.h"
#include "reference/definitions.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "sim/simulator.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> columns() {
  std::string names =
      "input tensor dtype ranks algorithm codec elements wire_bits_per_element sqnr_db "
      "token_sqnr_db token_sqnr_p1_db channel_sqnr_db channel_sqnr_p1_db";
  for (const ErrorFigure& each : kErrorFigures) names += fmt::format(" {}", each.name);
  return words_in(names +
                  " exact sqnr_vs_uncompressed_db ranks_identical encoded clamped flushed "
                  "non_finite simulated_latency_us");
}
const std::vector<std::string> kColumns = columns();
constexpr std::size_t kKeyColumns = 6;

// ---------------------------------------------------------------- a row

/// Computes rows; it keeps the last tensor, and the latencies, which depend on tensors only where wires' lengths do.
class StudyAnswer {
 public:
  std::vector<Outcome> operator()(std::span<const Cell> asked, unsigned threads) {
    std::vector<Outcome> outcomes(asked.size());
    for (std::size_t begin = 0, end = 0; begin < asked.size(); begin = end) {
      const auto is_other = [&](const Cell& each) {
        return each.json().at("source") != asked[begin].json().at("source");
      };
      end = static_cast<std::size_t>(
          std::find_if(asked.begin() + std::ptrdiff_t(begin), asked.end(), is_other) -
          asked.begin());
      const auto of_tensor = asked.subspan(begin, end - begin);
      const Outcome loaded = outcome_of([&] {
        load(of_tensor);
        return Json();
      });
      parallel_for(of_tensor.size(), threads, [&](unsigned, std::size_t i) {
        outcomes[begin + i] = !loaded.error.empty()
                                  ? loaded
                                  : outcome_of([&] { return row_of(of_tensor[i].json()); });
      });
    }
    return outcomes;
  }

 private:
  void load(std::span<const Cell> asked) {
    const Json& named = asked[0].json().at("source");
    if (named != source_.json()) {
      source_ = nullptr;
      exact_.clear();
      TensorSource source;
      set_fields(fields(source), named);
      inputs_ = source.load(DType::fp16);
      source_ = named;
    }
    for (const Cell& each : asked) {
      const Collective collective = collective_of(each.json());
      if (!exact_.contains(collective)) exact_[collective] = exact_result(collective, inputs_);
    }
  }

  static Collective collective_of(const Json& asked) {
    return find_algorithm(asked.at("collective").at("algorithm").get<std::string>()).collective;
  }

  /// The latency comes first, as it may be refused, but for one that depends on the data: where they decide how long the wires
  /// are, all of one codec. With an inner codec beside it the longest wires are simulated.
  Json row_of(const Json& asked) {
    CollectiveSpec spec;
    set_fields(fields(spec), asked.at("collective"));
    const CodecPtr codec = find_codec(asked.at("codec").get<std::string>());
    std::map<std::string, Json> figures = {{"elements", inputs_.elements_per_rank()}};
    Json& latency = figures["simulated_latency_us"];
    const bool measures = codec->info().has_variable_wire && spec.inner_codec().empty();
    if (asked.contains("simulate") && !measures) latency = latency_us(asked["simulate"]);
    const CodecPtr inner = spec.inner(codec);
    const Codecs codecs(*codec, *inner);
    const Schedule schedule =
        make_schedule(spec.algorithm, {.world_size = static_cast<Rank>(inputs_.ranks()),
                                       .elements = inputs_.elements_per_rank(),
                                       .alignment = codecs.alignment(),
                                       .options = spec.options});
    const ExactResult& exact = exact_.at(collective_of(asked));
    const Reduction reduction = run_reduction(schedule, codecs, inputs_, channels_of(inputs_.shape),
                                              exact, {.threads = 1, .count = true});
    for (const Figure& each : reduction_fields(reduction, exact)) figures[each.name] = each.value;
    if (asked.contains("simulate") && measures) {
      Json as_sent = asked["simulate"];
      // Short wires can have more bits than long ones, which are the most that is simulated.
      constexpr std::size_t kMany = std::size_t{1} << 20;
      const double most =
          8.0 * static_cast<double>(codec->wire_bytes(inputs_.dtype, kMany)) / kMany;
      as_sent["wire_bits"] = std::min(figures["wire_bits_per_element"].get<double>(), most);
      latency = latency_us(as_sent);
    }
    Json row = Json::array();
    for (std::size_t c = kKeyColumns; c < kColumns.size(); ++c) {
      row.push_back(figures.at(kColumns[c]));
    }
    return row;
  }

  double latency_us(const Json& asked) {
    const std::string key = json_line(asked);
    {
      const std::scoped_lock lock(mutex_);
      if (const auto known = latencies_.find(key); known != latencies_.end()) return known->second;
    }
    SimulateRequest request;
    set_fields(fields(request), asked);
    const double us = Simulation(request).times().latency_us;
    const std::scoped_lock lock(mutex_);
    return latencies_[key] = us;
  }

  Cell source_;
  Tensor inputs_;
  std::map<Collective, ExactResult> exact_;
  std::mutex mutex_;
  std::map<std::string, double> latencies_;
};

// ---------------------------------------------------------------- points

/// All points that share one tensor.
struct Sample {
  std::string input;
  TensorSource source;
  DType dtype = DType::fp16;  // as the tensor has it
};

std::string file_for(const Study& study, const StudyInput& input, Rank ranks) {
  std::string file = input.file;
  if (const auto at = file.find("{ranks}"); at != std::string::npos) {
    file.replace(at, std::string("{ranks}").size(), std::to_string(ranks));
  }
  return (study.path.parent_path() / file).lexically_normal().string();
}

std::vector<std::string> tensors_of(const StudyInput& input, const std::string& file) {
  std::vector<std::string> tensors = input.tensors;
  if (tensors.empty() && file.ends_with(".safetensors")) {
    for (const SafetensorsEntry& entry : list_safetensors(file)) tensors.push_back(entry.name);
  }
  if (tensors.empty()) tensors.emplace_back();
  for (const std::string& tensor : tensors) {
    if (one_line(tensor) == tensor) continue;
    fail("{}: tensor {} has no name of one line; name the others with tensors = [...]", file,
         quote(tensor));
  }
  return tensors;
}

std::vector<Sample> samples_of(const Study& study) {
  std::vector<Sample> samples;
  for (const StudyInput& input : study.inputs) {
    for (const Rank ranks : study.world_sizes()) {
      TensorSource source;
      source.ranks = ranks;
      source.synthetic = input.synthetic;
      if (input.file.empty()) {
        source.elements = input.elements;
      } else {
        source.file = file_for(study, input, ranks);
      }
      if (!source.file.ends_with(".safetensors")) source.dtype = study.dtype;
      for (const std::string& tensor : tensors_of(input, source.file)) {
        source.tensor = tensor;
        samples.push_back({input.name, source});
      }
    }
  }
  return samples;
}

/// Bytes per rank of the simulation: whole elements.
std::uint64_t simulated_bytes(const Study& study, DType dtype) {
  const std::uint64_t bytes = parse_count(study.simulate->bytes, "bytes");
  if (bytes % size_of(dtype) != 0) {
    fail("{}: key 'simulate.bytes': {} bytes are not whole elements of {}", study.path.string(),
         bytes, name_of(dtype));
  }
  return bytes;
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

/// Throws InvalidInput for everything that would stop the study on its way: a tensor that cannot be
/// had, a codec that does not take its dtype, elements that do not make equal slots. Notes the
/// sample's dtype.
void check_sample(const Study& study, Sample& sample) {
  std::uint64_t elements = 0;
  const Rank ranks = *sample.source.ranks;
  if (sample.source.file.empty()) {
    sample.dtype = parse_dtype(study.dtype);
    elements = parse_count(sample.source.elements, "elements");
    make_synthetic(sample.source.synthetic, sample.dtype, 1, 1);
  } else {
    const Tensor tensor = sample.source.load(DType::fp16);
    elements = tensor.elements_per_rank();
    if (elements == 0) fail("{}: there are no elements to reduce", sample.source.file);
    sample.dtype = tensor.dtype;
  }
  require_slots(study, ranks, elements, fmt::format("input '{}'", sample.input));
  if (study.simulate) {
    const std::uint64_t bytes = simulated_bytes(study, sample.dtype);
    require_slots(study, ranks, bytes / size_of(sample.dtype), "simulate");
  }
  std::vector<std::string> codecs = study.codecs;
  if (!study.inner_codec.empty()) codecs.push_back(study.inner_codec);
  for (const std::string& name : codecs) {
    if (find_codec(name)->takes(sample.dtype)) continue;
    fail("{}: input '{}' is {}, which codec {} does not take", study.path.string(), sample.input,
         name_of(sample.dtype), name);
  }
}

/// Returns the request to simulate the measured collective: in groups as large, too.
Json asked_of(const Study& study, const std::optional<Topology>& topology, const Sample& sample,
              const std::string& algorithm, const std::string& codec) {
  const Rank ranks = *sample.source.ranks;
  SimulateRequest simulate;
  CollectiveSpec& collective = simulate.collective;
  collective.algorithm = located_name(algorithm);
  if (find_algorithm(algorithm).option("group_size") != nullptr) {
    const Rank size = topology ? default_group_size(*topology, ranks) : default_group_size(ranks);
    collective.options.set("group_size", std::uint64_t{size});
  }
  if (!study.inner_codec.empty()) collective.options.set("inner_codec", study.inner_codec);
  TensorSource source = sample.source;
  if (!source.file.empty()) source.file = located_path(source.file);
  Json asked = {{"collective", canonical_json(fields(collective))},
                {"codec", codec},
                {"source", canonical_json(fields(source))}};
  if (!topology) return asked;
  simulate.topology = located_name(study.simulate->topology);
  simulate.codec = codec;
  simulate.sizes.bytes = {fmt::format("{}", simulated_bytes(study, sample.dtype))};
  simulate.dtype = name_of(sample.dtype);
  simulate.ranks = ranks;
  asked["simulate"] = canonical_json(fields(simulate));
  return asked;
}

/// Returns a remark on latencies of codecs with wires of a length that the data decide.
std::string said_of_wires(const Study& study) {
  const bool varies = std::ranges::any_of(study.codecs, [](const std::string& name) {
    return find_codec(name)->info().has_variable_wire;
  });
  if (!varies) return "";
  return !study.inner_codec.empty() ? ", at most: wires of variable length count as the longest"
                                    : ", wires of variable length as long as each tensor made them";
}

std::string provenance(const Study& study) {
  std::string text = "all columns exact (computed from bits by arlab " ARLAB_VERSION ")";
  if (!study.inner_codec.empty())
    text += fmt::format("; inside groups codec {}", study.inner_codec);
  if (study.simulate) {
    text += fmt::format(
        "; simulated_latency_us is simulated (model {}, topology {}, {} bytes per rank{})",
        kSimulatorModel, study.simulate->topology, study.simulate->bytes, said_of_wires(study));
    const std::vector<std::string> guessed = guessed_codecs(study.codecs);
    if (!guessed.empty()) text += fmt::format(", a guess with {}", fmt::join(guessed, ", "));
  }
  return text;
}

// ---------------------------------------------------------------- summary

using Rows = std::vector<std::vector<std::string>>;

std::size_t column(std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(kColumns, name) - kColumns.begin());
}

/// Returns the numbers in a column.
std::vector<double> numbers(const Rows& rows, std::string_view name) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(number_of(row[column(name)]));
  std::erase_if(values, [](double v) { return std::isnan(v); });
  return values;
}

double sum(const Rows& rows, std::string_view name) {
  const std::vector<double> values = numbers(rows, name);
  return std::accumulate(values.begin(), values.end(), 0.0);
}

Json median(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// To so many steps per unit: 100 leaves two decimals.
Json rounded(const Json& value, double steps) {
  return value.is_number() ? decibels(std::round(value.get<double>() * steps) / steps) : value;
}

/// Returns figures over all tensors of a point: the median, and the worst.
std::vector<Cell> summary_of(const Rows& rows) {
  const auto cell = [&](std::string_view name) { return rows[0][column(name)]; };
  const std::vector<double> sqnr = numbers(rows, "sqnr_db");
  const std::vector<double> errors = numbers(rows, "max_abs_error");
  // A tensor whose finite sums became infinite has no error figure; then all have none.
  const bool lost = errors.size() < rows.size();
  const auto known = [&](Json value) { return lost ? Json(nullptr) : std::move(value); };
  const Json worst = sqnr.empty() ? Json(nullptr) : Json(*std::ranges::min_element(sqnr));
  Cell identical;  // none where ranks are to end with different data
  for (const auto& row : rows) {
    const std::string& text = row[column("ranks_identical")];
    if (!text.empty()) identical = Cell(bool{text == "true" && identical.json() != false});
  }
  const double encoded = sum(rows, "encoded");
  const double flushed = encoded > 0 ? 100 * sum(rows, "flushed") / encoded : 0.0;
  return {cell("input"),
          static_cast<std::uint64_t>(number_of(cell("ranks"))),
          cell("algorithm"),
          cell("codec"),
          median(numbers(rows, "wire_bits_per_element")),
          known(rounded(median(numbers(rows, "token_sqnr_db")), 100)),
          known(rounded(median(sqnr), 100)),
          known(rounded(worst, 100)),
          known(lost ? 0.0 : *std::ranges::max_element(errors)),
          rounded(flushed, 100),
          static_cast<std::uint64_t>(sum(rows, "non_finite")),
          identical,
          rounded(median(numbers(rows, "simulated_latency_us")), 10)};
}

/// A line for each input, ranks, algorithm and codec.
Table summarise(const Rows& rows) {
  Table table{words_in("input ranks algorithm codec wire_bits median_token_sqnr_db median_sqnr_db "
                       "worst_sqnr_db max_abs_error flushed_percent non_finite ranks_identical "
                       "simulated_latency_us"),
              {}};
  std::map<std::vector<std::string>, std::size_t> places;
  std::vector<Rows> groups;
  for (const auto& row : rows) {
    const auto [place, is_new] =
        places.try_emplace({row[column("input")], row[column("ranks")], row[column("algorithm")],
                            row[column("codec")]},
                           groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(row);
  }
  for (const Rows& group : groups) table.rows.push_back(summary_of(group));
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
  return {field("file", &r.file, "Run this study (.toml)").by_place("FILE"),
          field("out", &r.out, "Write results into this folder", "results/<study>"),
          field("resume", &r.resume, "Keep the rows that an interrupted run has left")
              .changes_no_result(),
          field("highlight", &r.highlight,
                "Highlight these codecs or algorithms in plots, separated by commas", "none")
              .excludes("no_plots"),
          field("no_plots", &r.no_plots, "Write tables only, no PNG").changes_no_result()};
}

fs::path folder_of(const StudyRequest& options) {
  if (!options.out.empty()) return options.out;
  // main/study.toml is the study "main"; heavy_tails.toml is "heavy_tails".
  const fs::path path = located_path(options.file);
  return fs::path("results") /
         (path.stem() == "study" ? path.parent_path().filename() : path.stem());
}

class StudyGrid final : public Grid {
 public:
  explicit StudyGrid(const StudyRequest& request)
      : Grid("study", kColumns),
        options_(request),
        study_(read_study(request.file)),
        folder_(folder_of(request)) {
    std::vector<std::string> names = study_.algorithms;
    names.insert(names.end(), study_.codecs.begin(), study_.codecs.end());
    if (!request.highlight.empty()) {
      for (const std::string& name : names_in(request.highlight, "--highlight")) {
        if (std::ranges::count(names, name) > 0) continue;
        fail("--highlight names {}: allowed are codecs and algorithms of the study", quote(name));
      }
    }
    names.push_back(study_.inner_codec);
    std::optional<Topology> topology;
    if (study_.simulate) {
      topology = find_topology(study_.simulate->topology);
      names.push_back(study_.simulate->topology);
    }
    std::vector<Sample> samples = samples_of(study_);
    for (Sample& sample : samples) check_sample(study_, sample);
    std::vector<std::string> files;
    std::vector<Point> points;
    for (const Sample& sample : samples) {
      if (!sample.source.file.empty()) files.push_back(sample.source.file);
      for (const auto& [algorithm, codec] : points_of(study_.algorithms, study_.codecs)) {
        points.push_back({{sample.input, sample.source.tensor, name_of(sample.dtype),
                           *sample.source.ranks, algorithm, codec},
                          asked_of(study_, topology, sample, algorithm, codec)});
      }
    }
    take(std::move(points), std::move(names), std::move(files));
    keep_in(folder_, study_.title, provenance(study_), request.resume,
            words_in("summary.csv error_by_codec.png error_by_ranks.png pareto.png "
                     "error_by_tensor.png"));
  }

  Result finish() override {
    const auto rows = file().finish();
    Result report{"arlab.study/1",
                  {{"title", study_.title},
                   {"points", rows.size()},
                   {"results", (folder_ / "results.csv").string(), "every point"},
                   {"summary", (folder_ / "summary.csv").string(),
                    "the table below: median_token_sqnr_db is of the median token of the median "
                    "tensor, worst_sqnr_db of the whole worst tensor"},
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

  void finish_others() override { file().finish(); }

 private:
  std::string remedy() const override {
    return fmt::format("{} has the others, and --resume tries these again",
                       (folder_ / "results.csv").string());
  }

  StudyRequest options_;
  Study study_;
  fs::path folder_;
};

}  // namespace

Answer study_answer() {
  return [kept = std::make_shared<StudyAnswer>()](std::span<const Cell> asked, unsigned threads) {
    return (*kept)(asked, threads);
  };
}

Question study_question() {
  return grid_question<StudyGrid, StudyRequest>(
      "study", "Run a sweep from a TOML file: CSV, summary and plots", study_keys());
}

}  // namespace arlab::lab
