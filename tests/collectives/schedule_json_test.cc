// Schedules as JSON: what is written is read back, what is malformed is refused at its place, and
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

/// What encodes by another codec than all others says so, sends of it need not.
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

// ---------------------------------------------------------------- malformed files

/// What is said of a file.
std::string refusal_of_text(std::string_view text) {
  return refusal_of([&] { schedule_from_json(text); });
}

std::string refusal(const Json& json) { return refusal_of_text(json.dump()); }

/// The refusal of tree.json with one value replaced.
std::string with(const char* place, const Json& value) {
  Json json = tree_json();
  json[Json::json_pointer(place)] = value;
  return refusal(json);
}

std::string without(const char* parent, const char* key) {
  Json json = tree_json();
  json[Json::json_pointer(parent)].erase(key);
  return refusal(json);
}

TEST(MalformedJson, NamesTheMissingKey) {
  for (const char* key : {"schema", "collective", "algorithm", "world_size", "elements",
                          "alignment", "chunks", "ops", "outputs"}) {
    EXPECT_EQ(without("", key), fmt::format("schedule: {} is missing", key));
  }
  for (const char* key : {"begin", "end"}) {
    EXPECT_EQ(without("/chunks/0", key), fmt::format("schedule: chunks[0].{} is missing", key));
  }
  for (const char* key : {"op", "step", "rank", "to", "chunk", "from"}) {
    EXPECT_EQ(without("/ops/3", key), fmt::format("schedule: ops[3].{} is missing", key));
  }
  for (const char* key : {"op", "step", "rank", "chunk", "start", "from"}) {
    EXPECT_EQ(without("/ops/8", key), fmt::format("schedule: ops[8].{} is missing", key));
  }
  for (const char* key : {"rank", "chunk", "from", "begin"}) {
    EXPECT_EQ(without("/outputs/2", key), fmt::format("schedule: outputs[2].{} is missing", key));
  }
}

TEST(MalformedJson, NamesTheValueOfTheWrongType) {
  EXPECT_EQ(refusal(Json::array()), "schedule: the file is an array, not an object");
  EXPECT_EQ(refusal(nullptr), "schedule: the file is null, not an object");
  EXPECT_EQ(refusal("two_shot"), "schedule: the file is 'two_shot', not an object");
  EXPECT_EQ(with("/algorithm", 7), "schedule: algorithm is 7, not a text");
  EXPECT_EQ(with("/world_size", "4"),
            "schedule: world_size is '4', not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/chunks", 3), "schedule: chunks is 3, not an array");
  EXPECT_EQ(with("/ops", Json::object()), "schedule: ops is an object, not an array");
  EXPECT_EQ(with("/outputs", nullptr), "schedule: outputs is null, not an array");
  EXPECT_EQ(with("/chunks/0", Json::array({0, 5000})),
            "schedule: chunks[0] is an array, not an object");
  EXPECT_EQ(with("/ops/5", 5), "schedule: ops[5] is 5, not an object");
  EXPECT_EQ(with("/ops/5/rank", true),
            "schedule: ops[5].rank is true, not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/ops/5/from", 3), "schedule: ops[5].from is 3, not an array");
  EXPECT_EQ(with("/ops/6/from", Json::array({5})),
            "schedule: ops[6].from is an array, not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/ops/5/from/1", nullptr),
            "schedule: ops[5].from[1] is null, not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/ops/5/start", 0), "schedule: ops[5].start is 0; allowed: zero, first");
}

TEST(MalformedJson, NamesTheNumberThatIsNegativeBrokenOrHuge) {
  EXPECT_EQ(with("/elements", -1),
            "schedule: elements is -1, not an integer from 0 to 18446744073709551615");
  EXPECT_EQ(with("/chunks/0/end", 0.5),
            "schedule: chunks[0].end is 0.5, not an integer from 0 to 18446744073709551615");
  EXPECT_EQ(with("/chunks/0/end", Json::parse("18446744073709551616")),
            "schedule: chunks[0].end is 1.8446744073709552e+19, not an integer from 0 to "
            "18446744073709551615");
  EXPECT_EQ(with("/ops/1/rank", 4294967296),
            "schedule: ops[1].rank is 4294967296, not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/ops/1/to", -4),
            "schedule: ops[1].to is -4, not an integer from 0 to 4294967295");
  EXPECT_EQ(with("/ops/6/from", 4294967295),
            "schedule: ops[6].from is 4294967295, which no op can have");
  EXPECT_EQ(with("/outputs/3/begin", -1),
            "schedule: outputs[3].begin is -1, not an integer from 0 to 18446744073709551615");
}

TEST(MalformedJson, NamesTheWordThatIsNotKnown) {
  EXPECT_EQ(with("/schema", "arlab.schedule/2"),
            "schedule: schema is 'arlab.schedule/2'; allowed: arlab.schedule/1");
  EXPECT_EQ(with("/collective", "all_together"),
            "schedule: collective is 'all_together'; allowed: all_reduce, all_to_all, "
            "dispatch_combine, reduce_scatter, all_gather, broadcast");
  EXPECT_EQ(with("/ops/12/op", "broadcast"),
            "schedule: ops[12].op is 'broadcast'; allowed: encode, send, reduce");
  EXPECT_EQ(with("/ops/4/start", "one"), "schedule: ops[4].start is 'one'; allowed: zero, first");
  EXPECT_EQ(with("/ops/0/codec", "innermost"),
            "schedule: ops[0].codec is 'innermost'; allowed: outer, inner");
  EXPECT_EQ(with("/ops/0/codec", 1), "schedule: ops[0].codec is 1; allowed: outer, inner");
  EXPECT_EQ(with("/ops/0/from", "own"),
            "schedule: ops[0].from is 'own'; allowed: \"input\" or the index of an earlier op");
}

TEST(MalformedJson, NamesTheKeyThatIsNotKnownOrStandsTwice) {
  EXPECT_EQ(with("/wordl_size", 4),
            "schedule: unknown key 'wordl_size'; allowed are schema, collective, algorithm, "
            "world_size, elements, alignment, agreement, chunks, ops, outputs, group_size, volume, "
            "check");
  EXPECT_EQ(with("/chunks/0/size", 4),
            "schedule: chunks[0]: unknown key 'size'; allowed are begin, end");
  EXPECT_EQ(with("/ops/0/to", 1),
            "schedule: ops[0]: unknown key 'to'; allowed are op, step, rank, chunk, codec, from");
  EXPECT_EQ(with("/ops/1/start", "zero"),
            "schedule: ops[1]: unknown key 'start'; allowed are op, step, rank, to, chunk, from");
  EXPECT_EQ(with("/ops/4/to", 1),
            "schedule: ops[4]: unknown key 'to'; allowed are op, step, rank, chunk, start, from");
  EXPECT_EQ(with("/outputs/0/end", 1),
            "schedule: outputs[0]: unknown key 'end'; allowed are rank, chunk, from, begin");
  EXPECT_EQ(refusal_of_text(R"({"ops": [{"rank": 0, "step": 1, "rank": 0}]})"),
            "schedule: the key 'rank' stands twice in one object");
}

TEST(MalformedJson, ThatIsNotJsonIsRefusedAtItsByte) {
  const std::string text = tree_json().dump();
  EXPECT_EQ(refusal_of_text(""), "schedule: not JSON, at byte 1");
  EXPECT_EQ(refusal_of_text("{\"schema\": arlab}"), "schedule: not JSON, at byte 12");
  EXPECT_EQ(refusal_of_text(text + "{}"),
            fmt::format("schedule: not JSON, at byte {}", text.size() + 1));
  for (std::size_t length = 0; length < text.size(); length += 7) {
    EXPECT_TRUE(
        refusal_of_text(text.substr(0, length)).starts_with("schedule: not JSON, at byte "));
  }
  EXPECT_EQ(refusal_of_text("{\"elements\": 1e400}").substr(0, 10), "schedule: ");
  EXPECT_EQ(refusal_of_text("{\"\xff\": 1}").substr(0, 10), "schedule: ");
}

TEST(MalformedJson, ThatNestsWithoutEndIsRefused) {
  const std::string words = "schedule: it nests deeper than 4 levels";
  EXPECT_EQ(refusal_of_text(std::string(1'000'000, '[')), words);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"ops\":";
  EXPECT_EQ(refusal_of_text(objects), words);
}

// What has the right types but no meaning is for check() to refuse, with the same place.
TEST(MalformedJson, OfTheRightTypesIsRefusedByTheChecker) {
  const auto violation = [](const char* place, const Json& value) {
    Json json = tree_json();
    json[Json::json_pointer(place)] = value;
    return check(read(json)).violation;
  };
  EXPECT_EQ(violation("/ops/6/from", 99),
            "op 6 (encode on rank 2, chunk 0): uses value 99, which does not exist yet");
  EXPECT_EQ(violation("/ops/1/from", "input"),
            "op 1 (send on rank 1, chunk 0): sends a raw value; only encoded values travel");
  EXPECT_EQ(violation("/ops/4/from", Json::array()),
            "op 4 (reduce on rank 0, chunk 0): adds nothing");
  EXPECT_EQ(violation("/outputs/1/from", 99), "output 1 of rank 1: there is no value 99");
  EXPECT_EQ(violation("/world_size", 0), "world size 0 is out of range: allowed is 1 to 65536");
  EXPECT_EQ(violation("/ops", Json::array()), "output 0 of rank 0: there is no value 9");
}

}  // namespace
}  // namespace arlab::testing
