// The accelerated block-scaled and logarithmic codecs have the bits of the scalar ones, on every
// target; and the checks that say so would see a mistake.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>

#include "reference/codecs/payload_values.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/conformance.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/codecs/round_trip.h"
#include "tests/codecs/simd/on_target.h"
#include "tests/codecs/simd/results.h"

namespace arlab::testing {
namespace {

const std::vector<std::string> kBlockScaled = {"mxfp8-e4m3",
                                               "mxfp8-e5m2",
                                               "mxfp6-e2m3",
                                               "mxfp6-e3m2",
                                               "mxfp4",
                                               "mxfp8-e4m3-ceil",
                                               "mxfp8-e5m2-ceil",
                                               "mxfp6-e2m3-ceil",
                                               "mxfp6-e3m2-ceil",
                                               "mxfp4-ceil",
                                               "mxfp8-e4m3-rceil",
                                               "mxfp8-e5m2-rceil",
                                               "mxfp6-e2m3-rceil",
                                               "mxfp6-e3m2-rceil",
                                               "mxfp4-rceil",
                                               "mxfp8-e4m3-even",
                                               "mxfp8-e5m2-even",
                                               "mxfp6-e2m3-even",
                                               "mxfp6-e3m2-even",
                                               "mxfp4-even",
                                               "mxfp4-floor",
                                               "nvfp4"};
const std::vector<std::string> kLogarithmic = {
    "logfmt2-g32", "logfmt3-g32",  "logfmt4-g32",   "logfmt5-g32",   "logfmt6-g32",  "logfmt8-g32",
    "logfmt4-g96", "logfmt7-g128", "logfmt3-g4128", "logfmt4-g8192", "logfmt2-g4096"};

bool is_logarithmic(const Codec& codec) { return codec.name().starts_with("logfmt"); }

std::vector<std::string> all_names() {
  std::vector<std::string> names = kBlockScaled;
  names.insert(names.end(), kLogarithmic.begin(), kLogarithmic.end());
  return names;
}

Bytes payload_of(DType dtype, const std::vector<float>& values) {
  return tensor_from_floats(dtype, {values.size()}, values).data;
}

std::vector<float> floats_of(DType dtype, const Bytes& payload) {
  std::vector<float> result(payload.size() / size_of(dtype));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = load_value(dtype, payload, i);
  return result;
}

// ---------------------------------------------------------------- checks: a text says what failed

using Check = std::optional<std::string> (*)(const Codec& fast, const Codec& scalar, DType dtype);

std::optional<std::string> check_conformance(const Codec& fast, const Codec& scalar, DType dtype) {
  return nonconforming(fast, scalar, dtype);
}

/// Every length up to some blocks, and lengths around one and two wire chunks.
std::optional<std::string> check_lengths(const Codec& fast, const Codec& scalar, DType dtype) {
  constexpr std::size_t kMost = 2 * 4096 + 40;
  const Bytes x = make_synthetic("adversarial:non_finite=0.01", dtype, 1, kMost).data;
  for (std::size_t elements = 1; elements <= kMost;) {
    const auto part = std::span(x).first(elements * size_of(dtype));
    if (results(fast, dtype, part) != results(scalar, dtype, part)) {
      return fmt::format("{} elements", elements);
    }
    const std::size_t rest = elements % 4096;
    elements += elements < 140 || rest < 2 || rest > 4093 ? 1 : rest > 4000 ? 4094 - rest : 253;
  }
  return std::nullopt;
}

std::optional<std::string> check_alignments(const Codec& fast, const Codec& scalar, DType dtype) {
  const Bytes x = make_synthetic("gaussian", dtype, 1, 4096 + 300).data;
  for (std::size_t offset = 1; offset <= 33; ++offset) {
    if (results(fast, dtype, x, offset) != results(scalar, dtype, x, offset)) {
      return fmt::format("offset {}", offset);
    }
  }
  return std::nullopt;
}

/// Every 16-bit pattern (in fp32, as the upper half) among its neighbours, and in blocks whose
/// scale comes from another element.
std::optional<std::string> check_patterns(const Codec& fast, const Codec& scalar, DType dtype) {
  const RandomStream random(1, 1);
  for (const std::uint32_t extreme : {0u, 0x80u, 0x1000u, 0x3C00u, 0x3F80u, 0x4C00u, 0x7BFFu}) {
    Patterns x;
    std::vector<std::uint32_t> wide;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      auto bits = static_cast<std::uint16_t>(i);
      if (extreme != 0 && i % 16 == 5) bits = static_cast<std::uint16_t>(extreme);
      x.push_back(bits);
      const std::uint64_t word = random.word(i);
      const std::uint32_t low = word % 3 == 0 ? 0 : static_cast<std::uint32_t>(word >> 48);
      wide.push_back(std::uint32_t{bits} << 16 | low);
    }
    const auto bytes = dtype == DType::fp32 ? std::as_bytes(std::span(wide)) : bytes_of(x);
    if (results(fast, dtype, bytes) != results(scalar, dtype, bytes)) {
      return fmt::format("all patterns beside 0x{:04x}", extreme);
    }
  }
  return std::nullopt;
}

/// All orders of magnitude, with blocks of zeros, and blocks of one size.
std::optional<std::string> check_amplitudes(const Codec& fast, const Codec& scalar, DType dtype) {
  constexpr std::size_t kElements = 1024;
  const int lowest = dtype == DType::fp16 ? -26 : dtype == DType::bf16 ? -136 : -151;
  const int highest = dtype == DType::fp16 ? 16 : 128;
  for (int exponent = lowest; exponent <= highest; ++exponent) {
    const RandomStream random(static_cast<std::uint64_t>(exponent + 1000), 4);
    std::vector<float> values(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::uint64_t word = random.word(i);
      double value = std::ldexp(centred_interval(word), exponent);
      switch (i / 32 % 8) {
        case 3:
          value = (word & 1) == 0 ? 0.0 : -0.0;
          break;
        case 5:
          value = std::copysign(std::ldexp(0.7, exponent), value);
          break;
        case 6:
          value = i % 32 == 7 ? value : 0;
          break;
        case 7:  // many orders of magnitude
          value = std::ldexp(value, -static_cast<int>(word >> 40 & 31));
          break;
        default:
          break;
      }
      values[i] = static_cast<float>(value);
    }
    const Bytes x = payload_of(dtype, values);
    if (results(fast, dtype, x) != results(scalar, dtype, x)) {
      return fmt::format("about 2^{}", exponent);
    }
  }
  return std::nullopt;
}

/// Numbers on and beside the middles of neighbouring values, at many scales. Block-scaled: few bits
/// times powers of two. Logarithmic: where the scalar codec changes its code, by bisection.
std::optional<std::string> check_ties(const Codec& fast, const Codec& scalar, DType dtype) {
  const int ulp_shift = dtype == DType::fp16 ? 10 : dtype == DType::bf16 ? 7 : 23;
  for (int scale = -9; scale <= 9; scale += 3) {
    std::vector<float> values;
    for (int exponent = -20; exponent <= 3; ++exponent) {
      for (int bits = 32; bits < 64; ++bits) {
        for (const int nudge : {-1, 0, 1}) {
          if (values.size() % 16 == 0) values.push_back(std::ldexp(1.25f + 0.25f, scale + 2));
          const double value = bits / 32.0 * (1 + std::ldexp(nudge, -ulp_shift));
          const double sign = values.size() % 3 == 0 ? -1 : 1;
          values.push_back(static_cast<float>(sign * std::ldexp(value, scale + exponent)));
        }
      }
    }
    const Bytes x = payload_of(dtype, values);
    if (results(fast, dtype, x) != results(scalar, dtype, x)) {
      return fmt::format("middles, scale 2^{}", scale);
    }
  }
  if (!is_logarithmic(scalar)) return std::nullopt;

  // A block of 32 with fixed ends; the element at 2 moves from one pattern to the next.
  const std::size_t group = scalar.info().block;
  for (const auto& [low, high] : {std::pair(0.01f, 1.0f), {0.9f, 1.1f}, {3e-5f, 700.0f}}) {
    std::vector<float> block(group, high);
    block[1] = low;
    std::vector<float> values;
    const std::size_t blocks = group <= 128 ? 96 : 2;
    for (std::size_t b = 0; b < blocks; ++b) {
      const double ratio = static_cast<double>(b) / static_cast<double>(blocks);
      for (std::size_t i = 2; i < group; ++i) {
        const double t = ratio + static_cast<double>(i) / static_cast<double>(group * blocks);
        block[i] = static_cast<float>(low * std::pow(high / low, t) * (i % 2 == 0 ? 1 : -1));
      }
      values.insert(values.end(), block.begin(), block.end());
    }
    Bytes x = payload_of(dtype, values);
    // Bisect towards the middles: between neighbours of different codes, of the same block.
    for (int round = 0; round < 26; ++round) {
      const Bytes wire = encode(scalar, dtype, x);
      const Bytes decoded = decode_bytes(scalar, dtype, wire, values.size());
      if (results(fast, dtype, x) != results(scalar, dtype, x)) {
        return fmt::format("between {} and {}, round {}", low, high, round);
      }
      const std::vector<float> values_now = floats_of(dtype, x);
      const std::vector<float> decoded_now = floats_of(dtype, decoded);
      std::vector<float> next = values_now;
      for (std::size_t i = 2; i + 3 < values_now.size(); ++i) {
        if (i % group < 2 || i % group + 2 >= group || i / group != (i + 2) / group) continue;
        if (decoded_now[i] == decoded_now[i + 2]) continue;
        const float middle = values_now[i] + (values_now[i + 2] - values_now[i]) / 2;
        (i % 4 < 2 ? next[i] : next[i + 2]) = middle;
      }
      x = payload_of(dtype, next);
    }
  }
  return std::nullopt;
}

/// NVFP4, 16-bit elements: all magnitudes from 2^-6 of a block's largest on, which takes all codes,
/// in blocks of every scale, for some scales of the tensor. Long messages are encoded in another
/// way.
std::optional<std::string> check_thresholds(const Codec& fast, const Codec& scalar, DType dtype) {
  if (scalar.name() != "nvfp4" || dtype == DType::fp32) return std::nullopt;
  const int mantissa_bits = dtype == DType::fp16 ? 10 : 7;
  // Patterns of the tensor's largest. 2688 makes the tensor's scale 1, so that there are ties.
  const int even = dtype == DType::fp16 ? 0x6940 : 0x4528;
  for (const int top : {0x7BFF, 0x6E35, 0x5001, even}) {
    Patterns x = {static_cast<std::uint16_t>(top)};
    const int binade = 1 << mantissa_bits;
    for (int largest = top; largest > std::max(top - 18 * binade, 0); largest -= binade / 16 - 1) {
      for (int bits = largest; bits >= std::max(largest - 6 * binade, 0); --bits) {
        if (x.size() % 16 == 0) x.push_back(static_cast<std::uint16_t>(largest));
        x.push_back(static_cast<std::uint16_t>(bits | (bits % 3 == 0 ? 0x8000 : 0)));
      }
      while (x.size() % 16 != 0) x.push_back(0x8000);
    }
    const auto bytes = bytes_of(x);
    Bytes expected(scalar.wire_bytes(dtype, x.size()));
    Bytes actual(expected.size());
    scalar.encode(dtype, bytes, expected);
    fast.encode(dtype, bytes, actual);
    if (actual != expected) return fmt::format("largest 0x{:04x}", top);
  }
  return std::nullopt;
}

/// Wires that no encoder writes: any codes beside any scales.
std::optional<std::string> check_wires(const Codec& fast, const Codec& scalar, DType dtype) {
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    // Long messages of nvfp4 are decoded in another way.
    const bool is_long = scalar.name() == "nvfp4" && seed % 4 >= 2;
    const std::size_t elements = is_long ? 40960 + 37 : 4096;
    const std::size_t bytes = scalar.wire_bytes(dtype, elements);
    const RandomStream random(seed, 7);
    Bytes wire(bytes);
    for (std::size_t i = 0; i < bytes; ++i) wire[i] = static_cast<std::byte>(random.word(i));
    if (is_logarithmic(scalar)) {
      // lo and step of moderate size, but for every eighth.
      const std::size_t blocks = (elements + scalar.info().block - 1) / scalar.info().block;
      for (std::size_t i = 0; i < 2 * blocks && seed % 8 != 0; ++i) {
        const double size = i < blocks ? 20.0 : 5.0;
        const std::uint16_t half = half_from_float(
            static_cast<float>(size * std::ldexp(centred_interval(random.word(bytes + i)),
                                                 static_cast<int>(seed % 5))));
        std::memcpy(&wire[bytes - 4 * blocks + 2 * i], &half, 2);
      }
    } else if (scalar.name() == "nvfp4") {
      const float infinity = std::numeric_limits<float>::infinity();
      const float headers[] = {
          1.0f,   3.0f,    0.007f, 1e30f,    1e-30f,
          -2.0f,  0.0f,    -0.0f,  infinity, std::numeric_limits<float>::quiet_NaN(),
          1e-42f, 0x1p118f};
      std::memcpy(wire.data(), &headers[seed / 2 % std::size(headers)], 4);
      // Positive, finite scales in most chunks of half of them.
      for (std::size_t i = 4; i < bytes && seed % 2 == 1; ++i) {
        if (i % 2304 < 2052 && i % 2304 >= 4) continue;  // codes
        wire[i] &= std::byte{0x7F};
        if (wire[i] == std::byte{0x7F} && seed % 3 != 0) wire[i] = std::byte{0x7E};
      }
    } else {
      // Scales near each other, so that few blocks of a chunk are special.
      for (std::size_t i = bytes - elements / 32; i < bytes; ++i) {
        const std::uint64_t word = random.word(bytes + i);
        wire[i] = static_cast<std::byte>(seed * 5 + 3 + word % 8 + (word >> 8) % 61 / 60 * 100);
      }
      // And in half of them, 8-bit codes that are ordinary numbers.
      if (seed % 2 == 0 && scalar.name().starts_with("mxfp8")) {
        for (std::size_t i = 0; i < elements; ++i) {
          wire[i] = static_cast<std::byte>((std::to_integer<unsigned>(wire[i]) & 0xB7) | 0x20);
          if (i % 7 == 0) wire[i] &= std::byte{0x80};
        }
      }
    }
    const char* const sums[] = {"gaussian", "adversarial", "patterns"};
    const Bytes sum = make_synthetic(sums[seed % 3], dtype, 1, 65536).data;
    Bytes actual(elements * size_of(dtype), std::byte{1});
    Bytes expected(actual.size(), std::byte{2});
    fast.decode(dtype, wire, actual);
    scalar.decode(dtype, wire, expected);
    if (actual != expected) return fmt::format("decoded, seed {}", seed);
    std::copy_n(sum.begin(), actual.size(), actual.begin());
    expected = actual;
    fast.decode_add(dtype, wire, actual);
    scalar.decode_add(dtype, wire, expected);
    if (actual != expected) return fmt::format("added to {}, seed {}", sums[seed % 3], seed);
  }
  return std::nullopt;
}

/// Payloads so large that they are written past the caches.
std::optional<std::string> check_large(const Codec& fast, const Codec& scalar, DType dtype) {
  const std::size_t elements = (std::size_t{16} << 20) / size_of(dtype) + 4096 + 5;
  Bytes x = make_synthetic("student-t:nu=2", dtype, 1, elements).data;
  // Blocks without codes: zeros, and one with a NaN.
  std::fill_n(&x[3 * 4096 * size_of(dtype)], 64 * size_of(dtype), std::byte{0});
  std::fill_n(&x[(5 * 4096 + 40) * size_of(dtype)], size_of(dtype), std::byte{0xFF});
  const Results expected = results(scalar, dtype, x);
  for (const std::size_t offset : {0, 1, 8, 16}) {
    if (results(fast, dtype, x, offset) != expected) return fmt::format("offset {}", offset);
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- every target

using TargetAndCodec = std::tuple<std::int64_t, CodecAndDType>;

class EveryTarget : public ::testing::TestWithParam<TargetAndCodec> {};

// One test for all checks: every test is a process of its own for CTest.
TEST_P(EveryTarget, HasTheBitsOfTheScalarCodec) {
  const CodecAndDType& param = std::get<1>(GetParam());
  const OnTarget on(std::get<0>(GetParam()));
  const CodecPtr fast = accelerated(param.codec);
  ASSERT_NE(fast, param.codec);
  for (const auto& [name, check] : {std::pair<const char*, Check>("conformance", check_conformance),
                                    {"lengths", check_lengths},
                                    {"alignments", check_alignments},
                                    {"patterns", check_patterns},
                                    {"amplitudes", check_amplitudes},
                                    {"ties", check_ties},
                                    {"thresholds", check_thresholds},
                                    {"wires", check_wires}}) {
    EXPECT_EQ(check(*fast, *param.codec, param.dtype), std::nullopt) << name;
  }
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

class BestTarget : public ::testing::TestWithParam<CodecAndDType> {};

TEST_P(BestTarget, LargePayloads) {
  const auto& [codec, dtype] = GetParam();
  EXPECT_EQ(check_large(*accelerated(codec), *codec, dtype), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(All, BestTarget,
                         ::testing::ValuesIn(with_their_dtypes({"mxfp8-e4m3", "mxfp4", "nvfp4",
                                                                "logfmt4-g32"})),
                         test_name);

// ---------------------------------------------------------------- one hash for every build

/// FNV-1a.
void add_to_hash(std::uint64_t& hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3;
  }
}

/// Of everything that these codecs make.
std::uint64_t hash_of(const std::vector<std::string>& names) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const auto& [codec, dtype] : with_their_dtypes(names)) {
    const CodecPtr fast = accelerated(codec);
    for (const char* spec : {"gaussian:seed=3", "adversarial:seed=3", "sweep:seed=3"}) {
      const Results r = results(*fast, dtype, make_synthetic(spec, dtype, 1, 10000).data);
      for (const Bytes* bytes : {&r.counted, &r.decoded, &r.added}) add_to_hash(hash, *bytes);
    }
  }
  return hash;
}

class OneHash : public ::testing::TestWithParam<std::int64_t> {};

// Whatever compiler, optimisation and target: the same bytes.
TEST_P(OneHash, OfEverythingThatTheCodecsMake) {
  const OnTarget on(GetParam());
  // What has come later has a hash of its own, so that the first one still says what it said.
  std::vector<std::string> names = all_names();
  const auto later = std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
    return !name.ends_with("-rceil");
  });
  const std::uint64_t hash = hash_of({names.begin(), later});
  EXPECT_EQ(hash, 0x7841ED32F75BE3E4u) << fmt::format("0x{:016X}", hash);
  const std::uint64_t hash_of_later = hash_of({later, names.end()});
  EXPECT_EQ(hash_of_later, 0x8F21C32394911CF2u) << fmt::format("0x{:016X}", hash_of_later);
}

INSTANTIATE_TEST_SUITE_P(Targets, OneHash, ::testing::ValuesIn(supported_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

// ---------------------------------------------------------------- which codec is accelerated

TEST(AcceleratedBlocks, GroupsThatAreNoMultipleOf32AreLeftToTheScalarCodec) {
  const CodecPtr scalar = find_codec("logfmt4-g40");
  EXPECT_EQ(accelerated(scalar), scalar);
}

TEST(AcceleratedBlocks, HaveTheInfoOfTheScalarCodec) {
  for (const std::string& name : all_names()) {
    const CodecPtr scalar = find_codec(name);
    const CodecPtr fast = accelerated(scalar);
    EXPECT_EQ(fast->name(), scalar->name());
    EXPECT_EQ(fast->info().dtypes, scalar->info().dtypes);
    EXPECT_EQ(fast->info().alignment, scalar->info().alignment);
    EXPECT_EQ(fast->info().splits_at_alignment, scalar->info().splits_at_alignment);
  }
}

// ---------------------------------------------------------------- mistakes that must be seen

/// An accelerated codec with one mistake in what it writes to the wire or to a payload.
struct Mistake {
  const char* name;
  const char* codec;
  Check seen_by;
  std::function<void(std::span<const std::byte> payload, std::span<std::byte> wire)> encoded;
  std::function<void(std::span<const std::byte> wire, std::span<std::byte> payload)> decoded;
  bool counts_wrongly = false;
};

MistakenCodec mistaken(const CodecPtr& right, const Mistake& mistake) {
  MistakenCodec::Mistakes made;
  made.encode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> payload,
                           std::span<std::byte> wire, EncodeCounts& counts) {
    const std::uint64_t before = counts.clamped;
    codec.encode(dtype, payload, wire, &counts);
    if (mistake.counts_wrongly && counts.clamped != before) counts.clamped -= 1;
    if (mistake.encoded) mistake.encoded(payload, wire);
  };
  made.decode = [&mistake](const Codec& codec, DType dtype, std::span<const std::byte> wire,
                           std::span<std::byte> payload) {
    codec.decode(dtype, wire, payload);
    if (mistake.decoded) mistake.decoded(wire, payload);
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
  static const std::vector<Mistake> list = {
      {"TiesGoUp", "mxfp8-e4m3", check_patterns,  // one bit below the code: exactly a half
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t x, std::uint16_t largest, std::byte& code) {
           const bool tie = (x & 0x7F) == 0x40 && (x & 0x80) == 0 && (x & 0x7FFF) > 0x400;
           const bool normal = largest < 0x7C00 && (x & 0x7C00) + 0x2000 > (largest & 0x7C00);
           if (tie && normal && (x & 0x7FFF) < largest) code |= std::byte{1};
         });
       },
       nullptr},
      {"TheSignOfZeroIsLost", "mxfp8-e4m3", check_patterns,
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t, std::uint16_t, std::byte& code) {
           if (code == std::byte{0x80}) code = std::byte{0};
         });
       },
       nullptr},
      {"TheSignOfZeroIsKeptInABlockOfZeros", "mxfp8-e4m3", check_amplitudes,
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if (i / 32 % 8 == 3) wire[i] |= std::byte{0x80};
         }
       },
       nullptr},
      {"SubnormalCodesAreFlushed", "mxfp8-e4m3", check_amplitudes,
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if ((wire[i] & std::byte{0x78}) == std::byte{0}) wire[i] &= std::byte{0x80};
         }
       },
       nullptr},
      {"OneClampedTooFew", "mxfp4", check_lengths, nullptr, nullptr, true},
      {"LastElementForgotten", "nvfp4", check_lengths, nullptr,
       [](Const, Mutable payload) {
         const std::size_t elements = payload.size() / 2;
         if (elements % 16 == 3) set_pattern(payload, elements - 1, 0x1234);
       }},
      {"NaNOfAScaleForgotten", "mxfp8-e4m3", check_conformance, nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           if (pattern_at(payload, i) == 0x7E00) set_pattern(payload, i, 0);
         }
       }},
      {"SubnormalElementsAreFlushed", "mxfp8-e4m3", check_wires, nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7C00) == 0) set_pattern(payload, i, bits & 0x8000);
         }
       }},
      {"AScaleWrongPastTheCaches", "mxfp8-e4m3", check_large,
       [](Const payload, Mutable wire) {
         if (payload.size() >= std::size_t{16} << 20) wire[4096] ^= std::byte{1};
       },
       nullptr},
      {"CodesOfABlockOfZerosPastTheCaches", "mxfp4", check_large,
       [](Const payload, Mutable wire) {
         if (payload.size() >= std::size_t{16} << 20) wire[3 * (2048 + 128) + 20] |= std::byte{1};
       },
       nullptr},
      {"ACodeTooFewAtAThreshold", "logfmt4-g32", check_ties,
       [](Const payload, Mutable wire) {
         // In fp16, the codes of one element of every bisected payload.
         if (payload.size() == 2 * 32 * 96) wire[700] ^= std::byte{1};
       },
       nullptr},
  };
  return list;
}

TEST(Mistakes, NoneIsReportedWhereThereIsNone) {
  for (const char* name : {"mxfp8-e4m3", "nvfp4", "logfmt4-g32"}) {
    const CodecPtr codec = find_codec(name);
    const Mistake none{"None", name, nullptr, nullptr, nullptr};
    const MistakenCodec same = mistaken(accelerated(codec), none);
    for (const Check check : {check_lengths, check_alignments, check_patterns, check_amplitudes,
                              check_ties, check_wires, check_conformance}) {
      EXPECT_EQ(check(same, *codec, DType::fp16), std::nullopt) << name;
    }
  }
}

TEST(Mistakes, AreReported) {
  for (const Mistake& mistake : mistakes()) {
    const CodecPtr codec = find_codec(mistake.codec);
    const MistakenCodec mutant = mistaken(accelerated(codec), mistake);
    EXPECT_NE(mistake.seen_by(mutant, *codec, DType::fp16), std::nullopt) << mistake.name;
  }
}

}  // namespace
}  // namespace arlab::testing
