// Costs of a run's stages and messages, as the kernel models of their devices say.
//
// Asks models and routes; changes nothing.
#pragma once

#include <array>
#include <vector>

#include "sim/run/copies.h"
#include "sim/run/jobs.h"
#include "sim/run/message_routes.h"

namespace arlab {

class Costs {
 public:
  /// `efficiency`: the share of their bandwidth that links of the fabric have.
  Costs(const Copies& copies, const Jobs& jobs, MessageRoutes& routes, double efficiency);

  const KernelModel& kernel_of(StageId id) const {
    return jobs_.kernel_of(copies_.stage(id), copies_.rank_of(id));
  }
  const StageCost& of(StageId id) const { return costs_[copies_.listed(id)].stage; }
  /// As KernelModel has it.
  bool is_memory_bound(StageId id) const { return costs_[copies_.listed(id)].is_memory_bound; }
  TimeParts stage_parts(StageId id) const { return kernel_of(id).stage_time(of(id)); }
  /// How long a stage takes, the sum of stage_parts(); and how long its rank is busy with it.
  Picoseconds stage_span(StageId id) const { return costs_[copies_.listed(id)].span; }
  Picoseconds busy_span(StageId id) const { return costs_[copies_.listed(id)].busy; }

  /// Where a message's time goes from the begin of its stage until it has left, given what the
  /// network took; valid until the next call.
  const TimeParts& message_parts(const PlannedMessage& message, Picoseconds network) {
    return message_time(message, network).parts;
  }
  /// The sum of these.
  Picoseconds message_span(const PlannedMessage& message, Picoseconds network) {
    return message_time(message, network).span;
  }
  /// Returns the bytes that the network moves for it on its links, `efficiency` considered.
  std::uint64_t link_bytes(const PlannedMessage& message, double reduction_efficiency) const;
  /// KernelModel::gather_us() where it ends. Both sides of an exchange gather alike, where they have
  /// the same device.
  double gather_us(const PlannedMessage& message) const;

 private:
  struct Cost {
    StageCost stage;
    Picoseconds span;
    Picoseconds busy;
    double bytes_factor;  ///< link_bytes() per byte of the kernel
    double gather_us;
    bool is_memory_bound;
  };
  /// Parts of a message that its time depends on.
  struct PartsOfMessage {
    StageId stage = 0;  ///< the stage of the plan
    std::uint64_t bytes = 0;
    std::uint64_t inner_bytes = 0;
    Picoseconds network = -1;
    double link_gb_per_s = 0;
    bool operator==(const PartsOfMessage&) const = default;
  };
  struct Known {
    PartsOfMessage of = {};
    TimeParts parts = {};
    Picoseconds span = 0;
  };
  const Known& message_time(const PlannedMessage& message, Picoseconds network);

  const Copies& copies_;
  const Jobs& jobs_;
  MessageRoutes& routes_;
  double efficiency_;
  std::vector<Cost> costs_;           ///< by stage of the plan
  std::array<Known, 64> known_ = {};  ///< by stage of the plan, modulo: the last message
};

}  // namespace arlab
