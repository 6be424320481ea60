// Tails in schedules: placed behind every all-reduce, proved, written and read, and run; and schedules with a tail that are wrong,
// each of which check() has to name in the words expected.
#include "reference/collectives/tailed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_json.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

constexpr std::uint32_t kHidden = 6;
constexpr TailPlacement kAfter = {};
constexpr TailPlacement kOwner = {.at_owner = true};

Tail tail_of(const std::string& text, std::uint32_t hidden = kHidden) {
  Tail tail = parse_tail(text);
  tail.hidden = hidden;
  return tail;
}
const Tail kTail = tail_of("residual=add,norm=rms,out=fp8-e4m3-g2");

Schedule all_reduce(const Variant& variant, Rank ranks) {
  return schedule_of(variant, ranks, std::uint64_t{kHidden} * (2 * ranks + 1), kHidden);
}

bool has_owners(const Variant& variant, Rank ranks) {
  const bool reencodes = words_of(variant.options.get("forward")) == "reencoded" && ranks > 2;
  return variant.algorithm != "one_shot" && !reencodes;
}

TEST(Tailed, EveryAllReduceTakesATailAfterItAndThoseWithOwnersAtThese) {
  for (const Rank ranks : {1U, 2U, 3U, 6U}) {
    for (const Variant& variant : all_variants(ranks)) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, label(variant)));
      const Schedule plain = all_reduce(variant, ranks);
      for (const TailPlacement& place :
           {kAfter, kOwner, TailPlacement{.at_owner = true, .sends_residual = true},
            TailPlacement{.at_owner = true, .keeps_normalized = true}}) {
        if (place.at_owner && ranks == 1) continue;
        if (place.at_owner && !has_owners(variant, ranks)) {
          EXPECT_NE(refusal_of([&] {
                      with_tail(plain, kTail, place);
                    }).find("allowed is the tail after it"),
                    std::string::npos);
          continue;
        }
        const Schedule made = with_tail(plain, kTail, place);
        EXPECT_EQ(check(made).ranks_identical, check(plain).ranks_identical);
        EXPECT_EQ(final_kind(made), OutputKind::quantized);
        EXPECT_EQ(schedule_from_json(schedule_to_json(made).dump()), made);
      }
    }
  }
}

TEST(Tailed, ResidualsMayDifferAndTensorsThatDoNotFitAreRefused) {
  const Tail tail = tail_of("residual=add");
  const Schedule made = with_tail(all_reduce({"two_shot", {}}, 2), tail, kAfter);
  const CodecPtr codec = find_codec("fp32");
  const Tensor x = make_synthetic("constant:value=1", DType::fp32, 2, made.elements);
  const Tensor residual = make_synthetic("gaussian:seed=1", DType::fp32, 2, made.elements);
  std::vector<std::byte> last(x.data.size()), next(last.size());
  TailOperands tensors{.tail = tail, .dtype = DType::fp32, .next_residual = next};
  const auto run = [&] { execute(made, *codec, x, last, {.tails = &tensors}); };
  const std::span<const std::byte> both = residual.data;
  tensors.residuals = {both.first(both.size() / 2), both.subspan(both.size() / 2)};
  run();
  const std::vector<float> found = to_floats({DType::fp32, x.shape, last});
  const std::vector<float> own = to_floats(residual);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], 2 + own[i]);
  EXPECT_EQ(last, next);

  const auto expect = [&](const char* words) {
    const std::string said = refusal_of(run);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  tensors.residuals.clear();
  expect("a tensor of the tail 'hidden=6,residual=add' has another size than 2 ranks x 30 fp32");
  tensors.tail = tail_of("norm=rms");
  expect("makes a residual and quantizes nothing, of fp32: the tail 'hidden=6,norm=rms' does not");
  tensors.tail = tail_of("residual=add", 3);
  expect("has tails of rows of 6 elements (0: none): needed are tensors of such");
  EXPECT_NE(refusal_of([&] { execute(made, *codec, x, last); }).find("needed are tensors"),
            std::string::npos);
}

// ---------------------------------------------------------------- what is wrong

using S = Schedule;
struct Mutant {
  void (*change)(S&);
  const char* words;
};

Op& op(S& s, OpKind kind, OutputKind makes = OutputKind::sum) {
  return *std::ranges::find_if(s.ops, [&](auto& o) { return o.kind == kind && o.makes == makes; });
}
Op& reduce(S& s) { return op(s, OpKind::reduce); }
Op& residual(S& s) { return op(s, OpKind::tail, OutputKind::residual); }
Op& normalized(S& s) { return op(s, OpKind::tail, OutputKind::normalized); }
Op& quantized(S& s) { return *std::ranges::find(s.ops, CodecRole::output, &Op::codec); }
ValueId id(S& s, Op& op) { return static_cast<ValueId>(&op - s.ops.data()); }
Output& output(S& s, OutputKind kind) { return *std::ranges::find(s.outputs, kind, &Output::kind); }
void drop(S& s, OutputKind kind, Rank rank) {
  std::erase_if(s.outputs, [&](auto& each) { return each.kind == kind && each.rank == rank; });
}

void expect_named(const Schedule& right, const std::vector<Mutant>& mutants) {
  ASSERT_TRUE(check(right).ranks_identical);
  for (const auto& [change, words] : mutants) {
    Schedule broken = right;
    change(broken);
    const std::string said = check(broken).violation;
    EXPECT_NE(said.find(words), std::string::npos) << words << " is not in: " << said;
  }
}

TEST(Tailed, WrongTailsAfterTheSumAreNamed) {
  const Schedule plain = all_reduce({"one_shot", {}}, 3);
  const char* const partial = "the result is of a sum that lacks the contribution of rank";
  const char* const only_tails =
      "a tail, and no other op, makes the residual or what is normalized";
  const std::vector<Mutant> mutants = {
      {[](S& s) { --reduce(s).addend_count; }, partial},
      {[](S& s) { normalized(s).source = kOwnInput; }, partial},
      {[](S& s) { s.row = 0; }, "the schedule has no rows"},
      {[](S& s) { s.row = 4; }, "chunk 0: elements [0, 42) cuts a row of 4 elements"},
      {[](S& s) { s.collective = Collective::broadcast; }, "not behind a broadcast"},
      {[](S& s) { s.outputs[0].value = kOwnInput; }, "is the rank's input, not the residual"},
      {[](S& s) { s.outputs[0].kind = OutputKind::sum; },
       "is the sum, which ranks do not end with"},
      {[](S& s) { output(s, OutputKind::residual).kind = OutputKind::normalized; },
       "is the residual, not the normalized"},
      {[](S& s) { normalized(s).source = id(s, residual(s)); }, "made; allowed are sums"},
      {[](S& s) { quantized(s).source = id(s, residual(s)); },
       "encodes the residual by the output"},
      {[](S& s) { quantized(s).source = residual(s).source; }, "encodes the sum by the output's"},
      {[](S& s) { reduce(s).makes = OutputKind::residual; }, only_tails},
      {[](S& s) { residual(s).makes = OutputKind::sum; }, only_tails},
      {[](S& s) { drop(s, OutputKind::quantized, 1); }, "rank 1: element 0 is never output"},
      {[](S& s) { drop(s, OutputKind::residual, 1); },
       "[0, 42): the residual ends on 2 of 3 ranks; allowed are those with a tail, all"},
      {[](S& s) { s.outputs.push_back(output(s, OutputKind::residual)); }, "is output twice"}};
  expect_named(with_tail(plain, kTail, {.keeps_normalized = true}), mutants);
  Schedule other = with_tail(plain, kTail, kAfter);
  reduce(other).start = Start::zero;
  EXPECT_NE(check(other).divergence.find("compute elements [0, 42) differently"),
            std::string::npos);
}

TEST(Tailed, WrongTailsAtOwnersAreNamed) {
  const auto send_raw = [](S& s) {
    std::ranges::find(s.ops, id(s, quantized(s)), &Op::source)->source = id(s, normalized(s));
  };
  const auto encode_again = [](S& s) {
    const Output last = output(s, OutputKind::quantized);
    s.ops.push_back({.step = 9, .rank = last.rank, .chunk = last.chunk, .source = last.value});
  };
  expect_named(
      with_tail(all_reduce({"two_shot", {}}, 3), kTail, kOwner),
      {{send_raw, "sends a raw value; only encoded values travel"},
       {encode_again, "of a tail again"},
       {[](S& s) { --reduce(s).addend_count; }, "of a sum that lacks the contribution of rank 2"},
       {[](S& s) { quantized(s).codec = CodecRole::outer; },
        "as of the output codec; the outer one"},
       {[](S& s) { drop(s, OutputKind::residual, 2); },
        "the residual ends on 0 of 3 ranks; allowed are those with a tail, 1, or all"}});
}

TEST(Tailed, WhatCannotBePlacedIsALine) {
  const Schedule plain = all_reduce({"two_shot", {}}, 2);
  const auto expect = [](const char* words, auto call) {
    const std::string said = refusal_of(call);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  expect("it has a tail already",
         [&] { with_tail(with_tail(plain, kTail, kAfter), kTail, kAfter); });
  expect("cuts a row of 10 elements", [&] { with_tail(plain, tail_of("norm=rms", 10), kAfter); });
  expect("30 elements of a rank are not whole rows of 8",
         [&] { with_tail(plain, tail_of("norm=rms", 8), kAfter); });
  expect("allowed with residual=add, at the owner",
         [&] { with_tail(plain, kTail, {.sends_residual = true}); });
  expect("allowed with residual=add, at the owner", [&] {
    with_tail(plain, tail_of("norm=rms"), {.at_owner = true, .sends_residual = true});
  });
  expect("not behind a broadcast", [&] {
    with_tail(make_schedule("broadcast", {.world_size = 2, .elements = 6}), kTail, kAfter);
  });
  EXPECT_EQ(
      Codecs(*find_codec("qr-q4"), *find_codec("bf16"), *find_codec("int8-g128")).alignment(576),
      18432U);
}

}  // namespace
}  // namespace arlab::testing
