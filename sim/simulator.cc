#include "sim/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "sim/channels.h"
#include "sim/device/kernel_model.h"
#include "sim/nccl.h"
#include "sim/network/fifo_engine.h"
#include "sim/network/flow_engine.h"
#include "sim/network/growing_array.h"
#include "sim/topology/routes.h"

namespace arlab {

double bus_bandwidth_factor(Collective collective, Rank world_size) {
  const double n = world_size;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::dispatch_combine:  // an all-to-all there, another one back
      return 2 * (n - 1) / n;
    case Collective::all_to_all:
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return (n - 1) / n;
    case Collective::broadcast:
      return 1;
  }
  return 0;
}

namespace {

// ---------------------------------------------------------------- ways of messages

/// Ways through a fabric as it is, or folded: one device, and a link back to it for every orbit of
/// links, with the share of the orbit's capacity that belongs to one rank. A message of rank 0 then
/// gets in the folded network the rate that it gets among all its like in the whole one. Or through
/// a part of the fabric, all of its nodes but only the links in use: of a mesh of 32,768 ranks, a
/// tree uses one link in thousands.
class Ways {
 public:
  /// `ranks`: those that one stands for.
  Ways(const Fabric& fabric, const Topology& topology, bool folded, Rank ranks, Rank world_size)
      : fabric_(fabric),
        topology_(topology),
        routes_(fabric),
        folded_(folded),
        ranks_(ranks),
        world_size_(world_size) {
    if (folded_) network_.add_devices(1);
  }

  /// From now on only these links of the fabric are there. Their order stays, and with it that of
  /// all that happens at the same instant.
  void keep_only(std::vector<LinkId> links) {
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    kept_ = std::move(links);
    const Network& whole = fabric_.network();
    network_.add_devices(whole.nodes());
    for (DomainId domain = 0; domain < whole.domains(); ++domain) {
      network_.add_domain(whole.capacity_gb_per_s(whole.resource_of(domain)));
    }
    for (const LinkId link : kept_) {
      const LinkProperties& real = whole.properties(link);
      const LinkEnds ends = whole.ends(link);
      network_.add_link(ends.from, ends.to,
                        {real.bandwidth_gb_per_s, us_from_picoseconds(real.latency), real.domain});
    }
    is_part_ = true;
  }

  /// All messages that will be sent must have been announced before network() is used.
  void announce(const PlannedMessage& message) {
    if (!folded_) return;
    announce(real_route(message));
    announce(real_other_route(message));
  }

  const Network& network() const {
    return folded_ || is_part_ || is_own_ ? network_ : fabric_.network();
  }

  /// From now on bandwidths may change, and links may fail.
  void own_network() {
    network_ = fabric_.network();
    is_own_ = true;
  }
  void set_bandwidth(LinkId link, double gb_per_s) { network_.set_bandwidth(link, gb_per_s); }
  /// From now on ways are those of the fabric that is left without `dead` links, which are what
  /// `faults` say.
  void avoid(const std::set<LinkId>& dead, const std::vector<LinkFault>& faults) {
    left_routes_.reset();
    left_.reset();
    if (dead.empty()) return;
    Topology left = topology_;
    left.link_events.clear();
    for (const LinkFault& fault : faults) {
      std::erase_if(left.faults, [&](const LinkFault& before) {
        return before.from == fault.from && before.to == fault.to;
      });
      left.faults.push_back(fault);
    }
    left_.emplace(left);
    left_routes_.emplace(*left_);
    // Both have their links in the same order.
    real_of_left_.clear();
    for (LinkId link = 0; link < fabric_.network().links(); ++link) {
      if (!dead.contains(link)) real_of_left_.push_back(link);
    }
  }

  /// A link of the whole fabric that this one is, or stands for.
  LinkId real_link(LinkId link) const {
    if (is_part_) return kept_[link];
    return folded_ ? orbits_[link].representative : link;
  }

  /// In the whole fabric. Throws InvalidInput that names the ranks when there is no way.
  std::span<const LinkId> real_route(Rank from, Rank to) {
    try {
      return real_route_of_nodes(from, to);
    } catch (const InvalidInput&) {
      fail("topology '{}': there is no way from rank {} to rank {}{}", topology_.name, from, to,
           left_ ? ", since links have failed" : "");
    }
  }
  std::span<const LinkId> real_route_of_nodes(NodeId from, NodeId to) {
    if (!left_) return routes_.route(from, to);
    left_path_.clear();
    for (const LinkId link : left_routes_->route(from, to)) {
      left_path_.push_back(real_of_left_[link]);
    }
    return left_path_;
  }

  std::span<const LinkId> real_other_route(Rank from, Rank to) {
    if (left_) return {};
    return routes_.other_route(from, to);
  }

  // Of a message, whomever it concerns. Those to or from all ranks take no path but the ports of all
  // that take part, on a switch: first that by which it leaves or, added up, arrives.

  std::span<const LinkId> real_route(const PlannedMessage& message) {
    if (message.reach == Reach::one) return real_route(message.from, message.to);
    tree_.clear();
    const bool spreads = message.reach == Reach::multicast;
    const Rank other = message.from == 0 ? 1 : 0;
    tree_.push_back(spreads ? real_route(message.from, other).front()
                            : real_route(other, message.from).back());
    for (Rank rank = 0; rank < world_size_; ++rank) {
      if (spreads && rank == message.from) continue;
      const Rank to = rank == 0 ? 1 : 0;
      tree_.push_back(spreads ? real_route(message.from, rank).back()
                              : real_route(rank, to).front());
    }
    return tree_;
  }
  std::span<const LinkId> real_other_route(const PlannedMessage& message) {
    if (message.reach != Reach::one) return {};
    return real_other_route(message.from, message.to);
  }
  /// On network(), as the next.
  std::span<const LinkId> route(const PlannedMessage& message) {
    return ours(real_route(message), path_);
  }
  /// For the other half of the message; empty where all of it goes one way.
  std::span<const LinkId> other_route(const PlannedMessage& message) {
    return ours(real_other_route(message), other_path_);
  }
  /// From when its last byte leaves until that arrives: as on the way to any of them.
  Picoseconds latency_of_tree(const PlannedMessage& message) {
    Picoseconds latency = 0;
    for (const LinkId link : real_route(message.from, message.from == 0 ? 1 : 0)) {
      latency += fabric_.network().properties(link).latency;
    }
    return latency;
  }

  /// Calls visit(real link, how many links are like it, wire bytes on one of them, what they took
  /// there) for links in use. `more`: what they took beyond their number, by link.
  template <class Visit>
  void for_each_used(const NetworkEngine& engine, const std::map<LinkId, std::uint64_t>& more,
                     Visit visit) const {
    for (LinkId link = 0; link < network().links(); ++link) {
      const std::uint64_t taken = engine.bytes_on(link);
      if (taken == 0) continue;
      const auto beyond = more.find(link);
      const WideCount bytes = beyond == more.end() ? taken : taken - beyond->second;
      if (!folded_) {
        visit(real_link(link), std::uint64_t{1}, bytes, WideCount{taken});
        continue;
      }
      const Fabric::Orbit& orbit = orbits_[link];
      visit(orbit.representative, orbit.size, bytes * ranks_ / orbit.size,
            WideCount{taken} * ranks_ / orbit.size);
    }
  }

 private:
  void announce(std::span<const LinkId> route) {
    for (const LinkId link : route) {
      const Fabric::Orbit orbit = orbit_of(link);
      if (folded_links_.contains(orbit.representative)) continue;
      const LinkProperties& real = fabric_.network().properties(orbit.representative);
      const double share = static_cast<double>(orbit.size) / ranks_;
      folded_links_[orbit.representative] = network_.add_loop(
          0, {real.bandwidth_gb_per_s * share, us_from_picoseconds(real.latency), kNoDomain});
      orbits_.push_back(orbit);
    }
  }

  /// The links of this network that stand for those of the fabric; put into `path` if they differ.
  std::span<const LinkId> ours(std::span<const LinkId> real, std::vector<LinkId>& path) {
    if (!folded_ && !is_part_) return real;
    path.clear();
    for (const LinkId link : real) {
      if (folded_) {
        path.push_back(folded_links_.at(orbit_of(link).representative));
      } else {
        const auto kept = std::lower_bound(kept_.begin(), kept_.end(), link);
        path.push_back(static_cast<LinkId>(kept - kept_.begin()));
      }
    }
    return path;
  }

  /// Of the links that the ranks of the plan use. It may be run by a part of a mesh or of a switch,
  /// whose other ranks then do nothing.
  Fabric::Orbit orbit_of(LinkId link) const {
    Fabric::Orbit orbit = fabric_.orbit_of(link);
    orbit.size = orbit.size * ranks_ / topology_.ranks.value;
    return orbit;
  }

  const Fabric& fabric_;
  const Topology& topology_;
  Routes routes_;
  bool folded_;
  Rank ranks_;
  Rank world_size_;
  bool is_part_ = false;
  bool is_own_ = false;
  Network network_;             ///< folded, or of the links in use, or one that changes
  std::optional<Fabric> left_;  ///< without links that have failed
  std::optional<Routes> left_routes_;
  std::vector<LinkId> real_of_left_;
  std::vector<LinkId> left_path_;
  std::vector<LinkId> kept_;               ///< in ascending order
  std::map<LinkId, LinkId> folded_links_;  ///< by representative
  std::vector<Fabric::Orbit> orbits_;      ///< by folded link
  std::vector<LinkId> path_;
  std::vector<LinkId> other_path_;
  std::vector<LinkId> tree_;
};

// ---------------------------------------------------------------- times

/// Quantities are in range each, but their products need not be.
Picoseconds later_by(Picoseconds start, double us) {
  // Written so that a NaN fails too.
  if (!(us * 1e6 < static_cast<double>(kNever - start))) {
    fail("the collective would take longer than {:.0f} s, more than can be simulated",
         us_from_picoseconds(kNever) * 1e-6);
  }
  return start + picoseconds_from_us(us);
}

// ---------------------------------------------------------------- what led to what

/// What filled the time before an instant.
enum class Span : std::uint8_t { nothing, launch, latency, queue, message, stage, work };

/// Instants, each with the one that it had to wait for and what filled the time between.
struct Cause {
  Picoseconds time = 0;
  Picoseconds network = 0;    ///< message: what the network took
  std::uint32_t before = 0;   ///< index of the cause
  std::uint32_t subject = 0;  ///< message, stage, or rank of a launch and of work
  /// Message, queue: the resource that the network blames; work: a CodecLimit.
  std::uint32_t limit = 0;
  Span span = Span::nothing;
};
static_assert(sizeof(Cause) == 32);
using CauseId = std::uint32_t;

// ---------------------------------------------------------------- one run

/// A number from 0 to below 1 that follows from what it is for.
double chance(std::uint64_t seed, std::uint64_t what) {
  // SplitMix64 (Steele, Lea, Flood 2014), twice.
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ what) >> 11) * 0x1p-53;
}

/// Of an exponential distribution.
double exponential(double mean, std::uint64_t seed, std::uint64_t what) {
  return mean > 0 ? -mean * std::log1p(-chance(seed, what)) : 0;
}

/// A collective of a run.
struct Job {
  const Plan* plan = nullptr;  ///< as its kernels know it: with its own ranks
  std::vector<std::unique_ptr<const KernelModel>> kernels;  ///< by class of device
  std::vector<Rank> ranks;  ///< of the topology, by its own; empty: the same
  double start_us = 0;
  Rank first_channel = 0;
  StageId first_stage = 0;
  std::uint32_t steps = 1;  ///< whose messages travel side by side

  const KernelModel& kernel() const { return *kernels.front(); }
};

/// Devices of a topology, each once, and which one a rank has.
struct Devices {
  explicit Devices(const Topology& topology) {
    all.push_back(&topology.device);
    if (topology.device_overrides.empty()) return;
    class_of.assign(topology.ranks.value, 0);
    for (const DeviceOverride& each : topology.device_overrides) {
      for (const Rank rank : each.ranks) class_of[rank] = static_cast<std::uint32_t>(all.size());
      all.push_back(&each.device);
    }
  }
  std::vector<const Device*> all;
  std::vector<std::uint32_t> class_of;  ///< by rank; empty while all have the first
};

class Run final : public NetworkClient, private NetworkTrace {
 public:
  /// Links of the fabric have this share of their bandwidth.
  Run(const Plan& plan, const std::vector<Job>& jobs, const Topology& topology,
      const Devices& devices, const Fabric& fabric, double efficiency,
      const SimulateOptions& options)
      : plan_(plan),
        jobs_(jobs),
        topology_(topology),
        devices_(devices),
        fabric_(fabric),
        efficiency_(efficiency),
        trace_(options.trace),
        seed_(options.seed),
        most_solved_(options.most_solved),
        next_look_(options.most_solved / kFirstLook),
        fifo_(options.sharing == Sharing::fifo),
        ways_(fabric, topology, plan.folded(), plan.ranks_per_rank, plan.world_size),
        ranks_(plan.folded() ? 1 : plan.world_size),
        copies_(plan.is_alike ? plan.world_size : 1),
        messages_per_copy_(static_cast<std::uint32_t>(plan.messages.size())),
        awaited_(plan.stages.size() * copies_),
        begun_by_(awaited_.size()),
        latest_(awaited_.size(), kNone),
        ends_(jobs.size()) {
    causes_.append();
    costs_.reserve(plan.stages.size());
    for (std::uint32_t j = 0; j < jobs.size(); ++j) {
      for (const Stage& stage : jobs[j].plan->stages) {
        const KernelModel& kernel = kernel_of(jobs[j], plan.stages[costs_.size()].rank);
        costs_.push_back({kernel.cost_of(stage), kernel.gather_us(stage)});
      }
      job_of_channel_.insert(job_of_channel_.end(), jobs[j].plan->channels, j);
    }
    require_few_crossings(options.most_crossings);
    const bool changes = !topology.link_events.empty() || !topology.background.empty();
    if (changes) {
      ways_.own_network();
    } else if (plan.folded()) {
      for (const PlannedMessage& m : plan_.messages) ways_.announce(m);
    } else if (crossings_ < fabric.network().links() / kSparse) {
      keep_links_in_use();
    }
    if (fifo_) {
      if (changes) fail("link_events and background need --sharing max_min");
      engine_ = std::make_unique<FifoEngine>(ways_.network(), *this);
    } else {
      auto flows = std::make_unique<FlowEngine>(ways_.network(), *this, plan_.channels);
      flows_ = flows.get();
      engine_ = std::move(flows);
    }
    if (trace_ != nullptr) engine_->set_trace(this);
    if (changes) schedule_changes();
  }

  std::vector<SimulationResult> results() {
    if (trace_ != nullptr) trace_->on_fabric(fabric_);
    start_ranks();
    engine_->run();
    Picoseconds end = 0;
    for (std::uint32_t job = 0; job < jobs_.size(); ++job) {
      add_last_message(job);
      end = std::max(end, time_of(ends_[job].last));
    }
    std::vector<SimulationResult> results;
    for (std::uint32_t job = 0; job < jobs_.size(); ++job) {
      results.push_back(result_of(job));
      results.back().links = link_classes(end);
      explain(results.back(), job);
    }
    return results;
  }

 private:
  /// Of a rank in a channel.
  struct PlaceState {
    CauseId ready = 0;  ///< launched
    CauseId free = 0;   ///< done with the codec work so far
    /// Stages that could begin, by since when; of those that could at the same time the first one
    /// first, whatever the order of events.
    std::set<std::pair<Picoseconds, StageId>> waiting = {};
    bool is_called = false;  ///< when it is free
  };

  /// A message that has been delivered, and when it is complete.
  struct Arrival {
    MessageId message = 0;
    ResourceId limit = kNoLimit;
    Picoseconds network = 0;  ///< what the network took
    Picoseconds gone = 0;     ///< the sender is done with it
    Picoseconds queued = 0;   ///< FIFO: what it waited for others on later links
    Picoseconds there = 0;
    TimerId timer = 0;  ///< rings then
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// What a collective ends with.
  struct End {
    CauseId last = 0;
    Picoseconds time = 0;  ///< of last, or of last_message if that is later
    Arrival last_message = {};
    Picoseconds gathered = 0;
  };

  struct Costs {
    StageCost stage;
    double gather_us;
  };

  /// What the time of a message depends on.
  struct PartsOfMessage {
    std::uint32_t stage = 0;  ///< of the plan
    std::uint64_t bytes = 0;
    std::uint64_t inner_bytes = 0;
    Picoseconds network = -1;
    double link_gb_per_s = 0;
    bool operator==(const PartsOfMessage&) const = default;
  };

  // Tags of messages: their number, and
  static constexpr std::uint64_t kHalf = std::uint64_t{1} << 32;      ///< it goes two ways
  static constexpr std::uint64_t kOtherWay = std::uint64_t{1} << 33;  ///< this is the second

  // Tags of timers.
  enum class Timer : std::uint64_t { begin, done, arrived, free, change };
  static constexpr std::uint64_t kTimers = 8;
  static std::uint64_t tag(std::uint32_t subject, Timer timer) {
    return subject * kTimers + static_cast<std::uint64_t>(timer);
  }

  CauseId add_cause(End& end, Picoseconds time, CauseId before, Span span,
                    std::uint32_t subject = 0, Picoseconds network = 0, std::uint32_t limit = 0) {
    const auto id = static_cast<CauseId>(causes_.append());
    causes_[id] = {time, network, before, subject, limit, span};
    if (time > end.time) {
      end.time = time;
      end.last = id;
    }
    return id;
  }

  SimulationResult result_of(std::uint32_t job) const {
    const Plan& plan = *jobs_[job].plan;
    SimulationResult r{.model = std::string(kSimulatorModel),
                       .topology = topology_.name,
                       .algorithm = plan.algorithm,
                       .collective = plan.collective,
                       .codec = plan.codec,
                       .inner_codec = plan.inner_codec,
                       .dtype = plan.dtype,
                       .world_size = plan.world_size,
                       .runs_nccl = plan.is_nccl,
                       .payload_bytes = plan.elements * size_of(plan.dtype),
                       .simulated_ranks = plan.folded() ? 1 : plan.world_size,
                       .breakdown = {},
                       .links = {},
                       .bottleneck = {}};
    const WideCount times = WideCount{plan.ranks_per_rank} * copies_;
    for (const PlannedMessage& message : plan.messages) {
      r.wire_bytes += message.bytes * times;
      r.wire_elements += message.elements * times;
    }
    r.latency = time_of(ends_[job].last) - picoseconds_from_us(jobs_[job].start_us);
    r.latency_us = us_from_picoseconds(r.latency);
    r.algbw_gb_per_s = static_cast<double>(r.payload_bytes) / (r.latency_us * 1e3);
    r.busbw_gb_per_s = r.algbw_gb_per_s * bus_bandwidth_factor(plan.collective, plan.world_size);
    return r;
  }

  std::uint32_t job_index(const Stage& stage) const {
    return jobs_.size() == 1 ? 0 : job_of_channel_[stage.channel];
  }
  const Job& job_of(const Stage& stage) const { return jobs_[job_index(stage)]; }
  End& end_of(const Stage& stage) { return ends_[job_index(stage)]; }
  const KernelModel& kernel_of(const Job& job, Rank rank) const {
    return devices_.class_of.empty() ? job.kernel() : *job.kernels[devices_.class_of[rank]];
  }
  const KernelModel& kernel_of(const Stage& stage, Rank rank) const {
    return kernel_of(job_of(stage), rank);
  }
  Picoseconds time_of(CauseId id) const { return causes_[id].time; }

  // Stages and messages that are simulated, by number: those of the plan, or copies of them for
  // every rank. Stages of all ranks stand together, as in a plan that lists them; of messages those
  // of one rank, which are sent one after the other.

  const Stage& stage_of(StageId id) const { return plan_.stages[id / copies_]; }
  const Costs& costs_of(StageId id) const { return costs_[id / copies_]; }
  Rank rank_of(StageId id) const { return stage_of(id).rank + id % copies_; }
  StageId copy_of_stage(StageId stage, Rank rank) const {
    return plan_.is_alike ? stage * copies_ + rank : stage;
  }
  MessageId first_message_of(StageId id) const {
    return stage_of(id).first_message + id % copies_ * messages_per_copy_;
  }
  PlannedMessage message_of(MessageId id) const {
    if (!plan_.is_alike) return plan_.messages[id];
    const Rank rank = id / messages_per_copy_;
    return copy_of_message(plan_.messages[id - rank * messages_per_copy_], rank);
  }
  PlannedMessage copy_of_message(PlannedMessage message, Rank rank) const {
    message.from += rank;
    message.to += message.to < copies_ - rank ? rank : rank - copies_;
    message.stage = copy_of_stage(message.stage, rank);
    return message;
  }
  /// Where it is delivered, among the ranks that are simulated.
  Rank receiver_of(const PlannedMessage& message) const {
    if (plan_.folded()) return 0;
    return message.reach == Reach::reduction ? message.from : message.to;
  }

  /// Fewer crossings than links / this: then the engine is better off without the other links.
  static constexpr std::uint64_t kSparse = 4;

  /// Before routes are written down that no memory could hold.
  void require_few_crossings(std::uint64_t most) {
    for (const PlannedMessage& message : plan_.messages) {
      const std::uint64_t links = message.reach == Reach::one
                                      ? fabric_.hops_between(message.from, message.to)
                                      : plan_.world_size + std::uint64_t{1};
      crossings_ += links * copies_;
      if (crossings_ > most) {
        fail(
            "{} of {} ranks on topology '{}': its messages cross more than {} links together, "
            "which "
            "would take minutes and gigabytes; allowed are fewer ranks, or an algorithm whose "
            "messages go to near ranks",
            plan_.algorithm, plan_.world_size, topology_.name, most);
      }
    }
  }

  void keep_links_in_use() {
    std::vector<LinkId> links;
    const auto messages = static_cast<MessageId>(plan_.messages.size() * copies_);
    for (MessageId id = 0; id < messages; ++id) {
      const PlannedMessage message = message_of(id);
      const std::span<const LinkId> route = ways_.real_route(message);
      links.insert(links.end(), route.begin(), route.end());
      const std::span<const LinkId> other = ways_.real_other_route(message);
      links.insert(links.end(), other.begin(), other.end());
    }
    ways_.keep_only(std::move(links));
  }

  // Whether messages end one by one, with all rates to be solved for again each time, or by the
  // thousands, nobody knows before. So there are looks at how far it is.

  static constexpr std::uint64_t kFirstLook = 128;  ///< at most_solved_ / this
  /// A guess from the beginning may be wrong by 256, since where all start at once, many are under
  /// way; half way to the end, only by 4.
  static constexpr double kFarTooMuch = 2;
  /// Whoever starts first is a bad sample.
  static constexpr std::uint64_t kFewestDelivered = 64;

  void look_at_progress() {
    const std::uint64_t solved = engine_->solved();
    next_look_ = solved + most_solved_ / kFirstLook;
    const double messages = static_cast<double>(plan_.messages.size()) * copies_;
    const double at_the_end =
        static_cast<double>(solved) * messages / static_cast<double>(delivered_);
    const bool too_much = solved > most_solved_;
    const double way = static_cast<double>(solved) / static_cast<double>(most_solved_);
    const bool far_too_much = delivered_ >= kFewestDelivered &&
                              at_the_end > kFarTooMuch / way * static_cast<double>(most_solved_);
    if (!too_much && !far_too_much) return;
    fail(
        "{} of {} ranks on topology '{}': its messages share links in so many ways that it would "
        "take minutes{}; allowed are fewer ranks or micro-chunks, or --sharing fifo",
        plan_.algorithm, plan_.world_size, topology_.name, far_too_much ? " or hours" : "");
  }

  void start_ranks() {
    std::vector<double> delay_us(ranks_, 0);
    for (const Straggler& straggler : topology_.stragglers) {
      if (straggler.rank < ranks_) delay_us[straggler.rank] = straggler.delay_us.value;
    }
    state_.resize(std::size_t{ranks_} * plan_.channels);
    std::vector<bool> is_launched(ranks_, false);
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
      const Job& job = jobs_[j];
      const Picoseconds called = picoseconds_from_us(job.start_us);
      CauseId call = 0;
      if (called > 0) call = add_cause(ends_[j], called, 0, Span::nothing);
      const Rank taking_part = job.ranks.empty() ? ranks_ : job.plan->world_size;
      for (Rank channel = 0; channel < job.plan->channels; ++channel) {
        for (Rank i = 0; i < taking_part; ++i) {
          const Rank rank = job.ranks.empty() ? i : job.ranks[i];
          const double late_us = exponential(topology_.jitter.launch_us, seed_,
                                             kLaunches | std::uint64_t{j} << 32 | rank);
          const CauseId ready = add_cause(
              ends_[j],
              later_by(called, kernel_of(job, rank).launch_us() + delay_us[rank] + late_us), call,
              Span::launch, rank);
          state_[std::size_t{job.first_channel + channel} * ranks_ + rank] = {.ready = ready,
                                                                              .free = ready};
          if (trace_ != nullptr && !is_launched[rank]) trace_->on_launched(rank, time_of(ready));
          is_launched[rank] = true;
        }
      }
    }
    for (StageId id = 0; id < awaited_.size(); ++id) {
      awaited_[id] = stage_of(id).awaited;
      if (awaited_[id] == 0) begin_at(id, state_[place_of(id)].ready);
    }
  }

  /// Where a stage runs: the blocks of a channel on a rank.
  Rank place_of(StageId id) const { return stage_of(id).channel * ranks_ + rank_of(id); }

  void begin_at(StageId id, CauseId arrived) {
    const CauseId ready = state_[place_of(id)].ready;
    begun_by_[id] = time_of(arrived) >= time_of(ready) ? arrived : ready;
    engine_->call_at(std::max(time_of(begun_by_[id]), engine_->now()), tag(id, Timer::begin));
  }

  void on_timer(std::uint64_t timer_tag) override {
    const auto id = static_cast<std::uint32_t>(timer_tag / kTimers);
    switch (static_cast<Timer>(timer_tag % kTimers)) {
      case Timer::begin:
        begin_or_wait(id);
        break;
      case Timer::done:
        finish(id);
        break;
      case Timer::arrived:
        take_latest(id);
        break;
      case Timer::free:
        begin_waiting(id);
        break;
      case Timer::change:
        change(changes_[id]);
        break;
    }
  }

  void finish(StageId id) {
    const Stage& stage = stage_of(id);
    for (std::uint32_t i = 0; i < stage.dependents; ++i) {
      const StageId dependent = plan_.dependents[stage.first_dependent + i];
      arrive(copy_of_stage(dependent, rank_of(id)), begun_by_[id]);
    }
  }

  bool is_busy(const PlaceState& place) const { return time_of(place.free) > engine_->now(); }

  void begin_or_wait(StageId id) {
    const Rank place = place_of(id);
    state_[place].waiting.emplace(engine_->now(), id);
    call_when_free(place);
  }

  /// Now or later, after what else happens at that instant.
  void call_when_free(Rank place) {
    PlaceState& state = state_[place];
    if (state.is_called) return;
    state.is_called = true;
    engine_->call_at(std::max(time_of(state.free), engine_->now()), tag(place, Timer::free));
  }

  void begin_waiting(Rank place) {
    PlaceState& state = state_[place];
    state.is_called = false;
    while (!state.waiting.empty() && !is_busy(state)) {
      const auto [since, id] = *state.waiting.begin();
      state.waiting.erase(state.waiting.begin());
      if (since < engine_->now()) begun_by_[id] = state.free;
      begin(id);
    }
    if (!state.waiting.empty()) call_when_free(place);
  }

  void begin(StageId id) {
    const Stage& stage = stage_of(id);
    const Rank rank = rank_of(id);
    PlaceState& place = state_[place_of(id)];
    const StageCost& cost = costs_of(id).stage;
    const KernelModel& kernel = kernel_of(stage, rank);
    const Picoseconds start = engine_->now();
    const CauseId begun_by = begun_by_[id];
    const CauseId done =
        add_cause(end_of(stage), later_by(start, kernel.stage_time(cost).total_us()), begun_by,
                  Span::stage, id);
    if (const double work_us = cost.measure_us + cost.work_us; work_us > 0) {
      place.free = add_cause(end_of(stage), later_by(start, work_us), begun_by, Span::work, rank, 0,
                             kernel.is_memory_bound(stage) ? 1 : 0);
    }
    trace_stage(stage, rank, cost, start, time_of(done));
    const double cap = stage.messages > 0 ? kernel.rate_cap_gb_per_s(stage) : kNoRateCap;
    const MessageId first = first_message_of(id);
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      PlannedMessage message = plan_.messages[stage.first_message + i];
      if (plan_.is_alike) message = copy_of_message(message, rank);
      send(first + i, message, cap);
    }
    begun_by_[id] = done;
    if (stage.dependents > 0) engine_->call_at(time_of(done), tag(id, Timer::done));
  }

  void send(MessageId id, const PlannedMessage& message, double rate_cap_gb_per_s) {
    const std::span<const LinkId> route = ways_.route(message);
    if (message.output_elements > 0) decode_while_arriving(message, route);
    const KernelModel& kernel = kernel_of(stage_of(message.stage), message.from);
    std::uint64_t bytes = kernel.link_bytes(message);
    if (message.reach == Reach::reduction) {
      bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) /
                                         topology_.in_switch.reduction_efficiency.value);
    }
    if (const double efficiency = kernel.link_efficiency(); efficiency != efficiency_) {
      bytes = static_cast<std::uint64_t>(
          std::llround(static_cast<double>(bytes) * (efficiency_ / efficiency)));
    }
    // Of two ways that are as good each takes half.
    const bool is_split = bytes > 1 && !ways_.other_route(message).empty();
    const std::uint64_t other = is_split ? bytes / 2 : 0;
    const std::uint64_t other_wire = is_split ? message.bytes / 2 : 0;
    const std::uint64_t halves = is_split ? kHalf : 0;
    send(message, route, id | halves, bytes - other, message.bytes - other_wire, rate_cap_gb_per_s);
    if (!is_split) return;
    send(message, ways_.other_route(message), id | halves | kOtherWay, other, other_wire,
         rate_cap_gb_per_s);
  }

  void send(const PlannedMessage& message, std::span<const LinkId> route, std::uint64_t message_tag,
            std::uint64_t bytes, std::uint64_t wire_bytes, double rate_cap_gb_per_s) {
    if (bytes != wire_bytes) {
      for (const LinkId link : route) {
        more_bytes_[link] += bytes - wire_bytes;  // modulo 2^64: it may be fewer
      }
    }
    const Stage& stage = stage_of(message.stage);
    engine_->send(
        {.route = route,
         .bytes = bytes,
         .tag = message_tag,
         .rate_cap_gb_per_s = rate_cap_gb_per_s,
         .turn = stage.step / job_of(stage).steps,  // one of steps side by side
         .stream = stage.channel,
         .is_tree = message.reach != Reach::one,
         .tree_latency = message.reach == Reach::one ? 0 : ways_.latency_of_tree(message)});
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

  Picoseconds latency_of(const PlannedMessage& message, std::span<const LinkId> route) {
    if (message.reach != Reach::one) return ways_.latency_of_tree(message);
    Picoseconds latency = 0;
    for (const LinkId link : route) latency += ways_.network().properties(link).latency;
    return latency;
  }

  void decode_while_arriving(const PlannedMessage& message, std::span<const LinkId> route) {
    const std::uint64_t elements = message.output_elements;
    const std::uint64_t inner = message.inner_output_elements;
    const Stage& stage = stage_of(message.stage);
    const Picoseconds first_byte = engine_->now() + latency_of(message, route);
    for_each_receiver(message, [&](Rank to) {
      const KernelModel& kernel = kernel_of(stage, to);
      const double work_us = kernel.output_us(elements, inner);
      if (work_us <= 0) return;
      PlaceState& place = state_[stage.channel * ranks_ + to];
      CauseId start = place.free;
      if (first_byte > time_of(start)) {
        start = add_cause(end_of(stage), first_byte, begun_by_[message.stage], Span::latency);
      }
      place.free = add_cause(end_of(stage), later_by(time_of(start), work_us), start, Span::work,
                             to, 0, kernel.is_memory_bound(kernel.output_stage(elements, inner)));
      if (trace_ != nullptr) {
        trace_->on_work(to, SimulationTrace::Work::decode, stage.step, time_of(start),
                        time_of(place.free));
      }
    });
  }

  const TimeParts& message_parts(const PlannedMessage& message, Picoseconds network) {
    const Stage& stage = stage_of(message.stage);
    const KernelModel& kernel = kernel_of(stage, message.from);
    const double link_gb_per_s = kernel.knows_contention() ? first_link_gb_per_s(message) : 0;
    // Messages of a stage are mostly alike, and delivered one after the other.
    const PartsOfMessage like{message.stage / copies_, message.bytes, message.inner_bytes, network,
                              link_gb_per_s};
    if (parts_of_ != like) {
      parts_of_ = like;
      parts_ = kernel.message_time(stage, costs_of(message.stage).stage, message,
                                   us_from_picoseconds(network), link_gb_per_s);
    }
    return parts_;
  }

  /// Of a message that goes two ways the last half; says whether it was that.
  bool join(Delivery& half) {
    const auto id = static_cast<MessageId>(half.tag);
    const auto [first, is_first] = halves_.try_emplace(id, half);
    if (is_first) return false;
    half.bytes += first->second.bytes;
    if (first->second.sent > half.sent) {
      half.sent = first->second.sent;
      half.limit = first->second.limit;
    }
    halves_.erase(first);
    return true;
  }

  void on_delivered(const Delivery& delivered) override {
    Delivery delivery = delivered;
    if (!restarted_.empty()) {
      const auto restarted = restarted_.find(delivery.tag);
      if (restarted != restarted_.end()) delivery.started = restarted->second;
    }
    if ((delivery.tag & kHalf) != 0 && !join(delivery)) return;
    ++delivered_;
    if (engine_->solved() > next_look_) look_at_progress();
    const auto id = static_cast<MessageId>(delivery.tag);
    const PlannedMessage message = message_of(id);
    const Picoseconds network = delivery.sent - delivery.started;
    const Stage& stage = stage_of(message.stage);
    const std::uint32_t steps = job_of(stage).steps;
    const Picoseconds way = fifo_ || steps > 1 ? latency_of(message, ways_.route(message)) : 0;
    // Of steps side by side, the last wire takes such a way in each.
    Picoseconds latency = delivery.delivered - delivery.sent + (steps - 1) * way;
    if (const double mean_us = topology_.jitter.message_us; mean_us > 0) {
      latency = later_by(latency, exponential(mean_us, seed_, id));
    }
    const Picoseconds gone = std::max(
        delivery.sent, later_by(delivery.started, message_parts(message, network).total_us()));
    const Picoseconds there = later_by(gone, us_from_picoseconds(latency));
    // On later links what has left the sender may have waited for others.
    const Picoseconds queued = fifo_ ? there - gone - steps * way : 0;
    const Arrival arrival{id, delivery.limit, network, gone, queued, there, {}};
    const bool is_awaited = message.consumers > 0;
    const double gather_us = is_awaited ? 0 : gather_us_of(message);
    const Picoseconds gathered = gather_us > 0 ? later_by(there, gather_us) : there;
    End& end = end_of(stage);
    if (gathered > end.time) {
      end.time = gathered;
      end.last_message = arrival;
      end.gathered = gathered;
    }
    if (trace_ != nullptr) trace_message(message, delivery.started, arrival, gathered);
    for (std::uint32_t i = 0; i < message.consumers; ++i) {
      const StageId consumer = plan_.consumers[message.first_consumer + i];
      arrive_at_all(consumer, message, arrival);
    }
  }

  /// At the stages of all that the message reaches, which a plan that lists them names one by one.
  void arrive_at_all(StageId consumer, const PlannedMessage& message, const Arrival& arrival) {
    if (message.reach != Reach::multicast || !plan_.lists_one_rank()) {
      arrive(copy_of_stage(consumer, receiver_of(message)), arrival);
      return;
    }
    for_each_receiver(message, [&](Rank to) { arrive(copy_of_stage(consumer, to), arrival); });
  }

  /// Both sides of an exchange gather alike, where they have the same device.
  double gather_us_of(const PlannedMessage& message) const {
    const Costs& costs = costs_of(message.stage);
    if (devices_.class_of.empty()) return costs.gather_us;
    const Job& job = job_of(stage_of(message.stage));
    return kernel_of(job, message.to).gather_us(job.plan->stages[message.stage - job.first_stage]);
  }

  // ---- links that change, traffic of others

  /// What happens at an instant to links, or to a flow of others.
  struct Change {
    enum Kind : std::uint8_t { links, begin, end } kind;
    std::size_t index;  ///< of the topology's link_events or background
  };

  NodeId node_of(NodeName name) const {
    return name.is_switch ? topology_.ranks.value + name.number : name.number;
  }

  void schedule_changes() {
    const auto at = [this](double us, Change what) {
      engine_->call_at(later_by(0, us),
                       tag(static_cast<std::uint32_t>(changes_.size()), Timer::change));
      changes_.push_back(what);
    };
    for (std::size_t i = 0; i < topology_.link_events.size(); ++i) {
      require_links(i);
      at(topology_.link_events[i].at_us, {Change::links, i});
    }
    background_.resize(topology_.background.size());
    for (std::size_t i = 0; i < topology_.background.size(); ++i) {
      const BackgroundFlow& flow = topology_.background[i];
      for (const NodeName node : {flow.from, flow.to}) {
        if (node_of(node) < fabric_.network().nodes()) continue;
        fail("{}: key 'background' {}: there is no {}", topology_.name, i, arlab::describe(node));
      }
      if (flow.until_us == flow.from_us) continue;
      at(flow.from_us, {Change::begin, i});
      at(flow.until_us, {Change::end, i});
    }
  }

  /// Those between the nodes of an event, with their bandwidths as the topology's types have them.
  void require_links(std::size_t event) {
    const LinkEvent& e = topology_.link_events[event];
    double factor = 1;
    for (const LinkFault& fault : topology_.faults) {
      if (fault.from == e.from && fault.to == e.to) factor = fault.bandwidth_factor;
    }
    const Network& network = fabric_.network();
    std::vector<std::pair<LinkId, double>>& links = event_links_.emplace_back();
    network.for_each_single_link([&](LinkId link) {
      const LinkEnds ends = network.ends(link);
      if (ends.from != node_of(e.from) || ends.to != node_of(e.to)) return;
      links.emplace_back(link, network.properties(link).bandwidth_gb_per_s / factor);
    });
    if (!links.empty()) return;
    fail("{}: key 'link_events' {}: there is no link from {} to {} that works at the start",
         topology_.name, event, arlab::describe(e.from), arlab::describe(e.to));
  }

  void change(const Change& what) {
    const bool all_over = delivered_ == std::uint64_t{plan_.messages.size()} * copies_;
    if (all_over) return;
    if (what.kind == Change::links) return change_links(what.index);
    const BackgroundFlow& flow = topology_.background[what.index];
    if (what.kind == Change::end) return flows_->stop_background(background_[what.index]);
    try {
      background_[what.index] = flows_->start_background(
          ways_.real_route_of_nodes(node_of(flow.from), node_of(flow.to)), flow.gb_per_s);
    } catch (const InvalidInput&) {
      fail("{}: key 'background' {}: there is no way from {} to {}", topology_.name, what.index,
           arlab::describe(flow.from), arlab::describe(flow.to));
    }
  }

  void change_links(std::size_t index) {
    const LinkEvent& event = topology_.link_events[index];
    const std::size_t dead_before = dead_.size();
    std::vector<FlowEngine::Withdrawn> withdrawn;
    for (const auto& [link, gb_per_s] : event_links_[index]) {
      if (event.bandwidth_factor > 0) {
        flows_->before_change(link);
        ways_.set_bandwidth(link, gb_per_s * event.bandwidth_factor);
        dead_.erase(link);
        continue;
      }
      dead_.insert(link);
      const auto more = flows_->withdraw(link);
      withdrawn.insert(withdrawn.end(), more.begin(), more.end());
    }
    std::erase_if(failed_, [&](const LinkFault& fault) {
      return fault.from == event.from && fault.to == event.to;
    });
    if (event.bandwidth_factor == 0) failed_.push_back({event.from, event.to, 0, event.note});
    if (dead_.size() != dead_before) ways_.avoid(dead_, failed_);
    // What has not left goes another way.
    for (const FlowEngine::Withdrawn& rest : withdrawn) {
      const PlannedMessage message = message_of(static_cast<MessageId>(rest.tag));
      const Stage& stage = stage_of(message.stage);
      restarted_.try_emplace(rest.tag, rest.started);
      engine_->send({.route = ways_.route(message),
                     .bytes = rest.bytes,
                     .tag = rest.tag,
                     .rate_cap_gb_per_s = kernel_of(stage, message.from).rate_cap_gb_per_s(stage),
                     .turn = stage.step / job_of(stage).steps,
                     .stream = stage.channel});
    }
  }

  /// As the topology says it, not the share of it that is wire bytes.
  double first_link_gb_per_s(const PlannedMessage& message) {
    return fabric_.network().properties(ways_.real_route(message).front()).bandwidth_gb_per_s /
           efficiency_;
  }

  // A stage begins with the last of what it waits for. Most of a million messages are not the last,
  // so only the one that will be complete last is kept for a stage; of those that are complete at
  // the same instant the one that was delivered last.

  /// A message for the stage has been delivered.
  void arrive(StageId id, const Arrival& arrival) {
    --awaited_[id];
    std::uint32_t& latest = latest_[id];
    if (arrival.there == engine_->now()) {
      if (is_complete(id)) begin_at(id, causes_of(arrival));
      return;
    }
    if (latest == kNone) {
      latest = acquire_arrival();
    } else {
      if (arrivals_[latest].there > arrival.there) return;
      engine_->cancel(arrivals_[latest].timer);
    }
    arrivals_[latest] = arrival;
    arrivals_[latest].timer = engine_->call_at(arrival.there, tag(id, Timer::arrived));
  }

  /// The latest message for the stage is there now.
  void take_latest(StageId id) {
    const std::uint32_t latest = std::exchange(latest_[id], kNone);
    const Arrival arrival = arrivals_[latest];
    free_arrivals_.push_back(latest);
    if (is_complete(id)) begin_at(id, causes_of(arrival));
  }

  /// An earlier stage that the stage waits for is done.
  void arrive(StageId id, CauseId cause) {
    --awaited_[id];
    if (is_complete(id)) begin_at(id, cause);
  }

  bool is_complete(StageId id) const { return awaited_[id] == 0 && latest_[id] == kNone; }

  std::uint32_t acquire_arrival() {
    if (free_arrivals_.empty()) {
      arrivals_.emplace_back();
      return static_cast<std::uint32_t>(arrivals_.size() - 1);
    }
    const std::uint32_t arrival = free_arrivals_.back();
    free_arrivals_.pop_back();
    return arrival;
  }

  /// What led to it; returns why it is there.
  CauseId causes_of(const Arrival& arrival) {
    const StageId sender = message_of(arrival.message).stage;
    const CauseId sent_by = causes_[begun_by_[sender]].before;  // as the sender has begun
    End& end = end_of(stage_of(sender));
    CauseId left = add_cause(end, arrival.gone, sent_by, Span::message, arrival.message,
                             arrival.network, arrival.limit);
    if (arrival.queued > 0) {
      left = add_cause(end, arrival.gone + arrival.queued, left, Span::queue, 0, 0, arrival.limit);
    }
    return add_cause(end, arrival.there, left, Span::latency);
  }

  /// If nothing was later than a message, that is what the collective ends with.
  void add_last_message(std::uint32_t job) {
    End& end = ends_[job];
    if (end.time > time_of(end.last)) {
      end.time = 0;
      const CauseId arrived = causes_of(end.last_message);
      const PlannedMessage message = message_of(end.last_message.message);
      const Stage& stage = stage_of(message.stage);
      const Rank to = receiver_of(message);
      add_cause(end, end.gathered, arrived, Span::work, to, 0,
                kernel_of(stage, to).is_memory_bound(stage));
    }
  }

  // ---- where the time goes

  /// As in LatencyBreakdown.
  enum class Part : std::uint8_t { launch, synchronisation, wire, contention, codec, release };

  /// What there is to wait for in a codec.
  enum class CodecLimit : std::uint8_t { throughput, memory, first_tile };
  static std::string_view name_of(CodecLimit codec) {
    switch (codec) {
      case CodecLimit::throughput:
        return "codec and sums";
      case CodecLimit::memory:
        return "memory bandwidth";
      case CodecLimit::first_tile:
        break;
    }
    return "latency of the codec's first tile";
  }
  std::uint32_t codec_limit(StageId id) const {
    CodecLimit limit = kernel_of(stage_of(id), rank_of(id)).is_memory_bound(stage_of(id))
                           ? CodecLimit::memory
                           : CodecLimit::throughput;
    const StageCost& cost = costs_of(id).stage;
    if (cost.first_tile_us > cost.work_us) limit = CodecLimit::first_tile;
    return static_cast<std::uint32_t>(limit);
  }

  /// The chain of events that ends last, walked back: its time by part and by what limits it. That
  /// is a resource of the network (wire), or, of a rank, 3 * rank + CodecLimit.
  std::map<std::pair<Part, std::uint32_t>, double> walk_back(CauseId last) {
    std::map<std::pair<Part, std::uint32_t>, double> shares;
    for (CauseId id = last; id != 0; id = causes_[id].before) {
      const Cause& cause = causes_[id];
      const double us = us_from_picoseconds(cause.time - causes_[cause.before].time);
      switch (cause.span) {
        case Span::nothing:
          break;
        case Span::launch:
          shares[{Part::launch, 3 * cause.subject}] += us;
          break;
        case Span::latency:
          shares[{Part::synchronisation, 0}] += us;
          break;
        case Span::queue:
          shares[{Part::wire, cause.limit}] += us;
          break;
        case Span::work:
          shares[{Part::codec, 3 * cause.subject + cause.limit}] += us;
          break;
        case Span::message: {
          const PlannedMessage message = message_of(cause.subject);
          add(shares, message_parts(message, cause.network), us, message.stage, cause.limit);
          break;
        }
        case Span::stage:
          add(shares,
              kernel_of(stage_of(cause.subject), rank_of(cause.subject))
                  .stage_time(costs_of(cause.subject).stage),
              us, cause.subject, kNoLimit);
          break;
      }
    }
    return shares;
  }

  /// Parts in proportion, so that they add up to the time between the two causes.
  void add(std::map<std::pair<Part, std::uint32_t>, double>& shares, const TimeParts& parts,
           double us, StageId id, ResourceId limit) const {
    const Rank rank = rank_of(id);
    const double total = parts.total_us();
    const double factor = total > 0 ? us / total : 0;
    shares[{Part::synchronisation, 0}] += parts.synchronisation_us * factor;
    shares[{Part::wire, limit}] += parts.wire_us * factor;
    shares[{Part::contention, 3 * rank}] += parts.contention_us * factor;
    shares[{Part::codec, 3 * rank + codec_limit(id)}] += parts.codec_us * factor;
    shares[{Part::release, 3 * rank}] += parts.release_us * factor;
  }

  /// Sets breakdown and bottleneck: the largest part of it, with what makes most of that part.
  void explain(SimulationResult& r, std::uint32_t job) {
    const auto shares = walk_back(ends_[job].last);
    std::map<Part, double> parts;
    for (const auto& [what, us] : shares) parts[what.first] += us;
    r.breakdown = {parts[Part::launch],     parts[Part::synchronisation], parts[Part::wire],
                   parts[Part::contention], parts[Part::codec],           parts[Part::release]};
    const auto worst =
        std::max_element(parts.begin(), parts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    // What adds less than this to a part is not worth a word; nor are the others beside what makes
    // nearly all of it.
    constexpr double kNegligible = 0.01;
    constexpr double kNearlyAll = 0.9;
    std::uint32_t limit = 0;
    double most = -1;
    std::size_t limits = 0;
    for (const auto& [what, us] : shares) {
      if (what.first != worst->first || us < kNegligible * worst->second) continue;
      ++limits;
      if (us <= most) continue;
      most = us;
      limit = what.second;
    }
    if (most > kNearlyAll * worst->second) limits = 1;
    r.bottleneck = fmt::format("{} ({:.0f} % of the latency)", name_of(worst->first, limit, limits),
                               100 * worst->second / r.latency_us);
  }

  /// In words. `limits`: how many there are of that part, this one included.
  std::string name_of(Part part, std::uint32_t limit, std::size_t limits) const {
    const std::string others =
        plan_.folded() ? " and those like it"
                       : (limits > 1 ? fmt::format(" and {} more", limits - 1) : std::string());
    const std::string rank =
        plan_.folded() ? "every rank" : fmt::format("rank {}{}", limit / 3, others);
    switch (part) {
      case Part::launch:
        for (const Straggler& straggler : topology_.stragglers) {
          if (straggler.rank == limit / 3 &&
              straggler.delay_us.value > jobs_[0].kernel().launch_us()) {
            return fmt::format("late start of rank {}", straggler.rank);
          }
        }
        return "launch overhead";
      case Part::synchronisation:
        return "synchronisation: flags and latency of links";
      case Part::wire:
        if (limit == kNoLimit) return "blocks of the library's channels";
        return fmt::format("bandwidth of {}{}", describe_resource(limit), others);
      case Part::contention:
        return fmt::format("contention of stores of {}", rank);
      case Part::codec:
        return fmt::format("{} of {}", name_of(static_cast<CodecLimit>(limit % 3)), rank);
      case Part::release:
        return fmt::format("releases of tiles of {}", rank);
    }
    return {};
  }

  std::string describe_resource(ResourceId resource) const {
    if (resource < ways_.network().links()) return fabric_.describe(ways_.real_link(resource));
    const std::size_t domain = resource - ways_.network().links();
    return fmt::format("sharing domain {}", topology_.domains[domain].name);
  }

  void trace_stage(const Stage& stage, Rank rank, const StageCost& cost, Picoseconds start,
                   Picoseconds done) const {
    if (trace_ == nullptr) return;
    using enum SimulationTrace::Work;
    const Picoseconds signalled = std::min(done, start + picoseconds_from_us(cost.flags_us));
    if (signalled > start) trace_->on_work(rank, flags, stage.step, start, signalled);
    if (done > signalled) {
      const auto work = stage.added > 0     ? reduce
                        : stage.encoded > 0 ? encode
                        : stage.decoded > 0 ? decode
                                            : forward;
      trace_->on_work(rank, work, stage.step, signalled, done);
    }
  }

  void trace_message(const PlannedMessage& message, Picoseconds started, const Arrival& arrival,
                     Picoseconds gathered) {
    const std::uint32_t step = stage_of(message.stage).step;
    const std::span<const LinkId> found = ways_.real_route(message);
    const std::vector<LinkId> route(found.begin(), found.end());  // of a tree it is made anew
    trace_->on_message(message, step, route, started, arrival.there);
    if (!fifo_) {  // on_service() has said it
      // Before it flows it may wait for its turn.
      const auto flows = flowing_since_.find(arrival.message);
      const Picoseconds begin = flows == flowing_since_.end() ? started : flows->second;
      for (const LinkId link : route) {
        trace_->on_link(message, step, link, begin, arrival.gone);
      }
      for (const LinkId link : ways_.real_other_route(message)) {
        if (std::find(route.begin(), route.end(), link) != route.end()) continue;
        trace_->on_link(message, step, link, begin, arrival.gone);
      }
    }
    if (message.consumers == 0 && costs_of(message.stage).gather_us > 0) {
      trace_->on_work(receiver_of(message), SimulationTrace::Work::decode, step, arrival.there,
                      gathered);
    }
  }

  void on_service(std::uint64_t message_tag, ResourceId resource, Picoseconds begin,
                  Picoseconds end) override {
    if (resource >= ways_.network().links()) return;  // a domain
    const PlannedMessage message = message_of(static_cast<MessageId>(message_tag));
    trace_->on_link(message, stage_of(message.stage).step, ways_.real_link(resource), begin, end);
  }

  void on_rate(std::uint64_t message_tag, double gb_per_s, Picoseconds now) override {
    const auto id = static_cast<MessageId>(message_tag);
    const PlannedMessage message = message_of(id);
    flowing_since_.try_emplace(id, now);
    const bool other = (message_tag & kOtherWay) != 0;
    for (const LinkId link : other ? ways_.real_other_route(message) : ways_.real_route(message)) {
      const double bandwidth = fabric_.network().properties(link).bandwidth_gb_per_s;
      double share = gb_per_s / bandwidth;
      if ((message_tag & kHalf) != 0) {  // two ways may end with the same links
        std::array<double, 2>& halves = shares_[{id, link}];
        halves[other ? 1 : 0] = share;
        share = halves[0] + halves[1];
      }
      trace_->on_share(id, link, share, now);
    }
  }
  void on_sent(std::uint64_t message_tag, Picoseconds now) override {
    on_rate(message_tag, 0, now);
  }

  std::vector<LinkClassUse> link_classes(Picoseconds latency) const {
    std::vector<LinkClassUse> by_class(fabric_.classes().size());
    const auto add = [&](LinkId link, std::uint64_t alike, WideCount bytes, WideCount taken) {
      LinkClassUse& use = by_class[fabric_.class_index(link)];
      use.links += alike;
      use.bytes += bytes * alike;
      const double possible =
          bytes_in(latency, fabric_.network().properties(link).bandwidth_gb_per_s);
      const double utilisation = static_cast<double>(taken) / possible;
      if (utilisation > use.utilisation) {
        use.utilisation = utilisation;
        use.busiest = fabric_.describe(link);
      }
    };
    ways_.for_each_used(*engine_, more_bytes_, add);
    std::vector<LinkClassUse> list;
    for (std::size_t i = 0; i < by_class.size(); ++i) {
      if (by_class[i].links == 0) continue;
      by_class[i].link_class = fabric_.classes()[i];
      list.push_back(std::move(by_class[i]));
    }
    return list;
  }

  /// Of the chances of launches; those of messages are their numbers.
  static constexpr std::uint64_t kLaunches = std::uint64_t{1} << 63;

  const Plan& plan_;  ///< of all jobs
  const std::vector<Job>& jobs_;
  const Topology& topology_;
  const Devices& devices_;
  const Fabric& fabric_;
  double efficiency_;  ///< of its links
  SimulationTrace* trace_;
  std::uint64_t seed_;
  std::uint64_t most_solved_;
  std::uint64_t next_look_;  ///< of NetworkEngine::solved()
  std::uint64_t delivered_ = 0;
  std::uint64_t crossings_ = 0;
  bool fifo_;
  Ways ways_;
  Rank ranks_;
  Rank copies_;  ///< of the plan
  std::uint32_t messages_per_copy_;
  std::unique_ptr<NetworkEngine> engine_;
  FlowEngine* flows_ = nullptr;  ///< the same; none with FIFO links
  GrowingArray<Cause> causes_;   ///< 0: the call of the collective
  PartsOfMessage parts_of_;      ///< what parts_ are of
  TimeParts parts_;
  std::vector<PlaceState> state_;       ///< by channel, then rank
  std::vector<std::uint32_t> awaited_;  ///< by stage: what has not come yet
  std::vector<CauseId> begun_by_;       ///< by stage: why it began; once begun, when it is done
  std::vector<std::uint32_t> latest_;   ///< by stage: of arrivals_, or kNone
  std::vector<Arrival> arrivals_;
  std::vector<std::uint32_t> free_arrivals_;
  std::vector<Costs> costs_;                                              ///< by stage of the plan
  std::map<MessageId, Picoseconds> flowing_since_;                        ///< with a trace
  std::map<std::pair<MessageId, LinkId>, std::array<double, 2>> shares_;  ///< with a trace: halves
  std::unordered_map<MessageId, Delivery> halves_;  ///< that wait for the other
  /// What messages take beyond their wire bytes, where codecs pack theirs differently.
  std::map<LinkId, std::uint64_t> more_bytes_;
  std::vector<End> ends_;  ///< by job
  std::vector<std::uint32_t> job_of_channel_;
  // With links that change, or traffic of others:
  std::vector<Change> changes_;
  std::vector<std::vector<std::pair<LinkId, double>>> event_links_;  ///< by event, with GB/s
  std::set<LinkId> dead_;
  std::vector<LinkFault> failed_;                             ///< what these are
  std::vector<FlowSlot> background_;                          ///< by flow of the topology
  std::unordered_map<std::uint64_t, Picoseconds> restarted_;  ///< by tag: when it was handed in
};

void require_room(Rank world_size, std::string_view algorithm, const Topology& topology) {
  if (world_size > topology.ranks.value) {
    fail("schedule '{}' has {} ranks, but topology '{}' has only {}", algorithm, world_size,
         topology.name, topology.ranks.value);
  }
}

/// Whether options and topology are such that a folded plan stands for the whole one.
void require_foldable(const Plan& plan, const Topology& topology, const SimulateOptions& options) {
  const bool whole = options.sharing == Sharing::max_min && options.trace == nullptr;
  const FabricShifts shifts = shifts_of(topology);
  const bool same_ranks = shifts.any || plan.world_size == topology.ranks.value;
  if (whole && !shifts.extents.empty() && same_ranks) return;
  fail("a plan of '{}' in which one rank stands for all cannot run {}; make the plan with them",
       plan.algorithm,
       whole ? fmt::format("on topology '{}'", topology.name) : "with these options");
}

void require_multicast(const Topology& topology, const SimulateOptions& options, bool is_nvls) {
  if (!options.multicast && !is_nvls) return;
  const char* what = is_nvls ? "nvls" : "--multicast";
  if (options.sharing == Sharing::fifo) {
    fail(
        "{} with --sharing fifo: a message that crosses many ports at once has no turn at each; "
        "allowed is max_min",
        what);
  }
  if (is_nvls || topology.in_switch.multicast) return;
  fail(
      "--multicast: topology '{}' has no switch that spreads messages, [switch] with multicast = "
      "true",
      topology.name);
}

/// How the collective runs. Throws InvalidInput when a library is to run a codec.
Implementation implementation_of(const Plan& plan, const Topology& topology,
                                 const SimulateOptions& options) {
  if (!options.library) return Implementation::kernel;
  for (const auto& [codec, cost] :
       {std::pair(plan.codec, plan.cost), std::pair(plan.inner_codec, plan.inner_cost)}) {
    if (cost.encode_ops_per_element + cost.decode_ops_per_element == 0) continue;
    fail("a library sends values as they are: allowed codecs are fp16, bf16 and fp32, not {}",
         codec);
  }
  if (plan.is_nccl) return Implementation::nccl;
  return library_protocol(topology.device, plan.elements * size_of(plan.dtype), plan.world_size);
}

/// The plan without what waits for what: messages' times have it in them (steps_side_by_side()).
Plan side_by_side(Plan plan) {
  for (Stage& stage : plan.stages) stage.awaited = stage.dependents = 0;
  for (PlannedMessage& message : plan.messages) {
    message.consumers = 0;
    message.output_elements = message.inner_output_elements = 0;
  }
  return plan;
}

}  // namespace

namespace {

/// What a link does from time 0 on is no event, but how it is.
Topology without_events_at_the_start(Topology topology) {
  std::erase_if(topology.link_events, [&](const LinkEvent& event) {
    if (event.at_us > 0) return false;
    std::erase_if(topology.faults, [&](const LinkFault& fault) {
      return fault.from == event.from && fault.to == event.to;
    });
    topology.faults.push_back({event.from, event.to, event.bandwidth_factor, event.note});
    return true;
  });
  return topology;
}

bool has_event_at_the_start(const Topology& topology) {
  return std::any_of(topology.link_events.begin(), topology.link_events.end(),
                     [](const LinkEvent& event) { return event.at_us <= 0; });
}

/// `plan` is as its kernels know it, and must outlive the job.
Job job_of(const Plan& plan, const Devices& devices, Implementation implementation) {
  Job job{.plan = &plan, .kernels = {}, .ranks = {}};
  for (const Device* device : devices.all) {
    job.kernels.push_back(make_kernel_model(*device, plan, implementation));
    if (job.kernels.back()->steps_side_by_side() == job.kernel().steps_side_by_side()) continue;
    fail(
        "device_overrides: kernels of '{}' would be of two kinds; allowed are [blocks] and "
        "[places] "
        "alike on all ranks",
        plan.algorithm);
  }
  job.steps = std::max(1U, job.kernel().steps_side_by_side());
  return job;
}

double efficiency_of(const std::vector<Job>& jobs) {
  double most = 0;
  for (const Job& job : jobs) {
    for (const auto& kernel : job.kernels) most = std::max(most, kernel->link_efficiency());
  }
  return most;
}

}  // namespace

SimulationResult simulate(const Plan& plan, const Topology& topology,
                          const SimulateOptions& options) {
  require_valid(topology, topology.name);
  require_room(plan.world_size, plan.algorithm, topology);
  if (plan.folded() && options.trace != nullptr) {
    fail("plan of '{}': it is folded, which leaves nothing to trace", plan.algorithm);
  }
  if (plan.folded()) require_foldable(plan, topology, options);
  if (plan.is_alike && !topology.device_overrides.empty()) {
    fail(
        "a plan of '{}' that lists one rank cannot run on different devices; make the plan with "
        "them",
        plan.algorithm);
  }
  if (has_event_at_the_start(topology)) {
    return simulate(plan, without_events_at_the_start(topology), options);
  }
  if (topology.kind == TopologyKind::full_mesh && topology.faults.empty() && !varies(topology) &&
      plan.world_size < topology.ranks.value) {
    // Links of a mesh to ranks that take no part may be a billion.
    Topology part = topology;
    part.ranks.value = plan.world_size;
    std::erase_if(part.stragglers, [&](const Straggler& s) { return s.rank >= plan.world_size; });
    return simulate(plan, part, options);
  }
  const Devices devices(topology);
  std::vector<Job> jobs;
  jobs.push_back(job_of(plan, devices, implementation_of(plan, topology, options)));
  const double efficiency = efficiency_of(jobs);
  const Fabric fabric(topology, efficiency);
  if (jobs[0].kernel().steps_side_by_side() == 0) {
    return Run(plan, jobs, topology, devices, fabric, efficiency, options).results().front();
  }
  return Run(side_by_side(plan), jobs, topology, devices, fabric, efficiency, options)
      .results()
      .front();
}

std::vector<SimulationResult> simulate_together(std::span<const PlacedPlan> plans,
                                                const Topology& topology,
                                                const SimulateOptions& options) {
  require_valid(topology, topology.name);
  if (has_event_at_the_start(topology)) {
    return simulate_together(plans, without_events_at_the_start(topology), options);
  }
  const Devices devices(topology);
  Plan all;
  all.algorithm = "workload";
  all.world_size = topology.ranks.value;
  all.channels = 0;
  std::vector<Job> jobs;
  for (const PlacedPlan& placed : plans) {
    const Plan& plan = placed.plan;
    require_room(plan.world_size, plan.algorithm, topology);
    if (plan.lists_one_rank() || placed.ranks.size() != plan.world_size) {
      throw std::logic_error("simulate_together: the plan lists one rank, or has other ranks");
    }
    std::set<Rank> different(placed.ranks.begin(), placed.ranks.end());
    if (different.size() != placed.ranks.size() || *different.rbegin() >= topology.ranks.value) {
      fail(
          "'{}' has a rank twice, or one that topology '{}' has not; allowed are different ranks "
          "from 0 to {}",
          plan.algorithm, topology.name, topology.ranks.value - 1);
    }
    if (!(placed.start_us >= 0 && placed.start_us <= kLargestQuantity)) {
      fail("'{}' starts at {} us; allowed is 0 to {}", plan.algorithm, placed.start_us,
           kLargestQuantity);
    }
    SimulateOptions own = options;
    own.library = placed.library;
    Job job = job_of(plan, devices, implementation_of(plan, topology, own));
    job.ranks = placed.ranks;
    job.start_us = placed.start_us;
    job.first_channel = all.channels;
    job.first_stage = static_cast<StageId>(all.stages.size());
    const bool beside = job.kernel().steps_side_by_side() > 0;
    append_channels(all, beside ? side_by_side(plan) : plan, placed.ranks);
    jobs.push_back(std::move(job));
  }
  const double efficiency = efficiency_of(jobs);
  const Fabric fabric(topology, efficiency);
  return Run(all, jobs, topology, devices, fabric, efficiency, options).results();
}

SimulationResult simulate(const Schedule& schedule, const Codecs& codecs, DType dtype,
                          const Topology& topology, const SimulateOptions& options) {
  require_valid(topology, topology.name);
  require_room(schedule.world_size, schedule.algorithm, topology);
  require_multicast(topology, options, false);
  Plan plan = plan_of(schedule, codecs, dtype);
  if (options.multicast) plan = with_multicast(std::move(plan));
  return simulate(plan, topology, options);
}

namespace {

/// Why a plan cannot be folded, in words.
std::string why_all_ranks(const Algorithm& algorithm, const ScheduleRequest& request,
                          const Topology& topology, const SimulateOptions& options) {
  if (options.trace != nullptr) return "the timeline shows all";
  if (options.sharing != Sharing::max_min) return "that is for max-min sharing";
  const FabricShifts shifts = shifts_of(topology);
  if (!shifts.any && shifts.extents.empty()) {
    return fmt::format("topology '{}' does not look the same from all of them", topology.name);
  }
  if (!shifts.any && request.world_size != topology.ranks.value) {
    return fmt::format("topology '{}' has {}", topology.name, topology.ranks.value);
  }
  if (!algorithm.symmetry) return fmt::format("ranks do different things in {}", algorithm.name);
  const RankSymmetry symmetry = algorithm.symmetry(request);
  if (symmetry.kind == RankSymmetry::none) {
    return fmt::format(
        "{} elements do not make equal chunks of multiples of {}; allowed are sizes "
        "that do",
        request.elements, request.alignment);
  }
  if (symmetry.kind == RankSymmetry::grouped) {
    return fmt::format(
        "groups of {} do not lie in '{}' like each other; allowed are group sizes "
        "that do",
        symmetry.group_size, topology.name);
  }
  return fmt::format("'{}' looks different when all move up by one", topology.name);
}

Plan plan_of_one_copy(const Algorithm& algorithm, const ScheduleRequest& request,
                      const Codecs& codecs, DType dtype, const Topology& topology,
                      const SimulateOptions& options) {
  if (options.sharing == Sharing::max_min && options.trace == nullptr) {
    const FabricShifts shifts = shifts_of(topology);
    std::optional<Plan> folded =
        folded_plan_of(algorithm, request, codecs, dtype, shifts.extents, shifts.any);
    if (folded) return std::move(*folded);
  }
  if (topology.device_overrides.empty()) {
    std::optional<Plan> alike = alike_plan_of(algorithm, request, codecs, dtype);
    if (alike) return std::move(*alike);
  }
  try {
    return plan_of(make_schedule(algorithm.name, request), codecs, dtype);
  } catch (const TooManyOps& error) {
    fail("{}; one rank cannot stand for all, since {}", error.what(),
         why_all_ranks(algorithm, request, topology, options));
  }
}

/// Whether one rank may stand for all where each does what the one before it does.
bool may_fold(const ScheduleRequest& request, const Topology& topology,
              const SimulateOptions& options) {
  if (options.sharing != Sharing::max_min || options.trace != nullptr) return false;
  const FabricShifts shifts = shifts_of(topology);
  if (shifts.any) return request.world_size > 1;
  const auto extents = std::count_if(shifts.extents.begin(), shifts.extents.end(),
                                     [](Rank extent) { return extent > 1; });
  return request.world_size == topology.ranks.value && extents == 1;
}

/// As many copies as the library takes channels for this size, at most one per order.
Plan plan_in_channels(const Algorithm& algorithm, const ScheduleRequest& request,
                      const Codecs& codecs, DType dtype, const Topology& topology,
                      std::vector<RankOrder> orders) {
  const std::uint64_t payload = request.elements * size_of(dtype);
  const std::uint64_t most = std::min<std::uint64_t>(library_channels(topology.device, payload),
                                                     request.elements / request.alignment);
  if (orders.size() > most) orders.resize(std::max<std::uint64_t>(1, most));
  std::vector<Plan> copies;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 1; i <= orders.size(); ++i) {
    ScheduleRequest share = request;
    const std::uint64_t end = request.elements * i / orders.size();
    share.elements = end - begin;
    begin = end;
    // Most shares are equal.
    if (!copies.empty() && copies.back().elements == share.elements) {
      copies.push_back(copies.back());
    } else {
      copies.push_back(plan_of(make_schedule(algorithm.name, share), codecs, dtype));
    }
  }
  return in_channels(copies, orders);
}

}  // namespace

namespace {

/// Whether the library of the machine is NCCL as [nccl] has it. What [library] was fitted to is its
/// own. Throws InvalidInput when there is only [nccl], and NCCL has no such algorithm.
bool is_nccl(const Algorithm& algorithm, const Topology& topology) {
  const bool has_own = topology.device.library.has_value() && algorithm.name == "ring";
  if (!topology.device.nccl || has_own) return false;
  if (nccl_runs(algorithm)) return true;
  if (topology.device.library) return false;
  fail(
      "NCCL has no '{}': with --library on topology '{}' allowed are ring, nvls, all_gather, "
      "reduce_scatter, all_to_all",
      algorithm.name, topology.name);
}

}  // namespace

Plan plan_of(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
             DType dtype, const Topology& topology, const SimulateOptions& options) {
  require_valid(topology, topology.name);
  require_room(request.world_size, algorithm.name, topology);
  const bool folds = may_fold(request, topology, options);
  const bool is_nvls = &algorithm == &nvls_algorithm();
  require_multicast(topology, options, is_nvls);
  if (options.library && is_nccl(algorithm, topology)) {
    return nccl_plan(algorithm, request, codecs, dtype, topology, folds);
  }
  if (is_nvls) return nvls_plan(request, codecs, dtype, topology, folds, false);
  const std::uint64_t channels =
      options.library ? library_channels(topology.device, request.elements * size_of(dtype)) : 1;
  Plan plan = plan_of_one_copy(algorithm, request, codecs, dtype, topology, options);
  if (options.multicast) return with_multicast(std::move(plan));
  if (!options.library) return plan;
  // Of a single one the order counts, too.
  std::vector<RankOrder> orders =
      channel_orders(topology, request.world_size, std::max<std::uint64_t>(2, channels));
  if (orders.size() == 1 || sends_to_all(plan)) return plan;
  return plan_in_channels(algorithm, request, codecs, dtype, topology, std::move(orders));
}

Plan placeable_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                       const Codecs& codecs, DType dtype, const Topology& topology, bool library) {
  if (&algorithm == &nvls_algorithm()) {
    fail("nvls of some ranks of '{}' is not simulated; allowed are other algorithms",
         topology.name);
  }
  if (library && is_nccl(algorithm, topology)) {
    return with_all_ranks(nccl_plan(algorithm, request, codecs, dtype, topology, false));
  }
  Plan plan = plan_of(make_schedule(algorithm.name, request), codecs, dtype);
  if (!library || topology.kind != TopologyKind::full_mesh) return plan;
  Topology part = topology;
  part.ranks.value = request.world_size;
  const std::uint64_t channels = library_channels(part.device, request.elements * size_of(dtype));
  std::vector<RankOrder> orders =
      channel_orders(part, request.world_size, std::max<std::uint64_t>(2, channels));
  if (orders.size() == 1 || sends_to_all(plan)) return plan;
  return plan_in_channels(algorithm, request, codecs, dtype, part, std::move(orders));
}

SimulationResult simulate(const Algorithm& algorithm, const ScheduleRequest& request,
                          const Codecs& codecs, DType dtype, const Topology& topology,
                          const SimulateOptions& options) {
  return simulate(plan_of(algorithm, request, codecs, dtype, topology, options), topology, options);
}

}  // namespace arlab
