// arlab simulate: how long a schedule takes on a topology.

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "experiments/cli/commands.h"
#include "experiments/cli/nccl_tests.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/parallel.h"
#include "sim/device/kernel_model.h"
#include "sim/device/nccl.h"
#include "sim/library.h"
#include "sim/nccl.h"
#include "sim/simulator.h"
#include "sim/trace/chakra.h"
#include "sim/trace/perfetto.h"
#include "sim/uncertainty.h"
#include "sim/workload/workload.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateCommand {
  ScheduleOptions schedule;
  std::string topology;
  std::string codec;
  SizeOptions sizes;
  std::string dtype;
  std::optional<std::uint32_t> ranks;
  bool library = false;
  bool multicast = false;
  bool sensitivity = false;
  std::string sharing = "max_min";
  std::string trace;
  bool no_plots = false;
  std::string workload;
  std::string placement;
  std::optional<double> skew;
  std::optional<std::uint32_t> runs;
  std::optional<std::uint32_t> seed;
  std::optional<double> launch_jitter;
  std::optional<double> message_jitter;
  Format format = Format::table;

  /// Simulates what the options ask for, each time anew, on machines that differ in quantities only.
  using Simulate = std::function<SimulationResult(const SimulateOptions&, const Topology&)>;

  void run() const {
    SimulateOptions options = make_options();
    if (!workload.empty()) return run_workload(options);
    if (codec.empty()) fail("name the --codec (see arlab list codecs) or a --workload");
    if (!trace.empty()) require_picture_name("--trace", trace, {".json"});
    const CodecPtr c = find_codec(codec);
    const DType type = dtype.empty() ? default_dtype(*c) : parse_dtype(dtype);
    const CodecPtr inner = schedule.inner(c);
    for (const Codec* each : {c.get(), inner.get()}) {
      each->wire_bytes(type, 1);  // throws when the codec does not take the dtype
    }
    const Topology t = jittery(find_topology(topology));
    std::vector<std::uint64_t> payloads = {0};  // as a schedule file says
    if (sizes.given()) payloads = sizes.sizes(size_of(type));
    if (schedule.file.empty() && !sizes.given()) {
      fail("{} needs --bytes, the payload of one rank (64M)",
           schedule.algorithm.empty() && library ? "--library" : "--algorithm");
    }
    const bool as_nccl = format == Format::nccl || format == Format::nccl_json;
    if (payloads.size() > 1 || as_nccl) {
      if (!trace.empty()) fail("--trace is of one size, in another --format than nccl");
      if (runs) fail("--runs are of one size, in another --format than nccl");
      if (sensitivity) fail("--sensitivity is of one size, in another --format than nccl");
      return run_sizes(payloads, {*c, *inner}, type, t, options);
    }
    const std::uint64_t elements = payloads.front() / size_of(type);
    const Rank world_size = world_size_on(t);
    std::optional<PerfettoTrace> timeline;
    std::optional<ChakraTrace> chakra;
    if (is_chakra()) options.trace = &chakra.emplace();
    if (!trace.empty() && !is_chakra()) options.trace = &timeline.emplace();
    const Codecs codecs(*c, *inner);
    const Simulate simulated = prepared(world_size, elements, codecs, type, t, options);
    const SimulationResult result = simulated(options, t);
    if (timeline) timeline->write(trace, result);
    if (chakra) chakra->write(trace, result);
    Report figures = report(result, *c);
    if (!schedule.inner_codec.empty()) {
      const auto after_codec = std::find_if(figures.fields.begin(), figures.fields.end(),
                                            [](const Field& f) { return f.name == "ranks"; });
      figures.fields.insert(after_codec, {"inner_codec", inner->name()});
    }
    add_options(figures, result, t);
    if (runs) {
      const std::vector<std::vector<double>> us =
          latencies_of_runs(t, options, [&](const SimulateOptions& each) {
            return std::vector<double>{simulated(each, t).latency_us};
          });
      for (Field& field : spread(us[0])) figures.fields.push_back(std::move(field));
    }
    add_interval(figures, interval(simulated, result, t, options), result, t);
    if (sensitivity) {
      show_sensitivity(figures, elasticities_of(t, latency_of(simulated, options)), t);
    }
    // One row of figures, not the links; or the rows that were asked for.
    if (format == Format::csv && !sensitivity) figures.rows_name.clear();
    if (format == Format::csv && sensitivity) figures.fields.clear();
    figures.shown_fields = {
        "topology",   "algorithm",      "codec",          "inner_codec",     "ranks",
        "bytes",      "latency_us",     "latency_us_low", "latency_us_high", "busbw_gb_per_s",
        "bottleneck", "implementation", "runs",           "p50_us",          "p99_us",
        "max_us",     "trace",          "timeline",       "provenance"};
    print_last(
        [&] {
          if (!timeline || no_plots) return;
          draw("timeline", {trace, picture()},
               fmt::format("the trace is in {} (--no-plots leaves out the picture)", trace));
        },
        [&] { print(figures, format); });
  }

  // ---- how uncertain a latency is, and what it depends on

  /// An interval takes two simulations for each fitted constant: with more ranks only when asked.
  static constexpr Rank kMostRanksOfInterval = 64;

  static std::function<double(const Topology&)> latency_of(const Simulate& simulated,
                                                           SimulateOptions options) {
    options.trace = nullptr;
    return [&simulated, options](const Topology& t) { return simulated(options, t).latency_us; };
  }

  std::optional<LatencyInterval> interval(const Simulate& simulated, const SimulationResult& result,
                                          const Topology& t, const SimulateOptions& options) const {
    if (!no_interval(result, t).empty()) return std::nullopt;
    return interval_of(t, latency_of(simulated, options));
  }

  /// Why there is none; empty if there is one.
  std::string no_interval(const SimulationResult& result, const Topology& t) const {
    if (!t.uncertainty) {
      return fmt::format("none: no fit says how uncertain the constants of '{}' are", t.name);
    }
    const std::vector<std::string>& fitted = t.uncertainty->constants;
    const bool of_nccl = std::any_of(fitted.begin(), fitted.end(), [](const std::string& key) {
      return key.starts_with("nccl");
    });
    if (of_nccl != result.runs_nccl) {
      return fmt::format("none: the fit ({}) says nothing of {}", t.uncertainty->note,
                         result.runs_nccl ? "NCCL" : "these kernels");
    }
    if (t.jitter.any()) return "none with jitter: it is of constants; --runs says how runs differ";
    if (result.world_size > kMostRanksOfInterval && !sensitivity) {
      return fmt::format("none of more than {} ranks, but with --sensitivity",
                         kMostRanksOfInterval);
    }
    return "";
  }

  static std::pair<Json, Json> ends_of(const std::optional<LatencyInterval>& interval) {
    if (!interval) return {nullptr, nullptr};
    return {interval->low_us, interval->high_us};
  }

  static std::string interval_words(const char* low) {
    return fmt::format("us, high: {:.0f} of 100 measured times should lie between it and {}",
                       kIntervalPercent, low);
  }

  void add_interval(Report& figures, const std::optional<LatencyInterval>& interval,
                    const SimulationResult& result, const Topology& t) const {
    const auto after = std::find_if(figures.fields.begin(), figures.fields.end(),
                                    [](const Field& f) { return f.name == "algbw_gb_per_s"; });
    const auto [low, high] = ends_of(interval);
    if (!interval) {
      figures.fields.insert(after, {{"latency_us_low", low, no_interval(result, t)},
                                    {"latency_us_high", high, "none, as latency_us_low"}});
      return;
    }
    figures.fields.insert(
        after,
        {{"latency_us_low", low, fmt::format("us, {:.0f} % interval: low", kIntervalPercent)},
         {"latency_us_high", high, interval_words("latency_us_low")},
         {"interval_from", t.uncertainty->note, "what the constants were fitted to"}});
  }

  /// In place of the links: what the latency depends on, most first.
  static void show_sensitivity(Report& figures, std::vector<Elasticity> elasticities,
                               const Topology& t) {
    std::stable_sort(elasticities.begin(), elasticities.end(),
                     [](const Elasticity& a, const Elasticity& b) {
                       return std::abs(a.percent_per_percent) > std::abs(b.percent_per_percent);
                     });
    std::map<std::string, double> sigma;
    for (std::size_t i = 0; t.uncertainty && i < t.uncertainty->constants.size(); ++i) {
      sigma[t.uncertainty->constants[i]] = t.uncertainty->sigma_percent[i];
    }
    figures.rows_name = "sensitivity";
    figures.rows = {{"constant", "value", "source", "percent_per_percent", "sigma_percent"}, {}};
    std::map<std::string, Source> sources;
    for (const NamedQuantity& named : quantities_of(t)) sources[named.key] = named.quantity.source;
    for (const Elasticity& each : elasticities) {
      if (each.percent_per_percent == 0) continue;
      const auto known = sigma.find(each.key);
      figures.rows.rows.push_back({each.key, each.value, std::string(name_of(sources[each.key])),
                                   each.percent_per_percent,
                                   known == sigma.end() ? Json(nullptr) : Json(known->second)});
    }
  }

  // ---- several collectives, several runs

  /// With what the options say of it.
  Topology jittery(Topology t) const {
    if (launch_jitter) t.jitter.launch_us = *launch_jitter;
    if (message_jitter) t.jitter.message_us = *message_jitter;
    require_valid(t, "--jitter-launch, --jitter-message");
    return t;
  }

  /// Of every latency that `simulated` returns, what it is in each run.
  template <class Simulated>
  std::vector<std::vector<double>> latencies_of_runs(const Topology& t,
                                                     const SimulateOptions& options,
                                                     Simulated simulated) const {
    if (!t.jitter.any()) {
      fail(
          "--runs: nothing varies from run to run on topology '{}'; needed is --jitter-launch, "
          "--jitter-message or a section [jitter] of its file",
          t.name);
    }
    std::vector<std::vector<double>> of_run(*runs);
    parallel_for(*runs, 0, [&](unsigned, std::size_t i) {
      SimulateOptions each = options;
      each.trace = nullptr;
      each.seed = options.seed + i;
      of_run[i] = simulated(each);
    });
    std::vector<std::vector<double>> by_latency(of_run.front().size());
    for (const std::vector<double>& latencies : of_run) {
      for (std::size_t i = 0; i < latencies.size(); ++i) by_latency[i].push_back(latencies[i]);
    }
    for (std::vector<double>& latencies : by_latency) std::sort(latencies.begin(), latencies.end());
    return by_latency;
  }

  /// The least value that is not below a share of them all, which are sorted.
  static double quantile(const std::vector<double>& sorted, double share) {
    const double place = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[static_cast<std::size_t>(std::max(1.0, place)) - 1];
  }

  std::vector<Field> spread(const std::vector<double>& sorted) const {
    const double mean =
        std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
    return {{"runs", *runs, fmt::format("with seeds {} and up", seed.value_or(0))},
            {"mean_us", mean, "us, of the runs' latencies"},
            {"min_us", sorted.front()},
            {"p50_us", quantile(sorted, 0.5)},
            {"p99_us", quantile(sorted, 0.99)},
            {"max_us", sorted.back()}};
  }

  void run_workload(const SimulateOptions& options) const {
    if (!codec.empty() || sizes.given() || !schedule.algorithm.empty() || !schedule.file.empty() ||
        !placement.empty() || !dtype.empty() || ranks || skew || library || multicast ||
        sensitivity || !trace.empty()) {
      fail(
          "--workload says what runs; besides it are allowed --topology, --sharing, --runs, "
          "--seed, "
          "--jitter-launch, --jitter-message and --format");
    }
    if (format == Format::nccl || format == Format::nccl_json) {
      fail("--format {} is of one collective; allowed with --workload are table, json, csv",
           name_of(format));
    }
    const Topology t = jittery(find_topology(topology));
    const Workload w = read_workload(workload);
    const std::vector<GroupTime> times = simulate_workload(w, t, options);
    Report report{"arlab.simulate.workload/1"};
    report.rows_name = "collectives";
    report.rows.columns = {"name",      "algorithm", "codec",          "ranks",
                           "placement", "bytes",     "start_us",       "latency_us",
                           "alone_us",  "slowdown",  "busbw_gb_per_s", "bottleneck"};
    std::vector<std::vector<double>> of_runs;
    if (runs) {
      for (const char* column : {"p50_us", "p99_us", "max_us"}) {
        report.rows.columns.emplace_back(column);
      }
      std::vector<PlacedPlan> plans;
      for (const GroupCollective& each : w.collectives) plans.push_back(placed_plan(each, t));
      of_runs = latencies_of_runs(t, options, [&](const SimulateOptions& each) {
        std::vector<double> us;
        for (const SimulationResult& r : simulate_together(plans, t, each)) {
          us.push_back(r.latency_us);
        }
        return us;
      });
    }
    report.shown = {"name",       "algorithm", "codec",    "ranks",  "bytes",  "start_us",
                    "latency_us", "slowdown",  "alone_us", "p50_us", "p99_us", "max_us"};
    double end_us = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const GroupTime& time = times[i];
      const SimulationResult& r = time.result;
      const GroupCollective& c = w.collectives[i];
      end_us = std::max(end_us, time.start_us + r.latency_us);
      std::vector<Json> row = {c.name,
                               r.algorithm,
                               r.codec,
                               r.world_size,
                               fmt::format("{}", fmt::join(c.ranks, ",")),
                               r.payload_bytes,
                               time.start_us,
                               r.latency_us,
                               time.alone_us,
                               time.slowdown,
                               r.busbw_gb_per_s,
                               r.bottleneck};
      if (runs) {
        const std::vector<double>& us = of_runs[i];
        row.insert(row.end(), {quantile(us, 0.5), quantile(us, 0.99), us.back()});
      }
      report.rows.rows.push_back(std::move(row));
    }
    report.fields = {
        {"workload", w.name, w.summary},
        {"topology", t.name},
        {"end_us", end_us, "us, when the last collective ends"},
        {"sharing", sharing},
        {"model", std::string(kSimulatorModel),
         "sim/README.md says how far it is from measured times"},
        {"provenance", fmt::format("simulated: model {}, topology {}", kSimulatorModel, t.name)}};
    if (runs) {
      report.fields.push_back(
          {"runs", *runs, fmt::format("with seeds {} and up", seed.value_or(0))});
    }
    print(report, format);
  }

  /// Of --placement; all in their order where it is not given.
  std::vector<Rank> placed_ranks(const Topology& t) const {
    std::vector<Rank> list;
    if (placement.empty()) {
      list.resize(ranks.value_or(t.ranks.value));
      std::iota(list.begin(), list.end(), Rank{0});
      return list;
    }
    const char* at = placement.data();
    const char* end = at + placement.size();
    for (bool more = true; more;) {
      Rank rank = 0;
      const auto [stop, error] = std::from_chars(at, end, rank);
      const bool known = error == std::errc() && rank < t.ranks.value &&
                         std::find(list.begin(), list.end(), rank) == list.end();
      if (!known || (stop != end && *stop != ',')) {
        fail(
            "--placement is {}: allowed are different ranks of topology '{}', 0 to {}, separated "
            "by "
            "commas",
            quote(placement), t.name, t.ranks.value - 1);
      }
      list.push_back(rank);
      more = stop != end;
      at = stop + (more ? 1 : 0);
    }
    return list;
  }

  bool is_placed() const { return !placement.empty() || skew.has_value(); }

  /// 0: as a schedule file says.
  Rank world_size_on(const Topology& t) const {
    if (is_placed()) return static_cast<Rank>(placed_ranks(t).size());
    return ranks.value_or(schedule.file.empty() ? t.ranks.value : 0);
  }

  /// A row per size, or a line as nccl-tests prints it.
  void run_sizes(const std::vector<std::uint64_t>& payloads, const Codecs& c, DType type,
                 const Topology& t, const SimulateOptions& options) const {
    Report rows{"arlab.simulate.sizes/1"};
    rows.rows_name = "sizes";
    rows.rows.columns = {"bytes",          "latency_us",     "latency_us_low", "latency_us_high",
                         "algbw_gb_per_s", "busbw_gb_per_s", "wire_bytes",     "bottleneck"};
    if (library_chooses()) rows.rows.columns.emplace_back("algorithm");
    rows.shown = {"bytes",          "latency_us",     "latency_us_low", "latency_us_high",
                  "algbw_gb_per_s", "busbw_gb_per_s", "algorithm"};
    NcclReport nccl;
    NcclRun run;
    for (const std::uint64_t payload : payloads) {
      const Simulate simulated =
          prepared(world_size_on(t), payload / size_of(type), c, type, t, options);
      const SimulationResult r = simulated(options, t);
      const auto [low, high] = ends_of(interval(simulated, r, t, options));
      rows.rows.rows.push_back({r.payload_bytes, r.latency_us, low, high, r.algbw_gb_per_s,
                                r.busbw_gb_per_s, count_json(r.wire_bytes), r.bottleneck});
      if (library_chooses()) rows.rows.rows.back().emplace_back(r.algorithm);
      // The model does not tell an output that is the input from another one.
      run.lines.push_back({r.payload_bytes, 1, {r.latency_us}, NcclTime{r.latency_us}});
      if (payload != payloads.back()) continue;
      const std::string provenance =
          fmt::format("simulated: model {}, topology {}", r.model, r.topology);
      rows.fields = {
          {"topology", r.topology},
          {"algorithm", r.algorithm,
           library_chooses() ? "the library's choice for the largest" : library_note(r, t)},
          {"codec", r.codec},
          {"ranks", r.world_size},
          {"dtype", std::string(name_of(r.dtype))},
          {"model", r.model, "sim/README.md says how far it is from measured times"},
          {"provenance", provenance}};
      if (!high.is_null()) {
        rows.fields.push_back({"interval_percent", kIntervalPercent,
                               "of 100 measured times, so many should lie between latency_us_low "
                               "and latency_us_high"});
      }
      nccl.ranks = r.world_size;
      nccl.dtype = r.dtype;
      nccl.device = t.device.name;
      nccl.provenance = provenance;
      run.experiment = fmt::format("{} {} on {}", r.algorithm, r.codec, r.topology);
      run.collective = r.collective;
    }
    nccl.runs = {std::move(run)};
    if (format == Format::nccl) return write_stdout(nccl.text());
    if (format == Format::nccl_json) return write_stdout(nccl.json().dump(2) + '\n');
    print(rows, format);
  }

  SimulateOptions make_options() const {
    SimulateOptions options{.library = library, .multicast = multicast, .seed = seed.value_or(0)};
    if (library && multicast) {
      fail("--multicast with --library: NCCL spreads by --algorithm nvls; allowed is one of both");
    }
    if (sharing == "fifo") {
      options.sharing = Sharing::fifo;
    } else if (sharing != "max_min") {
      fail("--sharing is {}: allowed are max_min, fifo", quote(sharing));
    }
    return options;
  }

  bool is_chakra() const { return trace.ends_with(".chakra.json"); }

  /// The timeline beside the trace: t.json and t.png.
  std::string picture() const { return trace.substr(0, trace.size() - 4) + "png"; }

  /// What the options have made of the run, after the figures that say what was run.
  void add_options(Report& figures, const SimulationResult& result, const Topology& t) const {
    std::string implementation = "kernel";
    if (library && result.runs_nccl) {
      const auto algorithm = result.algorithm == nvls_algorithm().name
                                 ? std::optional(NcclAlgorithm::nvls)
                                 : std::optional(NcclAlgorithm::ring);
      implementation = describe(nccl_choice(t.device, result.collective, result.world_size,
                                            result.payload_bytes, algorithm));
    } else if (library) {
      const Implementation protocol =
          library_protocol(t.device, result.payload_bytes, result.world_size);
      implementation =
          fmt::format("library, {} protocol, {} channels",
                      protocol == Implementation::low_latency ? "low-latency" : "simple",
                      library_channels(t.device, result.payload_bytes));
    }
    std::vector<Field>& fields = figures.fields;
    const auto after = std::find_if(fields.begin(), fields.end(),
                                    [](const Field& f) { return f.name == "latency_us"; });
    fields.insert(after, {{"group_size", group_size_json(t, result),
                           "ranks per group of hierarchical algorithms"},
                          {"implementation", implementation, library_note(result, t)},
                          {"sharing", sharing,
                           sharing == "fifo" ? "of links: one message after the other"
                                             : "of links: all messages at once, max-min fair"}});
    if (trace.empty()) return;
    fields.push_back(
        {"trace", trace, is_chakra() ? "Chakra execution trace" : "open it at ui.perfetto.dev"});
    if (!no_plots && !is_chakra())
      fields.push_back({"timeline", picture(), "picture of the trace"});
  }

  /// Plans once.
  Simulate prepared(Rank world_size, std::uint64_t elements, const Codecs& c, DType type,
                    const Topology& t, const SimulateOptions& options) const {
    if (is_placed()) return prepared_at_places(elements, c, type, t);
    const std::uint64_t alignment = c.alignment();
    if (!schedule.file.empty()) {
      return [written = schedule.make(world_size, elements, alignment), c, type](
                 const SimulateOptions& each, const Topology& on) {
        return simulate({written, c, type, on, each});
      };
    }
    const auto [algorithm, request] = chosen(world_size, elements, c, type, t, options);
    if (options.trace != nullptr && algorithm != &nvls_algorithm()) {
      require_traceable(*algorithm, request);
    }
    Plan plan = plan_of(*algorithm, request, c, type, t, options);
    return [plan = std::move(plan)](const SimulateOptions& each, const Topology& on) {
      return simulate({plan, on, each});
    };
  }

  Simulate prepared_at_places(std::uint64_t elements, const Codecs& c, DType type,
                              const Topology& t) const {
    if (multicast) fail("--multicast with --placement or --skew: allowed is one of both");
    PlacedPlan placed{.plan = {}, .ranks = placed_ranks(t), .library = library};
    const auto world_size = static_cast<Rank>(placed.ranks.size());
    const std::uint64_t alignment = c.alignment();
    if (skew) {
      if (schedule.algorithm != "all_to_all") {
        fail("--skew is of --algorithm all_to_all: receivers that get more than others");
      }
      placed.plan = unequal_all_to_all(skewed(world_size, elements, *skew), c, type);
    } else if (!schedule.file.empty()) {
      placed.plan = plan_of(schedule.make(world_size, elements, alignment), c, type);
    } else {
      const SimulateOptions options{.library = library};
      const auto [algorithm, request] = chosen(world_size, elements, c, type, t, options);
      placed.plan = placeable_plan_of(*algorithm, request, c, type, t, library);
    }
    return [placed = std::move(placed)](const SimulateOptions& each, const Topology& on) {
      return simulate_together({&placed, 1}, on, each).front();
    };
  }

  /// The algorithm that runs, and what of it.
  std::pair<const Algorithm*, ScheduleRequest> chosen(Rank world_size, std::uint64_t elements,
                                                      const Codecs& c, DType type,
                                                      const Topology& t,
                                                      const SimulateOptions& options) const {
    ScheduleOptions named = schedule;
    if (library_chooses()) named.algorithm = library_algorithms(t).front();
    ScheduleRequest request = named.request(world_size, elements, c.alignment());
    request.options.group_size = group_size(t, world_size);
    return {library_chooses() ? &library_algorithm(request, c, type, t, options)
                              : &find_simulated_algorithm(named.algorithm),
            request};
  }

  Rank group_size(const Topology& t, Rank world_size) const {
    if (schedule.group_size) return *schedule.group_size;
    return placement.empty() ? default_group_size(t, world_size)
                             : default_group_size(t, placed_ranks(t));
  }

  bool library_chooses() const {
    return library && schedule.algorithm.empty() && schedule.file.empty();
  }

  /// Who has chosen the algorithm, or what is to be said about a choice.
  std::string library_note(const SimulationResult& result, const Topology& t) const {
    if (!library) return "";
    const std::string of = fmt::format("{}", fmt::join(library_algorithms(t), ", "));
    if (library_chooses()) return fmt::format("its own choice of algorithm, out of {}", of);
    if (library_has(t, result.algorithm)) return "";
    return fmt::format("its numbers are of {}, and say little about {}", of, result.algorithm);
  }

  /// Nothing where the algorithm has no groups, or a file says what they are.
  Json group_size_json(const Topology& t, const SimulationResult& result) const {
    if (!schedule.file.empty()) return nullptr;
    const auto& has =
        find_simulated_algorithm(library_chooses() ? result.algorithm : schedule.algorithm).options;
    const bool groups = std::any_of(has.begin(), has.end(), [](const AlgorithmOption& option) {
      return option.name == "group-size";
    });
    return groups ? Json(group_size(t, result.world_size)) : Json(nullptr);
  }

  static const char* bus_factor_words(Collective collective) {
    if (collective == Collective::broadcast) return "1";
    const bool twice =
        collective == Collective::all_reduce || collective == Collective::dispatch_combine;
    return twice ? "2 (n - 1) / n" : "(n - 1) / n";
  }

  static Report report(const SimulationResult& r, const Codec& c) {
    const std::size_t elements = r.payload_bytes / size_of(r.dtype);
    const double bits =
        r.wire_elements > 0
            ? 8 * static_cast<double>(r.wire_bytes) / static_cast<double>(r.wire_elements)
            : 8 * static_cast<double>(c.wire_bytes(r.dtype, elements)) /
                  static_cast<double>(elements);
    return {"arlab.simulate/2",
            {{"topology", r.topology},
             {"algorithm", r.algorithm},
             {"codec", r.codec},
             {"ranks", r.world_size},
             {"dtype", std::string(name_of(r.dtype))},
             {"bytes", r.payload_bytes, "payload of one rank"},
             {"latency_us", r.latency_us, "us"},
             {"algbw_gb_per_s", r.algbw_gb_per_s, "10^9 bytes/s: payload / latency"},
             {"busbw_gb_per_s", r.busbw_gb_per_s,
              fmt::format("as nccl-tests: algbw x {}", bus_factor_words(r.collective))},
             {"launch_us", r.breakdown.launch_us,
              "of the latency: kernel launch, delay of a straggler"},
             {"synchronisation_us", r.breakdown.synchronisation_us,
              "of the latency: flags and link latency"},
             {"wire_us", r.breakdown.wire_us, "of the latency: links at their bandwidth"},
             {"contention_us", r.breakdown.contention_us,
              "of the latency: stores that get in each other's way"},
             {"codec_us", r.breakdown.codec_us,
              "of the latency: encode, decode and sums that the wire does not hide"},
             {"release_us", r.breakdown.release_us,
              "of the latency: releases of tiles that nothing hides"},
             {"wire_bytes", count_json(r.wire_bytes), "all sends of all ranks"},
             {"wire_bits_per_element", bits, "average over all sends"},
             {"bottleneck", r.bottleneck},
             {"simulated_ranks", r.simulated_ranks,
              r.simulated_ranks == r.world_size ? "all" : "one stands for all, exactly"},
             {"model", r.model, "sim/README.md says how far it is from measured times"},
             {"provenance", fmt::format("simulated: model {}, topology {}", r.model, r.topology)}},
            "links",
            links(r)};
  }

  static Table links(const SimulationResult& r) {
    Table table{{"link_class", "links", "bytes", "utilisation", "busiest"}, {}};
    for (const LinkClassUse& use : r.links) {
      table.rows.push_back(
          {use.link_class, use.links, count_json(use.bytes), use.utilisation, use.busiest});
    }
    return table;
  }
};

}  // namespace

void add_simulate(CLI::App& app) {
  auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub =
      app.add_subcommand("simulate", "Simulate how long a collective takes on a topology");
  sub->add_option("--topology", command->topology,
                  "Topology (see arlab list topologies) or a .toml file")
      ->required();
  command->schedule.add_to(*sub);
  sub->add_option("--codec", command->codec,
                  "Codec (see arlab list codecs), or bits=4.5,encode_ops=9,decode_ops=4 for one "
                  "that is not there");
  command->sizes.add_to(*sub, "Payload of one rank (32K, 64M)", "as --schedule has it");
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32 [fp16 if the codec takes it]");
  auto* ranks = add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize,
                            "World size [all ranks of the topology]");
  sub->add_option("--placement", command->placement,
                  "Ranks of the topology that run it, in its order: 0,2,4,6 [the first --ranks]")
      ->excludes(ranks);
  sub->add_option(
      "--workload", command->workload,
      "Collectives of groups at once, in place of one: a .toml file (see sim/workload/README.md)");
  sub->add_option("--skew", command->skew,
                  "all_to_all: rank r receives in proportion to (r + 1)^-SKEW [0: equal slots]");
  add_integer(*sub, "--runs", command->runs, 1, 1000000,
              "With jitter: how latencies of so many runs are spread (p50, p99)");
  add_integer(*sub, "--seed", command->seed, 0, 1000000000, "Of the first run's jitter [0]");
  sub->add_option("--jitter-launch", command->launch_jitter,
                  "Mean by which ranks come late, us; exponential [as in the topology, else 0]");
  sub->add_option(
      "--jitter-message", command->message_jitter,
      "Mean by which messages arrive late, us; exponential [as in the topology, else 0]");
  sub->add_flag("--library", command->library,
                "As NCCL or RCCL run the schedule; codecs fp16, bf16 and fp32 only. Without "
                "--algorithm, by the fastest of the algorithms that the library has");
  sub->add_flag(
      "--multicast", command->multicast,
      "What a rank sends alike to all others leaves it once, where the switch spreads it");
  sub->add_option("--sharing", command->sharing,
                  "Messages share links max-min fairly (max_min) or take turns (fifo) [max_min]");
  auto* traced = sub->add_option(
      "--trace", command->trace,
      "Write the timeline to this .json, for ui.perfetto.dev, and as a .png beside it; to a "
      ".chakra.json: as a Chakra execution trace");
  sub->add_flag("--no-plots", command->no_plots, "No .png beside the trace")->needs(traced);
  sub->add_flag(
      "--sensitivity", command->sensitivity,
      "What the latency depends on: per cent that it grows by for each constant that grows "
      "by 1 %");
  add_format(*sub, command->format, Format::table, {Format::nccl, Format::nccl_json});
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
