// execute() against the oracle, bit for bit: all algorithms with all options, all codecs and
// dtypes, both accumulations, with chunks for some or all ranks, tails, NaNs and infinities; and sums
// that are formed otherwise would be seen.
#include <gtest/gtest.h>

#include <functional>

#include "reference/codecs/registry.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {
namespace {

const std::vector<Rank> kWorldSizes = ARLAB_SHORT_TESTS
                                          ? std::vector<Rank>{1, 2, 3, 6, 8}
                                          : std::vector<Rank>{1, 2, 3, 4, 5, 6, 7, 8, 12, 16};

struct Case {
  CodecPtr codec;
  DType dtype;
  Accumulate accumulate;
  Rank world_size;
  std::size_t elements;
  std::size_t alignment;
  std::string input;
};

std::string label(const Case& c, const Variant& variant) {
  return fmt::format("{}, {} {} accumulate {}, {} ranks, {} elements, alignment {}, {}",
                     label(variant), c.codec->name(), name_of(c.dtype),
                     c.accumulate == Accumulate::native ? "native" : "fp32", c.world_size,
                     c.elements, c.alignment, c.input);
}

bool is_pipelined(const Variant& variant) { return variant.options.has("micro_chunks"); }

/// The first element that differs, in words; empty when none does.
std::string first_difference(const Payloads& expected, const Payloads& outputs) {
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    for (std::size_t i = 0; i < expected[rank].size(); ++i) {
      if (outputs[rank][i] == expected[rank][i]) continue;
      return fmt::format("rank {}, element {}: {:#x}, not {:#x}", rank, i, outputs[rank][i],
                         expected[rank][i]);
    }
  }
  return expected == outputs ? "" : "sizes differ";
}

void expect_bits_of_oracle(const Case& c, const std::vector<Variant>& variants) {
  const Tensor inputs = make_synthetic(c.input, c.dtype, c.world_size, c.elements);
  const Payloads payloads = payloads_of(inputs);
  const Oracle oracle{*c.codec, c.dtype, c.accumulate};
  for (const Variant& variant : variants) {
    Tensor outputs = make_tensor(c.dtype, inputs.shape);
    std::ranges::fill(outputs.bytes(), std::byte{0xA5});
    execute(schedule_of(variant, c.world_size, c.elements, c.alignment), *c.codec, c.dtype,
            inputs.bytes(), outputs.bytes(), {.sum = {.add = c.accumulate}});
    ASSERT_EQ(
        first_difference(all_reduce(oracle, variant, c.alignment, payloads), payloads_of(outputs)),
        "")
        << label(c, variant);
  }
}

/// Plain codecs cost little: chunks for every rank, all micro-chunks. The others encode whole
/// atoms, and get few; which rank owns what does not depend on the codec.
void expect_bits_of_oracle_for(const std::string& codec_name, DType dtype, Accumulate accumulate) {
  const CodecPtr codec = find_codec(codec_name);
  const std::size_t a = codec->info().alignment;
  for (const Rank n : kWorldSizes) {
    std::vector<Variant> variants = all_variants(n, {3});
    for (const Rank rings : divisors(n)) {
      if (rings == 1) continue;
      for (const char* own : {"exact", "encoded"}) {
        Variant& several = variants.emplace_back("ring", AlgorithmOptions{});
        several.options.set("own", std::string(own));
        several.options.set("forward", std::string("unchanged"));
        several.options.set("rings", std::uint64_t{rings});
      }
    }
    if (a > 1) std::erase_if(variants, &is_pipelined);
    const auto expect = [&](std::size_t elements, std::size_t alignment, const std::string& input) {
      expect_bits_of_oracle({codec, dtype, accumulate, n, elements, alignment, input}, variants);
    };
    if (a == 1) {
      expect(1, 1, "gaussian:seed=2");
      expect(n * 16 + 5, 1, "adversarial:seed=3");
      expect(n * 64 + 19, 32, "adversarial:non_finite=0,seed=4");
      // What a sum starts from shows in the sign of its zeros; subnormals; sums that overflow.
      expect(n + 1, 1, "constant:value=-0");
      expect(n + 9, 1, "uniform:low=-3e-6,high=3e-6,seed=9");
      expect(n + 9, 1,
             dtype == DType::fp16 ? "uniform:low=30000,high=65504" : "uniform:low=1e38,high=3e38");
    } else {
      expect(65, a, "constant:value=-0");
      expect(99, a, "laplace:b=9000,seed=5");  // less than an atom; fp16 sums overflow
      if (n <= 8) expect(2 * a + 333, a, "adversarial:seed=6");  // three owners, one with a tail
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

struct CodecAndType {
  std::string codec;
  DType dtype;
};
void PrintTo(const CodecAndType& param, std::ostream* out) {
  *out << param.codec << " on " << name_of(param.dtype);
}

std::vector<CodecAndType> codecs_and_types() {
  std::vector<CodecAndType> all;
  for (const std::string& name : listed_codecs()) {
    const bool is_plain = name == "fp16" || name == "bf16" || name == "fp32";
    if (!is_plain && !name.starts_with("qr-")) continue;
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      if (find_codec(name)->takes(dtype)) all.push_back({name, dtype});
    }
  }
  return all;
}

class OracleOfCodec : public ::testing::TestWithParam<CodecAndType> {};

TEST_P(OracleOfCodec, AccumulateNative) {
  expect_bits_of_oracle_for(GetParam().codec, GetParam().dtype, Accumulate::native);
}
TEST_P(OracleOfCodec, AccumulateFp32) {
  expect_bits_of_oracle_for(GetParam().codec, GetParam().dtype, Accumulate::fp32);
}

INSTANTIATE_TEST_SUITE_P(, OracleOfCodec, ::testing::ValuesIn(codecs_and_types()),
                         [](const auto& tested) {
                           std::string name = tested.param.codec + "_on_";
                           std::ranges::replace(name, '-', '_');
                           return name + std::string(name_of(tested.param.dtype));
                         });

TEST(Oracle, ComparesAllPlainAndQuickReduceCodecs) {
  EXPECT_EQ(codecs_and_types().size(), 3u + 6u * 2u);
}

// All ranks at work on atoms of their own.
TEST(Oracle, AgreesOnTwoToEightOwners) {
  for (Rank n = 2; n <= (ARLAB_SHORT_TESTS ? 4 : 8); ++n) {
    std::vector<Variant> variants = all_variants(n);
    if (n > 4) std::erase_if(variants, &is_pipelined);
    expect_bits_of_oracle({find_codec("qr-q6"), DType::bf16, Accumulate::native, n, n * 2048 - 1,
                           2048, "adversarial:non_finite=0,seed=7"},
                          variants);
  }
}
TEST(Oracle, AgreesOnSixteenOwners) {
  constexpr Rank kRanks = ARLAB_SHORT_TESTS ? 5 : 16;
  std::vector<Variant> variants = all_variants(kRanks, {2});
  std::erase_if(variants, [](const Variant& variant) {
    return variant.algorithm == "one_shot" || is_pipelined(variant) ||
           variant.options.is("own", "encoded");
  });
  expect_bits_of_oracle({find_codec("qr-q4"), DType::fp16, Accumulate::native, kRanks,
                         2048 * (kRanks + 2) + 7, 2048, "gaussian:seed=8"},
                        variants);
}

// ---------------------------------------------------------------- mistakes that must be seen

/// two_shot of one owner, but for the way in which it sums what arrived.
Payloads two_shot_with(const Case& c, const Payloads& inputs,
                       const std::function<Patterns(const Oracle&, Payloads)>& sum) {
  const Oracle oracle{*c.codec, c.dtype, c.accumulate};
  Payloads contributions;
  for (const Patterns& x : inputs) contributions.push_back(oracle.through(x));
  return Payloads(inputs.size(), oracle.through(sum(oracle, std::move(contributions))));
}

/// Another addition of two values.
Patterns added(const Oracle& oracle, const Payloads& contributions,
               const std::function<double(double sum, double addend)>& add) {
  Patterns sums(contributions.front().size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    for (const Patterns& x : contributions) sum = add(sum, value_of(oracle.dtype, x[i]));
    sums[i] = pattern_of(oracle.dtype, sum);
  }
  return sums;
}

TEST(Oracle, SumsThatAreFormedOtherwiseAreSeen) {
  struct Mistake {
    const char* name;
    const char* codec;
    const char* input;
    std::function<Patterns(const Oracle&, Payloads)> sum;
  };
  const Mistake mistakes[] = {
      {"as it is", "", "", [](const Oracle& o, Payloads x) { return o.sum(x, Start::zero); }},
      {"a rank is missing", "fp16", "gaussian",
       [](const Oracle& o, Payloads x) {
         x.pop_back();
         return o.sum(x, Start::zero);
       }},
      {"a rank counts twice", "fp16", "gaussian",
       [](const Oracle& o, Payloads x) {
         x.push_back(x[0]);
         return o.sum(x, Start::zero);
       }},
      {"descending order", "qr-q4", "gaussian",
       [](const Oracle& o, Payloads x) {
         std::ranges::reverse(x);
         return o.sum(x, Start::zero);
       }},
      {"from the first addend", "fp16", "constant:value=-0",
       [](const Oracle& o, Payloads x) { return o.sum(x, Start::first); }},
      {"from the first addend", "qr-q4", "constant:value=0",
       [](const Oracle& o, Payloads x) { return o.sum(x, Start::first); }},
      {"in fp32", "fp16", "gaussian",
       [](const Oracle& o, Payloads x) {
         return Oracle{o.codec, o.dtype, Accumulate::fp32}.sum(x, Start::zero);
       }},
      {"truncated", "fp16", "gaussian",
       [](const Oracle& o, const Payloads& x) {
         return added(o, x, [&](double sum, double addend) {
           const double rounded = nearest(o.dtype, sum + addend);
           if (std::abs(rounded) <= std::abs(sum + addend)) return rounded;
           return value_of(o.dtype, pattern_of(o.dtype, rounded) - 1);
         });
       }},
      {"not clamped", "qr-q4", "uniform:low=30000,high=65504",
       [](const Oracle& o, const Payloads& x) {
         return added(o, x,
                      [&](double sum, double addend) { return nearest(o.dtype, sum + addend); });
       }},
      {"subnormals flushed", "fp16", "uniform:low=-3e-6,high=3e-6,seed=9",
       [](const Oracle& o, const Payloads& x) {
         return added(o, x, [&](double sum, double addend) {
           const double rounded = nearest(o.dtype, sum + addend);
           return std::abs(rounded) < 0x1p-14 ? std::copysign(0.0, rounded) : rounded;
         });
       }},
      {"NaNs ignored", "fp16", "adversarial:non_finite=0.5,seed=23",
       [](const Oracle& o, const Payloads& x) {
         return added(o, x, [&](double sum, double addend) {
           return std::isnan(addend) ? sum : nearest(o.dtype, sum + addend);
         });
       }},
  };
  for (const auto& [name, codec, input, sum] : mistakes) {
    const bool is_right = *codec == 0;
    const Case c{
        find_codec(is_right ? "qr-q4" : codec), DType::fp16, Accumulate::native, 5, 1500, 2048,
        is_right ? "adversarial:seed=3" : input};
    const Tensor inputs = make_synthetic(c.input, c.dtype, c.world_size, c.elements);
    Tensor outputs = make_tensor(c.dtype, inputs.shape);
    execute(schedule_of({"two_shot", {}}, c.world_size, c.elements, c.alignment), *c.codec, c.dtype,
            inputs.bytes(), outputs.bytes());
    EXPECT_EQ(two_shot_with(c, payloads_of(inputs), sum) == payloads_of(outputs), is_right) << name;
  }
}

// Integers whose sums are exact in every dtype leave no choice at all.
TEST(SumsOfIntegers, AreExactOnEveryRank) {
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    const CodecPtr plain = find_codec(name_of(dtype));
    for (Rank n = 1; n <= (ARLAB_SHORT_TESTS ? 9 : 33); ++n) {
      const std::size_t elements = 3 * n + 2;
      std::vector<float> values;
      std::vector<float> sums(elements, 0);
      for (std::size_t i = 0; i < n * elements; ++i) {
        values.push_back(static_cast<float>((i * 7 + i / elements) % 15) - 7);  // sums within 256
        sums[i % elements] += values.back();
      }
      const Tensor inputs = tensor_from_floats(dtype, {n, elements}, values);
      for (const Variant& variant : all_variants(n, {2})) {
        for (const Accumulate accumulate : {Accumulate::native, Accumulate::fp32}) {
          Tensor outputs = make_tensor(dtype, {n, elements});
          execute(schedule_of(variant, n, elements, 1), *plain, dtype, inputs.bytes(),
                  outputs.bytes(), {.sum = {.add = accumulate}, .threads = 1});
          const std::vector<float> results = to_floats(outputs);
          for (std::size_t i = 0; i < results.size(); ++i) {
            ASSERT_EQ(results[i], sums[i % elements])
                << label(variant) << ", " << name_of(dtype) << ", " << n << " ranks, element " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace arlab::testing
