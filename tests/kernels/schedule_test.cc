// Programs of all ranks, lowered from a schedule and interpreted one operation at a time, give the
// bits of the reference's executor.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <tuple>

#include "kernels/schedule/lower.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_builder.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/random_schedules.h"
#include "tests/collectives/toy_codecs.h"

namespace arlab::kernels {
namespace {

using testing::Random;
using testing::Variant;
using Bytes = std::vector<std::byte>;

/// Work of run_program.h, on whole chunks. The outputs may be the inputs.
class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const Codecs& codecs, DType dtype, Bytes& inputs,
              Bytes& outputs)
      : schedule_(schedule), codecs_(codecs), dtype_(dtype), inputs_(inputs), outputs_(outputs) {}

  void run(const Lowered& lowered) {
    slots_.clear();
    for (int phase = 0; phase < lowered.programs.front().phases; ++phase) {
      // Ranks that are ahead may have written to the slots of four exchanges before again.
      std::erase_if(slots_, [&](const auto& slot) { return std::get<0>(slot.first) + 4 <= phase; });
      for (Rank rank = 0; rank < schedule_.world_size; ++rank) {
        const Program& program = lowered.programs[rank];
        for (int i = program.first_step[phase]; i < program.first_step[phase + 1]; ++i) {
          ASSERT_EQ(i >= program.first_send[phase],
                    program.step[i].encodes || program.step[i].passes_on);
          if (program.step[i].copies_input && &inputs_ == &outputs_) continue;
          run_step(lowered, program, program.step[i], rank, phase);
        }
      }
    }
  }

 private:
  struct Wire {
    CodecRole codec;
    Bytes bytes;
  };

  /// The codec of the kernel that runs a step: that which encodes in the last phase where one begins.
  static CodecRole codec_of(const Lowered& lowered, int phase, bool is_send) {
    CodecRole codec = CodecRole::outer;
    for (std::size_t i = 0; i < lowered.encoding_phases.size(); ++i) {
      const int begin = lowered.encoding_phases[i];
      if (begin < phase || (begin == phase && is_send)) codec = lowered.codecs[i];
    }
    return codec;
  }

  std::span<std::byte> part(Bytes& tensor, Rank rank, const Chunk& chunk) const {
    const std::size_t size = size_of(dtype_);
    return std::span(tensor).subspan((rank * schedule_.elements + chunk.begin) * size,
                                     chunk.size() * size);
  }

  void run_step(const Lowered& lowered, const Program& program, const Step& step, Rank rank,
                int phase) {
    const Chunk& chunk = lowered.chunks[step.chunk];
    const CodecRole role = codecs_.differ()
                               ? codec_of(lowered, phase, step.encodes || step.passes_on)
                               : CodecRole::outer;
    const Codec& codec = codecs_.of(role);
    const auto wire_of = [&](const Operand& operand) -> const Bytes& {
      const auto found = slots_.find(
          {phase - 1 - static_cast<int>(operand.age()), operand.rank(), rank, operand.index()});
      if (found == slots_.end())
        throw std::logic_error("a wire is read that is not there any more");
      EXPECT_EQ(found->second.codec, role) << "a kernel reads what another codec has encoded";
      return found->second.bytes;
    };
    Bytes wire(codec.wire_bytes(dtype_, chunk.size()));
    Bytes sum(chunk.size() * size_of(dtype_));
    if (step.passes_on) {
      ASSERT_EQ(step.operands, 1);
      wire = wire_of(program.operand[step.first_operand]);
    }
    bool started = step.from_zero;
    for (int i = 0; i < step.operands && !step.passes_on; ++i) {
      const Operand& operand = program.operand[step.first_operand + i];
      Bytes x(sum.size());
      if (operand.source() == Operand::wire) {
        codec.decode(dtype_, wire_of(operand), x);
      } else {
        const bool is_input = operand.source() == Operand::input;
        const auto from = is_input ? part(inputs_, rank, chunk)
                                   : part(outputs_, rank, lowered.chunks[operand.index()]);
        std::copy(from.begin(), from.end(), x.begin());
      }
      if (started) {
        add_native(dtype_, codec.info().clamps_fp16_sums, sum, x);
      } else {
        sum = x;
      }
      started = true;
    }
    const auto place = part(outputs_, rank, lowered.chunks[step.place]);
    if (step.stores_sum) std::copy(sum.begin(), sum.end(), place.begin());
    if (step.encodes) codec.encode(dtype_, sum, wire);
    if (step.stores_decoded) codec.decode(dtype_, wire, place);
    for (Rank to = 0; to < schedule_.world_size; ++to) {
      const std::uint32_t number = step.to >> (4 * to) & 15;
      if (number == 15) continue;
      ASSERT_LT(static_cast<int>(number), lowered.wires);
      const bool is_new = slots_.insert({{phase, rank, to, number}, {role, wire}}).second;
      ASSERT_TRUE(is_new) << "two wires in one slot";
    }
  }

  const Schedule& schedule_;
  const Codecs codecs_;
  const DType dtype_;
  Bytes& inputs_;
  Bytes& outputs_;
  std::map<std::tuple<int, Rank, Rank, std::uint32_t>, Wire> slots_;  // exchange, from, to, number
};

Bytes bytes_of(const Tensor& tensor) { return {tensor.bytes().begin(), tensor.bytes().end()}; }

/// Whether the schedule can be lowered; if so, that the programs give the executor's bits.
bool expect_bits(const Schedule& schedule, const Codecs& codecs, DType dtype, Passes passes,
                 const std::string& what) {
  const Result<std::vector<Lowered>> lowered = lower(schedule, passes);
  if (!lowered.ok()) return false;
  const bool are_whole = std::ranges::all_of(lowered.value(), &Lowered::kernels_are_whole);
  if (codecs.differ() && !are_whole) return false;
  Bytes inputs = bytes_of(
      make_synthetic("gaussian:sigma=1,seed=7", dtype, schedule.world_size, schedule.elements));
  Bytes expected(inputs.size());
  execute(schedule, codecs, dtype, inputs, expected, {.threads = 1});
  Bytes outputs(inputs.size(), std::byte{0xDB});
  bool in_place = true;
  for (const Lowered& part : lowered.value()) {
    in_place = in_place && part.in_place;
    Interpreter(schedule, codecs, dtype, inputs, outputs).run(part);
    // Encoded values wait in memory, whole.
    if (passes == Passes::two) {
      for (const Program& program : part.programs) {
        for (int i = 0; i < program.first_step[program.phases]; ++i) {
          const Step& step = program.step[i];
          if (!step.encodes) continue;
          EXPECT_EQ(step.operands, 1) << what;
          EXPECT_FALSE(step.stores_decoded) << what;
          EXPECT_NE(program.operand[step.first_operand].source(), Operand::wire) << what;
        }
      }
    }
  }
  EXPECT_EQ(outputs, expected) << what;
  if (in_place) {
    for (const Lowered& part : lowered.value()) {
      Interpreter(schedule, codecs, dtype, inputs, inputs).run(part);
    }
    EXPECT_EQ(inputs, expected) << what << ", in place";
  }
  return true;
}

TEST(Lower, EveryAlgorithmWithEveryOptionGivesTheReferencesBits) {
  const CodecPtr one_pass = find_codec("int4-g32");
  const CodecPtr two_passes = find_codec("int8-gtensor");
  for (Rank ranks = 2; ranks <= 8; ++ranks) {
    std::vector<Variant> variants = testing::all_variants(ranks, {1, 3, 4});
    const std::vector<Variant> moving = testing::moving_variants(ranks);
    variants.insert(variants.end(), moving.begin(), moving.end());
    for (const Variant& variant : variants) {
      for (const std::uint64_t elements :
           {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{1033}}) {
        const bool slots = has_slots(find_algorithm(variant.algorithm).collective);
        const Schedule schedule =
            testing::schedule_of(variant, ranks, slots ? elements * ranks : elements, 32);
        const std::string what =
            fmt::format("{}, {} ranks, {} elements", label(variant), ranks, schedule.elements);
        EXPECT_TRUE(expect_bits(schedule, *one_pass, DType::fp16, Passes::one, what))
            << what << ": " << lower(schedule, Passes::one).status().message();
        EXPECT_TRUE(expect_bits(schedule, *two_passes, DType::bf16, Passes::two, what))
            << what << ": " << lower(schedule, Passes::two).status().message();
        for (const Passes passes : {Passes::one, Passes::two}) {
          const Result<std::vector<Lowered>> lowered = lower(schedule, passes);
          ASSERT_TRUE(lowered.ok());
          for (const Lowered& part : lowered.value()) {
            // Two passes: its sums of groups wait where inputs are copied to in the end.
            const bool waits =
                passes == Passes::two && variant.algorithm == "hierarchical_reduce_scatter";
            EXPECT_TRUE(part.in_place || waits) << what;
            EXPECT_TRUE(passes == Passes::one || part.kernels_are_whole) << what;
          }
        }
      }
    }
  }
}

TEST(Lower, RandomSchedulesThatTheCheckerProvedGiveTheReferencesBits) {
  const testing::FadingCodec codec;  // every encoding shows
  Random random(20261122);
  int lowered = 0;
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    const Schedule original = testing::random_schedule(random);
    for (int k = 0; k < 20; ++k) {
      Schedule schedule = original;
      testing::mutate(schedule, random);
      if (schedule.world_size < 2 || schedule.world_size > 8 || schedule.elements > 1000) continue;
      if (!check(schedule).correct) continue;
      for (const Passes passes : {Passes::one, Passes::two}) {
        const bool is_lowered =
            expect_bits(schedule, codec, DType::fp32, passes, fmt::format("schedule {}.{}", i, k));
        ++(is_lowered ? lowered : refused);
      }
    }
  }
  EXPECT_GT(lowered, 300);
  EXPECT_LT(refused, lowered / 20);
}

TEST(Lower, EveryAlgorithmWithTwoCodecsGivesTheReferencesBits) {
  const CodecPtr outer = find_codec("qr-q4");
  const CodecPtr inner = find_codec("int8-g32");
  for (Rank ranks = 2; ranks <= 8; ++ranks) {
    std::vector<Variant> variants = testing::all_variants(ranks, {1, 3, 4});
    variants.push_back({"all_to_all", {{"combine", "quantized"}}});
    std::ranges::copy(testing::variants_of({Collective::reduce_scatter}, ranks),
                      std::back_inserter(variants));
    for (Variant& variant : variants) {
      if (!variant.algorithm.starts_with("hierarchical") && variant.algorithm != "all_to_all")
        continue;
      variant.options.set("inner_codec", inner->name());
      const Schedule schedule =
          testing::schedule_of(variant, ranks, 1033 * ranks, Codecs(*outer, *inner).alignment());
      for (const auto& [a, b] : {std::pair(outer, inner), std::pair(inner, outer)}) {
        EXPECT_TRUE(expect_bits(schedule, {*a, *b}, DType::fp16, Passes::two, label(variant)))
            << label(variant) << ": " << lower(schedule, Passes::two).status().message();
      }
    }
  }
}

TEST(Lower, RandomSchedulesWithTwoCodecsGiveTheReferencesBitsOrAreRefused) {
  const testing::FadingCodec outer;
  const testing::FadingCodec inner(1, "fading faster", 0.625F);
  Random random(20261123);
  int lowered = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    Schedule schedule = testing::random_schedule(random);
    if (schedule.world_size < 2 || schedule.elements > 1000) continue;
    // By step, mostly.
    const std::uint64_t of_steps = random.below(256);
    const bool strays = random.below(3) == 0;
    for (Op& op : schedule.ops) {
      const bool is_inner = (of_steps >> op.step % 8 & 1) != 0;
      const bool turned = strays && random.below(8) == 0;
      if (op.kind == OpKind::encode && is_inner != turned) op.codec = CodecRole::inner;
      if (op.kind == OpKind::send) op.codec = schedule.ops[op.source].codec;
    }
    ASSERT_TRUE(check(schedule).correct) << check(schedule).violation;
    const bool is_lowered = expect_bits(schedule, {outer, inner}, DType::fp32, Passes::two,
                                        fmt::format("schedule {}", i));
    ++(is_lowered ? lowered : refused);
  }
  EXPECT_GT(lowered, 500);
  EXPECT_GT(refused, 100);
}

/// Lowers a schedule that the checker proves: with one pass and with two.
void expect_lowered(const Schedule& schedule, const std::string& what) {
  const testing::FadingCodec codec;
  ASSERT_TRUE(check(schedule).correct) << check(schedule).violation;
  for (const Passes passes : {Passes::one, Passes::two}) {
    EXPECT_TRUE(expect_bits(schedule, codec, DType::fp32, passes, what));
  }
}

TEST(Lower, AWireThatIsReadLateIsKept) {
  for (std::uint32_t late = 2; late <= 10; ++late) {
    ScheduleBuilder s("late", {.world_size = 2, .elements = 64});
    const ChunkId waiting = s.add_chunk({0, 32});
    const ChunkId busy = s.add_chunk({32, 64});
    s.at_step(0);
    const Value contribution = s.send(s.encode(s.input(1, waiting)), 0);
    const Value ball = s.send(s.encode(s.input(0, busy)), 1);
    s.at_step(1);
    const Value sum = s.encode(s.reduce(std::array{s.input(1, busy), ball}, Start::first));
    s.output(sum);
    Value thrown = s.send(sum, 0);
    s.output(thrown);
    for (std::uint32_t step = 2; step < late; ++step) {
      s.at_step(step);
      thrown = s.send(thrown, 1 - thrown.rank);
    }
    s.at_step(late);
    const Value total =
        s.encode(s.reduce(std::array{s.input(0, waiting), contribution}, Start::first));
    s.output(total);
    s.output(s.send(total, 1));
    expect_lowered(s.finish(), fmt::format("step {}", late));
  }
}

TEST(Lower, NothingIsEncodedBeforeItIsThere) {
  ScheduleBuilder s("twice", {.world_size = 3, .elements = 32});
  const ChunkId chunk = s.add_chunk({0, 32});
  s.at_step(0);
  const Value first = s.send(s.encode(s.input(1, chunk)), 0);
  const Value second = s.send(s.encode(s.input(2, chunk)), 0);
  s.at_step(1);
  const Value part = s.encode(s.reduce(std::array{s.input(0, chunk), first}, Start::first));
  const Value total = s.encode(s.reduce(std::array{part, second}, Start::first));
  for (Rank rank = 0; rank < 3; ++rank) s.output(s.send(total, rank));
  expect_lowered(s.finish(), "a sum of a sum");
}

TEST(Lower, WhatARankLeavesAsItWasIsCopiedLastAndOnlyToAnotherTensor) {
  const Schedule schedule = make_schedule("reduce_scatter", {.world_size = 4, .elements = 64});
  for (const Passes passes : {Passes::one, Passes::two}) {
    const Result<std::vector<Lowered>> lowered = lower(schedule, passes);
    ASSERT_TRUE(lowered.ok()) << lowered.status().message();
    ASSERT_EQ(lowered.value().size(), 1U);
    for (const Program& program : lowered.value().front().programs) {
      int copies = 0;
      for (int i = 0; i < program.steps(); ++i) {
        if (!program.step[i].copies_input) continue;
        EXPECT_GE(i, program.first_step[program.phases - 1]);
        ++copies;
      }
      EXPECT_EQ(copies, 3);
      EXPECT_EQ(program.first_send[0], 0);  // nothing is stored ahead of what is encoded
    }
  }
}

TEST(Lower, SaysWhatDoesNotFit) {
  const auto message = [](Schedule schedule) {
    return lower(schedule, Passes::one).status().message();
  };
  Schedule nine = make_schedule("one_shot", {.world_size = 9, .elements = 64});
  EXPECT_EQ(message(nine), "kernels take up to 8 ranks, not 9");
}

}  // namespace
}  // namespace arlab::kernels
