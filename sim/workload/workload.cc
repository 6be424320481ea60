#include "sim/workload/workload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "sim/topology/toml_section.h"
#include "sim/workload/model_time.h"

namespace arlab {
namespace {

constexpr double kMostFlop = 1e21;

PairBytes read_pair_bytes(Section& section) {
  PairBytes rows;
  for (const std::vector<double>& row : section.rows("pair_bytes")) {
    rows.emplace_back();
    for (const double bytes : row) {
      if (!(bytes >= 0 && bytes <= static_cast<double>(kMaxMessageBytes) &&
            bytes == std::floor(bytes))) {
        section.refuse("pair_bytes", fmt::format("{} are no bytes; allowed is a whole number from "
                                                 "0 to {}",
                                                 bytes, kMaxMessageBytes));
      }
      rows.back().push_back(static_cast<std::uint64_t>(bytes));
    }
  }
  return rows;
}

/// When a collective or computation begins.
void read_begin(Section& section, auto& read) {
  if (section.has("start_us")) read.start_us = section.number("start_us");
  if (section.has("after")) read.after = section.texts("after");
}

Computation read_computation(Section& section) {
  Computation read;
  read.name = section.text("name");
  read.ranks = section.ranks("ranks");
  read_begin(section, read);
  const bool has_flop = section.has("flop");
  if (has_flop == section.has("us")) {
    section.refuse("us",
                   "needed is one of us, the time that it takes, and flop, what it calculates");
  }
  const char* key = has_flop ? "flop" : "us";
  const double much = section.number(key);
  const double most = has_flop ? kMostFlop : kLargestQuantity;
  if (!(much >= 0 && much <= most)) {
    section.refuse(key, fmt::format("{} is out of range; allowed is 0 to {}", much, most));
  }
  (has_flop ? read.flop : read.us) = much;
  return read;
}

GroupCollective read_collective(Section& section) {
  GroupCollective read;
  read.name = section.text("name");
  read.ranks = section.ranks("ranks");
  read.algorithm = section.text("algorithm");
  read.codec = section.text("codec");
  for (const Field& option : all_options()) {
    read.options.set(option.name, section.value(option));
  }
  if (section.has("dtype")) read.dtype = section.text("dtype");
  read_begin(section, read);
  read.library = section.optional_flag("library").value_or(false);
  const bool has_pairs = section.has("pair_bytes");
  const bool has_skew = section.has("skew");
  if (has_pairs) {
    read.pair_bytes = read_pair_bytes(section);
  } else {
    read.bytes = section.size("bytes");
  }
  if (has_skew && has_pairs) {
    section.refuse("skew", "it is with pair_bytes; allowed is one of them");
  }
  if (has_skew) {
    read.pair_bytes =
        skewed(static_cast<Rank>(read.ranks.size()), read.bytes, section.number("skew"));
  }
  return read;
}

DType dtype_of(const GroupCollective& collective, const Codec& codec) {
  if (!collective.dtype.empty()) return parse_dtype(collective.dtype);
  return codec.takes(DType::fp16) ? DType::fp16 : codec.info().dtypes.front();
}

void require_ranks(const char* what, const auto& named, const Topology& topology) {
  if (named.ranks.empty()) fail("{} '{}': it has no ranks", what, named.name);
  std::set<Rank> seen;
  for (const Rank rank : named.ranks) {
    if (rank >= topology.ranks.value) {
      fail("{} '{}': there is no rank {} on topology '{}'; allowed is 0 to {}", what, named.name,
           rank, topology.name, topology.ranks.value - 1);
    }
    if (!seen.insert(rank).second) fail("{} '{}': rank {} is named twice", what, named.name, rank);
  }
}

const Device& device_of(Rank rank, const Topology& topology) {
  const Device* device = &topology.device;
  for (const DeviceOverride& other : topology.device_overrides) {
    if (std::ranges::find(other.ranks, rank) != other.ranks.end()) device = &other.device;
  }
  return *device;
}

/// Until the last of its ranks is done.
double us_of(const Computation& computation, const Topology& topology) {
  require_ranks("computation", computation, topology);
  if (!(computation.start_us >= 0 && computation.start_us <= kLargestQuantity)) {
    fail("computation '{}' starts at {} us; allowed is 0 to {}", computation.name,
         computation.start_us, kLargestQuantity);
  }
  if (computation.flop == 0) return computation.us;
  double longest_us = 0;
  for (const Rank rank : computation.ranks) {
    const Device& device = device_of(rank, topology);
    if (!device.compute) {
      fail("computation '{}': flop needs a topology with a section [compute], which '{}' has not",
           computation.name, topology.name);
    }
    longest_us = std::max(
        longest_us,
        roofline({.name = computation.name, .kind = OperationKind::gemm, .flop = computation.flop},
                 device)
            .us);
  }
  return longest_us;
}

/// Whole elements, in rows of the ranks.
PairBytes elements_of(const GroupCollective& collective, DType dtype) {
  if (collective.algorithm != "all_to_all") {
    fail("collective '{}': slots that are not equal are for all_to_all, not {}", collective.name,
         collective.algorithm);
  }
  const std::size_t ranks = collective.ranks.size();
  PairBytes elements = collective.pair_bytes;
  if (elements.size() != ranks) {
    fail("collective '{}': pair_bytes has {} rows for {} ranks", collective.name, elements.size(),
         ranks);
  }
  for (std::vector<std::uint64_t>& row : elements) {
    if (row.size() != ranks) {
      fail("collective '{}': a row of pair_bytes has {} numbers for {} ranks", collective.name,
           row.size(), ranks);
    }
    for (std::uint64_t& slot : row) slot = (slot + size_of(dtype) - 1) / size_of(dtype);
  }
  return elements;
}

}  // namespace

Workload parse_workload(std::string_view text, std::string_view origin) {
  const toml::table table = parse_toml(text, origin);
  Section file(table, origin, "");
  Workload workload;
  workload.name = file.text("name");
  workload.summary = file.text("summary");
  file.for_each("collectives", [&workload](Section& section) {
    workload.collectives.push_back(read_collective(section));
  });
  file.for_each("compute", [&workload](Section& section) {
    workload.computations.push_back(read_computation(section));
  });
  file.reject_other_keys();
  const std::size_t collectives = workload.collectives.size();
  const std::size_t all = collectives + workload.computations.size();
  if (collectives < 1 || all > kMaxCollectives) {
    fail(
        "{}: it has {} [[collectives]] and {} [[compute]]; allowed are 1 to {} in all, of which at "
        "least one is a collective",
        origin, collectives, all - collectives, kMaxCollectives);
  }
  return workload;
}

Workload read_workload(const std::filesystem::path& path) {
  if (path.extension() == ".et") {
    fail("{}: it is an execution trace of Chakra (.et), which is not read; allowed is a .toml",
         printable(path.string()));
  }
  return parse_workload(read_text_file(path, "workload file"), printable(path.string()));
}

PairBytes skewed(Rank ranks, std::uint64_t bytes, double skew) {
  constexpr double kLargestSkew = 10;
  if (!(skew >= 0 && skew <= kLargestSkew)) {
    fail("skew {} is out of range; allowed is 0 (equal slots) to {}", skew, kLargestSkew);
  }
  std::vector<double> weights(ranks);
  for (Rank rank = 0; rank < ranks; ++rank) weights[rank] = std::pow(rank + 1.0, -skew);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint64_t> row(ranks);
  for (Rank rank = 0; rank < ranks; ++rank) {
    row[rank] = static_cast<std::uint64_t>(static_cast<double>(bytes) * weights[rank] / sum);
  }
  return PairBytes(ranks, row);
}

Plan unequal_all_to_all(const PairBytes& elements, const Codecs& codecs, DType dtype) {
  const auto ranks = static_cast<Rank>(elements.size());
  const std::uint64_t alignment = codecs.alignment();
  const auto whole_blocks = [alignment](std::uint64_t count) {
    return (count + alignment - 1) / alignment * alignment;
  };
  std::uint64_t largest = 1;
  std::uint64_t payload = 1;
  for (const std::vector<std::uint64_t>& row : elements) {
    std::uint64_t sum = 0;
    for (const std::uint64_t slot : row) {
      if (slot > kMaxElements) fail("a slot of {} elements; allowed are {}", slot, kMaxElements);
      largest = std::max(largest, whole_blocks(slot));
      sum += whole_blocks(slot);
    }
    payload = std::max(payload, sum);
  }
  // Slots of the largest size, of which each has what it needs.
  Schedule s{.collective = Collective::all_to_all,
             .algorithm = "all_to_all",
             .world_size = ranks,
             .elements = largest * ranks,
             .alignment = alignment,
             .chunks = {},
             .ops = {},
             .addends = {},
             .outputs = {}};
  for (Rank from = 0; from < ranks; ++from) {
    for (Rank to = 0; to < ranks; ++to) {
      const std::uint64_t size = whole_blocks(elements[from][to]);
      if (size == 0) continue;
      const auto chunk = static_cast<ChunkId>(s.chunks.size());
      s.chunks.push_back({to * largest, to * largest + size});
      Op op{.kind = OpKind::encode, .rank = from, .chunk = chunk, .source = kOwnInput};
      s.ops.push_back(op);
      if (to != from) {
        op.kind = OpKind::send;
        op.peer = to;
        op.source = static_cast<ValueId>(s.ops.size() - 1);
        s.ops.push_back(op);
      }
      s.outputs.push_back({to, chunk, static_cast<ValueId>(s.ops.size() - 1), from * largest});
    }
  }
  Plan plan = plan_of(s, codecs, dtype);
  plan.elements = payload;
  return plan;
}

namespace {

PlacedPlan placed_plan(const GroupCollective& collective, const Topology& topology) {
  require_ranks("collective", collective, topology);
  const CodecPtr codec = find_codec(collective.codec);
  const CodecPtr inner = find_inner_codec(collective.options, codec);
  const Codecs codecs(*codec, *inner);
  const DType dtype = dtype_of(collective, *codec);
  for (const Codec* each : {codec.get(), inner.get()}) each->wire_bytes(dtype, 1);
  PlacedPlan placed{.plan = {}, .ranks = collective.ranks, .start_us = collective.start_us};
  if (!collective.pair_bytes.empty()) {
    placed.plan = unequal_all_to_all(elements_of(collective, dtype), codecs, dtype);
    return placed;
  }
  if (collective.bytes == 0 || collective.bytes % size_of(dtype) != 0) {
    fail("collective '{}': {} bytes are no whole number of {} elements", collective.name,
         collective.bytes, name_of(dtype));
  }
  ScheduleRequest request{.world_size = static_cast<Rank>(collective.ranks.size()),
                          .elements = collective.bytes / size_of(dtype),
                          .alignment = codecs.alignment(),
                          .options = collective.options};
  if (!request.options.group_size()) {
    request.options.set("group_size", default_group_size(topology, collective.ranks));
  }
  placed.plan = placeable_plan_of(find_algorithm(collective.algorithm), request, codecs, dtype,
                                  topology, collective.ranks, collective.library);
  return placed;
}

}  // namespace

PlannedWorkload::PlannedWorkload(const Workload& workload, const Topology& topology)
    : topology_(topology) {
  for (const GroupCollective& each : workload.collectives) {
    plans_.push_back(placed_plan(each, topology));
    entries_.push_back({each.name, each.ranks, each.start_us, {}, 0});
  }
  for (const Computation& each : workload.computations) {
    entries_.push_back({each.name, each.ranks, each.start_us, {}, us_of(each, topology)});
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    find_what_they_wait_for(i, is_collective(i)
                                   ? workload.collectives[i].after
                                   : workload.computations[i - workload.collectives.size()].after);
  }
  require_no_circle();
}

void PlannedWorkload::find_what_they_wait_for(std::size_t entry,
                                              const std::vector<std::string>& names) {
  Entry& waits = entries_[entry];
  std::vector<std::string> known;
  for (const Entry& each : entries_) known.push_back(each.name);
  for (const std::string& name : names) {
    const auto found = std::ranges::count(known, name);
    if (found != 1) {
      fail("{}: after names {}, which {}", quote(waits.name), quote(name),
           found == 0 ? "is not there: " + instead_of(name, {known}) : "several have for a name");
    }
    waits.after.push_back(static_cast<std::size_t>(std::ranges::find(known, name) - known.begin()));
  }
}

/// An entry that waits only for those that can begin can begin too; the rest waits in a circle.
void PlannedWorkload::require_no_circle() const {
  std::vector<bool> can_begin(entries_.size(), false);
  const auto blocker = [&](std::size_t entry) {
    return std::ranges::find_if(entries_[entry].after,
                                [&](std::size_t before) { return !can_begin[before]; });
  };
  for (bool found = true; found;) {
    found = false;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (can_begin[i] || blocker(i) != entries_[i].after.end()) continue;
      can_begin[i] = found = true;
    }
  }
  const auto left = std::ranges::find(can_begin, false);
  if (left == can_begin.end()) return;
  // Each of these waits for another one of these, so that a walk comes back to where it has been.
  std::vector<std::size_t> walk = {static_cast<std::size_t>(left - can_begin.begin())};
  for (bool is_circle = false; !is_circle;) {
    const std::size_t next = *blocker(walk.back());
    is_circle = std::ranges::find(walk, next) != walk.end();
    walk.push_back(next);
  }
  walk.erase(walk.begin(), std::ranges::find(walk, walk.back()));
  std::vector<std::string> names;
  for (const std::size_t each : walk) names.push_back(quote(entries_[each].name));
  fail("none of these can begin, because each waits for the next: {}", fmt::join(names, " after "));
}

/// Nothing that begins later changes what has happened before. So it is enough to simulate those that have begun: the entry
/// that can begin first after that begins then, and all are simulated anew with it.
std::vector<GroupTime> PlannedWorkload::together(const SimulateOptions& options) const {
  constexpr double kNotYet = std::numeric_limits<double>::infinity();
  std::vector<GroupTime> times(entries_.size());
  std::vector<bool> begun(entries_.size(), false);
  std::vector<PlacedPlan> running;
  std::vector<std::size_t> entry_of;  // by what runs
  std::vector<double> free_us(topology_.ranks.value, 0);
  for (GroupTime& time : times) time.end_us = kNotYet;
  const auto begin_collective = [&](std::size_t entry, double at_us) {
    begun[entry] = true;
    times[entry].start_us = at_us;
    running.push_back(plans_[entry]);
    running.back().start_us = at_us;
    entry_of.push_back(entry);
  };
  const auto simulate_begun = [&] {
    std::vector<SimulationResult> results = simulate_together(running, topology_, options);
    for (std::size_t i = 0; i < running.size(); ++i) {
      GroupTime& time = times[entry_of[i]];
      time.result = std::move(results[i]);
      time.end_us = time.start_us + time.result.latency_us;
    }
  };
  const auto compute = [&](std::size_t entry, double at_us) {
    const Entry& computation = entries_[entry];
    GroupTime& time = times[entry];
    begun[entry] = true;
    time.start_us = at_us;
    time.end_us = at_us + computation.computes_us;
    time.result.topology = topology_.name;
    time.result.algorithm = "computation";
    time.result.world_size = static_cast<Rank>(computation.ranks.size());
    time.result.latency_us = computation.computes_us;
    for (const Rank rank : computation.ranks) free_us[rank] = time.end_us;
  };
  const auto can_begin_us = [&](std::size_t entry) {
    const Entry& waits = entries_[entry];
    double at_us = begun[entry] ? kNotYet : waits.start_us;
    for (const std::size_t before : waits.after) at_us = std::max(at_us, times[before].end_us);
    if (is_collective(entry)) return at_us;
    for (const Rank rank : waits.ranks) at_us = std::max(at_us, free_us[rank]);
    return at_us;
  };
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (entries_[i].after.empty()) begin_collective(i, entries_[i].start_us);
  }
  if (!running.empty()) simulate_begun();
  while (true) {
    std::size_t first = 0;
    double at_us = kNotYet;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (can_begin_us(i) >= at_us) continue;
      first = i;
      at_us = can_begin_us(i);
    }
    if (at_us == kNotYet) return times;
    if (!is_collective(first)) {
      compute(first, at_us);
      continue;
    }
    // Entries that have all ended by then do not affect what follows; but the numbers of messages, of which jitter is made,
    // would begin anew.
    const bool all_over = std::ranges::all_of(
        entry_of, [&](std::size_t entry) { return times[entry].end_us <= at_us; });
    if (all_over && !topology_.jitter.any()) {
      running.clear();
      entry_of.clear();
    }
    for (std::size_t i = first; i < plans_.size(); ++i) {
      if (can_begin_us(i) == at_us) begin_collective(i, at_us);
    }
    simulate_begun();
  }
}

std::vector<GroupTime> PlannedWorkload::compared(const SimulateOptions& options) const {
  std::vector<GroupTime> times = together(options);
  SimulateOptions untraced = options;
  untraced.trace = nullptr;
  for (std::size_t i = 0; i < times.size(); ++i) {
    GroupTime& time = times[i];
    if (!is_collective(i)) {
      time.alone_us = time.result.latency_us;
      continue;
    }
    PlacedPlan alone = plans_[i];
    alone.start_us = time.start_us;
    time.alone_us = simulate_together({&alone, 1}, topology_, untraced).front().latency_us;
    time.slowdown = time.result.latency_us / time.alone_us;
  }
  return times;
}

}  // namespace arlab
