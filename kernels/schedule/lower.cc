#include "kernels/schedule/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace arlab::kernels {
namespace {

constexpr ChunkId kNoChunk = UINT32_MAX;
constexpr std::uint32_t kNoWire = 15;  // in Step::to
/// A wire may be read in so many phases after the exchange that brought it: slots are written again
/// four exchanges later, by ranks that may be an exchange ahead.
constexpr int kPhasesOfAWire = 2;

/// Why something cannot be lowered. With fewer chunks it might, where `size` says so.
struct Refusal {
  std::string why;
  bool size = false;
};

/// Where an encoded value can be read on its rank: in the slot of `from`, from a phase on.
struct Origin {
  Rank from = 0;
  int exchange = 0;
  int phase() const { return exchange + 1; }
};

/// A step while it is put together.
struct Draft {
  Step step = {};
  std::vector<Operand> operands = {};
  /// Expected operands in the output, and values stored: for verification.
  std::vector<ValueId> expected = {};
  ValueId stored = kElsewhere;
};

struct Phase {
  std::vector<Draft> receives;
  std::vector<Draft> sends;
};

/// Lowers some chunks of a schedule.
class Lowering {
 public:
  Lowering(const Schedule& schedule, const std::vector<ChunkId>& chunks, Passes passes,
           std::size_t most_wires)
      : s_(schedule),
        passes_(passes),
        most_wires_(std::min<std::size_t>(most_wires, kNoWire)),
        number_(schedule.chunks.size(), kNoChunk),
        facts_(schedule.ops.size()),
        encodings_(encodings_of(schedule)) {
    for (const ChunkId chunk : chunks) {
      number_[chunk] = static_cast<ChunkId>(lowered_.chunks.size());
      lowered_.chunks.push_back(s_.chunks[chunk]);
    }
  }

  std::optional<Refusal> run() {
    if (lowered_.chunks.size() > static_cast<std::size_t>(kMaxChunks)) {
      return Refusal{
          fmt::format("{} chunks, where kernels take {}", lowered_.chunks.size(), kMaxChunks),
          true};
    }
    find_phases();
    if (phases_ > kMaxPhases) {
      return Refusal{
          fmt::format("{} exchanges, where kernels take {}", phases_ - 1, kMaxPhases - 1), true};
    }
    find_uses();
    find_origins();
    number_wires();
    if (!refusal_) find_places();
    for (Rank rank = 0; rank < s_.world_size && !refusal_; ++rank) write(rank);
    if (!refusal_) find_kernels();
    return refusal_;
  }

  Lowered& lowered() { return lowered_; }

 private:
  /// Known facts about the value that an op makes.
  struct Fact {
    int phase = 0;                   // when it is made; sends: the exchange that it travels with
    std::vector<ValueId> uses = {};  // by ops
    std::vector<std::size_t> outputs = {};
    std::vector<Origin> origins = {};  // encoded: in slots, in order
    ValueId fused = kElsewhere;        // a sum's encoding, if one step does both
    bool is_early = false;             // encoded in the phase before
    bool waits = false;                // a sum, or an operand to measure: in the output
    ChunkId place = kNoChunk;          // there
  };

  // ---- facts

  bool is_wanted(ChunkId chunk) const { return number_[chunk] != kNoChunk; }
  const Op& op(ValueId value) const { return s_.ops[value]; }
  Rank rank_of(ValueId value) const {
    return op(value).kind == OpKind::send ? op(value).peer : op(value).rank;
  }
  void refuse(std::string why, bool size = false) {
    if (!refusal_) refusal_ = Refusal{std::move(why), size};
  }

  /// A phase ends with the sends of a step, and holds all ops since the sends before. What is encoded
  /// and added in between is read from the rank's own slot, so that takes an exchange more; unless
  /// it can as well be encoded in the phase before.
  void find_phases() {
    std::vector<std::uint32_t> steps;
    for (const Op& op : s_.ops) {
      if (op.kind == OpKind::send && is_wanted(op.chunk)) steps.push_back(op.step);
    }
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    const auto since_sends = [&](ValueId v) {
      return static_cast<std::size_t>(std::lower_bound(steps.begin(), steps.end(), op(v).step) -
                                      steps.begin());
    };
    // Whether a value was there an interval before this one.
    const auto is_there_before = [&](ValueId v, std::size_t interval) {
      if (v == kOwnInput) return true;
      return since_sends(v) + (op(v).kind == OpKind::send ? 1 : 0) < interval;
    };
    std::vector<int> more(s_.ops.size(), 0);  // exchanges since the sends before
    std::vector<int> most(steps.size() + 1, 0);
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk) || op(v).kind == OpKind::send) continue;
      const std::size_t interval = since_sends(v);
      for (const ValueId operand : s_.operands(op(v))) {
        if (operand == kOwnInput || op(operand).kind == OpKind::send) continue;
        if (since_sends(operand) != interval) continue;
        const bool is_read = op(operand).kind == OpKind::encode;
        const bool is_early =
            is_read && interval > 0 && is_there_before(op(operand).source, interval);
        if (is_early) facts_[operand].is_early = true;
        more[v] = std::max(more[v], more[operand] + (is_read && !is_early ? 1 : 0));
      }
      most[interval] = std::max(most[interval], more[v]);
    }
    for (const Output& output : s_.outputs) {
      if (!is_wanted(output.chunk) || !decodes_own_wire(output.value)) continue;
      if (since_sends(output.value) != steps.size()) continue;
      most.back() = std::max(most.back(), more[output.value] + 1);
    }
    std::vector<int> first(steps.size() + 1, 0);  // phase since the sends before
    for (std::size_t i = 0; i < steps.size(); ++i) first[i + 1] = first[i] + most[i] + 1;
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      const std::size_t interval = since_sends(v);
      facts_[v].phase = first[interval] + (op(v).kind == OpKind::send ? most[interval] : more[v]) -
                        (facts_[v].is_early ? 1 : 0);
    }
    phases_ = first.back() + most.back() + 1;
  }

  void find_uses() {
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk)) continue;
      for (const ValueId operand : s_.operands(op(v))) {
        if (operand != kOwnInput) facts_[operand].uses.push_back(v);
      }
    }
    for (std::size_t i = 0; i < s_.outputs.size(); ++i) {
      const Output& output = s_.outputs[i];
      if (is_wanted(output.chunk) && output.value != kOwnInput) {
        facts_[output.value].outputs.push_back(i);
      }
    }
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk) || op(v).kind != OpKind::reduce) continue;
      Fact& sum = facts_[v];
      for (const ValueId use : sum.uses) {
        const bool encodes_now = op(use).kind == OpKind::encode && facts_[use].phase == sum.phase;
        if (passes_ == Passes::one && encodes_now && sum.fused == kElsewhere) {
          sum.fused = use;
        } else {
          sum.waits = true;
        }
      }
      sum.waits = sum.waits || !sum.outputs.empty();
    }
  }

  /// With two passes, the output gets what a rank encodes from the rank's own slot, like any wire.
  bool decodes_own_wire(ValueId value) const {
    return passes_ == Passes::two && value != kOwnInput && op(value).kind == OpKind::encode;
  }

  /// Sends travel straight from the step that encodes them, or are passed on.
  bool is_direct(ValueId send) const {
    const ValueId source = op(send).source;
    return op(source).kind == OpKind::encode && facts_[source].phase == facts_[send].phase;
  }

  /// Which slots hold encoded values, and which must be kept there for longer.
  void find_origins() {
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk) || op(v).kind == OpKind::reduce) continue;
      Fact& fact = facts_[v];
      std::vector<int> phases;
      for (const ValueId use : fact.uses) {
        if (op(use).kind != OpKind::send || !is_direct(use)) phases.push_back(facts_[use].phase);
      }
      if (!fact.outputs.empty() && decodes_own_wire(v)) phases.push_back(fact.phase + 1);
      if (op(v).kind == OpKind::send || !phases.empty()) {
        fact.origins.push_back({op(v).rank, fact.phase});
      }
      std::sort(phases.begin(), phases.end());
      for (const int phase : phases) {
        while (phase - fact.origins.back().phase() >= kPhasesOfAWire) {
          const int again = fact.origins.back().phase() + kPhasesOfAWire - 1;
          fact.origins.push_back({rank_of(v), again});
        }
      }
    }
  }

  /// Wires of one exchange from one rank to one rank are numbered: sends in order, then what a rank
  /// keeps.
  void number_wires() {
    std::map<std::tuple<int, Rank, Rank>, std::uint32_t> counts;
    const auto number = [&](ValueId value, int exchange, Rank from, Rank to) {
      const std::uint32_t wire = counts[{exchange, from, to}]++;
      wires_[{value, exchange}] = wire;
      lowered_.wires = std::max(lowered_.wires, static_cast<int>(wire) + 1);
    };
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk) || op(v).kind == OpKind::reduce) continue;
      for (const Origin& origin : facts_[v].origins) {
        number(v, origin.exchange, origin.from, rank_of(v));
      }
    }
    if (static_cast<std::size_t>(lowered_.wires) > most_wires_) {
      refuse(fmt::format("{} wires from a rank to a rank in one exchange, where kernels take {}",
                         lowered_.wires, most_wires_),
             true);
    }
  }

  // ---- places of sums

  /// The chunk that stands at the output's place.
  ChunkId place_of(const Output& output) const {
    const std::uint64_t size = s_.chunks[output.chunk].size();
    for (ChunkId at = 0; at < s_.chunks.size(); ++at) {
      if (is_wanted(at) && s_.chunks[at] == Chunk{output.begin, output.begin + size}) {
        return number_[at];
      }
    }
    return kNoChunk;
  }

  /// From when until when a value waits in the output, in phases.
  struct Lifetime {
    int from;
    int until;
    ValueId value;
  };

  /// Every value that waits gets a place in the output for as long as it does: where it ends, or
  /// that of its own chunk, or of another one of that size.
  void find_places() {
    lifetimes_.assign(s_.world_size, std::vector<std::vector<Lifetime>>(lowered_.chunks.size()));
    for (const Output& output : s_.outputs) {
      if (!is_wanted(output.chunk)) continue;
      if (place_of(output) == kNoChunk) {
        return refuse(
            fmt::format("an output of rank {} begins at element {}, where no chunk of {} "
                        "elements does",
                        output.rank, output.begin, s_.chunks[output.chunk].size()));
      }
      // Where the output is the input, what stays as it was is there from the start.
      const int from = output.value == kOwnInput ? 0 : stored_in(output);
      lifetimes_[output.rank][place_of(output)].push_back({from, phases_, output.value});
    }
    std::vector<ValueId> homeless;  // an input stays at their own place: after those that have one
    for (ValueId v = 0; v < s_.ops.size() && !refusal_; ++v) {
      if (!is_wanted(op(v).chunk)) continue;
      Fact& fact = facts_[v];
      if (op(v).kind == OpKind::encode && passes_ == Passes::two && op(v).source != kOwnInput &&
          op(op(v).source).kind != OpKind::reduce) {
        // Its decoded values, to be measured, perhaps end on this rank anyway.
        const std::vector<std::size_t>& outputs = facts_[op(v).source].outputs;
        fact.waits = outputs.empty();
        fact.place = outputs.empty() ? free_place(v, fact.phase, fact.phase)
                                     : place_of(s_.outputs[outputs.front()]);
      } else if (op(v).kind == OpKind::reduce && fact.waits) {
        if (!fact.outputs.empty()) {
          fact.place = place_of(s_.outputs[fact.outputs.front()]);
          continue;
        }
        const auto& at_home = lifetimes_[rank_of(v)][number_[op(v).chunk]];
        if (std::ranges::find(at_home, kOwnInput, &Lifetime::value) != at_home.end()) {
          homeless.push_back(v);
        } else {
          fact.place = free_place(v, fact.phase, last_use_of(fact));
        }
      }
    }
    for (const ValueId v : homeless) {
      facts_[v].place = free_place(v, facts_[v].phase, last_use_of(facts_[v]));
    }
  }

  int last_use_of(const Fact& fact) const {
    int phase = fact.phase;
    for (const ValueId use : fact.uses) phase = std::max(phase, facts_[use].phase);
    return phase;
  }

  bool is_made_of(ValueId encoded, ValueId value) const {
    return encoded == value || (encoded != kOwnInput && op(encoded).kind == OpKind::encode &&
                                op(encoded).source == value);
  }

  int stored_in(const Output& output) const {
    if (output.value == kOwnInput) return phases_ - 1;  // nobody waits for it
    const int phase = facts_[output.value].phase;
    const bool is_wire = op(output.value).kind == OpKind::send || decodes_own_wire(output.value);
    return is_wire ? phase + 1 : phase;
  }

  /// If there is no other, a place where an input stays as it was: the last phase copies it there, to an output that is another tensor.
  ChunkId free_place(ValueId value, int from, int until) {
    const ChunkId own = number_[op(value).chunk];
    auto& lifetimes = lifetimes_[rank_of(value)];
    bool before_copies = false;
    const auto is_free = [&](ChunkId at) {
      return lowered_.chunks[at].size() == lowered_.chunks[own].size() &&
             std::none_of(lifetimes[at].begin(), lifetimes[at].end(), [&](const Lifetime& other) {
               if (before_copies && other.value == kOwnInput) return until >= phases_ - 1;
               // A value that ends in a phase is read before something else is stored; and before
               // what it is made into.
               if (other.from == from) return !is_made_of(other.value, value);
               return (other.from < from && from < other.until) ||
                      (from < other.from && other.from < until);
             });
    };
    const auto find = [&] {
      ChunkId place = own;
      for (ChunkId at = 0; at < lowered_.chunks.size() && !is_free(place); ++at) place = at;
      return place;
    };
    ChunkId place = find();
    before_copies = !is_free(place);
    if (before_copies) place = find();
    if (!is_free(place)) {
      refuse(fmt::format("the sum of op {} has no place in the output to wait at", value));
    }
    lifetimes[place].push_back({from, until, value});
    return place;
  }

  // ---- steps

  Operand wire_operand(ValueId value, int phase) const {
    for (const Origin& origin : facts_[value].origins) {
      const int age = phase - origin.phase();
      if (age < 0 || age >= kPhasesOfAWire) continue;
      return Operand::in_slot(static_cast<unsigned>(age), origin.from,
                              wires_.at({value, origin.exchange}));
    }
    return {};  // find_origins() has made one
  }

  void add_operand(Draft& draft, ValueId value, int phase) const {
    if (value == kOwnInput) {
      draft.operands.push_back(Operand::of_input());
    } else if (op(value).kind == OpKind::reduce) {
      draft.operands.push_back(Operand::in_output(facts_[value].place));
      draft.expected.push_back(value);
    } else {
      draft.operands.push_back(wire_operand(value, phase));
    }
  }

  Draft draft_of(ChunkId chunk) const {
    Draft draft;
    draft.step.chunk = static_cast<std::uint8_t>(number_[chunk]);
    draft.step.place = draft.step.chunk;
    return draft;
  }

  Draft sum_of(ValueId value) const {
    Draft draft = draft_of(op(value).chunk);
    draft.step.from_zero = op(value).start == Start::zero;
    for (const ValueId addend : s_.operands(op(value))) {
      add_operand(draft, addend, facts_[value].phase);
    }
    if (facts_[value].waits) store_sum(draft, value, facts_[value].place);
    return draft;
  }
  static void store_sum(Draft& draft, ValueId value, ChunkId place) {
    draft.step.stores_sum = true;
    draft.step.place = static_cast<std::uint8_t>(place);
    draft.stored = value;
  }

  void send(Draft& draft, ValueId value, int exchange, Rank to) const {
    const unsigned shift = 4 * to;
    draft.step.to &= ~(kNoWire << shift);
    draft.step.to |= wires_.at({value, exchange}) << shift;
  }

  /// The step that encodes the value, with the sum that it encodes if that is not to wait.
  void write_encode(ValueId value, std::vector<Phase>& phases) {
    const Fact& fact = facts_[value];
    const ValueId source = op(value).source;
    Draft draft = draft_of(op(value).chunk);
    if (source != kOwnInput && op(source).kind == OpKind::reduce && facts_[source].fused == value) {
      draft = sum_of(source);
    } else if (fact.waits) {
      Draft decoded = draft_of(op(value).chunk);
      add_operand(decoded, source, fact.phase);
      store_sum(decoded, value, fact.place);
      phases[static_cast<std::size_t>(fact.phase)].receives.push_back(decoded);
      draft.operands.push_back(Operand::in_output(fact.place));
      draft.expected.push_back(value);
    } else if (fact.place != kNoChunk) {
      draft.operands.push_back(Operand::in_output(fact.place));
      draft.expected.push_back(source);
    } else {
      add_operand(draft, source, fact.phase);
    }
    draft.step.encodes = true;
    draft.step.encodings = static_cast<std::uint8_t>(encodings_[value] - 1);
    const auto phase = static_cast<std::size_t>(fact.phase);
    if (codec_of_phase_.size() <= phase) codec_of_phase_.resize(phase + 1);
    if (codec_of_phase_[phase].value_or(op(value).codec) != op(value).codec) mixes_codecs_ = true;
    codec_of_phase_[phase] = op(value).codec;
    for (const ValueId use : fact.uses) {
      if (op(use).kind == OpKind::send && is_direct(use)) {
        send(draft, use, fact.phase, op(use).peer);
      }
    }
    if (!fact.origins.empty() && fact.origins.front().exchange == fact.phase) {
      send(draft, value, fact.phase, op(value).rank);
    }
    for (const std::size_t output : fact.outputs) {
      if (decodes_own_wire(value)) break;
      const ChunkId place = place_of(s_.outputs[output]);
      if (draft.step.stores_decoded || (draft.step.stores_sum && draft.step.place != place)) {
        return refuse(fmt::format("op {} ends at several places", value));
      }
      draft.step.stores_decoded = true;
      draft.step.place = static_cast<std::uint8_t>(place);
      draft.stored = value;
    }
    phases[static_cast<std::size_t>(fact.phase)].sends.push_back(std::move(draft));
  }

  /// Steps that pass the bytes of a value on, or keep them for longer.
  void write_forwards(ValueId value, std::vector<Phase>& phases) {
    const Fact& fact = facts_[value];
    std::map<int, Draft> by_phase;
    const auto at = [&](int phase) -> Draft& {
      const auto [entry, is_new] = by_phase.try_emplace(phase, draft_of(op(value).chunk));
      if (is_new) {
        entry->second.operands.push_back(wire_operand(value, phase));
        entry->second.step.passes_on = true;
      }
      return entry->second;
    };
    for (const ValueId use : fact.uses) {
      if (op(use).kind == OpKind::send && !is_direct(use)) {
        send(at(facts_[use].phase), use, facts_[use].phase, op(use).peer);
      }
    }
    for (std::size_t i = 1; i < fact.origins.size(); ++i) {
      send(at(fact.origins[i].exchange), value, fact.origins[i].exchange, rank_of(value));
    }
    for (auto& [phase, draft] : by_phase) {
      phases[static_cast<std::size_t>(phase)].sends.push_back(std::move(draft));
    }
  }

  /// Steps that only store: sums that are not encoded at once, and what ends here.
  void write_outputs(Rank rank, std::vector<Phase>& phases) {
    for (const Output& output : s_.outputs) {
      if (output.rank != rank || !is_wanted(output.chunk)) continue;
      const bool is_made_here = output.value != kOwnInput &&
                                op(output.value).kind != OpKind::send &&
                                !decodes_own_wire(output.value);
      if (is_made_here) continue;  // stored by the step that makes it
      const int phase = stored_in(output);
      Draft draft = draft_of(output.chunk);
      add_operand(draft, output.value, phase);
      store_sum(draft, output.value, place_of(output));
      draft.step.copies_input = output.value == kOwnInput && draft.step.place == draft.step.chunk;
      phases[static_cast<std::size_t>(phase)].receives.push_back(std::move(draft));
    }
  }

  void write(Rank rank) {
    std::vector<Phase> phases(static_cast<std::size_t>(phases_));
    for (ValueId v = 0; v < s_.ops.size() && !refusal_; ++v) {
      if (!is_wanted(op(v).chunk) || rank_of(v) != rank) continue;
      const Fact& fact = facts_[v];
      if (op(v).kind == OpKind::reduce && fact.fused == kElsewhere && fact.waits) {
        phases[static_cast<std::size_t>(fact.phase)].receives.push_back(sum_of(v));
      }
      if (op(v).kind == OpKind::encode) write_encode(v, phases);
      if (op(v).kind != OpKind::reduce) write_forwards(v, phases);
    }
    write_outputs(rank, phases);
    if (refusal_) return;
    Program program;
    program.phases = static_cast<std::uint16_t>(phases_);
    std::vector<Draft> drafts;
    for (int phase = 0; phase < phases_; ++phase) {
      auto& [receives, sends] = phases[static_cast<std::size_t>(phase)];
      // Values encoded first come first, in the order of their statistics. Ranks begin with
      // different peers, so that no link has to take what all send at once.
      std::stable_sort(sends.begin(), sends.end(), [&](const Draft& a, const Draft& b) {
        return std::pair(a.step.passes_on, distance(rank, a.step)) <
               std::pair(b.step.passes_on, distance(rank, b.step));
      });
      if (drafts.size() + receives.size() + sends.size() > static_cast<std::size_t>(kMaxSteps)) {
        return refuse(
            fmt::format("rank {} has more than the {} steps that kernels take", rank, kMaxSteps),
            true);
      }
      program.first_step[phase] = static_cast<std::uint8_t>(drafts.size());
      drafts.insert(drafts.end(), receives.begin(), receives.end());
      program.first_send[phase] = static_cast<std::uint8_t>(drafts.size());
      drafts.insert(drafts.end(), sends.begin(), sends.end());
    }
    program.first_step[phases_] = static_cast<std::uint8_t>(drafts.size());
    verify(rank, drafts);
    std::size_t operands = 0;
    for (std::size_t i = 0; i < drafts.size() && !refusal_; ++i) {
      Draft& draft = drafts[i];
      if (operands + draft.operands.size() > static_cast<std::size_t>(kMaxOperands)) {
        return refuse(fmt::format("rank {} has more than the {} operands that kernels take", rank,
                                  kMaxOperands),
                      true);
      }
      draft.step.first_operand = static_cast<std::uint16_t>(operands);
      draft.step.operands = static_cast<std::uint8_t>(draft.operands.size());
      std::copy(draft.operands.begin(), draft.operands.end(), program.operand + operands);
      operands += draft.operands.size();
      program.step[i] = draft.step;
    }
    lowered_.programs.push_back(program);
  }

  /// To the rank that a step sends to, if it is one.
  int distance(Rank rank, const Step& step) const {
    int result = -1;
    for (Rank to = 0; to < s_.world_size; ++to) {
      if ((step.to >> (4 * to) & kNoWire) == kNoWire) continue;
      if (result >= 0) return 0;
      result = static_cast<int>((to + s_.world_size - rank) % s_.world_size);
    }
    return std::max(result, 0);
  }

  /// Walks through a rank's steps: are values that wait in the output those that are read there, does
  /// everything end where it should, and what would be lost if the input were there, too?
  void verify(Rank rank, const std::vector<Draft>& drafts) {
    std::vector<ValueId> held(lowered_.chunks.size(), kElsewhere);
    std::vector<bool> is_written(lowered_.chunks.size(), false);
    for (const Draft& draft : drafts) {
      auto expected = draft.expected.begin();
      for (const Operand& operand : draft.operands) {
        if (operand.source() == Operand::input && is_written[draft.step.chunk]) {
          lowered_.in_place = false;
        }
        if (operand.source() == Operand::output && held[operand.index()] != *expected++) {
          return refuse(fmt::format("a sum of rank {} is overwritten before it is used", rank));
        }
      }
      if (!draft.step.stores_sum && !draft.step.stores_decoded) continue;
      held[draft.step.place] = draft.stored;
      if (!draft.step.copies_input) is_written[draft.step.place] = true;
    }
    for (const Output& output : s_.outputs) {
      if (output.rank != rank || !is_wanted(output.chunk)) continue;
      if (held[place_of(output)] != output.value) {
        return refuse(fmt::format("an output of rank {} is overwritten", rank));
      }
    }
  }

  void find_kernels() {
    for (int phase = 0; phase < phases_; ++phase) {
      const bool encodes =
          std::any_of(lowered_.programs.begin(), lowered_.programs.end(), [&](const Program& p) {
            return std::any_of(p.step + p.first_send[phase], p.step + p.first_step[phase + 1],
                               [](const Step& step) { return step.encodes; });
          });
      if (!encodes) continue;
      lowered_.encoding_phases.push_back(phase);
      const auto codec = codec_of_phase_[static_cast<std::size_t>(phase)];
      lowered_.codecs.push_back(codec.value_or(CodecRole::outer));
    }
    if (passes_ == Passes::two && mixes_codecs_) lowered_.kernels_are_whole = false;
    // The number of the kernels that begin with those phases' sends.
    const auto kernel_of_sends = [&](int phase) {
      const auto& begins = lowered_.encoding_phases;
      return std::upper_bound(begins.begin(), begins.end(), phase) - begins.begin();
    };
    // Where nothing is decoded, the outer codec says how sums overflow.
    for (ValueId v = 0; v < s_.ops.size(); ++v) {
      if (!is_wanted(op(v).chunk) || op(v).kind != OpKind::reduce || op(v).addend_count < 2)
        continue;
      const auto kernel = kernel_of_sends(facts_[v].phase - 1);
      const bool is_inner =
          kernel > 0 && lowered_.codecs[static_cast<std::size_t>(kernel - 1)] == CodecRole::inner;
      const auto operands = s_.operands(op(v));
      const bool decodes = std::any_of(operands.begin(), operands.end(), [&](ValueId operand) {
        return operand != kOwnInput && op(operand).kind != OpKind::reduce;
      });
      if (is_inner && !decodes) lowered_.kernels_are_whole = false;
    }
    for (const Program& p : lowered_.programs) {
      for (int phase = 1; phase < phases_; ++phase) {
        for (int step = p.first_step[phase]; step < p.first_step[phase + 1]; ++step) {
          const auto kernel = kernel_of_sends(step < p.first_send[phase] ? phase - 1 : phase);
          for (int i = 0; i < p.step[step].operands; ++i) {
            const Operand& operand = p.operand[p.step[step].first_operand + i];
            if (operand.source() == Operand::wire &&
                kernel_of_sends(phase - 1 - static_cast<int>(operand.age())) != kernel) {
              lowered_.kernels_are_whole = false;
            }
          }
        }
      }
    }
  }

  const Schedule& s_;
  const Passes passes_;
  const std::size_t most_wires_;
  std::vector<ChunkId> number_;  // each chunk's among those that are lowered
  std::vector<Fact> facts_;
  std::vector<std::uint32_t> encodings_;
  int phases_ = 1;
  std::map<std::pair<ValueId, int>, std::uint32_t> wires_;     // by value and exchange
  std::vector<std::vector<std::vector<Lifetime>>> lifetimes_;  // by rank and place
  std::vector<std::optional<CodecRole>> codec_of_phase_;       // for the encoded values there
  bool mixes_codecs_ = false;                                  // in a phase
  std::optional<Refusal> refusal_;
  Lowered lowered_;
};

using Chunks = std::vector<ChunkId>;

/// Chunks whose values end at each other's places can only be lowered together. Each set in order
/// of the step that begins it.
struct ChunkSet {
  Chunks chunks;
  std::uint32_t first_step = UINT32_MAX;
};

std::vector<ChunkSet> chunk_sets(const Schedule& s) {
  std::vector<ChunkId> leader(s.chunks.size());
  for (ChunkId chunk = 0; chunk < leader.size(); ++chunk) leader[chunk] = chunk;
  const auto find = [&](ChunkId chunk) {
    while (leader[chunk] != chunk) chunk = leader[chunk];
    return chunk;
  };
  std::map<std::uint64_t, ChunkId> begins;
  for (ChunkId chunk = 0; chunk < leader.size(); ++chunk) begins[s.chunks[chunk].begin] = chunk;
  for (const Output& output : s.outputs) {
    const auto at = begins.find(output.begin);
    if (at == begins.end()) continue;  // lowering says what is wrong
    const ChunkId a = find(output.chunk);
    const ChunkId b = find(at->second);
    leader[std::max(a, b)] = std::min(a, b);
  }
  std::vector<ChunkSet> sets(s.chunks.size());
  for (ChunkId chunk = 0; chunk < leader.size(); ++chunk) {
    sets[find(chunk)].chunks.push_back(chunk);
  }
  for (const Op& op : s.ops) {
    ChunkSet& set = sets[find(op.chunk)];
    set.first_step = std::min(set.first_step, op.step);
  }
  std::erase_if(sets, [](const ChunkSet& set) { return set.chunks.empty(); });
  return sets;
}

/// Lowers the sets together, or where that does not fit, those that begin in the same step, or
/// halves of them.
std::optional<Refusal> lower_sets(const Schedule& schedule, Passes passes, std::size_t most_wires,
                                  std::span<const ChunkSet> sets, std::vector<Lowered>& result) {
  Chunks chunks;
  for (const ChunkSet& set : sets) {
    chunks.insert(chunks.end(), set.chunks.begin(), set.chunks.end());
  }
  std::sort(chunks.begin(), chunks.end());
  Lowering lowering(schedule, chunks, passes, most_wires);
  std::optional<Refusal> refusal = lowering.run();
  const bool fits =
      refusal ? !refusal->size : passes == Passes::one || lowering.lowered().kernels_are_whole;
  if (fits || sets.size() == 1) {
    if (!refusal) result.push_back(std::move(lowering.lowered()));
    return refusal;
  }
  auto middle = std::find_if(sets.begin(), sets.end(), [&](const ChunkSet& set) {
    return set.first_step != sets.front().first_step;
  });
  if (middle == sets.end()) middle = sets.begin() + static_cast<std::ptrdiff_t>(sets.size() / 2);
  for (const auto part : {std::span(sets.begin(), middle), std::span(middle, sets.end())}) {
    if (auto failed = lower_sets(schedule, passes, most_wires, part, result)) return failed;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<Lowered>> lower(const Schedule& schedule, Passes passes,
                                   std::size_t most_wires) {
  if (schedule.world_size > kMaxProgramRanks) {
    return Status::error(
        fmt::format("kernels take up to {} ranks, not {}", kMaxProgramRanks, schedule.world_size));
  }
  if (schedule.row != 0) {
    return Status::error(fmt::format(
        "schedule {} has tails: kernels take an all-reduce without, and a call's own tail",
        schedule.algorithm));
  }
  std::vector<ChunkSet> sets = chunk_sets(schedule);
  std::stable_sort(sets.begin(), sets.end(), [](const ChunkSet& a, const ChunkSet& b) {
    return a.first_step < b.first_step;
  });
  std::vector<Lowered> result;
  if (const auto refusal = lower_sets(schedule, passes, most_wires, sets, result)) {
    return Status::error(
        fmt::format("schedule {} cannot run on GPUs: {}", schedule.algorithm, refusal->why));
  }
  return result;
}

}  // namespace arlab::kernels
