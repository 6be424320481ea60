// Compares the simulator's view of kernels with their own device code: for every codec and dtype their abilities, and for many
// sizes and numbers of ranks the kernels that emulated H200s run.

#include "sim/device/kernel_choice.h"

#include <gtest/gtest.h>

#include "kernels/runtime/select.h"
#include "kernels/runtime/team_memory.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/device_facts/kernel_rules.h"
#include "sim/simulator.h"

namespace arlab {
namespace {

constexpr int kMultiprocessors = 132;

kernels::CodecTraits traits_of(const std::string& codec, DType dtype) {
  return kernels::traits_of(kernels::choose_codec(codec).value(), dtype);
}

/// Returns the kernels that run by the table.
OwnKernel by_table(const std::string& algorithm, const std::string& codec, DType dtype, int ranks,
                   const Schedule& schedule) {
  const kernels::BufferLayout layout = kernels::layout_of({}, ranks, kMultiprocessors);
  const kernels::CodecTraits traits = traits_of(codec, dtype);
  const bool measures = kernels::needs_statistics(kernels::choose_codec(codec).value());
  if (measures && !traits.is_tuned) return OwnKernel::flags;
  KernelCall call{.codec = traits, .ranks = ranks};
  call.has_sentinels = (algorithm == "one_shot" ? kernels::one_shot_sentinel_of(layout)
                                                : kernels::two_shot_sentinel_of(layout))
                           .count != 0;
  call.has_lamport = kernels::lamport_slots_of(layout).blocks != 0;
  call.all_tiles_whole = true;
  for (const Chunk& chunk : schedule.chunks) {
    call.tiles = std::max<std::size_t>(call.tiles, (chunk.size() + 2047) / 2048);
    call.all_tiles_whole = call.all_tiles_whole && chunk.size() % 2048 == 0;
  }
  call.blocks = static_cast<std::size_t>(
      std::min(layout.blocks, kMultiprocessors * traits.tuning.resident_blocks));
  call.lamport_blocks =
      static_cast<std::size_t>(std::min(layout.blocks, kMultiprocessors * traits.lamport_blocks));
  call.tile_bytes = (find_codec(codec)->wire_bytes(dtype, 2048) + 15) / 16 * 16;
  const KernelRule* rule = find_kernel_rule(algorithm, call);
  if (rule == nullptr) return OwnKernel::program;
  return rule->kernel.ends_with("_sentinel")  ? OwnKernel::sentinels
         : rule->kernel.ends_with("_lamport") ? OwnKernel::small
                                              : OwnKernel::flags;
}

std::vector<std::string> codecs() {
  std::vector<std::string> names = listed_codecs();
  names.insert(names.end(), {"int8-gtensor-static0.02:-2.5", "int4-gtensor-sym-static0.3"});
  return names;
}

/// Room for sentinels and for ends of tiles counts only where there are such kernels.
TEST(KernelChoice, KnowsOfCodecsWhatTheirDeviceCodeSays) {
  int tuned = 0;
  for (const std::string& name : codecs()) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      if (!find_codec(name)->takes(dtype)) continue;
      const kernels::CodecTraits code = traits_of(name, dtype);
      const CodecInKernels known = codec_in_kernels(name, dtype);
      const std::size_t bytes = kernel_tile_bytes(name, dtype);
      ASSERT_EQ(known.is_tuned, code.is_tuned) << name << " " << name_of(dtype);
      if (!known.is_tuned) continue;
      ++tuned;
      EXPECT_EQ(known.has_message_scale, code.has_message_scale) << name;
      EXPECT_EQ(known.lamport_blocks, code.lamport_blocks) << name;
      EXPECT_EQ(known.pads_tiles, code.pads_tiles) << name;
      EXPECT_EQ(known.one_shot_sentinel, code.one_shot_sentinel) << name;
      const auto fits = [&](const CodecInKernels& codec, bool has) {
        return has && bytes <= codec.most_sentinel_tile_bytes;
      };
      EXPECT_EQ(fits(known, known.one_shot_sentinel), fits(code, code.one_shot_sentinel)) << name;
      EXPECT_EQ(fits(known, known.two_shot_sentinel), fits(code, code.two_shot_sentinel)) << name;
    }
  }
  EXPECT_GT(tuned, 50);
}

TEST(KernelChoice, IsThatOfTheKernels) {
  const Topology h200 = find_topology("h200-8");
  std::map<OwnKernel, int> cases;
  for (const std::string& name : codecs()) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      if (!codec->takes(dtype)) continue;
      for (const std::string algorithm : {"one_shot", "two_shot", "ring"}) {
        for (const int ranks : {2, 3, 4, 5, 8}) {
          // Powers of two, one tile more, and what ends inside a tile.
          for (std::uint64_t base = 1 << 13; base <= 1 << 24; base *= 2) {
            for (const std::uint64_t elements : {base, base + 2048, base + 128}) {
              const ScheduleRequest request{.world_size = static_cast<Rank>(ranks),
                                            .elements = elements,
                                            .alignment = codec->info().alignment};
              const Schedule schedule = make_schedule(algorithm, request);
              const OwnKernel expected = by_table(algorithm, name, dtype, ranks, schedule);
              const Plan plan = plan_of(find_algorithm(algorithm), request, *codec, dtype, h200);
              ASSERT_EQ(own_kernel_of(h200.device, plan), expected)
                  << algorithm << " " << name << " " << name_of(dtype) << " of " << ranks
                  << " ranks, " << elements << " elements";
              ++cases[expected];
            }
          }
        }
      }
    }
  }
  EXPECT_GT(cases[OwnKernel::sentinels], 1000);
  EXPECT_GT(cases[OwnKernel::small], 1000);
  EXPECT_GT(cases[OwnKernel::flags], 1000);
}

/// A schedule with an algorithm's name is not the algorithm: a program of exchanges runs it.
TEST(KernelChoice, ASchedulesNameIsNotEnough) {
  const Topology h200 = find_topology("h200-4");
  const ScheduleRequest request{.world_size = 4, .elements = 1 << 20};
  Schedule ring = make_schedule("ring", request);
  ring.algorithm = "two_shot";
  EXPECT_EQ(own_kernel_of(h200.device, plan_of(ring, *find_codec("fp16"), DType::fp16)),
            OwnKernel::program);
}

}  // namespace
}  // namespace arlab
