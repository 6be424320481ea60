// The any-bit codecs with vectors have the bits of the scalar ones, on every target: all numbers of
// bits, groups of every kind, all variants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "reference/codecs/simd/accelerated.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/altered_codec.h"
#include "tests/codecs/conformance.h"
#include "tests/codecs/round_trip.h"
#include "tests/codecs/simd/on_target.h"
#include "tests/codecs/simd/results.h"

namespace arlab::testing {
namespace {

constexpr DType kDTypes[] = {DType::fp16, DType::bf16, DType::fp32};

std::vector<std::string> names() {
  std::vector<std::string> list = {"int4-gtensor",
                                   "int8-gtensor",
                                   "int5-gtensor-sym",
                                   "int4-gtensor-static0.01:-0.07",
                                   "int8-gtensor-sym-static0.02",
                                   "int3-gtensor-static1e-30:1e-3",
                                   "int7-gtensor-static1e30:0",
                                   "int4-g4096",
                                   "int6-g8192",
                                   "int3-g12288-sym",
                                   "int4-g8",
                                   "int3-g16",
                                   "int5-g24",
                                   "int8-g40",
                                   "int2-g48",
                                   "int6-g96-sym",
                                   "int7-g136",
                                   "int4-g2048",
                                   "int4-g1000",
                                   "int2-g8-sr",
                                   "int4-g24-sr",
                                   "int3-g64-sr",
                                   "int5-g128-sym-sr",
                                   "int6-g4096-sr",
                                   "int8-g1000-sr",
                                   "int2-g16-sr-is",
                                   "int4-g40-sr-is",
                                   "int8-g128-sr-is",
                                   "int7-g256-sr-is",
                                   "had-int4-g8",
                                   "had-int3-g16-sym",
                                   "had-int5-g64",
                                   "had-int8-g128",
                                   "had-int6-g1024-sym",
                                   "had-int2-g4096"};
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

class AnyBitOnEveryTarget : public ::testing::TestWithParam<std::tuple<std::int64_t, std::string>> {
};

TEST_P(AnyBitOnEveryTarget, HasTheBitsOfTheScalarCodec) {
  const auto& [target, name] = GetParam();
  const OnTarget on(target);
  const CodecPtr scalar = find_codec(name);
  const CodecPtr fast = accelerated(scalar);
  ASSERT_NE(fast, scalar);
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(nonconforming(*fast, *scalar, dtype), std::nullopt) << name_of(dtype);
  }
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

TEST_P(AnyBitOnEveryTarget, TakesOddBlocksAtOddAddresses) {
  const auto& [target, name] = GetParam();
  const OnTarget on(target);
  const CodecPtr scalar = find_codec(name);
  const CodecPtr fast = accelerated(scalar);
  const std::size_t group = scalar->info().block == kWholeTensor ? 100 : scalar->info().block;
  for (const DType dtype : kDTypes) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      std::vector<float> values;
      while (values.size() < 9000) {
        const auto block = block_values(group, mix_bits(seed + values.size() + group));
        values.insert(values.end(), block.begin(), block.end());
      }
      values.resize(9000 + 7 * seed);
      const Bytes payload = tensor_from_floats(dtype, {values.size()}, values).data;
      EncodeCounts expected_counts;
      const Bytes expected = encode(*scalar, dtype, payload, &expected_counts);

      const std::size_t offset = size_of(dtype);
      Bytes shifted(payload.size() + 2 * offset, std::byte{0x77});
      std::memcpy(shifted.data() + offset, payload.data(), payload.size());
      Bytes wire(expected.size() + 3, std::byte{0x77});
      EncodeCounts counts;
      fast->encode(dtype, std::span(shifted).subspan(offset, payload.size()),
                   std::span(wire).subspan(1, expected.size()), &counts);
      ASSERT_EQ(Bytes(wire.begin() + 1, wire.end() - 2), expected) << name_of(dtype) << seed;
      EXPECT_EQ(counts.clamped, expected_counts.clamped) << name_of(dtype) << seed;

      const Bytes decoded = decode_bytes(*scalar, dtype, expected, values.size());
      fast->decode(dtype, std::span(std::as_const(wire)).subspan(1, expected.size()),
                   std::span(shifted).subspan(offset, payload.size()));
      ASSERT_EQ(Bytes(shifted.begin() + static_cast<std::ptrdiff_t>(offset),
                      shifted.end() - static_cast<std::ptrdiff_t>(offset)),
                decoded)
          << name_of(dtype) << seed;
      // Nothing is written beside the spans.
      EXPECT_EQ(wire.front(), std::byte{0x77});
      EXPECT_EQ(wire[wire.size() - 2], std::byte{0x77});
      EXPECT_EQ(shifted.front(), std::byte{0x77});
      EXPECT_EQ(shifted.back(), std::byte{0x77});
    }
  }
}

/// Blocks with both signs have their extremes found in another way, if all of a chunk's are such.
/// The blocks of block_values among others, each made such.
TEST_P(AnyBitOnEveryTarget, TakesBlocksOfBothSigns) {
  const auto& [target, name] = GetParam();
  const OnTarget on(target);
  const CodecPtr scalar = find_codec(name);
  const CodecPtr fast = accelerated(scalar);
  const std::size_t group = scalar->info().block == kWholeTensor ? 100 : scalar->info().block;
  const std::size_t blocks = std::max<std::size_t>(4096 / group, 1);
  for (const DType dtype : kDTypes) {
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      std::vector<float> values;
      for (std::size_t b = 0; b < blocks; ++b) {
        auto block = block_values(group, mix_bits(1000 * seed + b));
        const float size = std::isnan(block[0]) ? 1.0f : std::abs(block[0]);
        // One of each sign, of which one may be a zero, and once in a while only one sign.
        block[0] = b % 16 == seed ? size : b % 3 == 0 ? -0.0f : -size;
        block[group / 2] = b % 5 == 0 ? 0.0f : size;
        // In most messages every block is finite in every dtype, in some only in the widest.
        for (float& x : block) {
          if (seed % 4 != 3 && !(std::abs(x) < 30000)) x = std::copysign(1.0f, x);
        }
        values.insert(values.end(), block.begin(), block.end());
      }
      const Bytes payload = tensor_from_floats(dtype, {values.size()}, values).data;
      ASSERT_EQ(results(*fast, dtype, payload), results(*scalar, dtype, payload))
          << name_of(dtype) << seed;
    }
  }
}

/// The largest numbers of the dtype, and powers of sqrt(2) below: where a chunk's elements may have
/// to be limited, and where they need not.
TEST_P(AnyBitOnEveryTarget, LimitsTheLargestNumbers) {
  const auto& [target, name] = GetParam();
  const OnTarget on(target);
  const CodecPtr scalar = find_codec(name);
  const CodecPtr fast = accelerated(scalar);
  constexpr std::size_t kElements = 4096 + 256 + 3;
  for (const DType dtype : kDTypes) {
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
      const Bytes payload = tensor_from_floats(dtype, {kElements}, values).data;
      ASSERT_EQ(results(*fast, dtype, payload), results(*scalar, dtype, payload))
          << name_of(dtype) << seed;
    }
  }
}

std::string name_of_case(
    const ::testing::TestParamInfo<std::tuple<std::int64_t, std::string>>& info) {
  const auto& [target, codec] = info.param;
  std::string name = hwy::TargetName(target) + ("_" + codec);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, AnyBitOnEveryTarget,
                         ::testing::Combine(::testing::ValuesIn(vector_targets()),
                                            ::testing::ValuesIn(names())),
                         name_of_case);

// ---------------------------------------------------------------- large payloads

constexpr std::size_t kLarge = std::size_t{16} << 20;  // bytes, from which they go past the caches

/// Gaussian elements of every kind of block: one of zeros, one with a NaN, a last part that fills
/// no block.
Bytes large_payload(DType dtype) {
  const std::size_t elements = kLarge / size_of(dtype) + 1003;
  Bytes payload = make_synthetic("gaussian", dtype, 1, elements).data;
  const auto bytes_of_elements = [&](std::size_t first, std::size_t count) {
    return std::span(payload).subspan(first * size_of(dtype), count * size_of(dtype));
  };
  std::ranges::fill(bytes_of_elements(3 * 4096, 256), std::byte{0});
  std::ranges::fill(bytes_of_elements(5 * 4096 + 128, 1), std::byte{0xFF});
  return payload;
}

/// What `usual` makes of a payload, by parts that do not go past the caches; or all at once, where
/// parts would have other bits.
std::pair<Bytes, Bytes> wire_and_elements(const Codec& usual, DType dtype,
                                          std::span<const std::byte> payload) {
  const std::size_t elements = payload.size() / size_of(dtype);
  const std::size_t block = usual.info().block;
  const std::size_t chunk = chunk_elements(block == kWholeTensor ? elements : block);
  const std::size_t part_elements = elements / 2 / chunk * chunk;
  const bool splits =
      usual.info().splits_at_alignment && part_elements % usual.info().alignment == 0;
  const std::size_t part = splits ? part_elements * size_of(dtype) : payload.size();
  std::pair<Bytes, Bytes> result;
  for (std::size_t first = 0; first < payload.size();) {
    const auto here = payload.subspan(first, std::min(part, payload.size() - first));
    const Bytes wire = encode(usual, dtype, here);
    const Bytes decoded = decode_bytes(usual, dtype, wire, here.size() / size_of(dtype));
    result.first.insert(result.first.end(), wire.begin(), wire.end());
    result.second.insert(result.second.end(), decoded.begin(), decoded.end());
    first += here.size();
  }
  return result;
}

/// Wire and elements of a large payload, wherever they lie.
std::optional<std::string> check_large(const Codec& fast, DType dtype,
                                       std::span<const std::byte> payload,
                                       const std::pair<Bytes, Bytes>& expected) {
  for (const std::size_t offset : {0, 1, 8, 16}) {  // bytes of the wire, elements of the payload
    Misaligned wire(expected.first.size(), offset, std::byte{0x22});
    fast.encode(dtype, payload, wire.span);
    if (!std::ranges::equal(wire.span, expected.first)) return fmt::format("wire at {}", offset);
    Misaligned elements(payload.size(), offset * size_of(dtype), std::byte{0x11});
    fast.decode(dtype, wire.span, elements.span);
    if (!std::ranges::equal(elements.span, expected.second)) {
      return fmt::format("elements at {}", offset);
    }
  }
  return std::nullopt;
}

TEST(AnyBitStreamed, HasTheSameBits) {
  for (const DType dtype : kDTypes) {
    const Bytes payload = large_payload(dtype);
    for (const char* name :
         {"int4-g32", "int4-g128", "int5-g24", "int5-g128", "int2-g32-sr", "int8-g32", "int8-g128",
          "int8-g128-sym", "int8-g96", "int5-g192", "int8-g64-sr-is", "int8-gtensor"}) {
      const CodecPtr scalar = find_codec(name);
      const CodecPtr fast = accelerated(scalar);
      // The scalar codec is slow: the vector one that stores as usual stands for it, if it can.
      const bool splits = scalar->info().splits_at_alignment;
      const auto expected = wire_and_elements(splits ? *fast : *scalar, dtype, payload);
      for (const std::int64_t target : vector_targets()) {
        const OnTarget on(target);
        EXPECT_EQ(check_large(*fast, dtype, payload, expected), std::nullopt)
            << name << " " << name_of(dtype) << " " << hwy::TargetName(target);
      }
    }
  }
}

// ---------------------------------------------------------------- mistakes that must be seen

TEST(AnyBitStreamed, MistakesAreReported) {
  constexpr std::size_t kChunk = 4096 + 32 * 4;  // bytes: codes, scales, zeros
  const auto two_scales_swapped = [](DType, std::span<std::byte> wire) {
    std::byte* const scales = wire.data() + 7 * kChunk + 4096;
    std::swap_ranges(scales, scales + 2, scales + 2);
  };
  const auto two_codes_swapped = [](DType, std::span<std::byte> wire) {
    std::byte* const codes = wire.data() + 9 * kChunk;
    std::swap_ranges(codes, codes + 32, codes + 32);
  };
  const auto codes_kept_beside_a_nan = [](DType, std::span<std::byte> wire) {
    wire[5 * kChunk + 130] = std::byte{1};
  };
  const CodecPtr right = accelerated(find_codec("int8-g128"));
  const Bytes payload = large_payload(DType::fp16);
  const auto expected = wire_and_elements(*right, DType::fp16, payload);
  const auto found = [&](AlteredCodec::Changes changes) {
    const AlteredCodec mutant(right, std::move(changes));
    return check_large(mutant, DType::fp16, payload, expected);
  };
  EXPECT_EQ(found({}), std::nullopt);
  EXPECT_EQ(found({.wire = two_scales_swapped}), "wire at 0");
  EXPECT_EQ(found({.wire = two_codes_swapped}), "wire at 0");
  EXPECT_EQ(found({.wire = codes_kept_beside_a_nan}), "wire at 0");
  EXPECT_EQ(found({.received = two_scales_swapped}), "elements at 0");
  EXPECT_EQ(found({.received = two_codes_swapped}), "elements at 0");
}

}  // namespace
}  // namespace arlab::testing
