// A plan: what a schedule asks of ranks and of the links between them, in elements and bytes, and
// what waits for what. The simulator runs plans.
//
//   stage     what one rank does in one step out of the same arrivals: it decodes and sums,
//             encodes, and sends; a kernel's phase between two waits. hierarchical_pipelined has
//             two stages in a step, because links inside groups and between groups wait for
//             different things.
//   message   all that one rank sends to another in one step
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule.h"
#include "sim/device/library_choice.h"

namespace arlab {

using StageId = std::uint32_t;
using MessageId = std::uint32_t;

/// Elements of a stage that a codec works on.
struct CodecWork {
  std::uint64_t encoded = 0;
  std::uint64_t decoded = 0;
  std::uint64_t gathered = 0;  ///< part of `decoded`; see Stage, also of the next
  std::uint64_t received = 0;
};

struct Stage {
  std::uint32_t step = 0;
  Rank rank = 0;
  Rank channel = 0;                 ///< 0 to Plan::channels - 1
  std::uint32_t first_message = 0;  ///< index in Plan::messages
  std::uint32_t messages = 0;
  std::uint32_t first_dependent = 0;  ///< index in Plan::dependents: who on this rank waits for it
  std::uint32_t dependents = 0;
  std::uint32_t awaited = 0;  ///< messages and stages that it waits for
  /// Flags that it polls beyond those of the peers to which the rank itself sent in that step.
  Rank extra_flags = 0;
  std::uint64_t encoded = 0;  ///< elements, as the others
  std::uint64_t decoded = 0;
  std::uint64_t added = 0;
  std::uint64_t written = 0;  ///< to the output
  /// The part of `decoded`, and of `written`, that the stage's own messages are exchanged for, and
  /// that nothing else waits for.
  std::uint64_t gathered = 0;
  /// The part of `decoded` without `gathered` that the stage has not encoded itself.
  std::uint64_t received = 0;
  /// Elements read, without `gathered`: the rank's own input, and results of other stages.
  std::uint64_t loaded = 0;
  std::uint64_t chunk = 0;  ///< elements of the largest chunk that it works on

  /// The part of all these that the inner codec works on, where it is another one.
  CodecWork inner = {};

  /// It sends the same to all others, the same stages or outputs of whom wait for it.
  bool sends_alike = false;

  bool uses_codec() const { return encoded > 0 || decoded > 0; }
  /// Returns the work of the outer codec.
  CodecWork outer() const {
    return {encoded - inner.encoded, decoded - inner.decoded, gathered - inner.gathered,
            received - inner.received};
  }
};

/// Whom a message concerns: one rank, or, with a switch that can do it (Topology::in_switch), all.
enum class Reach : std::uint8_t {
  one,
  multicast,  ///< from `from` to all others: on the sender's port once
  reduction,  ///< the sum of what all have, `from` too, to `from` itself: into its port once
};

struct PlannedMessage {
  Rank from = 0;
  Rank to = 0;  ///< Reach::one
  Reach reach = Reach::one;
  StageId stage = 0;                 ///< the sending one
  std::uint32_t first_consumer = 0;  ///< index in Plan::consumers: stages that wait for it
  std::uint32_t consumers = 0;
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;  ///< payload elements that these bytes carry
  /// Elements that the receiver decodes into its output, tile by tile as they arrive, when it has
  /// no stage in this step that would do so.
  std::uint64_t output_elements = 0;
  // The part of these that the inner codec has encoded, where it is another one.
  std::uint64_t inner_bytes = 0;
  std::uint64_t inner_output_elements = 0;
};

/// The path of the last chunk of a collective whose chunks pass through many ranks, with all links at work at once.
struct LongestWay {
  std::uint32_t hops_inside = 0;   ///< messages inside servers
  std::uint32_t hops_between = 0;  ///< messages over the network
  std::uint32_t links_inside = 0;  ///< those of hops inside, but for the last hop of all
  std::uint32_t links_between = 0;
  double latency_us = 0;  ///< sum over these links, of the machine that it is simulated on
  Rank ranks_per_server = 1;
};

/// Rows that a tail makes of a sum.
struct TailWork {
  std::uint64_t elements = 0;
  double bytes = 0;  ///< in memory, beyond those of the sum: residuals; less by a narrower output
  double ops = 0;    ///< on elements, the output codec's too
};

struct Plan {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
  Rank world_size = 1;
  std::uint64_t elements = 0;       ///< per rank
  std::uint64_t largest_chunk = 0;  ///< elements that are encoded at once
  DType dtype = DType::fp16;
  std::string codec;
  CodecCost cost;
  double wire_bytes_per_element = 0;  ///< average over the tensor
  std::string inner_codec;            ///< where it is another one; else empty
  CodecCost inner_cost;
  double inner_wire_bytes_per_element = 0;
  /// How many ranks each rank of the plan stands for. In a folded plan there is only rank 0; its
  /// messages keep their receivers, but their consumers are stages of rank 0, which look like the receivers' own.
  Rank ranks_per_rank = 1;
  /// The plan lists rank 0 as a folded one does, but all ranks are simulated: rank r has the same
  /// stages and messages, with r added to every rank, past the last one to the first. Useful where all ranks do the same, on a
  /// fabric that does not look the same from each.
  bool repeats_rank_0 = false;
  /// Chunks that differ by a tile are planned as if all were like the largest: so many times the
  /// elements, which takes at most so many times as long. 1: as the schedule has them.
  double equal_chunks_factor = 1;
  /// The library's choice, in a plan that stands for the vendor's library. Made by library_plan() or plan_across().
  std::optional<LibraryChoice> library = std::nullopt;
  std::optional<LongestWay> longest_way = std::nullopt;  ///< made by plan_across()
  /// Plans for the larger sizes at which the library switches to another choice: this plan takes no longer than any of them.
  std::vector<Plan> of_more = {};
  /// Copies of the schedule that run at once, see channels.h. Stages of different ones do not wait
  /// for each other, not even on the same rank.
  Rank channels = 1;

  std::vector<Stage> stages;  ///< step by step
  std::vector<PlannedMessage> messages;
  std::vector<StageId> consumers;
  std::vector<StageId> dependents;

  TailWork tail = {};  ///< the work of the rank with most rows: its time is added to the plan's

  /// For codecs with scales that all ranks share: the all-reduce that ends before this plan begins; else null.
  std::shared_ptr<const Plan> agreement = nullptr;

  bool folded() const { return ranks_per_rank > 1; }
  /// Whether only rank 0 is listed.
  bool lists_one_rank() const { return folded() || repeats_rank_0; }
};

/// A plan that lists all ranks, made of one that lists rank 0 for all.
Plan with_all_ranks(const Plan& repeated);

/// Returns the plan with each message that a stage sends alike to all others merged into one of Reach::multicast.
Plan with_multicast(Plan plan);

/// The plan of a kernel that runs phase by phase, an exchange between each two: a phase is the work of all ranks until they
/// have sent, and one stage of a rank. It begins when the rank is done with the phase before, and has all that came in it; what
/// came for the output is decoded then.
Plan in_lock_step(Plan plan);

/// Throws InvalidInput when the schedule refers to what does not exist or cuts a block of the
/// codec, or a codec does not take the dtype. Whether the schedule is correct is the question of
/// check().
Plan plan_of(const Schedule& schedule, const Codecs& codecs, DType dtype);

/// The plan of rank 0 for all ranks, when they all do the same: `shifts` are extents under which
/// the fabric looks the same (Fabric::shifts()), `any` says that it does under any. Nothing when
/// the algorithm is not symmetric in that way, or its chunks differ in size.
std::optional<Plan> folded_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                                   const Codecs& codecs, DType dtype, std::span<const Rank> shifts,
                                   bool any);

/// The plan of an algorithm that does the same on every rank, from the part of it that concerns
/// rank 0: as plan_of() its schedule, without writing a million messages down. Nothing when the
/// algorithm is not symmetric when all ranks move up by one, its chunks differ in size, or it is
/// too large to simulate all ranks.
std::optional<Plan> repeated_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                                     const Codecs& codecs, DType dtype);

}  // namespace arlab
