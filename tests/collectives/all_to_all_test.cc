// all_to_all and its combine: the right slots, the right volume, every slot encoded as it would be
// alone; and a checker that sees every slot that is lost, swapped, doubled or added to.
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

namespace arlab::testing {
namespace {

/// Of all_to_all, with and without its combine.
std::vector<Variant> slot_variants(Rank world_size) {
  return variants_of({Collective::all_to_all}, world_size);
}

bool own_exact(const Variant& variant) { return variant.options.is("own", "exact"); }
bool combines(const Variant& variant) { return variant.options.is("combine", "quantized"); }

// ---------------------------------------------------------------- schedules

TEST(AllToAll, EveryScheduleIsCorrectAndEverySlotIsOneMessage) {
  for (const Rank n : world_sizes()) {
    for (const Variant& variant : slot_variants(n)) {
      for (const std::uint64_t slot : {1, 31, 32, 33, 2048, 5000}) {
        for (const std::uint64_t alignment : {std::uint64_t{1}, std::uint64_t{32},
                                              std::uint64_t{2048}, std::uint64_t{kWholeTensor}}) {
          const Schedule schedule = schedule_of(variant, n, slot * n, alignment);
          const CheckReport report = check(schedule);
          ASSERT_TRUE(report.correct && report.violation.empty())
              << label(variant) << ", " << n << " ranks, slots of " << slot << ", alignment "
              << alignment << ": " << report.violation;
          ASSERT_FALSE(report.ranks_identical);  // does not apply
          ASSERT_EQ(report.divergence, "");
          ASSERT_EQ(schedule.collective,
                    combines(variant) ? Collective::dispatch_combine : Collective::all_to_all);
          ASSERT_EQ(schedule.slot_elements(), slot);
          ASSERT_EQ(schedule.chunks.size(), n);
        }
      }
    }
  }
}

TEST(AllToAll, OfAPayloadAllButTheOwnSlotLeavesAndReachesEveryRank) {
  for (const Rank n : world_sizes()) {
    const std::uint64_t slot = 7;
    for (const Variant& variant : slot_variants(n)) {
      const std::uint64_t ways = combines(variant) ? 2 : 1;
      const Schedule schedule = schedule_of(variant, n, slot * n, 1);
      std::vector<std::uint64_t> sent(n, 0);
      std::vector<std::uint64_t> received(n, 0);
      for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::send) continue;
        sent[op.rank] += schedule.chunks[op.chunk].size();
        received[op.peer] += schedule.chunks[op.chunk].size();
      }
      const std::vector<std::uint64_t> expected(n, ways * (n - 1) * slot);
      ASSERT_EQ(sent, expected) << label(variant) << ", " << n << " ranks";
      ASSERT_EQ(received, expected) << label(variant) << ", " << n << " ranks";

      for (const Rank group_size : divisors(n)) {
        const Volume volume = volume_of(schedule, group_size);
        ASSERT_EQ(volume.total, static_cast<double>(ways * (n - 1)));
        ASSERT_EQ(volume.messages, ways * n * (n - 1));
        ASSERT_EQ(volume.cross_group_elements, ways * n * (n - group_size) * slot);
      }
    }
  }
}

TEST(AllToAll, EncodesEverySlotOnceAndForTheCombineTwice) {
  for (const Rank n : {1, 2, 5, 8}) {
    const Tensor inputs = make_synthetic("gaussian", DType::fp16, n, std::size_t{n} * 100);
    for (const Variant& variant : slot_variants(n)) {
      Tensor outputs = make_tensor(DType::fp16, inputs.shape);
      const std::uint64_t encoded =
          execute(schedule_of(variant, n, std::uint64_t{n} * 100, 1), *find_codec("fp16"),
                  DType::fp16, inputs.bytes(), outputs.bytes())
              .encoded;
      const std::uint64_t slots = own_exact(variant) ? n * (n - 1) : n * n;
      EXPECT_EQ(encoded, (combines(variant) ? 2 : 1) * slots * 100) << label(variant);
    }
  }
}

// ---------------------------------------------------------------- bits

/// A slot on its own through encode and decode.
std::vector<std::byte> through(const Codec& codec, DType dtype, std::span<const std::byte> slot) {
  std::vector<std::byte> wire(codec.wire_bytes(dtype, slot.size() / size_of(dtype)));
  std::vector<std::byte> arrived(slot.size());
  codec.encode(dtype, slot, wire);
  codec.decode(dtype, wire, arrived);
  return arrived;
}

/// What ranks must end with, slot by slot.
Tensor expected_outputs(const Variant& variant, const Codec& codec, const Tensor& inputs) {
  const std::size_t n = inputs.ranks();
  const std::size_t bytes = inputs.rank_bytes(0).size() / n;
  Tensor outputs = make_tensor(inputs.dtype, inputs.shape);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const auto source = inputs.rank_bytes(from).subspan(to * bytes, bytes);
      std::vector<std::byte> slot(source.begin(), source.end());
      if (from != to || !own_exact(variant)) {
        slot = through(codec, inputs.dtype, slot);
        if (combines(variant)) slot = through(codec, inputs.dtype, slot);
      }
      const auto target = combines(variant) ? outputs.rank_bytes(from).subspan(to * bytes, bytes)
                                            : outputs.rank_bytes(to).subspan(from * bytes, bytes);
      std::ranges::copy(slot, target.begin());
    }
  }
  return outputs;
}

TEST(AllToAllBits, PlainValuesArriveAsTheyAre) {
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    const CodecPtr plain = find_codec(name_of(dtype));
    for (const Rank n : world_sizes()) {
      for (const std::size_t slot : {1, 5, 64}) {
        const Tensor inputs = make_synthetic("adversarial:seed=3", dtype, n, slot * n);
        Tensor exchanged = make_tensor(dtype, inputs.shape);
        const std::size_t bytes = slot * size_of(dtype);
        for (Rank to = 0; to < n; ++to) {
          for (Rank from = 0; from < n; ++from) {
            std::ranges::copy(inputs.rank_bytes(from).subspan(to * bytes, bytes),
                              exchanged.rank_bytes(to).subspan(from * bytes).begin());
          }
        }
        for (const Variant& variant : slot_variants(n)) {
          ASSERT_EQ(run(variant, *plain, inputs).data,
                    combines(variant) ? inputs.data : exchanged.data)
              << label(variant) << ", " << n << " ranks, slots of " << slot;
        }
      }
    }
  }
}

void expect_slots_as_if_alone(const std::string& codec_name, DType dtype, Rank n,
                              std::size_t slot) {
  const CodecPtr codec = find_codec(codec_name);
  const Tensor inputs = make_synthetic("adversarial:seed=4", dtype, n, slot * n);
  for (const Variant& variant : slot_variants(n)) {
    if (n == 64 && (own_exact(variant) || combines(variant))) continue;  // 4096 slots take seconds
    ASSERT_EQ(run(variant, *codec, inputs).data, expected_outputs(variant, *codec, inputs).data)
        << codec_name << ", " << label(variant) << ", " << n << " ranks, slots of " << slot;
  }
}

// Less than an atom; atoms and a tail, so that most slots start inside an atom of the tensor.
TEST(AllToAllBits, EverySlotIsEncodedAsItWouldBeAlone) {
  for (const char* codec : {"qr-q3", "qr-q4", "qr-q6", "qr-q8", "qr-fp8", "qr-fp4"}) {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      for (const std::size_t slot : {1, 37, 2048, 2 * 2048 + 77}) {
        expect_slots_as_if_alone(codec, dtype, 3, slot);
      }
    }
  }
}

TEST(AllToAllBits, EverySlotIsEncodedAsItWouldBeAloneForEveryWorldSize) {
  for (const Rank n : world_sizes()) {
    if (n > 5 && ARLAB_SHORT_TESTS) continue;
    expect_slots_as_if_alone("qr-q4", DType::fp16, n, 37);
  }
}

TEST(AllToAllBits, ThreadsAndTilesChangeNothing) {
  const CodecPtr codec = find_codec("qr-q4");
  const Tensor inputs = make_synthetic("adversarial:seed=5", DType::fp16, 3, 3 * (2048 * 3 + 7));
  for (const Variant& variant : slot_variants(3)) {
    const Tensor expected = expected_outputs(variant, *codec, inputs);
    for (const unsigned threads : {1u, 2u, 8u}) {
      for (const std::size_t tile : {std::size_t{1}, std::size_t{5000}, SIZE_MAX}) {
        ASSERT_EQ(run(variant, *codec, inputs, {.threads = threads, .tile_elements = tile}).data,
                  expected.data)
            << label(variant) << ", " << threads << " threads, tiles of " << tile;
      }
    }
  }
}

// The message of such a codec is the slot: never cut, and never the whole tensor.
TEST(AllToAllBits, ACodecOfWholeMessagesGetsWholeSlots) {
  const MessageScaleCodec codec(kWholeTensor, false);
  const Tensor inputs = make_synthetic("gaussian:seed=6", DType::fp32, 3, 3 * 101);
  for (const Variant& variant : slot_variants(3)) {
    const Tensor outputs = run(variant, codec, inputs, {.tile_elements = 1});
    const std::vector<std::size_t> sizes = codec.take_message_sizes();
    EXPECT_TRUE(std::ranges::all_of(sizes, [](std::size_t size) { return size == 101; }));
    EXPECT_EQ(outputs.data, expected_outputs(variant, codec, inputs).data) << label(variant);
    (void)codec.take_message_sizes();
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
  const Tensor expected = expected_outputs({"all_to_all", {}}, *codec, inputs);
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
  try {
    run(schedule, *find_codec("qr-q4"), inputs);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(),
                 "schedule 'in_pieces': chunk 0, elements [0, 1504), cuts a block of codec qr-q4: "
                 "boundaries must be multiples of 2048 within one slot of 3000 elements");
  }
}

// ---------------------------------------------------------------- requests that are refused

std::string refusal(const ScheduleRequest& request, const char* algorithm = "all_to_all") {
  try {
    make_schedule(algorithm, request);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AllToAll, RefusesElementsThatDoNotMakeEqualSlots) {
  EXPECT_EQ(refusal({.world_size = 3, .elements = 100}),
            "all_to_all: 100 elements per rank do not make 3 equal slots: allowed are multiples of "
            "3");
  EXPECT_EQ(refusal({.world_size = 3, .elements = 2}),
            "all_to_all: 2 elements per rank do not make 3 equal slots: allowed are multiples of "
            "3");
  EXPECT_EQ(refusal({.world_size = 3, .elements = 3}), "accepted");
}

TEST(AllToAll, RefusesOptionsThatAreNotItsOwn) {
  ScheduleRequest request{.world_size = 4, .elements = 8};
  request.options.set("forward", "unchanged");
  EXPECT_EQ(refusal(request),
            "algorithm all_to_all has no option forward: it has own, combine, inner-codec");
  request.options = {{"micro_chunks", 2}};
  EXPECT_EQ(refusal(request),
            "algorithm all_to_all has no option micro-chunks: it has own, combine, inner-codec");
  request.options = {{"combine", "none"}};
  EXPECT_EQ(refusal(request, "two_shot"), "algorithm two_shot has no option combine: it has own");
  request.options = {{"group_size", 2}};
  EXPECT_EQ(refusal(request), "accepted");  // it also defines volume classes
}

// ---------------------------------------------------------------- what the checker must see

constexpr Rank kRanks = 4;
constexpr std::uint64_t kSlot = 37;

template <class Body>
void for_each_schedule(Body&& body) {
  for (const Variant& variant : slot_variants(kRanks)) {
    SCOPED_TRACE(label(variant));
    const Schedule schedule = schedule_of(variant, kRanks, kRanks * kSlot, 32);
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

std::string elements_of(std::uint64_t begin, std::uint64_t end) {
  return fmt::format("elements [{}, {})", begin, end);
}

/// The rank whose input a value holds.
Rank origin_of(const Schedule& s, Rank rank, ValueId value) {
  while (value != kOwnInput) {
    rank = s.ops[value].rank;
    value = s.ops[value].source;
  }
  return rank;
}

/// The first result, by rank and element, that is not what belongs there; its first element tells.
std::string first_wrong_result(const Schedule& s) {
  std::vector<Output> outputs = s.outputs;
  std::ranges::stable_sort(outputs, {},
                           [](const Output& o) { return std::tuple(o.rank, o.begin); });
  for (const Output& output : outputs) {
    const std::uint64_t size = s.chunks[output.chunk].size();
    const std::uint64_t held = s.chunks[output.chunk].begin;
    const Rank holder = origin_of(s, output.rank, output.value);
    Rank right_rank = output.rank;
    std::uint64_t right = output.begin;
    if (s.collective == Collective::all_to_all) {
      right_rank = static_cast<Rank>(output.begin / kSlot);
      right = output.begin - right_rank * kSlot + output.rank * kSlot;
    }
    if (holder == right_rank && held == right) continue;
    return fmt::format("rank {}, {}: the result is {} of rank {}, not {} of rank {}", output.rank,
                       elements_of(output.begin, output.begin + size),
                       elements_of(held, held + size), holder, elements_of(right, right + size),
                       right_rank);
  }
  return "all results are right";
}

TEST(AllToAllMutants, TwoSlotsAreSwapped) {
  for_each_schedule([](const Schedule& schedule) {
    for (std::size_t a = 0; a < schedule.outputs.size(); ++a) {
      for (std::size_t b = a + 1; b < schedule.outputs.size(); ++b) {
        if (schedule.outputs[a].rank != schedule.outputs[b].rank) continue;
        Schedule broken = schedule;
        std::swap(broken.outputs[a].begin, broken.outputs[b].begin);
        const std::string violation = check(broken).violation;
        EXPECT_EQ(violation, first_wrong_result(broken));
        EXPECT_TRUE(violation.starts_with(fmt::format("rank {}, ", broken.outputs[a].rank)));
      }
    }
  });
}

TEST(AllToAllMutants, ASlotIsMissing) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    Schedule broken = schedule;
    broken.outputs.erase(broken.outputs.begin() + static_cast<std::ptrdiff_t>(output));
    const Output& lost = schedule.outputs[output];
    EXPECT_EQ(check(broken).violation,
              fmt::format("rank {}: element {} is never output", lost.rank, lost.begin));
  });
}

TEST(AllToAllMutants, ASlotComesTwice) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    Schedule broken = schedule;
    const Output twice = schedule.outputs[output];
    broken.outputs.push_back(twice);
    EXPECT_EQ(check(broken).violation,
              fmt::format("rank {}: element {} is output twice", twice.rank, twice.begin));
  });
}

TEST(AllToAllMutants, ASlotStandsAtAWrongOffset) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& right = schedule.outputs[output];
    const Chunk& chunk = schedule.chunks[right.chunk];
    const auto beyond = [&](std::uint64_t begin) {
      return fmt::format(
          "output {} of rank {}: {} would start at element {} and end beyond the {} elements",
          output, right.rank, elements_of(chunk.begin, chunk.end), begin, kRanks * kSlot);
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

TEST(AllToAllMutants, TheOwnInputStandsInForWhatShouldArrive) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    if (schedule.collective != Collective::all_to_all) return;
    const Output& right = schedule.outputs[output];
    if (right.begin / kSlot == right.rank) return;  // then it is what belongs there
    Schedule broken = schedule;
    broken.outputs[output].value = kOwnInput;
    EXPECT_EQ(check(broken).violation, first_wrong_result(broken));
    EXPECT_NE(first_wrong_result(broken), "all results are right");
  });
}

/// Rank `from` sends slot `wrong` to the rank that slot `right` is for.
TEST(AllToAllMutants, AWrongSlotIsSent) {
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
    EXPECT_NE(first_wrong_result(broken), "all results are right");
  }
}

TEST(AllToAllMutants, AContributionIsAdded) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& right = schedule.outputs[output];
    for (const std::vector<ValueId>& addends :
         {std::vector<ValueId>{right.value, kOwnInput}, std::vector<ValueId>{right.value}}) {
      Schedule broken = schedule;
      Op sum{.kind = OpKind::reduce,
             .step = 9,
             .rank = right.rank,
             .chunk = right.chunk,
             .first_addend = 0,
             .addend_count = static_cast<std::uint32_t>(addends.size())};
      broken.addends = addends;
      broken.outputs[output].value = static_cast<ValueId>(broken.ops.size());
      broken.ops.push_back(sum);
      EXPECT_EQ(
          check(broken).violation,
          fmt::format("op {} (reduce on rank {}, chunk {}): {} moves values and adds none",
                      broken.ops.size() - 1, right.rank, right.chunk,
                      schedule.collective == Collective::all_to_all ? "an all-to-all"
                                                                    : "a dispatch and combine"));
    }
  });
}

TEST(AllToAllMutants, ASlotComesBackAsItWasSent) {
  for (const std::string own : {"encoded", "exact"}) {
    const Schedule schedule = schedule_of({"all_to_all", {{"own", own}, {"combine", "quantized"}}},
                                          kRanks, kRanks * kSlot, 32);
    std::size_t mutants = 0;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const Op& op = schedule.ops[i];
      if (op.kind != OpKind::send || op.step != 1) continue;
      Schedule broken = schedule;
      broken.ops[i].source = schedule.ops[op.source].source;  // what arrived
      EXPECT_EQ(check(broken).violation,
                fmt::format("rank {}, {}: the result was not encoded again on rank {}, which its "
                            "slot is for",
                            op.peer, elements_of(op.rank * kSlot, (op.rank + 1) * kSlot), op.rank));
      ++mutants;
    }
    EXPECT_EQ(mutants, kRanks * (kRanks - 1));
  }
}

TEST(AllToAllMutants, NothingTravelsAtAll) {
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

TEST(AllToAllMutants, AnotherRankEncodesAgain) {
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

TEST(AllToAllMutants, AChunkReachesAcrossSlotsOrCutsABlock) {
  for_each_schedule([](const Schedule& schedule) {
    const auto violation = [&](std::size_t chunk, Chunk range) {
      Schedule broken = schedule;
      broken.chunks[chunk] = range;
      return check(broken).violation;
    };
    const auto words = [](std::size_t chunk, Chunk range) {
      return fmt::format(
          "chunk {}: {} does not lie on multiples of the alignment 32 within one slot of 37 "
          "elements",
          chunk, elements_of(range.begin, range.end));
    };
    for (const Chunk& range : {Chunk{37, 111}, Chunk{32, 64}, Chunk{38, 74}, Chunk{37, 73}}) {
      EXPECT_EQ(violation(1, range), words(1, range));
    }
  });
}

TEST(AllToAllMutants, SlotsAreNotEqualOrOfNoKnownCollective) {
  for_each_schedule([](const Schedule& schedule) {
    Schedule broken = schedule;
    broken.elements += 1;
    EXPECT_EQ(check(broken).violation, "149 elements per rank do not make 4 equal slots");
    broken.elements = 3;
    EXPECT_EQ(check(broken).violation, "3 elements per rank do not make 4 equal slots");
    broken = schedule;
    broken.collective = static_cast<Collective>(std::size(kCollectives));
    EXPECT_EQ(check(broken).violation, "unknown collective");
  });
}

// Every schedule is wrong for every collective but its own; with one rank there is little to tell.
TEST(AllToAllMutants, TheScheduleIsOfAnotherCollective) {
  for_each_schedule([](const Schedule& schedule) {
    for (const Collective other : kCollectives) {
      Schedule broken = schedule;
      broken.collective = other;
      EXPECT_EQ(check(broken).correct, other == schedule.collective) << name_of(other);
    }
  });
  try {
    Schedule broken = schedule_of({"all_to_all", {}}, 2, 4, 1);
    broken.outputs.clear();
    require_correct(broken);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(),
                 "schedule 'all_to_all' is not an all-to-all: rank 0: element 0 is never output");
  }
}

// What the checker proves is the result, not the way: everything through rank 0 is correct too.
TEST(AllToAll, AnyWayThatEndsRightIsCorrect) {
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
