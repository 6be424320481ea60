// Files that are wrong in thousands of ways: a result, or a refusal of one line. A crash or a hang
// ends the test.

#include <gtest/gtest.h>

#include <cmath>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/schedule_json.h"
#include "sim/simulator.h"
#include "tests/sim/machine.h"
#include "tests/sim/machine_file.h"
#include "tests/sim/network/dice.h"
#include "tests/sim/refusal.h"

namespace arlab {
namespace {

const std::string kGraph = R"(name = "mine"
summary = "a graph"
kind = "graph"
switches = 2
devices_forward = false
ranks = { value = 4, source = "assumed", note = "n" }
[links.pcie]
bandwidth_gb_per_s = { value = 10, source = "assumed", note = "n" }
latency_us = { value = 1.0, source = "assumed", note = "n" }
[domains.upstream]
bandwidth_gb_per_s = { value = 5, source = "assumed", note = "n" }
)" + kDeviceSections + kStoresSection +
                           R"([[edges]]
from = "rank0"
to = "switch0"
type = "pcie"
domain = "upstream"
[[edges]]
from = "rank1"
to = "switch0"
type = "pcie"
[[edges]]
from = "rank2"
to = "switch1"
type = "pcie"
[[edges]]
from = "rank3"
to = "switch1"
type = "pcie"
[[edges]]
from = "switch0"
to = "switch1"
type = "pcie"
duplex = true
)" + kConditions;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && text[at] != separator) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return parts;
}

/// One to three of: a number, a word or a line replaced, a line dropped, doubled or moved; bytes.
std::string mutated(const std::string& text, Dice& dice) {
  static const char* const kNumbers[] = {"0",     "1",          "2",
                                         "3",     "-1",         "65536",
                                         "65537", "4294967295", "18446744073709551616",
                                         "1e-6",  "1e-7",       "1e9",
                                         "1e10",  "1e308",      "nan",
                                         "inf",   "-inf",       "0.5",
                                         "1.5",   "\"1\"",      "true",
                                         "[]",    "{}",         "99",
                                         "1e-3",  "1e6"};
  static const char* const kWords[] = {"full_mesh",
                                       "ring",
                                       "switch",
                                       "numa",
                                       "torus",
                                       "fat_tree",
                                       "dragonfly",
                                       "graph",
                                       "rank0",
                                       "rank3",
                                       "rank4",
                                       "switch0",
                                       "switch1",
                                       "switch9",
                                       "pcie",
                                       "upstream",
                                       "switch4294967292",
                                       "a\\nb",
                                       "\\u007f",
                                       "",
                                       "assumed",
                                       "rank",
                                       "x.y",
                                       "group_size",
                                       "shape"};
  std::vector<std::string> lines = split(text, '\n');
  const auto line = [&]() -> std::string& {
    return lines[dice.below(static_cast<std::uint32_t>(lines.size()))];
  };
  for (std::uint32_t i = 1 + dice.below(3); i > 0 && lines.size() > 3; --i) {
    std::string& at = line();
    const std::size_t equals = at.find("value = ");
    const std::size_t quote = at.find('"');
    switch (dice.below(9)) {
      case 0:
      case 1:
      case 2:
        if (equals != std::string::npos) {
          const std::size_t begin = equals + 8;
          at.replace(begin, at.find(',', begin) - begin, kNumbers[dice.below(std::size(kNumbers))]);
        } else if (at.find(" = ") != std::string::npos) {
          at = at.substr(0, at.find(" = ") + 3) + kNumbers[dice.below(std::size(kNumbers))];
        }
        break;
      case 3:
      case 4:
        if (quote != std::string::npos) {
          const std::size_t end = at.find('"', quote + 1);
          at.replace(quote + 1, end - quote - 1, kWords[dice.below(std::size(kWords))]);
        }
        break;
      case 5:
        at.clear();
        break;
      case 6:
        std::swap(at, line());
        break;
      case 7:
        at += "\n" + line();
        break;
      default:
        if (!at.empty()) {
          at[dice.below(static_cast<std::uint32_t>(at.size()))] =
              static_cast<char>(dice.below(256));
        }
    }
  }
  std::string result;
  for (const std::string& l : lines) result += l + "\n";
  return result;
}

/// Says whether it was accepted; a refusal is one line.
template <class Action>
bool accepted(Action action) {
  try {
    action();
    return true;
  } catch (const InvalidInput& error) {
    const std::string what = error.what();
    EXPECT_FALSE(what.empty());
    for (const char c : what) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << what;
    }
    return false;
  }
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

TEST(Fuzz, TopologyFiles) {
  std::vector<std::string> machines = {kGraph};
  for (const char* file : {"mi300x-8", "l40-8"}) {
    const std::string folder = ARLAB_MACHINES_DIRECTORY;
    std::FILE* in = std::fopen(fmt::format("{}/{}.toml", folder, file).c_str(), "rb");
    ASSERT_NE(in, nullptr);
    std::string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), in));
    std::fclose(in);
    machines.push_back(text);
  }
  for (const std::string& text : machines) {
    EXPECT_TRUE(accepted([&] { simulate_on(parse_topology(text, "own.toml")); }));
  }
  Dice dice(1);
  int parsed = 0;
  int simulated = 0;
  constexpr int kFiles = 6000;
  for (int i = 0; i < kFiles; ++i) {
    const std::string text = mutated(machines[static_cast<std::size_t>(i) % machines.size()], dice);
    SCOPED_TRACE(text);
    std::optional<Topology> topology;
    if (!accepted([&] { topology = parse_topology(text, "own.toml"); })) continue;
    ++parsed;
    if (accepted([&] { simulate_on(*topology); })) ++simulated;
    if (HasFailure()) return;
  }
  // Refusing everything, or nothing, would be no test.
  EXPECT_GT(simulated, kFiles / 20);
  EXPECT_LT(parsed, kFiles * 9 / 10);
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

/// Numbers of schedules replaced by others: what the reader takes, the simulator refuses in a line
/// or times; whether or not it is correct.
TEST(Fuzz, Schedules) {
  Dice dice(4);
  const Topology t = machine(TopologyKind::full_mesh, 4);
  int simulated = 0;
  int refused = 0;
  const auto algorithms = all_algorithms();
  for (int i = 0; i < 4000; ++i) {
    const Algorithm& algorithm = algorithms[static_cast<std::size_t>(i) % algorithms.size()];
    Schedule s = make_schedule(algorithm.name, {.world_size = 3, .elements = 24});
    const auto number = [&]() -> std::uint32_t {
      static const std::uint32_t kNumbers[] = {0,  1,  2,  3,     4,          5,         23,
                                               24, 25, 40, 65536, 4294967294, 4294967295};
      return kNumbers[dice.below(std::size(kNumbers))];
    };
    for (std::uint32_t n = 1 + dice.below(3); n > 0; --n) {
      Op& op = s.ops[dice.below(static_cast<std::uint32_t>(s.ops.size()))];
      switch (dice.below(12)) {
        case 0:
          op.rank = number();
          break;
        case 1:
          op.peer = number();
          break;
        case 2:
          op.chunk = number();
          break;
        case 3:
          op.source = number();
          break;
        case 4:
          op.step = number();
          break;
        case 5:
          op.addend_count = number();
          break;
        case 6:
          op.first_addend = number();
          break;
        case 7:
          op.kind = static_cast<OpKind>(dice.below(3));
          break;
        case 8:
          s.chunks[0] = {number(), number()};
          break;
        case 9:
          if (!s.addends.empty()) s.addends[0] = number();
          break;
        case 10:
          s.outputs[0] = {number(), number(), number(), number()};
          break;
        default:
          s.elements = number();
          break;
      }
    }
    const bool good = accepted([&] {
      for (const Sharing sharing : {Sharing::max_min, Sharing::fifo}) {
        const SimulationResult r = simulate({s, *one_byte(), DType::fp16, t, {.sharing = sharing}});
        EXPECT_TRUE(std::isfinite(r.latency_us));
      }
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
