#include "experiments/lab/time/simulate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "experiments/lab/files.h"
#include "experiments/lab/gpus/nccl_tests.h"
#include "experiments/lab/points.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/parallel.h"
#include "reference/words.h"
#include "sim/device/kernel_choice.h"
#include "sim/device/kernel_model.h"
#include "sim/device/library_choice.h"
#include "sim/flows.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/library/servers.h"
#include "sim/simulator.h"
#include "sim/trace/chakra.h"
#include "sim/trace/perfetto.h"
#include "sim/workload/workload.h"

namespace arlab::lab {
namespace {

using TopologyPtr = std::shared_ptr<const Topology>;

/// Machines by name, of which the last ones are kept; a file is read each time.
TopologyPtr topology_named(const std::string& name) {
  constexpr std::size_t kMost = 16;
  static std::mutex mutex;
  static std::deque<std::pair<std::string, TopologyPtr>> known;
  const std::scoped_lock lock(mutex);
  for (const auto& [known_name, topology] : known) {
    if (known_name == name) return topology;
  }
  auto topology = std::make_shared<const Topology>(find_topology(name));
  if (name.ends_with(".toml")) return topology;
  if (known.size() == kMost) known.pop_front();
  known.emplace_back(name, topology);
  return topology;
}

/// Simulates what was asked for, each time anew, on machines that differ in quantities only.
using Simulate = std::function<SimulationResult(const SimulateOptions&, const Topology&)>;

SimulateOptions options_of(const SimulateRequest& r) {
  if (r.library && r.multicast) {
    fail("--multicast with --library: NCCL spreads by --algorithm nvls; allowed is one of the two");
  }
  if (r.quantum && !(*r.quantum >= 0 && *r.quantum <= kLargestQuantity)) {
    fail("--quantum is {} us: allowed is 0, which is exact, to {:.0f}", *r.quantum,
         kLargestQuantity);
  }
  return {.library = r.library,
          .multicast = r.multicast,
          .quantum_us = r.quantum,
          .seed = r.seed.value_or(0)};
}

/// The machine, with what the request says of its multiprocessors and its jitter.
TopologyPtr topology_of(const SimulateRequest& r) {
  const TopologyPtr named = topology_named(r.topology);
  Jitter jitter = named->jitter;
  if (r.jitter_launch) jitter.launch_us = *r.jitter_launch;
  if (r.jitter_message) jitter.message_us = *r.jitter_message;
  if ((r.runs || r.seed) && !jitter.any()) {
    fail(
        "--runs and --seed: nothing varies from run to run on topology '{}'; needed is "
        "--jitter-launch, --jitter-message or a section [jitter] of its file",
        named->name);
  }
  if (!r.jitter_launch && !r.jitter_message && !r.sms) return named;
  Topology t = *named;
  if (r.sms) {
    if (r.library) fail("--sms limits arlab's kernels: allowed is --sms or --library");
    t.device = with_multiprocessors(t.device, *r.sms);
    for (DeviceOverride& each : t.device_overrides) {
      each.device = with_multiprocessors(each.device, *r.sms);
    }
  }
  t.jitter = jitter;
  require_valid(t, "--jitter-launch, --jitter-message");
  return std::make_shared<const Topology>(std::move(t));
}

bool is_placed(const SimulateRequest& r) { return !r.placement.empty() || r.skew.has_value(); }

bool library_chooses(const SimulateRequest& r) { return r.library && !r.collective.is_named(); }

bool is_chakra(const SimulateRequest& r) { return r.trace.ends_with(".chakra.json"); }

/// Returns the ranks of the placement; all in their order where there is none.
std::vector<Rank> placed_ranks(const SimulateRequest& r, const Topology& t) {
  std::vector<Rank> list;
  if (r.placement.empty()) {
    list.resize(r.ranks.value_or(t.ranks.value));
    std::iota(list.begin(), list.end(), Rank{0});
    return list;
  }
  list = integers_in(r.placement, "--placement", 0, t.ranks.value - 1);
  if (std::set(list.begin(), list.end()).size() < list.size()) {
    fail("--placement is {}: a rank of topology '{}' is named twice", quote(r.placement), t.name);
  }
  return list;
}

/// 0: as a schedule says.
Rank world_size_on(const SimulateRequest& r, const Topology& t) {
  if (is_placed(r)) return static_cast<Rank>(placed_ranks(r, t).size());
  return r.ranks.value_or(r.collective.has_schedule() ? 0 : t.ranks.value);
}

Rank group_size(const SimulateRequest& r, const Topology& t, Rank world_size) {
  if (const auto asked = r.collective.options.group_size()) return *asked;
  return r.placement.empty() ? default_group_size(t, world_size)
                             : default_group_size(t, placed_ranks(r, t));
}

/// Returns, by latency that `simulated` returns, its values in all runs.
template <class Simulated>
std::vector<std::vector<double>> latencies_of_runs(std::uint32_t runs,
                                                   const SimulateOptions& options,
                                                   Simulated simulated) {
  std::vector<std::vector<double>> of_run(runs);
  parallel_for(runs, 0, [&](unsigned, std::size_t i) {
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

const char* bus_factor_words(Collective collective) {
  constexpr const char* kWords[] = {"1", "(n - 1) / n", "2 (n - 1) / n"};
  return kWords[facts_of(collective).bus_passes];
}

/// Returns the approximations in the simulations, with their largest error; nothing where all was exact.
std::vector<Figure> approximations_of(std::span<const SimulationResult> results) {
  double quantum_us = 0;
  double error_us = 0;
  double factor = 1;
  double equal_us = 0;
  for (const SimulationResult& r : results) {
    quantum_us = std::max(quantum_us, r.quantum_us);
    error_us = std::max(error_us, r.quantum_error_us);
    factor = std::max(factor, r.equal_chunks_factor);
    equal_us = std::max(equal_us, equal_chunks_error_us(r));
  }
  std::vector<Figure> figures;
  if (quantum_us > 0) {
    figures = {{"quantum_us", quantum_us,
                "us: rates of messages that share links are solved for at most once in it; "
                "--quantum 0 is exact"},
               {"quantum_error_us", error_us, "us: about the most that the latency is off for it"}};
  }
  if (factor > 1) {
    figures.push_back({"equal_chunks_factor", factor,
                       "chunks differ by a tile, and all count as the largest: so many times as "
                       "much is sent and calculated as was asked for"});
    figures.push_back({"equal_chunks_error_us", equal_us,
                       "us: the most that the latency is too long or too short for it"});
  }
  return figures;
}

Table links_of(const SimulationResult& r) {
  Table table{{"link_class", "links", "bytes", "utilisation", "busiest"}, {}};
  for (const LinkClassUse& use : r.links) {
    table.rows.push_back({use.link_class, use.links, use.bytes, use.utilisation, use.busiest});
  }
  return table;
}

/// The unit of latencies of codecs with wires of a length that the data decide.
constexpr const char* kAtMost =
    "us, at most: of wires as long as they can be; --wire-bits says how long they are";

/// Two simulations for each fitted constant make an interval exact: with more ranks only when asked.
constexpr Rank kMostRanksOfInterval = 64;

}  // namespace

// ---------------------------------------------------------------- one collective

struct Simulation::State {
  SimulateRequest request;
  TopologyPtr topology;
  CodecPtr codec;
  CodecPtr inner;
  std::optional<Tail> tail;
  CodecPtr output;  ///< the tail's; null: none
  DType dtype = DType::fp16;
  SimulateOptions options;
  Simulate simulated;
  std::string_view kernel_words;  ///< which kernel is simulated
  SimulationResult times;
  std::optional<LatencyInterval> interval = {};

  explicit State(const SimulateRequest& asked) : request(asked), options(options_of(asked)) {
    if (request.codec.empty()) {
      fail("name the --codec (see arlab list codecs) or a --workload");
    }
    if (!request.trace.empty()) require_output_name("--trace", request.trace, {".json"});
    request.codec = split_codecs(request.codec, request.collective.options);
    codec = find_codec(request.codec);
    dtype = request.dtype.empty() ? default_dtype(*codec, {request.collective.inner(codec).get()})
                                  : parse_dtype(request.dtype);
    take_tail();
    inner = request.collective.inner(codec);
    if (request.wire_bits) {
      if (inner != codec) fail("--wire-bits: allowed with one codec, not with an inner one");
      if (!codec->info().has_variable_wire) {
        fail("--wire-bits: all wires of {} have one length; allowed are codecs whose wires vary",
             codec->name());
      }
      const double longest = request.tail_wire_bits.value_or(*request.wire_bits);
      if (longest < *request.wire_bits) {
        fail("--tail-wire-bits is {:g}, of long wires: allowed is no less than --wire-bits {:g}",
             longest, *request.wire_bits);
      }
      (void)with_measured_wires(codec, longest);  // throws before anything is written
      codec = inner = with_measured_wires(codec, *request.wire_bits);
    }
    for (const Codec* each : {codec.get(), inner.get()}) {
      each->wire_bytes(dtype, 1);  // throws when the codec does not take the dtype
    }
    topology = topology_of(request);
    if (!request.collective.has_schedule() && !request.sizes.given()) {
      fail("{} needs --bytes, the payload of one rank (64M)",
           library_chooses(request) ? "--library" : "--algorithm");
    }
  }

  /// Owners of rows send what the output's codec makes of these, in the half that is an all-gather.
  void take_tail() {
    tail = request.tail.parse();
    if (!tail) return;
    if (request.library || request.multicast || is_placed(request) || !request.trace.empty() ||
        request.collective.has_schedule()) {
      fail(
          "--tail: allowed are algorithms in arlab's kernels, not --library, --multicast, "
          "--placement, --skew, --schedule or --trace");
    }
    output = find_output_codec(*tail);
    const TailPlacement place = request.tail.placement();
    if (!place.at_owner || output == nullptr) return;
    if (!request.collective.inner_codec().empty()) {
      fail("--inner-codec: owners of rows send what {} encodes; allowed is none", output->name());
    }
    request.collective.options.set("inner_codec", "ag:" + output->name());
  }

  std::uint64_t alignment() const {
    const Codecs codecs(*codec, *inner, output ? *output : *codec);
    return codecs.alignment(tail ? tail->hidden : 1);
  }

  /// As a schedule says, where no size is given.
  std::vector<std::uint64_t> payloads() const {
    if (!request.sizes.given()) return {0};
    return request.sizes.list(size_of(dtype));
  }

  void run(std::uint64_t payload) {
    std::optional<PerfettoTrace> timeline;
    std::optional<ChakraTrace> chakra;
    if (is_chakra(request)) options.trace = &chakra.emplace();
    if (!request.trace.empty() && !is_chakra(request)) options.trace = &timeline.emplace();
    std::tie(simulated, kernel_words) = prepared(payload / size_of(dtype), options);
    times = simulated(options, *topology);
    options.trace = nullptr;
    if (timeline) timeline->write(request.trace, times);
    if (chakra) chakra->write(request.trace, times);
  }

  double latency_on(const Topology& t) const { return simulated(options, t).latency_us; }

  using Prepared = std::pair<Simulate, std::string_view>;

  /// Plans once. And by which kernel it is.
  Prepared prepared(std::uint64_t elements, const SimulateOptions& how) const {
    if (is_placed(request)) return prepared_at_places(elements);
    const Rank world_size = world_size_on(request, *topology);
    const Codecs codecs(*codec, *inner);
    if (request.collective.has_schedule()) {
      Schedule written = request.collective.make(world_size, elements, codecs.alignment());
      const std::string_view by =
          kernel_in_words(topology->device, plan_of(written, codecs, dtype));
      return {[written = std::move(written), codecs, type = dtype](const SimulateOptions& each,
                                                                   const Topology& on) {
                return arlab::simulate({written, codecs, type, on, each});
              },
              by};
    }
    const auto [algorithm, asked] = chosen(world_size, elements, how, *topology);
    if (how.trace != nullptr && algorithm != &nvls_algorithm()) {
      require_traceable(*algorithm, asked);
    }
    const TailWork rows = tail ? rows_of(world_size, elements) : TailWork{};
    Plan plan = plan_of(*algorithm, asked, codecs, dtype, *topology, how);
    if (tail && plan.collective != Collective::all_reduce) {
      fail("a tail stands behind an all-reduce, not behind {}", words_for(plan.collective));
    }
    plan.tail = rows;
    const std::string_view by = kernel_in_words(topology->device, plan);
    return {[plan = std::move(plan)](const SimulateOptions& each, const Topology& on) {
              return arlab::simulate({plan, on, each});
            },
            by};
  }

  /// Rows of the rank that makes most.
  TailWork rows_of(Rank world_size, std::uint64_t elements) const {
    if (elements % tail->hidden != 0) {
      fail("--tail: {} elements of a rank are not whole rows of {}", elements, tail->hidden);
    }
    const bool residual = tail->adds_residual;
    const TailPlacement place = request.tail.placement();
    if (!place.at_owner) return tail_work(elements, dtype, residual, output.get());
    ScheduleRequest asked = request.collective.request(world_size, elements, alignment());
    asked.options.set("inner_codec", FieldValue());
    const Schedule made =
        with_tail(make_schedule(request.collective.algorithm, asked), *tail, place);
    std::vector<std::uint64_t> rows(world_size);
    for (const Op& op : made.ops) {
      if (op.makes == OutputKind::normalized) rows[op.rank] += made.chunks[op.chunk].size();
    }
    return tail_work(std::ranges::max(rows), dtype, residual, nullptr);
  }

  /// The all-reduce alone, then a kernel of residual, norm and quantization.
  Figure separate_figure() const {
    SimulateRequest alone = request;
    alone.tail = {};
    if (request.tail.placement().at_owner && output)
      alone.collective.options.set("inner_codec", FieldValue());
    const double all_reduce_us = Simulation(alone).times().latency_us;
    const std::uint64_t elements = times.payload_bytes / size_of(dtype);
    const TailWork work = tail_work(elements, dtype, tail->adds_residual, output.get());
    const double us = separate_tail_us(topology->device, dtype, work);
    return {"latency_us_separate", all_reduce_us + us,
            fmt::format("us: the all-reduce alone takes {:.4g}, and one kernel more {:.4g}",
                        all_reduce_us, us)};
  }

  Prepared prepared_at_places(std::uint64_t elements) const {
    if (request.multicast) {
      fail("--multicast with --placement or --skew: allowed is one of the two");
    }
    const Codecs codecs(*codec, *inner);
    PlacedPlan placed{.plan = {}, .ranks = placed_ranks(request, *topology)};
    const auto world_size = static_cast<Rank>(placed.ranks.size());
    if (request.skew) {
      if (request.collective.algorithm != "all_to_all") {
        fail("--skew: allowed only with --algorithm all_to_all, whose receivers it makes unequal");
      }
      placed.plan = unequal_all_to_all(skewed(world_size, elements, *request.skew), codecs, dtype);
    } else if (request.collective.has_schedule()) {
      placed.plan =
          plan_of(request.collective.make(world_size, elements, codecs.alignment()), codecs, dtype);
    } else {
      const Topology part =
          request.library ? library_part(*topology, placed.ranks) : Topology(*topology);
      const auto [algorithm, asked] =
          chosen(world_size, elements, {.library = request.library}, part);
      placed.plan = placeable_plan_of(*algorithm, asked, codecs, dtype, *topology, placed.ranks,
                                      request.library);
    }
    const std::string_view by = kernel_in_words(topology->device, placed.plan);
    return {[placed = std::move(placed)](const SimulateOptions& each, const Topology& on) {
              return simulate_together({&placed, 1}, on, each).front();
            },
            by};
  }

  /// The algorithm that runs, and what of it; the library chooses on this machine.
  std::pair<const Algorithm*, ScheduleRequest> chosen(Rank world_size, std::uint64_t elements,
                                                      const SimulateOptions& how,
                                                      const Topology& on) const {
    const Codecs codecs(*codec, *inner);
    CollectiveSpec named = request.collective;
    if (library_chooses(request)) named.algorithm = library_algorithms(on, world_size).front();
    ScheduleRequest asked = named.request(world_size, elements, alignment());
    asked.options.set("group_size", group_size(request, *topology, world_size));
    return {library_chooses(request) ? &library_algorithm(asked, codecs, dtype, on, how)
                                     : &find_simulated_algorithm(named.algorithm),
            asked};
  }

  /// How it was run: by kernels, or by which protocol of the vendor's library.
  std::string implementation() const {
    if (!request.library) return "kernel";
    const bool is_nccl = topology->device.library->chooses_by_expectation();
    const bool is_program = times.library->algorithm == LibraryAlgorithm::program;
    return fmt::format("{}, {}{}", is_nccl ? "NCCL" : "library",
                       is_program ? times.algorithm + ", " : "", describe(*times.library));
  }

  /// Returns the kernel, and whose times it has where the machine's file does not describe arlab's own.
  std::string kernel() const {
    if (topology->device.blocks || request.library) return std::string(kernel_words);
    const std::string& of = topology->device.launch_us.note;
    return fmt::format("{}, its launch: {}", kernel_words, of.substr(0, of.find(": arlab ")));
  }

  /// Data decide the length of the wires, which is unknown here: the longest possible are simulated.
  bool is_at_most() const {
    if (request.wire_bits) return false;
    return codec->info().has_variable_wire || inner->info().has_variable_wire;
  }

  /// Returns who has chosen the algorithm, or a remark on the choice.
  std::string library_note() const {
    if (!request.library) return kernel();
    const std::string of =
        fmt::format("{}", fmt::join(library_algorithms(*topology, times.world_size), ", "));
    if (library_chooses(request)) return fmt::format("its own choice of algorithm, out of {}", of);
    if (library_has(*topology, times.world_size, times.algorithm)) return "";
    return fmt::format("its numbers are of {}, and say little about {}", of, times.algorithm);
  }

  /// Nothing where the algorithm has no groups, or a schedule says what they are.
  std::optional<Rank> shown_group_size() const {
    if (request.collective.has_schedule()) return std::nullopt;
    const Algorithm& algorithm = find_simulated_algorithm(
        library_chooses(request) ? times.algorithm : request.collective.algorithm);
    if (algorithm.option("group_size") == nullptr) return std::nullopt;
    return group_size(request, *topology, times.world_size);
  }

  /// In what the run lies beyond those that the machine's constants were fitted to.
  CollectiveRun run_without_options() const {
    CollectiveRun run{.library = request.library,
                      .ranks = times.world_size,
                      .bytes = times.payload_bytes,
                      .algorithm = times.algorithm,
                      .codecs = {codec->info().name},
                      .dtype = dtype,
                      .apart = !request.placement.empty() &&
                               spans_servers(*topology, placed_ranks(request, *topology))};
    if (inner != codec) run.codecs.push_back(inner->info().name);
    return run;
  }

  std::vector<Extrapolation> extrapolations() const {
    std::vector<Extrapolation> all = extrapolations_elsewhere(*topology, run_without_options());
    std::ranges::move(beyond_kernels(request.sms.has_value(), tail.has_value()),
                      std::back_inserter(all));
    if (request.multicast) all.push_back({{}, 1, "no run with --multicast was measured"});
    if (request.skew) all.push_back({{}, 1, "no run with --skew was measured"});
    if (is_at_most()) all.push_back({{}, 1, kLongestWires});
    return all;
  }

  double wire_bits() const {
    const std::uint64_t elements = times.payload_bytes / size_of(dtype);
    const bool sends = times.wire_elements > 0;
    const double bytes = sends ? static_cast<double>(times.wire_bytes)
                               : static_cast<double>(codec->wire_bytes(dtype, elements));
    return 8 * bytes / static_cast<double>(sends ? times.wire_elements : WideCount{elements});
  }

  /// How latencies of runs are spread that jitter makes differ.
  std::vector<Figure> spread() const {
    const std::vector<double> sorted =
        latencies_of_runs(*request.runs, options, [this](const SimulateOptions& each) {
          return std::vector<double>{simulated(each, *topology).latency_us};
        }).front();
    const double mean =
        std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
    return {{"runs", *request.runs, fmt::format("with seeds {} and up", options.seed)},
            {"mean_us", mean, "us, of the runs' latencies"},
            {"min_us", sorted.front()},
            {"p50_us", quantile(sorted, 0.5)},
            {"p99_us", quantile(sorted, 0.99)},
            {"max_us", sorted.back()}};
  }
};

Simulation::Simulation(std::shared_ptr<State> state) : state_(std::move(state)) {}

Simulation::Simulation(const SimulateRequest& request) : state_(std::make_shared<State>(request)) {
  state_->run(state_->payloads().front());
}

std::vector<Extrapolation> beyond_kernels(bool fewer, bool tails) {
  std::vector<Extrapolation> all;
  if (fewer) {
    all.push_back({Beyond::unmeasured, 0.5,
                   "constants were fitted to kernels that have all multiprocessors"});
  }
  if (tails) {
    all.push_back({Beyond::unmeasured, 0.6, "no constants were fitted to runs with --tail"});
  }
  return all;
}

std::vector<std::string> assumed_of_tails(const Topology& topology, std::string_view algorithm,
                                          std::string_view separate) {
  const Tails& tails = topology.device.tails;
  std::vector<std::string> assumed = {
      "fused tails take what those in one_shot's kernel do, separate ones what PyTorch's compiled "
      "does"};
  if (!is_given(tails.fused_us) || !is_given(tails.kernel_us) || !is_given(tails.efficiency)) {
    assumed.emplace_back("they take what they take on the H200");
  }
  if (algorithm != "one_shot") {
    assumed.push_back(
        fmt::format("kernels of {} have tails behind them, which takes {}", algorithm, separate));
  }
  return assumed;
}

const SimulationResult& Simulation::times() const { return state_->times; }
bool Simulation::is_at_most() const { return state_->is_at_most(); }
double Simulation::wire_bits_per_element() const { return state_->wire_bits(); }
const Topology& Simulation::topology() const { return *state_->topology; }

std::vector<std::string> Simulation::extrapolated() const {
  return reasons_of(state_->extrapolations());
}

LatencyInterval Simulation::interval() const {
  if (!state_->interval) {
    std::function<double(const Topology&)> again;
    if (times().world_size <= kMostRanksOfInterval || state_->request.sensitivity) {
      again = [this](const Topology& t) { return state_->latency_on(t); };
    }
    state_->interval = interval_of(topology(), state_->run_without_options(), times().latency_us,
                                   state_->extrapolations(), again);
  }
  return *state_->interval;
}

std::vector<std::string> Simulation::assumed() const {
  std::vector<std::string> assumed = assumed_of(topology(), state_->run_without_options());
  if (!state_->tail) return assumed;
  const bool at_owner = state_->request.tail.placement().at_owner;
  add_new(assumed, assumed_of_tails(topology(), at_owner ? "one_shot" : times().algorithm,
                                    "latency_us_separate"));
  if (at_owner) {
    assumed.emplace_back("no kernel has tails at owners yet; all ranks decode what owners send");
  }
  return assumed;
}

Table Simulation::sensitivity() const {
  const Topology t = with_assumptions(topology(), state_->run_without_options());
  std::vector<Elasticity> elasticities =
      elasticities_of(t, [this](const Topology& changed) { return state_->latency_on(changed); });
  std::ranges::stable_sort(elasticities, [](const Elasticity& a, const Elasticity& b) {
    return std::abs(a.percent_per_percent) > std::abs(b.percent_per_percent);
  });
  std::map<std::string, double> sigma;
  const std::optional<Uncertainty>& fit = fit_of(t, state_->run_without_options());
  for (std::size_t i = 0; fit && i < fit->constants.size(); ++i) {
    sigma[fit->constants[i]] = fit->sigma_percent[i];
  }
  std::map<std::string, Source> sources;
  for (const NamedQuantity& named : quantities_of(t)) sources[named.key] = named.quantity.source;
  Table table{{"constant", "value", "source", "percent_per_percent", "sigma_percent"}, {}};
  for (const Elasticity& each : elasticities) {
    if (each.percent_per_percent == 0) continue;
    const auto known = sigma.find(each.key);
    table.rows.push_back({each.key, each.value, name_of(sources[each.key]),
                          each.percent_per_percent,
                          known == sigma.end() ? Cell() : Cell(known->second)});
  }
  return table;
}

std::string Simulation::timeline() const {
  PerfettoTrace trace;
  SimulateOptions options = state_->options;
  options.trace = &trace;
  const std::uint64_t elements = state_->times.payload_bytes / size_of(state_->dtype);
  const SimulationResult times = state_->prepared(elements, options).first(options, topology());
  return trace.json(times);
}

Result Simulation::result(bool with_interval) const {
  const SimulateRequest& request = state_->request;
  const SimulationResult& r = times();
  std::vector<Figure> all = {
      {"topology", r.topology}, {"algorithm", r.algorithm}, {"codec", r.codec}};
  const auto add = [&all](std::vector<Figure> more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  };
  if (!request.collective.inner_codec().empty())
    add({{"inner_codec", words_of(request.collective.options.get("inner_codec"))}});
  add({{"ranks", r.world_size},
       {"dtype", name_of(r.dtype)},
       {"bytes", r.payload_bytes, "payload of one rank"},
       {"group_size", state_->shown_group_size(), "ranks per group of hierarchical algorithms"}});
  add(option_figures(request.collective.options));
  add({{"implementation", state_->implementation(), state_->library_note()},
       {"kernel", request.library ? Cell() : Cell(state_->kernel())},
       {"latency_us", r.latency_us, state_->is_at_most() ? kAtMost : "us"}});
  if (state_->tail) {
    add({{"tail", name_of(*state_->tail),
          request.tail.placement().at_owner ? "at the owners of sums" : "behind the sum"},
         state_->separate_figure()});
  }
  if (const std::vector<std::string> said = assumed(); state_->tail || !said.empty()) {
    add({assumed_figure(said)});
  }
  if (request.tail_wire_bits) {
    SimulateRequest tail = request;
    tail.trace.clear();
    tail.wire_bits = std::exchange(tail.tail_wire_bits, {});
    add({{"latency_us_tail", Simulation(tail).times().latency_us,
          fmt::format("us, where wires have {:g} bits per element", *tail.wire_bits)}});
  }
  if (with_interval) {
    const LatencyInterval known = interval();
    const std::optional<Uncertainty>& fit = fit_of(topology(), state_->run_without_options());
    const std::string guess = guess_in_words(topology());
    add({{"latency_us_low", known.low_us,
          fmt::format("us, {:.0f} % interval: low", kIntervalPercent)},
         {"latency_us_high", known.high_us,
          fmt::format("us, high: {:.0f} of 100 measured times should lie between it and "
                      "latency_us_low",
                      kIntervalPercent)},
         {"interval_from",
          fit             ? fit->note
          : guess.empty() ? "no fit of this machine: hold-outs of others"
                          : guess,
          "what the constants were fitted to"}});
  }
  add({extrapolated_figure(extrapolated())});
  add(approximations_of({&r, 1}));
  add({{"algbw_gb_per_s", r.algbw_gb_per_s, "10^9 bytes/s: payload / latency"},
       {"busbw_gb_per_s", r.busbw_gb_per_s,
        fmt::format("as nccl-tests: algbw x {}", bus_factor_words(r.collective))}});
  if (r.breakdown.agreement_us > 0) {
    add({{"agreement_us", r.breakdown.agreement_us,
          "of the latency: ranks agree on scales that they share"}});
  }
  add({{"launch_us", r.breakdown.launch_us, "of the latency: kernel launch, delay of a straggler"},
       {"synchronisation_us", r.breakdown.synchronisation_us,
        "of the latency: flags and link latency"},
       {"wire_us", r.breakdown.wire_us, "of the latency: links at their bandwidth"},
       {"contention_us", r.breakdown.contention_us,
        "of the latency: stores that get in each other's way"},
       {"codec_us", r.breakdown.codec_us,
        "of the latency: encode, decode and sums that the wire does not hide"},
       {"release_us", r.breakdown.release_us,
        "of the latency: releases of tiles that nothing hides"},
       {"wire_bytes", r.wire_bytes,
        r.equal_chunks_factor > 1 ? "all sends of all ranks, as if all chunks were the largest"
                                  : "all sends of all ranks"},
       {"wire_bits_per_element", state_->wire_bits(),
        state_->is_at_most() ? "at most: the data decide" : "average over all sends"},
       {"bottleneck", r.bottleneck},
       {"simulated_ranks", r.simulated_ranks,
        r.simulated_ranks == r.world_size ? "all" : "one stands for all, exactly"},
       {"model", r.model, "sim/README.md says how far it is from measured times"},
       {"provenance",
        fmt::format("simulated: model {}, topology {}", r.model, name_with_caveat(topology()))}});
  if (has_root_ports(topology())) {
    add({{"collapses", r.collapses, r.collapses.empty() ? "" : kCollapses, in_words(r.collapses)}});
  }
  if (!request.trace.empty()) {
    add({{"trace", request.trace,
          is_chakra(request) ? "Chakra execution trace" : "open it at ui.perfetto.dev"}});
  }
  if (request.runs) add(state_->spread());
  Result result{"arlab.simulate/2", std::move(all), "links", links_of(r)};
  if (request.sensitivity) {
    result.rows_name = "sensitivity";
    result.rows = sensitivity();
  }
  result.shown_figures = words_in(
      "topology algorithm codec inner_codec ranks bytes latency_us latency_us_low "
      "latency_us_high latency_us_separate assumed latency_us_tail quantum_us quantum_error_us "
      "equal_chunks_factor "
      "equal_chunks_error_us busbw_gb_per_s wire_bits_per_element bottleneck "
      "implementation runs p50_us p99_us "
      "max_us "
      "collapses trace timeline provenance");
  if (!extrapolated().empty()) result.shown_figures.emplace_back("extrapolated");
  mark_guesses(result);
  return result;
}

// ---------------------------------------------------------------- several

std::vector<std::string> names_in(const std::string& list, const std::string& option) {
  std::error_code error;
  if (list.find(',') != std::string::npos && std::filesystem::exists(list, error)) return {list};
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    join_codecs(items);
    if (items.back().empty()) fail("{} is {}: there is an empty name", option, quote(list));
    if (std::ranges::count(items, items.back()) > 1) {
      fail("{} is {}: '{}' is named twice", option, quote(list), items.back());
    }
    begin = end + 1;
  }
  return items;
}

std::vector<ListedRun> listed_runs(const std::string& topologies, const std::string& algorithms,
                                   const std::string& codecs) {
  const auto names = [](const std::string& text, const char* option) {
    return text.empty() ? std::vector{text} : names_in(text, option);
  };
  return points_of(names(topologies, "--topology"), names(algorithms, "--algorithm"),
                   names(codecs, "--codec"));
}

bool has_several_topologies(std::span<const ListedRun> runs) {
  return std::get<0>(runs.front()) != std::get<0>(runs.back());
}

namespace {

std::vector<ListedRun> listed_runs(const SimulateRequest& r) {
  return lab::listed_runs(r.topology, r.collective.algorithm, r.codec);
}

bool has_lists(const SimulateRequest& r) { return listed_runs(r).size() > 1; }

}  // namespace

void add_new(std::vector<std::string>& reasons, const std::vector<std::string>& more) {
  for (const std::string& reason : more) {
    if (std::ranges::count(reasons, reason) == 0) reasons.push_back(reason);
  }
}

Figure extrapolated_figure(const std::vector<std::string>& reasons) {
  return {"extrapolated", reasons, "in what no fit and no measurement has seen the like",
          fmt::format("{}", fmt::join(reasons, "; "))};
}

Figure assumed_figure(const std::vector<std::string>& assumed) {
  return {"assumed", assumed, "", fmt::format("{}", fmt::join(assumed, "; "))};
}

void add_assumed(Result& result, const std::vector<std::string>& assumed) {
  if (assumed.empty()) return;
  result.figures.push_back(assumed_figure(assumed));
  if (!result.shown_figures.empty()) result.shown_figures.emplace_back("assumed");
}

Figure extrapolated_figure(const Table& table) {
  std::map<std::string, std::vector<std::string>> runs;  // by reasons
  for (const std::vector<Cell>& row : table.rows) {
    const auto text = [&](const char* column) {
      const auto found = std::ranges::find(table.columns, column);
      return cell_text(row[static_cast<std::size_t>(found - table.columns.begin())]);
    };
    add_new(runs[text("extrapolated")], {text("algorithm") + " " + text("codec")});
  }
  std::vector<std::string> reasons;
  for (const auto& [reason, of] : runs) {
    const std::string named = runs.size() > 1 ? names_beside("", of) + ": " : "";
    if (!reason.empty()) reasons.push_back(named + reason);
  }
  return extrapolated_figure(reasons);
}

bool is_single(const SimulateRequest& request) {
  const Sizes& sizes = request.sizes;
  return request.workload.empty() && !has_lists(request) && sizes.least.empty() &&
         sizes.bytes.size() < 2 &&
         (sizes.bytes.empty() || sizes.bytes.front().find("..") == std::string::npos);
}

std::vector<Simulation> simulate_sizes(const SimulateRequest& request) {
  if (!request.trace.empty()) fail("--trace: allowed with one size, and without --format nccl");
  if (request.runs) fail("--runs: allowed with one size, and without --format nccl");
  if (request.sensitivity) fail("--sensitivity: allowed with one size, and without --format nccl");
  if (has_lists(request)) fail("--format nccl: allowed with one topology, algorithm and codec");
  const Simulation::State first(request);
  std::vector<Simulation> all;
  for (const std::uint64_t payload : first.payloads()) {
    auto state = std::make_shared<Simulation::State>(first);
    state->run(payload);
    all.push_back(Simulation(std::move(state)));
  }
  return all;
}

namespace {

/// Columns of a row per run, behind those that say which it is, and such a row.
const std::vector<std::string> kRunColumns = words_in(
    "bytes latency_us latency_us_low latency_us_high algbw_gb_per_s busbw_gb_per_s wire_bytes "
    "bottleneck");
std::vector<std::string> last_run_columns(const SimulateRequest& r) {
  std::vector<std::string> columns = words_in("wire_bits_per_element group_size");
  if (!r.collective.inner_codec().empty()) columns.emplace_back("inner_codec");
  if (r.tail.is_set()) columns.insert(columns.end(), {"tail", "latency_us_separate"});
  if (r.tail_wire_bits) columns.emplace_back("latency_us_tail");
  for (const Figure& each : option_figures(r.collective.options)) columns.push_back(each.name);
  columns.insert(columns.end(), {"extrapolated", "assumed", "provenance"});
  return columns;
}

}  // namespace

std::vector<Cell> cells_of(const Simulation& simulation, const std::vector<std::string>& columns) {
  const Result whole = simulation.result();
  std::vector<Cell> row;
  for (const std::string& column : columns) {
    const auto figure = std::ranges::find(whole.figures, column, &Figure::name);
    const bool is_list = column == "extrapolated" || column == "assumed";
    if (figure == whole.figures.end()) {
      row.push_back(is_list ? Cell("") : Cell());
    } else {
      row.push_back(is_list ? Cell(figure->words) : figure->value);
    }
  }
  return row;
}

Figure interval_figure() {
  return {"interval_percent", kIntervalPercent,
          "of 100 measured times, so many should lie between latency_us_low and latency_us_high"};
}

namespace {

/// A row for each size of each topology, algorithm and codec.
Result result_of_list(const SimulateRequest& request) {
  if (!request.trace.empty() || request.runs || request.sensitivity) {
    fail(
        "--trace, --runs and --sensitivity: allowed with one topology, algorithm and codec, not "
        "with lists");
  }
  Result result{"arlab.simulate.list/1"};
  result.rows_name = "simulations";
  result.rows.columns = words_in("topology ranks dtype algorithm codec implementation kernel");
  for (const auto& columns : {kRunColumns, last_run_columns(request)}) {
    result.rows.columns.insert(result.rows.columns.end(), columns.begin(), columns.end());
  }
  const std::vector<ListedRun> runs = listed_runs(request);
  std::vector<SimulationResult> results;
  std::vector<std::string> assumed;
  bool at_most = false;
  for (const ListedRun& run : runs) {
    SimulateRequest one = request;
    std::tie(one.topology, one.collective.algorithm, one.codec) = run;
    for (const Simulation& each : simulate_sizes(one)) {
      result.rows.rows.push_back(cells_of(each, result.rows.columns));
      results.push_back(each.times());
      at_most = at_most || each.is_at_most();
      add_new(assumed, each.assumed());
    }
  }
  result.shown = words_in("algorithm codec bytes latency_us latency_us_low latency_us_high");
  if (has_several_topologies(runs)) result.shown.insert(result.shown.begin(), "topology");
  result.shown.insert(result.shown.end(), {"busbw_gb_per_s", "wire_bits_per_element"});
  result.figures = {
      {"model", kSimulatorModel, "sim/README.md says how far it is from measured times"}};
  if (at_most) result.figures.push_back({"latencies", "at most", kAtMost});
  std::ranges::move(approximations_of(results), std::back_inserter(result.figures));
  add_assumed(result, assumed);
  result.figures.push_back(extrapolated_figure(result.rows));
  result.figures.push_back(interval_figure());
  return result;
}

/// A row per size.
Result result_of_sizes(const SimulateRequest& request) {
  const std::vector<Simulation> all = simulate_sizes(request);
  const bool chooses = library_chooses(request);
  Result result{"arlab.simulate.sizes/1"};
  result.rows_name = "sizes";
  result.rows.columns = kRunColumns;
  if (chooses) result.rows.columns.emplace_back("algorithm");
  for (std::string& column : last_run_columns(request)) {
    result.rows.columns.push_back(std::move(column));
  }
  result.shown = {"bytes",          "latency_us",     "latency_us_low", "latency_us_high",
                  "algbw_gb_per_s", "busbw_gb_per_s", "algorithm",      "wire_bits_per_element"};
  for (const Simulation& each : all) {
    result.rows.rows.push_back(cells_of(each, result.rows.columns));
  }
  if (all.back().is_at_most()) result.figures.push_back({"latencies", "at most", kAtMost});
  Result last = all.back().result(false);
  for (Figure& figure : last.figures) {
    const std::string& name = figure.name;
    if (name == "algorithm") {
      const auto by = std::ranges::find(last.figures, "implementation", &Figure::name);
      figure.note = chooses ? "the library's choice for the largest" : by->note;
    }
    if (name == "topology" || name == "algorithm" || name == "codec" || name == "ranks" ||
        name == "dtype" || name == "model" || name == "provenance" || name == "guessed_codecs") {
      result.figures.push_back(std::move(figure));
    }
  }
  std::vector<SimulationResult> results;
  for (const Simulation& each : all) results.push_back(each.times());
  std::ranges::move(approximations_of(results), std::back_inserter(result.figures));
  std::vector<std::string> extrapolated;
  for (const Simulation& each : all) add_new(extrapolated, each.extrapolated());
  result.figures.push_back(extrapolated_figure(extrapolated));
  add_assumed(result, all.back().assumed());
  result.figures.push_back(interval_figure());
  mark_guesses(result);
  return result;
}

/// The interval of one of several collectives at once, which nobody has timed together.
LatencyInterval interval_at_once(const Topology& t, const SimulationResult& r,
                                 const CollectiveRun& run) {
  constexpr double kAtOnce = 0.3;
  std::vector<Extrapolation> beyond = extrapolations_elsewhere(t, run);
  beyond.push_back({Beyond::unmeasured, kAtOnce, ""});
  return interval_of(t, run, r.latency_us, beyond);
}

/// A row for each collective.
Result result_of_workload(const SimulateRequest& request) {
  if (!request.codec.empty() || request.sizes.given() || request.collective.is_named() ||
      !request.placement.empty() || !request.dtype.empty() || request.ranks || request.skew ||
      request.library || request.multicast || request.sensitivity || !request.trace.empty()) {
    fail(
        "--workload says what runs; besides it are allowed --topology, --sms, --quantum, "
        "--runs, --seed, --jitter-launch, --jitter-message and --format");
  }
  const SimulateOptions options = options_of(request);
  const TopologyPtr topology = topology_of(request);
  const Topology& t = *topology;
  const Workload w = read_workload(request.workload);
  const PlannedWorkload planned(w, t);
  const std::vector<GroupTime> times = planned.compared(options);
  Result result{"arlab.simulate.workload/1"};
  result.rows_name = "collectives";
  result.rows.columns = words_in(
      "name algorithm codec ranks placement bytes start_us end_us latency_us alone_us slowdown "
      "busbw_gb_per_s bottleneck latency_us_low latency_us_high");
  std::vector<std::vector<double>> of_runs;
  if (request.runs) {
    for (const char* column : {"p50_us", "p99_us", "max_us"}) {
      result.rows.columns.emplace_back(column);
    }
    of_runs = latencies_of_runs(*request.runs, options, [&](const SimulateOptions& each) {
      std::vector<double> us;
      for (const GroupTime& time : planned.together(each)) us.push_back(time.result.latency_us);
      return us;
    });
  }
  result.shown = words_in(
      "name algorithm codec ranks bytes start_us end_us latency_us slowdown alone_us p50_us p99_us "
      "max_us");
  double end_us = 0;
  std::vector<std::string> extrapolated = {"no collectives at once were measured"};
  std::vector<std::string> assumed;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const GroupTime& time = times[i];
    const SimulationResult& r = time.result;
    const bool computes = i >= w.collectives.size();
    end_us = std::max(end_us, time.end_us);
    const auto sent = [computes](Cell cell) { return computes ? Cell() : std::move(cell); };
    std::vector<Cell> row = {planned.entries()[i].name,
                             r.algorithm,
                             sent(r.codec),
                             r.world_size,
                             fmt::format("{}", fmt::join(planned.entries()[i].ranks, ",")),
                             sent(r.payload_bytes),
                             time.start_us,
                             time.end_us,
                             r.latency_us,
                             time.alone_us,
                             time.slowdown,
                             sent(r.busbw_gb_per_s),
                             sent(r.bottleneck)};
    CollectiveRun run = run_of(r);
    run.apart = spans_servers(t, planned.entries()[i].ranks);
    const LatencyInterval interval = interval_at_once(t, r, run);
    if (r.wire_elements > 0) add_new(extrapolated, reasons_of(extrapolations_of(t, run)));
    if (r.wire_elements > 0) add_new(assumed, assumed_of(t, run));
    row.insert(row.end(), {sent(interval.low_us), sent(interval.high_us)});
    if (request.runs) {
      const std::vector<double>& us = of_runs[i];
      for (const double each : {quantile(us, 0.5), quantile(us, 0.99), us.back()}) {
        row.emplace_back(each);
      }
    }
    result.rows.rows.push_back(std::move(row));
  }
  result.figures = {
      {"workload", w.name, w.summary},
      {"topology", t.name},
      {"end_us", end_us, "us, when the last of them ends"},
      {"model", kSimulatorModel, "sim/README.md says how far it is from measured times"},
      {"provenance",
       fmt::format("simulated: model {}, topology {}", kSimulatorModel, name_with_caveat(t))}};
  std::vector<SimulationResult> results;
  for (const GroupTime& time : times) results.push_back(time.result);
  result.figures.push_back(extrapolated_figure(extrapolated));
  add_assumed(result, assumed);
  std::ranges::move(approximations_of(results), std::back_inserter(result.figures));
  if (request.runs) {
    result.figures.push_back(
        {"runs", *request.runs, fmt::format("with seeds {} and up", options.seed)});
  }
  mark_guesses(result);
  return result;
}

}  // namespace

Result simulate(const SimulateRequest& request) {
  if (!request.workload.empty()) return result_of_workload(request);
  if (has_lists(request)) return result_of_list(request);
  if (!is_single(request)) return result_of_sizes(request);
  return Simulation(request).result();
}

std::vector<BoundField> fields(SimulateRequest& r) {
  std::vector<BoundField> collective = fields(r.collective);
  collective.front().field.help =
      "Simulate these algorithms, separated by commas (see arlab list algorithms); a row for each, "
      "if there are several, or several topologies or codecs";
  return together(
      {field("topology", &r.topology,
             "Simulate these topologies, separated by commas (see arlab list topologies), or .toml "
             "files")
           .required()},
      std::move(collective),
      {field("codec", &r.codec,
             "Simulate these codecs, separated by commas (see arlab list codecs); "
             "bits=4.5,encode_ops=9,decode_ops=4 describes a hypothetical one")},
      together({tail_field(r.tail.tail), tail_place_field(r.tail.tail_place)},
               fields(r.sizes, "Simulate these payloads of one rank, in bytes (32K, 64M)",
                      "as --schedule has it")),
      {field("dtype", &r.dtype, "Set the element type: fp16, bf16 or fp32",
             "fp16 if the codec takes it"),
       field("wire_bits", &r.wire_bits,
             "Set measured wire bits per element (of arlab reduce), for codecs whose wires depend "
             "on the data",
             "the most"),
       field("tail_wire_bits", &r.tail_wire_bits,
             "Set the wire bits per element of long wires, for a second latency", "none")
           .needs("wire_bits"),
       field("ranks", &r.ranks, "Set the world size", "all ranks of the topology")
           .from(1, kMaxWorldSize),
       field("placement", &r.placement, "Run on these ranks of the topology, in its order: 0,2,4-7",
             "the first --ranks")
           .excludes("ranks"),
       field("workload", &r.workload,
             "Simulate the collectives of this .toml file, of groups at once or after each other, "
             "instead of one (see sim/workload/README.md)"),
       field("skew", &r.skew, "Skew all_to_all: rank r receives in proportion to (r + 1)^-SKEW",
             "0: equal slots"),
       field("sms", &r.sms,
             "Limit arlab's kernels to N multiprocessors, as bench does; a matrix product can use "
             "the others",
             "all")
           .from(1, 1024),
       field("runs", &r.runs,
             "Simulate N runs with jitter, and print the spread of their latencies (p50, p99)")
           .from(1, 1000000),
       field("seed", &r.seed, "Seed the first run's jitter", "0").from(0, 1000000000),
       field("jitter_launch", &r.jitter_launch, "Delay ranks by this mean, in us; exponential",
             "as in the topology, else 0"),
       field("jitter_message", &r.jitter_message, "Delay messages by this mean, in us; exponential",
             "as in the topology, else 0"),
       field("library", &r.library,
             "Simulate NCCL or RCCL: codecs fp16, bf16 and fp32 only; without --algorithm, the "
             "library's own choice: NCCL's tuner takes what it expects to be fastest"),
       field("multicast", &r.multicast,
             "Send once what all other ranks receive, where the switch can spread it"),
       field("quantum", &r.quantum,
             "Solve for rates at most once in this time, in us; the added error is printed",
             "0, which is exact, for about a second; then it grows"),
       field("trace", &r.trace,
             "Write the timeline to this .json, for ui.perfetto.dev, and as a .png beside it; to a "
             ".chakra.json: as a Chakra execution trace"),
       field("sensitivity", &r.sensitivity,
             "Print how many per cent the latency grows when each constant grows by 1 %")});
}

namespace {

/// A line per size as nccl-tests prints it.
Result as_nccl(const SimulateRequest& request, Format format) {
  if (!request.workload.empty()) {
    fail("--format {}: allowed with --workload are table, json, csv", name_of(format));
  }
  const std::vector<Simulation> all = simulate_sizes(request);
  const SimulationResult& last = all.back().times();
  const bool chooses = library_chooses(request);
  const std::string what = fmt::format("{}{}", request.library ? "library " : "",
                                       chooses ? "all_reduce" : last.algorithm);
  NcclRun run{.experiment = fmt::format("{} {} on {}", what, last.codec, last.topology),
              .collective = last.collective,
              .lines = {}};
  for (const Simulation& each : all) {
    const SimulationResult& r = each.times();
    // The model does not tell an output that is the input from another one.
    run.lines.push_back({r.payload_bytes, 1, {r.latency_us}, NcclTime{r.latency_us}});
  }
  NcclReport nccl;
  nccl.ranks = last.world_size;
  nccl.dtype = last.dtype;
  nccl.device = all.back().topology().device.name;
  nccl.provenance = fmt::format("simulated: model {}, topology {}", last.model,
                                name_with_caveat(all.back().topology()));
  nccl.runs = {std::move(run)};
  return nccl.answer(format);
}

/// With a picture beside the trace.
struct DrawnSimulation : SimulateRequest {
  bool no_plots = false;

  Result answer(Format format) const {
    if (format > Format::csv) return as_nccl(*this, format);
    Result result = simulate(*this);
    if (!is_single(*this)) return result;
    result.figures_in_csv = !sensitivity;
    if (trace.empty() || is_chakra(*this) || no_plots) return result;
    const std::string picture = trace.substr(0, trace.rfind('.') + 1) + "png";
    const auto place = std::ranges::find(result.figures, "trace", &Figure::name);
    result.figures.insert(place + 1, {"timeline", picture, "picture of the trace"});
    result.picture = {"timeline",
                      picture,
                      {},
                      fmt::format("the trace is in {} (--no-plots leaves out the picture)", trace),
                      {trace, picture}};
    return result;
  }
};

std::vector<BoundField> fields(DrawnSimulation& r) {
  return together(fields(static_cast<SimulateRequest&>(r)),
                  {field("no_plots", &r.no_plots, "Write no .png beside the trace")
                       .needs("trace")
                       .changes_no_result()});
}

}  // namespace

Question simulate_question() {
  return question<DrawnSimulation>("simulate", "Simulate how long a collective takes on a topology",
                                   &DrawnSimulation::answer, {}, {Format::nccl, Format::nccl_json});
}

}  // namespace arlab::lab
