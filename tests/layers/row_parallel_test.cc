// Products whose epilogue hands them to the encoder of a collective.

#include "reference/layers/row_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/error.h"
#include "reference/tensors/synthetic.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

using Bytes = std::vector<std::byte>;

Int8Matrix normals(std::size_t rows, std::size_t columns, unsigned seed, std::string_view format) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.3F, 1);
  std::vector<float> values(rows * columns);
  for (float& value : values) value = normal(engine);
  return quantize_int8({values.data(), rows, columns, columns},
                       parse_operand(Operand::activations, format), std::nullopt, 1);
}

std::vector<RowParallelPart> layer(std::size_t ranks, std::size_t tokens, std::size_t outputs,
                                   std::size_t inputs) {
  std::vector<RowParallelPart> parts;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    parts.push_back({normals(tokens, inputs, 2 * rank + 1, rank % 2 == 0 ? "int8" : "int8-asym"),
                     normals(outputs, inputs, 2 * rank + 2, "int8-asym")});
  }
  return parts;
}

/// One after the other: products, rounding, the collective.
Bytes in_turn(const Schedule& schedule, const Codecs& codecs, DType dtype,
              const std::vector<RowParallelPart>& parts) {
  const std::size_t bytes = schedule.elements * size_of(dtype);
  Bytes inputs(parts.size() * bytes);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<float> y = linear_int8_scalar(parts[rank].x, parts[rank].w);
    const auto to = std::span(inputs).subspan(rank * bytes, bytes);
    for (std::size_t i = 0; i < y.size(); ++i) store_value(dtype, y[i], to, i);
  }
  Bytes outputs(inputs.size());
  execute(schedule, codecs, dtype, inputs, outputs, {.scalar = true});
  return outputs;
}

TEST(RowParallel, SameBitsAsOneAfterTheOther) {
  for (const auto& [algorithm, ranks, tokens, outputs] :
       {std::tuple("reduce_scatter", 4, 32, 96), std::tuple("two_shot", 3, 37, 131),
        std::tuple("one_shot", 2, 9, 2049), std::tuple("ring", 4, 50, 64),
        std::tuple("hierarchical", 8, 33, 40), std::tuple("all_to_all", 4, 16, 128)}) {
    const auto parts = layer(static_cast<std::size_t>(ranks), static_cast<std::size_t>(tokens),
                             static_cast<std::size_t>(outputs), 45);
    for (const char* name : {"fp16", "qr-q4", "int4-g32", "int2-g32-sr", "int8-gtensor", "nvfp4"}) {
      const CodecPtr codec = find_codec(name);
      const Codecs codecs(*codec, *codec);
      const Schedule schedule = make_schedule(
          algorithm,
          {.world_size = static_cast<Rank>(ranks),
           .elements = static_cast<std::uint64_t>(tokens) * static_cast<std::uint64_t>(outputs),
           .alignment = codecs.alignment()});
      for (const DType dtype : {DType::fp16, DType::bf16}) {
        if (!codec->takes(dtype)) continue;
        const Bytes expected = in_turn(schedule, codecs, dtype, parts);
        // Tiles of a few tokens, of a part of one, and threads that share them.
        for (const std::size_t tile : {std::size_t{64}, std::size_t{4096}}) {
          Bytes got(expected.size());
          execute_row_parallel(schedule, codecs, dtype, parts, got,
                               {.threads = 2, .tile_elements = tile});
          ASSERT_EQ(got, expected) << algorithm << " " << name << " " << tile;
        }
      }
    }
  }
}

/// Whatever makes the inputs: each element of a rank is asked for once where all of it is sent once.
TEST(RowParallel, NothingIsMadeTwice) {
  const CodecPtr codec = find_codec("int4-g32");
  const Codecs codecs(*codec, *codec);
  const Schedule schedule =
      make_schedule("two_shot", {.world_size = 4, .elements = 40000, .alignment = 32});
  const Tensor inputs = make_synthetic("gaussian:seed=1", DType::fp16, 4, 40000);
  std::atomic<std::uint64_t> elements = 0;
  std::atomic<std::uint64_t> most = 0;
  const ProduceInput produce = [&](Rank rank, std::uint64_t begin, std::span<std::byte> to) {
    const auto from = inputs.rank_bytes(rank).subspan(begin * 2, to.size());
    std::copy(from.begin(), from.end(), to.begin());
    elements += to.size() / 2;
    most = std::max<std::uint64_t>(most, to.size() / 2);
  };
  Bytes expected(inputs.bytes().size());
  Bytes got(expected.size());
  const auto counts =
      execute(schedule, codecs, DType::fp16, inputs.bytes(), expected, {.count = true});
  const auto produced = execute(schedule, codecs, DType::fp16, produce, got,
                                {.threads = 1, .count = true, .tile_elements = 1024});
  EXPECT_EQ(got, expected);
  EXPECT_EQ(elements, 4U * 40000U);
  EXPECT_LE(most, 1024U);
  EXPECT_EQ(produced.encoded, counts.encoded);
  EXPECT_EQ(produced.clamped, counts.clamped);
  EXPECT_EQ(produced.flushed, counts.flushed);
}

TEST(RowParallel, WhatDoesNotFitIsSaid) {
  const CodecPtr codec = find_codec("fp16");
  const Codecs codecs(*codec, *codec);
  const Schedule schedule = make_schedule("two_shot", {.world_size = 2, .elements = 60});
  const auto refusal = [&](const std::vector<RowParallelPart>& parts, std::size_t bytes) {
    Bytes outputs(bytes);
    return refusal_of([&] { execute_row_parallel(schedule, codecs, DType::fp16, parts, outputs); });
  };
  EXPECT_EQ(refusal(layer(2, 6, 10, 5), 240), "accepted");
  EXPECT_EQ(refusal(layer(3, 6, 10, 5), 360), "3 parts of a layer: the schedule is for 2 ranks");
  EXPECT_EQ(refusal(layer(2, 7, 10, 5), 280),
            "a layer of 7 tokens and 10 outputs: the schedule is for 60 elements");
  auto parts = layer(2, 6, 10, 5);
  parts[1].x = normals(6, 4, 1, "int8");
  EXPECT_EQ(refusal(parts, 240), "a layer with 5 inputs cannot take 4 of them");
  EXPECT_NE(refusal(layer(2, 6, 10, 5), 239).find("are 240 bytes"), std::string::npos);
}

}  // namespace
}  // namespace arlab
