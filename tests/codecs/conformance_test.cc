// The conformance check must pass what is right and see what is wrong: each mistake below is one
// that an implementation of the codecs could make, and the check has to report it.
#include "tests/codecs/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/codecs/quickreduce_mistakes.h"

namespace arlab::testing {
namespace {

constexpr const char* kQuickReduce[] = {"qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"};
constexpr DType kSixteenBits[] = {DType::fp16, DType::bf16};

TEST(Conformance, TheCodecConformsToItself) {
  for (const std::string name : {"fp32", "fp16", "bf16"}) {
    const CodecPtr codec = find_codec(name);
    EXPECT_EQ(nonconforming(*codec, *codec, parse_dtype(name)), std::nullopt);
  }
  for (const std::string name : kQuickReduce) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : kSixteenBits) {
      EXPECT_EQ(nonconforming(*codec, *codec, dtype), std::nullopt) << name;
    }
  }
}

// Mistakes made inside of the codecs: reference/codecs/quickreduce.cc with each of a list.

/// Where a mistake changes bits; one that is not here does so everywhere.
bool matters(std::string_view mistake, std::string_view codec, DType dtype) {
  const bool integers = codec.starts_with("qr-q");
  const bool signed_scale = codec != "qr-fp8";
  const bool bf16 = dtype == DType::bf16;
  const std::map<std::string_view, bool> somewhere = {
      {"tie_takes_max", signed_scale},
      {"plus_zero_is_smallest", signed_scale},
      {"unsigned_scale", signed_scale},
      {"constant_rounded_once", !signed_scale && bf16},
      {"epsilon_away_from_zero", signed_scale},
      {"reciprocal_overflows_to_infinity", !bf16},
      {"codes_wrap", integers},
      {"symmetric_code_range", integers},
      {"nan_clamps_to_upper_bound", integers && bf16},
      {"bias_too_large", integers},
      {"bytes_in_element_order", codec == "qr-q8"},
      {"decoded_values_overflow", !bf16},
      // fp4 only where eps nearly cancels d and the reciprocal is not clamped.
      {"clamped_not_counted", integers || (signed_scale && bf16)},
      // bf16 has no number between the largest integer of 8 bits and the tie above it.
      {"clamped_before_rounding", !bf16 || codec != "qr-q8"},
      {"padding_counted", signed_scale && bf16}};
  const auto found = somewhere.find(mistake);
  return found == somewhere.end() || found->second;
}

/// The codecs with the mistake of this number, 0 for none, which is reported where it matters.
class QuickReduceMistakes : public ::testing::TestWithParam<int> {};

TEST_P(QuickReduceMistakes, AreReported) {
  const int number = GetParam();
  for (const char* name : kQuickReduce) {
    const CodecPtr mutant = mistaken_quickreduce_codecs().find(name);
    for (const DType dtype : kSixteenBits) {
      quickreduce_mistake = number;
      const auto found = nonconforming(*mutant, *find_codec(name), dtype);
      const bool expected =
          number > 0 && matters(kQuickReduceMistakes[static_cast<std::size_t>(number - 1)],
                                mutant->name(), dtype);
      EXPECT_EQ(found.has_value(), expected)
          << name << " " << name_of(dtype) << ": " << found.value_or("conforms");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, QuickReduceMistakes,
    ::testing::Range(0, static_cast<int>(kQuickReduceMistakes.size()) + 1), [](const auto& info) {
      return info.param == 0
                 ? std::string("none")
                 : std::string(kQuickReduceMistakes[static_cast<std::size_t>(info.param - 1)]);
    });

// Mistakes made around a codec, of any family.

using Change = std::function<void(DType, std::span<std::byte>)>;
struct Changes {
  Change payload = {};  // before encoding
  Change wire = {};     // after encoding
  Change decoded = {};  // after decoding
};

MistakenCodec altered(const CodecPtr& codec, const Changes& changes) {
  using Bytes = std::span<const std::byte>;
  using Out = std::span<std::byte>;
  MistakenCodec::Mistakes made;
  made.encode = [changes](const Codec& right, DType dtype, Bytes x, Out wire,
                          EncodeCounts& counts) {
    std::vector<std::byte> changed(x.begin(), x.end());
    if (changes.payload) changes.payload(dtype, changed);
    right.encode(dtype, changed, wire, &counts);
    if (changes.wire) changes.wire(dtype, wire);
  };
  made.decode = [changes](const Codec& right, DType dtype, Bytes wire, Out x) {
    right.decode(dtype, wire, x);
    if (changes.decoded) changes.decoded(dtype, x);
  };
  return {codec, made};
}

void expect_reported_everywhere(const Changes& changes) {
  for (const std::string& name : listed_codecs()) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : codec->info().dtypes) {
      const MistakenCodec mutant = altered(codec, changes);
      EXPECT_NE(nonconforming(mutant, *codec, dtype), std::nullopt)
          << name << " " << name_of(dtype);
    }
  }
}

/// A change of every element, as its bit pattern.
Change each_element(std::uint32_t (*change)(DType, std::uint32_t)) {
  return [change](DType dtype, std::span<std::byte> payload) {
    const std::size_t size = size_of(dtype);
    for (std::size_t at = 0; at < payload.size(); at += size) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &payload[at], size);
      bits = change(dtype, bits);
      std::memcpy(&payload[at], &bits, size);
    }
  };
}

bool is_nan(DType dtype, std::uint32_t bits) {
  switch (dtype) {
    case DType::fp16:
      return (bits & 0x7FFF) > 0x7C00;
    case DType::bf16:
      return (bits & 0x7FFF) > 0x7F80;
    case DType::fp32:
      return (bits & 0x7FFFFFFF) > 0x7F800000;
  }
  return false;
}

std::uint32_t nan_to_zero(DType dtype, std::uint32_t bits) {
  return is_nan(dtype, bits) ? 0 : bits;
}

TEST(AlteredCodecs, NothingChangedConforms) {
  const CodecPtr codec = find_codec("qr-q4");
  EXPECT_EQ(nonconforming(altered(codec, {}), *codec, DType::bf16), std::nullopt);
}

TEST(AlteredCodecs, EverythingDecodesToZero) {
  expect_reported_everywhere({.decoded = [](DType, std::span<std::byte> payload) {
    std::ranges::fill(payload, std::byte{0});
  }});
}

TEST(AlteredCodecs, TheWireIsZero) {
  expect_reported_everywhere(
      {.wire = [](DType, std::span<std::byte> wire) { std::ranges::fill(wire, std::byte{0}); }});
}

TEST(AlteredCodecs, NaNIsLaunderedBeforeEncoding) {
  expect_reported_everywhere({.payload = each_element(nan_to_zero)});
}

TEST(AlteredCodecs, NaNIsLaunderedAfterDecoding) {
  expect_reported_everywhere({.decoded = each_element(nan_to_zero)});
}

TEST(AlteredCodecs, TheLargestNumberDecodesToInfinity) {
  for (const std::string& name : listed_codecs()) {
    if (!name.starts_with("int") && !name.starts_with("had-") && !name.starts_with("logfmt"))
      continue;
    const CodecPtr codec = find_codec(name);
    const MistakenCodec mutant =
        altered(codec, {.decoded = each_element([](DType, std::uint32_t bits) {
                          return (bits & 0x7FFF) == 0x7BFF ? bits + 1 : bits;
                        })});
    EXPECT_NE(nonconforming(mutant, *codec, DType::fp16), std::nullopt) << name;
  }
}

TEST(AlteredCodecs, TheLastElementIsForgotten) {
  expect_reported_everywhere({.payload = [](DType dtype, std::span<std::byte> payload) {
    std::ranges::fill(payload.last(size_of(dtype)), std::byte{0});
  }});
}

TEST(AlteredCodecs, TheLastElementIsNotDecoded) {
  expect_reported_everywhere({.decoded = [](DType dtype, std::span<std::byte> payload) {
    std::ranges::fill(payload.last(size_of(dtype)), std::byte{0x77});
  }});
}

TEST(AlteredCodecs, OneBitOfTheWireFlips) {
  expect_reported_everywhere(
      {.wire = [](DType, std::span<std::byte> wire) { wire[wire.size() / 2] ^= std::byte{1}; }});
}

TEST(AlteredCodecs, TheWireIsBigEndian) {
  expect_reported_everywhere({.wire = [](DType, std::span<std::byte> wire) {
    for (std::size_t i = 0; i + 1 < wire.size(); i += 2) std::swap(wire[i], wire[i + 1]);
  }});
}

TEST(AlteredCodecs, OneRareNumberComesOutWrong) {
  // One of the 65,536 patterns: its lowest bit, after decoding, where it appears at all.
  for (const std::string name : {"fp16", "bf16"}) {
    const CodecPtr codec = find_codec(name);
    const MistakenCodec mutant =
        altered(codec, {.decoded = each_element([](DType, std::uint32_t bits) {
                          return bits == 0xC123 ? bits ^ 1 : bits;
                        })});
    EXPECT_NE(nonconforming(mutant, *codec, parse_dtype(name)), std::nullopt);
  }
}

}  // namespace
}  // namespace arlab::testing
