// Bits that must never change (by threads, tiles, micro-chunks, world size), those that may, and the refusals of execute().
#include "reference/collectives/executor.h"

#include <gtest/gtest.h>

#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/run.h"
#include "tests/collectives/toy_codecs.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

// ---------------------------------------------------------------- determinism

TEST(Determinism, ThreadsAndTilesChangeNoBitAndNoCount) {
  struct Setting {
    const char* codec;
    std::size_t elements;
    std::vector<std::size_t> tiles;
  };
  const std::vector<Setting> settings = {
      {"bf16", 1000, {0, 1, 7, 100, 999, 1000, 1u << 20}},
      {"qr-q4", 2048 * 9 + 76, {0, 1, 2048, 5000, 3 * 2048, 2048 * 9 + 76, 1u << 20}}};
  for (const auto& [name, elements, tiles] : settings) {
    const CodecPtr codec = find_codec(name);
    const Rank n = 4;
    const Tensor inputs = make_synthetic("adversarial:seed=11", DType::bf16, n, elements);
    std::vector<Variant> variants = all_variants(n, {2});
    std::ranges::copy(moving_variants(n), std::back_inserter(variants));
    for (const Variant& variant : variants) {
      const Schedule schedule = schedule_of(variant, n, elements, codec->info().alignment);
      const auto bits_and_counts = [&](unsigned threads, std::size_t tile) {
        Tensor outputs = make_tensor(DType::bf16, inputs.shape);
        const ExecuteCounts counts =
            execute(schedule, *codec, DType::bf16, inputs.bytes(), outputs.bytes(),
                    {.threads = threads, .count = true, .tile_elements = tile});
        return std::tuple(outputs.data, counts.encoded, counts.clamped, counts.flushed);
      };
      const auto expected = bits_and_counts(1, elements);
      for (const unsigned threads : {1u, 2u, 3u, 8u}) {
        for (const std::size_t tile : tiles) {
          if (threads != 3 && tile != 1 && ARLAB_SHORT_TESTS) continue;
          ASSERT_EQ(bits_and_counts(threads, tile), expected)
              << label(variant) << ", " << name << ", " << threads << " threads, tiles of " << tile;
        }
      }
    }
  }
}

// "No tiling" is most easily said with the largest number there is.
TEST(Determinism, TheLargestTileIsTheWholeChunk) {
  const CodecPtr codec = find_codec("fp32");
  const Tensor inputs = make_synthetic("gaussian", DType::fp32, 4, 100);
  EXPECT_EQ(run({"two_shot", {}}, *codec, inputs, {.tile_elements = SIZE_MAX}).data,
            run({"two_shot", {}}, *codec, inputs).data);
}

TEST(Determinism, MoreThreadsThanTiles) {
  const CodecPtr codec = find_codec("fp16");
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, 2, 3);
  EXPECT_EQ(run({"ring", {}}, *codec, inputs, {.threads = 200}).data,
            run({"ring", {}}, *codec, inputs, {.threads = 1}).data);
}

// ---------------------------------------------------------------- the same bits by different ways

/// Algorithms whose sums do not depend on who owns an element: the own contribution is encoded like
/// all others, and the order is by rank.
std::vector<Variant> owner_blind_variants(Rank n) {
  std::vector<Variant> variants = all_variants(n);
  std::erase_if(variants, [](const Variant& variant) {
    return variant.options.is("own", "exact") || variant.algorithm == "ring" ||
           variant.algorithm == "halving_doubling" || variant.algorithm == "tree";
  });
  return variants;
}

// A coarser alignment moves the chunks to other owners, and no element to another block.
TEST(SameBits, TheAlignmentOfTheScheduleDoesNotMatter) {
  const CodecPtr codec = find_codec("qr-q8");
  const Tensor inputs = make_synthetic("adversarial:seed=15", DType::fp16, 4, 13 * 2048 + 1);
  for (const Variant& variant : owner_blind_variants(4)) {
    const Tensor expected = run(variant, *codec, inputs);
    for (const std::uint64_t alignment : {2u * 2048, 5u * 2048, 64u * 2048}) {
      ASSERT_EQ(run(schedule_of(variant, 4, 13 * 2048 + 1, alignment), *codec, inputs).data,
                expected.data)
          << label(variant) << ", alignment " << alignment;
    }
  }
}

// Elements share a scale whatever the world size: ranks of zeros change nothing but the number of ranks. (QuickReduce decodes a
// block of zeros to -0, which a sum from +0 absorbs.)
TEST(SameBits, RanksOfZerosChangeNothing) {
  for (const char* name : {"fp16", "qr-q3", "qr-q4", "qr-q6", "qr-q8", "qr-fp8", "qr-fp4"}) {
    const CodecPtr codec = find_codec(name);
    const std::size_t elements = 5 * 2048 + 77;
    const Tensor few = make_synthetic("adversarial:seed=16", DType::fp16, 3, elements);
    Tensor many = make_tensor(DType::fp16, {8, elements});
    std::ranges::copy(few.bytes(), many.bytes().begin());
    const Tensor of_few = run({"two_shot", {}}, *codec, few);
    const Tensor of_many = run({"two_shot", {}}, *codec, many);
    for (std::size_t rank = 0; rank < 8; ++rank) {
      EXPECT_TRUE(std::ranges::equal(of_many.rank_bytes(rank), of_few.rank_bytes(0)))
          << name << ", rank " << rank;
    }
  }
}

// ---------------------------------------------------------------- codecs that may not be cut

TEST(WholeMessages, ACodecOfTheWholeTensorIsNeverCut) {
  const MessageScaleCodec codec(kWholeTensor, false);
  const Tensor inputs = make_synthetic("gaussian", DType::fp32, 4, 1001);
  for (const Variant& variant : all_variants(4)) {
    const Tensor outputs = run(variant, codec, inputs, {.threads = 3, .tile_elements = 1});
    const std::vector<std::size_t> sizes = codec.take_message_sizes();
    EXPECT_TRUE(std::ranges::all_of(sizes, [](std::size_t size) { return size == 1001; }));
    EXPECT_EQ(outputs.data, run(variant, codec, inputs, {.threads = 1}).data) << label(variant);
    EXPECT_EQ(codec.take_message_sizes(), sizes);
  }
}

TEST(WholeMessages, ACodecWithAScalePerMessageGetsWholeChunks) {
  const MessageScaleCodec codec(32, false);
  const Tensor inputs = make_synthetic("gaussian", DType::fp32, 3, 32 * 7 + 5);
  run({"two_shot", {}}, codec, inputs, {.tile_elements = 1});
  // 8 units of 32, the last short: chunks of 96, 96 and 37 elements, each encoded by 3 ranks and
  // once more by its owner.
  EXPECT_EQ(codec.take_message_sizes(),
            (std::vector<std::size_t>{37, 37, 37, 37, 96, 96, 96, 96, 96, 96, 96, 96}));
}

TEST(WholeMessages, OtherCodecsGetTilesThatAreMultiplesOfTheAlignment) {
  const MessageScaleCodec codec(32, true);
  const Tensor inputs = make_synthetic("gaussian", DType::fp32, 1, 32 * 7 + 5);
  run({"two_shot", {}}, codec, inputs, {.tile_elements = 100});
  EXPECT_EQ(codec.take_message_sizes(), (std::vector<std::size_t>{37, 37, 96, 96, 96, 96}));
}

// The bits of a whole-tensor codec, by hand: one owner, every message scaled as a whole.
TEST(WholeMessages, BitsAreThoseOfOneMessagePerRank) {
  const MessageScaleCodec codec(kWholeTensor, false);
  const Tensor inputs = make_synthetic("gaussian:seed=2", DType::fp32, 3, 500);
  const auto through = [&](std::span<const std::byte> payload) {
    std::vector<std::byte> wire(codec.wire_bytes(DType::fp32, 500));
    std::vector<std::byte> arrived(payload.size());
    codec.encode(DType::fp32, payload, wire);
    codec.decode(DType::fp32, wire, arrived);
    return arrived;
  };
  std::vector<float> sum(500, 0);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::vector<std::byte> arrived = through(inputs.rank_bytes(rank));
    for (std::size_t i = 0; i < 500; ++i) sum[i] += as_f32(std::span(arrived))[i];
  }
  const std::vector<std::byte> result = through(std::as_bytes(std::span(sum)));
  const Tensor outputs = run({"two_shot", {}}, codec, inputs, {.tile_elements = 1});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(std::ranges::equal(outputs.rank_bytes(rank), result));
  }
}

// ---------------------------------------------------------------- counts and volume

TEST(Counts, EncodedElementsAreThoseOfEveryEncode) {
  const CodecPtr codec = find_codec("qr-q4");
  constexpr std::size_t kElements = 3 * 2048 + 5;
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, 4, kElements);
  const auto encoded = [&](const char* algorithm) {
    Tensor outputs = make_tensor(DType::fp16, inputs.shape);
    return execute(schedule_of({algorithm, {}}, 4, kElements, 2048), *codec, DType::fp16,
                   inputs.bytes(), outputs.bytes())
        .encoded;
  };
  EXPECT_EQ(encoded("one_shot"), 4 * kElements);
  EXPECT_EQ(encoded("two_shot"), 4 * kElements + kElements);
  EXPECT_EQ(encoded("ring"), 3 * kElements + kElements);
  EXPECT_EQ(encoded("halving_doubling"), 3 * kElements + kElements);
  EXPECT_EQ(encoded("hierarchical"), 4 * kElements + 2 * kElements + 2 * kElements);
}

TEST(Counts, ClampedAndFlushedAreThoseOfTheCodecElementByElement) {
  const CodecPtr codec = find_codec("qr-q4");
  const Tensor inputs = make_synthetic("adversarial:seed=17", DType::fp16, 3, 9000);
  std::uint64_t clamped = 0;
  std::uint64_t flushed = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    std::vector<std::byte> wire(codec->wire_bytes(DType::fp16, 9000));
    std::vector<std::byte> arrived(2 * 9000);
    EncodeCounts counts;
    codec->encode(DType::fp16, inputs.rank_bytes(rank), wire, &counts);
    codec->decode(DType::fp16, wire, arrived);
    clamped += counts.clamped;
    const std::vector<double> before = to_double(DType::fp16, inputs.rank_bytes(rank));
    const std::vector<double> after = to_double(DType::fp16, arrived);
    for (std::size_t i = 0; i < 9000; ++i) flushed += before[i] != 0 && after[i] == 0 ? 1 : 0;
  }
  Tensor outputs = make_tensor(DType::fp16, inputs.shape);
  const Schedule schedule = schedule_of({"one_shot", {}}, 3, 9000, 2048);
  const ExecuteCounts counts =
      execute(schedule, *codec, DType::fp16, inputs.bytes(), outputs.bytes(), {.count = true});
  EXPECT_EQ(counts.clamped, clamped);
  EXPECT_EQ(counts.flushed, flushed);
  EXPECT_GT(clamped, 0u);
  EXPECT_GT(flushed, 0u);

  const ExecuteCounts not_counted =
      execute(schedule, *codec, DType::fp16, inputs.bytes(), outputs.bytes());
  EXPECT_EQ(not_counted.clamped + not_counted.flushed, 0u);
}

TEST(Counts, PlainCodecsClampAndFlushNothing) {
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    const Tensor inputs = make_synthetic("adversarial:seed=18", dtype, 2, 1000);
    Tensor outputs = make_tensor(dtype, inputs.shape);
    const ExecuteCounts counts =
        execute(schedule_of({"one_shot", {}}, 2, 1000, 1), *find_codec(name_of(dtype)), dtype,
                inputs.bytes(), outputs.bytes(), {.count = true});
    EXPECT_EQ(counts.clamped + counts.flushed, 0u);
    EXPECT_EQ(counts.encoded, 2000u);
  }
}

TEST(WireVolume, CountsEveryChunkOfEverySendByItself) {
  const auto volume = [](const char* algorithm, const char* codec, Rank n, std::uint64_t elements) {
    return wire_volume(
        schedule_of({algorithm, {}}, n, elements, find_codec(codec)->info().alignment),
        *find_codec(codec), DType::fp16);
  };
  const WireVolume plain = volume("two_shot", "fp16", 8, 1000);
  EXPECT_EQ(plain.elements, 14u * 1000);
  EXPECT_EQ(plain.bytes, 14u * 2000);
  EXPECT_EQ(plain.bits_per_element, 16);

  const WireVolume whole_atoms = volume("two_shot", "qr-q4", 8, 16 * 2048);
  EXPECT_EQ(whole_atoms.bytes, 14u * 16 * 1152);
  EXPECT_EQ(whole_atoms.bits_per_element, 4.5);

  const WireVolume padded = volume("one_shot", "qr-q4", 3, 2049);
  EXPECT_EQ(padded.bytes, 6u * 2 * 1152);
  EXPECT_EQ(padded.elements, 6u * 2049);
  EXPECT_EQ(padded.bits_per_element, 8.0 * 2 * 1152 / 2049);

  const WireVolume nothing_sent = volume("ring", "qr-q4", 1, 2048);
  EXPECT_EQ(nothing_sent.bytes, 0u);
  EXPECT_EQ(nothing_sent.bits_per_element, 4.5);
}

// ---------------------------------------------------------------- what is refused

std::string refusal(const Schedule& schedule, const Codec& codec, DType dtype,
                    std::size_t input_bytes, std::size_t output_bytes) {
  const std::vector<std::byte> inputs(input_bytes);
  std::vector<std::byte> outputs(output_bytes);
  return refusal_of([&] { execute(schedule, codec, dtype, inputs, outputs); });
}

TEST(Refusals, SizesThatDoNotFit) {
  const Schedule schedule = schedule_of({"two_shot", {}}, 3, 10, 1);
  const CodecPtr codec = find_codec("fp16");
  const auto words = [](std::size_t in, std::size_t out) {
    return fmt::format(
        "execute: 3 ranks x 10 fp16 elements are 60 bytes, but the inputs are {} and the outputs "
        "{}",
        in, out);
  };
  EXPECT_EQ(refusal(schedule, *codec, DType::fp16, 60, 60), "accepted");
  for (const auto& [in, out] : {std::pair{58, 60}, {60, 62}, {0, 0}, {120, 120}}) {
    EXPECT_EQ(refusal(schedule, *codec, DType::fp16, static_cast<std::size_t>(in),
                      static_cast<std::size_t>(out)),
              words(static_cast<std::size_t>(in), static_cast<std::size_t>(out)));
  }
}

TEST(Refusals, ADTypeThatTheCodecDoesNotTake) {
  const Schedule schedule = schedule_of({"two_shot", {}}, 2, 2048, 2048);
  EXPECT_EQ(refusal(schedule, *find_codec("fp16"), DType::bf16, 8192, 8192),
            "codec fp16 takes fp16, not bf16");
  EXPECT_EQ(refusal(schedule, *find_codec("qr-q4"), DType::fp32, 16384, 16384),
            "codec qr-q4 takes fp16 or bf16, not fp32");
}

TEST(Refusals, ASchedulesThatCutsABlock) {
  const Schedule schedule = schedule_of({"two_shot", {}}, 2, 6144, 32);
  EXPECT_EQ(refusal(schedule, *find_codec("qr-q4"), DType::fp16, 24576, 24576),
            "schedule 'two_shot': chunk 0, elements [0, 3072), cuts a block of codec qr-q4: "
            "boundaries must be multiples of 2048");
  const MessageScaleCodec whole(kWholeTensor, false);
  EXPECT_EQ(
      refusal(schedule, whole, DType::fp32, 49152, 49152),
      "schedule 'two_shot': chunk 0, elements [0, 3072), cuts a block of codec message-scale: "
      "boundaries must be multiples of 18446744073709551615");
  // Boundaries count, not what the schedule says of itself.
  EXPECT_EQ(refusal(schedule_of({"two_shot", {}}, 2, 4096, 32), *find_codec("qr-q4"), DType::fp16,
                    16384, 16384),
            "accepted");
  EXPECT_EQ(refusal(schedule_of({"one_shot", {}}, 2, 99, 1), whole, DType::fp32, 792, 792),
            "accepted");
}

TEST(Refusals, AnExceptionOfTheCodecReachesTheCallerFromAnyThread) {
  const RefusingCodec codec;
  std::vector<float> values(4 * 1000, 1);
  values[2500] = -1;
  const Tensor inputs = tensor_from_floats(DType::fp32, {4, 1000}, values);
  for (const unsigned threads : {1u, 2u, 8u}) {
    try {
      run({"two_shot", {}}, codec, inputs, {.threads = threads, .tile_elements = 1});
      ADD_FAILURE() << "accepted with " << threads << " threads";
    } catch (const std::domain_error& error) {
      EXPECT_STREQ(error.what(), "refusing: negative element");
    }
  }
}

}  // namespace
}  // namespace arlab::testing
