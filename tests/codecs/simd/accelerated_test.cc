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
#include "tests/codecs/simd/results.h"
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

bool is_quickreduce(const Codec& codec) { return codec.name().starts_with("qr-"); }
bool is_logarithmic(const Codec& codec) { return codec.name().starts_with("logfmt"); }

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

/// Every length up to some blocks, and lengths around one and two atoms or wire chunks.
std::optional<std::string> check_lengths(const Codec& fast, const Codec& scalar, DType dtype) {
  const std::size_t chunk = is_quickreduce(scalar) ? 2048 : 4096;
  const std::size_t most = 2 * chunk + 40;
  const Bytes x = make_synthetic("adversarial:non_finite=0.01", dtype, 1, most).data;
  for (std::size_t elements = 1; elements <= most;) {
    const auto part = std::span(x).first(elements * size_of(dtype));
    if (results(fast, dtype, part) != results(scalar, dtype, part)) {
      return fmt::format("{} elements", elements);
    }
    const std::size_t step = chunk == 2048 ? 61 : 253;
    const std::size_t rest = elements % chunk;
    elements +=
        elements < 192 || rest < 2 || rest > chunk - 3 ? 1 : std::min(step, chunk - 2 - rest);
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
/// scale comes from another element. Of QuickReduce, whose blocks are interleaved, every pattern
/// stands at an even and at an odd place, so that few atoms are left to the scalar codec, and the
/// two blocks of a group have extremes of either sign.
std::optional<std::string> check_patterns(const Codec& fast, const Codec& scalar, DType dtype) {
  const bool interleaved = is_quickreduce(scalar);
  const RandomStream random(1, 1);
  for (const std::uint32_t extreme : {0u, 0x80u, 0x1000u, 0x3C00u, 0x3F80u, 0x4C00u, 0x7BFFu}) {
    Patterns x;
    std::vector<std::uint32_t> wide;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const std::uint64_t word = random.word(i);
      auto bits = static_cast<std::uint16_t>(interleaved ? i ^ (word & 1) : i);
      if (extreme != 0 && (interleaved ? i % 64 < 2 : i % 16 == 5)) {
        bits = static_cast<std::uint16_t>(extreme | (interleaved ? i % 2 << 15 : 0));
      }
      x.push_back(bits);
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
  const std::size_t elements = is_quickreduce(scalar) ? 4096 : 1024;
  const int lowest = dtype == DType::fp16 ? -26 : dtype == DType::bf16 ? -136 : -151;
  const int highest = dtype == DType::fp16 ? 16 : 128;
  for (int exponent = lowest; exponent <= highest; ++exponent) {
    const RandomStream random(static_cast<std::uint64_t>(exponent + 1000), 4);
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
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

/// What a wire is decoded to and what it adds, which no encoder need have written.
std::optional<std::string> differ_on_wire(const Codec& fast, const Codec& scalar, DType dtype,
                                          const Bytes& wire, std::size_t elements,
                                          const std::string& spec) {
  const Bytes sum = make_synthetic(spec, dtype, 1, std::max<std::size_t>(elements, 65536)).data;
  Bytes actual(elements * size_of(dtype), std::byte{1});
  Bytes expected(actual.size(), std::byte{2});
  fast.decode(dtype, wire, actual);
  scalar.decode(dtype, wire, expected);
  if (actual != expected) return "decoded";
  std::copy_n(sum.begin(), actual.size(), actual.begin());
  expected = actual;
  fast.decode_add(dtype, wire, actual);
  scalar.decode_add(dtype, wire, expected);
  if (actual != expected) return "added to " + spec;
  return std::nullopt;
}

/// Atoms of QuickReduce with finite scales: all codes, beside every scale.
std::optional<std::string> check_atoms(const Codec& fast, const Codec& scalar, DType dtype) {
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
      if (auto found = differ_on_wire(fast, scalar, dtype, wire, kAtoms * 2048, spec)) {
        return fmt::format("{}, scale exponents below {}", *found, exponents);
      }
    }
  }
  return std::nullopt;
}

/// Any codes beside any scales.
std::optional<std::string> check_wires(const Codec& fast, const Codec& scalar, DType dtype) {
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    constexpr std::size_t kElements = 4096 + 37;
    const std::size_t bytes = scalar.wire_bytes(dtype, kElements);
    const RandomStream random(seed, 7);
    Bytes wire(bytes);
    for (std::size_t i = 0; i < bytes; ++i) wire[i] = static_cast<std::byte>(random.word(i));
    if (is_logarithmic(scalar)) {
      // lo and step of moderate size, but for every eighth.
      const std::size_t blocks = (kElements + scalar.info().block - 1) / scalar.info().block;
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
      for (std::size_t i = bytes - kElements / 32; i < bytes; ++i) {
        const std::uint64_t word = random.word(bytes + i);
        wire[i] = static_cast<std::byte>(seed * 5 + 3 + word % 8 + (word >> 8) % 61 / 60 * 100);
      }
      // And in half of them, 8-bit codes that are ordinary numbers.
      if (seed % 2 == 0 && scalar.name().starts_with("mxfp8")) {
        for (std::size_t i = 0; i < kElements; ++i) {
          wire[i] = static_cast<std::byte>((std::to_integer<unsigned>(wire[i]) & 0xB7) | 0x20);
          if (i % 7 == 0) wire[i] &= std::byte{0x80};
        }
      }
    }
    const char* const sums[] = {"gaussian", "adversarial", "patterns"};
    if (auto found = differ_on_wire(fast, scalar, dtype, wire, kElements, sums[seed % 3])) {
      return fmt::format("{}, seed {}", *found, seed);
    }
  }
  return std::nullopt;
}

/// What tells blocks apart: equal elements, zeros of both signs, extremes that occur twice, ranges
/// that overflow or vanish, elements in the middle between two codes, a non-finite one.
std::vector<float> block_values(std::size_t count, std::uint64_t seed) {
  const RandomStream random(seed, 5);
  std::vector<float> x(count);
  const double exponent = static_cast<double>(random.word(count) % 300) - 160;
  const double step = std::exp2(std::max(exponent, -148.0));
  const std::uint64_t kind = random.word(count + 1) % 10;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random.word(i);
    const double whole = static_cast<double>(word % 31) - 15;
    double value = 0;
    switch (kind) {
      case 0:
        value = step;
        break;
      case 1:
        value = word % 2 == 0 ? 0.0 : -0.0;
        break;
      case 2:
        value = whole * step / 2;
        break;
      case 3:
        value = (word % 2 == 0 ? 1 : -1) * 3.3e38 * (word % 3 == 0 ? 1 : 0.5);
        break;
      case 4:
        value = 1000 + whole * 0.5;
        break;
      case 5:
        value = -whole * step - 16 * step;
        break;
      case 6:
        value = word % 5 == 0 ? -0.0 : whole * (whole > 0 ? step : 0);
        break;
      case 7:
        value = 1 + 0x1p-23 * static_cast<double>(word % 3);
        break;
      case 8:
        // A range just below overflow: x - zero overflows where the zero is rounded down.
        value = i % 3 == 0 ? 0x1.407dcp+127 : i % 3 == 1 ? -0x1.7f047cp+126 : 0;
        break;
      default:
        value = centred_interval(word) * step;
    }
    x[i] = static_cast<float>(value);
  }
  const std::uint64_t word = random.word(count + 2);
  if (word % 16 == 0) x[word / 16 % count] = std::numeric_limits<float>::infinity();
  if (word % 16 == 1) x[word / 16 % count] = -std::numeric_limits<float>::quiet_NaN();
  return x;
}

/// Blocks of any-bit codecs in which anything may be, at odd addresses, and nothing beside them.
std::optional<std::string> check_blocks(const Codec& fast, const Codec& scalar, DType dtype) {
  const std::size_t group = scalar.info().block == kWholeTensor ? 100 : scalar.info().block;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<float> values;
    while (values.size() < 9000) {
      const auto block = block_values(group, mix_bits(seed + values.size() + group));
      values.insert(values.end(), block.begin(), block.end());
    }
    values.resize(9000 + 7 * seed);
    const Bytes payload = payload_of(dtype, values);
    if (results(fast, dtype, payload, 1) != results(scalar, dtype, payload)) {
      return fmt::format("seed {}", seed);
    }
  }
  return std::nullopt;
}

/// The largest numbers of the dtype, and powers of sqrt(2) below: where a chunk's elements may have
/// to be limited, and where they need not.
std::optional<std::string> check_largest(const Codec& fast, const Codec& scalar, DType dtype) {
  constexpr std::size_t kElements = 4096 + 256 + 3;
  const double largest = dtype == DType::fp16   ? 65504
                         : dtype == DType::bf16 ? 0x1.FEp127
                                                : 0x1.FFFFFEp127;
  for (std::uint64_t seed = 0; seed < 26; ++seed) {
    const double most = largest * std::exp2(-0.5 * static_cast<double>(seed));
    const RandomStream random(seed, 6);
    std::vector<float> values(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::uint64_t word = random.word(i);
      const double share = word % 5 == 0   ? 1
                           : seed % 3 == 0 ? unit_interval(word)
                                           : 1 - 0.01 * unit_interval(word);
      values[i] =
          static_cast<float>(most * share * (seed % 4 == 1 ? 1 : random_sign(mix_bits(word))));
    }
    const Bytes payload = payload_of(dtype, values);
    if (results(fast, dtype, payload) != results(scalar, dtype, payload)) {
      return fmt::format("seed {}", seed);
    }
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- every target

/// Codecs that the same checks are made for.
struct Family {
  std::vector<std::string> names;
  std::vector<std::pair<const char*, Check>> checks;
};

const std::vector<Family>& families() {
  static const std::vector<std::pair<const char*, Check>> of_blocks = {
      {"conformance", check_conformance},
      {"lengths", check_lengths},
      {"alignments", check_alignments},
      {"patterns", check_patterns},
      {"amplitudes", check_amplitudes},
      {"ties", check_ties},
      {"wires", check_wires}};
  static const std::vector<Family> list = {
      {kQuickReduce,
       {{"conformance", check_conformance},
        {"conformance with other numbers", check_conformance},
        {"lengths", check_lengths},
        {"alignments", check_alignments},
        {"patterns", check_patterns},
        {"amplitudes", check_amplitudes},
        {"atoms", check_atoms}}},
      {scaled_or_logarithmic_names(), of_blocks},
      {microscaling_names("-rceil"), of_blocks},
      {anybit_names(),
       {{"conformance", check_conformance}, {"blocks", check_blocks}, {"largest", check_largest}}}};
  return list;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.insert(names.end(), family.names.begin(), family.names.end());
  }
  return names;
}

using TargetAndCodec = std::tuple<std::int64_t, CodecAndDType>;

class EveryTarget : public ::testing::TestWithParam<TargetAndCodec> {};

// One test for all checks: every test is a process of its own for CTest.
TEST_P(EveryTarget, HasTheBitsOfTheScalarCodec) {
  const auto& [target, param] = GetParam();
  const OnTarget on(target);
  const CodecPtr fast = accelerated(param.codec);
  ASSERT_NE(fast, param.codec);
  for (const Family& family : families()) {
    if (std::ranges::count(family.names, param.codec->name()) == 0) continue;
    for (const auto& [name, check] : family.checks) {
      EXPECT_EQ(check(*fast, *param.codec, param.dtype), std::nullopt) << name;
    }
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

/// What this processor must run, by what it says of itself; the codecs say what they do run.
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
  Check seen_by;
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
  constexpr std::size_t kScales = 1024;  // of qr-q4, in its atom of 1152 bytes
  static const std::vector<Mistake> list = {
      {"EvenAndOddScalesSwapped", "qr-q4", check_conformance,
       [](Const, Mutable wire) {
         for (std::size_t at = kScales; at + 4 <= wire.size() && at < kScales + 128; at += 4) {
           std::swap_ranges(&wire[at], &wire[at + 2], &wire[at + 2]);
         }
       }},
      {"ScalesTruncated", "qr-q4", check_amplitudes,  // one bit, wherever the last one is set
       [](Const, Mutable wire) {
         for (std::size_t at = kScales; at < kScales + 128; at += 2) wire[at] &= std::byte{0xFE};
       }},
      {"WithoutCountingAnotherWire", "qr-q4", check_conformance,
       [](Const, Mutable wire) { wire[wire.size() / 2] ^= std::byte{0x10}; }, nullptr, nullptr,
       true},
      {"OneClampedTooMany", "qr-q4", check_lengths, nullptr, nullptr, nullptr, false, 1},
      {"LastElementOfAnOddLengthForgotten", "qr-q4", check_lengths, nullptr,
       [](Const, Mutable payload) {
         const std::size_t elements = payload.size() / 2;
         if (elements % 8 == 3) set_pattern(payload, elements - 1, 0x1234);
       }},
      {"WrongWhereTheWireIsMisaligned", "qr-q4", check_alignments, nullptr,
       [](Const wire, Mutable payload) {
         if (reinterpret_cast<std::uintptr_t>(wire.data()) % 16 == 5) payload[0] ^= std::byte{1};
       }},
      {"MinusZeroLost", "qr-q4", check_patterns, nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           if (pattern_at(payload, i) == 0x8000) set_pattern(payload, i, 0);
         }
       }},
      {"SubnormalsFlushed", "qr-q4", check_atoms, nullptr,
       [](Const, Mutable payload) {
         const std::uint16_t smallest = 0x0400;
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7FFF) < smallest) set_pattern(payload, i, bits & 0x8000);
         }
       }},
      {"SumsOverflowToInfinity", "qr-q4", check_atoms, nullptr, nullptr,
       [](Const before, Mutable sum) {
         for (std::size_t i = 0; i < sum.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(sum, i);
           if ((bits & 0x7FFF) == 0x7BFF && bits != pattern_at(before, i)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(bits + 1));
           }
         }
       }},
      {"NaNOfSumsNotCanonical", "qr-q4", check_atoms, nullptr, nullptr,
       [](Const, Mutable sum) {
         for (std::size_t i = 0; i < sum.size() / 2; ++i) {
           if (pattern_at(sum, i) == canonical_nan(DType::fp16)) {
             set_pattern(sum, i, static_cast<std::uint16_t>(canonical_nan(DType::fp16) | 0x8000));
           }
         }
       }},
      {"NothingIsAdded", "qr-q4", check_alignments, nullptr, nullptr,
       [](Const before, Mutable sum) { std::ranges::copy(before, sum.begin()); }},
      {"TiesGoUp", "mxfp8-e4m3", check_patterns,  // one bit below the code: exactly a half
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t x, std::uint16_t largest, std::byte& code) {
           const bool tie = (x & 0x7F) == 0x40 && (x & 0x80) == 0 && (x & 0x7FFF) > 0x400;
           const bool normal = largest < 0x7C00 && (x & 0x7C00) + 0x2000 > (largest & 0x7C00);
           if (tie && normal && (x & 0x7FFF) < largest) code |= std::byte{1};
         });
       }},
      {"TheSignOfZeroIsLost", "mxfp8-e4m3", check_patterns,
       [](Const payload, Mutable wire) {
         for_each_code(payload, wire, [](std::uint16_t, std::uint16_t, std::byte& code) {
           if (code == std::byte{0x80}) code = std::byte{0};
         });
       }},
      {"TheSignOfZeroIsKeptInABlockOfZeros", "mxfp8-e4m3", check_amplitudes,
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if (i / 32 % 8 == 3) wire[i] |= std::byte{0x80};
         }
       }},
      {"SubnormalCodesAreFlushed", "mxfp8-e4m3", check_amplitudes,
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; payload.size() == 2048 && i < 1024; ++i) {
           if ((wire[i] & std::byte{0x78}) == std::byte{0}) wire[i] &= std::byte{0x80};
         }
       }},
      {"OneClampedTooFew", "mxfp4", check_lengths, nullptr, nullptr, nullptr, false, -1},
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
      {"ACodeTooFewAtAThreshold", "logfmt4-g32", check_ties,
       [](Const payload, Mutable wire) {
         // In fp16, the codes of one element of every bisected payload.
         if (payload.size() == 2 * 32 * 96) wire[700] ^= std::byte{1};
       }},
      {"TwoScalesSwapped", "int8-g128", check_blocks,
       [](Const, Mutable wire) {
         std::byte* const scales = wire.data() + 4096;
         std::swap_ranges(scales, scales + 2, scales + 2);
       }},
      {"TwoCodesSwapped", "int8-g128", check_blocks,
       [](Const, Mutable wire) {
         std::byte* const codes = wire.data() + 9 * 128;
         std::swap_ranges(codes, codes + 32, codes + 32);
       }},
      {"CodesKeptBesideANaN", "int8-g128", check_blocks,
       [](Const payload, Mutable wire) {
         for (std::size_t i = 0; i < 4096; ++i) {
           if ((pattern_at(payload, i) & 0x7C00) == 0x7C00) wire[i / 128 * 128] |= std::byte{1};
         }
       }},
      {"TheLargestIsInfinite", "int8-g128", check_largest, nullptr,
       [](Const, Mutable payload) {
         for (std::size_t i = 0; i < payload.size() / 2; ++i) {
           const std::uint16_t bits = pattern_at(payload, i);
           if ((bits & 0x7FFF) == 0x7BFF) set_pattern(payload, i, bits + 1);
         }
       }},
  };
  return list;
}

TEST(Mistakes, NoneIsReportedWhereThereIsNone) {
  for (const Mistake& mistake : mistakes()) {
    const CodecPtr codec = find_codec(mistake.codec);
    const Mistake none{"None", mistake.codec, nullptr};
    EXPECT_EQ(mistake.seen_by(mistaken(accelerated(codec), none), *codec, DType::fp16),
              std::nullopt)
        << mistake.name;
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
