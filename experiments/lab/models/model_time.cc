// How long does a model take for a prompt or a token, and which part of it is communication? And how
// long do requests wait for their tokens that arrive while it is busy?

#include "sim/workload/model_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/time/simulate.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/words.h"
#include "sim/library/library.h"
#include "sim/simulator.h"
#include "sim/uncertainty.h"
#include "sim/workload/engine.h"
#include "sim/workload/serving.h"

namespace arlab::lab {
namespace {

constexpr std::uint32_t kMostTokens = 1 << 24;
constexpr std::uint32_t kMostBatch = 1 << 16;
constexpr std::uint32_t kMostServed = 1 << 12;
constexpr double kLeastRate = 1e-9;
constexpr double kMostRate = 1e6;
constexpr double kBytesPerGib = 1 << 30;

struct ModelTimeRequest {
  std::string model;
  std::string topology;
  std::string phase = "prefill";
  std::string algorithm;
  std::string codec;
  std::string dtype = "bf16";
  std::string overlap = "none";
  std::string kernels = "fused";
  std::string engine = "none";
  std::string combine = "none";
  std::string weight_bits;
  std::string trace;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> tp;
  std::optional<std::uint32_t> dp;
  std::optional<std::uint32_t> ep;
  std::optional<std::uint32_t> tokens;
  std::optional<std::uint32_t> batch;
  std::optional<std::uint32_t> sms;
  std::optional<double> rate;
  std::string arrivals;
  std::optional<std::uint32_t> output_tokens;
  std::optional<std::uint32_t> requests;
  std::optional<std::uint32_t> seed;
  std::optional<std::uint32_t> max_batch;
  std::optional<std::uint32_t> max_tokens;
  bool library = false;
  bool no_attention = false;

  /// A row for each of what is listed, or all about one.
  Result answer() {
    const std::vector<ListedRun> listed = listed_runs(topology, algorithm, codec);
    if (listed.size() == 1) return answer_of_one();
    if (!trace.empty() || rate || !arrivals.empty()) {
      fail(
          "--trace, --rate and --arrivals: allowed with one topology, algorithm and codec, not "
          "with lists");
    }
    std::vector<std::vector<Figure>> rows;
    for (const ListedRun& each : listed) {
      ModelTimeRequest one = *this;
      std::tie(one.topology, one.algorithm, one.codec) = each;
      rows.push_back(one.answer_of_one().figures);
    }
    Result result{"arlab.model.time.list/1"};
    result.rows_name = "times";
    result.rows = table_of(rows);
    result.shown = words_in("algorithm codec ttft_us communication_us speedup_over_library");
    if (phase == "decode") result.shown[2] = "tpot_us";
    if (has_several_topologies(listed)) result.shown.insert(result.shown.begin(), "topology");
    return result;
  }

  Result answer_of_one() {
    if (!trace.empty()) require_output_file(trace);
    const Topology t = find_topology(topology);
    ModelShape shape = find_model(model);
    if (!weight_bits.empty()) shape.weights = changed(shape.weights, weight_bits, shape.matrices());
    const InferenceStep step = make_step(t, shape);
    const Overlap overlaps =
        member_named(overlap, "--overlap", std::span<const Overlap>(kOverlaps));
    if (sms && library) fail("--sms limits arlab's kernels: allowed is --sms or --library");
    if (step.kernels == Kernels::tails && library) {
      fail("--kernels tails: the library's all-reduce has none; allowed are fused and separate");
    }
    Communication communication{
        .algorithm = algorithm, .library = library, .multiprocessors = sms.value_or(0)};
    communication.codec = find_codec(codec.empty() ? std::string(name_of(step.dtype)) : codec);
    communication.codec->wire_bytes(step.dtype, 1);  // throws when it does not take the dtype
    const bool is_served = serves();
    if (algorithm.empty() && !library) take_fastest(shape, step, communication, t, overlaps);
    if (is_served) {
      Result answer = served(shape, step, communication, t, overlaps);
      add_doubts(answer, step, communication, t, {});
      return answer;
    }
    ModelTime time = model_time(shape, step, communication, t, overlaps);
    if (!trace.empty()) {
      const std::string text = layer_trace(
          time, fmt::format("{} {} on {} x {}, {} {}", shape.name, phase, step.ranks, t.device.name,
                            algorithm_name(), communication.codec->name()));
      write_file(trace, text);
    }
    time.total_us += engine_us(shape, step.batch);
    Result figures = report(shape, step, communication, t, overlaps, time);
    add_engine(figures, t, shape, step.batch,
               step.phase == Phase::decode ? std::optional(time.total_us) : std::nullopt);
    add_doubts(figures, step, communication, t, time.operations);
    figures.figures_in_csv = true;
    return figures;
  }

  /// One standard deviation of layers by [compute], in percent: what `arlab model validate` says of them.
  static constexpr double kRooflinePercent = 12;

  /// Collectives of a step; of all steps one without a size.
  static std::vector<CollectiveRun> runs_of(const InferenceStep& step,
                                            const Communication& communication, const Topology& t,
                                            const std::vector<TimedOperation>& operations) {
    if (step.world() < 2) return {};
    const auto run_of = [&](const Operation& op) -> CollectiveRun {
      const bool is_open = op.elements == 0 && communication.library;
      return {.library = communication.library,
              .ranks = op.ranks,
              .bytes = op.elements * size_of(step.dtype),
              .algorithm = is_open && communication.algorithm.empty()
                               ? library_algorithms(t, step.ranks).front()
                               : std::string(algorithm_of(op, step.dtype, communication, t).name),
              .codecs = {communication.codec->info().name},
              .dtype = step.dtype};
    };
    std::vector<CollectiveRun> runs;
    for (const TimedOperation& each : operations) {
      if (each.operation.kind == OperationKind::communication)
        runs.push_back(run_of(each.operation));
    }
    if (operations.empty()) {
      Operation one;
      one.ranks = step.ranks;
      runs.push_back(run_of(one));
    }
    return runs;
  }

  std::vector<Extrapolation> beyond(const InferenceStep& step) const {
    return beyond_kernels(sms.has_value(), step.kernels == Kernels::tails);
  }

  /// Adds the aspects in which collectives lie beyond measured ones, sizes of those that are named, and what of networks, tails and
  /// engines is assumed.
  void add_doubts(Result& report, const InferenceStep& step, const Communication& communication,
                  const Topology& t, const std::vector<TimedOperation>& operations) const {
    std::vector<std::string> assumed;
    std::vector<std::string> extrapolated;
    for (const CollectiveRun& run : runs_of(step, communication, t, operations)) {
      add_new(assumed, assumed_of(t, run));
      add_new(extrapolated, reasons_of(extrapolations_of(t, run)));
      add_new(extrapolated, reasons_of(beyond(step)));
    }
    if (step.kernels == Kernels::tails) {
      add_new(assumed, assumed_of_tails(t, communication.algorithm, "what --kernels fused does"));
    }
    if (step.world() > 1 && communication.codec->info().has_variable_wire) {
      extrapolated.emplace_back(kLongestWires);
    }
    if (const EngineOverhead& named = engine_named();
        named.name != "none" && named.device != t.device.name) {
      assumed.push_back(
          fmt::format("{} takes as long as on {}: no time of it on this device was found", engine,
                      named.device.empty() ? "others" : named.device));
    }
    add_assumed(report, assumed);
    report.figures.push_back(extrapolated_figure(extrapolated));
  }

  // ---------------------------------------------------------------- engines

  double engine_us(const ModelShape& shape, std::uint64_t sequences) const {
    return engine_named().us(shape.layers.size(), sequences);
  }

  const EngineOverhead& engine_named() const {
    return *std::ranges::find(kEngines, engine, &EngineOverhead::name);
  }

  /// The time that the engine adds to a step of so many sequences, and where 90 of 100 times between tokens should lie.
  void add_engine(Result& report, const Topology& t, const ModelShape& shape,
                  std::uint64_t sequences, const std::optional<double>& tpot_us) const {
    const EngineOverhead& named = engine_named();
    if (named.name == "none") return;
    const bool fitted = named.device == t.device.name;
    const double factor = engine_factor(named, t.device.name);
    const auto times = [&](double by) { return tpot_us ? Cell(*tpot_us * by) : Cell(); };
    std::vector<Figure> figures = {
        {"engine", engine,
         fmt::format("{}: {}",
                     fitted ? "fitted" : "assumed, no time of it on this device was found",
                     named.source)},
        {"engine_us", engine_us(shape, sequences),
         "us that it adds to a step of " + counted(sequences, "sequence")},
        {"tpot_us_low", times(1 / factor), "us: 90 % interval"},
        {"tpot_us_high", times(factor), ""}};
    if (phase != "decode" && !serves()) figures.resize(2);
    report.figures.insert(report.figures.end() - 1, figures.begin(), figures.end());
  }

  /// The interval of a step: of its layers a roofline's, of its collectives that of the least certain one; or an engine's, where
  /// that is wider.
  LatencyInterval interval_of_step(const InferenceStep& step, const Communication& communication,
                                   const Topology& t, const ModelTime& time) const {
    double worst = 0;
    for (const CollectiveRun& run : runs_of(step, communication, t, time.operations)) {
      std::vector<Extrapolation> all = extrapolations_elsewhere(t, run);
      std::ranges::move(beyond(step), std::back_inserter(all));
      worst = std::max(worst, sigma_percent_of(t, run, all));
    }
    const double sigma =
        std::hypot(kRooflinePercent * time.compute_us, worst * time.communication_us) /
        time.total_us;
    LatencyInterval interval = interval_of(time.total_us, sigma);
    if (const EngineOverhead& named = engine_named(); named.name != "none") {
      const double factor = engine_factor(named, t.device.name);
      interval.low_us = std::min(interval.low_us, time.total_us / factor);
      interval.high_us = std::max(interval.high_us, time.total_us * factor);
    }
    return interval;
  }

  // ---------------------------------------------------------------- without --algorithm

  static constexpr const char* kUsual[] = {"two_shot", "one_shot", "hierarchical", "ring"};

  /// Returns the time of a step; where requests arrive, one request's share of full batches.
  double us_of(ModelClock& clock, const InferenceStep& step, Overlap overlaps) const {
    if (!serves()) return clock.time(step, overlaps).total_us;
    const auto of_each = [&](Phase of, std::uint64_t requests_at_once) {
      InferenceStep full = step;
      full.phase = of;
      full.batch = requests_at_once;
      const Overlap overlap_of = requests_at_once > 1 ? overlaps : Overlap::none;
      return clock.time(full, overlap_of).total_us / static_cast<double>(requests_at_once);
    };
    const BatchLimits limits = batch_limits();
    const std::uint64_t prompts =
        std::clamp<std::uint64_t>(limits.tokens / step.tokens, 1, limits.sequences);
    return of_each(Phase::prefill, prompts) +
           output_tokens.value_or(128) * of_each(Phase::decode, limits.sequences);
  }

  /// Takes the fastest of the usual algorithms.
  void take_fastest(const ModelShape& shape, const InferenceStep& step,
                    Communication& communication, const Topology& t, Overlap overlaps) {
    std::string refusal;
    const std::size_t count = step.world() < 2 ? 1 : std::size(kUsual);  // one rank sends nothing
    for (const char* const name : std::span(kUsual, count)) {
      communication.algorithm = name;
      try {
        ModelClock clock(shape, communication, t);
        tried_.emplace_back(name, us_of(clock, step, overlaps));
      } catch (const InvalidInput& error) {
        if (refusal.empty()) refusal = error.what();
      }
    }
    if (tried_.empty()) fail("{}", refusal);
    algorithm = std::ranges::min_element(tried_, {}, &TimedAlgorithm::second)->first;
    communication.algorithm = algorithm;
  }

  std::string algorithm_name() const { return algorithm.empty() ? "its own choice" : algorithm; }

  Figure algorithm_figure() const {
    std::vector<std::string> names;
    for (const auto& [name, us] : tried_) names.push_back(name);
    return {"algorithm", library ? algorithm_name() + ", library" : algorithm,
            names.size() < 2
                ? "of all-reduces"
                : fmt::format("of all-reduces: the fastest of {}", fmt::join(names, ", "))};
  }

  std::vector<Figure> details_of(const ModelShape& shape, const InferenceStep& step) const {
    std::vector<Figure> details = {weight_detail(shape), kinds_detail(shape, step)};
    Json us = Json::object();
    for (const auto& [name, time] : tried_) us[name] = time;
    if (tried_.size() > 1) details.push_back({"us_by_algorithm", Cell(us)});
    return details;
  }

  using TimedAlgorithm = std::pair<std::string, double>;
  std::vector<TimedAlgorithm> tried_;

  /// With --dp every group has its share of the sequences; the time is of a group that has most.
  InferenceStep make_step(const Topology& t, const ModelShape& shape) const {
    const std::uint32_t groups = dp.value_or(1);
    const std::uint64_t sequences = batch.value_or(1);
    const std::uint64_t named = std::uint64_t{tp.value_or(0)} * groups;
    const std::uint64_t all = ranks ? *ranks : tp ? named : t.ranks.value;
    if (all % groups != 0 || (tp && named != all)) {
      fail("--dp {}{} of {} ranks: --tp times --dp must be the ranks", groups,
           tp ? fmt::format(" and --tp {}", *tp) : "", all);
    }
    if (all > t.ranks.value) {
      fail("{} ranks are more than the {} of topology {}", all, t.ranks.value, quote(t.name));
    }
    if (groups > 1 && serves()) fail("--dp: allowed for one step, not for arriving requests");
    if (groups > sequences)
      fail("--dp {}: allowed are 1 to the {} sequences of --batch", groups, sequences);
    if (ep && !has_experts(shape)) {
      fail("--ep spreads experts, and model {} has none", quote(shape.name));
    }
    if (combine == "quantized" && !has_experts(shape)) {
      fail("--combine quantized: the way back from experts, and model {} has none",
           quote(shape.name));
    }
    if (ep && all % *ep != 0) fail("--ep {} does not divide the {} ranks", *ep, all);
    return {.phase = member_named(phase, "--phase", std::span<const Phase>(kPhases)),
            .batch = (sequences + groups - 1) / groups,
            .tokens = tokens.value_or(1024),
            .ranks = static_cast<Rank>(all / groups),
            .dtype = parse_dtype(dtype),
            .kernels = member_named(kernels, "--kernels", std::span<const Kernels>(kKernels)),
            .attention = !no_attention,
            .quantized_combine = combine == "quantized",
            .groups = groups,
            .experts_over = ep.value_or(0)};
  }

  /// By the vendor's library, uncompressed; nothing where the topology does not know it. If products
  /// are to lose something, a multiprocessor for each of its channels.
  std::optional<Communication> by_library(const InferenceStep& step, const Topology& t) const {
    if (!t.device.library || step.world() == 1) return std::nullopt;
    const double channels = t.device.library->channels.value;
    return Communication{.algorithm = "",
                         .codec = find_codec(name_of(step.dtype)),
                         .library = true,
                         .multiprocessors = sms ? static_cast<std::uint32_t>(channels) : 0};
  }

  Json library_us(const ModelShape& shape, const InferenceStep& step, const Topology& t,
                  Overlap overlaps) const {
    const std::optional<Communication> plain = by_library(step, t);
    if (!plain) return nullptr;
    return us_without_tails(shape, step, *plain, t, overlaps);
  }

  double us_without_tails(const ModelShape& shape, const InferenceStep& step,
                          const Communication& communication, const Topology& t,
                          Overlap overlaps) const {
    return model_time(shape, without_tails(step), communication, t, overlaps).total_us +
           engine_us(shape, step.batch);
  }

  /// With norms in kernels of their own, as the library has to have them.
  static InferenceStep without_tails(InferenceStep step) {
    if (step.kernels == Kernels::tails) step.kernels = Kernels::fused;
    return step;
  }

  // ---------------------------------------------------------------- requests that arrive

  bool serves() const {
    const bool serves = rate || !arrivals.empty();
    if (!serves && (max_batch || max_tokens)) {
      fail("--max-batch and --max-tokens: allowed only with --rate or --arrivals");
    }
    if (rate && !(*rate >= kLeastRate && *rate <= kMostRate)) {
      fail("--rate is {}: allowed is {} to {} requests per second", *rate, kLeastRate, kMostRate);
    }
    if (serves && phase != "prefill") {
      fail("--phase {}: arriving requests go through both phases; leave it out", phase);
    }
    return serves;
  }

  BatchLimits batch_limits() const {
    return {.sequences = max_batch.value_or(64), .tokens = max_tokens.value_or(8192)};
  }

  // ---------------------------------------------------------------- weights and memory

  /// Bits of the weights by kind, and whether the memory holds them with the keys and values of a
  /// step, which are those of `sequences`.
  static std::vector<Figure> memory_figures(const ModelShape& shape, const InferenceStep& step,
                                            const Topology& t, std::string_view sequences) {
    const MemoryNeed need = memory_of(shape, step);
    const double weights = need.weights / kBytesPerGib;
    const double kept = need.kept / kBytesPerGib;
    const double buffers = need.buffers / kBytesPerGib;
    const std::vector<WeightMatrix> matrices = shape.matrices();
    const Quantity& memory = t.device.memory_gb;
    const std::string needed = fmt::format(
        "{:.4g} GiB of weights and {:.3g} GiB of KV cache{}, with {:.3g} GiB of buffers,", weights,
        kept, sequences, buffers);
    Figure fits{"fits_memory", nullptr, needed + " for each: the memory of the GPUs is not known"};
    if (memory.value > 0) {
      const bool fit = weights + kept + buffers <= memory.value;
      fits.value = fit;
      fits.note = fmt::format("{} {} {} GiB of each GPU", needed,
                              fit ? "fit into the" : "do not fit into the", memory.value);
    }
    return {
        {"weight_bits", mean_bits(shape.weights, matrices),
         fmt::format("on average: {} ({}); products at the rate of 16-bit values",
                     describe(shape.weights, matrices), shape.weights.source)},
        {"weights_gb", mean_bits(shape.weights, matrices) * shape.parameters() / 8e9,
         "GB of all weights, as files have them"},
        {"weights_gib", weights, "GiB on each GPU"},
        {"kv_cache_gib", kept, "GiB on each GPU"},
        {"buffers_gib", buffers,
         "GiB on each GPU: input and output of a layer, operands of the largest product, what the "
         "largest collective sends and receives"},
        {"memory_gib", memory.value > 0 ? Cell(memory.value) : Cell(),
         memory.value > 0 ? "GiB of each GPU: " + memory.note : "not known"},
        fits};
  }

  static Figure weight_detail(const ModelShape& shape) {
    Json kinds = Json::object();
    for (const WeightMatrix& matrix : shape.matrices()) {
      kinds[std::string(name_of(matrix.kind))] = shape.weights.of(matrix.kind);
    }
    return {"weight_bits_by_kind", Cell(kinds)};
  }

  /// Figures of each kind of layer: how many there are, weights of one, and what one keeps on a GPU.
  static Figure kinds_detail(const ModelShape& shape, const InferenceStep& step) {
    InferenceStep token = step;
    token.lengths.clear();
    token.batch = 1;
    Json kinds = Json::array();
    for (const LayerKind& kind : shape.kinds()) {
      ModelShape one = shape;
      one.layers = {kind.layer};
      kinds.push_back({{"kind", describe(kind.layer)},
                       {"layers", kind.count},
                       {"parameters", parameters_of(shape, kind.layer)},
                       {"kv_cache_bytes_per_sequence", memory_of(one, token).kept}});
    }
    return {"layer_kinds", Cell(kinds)};
  }

  static Figure layers_figure(const ModelShape& shape) {
    std::vector<std::string> words;
    for (const LayerKind& kind : shape.kinds()) {
      words.push_back(fmt::format("{} x {} ({:.4g} weights)", kind.count, describe(kind.layer),
                                  parameters_of(shape, kind.layer)));
    }
    return {"layers", shape.layers.size(), fmt::format("{}", fmt::join(words, "; "))};
  }

  static Figure left_out_figure(const ModelShape& shape) {
    return {"left_out", shape.left_out.empty() ? Cell() : Cell(shape.left_out)};
  }

  static bool has_experts(const ModelShape& shape) {
    return std::ranges::any_of(shape.layers,
                               [](const Layer& layer) { return layer.feed_forward.experts > 0; });
  }

  /// How the ranks share the work.
  static Figure ranks_figure(const ModelShape& shape, const InferenceStep& step) {
    if (step.groups == 1 && step.experts_over == 0) return {"ranks", step.ranks, "tensor-parallel"};
    std::string words =
        fmt::format("tensor-parallel {} x data-parallel {}", step.ranks, step.groups);
    if (has_experts(shape)) words += fmt::format(", experts over {}", step.expert_ranks());
    return {"ranks", step.world(), words};
  }

  /// How requests fare, and how many could be served; the latter of a Poisson process only.
  struct Served {
    std::optional<double> capacity_per_s;
    std::optional<ServingTimes> times;  ///< unless the queue grows without end
  };

  Served served_by(const Communication& communication, const ModelShape& shape,
                   const InferenceStep& like, const Topology& t, Overlap overlaps,
                   const std::vector<ServedRequest>& all, const BatchLimits& limits) const {
    ModelClock clock(shape, communication, t);
    const StepTime step_us = [&](Phase of, const std::vector<std::uint64_t>& lengths) {
      InferenceStep step = like;
      step.phase = of;
      step.batch = lengths.size();
      step.lengths = lengths;
      return clock.time(step, step.batch > 1 ? overlaps : Overlap::none).total_us +
             engine_us(shape, step.batch);
    };
    Served served;
    if (rate) served.capacity_per_s = arlab::capacity_per_s(all.front(), limits, step_us);
    if (!rate || *rate < *served.capacity_per_s) served.times = serve(all, limits, step_us);
    return served;
  }

  Result served(const ModelShape& shape, const InferenceStep& like,
                const Communication& communication, const Topology& t, Overlap overlaps) const {
    const BatchLimits limits = batch_limits();
    const std::vector<ServedRequest> all =
        rate ? poisson_arrivals({.prompt_tokens = tokens.value_or(1024),
                                 .output_tokens = output_tokens.value_or(128)},
                                *rate, requests.value_or(1000), seed.value_or(0))
             : read_arrivals(arrivals);
    const Served ours = served_by(communication, shape, like, t, overlaps, all, limits);
    Communication plain = communication;
    plain.codec = find_codec(name_of(like.dtype));
    if (const auto vendors = by_library(like, t)) plain = *vendors;
    const Served uncompressed = served_by(plain, shape, plain.library ? without_tails(like) : like,
                                          t, overlaps, all, limits);
    const auto load_of = [&](const Served& served, const char* name) -> Figure {
      if (!rate) return {name, nullptr, "of a Poisson process (--rate) only"};
      const double load = *rate / *served.capacity_per_s;
      const std::string of =
          fmt::format("of the {:.3g} requests/s that can be served", *served.capacity_per_s);
      return {name, load, load < 1 ? of : of + ": the queue grows without end, no latency is told"};
    };
    const auto of = [](const Served& served, auto figure) {
      return served.times ? Cell(figure(*served.times)) : Cell();
    };
    // No more is kept than by a full batch of the longest.
    InferenceStep fullest = like;
    fullest.phase = Phase::prefill;
    fullest.batch = std::min<std::uint64_t>(limits.sequences, all.size());
    fullest.tokens = 0;
    for (const ServedRequest& each : all) {
      fullest.tokens = std::max<std::uint64_t>(
          fullest.tokens, std::uint64_t{each.prompt_tokens} + each.output_tokens);
    }
    const auto too_many = [&](const Served& served) {
      return served.capacity_per_s && !served.times;
    };
    std::string overload;
    if (too_many(ours) || too_many(uncompressed)) {
      overload = fmt::format(
          "--rate {} is not below the {:.4g} requests/s that can be served{}: the queue grows "
          "without end, so that no latency is told; --arrivals takes a trace that ends",
          *rate, *(too_many(ours) ? ours : uncompressed).capacity_per_s,
          too_many(ours) ? "" : " uncompressed");
    }
    Result report{
        "arlab.model.serving/1",
        {{"model", shape.name},
         layers_figure(shape),
         left_out_figure(shape),
         {"topology", t.name},
         ranks_figure(shape, like),
         {"dtype", dtype},
         algorithm_figure(),
         {"codec", communication.codec->name()},
         {"uncompressed", plain.library ? "the vendor's library" : plain.algorithm,
          "what the codec is compared with"},
         {"overlap", overlap},
         {"requests", all.size(),
          rate ? fmt::format("of {} and {} tokens", all.front().prompt_tokens,
                             all.front().output_tokens)
               : ""},
         {"rate_per_s", rate ? Cell(*rate) : Cell(), "requests per second, at random (Poisson)"},
         {"max_batch", limits.sequences, "sequences at once"},
         {"max_tokens", limits.tokens, "of the prompts of one prefill"},
         {"capacity_per_s", ours.capacity_per_s, "requests per second that can be served"},
         {"uncompressed_capacity_per_s", uncompressed.capacity_per_s},
         load_of(ours, "load"),
         load_of(uncompressed, "uncompressed_load"),
         {"overload", overload.empty() ? Cell() : Cell(overload)},
         {"mean_batch", of(ours, [](const ServingTimes& s) { return s.mean_batch; }),
          "sequences that get a token at once"},
         {"most_waiting", of(ours, [](const ServingTimes& s) { return s.most_waiting; }),
          "requests in the queue, at most"},
         {"end_s", of(ours, [](const ServingTimes& s) { return s.end * 1e-6; }),
          "s, until the last token"},
         {"provenance", fmt::format("simulated: roofline of [compute], model {}, topology {}",
                                    kSimulatorModel, name_with_caveat(t))}},
        "latencies",
        {{"latency", "mean_us", "p50_us", "p90_us", "p99_us", "uncompressed_mean_us",
          "uncompressed_p50_us", "uncompressed_p90_us", "uncompressed_p99_us"},
         {}}};
    const std::string sequences = fmt::format(" of {} sequences at most", fullest.batch);
    const std::vector<Figure> memory = memory_figures(shape, fullest, t, sequences);
    report.figures.insert(report.figures.end() - 1, memory.begin(), memory.end());
    report.details = details_of(shape, fullest);
    for (const auto& [name, member] : {std::pair("ttft", &ServingTimes::first_token),
                                       std::pair("tpot", &ServingTimes::per_token),
                                       std::pair("itl", &ServingTimes::between_tokens)}) {
      std::vector<Cell> row = {name};
      for (const Served* served : {&ours, &uncompressed}) {
        std::vector<double> us = served->times ? (*served->times).*member : std::vector<double>();
        std::ranges::sort(us);
        const double sum = std::accumulate(us.begin(), us.end(), 0.0);
        row.push_back(us.empty() ? Cell() : Cell(sum / static_cast<double>(us.size())));
        for (const double share : {0.5, 0.9, 0.99}) {
          row.push_back(us.empty() ? Cell() : Cell(quantile(us, share)));
        }
      }
      report.rows.rows.push_back(std::move(row));
    }
    std::optional<double> tpot_us;
    if (ours.times) tpot_us = report.rows.rows[1][1].json().get<double>();
    add_engine(report, t, shape,
               static_cast<std::uint64_t>(ours.times ? std::ceil(ours.times->mean_batch) : 1),
               tpot_us);
    mark_guesses(report);
    return report;
  }

  // ---------------------------------------------------------------- one step

  Result report(const ModelShape& shape, const InferenceStep& step,
                const Communication& communication, const Topology& t, Overlap overlaps,
                const ModelTime& time) const {
    const bool prefill = step.phase == Phase::prefill;
    const Json plain = library_us(shape, step, t, overlaps);
    const bool can_run = communication.library || step.world() < 2 || has_peer_access(t.device);
    const LatencyInterval interval = interval_of_step(step, communication, t, time);
    Result report{
        "arlab.model.time/1",
        {{"model", shape.name},
         layers_figure(shape),
         left_out_figure(shape),
         {"parameters", shape.parameters(), "weights of the shapes that are modelled"},
         {"active_parameters", shape.active_parameters(),
          "of them, that a token is multiplied with"},
         {"topology", t.name},
         ranks_figure(shape, step),
         {"phase", phase},
         {"batch", batch.value_or(1),
          step.groups > 1 ? fmt::format("sequences, {} of a group", step.batch) : "sequences"},
         {"tokens", step.tokens,
          prefill ? "of each prompt" : "of each sequence that are there already"},
         {"dtype", dtype},
         algorithm_figure(),
         {"codec", communication.codec->name()},
         {"overlap", overlap},
         {"kernels", kernels},
         {"ttft_us", prefill ? Cell(time.total_us) : Cell(), "us: time to first token"},
         {"tpot_us", prefill ? Cell() : Cell(time.total_us), "us: time per output token"},
         {"us_low", interval.low_us, "us, 90 % interval of the time: low"},
         {"us_high", interval.high_us, "us, high"},
         {"compute_us", time.compute_us, "us in which the device calculates"},
         {"communication_us", time.communication_us, "us in which it waits for communication"},
         {"communication_share", time.communication_us / time.total_us, "of the time"},
         {"hidden_communication_us", time.hidden_us, "us of communication while it calculates"},
         {"taken_us", time.taken_us,
          "us of compute_us, by which products are longer beside kernels of --sms"},
         {"library_us", plain,
          "us: the same with the vendor's library and its own choice of algorithms, uncompressed"},
         {"speedup_over_library",
          plain.is_null() || !can_run ? Json(nullptr) : Json(plain.get<double>() / time.total_us)},
         {"provenance", fmt::format("simulated: roofline of [compute], model {}, topology {}",
                                    kSimulatorModel, name_with_caveat(t))}},
        "operations",
        {{"operation", "kind", "batch", "count", "kernels", "flop", "bytes", "elements", "us",
          "total_us", "share", "bound"},
         {}}};
    const std::vector<Figure> memory = memory_figures(shape, step, t, "");
    report.figures.insert(report.figures.end() - 1, memory.begin(), memory.end());
    if (step.kernels == Kernels::tails) {
      const double us = us_without_tails(shape, step, communication, t, overlaps);
      report.figures.push_back(
          {"norm_kernels_us", us, "us: the same with residual and norm in kernels of their own"});
    }
    report.details = details_of(shape, step);
    for (const TimedOperation& each : time.operations) {
      const Operation& op = each.operation;
      const bool sent = op.kind == OperationKind::communication;
      report.rows.rows.push_back({op.name, name_of(op.kind), each.batch, each.count, op.kernels,
                                  sent ? Cell() : Cell(op.flop), sent ? Cell() : Cell(op.bytes),
                                  sent ? Cell(op.elements) : Cell(), each.us, each.count * each.us,
                                  each.count * each.us / time.total_us, each.bound});
    }
    report.shown = {"operation", "count", "us", "share", "bound"};
    mark_guesses(report);
    return report;
  }
};

std::vector<BoundField> fields(ModelTimeRequest& r) {
  return {
      field("model", &r.model,
            fmt::format(
                "Time this model: {}, a config.json of Hugging Face, or a .toml with its keys",
                fmt::join(listed_models(), ", ")))
          .required(),
      field("topology", &r.topology,
            "Simulate these topologies, separated by commas (see arlab list topologies), or .toml "
            "files, with a section [compute]")
          .required(),
      field("ranks", &r.ranks, "Run on N devices", "all of the topology").from(1, kMaxWorldSize),
      field("tp", &r.tp, "Split each layer over N devices: tensor parallel", "ranks / dp")
          .from(1, kMaxWorldSize),
      field(
          "dp", &r.dp,
          "Run N groups of devices with their own sequences: data parallel; all share the experts",
          "1")
          .from(1, kMaxWorldSize),
      field("ep", &r.ep,
            "Spread the experts over N devices: expert parallel; each expert is split over tp x dp "
            "/ ep devices",
            "tp x dp")
          .from(1, kMaxWorldSize),
      field("tokens", &r.tokens,
            "Set the tokens of each prompt; in decode, those processed already", "1024")
          .from(1, kMostTokens),
      field("batch", &r.batch, "Run N sequences at once", "1").from(1, kMostBatch),
      field("phase", &r.phase, "Time this phase").among({"prefill", "decode"}),
      field("rate", &r.rate,
            "Let N requests per second arrive at random (a Poisson process) instead of a batch, "
            "wait, and join a running batch; time until the first token, and between tokens")
          .excludes("batch trace"),
      field("arrivals", &r.arrivals,
            "Read requests from this .csv instead of a batch: arrival_s, prompt_tokens, "
            "output_tokens")
          .excludes("rate batch trace tokens"),
      field("output_tokens", &r.output_tokens, "Generate N tokens per request of --rate", "128")
          .from(1, kMostTokens)
          .needs("rate"),
      field("requests", &r.requests, "Let N requests arrive", "1000")
          .from(2, 1000000)
          .needs("rate"),
      field("seed", &r.seed, "Seed the times of arrival", "0").from(0, 1000000000).needs("rate"),
      field("max_batch", &r.max_batch, "Limit arriving requests to N sequences at once", "64")
          .from(1, kMostServed),
      field("max_tokens", &r.max_tokens,
            "Limit a prefill of arriving requests to N tokens of prompts", "8192")
          .from(1, kMostTokens),
      field("algorithm", &r.algorithm, "Use these algorithms for all-reduces, separated by commas",
            "the fastest of two_shot, one_shot, hierarchical, ring; with --library its own choice"),
      field("codec", &r.codec, "Use these codecs, separated by commas (see arlab list codecs)",
            "the dtype"),
      field("dtype", &r.dtype, "Set the element type").among({"fp16", "bf16"}),
      field("weight_bits", &r.weight_bits,
            "Set the bits of each weight of the layers, scales included (4.25), or by kind "
            "(experts=4.25,head=8)",
            "as the model's quantization_config says, else 16"),
      field("library", &r.library,
            "Simulate collectives of NCCL or RCCL; codecs fp16 and bf16 only"),
      field("overlap", &r.overlap,
            "Overlap two halves of a batch: one computes while the other communicates")
          .among({"none", "batches"}),
      field("sms", &r.sms,
            "Limit kernels of collectives to N multiprocessors, which concurrent matrix products "
            "cannot use",
            "all, and nothing is taken from products: a bound")
          .from(1, 1024),
      field("combine", &r.combine, "Quantize the way back from a mixture of experts, too")
          .among({"none", "quantized"}),
      field("kernels", &r.kernels,
            "Time kernels of inference engines (fused), of PyTorch (separate), or with residual "
            "and norm in those of all-reduces (tails)")
          .among({"fused", "separate", "tails"}),
      field("engine", &r.engine,
            "Add an engine's time around kernels: launches, attention of few queries, sampling, "
            "scheduler; fitted to one table of vLLM on MI300X, else assumed")
          .among({"none", "vllm", "sglang"}),
      field("no_attention", &r.no_attention, "Leave attention out, as bench_torch_layers.py does"),
      field("trace", &r.trace, "Write the timeline of a layer to this .json, for ui.perfetto.dev")};
}

}  // namespace

Question model_time_question() {
  return question<ModelTimeRequest>(
      "model time",
      "Predict the time to first token or per output token, and its share of communication",
      &ModelTimeRequest::answer);
}

}  // namespace arlab::lab
