// Machines, names and schedules that are wrong in thousands of ways: a result, or a refusal of one
// line. A crash or a hang ends the test. Machine files are read and simulated by tests/fuzz.

#include <gtest/gtest.h>

#include <cmath>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "sim/simulator.h"
#include "tests/collectives/random_schedules.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"
#include "tests/sim/network/dice.h"

namespace arlab {
namespace {

/// Says whether it was accepted; a refusal is one line.
template <class Action>
bool accepted(Action action) {
  return refusal_of(action) == "accepted";
}

void simulate_on(const Topology& t) {
  for (const char* algorithm : {"two_shot", "all_to_all", "hierarchical_pipelined"}) {
    const Rank ranks = std::min<Rank>(t.ranks.value, 6);
    const CodecPtr codec = find_codec("qr-q4");
    const ScheduleRequest request{.world_size = ranks,
                                  .elements = std::uint64_t{2048} * 10 * ranks,
                                  .alignment = codec->info().alignment};
    const SimulationResult r =
        simulate({find_algorithm(algorithm), request, *codec, DType::fp16, t});
    EXPECT_TRUE(std::isfinite(r.latency_us) && r.latency > 0);
    EXPECT_FALSE(r.bottleneck.empty());
    for (const LinkClassUse& use : r.links) EXPECT_LE(use.utilisation, 1 + 1e-6);
  }
}

/// Kinds with all values of their shape, as if from a file.
TEST(Fuzz, TopologyShapes) {
  Dice dice(2);
  static const Rank kCounts[] = {0, 1, 2, 3, 4, 8, 64, 255, 4096, 32768, 65536, 65537, 4294967295};
  const auto any = [&] { return counted(kCounts[dice.below(std::size(kCounts))]); };
  int simulated = 0;
  for (int i = 0; i < 400; ++i) {
    const TopologyKind kind = kTopologyKinds[dice.below(std::size(kTopologyKinds))];
    Topology t = machine(kind, any().value, any().value);
    t.leaf_servers = any();
    t.ranks_per_router = any();
    for (std::uint32_t d = dice.below(4); d > 0; --d) t.shape.push_back(any().value);
    if (dice.one_in(3)) {
      t.faults.push_back({{dice.one_in(2), any().value},
                          {dice.one_in(2), any().value},
                          dice.one_in(2) ? 0 : 0.5,
                          "test"});
    }
    if (dice.one_in(4)) t.stragglers.push_back({any().value, assumed(3)});
    if (accepted([&] { simulate_on(t); })) ++simulated;
  }
  EXPECT_GT(simulated, 20);
}

TEST(Fuzz, GeneratedNames) {
  Dice dice(3);
  static const char* const kParts[] = {
      "full", "ring", "torus", "fat_tree", "dragonfly", ":",
      "x",    "4",    "0",     "-1",       "65536",     "99999999999999999999",
      "8",    " ",    ".toml", "/",        "\n",        "1e3"};
  for (int i = 0; i < 5000; ++i) {
    std::string name;
    for (std::uint32_t part = dice.below(6); part > 0; --part) {
      name += kParts[dice.below(std::size(kParts))];
    }
    accepted([&] { find_topology(name); });
  }
}

/// Fields of schedules changed: the simulator refuses in a line or times; whether or not a schedule
/// is correct.
TEST(Fuzz, Schedules) {
  testing::Random random(4);
  const Topology t = machine(TopologyKind::full_mesh, testing::kMostRanks);
  int simulated = 0;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    Schedule s = testing::random_schedule(random);
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) testing::mutate(s, random);
    const bool good = accepted([&] {
      const SimulationResult r = simulate({s, *one_byte(), DType::fp16, t});
      EXPECT_TRUE(std::isfinite(r.latency_us));
    });
    ++(good ? simulated : refused);
  }
  EXPECT_GT(simulated, 100);
  EXPECT_GT(refused, 1000);
}

/// Steps without number whose work all could begin at once: 60,000 stages of one rank.
TEST(Fuzz, AThousandStagesWaitForOneRankWithoutAHang) {
  Schedule s;
  s.algorithm = "waiting";
  s.world_size = 1;
  s.elements = 4;
  s.chunks = {{0, 4}};
  constexpr std::uint32_t kSteps = 60'000;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    s.ops.push_back({.kind = OpKind::encode, .step = step, .chunk = 0, .source = kOwnInput});
  }
  const SimulationResult r =
      simulate({s, *one_byte(), DType::fp16, machine(TopologyKind::full_mesh, 1)});
  // 4 * 3 operations each, 0.3 ns; the last one's first tile is seen.
  EXPECT_EQ(r.latency, 5'000'000 + kSteps * Picoseconds{300} + 3'000'000);
}

}  // namespace
}  // namespace arlab
