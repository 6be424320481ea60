// The checker must see what is wrong: each test breaks every correct schedule at every place where
// the break is possible, one at a time, and check() has to name it in the words expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "reference/collectives/check.h"
#include "tests/collectives/variants.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

constexpr Rank kRanks = 6;

/// Every variant, with chunks for all owners and a tail that is shorter than the alignment.
void for_each_schedule(const std::function<void(const Schedule&)>& body) {
  for (const Variant& variant : all_variants(kRanks, {2})) {
    SCOPED_TRACE(label(variant));
    const Schedule schedule = schedule_of(variant, kRanks, 12 * 32 + 5, 32);
    ASSERT_TRUE(check(schedule).correct);
    body(schedule);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void for_each_op(OpKind kind,
                 const std::function<void(const Schedule& schedule, std::size_t op)>& body) {
  for_each_schedule([&](const Schedule& schedule) {
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      if (schedule.ops[i].kind == kind) body(schedule, i);
    }
  });
}

constexpr OpKind kKinds[] = {OpKind::encode, OpKind::send, OpKind::reduce};

void for_each_op(const std::function<void(const Schedule& schedule, std::size_t op)>& body) {
  for (const OpKind kind : kKinds) for_each_op(kind, body);
}

void for_each_output(
    const std::function<void(const Schedule& schedule, std::size_t output)>& body) {
  for_each_schedule([&](const Schedule& schedule) {
    for (std::size_t i = 0; i < schedule.outputs.size(); ++i) body(schedule, i);
  });
}

// EXPECT_VIOLATION(schedule, "words"): the schedule is wrong, and that is what is said.
void expect_violation(const Schedule& broken, const std::string& words, const char* file,
                      int line) {
  const CheckReport report = check(broken);
  if (!report.correct && !report.ranks_identical && report.violation == words) return;
  ADD_FAILURE_AT(file, line) << "expected: " << words << "\nreported: " << report.violation;
}
#define EXPECT_VIOLATION(broken, words) expect_violation(broken, words, __FILE__, __LINE__)
// The same of `schedule` with a change, which is called `broken`.
#define EXPECT_BROKEN(change, words) \
  {                                  \
    Schedule broken = schedule;      \
    change;                          \
    EXPECT_VIOLATION(broken, words); \
  }

const char* name_of(OpKind kind) {
  return kind == OpKind::encode ? "encode" : kind == OpKind::send ? "send" : "reduce";
}

template <class... Values>
std::string at_op(const Schedule& schedule, std::size_t i, fmt::format_string<Values...> problem,
                  Values&&... values) {
  const Op& op = schedule.ops[i];
  return fmt::format("op {} ({} on rank {}, chunk {}): {}", i, name_of(op.kind), op.rank, op.chunk,
                     fmt::format(problem, std::forward<Values>(values)...));
}

template <class... Values>
std::string at_output(const Schedule& schedule, std::size_t i,
                      fmt::format_string<Values...> problem, Values&&... values) {
  return fmt::format("output {} of rank {}: {}", i, schedule.outputs[i].rank,
                     fmt::format(problem, std::forward<Values>(values)...));
}

std::string elements_of(const Chunk& chunk) {
  return fmt::format("elements [{}, {})", chunk.begin, chunk.end);
}

Rank place_of(const Schedule& schedule, ValueId value) {
  const Op& op = schedule.ops[value];
  return op.kind == OpKind::send ? op.peer : op.rank;
}

ChunkId other_chunk(const Schedule& schedule, ChunkId chunk) {
  return static_cast<ChunkId>((chunk + 1) % schedule.chunks.size());
}

/// The same problem, told where the value is used first: by an op, else by an output.
std::string at_first_use(const Schedule& schedule, std::size_t value,
                         const std::function<std::string(const Op&)>& problem_of_op,
                         const std::string& problem_of_output) {
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (std::ranges::count(schedule.operands(schedule.ops[i]), value) != 0) {
      return at_op(schedule, i, "{}", problem_of_op(schedule.ops[i]));
    }
  }
  for (std::size_t i = 0; i < schedule.outputs.size(); ++i) {
    if (schedule.outputs[i].value == value) return at_output(schedule, i, "{}", problem_of_output);
  }
  return "never used";
}

void set_addends(Schedule& schedule, std::size_t op, const std::vector<ValueId>& addends) {
  schedule.ops[op].first_addend = static_cast<std::uint32_t>(schedule.addends.size());
  schedule.ops[op].addend_count = static_cast<std::uint32_t>(addends.size());
  schedule.addends.insert(schedule.addends.end(), addends.begin(), addends.end());
}

std::vector<ValueId> addends_of(const Schedule& schedule, std::size_t op) {
  const std::span<const ValueId> operands = schedule.operands(schedule.ops[op]);
  return {operands.begin(), operands.end()};
}

/// Describes the first wrong result, by rank and element: which contributions it holds too often or lacks, counted plainly.
std::string first_wrong_result(const Schedule& s) {
  std::vector<std::vector<int>> count_by_rank;  // by value
  const auto counts_of = [&](Rank rank, ValueId value) {
    if (value != kOwnInput) return count_by_rank[value];
    std::vector<int> own(s.world_size, 0);
    own[rank] = 1;
    return own;
  };
  for (const Op& op : s.ops) {
    std::vector<int> counts(s.world_size, 0);
    for (const ValueId operand : s.operands(op)) {
      const std::vector<int> more = counts_of(op.rank, operand);
      for (Rank rank = 0; rank < s.world_size; ++rank) counts[rank] += more[rank];
    }
    count_by_rank.push_back(counts);
  }

  std::vector<Output> outputs = s.outputs;
  std::ranges::sort(outputs, {}, [](const Output& o) { return std::tuple(o.rank, o.begin); });
  for (const Output& output : outputs) {
    const std::vector<int> counts = counts_of(output.rank, output.value);
    for (Rank rank = 0; rank < s.world_size; ++rank) {
      if (counts[rank] == 1) continue;
      const std::string where =
          fmt::format("rank {}, {}: the result ", output.rank, elements_of(s.chunks[output.chunk]));
      return counts[rank] == 0 ? where + fmt::format("lacks the contribution of rank {}", rank)
                               : where + fmt::format("holds the contribution of rank {} {} times",
                                                     rank, counts[rank]);
    }
  }
  return "";
}

// ---------------------------------------------------------------- contributions

/// Changes, for every sum and each of its addends from the `first` on, the addends.
void with_other_addends(
    std::size_t first,
    const std::function<void(std::vector<ValueId>& addends, std::size_t k)>& change) {
  for_each_op(OpKind::reduce, [&](const Schedule& schedule, std::size_t op) {
    for (std::size_t k = first; k < schedule.ops[op].addend_count; ++k) {
      std::vector<ValueId> addends = addends_of(schedule, op);
      change(addends, k);
      EXPECT_BROKEN(set_addends(broken, op, addends), addends.empty()
                                                          ? at_op(broken, op, "adds nothing")
                                                          : first_wrong_result(broken));
    }
  });
}

TEST(CheckMutants, AnAddendIsDropped) {
  with_other_addends(0, [](std::vector<ValueId>& addends, std::size_t k) {
    addends.erase(addends.begin() + static_cast<std::ptrdiff_t>(k));
  });
}

TEST(CheckMutants, AnAddendIsAddedTwice) {
  with_other_addends(0, [](auto& addends, std::size_t k) { addends.push_back(addends[k]); });
}

TEST(CheckMutants, AnAddendStandsInForAnother) {
  with_other_addends(1, [](auto& addends, std::size_t k) { addends[k] = addends[0]; });
}

TEST(CheckMutants, TheOwnInputIsOutput) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& mine = schedule.outputs[output];
    EXPECT_BROKEN(
        broken.outputs[output].value = kOwnInput,
        fmt::format("rank {}, {}: the result lacks the contribution of rank {}", mine.rank,
                    elements_of(schedule.chunks[mine.chunk]), mine.rank == 0 ? 1 : 0));
  });
}

TEST(CheckMutants, AnOldPartialSumIsSent) {
  for_each_op(OpKind::encode, [](const Schedule& schedule, std::size_t op) {
    const ValueId sum = schedule.ops[op].source;
    if (sum == kOwnInput || schedule.ops[sum].addend_count == 1) return;  // a sum of one is no loss
    EXPECT_BROKEN(broken.ops[op].source = kOwnInput, first_wrong_result(broken));
  });
}

// ---------------------------------------------------------------- operands and places

/// The op takes another value.
void set_operand(Schedule& schedule, std::size_t op, std::size_t value) {
  schedule.ops[op].source = static_cast<ValueId>(value);
  if (schedule.ops[op].kind != OpKind::reduce) return;
  set_addends(schedule, op, {kOwnInput, static_cast<ValueId>(value)});
}

TEST(CheckMutants, AnOperandIsTakenFromAnotherRank) {
  for_each_op([](const Schedule& schedule, std::size_t op) {
    for (ValueId value = 0; value < op; ++value) {
      const Rank place = place_of(schedule, value);
      if (place == schedule.ops[op].rank) continue;
      EXPECT_BROKEN(set_operand(broken, op, value),
                    at_op(broken, op, "uses value {}, which is on rank {}, not on rank {}", value,
                          place, schedule.ops[op].rank));
      return;
    }
  });
}

TEST(CheckMutants, OperandsOfTwoRanksAreSwapped) {
  for_each_schedule([](const Schedule& schedule) {
    std::size_t swaps = 0;
    for (std::size_t a = 0; a < schedule.ops.size(); ++a) {
      for (std::size_t b = a + 1; b < schedule.ops.size(); ++b) {
        const ValueId of_a = schedule.ops[a].source;
        const ValueId of_b = schedule.ops[b].source;
        if (schedule.ops[a].kind != OpKind::send || schedule.ops[b].kind != OpKind::send ||
            schedule.ops[a].rank == schedule.ops[b].rank) {
          continue;
        }
        EXPECT_BROKEN(std::swap(broken.ops[a].source, broken.ops[b].source),
                      of_b >= a
                          ? at_op(broken, a, "uses value {}, which does not exist yet", of_b)
                          : at_op(broken, a, "uses value {}, which is on rank {}, not on rank {}",
                                  of_b, schedule.ops[b].rank, schedule.ops[a].rank));
        EXPECT_NE(of_a, of_b);
        if (++swaps == 200) return;
      }
    }
  });
}

TEST(CheckMutants, AMessageGoesToTheWrongRank) {
  for_each_op(OpKind::send, [](const Schedule& schedule, std::size_t op) {
    for (Rank wrong = 0; wrong < kRanks; ++wrong) {
      if (wrong == schedule.ops[op].peer) continue;
      const auto of_user = [&](const Op& user) {
        return fmt::format("uses value {}, which is on rank {}, not on rank {}", op, wrong,
                           user.rank);
      };
      EXPECT_BROKEN(broken.ops[op].peer = wrong,
                    wrong == schedule.ops[op].rank
                        ? at_op(broken, op, "sends to itself")
                        : at_first_use(broken, op, of_user,
                                       fmt::format("value {} is on rank {}", op, wrong)));
    }
  });
}

TEST(CheckMutants, AMessageComesFromTheWrongRank) {
  for_each_op(OpKind::send, [](const Schedule& schedule, std::size_t op) {
    const Rank right = schedule.ops[op].rank;
    const Rank wrong = (right + 1) % kRanks;
    if (wrong == schedule.ops[op].peer) return;
    EXPECT_BROKEN(broken.ops[op].rank = wrong,
                  at_op(broken, op, "uses value {}, which is on rank {}, not on rank {}",
                        schedule.ops[op].source, right, wrong));
  });
}

TEST(CheckMutants, ARawValueIsSent) {
  for_each_op(OpKind::send, [](const Schedule& schedule, std::size_t op) {
    const char* const words = "sends a raw value; only encoded values travel";
    EXPECT_BROKEN(broken.ops[op].source = kOwnInput, at_op(broken, op, "{}", words));
    const ValueId sum = schedule.ops[schedule.ops[op].source].source;
    if (sum == kOwnInput || schedule.ops[sum].kind != OpKind::reduce) return;
    // Not what was encoded from it.
    EXPECT_BROKEN(broken.ops[op].source = sum, at_op(broken, op, "{}", words));
  });
}

TEST(CheckMutants, AValueIsUsedBeforeItExists) {
  for_each_op([](const Schedule& schedule, std::size_t op) {
    for (const std::size_t later : {op, op + 1, schedule.ops.size(), std::size_t{kOwnInput} - 1}) {
      EXPECT_BROKEN(set_operand(broken, op, later),
                    at_op(broken, op, "uses value {}, which does not exist yet", later));
    }
  });
}

TEST(CheckMutants, AnotherChunkIsEncoded) {
  for_each_op(OpKind::encode, [](const Schedule& schedule, std::size_t op) {
    if (schedule.chunks.size() == 1) return;  // one_shot
    const ChunkId right = schedule.ops[op].chunk;
    const ChunkId wrong = other_chunk(schedule, right);
    const ValueId source = schedule.ops[op].source;
    const auto of_user = [&](const Op& user) {
      return fmt::format("uses value {} of chunk {} for chunk {}", op, wrong, user.chunk);
    };
    EXPECT_BROKEN(
        broken.ops[op].chunk = wrong,
        source != kOwnInput
            ? at_op(broken, op, "uses value {} of chunk {} for chunk {}", source, right, wrong)
            : at_first_use(broken, op, of_user,
                           fmt::format("value {} is of chunk {}, not {}", op, wrong, right)));
  });
}

TEST(CheckMutants, AnOpIsOfNoRankOrChunkOrKind) {
  for_each_op([](const Schedule& schedule, std::size_t op) {
    EXPECT_BROKEN(broken.ops[op].rank = kRanks, at_op(broken, op, "there is no rank 6"));
    EXPECT_BROKEN(broken.ops[op].chunk = UINT32_MAX,
                  at_op(broken, op, "there is no chunk 4294967295"));
    EXPECT_BROKEN(broken.ops[op].kind = static_cast<OpKind>(4),
                  fmt::format("op {} (unknown kind of op on rank {}, chunk {}): unknown kind of op",
                              op, broken.ops[op].rank, broken.ops[op].chunk));
    if (schedule.ops[op].kind != OpKind::send) return;
    EXPECT_BROKEN(broken.ops[op].peer = kRanks, at_op(broken, op, "there is no rank 6"));
  });
}

TEST(CheckMutants, AddendsLieOutsideTheirList) {
  for_each_op(OpKind::reduce, [](const Schedule& schedule, std::size_t op) {
    const auto all = static_cast<std::uint32_t>(schedule.addends.size());
    for (const auto& [first, count] : {std::pair(schedule.ops[op].first_addend, UINT32_MAX),
                                       {all, schedule.ops[op].addend_count},
                                       {UINT32_MAX, schedule.ops[op].addend_count}}) {
      EXPECT_BROKEN((broken.ops[op].first_addend = first, broken.ops[op].addend_count = count),
                    at_op(broken, op, "its addends lie outside the list of addends"));
    }
  });
}

TEST(CheckMutants, StepsRunBackwards) {
  for_each_schedule([](const Schedule& schedule) {
    for (std::size_t op = 1; op < schedule.ops.size(); ++op) {
      const std::uint32_t previous = schedule.ops[op - 1].step;
      if (previous == 0) continue;
      EXPECT_BROKEN(broken.ops[op].step = previous - 1,
                    at_op(broken, op, "step {} follows step {}; ops stand in step order",
                          previous - 1, previous));
    }
  });
}

// Two steps become one: what was sent in the first is now used before it has arrived.
TEST(CheckMutants, AMessageIsUsedWhileItIsBeingSent) {
  for_each_schedule([](const Schedule& schedule) {
    for (std::uint32_t step = 0; step < schedule.ops.back().step; ++step) {
      Schedule broken = schedule;
      for (Op& op : broken.ops) op.step -= op.step > step ? 1 : 0;
      std::string words;
      for (std::size_t i = 0; i < broken.ops.size() && words.empty(); ++i) {
        for (const ValueId operand : broken.operands(broken.ops[i])) {
          if (operand == kOwnInput || broken.ops[operand].kind != OpKind::send ||
              broken.ops[operand].step < broken.ops[i].step) {
            continue;
          }
          words = at_op(broken, i, "uses value {} in step {}, in which it is still being sent",
                        operand, broken.ops[i].step);
          break;
        }
      }
      if (words.empty()) continue;  // groups of one rank send nothing in their first step
      EXPECT_VIOLATION(broken, words);
    }
  });
}

// ---------------------------------------------------------------- outputs

TEST(CheckMutants, AnOutputIsMissingOrComesTwice) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& mine = schedule.outputs[output];
    EXPECT_BROKEN(
        broken.outputs.erase(broken.outputs.begin() + static_cast<std::ptrdiff_t>(output)),
        fmt::format("rank {}: element {} is never output", mine.rank, mine.begin));
    EXPECT_BROKEN(broken.outputs.push_back(mine),
                  fmt::format("rank {}: element {} is output twice", mine.rank, mine.begin));
  });
}

TEST(CheckMutants, AnOutputGoesToTheWrongPlace) {
  for_each_output([](const Schedule& schedule, std::size_t output) {
    const Output& right = schedule.outputs[output];
    EXPECT_BROKEN(broken.outputs[output].begin += 32,
                  at_output(broken, output,
                            "{} would end at element {}; an all-reduce leaves elements in place",
                            elements_of(schedule.chunks[right.chunk]), right.begin + 32));
  });
}

TEST(CheckMutants, AnOutputIsOfNoRankOrChunkOrValue) {
  for_each_output([](const Schedule& schedule, std::size_t i) {
    const Output& right = schedule.outputs[i];
    EXPECT_BROKEN(broken.outputs[i].rank = kRanks, at_output(broken, i, "there is no rank 6"));
    EXPECT_BROKEN(broken.outputs[i].chunk = static_cast<ChunkId>(schedule.chunks.size()),
                  at_output(broken, i, "there is no chunk {}", schedule.chunks.size()));
    EXPECT_BROKEN(broken.outputs[i].value = static_cast<ValueId>(schedule.ops.size()),
                  at_output(broken, i, "there is no value {}", schedule.ops.size()));
    EXPECT_BROKEN(broken.outputs[i].rank = (right.rank + 1) % kRanks,
                  at_output(broken, i, "value {} is on rank {}", right.value, right.rank));
    if (schedule.chunks.size() == 1) return;
    const ChunkId wrong = other_chunk(schedule, right.chunk);
    EXPECT_BROKEN(
        (broken.outputs[i].chunk = wrong, broken.outputs[i].begin = schedule.chunks[wrong].begin),
        at_output(broken, i, "value {} is of chunk {}, not {}", right.value, right.chunk, wrong));
  });
}

// ---------------------------------------------------------------- chunks and headers

void for_each_chunk(const std::function<void(const Schedule& schedule, std::size_t chunk)>& body) {
  for_each_schedule([&](const Schedule& schedule) {
    for (std::size_t i = 0; i < schedule.chunks.size(); ++i) body(schedule, i);
  });
}

TEST(CheckMutants, AChunkIsShiftedOrTooLongOrTooShort) {
  for_each_chunk([](const Schedule& schedule, std::size_t chunk) {
    const Chunk right = schedule.chunks[chunk];
    if (right.end + 32 > schedule.elements) return;
    const std::size_t output = static_cast<std::size_t>(
        std::ranges::find(schedule.outputs, chunk, &Output::chunk) - schedule.outputs.begin());
    EXPECT_BROKEN((broken.chunks[chunk] = {right.begin + 32, right.end + 32}),
                  at_output(broken, output,
                            "{} would end at element {}; an all-reduce leaves elements in place",
                            elements_of(broken.chunks[chunk]), right.begin));
    EXPECT_BROKEN(broken.chunks[chunk].end += 32,
                  fmt::format("rank 0: element {} is output twice", right.end));
    EXPECT_BROKEN(broken.chunks[chunk].end -= 32,
                  right.size() == 32
                      ? fmt::format("chunk {}: {} is empty or reaches beyond the {} elements",
                                    chunk, elements_of(broken.chunks[chunk]), schedule.elements)
                      : fmt::format("rank 0: element {} is never output", right.end - 32));
  });
}

TEST(CheckMutants, AChunkCutsABlockOrReachesBeyondTheTensor) {
  for_each_chunk([](const Schedule& schedule, std::size_t chunk) {
    const auto [begin, end] = schedule.chunks[chunk];
    const char* const cuts = "does not lie on multiples of the alignment 32";
    const char* const beyond = "is empty or reaches beyond the 389 elements";
    for (const auto& [wrong, problem] : {std::pair(Chunk{begin + 1, end}, cuts),
                                         {Chunk{begin, end - 1}, cuts},
                                         {Chunk{begin, schedule.elements + 1}, beyond},
                                         {Chunk{32, 32}, beyond},
                                         {Chunk{UINT64_MAX, 32}, beyond}}) {
      EXPECT_BROKEN(broken.chunks[chunk] = wrong,
                    fmt::format("chunk {}: {} {}", chunk, elements_of(wrong), problem));
    }
  });
}

TEST(CheckMutants, NothingIsToBeReduced) {
  const auto out_of_range = [](const char* what, const char* most) {
    return fmt::format("{} is out of range: allowed is 1 to {}", what, most);
  };
  for_each_schedule([&](const Schedule& schedule) {
    EXPECT_BROKEN(broken.world_size = 0, out_of_range("world size 0", "65536"));
    EXPECT_BROKEN(broken.world_size = 65537, out_of_range("world size 65537", "65536"));
    EXPECT_BROKEN(broken.elements = 0, out_of_range("0 elements per rank", "1099511627776"));
    EXPECT_BROKEN(broken.elements = kMaxElements + 1,
                  out_of_range("1099511627777 elements per rank", "1099511627776"));
    EXPECT_BROKEN(broken.alignment = 0, "the alignment is 0");
  });
  EXPECT_VIOLATION(Schedule(), out_of_range("0 elements per rank", "1099511627776"));
}

TEST(CheckMutants, ARankJoinsThatTakesNoPart) {
  for_each_schedule([](const Schedule& schedule) {
    EXPECT_BROKEN(broken.world_size = kRanks + 1,
                  fmt::format("rank 0, {}: the result lacks the contribution of rank 6",
                              elements_of(schedule.chunks.front())));
  });
}

TEST(CheckMutants, RequireCorrectThrowsTheViolation) {
  Schedule broken = schedule_of({"two_shot", {}}, 2, 10, 1);
  EXPECT_NO_THROW(require_correct(broken));
  broken.outputs.clear();
  EXPECT_EQ(refusal_of([&] { require_correct(broken); }),
            "schedule 'two_shot' is not an all-reduce: rank 0: element 0 is never output");
}

// ---------------------------------------------------------------- correct, but ranks may differ

void expect_divergence(const Schedule& schedule, const std::string& words) {
  const CheckReport report = check(schedule);
  EXPECT_TRUE(report.correct) << report.violation;
  EXPECT_FALSE(report.ranks_identical);
  EXPECT_EQ(report.divergence, words);
}

std::size_t reduce_of_rank(const Schedule& schedule, Rank rank) {
  const auto op = std::ranges::find_if(schedule.ops, [rank](const Op& candidate) {
    return candidate.kind == OpKind::reduce && candidate.rank == rank;
  });
  return static_cast<std::size_t>(op - schedule.ops.begin());
}

TEST(CheckDivergence, ARankAddsInAnotherOrder) {
  for (Rank rank = 1; rank < kRanks; ++rank) {
    Schedule schedule = schedule_of({"one_shot", {}}, kRanks, 100, 32);
    const std::size_t op = reduce_of_rank(schedule, rank);
    std::vector<ValueId> addends = addends_of(schedule, op);
    std::swap(addends[0], addends[1]);
    set_addends(schedule, op, addends);
    expect_divergence(schedule,
                      fmt::format("ranks 0 and {} compute elements [0, 100) differently", rank));
  }
}

TEST(CheckDivergence, ARankStartsItsSumElsewhere) {
  Schedule schedule = schedule_of({"one_shot", {}}, kRanks, 100, 32);
  schedule.ops[reduce_of_rank(schedule, 3)].start = Start::zero;
  expect_divergence(schedule, "ranks 0 and 3 compute elements [0, 100) differently");
}

// The owner of a chunk outputs its sum as it is, while all others decode what it encoded.
TEST(CheckDivergence, AnOwnerKeepsItsExactSum) {
  Schedule schedule = schedule_of({"two_shot", {}}, kRanks, kRanks * 32, 32);
  for (Output& output : schedule.outputs) {
    const Op& op = schedule.ops[output.value];
    if (op.kind == OpKind::encode) output.value = op.source;
  }
  expect_divergence(schedule, "ranks 0 and 1 compute elements [0, 32) differently");
}

TEST(CheckDivergence, ARankCutsItsOutputAtOtherPlaces) {
  Schedule schedule = schedule_of({"one_shot", {}}, 2, 64, 32);
  const Schedule halves = schedule_of({"two_shot", {}}, 2, 64, 32);
  // Rank 0 as in one_shot, rank 1 as in two_shot.
  const auto first_op = static_cast<ValueId>(schedule.ops.size());
  std::erase_if(schedule.outputs, [](const Output& output) { return output.rank == 1; });
  const auto shifted = [&](ValueId id) { return id == kOwnInput ? id : first_op + id; };
  for (std::size_t i = 0; i < halves.ops.size(); ++i) {
    Op op = halves.ops[i];
    op.step += 2;
    op.chunk += 1;
    if (op.kind != OpKind::reduce) op.source = shifted(op.source);
    schedule.ops.push_back(op);
    if (op.kind != OpKind::reduce) continue;
    std::vector<ValueId> addends = addends_of(halves, i);
    std::ranges::transform(addends, addends.begin(), shifted);
    set_addends(schedule, schedule.ops.size() - 1, addends);
  }
  schedule.chunks.insert(schedule.chunks.end(), halves.chunks.begin(), halves.chunks.end());
  for (Output output : halves.outputs) {
    output.chunk += 1;
    output.value = shifted(output.value);
    if (output.rank == 1) schedule.outputs.push_back(output);
  }
  expect_divergence(schedule, "ranks 0 and 1 compute elements [0, 32) differently");
}

}  // namespace
}  // namespace arlab::testing
