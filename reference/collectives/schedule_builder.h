// How an algorithm writes a Schedule.
#pragma once

#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "reference/collectives/algorithm.h"
#include "reference/collectives/schedule.h"

namespace arlab {

/// A value while a schedule is written: what it is and where it is.
struct Value {
  ValueId id = kOwnInput;
  Rank rank = 0;
  ChunkId chunk = 0;
  bool encoded = false;
  CodecRole codec = CodecRole::outer;  ///< encoded: by which
};

/// Appends ops to a schedule. A mistake in an algorithm (a sum of values on two ranks, a raw value
/// sent) throws std::logic_error at once.
class ScheduleBuilder {
 public:
  /// Throws InvalidInput when the request is out of range, or its elements do not make equal slots
  /// where the collective needs them.
  ScheduleBuilder(std::string algorithm, const ScheduleRequest& request,
                  Collective collective = Collective::all_reduce);

  Rank world_size() const { return schedule_.world_size; }
  std::uint64_t slot_elements() const { return schedule_.slot_elements(); }

  /// Cuts a range (default: the whole tensor) into `parts` consecutive ranges of nearly equal size,
  /// at multiples of the alignment. Ranges at the end are empty when there is too little to share.
  std::vector<Chunk> split(std::uint64_t parts) const;
  std::vector<Chunk> split(Chunk range, std::uint64_t parts) const;

  /// Makes a non-empty range a chunk of the schedule.
  ChunkId add_chunk(Chunk range);

  /// Which of the ranks first, first + stride, ..., `count` of them, exchange with `rank` what is
  /// to be written: all, by their index; but where only another rank is wanted, that one or none.
  std::ranges::iota_view<Rank, Rank> partners_of(Rank rank, Rank first, Rank count,
                                                 Rank stride = 1) const;
  std::ranges::iota_view<Rank, Rank> partners_of(Rank rank) const {
    return partners_of(rank, 0, world_size());
  }
  /// Which hops of a way round all ranks that begins at `start` are to be written: all world size
  /// - 1, but where only one rank is wanted, those to it and from it.
  std::ranges::iota_view<Rank, Rank> hops_from(Rank start) const;

  /// The step of all ops that follow.
  void at_step(std::uint32_t step) { step_ = step; }

  /// The payload that a rank starts with.
  Value input(Rank rank, ChunkId chunk) const { return {kOwnInput, rank, chunk, false}; }

  /// A value of a rank that is not to be written.
  static Value elsewhere(Rank rank, ChunkId chunk, bool encoded) {
    return {kElsewhere, rank, chunk, encoded};
  }

  Value encode(Value source, CodecRole codec = CodecRole::outer);
  /// The same bytes at `to`; a value that is there already does not move.
  Value send(Value encoded, Rank to);
  /// Sums values that are on one rank, in the order given.
  Value reduce(std::span<const Value> addends, Start start);
  /// The value ends in its rank's output, at the place of its chunk or from element `begin` on.
  void output(Value value);
  void output(Value value, std::uint64_t begin);

  /// The schedule, its ops in step order.
  Schedule finish();

 private:
  Value append(Op op, bool encoded);
  bool is_wanted(Rank rank) const { return !only_rank_ || rank == *only_rank_; }

  Schedule schedule_;
  std::optional<Rank> only_rank_;
  ScheduleSize* only_size_ = nullptr;
  ScheduleSize size_;
  std::uint32_t step_ = 0;
};

/// Whether split(parts) of the whole tensor makes ranges of equal size.
bool splits_evenly(const ScheduleRequest& request, std::uint64_t parts);

}  // namespace arlab
