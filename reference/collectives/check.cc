#include "reference/collectives/check.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace arlab {
namespace {

std::string range_of(const Chunk& chunk) {
  return fmt::format("elements [{}, {})", chunk.begin, chunk.end);
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::encode:
      return "encode";
    case OpKind::send:
      return "send";
    case OpKind::reduce:
      return "reduce";
    case OpKind::tail:
      return "tail";
  }
  return "unknown kind of op";
}

// ---------------------------------------------------------------- form

std::optional<std::string> malformed_chunks(const Schedule& s) {
  if (s.world_size < 1 || s.world_size > kMaxWorldSize) {
    return fmt::format("world size {} is out of range: allowed is 1 to {}", s.world_size,
                       kMaxWorldSize);
  }
  if (s.elements < 1 || s.elements > kMaxElements) {
    return fmt::format("{} elements per rank is out of range: allowed is 1 to {}", s.elements,
                       kMaxElements);
  }
  if (s.ops.size() > kMaxOps) {
    return fmt::format("{} ops are too many: allowed are {}", s.ops.size(), kMaxOps);
  }
  if (s.alignment < 1) return "the alignment is 0";
  if (s.row != 0 && s.collective != Collective::all_reduce) {
    return fmt::format("a tail stands behind an all-reduce, not behind {}",
                       words_for(s.collective));
  }
  if (std::ranges::count(kCollectives, s.collective) == 0) return "unknown collective";
  const bool slots = has_slots(s.collective);
  if (slots && s.elements % s.world_size != 0) {
    return fmt::format("{} elements per rank do not make {} equal slots", s.elements, s.world_size);
  }
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    const Chunk& chunk = s.chunks[i];
    if (chunk.begin >= chunk.end || chunk.end > s.elements) {
      return fmt::format("chunk {}: {} is empty or reaches beyond the {} elements", i,
                         range_of(chunk), s.elements);
    }
    if (!is_aligned(s, chunk, s.alignment)) {
      return fmt::format(
          "chunk {}: {} does not lie on multiples of the alignment {}{}", i, range_of(chunk),
          s.alignment,
          slots ? fmt::format(" within one slot of {} elements", s.slot_elements()) : "");
    }
    if (s.row != 0 && (chunk.begin % s.row != 0 || chunk.end % s.row != 0)) {
      return fmt::format("chunk {}: {} cuts a row of {} elements", i, range_of(chunk), s.row);
    }
  }
  return std::nullopt;
}

/// Where value `id` is after its op.
Rank place_of(const Schedule& s, ValueId id) {
  return s.ops[id].kind == OpKind::send ? s.ops[id].peer : s.ops[id].rank;
}

std::optional<std::string> malformed_operand(const Schedule& s, std::size_t i, ValueId operand) {
  const Op& op = s.ops[i];
  if (operand == kOwnInput) {
    if (op.kind == OpKind::send) return "sends a raw value; only encoded values travel";
    return std::nullopt;
  }
  if (operand >= i) return fmt::format("uses value {}, which does not exist yet", operand);
  if (place_of(s, operand) != op.rank) {
    return fmt::format("uses value {}, which is on rank {}, not on rank {}", operand,
                       place_of(s, operand), op.rank);
  }
  if (s.ops[operand].chunk != op.chunk) {
    return fmt::format("uses value {} of chunk {} for chunk {}", operand, s.ops[operand].chunk,
                       op.chunk);
  }
  if (s.ops[operand].kind == OpKind::send && s.ops[operand].step >= op.step) {
    return fmt::format("uses value {} in step {}, in which it is still being sent", operand,
                       op.step);
  }
  const OpKind maker = s.ops[operand].kind;
  if (op.kind == OpKind::send && (maker == OpKind::reduce || maker == OpKind::tail)) {
    return "sends a raw value; only encoded values travel";
  }
  if (op.kind == OpKind::send && s.ops[operand].codec != op.codec) {
    return fmt::format("sends value {} as of the {} codec; the {} one has encoded it", operand,
                       name_of(op.codec), name_of(s.ops[operand].codec));
  }
  return std::nullopt;
}

/// Returns what is wrong with an op's operands in a schedule with tails: `contents` are those of earlier ops.
std::optional<std::string> wrong_content(const Schedule& s, const Op& op,
                                         const std::vector<OutputKind>& contents) {
  for (const ValueId operand : s.operands(op)) {
    const OutputKind content = operand == kOwnInput ? OutputKind::sum : contents[operand];
    const bool is_of_tail = content != OutputKind::sum;
    if (is_of_tail && (op.kind == OpKind::reduce || op.kind == OpKind::tail)) {
      return fmt::format("takes value {}, which a tail has made; allowed are sums", operand);
    }
    if (op.kind != OpKind::encode) continue;
    if (is_of_tail && s.ops[operand].kind != OpKind::tail) {
      return fmt::format("encodes value {} of a tail again", operand);
    }
    if (op.codec == CodecRole::output && content != OutputKind::normalized) {
      return fmt::format("encodes the {} by the output's codec; allowed is what is normalized",
                         name_of(content));
    }
  }
  return std::nullopt;
}

std::optional<std::string> malformed_op(const Schedule& s, std::size_t i) {
  const Op& op = s.ops[i];
  if (op.kind > OpKind::tail) return "unknown kind of op";
  if (op.codec > CodecRole::output) return "unknown codec";
  const bool is_tail = op.kind == OpKind::tail;
  if (is_tail && s.row == 0) return "the schedule has no rows";
  if (is_tail != (op.makes == OutputKind::residual || op.makes == OutputKind::normalized)) {
    return "a tail, and no other op, makes the residual or what is normalized";
  }
  if (op.rank >= s.world_size) return fmt::format("there is no rank {}", op.rank);
  if (op.chunk >= s.chunks.size()) return fmt::format("there is no chunk {}", op.chunk);
  if (i > 0 && op.step < s.ops[i - 1].step) {
    return fmt::format("step {} follows step {}; ops stand in step order", op.step,
                       s.ops[i - 1].step);
  }
  if (op.kind == OpKind::send) {
    if (op.peer >= s.world_size) return fmt::format("there is no rank {}", op.peer);
    if (op.peer == op.rank) return "sends to itself";
  }
  if (op.kind == OpKind::reduce) {
    if (!adds(s.collective)) {
      return fmt::format("{} moves values and adds none", words_for(s.collective));
    }
    if (op.addend_count == 0) return "adds nothing";
    if (op.first_addend > s.addends.size() ||
        op.addend_count > s.addends.size() - op.first_addend) {
      return "its addends lie outside the list of addends";
    }
  }
  for (const ValueId operand : s.operands(op)) {
    if (auto problem = malformed_operand(s, i, operand)) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> malformed_output(const Schedule& s, const Output& output,
                                            const std::vector<OutputKind>& contents) {
  if (output.rank >= s.world_size) return fmt::format("there is no rank {}", output.rank);
  if (output.chunk >= s.chunks.size()) return fmt::format("there is no chunk {}", output.chunk);
  const Chunk& chunk = s.chunks[output.chunk];
  if (adds(s.collective) && output.begin != chunk.begin) {
    return fmt::format("{} would end at element {}; {} leaves elements in place", range_of(chunk),
                       output.begin, words_for(s.collective));
  }
  if (output.begin > s.elements - chunk.size()) {
    return fmt::format("{} would start at element {} and end beyond the {} elements",
                       range_of(chunk), output.begin, s.elements);
  }
  if (s.row != 0 && output.kind == OutputKind::sum) {
    return "is the sum, which ranks do not end with where there is a tail";
  }
  if (output.value == kOwnInput) {
    if (output.kind == OutputKind::sum) return std::nullopt;
    return fmt::format("is the rank's input, not the {}", name_of(output.kind));
  }
  if (output.value >= s.ops.size()) return fmt::format("there is no value {}", output.value);
  if (place_of(s, output.value) != output.rank) {
    return fmt::format("value {} is on rank {}", output.value, place_of(s, output.value));
  }
  if (s.ops[output.value].chunk != output.chunk) {
    return fmt::format("value {} is of chunk {}, not {}", output.value, s.ops[output.value].chunk,
                       output.chunk);
  }
  if (contents[output.value] != output.kind) {
    return fmt::format("value {} is the {}, not the {}", output.value,
                       name_of(contents[output.value]), name_of(output.kind));
  }
  return std::nullopt;
}

std::optional<std::string> malformed(const Schedule& s) {
  if (auto problem = malformed_chunks(s)) return problem;
  std::vector<OutputKind> contents;
  contents.reserve(s.ops.size());
  for (std::size_t i = 0; i < s.ops.size(); ++i) {
    auto problem = malformed_op(s, i);
    if (!problem) problem = wrong_content(s, s.ops[i], contents);
    contents.push_back(content_of(s.ops[i], contents));
    if (problem) {
      return fmt::format("op {} ({} on rank {}, chunk {}): {}", i, name_of(s.ops[i].kind),
                         s.ops[i].rank, s.ops[i].chunk, *problem);
    }
  }
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    if (const auto problem = malformed_output(s, s.outputs[i], contents)) {
      return fmt::format("output {} of rank {}: {}", i, s.outputs[i].rank, *problem);
    }
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- contributions

/// Ranks first .. last contribute `count` times each.
struct RankRange {
  Rank first;
  Rank last;
  std::uint64_t count;
};
/// A multiset of ranks, in ascending runs; neighbouring runs of equal count are joined.
using Contributions = std::vector<RankRange>;

/// Adds multisets: sweep over all run boundaries, keeping the current count.
Contributions sum(const std::vector<const Contributions*>& addends) {
  std::vector<std::pair<Rank, std::int64_t>> changes;  // the count's, at this rank and after
  for (const Contributions* addend : addends) {
    for (const RankRange& run : *addend) {
      // Far more than once is wrong however often; a bound keeps repeated doubling from
      // overflowing.
      const auto count = static_cast<std::int64_t>(std::min<std::uint64_t>(run.count, 1U << 16));
      changes.emplace_back(run.first, count);
      changes.emplace_back(run.last + 1, -count);
    }
  }
  const auto lower = [](const auto& a, const auto& b) { return a.first < b.first; };
  // Mostly the addends are in the order of their ranks.
  if (!std::is_sorted(changes.begin(), changes.end(), lower)) {
    std::sort(changes.begin(), changes.end(), lower);
  }
  Contributions total;
  std::int64_t count = 0;
  for (auto it = changes.begin(); it != changes.end();) {
    const Rank rank = it->first;
    std::int64_t change = 0;
    for (; it != changes.end() && it->first == rank; ++it) change += it->second;
    if (change == 0) continue;
    if (!total.empty() && total.back().last == UINT32_MAX) total.back().last = rank - 1;
    count += change;
    if (count != 0) total.push_back({rank, UINT32_MAX, static_cast<std::uint64_t>(count)});
  }
  return total;
}

/// The contributions in every value. Values that a send or an encode passes on share one entry.
class ContributionTable {
 public:
  explicit ContributionTable(const Schedule& s) {
    for (Rank rank = 0; rank < s.world_size; ++rank) table_.push_back({{rank, rank, 1}});
    entry_.reserve(s.ops.size());
    for (const Op& op : s.ops) {
      if (op.kind != OpKind::reduce) {
        entry_.push_back(entry_of(op.rank, op.source));
        continue;
      }
      std::vector<const Contributions*> addends;
      for (const ValueId operand : s.operands(op)) {
        addends.push_back(&table_[entry_of(op.rank, operand)]);
      }
      entry_.push_back(table_.size());
      table_.push_back(sum(addends));
    }
  }

  const Contributions& of(Rank rank, ValueId value) const { return table_[entry_of(rank, value)]; }

 private:
  std::size_t entry_of(Rank rank, ValueId id) const { return id == kOwnInput ? rank : entry_[id]; }

  std::vector<Contributions> table_;  // first one entry per rank: its own input
  std::vector<std::size_t> entry_;    // by value
};

/// Returns what is wrong with contributions that should hold every rank once.
std::optional<std::string> not_all_once(const Contributions& contributions, Rank world_size) {
  Rank next = 0;
  for (const RankRange& run : contributions) {
    if (run.first != next) break;
    if (run.count != 1) {
      return fmt::format("holds the contribution of rank {} {} times", run.first, run.count);
    }
    next = run.last + 1;
  }
  if (next < world_size) return fmt::format("lacks the contribution of rank {}", next);
  return std::nullopt;
}

// ---------------------------------------------------------------- origins

/// Which rank's input a value holds, in a schedule without sums; its chunk says which elements.
struct Origin {
  Rank rank = 0;
  bool visited = false;  ///< the rank that its slot is for has encoded it
};

class OriginTable {
 public:
  explicit OriginTable(const Schedule& s) {
    origins_.reserve(s.ops.size());
    for (const Op& op : s.ops) {
      Origin origin = of(op.rank, op.source);
      const std::uint64_t slot = s.chunks[op.chunk].begin / s.slot_elements();
      origin.visited = origin.visited || (op.kind == OpKind::encode && op.rank == slot);
      origins_.push_back(origin);
    }
  }

  Origin of(Rank rank, ValueId id) const { return id == kOwnInput ? Origin{rank} : origins_[id]; }

 private:
  std::vector<Origin> origins_;  // by value
};

/// Returns what is wrong with a result that should be one range of one rank's input.
std::optional<std::string> not_moved(const Schedule& s, const Output& output, Origin origin) {
  const std::uint64_t slot = s.slot_elements();
  const Chunk& chunk = s.chunks[output.chunk];
  Rank rank = output.rank;
  std::uint64_t begin = output.begin;
  if (s.collective == Collective::broadcast) rank = 0;
  if (s.collective == Collective::all_gather) rank = static_cast<Rank>(begin / slot);
  if (s.collective == Collective::all_to_all) {
    rank = static_cast<Rank>(output.begin / slot);
    begin = output.rank * slot + output.begin % slot;
  }
  if (origin.rank != rank || chunk.begin != begin) {
    return fmt::format("is {} of rank {}, not {} of rank {}", range_of(chunk), origin.rank,
                       range_of({begin, begin + chunk.size()}), rank);
  }
  const std::uint64_t expert = begin / slot;
  if (s.collective == Collective::dispatch_combine && expert != rank && !origin.visited) {
    return fmt::format("was not encoded again on rank {}, which its slot is for", expert);
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- results

/// Says what is wrong with the result at an output; nothing when it is right.
using WrongResult = std::function<std::optional<std::string>(const Output&)>;

WrongResult wrong_result_of(const Schedule& s) {
  if (adds(s.collective)) {
    return [&s, contributions =
                    ContributionTable(s)](const Output& output) -> std::optional<std::string> {
      const bool is_sum =
          s.collective == Collective::all_reduce || output.begin / s.slot_elements() == output.rank;
      if (is_sum) {
        const auto problem =
            not_all_once(contributions.of(output.rank, output.value), s.world_size);
        return problem && s.row != 0 ? "is of a sum that " + *problem : problem;
      }
      if (output.value == kOwnInput) return std::nullopt;
      return fmt::format("is not the rank's own input, which {} leaves in all slots but slot {}",
                         words_for(s.collective), output.rank);
    };
  }
  return [&s, origins = OriginTable(s)](const Output& output) {
    return not_moved(s, output, origins.of(output.rank, output.value));
  };
}

/// Outputs by kind, rank and element.
std::vector<Output> sorted_outputs(const Schedule& s) {
  std::vector<Output> outputs = s.outputs;
  std::stable_sort(outputs.begin(), outputs.end(), [](const Output& a, const Output& b) {
    return std::tuple(a.kind, a.rank, a.begin) < std::tuple(b.kind, b.rank, b.begin);
  });
  return outputs;
}

/// Checks outputs of one kind. `is_whole`: every rank is to end with all elements.
std::optional<std::string> wrong_outputs(const Schedule& s, std::span<const Output> outputs,
                                         const WrongResult& wrong_result, bool is_whole) {
  auto output = outputs.begin();
  for (Rank rank = 0; rank < s.world_size; ++rank) {
    std::uint64_t next = 0;
    for (; output != outputs.end() && output->rank == rank; ++output) {
      const Chunk place{output->begin, output->begin + s.chunks[output->chunk].size()};
      if (is_whole && place.begin > next) break;
      if (place.begin < next) {
        return fmt::format("rank {}: element {} is output twice", rank, place.begin);
      }
      if (auto problem = wrong_result(*output)) {
        return fmt::format("rank {}, {}: the result {}", rank, range_of(place), *problem);
      }
      next = place.end;
    }
    if (is_whole && next < s.elements) {
      return fmt::format("rank {}: element {} is never output", rank, next);
    }
  }
  return std::nullopt;
}

/// Outputs of a tail beside the final ones end on the ranks that make them, or on all.
std::optional<std::string> lost_rows(const Schedule& s, std::span<const Output> outputs) {
  if (outputs.empty()) return std::nullopt;
  std::map<ChunkId, std::set<Rank>> makers;
  std::map<ChunkId, std::set<Rank>> owners;
  for (const Op& op : s.ops) {
    if (op.makes == OutputKind::normalized) makers[op.chunk].insert(op.rank);
  }
  for (const Output& output : outputs) owners[output.chunk].insert(output.rank);
  for (const auto& [chunk, ranks] : makers) {
    if (owners[chunk] == ranks || owners[chunk].size() == s.world_size) continue;
    return fmt::format(
        "{}: the {} ends on {} of {} ranks; allowed are those with a tail, {}",
        range_of(s.chunks[chunk]), name_of(outputs.front().kind), owners[chunk].size(),
        s.world_size,
        ranks.size() == s.world_size ? "all" : fmt::format("{}, or all", ranks.size()));
  }
  return std::nullopt;
}

std::optional<std::string> wrong_outputs(const Schedule& s, const std::vector<Output>& outputs) {
  const WrongResult wrong_result = wrong_result_of(s);
  const OutputKind last = final_kind(s);
  for (const OutputKind kind :
       {OutputKind::sum, OutputKind::residual, OutputKind::normalized, OutputKind::quantized}) {
    const auto found = std::ranges::equal_range(outputs, kind, {}, &Output::kind);
    const std::span<const Output> of_kind(found.begin(), found.end());
    if (kind != last && of_kind.empty()) continue;
    if (auto problem = wrong_outputs(s, of_kind, wrong_result, kind == last)) return problem;
    if (kind == last) continue;
    if (auto problem = lost_rows(s, of_kind)) return problem;
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- identical bits

/// Numbers the expressions of a schedule: two values have one number exactly when they are built by
/// the same operations from the same inputs. Sending changes no bit, so it makes no new number.
class ExpressionTable {
 public:
  /// `apart`: of different chunks nothing is equal; else what is built alike has one number wherever it stands.
  explicit ExpressionTable(const Schedule& s, bool apart = true)
      : s_(s),
        apart_(apart),
        first_of_ops_(kForms * std::uint64_t{s.world_size} * s.chunks.size()),
        first_(0, Hash{*this}, Equal{*this}) {
    number_.reserve(s.ops.size());
    for (ValueId id = 0; id < s.ops.size(); ++id) {
      const Op& op = s.ops[id];
      if (op.kind == OpKind::send) {
        number_.push_back(number_of(op, op.source));
      } else if (op.kind == OpKind::encode && op.source == kOwnInput) {
        // By far the most frequent.
        number_.push_back(number_of(op, kOwnInput) + 1 + static_cast<unsigned>(op.codec));
      } else {
        number_.push_back(first_of_ops_ + *first_.insert(id).first);
      }
    }
  }
  ExpressionTable(const ExpressionTable&) = delete;
  ExpressionTable& operator=(const ExpressionTable&) = delete;

  std::uint64_t of(const Output& output) const {
    return number_of(output.rank, output.chunk, output.value);
  }

 private:
  /// A hash of what an op that is no send does, and to values of which numbers.
  struct Hash {
    const ExpressionTable& table;
    std::size_t operator()(ValueId id) const {
      const Op& op = table.s_.ops[id];
      std::uint64_t hash = op.kind == OpKind::encode ? static_cast<std::uint64_t>(op.codec)
                                                     : 3 + static_cast<std::uint64_t>(op.start) +
                                                           2 * static_cast<std::uint64_t>(op.makes);
      for (const ValueId operand : table.s_.operands(op)) {
        hash = (hash ^ table.number_of(op, operand)) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  struct Equal {
    const ExpressionTable& table;
    bool operator()(ValueId a, ValueId b) const {
      const Op& x = table.s_.ops[a];
      const Op& y = table.s_.ops[b];
      const auto of_x = table.s_.operands(x);
      const auto of_y = table.s_.operands(y);
      return x.kind == y.kind && x.start == y.start && x.makes == y.makes && x.codec == y.codec &&
             std::equal(of_x.begin(), of_x.end(), of_y.begin(), of_y.end(),
                        [&](ValueId i, ValueId j) {
                          return table.number_of(x, i) == table.number_of(y, j);
                        });
    }
  };

  std::uint64_t number_of(Rank rank, ChunkId chunk, ValueId id) const {
    const ChunkId of = apart_ ? chunk : 0;
    return id == kOwnInput ? kForms * (std::uint64_t{rank} * s_.chunks.size() + of) : number_[id];
  }
  std::uint64_t number_of(const Op& op, ValueId id) const {
    return number_of(op.rank, op.chunk, id);
  }

  /// Forms of an input: as it is, and encoded by each codec.
  static constexpr std::uint64_t kForms = 3;

  const Schedule& s_;
  bool apart_;
  /// Below it: the forms of all inputs.
  std::uint64_t first_of_ops_;
  std::vector<std::uint64_t> number_;               ///< by value
  std::unordered_set<ValueId, Hash, Equal> first_;  ///< ops, of equal ones the first
};

/// Where outputs of two ranks begin at the same element, they must be alike: outputs that cover ranks without holes first differ
/// where both begin.
std::optional<std::string> divergent_outputs(const Schedule& s,
                                             const std::vector<Output>& outputs) {
  const ExpressionTable expressions(s);
  std::unordered_map<std::uint64_t, const Output*> firsts;  // the lowest rank's
  for (const Output& mine : outputs) {
    const std::uint64_t place =
        mine.begin * std::size(kOutputKindNames) + static_cast<std::uint64_t>(mine.kind);
    const Output& theirs = *firsts.try_emplace(place, &mine).first->second;
    if (theirs.chunk != mine.chunk || expressions.of(theirs) != expressions.of(mine)) {
      return fmt::format("ranks {} and {} compute {} differently", theirs.rank, mine.rank,
                         range_of(s.chunks[mine.chunk]));
    }
  }
  return std::nullopt;
}

}  // namespace

CheckReport check(const Schedule& schedule) {
  CheckReport report;
  if (auto problem = malformed(schedule)) {
    report.violation = std::move(*problem);
    return report;
  }
  const std::vector<Output> outputs = sorted_outputs(schedule);
  if (auto problem = wrong_outputs(schedule, outputs)) {
    report.violation = std::move(*problem);
    return report;
  }
  report.correct = true;
  if (!ends_alike(schedule.collective)) return report;
  if (auto problem = divergent_outputs(schedule, outputs)) {
    report.divergence = std::move(*problem);
  } else {
    report.ranks_identical = true;
  }
  return report;
}

bool sums_are_alike(const Schedule& schedule) {
  if (!adds(schedule.collective)) return true;
  const ExpressionTable expressions(schedule, false);
  const OutputKind last = final_kind(schedule);
  std::optional<std::uint64_t> first;
  for (const Output& output : schedule.outputs) {
    if (output.kind != last) continue;
    if (output.value == kOwnInput && schedule.world_size > 1) continue;  // kept by a rank
    const std::uint64_t number = expressions.of(output);
    if (first.value_or(number) != number) return false;
    first = number;
  }
  return true;
}

std::vector<bool> complete_sums(const Schedule& schedule) {
  const ContributionTable contributions(schedule);
  std::vector<bool> complete;
  for (ValueId id = 0; id < schedule.ops.size(); ++id) {
    complete.push_back(!not_all_once(contributions.of(0, id), schedule.world_size));
  }
  return complete;
}

void require_correct(const Schedule& schedule) {
  const CheckReport report = check(schedule);
  if (report.correct) return;
  fail("schedule '{}' is not {}: {}", schedule.algorithm, words_for(schedule.collective),
       report.violation);
}

}  // namespace arlab
