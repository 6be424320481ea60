// The terms of the kernel model one by one, with numbers that can be checked on paper.

#include "sim/device/kernel_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/device_facts/two_passes.h"
#include "sim/simulator.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

/// 40000 operations per us. One message of a stage to every peer.
Plan plan_with(std::uint32_t peers, std::uint64_t elements_each, CodecCost cost,
               std::uint64_t bytes_each) {
  Plan plan;
  plan.world_size = peers + 1;
  plan.elements = elements_each * (peers + 1);
  plan.largest_chunk = elements_each;
  plan.codec = "counted";
  plan.cost = cost;
  Stage stage;
  stage.messages = peers;
  stage.encoded = elements_each * peers;
  plan.stages.push_back(stage);
  for (Rank peer = 1; peer <= peers; ++peer) {
    PlannedMessage message;
    message.to = peer;
    message.bytes = bytes_each;
    message.elements = elements_each;
    plan.messages.push_back(message);
  }
  return plan;
}

Stores stores() {
  return {.tile_bytes = assumed(10000),
          .resident_tiles = assumed(8),
          .release_us = assumed(0.5),
          .release_coalescing_tiles = assumed(4),
          .contention_codec = assumed(2),
          .contention_plain = assumed(3),
          .free_packets_codec = assumed(300),
          .free_packets_plain = assumed(400),
          .decorrelation_packets = assumed(100)};
}

Library library() { return library_of(4, 1000); }

TEST(KernelModel, CostsOfAStage) {
  const Device device = round_device();
  Plan plan = plan_with(3, 10000, {3, 2}, 10000);
  const auto model = make_kernel_model(device, plan);
  EXPECT_EQ(model->launch_us(), 5);
  Stage stage = plan.stages[0];
  StageCost cost = model->cost_of(stage);
  EXPECT_DOUBLE_EQ(cost.flags_us, 2 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(cost.first_tile_us, 0.25 * (5 + 7));
  EXPECT_DOUBLE_EQ(cost.work_us, 3 * 30000 / 40000.0);
  EXPECT_EQ(cost.release_us, 0);
  EXPECT_DOUBLE_EQ(cost.latency_us(), 3.5 + 3);

  stage.extra_flags = 2;
  stage.decoded = 20000;
  stage.added = 40000;
  cost = model->cost_of(stage);
  EXPECT_DOUBLE_EQ(cost.flags_us, 2 + 5 * 0.5);
  EXPECT_DOUBLE_EQ(cost.work_us, (3 * 30000 + 2 * 20000 + 40000) / 40000.0);

  // A stage that sends nothing is not entered anew, and polls flags only.
  stage.messages = 0;
  EXPECT_DOUBLE_EQ(model->cost_of(stage).flags_us, 2 * 0.5);
  // Sums alone take no first tile of a codec.
  stage.encoded = stage.decoded = 0;
  EXPECT_EQ(model->cost_of(stage).first_tile_us, 0);
  EXPECT_DOUBLE_EQ(model->cost_of(stage).work_us, 1);

  EXPECT_DOUBLE_EQ(model->output_us(20000), 1);
}

TEST(KernelModel, CodecsThatDoNothingTakeNoTile) {
  const Device device = round_device();
  const Plan plan = plan_with(1, 10000, {0, 0}, 20000);
  const auto model = make_kernel_model(device, plan);
  EXPECT_EQ(model->cost_of(plan.stages[0]).first_tile_us, 0);
  EXPECT_LT(model->cost_of(plan.stages[0]).work_us, 1e-4);  // memory alone
  EXPECT_LT(model->output_us(1000), 1e-5);
}

/// Reads 10000 elements of 2 bytes, reads 6000 from their wire and writes 500 of the output: at
/// 1 GB/s, 1000 bytes/us, longer than the codec takes.
TEST(KernelModel, MemoryBoundsTheWork) {
  Device device = round_device();
  device.hbm_gb_per_s.value = 1;
  Plan plan = plan_with(1, 10000, {3, 2}, 20000);
  plan.wire_bytes_per_element = 0.5;
  Stage stage = plan.stages[0];
  stage.encoded = 10000;
  stage.decoded = 6000;
  stage.added = 0;
  stage.written = 500;
  const auto model = make_kernel_model(device, plan);
  EXPECT_DOUBLE_EQ(model->cost_of(stage).work_us, 20 + 3 + 1);
  // Decoding into the output: 0.5 bytes read and 2 written.
  EXPECT_DOUBLE_EQ(model->output_us(1000), 2.5);
}

/// 3 messages of 10000 elements and as much that stays: 80000 bytes, 8 tiles.
TEST(KernelModel, CodecsOfTwoPassesMeasureFirst) {
  Device device = round_device();
  device.hbm_gb_per_s.value = 10;
  CodecCost cost{3, 2};
  const Plan one_pass = plan_with(1, 10000, cost, 10000);
  cost.scale_elements = kWholeTensor;
  Plan two_passes = plan_with(1, 10000, cost, 10000);
  ASSERT_EQ(two_passes.stages[0].encoded, 10000u);
  two_passes.stages[0].added = 0;
  const auto measure_us = [&](const Plan& plan) {
    return make_kernel_model(device, plan)->cost_of(plan.stages[0]).measure_us;
  };
  EXPECT_EQ(measure_us(one_pass), 0);
  // A kernel of 5 us that reads 20000 bytes at 10000 per us.
  EXPECT_DOUBLE_EQ(measure_us(two_passes), 5 + 2);
  const auto model = make_kernel_model(device, two_passes);
  StageCost with = model->cost_of(two_passes.stages[0]);
  StageCost without = with;
  without.measure_us = 0;
  EXPECT_DOUBLE_EQ(model->stage_time(with).total_us(), model->stage_time(without).total_us() + 7);
  const auto message_us = [&](const StageCost& stage) {
    return model->message_time(two_passes.stages[0], stage, two_passes.messages[0], 3, 10)
        .total_us();
  };
  EXPECT_DOUBLE_EQ(message_us(with), message_us(without) + 7);
  // A sum: another kernel, and it is written and read once more.
  two_passes.stages[0].added = 10000;
  EXPECT_DOUBLE_EQ(measure_us(two_passes), 2 * 5 + 3 * 2);
}

TEST(KernelModel, RowsOfATailTakeWhatMemoryAndOperationsTake) {
  Device device = round_device();
  device.hbm_gb_per_s = assumed(1000);
  device.tails = {.fused_us = assumed(2), .kernel_us = assumed(3), .efficiency = assumed(0.5)};
  const CodecPtr int8 = find_codec("int8-g64");
  const TailWork plain = tail_work(1'000'000, DType::bf16, true, nullptr);
  EXPECT_EQ(plain.bytes, 4e6) << "a residual is read, and one written";
  const TailWork narrow = tail_work(1'024'000, DType::bf16, false, int8.get());
  EXPECT_EQ(narrow.bytes, 1'024'000 * (68.0 / 64 - 2)) << "less is written than of the sum";
  EXPECT_EQ(narrow.ops, 1'024'000 * (8 + int8->info().cost.encode_ops_per_element));
  device.codec_gops_per_s = assumed(1e6);
  EXPECT_DOUBLE_EQ(fused_tail_us(device, DType::fp16, plain), 2 + 8) << "4e6 / 500e9";
  const double alone = std::pow(std::pow(3.0, 4) + std::pow(16.0, 4), 0.25);
  EXPECT_DOUBLE_EQ(separate_tail_us(device, DType::fp16, plain), alone) << "8e6 / 500e9";
  device.codec_gops_per_s = assumed(400);
  EXPECT_DOUBLE_EQ(fused_tail_us(device, DType::fp16, plain), 2 + 20) << "8e6 / 400e9";
}

/// h200_add_norm_2026-11-29.csv and h200_small_messages_2026-11-30.csv, for which the constants are; of qr-q4 fused tails take less.
TEST(KernelModel, TailsOfTheH200AreNearTheMeasuredOnes) {
  const Device device = find_topology("h200-8").device;
  const auto rows = [](std::uint64_t tokens) {
    return tail_work(tokens * 8192, DType::bf16, true, nullptr);
  };
  for (const auto& [tokens, us] :
       {std::pair(1, 2.70), {128, 2.96}, {2048, 37.04}, {8192, 135.37}}) {
    const double simulated =
        separate_tail_us(device, DType::bf16, rows(static_cast<std::uint64_t>(tokens)));
    EXPECT_NEAR(simulated / us, 1, 0.12) << tokens;
  }
  for (const auto& [tokens, us] : {std::pair(1, 2.10), {16, 2.45}, {64, 2.53}, {128, 2.79}}) {
    const double simulated =
        fused_tail_us(device, DType::bf16, rows(static_cast<std::uint64_t>(tokens)));
    EXPECT_NEAR(simulated / us, 1, 0.34) << tokens;
  }
  EXPECT_FALSE(is_given(find_topology("mi300x-8").device.tails.fused_us));
}

/// Without them a program would take the constants of tuned kernels, which are half of its time.
TEST(KernelModel, CodecsThatAreMeasuredFirstHaveConstantsOfPrograms) {
  const Device device = find_topology("h200-8").device;
  int measured = 0;
  for (const CodecTimes& times : device.codecs) {
    if (times.codec.ends_with(kInPrograms) || times.codec.ends_with(kOperation)) continue;
    if (!measures_first(find_codec(times.codec)->info().cost)) continue;
    ++measured;
    const std::string in_programs = times.codec + std::string(kInPrograms);
    EXPECT_EQ(std::ranges::count(device.codecs, in_programs, &CodecTimes::codec), 1) << in_programs;
  }
  EXPECT_EQ(measured, 3);
}

TEST(KernelModel, ATailIsAddedToThePlan) {
  const Topology t = machine(TopologyKind::full_mesh, 2);
  const CodecPtr codec = find_codec("fp16");
  const Schedule s = make_schedule("one_shot", {.world_size = 2, .elements = 4096});
  Plan plan = plan_of(s, *codec, DType::fp16);
  const SimulationResult alone = simulate({plan, t});
  plan.tail = tail_work(4096, DType::fp16, true, nullptr);
  const SimulationResult both = simulate({plan, t});
  const double us = fused_tail_us(t.device, DType::fp16, plan.tail);
  EXPECT_NEAR(both.latency_us - alone.latency_us, us, 1e-6);
  EXPECT_NEAR(both.breakdown.codec_us - alone.breakdown.codec_us, us, 1e-6);
  EXPECT_NEAR(both.algbw_gb_per_s * both.latency_us, alone.algbw_gb_per_s * alone.latency_us, 1e-6);
  Schedule tailed = s;
  tailed.row = 8;
  EXPECT_EQ(refusal_of([&] { plan_of(tailed, *codec, DType::fp16); }),
            "schedule 'one_shot' has tails: simulated is one without");
}

TEST(KernelModel, ReleasesCoalesce) {
  Device device = round_device();
  device.stores = stores();
  const Plan plan = plan_with(3, 10000, {3, 2}, 10000);
  const auto model = make_kernel_model(device, plan);
  // g(8, 4) = 4 (sqrt(5) - 1)
  EXPECT_DOUBLE_EQ(model->cost_of(plan.stages[0]).release_us, 0.5 * 4 * (std::sqrt(5.0) - 1));
  device.stores->release_coalescing_tiles.value = 1e9;  // x for x << n
  EXPECT_NEAR(model->cost_of(plan.stages[0]).release_us, 0.5 * 8, 1e-7);
  device.stores->release_coalescing_tiles.value = 1e-6;  // sqrt(2 n x) for x >> n
  EXPECT_NEAR(model->cost_of(plan.stages[0]).release_us, 0.5 * std::sqrt(2 * 1e-6 * 8), 1e-6);
  // A tile that is not full is one.
  device.stores->tile_bytes.value = 79999;
  device.stores->release_coalescing_tiles.value = 4;
  EXPECT_DOUBLE_EQ(model->cost_of(plan.stages[0]).release_us,
                   0.5 * 4 * (std::sqrt(1 + 2 * 2 / 4.0) - 1));
}

double contention_us(const Device& device, const Plan& plan) {
  const auto model = make_kernel_model(device, plan);
  const Stage& stage = plan.stages[0];
  return model->message_time(stage, model->cost_of(stage), plan.messages[0], 1e6, 10).contention_us;
}

TEST(KernelModel, StoresContend) {
  Device device = round_device();
  // 25600 bytes: 400 packets of 64 bytes, each 6.4 ns at 10 GB/s.
  const Plan plan = plan_with(3, 10000, {3, 2}, 25600);
  EXPECT_EQ(contention_us(device, plan), 0);
  device.stores = stores();
  // All 8 tiles are resident; 300 packets travel freely; sqrt(400^2 + 300^2) - 300 = 200;
  // g(200, 100) = 100 (sqrt(5) - 1); two like 1/2 + 1/3.
  const double g = 100 * (std::sqrt(5.0) - 1);
  EXPECT_DOUBLE_EQ(contention_us(device, plan), 2 * (1 / 2.0 + 1 / 3.0) * g * 0.0064);
  // Half the tiles are resident: 200 packets; sqrt(200^2 + 300^2) - 300.
  device.stores->resident_tiles.value = 4;
  const double half = std::sqrt(130000.0) - 300;
  EXPECT_NEAR(contention_us(device, plan),
              2 * (5 / 6.0) * 100 * (std::sqrt(1 + half / 50) - 1) * 0.0064, 1e-12);
  // No other rank is there to meet.
  EXPECT_EQ(contention_us(device, plan_with(1, 10000, {3, 2}, 25600)), 0);
}

TEST(KernelModel, StoresOfPlainValuesContendOtherwise) {
  Device device = round_device();
  device.stores = stores();
  // 300 packets against 400 that queues take: 500 - 400 = 100; g(100, 100) = 100 (sqrt(3) - 1).
  EXPECT_DOUBLE_EQ(contention_us(device, plan_with(2, 9600, {0, 0}, 19200)),
                   3 * 0.5 * 100 * (std::sqrt(3.0) - 1) * 0.0064);
}

TEST(KernelModel, PartsOfAMessageAddUpAndOverlap) {
  Device device = round_device();
  device.codec_overlap.value = 2;
  device.latency_overlap.value = 2;
  Plan plan = plan_with(1, 10000, {3, 2}, 10000);
  const auto model = make_kernel_model(device, plan);
  const Stage& stage = plan.stages[0];
  const auto time = [&](StageCost cost, double network_us) {
    return model->message_time(stage, cost, plan.messages[0], network_us, 10);
  };
  // wire 4 (+) work 3 = 5; latency 12 (+) 5 = 13.
  TimeParts t = time({.flags_us = 8, .first_tile_us = 4, .work_us = 3, .release_us = 1}, 4);
  EXPECT_DOUBLE_EQ(t.total_us(), 13);
  EXPECT_DOUBLE_EQ(t.synchronisation_us, 8);  // the longer of latency and throughput in full
  EXPECT_DOUBLE_EQ(t.wire_us, 4.0 / 5);
  EXPECT_DOUBLE_EQ(t.codec_us, 4 + 1.0 / 5);
  EXPECT_EQ(t.release_us, 0);
  // Releases take 16: longer than wire and work; latency 12 (+) 16 = 20.
  t = time({.flags_us = 8, .first_tile_us = 4, .work_us = 3, .release_us = 16}, 4);
  EXPECT_DOUBLE_EQ(t.total_us(), 20);
  EXPECT_DOUBLE_EQ(t.wire_us, 4);
  EXPECT_DOUBLE_EQ(t.release_us, 11);
  EXPECT_DOUBLE_EQ(t.synchronisation_us, 4 * 8.0 / 12);
  EXPECT_DOUBLE_EQ(t.codec_us, 1 + 4 * 4.0 / 12);
  // Work 4, wire 3: the codec is the longer one.
  t = time({.flags_us = 0, .first_tile_us = 0, .work_us = 4, .release_us = 0}, 3);
  EXPECT_DOUBLE_EQ(t.total_us(), 5);
  EXPECT_DOUBLE_EQ(t.codec_us, 4);
  EXPECT_DOUBLE_EQ(t.wire_us, 1);
}

TEST(KernelModel, PartsOfAStageAddUp) {
  Device device = round_device();
  device.latency_overlap.value = 2;
  const Plan plan = plan_with(1, 10000, {3, 2}, 10000);
  const auto model = make_kernel_model(device, plan);
  TimeParts t = model->stage_time({.flags_us = 2, .first_tile_us = 1, .work_us = 4});
  EXPECT_DOUBLE_EQ(t.total_us(), 5);
  EXPECT_DOUBLE_EQ(t.codec_us, 4 + 1 / 3.0);
  EXPECT_DOUBLE_EQ(t.synchronisation_us, 2 / 3.0);
  t = model->stage_time({.flags_us = 3, .first_tile_us = 1, .work_us = 2, .release_us = 3});
  EXPECT_DOUBLE_EQ(t.total_us(), 5);
  EXPECT_DOUBLE_EQ(t.synchronisation_us, 3);
  EXPECT_DOUBLE_EQ(t.release_us, 1 / 3.0);
  EXPECT_EQ(t.wire_us, 0);
  EXPECT_EQ(model->stage_time({}).total_us(), 0);
}

TEST(KernelModel, LinksCarryWhatWireBytesArePackedInto) {
  Device device = round_device();
  device.all_to_all_efficiency.value = 0.8;
  device.library = library();
  Plan plan = plan_with(1, 1000, {3, 2, 0.75}, 1000);
  const auto efficiency = [&](std::optional<LibraryChoice> how = std::nullopt) {
    plan.library = how;
    return make_kernel_model(device, plan)->link_efficiency();
  };
  constexpr auto kLl = LibraryProtocol::low_latency;
  // Messages to other machines are packed anew by cards and PCIe.
  EXPECT_DOUBLE_EQ(efficiency(), 1);
  device.stores = stores();
  EXPECT_DOUBLE_EQ(efficiency(), 0.75);
  EXPECT_DOUBLE_EQ(efficiency(LibraryChoice{LibraryAlgorithm::ring, kLl}), 0.5);
  plan.collective = Collective::all_to_all;
  EXPECT_DOUBLE_EQ(efficiency(), 0.75 * 0.8);
  EXPECT_DOUBLE_EQ(efficiency(LibraryChoice{LibraryAlgorithm::exchange, kLl}), 0.5);
  plan.collective = Collective::dispatch_combine;
  EXPECT_DOUBLE_EQ(efficiency(), 0.75 * 0.8);
  for (const Collective half :
       {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
    plan.collective = half;
    EXPECT_DOUBLE_EQ(efficiency(), 0.75) << name_of(half);
  }
}

TEST(KernelModel, TheLibraryHasTwoProtocols) {
  Device device = round_device();
  device.library = library();
  const auto protocol = [&](std::uint64_t bytes, Rank ranks, LibraryAlgorithm algorithm) {
    return library_choice(device, Collective::all_reduce, ranks, bytes, algorithm).protocol;
  };
  for (const auto algorithm : {LibraryAlgorithm::ring, LibraryAlgorithm::program}) {
    EXPECT_EQ(protocol(4000, 4, algorithm), LibraryProtocol::low_latency);
    EXPECT_EQ(protocol(4001, 4, algorithm), LibraryProtocol::simple);
    EXPECT_EQ(protocol(4001, 5, algorithm), LibraryProtocol::low_latency);
  }

  device.stores = stores();
  Plan plan = plan_with(3, 10000, {0, 0}, 20000);
  plan.library = {LibraryAlgorithm::program, LibraryProtocol::low_latency};
  const auto low_latency = make_kernel_model(device, plan);
  EXPECT_EQ(low_latency->launch_us(), 8);
  EXPECT_EQ(low_latency->cost_of(plan.stages[0]).latency_us(), 0);
  EXPECT_EQ(low_latency->cost_of(plan.stages[0]).release_us, 0);
  Plan large = plan;
  large.library->protocol = LibraryProtocol::simple;
  const auto simple = make_kernel_model(device, large);
  EXPECT_EQ(simple->launch_us(), 3);
  const StageCost cost = simple->cost_of(large.stages[0]);
  EXPECT_EQ(cost.flags_us, 4 * (3 + 1) / 2);
  const TimeParts parts = simple->message_time(large.stages[0], cost, large.messages[0], 7, 10);
  EXPECT_EQ(parts.contention_us, 0);
  EXPECT_EQ(parts.total_us(), 8 + 7) << "a library's latency does not overlap";
}

/// The device does 40000 instructions per us. A thread encodes eight elements by 16, of fp16 by 32, each in two slots and three
/// cycles: 10000 elements take 1 us (fp16: 2), and the first tile 16 / 8 * 3 * 0.5 us. Other codecs have 4 operations an
/// element: an operation is 4 instructions for eight elements, each in 5 slots, or 8 where it is packed.
TEST(KernelModel, InstructionsCostWhatWasMeasured) {
  Device device = round_device();
  device.blocks = blocks_of(1e6, 1);
  device.blocks->resident.value = 10;  // a tile each
  const auto cost_of = [&](const char* codec, DType dtype, bool packed = false) {
    Plan plan = plan_with(1, 10000, {4, 2, 1, packed}, 10000);
    plan.codec = codec;
    plan.dtype = dtype;
    return make_kernel_model(device, plan)->cost_of(plan.stages[0]);
  };
  EXPECT_DOUBLE_EQ(cost_of("mine", DType::bf16).work_us, 1) << "as counted in its definition";
  device.codecs = {{"mine", {32, 9}, {16, 9}, 2, 3},
                   {std::string(kOperation), {9, 9}, {4, 9}, 5, 7},
                   {std::string(kPackedOperation), {9, 9}, {8, 9}, 5, 7}};
  EXPECT_DOUBLE_EQ(cost_of("mine", DType::bf16).work_us, 1);
  EXPECT_DOUBLE_EQ(cost_of("mine", DType::fp16).work_us, 2);
  EXPECT_DOUBLE_EQ(cost_of("mine", DType::bf16).first_tile_us,
                   2 * 3 * device.codec_tile_us_per_op.value);
  EXPECT_DOUBLE_EQ(cost_of("other", DType::bf16).work_us, 4 * 0.5 * 5 / 4);
  EXPECT_DOUBLE_EQ(cost_of("other", DType::bf16, true).work_us, 4 * 1.0 * 5 / 4);
  EXPECT_DOUBLE_EQ(cost_of("other", DType::bf16).first_tile_us,
                   4 * 0.5 * 7 * device.codec_tile_us_per_op.value);
}

/// An instruction for each of eight elements, of plain values in 40 cycles: a codec that sends as many bytes waits as long for
/// what it loads, and one that sends half of them at least half as long.
TEST(KernelModel, ATileOfACodecWaitsForWhatItLoads) {
  Device device = round_device();
  device.blocks = blocks_of(1e6, 1);
  device.codecs = {{"mine", {8, 8}, {8, 8}, 1, 3}, {"bf16", {8, 8}, {8, 8}, 1, 40}};
  const auto cycles_of = [&](const char* codec, std::uint64_t bytes) {
    Plan plan = plan_with(1, 10000, {.encode_ops_per_element = 1}, bytes);
    plan.codec = codec;
    plan.dtype = DType::bf16;
    return make_kernel_model(device, plan)->cost_of(plan.stages[0]).first_tile_us /
           device.codec_tile_us_per_op.value;
  };
  EXPECT_DOUBLE_EQ(cycles_of("bf16", 20000), 40);
  EXPECT_DOUBLE_EQ(cycles_of("mine", 30000), 40);
  EXPECT_DOUBLE_EQ(cycles_of("mine", 20000), 40);
  EXPECT_DOUBLE_EQ(cycles_of("mine", 10000), 20);
  EXPECT_DOUBLE_EQ(cycles_of("mine", 1000), 3);
}

/// A kernel that measures meets once before the input is encoded, and once before sums are.
TEST(KernelModel, AScaleOfTheMessageIsMeasuredFirst) {
  Device device = round_device();
  device.blocks = blocks_of(1e6, 6);
  Plan plan =
      plan_with(1, 10000, {.encode_ops_per_element = 4, .scale_elements = kWholeTensor}, 10000);
  const auto measure_us = [&] {
    return make_kernel_model(device, plan)->cost_of(plan.stages[0]).measure_us;
  };
  const double pass_us = 20000 / (device.hbm_gb_per_s.value * 1e3);
  EXPECT_DOUBLE_EQ(measure_us(), 6 + pass_us);
  plan.stages[0].added = 10000;
  EXPECT_DOUBLE_EQ(measure_us(), 6 + 3 * pass_us);
}

/// With sentinel slots sums are measured where they are added up, and the steps of two_shot follow each other; small tensors are
/// measured in registers. Other codecs go through both steps side by side.
TEST(KernelModel, KernelsOfAScaleOfTheMessageMeasureOnTheWay) {
  const Topology h200 = find_topology("h200-2");
  const double meet_us = h200.device.blocks->meet_us.value;
  const auto model_of = [&](const Plan& plan) { return make_kernel_model(h200.device, plan); };
  const auto plan_of_two_shot = [&](const char* codec, std::uint64_t elements) {
    return plan_of(find_algorithm("two_shot"), {.world_size = 2, .elements = elements},
                   *find_codec(codec), DType::bf16, h200);
  };
  const Plan large = plan_of_two_shot("int8-gtensor", 1 << 25);
  const auto model = model_of(large);
  EXPECT_EQ(model->steps_side_by_side(), 0u);
  EXPECT_EQ(model_of(plan_of_two_shot("qr-q8", 1 << 25))->steps_side_by_side(), 2u);
  const double pass_us = 2.0 * (1 << 24) / (h200.device.hbm_gb_per_s.value * 1e3);
  int sums = 0;
  for (const Stage& stage : large.stages) {
    if (stage.encoded == 0) continue;
    const StageCost cost = model->cost_of(stage);
    // Measuring reads both chunks of the input once, and writes and reads one sum.
    EXPECT_DOUBLE_EQ(cost.measure_us, meet_us + 2 * pass_us);
    EXPECT_GT(cost.flags_us, 0);
    sums += stage.added > 0 ? 1 : 0;
  }
  EXPECT_EQ(sums, large.lists_one_rank() ? 1 : 2);
  const Plan small = plan_of_two_shot("int8-gtensor", 1 << 14);
  const auto of_small = model_of(small);
  for (const Stage& stage : small.stages) {
    if (stage.encoded > 0) {
      EXPECT_EQ(of_small->cost_of(stage).measure_us, meet_us);
    }
  }
}

/// A channel for 4 KiB of each of 4 ranks' shares, of 3 GB/s; the two copies of the plan share them.
TEST(KernelModel, TheLibraryTakesMoreChannelsForMoreBytes) {
  Device device = round_device();
  device.library = library();
  device.library->low_latency_channel_gb_per_s = assumed(3);
  const auto cap = [&](std::uint64_t share_of_a_rank) {
    Plan plan = plan_with(3, share_of_a_rank, {0, 0}, 1000);
    plan.channels = 2;
    plan.library = {LibraryAlgorithm::ring, LibraryProtocol::low_latency};
    return make_kernel_model(device, plan)->rate_cap_gb_per_s(plan.stages[0]);
  };
  EXPECT_DOUBLE_EQ(cap(1), 1.5);
  EXPECT_DOUBLE_EQ(cap(2048), 1.5);
  EXPECT_DOUBLE_EQ(cap(2 * 2048), 3);
  EXPECT_DOUBLE_EQ(cap(1 << 30), 6) << "4 channels are the most";
  device.library->low_latency_channel_gb_per_s = assumed(0);
  EXPECT_EQ(cap(1), kNoRateCap);
}

/// 1000 operations of encode and, at half the price, 2000 of decode: 0.025 and 0.025 us. Latency
/// and contention still count operations as they are.
TEST(KernelModel, DecodingMayCostLess) {
  Device device = round_device();
  device.decode_cost.value = 0.5;
  Plan plan = plan_with(1, 1000, {1, 2}, 1000);
  plan.stages[0].encoded = plan.stages[0].decoded = 1000;
  const auto cheap = make_kernel_model(device, plan);
  EXPECT_DOUBLE_EQ(cheap->cost_of(plan.stages[0]).work_us, 0.05);
  EXPECT_DOUBLE_EQ(cheap->output_us(1000), 0.025);
  const double tile_us = cheap->cost_of(plan.stages[0]).first_tile_us;
  device.decode_cost.value = 1;
  const auto counted = make_kernel_model(device, plan);
  EXPECT_DOUBLE_EQ(counted->cost_of(plan.stages[0]).work_us, 0.075);
  EXPECT_EQ(counted->cost_of(plan.stages[0]).first_tile_us, tile_us);
}

/// Operations on bf16, in a tile, too; what is fixed there is not counted in operations.
TEST(KernelModel, OperationsOnBf16MayCostMore) {
  Device device = round_device();
  device.bf16_cost.value = 2;
  Plan plan = plan_with(1, 1000, {1, 2}, 1000);
  plan.stages[0].encoded = plan.stages[0].decoded = plan.stages[0].added = 1000;
  const StageCost of_fp16 = make_kernel_model(device, plan)->cost_of(plan.stages[0]);
  plan.dtype = DType::bf16;
  const auto model = make_kernel_model(device, plan);
  const StageCost of_bf16 = model->cost_of(plan.stages[0]);
  EXPECT_DOUBLE_EQ(of_fp16.work_us, 0.1);
  EXPECT_DOUBLE_EQ(of_bf16.work_us, 0.2);
  EXPECT_DOUBLE_EQ(of_bf16.first_tile_us - of_fp16.first_tile_us,
                   3 * device.codec_tile_us_per_op.value);
  EXPECT_DOUBLE_EQ(model->output_us(1000), 0.1);
  device.bf16_tile_cost.value = 10;  // 3 operations and a sum each
  const StageCost fixed = make_kernel_model(device, plan)->cost_of(plan.stages[0]);
  EXPECT_DOUBLE_EQ(fixed.work_us, of_bf16.work_us);
  EXPECT_DOUBLE_EQ(fixed.first_tile_us - of_bf16.first_tile_us,
                   (4 * 10 - 3 * 2) * device.codec_tile_us_per_op.value);
}

/// Parts of the latency of the fit of MI300X at 32 KiB, 2 ranks, fp16: two stages of 16384 bytes.
TEST(KernelModel, CheckValuesOfTheMi300xFit) {
  // As fitted once; the machine file moves with every fit.
  Device device = find_topology("mi300x-2").device;
  device.launch_us.value = 3.95;
  device.step_us.value = device.message_us.value = 0.58;
  device.latency_overlap.value = 1.34;
  device.hbm_gb_per_s.value = kLargestQuantity;
  device.stores->release_us.value = 0.139;
  device.stores->release_coalescing_tiles.value = 107;
  const Plan plan = plan_with(1, 8192, {0, 0}, 16384);
  const auto model = make_kernel_model(device, plan);
  const StageCost cost = model->cost_of(plan.stages[0]);
  EXPECT_DOUBLE_EQ(cost.flags_us, 1.16);
  // One tile: 0.139 * 107 (sqrt(1 + 2/107) - 1) = 0.13836 us, hidden by the wire's 0.35617 us.
  EXPECT_NEAR(cost.release_us, 0.13836, 5e-6);
  const TimeParts parts =
      model->message_time(plan.stages[0], cost, plan.messages[0], 16384 / 46e3, 46);
  // (1.16^1.34 + 0.35617^1.34)^(1/1.34) = 1.33363
  EXPECT_NEAR(parts.total_us(), 1.33363, 5e-6);
  EXPECT_NEAR(model->launch_us() + 2 * (parts.total_us() + 1), 8.61726, 1e-5);
}

}  // namespace
}  // namespace arlab
