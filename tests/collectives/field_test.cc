// Fields: what is allowed, what texts stand for, what goes together; and the options of algorithms, which are fields.

#include "reference/field.h"

#include <gtest/gtest.h>

#include <set>

#include "reference/collectives/algorithm.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

const Field kParts = {.name = "micro_parts", .kind = Integer{1, 16}, .otherwise = std::uint64_t{4}};
const Field kWay = {.name = "way", .kind = OneOf{{"in", "out"}}, .otherwise = "in"};
const Field kShare = {.name = "share", .kind = Number{}};
const Field kFlag = {.name = "flag", .kind = Flag{}};

TEST(Field, TakesWhatItAllowsAndSaysSoOtherwise) {
  EXPECT_EQ(parsed(kParts, "16", "--micro-parts"), FieldValue(std::uint64_t{16}));
  EXPECT_EQ(parsed(kShare, "0.25", "--share"), FieldValue(0.25));
  EXPECT_EQ(parsed(kWay, "out", "--way"), FieldValue("out"));
  EXPECT_EQ(parsed(kFlag, "true", "--flag"), FieldValue(true));
  const auto refused = [](const Field& field, const std::string& text) {
    return refusal_of([&] { parsed(field, text, "--" + field.option()); });
  };
  for (const char* text : {"0", "17", "-1", "04", "4.0", "", "x", "99999999999999999999"}) {
    EXPECT_EQ(refused(kParts, text),
              fmt::format("--micro-parts: '{}': allowed is an integer from 1 to 16", text));
  }
  EXPECT_EQ(refused(kWay, "up"), "--way is 'up': allowed are in, out");
  EXPECT_EQ(refused(kShare, "much"), "--share: 'much': allowed is a number");
  EXPECT_EQ(refused(kFlag, "1"), "--flag: '1': allowed is true or false");
  EXPECT_EQ(refusal_of([] { require_allowed(kParts, std::uint64_t{17}, "micro_parts"); }),
            "micro_parts 17 is out of range: allowed is 1 to 16");
  EXPECT_EQ(refusal_of([] { require_allowed(kParts, "4", "micro_parts"); }),
            "micro_parts: allowed is an integer from 1 to 16");
  EXPECT_EQ(refusal_of([] { require_allowed(kWay, true, "way"); }), "way: allowed are in, out");
  EXPECT_EQ(refusal_of([] { require_allowed(kWay, {}, "way"); }), "accepted");
}

TEST(Field, HasTheValueThatIsSetElseItsDefault) {
  FieldValues values = {{"way", "out"}};
  EXPECT_EQ(text_of(kWay, values), "out");
  EXPECT_EQ(integer_of(kParts, values), 4u);
  values.set("micro_parts", 9);
  EXPECT_EQ(integer_of(kParts, values), 9u);
  values.set("micro_parts", 99);
  EXPECT_EQ(refusal_of([&] { (void)integer_of(kParts, values); }),
            "micro-parts 99 is out of range: allowed is 1 to 16");
  values.set("micro_parts", FieldValue());
  EXPECT_EQ(values, (FieldValues{{"way", "out"}}));
}

struct Request {
  bool flag = false;
  std::string name = {};
  std::optional<std::uint32_t> parts = {};
  std::optional<double> share = {};
  std::vector<std::string> texts = {};
  FieldValues more = {};
};

std::vector<BoundField> fields(Request& r) {
  return {{kFlag, &r.flag},
          {{.name = "name"}, &r.name, {.required = true}},
          {kParts, &r.parts, {.needs = "flag"}},
          {kShare, &r.share, {.excludes = "name"}},
          {{.name = "texts", .kind = Texts{}}, &r.texts},
          {kWay, &r.more}};
}

TEST(Field, SetsTheMemberThatHoldsIt) {
  Request request;
  const std::vector<BoundField> all = fields(request);
  for (const BoundField& each : all) {
    const bool is_flag = each.field.name == "flag";
    EXPECT_EQ(each.get(), is_flag ? FieldValue(false) : FieldValue()) << each.field.name;
  }
  const std::vector<std::string> texts = {"a", "b"};
  find(all, "flag")->set(true, "flag");
  find(all, "name")->set("x", "name");
  find(all, "micro_parts")->set(std::uint64_t{3}, "micro_parts");
  find(all, "share")->set(std::uint64_t{2}, "share");
  find(all, "texts")->set(texts, "texts");
  find(all, "way")->set("out", "way");
  EXPECT_TRUE(request.flag);
  EXPECT_EQ(request.name, "x");
  EXPECT_EQ(request.parts, 3u);
  EXPECT_EQ(request.share, 2.0);
  EXPECT_EQ(request.texts, texts);
  EXPECT_EQ(request.more, (FieldValues{{"way", "out"}}));
  EXPECT_EQ(find(all, "micro_parts")->get(), FieldValue(std::uint64_t{3}));
  EXPECT_EQ(find(all, "other"), nullptr);
}

TEST(Field, SaysWhatDoesNotGoTogether) {
  const auto refused = [](const Request& given) {
    Request request = given;
    return refusal_of([&] { require_relations(fields(request)); });
  };
  EXPECT_EQ(refused({}), "name is required");
  EXPECT_EQ(refused({.name = "x"}), "accepted");
  EXPECT_EQ(refused({.name = "x", .parts = 3}), "micro_parts requires flag");
  EXPECT_EQ(refused({.flag = true, .name = "x", .parts = 3}), "accepted");
  EXPECT_EQ(refused({.name = "x", .share = 1}), "name excludes share");
}

TEST(Field, OptionsOfAlgorithmsHaveDefaultsThatTheyAllow) {
  for (const Algorithm& algorithm : all_algorithms()) {
    std::set<std::string> names;
    for (const Field& option : algorithm.options) {
      EXPECT_TRUE(names.insert(option.name).second) << option.name;
      EXPECT_EQ(refusal_of([&] { require_allowed(option, option.otherwise, "it"); }), "accepted");
      EXPECT_FALSE(option.help.empty() || option.default_words().empty()) << option.name;
      for (const std::uint64_t each : option.trials) {
        EXPECT_EQ(refusal_of([&] { require_allowed(option, each, "it"); }), "accepted");
      }
    }
  }
  for (const Field& option : all_options()) {
    EXPECT_NE(option.help.find(option.name == "own" ? "Encode" : ": "), option.help.npos);
  }
}

}  // namespace
}  // namespace arlab
