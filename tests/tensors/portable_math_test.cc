#include "reference/tensors/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "reference/tensors/counter_random.h"
#include "reference/tensors/normals.h"

namespace arlab {
namespace {

// The standard library's long double functions, 64 bits of precision here, are close enough to the
// truth to measure errors of 1e-15.
static_assert(LDBL_MANT_DIG >= 64);

double relative_error(double value, long double truth) {
  return static_cast<double>(std::abs((value - truth) / truth));
}

TEST(PortableMath, LogIsAccurate) {
  double worst = 0;
  std::mt19937_64 random(1);
  for (int i = 0; i < 300000; ++i) {
    const double unit = unit_interval(random());
    const double wide = std::ldexp(0.5 + unit / 2, static_cast<int>(random() % 2000) - 1000);
    const double near_one = 1 + (unit - 0.5) * std::ldexp(1.0, -static_cast<int>(random() % 40));
    for (const double x : {unit, wide, near_one}) {
      if (x != 1)
        worst = std::max(worst, relative_error(portable_log(x), std::log((long double)x)));
    }
  }
  EXPECT_LT(worst, 6e-16);
  EXPECT_EQ(portable_log(1), 0);
}

TEST(PortableMath, Exp2IsAccurate) {
  double worst = 0;
  std::mt19937_64 random(2);
  for (int i = 0; i < 300000; ++i) {
    const double x = 2000 * unit_interval(random()) - 1000;
    worst = std::max(worst, relative_error(portable_exp2(x), std::exp2((long double)x)));
  }
  EXPECT_LT(worst, 6e-16);
  for (int n = -1022; n <= 1023; ++n) EXPECT_EQ(portable_exp2(n), std::ldexp(1.0, n));
}

TEST(PortableMath, NormalQuantileInvertsTheDistribution) {
  // An error d of the quantile x changes the probability p by a factor of about 1 + x d.
  double worst = 0;
  std::mt19937_64 random(3);
  for (int i = 0; i < 300000; ++i) {
    const double p = std::ldexp(unit_interval(random()), -1 - static_cast<int>(random() % 50));
    if (p < 0x1p-54) continue;
    const double x = -normal_quantile(p - 0.5);  // p - 1/2 is rounded for small p
    const double rounded = 0.5 - std::abs(p - 0.5);
    const long double tail = std::erfc(x / std::sqrt(2.0L)) / 2;
    worst = std::max(worst, relative_error(rounded, tail) / (1 + x * x));
  }
  EXPECT_LT(worst, 2e-15);
}

TEST(PortableMath, NormalQuantileIsOddAndMonotone) {
  double last = 0;
  for (int i = 1; i < 100000; ++i) {
    const double q = i * (0.5 / 100000);
    const double x = normal_quantile(q);
    EXPECT_GT(x, last);
    EXPECT_EQ(normal_quantile(-q), -x);
    last = x;
  }
}

TEST(PortableMath, IntervalsAreOpenAndExact) {
  EXPECT_EQ(unit_interval(0), 0x1p-53);
  EXPECT_EQ(unit_interval(~std::uint64_t{0}), 1 - 0x1p-53);
  EXPECT_EQ(centred_interval(0), 0x1p-54);
  EXPECT_EQ(centred_interval(~std::uint64_t{0}), -0x1p-54);
  EXPECT_EQ(centred_interval(~std::uint64_t{0} >> 1), 0.5 - 0x1p-54);
  EXPECT_EQ(centred_interval(std::uint64_t{1} << 63), -0.5 + 0x1p-54);
  EXPECT_NEAR(standard_normal(std::uint64_t{1} << 63), -8.29, 0.01);
}

TEST(CounterRandom, ManyNormalsAreTheSameAsOneByOne) {
  const RandomStream random(5, 6);
  std::vector<double> many(1300);
  standard_normals(random, 7, many);
  for (std::size_t i = 0; i < many.size(); ++i) {
    EXPECT_EQ(many[i], standard_normal(random.word(7 + i)));
  }
}

/// Odd numbers have an inverse modulo 2^64; by Newton's method, each step of which doubles the bits.
std::uint64_t inverse(std::uint64_t odd) {
  std::uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
  return x;
}

/// The number that mix_bits() makes this word of.
std::uint64_t before_mixing(std::uint64_t word) {
  word = (word ^ word >> 31 ^ word >> 62) * inverse(0x94d049bb133111eb);
  word = (word ^ word >> 27 ^ word >> 54) * inverse(0xbf58476d1ce4e5b9);
  return word ^ word >> 30 ^ word >> 60;
}

/// The far tails are one in 10^11, so that words are put where they are wanted.
TEST(CounterRandom, ManyNormalsAreTheSameInTheFarTails) {
  const RandomStream random(5, 6);
  for (const std::uint64_t far : {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 28,
                                  std::uint64_t{1} << 35, std::uint64_t{1} << 45}) {
    for (const std::uint64_t word : {far + (std::uint64_t{1} << 63), ~far >> 1}) {
      const std::uint64_t index =
          (before_mixing(word) - random.before_mixing(0)) * inverse(RandomStream::kStep);
      ASSERT_EQ(random.word(index), word);
      std::vector<double> many(9);
      standard_normals(random, index - 4, many);
      EXPECT_EQ(many[4], standard_normal(word)) << word;
      EXPECT_GT(std::abs(many[4]), 4) << word;
    }
  }
}

TEST(CounterRandom, IsSplitMix64) {
  // The published reference sequence for the state 1234567.
  std::uint64_t state = 1234567;
  const auto next = [&state] { return mix_bits(state += 0x9e3779b97f4a7c15); };
  EXPECT_EQ(next(), 6457827717110365317u);
  EXPECT_EQ(next(), 3203168211198807973u);
  EXPECT_EQ(next(), 9817491932198370423u);
}

TEST(CounterRandom, EverySeedRankAndPurposeHasItsOwnStream) {
  std::set<std::uint64_t> words;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    for (std::uint64_t rank = 0; rank < 16; ++rank) {
      for (std::uint64_t purpose = 0; purpose < 2; ++purpose) {
        for (std::uint64_t i = 0; i < 64; ++i) {
          words.insert(RandomStream(seed, rank, purpose).word(i));
        }
      }
    }
  }
  EXPECT_EQ(words.size(), 16u * 16 * 2 * 64);
}

}  // namespace
}  // namespace arlab
