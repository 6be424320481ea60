// The simulator against times worked out by hand, to the picosecond. CMakeLists.txt adds simulators
// with a mistake in their own code.

#include "sim/simulator.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/schedule_builder.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

/// 40000 elements per rank: 80000 bytes of fp16, 40000 bytes of one_byte(). Links carry 10000 bytes
/// per us, devices do 40000 operations per us.
constexpr std::uint64_t kElements = 40000;
/// First tile of one_byte(), which takes 5 operations: 0.25 us * (5 + 7).
constexpr double kTile = 3;

Schedule written(const char* algorithm, Rank ranks, AlgorithmOptions options = {},
                 std::uint64_t elements = kElements) {
  return make_schedule(algorithm, {.world_size = ranks, .elements = elements, .options = options});
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

/// Every sender sends all elements to the receiver, who keeps what comes.
Schedule messages(Rank ranks, const std::vector<std::pair<Rank, Rank>>& pairs) {
  ScheduleBuilder s("messages", {.world_size = ranks, .elements = kElements});
  const ChunkId tensor = s.add_chunk({0, kElements});
  s.at_step(0);
  for (const auto& [from, to] : pairs) s.output(s.send(s.encode(s.input(from, tensor)), to));
  return s.finish();
}

/// Rank 0 sends a quarter of the elements to rank 1 and the others to rank 2.
Schedule uneven_messages() {
  ScheduleBuilder s("uneven_messages", {.world_size = 3, .elements = kElements});
  const ChunkId small = s.add_chunk({0, kElements / 4});
  const ChunkId large = s.add_chunk({kElements / 4, kElements});
  s.at_step(0);
  s.output(s.send(s.encode(s.input(0, small)), 1));
  s.output(s.send(s.encode(s.input(0, large)), 2));
  return s.finish();
}

/// Rank 0 sends all elements to rank 1 and, as a step of its own that waits for nothing, to rank 2.
Schedule two_steps_at_once() {
  ScheduleBuilder s("two_steps_at_once", {.world_size = 3, .elements = kElements});
  const ChunkId tensor = s.add_chunk({0, kElements});
  for (Rank to = 1; to < 3; ++to) {
    s.at_step(to);
    s.output(s.send(s.encode(s.input(0, tensor)), to));
  }
  return s.finish();
}

/// Rank 0 sends a quarter of the elements to rank 1, which adds its own, and the others to rank 2.
Schedule slow_sender() {
  ScheduleBuilder s("slow_sender", {.world_size = 3, .elements = kElements});
  const ChunkId small = s.add_chunk({0, kElements / 4});
  const ChunkId large = s.add_chunk({kElements / 4, kElements});
  s.at_step(0);
  const Value sent = s.send(s.encode(s.input(0, small)), 1);
  s.output(s.send(s.encode(s.input(0, large)), 2));
  const Value own = s.encode(s.input(1, small));
  s.at_step(1);
  s.output(s.reduce(std::vector<Value>{sent, own}, Start::first));
  return s.finish();
}

Topology with_domain() {
  Topology t = machine(TopologyKind::graph, 4);
  t.link_types.push_back({"lane", assumed(10), assumed(1)});
  t.domains.push_back({"upstream", assumed(5)});
  t.edges.push_back({{false, 0}, {false, 1}, "lane", "upstream", true});
  t.edges.push_back({{false, 2}, {false, 3}, "lane", "upstream", true});
  return t;
}

Topology with_fault(Topology t, NodeName from, NodeName to, double factor) {
  t.faults.push_back({from, to, factor, "test"});
  return t;
}

Topology with_straggler(Topology t, Rank rank, double delay_us) {
  t.stragglers.push_back({rank, assumed(delay_us)});
  return t;
}

Topology with_device(Topology t, const std::function<void(Device&)>& change) {
  change(t.device);
  return t;
}

Topology with_library(Topology t) {
  t.device.library = library_of(2, 20000);
  return t;
}

/// Tiles of 10000 bytes, 4 resident; harmless beside what a test looks at.
Topology with_stores(Topology t, const std::function<void(Stores&)>& change) {
  t.device.stores = Stores{.tile_bytes = assumed(10000),
                           .resident_tiles = assumed(1e6),
                           .release_us = assumed(1e-6),
                           .release_coalescing_tiles = assumed(4),
                           .contention_codec = assumed(1e-6),
                           .contention_plain = assumed(1e-6),
                           .free_packets_codec = assumed(1e9),
                           .free_packets_plain = assumed(1e9),
                           .decorrelation_packets = assumed(1e6)};
  change(*t.device.stores);
  return t;
}

/// 4 blocks of tiles of 1000 elements, 20000 bytes a round; what is received costs 3 times its
/// operations, and all of them twice as much as if they were packed.
Topology with_blocks(Topology t) {
  t.device.decode_cost = assumed(3);
  t.device.blocks = blocks_of(5000, 1);
  t.device.codecs = {{std::string(kOperation), {8, 8}, {8, 8}, 2, 2},
                     {std::string(kPackedOperation), {8, 8}, {8, 8}, 1, 1}};
  return t;
}

/// Items of two tiles of 1000 elements; turns beyond the first fill half of the pipeline with 1.5.
Topology with_sentinels(Topology t) {
  t = with_blocks(std::move(t));
  t.device.sentinels = Sentinels{.launch_us = assumed(6),
                                 .step_us = assumed(2),
                                 .access_us = assumed(0.5),
                                 .tile_us_per_op = assumed(0.1),
                                 .fill_us = assumed(3),
                                 .fill_turns = assumed(1.5 / std::log(2.0)),
                                 .turn_cost = assumed(0.5)};
  return t;
}

/// Tiles of 10000 elements.
Topology with_small(Topology t) {
  t = with_blocks(std::move(t));
  t.device.blocks->tile_elements = assumed(10000);
  t.device.small = Small{.launch_us = assumed(4),
                         .step_us = assumed(1.5),
                         .message_us = assumed(0.5),
                         .tile_us_per_op = assumed(0.1),
                         .work_cost = assumed(0.25),
                         .wire_cost = assumed(1.5)};
  return t;
}

// ---------------------------------------------------------------- by hand

struct HandCase {
  std::string name;
  Schedule schedule;
  CodecPtr codec;
  Topology topology;
  double latency_us;
  LatencyBreakdown breakdown;  // launch, synchronisation, wire, contention, codec, release
  SimulateOptions options = {};
  CodecPtr inner = nullptr;  // null: codec
};

std::vector<HandCase> hand_cases() {
  using enum TopologyKind;
  const CodecPtr fp16 = find_codec("fp16");
  std::vector<HandCase> cases;
  const auto add = [&cases](std::string name, Schedule schedule, CodecPtr codec, Topology topology,
                            double latency_us, const LatencyBreakdown& breakdown,
                            SimulateOptions options = {}, CodecPtr inner = nullptr) {
    cases.push_back({std::move(name), std::move(schedule), std::move(codec), std::move(topology),
                     latency_us, breakdown, options, std::move(inner)});
  };

  // ---- messages by themselves: flags 2 + 0.5 * peers, link latency 1

  add("one message", messages(2, {{0, 1}}), fp16, machine(full_mesh, 2), 5 + 2.5 + 8 + 1,
      {5, 3.5, 8, 0, 0, 0});

  // Half the bytes: 4 us of wire hide 40000 * 3 operations, 3 us. The other rank decodes 40000 * 2
  // operations, 2 us, while they arrive. First tile 3 us.
  add("one message, codec", messages(2, {{0, 1}}), one_byte(), machine(full_mesh, 2),
      5 + 2.5 + kTile + 4 + 1, {5, 3.5, 4, 0, kTile, 0});

  // The same on a link of 40 GB/s: 1 us of wire; the codec's 3 us show.
  Topology wide = machine(full_mesh, 2);
  wide.link_type("link").bandwidth_gb_per_s.value = 40;
  add("one message, slow codec", messages(2, {{0, 1}}), one_byte(), wide, 5 + 2.5 + kTile + 3 + 1,
      {5, 3.5, 0, 0, kTile + 3, 0});

  // The network has delivered 10000 bytes at 5 + 1 + 1, but the sender's codec needs 3 us for all
  // that it sends: they are there at 5 + 3 + 3 + 3 + 1. Rank 1 is done with its own, 0.75 us,
  // before that, and must not begin to add; which takes 0.5 for a flag, a first tile, and 50000
  // operations.
  add("a message that is complete after its delivery", slow_sender(), one_byte(),
      machine(full_mesh, 3), 5 + 3 + kTile + 3 + 1 + 0.5 + kTile + 1.25,
      {5, 4.5, 0, 0, 2 * kTile + 4.25, 0});

  // ---- blocks: flags 2 + 0.5 + 4 * 0.25, chunks of 20000 elements: 20 tiles, 5 for each block, one after the other.
  // First stage: loads 2 chunks and encodes them, 240000 operations: 2 + 3 us for the first tiles,
  // 20 for the others, which is more than 6 for all together. Second: loads 2, decodes 2 and its own sum, adds and encodes, 720000 operations:
  // 2 + 8.5, 42 and 18 us. Then one is gathered: 240000 operations, 1 + 3, 16 and 6 us.
  const Schedule two_shot = make_schedule("two_shot", {.world_size = 2, .elements = kElements});

  // The others take longer than 2 us of wire.
  add("blocks, tiles longer", two_shot, one_byte(), with_blocks(machine(full_mesh, 2)),
      5 + (3.5 + 5 + 20 + 1) + (3.5 + 10.5 + 42 + 1) + 4 + 16, {5, 9, 0, 0, 97.5, 0});

  // 80 us of wire hide them, but for the first and those that are gathered.
  Topology narrow_blocks = with_blocks(machine(full_mesh, 2));
  narrow_blocks.link_type("link").bandwidth_gb_per_s.value = 0.25;
  add("blocks, wire longer", two_shot, one_byte(), narrow_blocks,
      5 + (3.5 + 5 + 80 + 1) + (3.5 + 10.5 + 80 + 1) + 4 + 16, {5, 9, 160, 0, 35.5, 0});

  // As a program, half a microsecond more in each phase.
  Schedule program = two_shot;
  program.algorithm = "a program";
  add("blocks, as a program", program, one_byte(), narrow_blocks,
      5 + (4 + 5 + 80 + 1) + (4 + 10.5 + 80 + 1) + 4 + 16, {5, 10, 160, 0, 35.5, 0});

  // Half the operations; fewer tiles than blocks could be there, so only what they calculate together is left.
  Topology few_tiles = narrow_blocks;
  few_tiles.device.blocks->tile_elements.value = 10000;
  add("blocks, a packed codec", two_shot,
      std::make_shared<CountedCodec>(1, 1, CodecCost{3, 2, 1, true}), few_tiles,
      5 + (3 + 3.5 + 80 + 1) + (3 + 6.25 + 80 + 1) + 2.5 + 3, {5, 8, 160, 0, 15.25, 0});

  // ---- phases: both ranks encode all for themselves; decode that, and encode and send it; decode both, add and
  // encode, and decode that. Encoded chunks are read after an exchange, which takes all ranks 3.5 us, and 0.5 more with a
  // message. 4 tiles for 4 blocks: a first tile takes 2.5, 5.5 and 10.5 us, all together 6, 19 and 36.
  Topology phases = with_blocks(machine(full_mesh, 2));
  phases.device.blocks->tile_elements.value = 10000;
  add("phases of hierarchical", written("hierarchical", 2), one_byte(), phases,
      5 + (3.5 + 2.5 + 6) + (4 + 5.5 + 19 + 1) + 10.5 + 36, {5, 8.5, 0, 0, 79.5, 0});

  // The same of two halves, 2 tiles each: the first encodes of both are one phase, and the second half is sent while the first ends.
  const Schedule halves = written("hierarchical_pipelined", 2, {{"micro_chunks", 2}});
  add("phases of hierarchical_pipelined", halves, one_byte(), phases,
      5 + (3 + 5 + 6) + (3.5 + 5.5 + 9.5 + 1) + (3.5 + 16 + 27.5 + 1) + 10.5 + 18,
      {5, 12, 0, 0, 98, 0});

  // Elements encoded in a step and sent in the next are one phase.
  ScheduleBuilder later("message", {.world_size = 2, .elements = kElements});
  later.at_step(0);
  const Value encoded = later.encode(later.input(0, later.add_chunk({0, kElements})));
  later.at_step(1);
  later.output(later.send(encoded, 1));
  add("a phase of two steps", later.finish(), one_byte(), phases, 5 + 4 + 2.5 + 6 + 1,
      {5, 5, 0, 0, 8.5, 0});

  // ---- places: a rank has 580000 operations (as above, packed, with what is gathered) and 40000
  // additions, 15.5 us; two tiles of a chunk of 20000 elements take 0.1 * 2 * 29 us. 10 items in
  // 2.5 turns fill half of the pipeline, with half of a turn's work. Both steps together send 40000 bytes, 4 us, and the last
  // wire goes two ways.
  const CodecPtr packed = find_codec("bits=8,encode_ops=3,decode_ops=2,packed=1");
  add("places, codec longer", two_shot, packed, with_sentinels(machine(full_mesh, 2)),
      6 + 2 * 2 + 2 * 1.5 + 5.8 + 1.55 + 15.5 + 2, {6, 9, 0, 0, 22.85, 0});

  Topology narrow_places = with_sentinels(machine(full_mesh, 2));
  narrow_places.link_type("link").bandwidth_gb_per_s.value = 0.5;
  add("places, wire longer", two_shot, packed, narrow_places,
      6 + 2 * 2 + 2 * 1.5 + 5.8 + 1.55 + 80 + 2, {6, 9, 80, 0, 7.35, 0});
  add("places, a late rank", two_shot, packed, with_straggler(narrow_places, 1, 10),
      16 + 2 * 2 + 2 * 1.5 + 5.8 + 1.55 + 80 + 2, {16, 9, 80, 0, 7.35, 0});

  // 20 items in 5 turns: 1 - 2^(-4 / 1.5) of the pipeline, with half of a turn's work. 600000 operations for 40000 elements,
  // and 40000 additions, 16 us in 5 turns.
  const double filled = 1 - std::exp2(-4 / 1.5);
  const double filled_us = 3 * filled;
  add("places, one step", make_schedule("one_shot", {.world_size = 2, .elements = kElements}),
      packed, narrow_places, 6 + 2 + filled_us + 3 + 1.6 * filled + 80 + 1,
      {6, 3 + filled_us, 80, 0, 3 + 1.6 * filled, 0});

  // Values as they are take no time but the wire's 8 us, and the additions of half a turn.
  add("places, no codec", make_schedule("one_shot", {.world_size = 2, .elements = kElements}), fp16,
      with_sentinels(machine(full_mesh, 2)), 6 + 2 + filled_us + 0.1 * filled + 8 + 1,
      {6, 3 + filled_us, 8, 0, 0.1 * filled, 0});

  // ---- small: 120000, 340000 and, gathered, 120000 operations for tiles of 20000 elements, and with 40000 additions a quarter
  // of what they take when blocks are many; half as long again for 2 us of wire, of which another step hides half.
  add("small", two_shot, packed, with_small(machine(full_mesh, 2)),
      4 + (1.5 + 0.6 + 0.75 + 1.5 + 1) + (1.5 + 1.7 + 2.375 + 1.5 + 1) + 0.6 + 0.75,
      {4, 5, 3, 0, 6.775, 0});

  // Overlap of 1: codec and wire follow each other.
  add("one message, no overlap", messages(2, {{0, 1}}), one_byte(),
      with_device(machine(full_mesh, 2), [](Device& d) { d.codec_overlap.value = 1; }),
      5 + 2.5 + kTile + 3 + 4 + 1, {5, 3.5, 4, 0, kTile + 3, 0});

  // Overlap of 2: 4 us and 3 us make 5 us.
  add("one message, half an overlap", messages(2, {{0, 1}}), one_byte(),
      with_device(machine(full_mesh, 2), [](Device& d) { d.codec_overlap.value = 2; }),
      5 + 2.5 + kTile + 5 + 1, {5, 3.5, 4, 0, kTile + 1, 0});

  // Latency overlap of 2: flags 3 and first tile 3 make 6 us; with 8 us of wire that is 10 us.
  Topology slow = machine(full_mesh, 2);
  slow.link_type("link").bandwidth_gb_per_s.value = 5;
  slow.device.message_us.value = 1;
  slow.device.latency_overlap.value = 2;
  add("one message, latency overlapped", messages(2, {{0, 1}}), one_byte(), slow, 5 + 10 + 1,
      {5, 1 + 1, 8, 0, 1, 0});

  // 200 bytes from rank 1: 5 ns; a wire of 10 GB/s: 20 ns.
  add("a small message", written("one_shot", 2, {}, 100), fp16, machine(full_mesh, 2),
      5 + 2.5 + 0.02 + 1 + 0.0025, {5, 3.5, 0.02, 0, 0.0025, 0});

  // 60000 bytes take 6 us; the other 20000 are there before.
  add("messages of different sizes", uneven_messages(), fp16, machine(full_mesh, 3), 5 + 3 + 6 + 1,
      {5, 4, 6, 0, 0, 0});

  // The second stage waits until the first has encoded, 3 us.
  add("a busy rank", two_steps_at_once(), one_byte(), machine(full_mesh, 3),
      5 + 3 + 2.5 + kTile + 4 + 1, {5, 3.5, 4, 0, 3 + kTile, 0});

  // Two pairs behind one upstream of 5 GB/s: 2.5 GB/s each; or one pair with all of it.
  add("sharing domain, two messages", messages(4, {{0, 1}, {2, 3}}), fp16, with_domain(),
      5 + 2.5 + 32 + 1, {5, 3.5, 32, 0, 0, 0});
  add("sharing domain, one message", messages(4, {{0, 1}}), fp16, with_domain(), 5 + 2.5 + 16 + 1,
      {5, 3.5, 16, 0, 0, 0});

  // ---- all-reduce on every kind

  // Every step: 20000 bytes on each link take 2 us; step 2 + 3 peers * 0.5 + latency 1 = 4.5 us.
  // Step 1 sums 4 chunks of 10000 from zero: 40000 operations, 1 us, hidden by the wire.
  add("full mesh, two_shot", written("two_shot", 4), fp16, machine(full_mesh, 4), 5 + 2 * (4.5 + 2),
      {5, 9, 4, 0, 0, 0});

  // The same with half the bytes: 1 us of wire per step, and 3 us of the first tile.
  // Step 0: encode 40000 * 3 = 120000 operations: 3 us.
  // Step 1: decode 40000 * 2, add 40000, encode 10000 * 3, decode the output 40000 * 2: 230000
  // operations, 5.75 us.
  add("full mesh, two_shot, codec", written("two_shot", 4), one_byte(), machine(full_mesh, 4),
      5 + (4.5 + kTile + 3) + (4.5 + kTile + 5.75), {5, 9, 0, 0, 2 * kTile + 3 + 5.75, 0});

  // Step 0: 40000 bytes on each link: 4 us, longer than 3 us of encode. Step 1: nothing is sent;
  // decode 4 * 40000 * 2, add 3 * 40000 (from the first): 440000 operations, 11 us.
  add("full mesh, one_shot, codec", written("one_shot", 4), one_byte(), machine(full_mesh, 4),
      5 + (4.5 + kTile + 4) + (kTile + 11), {5, 4.5, 4, 0, 2 * kTile + 11, 0});

  // A port carries 3 * 20000 bytes: 6 us per step.
  add("switch, two_shot", written("two_shot", 4), fp16, machine(switched, 4), 5 + 2 * (4.5 + 6),
      {5, 9, 12, 0, 0, 0});

  // 3 * 80000 bytes into rank 0, then out of it: 24 us each. Others signal 1 peer; rank 0, who has
  // sent nothing before, waits for 3 and signals 3.
  add("switch, through rank 0", through_rank_0(4), fp16, machine(switched, 4),
      5 + (2 + 0.5 + 24 + 1) + (2 + 6 * 0.5 + 24 + 1), {5, 9.5, 48, 0, 0, 0});

  // 2 * 2 messages of 20000 bytes cross in each direction: 80000 bytes over 4 GB/s, 20 us, longer
  // than 6 us of a port. Latency 1 + 1.5.
  add("numa, two_shot", written("two_shot", 4), fp16, machine(numa, 4, 2), 5 + 2 * (6 + 20),
      {5, 12, 40, 0, 0, 0});

  // Two chunks of 20000 elements, 40000 bytes. Inside a group: 4 us, 2 + 0.5 + 1 = 3.5 us. Across:
  // two owners send 40000 bytes each: 80000 bytes, 20 us, 2 + 0.5 + 2.5 = 5 us.
  add("numa, hierarchical", written("hierarchical", 4), fp16, machine(numa, 4, 2),
      5 + (3.5 + 4) + (5 + 20) + (3.5 + 4), {5, 12, 28, 0, 0, 0});

  // Half the bytes: 2, 10 and 2 us of wire.
  // Step 0: encode 40000 * 3: 3 us.
  // Step 1: decode 2 * 20000 * 2, add 2 * 20000, encode 20000 * 3: 180000 operations, 4.5 us.
  // Step 2: the same and decode the output 40000 * 2: 260000 operations, 6.5 us.
  add("numa, hierarchical, codec", written("hierarchical", 4), one_byte(), machine(numa, 4, 2),
      5 + (3.5 + kTile + 3) + (5 + kTile + 10) + (3.5 + kTile + 6.5),
      {5, 12, 10, 0, 3 * kTile + 3 + 6.5, 0});

  // ---- two codecs

  const Schedule inside = written("hierarchical", 4, {{"inner_codec", "inner"}});

  // fp16 inside: 4, 10 and 4 us of wire. Only what crosses costs operations: step 1 encodes 20000 *
  // 3 and adds 40000, step 2 decodes 2 * 20000 * 2 and adds: 2.5 and 3 us, hidden. In the first tile, step 1 has only to
  // encode, step 2 only to decode: 0.25 * (3 + 7) and 0.25 * (2 + 7).
  add("numa, hierarchical, fp16 inside", inside, one_byte(), machine(numa, 4, 2),
      5 + (3.5 + 4) + (5 + 2.5 + 10) + (3.5 + 2.25 + 4), {5, 12, 18, 0, 4.75, 0}, {}, fp16);

  // fp16 across: 2, 20 and 2 us of wire. Step 0: encode 40000 * 3, 3 us. Step 1: decode 2 * 20000 *
  // 2, add 40000: 3 us, hidden. Step 2: add 40000, encode 20000 * 3, decode the output 40000 * 2:
  // 4.5 us. First tiles: both directions where only one is used, decoding, both.
  add("numa, hierarchical, fp16 across", inside, fp16, machine(numa, 4, 2),
      5 + (3.5 + kTile + 3) + (5 + 2.25 + 20) + (3.5 + kTile + 4.5),
      {5, 12, 20, 0, 2 * kTile + 3 + 2.25 + 4.5, 0}, {}, one_byte());

  // Half of the outer codec's bytes on a link are no wire bytes: 20 us across, and inside as above.
  add("numa, hierarchical, packed across", inside,
      std::make_shared<CountedCodec>(1, 1, CodecCost{3, 2, 0.5}),
      with_stores(machine(numa, 4, 2), [](Stores&) {}),
      5 + (3.5 + 4) + (5 + 2.5 + 20) + (3.5 + 2.25 + 4), {5, 12, 28, 0, 4.75, 0}, {}, fp16);

  // Two slots of 20000 elements, a block for each tile: flags take 8 us, with half a microsecond for a phase of a program. There: 240000 operations, 5
  // us for the first tiles, as in two_shot above. Back: the own slot is decoded, 3 * 2 operations, encoded, 1, and decoded, 1; the other
  // one is decoded and encoded: unpacked 600000, 2 + 7.5 and 15 us. Returned slots are gathered: 3 * 1, 120000.
  Topology a_tile_each = with_blocks(machine(full_mesh, 2));
  a_tile_each.device.blocks->resident.value = 20;
  add("blocks, dispatch and combine",
      written("all_to_all", 2, {{"combine", "quantized"}, {"inner_codec", "inner"}}), one_byte(),
      a_tile_each, 5 + (8 + 5 + 6 + 1) + (8 + 9.5 + 15 + 1) + 2.5 + 3, {5, 18, 0, 0, 41, 0}, {},
      std::make_shared<CountedCodec>(2, 1, CodecCost{1, 1}, "inner"));

  // Rank 1 decodes with the inner codec, 30 operations for each element, from the first byte on.
  ScheduleBuilder of_inner("message", {.world_size = 2, .elements = kElements});
  of_inner.at_step(0);
  of_inner.output(of_inner.send(
      of_inner.encode(of_inner.input(0, of_inner.add_chunk({0, kElements})), CodecRole::inner), 1));
  add("one message of the inner codec", of_inner.finish(), fp16, machine(full_mesh, 2), 5 + 1 + 30,
      {5, 1, 0, 0, 30, 0}, {}, std::make_shared<CountedCodec>(1, 1, CodecCost{0.5, 30}, "inner"));

  // Distances 1, 2, 1; half of the 2 goes each way. A link carries its own message to the next, one
  // half of its own and one in transit, each at a third of the bandwidth: the halves leave after 3 us
  // and come 2 us later, the rest leaves after 4 us and comes 1 us later.
  add("ring, two_shot", written("two_shot", 4), fp16, machine(ring, 4), 5 + 2 * (2 + 1.5 + 1 + 4),
      {5, 9, 8, 0, 0, 0});

  // 6 steps of one message of 20000 bytes to one peer: 2 us and 2 + 0.5 + 1 = 3.5 us.
  add("ring, ring", written("ring", 4), fp16, machine(ring, 4), 5 + 6 * (3.5 + 2),
      {5, 21, 12, 0, 0, 0});

  // Rows and columns of 2. Rank 3 is two hops away, over rank 2: the slowest dimension first. The
  // link 0->2 carries 0->2 and 0->3, the link 0->1 carries 0->1 and 2->1: 4 us each.
  add("torus, two_shot", written("two_shot", 4), fp16, torus_machine({2, 2}),
      5 + 2 * (2 + 1.5 + 2 + 4), {5, 11, 8, 0, 0, 0});

  // The first two ranks of four: one message of 40000 bytes per step, 4 us; step 1 adds 2 * 20000
  // (1 us, hidden).
  add("part of a switch, two_shot", written("two_shot", 2), fp16, machine(switched, 4),
      5 + 2 * (3.5 + 4), {5, 7, 8, 0, 0, 0});

  // 40000 bytes to the rank 2 further, 20000 to the next; then back. One peer each.
  add("full mesh, halving_doubling", written("halving_doubling", 4), fp16, machine(full_mesh, 4),
      5 + 4 * 3.5 + 4 + 2 + 2 + 4, {5, 14, 12, 0, 0, 0});

  // ---- all-to-all

  // 20000 bytes on each link, once: 2 us; nothing is added.
  add("full mesh, all_to_all", written("all_to_all", 4), fp16, machine(full_mesh, 4), 5 + (4.5 + 2),
      {5, 4.5, 2, 0, 0, 0});

  // With half the bandwidth, as the device says of an all-to-all: 4 us.
  add("full mesh, inefficient all_to_all", written("all_to_all", 4), fp16,
      with_device(machine(full_mesh, 4), [](Device& d) { d.all_to_all_efficiency.value = 0.5; }),
      5 + (4.5 + 4), {5, 4.5, 4, 0, 0, 0});
  add("full mesh, two_shot is no all_to_all", written("two_shot", 4), fp16,
      with_device(machine(full_mesh, 4), [](Device& d) { d.all_to_all_efficiency.value = 0.5; }),
      5 + 2 * (4.5 + 2), {5, 9, 4, 0, 0, 0});

  // 1 us of wire; encode 40000 * 3, decode 40000 * 2: 200000 operations, 5 us.
  add("full mesh, all_to_all, codec", written("all_to_all", 4), one_byte(), machine(full_mesh, 4),
      5 + (4.5 + kTile + 5), {5, 4.5, 0, 0, kTile + 5, 0});

  // ---- halves of an all-reduce, and a broadcast

  // 20000 bytes on each link: 2 us. Then nothing is sent; 4 * 10000 additions take 1 us.
  add("full mesh, reduce_scatter", written("reduce_scatter", 4), fp16, machine(full_mesh, 4),
      5 + (4.5 + 2) + 1, {5, 4.5, 2, 0, 1, 0});

  // Step 0: encode 40000 * 3: 3 us, longer than 1 us of wire. Step 1: decode 40000 * 2, add 40000:
  // 120000 operations, 3 us.
  add("full mesh, reduce_scatter, codec", written("reduce_scatter", 4), one_byte(),
      machine(full_mesh, 4), 5 + (4.5 + kTile + 3) + (kTile + 3), {5, 4.5, 0, 0, 2 * kTile + 6, 0});

  // A port carries 3 * 20000 bytes: 6 us; it is no all-to-all.
  add("switch, all_gather", written("all_gather", 4), fp16,
      with_device(machine(switched, 4), [](Device& d) { d.all_to_all_efficiency.value = 0.5; }),
      5 + (4.5 + 6), {5, 4.5, 6, 0, 0, 0});

  // Encode 10000 * 3, decode the output 40000 * 2: 110000 operations, 2.75 us.
  add("full mesh, all_gather, codec", written("all_gather", 4), one_byte(), machine(full_mesh, 4),
      5 + (4.5 + kTile + 2.75), {5, 4.5, 0, 0, kTile + 2.75, 0});

  // All 80000 bytes at once, which is no step more: 8 us.
  add("full mesh, broadcast to one rank", written("broadcast", 2), fp16, machine(full_mesh, 2),
      5 + (3.5 + 8), {5, 3.5, 8, 0, 0, 0});

  // 20000 bytes on each link from rank 0, 2 us; then on each link from every rank but to rank 0.
  // Relays wait for a flag and set two.
  add("full mesh, broadcast", written("broadcast", 4), fp16, machine(full_mesh, 4),
      5 + (4.5 + 2) + (4.5 + 2), {5, 9, 4, 0, 0, 0});

  // ---- stores and what the codec packs

  // Wire bytes are half of what links carry: 2 us become 4 us.
  add("one message, half of a packet empty", messages(2, {{0, 1}}),
      std::make_shared<CountedCodec>(2, 1, CodecCost{0, 0, 0.5}),
      with_stores(machine(full_mesh, 2), [](Stores&) {}), 5 + 2.5 + 16 + 1, {5, 3.5, 16, 0, 0, 0});

  // 80000 bytes, twice (what is sent and what stays): 16 tiles; releases cost 2 us * 2 * 16 /
  // (sqrt(1 + 2 * 16 / 4) + 1) = 16 us, 8 us more than the wire.
  add("one message, releases", messages(2, {{0, 1}}), fp16,
      with_stores(machine(full_mesh, 2), [](Stores& s) { s.release_us.value = 2; }),
      5 + 2.5 + 16 + 1, {5, 3.5, 8, 0, 0, 8});

  // 20000 bytes per peer are 312.5 packets, none of which travels freely: contention is
  // 0.6 * (1/2 + 1/3) * 312.5 packets' time, half of 2 us.
  add("full mesh, two_shot, contention", written("two_shot", 4), fp16,
      with_stores(machine(full_mesh, 4),
                  [](Stores& s) {
                    s.contention_plain.value = 0.6;
                    s.free_packets_plain.value = 1e-6;
                    s.decorrelation_packets.value = 1e9;
                  }),
      5 + 2 * (4.5 + 2 + 1), {5, 9, 4, 2, 0, 0});

  // ---- what is wrong with a machine

  // Half the bandwidth from 1 to 2: 20000 bytes take 4 us there. Rank 2 waits for them in step 0;
  // all wait for rank 2, who sends at full speed in step 1; but rank 1 sends slowly to 2 again, and
  // began with the others: 5 + 6.5 + 8.5. Rank 2's own way: 5 + 8.5 + 6.5. Both 20 us.
  add("full mesh, a slow link", written("two_shot", 4), fp16,
      with_fault(machine(full_mesh, 4), {false, 1}, {false, 2}, 0.5), 5 + 8.5 + 6.5,
      {5, 9, 6, 0, 0, 0});

  // Ring upwards from 1 to 2 does not work: 1->2 goes 1->0->3->2, with others on its way. A single
  // message: 3 hops.
  add("ring, a broken link", messages(4, {{1, 2}}), fp16,
      with_fault(machine(ring, 4), {false, 1}, {false, 2}, 0), 5 + 2.5 + 8 + 3,
      {5, 5.5, 8, 0, 0, 0});

  // Rank 2 begins 10 us late: all wait for its chunk of step 0, then for step 1.
  add("full mesh, a straggler", written("two_shot", 4), fp16,
      with_straggler(machine(full_mesh, 4), 2, 10), 5 + 10 + 2 * (4.5 + 2), {15, 9, 4, 0, 0, 0});

  // No rank waits for the straggler: the others end at 16.5 us, it ends at 25 us, as it starts.
  add("messages, an idle straggler", messages(3, {{0, 1}}), fp16,
      with_straggler(machine(full_mesh, 3), 2, 20), 25, {25, 0, 0, 0, 0, 0});

  // ---- the library

  // 80000 bytes / 4 ranks <= 20000: LL; its 8 us contain everything but wire and link latency, and
  // half of the bandwidth is payload: 6 messages of 20000 bytes, 4 us each.
  add("ring, LL", written("ring", 4), fp16, with_library(machine(ring, 4)), 8 + 6 * (4 + 1),
      {8, 6, 24, 0, 0, 0}, {.library = true});

  // One element more, and it is Simple: 3 us, per step 2 us * (1 peer + itself). 20000.5 bytes: a
  // chunk of 20002 bytes more on its way round, 200 ps in each of 6 steps.
  add("ring, Simple", written("ring", 4, {}, kElements + 4), fp16, with_library(machine(ring, 4)),
      3 + 6 * (4 + 2.0002 + 1), {3, 30, 12.0012, 0, 0, 0}, {.library = true});

  // ---- alone

  add("1 rank, all_to_all, own exact", written("all_to_all", 1, {{"own", "exact"}}), one_byte(),
      machine(full_mesh, 1), 5, {5, 0, 0, 0, 0, 0});

  // A single rank: 0 + x for 40000 elements, 1 us.
  add("1 rank, two_shot", written("two_shot", 1), fp16, machine(full_mesh, 1), 5 + 1,
      {5, 0, 0, 0, 1, 0});

  // Encode 3 us; decode, add, encode, decode 80000 + 40000 + 120000 + 80000: 8 us. The first tile
  // twice.
  add("1 rank, two_shot, codec", written("two_shot", 1), one_byte(), machine(full_mesh, 1),
      5 + (kTile + 3) + (kTile + 8), {5, 0, 0, 0, 2 * kTile + 11, 0});
  return cases;
}

TEST(Simulator, MeetsTheTimesWorkedOutByHand) {
  for (const HandCase& c : hand_cases()) {
    SCOPED_TRACE(c.name);
    const Codecs codecs(*c.codec, c.inner ? *c.inner : *c.codec);
    const SimulationResult r = simulate({c.schedule, codecs, DType::fp16, c.topology, c.options});
    EXPECT_EQ(r.latency, picoseconds_from_us(c.latency_us));
    const LatencyBreakdown& p = r.breakdown;
    constexpr double kClose = 2e-6;
    EXPECT_NEAR(p.launch_us, c.breakdown.launch_us, kClose);
    EXPECT_NEAR(p.synchronisation_us, c.breakdown.synchronisation_us, kClose);
    EXPECT_NEAR(p.wire_us, c.breakdown.wire_us, kClose);
    EXPECT_NEAR(p.contention_us, c.breakdown.contention_us, kClose);
    EXPECT_NEAR(p.codec_us, c.breakdown.codec_us, kClose);
    EXPECT_NEAR(p.release_us, c.breakdown.release_us, kClose);
    const double algbw_gb_per_s = static_cast<double>(c.schedule.elements * 2) / c.latency_us / 1e3;
    const double n = c.schedule.world_size;
    const bool twice = c.schedule.collective == Collective::all_reduce ||
                       c.schedule.collective == Collective::dispatch_combine;
    const double bus = c.schedule.collective == Collective::broadcast ? 1
                       : twice                                        ? 2 * (n - 1) / n
                                                                      : (n - 1) / n;
    EXPECT_NEAR(r.algbw_gb_per_s, algbw_gb_per_s, kClose);
    EXPECT_NEAR(r.busbw_gb_per_s, algbw_gb_per_s * bus, kClose);
  }
}

/// Rank 2 of four is 10 us late, and all others wait for what it sends. Its plan lists rank 0 only.
/// Messages are 10000 elements, 1 us. First stage: 3 flags, a first tile, 120000 operations;
/// second: the same with 230000 (3 to encode a sum, 2 to decode four contributions and four sums,
/// additions).
TEST(Simulator, MeetsThemWhereThePlanListsOneRank) {
  const Topology late = with_straggler(machine(TopologyKind::full_mesh, 4), 2, 10);
  const SimulationResult r = simulate({find_algorithm("two_shot"),
                                       {.world_size = 4, .elements = kElements},
                                       *one_byte(),
                                       DType::fp16,
                                       late});
  EXPECT_EQ(r.simulated_ranks, 4u);
  EXPECT_EQ(r.latency, picoseconds_from_us(15 + (3.5 + kTile + 3 + 1) + (3.5 + kTile + 5.75 + 1)));
  EXPECT_EQ(r.breakdown.launch_us, 15);
  EXPECT_NEAR(r.breakdown.synchronisation_us, 9, 1e-9);
  EXPECT_NEAR(r.breakdown.codec_us, 2 * kTile + 3 + 5.75, 1e-9);
  EXPECT_EQ(r.wire_bytes, 24u * 10000);
}

/// A message's codec says how many bytes it is on every link, however it is packed there.
TEST(Simulator, CountsBytesByCodec) {
  const Topology t = machine(TopologyKind::numa, 4, 2);
  const CodecPtr fp16 = find_codec("fp16");
  const ScheduleRequest request{.world_size = 4,
                                .elements = kElements,
                                .options = {{"group_size", 2}, {"inner_codec", "fp16"}}};
  for (const double efficiency : {1.0, 0.5}) {
    const CountedCodec outer(1, 1, {3, 2, efficiency});
    for (const bool folded : {true, false}) {
      const SimulationResult r =
          folded
              ? simulate({find_algorithm("hierarchical"), request, {outer, *fp16}, DType::fp16, t})
              : simulate({make_schedule("hierarchical", request), {outer, *fp16}, DType::fp16, t});
      EXPECT_EQ(r.codec, "counted");
      EXPECT_EQ(r.inner_codec, "fp16");
      // Inside two steps of 4 messages of 40000 bytes, across 4 of 20000; all through ports.
      EXPECT_EQ(r.wire_bytes, 8U * 40000 + 4 * 20000);
      std::map<std::string, WideCount> bytes;
      for (const LinkClassUse& use : r.links) bytes[use.link_class] = use.bytes;
      EXPECT_EQ(bytes, (std::map<std::string, WideCount>{
                           {"bridge", 80000}, {"port_in", 400000}, {"port_out", 400000}}));
      EXPECT_EQ(r.simulated_ranks, folded ? 1U : 4U);
    }
  }
}

/// The inner codec as the outer one: as if there were none.
TEST(Simulator, TheSameCodecTwiceIsOne) {
  for (const char* algorithm : {"hierarchical", "hierarchical_pipelined"}) {
    ScheduleRequest request{
        .world_size = 8, .elements = 100 * kElements, .options = {{"group_size", 4}}};
    const Topology t = find_topology("mi300x-8");
    const CodecPtr codec = find_codec("qr-q4");
    request.alignment = codec->info().alignment;
    const SimulationResult one =
        simulate({find_algorithm(algorithm), request, *codec, DType::fp16, t});
    request.options.set("inner_codec", "qr-q4");
    const CodecPtr again = find_codec("qr-q4");
    EXPECT_EQ(simulate({find_algorithm(algorithm), request, {*codec, *again}, DType::fp16, t}),
              one);
    EXPECT_EQ(one.inner_codec, "");
  }
}

/// Where codes are added, only a rank's input is encoded, and only its result is decoded.
TEST(Simulator, SumsOfCodesTakeNoCodecAtAHop) {
  const CodecPtr codec = find_codec("shared-int8-g32");
  for (const char* algorithm : {"ring", "two_shot", "tree"}) {
    SCOPED_TRACE(algorithm);
    const Schedule s =
        make_schedule(algorithm, {.world_size = 4, .elements = 4096, .alignment = 32});
    const Plan plan = plan_of(s, *codec, DType::fp16);
    std::uint64_t encoded = 0;
    std::uint64_t decoded = 0;
    for (const Stage& stage : plan.stages) {
      encoded += stage.encoded;
      decoded += stage.decoded;
    }
    for (const PlannedMessage& message : plan.messages) decoded += message.output_elements;
    EXPECT_EQ(encoded, 4u * 4096);
    EXPECT_EQ(decoded, 4u * 4096);
    ASSERT_NE(plan.agreement, nullptr);
    EXPECT_EQ(plan.agreement->elements, 4096u / 32);
    const Topology t = find_topology("h200-4");
    Plan alone = plan;
    alone.agreement = nullptr;
    const double together =
        simulate({alone, t}).latency_us + simulate({*plan.agreement, t}).latency_us;
    EXPECT_NEAR(simulate({plan, t}).latency_us, together, 1e-9);
  }
  EXPECT_EQ(
      plan_of(make_schedule("all_gather", {.world_size = 4, .elements = 4096, .alignment = 32}),
              *codec, DType::fp16)
          .agreement,
      nullptr);
}

// ---------------------------------------------------------------- what the result says

TEST(Simulator, SaysWhatLinksCarried) {
  // Per step and rank: 1 message inside the group, 2 across, 20000 bytes each; 4 ranks, 2 steps.
  const SimulationResult r = simulate({written("two_shot", 4), *find_codec("fp16"), DType::fp16,
                                       machine(TopologyKind::numa, 4, 2)});
  EXPECT_EQ(r.wire_bytes, 480000u);
  EXPECT_EQ(r.wire_elements, 240000u);
  ASSERT_EQ(r.links.size(), 3u);
  EXPECT_EQ(r.links[0].link_class, "port_out");
  EXPECT_EQ(r.links[0].links, 4u);
  EXPECT_EQ(r.links[0].bytes, 480000u);
  EXPECT_DOUBLE_EQ(r.links[0].utilisation, 12.0 / 57);
  EXPECT_EQ(r.links[0].busiest, "port out of 0");
  EXPECT_EQ(r.links[1].link_class, "port_in");
  EXPECT_EQ(r.links[1].bytes, 480000u);
  EXPECT_EQ(r.links[2].link_class, "bridge");
  EXPECT_EQ(r.links[2].links, 2u);
  EXPECT_EQ(r.links[2].bytes, 320000u);
  EXPECT_DOUBLE_EQ(r.links[2].utilisation, 40.0 / 57);
  EXPECT_EQ(r.links[2].busiest, "bridge 0->1");
}

TEST(Simulator, SaysWhatItIsAndWhatItSimulated) {
  const SimulationResult r = simulate(
      {written("two_shot", 4), *one_byte(), DType::fp16, machine(TopologyKind::full_mesh, 4)});
  EXPECT_EQ(r.model, "event-driven");
  EXPECT_EQ(r.topology, "test machine");
  EXPECT_EQ(r.algorithm, "two_shot");
  EXPECT_EQ(r.codec, "counted");
  EXPECT_EQ(r.dtype, DType::fp16);
  EXPECT_EQ(r.world_size, 4u);
  EXPECT_EQ(r.payload_bytes, 80000u);
  EXPECT_EQ(r.simulated_ranks, 4u);
}

struct Bottleneck {
  const char* name;
  Schedule schedule;
  CodecPtr codec;
  Topology topology;
  std::string expected;
  SimulateOptions options = {};
};

std::vector<Bottleneck> bottlenecks() {
  using enum TopologyKind;
  const CodecPtr fp16 = find_codec("fp16");
  const Topology mesh = machine(full_mesh, 4);
  const Schedule two_shot = written("two_shot", 4);
  // Everybody sends to rank 0; a port carries 240000 bytes: 24 of 33 us.
  const Schedule incast = messages(4, {{1, 0}, {2, 0}, {3, 0}});
  Topology capped = with_library(mesh);
  capped.device.library->low_latency_channel_gb_per_s.value = 0.001;
  return {
      {"degraded link", two_shot, fp16, with_fault(mesh, {false, 2}, {false, 1}, 0.1),
       "bandwidth of link 2->1 (72 % of the latency)"},
      {"incast", incast, fp16, machine(switched, 4),
       "bandwidth of port into 0 (74 % of the latency)"},
      {"straggler", two_shot, fp16, with_straggler(mesh, 2, 20),
       "late start of rank 2 (66 % of the latency)"},
      {"launch", two_shot, fp16, with_device(mesh, [](Device& d) { d.launch_us.value = 100; }),
       "launch overhead (88 % of the latency)"},
      {"synchronisation", two_shot, fp16,
       with_device(mesh, [](Device& d) { d.step_us.value = 100; }),
       "synchronisation: flags and latency of links (96 % of the latency)"},
      {"codec", messages(2, {{0, 1}}), one_byte(),
       with_device(machine(full_mesh, 2), [](Device& d) { d.codec_gops_per_s.value = 1; }),
       "codec and sums of rank 0 (94 % of the latency)"},
      {"memory", messages(2, {{0, 1}}), one_byte(),
       with_device(machine(full_mesh, 2), [](Device& d) { d.hbm_gb_per_s.value = 1; }),
       "memory bandwidth of rank 1 (95 % of the latency)"},
      {"first tile", two_shot, one_byte(),
       with_device(mesh, [](Device& d) { d.codec_tile_us_per_op.value = 10; }),
       "latency of the codec's first tile of rank"},
      {"stores", two_shot, fp16,
       with_stores(mesh,
                   [](Stores& s) {
                     s.contention_plain.value = 100;
                     s.free_packets_plain.value = 1;
                   }),
       "contention of stores of rank"},
      {"releases", two_shot, fp16, with_stores(mesh, [](Stores& s) { s.release_us.value = 100; }),
       "releases of tiles of rank"},
      {"sharing domain", messages(4, {{0, 1}, {2, 3}}), fp16, with_domain(),
       "bandwidth of sharing domain upstream (79 % of the latency)"},
      {"NUMA bridge", two_shot, fp16, machine(numa, 4, 2),
       "bandwidth of bridge 0->1 and 1 more (70 % of the latency)"},
      {"blocks of the library",
       two_shot,
       fp16,
       capped,
       "blocks of the library's channels (",
       {.library = true}},
  };
}

TEST(Simulator, NamesTheBottleneck) {
  for (const Bottleneck& b : bottlenecks()) {
    const std::string named =
        simulate({b.schedule, *b.codec, DType::fp16, b.topology, b.options}).bottleneck;
    EXPECT_TRUE(named.starts_with(b.expected)) << b.name << ": " << named;
  }
  // One rank stands for all.
  const SimulationResult folded = simulate({find_algorithm("two_shot"),
                                            {.world_size = 4, .elements = kElements * 1000},
                                            *find_codec("fp16"),
                                            DType::fp16,
                                            machine(TopologyKind::switched, 4)});
  EXPECT_EQ(folded.simulated_ranks, 1u);
  EXPECT_EQ(folded.bottleneck,
            "bandwidth of port out of 0 and those like it (100 % of the latency)");
}

/// The busiest link is not always the one that was waited for. Link 2->3, 3.5 GB/s: 22.9 us from
/// the start, over after 31.4 us. Link 0->1, 4 GB/s: 20 us, but 6 us late: 34.5 us.
TEST(Simulator, NamesTheLinkOfTheLastChainNotTheBusiest) {
  Topology t = with_straggler(machine(TopologyKind::full_mesh, 4), 0, 6);
  t = with_fault(t, {false, 0}, {false, 1}, 0.4);
  t = with_fault(t, {false, 2}, {false, 3}, 0.35);
  const SimulationResult r =
      simulate({messages(4, {{0, 1}, {2, 3}}), *find_codec("fp16"), DType::fp16, t});
  EXPECT_EQ(r.latency, 34'500'000);
  EXPECT_EQ(r.links[0].busiest, "link 2->3");
  EXPECT_EQ(r.bottleneck, "bandwidth of link 0->1 (58 % of the latency)");
}

/// Times of the trace, for one message of one_byte(): 5 us launch, 2.5 us flags, 3 us first tile.
TEST(Simulator, TracesWhatHappens) {
  struct Writer final : SimulationTrace {
    std::vector<std::string> lines;
    void on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
                 Picoseconds end) override {
      lines.push_back(fmt::format("rank {} work {} step {}: {} to {}", rank, static_cast<int>(work),
                                  step, begin, end));
    }
    void on_message(const PlannedMessage& message, std::uint32_t step,
                    std::span<const LinkId> route, Picoseconds begin,
                    Picoseconds delivered) override {
      lines.push_back(fmt::format("{}->{} step {} over {}: {} to {}", message.from, message.to,
                                  step, route.size(), begin, delivered));
    }
  };
  Writer writer;
  simulate({messages(2, {{0, 1}}),
            *one_byte(),
            DType::fp16,
            machine(TopologyKind::full_mesh, 2),
            {.trace = &writer}});
  EXPECT_EQ(writer.lines, (std::vector<std::string>{
                              "rank 0 work 0 step 0: 5000000 to 7500000",
                              "rank 0 work 1 step 0: 7500000 to 13500000",
                              "rank 1 work 2 step 0: 6000000 to 8000000",
                              "0->1 step 0 over 1: 5000000 to 15500000",
                          }));
}

/// 1000 bytes/us of memory. Step 0 reads 20000 bytes: 20 us, longer than the 2 us of the wire; with
/// flags (2.5 us) and the link (1 us) the tensor arrives at 28.5 us. Step 1 reads two wires of
/// 20000 bytes and writes 20000: 60 us.
TEST(Simulator, MemoryBoundsWhatKernelsDo) {
  Topology mesh = machine(TopologyKind::full_mesh, 2);
  mesh.device.hbm_gb_per_s.value = 1;
  const SimulationResult r =
      simulate({make_schedule("one_shot", {.world_size = 2, .elements = 10000}),
                *find_codec("fp16"), DType::fp16, mesh});
  EXPECT_EQ(r.latency, 88'500'000);
}

/// The kernel model with the constants of a machine that ships, against the cell of QuickReduce's
/// table that they meet.
TEST(Simulator, MeetsTheSmallestCellOfTheMi300xFit) {
  const SimulationResult r =
      simulate({make_schedule("two_shot", {.world_size = 2, .elements = 16384}),
                *find_codec("fp16"), DType::fp16, find_topology("mi300x-2")});
  EXPECT_NEAR(r.latency_us / 8.47, 1, 0.02);
}

// ---------------------------------------------------------------- bad input

std::string refusal(const Schedule& s, const Codec& codec, DType dtype, const Topology& t,
                    const SimulateOptions& options = {}) {
  return message_of([&] { simulate({s, codec, dtype, t, options}); });
}

/// Messages of later steps leave after those of earlier ones: the straggler's neighbour gets in order what has piled up, and no
/// rank waits longer than for the straggler.
TEST(Simulator, SendsInTheOrderOfSteps) {
  const CodecPtr codec = one_byte();
  for (const char* algorithm : {"ring", "tree"}) {
    Topology t = machine(TopologyKind::full_mesh, 4);
    t.device.codec_gops_per_s.value = kLargestQuantity;
    const Schedule schedule = make_schedule(algorithm, {.world_size = 4, .elements = 4'000'000});
    const SimulationResult on_time = simulate({schedule, *codec, DType::fp16, t});
    t.stragglers.push_back({1, assumed(on_time.latency_us / 2)});
    const SimulationResult late = simulate({schedule, *codec, DType::fp16, t});
    EXPECT_LE(late.latency_us, on_time.latency_us * 1.5 + 1e-3) << algorithm;
  }
}

TEST(Simulator, RefusesWhatDoesNotFit) {
  const Topology four = machine(TopologyKind::full_mesh, 4);
  const CodecPtr fp16 = find_codec("fp16");
  EXPECT_EQ(refusal(written("ring", 5), *fp16, DType::fp16, four),
            "schedule 'ring' has 5 ranks, but topology 'test machine' has only 4");
  EXPECT_NE(refusal(written("ring", 4), *find_codec("fp32"), DType::fp16, four), "");
  for (const double ops : {-1.0, HUGE_VAL, std::nan("")}) {
    for (const CodecCost cost : {CodecCost{ops, 1}, CodecCost{1, ops}}) {
      EXPECT_EQ(refusal(written("ring", 4), CountedCodec(1, 1, cost), DType::fp16, four),
                "codec counted: its cost per element must be a number from 0 to 1000000");
    }
  }
  for (const double efficiency : {0.0, -1.0, 1.5, std::nan("")}) {
    expect_contains(
        refusal(written("ring", 4), CountedCodec(1, 1, {1, 1, efficiency}), DType::fp16, four),
        "store efficiency must be a number");
  }
  Topology broken = four;
  broken.link_type("link").latency_us.value = -1;
  EXPECT_EQ(refusal(written("ring", 4), *fp16, DType::fp16, broken),
            "test machine: key 'link.latency_us.value': -1 is out of range; allowed is 1e-06 to "
            "1000000000");
  broken = four;
  broken.ranks.value = 500000;
  EXPECT_EQ(refusal(written("ring", 4), *fp16, DType::fp16, broken),
            "test machine: key 'ranks.value': 500000 is out of range; allowed is 1 to 32768");
}

TEST(Simulator, NamesRanksWithoutAWay) {
  const CodecPtr fp16 = find_codec("fp16");
  EXPECT_EQ(refusal(written("two_shot", 4), *fp16, DType::fp16,
                    with_fault(machine(TopologyKind::full_mesh, 4), {false, 1}, {false, 2}, 0)),
            "topology 'test machine': there is no way from rank 1 to rank 2");
  EXPECT_EQ(refusal(messages(4, {{0, 3}}), *fp16, DType::fp16, with_domain()),
            "topology 'test machine': there is no way from rank 0 to rank 3");
  // Only those that have something to send need a way.
  EXPECT_EQ(simulate({messages(4, {{2, 1}}), *fp16, DType::fp16,
                      with_fault(machine(TopologyKind::full_mesh, 4), {false, 1}, {false, 2}, 0)})
                .latency,
            16'500'000);
}

/// Links on which something was said to happen.
struct LinksInTrace : SimulationTrace {
  std::set<LinkId> links;
  void on_message(const PlannedMessage&, std::uint32_t, std::span<const LinkId> route, Picoseconds,
                  Picoseconds) override {
    links.insert(route.begin(), route.end());
  }
  void on_link(const PlannedMessage&, std::uint32_t, LinkId link, Picoseconds,
               Picoseconds) override {
    links.insert(link);
  }
  void on_share(MessageId, LinkId link, double, Picoseconds) override { links.insert(link); }
};

// Two arrays by link would take 40 GiB.
TEST(Simulator, TakesNoMemoryForLinksThatNobodyUses) {
  constexpr Rank kRanks = kMaxFullMeshRanks;
  const Topology large = machine(TopologyKind::full_mesh, kRanks);
  const Topology small = machine(TopologyKind::full_mesh, 2);
  const Schedule far = messages(kRanks, {{5, kRanks - 1}});
  const LinkId link = 5 * (kRanks - 1) + (kRanks - 2);
  LinksInTrace trace;
  const SimulationResult r = simulate({far, *one_byte(), DType::fp16, large, {.trace = &trace}});
  EXPECT_EQ(r.latency, simulate({messages(2, {{0, 1}}), *one_byte(), DType::fp16, small}).latency);
  EXPECT_EQ(trace.links, std::set<LinkId>{link});
  ASSERT_EQ(r.links.size(), 1u);
  EXPECT_EQ(r.links[0].links, 1u);
  EXPECT_EQ(r.links[0].busiest, fmt::format("link 5->{}", kRanks - 1));
}

// 2^14 ranks that send each other 2^39 bytes: 2^67 bytes, less what a rank does not send itself.
TEST(Simulator, CountsMoreBytesThan64BitsHold) {
  constexpr Rank kRanks = 1 << 14;
  const SimulationResult r = simulate({find_algorithm("one_shot"),
                                       {.world_size = kRanks, .elements = kMaxElements / 2},
                                       *one_byte(),
                                       DType::fp16,
                                       machine(TopologyKind::switched, kRanks)});
  const WideCount bytes = WideCount{kRanks} * (kRanks - 1) * (kMaxElements / 2);
  EXPECT_GT(bytes, UINT64_MAX);
  EXPECT_EQ(r.wire_bytes, bytes);
  EXPECT_EQ(r.wire_elements, bytes);
  ASSERT_EQ(r.links.size(), 2u);
  for (const LinkClassUse& use : r.links) EXPECT_EQ(use.bytes, bytes) << use.link_class;
}

TEST(Simulator, RefusesMessagesThatCrossTooManyLinks) {
  const auto refused = [](std::uint64_t most) {
    simulate({messages(8, {{0, 4}, {0, 1}}),
              *one_byte(),
              DType::fp16,
              machine(TopologyKind::ring, 8),
              {.most_crossings = most}});
  };
  EXPECT_NO_THROW(refused(5));
  EXPECT_EQ(message_of([&] { refused(4); }),
            "messages of 8 ranks on topology 'test machine': its messages cross more than 4 links "
            "together, which would take minutes and gigabytes; allowed are fewer ranks, or an "
            "algorithm whose messages go to near ranks");
  // All ranks count, where the plan lists one.
  expect_contains(message_of([] {
                    simulate({find_algorithm("one_shot"),
                              {.world_size = 8, .elements = 8},
                              *one_byte(),
                              DType::fp16,
                              with_straggler(machine(TopologyKind::ring, 8), 1, 1),
                              {.most_crossings = 8 * 16 - 1}});
                  }),
                  "cross more than 127 links");
}

TEST(Simulator, WhatIsDecodedAheadKeepsNobodyWaitingBeforeItsFirstByte) {
  Topology t = machine(TopologyKind::ring, 4);
  t.link_types[0].bandwidth_gb_per_s = assumed(100);
  for (Quantity* cost : {&t.device.launch_us, &t.device.step_us, &t.device.message_us,
                         &t.device.codec_tile_us_per_op, &t.device.codec_tile_fixed_ops}) {
    *cost = assumed(1e-6);
  }
  t.device.codec_gops_per_s = assumed(kLargestQuantity);
  const SimulationResult r =
      simulate({find_algorithm("tree"),
                {.world_size = 4, .elements = 1102, .options = {{"micro_chunks", 1}}},
                *one_byte(),
                DType::fp16,
                t});
  // Six ways of 1 us, on which the bytes take 28 ns together. Rank 1 sends its sums up while what
  // comes down for its output is on its way.
  EXPECT_NEAR(r.latency_us, 6.028, 0.0005);
}

/// Quantities are in range each; the time that they make together is not.
TEST(Simulator, RefusesTimesThatAreTooLong) {
  const auto slow = [](const std::function<void(Topology&)>& change) {
    Topology t = with_stores(machine(TopologyKind::full_mesh, 4), [](Stores&) {});
    change(t);
    return refusal(written("two_shot", 4, {}, std::uint64_t{1} << 36), *one_byte(), DType::fp16, t);
  };
  expect_contains(slow([](Topology& t) { t.device.codec_gops_per_s.value = 1e-6; }), "longer than");
  expect_contains(slow([](Topology& t) { t.link_type("link").bandwidth_gb_per_s.value = 1e-6; }),
                  "later than");
  expect_contains(slow([](Topology& t) {
                    t.device.stores->release_us.value = 1e9;
                    t.device.stores->release_coalescing_tiles.value = 1e9;
                  }),
                  "longer than");
  expect_contains(slow([](Topology& t) {
                    t.device.stores->contention_codec.value = 1e9;
                    t.device.stores->free_packets_codec.value = 1e-6;
                    t.device.stores->decorrelation_packets.value = 1e9;
                  }),
                  "longer than");
}

}  // namespace
}  // namespace arlab
