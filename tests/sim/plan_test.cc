// Plans of schedules by hand: stages, messages and who waits for whom.

#include "sim/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_builder.h"
#include "sim/simulator.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

Schedule written(const char* algorithm, Rank ranks, std::uint64_t elements = 400,
                 AlgorithmOptions options = {}) {
  return make_schedule(algorithm, {.world_size = ranks, .elements = elements, .options = options});
}

/// Stages of a rank: step: encoded/decoded/added, whom it sends how much, what it waits for.
/// "1: e10 d40 a40 ->1:10 ->2:10 <0.1 <0.2" waits for messages of step 0 from ranks 1 and 2.
std::vector<std::string> stages_of(const Plan& plan, Rank rank) {
  std::vector<std::string> lines;
  for (StageId id = 0; id < plan.stages.size(); ++id) {
    const Stage& stage = plan.stages[id];
    if (stage.rank != rank) continue;
    std::string line =
        fmt::format("{}: e{} d{} a{}", stage.step, stage.encoded, stage.decoded, stage.added);
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      const PlannedMessage& message = plan.messages[stage.first_message + i];
      EXPECT_EQ(message.from, rank);
      EXPECT_EQ(message.stage, id);
      line += fmt::format(" ->{}:{}", message.to, message.elements);
      if (message.output_elements > 0) line += fmt::format("({})", message.output_elements);
    }
    std::vector<std::string> waits;
    for (const PlannedMessage& message : plan.messages) {
      for (std::uint32_t i = 0; i < message.consumers; ++i) {
        if (plan.consumers[message.first_consumer + i] != id) continue;
        EXPECT_TRUE(plan.folded() || message.to == rank);
        const Rank from = plan.folded() ? plan.world_size - message.to : message.from;
        waits.push_back(fmt::format(" <{}.{}", plan.stages[message.stage].step, from));
      }
    }
    for (const Stage& other : plan.stages) {
      for (std::uint32_t i = 0; i < other.dependents; ++i) {
        if (plan.dependents[other.first_dependent + i] != id) continue;
        EXPECT_EQ(other.rank, rank);
        waits.push_back(fmt::format(" <{}", other.step));
      }
    }
    EXPECT_EQ(waits.size(), stage.awaited);
    std::sort(waits.begin(), waits.end());
    for (const std::string& wait : waits) line += wait;
    if (stage.extra_flags > 0) line += fmt::format(" +{}", stage.extra_flags);
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

Plan plan_by(const Schedule& schedule) { return plan_of(schedule, *one_byte(), DType::fp16); }

TEST(Plan, OfTwoShot) {
  const Plan plan = plan_by(written("two_shot", 4));
  EXPECT_EQ(plan.stages.size(), 8u);
  EXPECT_EQ(plan.messages.size(), 24u);
  EXPECT_EQ(stages_of(plan, 0),
            (Lines{"0: e400 d0 a0 ->1:100 ->2:100 ->3:100",
                   "1: e100 d800 a400 ->1:100 ->2:100 ->3:100 <0 <0.1 <0.2 <0.3"}));
  // Upwards from the rank itself, so that no rank is everybody's first.
  EXPECT_EQ(stages_of(plan, 2)[0], "0: e400 d0 a0 ->3:100 ->0:100 ->1:100");
  EXPECT_EQ(plan.algorithm, "two_shot");
  EXPECT_EQ(plan.world_size, 4u);
  EXPECT_EQ(plan.elements, 400u);
  EXPECT_EQ(plan.codec, "counted");
  EXPECT_EQ(plan.cost.encode_ops_per_element, 3);
  EXPECT_EQ(plan.ranks_per_rank, 1u);
  EXPECT_FALSE(plan.folded());
}

/// Stages load what is in memory, without what comes last.
TEST(Plan, KnowsWhatIsLoaded) {
  const Plan two_shot = plan_by(written("two_shot", 4));
  const Stage& contribute = two_shot.stages[0];
  EXPECT_EQ(contribute.loaded, 400u);
  EXPECT_EQ(contribute.received, 0u);
  EXPECT_EQ(contribute.gathered, 0u);
  const Stage& reduce = two_shot.stages[4];
  EXPECT_EQ(reduce.loaded, 400u);
  EXPECT_EQ(reduce.received, 400u);  // not its own sum, which it decodes, too
  EXPECT_EQ(reduce.gathered, 300u);

  const Plan one_shot = plan_by(written("one_shot", 3));
  const Stage& sum = one_shot.stages[3];
  EXPECT_EQ(sum.loaded, 1200u);
  EXPECT_EQ(sum.received, 1200u);
  EXPECT_EQ(sum.gathered, 0u);

  // The chunk that comes in step 2 is passed on, so it does not come last.
  const Plan ring = plan_by(written("ring", 3, 300));
  const auto of_step = [&ring](std::uint32_t step) {
    return *std::find_if(ring.stages.begin(), ring.stages.end(), [step](const Stage& stage) {
      return stage.rank == 0 && stage.step == step;
    });
  };
  EXPECT_EQ(of_step(1).loaded, 200u);  // the arrived sum, and its own input
  EXPECT_EQ(of_step(2).gathered, 0u);
  EXPECT_EQ(of_step(2).received, 200u);
  EXPECT_EQ(of_step(3).gathered, 100u);
}

/// Own contribution exact: 100 elements less to encode and decode.
TEST(Plan, OfTwoShotOwnExact) {
  const Plan plan = plan_by(written("two_shot", 4, 400, {{"own", "exact"}}));
  EXPECT_EQ(stages_of(plan, 0),
            (Lines{"0: e300 d0 a0 ->1:100 ->2:100 ->3:100",
                   "1: e100 d700 a400 ->1:100 ->2:100 ->3:100 <0.1 <0.2 <0.3"}));
}

TEST(Plan, OfOneShot) {
  EXPECT_EQ(stages_of(plan_by(written("one_shot", 3)), 1),
            (Lines{"0: e400 d0 a0 ->2:400 ->0:400", "1: e0 d1200 a800 <0 <0.0 <0.2"}));
}

TEST(Plan, OfRing) {
  EXPECT_EQ(stages_of(plan_by(written("ring", 3, 300)), 0),
            (Lines{"0: e100 d0 a0 ->1:100", "1: e100 d100 a100 ->1:100 <0.2",
                   // adds the last, encodes, gets one chunk and decodes it and its own
                   "2: e100 d300 a100 ->1:100 <1.2", "3: e0 d100 a0 ->1:100 <2.2"}));
}

TEST(Plan, OfHierarchical) {
  EXPECT_EQ(stages_of(plan_by(written("hierarchical", 4, 400, {{"group_size", 2}})), 0),
            (Lines{"0: e400 d0 a0 ->1:200", "1: e200 d400 a400 ->2:200 <0 <0.1",
                   "2: e200 d800 a400 ->1:200 <1 <1.2"}));
}

/// Two micro-chunks: in step 1 the first goes across while the second is still collected.
TEST(Plan, OfHierarchicalPipelined) {
  const Plan plan =
      plan_by(written("hierarchical_pipelined", 4, 400, {{"group_size", 2}, {"micro_chunks", 2}}));
  EXPECT_EQ(
      stages_of(plan, 0),
      (Lines{"0: e200 d0 a0 ->1:100", "1: e200 d0 a0 ->1:100", "1: e100 d200 a200 ->2:100 <0 <0.1",
             // the second goes across
             "2: e100 d200 a200 ->2:100 <1 <1.1",
             // the first is spread; the chunk of the other in the group comes, too
             "2: e100 d400 a200 ->1:100 <1 <1.2", "3: e100 d400 a200 ->1:100 <2 <2.2"}));
}

/// 3 ranks: rank 2 folds into rank 0 and gets the result last.
TEST(Plan, OfHalvingDoubling) {
  const Plan plan = plan_by(written("halving_doubling", 3, 400));
  EXPECT_EQ(stages_of(plan, 2), (Lines{"0: e400 d0 a0 ->0:400"}));
  EXPECT_EQ(stages_of(plan, 0),
            (Lines{"1: e200 d400 a400 ->1:200 <0.2 +1",
                   // adds what came, decodes the half that comes back and its own
                   "2: e200 d600 a200 ->1:200 <1 <1.1", "3: e0 d0 a0 ->2:400(400) <2 <2.1"}));
}

TEST(Plan, OfAllToAll) {
  EXPECT_EQ(stages_of(plan_by(written("all_to_all", 3, 300)), 0),
            (Lines{"0: e300 d300 a0 ->1:100 ->2:100"}));
  // Back again: what came from each is decoded, encoded and returned as it comes.
  EXPECT_EQ(stages_of(plan_by(written("all_to_all", 3, 300, {{"combine", "quantized"}})), 0),
            (Lines{"0: e300 d0 a0 ->1:100 ->2:100", "1: e100 d200 a0 <0",
                   "1: e100 d200 a0 ->1:100 <0.1", "1: e100 d200 a0 ->2:100 <0.2"}));
}

/// A rank that only receives decodes the messages, and waits for no flag of its own.
TEST(Plan, OfAnOutputAtARankWithoutAStage) {
  ScheduleBuilder s("broadcast", {.world_size = 3, .elements = 400});
  const ChunkId chunk = s.add_chunk({0, 400});
  s.at_step(0);
  const Value value = s.encode(s.input(0, chunk));
  for (Rank rank = 0; rank < 3; ++rank) s.output(s.send(value, rank));
  EXPECT_EQ(stages_of(plan_by(s.finish()), 0),
            (Lines{"0: e400 d400 a0 ->1:400(400) ->2:400(400)"}));
}

// ---------------------------------------------------------------- bytes

TEST(Plan, KeepsAllBytes) {
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const char* name : {"fp16", "qr-q4", "int5-g128"}) {
      for (const Rank ranks : {1, 2, 5, 8, 12}) {
        SCOPED_TRACE(fmt::format("{} {} {}", algorithm.name, name, ranks));
        const CodecPtr codec = find_codec(name);
        const Schedule schedule =
            make_schedule(algorithm.name, {.world_size = ranks,
                                           .elements = 12'345ull * ranks,
                                           .alignment = codec->info().alignment});
        const Plan plan = plan_of(schedule, *codec, DType::fp16);
        const WireVolume volume = wire_volume(schedule, *codec, DType::fp16);
        std::uint64_t bytes = 0;
        std::uint64_t elements = 0;
        std::set<std::tuple<std::uint32_t, Rank, Rank>> seen;
        for (const PlannedMessage& message : plan.messages) {
          bytes += message.bytes;
          elements += message.elements;
          const Stage& stage = plan.stages[message.stage];
          EXPECT_TRUE(seen.emplace(stage.step, message.from, message.to).second);
          EXPECT_EQ(stage.rank, message.from);
          // Nothing is used before it has arrived.
          for (std::uint32_t i = 0; i < message.consumers; ++i) {
            const Stage& consumer = plan.stages[plan.consumers[message.first_consumer + i]];
            EXPECT_GT(consumer.step, stage.step);
            EXPECT_EQ(consumer.rank, message.to);
          }
        }
        EXPECT_EQ(bytes, volume.bytes);
        EXPECT_EQ(elements, volume.elements);
        EXPECT_EQ(plan.messages.size(), volume_of(schedule, 1).messages);
      }
    }
  }
}

/// All elements that the schedule encodes, decodes and adds, wherever the plan puts them.
TEST(Plan, KeepsAllWork) {
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const Rank ranks : {1, 2, 3, 6, 8}) {
      SCOPED_TRACE(fmt::format("{} {}", algorithm.name, ranks));
      const Schedule s = written(algorithm.name.c_str(), ranks, 1200);
      std::uint64_t encoded = 0;
      std::uint64_t decoded = 0;
      std::uint64_t added = 0;
      const auto is_encoded = [&s](ValueId id) {
        return id != kOwnInput && s.ops[id].kind != OpKind::reduce;
      };
      for (const Op& op : s.ops) {
        const std::uint64_t elements = s.chunks[op.chunk].size();
        if (op.kind == OpKind::encode) encoded += elements;
        if (op.kind == OpKind::reduce) {
          added += elements * (op.addend_count - (op.start == Start::first ? 1 : 0));
        }
        if (op.kind == OpKind::send) continue;
        for (const ValueId operand : s.operands(op)) decoded += is_encoded(operand) ? elements : 0;
      }
      for (const Output& output : s.outputs) {
        decoded += is_encoded(output.value) ? s.chunks[output.chunk].size() : 0;
      }
      const Plan plan = plan_by(s);
      for (const Stage& stage : plan.stages) {
        encoded -= stage.encoded;
        decoded -= stage.decoded;
        added -= stage.added;
      }
      for (const PlannedMessage& message : plan.messages) decoded -= message.output_elements;
      EXPECT_EQ(encoded, 0u);
      EXPECT_EQ(decoded, 0u);
      EXPECT_EQ(added, 0u);
    }
  }
}

// ---------------------------------------------------------------- folded

TEST(FoldedPlan, IsWhatRank0Does) {
  const auto folded = [](const char* algorithm, AlgorithmOptions options = {}) {
    const Rank shifts[] = {4};
    return folded_plan_of(find_algorithm(algorithm),
                          {.world_size = 4, .elements = 400, .options = options}, *one_byte(),
                          DType::fp16, shifts, true);
  };
  for (const char* algorithm : {"two_shot", "one_shot", "ring", "all_to_all"}) {
    SCOPED_TRACE(algorithm);
    const auto plan = folded(algorithm);
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(plan->folded());
    EXPECT_EQ(plan->ranks_per_rank, 4u);
    EXPECT_EQ(stages_of(*plan, 0), stages_of(plan_by(written(algorithm, 4)), 0));
  }
  EXPECT_FALSE(folded("halving_doubling").has_value());
}

// ---------------------------------------------------------------- order

/// Outputs at a rank without a stage are decoded one after the other; which first must not hang on
/// the order of ops. On a ring of 5 they come from different distances.
TEST(Plan, DoesNotDependOnTheOrderOfOps) {
  const auto outputs_from = [](std::vector<Rank> senders) {
    ScheduleBuilder s("gather", {.world_size = 5, .elements = 400});
    const ChunkId chunk = s.add_chunk({0, 400});
    s.at_step(0);
    for (const Rank rank : senders) s.output(s.send(s.encode(s.input(rank, chunk)), 0));
    return simulate({s.finish(), *one_byte(), DType::fp16, machine(TopologyKind::ring, 5)});
  };
  const SimulationResult expected = outputs_from({1, 2, 3, 4});
  EXPECT_EQ(outputs_from({4, 3, 2, 1}), expected);
  EXPECT_EQ(outputs_from({2, 4, 1, 3}), expected);
}

// ---------------------------------------------------------------- malformed schedules

std::string refusal(const Schedule& s) {
  return message_of([&] { plan_by(s); });
}

TEST(Plan, RefusesSchedulesThatReferToNothing) {
  const Schedule good = written("two_shot", 4);
  const auto first = [](Schedule& s, OpKind kind) -> Op& {
    return *std::find_if(s.ops.begin(), s.ops.end(),
                         [kind](const Op& o) { return o.kind == kind; });
  };
  const auto last = [](Schedule& s, OpKind kind) -> Op& {
    return *std::find_if(s.ops.rbegin(), s.ops.rend(),
                         [kind](const Op& o) { return o.kind == kind; });
  };
  using Spoil = std::function<void(Schedule&)>;
  const std::pair<const char*, Spoil> cases[] = {
      {"no ranks or no elements", [](Schedule& s) { s.world_size = 0; }},
      {"no ranks or no elements", [](Schedule& s) { s.elements = 0; }},
      {"chunk 1", [](Schedule& s) { s.chunks[1].end = s.chunks[1].begin; }},
      {"chunk 3", [](Schedule& s) { s.chunks[3].end += 1; }},
      {"rank or chunk that does not exist: op 3", [](Schedule& s) { s.ops[3].rank = 4; }},
      {"rank or chunk that does not exist: op 3", [](Schedule& s) { s.ops[3].chunk = 4; }},
      {"not in the order of steps: op 1", [](Schedule& s) { s.ops[0].step = 1; }},
      {"peer: op", [&](Schedule& s) { first(s, OpKind::send).peer = 4; }},
      {"peer: op",
       [&](Schedule& s) {
         Op& op = first(s, OpKind::send);
         op.peer = op.rank;
       }},
      {"does not exist yet: op", [&](Schedule& s) { first(s, OpKind::send).source = 4000; }},
      {"does not exist yet: op", [&](Schedule& s) { first(s, OpKind::encode).source = 4000; }},
      {"does not exist yet: op 0", [](Schedule& s) { s.ops[0].source = 0; }},
      {"does not exist yet: op 0", [](Schedule& s) { s.ops[0].source = 1; }},
      {"addends", [&](Schedule& s) { first(s, OpKind::reduce).addend_count = 0; }},
      {"addends", [&](Schedule& s) { first(s, OpKind::reduce).addend_count = 4000; }},
      {"addends", [&](Schedule& s) { first(s, OpKind::reduce).first_addend = UINT32_MAX; }},
      {"does not exist yet: op", [](Schedule& s) { s.addends[2] = 4000; }},
      {"value of another rank: op",
       [&](Schedule& s) {
         Op& op = first(s, OpKind::reduce);
         op.rank = (op.rank + 1) % 4;
       }},
      {"value of another rank: op",
       [&](Schedule& s) {
         Op& op = last(s, OpKind::send);
         op.rank = (op.rank + 1) % 4 == op.peer ? (op.rank + 2) % 4 : (op.rank + 1) % 4;
       }},
      {"sent in its own step: op",
       [](Schedule& s) {
         for (Op& op : s.ops) op.step = 0;
       }},
      {"output 1", [](Schedule& s) { s.outputs[1].rank = 4; }},
      {"output 1", [](Schedule& s) { s.outputs[1].chunk = 4; }},
      {"output 1", [](Schedule& s) { s.outputs[1].value = 4000; }},
      {"value of another rank: output 1",
       [](Schedule& s) { s.outputs[1].rank = (s.outputs[1].rank + 1) % 4; }},
  };
  for (const auto& [expected, spoil] : cases) {
    Schedule bad = good;
    spoil(bad);
    const std::string message = refusal(bad);
    EXPECT_TRUE(message.starts_with("schedule 'two_shot': ")) << message;
    expect_contains(message, expected);
  }
  EXPECT_NO_THROW(plan_by(good));
}

TEST(Plan, RefusesChunksThatCutBlocks) {
  expect_contains(
      message_of([] { plan_of(written("two_shot", 4), CountedCodec(1, 64), DType::fp16); }),
      "multiples of 64");
  expect_contains(message_of([] { plan_of(written("two_shot", 4), CountedCodec(1), DType::bf16); }),
                  "bf16");
}

TEST(Plan, RefusesWhat64BitsDoNotCount) {
  Schedule much = written("one_shot", 2, kMaxElements);
  const Op send = *std::find_if(much.ops.begin(), much.ops.end(),
                                [](const Op& op) { return op.kind == OpKind::send; });
  much.ops.assign(much.ops.begin(), much.ops.begin() + 2);  // both encode
  much.outputs.clear();
  much.ops.insert(much.ops.end(), kMaxMessageBytes / kMaxElements, send);
  EXPECT_EQ(plan_by(much).messages.at(0).bytes, kMaxMessageBytes);
  much.ops.push_back(send);
  EXPECT_EQ(refusal(much),
            "schedule 'one_shot': rank 1 sends rank 0 more than 9007199254740992 "
            "bytes in step 0");
  much.ops.resize(1);
  much.ops.push_back({.kind = OpKind::reduce, .step = 1, .addend_count = (1 << 22) + 1});
  much.addends.assign((1 << 22) + 1, kOwnInput);
  EXPECT_EQ(refusal(much),
            "schedule 'one_shot': its ops work on more than 4611686018427387904 "
            "elements together, which is all that can be counted");
}

TEST(Plan, RefusesMoreElementsThanACodecCanCount) {
  // Larger than any algorithm writes: as if it came from elsewhere.
  Schedule huge = written("one_shot", 2, 1);
  huge.elements = huge.chunks.front().end = UINT64_MAX;
  expect_contains(refusal(huge), "too many");
}

}  // namespace
}  // namespace arlab
