// Laws of the simulator on every machine, for every algorithm, codec and size.
//
// What is not here, because it is not true: that one faster link, or one faster codec, never makes
// anything later. Messages that come earlier take their share of links from others (max-min
// anomalies; tests/sim/network has one by hand). What is true, and tested: when everything is
// faster by the same factor, so is the whole, exactly; what comes before everything else (launch)
// shifts the whole; and on a link that nobody shares, better is never worse.
//
// Speed is not tested. Measured on 2026-11-29, on one core of a Xeon (GCC 12, -O3), in ms of processor time:
// two_shot on full:1024 2.2 (one rank for all), 390 with a late rank, 1790 from a written schedule (350 MB);
// ring on full:4096 23; hierarchical on a torus of 65536 14, on a fat tree 9; a small point of a sweep 0.42.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "sim/network/router.h"
#include "sim/simulator.h"
#include "tests/sim/machine.h"
#include "tests/sim/network/dice.h"

namespace arlab {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

/// At most this many picoseconds apart: instants are rounded one by one.
void expect_near(Picoseconds a, Picoseconds b, Picoseconds tolerance) {
  EXPECT_LE(std::abs(a - b), tolerance) << a << " " << b;
}

/// Returns a request of `bytes` of fp16 per rank, or a little more where they must make equal slots.
ScheduleRequest request_of(const std::string& algorithm, const Codec& codec, Rank ranks,
                           std::uint64_t bytes) {
  const bool slots = has_slots(find_algorithm(algorithm).collective);
  const std::uint64_t elements = slots ? (bytes / 2 + ranks - 1) / ranks * ranks : bytes / 2;
  return {.world_size = ranks, .elements = elements, .alignment = codec.info().alignment};
}

Schedule schedule_of(const std::string& algorithm, const Codec& codec, Rank ranks,
                     std::uint64_t bytes) {
  return make_schedule(algorithm, request_of(algorithm, codec, ranks, bytes));
}

/// All ranks, each for itself.
SimulationResult simulated(const std::string& algorithm, const std::string& codec_name,
                           const Topology& topology, std::uint64_t bytes,
                           const SimulateOptions& options = {}) {
  const CodecPtr codec = find_codec(codec_name);
  return simulate({schedule_of(algorithm, *codec, topology.ranks.value, bytes), *codec, DType::fp16,
                   topology, options});
}

Topology dragonfly_machine(Rank ranks, Rank routers, Rank per_router) {
  Topology t = machine(TopologyKind::dragonfly, ranks, routers);
  t.ranks_per_router = counted(per_router);
  return t;
}

/// Everything that a topology can have.
Topology unlucky() {
  Topology t = machine(TopologyKind::numa, 6, 3);
  t.name = "unlucky";
  t.faults.push_back({{false, 1}, {true, 0}, 0.25, "test"});
  t.faults.push_back({{true, 0}, {true, 1}, 0.5, "test"});
  t.stragglers.push_back({4, assumed(7.25)});
  t.device = find_topology("mi300x-8").device;
  return t;
}

std::vector<Topology> topologies() {
  std::vector<Topology> all;
  for (const char* name : {"mi300x-8", "h200-4", "l40-8", "full:1", "full:5", "ring:2", "ring:6",
                           "torus:2x3", "fat_tree:16", "dragonfly:12"}) {
    all.push_back(find_topology(name));
  }
  all.push_back(unlucky());
  return all;
}

/// Calls visit(algorithm, codec, topology) for all that there are.
void for_all(
    const std::function<void(const std::string&, const std::string&, const Topology&)>& visit) {
  for (const Topology& topology : topologies()) {
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const char* codec : {"fp16", "qr-q6", "qr-q4"}) {
        SCOPED_TRACE(topology.name + " " + algorithm.name + " " + codec);
        visit(algorithm.name, codec, topology);
      }
    }
  }
}

double total_us(const LatencyBreakdown& parts) {
  return parts.launch_us + parts.synchronisation_us + parts.wire_us + parts.contention_us +
         parts.codec_us + parts.release_us;
}

// ---------------------------------------------------------------- the result

TEST(SimulatorProperties, PartsAddUp) {
  for_all([](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const SimulationResult r = simulated(algorithm, codec_name, t, kMiB);
    EXPECT_NEAR(total_us(r.breakdown), r.latency_us, 1e-9 * r.latency_us);
    const LatencyBreakdown& parts = r.breakdown;
    for (const double part : {parts.launch_us, parts.synchronisation_us, parts.wire_us,
                              parts.contention_us, parts.codec_us, parts.release_us}) {
      EXPECT_GE(part, -1e-9);
    }
    EXPECT_EQ(r.latency_us, us_from_picoseconds(r.latency));
    EXPECT_FALSE(r.bottleneck.empty());
    for (const LinkClassUse& use : r.links) {
      EXPECT_GT(use.links, 0u);
      EXPECT_GT(use.utilisation, 0);
      EXPECT_LE(use.utilisation, 1);
      EXPECT_FALSE(use.busiest.empty());
    }
  });
}

TEST(SimulatorProperties, IsDeterministic) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& t) {
    EXPECT_EQ(simulated(algorithm, codec, t, 777'778), simulated(algorithm, codec, t, 777'778));
  });
}

/// Every class of links carries what the routes of all sends say, byte for byte.
TEST(SimulatorProperties, BytesAreConservedOnEveryClassOfLinks) {
  for_all([](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const Schedule schedule = schedule_of(algorithm, *codec, t.ranks.value, 777'778);
    const WireVolume volume = wire_volume(schedule, *codec, DType::fp16);
    const Fabric fabric(t);
    Router router(fabric.network());
    std::map<std::string, WideCount, std::less<>> expected;
    for (const Op& op : schedule.ops) {
      if (op.kind != OpKind::send) continue;
      const std::uint64_t bytes = codec->wire_bytes(DType::fp16, schedule.chunks[op.chunk].size());
      for (const LinkId link : router.route(op.rank, op.peer)) {
        expected[std::string(fabric.class_of(link))] += bytes;
      }
    }
    const SimulationResult r = simulate({schedule, *codec, DType::fp16, t});
    EXPECT_EQ(r.wire_bytes, volume.bytes);
    EXPECT_EQ(r.wire_elements, volume.elements);
    std::map<std::string, WideCount, std::less<>> found;
    for (const LinkClassUse& use : r.links) found[use.link_class] = use.bytes;
    EXPECT_EQ(found, expected);
  });
}

// ---------------------------------------------------------------- bounds

/// No link moves its bytes faster than its bandwidth, and no device encodes faster than its rate. No
/// cut of the ranks in two is crossed faster than by the links across it together.
TEST(SimulatorProperties, NothingIsFasterThanItsResources) {
  for_all([](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const Schedule schedule = schedule_of(algorithm, *codec, t.ranks.value, 4 * kMiB);
    const double latency_us = simulate({schedule, *codec, DType::fp16, t}).latency_us;
    const Fabric fabric(t);
    Router router(fabric.network());
    std::map<LinkId, double> link_bytes;
    std::map<Rank, double> encoded;
    double crossing_bytes = 0;  // from the lower half of the ranks to the upper one
    const Rank half = t.ranks.value / 2;
    for (const Op& op : schedule.ops) {
      const std::uint64_t elements = schedule.chunks[op.chunk].size();
      if (op.kind == OpKind::encode) encoded[op.rank] += static_cast<double>(elements);
      if (op.kind != OpKind::send) continue;
      const auto bytes = static_cast<double>(codec->wire_bytes(DType::fp16, elements));
      std::vector<LinkId> other;
      const double share = fabric.find_other_route(op.rank, op.peer, other) ? 0.5 : 1;
      for (const LinkId link : router.route(op.rank, op.peer)) link_bytes[link] += share * bytes;
      for (const LinkId link : other) link_bytes[link] += share * bytes;
      if (op.rank < half && op.peer >= half) crossing_bytes += bytes;
    }
    EXPECT_GE(latency_us, t.device.launch_us.value);
    const double start_us = t.device.launch_us.value;
    for (const auto& [link, bytes] : link_bytes) {
      EXPECT_GE(latency_us - start_us,
                bytes / fabric.network().properties(link).bandwidth_gb_per_s / 1e3);
    }
    // Out of the lower half: links of any kind that leave its ranks.
    double crossing_gb_per_s = 0;
    for (LinkId link = 0; link < fabric.network().links(); ++link) {
      if (fabric.network().ends(link).from < half) {
        crossing_gb_per_s += fabric.network().properties(link).bandwidth_gb_per_s;
      }
    }
    if (crossing_bytes > 0) {
      EXPECT_GE(latency_us - start_us, crossing_bytes / crossing_gb_per_s / 1e3);
    }
    const double encode_ops = codec->info().cost.encode_ops_per_element;
    for (const auto& [rank, elements] : encoded) {
      EXPECT_GE(latency_us - start_us,
                elements * encode_ops / t.device.codec_gops_per_s.value / 1e3 * (1 - 1e-9));
    }
  });
}

/// Rank 0's first message cannot be there before launch, flags and the way's latency; an algorithm
/// of s dependent steps takes s of them.
TEST(SimulatorProperties, NothingIsFasterThanItsLatencies) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& t) {
    if (t.ranks.value == 1) return;
    const double least_us = std::min_element(t.link_types.begin(), t.link_types.end(),
                                             [](const auto& a, const auto& b) {
                                               return a.latency_us.value < b.latency_us.value;
                                             })
                                ->latency_us.value;
    const double steps = algorithm == "ring" ? 2 * (t.ranks.value - 1) : 1;
    const double step_us = least_us + std::max(t.device.step_us.value, t.device.message_us.value);
    EXPECT_GE(simulated(algorithm, codec, t, 2 * kKiB).latency_us,
              t.device.launch_us.value + steps * step_us);
  });
}

// ---------------------------------------------------------------- in order

/// Any kind of fabric but a graph, 2 to 18 ranks, bandwidths and latencies of two orders of
/// magnitude, devices of all models.
Topology random_topology(Dice& dice) {
  constexpr TopologyKind kKinds[] = {TopologyKind::full_mesh, TopologyKind::ring,
                                     TopologyKind::torus,     TopologyKind::switched,
                                     TopologyKind::numa,      TopologyKind::fat_tree,
                                     TopologyKind::dragonfly};
  const std::vector<std::vector<Rank>> shapes = {{2, 2}, {2, 3},    {3, 3}, {4, 4},
                                                 {5, 3}, {2, 2, 2}, {4, 2}, {2, 3, 3}};
  const TopologyKind kind = kKinds[dice.below(std::size(kKinds))];
  const Rank ranks = 2 + dice.below(15);
  const Rank group = 1 + dice.below(4);
  const Rank groups = 2 + dice.below(3);
  Topology t = kind == TopologyKind::torus       ? torus_machine(shapes[dice.below(8)])
               : kind == TopologyKind::numa      ? machine(kind, group * groups, group)
               : kind == TopologyKind::fat_tree  ? machine(kind, group * groups, group)
               : kind == TopologyKind::dragonfly ? dragonfly_machine(ranks, 2, 1 + dice.below(2))
                                                 : machine(kind, ranks);
  for (LinkType& link : t.link_types) {
    link.bandwidth_gb_per_s.value = std::exp(dice.between(std::log(5), std::log(500)));
    link.latency_us.value = dice.between(0.05, 5);
  }
  const char* devices[] = {"", "h200-8", "mi300x-8", "l40-8", "full:4"};
  const std::string device = devices[dice.below(5)];
  if (!device.empty()) t.device = find_topology(device).device;
  // It needs a switch that random machines do not have.
  if (t.device.library) t.device.library->nvls.reset();
  return t;
}

struct RandomRun {
  Topology topology;
  const Algorithm* algorithm = nullptr;
  CodecPtr codec = {};
  ScheduleRequest request = {};

  double us(const Topology& t) const {
    return simulate({*algorithm, request, *codec, DType::fp16, t}).latency_us;
  }
  double us() const { return us(topology); }
  std::string name() const {
    return fmt::format("{} of {}, {}, {} {} groups of {}, {} elements", name_of(topology.kind),
                       request.world_size, topology.device.name, algorithm->name,
                       codec->info().name, request.options.group_size().value_or(0),
                       request.elements);
  }
};

RandomRun random_run(Dice& dice) {
  RandomRun run{.topology = random_topology(dice)};
  const auto algorithms = all_algorithms();
  run.algorithm = &algorithms[dice.below(static_cast<std::uint32_t>(algorithms.size()))].get();
  const char* codecs[] = {"fp16", "qr-q4", "qr-q8", "int4-g32", "mxfp4"};
  run.codec = find_codec(codecs[dice.below(5)]);
  const Rank n = run.topology.ranks.value;
  const double bytes = std::exp(dice.between(std::log(4096.), std::log(64e6)));
  const std::uint64_t unit = run.codec->info().alignment * n;
  run.request = {.world_size = n,
                 .elements = (static_cast<std::uint64_t>(bytes / 2) / unit + 1) * unit,
                 .alignment = run.codec->info().alignment};
  if (run.algorithm->name.starts_with("hierarchical")) {
    std::vector<Rank> sizes;
    for (Rank size = 1; size <= n; ++size) {
      if (n % size == 0) sizes.push_back(size);
    }
    run.request.options.set("group_size",
                            sizes[dice.below(static_cast<std::uint32_t>(sizes.size()))]);
  }
  return run;
}

/// A rank that is d late makes the whole d later, no more: no message is overtaken by one that was sent after it. It is exact
/// where a rank has one thing to do at a time. Where several stages of a rank want its codec, or messages of several senders a
/// link, one may come first that did not before; that is rare, and does not cost much.
TEST(SimulatorProperties, AStragglerCostsItsDelay) {
  constexpr int kRuns = 500;
  int rarely = 0;
  for (int i = 0; i < kRuns; ++i) {
    Dice dice(static_cast<std::uint64_t>(i));
    const RandomRun run = random_run(dice);
    SCOPED_TRACE(fmt::format("{}: {}", i, run.name()));
    const double on_time = run.us();
    const double delay = on_time * dice.between(0.05, 1.5);
    Topology late = run.topology;
    late.stragglers.push_back({dice.below(run.request.world_size), assumed(delay)});
    const double beyond = run.us(late) / (on_time + delay) - 1;
    const std::string& name = run.algorithm->name;
    const bool one_at_a_time =
        name != "tree" && name != "halving_doubling" && !name.starts_with("hierarchical");
    EXPECT_LE(beyond, one_at_a_time ? 1e-3 : 0.2);
    rarely += beyond > 1e-4 ? 1 : 0;
  }
  EXPECT_LE(rarely, kRuns / 25);
}

TEST(SimulatorProperties, HalfTheBandwidthTakesAtMostTwiceAsLong) {
  constexpr int kRuns = 500;
  int rarely = 0;
  for (int i = 0; i < kRuns; ++i) {
    Dice dice(static_cast<std::uint64_t>(i));
    const RandomRun run = random_run(dice);
    SCOPED_TRACE(fmt::format("{}: {}", i, run.name()));
    Topology half = run.topology;
    for (LinkType& link : half.link_types) link.bandwidth_gb_per_s.value /= 2;
    const double ratio = run.us(half) / run.us();
    EXPECT_LE(ratio, 2.05);
    EXPECT_GE(ratio, 0.97);
    rarely += ratio > 2.0001 || ratio < 0.9999 ? 1 : 0;
  }
  EXPECT_LE(rarely, kRuns / 50);
}

/// Where nothing takes time but bytes and operations. (Micro-chunks are of whole blocks, so not
/// quite of one size.)
TEST(SimulatorProperties, MicroChunksCostTheirLatenciesOnly) {
  int runs = 0;
  int rarely = 0;
  for (std::uint64_t seed = 0; runs < 150; ++seed) {
    Dice dice(seed);
    RandomRun run = random_run(dice);
    if (run.algorithm->name != "tree" && run.algorithm->name != "hierarchical_pipelined") continue;
    ++runs;
    SCOPED_TRACE(fmt::format("{}: {}", seed, run.name()));
    Topology& t = run.topology;
    t.device = find_topology("full:4").device;
    for (LinkType& link : t.link_types) link.latency_us.value = kSmallestQuantity;
    for (Quantity* us : {&t.device.launch_us, &t.device.step_us, &t.device.codec_tile_us_per_op}) {
      us->value = kSmallestQuantity;
    }
    t.device.message_us.value = 0;
    if (dice.one_in(2)) t.device.codec_gops_per_s.value = kLargestQuantity / 10;
    run.request.elements += 10'000 * run.request.alignment * run.request.world_size;
    run.request.options.set("micro_chunks", 1);
    const double whole = run.us();
    for (const std::uint32_t micro_chunks : {2U, 4U, 8U}) {
      run.request.options.set("micro_chunks", micro_chunks);
      const double ratio = run.us() / whole;
      EXPECT_LE(ratio, 1.1);
      rarely += ratio > 1.001 ? 1 : 0;
    }
  }
  EXPECT_LE(rarely, 3 * runs / 50);
}

// ---------------------------------------------------------------- what improves what

TEST(SimulatorProperties, LaterLaunchShiftsTheWholeExactly) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& t) {
    Topology late = t;
    late.device.launch_us.value += 3;
    if (late.device.small) late.device.small->launch_us.value += 3;
    if (late.device.sentinels) late.device.sentinels->launch_us.value += 3;
    const Picoseconds before = simulated(algorithm, codec, t, kMiB).latency;
    EXPECT_EQ(simulated(algorithm, codec, late, kMiB).latency, before + 3'000'000);
  });
}

void scale_times(Topology& t, double factor) {
  for (LinkType& type : t.link_types) {
    type.bandwidth_gb_per_s.value /= factor;
    type.latency_us.value *= factor;
  }
  for_each_quantity_of(t.device, [factor](const std::string& key, Quantity& quantity) {
    if (key.ends_with("_us") || key.ends_with("_us_per_op")) quantity.value *= factor;
    if (key.ends_with("_per_s")) quantity.value /= factor;
  });
  for (Straggler& straggler : t.stragglers) straggler.delay_us.value *= factor;
}

TEST(SimulatorProperties, EverythingTwiceAsFastIsTwiceAsFast) {
  for_all([](const std::string& algorithm, const std::string& codec, const Topology& t) {
    Topology fast = t;
    scale_times(fast, 0.5);
    const SimulationResult slow = simulated(algorithm, codec, t, kMiB);
    const SimulationResult half = simulated(algorithm, codec, fast, kMiB);
    // One instant of each chain per stage, message and output.
    expect_near(2 * half.latency, slow.latency, 200);
  });
}

/// On a mesh, two_shot and ring share no link: one stage after the other, so that every constant
/// acts monotonically.
TEST(SimulatorProperties, ABetterMachineIsNeverSlowerWhereNothingIsShared) {
  using Better = void (*)(Topology&);
  const Better improvements[] = {
      [](Topology& t) { t.link_type("link").bandwidth_gb_per_s.value *= 1.5; },
      [](Topology& t) { t.link_type("link").latency_us.value /= 2; },
      [](Topology& t) { t.device.codec_gops_per_s.value *= 1.5; },
      [](Topology& t) { t.device.step_us.value /= 2; },
      [](Topology& t) { t.device.message_us.value /= 2; },
      [](Topology& t) { t.device.codec_tile_us_per_op.value /= 2; },
      [](Topology& t) { t.device.codec_tile_fixed_ops.value /= 2; },
      [](Topology& t) { t.device.latency_overlap.value *= 2; },
      [](Topology& t) { t.device.codec_overlap.value *= 2; },
      [](Topology& t) { t.device.stores->release_us.value /= 2; },
      [](Topology& t) { t.device.stores->release_coalescing_tiles.value /= 2; },
      [](Topology& t) { t.device.stores->contention_codec.value /= 2; },
      [](Topology& t) { t.device.stores->contention_plain.value /= 2; },
      [](Topology& t) { t.device.stores->free_packets_codec.value *= 2; },
      [](Topology& t) { t.device.stores->free_packets_plain.value *= 2; },
      [](Topology& t) { t.device.stores->decorrelation_packets.value /= 2; },
  };
  for (const char* name : {"mi300x-2", "mi300x-4", "mi300x-8"}) {
    const Topology t = find_topology(name);
    for (const char* algorithm : {"two_shot", "one_shot", "ring"}) {
      for (const char* codec : {"fp16", "qr-q6", "qr-q4"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, algorithm, codec));
        for (const std::uint64_t bytes : {64 * kKiB, kMiB, 64 * kMiB}) {
          const Picoseconds before = simulated(algorithm, codec, t, bytes).latency;
          for (std::size_t i = 0; i < std::size(improvements); ++i) {
            Topology improved = t;
            improvements[i](improved);
            EXPECT_LE(simulated(algorithm, codec, improved, bytes).latency, before) << i;
          }
        }
      }
    }
  }
}

/// At equal bytes and packets. No codec looks better for calculating more.
TEST(SimulatorProperties, MoreOperationsAreNeverFaster) {
  for (const std::string& name : listed_topologies()) {
    const Topology t = find_topology(name);
    for (const char* algorithm : {"one_shot", "two_shot", "ring", "all_to_all"}) {
      for (const std::uint64_t bytes : {64 * kKiB, kMiB, 8 * kMiB, 64 * kMiB}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, algorithm, bytes));
        double before = 0;
        for (const double ops : {0.0, 0.01, 1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0}) {
          const CountedCodec codec(
              1, 2048, {.encode_ops_per_element = 0.6 * ops, .decode_ops_per_element = 0.4 * ops});
          const ScheduleRequest request =
              request_of(algorithm, codec, t.ranks.value, bytes * t.ranks.value);
          const double now =
              simulate({find_algorithm(algorithm), request, codec, DType::fp16, t}).latency_us;
          EXPECT_GE(now, before - 1e-5) << ops;
          before = now;
        }
      }
    }
  }
}

TEST(SimulatorProperties, MoreBytesAreNeverFasterWhereAllRanksDoTheSame) {
  for_all([](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const std::uint64_t unit =
        std::uint64_t{2} * std::lcm<std::uint64_t>(codec->info().alignment, 2048) * 240;
    Picoseconds before = 0;
    // The same shape of chunks, larger and larger.
    for (const std::uint64_t factor : {1, 2, 3, 10, 40}) {
      const Picoseconds now = simulated(algorithm, codec_name, t, unit * factor).latency;
      EXPECT_GE(now, before) << factor;
      before = now;
    }
  });
}

/// Messages as far one way round as the other use both ways, so that all links of an even ring are as full: n^2 / 8 messages of
/// two_shot on each, in each of two steps.
TEST(SimulatorProperties, TiesAreBalanced) {
  for (const Rank n : {4U, 6U, 8U}) {
    Topology t = machine(TopologyKind::ring, n);
    t.device.codec_gops_per_s.value = kLargestQuantity;
    const std::uint64_t elements = 16'000'000 * std::uint64_t{n};
    for (const bool all : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", n, all));
      const ScheduleRequest request{.world_size = n, .elements = elements};
      const CodecPtr codec = one_byte();
      const SimulationResult r =
          all ? simulate({make_schedule("two_shot", request), *codec, DType::fp16, t})
              : simulate({find_algorithm("two_shot"), request, *codec, DType::fp16, t});
      const double wire_us = 2 * (n * n / 8.0) * 16e6 / 10'000;
      EXPECT_NEAR(r.latency_us / wire_us, 1, 0.02);
      ASSERT_EQ(r.links.size(), 1u);
      EXPECT_EQ(r.links[0].links, 2 * n);
      EXPECT_EQ(r.links[0].bytes, WideCount{2 * n} * 2 * (n * n) * 2'000'000);
    }
  }
}

// ---------------------------------------------------------------- order

/// The ops of each step in random order, their ids renumbered.
Schedule shuffled(const Schedule& schedule, std::mt19937_64& random) {
  // Operands stand before their users; so random priorities are taken along the dependencies.
  std::vector<std::uint64_t> depth(schedule.ops.size(), 0);
  for (ValueId id = 0; id < depth.size(); ++id) {
    for (const ValueId operand : schedule.operands(schedule.ops[id])) {
      if (operand == kOwnInput) continue;
      const bool same_step = schedule.ops[operand].step == schedule.ops[id].step;
      if (same_step) depth[id] = std::max(depth[id], depth[operand] + 1);
    }
  }
  std::vector<ValueId> order(schedule.ops.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) {
    return std::pair(schedule.ops[a].step, depth[a]) < std::pair(schedule.ops[b].step, depth[b]);
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

TEST(SimulatorProperties, TheOrderOfOpsInAStepDoesNotMatter) {
  std::mt19937_64 random(1);
  for_all([&](const std::string& algorithm, const std::string& codec_name, const Topology& t) {
    const CodecPtr codec = find_codec(codec_name);
    const Schedule schedule = schedule_of(algorithm, *codec, t.ranks.value, 777'778);
    const Schedule other = shuffled(schedule, random);
    EXPECT_EQ(simulate({other, *codec, DType::fp16, t}),
              simulate({schedule, *codec, DType::fp16, t}));
  });
}

/// A quantum delays what it must, and says by how much.
TEST(SimulatorProperties, AQuantumAddsAtMostWhatItSays) {
  const auto run = [](const std::vector<Rank>& shape, const SimulateOptions& options) {
    Topology t = torus_machine(shape);
    t.stragglers.push_back({3, assumed(40)});
    return simulate({find_algorithm("two_shot"),
                     {.world_size = t.ranks.value, .elements = t.ranks.value * 10'000},
                     *one_byte(),
                     DType::fp16,
                     t,
                     options});
  };
  for (const std::vector<Rank>& shape : {std::vector<Rank>{4, 4, 4}, std::vector<Rank>{6, 6, 6}}) {
    const SimulationResult exact = run(shape, {.quantum_us = 0});
    EXPECT_EQ(exact.quantum_us, 0);
    EXPECT_EQ(exact.quantum_error_us, 0);
    const double quantum_us = exact.latency_us / 1000;
    const SimulationResult coarse = run(shape, {.quantum_us = quantum_us});
    EXPECT_EQ(coarse.quantum_us, us_from_picoseconds(picoseconds_from_us(quantum_us)));
    EXPECT_GE(coarse.latency, exact.latency);
    EXPECT_LE(coarse.latency_us, 1.005 * exact.latency_us);
    EXPECT_LE(coarse.latency_us, exact.latency_us + coarse.quantum_error_us);
    EXPECT_EQ(coarse.wire_bytes, exact.wire_bytes);
    // By itself it is exact as long as that is cheap, then within the error that it says.
    const SimulationResult automatic = run(shape, {.exact_solved = 1 << 14});
    EXPECT_GT(automatic.quantum_us, 0);
    EXPECT_GE(automatic.latency, exact.latency);
    EXPECT_LE(automatic.latency_us, exact.latency_us + automatic.quantum_error_us);
    EXPECT_LE(automatic.latency_us, 1.02 * exact.latency_us);
  }
  EXPECT_EQ(run({4, 4, 4}, {}), run({4, 4, 4}, {.quantum_us = 0}));
}

// ---------------------------------------------------------------- folding

/// The options under which an algorithm may run.
std::vector<AlgorithmOptions> options_of(const Algorithm& algorithm, Rank ranks) {
  std::vector<AlgorithmOptions> all = {{}, {{"own", "exact"}}};
  if (algorithm.name == "all_to_all") all.push_back({{"combine", "quantized"}});
  if (algorithm.name == "ring") all.push_back({{"forward", "reencoded"}});
  if (algorithm.name.starts_with("hierarchical")) {
    for (Rank size = 1; size <= ranks; ++size) {
      if (ranks % size == 0) all.push_back({{"group_size", size}});
    }
  }
  if (algorithm.name == "hierarchical_pipelined") all.push_back({{"micro_chunks", 3}});
  return all;
}

std::vector<Topology> fabrics_with_shifts() {
  std::vector<Topology> all;
  for (Rank n = 2; n <= 16; ++n) {
    for (const char* kind : {"full", "ring"})
      all.push_back(find_topology(fmt::format("{}:{}", kind, n)));
    all.push_back(machine(TopologyKind::switched, n));
  }
  for (const auto& [ranks, size] : {std::pair<Rank, Rank>{4, 2},
                                    {6, 3},
                                    {6, 2},
                                    {8, 4},
                                    {9, 3},
                                    {12, 2},
                                    {16, 4},
                                    {8, 8},
                                    {3, 1}}) {
    all.push_back(machine(TopologyKind::numa, ranks, size));
  }
  for (const std::vector<Rank>& shape : std::vector<std::vector<Rank>>{
           {2, 2, 2}, {4, 4}, {3, 5}, {2, 3, 2}, {1, 6}, {6, 1}, {8}, {2, 4}, {4, 2}}) {
    all.push_back(torus_machine(shape));
  }
  for (const char* name :
       {"fat_tree:8", "fat_tree:16", "fat_tree:64", "mi300x-2", "mi300x-8", "h200-8", "l40-8"}) {
    all.push_back(find_topology(name));
  }
  // Pods of 2 servers: 4 x 2 x 4 ranks, and 2 x 2 x 3.
  all.push_back(machine(TopologyKind::fat_tree, 32, 4));
  all.push_back(machine(TopologyKind::fat_tree, 12, 3));
  // Ranks that share cards; servers without a switch.
  for (const ServerInside inside :
       {ServerInside::switched, ServerInside::mesh, ServerInside::pcie}) {
    for (const Rank nics : {1, 2, 4}) all.push_back(servers(16, nics, inside));
  }
  return all;
}

/// One rank that stands for all says what all of them say, to the picosecond and the byte.
TEST(Folding, IsExact) {
  int folded = 0;
  std::map<std::string, int> by_algorithm;
  std::map<TopologyKind, int> by_kind;
  for (const Topology& t : fabrics_with_shifts()) {
    const Rank n = t.ranks.value;
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const AlgorithmOptions& options : options_of(algorithm, n)) {
        // Even chunks for every group size, with micro-chunks that differ in size.
        for (const auto& [codec_name, elements] :
             {std::pair<const char*, std::uint64_t>{"fp16", 1000 * n}, {"qr-q4", 2048 * 5 * n}}) {
          const CodecPtr codec = find_codec(codec_name);
          const ScheduleRequest request{.world_size = n,
                                        .elements = elements,
                                        .alignment = codec->info().alignment,
                                        .options = options};
          const Plan plan = plan_of(algorithm, request, *codec, DType::fp16, t);
          if (!plan.folded()) continue;
          ++folded;
          ++by_algorithm[algorithm.name];
          ++by_kind[t.kind];
          const SimulationResult one = simulate({plan, t});
          const SimulationResult all =
              simulate({make_schedule(algorithm.name, request), *codec, DType::fp16, t});
          const std::string what =
              fmt::format("{} {} {} {} {}", t.name, name_of(t.kind), n, algorithm.name, codec_name);
          EXPECT_EQ(one.simulated_ranks, 1u) << what;
          EXPECT_EQ(all.simulated_ranks, n) << what;
          EXPECT_EQ(one.latency, all.latency) << what;
          EXPECT_EQ(one.wire_bytes, all.wire_bytes) << what;
          EXPECT_EQ(one.wire_elements, all.wire_elements) << what;
          ASSERT_EQ(one.links.size(), all.links.size()) << what;
          for (std::size_t i = 0; i < one.links.size(); ++i) {
            EXPECT_EQ(one.links[i].link_class, all.links[i].link_class) << what;
            EXPECT_EQ(one.links[i].bytes, all.links[i].bytes) << what;
            EXPECT_EQ(one.links[i].links, all.links[i].links) << what;
            EXPECT_NEAR(one.links[i].utilisation, all.links[i].utilisation, 1e-12) << what;
          }
        }
      }
    }
  }
  // The test says nothing where nothing is folded.
  EXPECT_GT(folded, 500);
  for (const char* name :
       {"one_shot", "two_shot", "ring", "hierarchical", "hierarchical_pipelined", "all_to_all"}) {
    EXPECT_GT(by_algorithm[name], 20) << name;
  }
  using enum TopologyKind;
  for (const TopologyKind kind : {full_mesh, ring, switched, numa, torus, fat_tree}) {
    EXPECT_GT(by_kind[kind], 20) << name_of(kind);
  }
}

TEST(Folding, IsExactForPartsOfMeshesAndSwitches) {
  for (const char* name : {"mi300x-8", "h200-8", "full:100"}) {
    const Topology t = find_topology(name);
    for (const char* algorithm : {"two_shot", "one_shot", "ring", "hierarchical", "all_to_all"}) {
      for (const Rank ranks : {2, 4, 6}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, algorithm, ranks));
        const CodecPtr codec = find_codec("fp16");
        const ScheduleRequest request{.world_size = ranks, .elements = 12'000'000};
        const SimulationResult one =
            simulate({find_algorithm(algorithm), request, *codec, DType::fp16, t});
        const SimulationResult all =
            simulate({make_schedule(algorithm, request), *codec, DType::fp16, t});
        EXPECT_EQ(one.simulated_ranks, 1u);
        EXPECT_EQ(one.latency, all.latency);
        ASSERT_EQ(one.links.size(), all.links.size());
        for (std::size_t i = 0; i < one.links.size(); ++i) {
          EXPECT_EQ(one.links[i].bytes, all.links[i].bytes);
          EXPECT_EQ(one.links[i].links, all.links[i].links);
          EXPECT_NEAR(one.links[i].utilisation, all.links[i].utilisation, 1e-12);
        }
      }
    }
  }
}

Rank simulated_ranks(const char* algorithm, Rank ranks, std::uint64_t elements, const Topology& t,
                     const AlgorithmOptions& options = {}, const SimulateOptions& how = {}) {
  return simulate({find_algorithm(algorithm),
                   {.world_size = ranks, .elements = elements, .options = options},
                   *find_codec("fp16"),
                   DType::fp16,
                   t,
                   how})
      .simulated_ranks;
}

TEST(Folding, IsRefusedWhereRanksDiffer) {
  using enum TopologyKind;
  const Topology mesh = machine(full_mesh, 8);
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8000, mesh), 1u);
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8001, mesh), 8u) << "uneven chunks";
  EXPECT_EQ(simulated_ranks("hierarchical", 8, 8001, mesh), 8u) << "uneven chunks";
  EXPECT_EQ(simulated_ranks("ring", 8, 8001, mesh), 8u) << "uneven chunks";
  EXPECT_EQ(simulated_ranks("one_shot", 8, 8001, mesh), 1u) << "the tensor is not cut";
  EXPECT_EQ(simulated_ranks("halving_doubling", 8, 8000, mesh), 8u) << "no symmetry is known";

  Topology faulty = mesh;
  faulty.faults.push_back({{false, 6}, {false, 7}, 0.5, "test"});
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8000, faulty), 8u);
  Topology late = mesh;
  late.stragglers.push_back({3, assumed(1)});
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8000, late), 8u);

  EXPECT_EQ(simulated_ranks("two_shot", 4, 8000, mesh), 1u);
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8000, machine(ring, 8)), 1u);
  EXPECT_EQ(simulated_ranks("two_shot", 4, 8000, machine(ring, 8)), 4u) << "part of a ring";
  EXPECT_EQ(simulated_ranks("ring", 4, 8000, machine(ring, 8)), 4u) << "part of a ring";
  EXPECT_EQ(simulated_ranks("two_shot", 4, 8000, machine(numa, 8, 4)), 4u) << "one group of two";
  EXPECT_EQ(simulated_ranks("ring", 8, 8000, machine(numa, 8, 4)), 8u) << "ends of groups differ";
  EXPECT_EQ(simulated_ranks("ring", 8, 8000, torus_machine({2, 4})), 8u) << "rows end";
  EXPECT_EQ(simulated_ranks("ring", 8, 8000, torus_machine({1, 8})), 1u) << "one row";
  EXPECT_EQ(simulated_ranks("hierarchical", 8, 8000, machine(numa, 8, 4), {{"group_size", 4}}), 1u);
  EXPECT_EQ(simulated_ranks("hierarchical", 8, 8000, machine(numa, 8, 4), {{"group_size", 2}}), 8u);
  EXPECT_EQ(simulated_ranks("hierarchical", 8, 8000, torus_machine({2, 2, 2}), {{"group_size", 4}}),
            1u);
  EXPECT_EQ(simulated_ranks("hierarchical", 16, 16000, torus_machine({2, 8}), {{"group_size", 4}}),
            16u);
  EXPECT_EQ(simulated_ranks("two_shot", 12, 12000, dragonfly_machine(12, 2, 2)), 12u);
  // Pods of 2 servers of 2: the last pod of 5 servers is not full.
  EXPECT_EQ(simulated_ranks("two_shot", 10, 10000, machine(fat_tree, 10, 2)), 10u);

  SimulationTrace trace;
  EXPECT_EQ(simulated_ranks("two_shot", 8, 8000, mesh, {}, {.trace = &trace}), 8u);
  EXPECT_EQ(simulated_ranks("two_shot", 1, 8000, machine(full_mesh, 1)), 1u);
}

/// A plan may run on another topology; a folded one only where one rank still stands for all.
TEST(Folding, APlanDoesNotRunWhereItIsWrong) {
  const Topology mesh = machine(TopologyKind::full_mesh, 4);
  const CodecPtr codec = find_codec("fp16");
  const Plan plan = plan_of(find_algorithm("two_shot"), {.world_size = 4, .elements = 4000}, *codec,
                            DType::fp16, mesh);
  ASSERT_TRUE(plan.folded());
  Topology faster = mesh;
  faster.link_type("link").bandwidth_gb_per_s.value = 20;
  EXPECT_LT(simulate({plan, faster}).latency, simulate({plan, mesh}).latency);
  Topology late = mesh;
  late.stragglers.push_back({3, assumed(1)});
  EXPECT_THROW(simulate({plan, late}), InvalidInput);
  Topology faulty = mesh;
  faulty.faults.push_back({{false, 1}, {false, 2}, 0.5, "test"});
  EXPECT_THROW(simulate({plan, faulty}), InvalidInput);
  EXPECT_THROW(simulate({plan, machine(TopologyKind::ring, 8)}), InvalidInput);
  SimulationTrace trace;
  EXPECT_THROW(simulate({plan, mesh, {.trace = &trace}}), InvalidInput);
}

/// Counted, not timed: tens of thousands of ranks are one.
TEST(Folding, MakesTensOfThousandsOfRanksOne) {
  const std::uint64_t elements = std::uint64_t{1} << 25;
  EXPECT_EQ(simulated_ranks("two_shot", 1024, elements, find_topology("full:1024")), 1u);
  EXPECT_EQ(simulated_ranks("ring", 4096, elements, find_topology("ring:4096")), 1u);
  const Topology torus = find_topology("torus:16x16x16x16");
  const CodecPtr codec = find_codec("fp16");
  const Plan plan =
      plan_of(find_algorithm("hierarchical"),
              {.world_size = 65536, .elements = elements, .options = {{"group_size", 256}}}, *codec,
              DType::fp16, torus);
  EXPECT_EQ(plan.ranks_per_rank, 65536u);
  EXPECT_EQ(plan.stages.size(), 3u);
  EXPECT_EQ(plan.messages.size(), 3u * 255);
}

/// Chunks that differ by a tile count as the largest where the schedule is too large to tell them
/// apart: by no more too slow than it says. Hardly too fast: a rank without a chunk, who has nothing to
/// send in a step, pays for flags that others do not.
TEST(Folding, TakesChunksThatDifferByATileForEqual) {
  const CodecPtr codec = find_codec("qr-q4");
  const auto latency_us = [&](Rank ranks, std::uint64_t tiles, double factor) {
    const Topology t = find_topology(fmt::format("full:{}", ranks));
    const Plan plan = plan_of(find_algorithm("two_shot"),
                              {.world_size = ranks,
                               .elements = tiles * codec->info().alignment,
                               .alignment = codec->info().alignment},
                              *codec, DType::fp16, t);
    EXPECT_DOUBLE_EQ(plan.equal_chunks_factor, factor);
    EXPECT_EQ(plan.elements, tiles * codec->info().alignment);
    const SimulationResult r = simulate({plan, t});
    EXPECT_DOUBLE_EQ(r.equal_chunks_factor, factor);
    return r.latency_us;
  };
  const double equal_us = latency_us(8192, 2 * 8192, 1);
  EXPECT_DOUBLE_EQ(latency_us(8192, 8192 + 1024, 2 / 1.125), equal_us);
  EXPECT_DOUBLE_EQ(latency_us(8192, 2 * 8192 - 1, 16384. / 16383), equal_us);
  EXPECT_LE(equal_us, 2 / 1.125 * latency_us(8192, 8192, 1));
  // Where all chunks are simulated, the time lies where it would be said to lie.
  for (const std::uint64_t tiles : {63U, 65U, 96U, 127U}) {
    const std::uint64_t all = (tiles + 63) / 64 * 64;
    const double exact_us = latency_us(64, tiles, 1);
    const double as_equal_us = latency_us(64, all, 1);
    EXPECT_LE(exact_us, 1.01 * as_equal_us) << tiles;
    EXPECT_LE(as_equal_us, static_cast<double>(all) / static_cast<double>(tiles) * exact_us)
        << tiles;
  }
}

/// Random machines and sizes, in worlds that are folded: errors are as small as is said.
TEST(Folding, IsOffByNoMoreThanItSaysWhereChunksDiffer) {
  std::mt19937_64 dice(20261129);
  const auto from_to = [&dice](double least, double most) {
    return least * std::pow(most / least, std::uniform_real_distribution<double>(0, 1)(dice));
  };
  int folded = 0;
  for (int i = 0; i < 40; ++i) {
    const auto ranks = static_cast<Rank>(kMostRanksWithUnequalChunks + 1 + dice() % 40);
    constexpr TopologyKind kKinds[] = {TopologyKind::full_mesh, TopologyKind::switched,
                                       TopologyKind::ring};
    Topology t = machine(kKinds[dice() % 3], ranks);
    t.link_type("link").bandwidth_gb_per_s.value = from_to(1, 500);
    t.link_type("link").latency_us.value = from_to(0.05, 10);
    t.device.launch_us.value = from_to(0.1, 20);
    t.device.step_us.value = from_to(0.01, 5);
    t.device.message_us.value = from_to(0.001, 1);
    t.device.codec_gops_per_s.value = from_to(100, 30000);
    const char* const names[] = {"two_shot", "ring", "hierarchical", "hierarchical_pipelined"};
    const Algorithm& algorithm = find_algorithm(names[dice() % 4]);
    const char* const codecs[] = {"fp16", "qr-q4", "int4-g32"};
    const CodecPtr codec = find_codec(codecs[dice() % 3]);
    const std::uint64_t alignment = codec->info().alignment;
    const ScheduleRequest request{
        .world_size = ranks,
        .elements = (1 + dice() % (4 * ranks)) * alignment - dice() % alignment,
        .alignment = alignment,
        .options = {{"group_size", default_group_size(t, ranks)}}};
    const SimulationResult r = simulate({algorithm, request, *codec, DType::fp16, t});
    if (r.equal_chunks_factor == 1) continue;
    ++folded;
    const double exact_us =
        simulate({make_schedule(algorithm.name, request), *codec, DType::fp16, t}).latency_us;
    EXPECT_LE(std::abs(r.latency_us - exact_us), equal_chunks_error_us(r))
        << algorithm.name << " " << codec->name() << " of " << request.elements << " on " << ranks;
  }
  EXPECT_GT(folded, 20);
}

// ---------------------------------------------------------------- ranks that are alike

/// All that a trace is told, in order.
struct Recording final : SimulationTrace {
  std::vector<std::string> lines;
  std::map<MessageId, std::size_t> started;

  static std::string words(const PlannedMessage& m) {
    return fmt::format("{}->{} {} {} {}", m.from, m.to, m.bytes, m.elements, m.output_elements);
  }
  void on_launched(Rank rank, Picoseconds ready) override {
    lines.push_back(fmt::format("launched {} {}", rank, ready));
  }
  void on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
               Picoseconds end) override {
    lines.push_back(
        fmt::format("work {} {} {} {} {}", rank, static_cast<int>(work), step, begin, end));
  }
  void on_message(const PlannedMessage& m, std::uint32_t step, std::span<const LinkId> route,
                  Picoseconds begin, Picoseconds delivered) override {
    lines.push_back(
        fmt::format("message {} {} {} {} {}", words(m), step, route.size(), begin, delivered));
  }
  void on_link(const PlannedMessage& m, std::uint32_t step, LinkId link, Picoseconds begin,
               Picoseconds end) override {
    lines.push_back(fmt::format("link {} {} {} {} {}", words(m), step, link, begin, end));
  }
  void on_share(MessageId message, LinkId link, double share, Picoseconds now) override {
    // By when they start: plans may number them differently.
    const std::size_t number = started.try_emplace(message, started.size()).first->second;
    lines.push_back(fmt::format("share {} {} {} {}", number, link, share, now));
  }
};

/// Fabrics that do not look the same from every rank, on which ranks may do the same.
std::vector<Topology> uneven_fabrics() {
  std::vector<Topology> all;
  for (const char* name : {"full:2", "full:5", "full:8", "ring:6", "torus:3x4", "fat_tree:16",
                           "dragonfly:12", "mi300x-4", "h200-8", "l40-8"}) {
    Topology t = find_topology(name);
    t.stragglers.push_back({t.ranks.value / 2, assumed(3.5)});
    if (t.kind == TopologyKind::full_mesh)
      t.faults.push_back({{false, 0}, {false, 1}, 0.3, "test"});
    all.push_back(t);
  }
  all.push_back(find_topology("full:7"));
  return all;
}

/// A plan that lists one rank says what one says that lists all, to the bit; and the trace, in the
/// same order.
TEST(AlikeRanks, AreAsIfListed) {
  std::map<std::string, int> by_algorithm;
  for (const Topology& t : uneven_fabrics()) {
    const Rank n = t.ranks.value;
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const AlgorithmOptions& options : options_of(algorithm, n)) {
        for (const char* codec_name : {"fp16", "qr-q4"}) {
          const CodecPtr codec = find_codec(codec_name);
          const ScheduleRequest request{.world_size = n,
                                        .elements = 2048 * 5 * n,
                                        .alignment = codec->info().alignment,
                                        .options = options};
          if (!repeated_plan_of(algorithm, request, *codec, DType::fp16)) continue;
          ++by_algorithm[algorithm.name];
          const Schedule schedule = make_schedule(algorithm.name, request);
          SCOPED_TRACE(fmt::format("{} {} {}", t.name, algorithm.name, codec_name));
          Recording alike;
          Recording listed;
          const SimulationResult all =
              simulate({schedule, *codec, DType::fp16, t, {.trace = &listed}});
          EXPECT_EQ(simulate({algorithm, request, *codec, DType::fp16, t, {.trace = &alike}}), all);
          EXPECT_EQ(alike.lines, listed.lines);
          EXPECT_EQ(simulate({schedule, *codec, DType::fp16, t}), all);
          EXPECT_EQ(all.simulated_ranks, n);
        }
      }
    }
  }
  for (const char* name :
       {"one_shot", "two_shot", "ring", "all_to_all", "reduce_scatter", "all_gather"}) {
    EXPECT_GT(by_algorithm[name], 20) << name;
  }
}

/// One rank may send to all or to one: the vendor's library lays its rings by that.
TEST(AlikeRanks, RunAsALibraryRunsThem) {
  Topology t = find_topology("mi300x-8");
  t.stragglers.push_back({5, assumed(2)});
  const CodecPtr codec = find_codec("fp16");
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    SCOPED_TRACE(algorithm);
    const ScheduleRequest request{.world_size = 8, .elements = kMiB};
    EXPECT_EQ(
        simulate({find_algorithm(algorithm), request, *codec, DType::fp16, t, {.library = true}}),
        simulate({make_schedule(algorithm, request), *codec, DType::fp16, t, {.library = true}}));
  }
}

/// Counted, not timed: what is written down is one rank's, and more than fits is refused in words.
TEST(AlikeRanks, AreNotWrittenDown) {
  const CodecPtr codec = find_codec("qr-q4");
  const auto plan = [&](const char* algorithm, Rank ranks) {
    return repeated_plan_of(find_algorithm(algorithm),
                            {.world_size = ranks,
                             .elements = std::uint64_t{1} << 25,
                             .alignment = codec->info().alignment},
                            *codec, DType::fp16);
  };
  const std::optional<Plan> two_shot = plan("two_shot", 1024);
  ASSERT_TRUE(two_shot.has_value());
  EXPECT_FALSE(two_shot->folded());
  EXPECT_EQ(two_shot->stages.size(), 2u);
  EXPECT_EQ(two_shot->messages.size(), 2u * 1023);
  EXPECT_TRUE(plan("ring", 4096).has_value());
  EXPECT_FALSE(plan("ring", 8192).has_value()) << "134 million messages";
  EXPECT_FALSE(plan("halving_doubling", 8).has_value()) << "no symmetry is known";
  EXPECT_FALSE(plan("hierarchical", 8).has_value()) << "not when all move up by one";
  EXPECT_FALSE(plan("two_shot", 1000).has_value()) << "uneven chunks";
}

// ---------------------------------------------------------------- limits and comparisons

TEST(SimulatorLimits, ASmallMessageTakesLaunchAndSynchronisation) {
  Topology t = find_topology("mi300x-8");
  t.device.stores.reset();  // even one tile is released
  const double expected_us =
      t.device.launch_us.value + 2 * (t.device.step_us.value + 7 * t.device.message_us.value +
                                      t.link_type("link").latency_us.value);
  const double latency_us = simulated("two_shot", "fp16", t, 16).latency_us;
  EXPECT_GE(latency_us, expected_us);
  EXPECT_NEAR(latency_us, expected_us, 0.001);
}

/// two_shot puts 2/n of the payload on every link of a mesh, and 2 (n - 1)/n on every port.
TEST(SimulatorLimits, ALargeMessageTakesItsBytesOverTheBandwidth) {
  Topology mesh = find_topology("mi300x-8");
  mesh.device.stores.reset();
  mesh.device.hbm_gb_per_s.value = kLargestQuantity;
  EXPECT_NEAR(simulated("two_shot", "fp16", mesh, 4096 * kMiB).algbw_gb_per_s,
              mesh.link_type("link").bandwidth_gb_per_s.value * 8 / 2, 0.5);
  Topology nvswitch = find_topology("h200-8");
  nvswitch.device.hbm_gb_per_s.value = kLargestQuantity;
  EXPECT_NEAR(simulated("two_shot", "fp16", nvswitch, 4096 * kMiB).busbw_gb_per_s,
              nvswitch.link_type("link").bandwidth_gb_per_s.value, 8);
}

TEST(SimulatorComparisons, HierarchicalWinsOnTwoNumaGroupsWhenMessagesAreLarge) {
  const Topology l40 = find_topology("l40-8");
  for (const char* codec : {"fp16", "qr-q8", "qr-q4"}) {
    const double two_shot_us = simulated("two_shot", codec, l40, 64 * kMiB).latency_us;
    const double hierarchical_us = simulated("hierarchical", codec, l40, 64 * kMiB).latency_us;
    const double pipelined_us =
        simulated("hierarchical_pipelined", codec, l40, 64 * kMiB).latency_us;
    EXPECT_LT(hierarchical_us, two_shot_us) << codec;
    EXPECT_LT(pipelined_us, hierarchical_us) << codec;
  }
}

/// As in QuickReduce's tables: compression costs at 32 KiB and pays at 64 MiB.
TEST(SimulatorComparisons, CompressionPaysForLargeMessagesOnly) {
  for (const char* name : {"mi300x-2", "mi300x-4", "mi300x-8"}) {
    const Topology t = find_topology(name);
    EXPECT_GT(simulated("two_shot", "qr-q4", t, 32 * kKiB).latency,
              simulated("two_shot", "fp16", t, 32 * kKiB).latency);
    EXPECT_LT(simulated("two_shot", "qr-q4", t, 64 * kMiB).latency,
              simulated("two_shot", "fp16", t, 64 * kMiB).latency);
  }
}

TEST(SimulatorComparisons, RingLosesToTwoShotOnAMesh) {
  const Topology t = find_topology("mi300x-8");
  for (const std::uint64_t bytes : {std::uint64_t{1024}, 64 * kMiB}) {
    EXPECT_GT(simulated("ring", "fp16", t, bytes).latency,
              simulated("two_shot", "fp16", t, bytes).latency);
  }
}

}  // namespace
}  // namespace arlab
