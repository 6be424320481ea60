// The checks must see what is wrong: each mutant below is a plausible mistake, made on top of the
// true conversion, and the checking function that passes the true one has to report it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/formats/conversions.h"

namespace arlab::testing {
namespace {

constexpr std::uint32_t kStride = 65537;

template <typename FromFloat>
bool caught(const Format& format, Overflow overflow, FromFloat from_float) {
  return check_from_float(format, overflow, kStride, from_float).has_value();
}

bool is_finite_code(const Format& format, std::uint32_t code) {
  return !format.is_nan(code) && (code & (format.sign_bit() - 1)) <= format.largest;
}

TEST(FormatMutants, RoundingTowardsZero) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    const auto truncate = [&](float value) -> std::uint32_t {
      const std::uint32_t code = from_float(value, Overflow::ieee);
      return std::abs(to_float(code)) > std::abs(value) ? code - 1 : code;
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, truncate)) << format.name;
  });
}

TEST(FormatMutants, TiesAwayFromZero) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    const auto ties_away = [&](float value) -> std::uint32_t {
      const std::uint32_t code = from_float(value, Overflow::ieee);
      if (!is_finite_code(format, code) || !is_finite_code(format, code + 1)) return code;
      const double size = std::abs(value);
      const double above = std::abs(to_float(code + 1)) - size;
      const double below = size - std::abs(to_float(code));
      return below > 0 && below == above ? code + 1 : code;
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, ties_away)) << format.name;
  });
}

TEST(FormatMutants, SubnormalsFlushed) {
  for_each_format([](const Format& format, auto, auto from_float) {
    const float min_normal = std::ldexp(1.0f, 1 - format.bias);
    const auto flush = [&](float value) -> std::uint32_t {
      const bool is_small = std::abs(value) < min_normal;
      return from_float(is_small ? std::copysign(0.0f, value) : value, Overflow::ieee);
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, flush)) << format.name;
  });
}

TEST(FormatMutants, CarryIntoTheExponentLost) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    const auto lose_carry = [&](float value) -> std::uint32_t {
      const std::uint32_t code = from_float(value, Overflow::ieee);
      const std::uint32_t next_exponent = 1u << format.mantissa_bits;
      const bool carried = is_finite_code(format, code) && code % next_exponent == 0 &&
                           std::abs(to_float(code)) > std::abs(value);
      return carried ? code - next_exponent : code;
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, lose_carry)) << format.name;
  });
}

TEST(FormatMutants, RoundingTwice) {
  for_each_format([](const Format& format, auto, auto from_float) {
    const auto round_twice = [&](float value) -> std::uint32_t {
      if (!std::isfinite(value)) return from_float(value, Overflow::ieee);
      const int excess_bits = 23 - (format.mantissa_bits + 2);
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      const std::uint32_t is_odd = (bits >> excess_bits) & 1;
      const std::uint32_t rounded = bits + (1u << (excess_bits - 1)) - 1 + is_odd;
      const std::uint32_t kept = rounded >> excess_bits << excess_bits;
      return from_float(std::bit_cast<float>(kept), Overflow::ieee);
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, round_twice)) << format.name;
  });
}

TEST(FormatMutants, OverflowWithoutRounding) {
  for_each_format([](const Format& format, auto, auto from_float) {
    if (format.overflow[0] == format.largest) return;  // saturates always, so this is no mistake
    const auto overflow_early = [&](float value) -> std::uint32_t {
      const bool is_large = std::abs(value) > format.largest_value;
      const float infinity = std::copysign(std::numeric_limits<float>::infinity(), value);
      return from_float(is_large ? infinity : value, Overflow::ieee);
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, overflow_early)) << format.name;
  });
}

TEST(FormatMutants, InfinityNotSaturated) {
  for_each_format([](const Format& format, auto, auto from_float) {
    if (format.overflow[0] == format.largest) return;
    const auto keep_infinity = [&](float value) -> std::uint32_t {
      return from_float(value, std::isinf(value) ? Overflow::ieee : Overflow::saturate);
    };
    EXPECT_TRUE(caught(format, Overflow::saturate, keep_infinity)) << format.name;
  });
}

TEST(FormatMutants, NanSaturated) {
  for_each_format([](const Format& format, auto, auto from_float) {
    const auto launder = [&](float value) -> std::uint32_t {
      return std::isnan(value) ? format.largest : from_float(value, Overflow::saturate);
    };
    EXPECT_TRUE(caught(format, Overflow::saturate, launder)) << format.name;
  });
}

TEST(FormatMutants, NanCutToInfinity) {
  for_each_format([](const Format& format, auto, auto from_float) {
    if (format.code_bits != 16) return;  // the formats that keep a payload
    const auto cut = [&](float value) -> std::uint32_t {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      if (!std::isnan(value)) return from_float(value, Overflow::ieee);
      const std::uint32_t payload = (bits & 0x7FFFFF) >> (23 - format.mantissa_bits);
      return format.overflow[bits >> 31] | payload;
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, cut)) << format.name;
  });
}

TEST(FormatMutants, SignOfZeroLost) {
  for_each_format([](const Format& format, auto, auto from_float) {
    if (!format.has_minus_zero) return;
    const auto lose_sign = [&](float value) -> std::uint32_t {
      return value == 0 ? 0u : from_float(value, Overflow::ieee);
    };
    EXPECT_TRUE(caught(format, Overflow::ieee, lose_sign)) << format.name;
  });
}

TEST(FormatMutants, SignedZeroInAFormatWithoutOne) {
  const auto keep_sign = [](float value) -> std::uint32_t {
    const std::uint32_t code = e4m3fnuz_from_float(value, Overflow::ieee);
    return code == 0 && std::signbit(value) ? 0x80 : code;
  };
  EXPECT_TRUE(caught(kOracleE4m3fnuz, Overflow::ieee, keep_sign));
}

TEST(FormatMutants, OfTheValues) {
  for_each_format([](const Format& format, auto to_float, auto) {
    SCOPED_TRACE(format.name);
    const float min_normal = std::ldexp(1.0f, 1 - format.bias);
    const auto with_implicit_one = [&](std::uint32_t code) {
      const float value = to_float(code);
      const bool is_subnormal = value != 0 && std::abs(value) < min_normal;
      return is_subnormal ? value + std::copysign(min_normal, value) : value;
    };
    const auto flushed = [&](std::uint32_t code) {
      const float value = to_float(code);
      return std::abs(value) < min_normal ? std::copysign(0.0f, value) : value;
    };
    const auto with_wrong_bias = [&](std::uint32_t code) { return to_float(code) / 2; };
    const auto unsigned_zero = [&](std::uint32_t code) {
      const float value = to_float(code);
      return value == 0 ? 0.0f : value;
    };
    EXPECT_FALSE(check_to_float(format, to_float).has_value());
    EXPECT_TRUE(check_to_float(format, with_implicit_one).has_value());
    EXPECT_TRUE(check_to_float(format, flushed).has_value());
    EXPECT_TRUE(check_to_float(format, with_wrong_bias).has_value());
    EXPECT_EQ(check_to_float(format, unsigned_zero).has_value(), format.has_minus_zero);
  });
}

TEST(FormatMutants, TheTruthPassesTheSameCheck) {
  for_each_format([](const Format& format, auto, auto from_float) {
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
      EXPECT_FALSE(caught(format, overflow, [&](float value) {
        return from_float(value, overflow);
      })) << format.name;
    }
  });
}

}  // namespace
}  // namespace arlab::testing
