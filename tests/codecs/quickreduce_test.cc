// Properties of the QuickReduce codecs, each stated as it is tested (reference/codecs/SPEC.md,
// "QuickReduce (qr-*)"). Scales, codes, zeros and what becomes of small amplitudes are the oracle's,
// on every pattern (test_quickreduce_oracle.py).
#include <algorithm>
#include <cmath>

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
  Bytes wire_of(const Patterns& x) const { return encode(codec(), dtype(), x); }
  Patterns trip(const Patterns& x) const { return round_trip(codec(), dtype(), x); }
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
INSTANTIATE_TEST_SUITE_P(All, QuickReduceFloats, ::testing::ValuesIn(with_their_dtypes(kFloats)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(All, QuickReduceStableCodes, ::testing::ValuesIn(kStable()), test_name);

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
