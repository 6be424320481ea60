#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/tails/gpu_rsqrt.h"
#include "reference/tensors/sha256.h"

namespace arlab::testing {
namespace {

/// The hash of a function's results for all fp32 numbers from 1 to 4, without 4.
template <class Function>
std::string hash_of(const Function& function) {
  std::vector<float> results(1U << 24);
  for (std::uint32_t i = 0; i < results.size(); ++i) {
    results[i] = function(std::bit_cast<float>(0x3F800000U + i));
  }
  return sha256(std::as_bytes(std::span(results)));
}

TEST(GpuRsqrt, IsThatOfAnH200ForAllMantissas) {
  // The hash of torch.rsqrt's results on an H200 on 2026-11-30.
  const std::string measured = "218fc04d271773269367dedf4cff9ff719081b1218c3d67d248d8d6126040246";
  EXPECT_EQ(hash_of(gpu_rsqrt), measured);
  EXPECT_NE(hash_of([](float value) { return 1 / std::sqrt(value); }), measured);
}

TEST(GpuRsqrt, ExponentsOfTheSameParityDifferByAPowerOfTwo) {
  for (const float value : {1.0F, 2.0F, 1.7F, 3.3F, 0x1.fffffep0F}) {
    EXPECT_EQ(gpu_rsqrt(value * 0x1p-126F), gpu_rsqrt(value) * 0x1p63F);
    EXPECT_EQ(gpu_rsqrt(value * 0x1p126F), gpu_rsqrt(value) * 0x1p-63F);
    EXPECT_EQ(gpu_rsqrt(value * 0x1p-2F), gpu_rsqrt(value) * 2);
  }
  EXPECT_EQ(gpu_rsqrt(0x1p-148F), 0x1p74F);
}

TEST(GpuRsqrt, HasTheResultsOfPtxWhereThereIsNoRoot) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(gpu_rsqrt(0.0F), kInfinity);
  EXPECT_EQ(gpu_rsqrt(-0.0F), -kInfinity);
  EXPECT_EQ(gpu_rsqrt(kInfinity), 0);
  EXPECT_TRUE(std::isnan(gpu_rsqrt(-1.0F)));
  EXPECT_TRUE(std::isnan(gpu_rsqrt(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace arlab::testing
