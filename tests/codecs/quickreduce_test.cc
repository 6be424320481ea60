// Properties of the QuickReduce codecs, each stated as it is tested (reference/codecs/SPEC.md,
// "QuickReduce (qr-*)").
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

constexpr std::size_t kAtom = 2048;
constexpr std::size_t kGroup = 64;
constexpr std::size_t kBlock = 32;

class QuickReduce : public ::testing::TestWithParam<CodecAndDType> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  DType dtype() const { return GetParam().dtype; }
  std::size_t scales_at() const { return codec().wire_bytes(dtype(), 1) - 128; }

  Bytes wire_of(const Patterns& x) const { return encode(codec(), dtype(), x); }
  Patterns trip(const Patterns& x) const { return round_trip(codec(), dtype(), x); }

  /// The scale of a block of the first atom: block 2g of group g is the even one.
  std::uint16_t scale(const Bytes& wire, std::size_t block) const {
    std::uint16_t bits = 0;
    std::memcpy(&bits, &wire[scales_at() + 2 * block], 2);
    return bits;
  }
};

class QuickReduceIntegers : public QuickReduce {
 protected:
  /// L: codes are -L .. L - 1.
  float levels() const { return std::exp2(static_cast<float>(codec().name().back() - '1')); }
};
class QuickReduceFloats : public QuickReduce {};
/// Where three roundings move no code by half a step: all integers but those of q8 in bf16.
class QuickReduceStableCodes : public QuickReduce {};

const std::vector<std::string> kIntegers = {"qr-q8", "qr-q6", "qr-q4", "qr-q3"};
const std::vector<std::string> kFloats = {"qr-fp8", "qr-fp4"};
const auto kStable = [] {
  std::vector<CodecAndDType> all = with_their_dtypes(kIntegers);
  std::erase_if(all, [](const CodecAndDType& one) {
    return one.codec->name() == "qr-q8" && one.dtype == DType::bf16;
  });
  return all;
};
INSTANTIATE_TEST_SUITE_P(Integers, QuickReduce, ::testing::ValuesIn(with_their_dtypes(kIntegers)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Floats, QuickReduce, ::testing::ValuesIn(with_their_dtypes(kFloats)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(All, QuickReduceIntegers,
                         ::testing::ValuesIn(with_their_dtypes(kIntegers)), test_name);
INSTANTIATE_TEST_SUITE_P(All, QuickReduceFloats, ::testing::ValuesIn(with_their_dtypes(kFloats)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(All, QuickReduceStableCodes, ::testing::ValuesIn(kStable()), test_name);

// Blocks.

TEST_P(QuickReduce, ABlockDependsOnItsOwnElementsOnly) {
  const Patterns x = synthetic("adversarial:seed=4", dtype(), kAtom);
  const Patterns other = synthetic("adversarial:seed=5", dtype(), kAtom);
  const Patterns before = trip(x);
  for (std::size_t block = 0; block < kAtom / kBlock; ++block) {
    const auto is_of_block = [block](std::size_t i) {
      return i / kGroup == block / 2 && i % 2 == block % 2;
    };
    Patterns changed = x;
    for (std::size_t i = 0; i < kAtom; ++i) changed[i] = is_of_block(i) ? other[i] : x[i];
    const Patterns after = trip(changed);
    for (std::size_t i = 0; i < kAtom; ++i) {
      if (!is_of_block(i)) {
        ASSERT_EQ(after[i], before[i]) << "element " << i << " of another block than " << block;
      }
    }
  }
}

TEST_P(QuickReduce, TheOrderWithinABlockDoesNotMatter) {
  const Patterns x = synthetic("adversarial:seed=6", dtype(), kAtom);
  const auto reversed_blocks = [](const Patterns& in) {
    Patterns out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t place = i % kGroup / 2;
      out[i] = in[i - 2 * place + 2 * (kBlock - 1 - place)];
    }
    return out;
  };
  EXPECT_EQ(trip(reversed_blocks(x)), reversed_blocks(trip(x)));
}

TEST_P(QuickReduceIntegers, TheScaleOfABlockIsItsExtremeTimesAConstant) {
  Patterns x(kAtom);
  for (std::size_t block = 0; block < kAtom / kBlock; ++block) {
    const float m = (block % 3 == 0 ? -1.0f : 1.0f) * static_cast<float>(block + 1);
    x[block / 2 * kGroup + block % 2 + 2 * (block % kBlock)] = pattern(dtype(), m);
  }
  const Bytes wire = wire_of(x);
  for (std::size_t block = 0; block < kAtom / kBlock; ++block) {
    const float m = (block % 3 == 0 ? -1.0f : 1.0f) * static_cast<float>(block + 1);
    EXPECT_EQ(value(dtype(), scale(wire, block)), -m / levels()) << block;
  }
}

TEST_P(QuickReduceIntegers, TheExtremeOfAnOrdinaryBlockComesBackExactly) {
  const std::size_t first = pattern(dtype(), 1.0f);
  const std::size_t last = pattern(dtype(), 1024.0f);
  Patterns x((last - first) * kGroup, pattern(dtype(), 0.25f));
  for (std::size_t bits = first; bits < last; ++bits) {
    x[(bits - first) * kGroup + 10] = static_cast<std::uint16_t>(bits);
    x[(bits - first) * kGroup + 11] = static_cast<std::uint16_t>(bits | 0x8000);
  }
  const Patterns back = trip(x);
  for (std::size_t group = 0; group < last - first; ++group) {
    ASSERT_EQ(back[group * kGroup + 10], x[group * kGroup + 10]);
    ASSERT_EQ(back[group * kGroup + 11], x[group * kGroup + 11]);
  }
}

TEST_P(QuickReduceIntegers, ATieTakesTheMinimum) {
  Patterns x(kGroup);
  x[0] = x[1] = pattern(dtype(), 2.0f);
  x[2] = x[3] = pattern(dtype(), -2.0f);
  EncodeCounts counts;
  const Bytes wire = encode(codec(), dtype(), x, &counts);
  EXPECT_GT(value(dtype(), scale(wire, 0)), 0) << "d = min * k, with a negative k";
  EXPECT_EQ(counts.clamped, 2u) << "the two maxima";
  const std::vector<float> back = values(dtype(), decode(codec(), dtype(), wire, kGroup));
  EXPECT_EQ(back[2], -2.0f);
  EXPECT_EQ(back[3], -2.0f);
  EXPECT_LT(back[0], 2.0f);
  EXPECT_GT(back[0], 0.0f);
}

TEST_P(QuickReduceStableCodes, EncodingWhatWasDecodedGivesTheSameWire) {
  const Patterns x = synthetic("gaussian:sigma=10", dtype(), 50 * kAtom);
  const Bytes wire = wire_of(x);
  EXPECT_EQ(wire_of(decode(codec(), dtype(), wire, x.size())), wire);
}

TEST_P(QuickReduceFloats, NegationIsASymmetry) {
  const Patterns x = synthetic("adversarial:seed=7,non_finite=0", dtype(), kAtom);
  const auto negated = [](Patterns patterns) {
    for (std::uint16_t& bits : patterns) bits ^= 0x8000;
    return patterns;
  };
  const std::vector<float> back = values(dtype(), trip(x));
  const std::vector<float> back_of_negated = values(dtype(), trip(negated(x)));
  for (std::size_t i = 0; i < kAtom; ++i) ASSERT_EQ(back_of_negated[i], -back[i]) << i;
}

// Zeros.

TEST_P(QuickReduceIntegers, ZerosTakeTheSignOfTheScale) {
  EXPECT_EQ(trip(Patterns(kGroup, 0x0000)), Patterns(kGroup, 0x8000)) << "+0 * k = -0";
  EXPECT_EQ(trip(Patterns(kGroup, 0x8000)), Patterns(kGroup, 0x0000)) << "-0 * k = +0";
  Patterns mixed(kGroup, 0x0000);
  mixed[20] = mixed[31] = 0x8000;
  EXPECT_EQ(trip(mixed), Patterns(kGroup, 0x0000)) << "-0 is the minimum";
}

TEST_P(QuickReduceFloats, ZerosKeepWhatSignTheFormatHas) {
  const bool has_minus_zero = codec().name() == "qr-fp4";
  for (const float extreme : {3.0f, -3.0f}) {
    Patterns mixed(kGroup, 0x0000);
    mixed[0] = mixed[1] = pattern(dtype(), extreme);
    mixed[20] = mixed[31] = 0x8000;
    const Patterns back = trip(mixed);
    for (const std::size_t i : {2, 20, 31}) {
      EXPECT_EQ(back[i], has_minus_zero ? mixed[i] : 0x0000) << extreme << " " << i;
    }
  }
}

TEST_P(QuickReduceFloats, AMinusZeroAmongZerosIsTheExtremeOfASignedScale) {
  Patterns mixed(kGroup, 0x0000);
  mixed[20] = mixed[31] = 0x8000;
  Patterns turned(kGroup, 0x8000);
  turned[20] = turned[31] = 0x0000;
  EXPECT_EQ(trip(mixed), codec().name() == "qr-fp4" ? turned : Patterns(kGroup, 0x0000));
}

// Scales of AMD's kernels (aiter's CodecFP8, vLLM's CodecFP4).

/// The scale of a block of zeros but for this element.
std::uint16_t scale_of_extreme(const char* name, DType dtype, std::uint16_t extreme) {
  Patterns x(kGroup, 0);
  x[0] = extreme;
  const CodecPtr codec = find_codec(name);
  const Bytes wire = encode(*codec, dtype, x);
  std::uint16_t bits = 0;
  std::memcpy(&bits, &wire[codec->wire_bytes(dtype, 1) - 128], 2);
  return bits;
}

TEST(QuickReduceScales, TheConstantOfBf16IsThatOfFp16Rounded) {
  // 0x1C44, nearest 1/240 in fp16, is a tie in bf16: 0x3B88. With RN(1/240) = 0x3B89: 0x3C1F.
  EXPECT_EQ(scale_of_extreme("qr-fp8", DType::bf16, 0x4015), 0x3C1E);
  EXPECT_EQ(scale_of_extreme("qr-fp8", DType::bf16, 0x3F80), 0x3B88);
  EXPECT_EQ(scale_of_extreme("qr-fp8", DType::fp16, 0x3C00), 0x1C44);
  EXPECT_EQ(scale_of_extreme("qr-fp4", DType::bf16, 0x3F80), 0x3E2B);
  EXPECT_EQ(scale_of_extreme("qr-fp4", DType::fp16, 0x3C00), 0x3155);
}

TEST(QuickReduceScales, Fp4TakesTheSignOfItsExtremeAndFp8Not) {
  const std::uint16_t extreme = half_from_float(-2.324f);
  EXPECT_EQ(scale_of_extreme("qr-fp4", DType::fp16, extreme), 0xB632);
  EXPECT_EQ(scale_of_extreme("qr-fp4", DType::fp16, extreme & 0x7FFF), 0x3632);
  EXPECT_EQ(scale_of_extreme("qr-fp4", DType::bf16, 0xBF80), 0xBE2B);
  EXPECT_EQ(scale_of_extreme("qr-fp8", DType::fp16, 0xBC00), 0x1C44);
  EXPECT_EQ(scale_of_extreme("qr-fp8", DType::bf16, 0xBF80), 0x3B88);
  // Codes follow: the extreme, -6, becomes +6, code 7; 3 becomes -3, code 5 and the sign.
  const Patterns x = patterns(DType::fp16, {-6, 0, 3, 0});
  const Bytes wire = encode(*find_codec("qr-fp4"), DType::fp16, x);
  EXPECT_EQ(std::to_integer<int>(wire[0]), 0x07);
  EXPECT_EQ(std::to_integer<int>(wire[1]) & 0xF, 0xD);
}

// What is not finite.

TEST_P(QuickReduce, ANaNOrInfinitySpoilsItsBlockAndNoOther) {
  const Patterns ordinary = synthetic("gaussian", dtype(), kAtom);
  const Patterns before = trip(ordinary);
  const std::uint16_t infinity = dtype() == DType::fp16 ? 0x7C00 : 0x7F80;
  for (const int odd_one : {+infinity, infinity | 0x8000, infinity + 1, 0x7FFF, 0xFFFF}) {
    for (std::size_t place = 0; place < kGroup; ++place) {
      Patterns x = ordinary;
      x[kGroup + place] = static_cast<std::uint16_t>(odd_one);
      const Patterns after = trip(x);
      for (std::size_t i = 0; i < kAtom; ++i) {
        const bool spoilt = i / kGroup == 1 && i % 2 == place % 2;
        ASSERT_EQ(after[i], spoilt ? canonical_nan(dtype()) : before[i]) << i << " of " << place;
      }
    }
  }
}

TEST_P(QuickReduce, FiniteBlocksStayFinite) {
  for (const char* spec : {"adversarial:seed=8,non_finite=0", "sweep:low=1e-8,high=65504",
                           "uniform:low=-65504,high=65504", "constant:value=65504",
                           "constant:value=-65504", "gaussian:sigma=30000"}) {
    for (const float v : values(dtype(), trip(synthetic(spec, dtype(), 20 * kAtom)))) {
      ASSERT_TRUE(std::isfinite(v)) << spec;
    }
  }
  // Every number as the extreme of a block.
  const unsigned infinity = dtype() == DType::fp16 ? 0x7C00 : 0x7F80;
  Patterns extremes(kGroup * infinity);
  for (unsigned bits = 0; bits < infinity; ++bits) {
    extremes[kGroup * bits] = static_cast<std::uint16_t>(bits);
    extremes[kGroup * bits + 1] = static_cast<std::uint16_t>(bits | 0x8000);
  }
  for (const float v : values(dtype(), trip(extremes))) ASSERT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace arlab::testing
