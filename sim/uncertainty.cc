#include "sim/uncertainty.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "sim/topology/quantities.h"

namespace arlab {
namespace {

/// The latency is a sum of roots and maxima; over so small a step it is straight.
constexpr double kStep = 0.005;
constexpr double kNormal90 = 1.6448536269514722;

bool is_named(std::span<const std::string> keys, const std::string& key) {
  return keys.empty() || std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// What require_valid() allows.
double allowed(const std::string& key, double value) {
  if (key.ends_with("_overlap")) return std::clamp(value, 1.0, kLargestOverlap);
  if (key.ends_with("_efficiency")) return std::min(value, 1.0);
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
    const bool is_choice = key == "library.channels" || key == "nccl.channels" ||
                           key == "nccl_nvls.chunk_bytes" || key == "blocks.tile_elements";
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

std::optional<LatencyInterval> interval_of(const Topology& topology, double latency_us,
                                           std::span<const Elasticity> elasticities) {
  if (!topology.uncertainty) return std::nullopt;
  const Uncertainty& known = *topology.uncertainty;
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
  const double factor = std::exp(kNormal90 * std::sqrt(std::max(0.0, variance)) / 100);
  return LatencyInterval{latency_us / factor, latency_us * factor};
}

std::optional<LatencyInterval> interval_of(
    const Topology& topology, const std::function<double(const Topology&)>& latency_us) {
  if (!topology.uncertainty) return std::nullopt;
  const std::vector<Elasticity> elasticities =
      elasticities_of(topology, latency_us, topology.uncertainty->constants);
  return interval_of(topology, latency_us(topology), elasticities);
}

}  // namespace arlab
