#include "sim/uncertainty.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <iterator>

#include "reference/device_facts/kernel_rules.h"
#include "reference/dtype.h"
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

/// What require_valid() allows.
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

LatencyInterval interval_of(double latency_us, double sigma_percent) {
  const double factor = std::exp(kIntervalSigmas * sigma_percent / 100);
  return {latency_us / factor, latency_us * factor};
}

// ---------------------------------------------------------------- beyond what a fit has seen

std::string_view name_of(Beyond beyond) {
  constexpr std::string_view kNames[kBeyonds] = {"ranks",  "algorithm", "codec",
                                                 "larger", "smaller",   "device"};
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

namespace {

const std::optional<FittedTo>* seen_of(const Topology& topology, const CollectiveRun& run) {
  if (!topology.uncertainty) return nullptr;
  return run.library ? &topology.uncertainty->library : &topology.uncertainty->kernels;
}

/// Values of 16 bits take as long in either type where they are sent as they are, unless the machine's file
/// guesses what arithmetic of one of them costs.
bool has_seen_dtype(const FittedTo& seen, const Device& device, const CollectiveRun& run) {
  if (!run.dtype || seen.dtypes.empty() || std::ranges::count(seen.dtypes, *run.dtype) > 0) {
    return true;
  }
  const bool as_they_are = run.library || std::ranges::all_of(run.codecs, is_plain);
  const bool is_guessed = *run.dtype == DType::bf16 && is_given(device.bf16_cost);
  return as_they_are && !is_guessed && std::ranges::any_of(seen.dtypes, [&](DType other) {
           return size_of(other) == size_of(*run.dtype);
         });
}

}  // namespace

bool is_of_guessed_dtype(const Topology& topology, const CollectiveRun& run) {
  const std::optional<FittedTo>* seen = seen_of(topology, run);
  return run.dtype == DType::bf16 && is_given(topology.device.bf16_cost) && seen != nullptr &&
         *seen && !has_seen_dtype(**seen, topology.device, run);
}

std::vector<Extrapolation> extrapolations_of(const Topology& topology, const CollectiveRun& run) {
  std::vector<Extrapolation> all;
  if (!run.library && run.ranks > kMostRanksWithUnequalChunks) {
    all.push_back({{}, 1, "chunks that differ by a tile count as equal"});
  }
  const std::optional<FittedTo>* found = seen_of(topology, run);
  if (found == nullptr || !*found) {
    all.push_back({{},
                   1,
                   fmt::format("not fitted to this machine: no time of {} on it was looked at",
                               run.library ? "the library" : "arlab's kernels")});
    return all;
  }
  const FittedTo* seen = &**found;
  const std::vector<std::string>& fitted = topology.uncertainty->machines;
  const char* who = run.library ? "run of the library by" : "kernel of";
  if (topology.device.name == seen->device && std::ranges::count(fitted, topology.name) == 0) {
    all.push_back({{},
                   1,
                   fmt::format("not fitted to this machine{}{}", fitted.empty() ? "" : ", but to ",
                               fmt::join(fitted, ", "))});
  }
  if (topology.device.name != seen->device) {
    all.push_back(
        {Beyond::device, 1,
         fmt::format("its numbers are {}'s, not {}'s", seen->device, topology.device.name)});
  }
  const auto doublings = [](auto from, auto to) {
    return std::abs(std::log2(static_cast<double>(to) / static_cast<double>(from)));
  };
  const Rank nearest = std::clamp(run.ranks, seen->ranks.front(), seen->ranks.back());
  if (nearest != run.ranks) {
    all.push_back({Beyond::ranks, doublings(nearest, run.ranks),
                   fmt::format("extrapolated from {} to {} ranks", nearest, run.ranks)});
  }
  if (std::ranges::count(seen->algorithms, run.algorithm) == 0) {
    all.push_back(
        {Beyond::algorithm, 1, fmt::format("no {} algorithm {} was measured", who, run.algorithm)});
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
    all.push_back({Beyond::codec, 1, fmt::format("codec {} was not measured", codec)});
  }
  if (!has_seen_dtype(*seen, topology.device, run)) {
    const bool is_guessed = is_of_guessed_dtype(topology, run);
    all.push_back({{},
                   1,
                   fmt::format("dtype {} was not measured{}", name_of(*run.dtype),
                               is_guessed ? ": what it costs is a guess (device.bf16_cost)" : "")});
  }
  const std::uint64_t bytes = std::clamp(run.bytes, seen->least_bytes, seen->most_bytes);
  if (bytes != run.bytes && run.bytes > 0) {
    const bool larger = run.bytes > bytes;
    all.push_back({larger ? Beyond::larger : Beyond::smaller, doublings(bytes, run.bytes),
                   fmt::format("{} {}, the {} that was measured", larger ? "beyond" : "below",
                               size_text(bytes), larger ? "most" : "least")});
  }
  return all;
}

std::vector<std::string> reasons_of(std::span<const Extrapolation> extrapolations) {
  std::vector<std::string> reasons;
  for (const Extrapolation& each : extrapolations) reasons.push_back(each.reason);
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

}  // namespace arlab
