#include "sim/closed_form.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "reference/collectives/executor.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- input

void check_schedule(const Schedule& s) {
  const auto require = [&s](bool condition, const char* what, std::size_t index) {
    if (!condition) fail("schedule '{}': {} {}", s.algorithm, what, index);
  };
  require(s.world_size >= 1 && s.elements >= 1, "it has no ranks or no elements; ranks are",
          s.world_size);
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    require(s.chunks[i].begin < s.chunks[i].end && s.chunks[i].end <= s.elements,
            "empty, or reaches beyond the tensor: chunk", i);
  }
  const auto exists = [&s](ValueId id) { return id == kOwnInput || id < s.ops.size(); };
  for (std::size_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    require(op.rank < s.world_size && op.chunk < s.chunks.size(),
            "refers to a rank or chunk that does not exist: op", i);
    if (op.kind == OpKind::send) {
      require(op.peer < s.world_size && op.peer != op.rank, "has no other rank as its peer: op", i);
    }
    if (op.kind == OpKind::reduce) {
      require(op.addend_count >= 1 && op.first_addend <= s.addends.size() &&
                  op.addend_count <= s.addends.size() - op.first_addend,
              "has no addends, or some outside the list of addends: op", i);
    }
    const auto operands = s.operands(op);
    require(std::all_of(operands.begin(), operands.end(), exists),
            "uses a value that does not exist: op", i);
  }
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    const Output& output = s.outputs[i];
    require(output.rank < s.world_size && output.chunk < s.chunks.size() && exists(output.value),
            "refers to a rank, chunk or value that does not exist: output", i);
  }
}

constexpr double kMostOpsPerElement = 1e6;

void check_fits(const Schedule& schedule, const Codec& codec, DType dtype,
                const Topology& topology) {
  if (schedule.world_size > topology.ranks.value) {
    fail("schedule '{}' has {} ranks, but topology '{}' has only {}", schedule.algorithm,
         schedule.world_size, topology.name, topology.ranks.value);
  }
  codec.wire_bytes(dtype, schedule.elements);  // throws for a wrong dtype and for too many elements
  for (const double ops :
       {codec.info().cost.encode_ops_per_element, codec.info().cost.decode_ops_per_element}) {
    if (!(ops >= 0 && ops <= kMostOpsPerElement)) {
      fail("codec {}: its cost per element must be a number from 0 to {}", codec.name(),
           kMostOpsPerElement);
    }
  }
  require_whole_blocks(schedule, codec);
}

// ---------------------------------------------------------------- work

/// What one op asks of a rank or of the way between two ranks. All amounts are whole numbers, so
/// sums do not depend on the order of ops.
struct Work {
  std::uint32_t step = 0;
  Rank rank = 0;
  Rank peer = 0;  ///< of a message; else the rank itself
  std::uint64_t wire_bytes = 0;
  std::uint64_t encoded = 0;  ///< elements, as the others
  std::uint64_t decoded = 0;
  std::uint64_t added = 0;

  void add(const Work& other) {
    wire_bytes += other.wire_bytes;
    encoded += other.encoded;
    decoded += other.decoded;
    added += other.added;
  }
};

bool is_encoded(const Schedule& schedule, ValueId value) {
  return value != kOwnInput && schedule.ops[value].kind != OpKind::reduce;
}

Work work_of_op(const Schedule& schedule, const Op& op,
                const std::vector<std::uint64_t>& wire_bytes) {
  const std::uint64_t elements = schedule.chunks[op.chunk].size();
  Work work{.step = op.step, .rank = op.rank, .peer = op.rank};
  if (op.kind == OpKind::send) {
    work.peer = op.peer;
    work.wire_bytes = wire_bytes[op.chunk];
    return work;
  }
  for (const ValueId operand : schedule.operands(op)) {
    if (is_encoded(schedule, operand)) work.decoded += elements;
  }
  if (op.kind == OpKind::encode) work.encoded = elements;
  if (op.kind == OpKind::reduce) {
    work.added = elements * (op.addend_count - (op.start == Start::first ? 1 : 0));
  }
  return work;
}

/// All work, one entry per (step, rank, peer) in that order.
std::vector<Work> work_of(const Schedule& schedule, const Codec& codec, DType dtype) {
  std::vector<std::uint64_t> wire_bytes;  // by chunk
  for (const Chunk& chunk : schedule.chunks) {
    wire_bytes.push_back(codec.wire_bytes(dtype, chunk.size()));
  }
  std::vector<Work> all;
  all.reserve(schedule.ops.size() + schedule.outputs.size());
  for (const Op& op : schedule.ops) all.push_back(work_of_op(schedule, op, wire_bytes));
  for (const Output& output : schedule.outputs) {
    if (!is_encoded(schedule, output.value)) continue;
    all.push_back({.step = schedule.ops[output.value].step,
                   .rank = output.rank,
                   .peer = output.rank,
                   .decoded = schedule.chunks[output.chunk].size()});
  }

  const auto key = [](const Work& w) { return std::tuple(w.step, w.rank, w.peer); };
  std::sort(all.begin(), all.end(),
            [&key](const Work& a, const Work& b) { return key(a) < key(b); });
  std::vector<Work> merged;
  for (const Work& work : all) {
    if (!merged.empty() && key(merged.back()) == key(work)) {
      merged.back().add(work);
    } else {
      merged.push_back(work);
    }
  }
  return merged;
}

// ---------------------------------------------------------------- time

/// 10^9 bytes/s is 10^3 bytes/us; the same for operations.
double microseconds(double amount, double giga_per_s) { return amount / (giga_per_s * 1e3); }

/// The busiest of something; the first on a tie.
struct Busiest {
  double us = 0;
  std::size_t index = 0;
  void offer(double candidate_us, std::size_t candidate) {
    if (candidate_us > us || (candidate_us == us && candidate < index)) {
      us = candidate_us;
      index = candidate;
    }
  }
};

class ClosedForm {
 public:
  ClosedForm(const Topology& topology, const CodecCost& cost, const Schedule& schedule)
      : topology_(topology),
        cost_(cost),
        bus_bandwidth_factor_(bus_bandwidth_factor(schedule.collective, schedule.world_size)),
        links_(links_of(topology)),
        step_bytes_(links_.size()),
        total_bytes_(links_.size()),
        peers_(schedule.world_size) {}

  /// Adds a step; `work` is all of it.
  void step(std::span<const Work> work, SimulationResult& result) {
    StepTime time{.step = work.front().step, .bottleneck = {}};
    Busiest rank;
    double route_latency_us = 0;
    std::vector<LinkId> used;
    std::fill(peers_.begin(), peers_.end(), Peers{});
    for (const Work& w : work) {
      if (w.peer == w.rank) {
        const double codec_ops = cost_.encode_ops_per_element * static_cast<double>(w.encoded) +
                                 cost_.decode_ops_per_element * static_cast<double>(w.decoded);
        if (codec_ops > 0) time.startup_us = topology_.codec_startup_us.value;
        rank.offer(microseconds(codec_ops + static_cast<double>(w.added),
                                topology_.codec_gops_per_s.value),
                   w.rank);
        continue;
      }
      ++peers_[w.rank].sends_to;
      ++peers_[w.peer].receives_from;
      result.wire_bytes += w.wire_bytes;
      const Route route = route_between(topology_, w.rank, w.peer);
      route_latency_us = std::max(route_latency_us, route.latency_us);
      for (const LinkId link : route.links) {
        step_bytes_[link] += w.wire_bytes;
        used.push_back(link);
      }
    }

    if (!used.empty()) {
      Rank most_peers = 0;
      for (const Peers& peers : peers_) {
        most_peers = std::max({most_peers, peers.sends_to, peers.receives_from});
      }
      time.synchronisation_us = topology_.step_overhead_us.value +
                                topology_.message_overhead_us.value * most_peers + route_latency_us;
    }
    const Busiest link = take_step_bytes(used);

    time.wire_us = link.us;
    time.codec_us = rank.us;
    time.total_us =
        time.synchronisation_us + time.startup_us + std::max(time.wire_us, time.codec_us);
    book(time, link, rank, result);
    result.steps.push_back(std::move(time));
  }

  /// Fills in what is known after the last step.
  void finish(SimulationResult& result) const {
    LatencyBreakdown& parts = result.breakdown;
    parts.launch_us = topology_.launch_overhead_us.value;
    result.latency_us = parts.launch_us;
    for (const StepTime& step : result.steps) result.latency_us += step.total_us;

    result.algbw_gb_per_s = static_cast<double>(result.payload_bytes) / (result.latency_us * 1e3);
    result.busbw_gb_per_s = result.algbw_gb_per_s * bus_bandwidth_factor_;
    result.links = link_classes(result.latency_us);
    result.bottleneck = bottleneck(result);
  }

 private:
  struct Peers {
    Rank sends_to = 0;
    Rank receives_from = 0;
  };

  /// The busiest link of the step, whose bytes move to the totals.
  Busiest take_step_bytes(std::span<const LinkId> used) {
    Busiest busiest;
    for (const LinkId id : used) {
      const std::uint64_t bytes = std::exchange(step_bytes_[id], 0);
      total_bytes_[id] += bytes;
      busiest.offer(microseconds(static_cast<double>(bytes), links_[id].bandwidth_gb_per_s), id);
    }
    return busiest;
  }

  void book(StepTime& time, const Busiest& link, const Busiest& rank, SimulationResult& result) {
    LatencyBreakdown& parts = result.breakdown;
    const bool wire_bound = time.wire_us >= time.codec_us;
    parts.synchronisation_us += time.synchronisation_us;
    parts.codec_us += time.startup_us + (wire_bound ? 0 : time.codec_us);
    parts.wire_us += wire_bound ? time.wire_us : 0;
    if (wire_bound && link.us > 0) limiting_us_[links_[link.index].link_class] += time.wire_us;

    const double overlapped_us = std::max(time.wire_us, time.codec_us);
    if (time.synchronisation_us >= std::max(time.startup_us, overlapped_us)) {
      time.bottleneck = "synchronisation";
    } else if (time.startup_us >= overlapped_us) {
      time.bottleneck = "start-up of the codec";
    } else if (wire_bound) {
      time.bottleneck = "bandwidth of " + describe(links_[link.index]);
    } else {
      time.bottleneck = fmt::format("codec and sums on rank {}", rank.index);
    }
  }

  std::vector<LinkClassUse> link_classes(double latency_us) const {
    std::map<LinkClass, LinkClassUse> classes;
    for (std::size_t id = 0; id < links_.size(); ++id) {
      if (total_bytes_[id] == 0) continue;
      const double busy_us =
          microseconds(static_cast<double>(total_bytes_[id]), links_[id].bandwidth_gb_per_s);
      LinkClassUse& use = classes[links_[id].link_class];
      use.link_class = links_[id].link_class;
      use.links += 1;
      use.bytes += total_bytes_[id];
      use.utilisation = std::max(use.utilisation, busy_us / latency_us);
    }
    std::vector<LinkClassUse> list;
    list.reserve(classes.size());
    for (const auto& [link_class, use] : classes) list.push_back(use);
    return list;
  }

  std::string bottleneck(const SimulationResult& result) const {
    const LatencyBreakdown& parts = result.breakdown;
    const auto widest =
        std::max_element(limiting_us_.begin(), limiting_us_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::pair<double, std::string> candidates[] = {
        {parts.launch_us, "launch overhead"},
        {parts.synchronisation_us, "synchronisation"},
        {parts.wire_us,
         fmt::format("{} bandwidth", widest == limiting_us_.end() ? "" : name_of(widest->first))},
        {parts.codec_us, "codec and sums"}};
    const auto* worst =
        std::max_element(std::begin(candidates), std::end(candidates),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    return fmt::format("{} ({:.0f} % of the latency)", worst->second,
                       100 * worst->first / result.latency_us);
  }

  const Topology& topology_;
  const CodecCost cost_;
  const double bus_bandwidth_factor_;
  const std::vector<Link> links_;
  std::vector<std::uint64_t> step_bytes_;    // by link; all 0 between steps
  std::vector<std::uint64_t> total_bytes_;   // by link
  std::map<LinkClass, double> limiting_us_;  // wire time of the steps that the class limits
  std::vector<Peers> peers_;                 // by rank, of the current step
};

}  // namespace

double bus_bandwidth_factor(Collective collective, Rank world_size) {
  const double n = world_size;
  return (collective == Collective::all_to_all ? 1 : 2) * (n - 1) / n;
}

SimulationResult simulate_closed_form(const Schedule& schedule, const Codec& codec, DType dtype,
                                      const Topology& topology) {
  require_valid(topology, topology.name);
  check_schedule(schedule);
  check_fits(schedule, codec, dtype, topology);
  const std::vector<Work> work = work_of(schedule, codec, dtype);

  SimulationResult result{.model = std::string(kClosedFormModel),
                          .topology = topology.name,
                          .algorithm = schedule.algorithm,
                          .codec = codec.name(),
                          .dtype = dtype,
                          .world_size = schedule.world_size,
                          .payload_bytes = schedule.elements * size_of(dtype),
                          .breakdown = {},
                          .links = {},
                          .bottleneck = {},
                          .steps = {}};
  ClosedForm model(topology, codec.info().cost, schedule);
  for (auto begin = work.begin(); begin != work.end();) {
    const auto end = std::find_if(begin, work.end(),
                                  [step = begin->step](const Work& w) { return w.step != step; });
    model.step({begin, end}, result);
    begin = end;
  }
  model.finish(result);
  return result;
}

}  // namespace arlab
