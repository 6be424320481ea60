// What must hold for the closed-form model on every machine, algorithm, codec and size.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "sim/closed_form.h"

namespace arlab {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

/// Of `bytes` per rank, or a little more where they must make equal slots.
Schedule schedule_of(const std::string& algorithm, const Codec& codec, Rank ranks,
                     std::uint64_t bytes) {
  const bool slots = find_algorithm(algorithm).collective != Collective::all_reduce;
  const std::uint64_t elements = slots ? (bytes / 2 + ranks - 1) / ranks * ranks : bytes / 2;
  return make_schedule(
      algorithm, {.world_size = ranks, .elements = elements, .alignment = codec.info().alignment});
}

SimulationResult simulate(const std::string& algorithm, const std::string& codec_name,
                          const Topology& topology, std::uint64_t bytes) {
  const CodecPtr codec = find_codec(codec_name);
  return simulate_closed_form(schedule_of(algorithm, *codec, topology.ranks.value, bytes), *codec,
                              DType::fp16, topology);
}

std::vector<std::string> topologies() {
  std::vector<std::string> names = listed_topologies();
  for (const char* name : {"full:1", "full:5", "ring:2", "ring:6"}) names.emplace_back(name);
  return names;
}

/// Calls visit(algorithm, codec, topology) for all that there are.
void for_all(
    const std::function<void(const std::string&, const std::string&, const Topology&)>& visit) {
  for (const std::string& name : topologies()) {
    const Topology topology = find_topology(name);
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const char* codec : {"fp16", "qr-q6", "qr-q4"}) {
        SCOPED_TRACE(name + " " + algorithm.name + " " + codec);
        visit(algorithm.name, codec, topology);
      }
    }
  }
}

TEST(ClosedFormProperties, PartsAddUp) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& topology) {
    const SimulationResult r = simulate(algorithm, codec, topology, kMiB);
    const LatencyBreakdown& parts = r.breakdown;
    EXPECT_NEAR(parts.launch_us + parts.synchronisation_us + parts.wire_us + parts.codec_us,
                r.latency_us, 1e-9 * r.latency_us);
    double steps_us = parts.launch_us;
    for (const StepTime& step : r.steps) {
      EXPECT_FALSE(step.bottleneck.empty());
      steps_us += step.total_us;
    }
    EXPECT_NEAR(steps_us, r.latency_us, 1e-9 * r.latency_us);
    EXPECT_FALSE(r.bottleneck.empty());
    for (const LinkClassUse& use : r.links) {
      EXPECT_GT(use.utilisation, 0);
      EXPECT_LE(use.utilisation, 1);
    }
    const CodecPtr c = find_codec(codec);
    const Schedule schedule = schedule_of(algorithm, *c, topology.ranks.value, kMiB);
    EXPECT_EQ(r.wire_bytes, wire_volume(schedule, *c, DType::fp16).bytes);
  });
}

TEST(ClosedFormProperties, ABetterMachineIsNeverSlower) {
  using Better = void (*)(Topology&);
  const Better improvements[] = {
      [](Topology& t) { t.link_bandwidth_gb_per_s.value *= 1.5; },
      [](Topology& t) { t.bridge_bandwidth_gb_per_s.value *= 1.5; },
      [](Topology& t) { t.codec_gops_per_s.value *= 1.5; },
      [](Topology& t) { t.link_latency_us.value /= 2; },
      [](Topology& t) { t.bridge_latency_us.value /= 2; },
      [](Topology& t) { t.launch_overhead_us.value /= 2; },
      [](Topology& t) { t.step_overhead_us.value /= 2; },
      [](Topology& t) { t.message_overhead_us.value /= 2; },
      [](Topology& t) { t.codec_startup_us.value /= 2; },
  };
  for_all([&](const std::string& algorithm, const std::string& codec, const Topology& topology) {
    for (const std::uint64_t bytes : {64 * kKiB, 16 * kMiB}) {
      const double before_us = simulate(algorithm, codec, topology, bytes).latency_us;
      for (const Better better : improvements) {
        Topology improved = topology;
        better(improved);
        EXPECT_LE(simulate(algorithm, codec, improved, bytes).latency_us, before_us);
      }
    }
  });
}

TEST(ClosedFormProperties, MoreBytesAreNeverFaster) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& topology) {
    double before_us = 0;
    for (std::uint64_t bytes = 2; bytes <= 256 * kMiB; bytes = bytes * 5 / 2 + 2) {
      const double now_us = simulate(algorithm, codec, topology, bytes & ~1ull).latency_us;
      EXPECT_GE(now_us, before_us * (1 - 1e-12)) << bytes;
      before_us = now_us;
    }
  });
}

/// Bounds that need no model: no link moves its bytes faster than its bandwidth, no device encodes
/// faster than its rate.
TEST(ClosedFormProperties, NothingIsFasterThanItsResources) {
  for_all([](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const Schedule schedule = schedule_of(algorithm, *codec, t.ranks.value, 4 * kMiB);
    const double latency_us = simulate_closed_form(schedule, *codec, DType::fp16, t).latency_us;
    std::map<std::pair<Rank, Rank>, double> pair_bytes;
    std::map<Rank, double> out_bytes;
    std::map<Rank, double> in_bytes;
    std::map<std::pair<Rank, Rank>, double> bridge_bytes;
    std::map<Rank, double> encoded;
    for (const Op& op : schedule.ops) {
      const std::uint64_t elements = schedule.chunks[op.chunk].size();
      if (op.kind == OpKind::encode) encoded[op.rank] += static_cast<double>(elements);
      if (op.kind != OpKind::send) continue;
      const auto bytes = static_cast<double>(codec->wire_bytes(DType::fp16, elements));
      pair_bytes[{op.rank, op.peer}] += bytes;
      out_bytes[op.rank] += bytes;
      in_bytes[op.peer] += bytes;
      if (t.kind != TopologyKind::numa) continue;
      const Rank from = op.rank / t.group_size.value;
      const Rank to = op.peer / t.group_size.value;
      if (from != to) bridge_bytes[{from, to}] += bytes;
    }
    const auto at_least = [&](const auto& amounts, double per_us) {
      for (const auto& [key, amount] : amounts) EXPECT_GE(latency_us, amount / per_us);
    };
    const double link_per_us = t.link_bandwidth_gb_per_s.value * 1e3;
    at_least(pair_bytes, link_per_us);
    // A rank has one port, or two links of a ring, or a link to every other rank of a mesh.
    const double ports = t.kind == TopologyKind::full_mesh ? std::max(1u, t.ranks.value - 1)
                         : t.kind == TopologyKind::ring    ? 2
                                                           : 1;
    at_least(out_bytes, ports * link_per_us);
    at_least(in_bytes, ports * link_per_us);
    at_least(bridge_bytes, t.bridge_bandwidth_gb_per_s.value * 1e3);
    const double encode_ops = codec->info().cost.encode_ops_per_element;
    if (encode_ops > 0) at_least(encoded, t.codec_gops_per_s.value * 1e3 / encode_ops);
    EXPECT_GE(latency_us, t.launch_overhead_us.value);
  });
}

/// The ops of each step in random order, their ids renumbered.
Schedule shuffled(const Schedule& schedule, std::mt19937_64& random) {
  std::vector<ValueId> order(schedule.ops.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) {
    return schedule.ops[a].step < schedule.ops[b].step;
  });
  std::vector<ValueId> new_id(order.size());
  for (ValueId id = 0; id < order.size(); ++id) new_id[order[id]] = id;
  const auto renumber = [&](ValueId& id) {
    if (id != kOwnInput) id = new_id[id];
  };
  Schedule result = schedule;
  for (ValueId id = 0; id < order.size(); ++id) {
    result.ops[id] = schedule.ops[order[id]];
    if (result.ops[id].kind != OpKind::reduce) renumber(result.ops[id].source);
  }
  for (ValueId& addend : result.addends) renumber(addend);
  for (Output& output : result.outputs) renumber(output.value);
  return result;
}

TEST(ClosedFormProperties, TheOrderOfOpsInAStepDoesNotMatter) {
  std::mt19937_64 random(1);
  for_all([&](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const Schedule schedule = schedule_of(algorithm, *codec, t.ranks.value, 777778);
    const SimulationResult expected = simulate_closed_form(schedule, *codec, DType::fp16, t);
    EXPECT_EQ(simulate_closed_form(schedule, *codec, DType::fp16, t), expected);
    EXPECT_EQ(simulate_closed_form(shuffled(schedule, random), *codec, DType::fp16, t), expected);
  });
}

// ---------------------------------------------------------------- limits and comparisons

TEST(ClosedFormLimits, ASmallMessageTakesLaunchAndSynchronisation) {
  const Topology t = find_topology("mi300x-8");
  const double expected_us =
      t.launch_overhead_us.value +
      2 * (t.step_overhead_us.value + t.link_latency_us.value + 7 * t.message_overhead_us.value);
  EXPECT_NEAR(simulate("two_shot", "fp16", t, 16).latency_us, expected_us, 0.001);
}

/// two_shot puts 2/n of the payload on every link of a mesh, and 2 (n - 1)/n on every port.
TEST(ClosedFormLimits, ALargeMessageTakesItsBytesOverTheBandwidth) {
  const Topology mesh = find_topology("mi300x-8");
  EXPECT_NEAR(simulate("two_shot", "fp16", mesh, 4096 * kMiB).algbw_gb_per_s,
              mesh.link_bandwidth_gb_per_s.value * 8 / 2, 0.5);
  const Topology nvswitch = find_topology("h200-8");
  EXPECT_NEAR(simulate("two_shot", "fp16", nvswitch, 4096 * kMiB).busbw_gb_per_s,
              nvswitch.link_bandwidth_gb_per_s.value, 1);
}

TEST(ClosedFormComparisons, HierarchicalWinsOnTwoNumaGroupsWhenMessagesAreLarge) {
  const Topology l40 = find_topology("l40-8");
  for (const char* codec : {"fp16", "qr-q8", "qr-q4"}) {
    const double two_shot_us = simulate("two_shot", codec, l40, 64 * kMiB).latency_us;
    const double hierarchical_us = simulate("hierarchical", codec, l40, 64 * kMiB).latency_us;
    const double pipelined_us =
        simulate("hierarchical_pipelined", codec, l40, 64 * kMiB).latency_us;
    EXPECT_LT(hierarchical_us, two_shot_us) << codec;
    EXPECT_LT(pipelined_us, hierarchical_us) << codec;
  }
}

/// As in QuickReduce's tables: compression costs at 32 KiB and pays at 64 MiB.
TEST(ClosedFormComparisons, CompressionPaysForLargeMessagesOnly) {
  for (const char* name : {"mi300x-2", "mi300x-4", "mi300x-8"}) {
    const Topology t = find_topology(name);
    EXPECT_GT(simulate("two_shot", "qr-q4", t, 32 * kKiB).latency_us,
              simulate("two_shot", "fp16", t, 32 * kKiB).latency_us);
    EXPECT_LT(simulate("two_shot", "qr-q4", t, 64 * kMiB).latency_us,
              simulate("two_shot", "fp16", t, 64 * kMiB).latency_us);
  }
}

TEST(ClosedFormComparisons, RingLosesToTwoShotOnAMesh) {
  const Topology t = find_topology("mi300x-8");
  for (const std::uint64_t bytes : {std::uint64_t{1024}, 64 * kMiB}) {
    EXPECT_GT(simulate("ring", "fp16", t, bytes).latency_us,
              simulate("two_shot", "fp16", t, bytes).latency_us);
  }
}

/// A ring of 64 takes milliseconds to simulate. The bound is wide: sanitizers and busy machines.
TEST(ClosedFormLimits, ManyRanksAreNoTrouble) {
  const CodecPtr codec = find_codec("qr-q4");
  const Schedule schedule = schedule_of("ring", *codec, 64, 64 * kMiB);
  const auto start = std::chrono::steady_clock::now();
  const SimulationResult r =
      simulate_closed_form(schedule, *codec, DType::fp16, find_topology("ring:64"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(r.steps.size(), 126u);
}

}  // namespace
}  // namespace arlab
