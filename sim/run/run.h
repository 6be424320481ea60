// The events of a run: when stages begin, what they send, and when that has come.
//
// A stage begins when all that it waits for is there (arrivals.h) and its rank is free. Then its
// messages go to the network engine, which says when they have been delivered; costs.h says when they
// are complete; and what that led to is written down (causes.h). This class alone moves time on, and starts messages and
// timers, but for Arrivals, which sets those of the last arrival.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/network/flow_engine.h"
#include "sim/network/paged_array.h"
#include "sim/run/arrivals.h"
#include "sim/run/causes.h"
#include "sim/run/changes.h"
#include "sim/run/copies.h"
#include "sim/run/costs.h"
#include "sim/run/jitter.h"
#include "sim/run/jobs.h"
#include "sim/run/link_use.h"
#include "sim/run/message_routes.h"
#include "sim/run/quantum.h"
#include "sim/run/timeline.h"
#include "sim/simulation.h"

namespace arlab {

class Run final : public NetworkClient {
 public:
  /// `plan` is that of all jobs. Links of the fabric have the share of their bandwidth that
  /// Jobs::link_efficiency() says. All must outlive it. Throws InvalidInput when it would cost too
  /// much, or links that change are not there.
  Run(const Plan& plan, const Jobs& jobs, const Topology& topology, const Fabric& fabric,
      const SimulateOptions& options);

  /// Runs the plan, once: a result for each job. Throws InvalidInput when it costs too much, takes
  /// too long, or a message has no way.
  std::vector<SimulationResult> results();

 private:
  /// A stage that could begin, or a message that could be decoded into the output while it arrives.
  struct Waiting {
    Picoseconds since = 0;
    bool is_message = false;
    std::uint32_t id = 0;
    auto operator<=>(const Waiting&) const = default;
  };
  /// Activity of a rank in a channel.
  struct Worker {
    CauseId ready = 0;  ///< launched
    Picoseconds ready_at = 0;
    CauseId free = 0;           ///< done with codec work that something has waited for
    Picoseconds free_at = 0;    ///< done with the codec work that has begun
    std::optional<Cause> work;  ///< work, while nothing has waited for it
    /// Stages that could begin, the last first, with the time since when; among simultaneous ones the first stage goes first,
    /// whatever the order of events.
    std::vector<Waiting> waiting = {};
    bool is_called = false;  ///< when it is free

    void wait(const Waiting& what) {
      if (waiting.empty()) return waiting.push_back(what);
      waiting.insert(std::ranges::lower_bound(waiting, what, std::greater<>()), what);
    }
  };
  /// A stage that has begun, or will now, until all that follows from it is written down.
  struct StartedStage {
    CauseId by = 0;
    std::uint32_t causes = 0;  ///< so many things will still be said to come from it
    Picoseconds at = 0;        ///< the time of `by`
  };
  /// The end of a collective, if that is a message.
  struct LastMessage {
    Arrival arrival = {};
    Picoseconds gathered = 0;
  };

  void start_ranks();
  void launch(std::uint32_t job, const std::vector<double>& delay_us);
  SimulationResult result_of(std::uint32_t job) const;

  std::uint32_t worker_of(StageId id) const {
    return copies_.stage(id).channel * copies_.ranks() + copies_.rank_of(id);
  }
  bool is_busy(const Worker& worker) const { return worker.free_at > engine_.now(); }
  /// Something waits for it to be free.
  CauseId free_of(Worker& worker, std::uint32_t job);
  void work(Worker& worker, std::uint32_t job, Picoseconds until, CauseId before, Rank rank,
            bool is_memory_bound);
  void begin_at(StageId id, CauseId arrived, Picoseconds at);
  void count_cause(StageId id);
  void begin_or_wait(StageId id);
  void call_when_free(std::uint32_t worker);
  void begin_waiting(std::uint32_t worker);
  void begin(StageId id);
  void finish(StageId id);
  void on_timer(std::uint64_t tag) override;

  void send(MessageId id, const PlannedMessage& message, double rate_cap_gb_per_s);
  void send(const PlannedMessage& message, std::span<const LinkId> route, std::uint64_t tag,
            std::uint64_t bytes, double rate_cap_gb_per_s, bool tells_flow);
  void on_flowing(std::uint64_t tag, Picoseconds first_byte) override;
  void await_decoding(MessageId id);
  void decode_while_arriving(MessageId id, Rank to, Picoseconds since);
  void change(std::size_t change);

  /// Calls visit(message) for those that this one stands for in the network.
  template <class Visit>
  void for_each_like(MessageId id, Visit visit) const;
  void on_delivered(const Delivery& delivered) override;
  void complete(const Delivery& delivery);
  /// Joins the halves of a message that takes two routes; says whether this was the last one.
  bool join(Delivery& half);
  Arrival arrival_of(MessageId id, const PlannedMessage& message, const Delivery& delivery);
  /// The message arrives at the stages of all that it reaches, which a plan that lists them names
  /// one by one.
  void arrive_at_all(StageId consumer, const PlannedMessage& message, const Arrival& arrival);
  void arrive(StageId id, const Arrival& arrival);
  CauseId add_causes_of(std::uint32_t job, const Arrival& arrival);
  void add_last(std::uint32_t job);

  const Plan& plan_;
  const Jobs& jobs_;
  const Topology& topology_;
  const Fabric& fabric_;
  Copies copies_;
  std::uint64_t crossings_;
  MessageRoutes routes_;
  Costs costs_;
  RunJitter jitter_;
  FlowEngine engine_;
  std::optional<Timeline> timeline_;
  Quantum quantum_;
  std::optional<Changes> changes_;
  Causes causes_;
  Arrivals arrivals_;
  LinkUse link_use_;
  std::vector<Worker> workers_;                               ///< by channel, then rank
  PagedArray<StartedStage> begun_;                            ///< by stage
  std::vector<LastMessage> last_messages_;                    ///< by job
  std::unordered_map<MessageId, Delivery> halves_;            ///< each waits for the other
  std::unordered_map<std::uint64_t, Picoseconds> restarted_;  ///< by tag: when it was handed in
  std::uint64_t delivered_ = 0;
};

}  // namespace arlab
