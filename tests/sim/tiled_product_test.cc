// A matrix product beside a kernel that has some multiprocessors: by hand, and against what was
// measured.

#include "sim/workload/tiled_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "reference/csv.h"

namespace arlab {
namespace {

/// Returns the end of the last of two kernels that begin together, in us.
double beside_us(double product_us, double tiles, double other_us, std::uint32_t others,
                 std::uint32_t all) {
  TiledProduct product(0, product_us, tiles, all, others);
  product.give(others, other_us);
  return std::max(other_us, product.end_us());
}

TEST(TiledProduct, AloneTakesItsTime) {
  EXPECT_EQ(TiledProduct(5, 30, 24, 8, 0).end_us(), 35);
  EXPECT_EQ(tiles_of_product(129, 256), 2);
}

TEST(TiledProduct, OfFewWavesLosesAWholeOne) {
  // 8 pairs of tiles on 4 pairs of multiprocessors: two waves of 10 us. One multiprocessor less for 10
  // us: 3 + 4, and one more pair of tiles, which begins at 20. For less than that, it begins sooner.
  EXPECT_EQ(beside_us(20, 16, 10, 1, 8), 30);
  EXPECT_EQ(beside_us(20, 16, 4, 1, 8), 24);
  // 7 pairs of tiles leave one slot unused.
  EXPECT_EQ(beside_us(20, 14, 10, 1, 8), 20);
}

TEST(TiledProduct, GivesMultiprocessorsAsTilesEnd) {
  // The other kernel comes at 13 us and gets two pairs when the second wave ends.
  TiledProduct product(0, 30, 24, 8, 0);
  EXPECT_EQ(product.take(2, 13), 20);
  EXPECT_EQ(product.end_us(), 40);
  product.give(2, 25);
  EXPECT_EQ(product.end_us(), 35);
  // One pair is left to it, and no more is given back than there is.
  TiledProduct little(0, 30, 24, 8, 0);
  EXPECT_EQ(little.take(8, 0), 10);
  little.give(8, 10);
  EXPECT_EQ(little.end_us(), 30);
}

TEST(TiledProduct, IsNearWhatWasMeasured) {
  // bench_torch_overlap.py: [tokens, 14336] by [14336, 8192] beside an all-reduce on 8 to 32 of 132
  // multiprocessors, of which the time alone is measured, too.
  const CsvTable table =
      read_csv(std::filesystem::path(ARLAB_MEASURED) / "h200_overlap_2026-11-26.csv");
  const auto& names = table.rows.front();
  const auto column = [&](std::size_t row, const char* name) {
    const auto at = std::ranges::find(names, name) - names.begin();
    return table.rows[row][static_cast<std::size_t>(at)];
  };
  double sum = 0;
  double sum_of_bound = 0;
  double largest = 0;
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const double product_us = number_of(column(row, "product_us"));
    const double other_us = number_of(column(row, "all_reduce_us"));
    const double measured_us = number_of(column(row, "beside_us"));
    const double ours_us =
        beside_us(product_us, tiles_of_product(number_of(column(row, "tokens")), 8192), other_us,
                  static_cast<std::uint32_t>(number_of(column(row, "sms"))), 132);
    const double error = std::abs(ours_us / measured_us - 1);
    sum += error;
    sum_of_bound += std::abs(std::max(product_us, other_us) / measured_us - 1);
    largest = std::max(largest, error);
  }
  const double rows = static_cast<double>(table.rows.size() - 1);
  EXPECT_EQ(rows, 30);
  EXPECT_NEAR(sum / rows, 0.047, 0.001);
  EXPECT_NEAR(largest, 0.195, 0.001);
  // If nothing were taken from the product.
  EXPECT_NEAR(sum_of_bound / rows, 0.202, 0.001);
}

}  // namespace
}  // namespace arlab
