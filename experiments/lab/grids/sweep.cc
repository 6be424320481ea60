// How long do collectives take on many machines, of many sizes, algorithms and codecs? A row each, and the figures that one
// draws of them.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "experiments/lab/grids/grid.h"
#include "experiments/lab/points.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/request.h"
#include "experiments/lab/sizes.h"
#include "experiments/lab/time/simulate.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/json.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/words.h"
#include "sim/flows.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"
#include "sim/uncertainty.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kSweepKey =
    words_in("topology ranks group_size algorithm codec inner_codec dtype bytes implementation");
const std::vector<std::string> kSweepFigures = words_in(
    "latency_us algbw_gb_per_s busbw_gb_per_s wire_bits_per_element bottleneck latency_us_low "
    "latency_us_high extrapolated assumed provenance");

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

  /// Returns the sizes in bytes for elements of so many bytes.
  std::vector<std::uint64_t> all_sizes(std::size_t element_bytes) const {
    Sizes chosen = sizes;
    if (!chosen.given()) chosen.bytes = {"32K..1G"};
    const std::vector<std::uint64_t> all = chosen.list(element_bytes);
    std::size_t named = 0;
    for (const std::string& text : chosen.bytes) {
      Sizes one;
      one.bytes = {text};
      named += one.list(element_bytes).size();
    }
    if (named > all.size()) fail("--bytes is {}: a size stands twice", words_of(chosen.bytes));
    return all;
  }
};

std::vector<BoundField> fields(SweepRequest& r) {
  return together(
      {field("topology", &r.topologies,
             "Simulate these topologies or .toml files, separated by commas")
           .required(),
       field("algorithm", &r.algorithms,
             "Simulate these algorithms or schedules of any size (.json), separated by commas",
             "one_shot, two_shot, ring"),
       field("codec", &r.codecs,
             "Simulate these codecs, separated by commas; bits=4.5,encode_ops=9,decode_ops=4 "
             "describes a hypothetical one",
             "fp16, qr-q8, qr-q6, qr-q4")},
      fields(r.sizes, "Simulate these payloads of one rank, in bytes", "32K..1G"),
      {field("ranks", &r.ranks, "Simulate these world sizes, separated by commas, and FIRST-LAST",
             "all ranks of each topology"),
       field("group_size", &r.group_sizes,
             "Simulate groups of N ranks of hierarchical algorithms, separated by commas, and "
             "FIRST-LAST",
             "as each topology has it"),
       field("inner_codec", &r.inner_codec,
             "Use this codec inside groups, for algorithms that have one", "--codec"),
       field("dtype", &r.dtype, "Set the element type: fp16, bf16 or fp32", "fp16"),
       field("library", &r.library,
             "Simulate NCCL or RCCL, too, where the topology has their constants"),
       field("out", &r.out, "Write sweep.csv and the figures into this folder", "none"),
       field("highlight", &r.highlight,
             "Highlight these codecs or algorithms in figures, separated by commas", "none"),
       field("no_plots", &r.no_plots, "Print the table only").changes_no_result()});
}

class SweepGrid final : public Grid {
 public:
  explicit SweepGrid(const SweepRequest& request)
      : Grid("sweep", kSweepKey), options_(request), type_(parse_dtype(request.dtype)) {
    if (!request.highlight.empty() && (request.out.empty() || request.no_plots)) {
      fail("--highlight is for figures: name a folder with --out, and leave out --no-plots");
    }
    const std::vector<std::uint64_t> sizes = request.all_sizes(size_of(type_));
    (void)names_in(words_of(request.topologies), "--topology");  // throws where one stands twice
    (void)names_in(words_of(request.algorithms), "--algorithm");
    (void)names_in(words_of(request.codecs), "--codec");
    for (const auto& [name, option, given] :
         {std::tuple("inner_codec", "--inner-codec", !request.inner_codec.empty()),
          std::tuple("group_size", "--group-size", !request.group_sizes.empty())}) {
      const auto takes = [key = name](const std::string& each) {
        return find_algorithm(each).option(key) != nullptr;
      };
      if (given && std::ranges::none_of(request.algorithms, takes))
        fail("{}: no algorithm of this sweep takes it; leave it out", option);
    }
    std::vector<std::string> names = {request.inner_codec};
    for (const auto* more : {&request.topologies, &request.algorithms, &request.codecs}) {
      names.insert(names.end(), more->begin(), more->end());
    }
    for (const std::string& name : request.topologies) {
      const Topology machine = find_topology(name);
      if (!machine.caveat.empty()) provenance_ += ", topology " + name_with_caveat(machine);
      add(name, machine, sizes);
    }
    take(std::move(points_), std::move(names));
    if (request.out.empty()) return;
    std::error_code error;
    fs::create_directories(request.out, error);
    if (error) fail("--out {}: {}", quote(request.out), error.message());
    require_output_file(request.file().string());
  }

  Result finish() override {
    Table table{kSweepKey, kept()};
    table.columns.insert(table.columns.end(), kSweepFigures.begin(), kSweepFigures.end());
    // A group size, say, need not divide all world sizes: the others are compared without it.
    std::erase_if(table.rows, [](const auto& row) { return row.empty(); });
    if (table.rows.empty()) fail("no point of the sweep can be simulated: {}", refused().front());
    std::map<std::string, std::size_t> points_of;
    for (const std::string& why : refused()) {
      if (!why.empty()) ++points_of[why];
    }
    for (const auto& [why, points] : points_of) {
      write_progress(fmt::format("left out: {} ({})\n", why, counted(points, "point")));
    }

    Result report{"arlab.sweep/1"};
    report.figures = {{"points", table.rows.size()}, {"provenance", provenance_}};
    report.rows_name = "times";
    report.rows = table;
    report.shown = {"topology", "ranks",      "algorithm",      "codec",
                    "bytes",    "latency_us", "busbw_gb_per_s", "wire_bits_per_element"};
    report.shown.insert(report.shown.end(), {"latency_us_low", "latency_us_high"});
    add_assumed(report, assumed_);
    report.figures.push_back(extrapolated_figure(table));
    report.figures.push_back(interval_figure());
    if (at_most_) {
      report.figures.push_back(
          {"latencies", "at most", "of codecs whose wires the data make: as long as they can be"});
    }
    if (!options_.inner_codec.empty()) report.shown.emplace_back("inner_codec");
    if (!options_.group_sizes.empty()) report.shown.emplace_back("group_size");
    if (options_.library) report.shown.emplace_back("implementation");
    mark_guesses(report);
    if (!options_.out.empty()) {
      // Columns, not comments: every reader of CSV takes them.
      table.columns.emplace_back("command");
      for (std::vector<Cell>& row : table.rows) row.emplace_back(command_);
      std::vector<fs::path> figures;  // an earlier sweep's
      for (const std::string& name :
           words_in("latency_over_size bandwidth_over_size speedup_over_library "
                    "best_method_by_size machines_heat_map")) {
        figures.push_back(fs::path(options_.out) / (name + ".png"));
      }
      remove_all(figures);
      write_file(options_.file().string(), render_csv(table));
      report.figures.push_back({"out", options_.file().string()});
      if (!options_.no_plots) report.picture = picture();
    }
    return report;
  }

  void finish_others() override {
    if (rows() > 0) (void)finish();
  }

 private:
  void add(const std::string& named, const Topology& machine,
           const std::vector<std::uint64_t>& sizes) {
    std::vector<std::string> codecs = options_.codecs;
    join_codecs(codecs);
    for (const Rank ranks : counts(options_.ranks, "--ranks", machine.ranks.value)) {
      if (ranks > machine.ranks.value) {
        fail("--ranks is {}, but topology '{}' has only {}", ranks, machine.name,
             machine.ranks.value);
      }
      const Rank usual = default_group_size(machine, ranks);
      const std::vector<Rank> groups = counts(options_.group_sizes, "--group-size", usual);
      for (const auto& [group, bytes] : points_of(groups, sizes)) {
        SimulateRequest point;
        point.topology = located_name(named);
        point.sizes.bytes = {fmt::format("{}", bytes)};
        point.dtype = name_of(type_);
        point.ranks = ranks;
        const bool is_first = group == groups.front();  // others are of algorithms with groups
        if (options_.library && machine.device.library && is_first)
          add_library(machine, bytes, point);
        for (const auto& [algorithm, codec] : points_of(options_.algorithms, codecs)) {
          const bool has_groups = find_algorithm(algorithm).option("group_size") != nullptr;
          if (!has_groups && !is_first) continue;
          if (has_groups) point.collective.options.set("group_size", std::uint64_t{group});
          add(machine, bytes, algorithm, *find_codec(codec), point);
          point.collective.options = {};
        }
      }
    }
  }

  void add_library(const Topology& machine, std::uint64_t bytes, SimulateRequest point) {
    const CodecPtr plain = find_codec(name_of(type_));
    const ScheduleRequest request{.world_size = *point.ranks, .elements = bytes / size_of(type_)};
    const Codecs codecs{*plain, *plain};
    point.library = true;
    add(machine, bytes, library_algorithm(request, codecs, type_, machine).name, *plain, point);
  }

  void add(const Topology& machine, std::uint64_t bytes, const std::string& algorithm,
           const Codec& codec, SimulateRequest point) {
    codec.wire_bytes(type_, 1);  // throws when it does not take the dtype
    const Algorithm& known =
        point.library ? find_simulated_algorithm(algorithm) : find_algorithm(algorithm);
    CodecPtr inner;
    if (!options_.inner_codec.empty() && !point.library && known.option("inner_codec") != nullptr) {
      inner = find_codec(options_.inner_codec);
      point.collective.options.set("inner_codec", inner->name());
    }
    point.collective.algorithm = located_name(algorithm);
    point.codec = codec.name();
    CollectiveRun run;
    run.library = point.library;
    run.ranks = *point.ranks;
    add_new(assumed_, assumed_of(machine, run));
    at_most_ =
        at_most_ || codec.info().has_variable_wire || (inner && inner->info().has_variable_wire);
    points_.push_back({{machine.name, *point.ranks, point.collective.options.group_size(),
                        algorithm, codec.name(), inner ? Cell(inner->name()) : Cell(),
                        name_of(type_), bytes, point.library ? "library" : "kernel"},
                       canonical_json(fields(point))});
  }

  static std::vector<Rank> counts(const std::vector<std::string>& texts, const std::string& what,
                                  Rank otherwise) {
    if (texts.empty()) return {otherwise};
    const std::vector<Rank> numbers = integers_in(words_of(texts), what, 1, kMaxWorldSize);
    if (std::set(numbers.begin(), numbers.end()).size() < numbers.size())
      fail("{} is {}: a number stands twice", what, quote(words_of(texts)));
    return numbers;
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
  DType type_;
  std::vector<Point> points_ = {};
  std::vector<std::string> assumed_ = {};
  bool at_most_ = false;  // the data decide how long some wires are
  std::string command_ = command_line();
  std::string provenance_ = fmt::format("simulated: model {}", kSimulatorModel);
};

}  // namespace

Answer sweep_answer() {
  return [](std::span<const Cell> asked, unsigned threads) {
    std::vector<Outcome> outcomes(asked.size());
    parallel_for(asked.size(), threads, [&](unsigned, std::size_t i) {
      outcomes[i] = outcome_of([&] {
        SimulateRequest request;
        set_fields(fields(request), asked[i].json());
        const Simulation simulation(request);
        const SimulationResult& r = simulation.times();
        if (!r.collapses.empty()) fail("{} on {}: {}", r.algorithm, r.topology, kCollapses);
        Json row = Json::array();
        for (const Cell& cell : cells_of(simulation, kSweepFigures)) row.push_back(cell.json());
        return row;
      });
    });
    return outcomes;
  };
}

Question sweep_question() {
  return grid_question<SweepGrid, SweepRequest>(
      "sweep", "Simulate many machines, sizes, algorithms and codecs: a table, CSV and figures");
}

}  // namespace arlab::lab
