// Searches the fastest (algorithm, codec) of a collective by message size on a topology, under an error budget.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "experiments/lab/grids/tuner_tables.h"
#include "experiments/lab/models/model_quality.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "experiments/lab/time/simulate.h"
#include "kernels/runtime/call_table.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"
#include "reference/words.h"
#include "sim/calibration/bench_file.h"
#include "sim/calibration/measurements.h"
#include "sim/flows.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/library/servers.h"
#include "sim/simulator.h"
#include "sim/uncertainty.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

/// Crossovers are found to this many bytes.
constexpr std::uint64_t kGrain = 1024;
/// The fastest at the largest size stays so: all times are proportional to the bytes there.
constexpr std::uint64_t kLargestBytes = std::uint64_t{1} << 32;
/// The reference sums over all ranks; more would take minutes per candidate.
constexpr Rank kMostMeasuredRanks = 64;
constexpr std::uint64_t kSyntheticElements = 12288;  // as many as the shipped activations have
/// Group sizes that are looked at, and values of options that are worth a try; what is the fastest for one of the
/// probes stays a candidate.
constexpr std::size_t kMostGroupSizes = 5;
constexpr std::uint64_t kProbes[] = {std::uint64_t{256} << 10, std::uint64_t{64} << 20};
constexpr double kClearly = 0.98;  // a gain of less is not worth candidates of its own
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Where no budget is named: mean KL divergence from the uncompressed model, nats per token.
constexpr double kUsualMaxKl = 0.05;

constexpr const char* kNoKernels =
    "arlab's kernels need peer access (library.peer_to_peer = false)";

struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::string codec_name;
  CodecPtr codec;
  bool library = false;
  double wire_bits = 0;
  AlgorithmOptions options = {};  ///< searched_options(), where the algorithm has them
  std::string measured_on =
      {};  ///< 2 ranks: where such was timed, on this class of machine; empty: nowhere
  CodecPtr as_sent =
      {};  ///< with wires of the measured length, where data decide it; to simulate it
  /// Ratios for the worst tensor; infinite without any error, -infinite when finite values were lost.
  std::optional<double> sqnr_db = {};        ///< over the whole tensor
  std::optional<double> token_sqnr_db = {};  ///< for its median token, where tensors have tokens
  std::optional<double> quality_db = {};     ///< the one of these that the budget is about
  QualityOf model = {};                      ///< the pair's effect on a language model

  std::string name() const {
    return fmt::format("{}{}, {}", library ? "library " : "", algorithm->name, codec_name);
  }
  const char* implementation() const { return library ? "library" : "kernel"; }
  bool measured() const { return !measured_on.empty(); }
  Cell measured_cell() const { return measured() ? Cell(measured_on) : Cell(); }
  const Codec& timed_codec() const { return as_sent ? *as_sent : *codec; }
};

// ---------------------------------------------------------------- what was timed

/// Timed runs on a class of machine, here or in a published table.
struct Timed {
  std::vector<std::string> algorithms = {};  ///< kernels' ones; with each of the codecs
  std::vector<std::string> codecs = {};
  std::vector<Rank> ranks = {};
  std::vector<std::string> library = {};  ///< its algorithms
  std::vector<Rank> library_ranks = {};

  bool anything() const { return !algorithms.empty() || !library.empty(); }
  bool has_algorithm(const Algorithm& a) const {
    return std::ranges::count(algorithms, a.name) > 0;
  }
  bool has_codec(const std::string& name) const { return std::ranges::count(codecs, name) > 0; }
  bool has_library(const Algorithm& a) const { return std::ranges::count(library, a.name) > 0; }
};

/// On how many ranks kernels were timed, by the file of a machine of this device that says so.
std::vector<Rank> ranks_of_kernels_on(const std::string& device) {
  for (const std::string& name : listed_topologies()) {
    const Topology other = find_topology(name);
    if (other.device.name == device && other.uncertainty && other.uncertainty->kernels) {
      return other.uncertainty->kernels->ranks;
    }
  }
  return {};
}

/// Nothing for a user's machine: there is a record only for those that come with the program. Across servers arlab has no kernels.
Timed timed_on(const Topology& t, const std::string& named, DType type, Rank world_size) {
  Timed timed;
  if (std::ranges::count(listed_topologies(), named) == 0) return timed;
  const auto of_this_device = [&](const std::optional<FittedTo>& seen) {
    return seen && seen->device == t.device.name;
  };
  const auto& known = fit_of(t, {.ranks = world_size});
  const std::optional<FittedTo> kernels = known ? known->kernels : std::nullopt;
  // Times of 16-bit types stand for each other, unless the file only assumes what bf16 costs.
  if (size_of(type) == 2 && !spans_servers(t, world_size) &&
      !(type == DType::bf16 && guesses_bf16(t.device))) {
    if (t.device.blocks) {
      timed.algorithms = t.device.blocks->measured;
      for (const CodecTimes& row : t.device.codecs) timed.codecs.push_back(row.codec);
      timed.ranks = kernels ? kernels->ranks : ranks_of_kernels_on(t.device.name);
    } else if (of_this_device(kernels)) {
      timed.algorithms = kernels->algorithms;
      timed.codecs = kernels->codecs;
      timed.ranks = kernels->ranks;
    }
  }
  if (!t.device.library) return timed;
  if (known && of_this_device(known->library)) {
    timed.library = known->library->algorithms;
    timed.library_ranks = known->library->ranks;
    return timed;
  }
  // These tables were seen by no fit.
  static const Measurements published = read_measurements(data_path("published/validation.toml"));
  const bool has_table = std::ranges::any_of(published.cells, [&](const Measurement& cell) {
    return cell.library && cell.topology == t.name;
  });
  if (has_table) {
    timed.library = library_algorithms(t, t.ranks.value);
    timed.library_ranks = {t.ranks.value};
  }
  return timed;
}

/// 2, 4, 8 ranks.
std::string ranks_text(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "an unknown number of ranks";
  return fmt::format("{} rank{}", fmt::join(ranks, ", "), ranks == std::vector<Rank>{1} ? "" : "s");
}

/// Options in which candidates differ: sizes of groups that the machine suggests, and those of which the
/// algorithms say what is worth a try.
std::vector<Field> searched_options() {
  std::vector<Field> all = all_options();
  std::erase_if(all, [](const Field& option) {
    return option.trials.empty() && option.name != "group_size";
  });
  return all;
}

// ---------------------------------------------------------------- error

/// The tensors that SQNR is measured on, and what they are in words.
struct Samples {
  std::vector<Tensor> tensors;
  std::string name;

  /// All of them, in what such a collective ends with.
  bool have_tokens(Collective what) const {
    return std::ranges::all_of(tensors, [&](const Tensor& tensor) {
      return has_tokens(what, tensor.ranks(), tensor.elements_per_rank(),
                        channels_of(tensor.shape));
    });
  }
};

Tensor cast_to(DType dtype, Tensor tensor) {
  if (tensor.dtype == dtype) return tensor;
  const std::vector<float> values = to_floats(tensor);
  return tensor_from_floats(dtype, tensor.shape, values);
}

/// Sets the SQNR of a candidate on its worst tensor, and the length of its wires where data decide it. `exact` are the
/// sums of the samples.
void measure_sqnr(Candidate& c, const Samples& samples, const std::vector<ExactResult>& exact) {
  double worst = kInfinity;
  double worst_token = kInfinity;
  const bool by_token = samples.have_tokens(c.algorithm->collective);
  WideCount sent = 0;
  WideCount most = 0;
  for (std::size_t i = 0; i < samples.tensors.size(); ++i) {
    const Tensor& inputs = samples.tensors[i];
    const CodecPtr codec = codec_for(c.codec_name, inputs);
    // A switch adds in no order that is known; a ring adds one after the other, too.
    const bool in_switch = c.algorithm == &nvls_algorithm();
    const std::string& algorithm = in_switch ? find_algorithm("ring").name : c.algorithm->name;
    const Schedule schedule =
        make_schedule(algorithm, {.world_size = static_cast<Rank>(inputs.ranks()),
                                  .elements = inputs.elements_per_rank(),
                                  .alignment = codec->info().alignment,
                                  .options = c.options});
    const Reduction r = run_compressed(schedule, *codec, inputs, channels_of(inputs.shape),
                                       exact[i], {.threads = 1});
    sent += r.counts.sent_bytes;
    if (r.wire_varies) most += r.wire.bytes;
    if (!r.error.exact) worst = std::min(worst, r.error.sqnr_db.value_or(-kInfinity));
    if (by_token) worst_token = std::min(worst_token, r.tokens.median_row_db.value_or(kInfinity));
  }
  c.sqnr_db = worst;
  if (by_token) c.token_sqnr_db = worst_token;
  if (most == 0) return;
  c.wire_bits *= static_cast<double>(sent) / static_cast<double>(most);
  c.as_sent = with_measured_wires(c.codec, c.wire_bits);
}

// ---------------------------------------------------------------- time

/// Times of `arlab bench`, by candidate and size. Between two sizes time is a power of the size; below the smallest it is
/// constant, above the largest proportional.
class MeasuredTimes {
 public:
  /// Takes those of this machine by its name, else those of one with as many of its devices.
  MeasuredTimes(const std::string& file, const Topology& machine, Rank ranks, DType dtype) {
    const fs::path path = file;
    const std::vector<Measurement> cells = read_bench_files(std::span(&path, 1)).measurements.cells;
    std::set<std::string> alike;
    for (const Measurement& cell : cells) {
      const Topology timed = find_topology(cell.topology);
      if (cell.dtype == dtype && timed.ranks.value == ranks &&
          timed.device.name == machine.device.name) {
        alike.insert(cell.topology);
      }
    }
    if (alike.contains(machine.name)) alike = {machine.name};
    if (alike.size() > 1) {
      fail("--times {}: it has times of {}, and --topology is {}: name one of these", file,
           fmt::join(alike, ", "), machine.name);
    }
    for (const Measurement& cell : cells) {
      if (cell.dtype != dtype || !alike.contains(cell.topology)) continue;
      times_[key(cell.library, cell.algorithm, cell.codec)][cell.bytes] = cell.value;
    }
    if (times_.empty()) {
      fail("--times {}: it has no times of {} on {} ranks of {}", file, name_of(dtype), ranks,
           machine.device.name);
    }
  }

  /// Says, in words, how far a time at this size lies beyond what was measured.
  std::vector<std::string> extrapolated(const Candidate& c, std::uint64_t bytes) const {
    const auto& by_size = times_.at(key(c.library, c.algorithm->name, c.codec_name));
    if (bytes > by_size.rbegin()->first) {
      return {fmt::format("above {} bytes, the most that was timed: in proportion to bytes",
                          by_size.rbegin()->first)};
    }
    if (bytes >= by_size.begin()->first) return {};
    return {fmt::format("below {} bytes, the least that was timed: as long as that",
                        by_size.begin()->first)};
  }

  bool has(const Candidate& c) const {
    return times_.contains(key(c.library, c.algorithm->name, c.codec_name));
  }

  double latency_us(const Candidate& c, std::uint64_t bytes) const {
    const std::map<std::uint64_t, double>& by_size =
        times_.at(key(c.library, c.algorithm->name, c.codec_name));
    const auto above = by_size.lower_bound(bytes);
    if (above == by_size.begin()) return above->second;
    const auto& [low, low_us] = *std::prev(above);
    const double size = static_cast<double>(bytes);
    if (above == by_size.end()) return low_us * size / static_cast<double>(low);
    const auto& [high, high_us] = *above;
    const double part = std::log(size / static_cast<double>(low)) /
                        std::log(static_cast<double>(high) / static_cast<double>(low));
    return low_us * std::pow(high_us / low_us, part);
  }

 private:
  /// A library takes the algorithm that it likes.
  static std::string key(bool library, const std::string& algorithm, const std::string& codec) {
    return library ? "library" : algorithm + "/" + codec;
  }

  std::map<std::string, std::map<std::uint64_t, double>> times_;
};

/// Latencies on a topology; every one is simulated once, unless it was measured. Lower bounds cost nothing, so most need not be
/// simulated.
class Clock {
 public:
  /// `has_bounds`: whether it knows such. `measured`: instead of simulating.
  Clock(const Topology& topology, Rank ranks, DType dtype, bool has_bounds = false,
        const MeasuredTimes* measured = nullptr)
      : topology_(topology),
        ranks_(ranks),
        dtype_(dtype),
        has_bounds_(has_bounds && measured == nullptr),
        measured_(measured),
        whole_bytes_(topology.device.blocks && measured == nullptr
                         ? static_cast<std::uint64_t>(topology.device.blocks->tile_elements.value) *
                               ranks * size_of(dtype)
                         : kGrain) {}

  /// Multiples of it are whole tiles of every rank. Other sizes may have other kernels, slower ones.
  std::uint64_t whole_bytes() const { return whole_bytes_; }

  /// Elements of a rank: whole slots, where it has them.
  static std::uint64_t elements_of(const Candidate& c, Rank ranks, DType dtype,
                                   std::uint64_t bytes) {
    const std::uint64_t grain = has_slots(c.algorithm->collective) ? ranks : 1;
    return std::max<std::uint64_t>(1, (bytes / size_of(dtype) + grain - 1) / grain) * grain;
  }

  bool knows(const Candidate& c, std::uint64_t bytes) const {
    const auto sizes = known_.find(&c);
    return sizes != known_.end() && sizes->second.contains(bytes);
  }

  double latency_us(const Candidate& c, std::uint64_t bytes) {
    if (!knows(c, bytes)) known_[&c][bytes] = simulated_us(c, bytes);
    return known_[&c][bytes];
  }

  /// Simulates those that are not known yet, on all cores.
  void find_out(std::span<const Candidate* const> candidates, std::uint64_t bytes) {
    std::vector<const Candidate*> unknown;
    for (const Candidate* c : candidates) {
      if (!known_[c].contains(bytes)) unknown.push_back(c);
    }
    std::vector<double> us(unknown.size());
    parallel_for(unknown.size(), 0,
                 [&](unsigned, std::size_t i) { us[i] = simulated_us(*unknown[i], bytes); });
    for (std::size_t i = 0; i < unknown.size(); ++i) known_[unknown[i]][bytes] = us[i];
  }

  /// It is not faster than so: the latency of the largest size below that is known, less a margin; both of whole tiles.
  /// Where a larger size divides more evenly it is up to 6 % faster; where it gets another kernel, 12 %.
  double least_us(const Candidate& c, std::uint64_t bytes) const {
    if (knows(c, bytes)) return known_.at(&c).at(bytes);
    const auto sizes = known_.find(&c);
    if (!has_bounds_ || sizes == known_.end() || bytes % whole_bytes_ != 0) return 0;
    for (auto above = sizes->second.upper_bound(bytes); above != sizes->second.begin();) {
      const auto& [size, us] = *--above;
      if (size % whole_bytes_ == 0) return (topology_.device.blocks ? 0.85 : 0.92) * us;
    }
    return 0;
  }

 private:
  double simulated_us(const Candidate& c, std::uint64_t bytes) const {
    if (measured_ != nullptr) return measured_->latency_us(c, bytes);
    const ScheduleRequest request{.world_size = ranks_,
                                  .elements = elements_of(c, ranks_, dtype_, bytes),
                                  .alignment = c.codec->info().alignment,
                                  .options = c.options};
    return arlab::simulate(
               {*c.algorithm, request, c.timed_codec(), dtype_, topology_, {.library = c.library}})
        .latency_us;
  }

  const Topology& topology_;
  Rank ranks_;
  DType dtype_;
  bool has_bounds_;
  const MeasuredTimes* measured_;
  std::uint64_t whole_bytes_;
  std::map<const Candidate*, std::map<std::uint64_t, double>> known_;  ///< by size
};

/// Where nothing was measured, wire bits stand for the error.
double quality_of(const Candidate& c) { return c.quality_db.value_or(c.wire_bits); }

/// Sizes from `from` to below `to` for which one candidate is the fastest.
struct Range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;  ///< 0: no end
  const Candidate* best = nullptr;
};

class Selector {
 public:
  Selector(const std::vector<const Candidate*>& allowed, Clock& clock)
      : clock_(clock), allowed_(allowed) {}

  /// Returns the fastest candidate, among equals the one with the least error, then the first. Those that were slower for fewer
  /// bytes already are not simulated.
  const Candidate* best_at(std::uint64_t bytes) {
    std::vector<const Candidate*> order = allowed_;
    std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) {
      return clock_.least_us(*a, bytes) < clock_.least_us(*b, bytes);
    });
    // One after the other would leave cores idle; all at once would be for nothing.
    const std::size_t batch = std::size_t{2} * hardware_threads();
    double fastest_us = kInfinity;
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin;
      while (end < order.size() && end - begin < batch &&
             clock_.least_us(*order[end], bytes) <= fastest_us) {
        ++end;
      }
      if (end == begin) break;
      const std::span<const Candidate* const> next(order.data() + begin, end - begin);
      clock_.find_out(next, bytes);
      for (const Candidate* c : next) {
        fastest_us = std::min(fastest_us, clock_.latency_us(*c, bytes));
      }
      begin = end;
    }
    const Candidate* best = nullptr;
    for (const Candidate* c : allowed_) {
      if (!clock_.knows(*c, bytes)) continue;
      if (best == nullptr || is_better(*c, *best, bytes)) best = c;
    }
    return best;
  }

  /// All sizes, without gaps. Between two sizes of a grid (two per octave) with different winners
  /// the crossover is searched for by halving; a winner in between is found on the way. From whole tiles on all are such.
  std::vector<Range> ranges() {
    const std::uint64_t whole = clock_.whole_bytes();
    std::set<std::uint64_t> grid;
    const auto add = [&grid](std::uint64_t least, std::uint64_t end) {
      for (std::uint64_t size = least; size < end; size *= 2) {
        grid.insert(size);
        if (size / 4 * 3 % least == 0) grid.insert(size / 4 * 3);
      }
    };
    add(kGrain, whole);
    add(whole, kLargestBytes + 1);
    std::vector<Range> ranges = {{1, 0, best_at(1)}};
    std::uint64_t before = 1;
    for (const std::uint64_t size : grid) {
      advance(ranges, before, size);
      before = size;
    }
    return ranges;
  }

 private:
  bool is_better(const Candidate& a, const Candidate& b, std::uint64_t bytes) {
    const double of_a = clock_.latency_us(a, bytes);
    const double of_b = clock_.latency_us(b, bytes);
    if (of_a != of_b) return of_a < of_b;
    return a.quality_db.value_or(0) > b.quality_db.value_or(0);
  }

  /// Appends what changes between two sizes; the last range holds `low`.
  void advance(std::vector<Range>& ranges, std::uint64_t low, std::uint64_t high) {
    const Candidate* best = best_at(high);
    if (best == ranges.back().best) return;
    const std::uint64_t grain = low >= clock_.whole_bytes() ? clock_.whole_bytes() : kGrain;
    const std::uint64_t middle = (low + high) / 2 / grain * grain;
    if (high - low > grain && middle > low) {
      advance(ranges, low, middle);
      advance(ranges, middle, high);
      return;
    }
    ranges.back().to = high;
    ranges.push_back({high, 0, best});
  }

  Clock& clock_;
  std::vector<const Candidate*> allowed_;
};

// ---------------------------------------------------------------- the command

struct SelectRequest {
  std::string topology;
  std::string collective = "all_reduce";
  std::string bytes;
  std::optional<std::uint32_t> ranks;
  std::optional<double> min_sqnr;
  std::optional<double> max_wire_bits;
  std::optional<double> max_kl;
  std::optional<double> max_perplexity_ratio;
  bool no_budget = false;
  bool strict = false;
  bool is_usual = false;  // no budget was named
  std::string input;
  std::string tensor;
  std::string synthetic;
  std::string dtype;
  std::string algorithms;
  std::string codecs;
  std::string metric;
  std::string out;
  std::string table;
  std::string table_format = "toml";
  std::string times;
  std::string plot;
  std::string highlight;
  bool exhaustive = false;
  bool unmeasured = false;

  Result answer() const {
    const DType type = dtype.empty() ? DType::fp16 : parse_dtype(dtype);
    const std::uint64_t payload =
        bytes.empty() ? std::uint64_t{64} << 20 : parse_count(bytes, "--bytes");
    if (payload % size_of(type) != 0 || payload > kLargestBytes) {
      fail("--bytes is {}: allowed is a whole number of {} elements up to 4G", payload,
           name_of(type));
    }
    if (!metric.empty() && metric != "token" && metric != "tensor") {
      fail("--metric is {}: allowed are token, tensor", quote(metric));
    }
    if (!out.empty()) require_output_name("--out", out, {".json"});
    if (!plot.empty()) require_output_name("--plot", plot, {".png", ".svg"});
    if (!table.empty()) require_output_name("--table", table, endings_of(table_format));
    const bool is_for_others = table_format != "toml";
    if (table.empty() && is_for_others) fail("--table-format needs --table");
    const Topology t = find_topology(topology);
    const Rank world_size = ranks.value_or(t.ranks.value);
    if (world_size > t.ranks.value) {
      fail("--ranks is {}, but topology '{}' has only {}", world_size, t.name, t.ranks.value);
    }

    const Collective what = this->what();
    const bool is_named = max_kl || max_perplexity_ratio || min_sqnr || max_wire_bits;
    const bool takes_usual = !no_budget && !is_named && codecs.empty();
    if (what != Collective::all_reduce && (asks_models() || takes_usual)) {
      fail(
          "--collective {}: language models were computed with all-reduces only; allowed are "
          "--min-sqnr, --max-wire-bits and --no-budget",
          collective);
    }
    if (no_budget && is_named) fail("--no-budget and a budget: allowed is one of the two");
    if (takes_usual) {
      SelectRequest usual = *this;
      usual.max_kl = kUsualMaxKl;
      usual.is_usual = true;
      return usual.answer();
    }
    std::optional<MeasuredTimes> measured;
    if (!times.empty()) measured.emplace(times, t, world_size, type);
    const Timed timed = timed_on(t, topology, type, world_size);
    Candidates found = candidates(t, timed, type, world_size);
    std::vector<Candidate>& all = found.ranked;
    if (measured) keep_measured(all, *measured, world_size);
    const std::vector<ModelQuality> models = judge_by_model(all, world_size, type);
    (void)judge_by_model(found.left_out, world_size, type);
    std::string measured_on = "not measured: too many ranks for the reference";
    std::string budget_about;
    std::optional<Judge> judge;
    if (world_size <= kMostMeasuredRanks) {
      judge.emplace(judge_for(world_size, type));
      require_values(all);
      require_values(found.left_out);
      judge->measure(pointers_to(all));
      measured_on = judge->samples.name;
      budget_about = judge->by_token ? "token_sqnr_db" : "sqnr_db";
    } else if (min_sqnr || !input.empty() || !synthetic.empty() || !metric.empty()) {
      fail(
          "SQNR is measured on at most {} ranks, not {}: --ranks takes fewer, --max-wire-bits is "
          "a budget without measurement",
          kMostMeasuredRanks, world_size);
    }
    const std::vector<const Candidate*> allowed =
        within_budget(all, measured_on, pairs_of(found.left_out));
    Clock clock(t, world_size, type, !exhaustive, measured ? &*measured : nullptr);
    std::vector<const Candidate*> drawn;  // all, for a picture
    for (const Candidate& c : all) {
      if (exhaustive || !plot.empty() || quality_of(c) > -kInfinity) drawn.push_back(&c);
    }
    clock.find_out(drawn, payload);
    Selector selector(allowed, clock);
    const std::vector<Range> ranges = selector.ranges();
    Result result = result_of(t, world_size, type, payload, measured_on, allowed, all,
                              *selector.best_at(payload), ranges, clock);
    result.figures.insert(result.figures.begin() + 5,
                          {"metric", budget_about.empty() ? Cell() : Cell(budget_about),
                           "what the budget and the Pareto front are about"});
    const bool nothing_timed = times.empty() && !timed.anything();
    result.figures.insert(
        result.figures.begin(),
        {"ranked", !times.empty() || (timed.anything() && !unmeasured) ? "timed" : "all",
         "timed: kernels that somebody has timed, what is named, and the library",
         nothing_timed ? "all candidates: nobody has timed any of them on this machine" : ""});
    if (nothing_timed) result.figures.front().note.clear();
    for (Figure& figure : said_of(found.left_out, judge, clock, payload)) {
      result.figures.push_back(std::move(figure));
    }
    result.shown_figures = words_in(
        "topology collective ranks dtype within_budget metric bytes algorithm codec implementation "
        "measured latency_us sqnr_db token_sqnr_db wire_bits_per_element provenance "
        "error_measured_on");
    if (nothing_timed) result.shown_figures.emplace_back("ranked");
    if (!found.left_out.empty()) result.shown_figures.emplace_back("left_out");
    if (min_sqnr) result.shown_figures.emplace_back("min_sqnr_db");
    if (max_wire_bits) result.shown_figures.emplace_back("max_wire_bits");
    if (asks_models()) {
      result.shown_figures.emplace_back(max_kl ? "max_kl" : "max_perplexity_ratio");
      result.shown_figures.emplace_back("mean_kl");
      if (selector.best_at(payload)->model.of != "")
        result.shown_figures.emplace_back("mean_kl_of");
    }
    if (min_sqnr) {
      result.figures.push_back(
          {"sqnr_misjudges", misjudged_by_sqnr(models),
           "more SQNR and yet worse for a language model: --max-kl is a budget of that"});
      result.shown_figures.emplace_back("sqnr_misjudges");
    }
    result.shown = {"from_bytes", "to_bytes",        "algorithm",
                    "codec",      "latency_us_from", "latency_us_to"};
    mark_guesses(result);
    Below front{fmt::format("Pareto front at {} bytes: nothing is faster with less error", payload),
                pareto(all, payload, clock),
                {"algorithm", "codec", "implementation", "latency_us", "wire_bits_per_element"}};
    // Ranges and front show the error that the budget is about.
    for (auto* shown : {&result.shown, &front.shown}) {
      shown->push_back(budget_about.empty() ? "wire_bits_per_element" : budget_about);
    }
    mark_guesses(front.rows);
    if (times.empty()) {
      const Simulation best = simulation_of(*selector.best_at(payload), type, world_size, payload);
      const std::vector<std::string> reasons = best.extrapolated();
      if (!reasons.empty()) result.shown_figures.emplace_back("extrapolated");
      result.figures.push_back(extrapolated_figure(reasons));
      result.figures.push_back(
          {"latency_us_low", best.interval().low_us, "us, 90 % interval of latency_us: low"});
      result.figures.push_back({"latency_us_high", best.interval().high_us, "us, high"});
      result.shown_figures.insert(result.shown_figures.end(),
                                  {"latency_us_low", "latency_us_high"});
      std::vector<std::string> assumed = best.assumed();
      if (!has_peer_access(t.device)) assumed.push_back(fmt::format("{}: left out", kNoKernels));
      add_assumed(result, assumed);
    }
    if (measured) {
      const auto reasons = measured->extrapolated(*selector.best_at(payload), payload);
      if (!reasons.empty()) result.shown_figures.emplace_back("extrapolated");
      result.figures.push_back(extrapolated_figure(reasons));
    }
    result.figures.push_back(
        {"whole_tiles_bytes", clock.whole_bytes(),
         "bytes: from there on ranges are of multiples of it; --bytes asks for any other size"});
    if (clock.whole_bytes() > kGrain) result.shown_figures.emplace_back("whole_tiles_bytes");
    result.appendix = {{"pareto", to_json(front.rows)}};
    result.sections = {std::move(front)};
    if (!out.empty()) {
      write_file(out, render(result, Format::json));
    }
    if (!table.empty() && !is_for_others) write_table(ranges, type, t);
    if (is_for_others) {
      const std::vector<std::string> unsaid =
          write_for_others(ranges, all, allowed, clock, type, t, world_size);
      result.figures.push_back({"table_leaves_out", Cell(unsaid),
                                "what the table's format cannot say",
                                fmt::format("{}", fmt::join(unsaid, "; "))});
    }
    if (!plot.empty()) {
      Json data = to_json(result);
      Table candidates = everything(drawn, payload, clock);
      mark_guesses(candidates);
      data["candidates"] = to_json(candidates);
      if (!highlight.empty()) data["highlight"] = highlighted(drawn);
      result.picture = {"select", plot, data, "the selection is as printed"};
    }
    return result;
  }

  /// A candidate, as arlab simulate takes it.
  Simulation simulation_of(const Candidate& c, DType type, Rank world_size,
                           std::uint64_t payload) const {
    SimulateRequest request;
    request.topology = topology;
    request.collective = {.algorithm = c.algorithm->name, .options = c.options};
    request.codec = c.codec->name();
    request.dtype = name_of(type);
    request.ranks = world_size;
    request.library = c.library;
    request.sizes.bytes = {
        std::to_string(Clock::elements_of(c, world_size, type, payload) * size_of(type))};
    if (c.as_sent) request.wire_bits = c.wire_bits;
    return Simulation(request);
  }

  /// Names that stand out in the picture. Throws InvalidInput for one that no candidate has.
  std::vector<std::string> highlighted(const std::vector<const Candidate*>& drawn) const {
    std::vector<std::string> names = names_in(highlight, "--highlight");
    for (const std::string& name : names) {
      const bool is_there = std::ranges::any_of(drawn, [&](const Candidate* each) {
        return each->codec_name == name || each->algorithm->name == name;
      });
      if (!is_there)
        fail("--highlight names {}: allowed are codecs and algorithms of the candidates",
             quote(name));
    }
    return names;
  }

  Collective what() const {
    return member_named<Collective>(collective, "--collective", kCollectives);
  }

  /// Measured times of a library do not tell its algorithms apart: one stands for them.
  void keep_measured(std::vector<Candidate>& all, const MeasuredTimes& measured,
                     Rank world_size) const {
    bool has_library = false;
    std::erase_if(all, [&](Candidate& c) {
      const bool again = c.library && std::exchange(has_library, true);
      c.measured_on = ranks_text({world_size});
      return again || !measured.has(c);
    });
    if (all.empty()) fail("--times {}: it has none of the candidates", times);
  }

  std::string source_of_times(const Topology& t) const {
    if (!times.empty()) return fmt::format("latencies measured: {}", times);
    return fmt::format("latencies simulated: model {}, topology {}", kSimulatorModel,
                       name_with_caveat(t));
  }

  /// Writes the table; rules for other dtypes and collectives stay in the file.
  void write_table(const std::vector<Range>& ranges, DType type, const Topology& t) const {
    std::vector<kernels::TableRule> rules;
    if (fs::exists(table)) {
      rules = kernels::CallTable::read(table).rules();
      std::erase_if(rules, [&](const kernels::TableRule& rule) {
        return rule.collective == what() && rule.dtype == type;
      });
    }
    for (const Range& range : ranges) {
      const Candidate& best = *range.best;
      if (is_abstract(best.codec_name)) {
        fail("--table: the fastest is {}, which has no kernels; --codecs names others",
             best.codec_name);
      }
      kernels::TableRule rule;
      rule.collective = what();
      rule.dtype = type;
      rule.from_bytes = range.from == 1 ? 0 : range.from;
      rule.note = fmt::format("{}; {}", source_of_times(t), command_line());
      if (range.to != 0) rule.to_bytes = range.to;
      if (best.library) {
        rule.algorithm = kernels::kByLibrary;
      } else {
        rule.algorithm = best.algorithm->name;
        rule.codec = best.codec_name;
        rule.options = best.options;
      }
      rule.origin = fmt::format("the selection from {} bytes on", rule.from_bytes);
      rules.push_back(std::move(rule));
    }
    write_file(table, fmt::format("# arlab select: notes have the commands\n\n{}",
                                  kernels::to_toml(kernels::CallTable(std::move(rules)))));
  }

  static TableRange table_range(const Range& range) {
    const Candidate& best = *range.best;
    return {range.from == 1 ? 0 : range.from, range.to, std::string(best.algorithm->name),
            best.codec_name, best.library};
  }

  /// The best of what the format can say, whatever would be faster; which is returned in words.
  std::vector<std::string> write_for_others(const std::vector<Range>& ranges,
                                            const std::vector<Candidate>& all,
                                            const std::vector<const Candidate*>& allowed,
                                            Clock& clock, DType type, const Topology& t,
                                            Rank world_size) const {
    const bool has_servers = t.kind == TopologyKind::fat_tree && spans_servers(t, world_size);
    constexpr Rank kMostInAHost = 8;
    const TableOf of{.format = table_format,
                     .collective = what(),
                     .dtype = type,
                     .ranks = world_size,
                     .nodes = has_servers                 ? world_size / t.group_size.value
                              : world_size > kMostInAHost ? 0
                                                          : 1,
                     .is_amd = t.device.name.starts_with("AMD"),
                     .provenance = fmt::format("{}\n{}", command_line(), source_of_times(t))};
    if (of.is_of_library()) require_library(t);
    std::vector<const Candidate*> sayable;
    for (const Candidate& c : all) {
      const bool is_uncompressed = c.codec_name == name_of(type);
      if ((is_uncompressed || std::ranges::count(allowed, &c) > 0) &&
          of.can_say(table_range({.best = &c})))
        sayable.push_back(&c);
    }
    std::vector<TableRange> listed;
    if (!sayable.empty())
      std::ranges::transform(Selector(sayable, clock).ranges(), std::back_inserter(listed),
                             table_range);
    std::vector<std::string> left_out;
    if (of.is_of_library() && listed.empty()) {
      listed = {{0, 0, "ring", std::string(name_of(type)), true}};
      left_out.emplace_back(
          "what the library runs here is a program, which no tuner names: rings stand for it");
    }
    if (of.is_of_library()) {
      listed = by_protocol(listed, [&](const std::string& algorithm, std::uint64_t size) {
        return protocol_of(t, world_size, algorithm, size);
      });
    }
    for (const Range& range : ranges) {
      if (!of.can_say(table_range(range)))
        left_out.push_back(in_words(table_range(range)) + " would be faster");
    }
    write_file(table, write_tuner_table(of, listed, left_out));
    for (const std::string& each : left_out)
      write_progress(fmt::format("{}: not said: {}\n", table, each));
    return left_out;
  }

  /// By which the library runs this algorithm.
  std::string protocol_of(const Topology& t, Rank world_size, const std::string& algorithm,
                          std::uint64_t size) const {
    std::optional<LibraryAlgorithm> named;
    if (what() == Collective::all_reduce) {
      named = algorithm == "nvls"   ? LibraryAlgorithm::nvls
              : algorithm == "tree" ? LibraryAlgorithm::tree
                                    : LibraryAlgorithm::ring;
    }
    const LibraryChoice choice = spans_servers(t, world_size)
                                     ? choice_across(t, what(), world_size, size, named)
                                     : library_choice(t.device, what(), world_size, size, named);
    return choice.protocol == LibraryProtocol::low_latency ? "ll"
           : choice.protocol == LibraryProtocol::ll128     ? "ll128"
                                                           : "simple";
  }

  struct Candidates {
    std::vector<Candidate> ranked = {};
    std::vector<Candidate> left_out = {};  ///< neither timed nor named
  };

  /// Every pair of an algorithm and a codec that takes the dtype, and the vendor's library. Where kernels were timed on the
  /// machine, untimed ones are left out, unless they are named or all are asked for.
  Candidates candidates(const Topology& t, const Timed& timed, DType type, Rank world_size) const {
    const bool only_timed = timed.anything() && !unmeasured && times.empty();
    std::vector<const Algorithm*> chosen;
    if (algorithms.empty()) {
      for (const Algorithm& a : all_algorithms()) {
        if (a.collective == what() && can_run(a, world_size)) chosen.push_back(&a);
      }
    } else {
      for (const std::string& name : names_in(algorithms, "--algorithms")) {
        const Algorithm& a = find_algorithm(name);
        if (a.collective != what()) {
          fail("--algorithms: {} is not {}; name algorithms that are", name, words_for(what()));
        }
        chosen.push_back(&a);
      }
    }
    std::vector<std::string> names;
    if (codecs.empty()) {
      for (const std::string& name : listed_codecs()) {
        if (find_codec(with_row(name))->takes(type)) names.push_back(name);
      }
    } else {
      names = names_in(codecs, "--codecs");
    }
    // Named ones are ranked, with those of the other kind that were timed; with all where none was.
    const bool any_algorithm =
        std::ranges::any_of(chosen, [&](const Algorithm* a) { return timed.has_algorithm(*a); });
    const bool any_codec =
        std::ranges::any_of(names, [&](const std::string& name) { return timed.has_codec(name); });
    const bool all_algorithms_pass = !algorithms.empty() || (!codecs.empty() && !any_algorithm);
    const bool all_codecs_pass = !codecs.empty() || (!algorithms.empty() && !any_codec);
    const auto is_ranked = [&](const Algorithm& a, const std::string& codec) {
      return !only_timed || ((all_algorithms_pass || timed.has_algorithm(a)) &&
                             (all_codecs_pass || timed.has_codec(codec)));
    };
    std::vector<Candidate> plain;  // a candidate per codec
    for (const std::string& name : names) {
      const CodecPtr codec = find_codec(with_row(name));
      require_takes(*codec, type, "--codecs " + name);
      constexpr std::size_t kMany = std::size_t{1} << 20;
      const double bits = 8.0 * static_cast<double>(codec->wire_bytes(type, kMany)) / kMany;
      plain.push_back({nullptr, name, codec, false, bits});
    }
    Candidates found;
    if (!has_peer_access(t.device)) {
      if (!algorithms.empty() || !codecs.empty() || unmeasured) {
        fail(
            "topology '{}': {}; allowed is the library, without --algorithms, --codecs and "
            "--unmeasured",
            t.name, kNoKernels);
      }
      chosen.clear();
    }
    for (const Algorithm* a : chosen) {
      const auto is_ranked_of = [&](const Candidate& each) {
        return is_ranked(*a, each.codec_name);
      };
      for (const AlgorithmOptions& options : variants(*a, plain, t, type, world_size)) {
        if (collapses(*a, options, plain.front(), t, type, world_size)) {
          const std::string groups =
              options.group_size() ? fmt::format(" in groups of {}", *options.group_size()) : "";
          if (std::ranges::any_of(plain, is_ranked_of)) {
            write_progress(fmt::format("left out: {}{}: {}\n", a->name, groups, kCollapses));
          }
          continue;
        }
        for (const Candidate& each : plain) {
          Candidate& added =
              (is_ranked_of(each) ? found.ranked : found.left_out).emplace_back(each);
          added.algorithm = a;
          added.options = options;
          if (timed.has_algorithm(*a) && timed.has_codec(each.codec_name)) {
            added.measured_on = ranks_text(timed.ranks);
          }
        }
      }
    }
    for (const Algorithm* a : algorithms_of_library(t, world_size)) {
      const std::string uncompressed(name_of(type));
      found.ranked.push_back({a, uncompressed, find_codec(uncompressed), true,
                              8.0 * static_cast<double>(size_of(type))});
      if (timed.has_library(*a)) found.ranked.back().measured_on = ranks_text(timed.library_ranks);
    }
    const bool is_hopeless =
        !found.left_out.empty() && std::ranges::none_of(found.ranked, &Candidate::measured);
    if (is_hopeless && algorithms.empty() && codecs.empty()) {
      fail(
          "--collective {}: nobody has timed one on this class of machine; --unmeasured ranks them",
          collective);
    }
    if (found.ranked.empty()) fail("every candidate collapses: {}", kCollapses);
    return found;
  }

  /// Those of the vendor's library for this collective.
  std::vector<const Algorithm*> algorithms_of_library(const Topology& t, Rank world_size) const {
    std::vector<const Algorithm*> all;
    if (!t.device.library) return all;
    if (what() == Collective::all_reduce) {
      for (const std::string& name : library_algorithms(t, world_size)) {
        all.push_back(&find_simulated_algorithm(name));
      }
    } else {
      for (const Algorithm& a : all_algorithms()) {
        if (a.collective == what() && library_runs(a)) all.push_back(&a);
      }
    }
    return all;
  }

  /// Whether times of it are none that the machine reaches (flows.h).
  static bool collapses(const Algorithm& algorithm, const AlgorithmOptions& options,
                        const Candidate& any, const Topology& t, DType type, Rank world_size) {
    if (!has_root_ports(t)) return false;
    const ScheduleRequest request{.world_size = world_size,
                                  .elements = kProbes[0] / size_of(type),
                                  .alignment = any.codec->info().alignment,
                                  .options = options};
    return !arlab::simulate({algorithm, request, *any.codec, type, t}).collapses.empty();
  }

  /// Options of an algorithm that are worth a try with every codec: those that a user gets who says
  /// nothing, and which of others are the fastest with few or with many bits, for small or for large
  /// tensors. At most 4 x (kMostGroupSizes + 4) simulations.
  static std::vector<AlgorithmOptions> variants(const Algorithm& algorithm,
                                                const std::vector<Candidate>& codecs,
                                                const Topology& t, DType type, Rank world_size) {
    const bool has_groups = algorithm.option("group_size") != nullptr;
    const bool has_trials = std::ranges::any_of(
        algorithm.options, [](const Field& option) { return !option.trials.empty(); });
    AlgorithmOptions usual;
    if (has_groups) usual.set("group_size", default_group_size(t, world_size));
    std::vector<AlgorithmOptions> kept = {usual};
    if (world_size < 2 || (!has_groups && !has_trials)) return kept;
    const auto by_bits = [](const Candidate& a, const Candidate& b) {
      return a.wire_bits < b.wire_bits;
    };
    const auto [fewest, most] = std::minmax_element(codecs.begin(), codecs.end(), by_bits);
    std::vector<std::pair<const Candidate*, std::uint64_t>> probes;
    for (const std::uint64_t bytes : kProbes) {
      probes.emplace_back(&*fewest, bytes);
      if (most->wire_bits != fewest->wire_bits) probes.emplace_back(&*most, bytes);
    }
    std::vector<AlgorithmOptions> found(probes.size(), usual);
    parallel_for(probes.size(), 0, [&](unsigned, std::size_t i) {
      const auto& [codec, bytes] = probes[i];
      double least_us = kInfinity;
      const auto look_at = [&, codec = codec, bytes = bytes](const AlgorithmOptions& options) {
        Candidate candidate = *codec;
        candidate.algorithm = &algorithm;
        candidate.options = options;
        const double us = Clock(t, world_size, type).latency_us(candidate, bytes);
        if (us >= kClearly * least_us) return;
        found[i] = options;
        least_us = us;
      };
      look_at(usual);
      if (has_groups) {
        for (const Rank size : group_sizes(t, world_size, kMostGroupSizes)) {
          AlgorithmOptions other = usual;
          other.set("group_size", size);
          if (size != usual.group_size()) look_at(other);
        }
      }
      for (const Field& option : algorithm.options) {
        const AlgorithmOptions best = found[i];
        for (const std::uint64_t value : option.trials) {
          AlgorithmOptions other = best;
          other.set(option.name, value);
          look_at(other);
        }
      }
    });
    for (const AlgorithmOptions& options : found) {
      if (std::find(kept.begin(), kept.end(), options) == kept.end()) kept.push_back(options);
    }
    return kept;
  }

  static std::string with_row(const std::string& name) { return with_row_length(name, kAnyRow); }

  /// halving_doubling, say, takes powers of two only.
  static bool can_run(const Algorithm& algorithm, Rank world_size) {
    try {
      algorithm.write({.world_size = world_size, .elements = world_size, .only_rank = 0});
      return true;
    } catch (const InvalidInput&) {
      return false;
    }
  }

  /// The data and the way by which errors are measured.
  struct Judge {
    Samples samples;
    std::vector<ExactResult> exact = {};
    bool by_token = false;

    /// Sets the candidates' SQNR, and the figure that the budget is about.
    void measure(const std::vector<Candidate*>& candidates) const {
      parallel_for(candidates.size(), 0, [&](unsigned, std::size_t i) {
        Candidate& c = *candidates[i];
        if (is_abstract(c.codec_name)) return;
        measure_sqnr(c, samples, exact);
        c.quality_db = by_token ? c.token_sqnr_db : c.sqnr_db;
      });
    }
  };

  Judge judge_for(Rank world_size, DType type) const {
    Judge judge{load_samples(world_size, type)};
    const Samples& samples = judge.samples;
    for (const Tensor& each : samples.tensors) {
      if (has_slots(what()) && each.elements_per_rank() % world_size != 0) {
        fail("{}: {} elements per rank are not {} equal slots, as {} has them", samples.name,
             each.elements_per_rank(), world_size, words_for(what()));
      }
      judge.exact.push_back(exact_result(what(), each));
    }
    if (metric == "token" && !samples.have_tokens(what())) {
      fail(
          "--metric token: {} has no tokens: needed are tensors of shape [ranks, tokens, channels]",
          samples.name);
    }
    judge.by_token = samples.have_tokens(what()) && metric != "tensor";
    return judge;
  }

  void require_values(const std::vector<Candidate>& candidates) const {
    for (const Candidate& c : candidates) {
      if (min_sqnr && is_abstract(c.codec_name)) {
        fail("--codecs {}: a hypothetical codec has no values whose error --min-sqnr could measure",
             c.codec_name);
      }
    }
  }

  static std::vector<Candidate*> pointers_to(std::vector<Candidate>& candidates) {
    std::vector<Candidate*> all;
    for (Candidate& c : candidates) all.push_back(&c);
    return all;
  }

  /// How many are left out, and what the best of them takes. Errors are measured from the fastest on, until one is within the
  /// budget; first those of wires that data decide, whose times depend on it.
  std::vector<Figure> said_of(std::vector<Candidate>& left_out, const std::optional<Judge>& judge,
                              Clock& clock, std::uint64_t payload) const {
    std::vector<Candidate*> order;
    std::vector<Candidate*> variable;
    for (Candidate& c : left_out) {
      const bool varies = c.codec->info().has_variable_wire;
      if (!is_good_for_models(c)) continue;
      if (max_wire_bits && !varies && c.wire_bits > *max_wire_bits) continue;
      order.push_back(&c);
      if (varies) variable.push_back(&c);
    }
    if (judge) judge->measure(variable);
    clock.find_out(std::vector<const Candidate*>(order.begin(), order.end()), payload);
    std::ranges::stable_sort(order, [&](const Candidate* a, const Candidate* b) {
      return clock.latency_us(*a, payload) < clock.latency_us(*b, payload);
    });
    const Candidate* best = nullptr;
    for (Candidate* c : order) {
      if (judge && !c->sqnr_db) judge->measure({c});
      if (!is_within_budget(*c)) continue;
      best = c;
      break;
    }
    const std::size_t count = pairs_of(left_out);
    std::string words =
        fmt::format("{} candidate{} that nobody has timed {} left out (--unmeasured)", count,
                    count == 1 ? "" : "s", count == 1 ? "is" : "are");
    if (count > 0) {
      words += best == nullptr ? "; none of them is within the budget"
                               : fmt::format("; the best of them, {} with {}, takes {:.4g} us",
                                             best->algorithm->name, best->codec_name,
                                             clock.latency_us(*best, payload));
    }
    return {{"left_out", count, "", words},
            {"left_out_algorithm", best ? Cell(best->algorithm->name) : Cell(),
             "the fastest of them within the budget"},
            {"left_out_codec", best ? Cell(best->codec_name) : Cell()},
            {"left_out_latency_us", best ? Cell(clock.latency_us(*best, payload)) : Cell(), "us"}};
  }

  /// A .npy of uint16 holds patterns of --dtype; what says its type itself is rounded to it.
  Tensor read_input(const std::string& file, const std::string& name, DType type) const {
    try {
      return read_tensor(file, name, std::nullopt);
    } catch (const InvalidInput&) {
      if (dtype.empty() || !file.ends_with(".npy")) throw;
      return read_tensor(file, name, type);
    }
  }

  /// All tensors of a .safetensors, unless one is named.
  Samples samples_of(const std::string& file, Rank world_size, DType type) const {
    const bool takes_all = tensor.empty() && file.ends_with(".safetensors");
    std::vector<std::string> names;
    if (!takes_all) names.push_back(tensor);
    if (takes_all)
      std::ranges::transform(list_safetensors(file), std::back_inserter(names),
                             &SafetensorsEntry::name);
    if (names.empty()) fail("{}: there are no tensors", file);
    Samples samples;
    bool cast = false;
    for (const std::string& name : names) {
      Tensor loaded = read_input(file, name, type);
      samples.name = name.empty() ? file : file + ":" + name;
      if (loaded.shape.empty() || loaded.ranks() != world_size || loaded.elements_per_rank() == 0) {
        fail("{}: the shape is {}; expected is [{}, ...], a slice per rank", samples.name,
             shape_text(loaded.shape), world_size);
      }
      cast = cast || loaded.dtype != type;
      samples.tensors.push_back(cast_to(type, std::move(loaded)));
    }
    if (takes_all) {
      samples.name =
          fmt::format("{}, worst of {} tensors", fs::path(file).filename().string(), names.size());
    }
    if (cast) samples.name += fmt::format(", rounded to {}", name_of(type));
    return samples;
  }

  Samples load_samples(Rank world_size, DType type) const {
    if (!input.empty()) return samples_of(input, world_size, type);
    const fs::path shipped = data_path(fmt::format("data/minilm_tp{}.safetensors", world_size));
    std::error_code error;
    if (synthetic.empty() && fs::exists(shipped, error)) {
      return samples_of(shipped.string(), world_size, type);
    }
    const std::string spec = synthetic.empty() ? "gaussian:sigma=1,seed=1" : synthetic;
    Samples samples;
    samples.tensors.push_back(make_synthetic(spec, type, world_size, kSyntheticElements));
    samples.name = fmt::format("synthetic {}, {} elements per rank{}", spec, kSyntheticElements,
                               synthetic.empty() ? "; no activations are shipped for this many "
                                                   "ranks"
                                                 : "");
    return samples;
  }

  bool asks_models() const { return max_kl || max_perplexity_ratio; }

  /// Sets what is known of the candidates in a language model; returns all that is.
  std::vector<ModelQuality> judge_by_model(std::vector<Candidate>& all, Rank world_size,
                                           DType type) const {
    static const std::vector<ModelQuality> known = shipped_model_quality();
    for (Candidate& c : all) {
      c.model = quality_of_pair(known, c.algorithm->name, world_size, c.codec_name, type);
      if (strict && !c.model.of.empty()) c.model = {};
    }
    return known;
  }

  /// Whether the pair's figures, which it must have, are within the budgets of models.
  bool is_good_for_models(const Candidate& c) const {
    if (!asks_models()) return true;
    // Libraries send no compressed data.
    if (c.model.row == nullptr) return c.library && is_usual;
    return c.model.row->mean_kl <= max_kl.value_or(kInfinity) &&
           c.model.row->perplexity_ratio <= max_perplexity_ratio.value_or(kInfinity);
  }

  bool is_within_budget(const Candidate& c) const {
    const double sqnr = c.quality_db.value_or(0);
    return is_good_for_models(c) && (!max_wire_bits || c.wire_bits <= *max_wire_bits) &&
           sqnr != -kInfinity &&  // finite values became infinite: no result at all
           (!min_sqnr || sqnr >= *min_sqnr);
  }

  std::vector<const Candidate*> within_budget(const std::vector<Candidate>& all,
                                              const std::string& measured_on,
                                              std::size_t left_out) const {
    std::vector<const Candidate*> allowed;
    const Candidate* most_exact = nullptr;
    const Candidate* smallest = nullptr;
    for (const Candidate& c : all) {
      const double sqnr = c.quality_db.value_or(0);
      if (smallest == nullptr || c.wire_bits < smallest->wire_bits) smallest = &c;
      if (max_wire_bits && c.wire_bits > *max_wire_bits) continue;
      if (!is_good_for_models(c)) continue;
      if (most_exact == nullptr || sqnr > most_exact->quality_db.value_or(0)) most_exact = &c;
      if (is_within_budget(c)) allowed.push_back(&c);
    }
    if (!allowed.empty()) return allowed;
    const std::string others =
        left_out == 0
            ? ""
            : fmt::format("; {} that nobody has timed are left out (--unmeasured)", left_out);
    if (most_exact == nullptr && asks_models()) {
      const bool any = std::ranges::any_of(all, [](const Candidate& c) { return c.model.row; });
      fail("{}: {}; --no-budget, --min-sqnr and --max-wire-bits need no model{}",
           max_kl ? fmt::format("--max-kl {:g}", *max_kl)
                  : fmt::format("--max-perplexity-ratio {:g}", *max_perplexity_ratio),
           any ? "no candidate that a language model was computed with reaches it"
               : "no language model was computed with any of the candidates",
           others);
    }
    if (most_exact == nullptr) {
      fail("--max-wire-bits {:g}: no candidate is that small; the smallest is {} with {:g} bits{}",
           *max_wire_bits, smallest->name(), smallest->wire_bits, others);
    }
    if (!min_sqnr) fail("all candidates turn finite values into infinite ones on {}", measured_on);
    fail("--min-sqnr {:g}{}: no candidate reaches it on {}; the best is {} with {:.1f} dB{}",
         *min_sqnr, max_wire_bits ? fmt::format(" with --max-wire-bits {:g}", *max_wire_bits) : "",
         measured_on, most_exact->name(), most_exact->quality_db.value_or(0), others);
  }

  /// Returns the number of pairs of an algorithm and a codec, whatever the options.
  static std::size_t pairs_of(const auto& candidates) {
    std::set<std::string> names;
    for (const Candidate& c : candidates) names.insert(c.name());
    return names.size();
  }

  // ---- tables

  /// Rows of candidates behind these columns: each with what its options of simulate would be, nothing where it is the
  /// algorithm's own choice.
  static Table candidate_table(const std::string& first, const std::string& latencies) {
    Table table{words_in(first + " algorithm codec implementation " + latencies +
                         " sqnr_db token_sqnr_db wire_bits_per_element mean_kl mean_kl_of"),
                {}};
    for (const Field& option : searched_options()) table.columns.push_back(option.name);
    table.columns.insert(table.columns.end(), {"measured", "measured_on"});
    return table;
  }
  static std::vector<Cell> row_of(const Candidate& c, const std::vector<Cell>& latencies,
                                  std::vector<Cell> row = {}) {
    const auto add = [&row](const std::vector<Cell>& cells) {
      row.insert(row.end(), cells.begin(), cells.end());
    };
    add({c.algorithm->name, c.codec_name, c.implementation()});
    add(latencies);
    add({decibels(c.sqnr_db), decibels(c.token_sqnr_db), c.wire_bits, kl_of(c), kl_from(c)});
    for (const Field& option : searched_options()) row.emplace_back(c.options.get(option.name));
    add({c.measured(), c.measured_cell()});
    return row;
  }

  static Table range_table(const std::vector<Range>& ranges, DType type, Clock& clock) {
    Table table = candidate_table("from_bytes to_bytes", "latency_us_from latency_us_to");
    for (const Range& r : ranges) {
      const bool endless = r.to == 0;
      // The last size of the range that is a whole number of elements.
      const std::uint64_t last = r.to - std::min<std::uint64_t>(r.to - 1, size_of(type));
      const Cell to = endless ? Cell() : Cell(r.to);
      const Cell to_us = endless ? Cell() : Cell(clock.latency_us(*r.best, last));
      table.rows.push_back(
          row_of(*r.best, {clock.latency_us(*r.best, r.from), to_us}, {r.from, to}));
    }
    return table;
  }

  static Cell kl_of(const Candidate& c) {
    return c.model.row != nullptr ? Cell(c.model.row->mean_kl) : Cell();
  }
  /// Returns the pair that the figure comes from, if it is not its own.
  static Cell kl_from(const Candidate& c) { return c.model.of.empty() ? Cell() : Cell(c.model.of); }

  Result result_of(const Topology& t, Rank world_size, DType type, std::uint64_t payload,
                   const std::string& measured_on, const std::vector<const Candidate*>& allowed,
                   const std::vector<Candidate>& all, const Candidate& best,
                   const std::vector<Range>& ranges, Clock& clock) const {
    const double latency_us = clock.latency_us(best, payload);
    Result result{
        "arlab.select/1",
        {{"topology", t.name},
         {"collective", collective},
         {"ranks", world_size},
         {"dtype", std::string(name_of(type))},
         {"min_sqnr_db", min_sqnr, "dB; the budget"},
         {"max_wire_bits", max_wire_bits, "bits per element; the budget"},
         {"max_kl", max_kl,
          fmt::format("nats per token, from the uncompressed language model; the budget{}",
                      is_usual ? ", as none is named" : "")},
         {"max_perplexity_ratio", max_perplexity_ratio,
          "to the uncompressed language model; the budget"},
         {"candidate_count", pairs_of(all), "algorithms x codecs, a vendor's library if known"},
         {"within_budget",
          pairs_of(allowed | std::views::transform(
                                 [](const Candidate* c) -> const Candidate& { return *c; }))},
         {"bytes", payload, "payload of one rank, for the next lines and the Pareto front"},
         {"algorithm", best.algorithm->name, "fastest within the budget"},
         {"codec", best.codec_name},
         {"implementation", best.implementation()},
         {"measured", Cell(best.measured()),
          best.measured() ? fmt::format("where such {} timed, on this class of machine",
                                        best.library ? "runs were" : "kernels were")
                          : "such have not been timed on this machine",
          best.measured() ? best.measured_on : "no"},
         {"measured_on", best.measured_cell()},
         {"latency_us", latency_us, "us"},
         {"algbw_gb_per_s", static_cast<double>(payload) / (latency_us * 1e3),
          "10^9 bytes/s: payload / latency"},
         {"sqnr_db", decibels(best.sqnr_db), "dB, of the worst tensor, against the exact sum"},
         {"token_sqnr_db", decibels(best.token_sqnr_db),
          "dB, of the median token of the worst tensor"},
         {"wire_bits_per_element", best.wire_bits,
          best.as_sent                           ? "as they were sent on these data"
          : best.codec->info().has_variable_wire ? "at most: data decide how many are sent"
                                                 : ""},
         {"mean_kl", kl_of(best),
          best.model.row == nullptr
              ? "no language model was computed with this codec"
              : fmt::format(
                    "+- {:.2g} nats per token, from the uncompressed SmolLM2-135M; perplexity "
                    "{:.4f} +- {:.2g} times",
                    best.model.row->mean_kl_error, best.model.row->perplexity_ratio,
                    best.model.row->perplexity_ratio_error)},
         {"mean_kl_of", kl_from(best), "whose figure it is, where the pair has none of its own"},
         {"error_measured_on", measured_on, "exact: the reference on data"},
         {"provenance", source_of_times(t)}},
        "ranges",
        range_table(ranges, type, clock)};
    const auto before = std::ranges::find(result.figures, "latency_us", &Figure::name);
    std::vector<Figure> options;
    for (const Field& option : searched_options()) {
      const bool is_group_size = option.name == "group_size";
      Json value = Cell(best.options.get(option.name));
      if (is_group_size && value.is_null()) value = default_group_size(t, world_size);
      options.push_back({option.name, std::move(value),
                         is_group_size ? "ranks per group of hierarchical algorithms"
                                       : "empty: as many as the algorithm takes"});
    }
    result.figures.insert(before, options.begin(), options.end());
    return result;
  }

  static Table everything(const std::vector<const Candidate*>& all, std::uint64_t payload,
                          Clock& clock) {
    Table table = candidate_table("", "latency_us");
    for (const Candidate* c : all)
      table.rows.push_back(row_of(*c, {clock.latency_us(*c, payload)}));
    return table;
  }

  /// From the fastest to the most exact, of those that have been simulated.
  static Table pareto(const std::vector<Candidate>& all, std::uint64_t payload, Clock& clock) {
    std::vector<const Candidate*> order;
    for (const Candidate& c : all) {
      if (quality_of(c) > -kInfinity && clock.knows(c, payload)) order.push_back(&c);
    }
    std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) {
      const double of_a = clock.latency_us(*a, payload);
      const double of_b = clock.latency_us(*b, payload);
      return of_a != of_b ? of_a < of_b : quality_of(*a) > quality_of(*b);
    });
    std::vector<const Candidate*> front;
    for (const Candidate* c : order) {
      if (front.empty() || quality_of(*c) > quality_of(*front.back())) front.push_back(c);
    }
    return everything(front, payload, clock);
  }
};

std::vector<BoundField> fields(SelectRequest& r) {
  return {
      field("topology", &r.topology,
            "Rank methods for this topology (see arlab list topologies) or .toml file")
          .required(),
      field("collective", &r.collective, "Rank methods for this collective")
          .among({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"}),
      field("bytes", &r.bytes,
            "Draw the Pareto front for this payload of one rank, in bytes, and choose for it; "
            "ranges do not depend on it",
            "64M"),
      field("ranks", &r.ranks, "Set the world size", "all ranks of the topology")
          .from(1, kMaxWorldSize),
      field("metric", &r.metric,
            "Judge by the SQNR of a tensor's median token (token), or of the whole tensor (tensor)",
            "token, where the data have tokens"),
      field("max_kl", &r.max_kl,
            "Limit the mean KL divergence from an uncompressed language model, in nats per token, "
            "as computed for SmolLM2-135M",
            "0.05, where no other budget is named"),
      field("max_perplexity_ratio", &r.max_perplexity_ratio,
            "Limit the perplexity relative to the uncompressed language model's", "none"),
      field(
          "strict", &r.strict,
          "Use only figures of the exact algorithm, number of ranks and dtype, not of the nearest"),
      field("no_budget", &r.no_budget, "Rank all, whatever their error"),
      field("min_sqnr", &r.min_sqnr, "Require this SQNR of the worst tensor, in dB", "none"),
      field("max_wire_bits", &r.max_wire_bits, "Limit the wire bits per element", "none"),
      field("input", &r.input,
            "Measure the error on this [ranks, ...] .npy or .safetensors, all of its tensors",
            "activations that come with the program"),
      field("tensor", &r.tensor, "Use only this tensor of the .safetensors file").needs("input"),
      field("synthetic", &r.synthetic,
            "Measure the error on this distribution (see arlab list inputs)")
          .excludes("input"),
      field("dtype", &r.dtype, "Round the data to this element type: fp16, bf16 or fp32", "fp16"),
      field("algorithms", &r.algorithms, "Rank only these algorithms, separated by commas",
            "all that the world size allows"),
      field("codecs", &r.codecs,
            "Rank only these codecs, separated by commas; bits=4.5,encode_ops=9,decode_ops=4 "
            "describes a hypothetical one",
            "all listed that take the dtype"),
      field("exhaustive", &r.exhaustive,
            "Simulate every candidate at every size, even those that cannot win: the same result, "
            "up to ten times slower"),
      field("unmeasured", &r.unmeasured,
            "Rank even algorithms and codecs that nobody has timed on this class of machine; those "
            "named are ranked anyway"),
      field("out", &r.out, "Write the selection to this .json, for an engine to load"),
      field("table", &r.table,
            "Write the best algorithm and codec by size to this .toml, which communicators read; "
            "its entries of other dtypes and collectives stay"),
      field("table_format", &r.table_format,
            "Write --table for arlab itself, a library's tuner, or as variables of QuickReduce")
          .among(kTableFormats),
      field("times", &r.times,
            "Rank by times of arlab bench (.csv) instead of simulated ones; only what they have is "
            "ranked"),
      field("plot", &r.plot, "Draw error and latency into this .png or .svg"),
      field("highlight", &r.highlight,
            "Highlight these codecs or algorithms in --plot, separated by commas", "none")
          .needs("plot")};
}

}  // namespace

Question select_question() {
  return question<SelectRequest>(
      "select", "Find the fastest algorithm and codec by message size, under an error budget",
      &SelectRequest::answer);
}

}  // namespace arlab::lab
