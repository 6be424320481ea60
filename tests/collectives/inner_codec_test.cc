// A codec per op: what algorithms mark, what that does to the bits, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/toy_codecs.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

using Bytes = std::vector<std::byte>;

/// Algorithms with the option, and the options with which they take it.
std::vector<Variant> variants_with_inner(Rank world_size) {
  std::vector<Variant> variants = all_variants(world_size);
  const std::vector<Variant> moving = moving_variants(world_size);
  variants.insert(variants.end(), moving.begin(), moving.end());
  std::erase_if(variants, [](const Variant& variant) {
    const bool has_it = find_algorithm(variant.algorithm).option("inner_codec") != nullptr;
    return !has_it || variant.options.is("combine", "none");
  });
  return variants;
}

Schedule marked(Variant variant, Rank world_size, std::uint64_t elements, std::uint64_t alignment) {
  variant.options.set("inner_codec", "another");
  return schedule_of(variant, world_size, elements, alignment);
}

Bytes run(const Schedule& schedule, const Codecs& codecs, const Tensor& inputs,
          const ExecuteOptions& options = {}) {
  Bytes outputs(inputs.bytes().size(), std::byte{0xA5});
  execute(schedule, codecs, inputs.dtype, inputs.bytes(), outputs, options);
  return outputs;
}

// ---------------------------------------------------------------- what is marked

TEST(InnerCodec, IsMarkedOnOpsAndChangesNothingElse) {
  std::set<std::string> algorithms;
  for (Rank n = 1; n <= 8; ++n) {
    for (const Variant& variant : variants_with_inner(n)) {
      algorithms.insert(variant.algorithm);
      const Schedule plain = schedule_of(variant, n, 96 * n, 32);
      Schedule schedule = marked(variant, n, 96 * n, 32);
      const CheckReport report = check(schedule);
      EXPECT_TRUE(report.correct) << label(variant) << ": " << report.violation;
      EXPECT_EQ(report.ranks_identical, check(plain).ranks_identical) << label(variant);
      for (Op& op : schedule.ops) {
        EXPECT_FALSE(op.kind == OpKind::reduce && op.codec == CodecRole::inner);
        op.codec = CodecRole::outer;
      }
      EXPECT_EQ(schedule, plain) << label(variant);
    }
  }
  EXPECT_EQ(algorithms,
            (std::set<std::string>{"all_to_all", "hierarchical", "hierarchical_pipelined",
                                   "hierarchical_reduce_scatter"}));
}

/// Whatever crosses groups is of the outer codec; nothing else is.
TEST(InnerCodec, StaysInsideGroups) {
  for (const char* algorithm :
       {"hierarchical", "hierarchical_pipelined", "hierarchical_reduce_scatter"}) {
    for (const Rank group_size : {1U, 2U, 3U, 6U}) {
      const Schedule schedule = marked({algorithm, {{"group_size", group_size}}}, 6, 6 * 32, 1);
      for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::send) continue;
        const bool inside = op.rank / group_size == op.peer / group_size;
        EXPECT_EQ(op.codec, inside ? CodecRole::inner : CodecRole::outer);
      }
    }
  }
}

TEST(InnerCodec, IsThatOfTheCombine) {
  const Schedule schedule = marked({"all_to_all", {{"combine", "quantized"}}}, 4, 64, 1);
  for (const Op& op : schedule.ops) {
    EXPECT_EQ(op.codec, op.step == 0 ? CodecRole::outer : CodecRole::inner);
  }
}

/// The part of one rank knows what others encode for it.
TEST(InnerCodec, IsKnownInThePartOfOneRank) {
  const ScheduleRequest request{
      .world_size = 4, .elements = 64, .options = {{"group_size", 2}, {"inner_codec", "another"}}};
  const Schedule whole = make_schedule("hierarchical", request);
  ScheduleRequest of_one = request;
  of_one.only_rank = 1;
  const Schedule part = make_schedule("hierarchical", of_one);
  const auto sends_to_1 = [](const Schedule& s) {
    std::multiset<std::tuple<std::uint32_t, Rank, ChunkId, CodecRole>> sends;
    for (const Op& op : s.ops) {
      if (op.kind == OpKind::send && op.peer == 1)
        sends.emplace(op.step, op.rank, op.chunk, op.codec);
    }
    return sends;
  };
  EXPECT_EQ(sends_to_1(part), sends_to_1(whole));
}

// ---------------------------------------------------------------- bits

TEST(InnerCodec, TheSameCodecInBothRolesGivesTheSameBits) {
  const CodecPtr codec = find_codec("int4-g32");
  for (const Rank n : {1U, 2U, 4U, 6U}) {
    const Tensor inputs = make_synthetic("gaussian:sigma=1,seed=3", DType::fp16, n, 240 * n);
    for (const Variant& variant : variants_with_inner(n)) {
      const Bytes alike = run(marked(variant, n, 240 * n, 32), *codec, inputs);
      EXPECT_EQ(alike, run(schedule_of(variant, n, 240 * n, 32), *codec, inputs)) << label(variant);
    }
  }
}

struct Pair {
  const char* outer;
  const char* inner;
  DType dtype;
};

/// test_collectives_oracle.py checks the bits themselves.
TEST(InnerCodec, ThreadsTilesAndVectorsChangeNoBit) {
  for (const Pair& pair :
       {Pair{"int4-g32", "fp16", DType::fp16}, Pair{"int4-g32", "int8-g128", DType::bf16},
        Pair{"fp16", "int5-g24", DType::fp16}, Pair{"qr-q4", "fp16", DType::fp16},
        Pair{"fp16", "qr-q8", DType::fp16}, Pair{"mxfp4", "int8-gtensor", DType::fp32},
        Pair{"int6-gtensor", "bf16", DType::bf16}}) {
    const CodecPtr outer = find_codec(pair.outer);
    const CodecPtr inner = find_codec(pair.inner);
    const Codecs codecs(*outer, *inner);
    const Tensor inputs = make_synthetic("adversarial:non_finite=0,seed=4", pair.dtype, 6, 5003);
    for (const Variant& variant : variants_with_inner(6)) {
      if (variant.algorithm != "hierarchical") continue;
      const Schedule schedule = marked(variant, 6, 5003, codecs.alignment());
      const Bytes bits = run(schedule, codecs, inputs);
      const std::string what = fmt::format("{} in {}, {}", pair.inner, pair.outer, label(variant));
      ASSERT_EQ(bits, run(schedule, codecs, inputs, {.threads = 3, .tile_elements = 100})) << what;
      ASSERT_EQ(bits, run(schedule, codecs, inputs, {.scalar = true})) << what;
    }
  }
}

TEST(InnerCodec, MoreBitsInsideAServerGiveLessError) {
  const CodecPtr outer = find_codec("int4-g32");
  const CodecPtr inner = find_codec("fp16");
  const Tensor inputs = make_synthetic("gaussian:sigma=1,seed=2", DType::fp16, 8, 1 << 14);
  const ExactSum exact = exact_sum(inputs.dtype, 8, inputs.bytes());
  const auto sqnr = [&](const Codecs& codecs) {
    const Bytes outputs =
        run(marked({"hierarchical", {{"group_size", 4}}}, 8, 1 << 14, 32), codecs, inputs);
    return *compare(exact.values, inputs.dtype, std::span(outputs).first(outputs.size() / 8))
                .sqnr_db;
  };
  EXPECT_GT(sqnr({*outer, *inner}), sqnr(*outer) + 3);
  EXPECT_GT(sqnr(*inner), sqnr({*outer, *inner}) + 3);
}

/// A sum overflows as the codecs of what it decodes do, whatever encodes it.
TEST(InnerCodec, SumsAreClampedAsTheirAddendsAre) {
  const CodecPtr clamping = find_codec("qr-q8");
  const CodecPtr plain = find_codec("fp16");
  const Tensor inputs = tensor_from_floats(DType::fp16, {4, 1}, std::vector<float>(4, 60000));
  const auto result = [&](const Codecs& codecs) {
    const Bytes outputs = run(
        marked({"hierarchical", {{"group_size", 2}}}, 4, 1, codecs.alignment()), codecs, inputs);
    return as_u16(std::span<const std::byte>(outputs))[0];
  };
  EXPECT_EQ(result(*clamping), 0x7BFF);
  EXPECT_EQ(result(*plain), 0x7C00);
  // 65504 twice across is infinite, of which qr-q8 makes a NaN; so it does of what fp16 has added
  // up to infinity inside.
  EXPECT_EQ(result({*plain, *clamping}), 0x7E00);
  EXPECT_EQ(result({*clamping, *plain}), 0x7E00);
}

TEST(InnerCodec, WireVolumeCountsEveryMessageByItsCodec) {
  const CodecPtr outer = find_codec("int4-g32");
  const CodecPtr inner = find_codec("fp16");
  const Schedule schedule = marked({"hierarchical", {{"group_size", 2}}}, 4, 1 << 12, 32);
  const WireVolume volume = wire_volume(schedule, {*outer, *inner}, DType::fp16);
  // Two steps of 4 messages inside, 4 across, each of half the elements.
  const std::uint64_t half = 1 << 11;
  EXPECT_EQ(volume.elements, 12 * half);
  EXPECT_EQ(volume.bytes, 8 * half * 2 + 4 * outer->wire_bytes(DType::fp16, half));
}

// ---------------------------------------------------------------- alignment

TEST(InnerCodec, ChunksSuitBothCodecs) {
  const FadingCodec six(6);
  const FadingCodec four(4);
  const FadingCodec whole(kWholeTensor);
  const FadingCodec huge(kWholeTensor - 2);
  EXPECT_EQ(Codecs(six).alignment(), 6U);
  EXPECT_EQ(Codecs(six, four).alignment(), 12U);
  EXPECT_EQ(Codecs(four, six).alignment(), 12U);
  EXPECT_EQ(Codecs(six, whole).alignment(), kWholeTensor);
  EXPECT_EQ(Codecs(huge, four).alignment(), kWholeTensor);

  const Schedule schedule = marked({"hierarchical", {{"group_size", 2}}}, 4, 48, 6);
  EXPECT_EQ(refusal_of([&] { require_whole_blocks(schedule, six); }), "accepted");
  EXPECT_EQ(refusal_of([&] { require_whole_blocks(schedule, {six, FadingCodec(5)}); }),
            "schedule 'hierarchical': chunk 0, elements [0, 24), cuts a block of codec fading: "
            "boundaries must be multiples of 5");
}

// ---------------------------------------------------------------- the checker

TEST(InnerCodec, TheCheckerRefusesSendsOfAnotherCodec) {
  Schedule schedule = marked({"hierarchical", {{"group_size", 2}}}, 4, 64, 1);
  const auto send = std::find_if(schedule.ops.begin(), schedule.ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::send; });
  send->codec = CodecRole::outer;
  EXPECT_NE(check(schedule).violation.find("as of the outer codec; the inner one has encoded it"),
            std::string::npos)
      << check(schedule).violation;
  send->codec = static_cast<CodecRole>(3);
  EXPECT_NE(check(schedule).violation.find("unknown codec"), std::string::npos);
}

/// Ranks end alike only where they encode alike.
TEST(InnerCodec, TheCheckerSeesRanksThatEncodeDifferently) {
  Schedule schedule = make_schedule("one_shot", {.world_size = 2, .elements = 8});
  EXPECT_TRUE(check(schedule).ranks_identical);
  // Rank 1's own contribution by another codec than what it has sent; the encoding is one op, so a
  // second one is put beside it.
  Op again = schedule.ops[1];
  ASSERT_EQ(again.kind, OpKind::encode);
  const auto is_of_rank_1 = [](const Op& op) { return op.kind == OpKind::encode && op.rank == 1; };
  const auto encode = std::find_if(schedule.ops.begin(), schedule.ops.end(), is_of_rank_1);
  const auto id = static_cast<ValueId>(encode - schedule.ops.begin());
  again = *encode;
  again.codec = CodecRole::inner;
  const auto last_of_step_0 = std::find_if(schedule.ops.begin(), schedule.ops.end(),
                                           [](const Op& op) { return op.step == 1; });
  const auto added = static_cast<ValueId>(last_of_step_0 - schedule.ops.begin());
  schedule.ops.insert(last_of_step_0, again);
  const auto renumber = [&](ValueId& value) {
    if (value != kOwnInput && value >= added) ++value;
  };
  for (ValueId& addend : schedule.addends) renumber(addend);
  for (Output& output : schedule.outputs) renumber(output.value);
  for (const Op& op : schedule.ops) {
    if (op.kind != OpKind::reduce || op.rank != 1) continue;
    for (std::uint32_t i = 0; i < op.addend_count; ++i) {
      ValueId& addend = schedule.addends[op.first_addend + i];
      if (addend == id) addend = added;
    }
  }
  const CheckReport report = check(schedule);
  EXPECT_TRUE(report.correct) << report.violation;
  EXPECT_FALSE(report.ranks_identical);
}

// ---------------------------------------------------------------- refusals

TEST(InnerCodec, IsRefusedWhereNothingIsInner) {
  const auto refused = [](const char* algorithm, AlgorithmOptions options) {
    options.set("inner_codec", "fp16");
    return refusal_of(
        [&] { make_schedule(algorithm, {.world_size = 4, .elements = 64, .options = options}); });
  };
  EXPECT_EQ(refused("ring", {}),
            "algorithm ring has no option inner-codec: it has own, forward, rings");
  EXPECT_EQ(refused("two_shot", {}),
            "algorithm two_shot has no option inner-codec: it has own, stripe");
  EXPECT_EQ(refused("all_to_all", {}),
            "algorithm all_to_all: inner-codec is for what combine = quantized sends back");
  EXPECT_EQ(refused("hierarchical", {}), "accepted");
  const Schedule plain = make_schedule("ring", {.world_size = 4, .elements = 64});
  EXPECT_EQ(refusal_of([&] { require_inner_codec(plain); }),
            "schedule 'ring' encodes nothing with an inner codec");
}

TEST(InnerCodec, MustTakeTheDtype) {
  const CodecPtr outer = find_codec("int4-g32");
  const CodecPtr inner = find_codec("bf16");
  const Tensor inputs = make_synthetic("gaussian:sigma=1,seed=2", DType::fp16, 4, 64);
  const Schedule schedule = marked({"hierarchical", {{"group_size", 2}}}, 4, 64, 32);
  EXPECT_NE(refusal_of([&] { run(schedule, {*outer, *inner}, inputs); }).find("bf16"),
            std::string::npos);
}

}  // namespace
}  // namespace arlab::testing
