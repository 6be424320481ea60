// The symmetry view of a plan: which stages and messages are simulated, whatever few it lists.
//
// A plan that lists rank 0 alone may stand for copies of it on every rank (Plan::repeats_rank_0).
// Numbers of what is simulated are those of the plan, or run over the copies: stages of all ranks
// stand together, as in a plan that lists them; of messages those of one rank, which are sent one
// after the other. Knows the plan, and nothing of times.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/wide_count.h"
#include "sim/plan.h"

namespace arlab {

/// Divides by a constant with a multiplication: every event looks up its stage by this division.
class Divisor {
 public:
  explicit Divisor(std::uint32_t by) : by_(by), inverse_(UINT64_MAX / by) {}
  std::uint32_t quotient(std::uint32_t number) const {
    return static_cast<std::uint32_t>((number + WideCount{1}) * inverse_ >> 64);
  }
  std::uint32_t remainder(std::uint32_t number) const { return number - quotient(number) * by_; }

 private:
  std::uint32_t by_;
  std::uint64_t inverse_;
};

class Copies {
 public:
  /// The plan must outlive it.
  explicit Copies(const Plan& plan)
      : plan_(plan),
        ranks_(plan.folded() ? 1 : plan.world_size),
        copies_(plan.repeats_rank_0 ? plan.world_size : 1),
        messages_per_copy_(static_cast<std::uint32_t>(plan.messages.size())),
        by_copies_(copies_),
        by_messages_(std::max(1U, messages_per_copy_)) {}

  const Plan& plan() const { return plan_; }
  Rank ranks() const { return ranks_; }
  StageId stages() const { return static_cast<StageId>(plan_.stages.size() * copies_); }
  std::uint64_t messages() const { return std::uint64_t{messages_per_copy_} * copies_; }
  /// How many ranks each one of the plan stands for, simulated or not.
  WideCount times() const { return WideCount{plan_.ranks_per_rank} * copies_; }
  Rank copies() const { return copies_; }

  /// The stage of the plan that this is or is a copy of.
  StageId listed(StageId id) const { return by_copies_.quotient(id); }
  const Stage& stage(StageId id) const { return plan_.stages[listed(id)]; }
  Rank rank_of(StageId id) const { return stage(id).rank + by_copies_.remainder(id); }
  /// The copy of a stage of the plan on this rank.
  StageId stage_on(StageId listed, Rank rank) const;

  MessageId first_message_of(StageId id) const {
    return stage(id).first_message + by_copies_.remainder(id) * messages_per_copy_;
  }
  PlannedMessage message(MessageId id) const {
    const Rank rank = plan_.repeats_rank_0 ? by_messages_.quotient(id) : 0;
    return message_on(id - rank * messages_per_copy_, rank);
  }
  /// A message of the plan as this rank sends it.
  PlannedMessage message_on(std::uint32_t listed, Rank rank) const {
    PlannedMessage message = plan_.messages[listed];
    if (plan_.repeats_rank_0) move_up(message, rank);
    return message;
  }

  /// Where the message is delivered, among the ranks that are simulated.
  Rank receiver_of(const PlannedMessage& message) const {
    if (plan_.folded()) return 0;
    return message.reach == Reach::reduction ? message.from : message.to;
  }
  /// Calls visit(rank) for those that the message reaches; the one that stands for all is reached
  /// by the messages of all.
  template <class Visit>
  void for_each_receiver(const PlannedMessage& message, Visit visit) const {
    if (message.reach != Reach::multicast) return visit(receiver_of(message));
    for (Rank up = 1; up < plan_.world_size; ++up) {
      visit(plan_.folded() ? 0 : (message.from + up) % plan_.world_size);
    }
  }

 private:
  void move_up(PlannedMessage& message, Rank by) const;

  const Plan& plan_;
  Rank ranks_;
  Rank copies_;
  std::uint32_t messages_per_copy_;
  Divisor by_copies_;
  Divisor by_messages_;
};

}  // namespace arlab
