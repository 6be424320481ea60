#include "reference/collectives/tailed.h"

#include <map>

#include "reference/collectives/check.h"

namespace arlab {
namespace {

/// Writes a schedule with a tail out of one without.
class Tailing {
 public:
  Tailing(const Schedule& from, const Tail& tail, const TailPlacement& placement)
      : from_(from),
        tail_(tail),
        placement_(placement),
        last_(tail.output.empty() ? OutputKind::normalized : OutputKind::quantized),
        to_(from),
        renamed_(from.ops.size()) {
    to_.row = tail.hidden;
    to_.outputs.clear();
  }

  Schedule after() {
    std::uint32_t step = from_.ops.empty() ? 0 : from_.ops.back().step;
    for (const Output& sum : from_.outputs) {
      if (is(sum.value, OpKind::send)) step = std::max(step, from_.ops[sum.value].step + 1);
    }
    for (const Output& sum : from_.outputs) {
      const Values rows =
          make({.step = step, .rank = sum.rank, .chunk = sum.chunk, .source = sum.value});
      end(sum.rank, tail_.output.empty() ? rows.last : encode(rows.last, CodecRole::output), last_);
    }
    return std::move(to_);
  }

  Schedule at_owners() {
    const std::vector<bool> complete = complete_sums(from_);
    to_.ops.clear();
    to_.addends.clear();
    for (ValueId id = 0; id < from_.ops.size(); ++id) {
      const Op& op = from_.ops[id];
      if (op.kind == OpKind::encode && is(op.source, OpKind::reduce) && complete[op.source]) {
        wires_[id] = owners_[op.source] = encode_rows(op);
      } else if (op.kind == OpKind::send && wires_.contains(op.source)) {
        const Values source = wires_.at(op.source);
        wires_[id] = {send(op, source.last), send(op, source.residual)};
      } else {
        copy(id);
      }
    }
    for (const Output& sum : from_.outputs) end_with_wires(sum);
    return std::move(to_);
  }

 private:
  /// Values that stand for a sum: the tail's output, and the residual; raw on an owner, or encoded.
  struct Values {
    ValueId last = kElsewhere;
    ValueId residual = kElsewhere;
  };

  bool is(ValueId id, OpKind kind) const { return id != kOwnInput && from_.ops[id].kind == kind; }

  ValueId append(const Op& op) {
    to_.ops.push_back(op);
    return static_cast<ValueId>(to_.ops.size() - 1);
  }
  ValueId encode(ValueId source, CodecRole codec) {
    const Op& of = to_.ops[source];
    return append(
        {.codec = codec, .step = of.step, .rank = of.rank, .chunk = of.chunk, .source = source});
  }
  ValueId send(Op op, ValueId wire) {
    if (wire == kElsewhere) return wire;
    op.source = wire;
    op.codec = to_.ops[wire].codec;
    return append(op);
  }
  void end(Rank rank, ValueId value, OutputKind kind) {
    const ChunkId chunk = to_.ops[value].chunk;
    to_.outputs.push_back({rank, chunk, value, to_.chunks[chunk].begin, kind});
  }

  /// The rows of `op`, whose source is the sum; they end on its rank where nobody else gets them.
  Values make(Op op) {
    Values made;
    op.kind = OpKind::tail;
    op.makes = OutputKind::residual;
    if (tail_.adds_residual) made.residual = append(op);
    if (tail_.adds_residual && !placement_.sends_residual) end(op.rank, made.residual, op.makes);
    op.makes = OutputKind::normalized;
    made.last = append(op);
    if (placement_.keeps_normalized && last_ != op.makes) end(op.rank, made.last, op.makes);
    return made;
  }

  /// For an op that encodes a complete sum; others may encode it, too, for other ranks.
  Values encode_rows(const Op& op) {
    const auto [rows, is_new] = rows_.try_emplace(op.source);
    if (is_new) {
      rows->second =
          make({.step = op.step, .rank = op.rank, .chunk = op.chunk, .source = renamed(op.source)});
    }
    const auto [last, residual] = rows->second;
    return {encode(last, tail_.output.empty() ? op.codec : CodecRole::output),
            placement_.sends_residual ? encode(residual, CodecRole::inner) : kElsewhere};
  }

  ValueId renamed(ValueId id) const {
    if (wires_.contains(id)) {
      fail("{}: a rank encodes again what owners have sent: allowed is the tail after it",
           from_.algorithm);
    }
    return id == kOwnInput ? id : renamed_[id];
  }

  void copy(ValueId id) {
    Op op = from_.ops[id];
    const auto addends = from_.operands(op);
    if (op.kind == OpKind::reduce) {
      op.first_addend = static_cast<std::uint32_t>(to_.addends.size());
      for (const ValueId addend : addends) to_.addends.push_back(renamed(addend));
    } else {
      op.source = renamed(op.source);
    }
    renamed_[id] = append(op);
  }

  void end_with_wires(const Output& sum) {
    const auto wires = wires_.find(sum.value);
    const auto owner = owners_.find(sum.value);
    if (wires == wires_.end() && owner == owners_.end()) {
      fail("{}: no rank encodes the sum of all ranks for others: allowed is the tail after it",
           from_.algorithm);
    }
    const Values& ends = wires == wires_.end() ? owner->second : wires->second;
    end(sum.rank, ends.last, last_);
    if (placement_.sends_residual) end(sum.rank, ends.residual, OutputKind::residual);
  }

  const Schedule& from_;
  const Tail& tail_;
  const TailPlacement& placement_;
  const OutputKind last_;
  Schedule to_;
  std::vector<ValueId> renamed_;      // these four by values of the schedule without the tail
  std::map<ValueId, Values> rows_;    // by sum
  std::map<ValueId, Values> owners_;  // by sum: those that stand for it on its rank
  std::map<ValueId, Values> wires_;   // by encoded sum, wherever it has been sent
};

}  // namespace

Schedule with_tail(const Schedule& schedule, const Tail& tail, const TailPlacement& placement) {
  if (schedule.collective != Collective::all_reduce) {
    fail("a tail stands behind an all-reduce, not behind {}", words_for(schedule.collective));
  }
  if (schedule.row != 0) fail("{}: it has a tail already", schedule.algorithm);
  if (tail.hidden == 0 || schedule.elements % tail.hidden != 0) {
    fail("tail: {} elements of a rank are not whole rows of {}", schedule.elements, tail.hidden);
  }
  if (placement.sends_residual && !(placement.at_owner && tail.adds_residual)) {
    fail("tail {}: a residual is sent where owners add it: allowed with residual=add, at the owner",
         quote(name_of(tail)));
  }
  require_correct(schedule);
  Tailing tailing(schedule, tail, placement);
  Schedule made = placement.at_owner ? tailing.at_owners() : tailing.after();
  require_correct(made);
  return made;
}

CutAtOwners cut_at_owners(const Schedule& tailed) {
  Schedule empty = tailed;
  empty.row = 0;
  empty.ops.clear();
  empty.addends.clear();
  empty.outputs.clear();
  CutAtOwners cut{empty, empty};
  const std::vector<OutputKind> contents = contents_of(tailed);
  std::vector<ValueId> renamed(tailed.ops.size(), kOwnInput);  // rows that are made stay inputs
  const auto name = [&](ValueId id) { return id == kOwnInput ? id : renamed[id]; };
  for (ValueId id = 0; id < tailed.ops.size(); ++id) {
    Op op = tailed.ops[id];
    if (op.kind == OpKind::tail) {
      if (op.makes != OutputKind::normalized) continue;
      cut.sums.outputs.push_back(
          {op.rank, op.chunk, name(op.source), tailed.chunks[op.chunk].begin});
      continue;
    }
    Schedule& part = contents[id] == OutputKind::sum ? cut.sums : cut.rows;
    const auto addends = tailed.operands(op);
    if (op.kind == OpKind::reduce) {
      op.first_addend = static_cast<std::uint32_t>(part.addends.size());
      for (const ValueId addend : addends) part.addends.push_back(name(addend));
    } else {
      op.source = name(op.source);
    }
    renamed[id] = static_cast<ValueId>(part.ops.size());
    part.ops.push_back(op);
  }
  for (Output output : tailed.outputs) {
    if (output.kind != final_kind(tailed)) continue;
    output.value = name(output.value);
    output.kind = OutputKind::sum;
    cut.rows.outputs.push_back(output);
  }
  return cut;
}

}  // namespace arlab
