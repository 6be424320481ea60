// The vector conversions of reference/codecs/simd/lanes-inl.h against reference/formats: all 16-bit
// patterns, and fp32 patterns around every rounding boundary and 4099 apart. With ARLAB_LONG_TESTS
// set, all 2^32 of them.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/codecs/simd/lanes_test.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "hwy/highway.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/formats/payload_arithmetic.h"

#ifndef ARLAB_LANE_FUNCTIONS  // once for all targets
#define ARLAB_LANE_FUNCTIONS
namespace arlab {
/// The conversions of a dtype of 16 bits, of many elements.
struct LaneFunctions {
  void (*to_float)(const std::uint16_t*, std::uint32_t*, std::size_t) = nullptr;
  void (*from_float)(const std::uint32_t*, std::uint16_t*, std::size_t) = nullptr;
  void (*round)(const std::uint32_t*, std::uint16_t*, std::size_t) = nullptr;
  void (*product)(const std::uint16_t*, std::uint16_t, std::uint32_t*, std::size_t) = nullptr;
};
}  // namespace arlab
#endif

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// Arrays of a multiple of 8 elements. Where there are no vectors there is nothing to test.

#if ARLAB_HAS_LANES

template <class Lanes>
void to_float(const std::uint16_t* bits, std::uint32_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kFloats) {
    hn::StoreU(bits_of(load_elements<Lanes>(bits + i)), U32(), out + i);
  }
}

template <class F>
HWY_INLINE void convert(const std::uint32_t* floats, std::uint16_t* out, std::size_t count, F f) {
  for (std::size_t i = 0; i < count; i += kFloats) {
    hn::StoreU(f(float_of(hn::LoadU(U32(), floats + i))), HalfU16(), out + i);
  }
}
template <class Lanes>
void from_float(const std::uint32_t* floats, std::uint16_t* out, std::size_t count) {
  convert(floats, out, count, [](FloatVector x) HWY_ATTR { return Lanes::from_float(x); });
}
template <class Lanes>
void round(const std::uint32_t* floats, std::uint16_t* out, std::size_t count) {
  convert(floats, out, count, [](FloatVector x) HWY_ATTR { return Lanes::round(x); });
}
/// The product of two elements, rounded to their significand as the encoder does it.
template <class Lanes>
void product(const std::uint16_t* x, std::uint16_t factor, std::uint32_t* out, std::size_t count) {
  const FloatVector f = Lanes::to_float(hn::Set(HalfU16(), factor));
  for (std::size_t i = 0; i < count; i += kFloats) {
    const FloatVector exact = hn::Mul(load_elements<Lanes>(x + i), f);
    hn::StoreU(bits_of(rounded_significand<Lanes::kLostBits>(exact)), U32(), out + i);
  }
}
template <class Lanes>
LaneFunctions functions() {
  return {to_float<Lanes>, from_float<Lanes>, round<Lanes>, product<Lanes>};
}
LaneFunctions half_lanes() { return functions<HalfLanes>(); }
LaneFunctions bfloat_lanes() { return functions<BfloatLanes>(); }

#else

LaneFunctions half_lanes() { return {}; }
LaneFunctions bfloat_lanes() { return {}; }

#endif  // ARLAB_HAS_LANES

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "reference/codecs/simd/halves.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/simd/on_target.h"

namespace arlab {

HWY_EXPORT(half_lanes);
HWY_EXPORT(bfloat_lanes);

namespace testing {
namespace {

using Narrow = std::function<void(const std::uint32_t*, std::uint16_t*, std::size_t)>;
using NarrowOne = std::uint16_t (*)(float);

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

/// fp32 patterns at which a conversion to 16 bits of which `lost` mantissa bits are cut off can go
/// wrong: every 16-bit number, the middle to the next, and their neighbours, for either dtype.
std::vector<std::uint32_t> boundaries() {
  std::vector<std::uint32_t> list;
  const auto around = [&](std::uint32_t bits) {
    for (std::uint32_t i = 0; i < 5; ++i) list.push_back(bits + i - 2);
  };
  for (std::uint32_t p = 0; p < 65536; ++p) {
    const float low = half_to_float(static_cast<std::uint16_t>(p));
    const float high = half_to_float(static_cast<std::uint16_t>(p + 1));
    around(std::bit_cast<std::uint32_t>(low));
    around(std::bit_cast<std::uint32_t>(low / 2 + high / 2));
    around(p << 16);
    around(p << 16 | 0x8000);
  }
  list.resize(list.size() / 8 * 8);
  return list;
}

/// The first pattern of which the conversion gives another result than the scalar one.
std::optional<std::string> differs(const Narrow& narrow, NarrowOne scalar, bool with_nan) {
  std::optional<std::string> found;
  std::vector<std::uint16_t> out;
  const auto compare = [&](const std::vector<std::uint32_t>& floats) {
    out.assign(floats.size(), 0x5A5A);
    narrow(floats.data(), out.data(), floats.size());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const float x = std::bit_cast<float>(floats[i]);
      if (!with_nan && x != x) continue;
      const std::uint16_t expected = scalar(x);
      if (out[i] == expected) continue;
      found = fmt::format("0x{:08x} becomes 0x{:04x}, not 0x{:04x}", floats[i], out[i], expected);
      return;
    }
  };
  compare(boundaries());
  constexpr std::size_t kPiece = 1 << 16;
  const std::uint64_t stride = std::getenv("ARLAB_LONG_TESTS") != nullptr ? 1 : 4099;
  std::vector<std::uint32_t> piece(kPiece);
  for (std::uint64_t first = 0; first < (std::uint64_t{1} << 32) && !found;) {
    for (std::uint32_t& bits : piece) {
      bits = static_cast<std::uint32_t>(first);
      first += stride;
    }
    compare(piece);
  }
  return found;
}

class Lanes : public ::testing::TestWithParam<std::int64_t> {
 private:
  OnTarget on_{GetParam()};

 protected:
  const LaneFunctions half = HWY_DYNAMIC_DISPATCH(half_lanes)();
  const LaneFunctions bfloat = HWY_DYNAMIC_DISPATCH(bfloat_lanes)();
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Lanes);  // on a machine without vectors

TEST_P(Lanes, AllSixteenBitPatternsToFloat) {
  const std::vector<std::uint16_t> all = all_patterns();
  std::vector<std::uint32_t> of_half(all.size());
  std::vector<std::uint32_t> of_bfloat(all.size());
  half.to_float(all.data(), of_half.data(), all.size());
  bfloat.to_float(all.data(), of_bfloat.data(), all.size());
  for (const std::uint16_t bits : all) {
    ASSERT_EQ(of_half[bits], std::bit_cast<std::uint32_t>(half_to_float(bits))) << bits;
    ASSERT_EQ(of_bfloat[bits], static_cast<std::uint32_t>(bits) << 16) << bits;
  }
}

std::uint16_t half_ieee(float x) { return half_from_float(x); }
std::uint16_t bfloat_ieee(float x) { return bfloat16_from_float(x); }
std::uint16_t half_clamped(float x) { return Fp16Arithmetic::from_float_clamped(x); }

TEST_P(Lanes, FromFloat) {
  EXPECT_EQ(differs(half.from_float, half_ieee, false), std::nullopt);
  EXPECT_EQ(differs(half.round, half_clamped, true), std::nullopt);
  EXPECT_EQ(differs(bfloat.from_float, bfloat_ieee, false), std::nullopt);
  EXPECT_EQ(differs(bfloat.round, Bf16Arithmetic::from_float, true), std::nullopt);
}

/// A product's rounding to the significand alone is that to the dtype, wherever the latter is a
/// normal number: all of one factor's patterns times some (ARLAB_LONG_TESTS: all) of the other's.
template <class ToFloat, class FromFloat>
void expect_products_round(const LaneFunctions& lanes, ToFloat to_float, FromFloat from_float,
                           float smallest_normal, float limit) {
  const std::vector<std::uint16_t> all = all_patterns();
  std::vector<std::uint32_t> out(all.size());
  const std::uint32_t stride = std::getenv("ARLAB_LONG_TESTS") != nullptr ? 1 : 997;
  for (std::uint32_t factor = 0; factor < 65536; factor += stride) {
    const auto f = static_cast<std::uint16_t>(factor);
    if (!(std::abs(to_float(f)) < limit)) continue;
    lanes.product(all.data(), f, out.data(), all.size());
    for (const std::uint16_t bits : all) {
      const float exact = to_float(bits) * to_float(f);
      const std::uint16_t expected = from_float(exact);
      if (!(std::abs(exact) >= smallest_normal && std::abs(to_float(expected)) < limit)) continue;
      ASSERT_EQ(std::bit_cast<float>(out[bits]), to_float(expected)) << bits << " * " << factor;
    }
  }
}

TEST_P(Lanes, ProductsRoundToTheSignificand) {
  expect_products_round(half, half_to_float, half_ieee, 0x1p-14f, 65504.0f);
  expect_products_round(bfloat, bfloat16_to_float, bfloat_ieee, 0x1p-96f, 0x1p96f);
}

INSTANTIATE_TEST_SUITE_P(Targets, Lanes, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

// ---------------------------------------------------------------- arrays of fp16

/// On every target, those without vectors, too.
class Halves : public ::testing::TestWithParam<std::int64_t> {
 private:
  OnTarget on_{GetParam()};
};

TEST_P(Halves, ConvertAsTheScalarFunctions) {
  const std::vector<std::uint16_t> all = all_patterns();
  std::vector<float> floats(all.size());
  std::vector<double> doubles(all.size());
  floats_of_halves(all, floats.data());
  doubles_of_halves(all, doubles.data());
  for (const std::uint16_t bits : all) {
    const float expected = half_to_float(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[bits]), std::bit_cast<std::uint32_t>(expected));
    ASSERT_EQ(std::bit_cast<std::uint64_t>(doubles[bits]),
              std::bit_cast<std::uint64_t>(static_cast<double>(expected)));
  }
  const auto narrow = [](bool clamp) {
    return [clamp](const std::uint32_t* values, std::uint16_t* out, std::size_t count) {
      halves_of_floats({reinterpret_cast<const float*>(values), count}, clamp, out);
    };
  };
  EXPECT_EQ(differs(narrow(false), Fp16Arithmetic::from_float, true), std::nullopt);
  EXPECT_EQ(differs(narrow(true), half_clamped, true), std::nullopt);
}

TEST_P(Halves, AddAsTheScalarFunctions) {
  const std::vector<std::uint16_t> all = all_patterns();
  for (std::uint64_t turn = 0; turn < 40; ++turn) {
    // Every pattern and another one: the first turns have itself, its negative and a zero.
    std::vector<std::uint16_t> other(all.size());
    for (const std::uint16_t bits : all) {
      other[bits] = turn == 0   ? bits
                    : turn == 1 ? bits ^ 0x8000
                    : turn == 2 ? 0x8000
                                : static_cast<std::uint16_t>(mix_bits(turn << 16 | bits));
    }
    std::vector<std::uint16_t> sum = all;
    std::vector<std::uint16_t> clamped = all;
    std::vector<float> exact(all.size());
    floats_of_halves(all, exact.data());
    add_halves(std::span(sum), other, false);
    add_halves(std::span(clamped), other, true);
    add_halves(std::span(exact), other);
    for (const std::uint16_t bits : all) {
      const float expected = half_to_float(bits) + half_to_float(other[bits]);
      ASSERT_EQ(sum[bits], Fp16Arithmetic::from_float(expected)) << bits << " + " << other[bits];
      ASSERT_EQ(clamped[bits], half_clamped(expected)) << bits << " + " << other[bits];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(exact[bits]),
                std::bit_cast<std::uint32_t>(Fp32Arithmetic::from_float(expected)));
    }
  }
}

TEST_P(Halves, OfAnyLengthTouchNothingElse) {
  for (std::size_t count = 0; count < 40; ++count) {
    std::vector<std::uint16_t> out(count + 1, 0x5A5A);
    const std::vector<float> values(count, 1.5f);
    halves_of_floats(values, false, out.data());
    add_halves(std::span(out).first(count), std::vector<std::uint16_t>(count, 0x3C00), false);
    EXPECT_EQ(std::ranges::count(out, 0x4100), static_cast<std::ptrdiff_t>(count));  // 2.5
    std::vector<double> doubles(count + 1, 7.0);
    doubles_of_halves(std::span(out).first(count), doubles.data());
    std::vector<float> floats(count + 1, 7.0f);
    floats_of_halves(std::span(out).first(count), floats.data());
    add_halves(std::span(floats).first(count), std::span(out).first(count));
    EXPECT_EQ(std::ranges::count(floats, 5.0f), static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(std::ranges::count(doubles, 2.5), static_cast<std::ptrdiff_t>(count));
    EXPECT_TRUE(out[count] == 0x5A5A && floats[count] == 7 && doubles[count] == 7) << count;
  }
}

TEST_P(Halves, SayWhatTheyRun) {
  const bool has_vectors = std::ranges::count(vector_targets(), GetParam()) != 0;
  const OnTarget on(GetParam());  // vector_targets() chooses all
  EXPECT_STREQ(target_of_halves(), has_vectors ? hwy::TargetName(GetParam()) : "");
}

INSTANTIATE_TEST_SUITE_P(Targets, Halves, ::testing::ValuesIn(supported_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

// Mistakes of conversions that must be seen.

Narrow mutant(std::uint16_t (*convert)(float)) {
  return [convert](const std::uint32_t* floats, std::uint16_t* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = convert(std::bit_cast<float>(floats[i]));
  };
}

TEST(LanesMutants, ATruncatedBfloatIsSeen) {  // as Highway 1.0.3 converts
  const auto truncated = [](float x) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  };
  EXPECT_NE(differs(mutant(truncated), bfloat_ieee, false), std::nullopt);
}

TEST(LanesMutants, AHalfThatTiesAwayFromZeroIsSeen) {
  const auto away = [](float x) {
    const float up = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + 1);
    const bool is_tie = (std::bit_cast<std::uint32_t>(x) & 0x1FFF) == 0x1000;
    return half_from_float(is_tie ? up : x);
  };
  EXPECT_NE(differs(mutant(away), half_ieee, false), std::nullopt);
}

TEST(LanesMutants, AnInfinityThatBecomesFiniteIsSeen) {
  const auto finite = [](float x) { return half_from_float(x, Overflow::saturate); };
  EXPECT_NE(differs(mutant(finite), half_ieee, false), std::nullopt);
}

TEST(LanesMutants, FlushedSubnormalsAreSeen) {  // as AVX-512's bf16 conversion does
  const auto flushed = [](float x) {
    return bfloat16_from_float(std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x);
  };
  EXPECT_NE(differs(mutant(flushed), bfloat_ieee, false), std::nullopt);
}

TEST(LanesMutants, ANaNThatIsNotCanonicalIsSeen) {
  EXPECT_NE(differs(mutant(half_ieee), half_clamped, true), std::nullopt);
}

}  // namespace
}  // namespace testing
}  // namespace arlab

#endif  // HWY_ONCE
