// arlab sweep: simulated times of many machines, sizes, algorithms and codecs; a row each, and the
// figures that one draws of them.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/cli/commands.h"
#include "experiments/cli/distributed.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/program.h"
#include "experiments/cli/progress.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "sim/library.h"
#include "sim/nccl.h"
#include "sim/simulator.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::vector<std::string> kSweepColumns = {"topology",
                                                "ranks",
                                                "group_size",
                                                "algorithm",
                                                "codec",
                                                "inner_codec",
                                                "dtype",
                                                "bytes",
                                                "implementation",
                                                "latency_us",
                                                "algbw_gb_per_s",
                                                "busbw_gb_per_s",
                                                "wire_bits_per_element",
                                                "bottleneck"};

/// A point of the sweep.
struct SweepPoint {
  const Topology* topology;
  Rank ranks;
  Rank group_size;
  std::string algorithm;
  CodecPtr codec;
  CodecPtr inner;
  std::uint64_t bytes;
  bool library;
};

std::vector<Cell> row_of(const SweepPoint& p, DType type) {
  const Codecs codecs(*p.codec, p.inner ? *p.inner : *p.codec);
  ScheduleRequest request{.world_size = p.ranks,
                          .elements = p.bytes / size_of(type),
                          .alignment = codecs.alignment(),
                          .options = {{"group_size", p.group_size}}};
  if (p.inner) request.options.set("inner_codec", p.inner->name());
  const SimulationResult r = simulate({find_simulated_algorithm(p.algorithm),
                                       request,
                                       codecs,
                                       type,
                                       *p.topology,
                                       {.library = p.library}});
  const WideCount elements = r.wire_elements > 0 ? r.wire_elements : WideCount{1};
  return {r.topology,
          r.world_size,
          p.group_size,
          r.algorithm,
          r.codec,
          p.inner ? Json(p.inner->name()) : Json(nullptr),
          std::string(name_of(type)),
          p.bytes,
          p.library ? "library" : "kernel",
          r.latency_us,
          r.algbw_gb_per_s,
          r.busbw_gb_per_s,
          8 * static_cast<double>(r.wire_bytes) / static_cast<double>(elements),
          r.bottleneck};
}

bool is_file_name(const std::string& name) {
  return name.ends_with(".toml") || is_schedule_file(name);
}

/// A file's path from the root on, and other names as they are.
std::string located_name(const std::string& name) {
  return is_file_name(name) ? located_path(name) : name;
}

struct SweepOptions {
  std::vector<std::string> topologies;
  std::vector<std::string> algorithms = {"one_shot", "two_shot", "ring"};
  std::vector<std::string> codecs = {"fp16", "qr-q8", "qr-q6", "qr-q4"};
  lab::Sizes sizes;
  std::vector<std::string> ranks;
  std::vector<std::string> group_sizes;
  std::string inner_codec;
  std::string dtype = "fp16";
  bool library = false;
  std::string out;
  std::string command;  // for a comment

  fs::path file() const { return fs::path(out) / "sweep.csv"; }

  /// Of elements of so many bytes.
  std::vector<std::uint64_t> all_sizes(std::size_t element_bytes) const {
    lab::Sizes chosen = sizes;
    if (!chosen.given()) chosen.bytes = {"32K..1G"};
    return chosen.list(element_bytes);
  }

  Json to_json() const {
    std::vector<std::string> bytes;
    for (const std::uint64_t size : all_sizes(1)) bytes.push_back(std::to_string(size));
    return {{"topology", topologies}, {"algorithm", algorithms},
            {"codec", codecs},        {"bytes", bytes},
            {"ranks", ranks},         {"group_size", group_sizes},
            {"dtype", dtype},         {"inner_codec", inner_codec},
            {"library", library},     {"out", out},
            {"command", command}};
  }

  /// What is left out keeps its default.
  static SweepOptions from_json(const Json& json) {
    SweepOptions o;
    const auto take = [&json](const char* name, auto& value) {
      if (json.contains(name)) json.at(name).get_to(value);
    };
    take("topology", o.topologies);
    take("algorithm", o.algorithms);
    take("codec", o.codecs);
    take("bytes", o.sizes.bytes);
    take("ranks", o.ranks);
    take("group_size", o.group_sizes);
    take("dtype", o.dtype);
    take("inner_codec", o.inner_codec);
    take("library", o.library);
    take("out", o.out);
    take("command", o.command);
    return o;
  }
};

class SweepRun final : public Run {
 public:
  explicit SweepRun(SweepOptions options)
      : options_(std::move(options)), type_(parse_dtype(options_.dtype)) {
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
    Json json = {{"kind", "sweep"},
                 {"definition", {{"program", program_definition()}, {"files", files_}}},
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
        const Json values = Json::parse(outcomes[i].values);
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

  /// With all threads of this machine.
  void compute() {
    parallel_for(points_.size(), 0, [&](unsigned, std::size_t i) {
      try {
        rows_[i] = row_of(points_[i], type_);
      } catch (const InvalidInput& error) {
        refused_[i] = error.what();
      }
    });
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
    report.figures = {{"points", table.rows.size()},
                      {"provenance", fmt::format("simulated: model {}", kSimulatorModel)}};
    report.rows_name = "times";
    report.rows = table;
    report.shown = {"topology", "ranks",      "algorithm",     "codec",
                    "bytes",    "latency_us", "busbw_gb_per_s"};
    if (!options_.inner_codec.empty()) report.shown.emplace_back("inner_codec");
    if (!options_.group_sizes.empty()) report.shown.emplace_back("group_size");
    if (options_.library) report.shown.emplace_back("implementation");
    if (!options_.out.empty()) {
      const std::string text = fmt::format("# {}\n# provenance: simulated: model {}\n",
                                           options_.command, kSimulatorModel) +
                               render_csv(table);
      write_file(options_.file().string(), {std::as_bytes(std::span(text))});
      report.figures.push_back({"out", options_.file().string()});
    }
    return report;
  }

  void finish_others() override {
    if (done_ > 0) (void)finish();
  }

 private:
  std::vector<SweepPoint> points_of(const std::vector<std::uint64_t>& sizes) const {
    std::vector<SweepPoint> points;
    for (const Topology& machine : machines_) {
      for (const Rank count : counts(options_.ranks, "--ranks", machine.ranks.value)) {
        if (count > machine.ranks.value) {
          fail("--ranks is {}, but topology '{}' has only {}", count, machine.name,
               machine.ranks.value);
        }
        for (const Rank group :
             counts(options_.group_sizes, "--group-size", default_group_size(machine, count))) {
          add_points(points, machine, count, group, sizes);
        }
      }
    }
    return points;
  }

  void add_points(std::vector<SweepPoint>& points, const Topology& machine, Rank count, Rank group,
                  const std::vector<std::uint64_t>& sizes) const {
    const CodecPtr inner =
        options_.inner_codec.empty() ? nullptr : find_codec(options_.inner_codec);
    std::vector<std::string> names = options_.codecs;
    join_abstract_codecs(names);
    const CodecPtr plain = find_codec(name_of(type_));
    for (const std::uint64_t size : sizes) {
      if (options_.library && (machine.device.library || machine.device.nccl)) {
        const ScheduleRequest request{.world_size = count, .elements = size / size_of(type_)};
        const Codecs codecs{*plain, *plain};
        const std::string chosen = library_algorithm(request, codecs, type_, machine).name;
        points.push_back({&machine, count, group, chosen, plain, nullptr, size, true});
      }
      for (const std::string& algorithm : options_.algorithms) {
        const bool has_inner = find_algorithm(algorithm).option("inner_codec") != nullptr;
        for (const std::string& name : names) {
          const CodecPtr codec = find_codec(name);
          codec->wire_bytes(type_, 1);  // throws when it does not take the dtype
          points.push_back(
              {&machine, count, group, algorithm, codec, has_inner ? inner : nullptr, size, false});
        }
      }
    }
  }

  static std::vector<Rank> counts(const std::vector<std::string>& texts, const std::string& what,
                                  Rank otherwise) {
    std::vector<Rank> values;
    for (const std::string& text : texts) {
      const std::uint64_t value = parse_count(text, what);
      if (value > kMaxWorldSize) fail("{} is {}: allowed are 1 to {}", what, value, kMaxWorldSize);
      values.push_back(static_cast<Rank>(value));
    }
    if (values.empty()) values.push_back(otherwise);
    return values;
  }

  std::string remedy() const override {
    return options_.out.empty() ? "leave them out, or run the sweep again"
                                : fmt::format("{} has the others", options_.file().string());
  }

  SweepOptions options_;
  DType type_;
  std::vector<Topology> machines_;
  std::vector<SweepPoint> points_;
  std::vector<std::vector<Cell>> rows_;       // by point; empty where it is refused
  std::vector<std::string> refused_;          // by point: why
  std::map<std::string, std::string> files_;  // hashes
  std::size_t done_ = 0;
};

struct SweepCommand {
  SweepOptions options;
  DistributedOptions distributed;
  std::string highlight;
  bool no_plots = false;
  Format format = Format::table;

  void run() const {
    if (!highlight.empty() && (options.out.empty() || no_plots)) {
      fail("--highlight is for figures: name a folder with --out, and leave out --no-plots");
    }
    SweepOptions called = options;
    called.command = command_line();
    const std::string file = options.file().string();
    std::vector<std::string> figures = {file, "--out", options.out};
    if (!highlight.empty()) figures.insert(figures.end(), {"--highlight", highlight});
    const std::string kept =
        fmt::format("the times are in {} (--no-plots leaves out figures)", file);
    const bool plots = !options.out.empty() && !no_plots;
    if (distributed.asked_for()) {
      std::vector<std::string> kind_and_figures = {"sweep"};
      kind_and_figures.insert(kind_and_figures.end(), figures.begin(), figures.end());
      distributed.go_on("sweep", {{"sweep", called.to_json()},
                                  {"figures", plots ? Json(kind_and_figures) : Json(nullptr)},
                                  {"kept", kept},
                                  {"format", name_of(format)},
                                  {"all", page().all}});
    }
    SweepRun run(called);
    run.compute();
    const Result report = run.finish();
    print_last(
        [&] {
          if (plots) draw("sweep", figures, kept);
        },
        [&] { print(report, format); });
  }
};

}  // namespace

std::unique_ptr<Run> make_sweep_run(const Json& options) {
  return std::make_unique<SweepRun>(SweepOptions::from_json(options));
}

std::vector<Outcome> sweep_values_of(const Json& task) {
  Json here = {{"program", program_definition()}, {"files", Json::object()}};
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
      const SweepPoint point{&machines.at(machine),
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

void add_sweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub = app.add_subcommand(
      "sweep", "Simulate many machines, sizes, algorithms and codecs: a table, CSV and figures");
  const auto list = [sub](const std::string& name, std::vector<std::string>& values,
                          const std::string& description) {
    return sub->add_option(name, values, description + ", separated by commas")->delimiter(',');
  };
  list("--topology", command->options.topologies, "Topologies or .toml files")->required();
  list("--algorithm", command->options.algorithms,
       "Algorithms or schedules of any size (.json) [one_shot, two_shot, ring]");
  list("--codec", command->options.codecs,
       "Codecs, or bits=4.5,encode_ops=9,decode_ops=4 for one that is not there [fp16, qr-q8, "
       "qr-q6, qr-q4]");
  add_fields(*sub, fields(command->options.sizes, "Payloads of one rank", "32K..1G"));
  list("--ranks", command->options.ranks, "World sizes [all ranks of each topology]");
  list("--group-size", command->options.group_sizes,
       "Ranks per group of hierarchical algorithms [as each topology has it]");
  sub->add_option("--inner-codec", command->options.inner_codec,
                  "Codec of messages inside a group, for algorithms that have one [--codec]");
  sub->add_option("--dtype", command->options.dtype, "fp16, bf16 or fp32 [fp16]");
  sub->add_flag("--library", command->options.library,
                "Also as NCCL or RCCL do it, where the topology knows them");
  sub->add_option("--out", command->options.out, "Folder for sweep.csv and the figures [none]");
  sub->add_option("--highlight", command->highlight,
                  "Codecs or algorithms that stand out in figures, separated by commas [none]");
  sub->add_flag("--no-plots", command->no_plots, "The table only");
  command->distributed.add_to(*sub);
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
