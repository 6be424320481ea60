// The conformance check must pass what is right and see what is wrong: each mistake below is one
// that an implementation of the codecs could make, and the check has to report it.
#include "tests/codecs/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "tests/codecs/altered_codec.h"
#include "tests/codecs/textbook_quickreduce.h"

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

TEST(Conformance, TheTextbookConforms) {
  for (const std::string name : kQuickReduce) {
    const CodecPtr codec = find_codec(name);
    const TextbookQuickReduce textbook(name);
    for (const DType dtype : kSixteenBits) {
      for (int call = 0; call < 3; ++call) {
        EXPECT_EQ(nonconforming(*codec, textbook, dtype), std::nullopt) << name;
      }
    }
  }
}

// Mistakes made inside of the codec.

struct Case {
  Mistake mistake;
  const char* text;
  bool (*matters)(std::string_view codec, DType dtype);  // elsewhere it changes no bit
};

bool always(std::string_view, DType) { return true; }
bool in_integers(std::string_view codec, DType) { return codec.starts_with("qr-q"); }
bool in_fp16(std::string_view, DType dtype) { return dtype == DType::fp16; }
bool in_integers_of_bf16(std::string_view codec, DType dtype) {
  return in_integers(codec, dtype) && dtype == DType::bf16;
}
bool with_signed_scale(std::string_view codec, DType) { return codec != "qr-fp8"; }
bool with_signed_scale_in_bf16(std::string_view codec, DType dtype) {
  return with_signed_scale(codec, dtype) && dtype == DType::bf16;
}
/// fp4 only where eps nearly cancels d and the reciprocal is not clamped.
bool where_codes_are_clamped(std::string_view codec, DType dtype) {
  return in_integers(codec, dtype) || with_signed_scale_in_bf16(codec, dtype);
}
bool in_fp8_of_bf16(std::string_view codec, DType dtype) {
  return codec == "qr-fp8" && dtype == DType::bf16;
}
bool in_q8(std::string_view codec, DType) { return codec == "qr-q8"; }
/// bf16 has no number between the largest integer of 8 bits and the tie above it.
bool unless_q8_of_bf16(std::string_view codec, DType dtype) {
  return dtype == DType::fp16 || !in_q8(codec, dtype);
}

constexpr Case kCases[] = {
    {Mistake::consecutive_blocks, "blocks are consecutive, not interleaved", always},
    {Mistake::one_block_per_group, "one scale for both blocks of a group", always},
    {Mistake::tie_takes_max, "a tie of |max| and |min| takes max", with_signed_scale},
    {Mistake::plus_zero_is_smallest, "+0 is the minimum of +0 and -0", with_signed_scale},
    {Mistake::unsigned_scale, "the scale has no sign", with_signed_scale},
    {Mistake::constant_rounded_once, "k is not one of fp16 first", in_fp8_of_bf16},
    {Mistake::scale_truncated, "d is rounded towards zero", always},
    {Mistake::no_epsilon, "no eps", always},
    {Mistake::epsilon_away_from_zero, "eps has the sign of d", with_signed_scale},
    {Mistake::reciprocal_truncated, "the reciprocal is rounded towards zero", always},
    {Mistake::reciprocal_not_rounded, "the reciprocal stays in fp32", always},
    {Mistake::reciprocal_overflows_to_infinity, "the reciprocal overflows to infinity", in_fp16},
    {Mistake::division_instead_of_reciprocal, "x / (d + eps) in one step", always},
    {Mistake::product_not_rounded, "x * e stays in fp32", always},
    {Mistake::subnormals_flushed, "subnormal elements are zeros", always},
    {Mistake::codes_truncated, "codes are rounded towards zero", always},
    {Mistake::ties_away_from_zero, "ties go away from zero", always},
    {Mistake::halves_rounded_up, "ties go up", always},
    {Mistake::codes_wrap, "codes out of range wrap", in_integers},
    {Mistake::symmetric_code_range, "codes are clamped to -(L - 1)", in_integers},
    {Mistake::nan_clamps_to_upper_bound, "0 / 0 becomes the highest code", in_integers_of_bf16},
    {Mistake::bias_too_large, "the bias is L + 1", in_integers},
    {Mistake::scales_swapped, "the scales of even and odd blocks are swapped", always},
    {Mistake::reciprocal_on_the_wire, "the wire has e, not d", always},
    {Mistake::bytes_in_element_order, "bytes lie in element order", in_q8},
    {Mistake::threads_reversed, "a thread's elements lie in reverse", always},
    {Mistake::stale_padding, "the padding is not zero", always},
    {Mistake::nan_is_zero, "NaN is taken as 0", always},
    {Mistake::infinity_is_largest, "infinity is taken as the largest number", always},
    {Mistake::codes_beside_nan_kept, "the codes beside a NaN are not zero bits", always},
    {Mistake::nan_spoils_group, "a NaN spoils the interleaved block, too", always},
    {Mistake::decoded_values_truncated, "decoding rounds towards zero", always},
    {Mistake::decoded_zeros_unsigned, "decoded zeros have no sign", always},
    {Mistake::decoded_values_overflow, "decoding overflows to infinity", in_fp16},
    {Mistake::clamped_not_counted, "clamped elements are not counted", where_codes_are_clamped},
    {Mistake::clamped_before_rounding, "clamped elements are counted before rounding",
     unless_q8_of_bf16},
    {Mistake::padding_counted, "clamped padding is counted", with_signed_scale_in_bf16},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.text; }

class QuickReduceMistakes : public ::testing::TestWithParam<Case> {};

TEST_P(QuickReduceMistakes, AreReported) {
  const Case& c = GetParam();
  for (const std::string name : kQuickReduce) {
    for (const DType dtype : kSixteenBits) {
      const TextbookQuickReduce mutant(name, c.mistake);
      const auto found = nonconforming(mutant, *find_codec(name), dtype);
      EXPECT_EQ(found.has_value(), c.matters(name, dtype))
          << c.text << ": " << name << " " << name_of(dtype) << ": " << found.value_or("conforms");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuickReduceMistakes, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           std::string name = info.param.text;
                           std::erase_if(name,
                                         [](unsigned char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// Mistakes made around a codec, of any family.

void expect_reported_everywhere(const AlteredCodec::Changes& changes) {
  for (const std::string& name : listed_codecs()) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : codec->info().dtypes) {
      const AlteredCodec mutant(codec, changes);
      EXPECT_NE(nonconforming(mutant, *codec, dtype), std::nullopt)
          << name << " " << name_of(dtype);
    }
  }
}

/// A change of every element, as its bit pattern.
AlteredCodec::Change each_element(std::uint32_t (*change)(DType, std::uint32_t)) {
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
  EXPECT_EQ(nonconforming(AlteredCodec(codec, {}), *codec, DType::bf16), std::nullopt);
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
    const AlteredCodec mutant(codec, {.decoded = each_element([](DType, std::uint32_t bits) {
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
    const AlteredCodec mutant(codec, {.decoded = each_element([](DType, std::uint32_t bits) {
                                        return bits == 0xC123 ? bits ^ 1 : bits;
                                      })});
    EXPECT_NE(nonconforming(mutant, *codec, parse_dtype(name)), std::nullopt);
  }
}

}  // namespace
}  // namespace arlab::testing
