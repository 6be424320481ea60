// Schedules as JSON: what is written is read back, and
// an algorithm that a person wrote (tree.json) runs like any other.
#include "reference/collectives/schedule_json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

using Json = nlohmann::ordered_json;

Json tree_json() { return Json::parse(std::ifstream(ARLAB_TREE_JSON)); }

Schedule read(const Json& json) { return schedule_from_json(json.dump()); }

TEST(ScheduleJson, IsReadBackAsItWasWritten) {
  for (const Rank n : {1, 2, 3, 6, 8, 12}) {
    for (const Variant& variant : all_variants(n)) {
      const Schedule schedule = schedule_of(variant, n, 32 * n + 7, 32);
      EXPECT_EQ(read(schedule_to_json(schedule)), schedule) << label(variant);
    }
    for (const Variant& variant : moving_variants(n)) {
      const Schedule schedule = schedule_of(variant, n, 37 * n, 32);
      EXPECT_EQ(read(schedule_to_json(schedule)), schedule) << label(variant);
    }
  }
}

/// Ops that encode by another codec than all others name it, their sends need not.
TEST(ScheduleJson, NamesTheInnerCodecOfEncodes) {
  const AlgorithmOptions inside = {{"group_size", 2}, {"inner_codec", "another"}};
  const AlgorithmOptions back = {{"combine", "quantized"}, {"inner_codec", "another"}};
  for (const auto& [name, options] :
       {std::pair{"hierarchical", inside}, std::pair{"all_to_all", back}}) {
    const Schedule schedule = schedule_of({name, options}, 4, 4 * 37, 1);
    const Json json = schedule_to_json(schedule);
    EXPECT_EQ(read(json), schedule);
    std::string text;
    write_schedule_json(schedule, Json::object(), [&](std::string_view piece) { text += piece; });
    EXPECT_EQ(text, json.dump(1));
    for (const Json& op : json["ops"]) {
      const bool is_first = name == std::string("hierarchical") && op["step"] == 0;
      const bool is_encode = op["op"] == "encode";
      EXPECT_TRUE(!is_first || !is_encode || op["codec"] == "inner");
      EXPECT_TRUE(is_encode || !op.contains("codec"));
    }
  }
  Json json = tree_json();
  EXPECT_EQ(json.dump().find("codec"), std::string::npos);
  const Schedule before = read(json);
  json["ops"][0]["codec"] = "outer";
  EXPECT_EQ(read(json), before);
}

TEST(ScheduleJson, IsTheSameTextPieceByPiece) {
  const auto written = [](const Schedule& schedule, const Json& more) {
    std::string text;
    write_schedule_json(schedule, more, [&](std::string_view piece) { text += piece; });
    return text;
  };
  const Json more = {{"group_size", 2}, {"check", {{"correct", true}}}};
  for (const Rank n : {1, 2, 6, 40}) {
    for (const char* algorithm : {"one_shot", "ring", "tree", "all_to_all"}) {
      const Schedule schedule = schedule_of({algorithm, {}}, n, 37 * n, 1);
      Json json = schedule_to_json(schedule);
      EXPECT_EQ(written(schedule, Json::object()), json.dump(1)) << algorithm;
      json.update(more);
      EXPECT_EQ(written(schedule, more), json.dump(1)) << algorithm;
    }
  }
  Schedule nothing;
  nothing.algorithm = "quotes \" and \n lines";
  EXPECT_EQ(written(nothing, Json::object()), schedule_to_json(nothing).dump(1));
  Schedule adds_nothing = schedule_of({"one_shot", {}}, 2, 2, 1);
  adds_nothing.ops.back().addend_count = 0;
  EXPECT_EQ(written(adds_nothing, Json::object()), schedule_to_json(adds_nothing).dump(1));
}

TEST(ScheduleJson, KeepsTheLargestNumbers) {
  Schedule schedule = schedule_of({"one_shot", {}}, 2, kMaxElements, UINT64_MAX);
  schedule.ops[0].step = UINT32_MAX;
  schedule.ops[1].source = UINT32_MAX - 1;
  EXPECT_EQ(read(schedule_to_json(schedule)), schedule);
}

TEST(ScheduleJson, IgnoresWhatTheProgramAdds) {
  Json json = tree_json();
  const Schedule schedule = read(json);
  json["group_size"] = 2;
  json["volume"] = {{"total", 6}, {"cross_group", 1}};
  json["check"] = {{"correct", true}};
  EXPECT_EQ(read(json), schedule);
}

// ---------------------------------------------------------------- of any size

std::string in_fractions(const Schedule& schedule) {
  std::string text;
  write_schedule_json(
      schedule, Json::object(), [&](std::string_view piece) { text += piece; },
      ChunksAs::fractions);
  return text;
}

/// An algorithm that was written for one size, where that divides evenly, is the algorithm for every
/// size that does; and for all others one of the same steps.
TEST(ScheduleOfAnySize, IsTheAlgorithmItWasWrittenFrom) {
  for (const Rank n : {1, 2, 3, 4, 8}) {
    for (const bool moves : {false, true}) {
      for (const Variant& variant : moves ? moving_variants(n) : all_variants(n)) {
        const std::uint64_t even = 3 * 64 * n * n;  // also of micro-chunks
        const WrittenSchedule written =
            written_schedule_from_json(in_fractions(schedule_of(variant, n, even, 1)));
        EXPECT_FALSE(written.has_size());
        for (const std::uint64_t alignment : {1, 32}) {
          EXPECT_EQ(written.at(even * 35 * alignment, alignment),
                    schedule_of(variant, n, even * 35 * alignment, alignment))
              << label(variant);
        }
        for (const std::uint64_t elements : {1, 5, 31, 2048, 20003}) {
          const Schedule odd = written.at(moves ? elements * n : elements, 32);
          EXPECT_EQ(check(odd).violation, "") << label(variant) << " of " << elements;
        }
        const std::uint64_t most = moves ? kMaxElements - kMaxElements % n : kMaxElements;
        EXPECT_EQ(check(written.at(most, 2048)).violation, "") << label(variant);
      }
    }
  }
}

TEST(ScheduleOfAnySize, CutsAtUnitsOfTheAlignment) {
  const Json json = Json::parse(in_fractions(schedule_of({"two_shot", {}}, 4, 4, 1)));
  EXPECT_EQ(json["chunks"][1], Json({{"begin", "1/4"}, {"end", "1/2"}}));
  EXPECT_FALSE(json.contains("elements") || json.contains("alignment"));
  const WrittenSchedule written = written_schedule_from_json(json.dump());
  const auto chunks = [&](std::uint64_t elements, std::uint64_t alignment) {
    return written.at(elements, alignment).chunks;
  };
  EXPECT_EQ(chunks(10, 1), (std::vector<Chunk>{{0, 3}, {3, 5}, {5, 8}, {8, 10}}));
  EXPECT_EQ(chunks(100, 32), (std::vector<Chunk>{{0, 32}, {32, 64}, {64, 96}, {96, 100}}));
  EXPECT_EQ(chunks(64, 32), (std::vector<Chunk>{{0, 32}, {32, 64}})) << "the others are empty";
  EXPECT_EQ(chunks(5, 2048), (std::vector<Chunk>{{0, 5}}));
}

TEST(ScheduleOfAnySize, IsRefusedWhereItDoesNotFit) {
  const Json json = Json::parse(in_fractions(schedule_of({"all_to_all", {}}, 4, 4, 1)));
  const WrittenSchedule written = written_schedule_from_json(json.dump());
  EXPECT_NE(refusal_of([&] { return written.at(6, 1); }).find("multiples of 4"), std::string::npos);
  EXPECT_NE(refusal_of([&] { return written.at(0, 1); }).find("out of range"), std::string::npos);
  EXPECT_NE(refusal_of([&] { return written.at(4, 0); }).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal_of([&] { return schedule_from_json(json.dump()); }).find("elements is missing"),
            std::string::npos);
  const WrittenSchedule sized = written_schedule_from_json(tree_json().dump());
  EXPECT_NE(refusal_of([&] { return sized.at(1, 1); }).find("elements per rank, not 1"),
            std::string::npos);
  for (const char* wrong : {"2/1", "1/0", "-1/2", "1", "1/", "/2", "0.5", "1/2 ", "1/1048577"}) {
    Json changed = json;
    changed["chunks"][1]["end"] = wrong;
    const std::string text = refusal_of([&] { return written_schedule_from_json(changed.dump()); });
    EXPECT_NE(text.find("chunks[1].end"), std::string::npos) << wrong;
    EXPECT_NE(text.find("not a fraction"), std::string::npos) << wrong;
  }
  // Wrong for every size: the checker has the last word, and nothing is read past an end.
  Json changed = json;
  changed["chunks"][1]["end"] = "1/8";
  EXPECT_NE(check(written_schedule_from_json(changed.dump()).at(400, 1)).violation, "");
  for (const char* list : {"ops", "outputs"}) {
    for (const char* key : {"chunk", "from"}) {
      changed = json;
      changed[list][1][key] = 4294967290u;
      EXPECT_NE(check(written_schedule_from_json(changed.dump()).at(4, 4)).violation, "") << key;
    }
  }
}

// ---------------------------------------------------------------- an algorithm without C++

TEST(Tree, IsACorrectAllReduceWithIdenticalRanks) {
  const Schedule tree = read(tree_json());
  const CheckReport report = check(tree);
  EXPECT_EQ(report.violation, "");
  EXPECT_TRUE(report.ranks_identical) << report.divergence;
  const Volume volume = volume_of(tree, 2);
  EXPECT_EQ(volume.total, 6);
  EXPECT_EQ(volume.cross_group, 1);
  EXPECT_EQ(volume.messages, 6u);
}

TEST(Tree, WithAMistakeIsRefusedByTheChecker) {
  Json json = tree_json();
  json["ops"][8]["from"] = {4, 4};
  EXPECT_EQ(check(read(json)).violation,
            "rank 0, elements [0, 5000): the result holds the contribution of rank 0 2 times");
  json["ops"][8]["from"] = {4, 5};
  EXPECT_EQ(check(read(json)).violation,
            "op 8 (reduce on rank 0, chunk 0): uses value 5, which is on rank 2, not on rank 0");
}

}  // namespace
}  // namespace arlab::testing
