// Every algorithm writes a correct all-reduce, of the volume that its file states.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

constexpr Rank kLargestWorld = ARLAB_SHORT_TESTS ? 20 : 64;

struct Shape {
  std::uint64_t elements;
  std::uint64_t alignment;
};

/// Tensors around the sizes where a chunk starts, ends, or becomes empty.
std::vector<Shape> shapes(Rank world_size) {
  const std::uint64_t n = world_size;
  if (n > 12 || ARLAB_SHORT_TESTS) {
    return {{1, 1}, {32 * n - 1, 32}, {32 * (n / 2) + 5, 32}, {2048 * (2 * n + 1) + 77, 2048}};
  }
  std::vector<Shape> shapes = {{1, kWholeTensor}, {2049, kWholeTensor}, {1000003, kWholeTensor}};
  for (const std::uint64_t a : {1, 32, 2048}) {
    for (const std::uint64_t elements :
         {std::uint64_t{1}, a - 1, a, a + 1, 2 * a + 3, n * a - 1, n * a, n * a + 1,
          (n + 1) * a + 7, 3 * n * a + a / 3 + 2, 5 * n * a + a / 2 + 1, std::uint64_t{65537}}) {
      if (elements > 0) shapes.push_back({elements, a});
    }
  }
  return shapes;
}

/// Returns whether ranks' bits may differ, as the files of the algorithms say. The others end with the same bytes on every
/// rank, encoded once by the owner of a chunk.
bool ranks_may_differ(const Variant& variant, Rank world_size) {
  const bool own_exact = variant.options.is("own", "exact");
  // Every rank reduces, and adds its own contribution exactly.
  if (variant.algorithm == "one_shot") return own_exact && world_size > 1;
  // Every group reduces, and adds its own partial sum exactly.
  if (variant.algorithm.starts_with("hierarchical")) {
    return own_exact && variant.options.group_size() != world_size;
  }
  // The second rank after the owner of a chunk is the first to get bytes that were encoded again.
  return variant.options.is("forward", "reencoded") && world_size > 2;
}

TEST(Algorithms, EveryScheduleIsAnAllReduceOfIdenticalRanksWhereDocumented) {
  for (Rank n = 1; n <= kLargestWorld; ++n) {
    const std::vector<std::uint32_t> micro_chunks =
        n > 12 ? std::vector<std::uint32_t>{3} : std::vector<std::uint32_t>{1, 2, 4, 5};
    for (const Variant& variant : all_variants(n, micro_chunks)) {
      for (const auto& [elements, alignment] : shapes(n)) {
        const CheckReport report = check(schedule_of(variant, n, elements, alignment));
        ASSERT_TRUE(report.correct && report.violation.empty())
            << label(variant) << ", " << n << " ranks, " << elements << " elements, alignment "
            << alignment << ": " << report.violation;
        ASSERT_EQ(report.ranks_identical, report.divergence.empty());
        ASSERT_EQ(report.ranks_identical, !ranks_may_differ(variant, n))
            << label(variant) << ", " << n << " ranks, " << elements << " elements, alignment "
            << alignment << ": " << report.divergence;
      }
    }
  }
}

// A tensor's shape decides only which ranks own which units of alignment.
TEST(Algorithms, ShapeMattersThroughTheNumberOfAlignedUnitsOnly) {
  for (const Rank n : {1, 2, 3, 6, 8}) {
    for (const Variant& variant : all_variants(n)) {
      for (const auto& [elements, alignment] : shapes(n)) {
        const std::uint64_t units = elements / alignment + (elements % alignment != 0 ? 1 : 0);
        Schedule expected = schedule_of(variant, n, units, 1);
        expected.elements = elements;
        expected.alignment = alignment;
        for (Chunk& chunk : expected.chunks) {
          chunk.begin *= alignment;
          chunk.end = chunk.end == units ? elements : chunk.end * alignment;
        }
        for (Output& output : expected.outputs) output.begin *= alignment;
        ASSERT_EQ(schedule_of(variant, n, elements, alignment), expected)
            << label(variant) << ", " << n << " ranks, " << elements << " elements, alignment "
            << alignment;
      }
    }
  }
}

TEST(Algorithms, ChunksOfOneAlgorithmDifferByAtMostOneUnit) {
  for (Rank n = 1; n <= 16; ++n) {
    for (const std::uint64_t units : {1, 2, 7, 15, 16, 17, 100}) {
      std::vector<std::uint64_t> sizes;
      for (const Chunk& chunk : schedule_of({"two_shot", {}}, n, units * 32, 32).chunks) {
        sizes.push_back(chunk.size());
      }
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}), units * 32);
      EXPECT_EQ(sizes.size(), std::min<std::uint64_t>(n, units));
      EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
      EXPECT_LE(sizes.front() - sizes.back(), 32u);
    }
  }
}

TEST(Algorithms, DefaultsAreTheDocumentedOnes) {
  const std::vector<std::string> defaults_for_8_ranks = {
      "one_shot own=encoded",
      "two_shot own=encoded stripe=0",
      "ring forward=unchanged own=exact rings=1",
      "hierarchical group-size=4 own=encoded",
      "hierarchical_pipelined group-size=4 micro-chunks=4 own=encoded",
      "halving_doubling own=exact",
      "tree micro-chunks=4 own=exact",
      "all_to_all combine=none own=encoded",
      "reduce_scatter own=encoded",
      "hierarchical_reduce_scatter group-size=4 own=encoded",
      "all_gather own=encoded",
      "broadcast own=encoded"};
  std::size_t found = 0;
  std::vector<Variant> variants = all_variants(8, {1, 2, 4});
  std::ranges::copy(moving_variants(8), std::back_inserter(variants));
  for (const Variant& variant : variants) {
    if (std::ranges::count(defaults_for_8_ranks, label(variant)) == 0) continue;
    EXPECT_EQ(schedule_of({variant.algorithm, {}}, 8, 1000, 7), schedule_of(variant, 8, 1000, 7))
        << label(variant);
    ++found;
  }
  EXPECT_EQ(found, all_algorithms().size());
}

TEST(Algorithms, DefaultGroupsAreTheFewestOfEqualSize) {
  const std::map<Rank, Rank> expected = {{1, 1}, {2, 1}, {3, 1}, {4, 2},  {5, 1},  {6, 3},
                                         {7, 1}, {8, 4}, {9, 3}, {15, 5}, {16, 8}, {49, 7}};
  for (const auto& [world_size, group_size] : expected) {
    EXPECT_EQ(default_group_size(world_size), group_size) << world_size << " ranks";
  }
}

// ---------------------------------------------------------------- volume

/// 2 (N - 1) payloads: each element moves to its owner N - 1 times and back as often.
std::uint64_t payloads_sent(const Variant& variant, Rank n) {
  if (variant.algorithm == "one_shot") return std::uint64_t{n} * (n - 1);
  if (variant.algorithm.starts_with("hierarchical")) {
    const std::uint64_t members = *variant.options.group_size();
    const std::uint64_t groups = n / members;
    return 2 * groups * (members - 1) + groups * (groups - 1);
  }
  return 2 * (std::uint64_t{n} - 1);
}

TEST(Volume, TotalFollowsTheFormulaOfTheAlgorithmForEveryShape) {
  for (Rank n = 1; n <= kLargestWorld; ++n) {
    for (const Variant& variant : all_variants(n, {3})) {
      for (const auto& [elements, alignment] : shapes(n)) {
        const Volume volume = volume_of(schedule_of(variant, n, elements, alignment), 1);
        ASSERT_EQ(volume.total_elements, payloads_sent(variant, n) * elements)
            << label(variant) << ", " << n << " ranks, " << elements << " elements";
        ASSERT_EQ(volume.total, static_cast<double>(payloads_sent(variant, n)));
        ASSERT_EQ(volume.cross_group_elements, volume.total_elements);  // groups of one rank
      }
    }
  }
}

/// Calls visit(child, parent, depth of the child) for every edge of both trees, the first tree
/// first.
template <class Visit>
void for_each_tree_edge(std::uint64_t n, Visit visit) {
  for (const bool mirrored : {false, true}) {
    for (std::uint64_t p = 1; p < n; ++p) {
      const std::uint64_t parent = (p - 1) / 2;
      const std::uint64_t depth = static_cast<std::uint64_t>(std::bit_width(p + 1)) - 1;
      visit(mirrored ? n - 1 - p : p, mirrored ? n - 1 - parent : parent, depth);
    }
  }
}

/// Elements between groups of `g` of `n` ranks, both directions, with n chunks of equal size.
std::uint64_t crossing_elements(const Variant& variant, std::uint64_t n, std::uint64_t g,
                                std::uint64_t elements) {
  const std::uint64_t groups = n / g;
  if (groups == 1) return 0;
  if (variant.algorithm == "one_shot") return n * (n - g) * elements;
  if (variant.algorithm.starts_with("hierarchical")) return groups * (groups - 1) * elements;
  if (variant.algorithm == "tree") {  // half of the tensor up and down every edge
    std::uint64_t edges = 0;
    for_each_tree_edge(n, [&](std::uint64_t child, std::uint64_t parent, std::uint64_t) {
      if (child / g != parent / g) ++edges;
    });
    return edges * elements;
  }
  // Each link of the ring carries all chunks but one, twice; `groups` links cross.
  if (variant.algorithm == "ring") return groups * 2 * (n - 1) * elements / n;
  return 2 * (n - g) * elements;  // two_shot; halving_doubling when n and g are powers of two
}

TEST(Volume, CrossGroupFollowsTheFormulaOfTheAlgorithm) {
  for (Rank n = 1; n <= 32; ++n) {
    const std::uint64_t elements = 6 * n;
    for (const Variant& variant : all_variants(n, {3})) {
      for (const Rank group_size : divisors(n)) {
        const bool grouped = variant.options.has("group_size");
        if (grouped && variant.options.group_size() != group_size) continue;
        if (variant.algorithm == "halving_doubling" && !std::has_single_bit(n)) continue;
        const Volume volume = volume_of(schedule_of(variant, n, elements, 1), group_size);
        const std::uint64_t expected = crossing_elements(variant, n, group_size, elements);
        ASSERT_EQ(volume.cross_group_elements, expected)
            << label(variant) << ", " << n << " ranks in groups of " << group_size;
        ASSERT_EQ(volume.cross_group,
                  static_cast<double>(expected) / 2 / static_cast<double>(elements));
      }
    }
  }
}

/// Pairs of ranks that speak, times the steps in which they do.
std::uint64_t messages_sent(const Variant& variant, std::uint64_t n) {
  if (variant.algorithm == "one_shot") return n * (n - 1);
  if (variant.algorithm == "halving_doubling") {
    const std::uint64_t p = std::bit_floor(n);
    return 2 * (n - p) + 2 * p * static_cast<std::uint64_t>(std::countr_zero(p));
  }
  if (variant.algorithm == "tree") {
    // Up and down messages of both trees share a step now and then.
    std::set<std::array<std::uint64_t, 3>> messages;  // step, sender, receiver
    const std::uint64_t height = static_cast<std::uint64_t>(std::bit_width(n)) - 1;
    for (std::uint64_t m = 0; m < std::get<std::uint64_t>(variant.options.get("micro_chunks"));
         ++m) {
      for_each_tree_edge(n, [&](std::uint64_t child, std::uint64_t parent, std::uint64_t depth) {
        messages.insert({m + height - depth, child, parent});
        messages.insert({m + height + depth - 1, parent, child});
      });
    }
    return messages.size();
  }
  if (!variant.algorithm.starts_with("hierarchical")) return 2 * n * (n - 1);
  const std::uint64_t members = *variant.options.group_size();
  const std::uint64_t groups = n / members;
  const std::uint64_t micro_chunks =
      variant.options.has("micro_chunks")
          ? std::get<std::uint64_t>(variant.options.get("micro_chunks"))
          : 1;
  // One group exchanges nothing and is a step shorter. Reduce-scatter and all-gather of different
  // micro-chunks share a message when they fall into one step.
  const std::uint64_t lag = groups == 1 ? 1 : 2;
  const std::uint64_t steps_in_group = micro_chunks >= lag ? micro_chunks + lag : 2 * micro_chunks;
  return n * (members - 1) * steps_in_group + members * groups * (groups - 1) * micro_chunks;
}

TEST(Volume, MessagesFollowTheFormulaOfTheAlgorithm) {
  for (Rank n = 1; n <= 24; ++n) {
    for (const Variant& variant : all_variants(n, {1, 2, 3, 4})) {
      EXPECT_EQ(volume_of(schedule_of(variant, n, 12 * n, 1), n).messages,
                messages_sent(variant, n))
          << label(variant) << ", " << n << " ranks";
    }
  }
}

/// "14M", "7M/4" or "M", in multiples of M.
double multiple_of_m(const std::string& text) {
  const std::size_t m = text.find('M');
  const double factor = m == 0 ? 1 : std::stod(text.substr(0, m));
  return m + 1 == text.size() ? factor : factor / std::stod(text.substr(m + 2));
}

TEST(Volume, ReproducesTable5OfFlashCommunicationV2) {
  const std::map<std::string, std::string> algorithm_of = {
      {"nccl_ring", "ring"}, {"two_step", "two_shot"}, {"hierarchical_two_step", "hierarchical"}};
  std::ifstream table(ARLAB_PUBLISHED "/flashcomm2_table5_volumes.csv");
  std::size_t rows = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with("#") || line.starts_with("method,")) continue;
    std::istringstream row(line);
    std::string method, total, cross_numa;
    std::getline(row, method, ',');
    std::getline(row, total, ',');
    std::getline(row, cross_numa);
    const std::string& algorithm = algorithm_of.at(method);
    const Volume volume = volume_of(schedule_of({algorithm, {}}, 8, 8 << 20, 2048), 4);
    EXPECT_EQ(volume.total, multiple_of_m(total)) << line;
    EXPECT_EQ(volume.cross_group, multiple_of_m(cross_numa)) << line;
    ++rows;
  }
  EXPECT_EQ(rows, algorithm_of.size());
}

TEST(Volume, GroupSizeMustDivideTheWorldSize) {
  const Schedule schedule = schedule_of({"ring", {}}, 6, 60, 1);
  EXPECT_THROW(volume_of(schedule, 0), InvalidInput);
  EXPECT_THROW(volume_of(schedule, 4), InvalidInput);
  EXPECT_THROW(volume_of(schedule, 12), InvalidInput);
  EXPECT_NO_THROW(volume_of(schedule, 6));
}

TEST(Algorithms, SeveralRingsUseAllCardsAndAllLinks) {
  for (const auto& [n, rings] : std::vector<std::pair<Rank, Rank>>{
           {4, 2}, {8, 2}, {8, 4}, {8, 8}, {12, 4}, {12, 6}, {15, 5}, {16, 8}}) {
    SCOPED_TRACE(fmt::format("{} rings of {} ranks", rings, n));
    Variant variant{"ring", {}};
    variant.options.set("rings", std::uint64_t{rings});
    for (const auto& [elements, alignment] : shapes(n)) {
      const CheckReport report = check(schedule_of(variant, n, elements, alignment));
      ASSERT_TRUE(report.correct && report.violation.empty()) << report.violation;
      ASSERT_TRUE(report.ranks_identical) << report.divergence;
    }
    const std::uint64_t elements = std::uint64_t{n} * rings * 3;
    const Schedule schedule = schedule_of(variant, n, elements, 1);
    std::map<std::pair<Rank, Rank>, std::uint64_t> sent;
    for (const Op& op : schedule.ops) {
      if (op.kind == OpKind::send) {
        sent[{op.rank, op.peer}] += schedule.chunks[op.chunk].size();
      }
    }
    // Each way of a ring carries all of its share but one chunk, twice.
    const std::uint64_t way = 2 * (n - 1) * elements / n / rings;
    std::set<Rank> over_cards;
    std::size_t inside = 0;
    for (const auto& [pair, count] : sent) {
      if (n > rings && pair.first / rings != pair.second / rings) {
        EXPECT_EQ(count, way);
        over_cards.insert(pair.first);
        // An odd number of servers has no way back that stays on the rail.
        const bool closes = n / rings % 2 == 1 && pair.first / rings == n / rings - 1;
        EXPECT_TRUE(closes || pair.first % rings == pair.second % rings);
      } else {
        ++inside;
        if (rings % 2 == 0 && n > rings) {
          EXPECT_EQ(count, way);
        }
      }
    }
    if (n > rings) {
      EXPECT_EQ(over_cards.size(), n);
    }
    if (rings % 2 == 0) {
      EXPECT_EQ(inside, std::size_t{n} * (rings - 1));
    }
  }
  ScheduleRequest request{.world_size = 8, .elements = 100};
  request.options.set("rings", std::uint64_t{3});
  EXPECT_EQ(refusal_of([&] { make_schedule("ring", request); }),
            "ring: 3 rings do not divide the 8 ranks; allowed are numbers that do");
}

// ---------------------------------------------------------------- requests that are refused

std::string refusal(const std::string& algorithm, const ScheduleRequest& request) {
  return refusal_of([&] { make_schedule(algorithm, request); });
}

TEST(Algorithms, RefuseRequestsOutOfRangeForEveryAlgorithm) {
  for (const Algorithm& algorithm : all_algorithms()) {
    EXPECT_EQ(refusal(algorithm.name, {.world_size = 0, .elements = 5}),
              "world size 0 is out of range: allowed is 1 to 65536");
    EXPECT_EQ(refusal(algorithm.name, {.world_size = 65537, .elements = 5}),
              "world size 65537 is out of range: allowed is 1 to 65536");
    EXPECT_EQ(refusal(algorithm.name, {.world_size = 4, .elements = 0}),
              "0 elements per rank is out of range: allowed is 1 to 1099511627776");
    EXPECT_EQ(refusal(algorithm.name, {.world_size = 4, .elements = kMaxElements + 1}),
              "1099511627777 elements per rank is out of range: allowed is 1 to 1099511627776");
    EXPECT_EQ(refusal(algorithm.name, {.world_size = 4, .elements = 5, .alignment = 0}),
              "an alignment is at least 1 element, not 0");
  }
}

TEST(Algorithms, RefuseOptionsThatAreNotTheirsOrOutOfRange) {
  const auto refused = [](const std::string& algorithm, const char* option, auto value) {
    ScheduleRequest request{.world_size = 8, .elements = 100};
    request.options.set(option, value);
    return refusal(algorithm, request);
  };
  constexpr const char* kGroupSize = "group_size";
  constexpr const char* kMicroChunks = "micro_chunks";
  EXPECT_EQ(refused("hierarchical", kGroupSize, 3u),
            "group size 3 does not divide the world size 8");
  EXPECT_EQ(refused("hierarchical_pipelined", kGroupSize, 0u),
            "group size 0 does not divide the world size 8");
  EXPECT_EQ(refused("hierarchical_pipelined", kMicroChunks, 0u),
            "micro-chunks 0 is out of range: allowed is 1 to 4096");
  EXPECT_EQ(refused("hierarchical_pipelined", kMicroChunks, 4097u),
            "micro-chunks 4097 is out of range: allowed is 1 to 4096");
  EXPECT_EQ(refused("two_shot", "forward", "unchanged"),
            "algorithm two_shot has no option forward: it has own, stripe");
  EXPECT_EQ(refused("ring", kMicroChunks, 2u),
            "algorithm ring has no option micro-chunks: it has own, forward, rings");
  EXPECT_EQ(refused("two_shot", kGroupSize, 2u), "accepted");  // it also defines volume classes
  EXPECT_EQ(
      refusal("all_together", {.world_size = 8, .elements = 100}),
      "unknown algorithm 'all_together': known are all_to_all, broadcast, halving_doubling, "
      "hierarchical, hierarchical_pipelined, hierarchical_reduce_scatter, one_shot, "
      "reduce_scatter, ring, tree, two_shot, ... (12 in all); `arlab list algorithms` has all; a "
      "schedule ends in .json or .xml");
}

TEST(Algorithms, TakeTensorsThatNoMachineCouldHold) {
  for (const Variant& variant : all_variants(6)) {
    for (const std::uint64_t alignment :
         {std::uint64_t{1}, std::uint64_t{2048}, kMaxElements - 1, std::uint64_t{UINT64_MAX}}) {
      EXPECT_EQ(check(schedule_of(variant, 6, kMaxElements, alignment)).violation, "")
          << label(variant);
    }
  }
}

/// Ops and outputs that concern a rank, with the names that values have in a schedule of only
/// these.
Schedule part_of(const Schedule& whole, Rank rank) {
  Schedule part = whole;
  part.ops.clear();
  part.addends.clear();
  part.outputs.clear();
  std::vector<ValueId> name(whole.ops.size(), kElsewhere);
  const auto named = [&](ValueId id) { return id == kOwnInput ? id : name[id]; };
  for (ValueId id = 0; id < whole.ops.size(); ++id) {
    Op op = whole.ops[id];
    if (op.rank != rank && !(op.kind == OpKind::send && op.peer == rank)) continue;
    name[id] = static_cast<ValueId>(part.ops.size());
    if (op.kind == OpKind::reduce) {
      const auto addends = whole.operands(op);
      op.first_addend = static_cast<std::uint32_t>(part.addends.size());
      for (const ValueId addend : addends) part.addends.push_back(named(addend));
    } else {
      op.source = op.rank == rank ? named(op.source) : kElsewhere;
    }
    part.ops.push_back(op);
  }
  for (Output output : whole.outputs) {
    if (output.rank != rank) continue;
    output.value = named(output.value);
    part.outputs.push_back(output);
  }
  return part;
}

TEST(Algorithms, WriteForOneRankWhatConcernsIt) {
  for (const Rank n : {1, 2, 3, 4, 6, 8}) {
    std::vector<Variant> variants = all_variants(n);
    for (const Variant& variant : moving_variants(n)) variants.push_back(variant);
    for (const Variant& variant : variants) {
      for (const std::uint64_t elements : {std::uint64_t{1} * n, std::uint64_t{64} * n}) {
        const ScheduleRequest request{
            .world_size = n, .elements = elements, .alignment = 3, .options = variant.options};
        const Schedule whole = make_schedule(variant.algorithm, request);
        for (Rank rank = 0; rank < n; ++rank) {
          ScheduleRequest of_rank = request;
          of_rank.only_rank = rank;
          const Schedule part = make_schedule(variant.algorithm, of_rank);
          EXPECT_TRUE(part == part_of(whole, rank))
              << label(variant) << ", rank " << rank << " of " << n;
        }
      }
    }
  }
}

// Every other rank's part looked at would be 4 billion of them.
TEST(Algorithms, WriteForOneRankOfManyNoMoreThanThat) {
  constexpr Rank kRanks = 65536;
  const auto ops_of = [](const char* algorithm, AlgorithmOptions options = {}) {
    return make_schedule(
               algorithm,
               {.world_size = kRanks, .elements = kRanks, .options = options, .only_rank = 7})
        .ops.size();
  };
  EXPECT_EQ(ops_of("one_shot"), 2 + 2u * (kRanks - 1));
  EXPECT_EQ(ops_of("two_shot"), kRanks + 2 + 4u * (kRanks - 1));
  EXPECT_EQ(ops_of("ring"), 1 + 6u * (kRanks - 1));
  EXPECT_EQ(ops_of("hierarchical", {{"group_size", 8}}), 8 + 4u * 7 + 4 + 2u * (kRanks / 8 - 1));
  EXPECT_EQ(ops_of("all_to_all"), kRanks + 2u * (kRanks - 1));
}

TEST(Algorithms, SayHowMuchTheirScheduleHolds) {
  for (const Rank n : {1, 2, 6, 8}) {
    for (const Variant& variant : all_variants(n)) {
      const ScheduleRequest request{.world_size = n, .elements = 50, .options = variant.options};
      const Schedule schedule = make_schedule(variant.algorithm, request);
      ScheduleSize size;
      ScheduleRequest sized = request;
      sized.only_size = &size;
      EXPECT_TRUE(find_algorithm(variant.algorithm).write(sized).ops.empty()) << label(variant);
      EXPECT_EQ(size.ops, schedule.ops.size()) << label(variant);
      EXPECT_EQ(size.addends, schedule.addends.size()) << label(variant);
      EXPECT_EQ(size.outputs, schedule.outputs.size()) << label(variant);
    }
  }
}

// All-to-all patterns grow with the square of the world size: refused before memory runs out.
TEST(Algorithms, RefuseWorldsWhoseScheduleIsTooLong) {
  EXPECT_EQ(refusal("one_shot", {.world_size = 65536, .elements = 1}),
            "one_shot of 65536 ranks takes more than the 16777216 ops that a schedule may hold");
  EXPECT_EQ(refusal("two_shot", {.world_size = 65536, .elements = 1}), "accepted");  // one chunk
}

}  // namespace
}  // namespace arlab::testing
