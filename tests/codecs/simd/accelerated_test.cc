// The accelerated codecs have the bits of the scalar ones, on every target; and the checks that say
// so would see a mistake.
#include "reference/codecs/simd/accelerated.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/conformance.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/codecs/round_trip.h"
#include "tests/codecs/simd/on_target.h"
#include "tests/codecs/simd/results.h"

namespace arlab::testing {
namespace {

const std::vector<std::string> kQuickReduce = {"qr-q3", "qr-q4",  "qr-q6",
                                               "qr-q8", "qr-fp4", "qr-fp8"};

// ---------------------------------------------------------------- checks: a text says what failed

using Check = std::optional<std::string> (*)(const Codec& fast, const Codec& scalar, DType dtype);

/// Every length up to three groups, and some up to two atoms and an element.
std::optional<std::string> check_lengths(const Codec& fast, const Codec& scalar, DType dtype) {
  const Bytes x = make_synthetic("adversarial:non_finite=0.02", dtype, 1, 2 * 2048 + 1).data;
  for (std::size_t elements = 1; elements <= 2 * 2048 + 1;
       elements += elements < 192 || elements % 2048 < 2 || elements % 2048 == 2047 ? 1 : 61) {
    const auto part = std::span(x).first(elements * size_of(dtype));
    if (results(fast, dtype, part) != results(scalar, dtype, part)) {
      return fmt::format("{} elements", elements);
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_alignments(const Codec& fast, const Codec& scalar, DType dtype) {
  const Bytes x = make_synthetic("gaussian", dtype, 1, 2 * 2048 + 77).data;
  for (std::size_t offset = 1; offset <= 33; ++offset) {
    if (results(fast, dtype, x, offset) != results(scalar, dtype, x, offset)) {
      return fmt::format("offset {}", offset);
    }
  }
  return std::nullopt;
}

/// Every 16-bit pattern at an even and an odd place among ordinary numbers of about its size, so
/// that few atoms are left to the scalar codec; and all scaled by the same large element.
std::optional<std::string> check_patterns(const Codec& fast, const Codec& scalar, DType dtype) {
  const RandomStream random(1, 1);
  for (const std::uint32_t extreme : {0u, 0x80u, 0x1000u, 0x3C00u, 0x4C00u, 0x7BFFu}) {
    Patterns x(65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      // A group holds 61 neighbours and, when there is an extreme, one of either sign.
      x[i] = static_cast<std::uint16_t>(i ^ (random.word(i) & 1));
      if (extreme != 0 && i % 64 < 2) x[i] = static_cast<std::uint16_t>(extreme | (i % 2) << 15);
    }
    if (results(fast, dtype, bytes_of(x)) != results(scalar, dtype, bytes_of(x))) {
      return fmt::format("all patterns beside 0x{:04x}", extreme);
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_amplitudes(const Codec& fast, const Codec& scalar, DType dtype) {
  for (int exponent = dtype == DType::fp16 ? -26 : -136; exponent <= 127; ++exponent) {
    if (dtype == DType::fp16 && exponent > 15) break;
    const std::string spec =
        fmt::format("gaussian:sigma={:.10g},seed={}", std::ldexp(1, exponent), 200 + exponent);
    const Bytes x = make_synthetic(spec, dtype, 1, 2 * 2048).data;
    if (results(fast, dtype, x) != results(scalar, dtype, x)) return spec;
  }
  return std::nullopt;
}

/// Wires that no encoder writes, with finite scales: all codes, beside every scale.
std::optional<std::string> check_wires(const Codec& fast, const Codec& scalar, DType dtype) {
  constexpr std::size_t kAtoms = 16;
  const std::size_t wire_bytes = scalar.wire_bytes(dtype, 2048);
  for (const std::uint32_t exponents : {1u, 4u, 8u, 14u, 16u, 22u, 28u, 29u, 30u, 31u}) {
    const RandomStream random(exponents, 2);
    Bytes wire(kAtoms * wire_bytes);
    for (std::size_t i = 0; i < wire.size(); ++i) {
      auto byte = static_cast<std::byte>(random.word(i));
      const std::size_t scale = i % wire_bytes - (wire_bytes - 128);  // huge: not a scale
      if (scale < 128 && scale % 2 == 1) {  // the high byte of a scale: no larger than `exponents`
        byte &= std::byte{0x83};
        byte |= static_cast<std::byte>((random.word(i) >> 8) % exponents << 2);
      }
      wire[i] = byte;
    }
    const std::string huge =
        dtype == DType::fp16 ? "uniform:low=-65000,high=65000" : "uniform:low=-3e38,high=3e38";
    for (const std::string& spec : {std::string("gaussian"), std::string("adversarial"), huge}) {
      const Bytes sum = make_synthetic(spec, dtype, 1, kAtoms * 2048).data;
      Bytes actual(sum.size(), std::byte{1});
      Bytes expected(sum.size(), std::byte{2});
      fast.decode(dtype, wire, actual);
      scalar.decode(dtype, wire, expected);
      if (actual != expected) return fmt::format("decoded, scale exponents below {}", exponents);
      actual = expected = sum;
      fast.decode_add(dtype, wire, actual);
      scalar.decode_add(dtype, wire, expected);
      if (actual != expected) {
        return fmt::format("added to {}, scale exponents below {}", spec, exponents);
      }
    }
  }
  return std::nullopt;
}

/// Payloads so large that they are written past the caches.
std::optional<std::string> check_large(const Codec& fast, const Codec& scalar, DType dtype) {
  const std::size_t elements = (std::size_t{16} << 20) / size_of(dtype) + 2048 + 5;
  const Bytes x = make_synthetic("student-t:nu=2", dtype, 1, elements).data;
  const Results expected = results(scalar, dtype, x);
  for (const std::size_t offset : {0u, 1u, 8u}) {
    if (results(fast, dtype, x, offset) != expected) return fmt::format("offset {}", offset);
  }
  return std::nullopt;
}

std::optional<std::string> check_conformance(const Codec& fast, const Codec& scalar, DType dtype) {
  for (int call = 0; call < 2; ++call) {
    if (auto found = nonconforming(fast, scalar, dtype)) return found;
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- every target

class EveryTarget : public ::testing::TestWithParam<std::tuple<std::int64_t, CodecAndDType>> {
 protected:
  void run(Check check) const {
    const CodecAndDType& param = std::get<1>(GetParam());
    const OnTarget on(std::get<0>(GetParam()));
    const CodecPtr fast = accelerated(param.codec);
    ASSERT_NE(fast, param.codec);
    EXPECT_EQ(check(*fast, *param.codec, param.dtype), std::nullopt);
  }
};

TEST_P(EveryTarget, Conforms) { run(check_conformance); }
TEST_P(EveryTarget, EveryLength) { run(check_lengths); }
TEST_P(EveryTarget, EveryAlignment) { run(check_alignments); }
TEST_P(EveryTarget, EveryPattern) { run(check_patterns); }
TEST_P(EveryTarget, EveryAmplitude) { run(check_amplitudes); }
TEST_P(EveryTarget, WiresOfOthers) { run(check_wires); }

std::string target_test_name(
    const ::testing::TestParamInfo<std::tuple<std::int64_t, CodecAndDType>>& info) {
  const auto& [target, param] = info.param;
  return std::string(hwy::TargetName(target)) + "_" +
         test_name(::testing::TestParamInfo<CodecAndDType>(param, 0));
}

INSTANTIATE_TEST_SUITE_P(All, EveryTarget,
                         ::testing::Combine(::testing::ValuesIn(vector_targets()),
                                            ::testing::ValuesIn(with_their_dtypes(kQuickReduce))),
                         target_test_name);

class BestTarget : public ::testing::TestWithParam<CodecAndDType> {};

TEST_P(BestTarget, LargePayloads) {
  const auto& [codec, dtype] = GetParam();
  EXPECT_EQ(check_large(*accelerated(codec), *codec, dtype), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(All, BestTarget,
                         ::testing::ValuesIn(with_their_dtypes({"qr-q4", "qr-q8", "qr-fp8"})),
                         test_name);

// ---------------------------------------------------------------- one hash for every build

/// FNV-1a.
void add_to_hash(std::uint64_t& hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3;
  }
}

class OneHash : public ::testing::TestWithParam<std::int64_t> {};

// Whatever compiler, optimisation and target: the same bytes.
TEST_P(OneHash, OfEverythingThatTheCodecsMake) {
  const OnTarget on(GetParam());
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const auto& [codec, dtype] : with_their_dtypes(kQuickReduce)) {
    const CodecPtr fast = accelerated(codec);
    for (const char* spec : {"gaussian:seed=3", "adversarial:seed=3", "sweep:seed=3"}) {
      const Results r = results(*fast, dtype, make_synthetic(spec, dtype, 1, 10000).data);
      for (const Bytes* bytes : {&r.counted, &r.decoded, &r.added}) add_to_hash(hash, *bytes);
    }
  }
  EXPECT_EQ(hash, 0x9D7F977BA2BB20BEu) << fmt::format("0x{:016X}", hash);
}

INSTANTIATE_TEST_SUITE_P(Targets, OneHash, ::testing::ValuesIn(supported_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

// ---------------------------------------------------------------- which codec is accelerated

class OtherClassOfThatName final : public Codec {
 public:
  OtherClassOfThatName() : Codec(find_codec("qr-q4")->info()) {}

 private:
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
}

TEST(Accelerated, HasTheInfoOfTheScalarCodec) {
  for (const std::string& name : kQuickReduce) {
    const CodecPtr scalar = find_codec(name);
    const CodecPtr fast = accelerated(scalar);
    EXPECT_EQ(fast->name(), scalar->name());
    EXPECT_EQ(fast->info().dtypes, scalar->info().dtypes);
    EXPECT_EQ(fast->info().alignment, scalar->info().alignment);
    EXPECT_EQ(fast->info().clamps_fp16_sums, scalar->info().clamps_fp16_sums);
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
                                        {.accumulate = accumulate, .count = true});
        const ExecuteCounts b = execute(schedule, *codec, dtype, inputs, scalar,
                                        {.accumulate = accumulate, .count = true, .scalar = true});
        EXPECT_EQ(fast, scalar) << codec->name() << " " << algorithm;
        EXPECT_EQ(a.clamped, b.clamped);
        EXPECT_EQ(a.flushed, b.flushed);
      }
    }
  }
}

// ---------------------------------------------------------------- mistakes that must be seen

/// An accelerated codec with one mistake.
struct Mistake {
  const char* name;
  Check seen_by;
  /// Each may change what was made; null: no mistake there.
  std::function<void(DType, std::span<const std::byte> payload, std::span<std::byte> wire)> encoded;
  std::function<void(DType, std::span<const std::byte> wire, std::span<std::byte> payload)> decoded;
  std::function<void(DType, std::span<const std::byte> before, std::span<std::byte> sum)> added;
  bool wrong_only_uncounted = false;
  bool counts_wrongly = false;
};

MistakenCodec mistaken(const CodecPtr& right, const Mistake& mistake) {
  MistakenCodec::Mistakes made;
  made.encode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> payload,
                           std::span<std::byte> wire, EncodeCounts& counts) {
    codec.encode(dtype, payload, wire, &counts);
    if (mistake.counts_wrongly && payload.size() > 4096) counts.clamped += 1;
    if (mistake.encoded && !mistake.wrong_only_uncounted) mistake.encoded(dtype, payload, wire);
  };
  made.encode_uncounted = [&mistake](const Codec& codec, DType dtype,
                                     std::span<const std::byte> payload,
                                     std::span<std::byte> wire) {
    codec.encode(dtype, payload, wire);
    if (mistake.encoded) mistake.encoded(dtype, payload, wire);
  };
  made.decode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> wire,
                           std::span<std::byte> payload) {
    codec.decode(dtype, wire, payload);
    if (mistake.decoded) mistake.decoded(dtype, wire, payload);
  };
  made.decode_add = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> wire,
                               std::span<std::byte> sum) {
    const Bytes before(sum.begin(), sum.end());
    codec.decode_add(dtype, wire, sum);
    if (mistake.added) mistake.added(dtype, before, sum);
  };
  return {right, made};
}

const std::vector<Mistake>& mistakes() {
  using Const = std::span<const std::byte>;
  using Mutable = std::span<std::byte>;
  constexpr std::size_t kScales = 1024;  // of qr-q4, in its atom of 1152 bytes
  static const std::vector<Mistake> list = {
      {"EvenAndOddScalesSwapped", check_conformance,
       [](DType, Const, Mutable wire) {
         for (std::size_t at = kScales; at + 4 <= wire.size() && at < kScales + 128; at += 4) {
           std::swap_ranges(&wire[at], &wire[at + 2], &wire[at + 2]);
         }
       },
       nullptr, nullptr},
      {"ScalesTruncated", check_amplitudes,  // one bit, wherever the last one is set
       [](DType, Const, Mutable wire) {
         for (std::size_t at = kScales; at < kScales + 128; at += 2) wire[at] &= std::byte{0xFE};
       },
       nullptr, nullptr},
      {"WithoutCountingAnotherWire", check_conformance,
       [](DType, Const, Mutable wire) { wire[wire.size() / 2] ^= std::byte{0x10}; }, nullptr,
       nullptr, true},
      {"OneClampedTooMany", check_lengths, nullptr, nullptr, nullptr, false, true},
      {"LastElementOfAnOddLengthForgotten", check_lengths, nullptr,
       [](DType, Const, Mutable payload) {
         const std::size_t elements = payload.size() / 2;
         if (elements % 8 == 3) set_pattern(payload, elements - 1, 0x1234);
       },
       nullptr},
      {"WrongWhereTheWireIsMisaligned", check_alignments, nullptr,
       [](DType, Const wire, Mutable payload) {
         if (reinterpret_cast<std::uintptr_t>(wire.data()) % 16 == 5) payload[0] ^= std::byte{1};
       },
       nullptr},
      {"MinusZeroLost", check_patterns, nullptr,
       [](DType, Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           if (pattern_at(payload, i) == 0x8000) set_pattern(payload, i, 0);
         }
       },
       nullptr},
      {"SubnormalsFlushed", check_wires, nullptr,
       [](DType dtype, Const, Mutable payload) {
         const std::uint16_t smallest = dtype == DType::fp16 ? 0x0400 : 0x0080;
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7FFF) < smallest) set_pattern(payload, i, bits & 0x8000);
         }
       },
       nullptr},
      {"SumsOverflowToInfinity", check_wires, nullptr, nullptr,
       [](DType dtype, Const before, Mutable sum) {
         for (std::size_t i = 0; dtype == DType::fp16 && i < sum.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(sum, i);
           if ((bits & 0x7FFF) == 0x7BFF && bits != pattern_at(before, i)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(bits + 1));
           }
         }
       }},
      {"NaNOfSumsNotCanonical", check_wires, nullptr, nullptr,
       [](DType dtype, Const, Mutable sum) {
         for (std::size_t i = 0; i < sum.size() / 2; ++i) {
           if (pattern_at(sum, i) == canonical_nan(dtype)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(canonical_nan(dtype) | 0x8000));
           }
         }
       }},
      {"NothingIsAdded", check_alignments, nullptr, nullptr,
       [](DType, Const before, Mutable sum) { std::ranges::copy(before, sum.begin()); }},
  };
  return list;
}

TEST(Mistakes, NoneIsReportedWhereThereIsNone) {
  const CodecPtr codec = find_codec("qr-q4");
  const Mistake none{"None", nullptr, nullptr, nullptr, nullptr};
  const MistakenCodec same = mistaken(accelerated(codec), none);
  for (const Check check : {check_lengths, check_alignments, check_patterns, check_amplitudes,
                            check_wires, check_conformance}) {
    EXPECT_EQ(check(same, *codec, DType::fp16), std::nullopt);
  }
}

TEST(Mistakes, AreReported) {
  const CodecPtr codec = find_codec("qr-q4");
  for (const Mistake& mistake : mistakes()) {
    const MistakenCodec mutant = mistaken(accelerated(codec), mistake);
    EXPECT_NE(mistake.seen_by(mutant, *codec, DType::fp16), std::nullopt) << mistake.name;
  }
}

TEST(Mistakes, AHashSeesOneBit) {
  Bytes bytes(1000, std::byte{7});
  std::uint64_t before = 0xCBF29CE484222325;
  add_to_hash(before, bytes);
  bytes[999] ^= std::byte{1};
  std::uint64_t after = 0xCBF29CE484222325;
  add_to_hash(after, bytes);
  EXPECT_NE(before, after);
}

}  // namespace
}  // namespace arlab::testing
