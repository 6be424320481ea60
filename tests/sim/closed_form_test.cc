// The closed-form model against times worked out by hand, and broken models against the same times.

#include "sim/closed_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- a machine and codecs to count
// with

/// Round numbers: 10 GB/s = 10000 bytes/us; 40 * 10^9 operations/s = 40000 operations/us.
Topology machine(TopologyKind kind, Rank ranks, Rank group_size = 0) {
  const auto assumed = [](double value) { return Quantity{value, Source::assumed, "test"}; };
  return {.name = "test machine",
          .summary = "round numbers",
          .kind = kind,
          .ranks = {ranks, Source::assumed, "test"},
          .group_size = {group_size, Source::assumed, "test"},
          .link_bandwidth_gb_per_s = assumed(10),
          .link_latency_us = assumed(1),
          .bridge_bandwidth_gb_per_s = assumed(4),
          .bridge_latency_us = assumed(1.5),
          .launch_overhead_us = assumed(5),
          .step_overhead_us = assumed(2),
          .message_overhead_us = assumed(0.5),
          .device = "test device",
          .codec_gops_per_s = assumed(40),
          .codec_startup_us = assumed(3)};
}

/// Costs 3 operations to encode and 2 to decode an element. It has no values.
class CountedCodec final : public Codec {
 public:
  explicit CountedCodec(std::size_t bytes_per_element, std::size_t alignment = 1,
                        CodecCost cost = {3, 2})
      : Codec({.name = "counted",
               .summary = "for counting",
               .source = "test",
               .dtypes = {DType::fp16},
               .alignment = alignment,
               .cost = cost}),
        bytes_per_element_(bytes_per_element) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return elements * bytes_per_element_;
  }
  void do_encode(DType, std::span<const std::byte>, std::span<std::byte>,
                 EncodeCounts&) const override {}
  void do_decode(DType, std::span<const std::byte>, std::span<std::byte>) const override {}

  std::size_t bytes_per_element_;
};

CodecPtr one_byte() { return std::make_shared<CountedCodec>(1); }

/// 40000 elements per rank: 80000 bytes of fp16, 40000 bytes of one_byte().
constexpr std::uint64_t kElements = 40000;

Schedule written(const char* algorithm, Rank ranks, AlgorithmOptions options = {}) {
  return make_schedule(algorithm, {.world_size = ranks, .elements = kElements, .options = options});
}

/// Rank 0 collects everything, adds, and gives the sum to all.
Schedule through_rank_0(Rank ranks) {
  ScheduleBuilder s("through_rank_0", {.world_size = ranks, .elements = kElements});
  const ChunkId tensor = s.add_chunk({0, kElements});
  s.at_step(0);
  std::vector<Value> contributions;
  for (Rank r = 0; r < ranks; ++r) contributions.push_back(s.send(s.encode(s.input(r, tensor)), 0));
  s.at_step(1);
  const Value sum = s.encode(s.reduce(contributions, Start::first));
  for (Rank r = 0; r < ranks; ++r) s.output(s.send(sum, r));
  return s.finish();
}

// ---------------------------------------------------------------- by hand

struct HandCase {
  std::string name;
  Schedule schedule;
  CodecPtr codec;
  Topology topology;
  double latency_us;
  LatencyBreakdown breakdown;  // launch, synchronisation, wire, codec
};

std::vector<HandCase> hand_cases() {
  using enum TopologyKind;
  const CodecPtr fp16 = find_codec("fp16");
  std::vector<HandCase> cases;

  // Every step: 20000 bytes on each link take 2 us; step 2 + 3 peers * 0.5 + latency 1 = 4.5 us.
  // Step 1 sums 4 chunks of 10000 from zero: 40000 operations, 1 us, hidden by the wire.
  cases.push_back({"full mesh, two_shot",
                   written("two_shot", 4),
                   fp16,
                   machine(full_mesh, 4),
                   5 + 2 * (4.5 + 2),
                   {5, 9, 4, 0}});

  // The same with half the bytes: 1 us of wire per step, and 3 us of start-up.
  // Step 0: encode 40000 * 3 = 120000 operations: 3 us.
  // Step 1: decode 40000 * 2, add 40000, encode 10000 * 3, decode the output 40000 * 2: 230000
  // operations, 5.75 us.
  cases.push_back({"full mesh, two_shot, codec",
                   written("two_shot", 4),
                   one_byte(),
                   machine(full_mesh, 4),
                   5 + (4.5 + 3 + 3) + (4.5 + 3 + 5.75),
                   {5, 9, 0, 6 + 3 + 5.75}});

  // Step 0: 40000 bytes on each link: 4 us, longer than 3 us of encode. Step 1: nothing is sent;
  // decode 4 * 40000 * 2, add 3 * 40000 (from the first): 440000 operations, 11 us.
  cases.push_back({"full mesh, one_shot, codec",
                   written("one_shot", 4),
                   one_byte(),
                   machine(full_mesh, 4),
                   5 + (4.5 + 3 + 4) + (3 + 11),
                   {5, 4.5, 4, 6 + 11}});

  // A port carries 3 * 20000 bytes: 6 us per step.
  cases.push_back({"switch, two_shot",
                   written("two_shot", 4),
                   fp16,
                   machine(switched, 4),
                   5 + 2 * (4.5 + 6),
                   {5, 9, 12, 0}});

  // 3 * 80000 bytes into rank 0, then out of it: 24 us each; rank 0 waits for 3 peers, then
  // signals 3.
  cases.push_back({"switch, through rank 0",
                   through_rank_0(4),
                   fp16,
                   machine(switched, 4),
                   5 + 2 * (4.5 + 24),
                   {5, 9, 48, 0}});

  // 2 * 2 messages of 20000 bytes cross in each direction: 80000 bytes over 4 GB/s, 20 us, longer
  // than 6 us of a port. Latency 1 + 1.5.
  cases.push_back({"numa, two_shot",
                   written("two_shot", 4),
                   fp16,
                   machine(numa, 4, 2),
                   5 + 2 * (6 + 20),
                   {5, 12, 40, 0}});

  // Two chunks of 20000 elements, 40000 bytes. Inside a group: 4 us, 2 + 0.5 + 1 = 3.5 us. Across:
  // two owners send 40000 bytes each: 80000 bytes, 20 us, 2 + 0.5 + 2.5 = 5 us.
  cases.push_back({"numa, hierarchical",
                   written("hierarchical", 4),
                   fp16,
                   machine(numa, 4, 2),
                   5 + (3.5 + 4) + (5 + 20) + (3.5 + 4),
                   {5, 12, 28, 0}});

  // Half the bytes: 2, 10 and 2 us of wire.
  // Step 0: encode 40000 * 3: 3 us.
  // Step 1: decode 2 * 20000 * 2, add 2 * 20000, encode 20000 * 3: 180000 operations, 4.5 us.
  // Step 2: the same and decode the output 40000 * 2: 260000 operations, 6.5 us.
  cases.push_back({"numa, hierarchical, codec",
                   written("hierarchical", 4),
                   one_byte(),
                   machine(numa, 4, 2),
                   5 + (3.5 + 3 + 3) + (5 + 3 + 10) + (3.5 + 3 + 6.5),
                   {5, 12, 10, 9 + 3 + 6.5}});

  // Distances 1, 2, 1; the 2 go upwards. A link upwards carries its own two messages and one in
  // transit: 60000 bytes, 6 us; the longest route is 2 us.
  cases.push_back({"ring, two_shot",
                   written("two_shot", 4),
                   fp16,
                   machine(ring, 4),
                   5 + 2 * (2 + 1.5 + 2 + 6),
                   {5, 11, 12, 0}});

  // 6 steps of one message of 20000 bytes to one peer: 2 us and 2 + 0.5 + 1 = 3.5 us.
  cases.push_back({"ring, ring",
                   written("ring", 4),
                   fp16,
                   machine(ring, 4),
                   5 + 6 * (3.5 + 2),
                   {5, 21, 12, 0}});

  // The first two ranks of four: one message of 40000 bytes per step, 4 us; step 1 adds 2 * 20000
  // (1 us, hidden).
  cases.push_back({"part of a switch, two_shot",
                   written("two_shot", 2),
                   fp16,
                   machine(switched, 4),
                   5 + 2 * (3.5 + 4),
                   {5, 7, 8, 0}});

  // 20000 bytes on each link, once: 2 us; nothing is added.
  cases.push_back({"full mesh, all_to_all",
                   written("all_to_all", 4),
                   fp16,
                   machine(full_mesh, 4),
                   5 + (4.5 + 2),
                   {5, 4.5, 2, 0}});

  // 1 us of wire; encode 40000 * 3, decode 40000 * 2: 200000 operations, 5 us.
  cases.push_back({"full mesh, all_to_all, codec",
                   written("all_to_all", 4),
                   one_byte(),
                   machine(full_mesh, 4),
                   5 + (4.5 + 3 + 5),
                   {5, 4.5, 0, 3 + 5}});

  // There: encode 40000 * 3: 3 us. And back: decode, encode, decode: 280000 operations, 7 us.
  cases.push_back({"full mesh, all_to_all with combine, codec",
                   written("all_to_all", 4, {.combine = Combine::quantized}),
                   one_byte(),
                   machine(full_mesh, 4),
                   5 + (4.5 + 3 + 3) + (4.5 + 3 + 7),
                   {5, 9, 0, 6 + 3 + 7}});

  // The slot of the only rank stays where it is.
  cases.push_back({"1 rank, all_to_all, own exact",
                   written("all_to_all", 1, {.own = OwnContribution::exact}),
                   one_byte(),
                   machine(full_mesh, 1),
                   5,
                   {5, 0, 0, 0}});

  // Nobody to talk to: 0 + x for 40000 elements, 1 us.
  cases.push_back({"1 rank, two_shot",
                   written("two_shot", 1),
                   fp16,
                   machine(full_mesh, 1),
                   5 + 1,
                   {5, 0, 0, 1}});

  // 1 rank with a codec: encode 3 us; decode, add, encode, decode 80000 + 40000 + 120000 + 80000:
  // 8 us; start-up twice.
  cases.push_back({"1 rank, two_shot, codec",
                   written("two_shot", 1),
                   one_byte(),
                   machine(full_mesh, 1),
                   5 + (3 + 3) + (3 + 8),
                   {5, 0, 0, 17}});
  return cases;
}

using Model =
    std::function<SimulationResult(const Schedule&, const Codec&, DType, const Topology&)>;

/// The first hand case that a model gets wrong, in words; empty when there is none.
std::string first_violation(const Model& model) {
  const auto differ = [](double a, double b) { return !(std::abs(a - b) < 1e-9); };
  for (const HandCase& c : hand_cases()) {
    const SimulationResult r = model(c.schedule, *c.codec, DType::fp16, c.topology);
    if (differ(r.latency_us, c.latency_us)) {
      return fmt::format("{}: {} us, not {}", c.name, r.latency_us, c.latency_us);
    }
    if (differ(r.breakdown.launch_us, c.breakdown.launch_us) ||
        differ(r.breakdown.synchronisation_us, c.breakdown.synchronisation_us) ||
        differ(r.breakdown.wire_us, c.breakdown.wire_us) ||
        differ(r.breakdown.codec_us, c.breakdown.codec_us)) {
      return fmt::format("{}: parts {} {} {} {}", c.name, r.breakdown.launch_us,
                         r.breakdown.synchronisation_us, r.breakdown.wire_us, r.breakdown.codec_us);
    }
    const double algbw_gb_per_s = 80000 / c.latency_us / 1e3;
    const double n = c.schedule.world_size;
    const double ways = c.schedule.collective == Collective::all_to_all ? 1 : 2;
    if (differ(r.algbw_gb_per_s, algbw_gb_per_s) ||
        differ(r.busbw_gb_per_s, algbw_gb_per_s * ways * (n - 1) / n)) {
      return fmt::format("{}: {} GB/s, {} GB/s", c.name, r.algbw_gb_per_s, r.busbw_gb_per_s);
    }
  }
  return {};
}

TEST(ClosedForm, MeetsTheTimesWorkedOutByHand) {
  EXPECT_EQ(first_violation(simulate_closed_form), "");
}

/// Broken models, made by giving the right one wrong inputs or by spoiling what it says.
TEST(ClosedForm, BrokenModelsDoNot) {
  const auto on_machine = [](const std::function<void(Topology&)>& spoil) {
    return Model([spoil](const Schedule& s, const Codec& c, DType d, Topology t) {
      spoil(t);
      return simulate_closed_form(s, c, d, t);
    });
  };
  const auto on_result = [](const std::function<void(SimulationResult&)>& spoil) {
    return Model([spoil](const Schedule& s, const Codec& c, DType d, const Topology& t) {
      SimulationResult result = simulate_closed_form(s, c, d, t);
      spoil(result);
      return result;
    });
  };
  constexpr double kAlmostNothing = 1e-6;
  const std::pair<const char*, Model> mutants[] = {
      {"the bridge does not limit", on_machine([](Topology& t) {
         if (t.kind == TopologyKind::numa) t.kind = TopologyKind::switched;
       })},
      {"both directions share a bridge", on_machine([](Topology& t) {
         if (t.kind == TopologyKind::numa) t.bridge_bandwidth_gb_per_s.value /= 2;
       })},
      {"crossing costs no latency",
       on_machine([](Topology& t) { t.bridge_latency_us.value = kAlmostNothing; })},
      {"ports do not limit", on_machine([](Topology& t) {
         if (t.kind == TopologyKind::switched) t.kind = TopologyKind::full_mesh;
       })},
      {"a ring reaches everybody in one hop", on_machine([](Topology& t) {
         if (t.kind == TopologyKind::ring) t.kind = TopologyKind::full_mesh;
       })},
      {"peers cost nothing",
       on_machine([](Topology& t) { t.message_overhead_us.value = kAlmostNothing; })},
      {"QDQ costs nothing", on_machine([](Topology& t) { t.codec_gops_per_s.value = 1e9; })},
      {"no start-up", on_machine([](Topology& t) { t.codec_startup_us.value = kAlmostNothing; })},
      {"payload bytes travel",
       [](const Schedule& s, const Codec& c, DType d, const Topology& t) {
         const CountedCodec uncompressed(2);
         return simulate_closed_form(s, c.name() == "fp16" ? c : uncompressed, d, t);
       }},
      {"outputs are not decoded",
       [](Schedule s, const Codec& c, DType d, const Topology& t) {
         s.outputs.clear();
         return simulate_closed_form(s, c, d, t);
       }},
      {"every sum starts from its first addend",
       [](Schedule s, const Codec& c, DType d, const Topology& t) {
         for (Op& op : s.ops) op.start = Start::first;
         return simulate_closed_form(s, c, d, t);
       }},
      {"all steps at once",
       [](Schedule s, const Codec& c, DType d, const Topology& t) {
         for (Op& op : s.ops) op.step = 0;
         return simulate_closed_form(s, c, d, t);
       }},
      {"wire and QDQ do not overlap", on_result([](SimulationResult& r) {
         for (const StepTime& step : r.steps) r.latency_us += std::min(step.wire_us, step.codec_us);
       })},
      {"synchronisation once", on_result([](SimulationResult& r) {
         r.latency_us -= r.breakdown.synchronisation_us - r.steps[0].synchronisation_us;
       })},
      {"bus bandwidth of an all-to-all is that of an all-reduce",
       [](Schedule s, const Codec& c, DType d, const Topology& t) {
         s.collective = Collective::all_reduce;
         return simulate_closed_form(s, c, d, t);
       }},
      {"bus bandwidth is algorithmic bandwidth",
       on_result([](SimulationResult& r) { r.busbw_gb_per_s = r.algbw_gb_per_s; })},
  };
  for (const auto& [name, model] : mutants) EXPECT_NE(first_violation(model), "") << name;
}

// ---------------------------------------------------------------- what the result says

TEST(ClosedForm, SaysWhatLinksCarried) {
  // Per step and rank: 1 message inside the group, 2 across, 20000 bytes each; 4 ranks, 2 steps.
  const SimulationResult r = simulate_closed_form(written("two_shot", 4), *find_codec("fp16"),
                                                  DType::fp16, machine(TopologyKind::numa, 4, 2));
  EXPECT_EQ(r.wire_bytes, 480000u);
  ASSERT_EQ(r.links.size(), 3u);
  EXPECT_EQ(r.links[0].link_class, LinkClass::port_out);
  EXPECT_EQ(r.links[0].links, 4u);
  EXPECT_EQ(r.links[0].bytes, 480000u);
  EXPECT_DOUBLE_EQ(r.links[0].utilisation, 12.0 / 57);
  EXPECT_EQ(r.links[1].link_class, LinkClass::port_in);
  EXPECT_EQ(r.links[1].bytes, 480000u);
  EXPECT_EQ(r.links[2].link_class, LinkClass::bridge);
  EXPECT_EQ(r.links[2].links, 2u);
  EXPECT_EQ(r.links[2].bytes, 320000u);
  EXPECT_DOUBLE_EQ(r.links[2].utilisation, 40.0 / 57);
}

TEST(ClosedForm, SaysWhatItIsAndWhatItSimulated) {
  const SimulationResult r = simulate_closed_form(written("two_shot", 4), *one_byte(), DType::fp16,
                                                  machine(TopologyKind::full_mesh, 4));
  EXPECT_EQ(r.model, "closed-form");
  EXPECT_EQ(r.topology, "test machine");
  EXPECT_EQ(r.algorithm, "two_shot");
  EXPECT_EQ(r.codec, "counted");
  EXPECT_EQ(r.dtype, DType::fp16);
  EXPECT_EQ(r.world_size, 4u);
  EXPECT_EQ(r.payload_bytes, 80000u);
  ASSERT_EQ(r.steps.size(), 2u);
  EXPECT_EQ(r.steps[1].step, 1u);
  EXPECT_DOUBLE_EQ(r.steps[1].synchronisation_us, 4.5);
  EXPECT_DOUBLE_EQ(r.steps[1].startup_us, 3);
  EXPECT_DOUBLE_EQ(r.steps[1].wire_us, 1);
  EXPECT_DOUBLE_EQ(r.steps[1].codec_us, 5.75);
  EXPECT_DOUBLE_EQ(r.steps[1].total_us, 13.25);
}

TEST(ClosedForm, NamesTheBottleneck) {
  const auto simulate = [](const Topology& t, const Codec& codec) {
    return simulate_closed_form(written("two_shot", 4), codec, DType::fp16, t);
  };
  const Topology numa = machine(TopologyKind::numa, 4, 2);
  const SimulationResult wire = simulate(numa, *find_codec("fp16"));
  EXPECT_EQ(wire.bottleneck, "bridge bandwidth (70 % of the latency)");
  EXPECT_EQ(wire.steps[0].bottleneck, "bandwidth of bridge 0->1");

  const SimulationResult codec = simulate(machine(TopologyKind::full_mesh, 4), *one_byte());
  EXPECT_EQ(codec.bottleneck, "codec and sums (51 % of the latency)");
  EXPECT_EQ(codec.steps[1].bottleneck, "codec and sums on rank 0");

  Topology slow = machine(TopologyKind::full_mesh, 4);
  slow.step_overhead_us.value = 100;
  const SimulationResult sync = simulate(slow, *one_byte());
  EXPECT_TRUE(sync.bottleneck.starts_with("synchronisation")) << sync.bottleneck;
  EXPECT_EQ(sync.steps[0].bottleneck, "synchronisation");

  slow.launch_overhead_us.value = 1000;
  EXPECT_TRUE(simulate(slow, *one_byte()).bottleneck.starts_with("launch overhead"));
  slow.codec_startup_us.value = 2000;
  EXPECT_EQ(simulate(slow, *one_byte()).steps[0].bottleneck, "start-up of the codec");
}

// ---------------------------------------------------------------- bad input

std::string message_of(const Schedule& s, const Codec& codec, DType dtype, const Topology& t) {
  try {
    simulate_closed_form(s, codec, dtype, t);
  } catch (const InvalidInput& error) {
    std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  }
  return "nothing was thrown";
}

TEST(ClosedForm, RefusesWhatDoesNotFit) {
  const Topology four = machine(TopologyKind::full_mesh, 4);
  const CodecPtr fp16 = find_codec("fp16");
  EXPECT_EQ(message_of(written("ring", 5), *fp16, DType::fp16, four),
            "schedule 'ring' has 5 ranks, but topology 'test machine' has only 4");
  EXPECT_EQ(message_of(written("ring", 4), *fp16, DType::bf16, four),
            "codec fp16 takes fp16, not bf16");
  EXPECT_EQ(message_of(written("ring", 4), CountedCodec(1, 64), DType::fp16, four),
            "schedule 'ring': chunk 0, elements [0, 10000), cuts a block of codec counted: "
            "boundaries must be multiples of 64");
  for (const double ops : {-1.0, HUGE_VAL, std::nan("")}) {
    for (const CodecCost cost : {CodecCost{ops, 1}, CodecCost{1, ops}}) {
      EXPECT_EQ(message_of(written("ring", 4), CountedCodec(1, 1, cost), DType::fp16, four),
                "codec counted: its cost per element must be a number from 0 to 1000000");
    }
  }
  Topology broken = four;
  broken.link_latency_us.value = -1;
  EXPECT_EQ(message_of(written("ring", 4), *fp16, DType::fp16, broken),
            "test machine: key 'link.latency_us.value': -1 is out of range; allowed is 1e-06 to "
            "1000000000");
  broken = four;
  broken.ranks.value = 5000;
  EXPECT_EQ(message_of(written("ring", 4), *fp16, DType::fp16, broken),
            "test machine: key 'ranks.value': 5000 is out of range; allowed is 1 to 1024");
}

TEST(ClosedForm, RefusesSchedulesThatReferToNothing) {
  const Schedule good = written("two_shot", 4);
  const auto first = [](Schedule& s, OpKind kind) -> Op& {
    return *std::find_if(s.ops.begin(), s.ops.end(),
                         [kind](const Op& o) { return o.kind == kind; });
  };
  using Spoil = std::function<void(Schedule&)>;
  const std::pair<const char*, Spoil> cases[] = {
      {"ranks", [](Schedule& s) { s.world_size = 0; }},
      {"ranks", [](Schedule& s) { s.elements = 0; }},
      {"chunk 1", [](Schedule& s) { s.chunks[1].end = s.chunks[1].begin; }},
      {"chunk 3", [](Schedule& s) { s.chunks[3].end += 1; }},
      {"op 3", [](Schedule& s) { s.ops[3].rank = 4; }},
      {"op 3", [](Schedule& s) { s.ops[3].chunk = 4; }},
      {"op", [&](Schedule& s) { first(s, OpKind::send).peer = 4; }},
      {"op",
       [&](Schedule& s) {
         Op& op = first(s, OpKind::send);
         op.peer = op.rank;
       }},
      {"op", [&](Schedule& s) { first(s, OpKind::send).source = 4000; }},
      {"op", [&](Schedule& s) { first(s, OpKind::encode).source = 4000; }},
      {"op", [&](Schedule& s) { first(s, OpKind::reduce).addend_count = 0; }},
      {"op", [&](Schedule& s) { first(s, OpKind::reduce).addend_count = 4000; }},
      {"op", [&](Schedule& s) { first(s, OpKind::reduce).first_addend = UINT32_MAX; }},
      {"op", [](Schedule& s) { s.addends[2] = 4000; }},
      {"output 1", [](Schedule& s) { s.outputs[1].rank = 4; }},
      {"output 1", [](Schedule& s) { s.outputs[1].chunk = 4; }},
      {"output 1", [](Schedule& s) { s.outputs[1].value = 4000; }},
  };
  for (const auto& [expected, spoil] : cases) {
    Schedule bad = good;
    spoil(bad);
    const std::string message =
        message_of(bad, *one_byte(), DType::fp16, machine(TopologyKind::full_mesh, 4));
    EXPECT_TRUE(message.starts_with("schedule 'two_shot': ")) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST(ClosedForm, RefusesMoreElementsThanACodecCanCount) {
  // Larger than any algorithm writes: as if it came from elsewhere.
  Schedule huge = make_schedule("one_shot", {.world_size = 2, .elements = 1});
  huge.elements = huge.chunks.front().end = UINT64_MAX;
  EXPECT_NE(message_of(huge, *one_byte(), DType::fp16, machine(TopologyKind::full_mesh, 2))
                .find("too many"),
            std::string::npos);
}

}  // namespace
}  // namespace arlab
