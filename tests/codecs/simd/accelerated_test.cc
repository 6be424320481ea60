// The accelerated codecs have the bits of the scalar ones, on every target; and the checks that say
// so would see a mistake.
#include "reference/codecs/simd/accelerated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "reference/codecs/payload_values.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/conformance.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/codecs/round_trip.h"
#include "tests/codecs/simd/on_target.h"
#include "tests/codecs/simd/same_bits.h"
#include "tests/words.h"

namespace arlab::testing {
namespace {

const std::vector<std::string> kQuickReduce = {"qr-q3", "qr-q4",  "qr-q6",
                                               "qr-q8", "qr-fp4", "qr-fp8"};
std::vector<std::string> microscaling_names(const char* rule) {
  std::vector<std::string> list;
  for (const char* format : {"mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4"}) {
    list.push_back(std::string(format) + rule);
  }
  return list;
}

std::vector<std::string> scaled_or_logarithmic_names() {
  std::vector<std::string> list;
  for (const char* rule : {"", "-ceil", "-even"}) {
    for (const std::string& name : microscaling_names(rule)) list.push_back(name);
  }
  for (const std::string& name : words("mxfp4-floor nvfp4 logfmt2-g32 logfmt3-g32 logfmt4-g32 "
                                       "logfmt5-g32 logfmt6-g32 logfmt8-g32 logfmt4-g96 "
                                       "logfmt7-g128 logfmt3-g4128 logfmt4-g8192 logfmt2-g4096")) {
    list.push_back(name);
  }
  return list;
}

/// Any-bit codecs: all numbers of bits, groups of every kind, all variants.
std::vector<std::string> anybit_names() {
  std::vector<std::string> list = words(
      "int4-gtensor int8-gtensor int5-gtensor-sym int4-gtensor-static0.01:-0.07 "
      "int8-gtensor-sym-static0.02 "
      "int3-gtensor-static1e-30:1e-3 int7-gtensor-static1e30:0 int4-g4096 int6-g8192 "
      "int3-g12288-sym int4-g8 int3-g16 "
      "int5-g24 int8-g40 int2-g48 int6-g96-sym int7-g136 int4-g2048 int4-g1000 int2-g8-sr "
      "int4-g24-sr int3-g64-sr "
      "int5-g128-sym-sr int6-g4096-sr int8-g1000-sr int2-g16-sr-is int4-g40-sr-is int8-g128-sr-is "
      "int7-g256-sr-is "
      "had-int4-g8 had-int3-g16-sym had-int5-g64 had-int8-g128 had-int6-g1024-sym had-int2-g4096");
  for (int bits = 2; bits <= 8; ++bits) {
    for (const int group : {32, 64, 128}) {
      list.push_back(fmt::format("int{}-g{}", bits, group));
      list.push_back(fmt::format("int{}-g{}-sym", bits, group));
    }
    list.push_back(fmt::format("int{}-g32-sr", bits));
    list.push_back(fmt::format("int{}-g32-sr-is", bits));
    list.push_back(fmt::format("had-int{}-g32", bits));
  }
  return list;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = kQuickReduce;
  for (const auto& family :
       {scaled_or_logarithmic_names(), microscaling_names("-rceil"), anybit_names()}) {
    names.insert(names.end(), family.begin(), family.end());
  }
  return names;
}

const std::vector<std::string> kNothing;

/// Faults of an accelerated codec: a text for each payload or wire that told.
std::vector<std::string> wrong_with(const Codec& fast, const Codec& scalar, DType dtype) {
  std::vector<std::string> all = SameBits(fast, scalar, dtype, true).differences();
  if (auto found = nonconforming(fast, scalar, dtype)) all.push_back(*found);
  return all;
}

using TargetAndCodec = std::tuple<std::int64_t, CodecAndDType>;

class EveryTarget : public ::testing::TestWithParam<TargetAndCodec> {};

TEST_P(EveryTarget, HasTheBitsOfTheScalarCodec) {
  const auto& [target, param] = GetParam();
  const OnTarget on(target);
  const CodecPtr fast = accelerated(param.codec);
  ASSERT_NE(fast, param.codec);
  EXPECT_EQ(wrong_with(*fast, *param.codec, param.dtype), kNothing);
}

std::string target_test_name(const ::testing::TestParamInfo<TargetAndCodec>& info) {
  const auto& [target, param] = info.param;
  return std::string(hwy::TargetName(target)) + "_" +
         test_name(::testing::TestParamInfo<CodecAndDType>(param, 0));
}

INSTANTIATE_TEST_SUITE_P(All, EveryTarget,
                         ::testing::Combine(::testing::ValuesIn(vector_targets()),
                                            ::testing::ValuesIn(with_their_dtypes(all_names()))),
                         target_test_name);

// ---------------------------------------------------------------- which codec is accelerated

class OtherClassOfThatName final : public Codec {
 public:
  explicit OtherClassOfThatName(std::string name = "qr-q4") : Codec(named(std::move(name))) {}

 private:
  static CodecInfo named(std::string name) {
    CodecInfo info = find_codec("qr-q4")->info();
    info.name = std::move(name);
    return info;
  }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override { return elements; }
  void do_encode(DType, std::span<const std::byte>, std::span<std::byte>,
                 EncodeCounts&) const override {}
  void do_decode(DType, std::span<const std::byte>, std::span<std::byte>) const override {}
};

TEST(Accelerated, OnlyTheCodecsOfTheRegistry) {
  const auto other = std::make_shared<OtherClassOfThatName>();
  EXPECT_EQ(accelerated(other), other);
  const CodecPtr plain = find_codec("fp16");
  EXPECT_EQ(accelerated(plain), plain);
  const CodecPtr fast = accelerated(find_codec("qr-q4"));
  EXPECT_EQ(accelerated(fast), fast);
  // Names that begin as those of a family do.
  for (const char* name : {"qr-own", "logfmt-own", "logfmt4-own", "mxfp4-own", "int4-own"}) {
    register_codec(std::make_shared<OtherClassOfThatName>(name));
    EXPECT_EQ(accelerated(find_codec(name)), find_codec(name)) << name;
  }
}

TEST(Accelerated, GroupsThatAreNoMultipleOf32AreLeftToTheScalarCodec) {
  const CodecPtr scalar = find_codec("logfmt4-g40");
  EXPECT_EQ(accelerated(scalar), scalar);
}

/// Returns the target that this processor must run, by its own account; the codecs say which they do run.
std::string expected_target() {
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  return has_avx2 ? "AVX2" : "";
#else
  return HWY_ARCH_ARM_A64 ? "NEON" : "";
#endif
}

TEST(Accelerated, RunsTheVectorsOfThisProcessor) {
  for (const std::string& name : all_names()) {
    const std::string target = vector_target(*accelerated(find_codec(name)));
    EXPECT_TRUE(target.starts_with(expected_target()) &&
                target.empty() == expected_target().empty())
        << name << " runs '" << target << "', not '" << expected_target() << "'";
  }
  EXPECT_EQ(vector_target(*find_codec("qr-q4")), "");
  // A target without vectors, which a newer Highway may prefer, would be seen.
  for (const std::int64_t target : supported_targets()) {
    if (std::ranges::count(vector_targets(), target) != 0) continue;
    const OnTarget on(target);
    EXPECT_EQ(vector_target(*accelerated(find_codec("qr-q4"))), "");
  }
}

TEST(Accelerated, HasTheInfoOfTheScalarCodec) {
  for (const std::string& name : all_names()) {
    const CodecPtr scalar = find_codec(name);
    const CodecPtr fast = accelerated(scalar);
    EXPECT_EQ(fast->name(), scalar->name());
    EXPECT_EQ(fast->info().dtypes, scalar->info().dtypes);
    EXPECT_EQ(fast->info().alignment, scalar->info().alignment);
    EXPECT_EQ(fast->info().clamps_fp16_sums, scalar->info().clamps_fp16_sums);
    EXPECT_EQ(fast->info().splits_at_alignment, scalar->info().splits_at_alignment);
  }
}

TEST(Accelerated, ReductionsHaveTheSameBits) {
  constexpr Rank kRanks = 4;
  constexpr std::size_t kElements = 5 * 2048 + 33;
  for (const auto& [codec, dtype] : with_their_dtypes(kQuickReduce)) {
    const Bytes inputs = make_synthetic("adversarial", dtype, kRanks, kElements).data;
    for (const char* algorithm : {"one_shot", "two_shot", "ring"}) {
      const Schedule schedule = make_schedule(
          algorithm, {.world_size = kRanks, .elements = kElements, .alignment = 2048});
      for (const Accumulate accumulate : {Accumulate::native, Accumulate::fp32}) {
        Bytes fast(inputs.size());
        Bytes scalar(inputs.size());
        const ExecuteCounts a = execute(schedule, *codec, dtype, inputs, fast,
                                        {.sum = {.add = accumulate}, .count = true});
        const ExecuteCounts b =
            execute(schedule, *codec, dtype, inputs, scalar,
                    {.sum = {.add = accumulate}, .count = true, .scalar = true});
        EXPECT_EQ(fast, scalar) << codec->name() << " " << algorithm;
        EXPECT_EQ(a.clamped, b.clamped);
        EXPECT_EQ(a.flushed, b.flushed);
      }
    }
  }
}

// ---------------------------------------------------------------- mistakes that must be seen

/// An accelerated codec with one mistake, in fp16: in what it writes to the wire or to a payload, or
/// in what it adds.
struct Mistake {
  const char* name;
  const char* codec;
  std::function<void(std::span<const std::byte> payload, std::span<std::byte> wire)> encoded = {};
  std::function<void(std::span<const std::byte> wire, std::span<std::byte> payload)> decoded = {};
  std::function<void(std::span<const std::byte> before, std::span<std::byte> sum)> added = {};
  bool wrong_only_uncounted = false;
  int miscounts_by = 0;
};

MistakenCodec mistaken(const CodecPtr& right, const Mistake& mistake) {
  MistakenCodec::Mistakes made;
  made.encode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> payload,
                           std::span<std::byte> wire, EncodeCounts& counts) {
    const std::uint64_t before = counts.clamped;
    codec.encode(dtype, payload, wire, &counts);
    if (counts.clamped != before)
      counts.clamped += static_cast<std::uint64_t>(mistake.miscounts_by);
    if (mistake.encoded && !mistake.wrong_only_uncounted) mistake.encoded(payload, wire);
  };
  made.encode_uncounted = [&mistake](const Codec& codec, DType dtype,
                                     std::span<const std::byte> payload,
                                     std::span<std::byte> wire) {
    codec.encode(dtype, payload, wire);
    if (mistake.encoded) mistake.encoded(payload, wire);
  };
  made.decode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> wire,
                           std::span<std::byte> payload) {
    codec.decode(dtype, wire, payload);
    if (mistake.decoded) mistake.decoded(wire, payload);
  };
  made.decode_add = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> wire,
                               std::span<std::byte> sum) {
    const Bytes before(sum.begin(), sum.end());
    codec.decode_add(dtype, wire, sum);
    if (mistake.added) mistake.added(before, sum);
  };
  return {right, made};
}

/// Calls f(element's pattern, largest pattern of its block, element's code in a byte of its own)
/// for the whole chunks of mxfp8.
template <class F>
void for_each_code(std::span<const std::byte> payload, std::span<std::byte> wire, const F& f) {
  for (std::size_t i = 0; i + 4096 <= payload.size() / 2; i += 4096) {
    for (std::size_t j = i; j < i + 4096; ++j) {
      std::uint16_t largest = 0;
      for (std::size_t k = j / 32 * 32; k < j / 32 * 32 + 32; ++k) {
        largest = std::max<std::uint16_t>(largest, pattern_at(payload, k) & 0x7FFF);
      }
      f(pattern_at(payload, j), largest, wire[i / 4096 * (4096 + 128) + j % 4096]);
    }
  }
}

const std::vector<Mistake>& mistakes() {
  using Const = std::span<const std::byte>;
  using Mutable = std::span<std::byte>;
  constexpr std::size_t kScales = 1024;    // offset in an atom of qr-q4, which has 1152 bytes
  constexpr std::size_t kLong = 2 * 9000;  // bytes: shorter wires have no such place
  static const std::vector<Mistake> list = {
      {"EvenAndOddScalesSwapped", "qr-q4",
       [](Const, Mutable wire) {
         for (std::size_t at = kScales; at + 4 <= wire.size() && at < kScales + 128; at += 4) {
           std::swap_ranges(&wire[at], &wire[at + 2], &wire[at + 2]);
         }
       }},
      {"ScalesTruncated", "qr-q4",  // one bit, wherever the last one is set
       [](Const, Mutable wire) {
         for (std::size_t at = kScales; at < kScales + 128; at += 2) wire[at] &= std::byte{0xFE};
       }},
      {"WithoutCountingAnotherWire", "qr-q4",
       [](Const, Mutable wire) { wire[wire.size() / 2] ^= std::byte{0x10}; }, nullptr, nullptr,
       true},
      {"OneClampedTooMany", "qr-q4", nullptr, nullptr, nullptr, false, 1},
      {"LastElementOfAnOddLengthForgotten", "qr-q4", nullptr,
       [](Const, Mutable payload) {
         const std::size_t elements = payload.size() / 2;
         if (elements % 8 == 3) set_pattern(payload, elements - 1, 0x1234);
       }},
      {"WrongWhereTheWireIsMisaligned", "qr-q4", nullptr,
       [](Const wire, Mutable payload) {
         if (reinterpret_cast<std::uintptr_t>(wire.data()) % 16 == 5) payload[0] ^= std::byte{1};
       }},
      {"MinusZeroLost", "qr-q4", nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           if (pattern_at(payload, i) == 0x8000) set_pattern(payload, i, 0);
         }
       }},
      {"SubnormalsFlushed", "qr-q4", nullptr,
       [](Const, Mutable payload) {
         const std::uint16_t smallest = 0x0400;
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7FFF) < smallest) set_pattern(payload, i, bits & 0x8000);
         }
       }},
      {"SumsOverflowToInfinity", "qr-q4", nullptr, nullptr,
       [](Const before, Mutable sum) {
         for (std::size_t i = 0; i < sum.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(sum, i);
           if ((bits & 0x7FFF) == 0x7BFF && bits != pattern_at(before, i)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(bits + 1));
           }
         }
       }},
      {"NaNOfSumsNotCanonical", "qr-q4", nullptr, nullptr,
       [](Const, Mutable sum) {
         for (std::size_t i = 0; i < sum.size() / 2; ++i) {
           if (pattern_at(sum, i) == canonical_nan(DType::fp16)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(canonical_nan(DType::fp16) | 0x8000));
           }
         }
       }},
      {"NothingIsAdded", "qr-q4", nullptr, nullptr,
       [](Const before, Mutable sum) { std::ranges::copy(before, sum.begin()); }},
      {"TiesGoUp", "mxfp8-e4m3",  // one bit below the code: exactly a half
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t x, std::uint16_t largest, std::byte& code) {
           const bool tie = (x & 0x7F) == 0x40 && (x & 0x80) == 0 && (x & 0x7FFF) > 0x400;
           const bool normal = largest < 0x7C00 && (x & 0x7C00) + 0x2000 > (largest & 0x7C00);
           if (tie && normal && (x & 0x7FFF) < largest) code |= std::byte{1};
         });
       }},
      {"TheSignOfZeroIsLost", "mxfp8-e4m3",
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t, std::uint16_t, std::byte& code) {
           if (code == std::byte{0x80}) code = std::byte{0};
         });
       }},
      {"TheSignOfZeroIsKeptInABlockOfZeros", "mxfp8-e4m3",
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if (i / 32 % 8 == 3) wire[i] |= std::byte{0x80};
         }
       }},
      {"SubnormalCodesAreFlushed", "mxfp8-e4m3",
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if ((wire[i] & std::byte{0x78}) == std::byte{0}) wire[i] &= std::byte{0x80};
         }
       }},
      {"OneClampedTooFew", "mxfp4", nullptr, nullptr, nullptr, false, -1},
      {"LastElementForgotten", "nvfp4", nullptr,
       [](Const, Mutable payload) {
         const std::size_t elements = payload.size() / 2;
         if (elements % 16 == 3) set_pattern(payload, elements - 1, 0x1234);
       }},
      {"NaNOfAScaleForgotten", "mxfp8-e4m3", nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           if (pattern_at(payload, i) == 0x7E00) set_pattern(payload, i, 0);
         }
       }},
      {"SubnormalElementsAreFlushed", "mxfp8-e4m3", nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7C00) == 0) set_pattern(payload, i, bits & 0x8000);
         }
       }},
      {"ACodeTooFewAtAThreshold", "logfmt4-g32",
       [](Const payload, Mutable wire) {
         // In fp16, the codes of one element of every bisected payload.
         if (payload.size() == 2 * 32 * 96) wire[700] ^= std::byte{1};
       }},
      {"TwoScalesSwapped", "int8-g128",
       [](Const payload, Mutable wire) {
         if (payload.size() < kLong) return;
         std::byte* const scales = wire.data() + 4096;
         std::swap_ranges(scales, scales + 2, scales + 2);
       }},
      {"TwoCodesSwapped", "int8-g128",
       [](Const payload, Mutable wire) {
         if (payload.size() < kLong) return;
         std::byte* const codes = wire.data() + 9 * 128;
         std::swap_ranges(codes, codes + 32, codes + 32);
       }},
      {"CodesKeptBesideANaN", "int8-g128",
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; i < 4096 && payload.size() >= kLong; ++i) {
           if ((pattern_at(payload, i) & 0x7C00) == 0x7C00) wire[i / 128 * 128] |= std::byte{1};
         }
       }},
      {"TheLargestIsInfinite", "int8-g128", nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7FFF) == 0x7BFF) set_pattern(payload, i, bits + 1);
         }
       }},
  };
  return list;
}

TEST(Mistakes, AreReported) {
  for (const Mistake& mistake : mistakes()) {
    const CodecPtr codec = find_codec(mistake.codec);
    const MistakenCodec none = mistaken(accelerated(codec), {"None", mistake.codec});
    EXPECT_EQ(wrong_with(none, *codec, DType::fp16), kNothing) << mistake.name;
    const MistakenCodec mutant = mistaken(accelerated(codec), mistake);
    EXPECT_NE(wrong_with(mutant, *codec, DType::fp16), kNothing) << mistake.name;
  }
}

}  // namespace
}  // namespace arlab::testing
