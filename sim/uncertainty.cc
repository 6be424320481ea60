#include "sim/uncertainty.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "reference/device_facts/kernel_rules.h"
#include "reference/dtype.h"
#include "sim/library/servers.h"
#include "sim/machine_plan.h"
#include "sim/topology/quantities.h"

namespace arlab {
namespace {

/// The latency is a sum of roots and maxima; over so small a step it is straight.
constexpr double kStep = 0.005;

bool is_named(std::span<const std::string> keys, const std::string& key) {
  return keys.empty() || std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// 256 MiB.
std::string size_text(std::uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

bool is_plain(const std::string& codec) {
  return codec == name_of(DType::fp16) || codec == name_of(DType::bf16);
}

/// Clamps a value to the range that require_valid() allows.
double allowed(const std::string& key, double value) {
  if (key.ends_with("_overlap")) return std::clamp(value, 1.0, kLargestOverlap);
  if (key.ends_with("efficiency")) return std::min(value, 1.0);
  return std::clamp(value, kSmallestQuantity, kLargestQuantity);
}

/// A constant of all ranks, also where some have other constants beside it.
void set_everywhere(Topology& topology, const std::string& key, double from, double to) {
  const auto set = [&](const std::string& each, Quantity& quantity) {
    if (each == key && quantity.value == from) quantity.value = to;
  };
  for_each_quantity(topology, set);
  for (DeviceOverride& other : topology.device_overrides) for_each_quantity_of(other.device, set);
}

}  // namespace

std::vector<Elasticity> elasticities_of(const Topology& topology,
                                        const std::function<double(const Topology&)>& latency_us,
                                        std::span<const std::string> keys) {
  std::vector<Elasticity> all;
  for_each_quantity(topology, [&](const std::string& key, const Quantity& quantity) {
    // How many there are, and how work is cut, is a choice.
    const bool is_choice = key == "library.channels" || key == "library.nvls.chunk_bytes" ||
                           key == "blocks.tile_elements" || key == "device.memory_gb";
    const bool is_missing = is_optional_quantity(key) && !is_given(quantity);
    const double value = quantity.value;
    if (value == 0 || is_choice || is_missing || !is_named(keys, key)) return;
    const double low = allowed(key, value * (1 - kStep));
    const double high = allowed(key, value * (1 + kStep));
    const auto latency_with = [&](double other) {
      Topology changed = topology;
      set_everywhere(changed, key, value, other);
      return latency_us(changed);
    };
    const double with_less = latency_with(low);
    const double with_more = latency_with(high);
    const bool depends = high > low && with_less > 0 && with_more > 0;
    all.push_back(
        {key, value, depends ? std::log(with_more / with_less) / std::log(high / low) : 0});
  });
  return all;
}

double sigma_percent_of(const Uncertainty& known, std::span<const Elasticity> elasticities) {
  const auto constants = static_cast<Eigen::Index>(known.constants.size());
  Eigen::VectorXd percent = Eigen::VectorXd::Zero(constants);
  Eigen::MatrixXd correlation = Eigen::MatrixXd::Identity(constants, constants);
  for (std::size_t i = 0; i < known.constants.size(); ++i) {
    const auto row = static_cast<Eigen::Index>(i);
    const auto found = std::ranges::find(elasticities, known.constants[i], &Elasticity::key);
    if (found != elasticities.end()) {
      percent[row] = found->percent_per_percent * known.sigma_percent[i];
    }
    for (std::size_t j = 0; j < i; ++j) {
      correlation(row, static_cast<Eigen::Index>(j)) = known.correlation[i][j];
    }
  }
  const double variance = known.scatter_percent * known.scatter_percent +
                          percent.dot(correlation.selfadjointView<Eigen::Lower>() * percent);
  // Rounded correlations may leave a little less than nothing.
  return std::sqrt(std::max(0.0, variance));
}

double sigma_percent_of(const Topology& topology,
                        const std::function<double(const Topology&)>& latency_us) {
  const Uncertainty& known = topology.uncertainty.value();
  return sigma_percent_of(known, elasticities_of(topology, latency_us, known.constants));
}

std::string guess_in_words(const Topology& topology) {
  if (topology.guessed_below_bytes == 0) return "";
  return fmt::format("times below {} are guesses: x {:g} to {:g}",
                     size_text(topology.guessed_below_bytes), kGuessLow, kGuessHigh);
}

std::optional<LatencyInterval> guess_interval(const Topology& topology, std::uint64_t bytes,
                                              double latency_us) {
  if (bytes == 0 || bytes >= topology.guessed_below_bytes) return {};
  return LatencyInterval{kGuessLow * latency_us, kGuessHigh * latency_us};
}

LatencyInterval interval_of(double latency_us, double sigma_percent) {
  const double factor = std::exp(kIntervalSigmas * sigma_percent / 100);
  return {latency_us / factor, latency_us * factor};
}

// ---------------------------------------------------------------- beyond what a fit has seen

std::string_view name_of(Beyond beyond) {
  constexpr std::string_view kNames[kBeyonds] = {
      "ranks",      "algorithm",  "codec", "larger", "smaller", "kin",
      "generation", "laboratory", "host",  "fabric", "dtype",   "unmeasured"};
  return kNames[static_cast<std::size_t>(beyond)];
}

CollectiveRun run_of(const SimulationResult& result) {
  CollectiveRun run{.library = result.library.has_value(),
                    .ranks = result.world_size,
                    .bytes = result.payload_bytes,
                    .algorithm = result.algorithm,
                    .codecs = {result.codec},
                    .dtype = result.dtype};
  if (!result.inner_codec.empty()) run.codecs.push_back(result.inner_codec);
  return run;
}

bool is_across(const Topology& topology, const CollectiveRun& run) {
  return topology.kind == TopologyKind::fat_tree &&
         (run.apart || run.ranks > topology.group_size.value);
}

const std::optional<Uncertainty>& fit_of(const Topology& topology, const CollectiveRun& run) {
  const std::optional<Uncertainty>& whole = topology.uncertainty;
  if (topology.kind != TopologyKind::fat_tree || is_across(topology, run)) return whole;
  const std::optional<FittedTo> seen =
      !whole ? std::nullopt : (run.library ? whole->library : whole->kernels);
  const bool saw_servers = seen && seen->ranks.front() <= topology.group_size.value;
  return saw_servers ? whole : topology.server_uncertainty;
}

namespace {

const std::optional<FittedTo>* seen_of(const Topology& topology, const CollectiveRun& run) {
  const std::optional<Uncertainty>& known = fit_of(topology, run);
  if (!known) return nullptr;
  return run.library ? &known->library : &known->kernels;
}

/// The file's number of what bf16 takes, if it has one.
const Quantity* cost_of_bf16(const Device& device) {
  if (is_given(device.bf16_tile_cost)) return &device.bf16_tile_cost;
  return is_given(device.bf16_cost) ? &device.bf16_cost : nullptr;
}

/// A number that was fitted on one chip is a guess on another.
bool guesses_bf16_of(const FittedTo& seen, const Device& device, const CollectiveRun& run) {
  if (run.library || *run.dtype != DType::bf16 || cost_of_bf16(device) == nullptr) return false;
  return guesses_bf16(device) || device.name != seen.device;
}

/// Values of 16 bits take as long in either type where they are sent as they are, unless the machine's file
/// guesses what arithmetic of one of them costs.
bool has_seen_dtype(const FittedTo& seen, const Device& device, const CollectiveRun& run) {
  if (!run.dtype || seen.dtypes.empty() || std::ranges::count(seen.dtypes, *run.dtype) > 0) {
    return true;
  }
  if (guesses_bf16_of(seen, device, run)) return false;
  const bool is_known = *run.dtype == DType::bf16 && cost_of_bf16(device) != nullptr;
  const bool as_they_are = run.library || std::ranges::all_of(run.codecs, is_plain);
  return (is_known || as_they_are) && std::ranges::any_of(seen.dtypes, [&](DType other) {
           return size_of(other) == size_of(*run.dtype);
         });
}

/// Chips whose kernels and links are alike, by a part of their names; the first that fits counts.
struct Chip {
  std::string_view word;
  std::string_view generation;
  bool over_pcie = false;
};
constexpr Chip kChips[] = {{"RTX PRO 6000", "Blackwell, PCIe", true},
                           {"RTX 5090", "Blackwell, PCIe", true},
                           {"RTX 4090", "Ada", true},
                           {"L40", "Ada", true},
                           {"L20", "Ada", true},
                           {"A100", "Ampere"},
                           {"H100", "Hopper"},
                           {"H20", "Hopper"},  // and H200
                           {"H800", "Hopper"},
                           {"B200", "Blackwell"},  // and GB200
                           {"B300", "Blackwell"},
                           {"MI300", "CDNA 3"},
                           {"MI355", "CDNA 4"}};

const Chip* chip_of(std::string_view device) {
  const auto* found = std::ranges::find_if(
      kChips, [&](const Chip& chip) { return device.find(chip.word) != std::string_view::npos; });
  return found == std::end(kChips) ? nullptr : found;
}

bool are_kin(std::string_view device, std::string_view other) {
  const Chip* one = chip_of(device);
  const Chip* two = chip_of(other);
  return one != nullptr && two != nullptr && one->generation == two->generation;
}

double doublings(auto from, auto to) {
  return std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
}

/// Nothing but all-reduces was timed across servers: of other collectives an algorithm that was not measured counts more.
double times_of_algorithm(const Topology& topology, const CollectiveRun& run) {
  const bool reduces =
      run.algorithm == "ring" || run.algorithm == "tree" || run.algorithm == "nvls";
  return run.library && is_across(topology, run) && !reduces ? 3 : 1;
}

/// Servers of which no fit is: their network has the constants of others, and perhaps nobody has timed the servers.
std::vector<Extrapolation> beyond_servers(const Topology& topology, const CollectiveRun& run) {
  constexpr Rank kRanksOfFits = 16;
  constexpr double kServersAlone = 0.3;
  const bool has_fit = topology.uncertainty.has_value();
  std::vector<Extrapolation> all = {{has_fit ? Beyond::fabric : Beyond::unmeasured,
                                     has_fit ? 1 : kServersAlone,
                                     "not fitted to these servers: their network has the constants "
                                     "of p4de-2x8, p5-2x8, h200-2x8"}};
  if (run.ranks != kRanksOfFits) {
    all.push_back({Beyond::ranks, doublings(kRanksOfFits, run.ranks),
                   fmt::format("extrapolated from {} to {} ranks", kRanksOfFits, run.ranks)});
  }
  if (const double times = times_of_algorithm(topology, run); times > 1) {
    all.push_back({Beyond::algorithm, times,
                   fmt::format("no {} of the library across servers was measured", run.algorithm)});
  }
  return all;
}

/// A machine of which no fit says what this run takes.
std::vector<Extrapolation> beyond_all(const Topology& topology, const CollectiveRun& run) {
  if (run.library && is_across(topology, run)) return beyond_servers(topology, run);
  return {{Beyond::unmeasured, 1,
           fmt::format("not fitted to this machine: no time of {} on it was looked at",
                       run.library ? "the library" : "arlab's kernels")}};
}

void add_chip(const Topology& topology, const FittedTo& seen,
              const std::optional<Uncertainty>& known, std::vector<Extrapolation>& all) {
  const std::vector<std::string>& fitted = known->machines;
  if (topology.device.name != seen.device) {
    const bool kin = are_kin(topology.device.name, seen.device);
    all.push_back(
        {kin ? Beyond::kin : Beyond::generation, 1,
         fmt::format("its numbers are {}'s, not {}'s", seen.device, topology.device.name)});
  } else if (known != topology.server_uncertainty &&
             std::ranges::count(fitted, topology.name) == 0) {
    all.push_back({{},
                   1,
                   fmt::format("not fitted to this machine{}{}", fitted.empty() ? "" : ", but to ",
                               fmt::join(fitted, ", "))});
  }
}

void add_dtype(const Topology& topology, const FittedTo& seen, const CollectiveRun& run,
               std::vector<Extrapolation>& all) {
  if (has_seen_dtype(seen, topology.device, run)) return;
  constexpr double kGuessed = 4;  // bf16 on MI300X took 2.4 times what was predicted
  const bool is_guessed = guesses_bf16_of(seen, topology.device, run);
  // A library's time is that of the bytes.
  const bool widens = is_guessed || !run.library;
  all.push_back({widens ? std::optional(Beyond::dtype) : std::nullopt, is_guessed ? kGuessed : 1,
                 fmt::format("dtype {} was not measured{}", name_of(*run.dtype),
                             is_guessed ? ": what it costs is a guess (device.bf16_cost)" : "")});
}

/// How much wider the interval of a codec without constants is where its operations say little of its time: on two H200
/// (h200_codecs_2026-11-30.csv) stochastic codecs take 0.4 to 0.7 of it, shared ones twice, the others 0.6 to 1.9 of it.
double unlike_counted(std::string_view codec) {
  if (codec.ends_with("-stoch") || codec.starts_with("shared-")) return 4;
  constexpr std::string_view kBegins[] = {"had-", "logfmt", "int2-", "int3-"};
  const auto begins = [codec](std::string_view begin) { return codec.starts_with(begin); };
  return std::ranges::any_of(kBegins, begins) ? 2.2 : 1;
}

}  // namespace

std::vector<Extrapolation> extrapolations_of(const Topology& topology, const CollectiveRun& run) {
  std::vector<Extrapolation> all;
  if (run.bytes > 0 && run.bytes < topology.guessed_below_bytes) {
    all.push_back({{}, 1, guess_in_words(topology)});
  }
  if (!run.library && run.ranks > kMostRanksWithUnequalChunks) {
    all.push_back({{}, 1, "chunks that differ by a tile count as equal"});
  }
  const std::optional<FittedTo>* found = seen_of(topology, run);
  if (found == nullptr || !*found) {
    std::ranges::move(beyond_all(topology, run), std::back_inserter(all));
    return all;
  }
  const FittedTo* seen = &**found;
  const char* who = run.library ? "run of the library by" : "kernel of";
  const std::optional<Uncertainty>& known = fit_of(topology, run);
  add_chip(topology, *seen, known, all);
  const bool is_fitted = std::ranges::count(known->machines, topology.name) > 0;
  if (run.library && is_across(topology, run) && !is_fitted) {
    all.push_back({Beyond::fabric, 1, "its network was not timed"});
  }
  const Rank nearest = std::clamp(run.ranks, seen->ranks.front(), seen->ranks.back());
  if (nearest != run.ranks) {
    all.push_back({Beyond::ranks, doublings(nearest, run.ranks),
                   fmt::format("extrapolated from {} to {} ranks", nearest, run.ranks)});
  }
  if (std::ranges::count(seen->algorithms, run.algorithm) == 0) {
    all.push_back({Beyond::algorithm, times_of_algorithm(topology, run),
                   fmt::format("no {} algorithm {} was measured", who, run.algorithm)});
  }
  if (!seen->commit.empty() && seen->commit != kKernelsSince) {
    all.push_back(
        {Beyond::algorithm, 1,
         fmt::format("the kernels of {}, which were measured, are no longer those that there are",
                     seen->commit)});
  }
  for (const std::string& codec : run.codecs) {
    if (run.library || std::ranges::count(seen->codecs, codec) > 0) continue;
    // 16-bit values as they are take as long in either type.
    if (is_plain(codec) && std::ranges::any_of(seen->codecs, is_plain)) continue;
    // Fused kernels whose codecs are described by operations alone differ less than those with [codecs].
    const double times = topology.device.blocks ? unlike_counted(codec) : 0.4;
    all.push_back({Beyond::codec, times, fmt::format("codec {} was not measured", codec)});
  }
  add_dtype(topology, *seen, run, all);
  const std::uint64_t bytes = std::clamp(run.bytes, seen->least_bytes, seen->most_bytes);
  if (bytes != run.bytes && run.bytes > 0) {
    const bool larger = run.bytes > bytes;
    all.push_back({larger ? Beyond::larger : Beyond::smaller, doublings(bytes, run.bytes),
                   fmt::format("{} {}, the {} that was measured", larger ? "beyond" : "below",
                               size_text(bytes), larger ? "most" : "least")});
  }
  return all;
}

namespace {

/// Whether a fit is of the user's own machine, or server: no shipped one has its name.
bool is_own_fit(const Topology& topology, const CollectiveRun& run) {
  const std::optional<Uncertainty>& known = fit_of(topology, run);
  const std::vector<std::string> listed = listed_topologies();
  return known && std::ranges::any_of(known->machines, [&](const std::string& name) {
           const bool counts = name == topology.name || known == topology.server_uncertainty;
           return counts && std::ranges::count(listed, name) == 0;
         });
}

/// A host's fixed costs count where bytes are few and no file declares them; its PCIe switches count always.
double times_of_host(const Topology& topology, const CollectiveRun& run) {
  constexpr std::uint64_t kFewBytes = 1 << 20;
  const bool declares = is_given(topology.device.library->host_floor_us);
  return run.bytes < kFewBytes && !declares ? 3 : 1;
}

}  // namespace

bool guesses_bf16(const Device& device) {
  const Quantity* cost = cost_of_bf16(device);
  return cost != nullptr && cost->source == Source::assumed;
}

bool is_over_pcie(const Device& device) {
  const Chip* chip = chip_of(device.name);
  return chip != nullptr && chip->over_pcie;
}

std::vector<Extrapolation> extrapolations_elsewhere(const Topology& topology,
                                                    const CollectiveRun& run) {
  std::vector<Extrapolation> all = extrapolations_of(topology, run);
  if (is_own_fit(topology, run)) return all;
  all.push_back({Beyond::laboratory, 1, ""});
  if (run.library && topology.device.library && is_over_pcie(topology.device)) {
    all.push_back({Beyond::host, times_of_host(topology, run), ""});
  }
  return all;
}

std::vector<std::string> assumed_of(const Topology& topology, const CollectiveRun& run) {
  std::vector<std::string> assumed;
  const std::optional<Library>& library = topology.device.library;
  if (!is_across(topology, run)) {
    if (!run.library && run.ranks > 1 && !has_peer_access(topology.device)) {
      assumed.emplace_back(
          "arlab's kernels cannot run without peer access (library.peer_to_peer = false); they are "
          "simulated only");
    }
    const Quantity floor = library ? library->host_floor_us : unless_given(0);
    if (run.library && is_given(floor) && floor.source == Source::assumed) {
      assumed.push_back(fmt::format("the host takes at least {:g} us (library.host_floor_us): {}",
                                    floor.value, floor.note));
    }
    return assumed;
  }
  if (!run.library) {
    assumed.emplace_back(
        "arlab's kernels across servers do not exist on devices; they are simulated only, without "
        "the "
        "floor per hop of NCCL's network");
  }
  const std::optional<NetFabric> fabric = library ? library->network.fabric : std::nullopt;
  if (!fabric) {
    assumed.emplace_back(
        "the network between servers is RoCE: library.network.fabric does not say");
  } else if (*fabric == NetFabric::infiniband || *fabric == NetFabric::tcp) {
    assumed.push_back(
        fmt::format("no times of {} were found: its hops are assumed", name_of(*fabric)));
  }
  return assumed;
}

std::vector<std::string> reasons_of(std::span<const Extrapolation> extrapolations) {
  std::vector<std::string> reasons;
  for (const Extrapolation& each : extrapolations) {
    if (!each.reason.empty()) reasons.push_back(each.reason);
  }
  return reasons;
}

double widened(double sigma_percent, std::span<const Extrapolation> extrapolations,
               const Widening& widening) {
  double variance = sigma_percent * sigma_percent;
  for (const Extrapolation& each : extrapolations) {
    if (!each.in) continue;
    const double added = widening[static_cast<std::size_t>(*each.in)] * each.times;
    variance += added * added;
  }
  return std::sqrt(variance);
}

// ---------------------------------------------------------------- of any latency

Topology with_assumptions(const Topology& topology, const CollectiveRun& run) {
  Topology whole = topology;
  if (!whole.device.library) return whole;
  LibraryNetwork& network = whole.device.library->network;
  if (!is_across(topology, run)) {
    network = {};
  } else if (run.library) {
    network.hop_floor_us = hop_floor_of(network);
  }
  return whole;
}

namespace {

/// Whether the fit says anything of what runs.
bool knows(const Uncertainty& known, bool library) {
  return std::ranges::any_of(known.constants, [&](const std::string& key) {
    const bool is_librarys = key.starts_with("library.");
    if (library) return is_librarys;
    return !is_librarys && !key.starts_with("link.") && !key.starts_with("switch.");
  });
}

/// Percent of the latency by all declared intervals; of each as much as the latency depends on its number.
double declared_variance(const Topology& topology,
                         const std::function<double(const Topology&)>& latency_us) {
  std::map<std::string, double> sigma_percent;
  std::vector<std::string> keys;
  for_each_quantity(topology, [&](const std::string& key, const Quantity& quantity) {
    if (!quantity.has_interval()) return;
    sigma_percent[key] = 100 * std::log(quantity.high / quantity.low) / (2 * kIntervalSigmas);
    keys.push_back(key);
  });
  if (keys.empty()) return 0;
  double variance = 0;
  constexpr double kUsualElasticity = 0.7;
  if (!latency_us) {
    for (const auto& [key, sigma] : sigma_percent)
      variance += std::pow(kUsualElasticity * sigma, 2);
    return variance;
  }
  for (const Elasticity& each : elasticities_of(topology, latency_us, keys)) {
    variance += std::pow(each.percent_per_percent * sigma_percent[each.key], 2);
  }
  return variance;
}

double fitted_variance(const Uncertainty& known, const Topology& topology,
                       const std::function<double(const Topology&)>& latency_us) {
  if (latency_us) {
    return std::pow(sigma_percent_of(known, elasticities_of(topology, latency_us, known.constants)),
                    2);
  }
  return std::pow(known.scatter_percent, 2) + std::pow(kConstantsPercent, 2);
}

}  // namespace

double sigma_percent_of(const Topology& topology, const CollectiveRun& run,
                        std::span<const Extrapolation> beyond,
                        const std::function<double(const Topology&)>& latency_us) {
  double variance = declared_variance(with_assumptions(topology, run), latency_us);
  const std::optional<Uncertainty>& known = fit_of(topology, run);
  if (known && knows(*known, run.library)) {
    variance += fitted_variance(*known, topology, latency_us);
  }
  return widened(std::sqrt(variance), beyond);
}

LatencyInterval interval_of(const Topology& topology, const CollectiveRun& run, double latency_us,
                            std::span<const Extrapolation> beyond,
                            const std::function<double(const Topology&)>& again) {
  if (const auto guess = guess_interval(topology, run.bytes, latency_us)) return *guess;
  return interval_of(latency_us, sigma_percent_of(topology, run, beyond, again));
}

}  // namespace arlab
