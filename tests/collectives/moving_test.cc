// The collectives that are no all-reduce (all_to_all and its combine, reduce_scatter, all_gather and
// broadcast): the right values in the right places, the right volume, every slot encoded as it would
// be alone; and a checker that sees every contribution, slot or tensor that is not what it should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_builder.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/run.h"
#include "tests/collectives/toy_codecs.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

bool own_exact(const Variant& variant) { return variant.options.is("own", "exact"); }
bool combines(const Variant& variant) { return variant.options.is("combine", "quantized"); }

Collective collective_of(const Variant& variant) {
  return combines(variant) ? Collective::dispatch_combine
                           : find_algorithm(variant.algorithm).collective;
}

/// Every rank sends a slot to every other.
bool exchanges(Collective collective) {
  return collective == Collective::all_to_all || collective == Collective::dispatch_combine;
}

/// Returns all_to_all, with and without its combine.
std::vector<Variant> exchanging_variants(Rank world_size) {
  return variants_of({Collective::all_to_all}, world_size);
}

/// So many elements per rank, or slots of so many.
std::uint64_t elements_of(const Variant& variant, Rank n, std::uint64_t size) {
  return has_slots(collective_of(variant)) ? n * size : size;
}

// ---------------------------------------------------------------- schedules

TEST(Moving, EveryScheduleIsCorrectAndSaysWhetherRanksAgree) {
  for (const Rank n : world_sizes()) {
    for (const Variant& variant : moving_variants(n)) {
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
          if (exchanges(schedule.collective)) {
            ASSERT_EQ(schedule.chunks.size(), n);
          }
          const bool alike = ends_alike(schedule.collective);
          const bool identical = alike && (n == 1 || !own_exact(variant));
          ASSERT_EQ(report.ranks_identical, identical);
          ASSERT_EQ(report.divergence.empty(), identical || !alike);
        }
      }
    }
  }
}

/// All but the own slot leaves and reaches every rank, and does so again where it comes back; a
/// broadcast has two hops.
TEST(Moving, SendsAsLittleAsPossible) {
  for (const Rank n : world_sizes()) {
    const std::uint64_t slot = 7;
    for (const Variant& variant : moving_variants(n)) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", label(variant), n));
      const std::uint64_t ways = combines(variant) ? 2 : 1;
      const Schedule schedule = schedule_of(variant, n, slot * n, 1);
      std::vector<std::uint64_t> sent(n, 0);
      std::vector<std::uint64_t> received(n, 0);
      for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::send) continue;
        sent[op.rank] += schedule.chunks[op.chunk].size();
        received[op.peer] += schedule.chunks[op.chunk].size();
      }
      std::vector<std::uint64_t> sends(n, ways * (n - 1) * slot);
      std::vector<std::uint64_t> receives = sends;
      if (schedule.collective == Collective::broadcast && n > 1) {
        sends.assign(n, (n - 2) * slot);
        sends[0] = 2 * (n - 1) * slot;
        receives.assign(n, n * slot);
        receives[0] = 0;
      }
      ASSERT_EQ(sent, sends);
      ASSERT_EQ(received, receives);
      for (const Rank group_size : divisors(n)) {
        const Volume volume = volume_of(schedule, group_size);
        ASSERT_EQ(volume.total, static_cast<double>(ways * (n - 1)));
        if (!exchanges(schedule.collective)) continue;
        ASSERT_EQ(volume.messages, ways * n * (n - 1));
        ASSERT_EQ(volume.cross_group_elements, ways * n * (n - group_size) * slot);
      }
    }
  }
}

/// How many sums of a slot are encoded again.
std::size_t sums_on_the_way(const Variant& variant, Rank n) {
  if (variant.algorithm != "hierarchical_reduce_scatter" || own_exact(variant)) return 0;
  const Rank groups = n / variant.options.group_size().value_or(default_group_size(n));
  return groups == 1 ? 0 : groups;
}

/// Every element is encoded once, or once by each rank, and for a combine twice; none of the own
/// slot where that stays as it is.
TEST(Moving, EncodesNoElementMoreOftenThanItHasTo) {
  for (const Rank n : {1, 2, 5, 8}) {
    const std::size_t slot = 100;
    const Tensor inputs = make_synthetic("gaussian", DType::fp16, n, n * slot);
    for (const Variant& variant : moving_variants(n)) {
      Tensor outputs = make_tensor(DType::fp16, inputs.shape);
      const std::uint64_t encoded =
          execute(schedule_of(variant, n, n * slot, 1), *find_codec("fp16"), DType::fp16,
                  inputs.bytes(), outputs.bytes())
              .encoded;
      const Collective collective = collective_of(variant);
      const bool by_each_rank = exchanges(collective) || collective == Collective::reduce_scatter;
      const std::size_t contributions =
          by_each_rank ? n - own_exact(variant) + sums_on_the_way(variant, n) : 1;
      const bool nothing = n == 1 && own_exact(variant);
      EXPECT_EQ(encoded, nothing ? 0 : (combines(variant) ? 2 : 1) * contributions * n * slot)
          << label(variant) << ", " << n;
    }
  }
}

// ---------------------------------------------------------------- bits: test_collectives_oracle.py, and these

/// Slots that are whole blocks equal the chunks of two_shot.
TEST(MovingBits, ReduceScatterThenAllGatherIsTwoShot) {
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

// The message of such a codec is the slot: never cut, and never the whole tensor.
TEST(MovingBits, ACodecOfWholeMessagesGetsWholeSlots) {
  const MessageScaleCodec codec(kWholeTensor, false);
  const Tensor inputs = make_synthetic("gaussian:seed=6", DType::fp32, 3, 3 * 101);
  for (const Variant& variant : exchanging_variants(3)) {
    run(variant, codec, inputs, {.tile_elements = 1});
    const std::vector<std::size_t> sizes = codec.take_message_sizes();
    EXPECT_TRUE(std::ranges::all_of(sizes, [](std::size_t size) { return size == 101; }));
  }
}

// ---------------------------------------------------------------- alignment within slots

TEST(SlotAlignment, IsCountedFromTheStartOfTheSlot) {
  Schedule s;
  s.world_size = 4;
  s.elements = 400;
  s.collective = Collective::all_to_all;
  EXPECT_EQ(s.slot_elements(), 100u);
  EXPECT_TRUE(is_aligned(s, {100, 200}, 32));
  EXPECT_TRUE(is_aligned(s, {100, 200}, kWholeTensor));
  EXPECT_TRUE(is_aligned(s, {132, 164}, 32));
  EXPECT_TRUE(is_aligned(s, {196, 200}, 32));
  EXPECT_FALSE(is_aligned(s, {128, 160}, 32));  // multiples of 32 in the tensor
  EXPECT_FALSE(is_aligned(s, {132, 165}, 32));
  EXPECT_FALSE(is_aligned(s, {132, 200}, kWholeTensor));
  EXPECT_FALSE(is_aligned(s, {100, 300}, 1));  // two slots
  EXPECT_FALSE(is_aligned(s, {196, 201}, 1));

  s.collective = Collective::all_reduce;
  EXPECT_EQ(s.slot_elements(), 400u);
  EXPECT_TRUE(is_aligned(s, {128, 160}, 32));
  EXPECT_TRUE(is_aligned(s, {96, 400}, 32));
  EXPECT_FALSE(is_aligned(s, {100, 200}, 32));
}

/// An all-to-all whose slots travel in pieces.
Schedule in_pieces(Rank n, std::uint64_t slot, std::uint64_t alignment, std::uint64_t pieces) {
  ScheduleBuilder s("in_pieces", {.world_size = n, .elements = slot * n, .alignment = alignment},
                    Collective::all_to_all);
  for (Rank to = 0; to < n; ++to) {
    for (const Chunk& range : s.split({to * slot, (to + 1) * slot}, pieces)) {
      if (range.size() == 0) continue;
      const ChunkId piece = s.add_chunk(range);
      for (Rank from = 0; from < n; ++from) {
        s.output(s.send(s.encode(s.input(from, piece)), to),
                 from * slot + (range.begin - to * slot));
      }
    }
  }
  return s.finish();
}

TEST(SlotAlignment, SlotsMayTravelInAlignedPieces) {
  const CodecPtr codec = find_codec("qr-q4");
  const std::size_t slot = 5 * 2048 + 9;
  const Tensor inputs = make_synthetic("adversarial:seed=7", DType::fp16, 3, 3 * slot);
  const Tensor expected = run(Variant{"all_to_all", {}}, *codec, inputs);
  for (const std::uint64_t pieces : {1, 2, 3, 8}) {
    const Schedule schedule = in_pieces(3, slot, 2048, pieces);
    EXPECT_EQ(check(schedule).violation, "");
    EXPECT_EQ(run(schedule, *codec, inputs).data, expected.data) << pieces << " pieces";
  }
}

TEST(SlotAlignment, APieceThatCutsABlockIsRefused) {
  const Schedule schedule = in_pieces(2, 3000, 32, 2);
  EXPECT_EQ(check(schedule).violation, "");
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, 2, 6000);
  EXPECT_EQ(refusal_of([&] { run(schedule, *find_codec("qr-q4"), inputs); }),
            "schedule 'in_pieces': chunk 0, elements [0, 1504), cuts a block of codec qr-q4: "
            "boundaries must be multiples of 2048 within one slot of 3000 elements");
}

// ---------------------------------------------------------------- requests that are refused

std::string refusal(const char* algorithm, const ScheduleRequest& request) {
  return refusal_of([&] { make_schedule(algorithm, request); });
}

TEST(Moving, RefusesElementsThatDoNotMakeEqualSlots) {
  for (const char* name : {"all_to_all", "reduce_scatter", "all_gather"}) {
    for (const std::uint64_t elements : {100, 2}) {
      EXPECT_EQ(refusal(name, {.world_size = 3, .elements = elements}),
                fmt::format("{}: {} elements per rank do not make 3 equal slots: allowed are "
                            "multiples of 3",
                            name, elements));
    }
    EXPECT_EQ(refusal(name, {.world_size = 3, .elements = 3}), "accepted");
  }
  EXPECT_EQ(refusal("broadcast", {.world_size = 3, .elements = 100}), "accepted");
  EXPECT_EQ(refusal("broadcast", {.world_size = 3, .elements = 1}), "accepted");
}

// ---------------------------------------------------------------- what the checker must see

constexpr Rank kRanks = 4;
constexpr std::uint64_t kSlot = 37;

template <class Body>
void for_each_schedule(const std::vector<Variant>& variants, Body&& body) {
  for (const Variant& variant : variants) {
    SCOPED_TRACE(label(variant));
    const std::uint64_t alignment = has_slots(collective_of(variant)) ? 32 : 1;
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, alignment);
    ASSERT_EQ(check(schedule).violation, "");
    body(schedule);
    if (::testing::Test::HasFatalFailure()) return;
  }
}
template <class Body>
void for_each_schedule(Body&& body) {
  for_each_schedule(moving_variants(kRanks), body);
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
bool is_sum(const Schedule& s, const Output& output) {
  return s.collective == Collective::reduce_scatter && output.begin / kSlot == output.rank;
}

/// The rank whose input a value holds.
Rank origin_of(const Schedule& s, Rank rank, ValueId value) {
  while (value != kOwnInput) {
    rank = s.ops[value].rank;
    value = s.ops[value].source;
  }
  return rank;
}

/// The first result, by rank and element, that is not what belongs there where nothing is added;
/// empty: all are right.
std::string first_wrong_result(const Schedule& s) {
  std::vector<Output> outputs = s.outputs;
  std::ranges::stable_sort(outputs, {},
                           [](const Output& o) { return std::tuple(o.rank, o.begin); });
  for (const Output& output : outputs) {
    const std::uint64_t size = s.chunks[output.chunk].size();
    const std::uint64_t held = s.chunks[output.chunk].begin;
    const Rank holder = origin_of(s, output.rank, output.value);
    const auto slot = static_cast<Rank>(output.begin / kSlot);
    Rank right_rank = slot;  // in all_to_all and all_gather
    std::uint64_t right = output.begin;
    if (s.collective == Collective::all_to_all) {
      right = right - slot * kSlot + output.rank * kSlot;
    }
    if (s.collective == Collective::dispatch_combine) right_rank = output.rank;
    if (s.collective == Collective::broadcast) right_rank = 0;
    if (holder == right_rank && held == right) continue;
    return fmt::format("rank {}, {}: the result is {} of rank {}, not {} of rank {}", output.rank,
                       words_of(output.begin, output.begin + size), words_of(held, held + size),
                       holder, words_of(right, right + size), right_rank);
  }
  return "";
}

TEST(MovingMutants, AnOutputIsMissingOrComesTwice) {
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
TEST(MovingMutants, ResultsAreSwapped) {
  for_each_schedule([](const Schedule& schedule) {
    for (std::size_t a = 0; a < schedule.outputs.size(); ++a) {
      for (std::size_t b = a + 1; b < schedule.outputs.size(); ++b) {
        const Rank rank = schedule.outputs[a].rank;
        if (rank != schedule.outputs[b].rank) continue;
        Schedule broken = schedule;
        std::swap(broken.outputs[a].begin, broken.outputs[b].begin);
        const std::string violation = check(broken).violation;
        if (!adds(schedule.collective)) {
          EXPECT_EQ(violation, first_wrong_result(broken));
          EXPECT_TRUE(violation.starts_with(fmt::format("rank {}, ", rank)));
          continue;
        }
        const Chunk& chunk = broken.chunks[broken.outputs[a].chunk];
        EXPECT_EQ(violation,
                  fmt::format("output {} of rank {}: {} would end at element {}; a reduce-scatter "
                              "leaves elements in place",
                              a, rank, words_of(chunk.begin, chunk.end), broken.outputs[a].begin));
      }
    }
  });
}

TEST(MovingMutants, TheOwnInputStandsInForTheResult) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    if (schedule.collective == Collective::dispatch_combine) return;
    const Output& right = schedule.outputs[output];
    Schedule broken = schedule;
    broken.outputs[output].value = kOwnInput;
    if (is_sum(schedule, right)) {
      EXPECT_EQ(check(broken).violation, fmt::format("{}lacks the contribution of rank {}",
                                                     at(broken, output), right.rank == 0 ? 1 : 0));
      return;
    }
    // The own slot and a broadcast's input are right where they are, if only exact.
    const Rank source =
        schedule.collective == Collective::broadcast ? 0 : static_cast<Rank>(right.begin / kSlot);
    const bool belongs = adds(schedule.collective) || source == right.rank;
    EXPECT_EQ(check(broken).violation, belongs ? "" : first_wrong_result(broken));
    EXPECT_EQ(check(broken).violation.empty(), belongs);
  });
}

TEST(MovingMutants, SomethingIsAddedWhereValuesOnlyMove) {
  EXPECT_EQ(words_for(Collective::all_to_all), "an all-to-all");
  EXPECT_EQ(words_for(Collective::dispatch_combine), "a dispatch and combine");
  for_each_output([](const Schedule& schedule, std::size_t output) {
    if (adds(schedule.collective)) return;
    const Output& right = schedule.outputs[output];
    for (const std::vector<ValueId>& addends :
         {std::vector<ValueId>{right.value, kOwnInput}, std::vector<ValueId>{right.value}}) {
      Schedule broken = schedule;
      broken.addends = addends;
      broken.outputs[output].value = static_cast<ValueId>(broken.ops.size());
      broken.ops.push_back({.kind = OpKind::reduce,
                            .step = 9,
                            .rank = right.rank,
                            .chunk = right.chunk,
                            .addend_count = static_cast<std::uint32_t>(addends.size())});
      EXPECT_EQ(check(broken).violation,
                fmt::format("op {} (reduce on rank {}, chunk {}): {} moves values and adds none",
                            broken.ops.size() - 1, right.rank, right.chunk,
                            words_for(schedule.collective)));
    }
  });
}

TEST(MovingMutants, SlotsAreNotEqualOrAChunkReachesAcrossTwo) {
  for_each_schedule([](const Schedule& schedule) {
    const auto violation = [&](std::uint64_t elements, const Chunk& range) {
      Schedule broken = schedule;
      broken.elements = elements;
      broken.chunks[1] = range;
      return check(broken).violation;
    };
    const Chunk right = schedule.chunks[1];
    if (!has_slots(schedule.collective)) {
      EXPECT_EQ(violation(149, right), "rank 0: element 148 is never output");
      EXPECT_EQ(violation(148, {37, 111}), "rank 0: element 74 is output twice");
      return;
    }
    for (const std::uint64_t elements : {149, 3}) {
      EXPECT_EQ(violation(elements, right),
                fmt::format("{} elements per rank do not make 4 equal slots", elements));
    }
    for (const Chunk& range : {Chunk{37, 111}, Chunk{32, 64}, Chunk{38, 74}, Chunk{37, 73}}) {
      EXPECT_EQ(violation(148, range),
                fmt::format("chunk 1: {} does not lie on multiples of the alignment 32 within one "
                            "slot of 37 elements",
                            words_of(range.begin, range.end)));
    }
  });
}

// Every schedule is wrong for every collective but its own.
TEST(MovingMutants, TheScheduleIsOfAnotherCollective) {
  for_each_schedule([](const Schedule& schedule) {
    Schedule broken = schedule;
    for (const Collective other : kCollectives) {
      broken.collective = other;
      EXPECT_EQ(check(broken).correct, other == schedule.collective) << name_of(other);
    }
    broken.collective = static_cast<Collective>(std::size(kCollectives));
    EXPECT_EQ(check(broken).violation, "unknown collective");
  });
  Schedule broken = schedule_of({"all_to_all", {}}, 2, 4, 1);
  broken.outputs.clear();
  EXPECT_EQ(refusal_of([&] { require_correct(broken); }),
            "schedule 'all_to_all' is not an all-to-all: rank 0: element 0 is never output");
}

TEST(MovingMutants, ASlotStandsAtAWrongOffset) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    if (!exchanges(schedule.collective)) return;
    const Output& right = schedule.outputs[output];
    const Chunk& chunk = schedule.chunks[right.chunk];
    const auto beyond = [&](std::uint64_t begin) {
      return fmt::format(
          "output {} of rank {}: {} would start at element {} and end beyond the {} elements",
          output, right.rank, words_of(chunk.begin, chunk.end), begin, kRanks * kSlot);
    };
    Schedule broken = schedule;
    broken.outputs[output].begin += 1;
    EXPECT_EQ(check(broken).violation,
              right.begin + kSlot == kRanks * kSlot
                  ? beyond(right.begin + 1)
                  : fmt::format("rank {}: element {} is never output", right.rank, right.begin));

    broken.outputs[output].begin = right.begin - 1;
    EXPECT_EQ(check(broken).violation, right.begin == 0
                                           ? beyond(UINT64_MAX)
                                           : fmt::format("rank {}: element {} is output twice",
                                                         right.rank, right.begin - 1));
  });
}

/// Rank `from` sends slot `wrong` to the rank that slot `right` is for.
TEST(MovingMutants, AWrongSlotIsSent) {
  const Schedule schedule = schedule_of({"all_to_all", {}}, kRanks, kRanks * kSlot, 32);
  for (std::size_t i = 0; i < schedule.outputs.size(); ++i) {
    const Output& output = schedule.outputs[i];
    const ChunkId wrong = (output.chunk + 1) % kRanks;
    Schedule broken = schedule;
    broken.outputs[i].chunk = wrong;
    Op& last = broken.ops[output.value];
    last.chunk = wrong;
    if (last.kind == OpKind::send) broken.ops[last.source].chunk = wrong;
    EXPECT_EQ(check(broken).violation, first_wrong_result(broken));
    EXPECT_NE(first_wrong_result(broken), "");
  }
}

TEST(MovingMutants, ASlotComesBackAsItWasSent) {
  for (const std::string own : {"encoded", "exact"}) {
    const Schedule schedule = schedule_of({"all_to_all", {{"own", own}, {"combine", "quantized"}}},
                                          kRanks, kRanks * kSlot, 32);
    std::size_t mutants = 0;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const Op& op = schedule.ops[i];
      if (op.kind != OpKind::send || op.step != 1) continue;
      Schedule broken = schedule;
      broken.ops[i].source = schedule.ops[op.source].source;  // the arrived one
      EXPECT_EQ(check(broken).violation,
                fmt::format("rank {}, {}: the result was not encoded again on rank {}, which its "
                            "slot is for",
                            op.peer, words_of(op.rank * kSlot, (op.rank + 1) * kSlot), op.rank));
      ++mutants;
    }
    EXPECT_EQ(mutants, kRanks * (kRanks - 1));
  }
}

TEST(MovingMutants, NothingTravelsAtAll) {
  Schedule broken;
  broken.collective = Collective::dispatch_combine;
  broken.world_size = 2;
  broken.elements = 20;
  broken.chunks = {{0, 10}, {10, 20}};
  for (const Rank rank : {0u, 1u}) {
    for (const ChunkId chunk : {0u, 1u})
      broken.outputs.push_back({rank, chunk, kOwnInput, chunk * 10u});
  }
  EXPECT_EQ(check(broken).violation,
            "rank 0, elements [10, 20): the result was not encoded again on rank 1, which its slot "
            "is for");
}

TEST(MovingMutants, AnotherRankEncodesAgain) {
  ScheduleBuilder s("astray", {.world_size = 3, .elements = 3}, Collective::dispatch_combine);
  for (Rank slot = 0; slot < 3; ++slot) {
    const ChunkId chunk = s.add_chunk({slot, slot + 1u});
    for (Rank rank = 0; rank < 3; ++rank) {
      const Rank visited = rank == 2 && slot == 1 ? 0 : slot;
      s.at_step(0);
      const Value arrived = s.send(s.encode(s.input(rank, chunk)), visited);
      s.at_step(1);
      s.output(s.send(s.encode(arrived), rank));
    }
  }
  EXPECT_EQ(check(s.finish()).violation,
            "rank 2, elements [1, 2): the result was not encoded again on rank 1, which its slot "
            "is for");
}

TEST(MovingMutants, AContributionIsLostOrCountsTwice) {
  for (const Variant& variant : variants_of({Collective::reduce_scatter}, kRanks)) {
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, 1);
    for (std::size_t i = 0; i < schedule.addends.size(); ++i) {
      const auto owner = static_cast<Rank>(i / kRanks);
      const auto rank = static_cast<Rank>(i % kRanks);
      const Rank neighbour = rank + 1 < kRanks ? rank + 1 : rank - 1;
      Schedule broken = schedule;
      broken.addends[i] = schedule.addends[i - rank + neighbour];
      if (variant.algorithm != "reduce_scatter") {  // these addends are those of other sums
        EXPECT_EQ(check(broken).correct, broken == schedule) << label(variant);
        continue;
      }
      const std::string where = fmt::format("rank {}, {}: the result ", owner,
                                            words_of(owner * kSlot, owner * kSlot + kSlot));
      EXPECT_EQ(check(broken).violation,
                rank < neighbour
                    ? fmt::format("{}lacks the contribution of rank {}", where, rank)
                    : fmt::format("{}holds the contribution of rank {} 2 times", where, neighbour));
    }
  }
}

/// A part that a rank leaves as it was must be its input, not a copy that a codec has been at.
TEST(MovingMutants, WhatARankLeavesIsEncoded) {
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
TEST(MovingMutants, AnotherRanksValuesAreSent) {
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

TEST(Moving, RanksDifferWhereNotAllDecodeTheSameBytes) {
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

// The checker proves the result, not the way.
TEST(Moving, AnyWayThatEndsRightIsCorrect) {
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

  // An all-to-all through rank 0.
  ScheduleBuilder s("through_rank_0", {.world_size = 3, .elements = 30}, Collective::all_to_all);
  for (Rank to = 0; to < 3; ++to) {
    const ChunkId slot = s.add_chunk({to * 10u, to * 10u + 10u});
    for (Rank from = 0; from < 3; ++from) {
      s.at_step(0);
      const Value at_0 = s.send(s.encode(s.input(from, slot)), 0);
      s.at_step(1);
      s.output(s.send(s.encode(at_0), to), from * 10u);
    }
  }
  EXPECT_EQ(check(s.finish()).violation, "");
}

}  // namespace
}  // namespace arlab::testing
