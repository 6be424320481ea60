// The record of how a sum is made: its text, what it asks of codecs, and that no thread count shows in its bits. Results of
// each record are compared with NumPy in tests/python/test_sums.py.
#include <gtest/gtest.h>

#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/collectives/accumulate.h"
#include "reference/collectives/check.h"
#include "reference/collectives/named.h"
#include "reference/device_facts/gpu_reciprocal.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/run.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

TEST(Sum, ATextIsReadAsItIsWritten) {
  for (const char* text : {"native", "fp32", "decode=fp32", "add=fma,order=own,round=none",
                           "add=exact", "decode=fp32,add=fp32,own=exact,result=sum,cast=fp16"}) {
    EXPECT_EQ(name_of(parse_sum(text)), text);
  }
  EXPECT_EQ(name_of(parse_sum("order=rank,add=fp32")), "fp32");
  EXPECT_EQ(parse_sum("cast=none,result=encoded"), Sum{});
}

TEST(Sum, AFieldThatIsNamedIsTheFieldThatChanges) {
  std::vector<Sum> sums = {Sum{}};
  for (const char* text :
       {"add=fp32", "add=fma", "add=exact", "decode=fp32", "order=own", "result=sum", "cast=fp16",
        "own=exact", "own=encoded", "add=fp32,round=none"}) {
    sums.push_back(parse_sum(text));
    for (std::size_t i = 0; i + 1 < sums.size(); ++i) EXPECT_NE(sums[i], sums.back()) << text;
  }
}

/// One all-reduce of a column of values, a rank each.
float exact_sum(const std::vector<float>& values, DType dtype = DType::fp32,
                const char* algorithm = "one_shot", const char* sum = "add=exact") {
  const auto ranks = static_cast<Rank>(values.size());
  Tensor inputs = make_tensor(dtype, {values.size(), 1});
  round_sum(dtype, false, values, inputs.bytes());
  const Schedule schedule = find_algorithm(algorithm).write({.world_size = ranks, .elements = 1});
  const Tensor outputs =
      run(schedule, *find_codec(name_of(dtype)), inputs, {.sum = parse_sum(sum)});
  return load_value(dtype, outputs.bytes(), 0);
}

TEST(Sum, AnExactSumIsRoundedOnceInAnyOrder) {
  std::vector<float> values = {-1e8F, 1, 1, 1e8F};
  do {
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      ASSERT_EQ(exact_sum(values, DType::fp32, algorithm), 2.0F);
    }
  } while (std::ranges::next_permutation(values).found);
  for (const char* rounded : {"native", "fp32"}) {  // each addition is rounded
    EXPECT_EQ(exact_sum({1e8F, 1, -1e8F, 1}, DType::fp32, "one_shot", rounded), 1.0F);
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(exact_sum({most, most, -most, -least}), most);
  EXPECT_EQ(exact_sum({most, most, 1}), inf);
  EXPECT_EQ(exact_sum({-most, -0x1p103F}), -inf);          // a tie, to even
  EXPECT_EQ(exact_sum({-most, -0x1p103F, least}), -most);  // less than the tie
  EXPECT_EQ(exact_sum({1, 0x1p-24F}), 1);                  // likewise
  EXPECT_EQ(exact_sum({1, 0x1p-24F, least}), 1 + 0x1p-23F);
  EXPECT_EQ(exact_sum({1 + 0x1p-7F, 0x1p-8F}, DType::bf16), 1 + 0x1p-6F);
  EXPECT_EQ(exact_sum({1, 0x1p-8F, 0x1p-40F}, DType::bf16), 1 + 0x1p-7F);  // fp32 would lose it
  EXPECT_EQ(exact_sum({1, 0x1p-11F, 0x1p-24F}, DType::fp16), 1 + 0x1p-10F);
  EXPECT_EQ(exact_sum({least, least, -3 * least}), -least);
  EXPECT_EQ(exact_sum({inf, most, 1}), inf);
  EXPECT_TRUE(std::isnan(exact_sum({inf, 1, -inf})));
  EXPECT_FALSE(std::signbit(exact_sum({1, -1})));
  EXPECT_TRUE(std::signbit(exact_sum({-0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(exact_sum({-0.0F, 0.0F})));
}

/// Bits of the values as fp32, element by element.
std::vector<float> widened(const Tensor& tensor) {
  std::vector<float> values;
  for (const double value : to_double(tensor.dtype, tensor.bytes())) {
    values.push_back(static_cast<float>(value));
  }
  return values;
}

/// Codecs beside those that are listed, one of every kind.
std::vector<std::string> codecs_of_every_kind() {
  std::vector<std::string> names = listed_codecs();
  for (const char* name : {"fp8-e4m3-g256-flashinfer",
                           "fp8-e4m3-g64-torchft",
                           "int8-g256-vllm",
                           "int6-g128-sym",
                           "int4-g32-sym-sr",
                           "int5-g64-stoch",
                           "int4-g32-sr-stoch",
                           "had-int4-g32-sym",
                           "int8-gtensor-static0.05:-3",
                           "int8-gtensor-sym-static0.05",
                           "fp8-e4m3-g64-torch-stoch",
                           "nvfp4-vllm",
                           "nvfp4-te",
                           "nvfp4-te-4over6",
                           "nvfp4-ts448",
                           "nf4-g64",
                           "e4m3b15-g32",
                           "shared-int8-g32",
                           "lossless-e3-g32",
                           "rans-logfmt4-g32",
                           "rans-int4-g32-sr",
                           "rans-qr-q4",
                           "rans-nvfp4",
                           "ef-nvfp4-te",
                           "ef-int2-g32-sr-is",
                           "ef-rans-nf4-g64",
                           "fp8-e4m3-g128-ue8m0"}) {
    names.emplace_back(name);
  }
  return names;
}

bool has_powers_of_two(std::string_view name) {
  return name.find("mx") != name.npos || name.ends_with("-ue8m0");
}

/// Returns whether decoded values were never anything but numbers of the dtype: SPEC.md, "Accumulation". By their names, since
/// what a codec says of itself is under test.
bool is_of_dtype(std::string_view name) {
  for (const std::string_view prefix : {"rans-", "ef-"}) {
    if (name.starts_with(prefix)) return is_of_dtype(name.substr(prefix.size()));
  }
  return name == "fp32" || name == "fp16" || name == "bf16" || name.starts_with("qr-") ||
         name.starts_with("lossless-") || has_powers_of_two(name);
}
bool has_spikes(std::string_view name) { return name.find("-sr") != std::string_view::npos; }

/// A zero and a few codes times a scale of bf16 have hardly more bits than fp16.
bool has_few_bits(std::string_view name) {
  const std::size_t at = name.find("int");
  return at != std::string_view::npos && name.find("had-") == std::string_view::npos &&
         name[at + 3] <= '4';
}

/// Decoded to fp32, a wire says what is then rounded to the dtype, and nothing that was rounded before.
TEST(Sum, EveryCodecDecodesToNumbersThatWereNotRounded) {
  constexpr std::size_t kElements = 4096 + 96;
  for (const std::string& name : codecs_of_every_kind()) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      if (!codec->takes(dtype)) continue;
      std::size_t others = 0;
      for (const char* input : {"gaussian:seed=7", "gaussian:seed=8,sigma=3", "gaussian:seed=9"}) {
        const Tensor tensor = make_synthetic(input, dtype, 1, kElements);
        std::vector<std::byte> wire(codec->wire_bytes(dtype, kElements));
        codec->encode(dtype, tensor.bytes(), wire);
        for (const CodecPtr& each : {codec, accelerated(codec)}) {
          std::vector<float> decoded(kElements);
          each->decode_fp32(dtype, wire, decoded);
          Tensor payload = make_tensor(dtype, {1, kElements});
          each->decode(dtype, wire, payload.bytes());
          Tensor rounded = make_tensor(dtype, {1, kElements});
          for (std::size_t i = 0; i < kElements; ++i) {
            store_value(dtype, decoded[i], rounded.bytes(), i);
            others += decoded[i] != load_value(dtype, payload.bytes(), i) ? 1 : 0;
          }
          EXPECT_EQ(rounded.data, payload.data) << name;
        }
      }
      if (is_of_dtype(name)) {
        EXPECT_EQ(others, 0U) << name;
      } else if (dtype == DType::bf16 || !has_few_bits(name)) {
        EXPECT_GT(others, kElements / 50) << name << " in " << name_of(dtype);
      }
    }
  }
}

TEST(Sum, AWireWithoutNumbersOfTheDtypeIsMadeOfFp32Numbers) {
  for (const std::string& name : codecs_of_every_kind()) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      if (!codec->takes(dtype)) continue;
      const Tensor tensor = make_synthetic("gaussian:seed=7", dtype, 1, 4096 + 96);
      const std::vector<float> values = widened(tensor);
      std::vector<std::byte> wire(codec->wire_bytes(dtype, values.size()));
      std::vector<std::byte> of_fp32(wire.size());
      codec->encode(dtype, tensor.bytes(), wire);
      if (has_spikes(name) || (is_of_dtype(name) && !has_powers_of_two(name))) {
        expect_contains(message_of([&] { codec->encode_fp32(dtype, values, of_fp32); }),
                        "so round=none is not possible; allowed is round=native");
        continue;
      }
      codec->encode_fp32(dtype, values, of_fp32);
      EXPECT_EQ(wire, of_fp32) << name;
    }
  }
}

/// A product and its sum are rounded once: in fp64, the product of an element and a scale is exact.
TEST(Sum, ProductsAreAddedToSumsWithOneRounding) {
  constexpr std::size_t kElements = 4096 + 96;
  std::size_t tried = 0;
  for (const std::string& name : codecs_of_every_kind()) {
    const CodecPtr codec = find_codec(name);
    const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    const bool has_products = is("mx") || is("fp8-e4m3") || is("-vllm") || is("nvfp4") ||
                              is("nf4") || is("e4m3b15") ||
                              (is("-sym") && !is("had-") && !is("-sr"));
    if (!codec->takes(DType::bf16)) continue;
    std::size_t others = 0;
    for (const char* input : {"gaussian:seed=8", "gaussian:seed=9", "gaussian:seed=10"}) {
      const Tensor tensor = make_synthetic(input, DType::bf16, 1, kElements);
      std::vector<std::byte> wire(codec->wire_bytes(DType::bf16, kElements));
      codec->encode(DType::bf16, tensor.bytes(), wire);
      std::vector<float> sum(kElements, 0.1F);
      const auto add = [&] { codec->decode_fma(DType::bf16, wire, sum); };
      if (!has_products) {
        expect_contains(message_of(add),
                        ": add=fma needs values that are a code times a scale; "
                        "allowed are add=exact, add=fp32, add=native");
        continue;
      }
      add();
      std::vector<float> decoded(kElements);
      codec->decode_fp32(DType::bf16, wire, decoded);
      for (std::size_t i = 0; i < kElements; ++i) {
        // A product that was rounded is off by half a unit of its own; so the sum, of that and a unit of itself.
        const float rounded_twice = decoded[i] + 0.1F;
        EXPECT_NEAR(sum[i], rounded_twice,
                    std::abs(decoded[i]) * 0x1p-21F + std::abs(rounded_twice) * 0x1p-23F)
            << name;
        others += sum[i] != rounded_twice ? 1 : 0;
      }
    }
    if (!has_products) continue;
    ++tried;
    // Products of few bits are exact in fp32, and one rounding is the other.
    const bool is_exact = has_powers_of_two(name) || (is("-sym") && !is("static"));
    EXPECT_EQ(others == 0, is_exact) << name;
  }
  EXPECT_GT(tried, 15U);
}

TEST(Sum, BitsDoNotDependOnThreadsOrTiles) {
  std::size_t tried = 0;
  const Tensor inputs = make_synthetic("gaussian:seed=3", DType::bf16, 4, 9999);
  for (const char* text : {"decode=fp32,add=fp32,round=none", "add=exact,round=none",
                           "add=fma,order=own,result=sum", "decode=fp32"}) {
    for (const Variant& variant : all_variants(4)) {
      const CodecPtr codec = find_codec("fp8-e4m3-g64");
      ExecuteOptions options{.sum = parse_sum(text), .threads = 1};
      Tensor expected;
      const std::string refusal =
          refusal_of([&] { expected = run(variant, *codec, inputs, options); });
      if (refusal != "accepted") {
        expect_contains(refusal, "changes nothing: leave it out");
        continue;
      }
      ++tried;
      options.threads = 3;
      options.tile_elements = 512;
      EXPECT_EQ(run(variant, *codec, inputs, options).data, expected.data) << text;
    }
  }
  EXPECT_GT(tried, 2 * all_variants(4).size());
}

TEST(Sum, WhatACodecCannotDoIsRefused) {
  const Tensor inputs = make_synthetic("gaussian:seed=1", DType::fp16, 2, 4096);
  const Schedule schedule = find_algorithm("two_shot").write({.world_size = 2, .elements = 4096});
  const auto tried = [&](const char* codec, const char* sum) {
    return message_of([&] { run(schedule, *find_codec(codec), inputs, {.sum = parse_sum(sum)}); });
  };
  EXPECT_EQ(tried("int4-g32", "add=fma"),
            "codec int4-g32: add=fma needs values that are a code times a scale; allowed are "
            "add=exact, add=fp32, add=native");
  EXPECT_EQ(tried("qr-q4", "add=fp32,round=none"),
            "codec qr-q4: it calculates in fp16, so round=none is not possible; allowed is "
            "round=native");
  EXPECT_EQ(tried("int4-g32-sr", "add=fp32,round=none"),
            "codec int4-g32-sr: its wire holds numbers of fp16, so round=none is not possible; "
            "allowed is round=native");
  EXPECT_EQ(tried("qr-q4", "cast=fp16"), "sum cast=fp16: it is of bf16 payloads, not of fp16");
}

TEST(Sum, WhatChangesNothingIsRefused) {
  const Tensor inputs = make_synthetic("gaussian:seed=1", DType::bf16, 3, 3 * 4096);
  const auto tried = [&](const char* algorithm, const char* codec, const char* sum) {
    const Schedule schedule = find_algorithm(algorithm).write(
        {.world_size = 3, .elements = 3 * 4096, .alignment = find_codec(codec)->info().alignment});
    return refusal_of([&] { run(schedule, *find_codec(codec), inputs, {.sum = parse_sum(sum)}); });
  };
  EXPECT_EQ(
      tried("one_shot", "int4-g32", "add=fp32,round=none"),
      "sum add=fp32,round=none: one_shot encodes no sum, so round=none changes nothing: leave "
      "it out");
  EXPECT_EQ(tried("one_shot", "int4-g32", "result=sum"),
            "sum result=sum: in one_shot no rank encodes a sum that it ends with, so result=sum "
            "changes nothing: leave it out");
  EXPECT_EQ(tried("ring", "int4-g32", "order=own"),
            "sum order=own: in ring a rank begins with its own contribution in any case, so "
            "order=own changes nothing: leave it out");
  EXPECT_EQ(
      tried("two_shot", "bf16", "result=sum"),
      "sum result=sum: codec bf16 decodes to what was encoded, so result=sum changes nothing: "
      "leave it out");
  EXPECT_EQ(tried("two_shot", "shared-int8-g32", "fp32"),
            "codec shared-int8-g32 adds codes, not numbers: allowed is the sum "
            "native, not fp32");
  for (const char* sum : {"add=fp32,round=none", "result=sum", "order=own", "fp32"}) {
    EXPECT_EQ(tried("two_shot", "int4-g32", sum), "accepted");
  }
}

/// Stripes that ranks own in turn are an all-reduce like any other, and the owner of each is as exact as it is asked to be.
TEST(Stripes, AreOwnedInTurn) {
  const CodecPtr codec = find_codec("fp8-e4m3-g64");
  for (const std::uint64_t stripe : {1, 65, 640, 100000}) {
    for (const Rank ranks : {1U, 2U, 3U, 8U}) {
      const Schedule schedule = find_algorithm("two_shot")
                                    .write({.world_size = ranks,
                                            .elements = 1000,
                                            .alignment = 64,
                                            .options = {{"stripe", stripe}, {"own", "exact"}}});
      EXPECT_TRUE(check(schedule).correct) << check(schedule).violation;
      const std::uint64_t expected = std::min<std::uint64_t>((stripe + 63) / 64 * 64, 1000);
      for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
        EXPECT_EQ(schedule.chunks[i].begin, i * expected);
      }
      const Tensor inputs = make_synthetic("gaussian:seed=9", DType::bf16, ranks, 1000);
      const Tensor outputs = run(schedule, *codec, inputs, {.sum = parse_sum("result=sum")});
      const std::size_t bytes = 2000;
      // One rank loses nothing, since its contribution is exact and it keeps its sum.
      if (ranks == 1) {
        EXPECT_EQ(outputs.data, inputs.data);
      }
      for (std::size_t rank = 1; rank < ranks; ++rank) {
        const bool owns_first = std::equal(outputs.data.begin(), outputs.data.begin() + 128,
                                           outputs.data.begin() + rank * bytes);
        EXPECT_FALSE(owns_first) << "rank 0 keeps its sum, rank " << rank << " decodes it";
      }
    }
  }
}

TEST(GpuReciprocal, IsThatOfAnH200) {
  // A hash of the results for all mantissas in [1, 2), in units of 2^-24, made of what an H200 gave.
  std::uint64_t hash = 0;
  std::uint64_t mistaken = 0;
  for (std::uint32_t mantissa = 0; mantissa < (1U << 23); ++mantissa) {
    const float value = std::bit_cast<float>(0x3F800000U | mantissa);
    const auto result = static_cast<std::uint64_t>(gpu_reciprocal(value) * 0x1p24);
    hash = hash * 0x100000001B3 + result;
    mistaken = mistaken * 0x100000001B3 +
               static_cast<std::uint64_t>(static_cast<double>(1.0F / value) * 0x1p24);
  }
  EXPECT_EQ(hash, 0xB270A70B8FE45ABD);
  EXPECT_NE(mistaken, hash);  // IEEE division's
}

TEST(GpuReciprocal, HasNoRangeToLeave) {
  EXPECT_EQ(gpu_reciprocal(0.0F), std::numeric_limits<double>::infinity());
  EXPECT_EQ(gpu_reciprocal(-0.0F), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(gpu_reciprocal(std::numeric_limits<float>::infinity()), 0);
  EXPECT_TRUE(std::isnan(gpu_reciprocal(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(gpu_reciprocal(-0x1p-149F), -0x1p149);
  EXPECT_EQ(gpu_reciprocal(0x1p127F), 0x1p-127);
  EXPECT_EQ(gpu_divide(0x1p127F, 0x1p127F), 1);
}

TEST(Named, KernelsThatRefuseAreRefused) {
  const auto tried = [](const char* name, NamedRequest request) {
    return message_of([&] { find_named_all_reduce(name).parts_of(request); });
  };
  EXPECT_EQ(tried("flashinfer-fp8", {.ranks = 3, .elements = 8192}),
            "FlashInfer's kernel works in blocks of 4096 elements, which neither groups of 256 nor "
            "3 ranks may leave a rest of");
  EXPECT_EQ(tried("flashinfer-fp8", {.ranks = 2, .elements = 8192, .stripe = 1}),
            "stripe 1: FlashInfer's kernel works in whole groups: allowed is 256 and more");
  EXPECT_EQ(tried("flashinfer-fp8", {.ranks = 2, .elements = 8196}),
            "FlashInfer's kernel takes multiples of 8 elements, not 8196");
  EXPECT_EQ(tried("flashinfer-fp8", {.ranks = 2, .elements = 8192, .dtype = DType::fp16}),
            "FlashInfer's kernel takes bf16 tensors, not fp16");
  EXPECT_EQ(tried("flashinfer-fp4", {.ranks = 3, .elements = 6144, .row = 6144}),
            "FlashInfer's fp4 kernels take bf16 tensors of 2 or 4 ranks, not bf16 of 3");
  EXPECT_EQ(tried("flashinfer-fp4", {.ranks = 4, .elements = 6144, .block = 24}),
            "FlashInfer's fp4 kernels take rows of a multiple of 16 elements: 6144 are no rows of "
            "24");
  EXPECT_EQ(tried("torchft-fp8", {.ranks = 2, .elements = 100, .block = 64}),
            "torchft's kernels take whole rows: 100 elements are no multiple of 64");
  // Above 64 MiB its blocks are larger.
  const auto stripe = [](std::uint64_t elements) {
    const NamedRequest request{.ranks = 2, .elements = elements};
    return words_of(
        find_named_all_reduce("flashinfer-fp8").parts_of(request).options.get("stripe"));
  };
  EXPECT_EQ(stripe(33554432), "4096");
  EXPECT_EQ(stripe(33554440), "16384");
  EXPECT_EQ(stripe(1024), "1024");
}

}  // namespace
}  // namespace arlab::testing
