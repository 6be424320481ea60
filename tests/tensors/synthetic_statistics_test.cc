// Whether the distributions are the ones that their names say. The inputs are fixed, so a test
// either always passes or never; the bounds are what a right generator misses once in 1000 or more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>

#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

std::vector<float> sample(std::string_view spec, std::size_t ranks, std::size_t elements) {
  return to_floats(make_synthetic(spec, DType::fp32, ranks, elements));
}

/// Kolmogorov-Smirnov: the largest distance of the sample's distribution from the theory's, times
/// sqrt(n); 1.95 has probability 0.001.
double kolmogorov_smirnov(std::vector<float> values, const std::function<double(double)>& theory) {
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double probability = theory(values[i]);
    const auto below = static_cast<double>(i);
    distance = std::max({distance, probability - below / n, (below + 1) / n - probability});
  }
  return distance * std::sqrt(n);
}

double correlation(std::span<const float> a, std::span<const float> b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

double normal_distribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

TEST(SyntheticStatistics, GaussianMomentsAndTails) {
  constexpr std::array<float, 5> kSigmas = {1, 2, 3, 4, 5};
  const std::vector<float> values = sample("gaussian:sigma=2", 8, 1 << 21);
  const auto n = static_cast<double>(values.size());
  std::array<double, 5> moment = {};              // by power
  std::array<std::array<int, 5>, 2> beyond = {};  // by sign and threshold
  for (const float value : values) {
    const double x = value / 2;
    double power = 1;
    for (double& sum : moment) {
      sum += power / n;
      power *= x;
    }
    for (std::size_t i = 0; i < kSigmas.size() && std::abs(x) > kSigmas[i]; ++i) {
      ++beyond[x < 0 ? 0 : 1][i];
    }
  }
  // Standard errors of the moments of n standard normals: sqrt(1, 2, 15, 96 / n).
  EXPECT_NEAR(moment[1], 0, 3.3 * std::sqrt(1 / n));
  EXPECT_NEAR(moment[2], 1, 3.3 * std::sqrt(2 / n));
  EXPECT_NEAR(moment[3], 0, 3.3 * std::sqrt(15 / n));
  EXPECT_NEAR(moment[4], 3, 3.3 * std::sqrt(96 / n));
  for (std::size_t i = 0; i < kSigmas.size(); ++i) {
    const double expected = n * normal_distribution(-kSigmas[i]);
    EXPECT_NEAR(beyond[0][i], expected, 3.3 * std::sqrt(expected)) << -kSigmas[i] << " sigma";
    EXPECT_NEAR(beyond[1][i], expected, 3.3 * std::sqrt(expected)) << kSigmas[i] << " sigma";
  }
}

TEST(SyntheticStatistics, GaussianIsNormal) {
  EXPECT_LT(kolmogorov_smirnov(sample("gaussian", 4, 1 << 17), normal_distribution), 1.95);
  EXPECT_LT(kolmogorov_smirnov(sample("gaussian:seed=123456789", 1, 1 << 19), normal_distribution),
            1.95);
}

TEST(SyntheticStatistics, NeighboursRanksAndSeedsAreUncorrelated) {
  constexpr std::size_t kElements = 1 << 19;
  const std::vector<float> one = sample("gaussian", 2, kElements);
  const std::vector<float> two = sample("gaussian:seed=2", 1, kElements);
  const std::span<const float> rank0 = std::span(one).first(kElements);
  const double bound = 3.3 / std::sqrt(kElements);
  EXPECT_NEAR(correlation(rank0, std::span(one).last(kElements)), 0, bound);
  EXPECT_NEAR(correlation(rank0, two), 0, bound);
  for (const std::size_t lag : {1u, 2u, 8u, 32u, 64u, 4096u}) {
    EXPECT_NEAR(correlation(rank0.first(kElements - lag), rank0.subspan(lag)), 0, bound) << lag;
  }
}

TEST(SyntheticStatistics, LaplaceIsLaplace) {
  EXPECT_LT(kolmogorov_smirnov(sample("laplace:b=2", 4, 1 << 17),
                               [](double x) {
                                 const double tail = std::exp(-std::abs(x) / 2) / 2;
                                 return x < 0 ? tail : 1 - tail;
                               }),
            1.95);
}

TEST(SyntheticStatistics, StudentTIsStudentT) {
  const auto distribution = [](int nu, double t) {
    const double x = t / std::sqrt(nu);
    const double y = 1 + x * x;
    switch (nu) {
      case 1:
        return 0.5 + std::atan(x) / std::numbers::pi;
      case 2:
        return 0.5 + x / std::sqrt(y) / 2;
      case 3:
        return 0.5 + (x / y + std::atan(x)) / std::numbers::pi;
      case 4:
        return 0.5 + x / std::sqrt(y) * (0.75 - x * x / y / 4);
      default:  // nearly normal
        return normal_distribution(t * (1 - 0.25 / nu) / std::sqrt(1 + t * t / (2 * nu)));
    }
  };
  for (const int nu : {1, 2, 3, 4}) {
    EXPECT_LT(kolmogorov_smirnov(sample(fmt::format("student-t:nu={}", nu), 2, 1 << 18),
                                 [&](double t) { return distribution(nu, t); }),
              1.95)
        << nu;
  }
  EXPECT_LT(kolmogorov_smirnov(sample("student-t:nu=100", 1, 1 << 16),
                               [&](double t) { return distribution(100, t); }),
            1.95);
}

TEST(SyntheticStatistics, UniformIsUniform) {
  EXPECT_LT(kolmogorov_smirnov(sample("uniform:low=-3,high=5", 4, 1 << 17),
                               [](double x) { return (x + 3) / 8; }),
            1.95);
}

TEST(SyntheticStatistics, OutlierChannelsVaryLikeTheOthers) {
  std::vector<float> offsets;
  for (const float value : sample("outliers:row=64,count=64,magnitude=1000", 2, 1 << 18)) {
    offsets.push_back(value > 0 ? value - 1000 : value + 1000);
  }
  // fp32 near 1000 has steps of 6e-5, far below what 2^19 values resolve.
  EXPECT_LT(kolmogorov_smirnov(offsets, normal_distribution), 1.95);
}

}  // namespace
}  // namespace arlab
