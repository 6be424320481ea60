// Quantized linear layers, scalar and with vectors.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "reference/error.h"
#include "reference/layers/linear.h"
#include "tests/codecs/simd/on_target.h"

namespace arlab {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();

const std::vector<std::string> kInt8 = {"int8", "int8-asym", "int8-tensor", "int8-tensor-asym"};

OperandFormat of_x(std::string_view name) { return parse_operand(Operand::activations, name); }
OperandFormat of_w(std::string_view name) { return parse_operand(Operand::weights, name); }

struct Values {
  std::size_t rows, columns;
  std::vector<float> data;
  FloatRows view() const { return {data.data(), rows, columns, columns}; }
  float& at(std::size_t r, std::size_t i) { return data[r * columns + i]; }
};

Values normal(std::size_t rows, std::size_t columns, unsigned seed, float mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> distribution(mean, 1);
  Values v{rows, columns, std::vector<float>(rows * columns)};
  for (float& x : v.data) x = distribution(engine);
  return v;
}

/// Rows of zeros of both signs, of subnormals, of huge numbers, of ties, and of what is no number.
Values adversarial(std::size_t rows, std::size_t columns, unsigned seed) {
  Values v = normal(rows, columns, seed, 0.5F);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < columns; ++i) {
      float& x = v.at(r, i);
      switch (r % 8) {
        case 1:
          x = i % 2 == 0 ? 0.0F : -0.0F;
          break;
        case 2:
          x = (i % 3 == 0 ? -1.0F : 1.0F) * static_cast<float>(i % 90) * kSubnormal;
          break;
        case 3:
          x = i % 2 == 0 ? kLargest : -kLargest;
          break;
        case 4:
          x = i == 0 ? 127 : static_cast<float>(i % 255) - 127.5F;
          break;
        case 5:
          if (i == columns / 2) x = r % 16 < 8 ? kNaN : kInfinity;
          break;
        case 6:
          x = -std::abs(x);
          break;
        default:
          break;
      }
    }
  }
  return v;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i])) << i;
  }
}

TEST(Operands, NamesComeBack) {
  for (const char* name : {"none", "int8", "int8-asym", "int8-tensor", "int8-tensor-asym", "fp8",
                           "fp8-tensor", "int4-g128", "int4-g32-asym"}) {
    EXPECT_EQ(of_w(name).name(), name);
  }
  for (const char* name : {"none", "fp16", "bf16", "int8", "int8-asym", "int8-tensor-static",
                           "int8-tensor-asym-static", "fp8", "fp8-tensor-static"}) {
    EXPECT_EQ(of_x(name).name(), name);
  }
  for (const char* name :
       {"", "int", "int8-", "int8-asym-tensor", "int8-static", "fp8-asym", "int4", "int4-g",
        "int4-g12", "int4-g08", "int4-g65544", "int4-g8x", "fp16", "none-tensor",
        "int8-tensor-static", "int4-g99999999999999999999"}) {
    EXPECT_THROW(of_w(name), InvalidInput) << name;
  }
  for (const char* name : {"int4-g32", "int8-asym-static", "fp8-static", "fp16-tensor", "Int8"}) {
    EXPECT_THROW(of_x(name), InvalidInput) << name;
  }
}

TEST(Int8, ScalesAndCodes) {
  EXPECT_EQ(int8_scale({-2.54F, 1}, false), (Int8Scale{2.54F / 127, 0}));
  const Int8Scale scale = int8_scale({-1, 254}, true);
  EXPECT_EQ(scale, (Int8Scale{254.0F / 255 + 1.0F / 255, -127}));
  EXPECT_EQ(int8_code(-1, scale, true), -128);
  EXPECT_EQ(int8_code(254, scale, true), 127);
  EXPECT_EQ(int8_code(0, scale, true), -127);
  EXPECT_EQ(int8_value(int8_code(0, scale, true), scale), 0);
  EXPECT_EQ(int8_code(0.5F, {1, 0}, false), 0);  // ties are even
  EXPECT_EQ(int8_code(1.5F, {1, 0}, false), 2);
  EXPECT_EQ(int8_code(-1e30F, {1, 3}, false), -127);
  EXPECT_EQ(int8_code(-1e30F, {1, 3}, true), -128);
  EXPECT_EQ(int8_code(1e30F, {1e-30F, 3}, true), 127);
  // Zero is one of the elements, and the scale of the largest numbers is one.
  EXPECT_EQ(int8_scale({0, 5}, true).zero, -128);
  EXPECT_EQ(int8_scale({-5, 0}, true).zero, 127);
  EXPECT_TRUE(std::isfinite(int8_scale({-kLargest, kLargest}, true).scale));
  EXPECT_TRUE(std::isnan(int8_scale({0, kInfinity}, true).scale));
  EXPECT_EQ(int8_scale({0, kSubnormal}, false).scale, 0);
  EXPECT_EQ(int8_code(kSubnormal, {0, 0}, false), 0);
}

/// The correction terms add up: the sum of (x - x_zero) (w - w_zero), in the largest case too.
TEST(Int8, CorrectedSums) {
  for (const auto& [x_name, w_name] :
       {std::pair("int8-asym", "int8-asym"), std::pair("int8", "int8-asym"),
        std::pair("int8-asym", "int8"), std::pair("int8", "int8")}) {
    const std::size_t limit = int8_inputs_limit(of_x(x_name).asymmetric, of_w(w_name).asymmetric);
    for (const std::size_t inputs : {std::size_t{1}, std::size_t{77}, limit}) {
      Values x = normal(3, inputs, 1, 2);
      Values w = normal(2, inputs, 2, -3);
      // All codes as far from zero as can be.
      for (std::size_t i = 0; i < inputs; ++i) x.at(2, i) = w.at(1, i) = 1;
      const Int8Matrix qx = quantize_int8_scalar(x.view(), of_x(x_name));
      const Int8Matrix qw = quantize_int8_scalar(w.view(), of_w(w_name));
      const std::vector<float> y = linear_int8_scalar(qx, qw);
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t o = 0; o < w.rows; ++o) {
          std::int64_t sum = 0;
          for (std::size_t i = 0; i < inputs; ++i) {
            sum += std::int64_t{qx.codes[r * inputs + i] - qx.scales[r].zero} *
                   (qw.codes[o * inputs + i] - qw.scales[o].zero);
          }
          ASSERT_EQ(sum, static_cast<std::int32_t>(sum));
          EXPECT_EQ(y[r * w.rows + o],
                    static_cast<float>(sum) * qw.scales[o].scale * qx.scales[r].scale);
        }
      }
    }
    const Values long_one = normal(1, limit + 1, 3);
    const Int8Matrix x = quantize_int8_scalar(long_one.view(), of_x(x_name));
    const Int8Matrix w = quantize_int8_scalar(long_one.view(), of_w(w_name));
    EXPECT_THROW(linear_int8_scalar(x, w), InvalidInput);
    EXPECT_THROW(linear_int8(x, w), InvalidInput);
  }
}

TEST(Int8, VectorsHaveTheScalarBits) {
  for (const std::int64_t target : testing::supported_targets()) {
    const testing::OnTarget on(target);
    unsigned seed = 0;
    for (const auto& [rows, outputs, inputs] : {std::array<std::size_t, 3>{1, 1, 1},
                                                {7, 16, 8},
                                                {13, 35, 301},
                                                {64, 200, 95},
                                                {6, 17, 2}}) {
      for (const std::string& x_name : kInt8) {
        for (const std::string& w_name : kInt8) {
          const Values x =
              seed % 2 == 0 ? adversarial(rows, inputs, seed) : normal(rows, inputs, seed, 1);
          const Values w =
              seed % 3 == 0 ? adversarial(outputs, inputs, seed) : normal(outputs, inputs, seed);
          ++seed;
          const Int8Matrix qx = quantize_int8_scalar(x.view(), of_x(x_name));
          const Int8Matrix qw = quantize_int8_scalar(w.view(), of_w(w_name));
          for (const auto& [scalar, values, format] :
               {std::tuple(&qx, &x, of_x(x_name)), std::tuple(&qw, &w, of_w(w_name))}) {
            const Int8Matrix q = quantize_int8(values->view(), format, std::nullopt, 2);
            ASSERT_EQ(q.codes, scalar->codes) << format.name();
            ASSERT_EQ(q.sums, scalar->sums);
            for (std::size_t r = 0; r < q.rows; ++r) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(q.scales[r].scale),
                        std::bit_cast<std::uint32_t>(scalar->scales[r].scale));
              ASSERT_EQ(q.scales[r].zero, scalar->scales[r].zero);
            }
          }
          expect_same_bits(linear_int8(qx, qw, 2), linear_int8_scalar(qx, qw));
          if (inputs < 3) continue;
          expect_same_bits(linear_int8(qx.part(1, inputs - 1), qw.part(1, inputs - 1), 1),
                           linear_int8_scalar(qx.part(1, inputs - 1), qw.part(1, inputs - 1)));
        }
      }
    }
  }
}

TEST(Int8, GivenScales) {
  Values x = adversarial(16, 33, 5);
  const Int8Scale given = {0.03F, 11};
  for (const char* name : {"int8-tensor-asym-static", "int8-tensor-static"}) {
    const Int8Matrix q = quantize_int8_scalar(x.view(), of_x(name), given);
    EXPECT_EQ(q.codes, quantize_int8(x.view(), of_x(name), given, 1).codes);
    for (std::size_t r = 0; r < x.rows; ++r) {
      if (r % 8 == 5) {
        EXPECT_TRUE(std::isnan(q.scales[r].scale));
      } else {
        EXPECT_EQ(q.scales[r], given);
      }
    }
    EXPECT_THROW(quantize_int8_scalar(x.view(), of_x(name)), InvalidInput);
    EXPECT_THROW(quantize_int8(x.view(), of_x(name), Int8Scale{-1, 0}, 1), InvalidInput);
  }
  EXPECT_THROW(quantize_int8_scalar(x.view(), of_x("int8"), given), InvalidInput);
}

}  // namespace
}  // namespace arlab
