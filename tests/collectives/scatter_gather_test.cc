// reduce_scatter, all_gather and broadcast: the right values in the right places, the right volume;
// and a checker that sees every contribution, slot or tensor that is not what it should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_builder.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/run.h"
#include "tests/collectives/toy_codecs.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {
namespace {

std::vector<Variant> variants(Rank world_size) {
  return variants_of({Collective::reduce_scatter, Collective::all_gather, Collective::broadcast},
                     world_size);
}

Collective collective_of(const Variant& variant) {
  return find_algorithm(variant.algorithm).collective;
}
bool own_exact(const Variant& variant) { return variant.options.is("own", "exact"); }

/// So many elements per rank, or slots of so many.
std::uint64_t elements_of(const Variant& variant, Rank n, std::uint64_t size) {
  return has_slots(collective_of(variant)) ? n * size : size;
}

// ---------------------------------------------------------------- schedules

TEST(ScatterGather, EveryScheduleIsCorrectAndSaysWhetherRanksAgree) {
  for (const Rank n : world_sizes()) {
    for (const Variant& variant : variants(n)) {
      for (const std::uint64_t size : {1, 31, 32, 33, 2048, 5000}) {
        for (const std::uint64_t alignment : {std::uint64_t{1}, std::uint64_t{32},
                                              std::uint64_t{2048}, std::uint64_t{kWholeTensor}}) {
          const Schedule schedule =
              schedule_of(variant, n, elements_of(variant, n, size), alignment);
          const CheckReport report = check(schedule);
          SCOPED_TRACE(fmt::format("{}, {} ranks, {} elements, alignment {}", label(variant), n,
                                   schedule.elements, alignment));
          ASSERT_TRUE(report.correct);
          ASSERT_EQ(report.violation, "");
          ASSERT_EQ(schedule.collective, collective_of(variant));
          ASSERT_EQ(schedule.slot_elements(), size);
          const bool alike = ends_alike(schedule.collective);
          const bool identical = alike && (n == 1 || !own_exact(variant));
          ASSERT_EQ(report.ranks_identical, identical);
          ASSERT_EQ(report.divergence.empty(), identical || !alike);
        }
      }
    }
  }
}

TEST(ScatterGather, SendsAsLittleAsPossible) {
  for (const Rank n : world_sizes()) {
    const std::uint64_t slot = 7;
    for (const Variant& variant : variants(n)) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", label(variant), n));
      const Schedule schedule = schedule_of(variant, n, slot * n, 1);
      std::vector<std::uint64_t> sent(n, 0);
      std::vector<std::uint64_t> received(n, 0);
      for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::send) continue;
        sent[op.rank] += schedule.chunks[op.chunk].size();
        received[op.peer] += schedule.chunks[op.chunk].size();
      }
      ASSERT_EQ(volume_of(schedule, 1).total, static_cast<double>(n - 1));
      std::vector<std::uint64_t> sends(n, (n - 1) * slot);
      std::vector<std::uint64_t> receives = sends;
      if (schedule.collective == Collective::broadcast && n > 1) {
        sends.assign(n, (n - 2) * slot);
        sends[0] = 2 * (n - 1) * slot;
        receives.assign(n, n * slot);
        receives[0] = 0;
      }
      ASSERT_EQ(sent, sends);
      ASSERT_EQ(received, receives);
    }
  }
}

TEST(ScatterGather, EncodesEveryElementOnce) {
  for (const Rank n : {1, 2, 5, 8}) {
    const std::size_t slot = 100;
    const Tensor inputs = make_synthetic("gaussian", DType::fp16, n, n * slot);
    for (const Variant& variant : variants(n)) {
      Tensor outputs = make_tensor(DType::fp16, inputs.shape);
      const std::uint64_t encoded =
          execute(schedule_of(variant, n, n * slot, 1), *find_codec("fp16"), DType::fp16,
                  inputs.bytes(), outputs.bytes())
              .encoded;
      const std::size_t contributions =
          collective_of(variant) == Collective::reduce_scatter ? n - own_exact(variant) : 1;
      const bool nothing = n == 1 && own_exact(variant);
      EXPECT_EQ(encoded, nothing ? 0 : contributions * n * slot) << label(variant) << ", " << n;
    }
  }
}

TEST(ScatterGather, PartOfOneRankIsItsPartOfTheWhole) {
  for (const Rank n : {1, 2, 5}) {
    for (const Variant& variant : variants(n)) {
      const ScheduleRequest whole{.world_size = n, .elements = n * 64, .options = variant.options};
      const Schedule schedule = make_schedule(variant.algorithm, whole);
      for (Rank rank = 0; rank < n; ++rank) {
        ScheduleRequest request = whole;
        request.only_rank = rank;
        const Schedule part = make_schedule(variant.algorithm, request);
        const auto concerns = [&](const Op& op) {
          return op.rank == rank || (op.kind == OpKind::send && op.peer == rank);
        };
        EXPECT_EQ(part.ops.size(), std::ranges::count_if(schedule.ops, concerns));
        EXPECT_EQ(part.outputs.size(), std::ranges::count(schedule.outputs, rank, &Output::rank));
      }
    }
  }
}

// ---------------------------------------------------------------- bits

/// What ranks must end with, from the comments at the heads of the files.
std::vector<std::byte> expected_outputs(const Variant& variant, const Oracle& oracle,
                                        const Tensor& inputs) {
  const std::size_t n = inputs.ranks();
  Payloads x;
  for (std::size_t rank = 0; rank < n; ++rank) {
    x.push_back(patterns_of(inputs.dtype, inputs.rank_bytes(rank)));
  }
  const Collective collective = collective_of(variant);
  const bool is_broadcast = collective == Collective::broadcast;
  const std::string own = text_of(variant, "own");
  const auto chunk_results = [&](std::size_t owner, const Payloads& chunk) {
    const std::size_t source = is_broadcast ? 0 : owner;
    Payloads results = chunk;
    if (collective == Collective::reduce_scatter) {
      Payloads addends;
      for (std::size_t rank = 0; rank < n; ++rank) {
        addends.push_back(oracle.contribution(chunk[rank], rank == owner, own));
      }
      results[owner] = oracle.sum(addends, Start::zero);
      return results;
    }
    for (std::size_t rank = 0; rank < n; ++rank) {
      results[rank] = oracle.contribution(chunk[source], rank == source, own);
    }
    return results;
  };
  // Slots are of equal size; a broadcast is cut where blocks begin.
  const std::size_t alignment = is_broadcast ? oracle.codec.info().alignment : 1;
  std::vector<std::byte> outputs;
  for (const Patterns& y : chunk_by_chunk(x, n, alignment, chunk_results)) {
    const std::vector<std::byte> bytes = bytes_of(inputs.dtype, y);
    outputs.insert(outputs.end(), bytes.begin(), bytes.end());
  }
  return outputs;
}

void expect_oracle(const std::string& name, DType dtype, Rank n, std::size_t size,
                   Accumulate accumulate = Accumulate::native) {
  const CodecPtr codec = find_codec(name);
  for (const Variant& variant : variants(n)) {
    const Tensor inputs =
        make_synthetic("adversarial:seed=4", dtype, n, elements_of(variant, n, size));
    ASSERT_EQ(run(variant, *codec, inputs, {.accumulate = accumulate}).data,
              expected_outputs(variant, {*codec, dtype, accumulate}, inputs))
        << name << " " << name_of(dtype) << ", " << label(variant) << ", " << n << " ranks, "
        << size;
  }
}

TEST(ScatterGatherBits, AreTheOracles) {
  for (const char* codec :
       {"fp16", "qr-q4", "qr-fp8", "int5-g128", "int2-g32-sr", "int8-gtensor"}) {
    for (const std::size_t size : {1, 37, 2048, 2 * 2048 + 77}) {
      expect_oracle(codec, DType::fp16, 3, size);
    }
  }
  for (const char* codec : {"bf16", "qr-q6", "mxfp8-e4m3", "nvfp4"}) {
    for (const std::size_t size : {5, 3000}) expect_oracle(codec, DType::bf16, 4, size);
  }
  expect_oracle("fp32", DType::fp32, 5, 300);
  expect_oracle("qr-q4", DType::fp16, 4, 3000, Accumulate::fp32);
}

TEST(ScatterGatherBits, AreTheOraclesForEveryWorldSize) {
  for (const Rank n : world_sizes()) {
    if (n > 5 && ARLAB_SHORT_TESTS) continue;
    expect_oracle("int4-g32", DType::fp16, n, 37);
  }
}

/// Where slots are whole blocks, they are what the chunks of two_shot are.
TEST(ScatterGatherBits, ReduceScatterThenAllGatherIsTwoShot) {
  for (const char* name : {"fp16", "qr-q4", "int5-g128", "mxfp4"}) {
    const CodecPtr codec = find_codec(name);
    for (const Rank n : {1, 2, 3, 8}) {
      const Tensor inputs =
          make_synthetic("gaussian:seed=8", DType::fp16, n, std::size_t{n} * 2048 * 2);
      for (const std::string own : {"encoded", "exact"}) {
        const Tensor scattered = run(Variant{"reduce_scatter", {{"own", own}}}, *codec, inputs);
        EXPECT_EQ(run(Variant{"all_gather", {}}, *codec, scattered).data,
                  run(Variant{"two_shot", {{"own", own}}}, *codec, inputs).data)
            << name << ", " << n << " ranks";
      }
    }
  }
}

TEST(ScatterGatherBits, ThreadsAndTilesChangeNothing) {
  const CodecPtr codec = find_codec("qr-q4");
  const Tensor inputs = make_synthetic("adversarial:seed=5", DType::fp16, 3, 3 * (2048 * 3 + 7));
  for (const Variant& variant : variants(3)) {
    const Tensor expected = run(variant, *codec, inputs, {.threads = 1});
    for (const unsigned threads : {2u, 8u}) {
      for (const std::size_t tile : {std::size_t{1}, std::size_t{5000}, SIZE_MAX}) {
        ASSERT_EQ(run(variant, *codec, inputs, {.threads = threads, .tile_elements = tile}).data,
                  expected.data)
            << label(variant) << ", " << threads << " threads, tiles of " << tile;
      }
    }
  }
}

// ---------------------------------------------------------------- requests that are refused

std::string refusal(const char* algorithm, const ScheduleRequest& request) {
  try {
    make_schedule(algorithm, request);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ScatterGather, RefuseElementsThatDoNotMakeEqualSlots) {
  for (const char* name : {"reduce_scatter", "all_gather"}) {
    EXPECT_EQ(refusal(name, {.world_size = 3, .elements = 100}),
              fmt::format("{}: 100 elements per rank do not make 3 equal slots: allowed are "
                          "multiples of 3",
                          name));
    EXPECT_EQ(refusal(name, {.world_size = 3, .elements = 3}), "accepted");
    EXPECT_EQ(refusal(name, {.world_size = 3, .elements = 3, .options = {{"micro_chunks", 2}}}),
              fmt::format("algorithm {} has no option micro-chunks: it has own", name));
  }
  EXPECT_EQ(refusal("broadcast", {.world_size = 3, .elements = 100}), "accepted");
  EXPECT_EQ(refusal("broadcast", {.world_size = 3, .elements = 1}), "accepted");
}

// ---------------------------------------------------------------- what the checker must see

constexpr Rank kRanks = 4;
constexpr std::uint64_t kSlot = 37;

template <class Body>
void for_each_schedule(Body&& body) {
  for (const Variant& variant : variants(kRanks)) {
    SCOPED_TRACE(label(variant));
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, 1);
    ASSERT_EQ(check(schedule).violation, "");
    body(schedule);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

template <class Body>
void for_each_output(Body&& body) {
  for_each_schedule([&](const Schedule& schedule) {
    for (std::size_t i = 0; i < schedule.outputs.size(); ++i) body(schedule, i);
  });
}

std::string words_of(std::uint64_t begin, std::uint64_t end) {
  return fmt::format("elements [{}, {})", begin, end);
}
std::string at(const Schedule& s, std::size_t output) {
  const Output& o = s.outputs[output];
  return fmt::format("rank {}, {}: the result ", o.rank,
                     words_of(o.begin, o.begin + s.chunks[o.chunk].size()));
}
/// The rank that has an element of the result, where nothing is added.
Rank source_of(const Schedule& s, const Output& output) {
  return s.collective == Collective::broadcast ? 0 : static_cast<Rank>(output.begin / kSlot);
}
std::string not_moved(const Schedule& s, std::size_t output, const std::string& words) {
  const Output& o = s.outputs[output];
  return fmt::format("{}is {}, not {} of rank {}", at(s, output), words,
                     words_of(o.begin, o.begin + kSlot), source_of(s, o));
}
bool is_sum(const Schedule& s, const Output& output) {
  return s.collective == Collective::reduce_scatter && output.begin / kSlot == output.rank;
}

TEST(ScatterGatherMutants, AnOutputIsMissingOrComesTwice) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& right = schedule.outputs[output];
    Schedule broken = schedule;
    broken.outputs.erase(broken.outputs.begin() + static_cast<std::ptrdiff_t>(output));
    EXPECT_EQ(check(broken).violation,
              fmt::format("rank {}: element {} is never output", right.rank, right.begin));
    broken = schedule;
    broken.outputs.push_back(right);
    EXPECT_EQ(check(broken).violation,
              fmt::format("rank {}: element {} is output twice", right.rank, right.begin));
  });
}

/// Two results of a rank change places.
TEST(ScatterGatherMutants, ResultsAreSwapped) {
  for_each_schedule([](const Schedule& schedule) {
    for (std::size_t a = 0; a < schedule.outputs.size(); ++a) {
      for (std::size_t b = 0; b < schedule.outputs.size(); ++b) {
        const Output& first = schedule.outputs[a];
        const Output& second = schedule.outputs[b];
        if (first.rank != second.rank || first.begin >= second.begin) continue;
        Schedule broken = schedule;
        std::swap(broken.outputs[a].begin, broken.outputs[b].begin);
        const std::size_t listed = std::min(a, b);
        const Chunk& chunk = broken.chunks[broken.outputs[listed].chunk];
        if (adds(schedule.collective)) {
          EXPECT_EQ(
              check(broken).violation,
              fmt::format("output {} of rank {}: {} would end at element {}; a reduce-scatter "
                          "leaves elements in place",
                          listed, first.rank, words_of(chunk.begin, chunk.end),
                          broken.outputs[listed].begin));
        } else {
          EXPECT_EQ(
              check(broken).violation,
              not_moved(broken, b,
                        fmt::format("{} of rank {}", words_of(second.begin, second.begin + kSlot),
                                    source_of(schedule, second))));
        }
      }
    }
  });
}

TEST(ScatterGatherMutants, TheOwnInputStandsInForTheResult) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& right = schedule.outputs[output];
    Schedule broken = schedule;
    broken.outputs[output].value = kOwnInput;
    if (is_sum(schedule, right)) {
      EXPECT_EQ(check(broken).violation, fmt::format("{}lacks the contribution of rank {}",
                                                     at(broken, output), right.rank == 0 ? 1 : 0));
    } else if (schedule.collective == Collective::reduce_scatter ||
               source_of(schedule, right) == right.rank) {
      EXPECT_EQ(check(broken).violation, "");  // it is what belongs there, if only exact
    } else {
      EXPECT_EQ(check(broken).violation,
                not_moved(broken, output,
                          fmt::format("{} of rank {}", words_of(right.begin, right.begin + kSlot),
                                      right.rank)));
    }
  });
}

TEST(ScatterGatherMutants, AContributionIsLostOrCountsTwice) {
  for (const Variant& variant : variants_of({Collective::reduce_scatter}, kRanks)) {
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, 1);
    for (std::size_t i = 0; i < schedule.addends.size(); ++i) {
      const auto owner = static_cast<Rank>(i / kRanks);
      const auto rank = static_cast<Rank>(i % kRanks);
      const Rank neighbour = rank + 1 < kRanks ? rank + 1 : rank - 1;
      Schedule broken = schedule;
      broken.addends[i] = schedule.addends[i - rank + neighbour];
      const std::string where = fmt::format("rank {}, {}: the result ", owner,
                                            words_of(owner * kSlot, owner * kSlot + kSlot));
      EXPECT_EQ(check(broken).violation,
                rank < neighbour
                    ? fmt::format("{}lacks the contribution of rank {}", where, rank)
                    : fmt::format("{}holds the contribution of rank {} 2 times", where, neighbour));
    }
  }
}

/// What a rank leaves as it was must be its input, not a copy that a codec has been at.
TEST(ScatterGatherMutants, WhatARankLeavesIsEncoded) {
  for (const Variant& variant : variants_of({Collective::reduce_scatter}, kRanks)) {
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, 1);
    for (std::size_t i = 0; i < schedule.outputs.size(); ++i) {
      if (is_sum(schedule, schedule.outputs[i])) continue;
      const Output& output = schedule.outputs[i];
      Schedule broken = schedule;
      broken.outputs[i].value = static_cast<ValueId>(broken.ops.size());
      broken.ops.push_back({.kind = OpKind::encode,
                            .step = 9,
                            .rank = output.rank,
                            .chunk = output.chunk,
                            .source = kOwnInput});
      EXPECT_EQ(check(broken).violation,
                fmt::format("{}is not the rank's own input, which a reduce-scatter leaves in all "
                            "slots but slot {}",
                            at(broken, i), output.rank));
    }
  }
}

/// Rank 1's values travel where others should: everything is there, from the wrong rank.
TEST(ScatterGatherMutants, AnotherRanksValuesAreSent) {
  for (const Variant& variant : variants_of({Collective::all_gather, Collective::broadcast}, 2)) {
    if (own_exact(variant)) continue;
    const Schedule schedule = schedule_of(variant, 2, 2 * kSlot, 1);
    ScheduleBuilder s("astray", {.world_size = 2, .elements = 2 * kSlot}, schedule.collective);
    for (const std::uint64_t begin : {std::uint64_t{0}, kSlot}) {
      const Value encoded = s.encode(s.input(1, s.add_chunk({begin, begin + kSlot})));
      for (Rank rank = 0; rank < 2; ++rank) s.output(s.send(encoded, rank));
    }
    EXPECT_EQ(check(s.finish()).violation,
              "rank 0, elements [0, 37): the result is elements [0, 37) of rank 1, not elements "
              "[0, 37) of rank 0");
  }
}

TEST(ScatterGatherMutants, SomethingIsAddedWhereValuesOnlyMove) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    if (adds(schedule.collective)) return;
    const Output& right = schedule.outputs[output];
    Schedule broken = schedule;
    broken.addends = {right.value};
    broken.outputs[output].value = static_cast<ValueId>(broken.ops.size());
    broken.ops.push_back({.kind = OpKind::reduce,
                          .step = 9,
                          .rank = right.rank,
                          .chunk = right.chunk,
                          .addend_count = 1});
    EXPECT_EQ(check(broken).violation,
              fmt::format("op {} (reduce on rank {}, chunk {}): {} moves values and adds none",
                          broken.ops.size() - 1, right.rank, right.chunk,
                          words_for(schedule.collective)));
  });
}

TEST(ScatterGatherMutants, SlotsAreNotEqualOrAChunkReachesAcrossTwo) {
  for_each_schedule([](const Schedule& schedule) {
    Schedule unequal = schedule;
    unequal.elements += 1;
    Schedule across = schedule;
    across.chunks[1] = {kSlot, 3 * kSlot};
    if (has_slots(schedule.collective)) {
      EXPECT_EQ(check(unequal).violation, "149 elements per rank do not make 4 equal slots");
      EXPECT_EQ(check(across).violation,
                "chunk 1: elements [37, 111) does not lie on multiples of the alignment 1 within "
                "one slot of 37 elements");
    } else {
      EXPECT_EQ(check(unequal).violation, "rank 0: element 148 is never output");
      EXPECT_EQ(check(across).violation, "rank 0: element 74 is output twice");
    }
  });
}

TEST(ScatterGatherMutants, TheScheduleIsOfAnotherCollective) {
  for_each_schedule([](const Schedule& schedule) {
    for (const Collective other : kCollectives) {
      Schedule broken = schedule;
      broken.collective = other;
      EXPECT_EQ(check(broken).correct, other == schedule.collective) << name_of(other);
    }
  });
}

TEST(ScatterGather, RanksDifferWhereNotAllDecodeTheSameBytes) {
  const FadingCodec fading;
  for (const Rank n : {2, 3, 6}) {
    for (const Variant& variant : variants_of({Collective::all_gather, Collective::broadcast}, n)) {
      const Tensor inputs = make_synthetic("gaussian:seed=2", DType::fp32, n, n * 5);
      const Tensor outputs = run(variant, fading, inputs);
      const CheckReport report = check(schedule_of(variant, n, n * 5, 1));
      bool differ = false;
      for (Rank rank = 1; rank < n; ++rank) {
        differ = differ || !std::ranges::equal(outputs.rank_bytes(rank), outputs.rank_bytes(0));
      }
      EXPECT_EQ(differ, !report.ranks_identical) << label(variant) << ", " << n << " ranks";
      EXPECT_EQ(report.divergence,
                own_exact(variant) ? "ranks 0 and 1 compute elements [0, 5) differently" : "");
    }
  }
}

// What the checker proves is the result, not the way.
TEST(ScatterGather, AnyWayThatEndsRightIsCorrect) {
  ScheduleBuilder gather("around", {.world_size = 3, .elements = 30}, Collective::all_gather);
  for (Rank owner = 0; owner < 3; ++owner) {
    Value slot =
        gather.encode(gather.input(owner, gather.add_chunk({owner * 10u, owner * 10u + 10u})));
    gather.output(slot);
    for (std::uint32_t hop = 0; hop < 2; ++hop) {
      gather.at_step(hop);
      slot = gather.send(slot, (slot.rank + 1) % 3);
      gather.output(slot);
    }
    gather.at_step(0);
  }
  const CheckReport around = check(gather.finish());
  EXPECT_EQ(around.violation, "");
  EXPECT_TRUE(around.ranks_identical);

  ScheduleBuilder direct("directly", {.world_size = 3, .elements = 31}, Collective::broadcast);
  const Value tensor = direct.encode(direct.input(0, direct.add_chunk({0, 31})));
  for (Rank rank = 0; rank < 3; ++rank) direct.output(direct.send(tensor, rank));
  const CheckReport directly = check(direct.finish());
  EXPECT_EQ(directly.violation, "");
  EXPECT_TRUE(directly.ranks_identical);

  // A reduce-scatter through rank 0, that adds in another order.
  ScheduleBuilder scatter("through_rank_0", {.world_size = 2, .elements = 20},
                          Collective::reduce_scatter);
  for (Rank owner = 0; owner < 2; ++owner) {
    const ChunkId slot = scatter.add_chunk({owner * 10u, owner * 10u + 10u});
    scatter.at_step(0);
    const Value other = scatter.send(scatter.encode(scatter.input(1, slot)), 0);
    scatter.at_step(1);
    const Value sum = scatter.reduce(std::vector{other, scatter.input(0, slot)}, Start::first);
    scatter.output(scatter.input(1 - owner, slot));
    scatter.output(owner == 0 ? sum : scatter.send(scatter.encode(sum), 1));
  }
  EXPECT_EQ(check(scatter.finish()).violation, "");
}

}  // namespace
}  // namespace arlab::testing
