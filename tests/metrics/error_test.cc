#include "reference/metrics/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "reference/error.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ErrorMetrics compare_fp32(const std::vector<double>& target, const std::vector<float>& result) {
  return compare(target, DType::fp32, std::as_bytes(std::span(result)));
}

// ---------------------------------------------------------------- the exact sum

TEST(ExactSum, StartsFromPlusZero) {
  const Tensor zeros = tensor_from_floats(DType::fp16, {2, 1}, std::vector<float>{-0.0f, -0.0f});
  EXPECT_FALSE(std::signbit(exact_sum(DType::fp16, 2, zeros.bytes()).values[0]));
}

TEST(ExactSum, IsTheSameForAnyThreadCount) {
  constexpr std::size_t kElements = 65536 * 3 + 7;
  const Tensor inputs = make_synthetic("adversarial:non_finite=0", DType::fp32, 3, kElements);
  const ExactSum expected = exact_sum(DType::fp32, 3, inputs.bytes(), 1);
  EXPECT_GT(expected.inexact, 0u);
  for (const unsigned threads : {0u, 2u, 3u, 8u}) {
    const ExactSum sum = exact_sum(DType::fp32, 3, inputs.bytes(), threads);
    EXPECT_EQ(sum.values, expected.values);
    EXPECT_EQ(sum.inexact, expected.inexact);
  }
}

TEST(ExactSum, RefusesSizesThatDoNotFit) {
  const std::vector<std::byte> bytes(12);
  EXPECT_THROW(exact_sum(DType::fp16, 0, bytes), InvalidInput);
  EXPECT_THROW(exact_sum(DType::fp16, 4, bytes), InvalidInput);
  EXPECT_THROW(exact_sum(DType::fp32, 2, bytes), InvalidInput);
  EXPECT_EQ(exact_sum(DType::fp16, 3, bytes).values.size(), 2u);
  EXPECT_TRUE(exact_sum(DType::fp16, 3, {}).values.empty());
}

// ---------------------------------------------------------------- the error

TEST(Compare, SaysExactOnlyWhenEveryElementIs) {
  const ErrorMetrics exact = compare_fp32({1, -2, 0}, {1, -2, -0.0f});
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.max_abs_error, 0);
  EXPECT_EQ(exact.rmse, 0);
  EXPECT_FALSE(exact.sqnr_db.has_value());
  EXPECT_FALSE(exact.finite_sqnr_db.has_value());
  EXPECT_FALSE(compare_fp32({1, -2, 0x1p-149}, {1, -2, 0}).exact);
  EXPECT_FALSE(compare_fp32({1 + 0x1p-52}, {1}).exact);
}

TEST(Compare, HasNoSqnrWhereTheTargetIsZero) {
  const ErrorMetrics metrics = compare_fp32({0, 0}, {1, 0});
  EXPECT_EQ(metrics.max_abs_error, 1);
  EXPECT_FALSE(metrics.sqnr_db.has_value());
  EXPECT_FALSE(metrics.cosine.has_value());
  EXPECT_FALSE(metrics.exact);
}

TEST(Compare, IsExactWhereWhatIsNotFiniteTakesNoPart) {
  const ErrorMetrics only_targets = compare_fp32({kInfinity, 2}, {0, 2});
  EXPECT_EQ(only_targets.non_finite_target, 1u);
  EXPECT_EQ(only_targets.elements, 1u);
  EXPECT_TRUE(only_targets.exact);
  EXPECT_EQ(only_targets.rmse, 0);

  const ErrorMetrics all_lost = compare_fp32({1, 2}, {kInf, kNan});
  EXPECT_EQ(all_lost.lost, 2u);
  EXPECT_FALSE(all_lost.exact);
  EXPECT_FALSE(all_lost.finite_sqnr_db.has_value());
}

TEST(Compare, OfNothing) {
  const ErrorMetrics metrics = compare_fp32({}, {});
  EXPECT_EQ(metrics.elements, 0u);
  EXPECT_FALSE(metrics.rmse.has_value());
  EXPECT_FALSE(metrics.max_abs_error.has_value());
  EXPECT_FALSE(metrics.sqnr_db.has_value());
}

TEST(Compare, CosineNeverExceedsOne) {
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    for (std::size_t elements = 1; elements < 200; ++elements) {
      const Tensor tensor = make_synthetic("gaussian", dtype, 1, elements);
      const ErrorMetrics metrics = compare(to_double(dtype, tensor.bytes()), dtype, tensor.bytes());
      ASSERT_LE(*metrics.cosine, 1) << elements << " " << name_of(dtype);
      ASSERT_NEAR(*metrics.cosine, 1, 1e-12);
    }
  }
}

TEST(Compare, SeesEveryElementOfEveryPart) {
  for (const std::size_t elements : {65535u, 65536u, 65537u, 131073u}) {
    const std::vector<double> target(elements, 1);
    for (const std::size_t wrong : {std::size_t{0}, elements / 2, elements - 1}) {
      std::vector<float> result(elements, 1);
      result[wrong] = 3;
      const ErrorMetrics metrics = compare_fp32(target, result);
      EXPECT_EQ(metrics.elements, elements);
      EXPECT_EQ(metrics.max_abs_error, 2);
      EXPECT_EQ(metrics.rmse, std::sqrt(4 / static_cast<double>(elements)));
      result[wrong] = kNan;
      EXPECT_EQ(compare_fp32(target, result).lost, 1u);
    }
  }
}

TEST(Compare, IsTheSameForAnyThreadCount) {
  constexpr std::size_t kElements = 65536 * 4 + 99;
  const Tensor tensor = make_synthetic("gaussian", DType::bf16, 2, kElements);
  const std::vector<double> target = to_double(DType::bf16, tensor.rank_bytes(0));
  const auto figures = [&](unsigned threads) {
    const ErrorMetrics m = compare(target, DType::bf16, tensor.rank_bytes(1), threads);
    return std::tuple(m.elements, m.max_abs_error, m.rmse, m.sqnr_db, m.finite_sqnr_db, m.cosine);
  };
  for (const unsigned threads : {0u, 2u, 3u, 8u}) EXPECT_EQ(figures(threads), figures(1));
}

TEST(Compare, RefusesSizesThatDoNotFit) {
  const std::vector<double> target(3);
  const std::vector<std::byte> bytes(8);
  EXPECT_THROW(compare(target, DType::fp16, bytes), InvalidInput);
  EXPECT_THROW(compare(target, DType::fp32, bytes), InvalidInput);
}

// ---------------------------------------------------------------- ranks

TEST(FirstRankDifference, ComparesBitsRankAfterRank) {
  Tensor tensor = make_tensor(DType::fp16, {4, 100});
  const auto difference = [&] {
    const auto found = first_rank_difference(DType::fp16, 4, tensor.bytes());
    return found ? std::pair(found->rank, found->element) : std::pair<std::size_t, std::size_t>();
  };
  EXPECT_FALSE(first_rank_difference(DType::fp16, 4, tensor.bytes()).has_value());

  tensor.bits16()[3 * 100 + 7] = 0x8000;  // -0 is not +0
  EXPECT_EQ(difference(), std::pair(std::size_t{3}, std::size_t{7}));
  tensor.bits16()[2 * 100 + 99] = 0x0100;  // in its second byte
  EXPECT_EQ(difference(), std::pair(std::size_t{2}, std::size_t{99}));
  tensor.bits16()[50] = 0x7E00;  // rank 0 differs from all
  EXPECT_EQ(difference(), std::pair(std::size_t{1}, std::size_t{50}));

  // NaNs of the same bits are the same.
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::ranges::fill(tensor.bits16().subspan(rank * 100, 100), std::uint16_t{0x7E01});
  }
  EXPECT_FALSE(first_rank_difference(DType::fp16, 4, tensor.bytes()).has_value());
}

TEST(FirstRankDifference, OfOneRankOrOfNothingIsNone) {
  const std::vector<std::byte> bytes(8);
  EXPECT_FALSE(first_rank_difference(DType::fp32, 1, bytes).has_value());
  EXPECT_FALSE(first_rank_difference(DType::fp32, 2, bytes).has_value());
  EXPECT_FALSE(first_rank_difference(DType::fp32, 5, {}).has_value());
  EXPECT_THROW(first_rank_difference(DType::fp32, 0, bytes), InvalidInput);
  EXPECT_THROW(first_rank_difference(DType::fp32, 3, bytes), InvalidInput);
}

TEST(ToDouble, IsExact) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const auto bytes = std::as_bytes(std::span(&pattern, 1));
    const double half = to_double(DType::fp16, bytes)[0];
    const double bfloat = to_double(DType::bf16, bytes)[0];
    ASSERT_TRUE(half == half_to_float(pattern) || std::isnan(half));
    ASSERT_EQ(std::isnan(half), (bits & 0x7FFF) > 0x7C00);
    ASSERT_TRUE(bfloat == bfloat16_to_float(pattern) || std::isnan(bfloat));
    ASSERT_EQ(std::isnan(bfloat), (bits & 0x7FFF) > 0x7F80);
  }
}

}  // namespace
}  // namespace arlab
