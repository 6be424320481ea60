// How long do collectives take on many machines, of many sizes, algorithms and codecs? A row each, and the figures that one
// draws of them.

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/distributed.h"
#include "experiments/lab/files.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/simulate.h"
#include "experiments/lab/sizes.h"
#include "experiments/lab/tensor_source.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/json.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "sim/flows.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kSweepColumns = words_in(
    "topology ranks group_size algorithm codec inner_codec dtype bytes implementation "
    "latency_us algbw_gb_per_s busbw_gb_per_s wire_bits_per_element bottleneck "
    "latency_us_low latency_us_high extrapolated");

/// A point of the sweep.
struct SweepPoint {
  std::string machine;  ///< as it was named
  const Topology* topology;
  Rank ranks;
  Rank group_size;
  std::string algorithm;
  CodecPtr codec;
  CodecPtr inner;
  std::uint64_t bytes;
  bool library;
};

/// As simulate says it.
std::vector<Cell> row_of(const SweepPoint& p, DType type) {
  SimulateRequest request;
  request.topology = p.machine;
  request.collective.algorithm = p.algorithm;
  if (find_simulated_algorithm(p.algorithm).option("group_size") != nullptr) {
    request.collective.options.set("group_size", std::uint64_t{p.group_size});
  }
  if (p.inner) request.collective.options.set("inner_codec", p.inner->name());
  request.codec = p.codec->name();
  request.sizes.bytes = {fmt::format("{}", p.bytes)};
  request.dtype = name_of(type);
  request.ranks = p.ranks;
  request.library = p.library;
  const Simulation simulation(request);
  const SimulationResult& r = simulation.times();
  if (!r.collapses.empty()) fail("{} on {}: {}", r.algorithm, r.topology, kCollapses);
  const std::optional<LatencyInterval> interval = simulation.interval();
  return {r.topology,
          r.world_size,
          p.group_size,
          r.algorithm,
          r.codec,
          p.inner ? Cell(p.inner->name()) : Cell(),
          name_of(type),
          p.bytes,
          p.library ? "library" : "kernel",
          r.latency_us,
          r.algbw_gb_per_s,
          r.busbw_gb_per_s,
          simulation.wire_bits_per_element(),
          r.bottleneck,
          interval ? Cell(interval->low_us) : Cell(),
          interval ? Cell(interval->high_us) : Cell(),
          fmt::format("{}", fmt::join(simulation.extrapolated(), "; "))};
}

bool is_file_name(const std::string& name) {
  return name.ends_with(".toml") || is_schedule_file(name);
}

/// A file's path from the root on, and other names as they are.
std::string located_name(const std::string& name) {
  return is_file_name(name) ? located_path(name) : name;
}

struct SweepRequest {
  std::vector<std::string> topologies;
  std::vector<std::string> algorithms = {"one_shot", "two_shot", "ring"};
  std::vector<std::string> codecs = {"fp16", "qr-q8", "qr-q6", "qr-q4"};
  Sizes sizes;
  std::vector<std::string> ranks;
  std::vector<std::string> group_sizes;
  std::string inner_codec;
  std::string dtype = "fp16";
  bool library = false;
  std::string out;
  std::string highlight;
  bool no_plots = false;

  fs::path file() const { return fs::path(out) / "sweep.csv"; }

  /// Of elements of so many bytes.
  std::vector<std::uint64_t> all_sizes(std::size_t element_bytes) const {
    Sizes chosen = sizes;
    if (!chosen.given()) chosen.bytes = {"32K..1G"};
    return chosen.list(element_bytes);
  }
};

std::vector<BoundField> fields(SweepRequest& r) {
  return together(
      {field("topology", &r.topologies, "Topologies or .toml files, separated by commas")
           .required(),
       field("algorithm", &r.algorithms,
             "Algorithms or schedules of any size (.json), separated by commas",
             "one_shot, two_shot, ring"),
       field("codec", &r.codecs,
             "Codecs, or bits=4.5,encode_ops=9,decode_ops=4 for one that is not there, separated "
             "by commas",
             "fp16, qr-q8, qr-q6, qr-q4")},
      fields(r.sizes, "Payloads of one rank", "32K..1G"),
      {field("ranks", &r.ranks, "World sizes, separated by commas, and FIRST-LAST",
             "all ranks of each topology"),
       field("group_size", &r.group_sizes,
             "Ranks per group of hierarchical algorithms, separated by commas, and FIRST-LAST",
             "as each topology has it"),
       field("inner_codec", &r.inner_codec,
             "Codec of messages inside a group, for algorithms that have one", "--codec"),
       field("dtype", &r.dtype, "fp16, bf16 or fp32", "fp16"),
       field("library", &r.library, "Also as NCCL or RCCL do it, where the topology knows them"),
       field("out", &r.out, "Folder for sweep.csv and the figures", "none"),
       field("highlight", &r.highlight,
             "Codecs or algorithms that stand out in figures, separated by commas", "none"),
       field("no_plots", &r.no_plots, "The table only").changes_no_result()});
}

class SweepRun final : public Run {
 public:
  explicit SweepRun(SweepRequest options)
      : options_(std::move(options)), type_(parse_dtype(options_.dtype)) {
    if (!options_.highlight.empty() && (options_.out.empty() || options_.no_plots)) {
      fail("--highlight is for figures: name a folder with --out, and leave out --no-plots");
    }
    const std::vector<std::uint64_t> sizes = options_.all_sizes(size_of(type_));
    machines_.reserve(options_.topologies.size());
    for (const std::string& name : options_.topologies) machines_.push_back(find_topology(name));
    points_ = points_of(sizes);
    if (!options_.out.empty()) {
      std::error_code error;
      fs::create_directories(options_.out, error);
      if (error) fail("--out {}: {}", quote(options_.out), error.message());
      require_output_file(options_.file().string());
    }
    rows_.resize(points_.size());
    refused_.resize(points_.size());
  }

  void open() override {
    start_progress();
    names_ = options_.algorithms;
    names_.insert(names_.end(), options_.codecs.begin(), options_.codecs.end());
    names_.push_back(options_.inner_codec);
    own_ = own_definitions(names_);
    for (const auto* names : {&options_.topologies, &options_.algorithms}) {
      for (const std::string& name : *names) {
        const std::string file = located_name(name);
        if (is_file_name(name)) files_[file] = known_hash_of_file(file);
      }
    }
  }

  std::size_t points() const override { return points_.size(); }
  std::size_t rows() const override { return done_; }

  std::vector<Part> missing() const override {
    constexpr std::size_t kMostPoints = 1000;
    Part part{{}, kMostPoints};
    for (std::size_t i = 0; i < points_.size(); ++i) part.points.push_back(i);
    return {part};
  }

  std::string task(std::span<const std::size_t> points) const override {
    Json json = {
        {"kind", "sweep"},
        {"names", names_},
        {"definition", {{"program", program_definition()}, {"files", files_}, {"own", own_}}},
        {"dtype", options_.dtype}};
    for (const std::size_t i : points) {
      const SweepPoint& p = points_[i];
      const auto machine = static_cast<std::size_t>(p.topology - machines_.data());
      json["points"].push_back({located_name(options_.topologies[machine]), p.ranks, p.group_size,
                                located_name(p.algorithm), p.codec->name(),
                                p.inner ? p.inner->name() : "", p.bytes, p.library});
    }
    return json_line(json);
  }

  void append(std::span<const std::size_t> points, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < points.size(); ++i) {
      refused_[points[i]] = outcomes[i].error;  // what cannot be simulated is left out
      if (outcomes[i].error.empty()) {
        const Json values = parse_json<Json>(outcomes[i].values);
        rows_[points[i]].assign(values.begin(), values.end());
      }
    }
    done_ += points.size();
    progress().show(done_);
  }

  std::string name(std::size_t point) const override {
    const SweepPoint& p = points_[point];
    return fmt::format("topology {} ranks {} algorithm {} codec {} bytes {}", p.topology->name,
                       p.ranks, p.algorithm, p.codec->name(), p.bytes);
  }

  void compute() override {
    parallel_for(points_.size(), 0, [&](unsigned, std::size_t i) {
      try {
        rows_[i] = row_of(points_[i], type_);
      } catch (const InvalidInput& error) {
        refused_[i] = error.what();
      }
    });
  }

  std::string provenance() const {
    std::string text = fmt::format("simulated: model {}", kSimulatorModel);
    for (const Topology& t : machines_) {
      if (!t.caveat.empty()) text += ", topology " + name_with_caveat(t);
    }
    return text;
  }

  Result finish() override {
    Table table{kSweepColumns, std::move(rows_)};
    // A group size, say, need not divide all world sizes: the others are compared without it.
    std::erase_if(table.rows, [](const auto& row) { return row.empty(); });
    if (table.rows.empty()) fail("no point of the sweep can be simulated: {}", refused_.front());
    std::string last;
    for (const std::string& why : refused_) {
      if (!why.empty() && why != last) write_progress(fmt::format("left out: {}\n", why));
      if (!why.empty()) last = why;
    }

    Result report{"arlab.sweep/1"};
    report.figures = {{"points", table.rows.size()}, {"provenance", provenance()}};
    report.rows_name = "times";
    report.rows = table;
    report.shown = {"topology", "ranks",      "algorithm",      "codec",
                    "bytes",    "latency_us", "busbw_gb_per_s", "wire_bits_per_element"};
    const auto low = std::ranges::find(table.columns, "latency_us_low") - table.columns.begin();
    const bool has_interval = std::ranges::any_of(table.rows, [&](const std::vector<Cell>& row) {
      return !row[static_cast<std::size_t>(low)].json().is_null();
    });
    if (has_interval) {
      report.shown.insert(report.shown.end(), {"latency_us_low", "latency_us_high"});
      report.figures.push_back({"interval_percent", kIntervalPercent,
                                "of 100 measured times, so many should lie between latency_us_low "
                                "and latency_us_high"});
    }
    if (at_most()) {
      report.figures.push_back(
          {"latencies", "at most", "of codecs whose wires the data make: as long as they can be"});
    }
    if (!options_.inner_codec.empty()) report.shown.emplace_back("inner_codec");
    if (!options_.group_sizes.empty()) report.shown.emplace_back("group_size");
    if (options_.library) report.shown.emplace_back("implementation");
    mark_guesses(report);
    if (!options_.out.empty()) {
      // Columns, not comments: every reader of CSV takes them.
      table.columns.insert(table.columns.end(), {"provenance", "command"});
      for (std::vector<Cell>& row : table.rows) {
        row.insert(row.end(), {Cell(provenance()), Cell(command_)});
      }
      write_file(options_.file().string(), render_csv(table));
      report.figures.push_back({"out", options_.file().string()});
      if (!options_.no_plots) report.picture = picture();
    }
    return report;
  }

  void finish_others() override {
    if (done_ > 0) (void)finish();
  }

 private:
  bool at_most() const {
    return std::ranges::any_of(points_, [](const SweepPoint& p) {
      return p.codec->info().has_variable_wire || (p.inner && p.inner->info().has_variable_wire);
    });
  }

  std::vector<SweepPoint> points_of(const std::vector<std::uint64_t>& sizes) const {
    std::vector<SweepPoint> points;
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const Topology& machine = machines_[i];
      for (const Rank count : counts(options_.ranks, "--ranks", machine.ranks.value)) {
        if (count > machine.ranks.value) {
          fail("--ranks is {}, but topology '{}' has only {}", count, machine.name,
               machine.ranks.value);
        }
        for (const Rank group :
             counts(options_.group_sizes, "--group-size", default_group_size(machine, count))) {
          add_points(points, i, count, group, sizes);
        }
      }
    }
    return points;
  }

  void add_points(std::vector<SweepPoint>& points, std::size_t machine_index, Rank count,
                  Rank group, const std::vector<std::uint64_t>& sizes) const {
    const Topology& machine = machines_[machine_index];
    const std::string& named = options_.topologies[machine_index];
    const CodecPtr inner =
        options_.inner_codec.empty() ? nullptr : find_codec(options_.inner_codec);
    std::vector<std::string> names = options_.codecs;
    join_codecs(names);
    const CodecPtr plain = find_codec(name_of(type_));
    for (const std::uint64_t size : sizes) {
      if (options_.library && machine.device.library) {
        const ScheduleRequest request{.world_size = count, .elements = size / size_of(type_)};
        const Codecs codecs{*plain, *plain};
        const std::string chosen = library_algorithm(request, codecs, type_, machine).name;
        points.push_back({named, &machine, count, group, chosen, plain, nullptr, size, true});
      }
      for (const std::string& algorithm : options_.algorithms) {
        const bool has_inner = find_algorithm(algorithm).option("inner_codec") != nullptr;
        for (const std::string& name : names) {
          const CodecPtr codec = find_codec(name);
          codec->wire_bytes(type_, 1);  // throws when it does not take the dtype
          points.push_back({named, &machine, count, group, algorithm, codec,
                            has_inner ? inner : nullptr, size, false});
        }
      }
    }
  }

  static std::vector<Rank> counts(const std::vector<std::string>& texts, const std::string& what,
                                  Rank otherwise) {
    if (texts.empty()) return {otherwise};
    return integers_in(words_of(texts), what, 1, kMaxWorldSize);
  }

  Picture picture() const {
    const std::string file = options_.file().string();
    std::vector<std::string> arguments = {file, "--out", options_.out};
    if (!options_.highlight.empty()) {
      arguments.insert(arguments.end(), {"--highlight", options_.highlight});
    }
    return {"sweep",
            file,
            {},
            fmt::format("the times are in {} (--no-plots leaves out figures)", file),
            std::move(arguments)};
  }

  std::string remedy() const override {
    return options_.out.empty() ? "leave them out, or run the sweep again"
                                : fmt::format("{} has the others", options_.file().string());
  }

  SweepRequest options_;
  std::string command_ = command_line();
  DType type_;
  std::vector<Topology> machines_;
  std::vector<SweepPoint> points_;
  std::vector<std::vector<Cell>> rows_;       // by point; empty where it is refused
  std::vector<std::string> refused_;          // by point: why
  std::map<std::string, std::string> files_;  // hashes
  std::vector<std::string> names_;            // of codecs and algorithms
  Json own_;                                  // what is defined at run time among them
  std::size_t done_ = 0;
};

}  // namespace

std::vector<Outcome> sweep_values_of(const Json& task) {
  Json here = {{"program", program_definition()},
               {"files", Json::object()},
               {"own", own_definitions(task.at("names").get<std::vector<std::string>>())}};
  for (const auto& [file, hash] : task.at("definition").at("files").items()) {
    here["files"][file] = known_hash_of_file(file);
  }
  require_same_definition(task.at("definition"), here);
  const DType type = parse_dtype(task.at("dtype").get<std::string>());
  std::map<std::string, Topology> machines;
  std::vector<Outcome> outcomes;
  for (const Json& p : task.at("points")) {
    outcomes.push_back(outcome_of([&] {
      const auto machine = p.at(0).get<std::string>();
      if (!machines.contains(machine)) machines.emplace(machine, find_topology(machine));
      const auto inner = p.at(5).get<std::string>();
      const SweepPoint point{machine,
                             &machines.at(machine),
                             p.at(1).get<Rank>(),
                             p.at(2).get<Rank>(),
                             p.at(3).get<std::string>(),
                             find_codec(p.at(4).get<std::string>()),
                             inner.empty() ? nullptr : find_codec(inner),
                             p.at(6).get<std::uint64_t>(),
                             p.at(7).get<bool>()};
      return json_line(row_of(point, type));
    }));
  }
  return outcomes;
}

Question sweep_question() {
  return shared_question<SweepRun, SweepRequest>(
      "sweep", "Simulate many machines, sizes, algorithms and codecs: a table, CSV and figures");
}

}  // namespace arlab::lab
