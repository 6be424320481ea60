#include "sim/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

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
  if (section.has("start_us")) read.start_us = section.number("start_us");
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

void require_ranks(const GroupCollective& collective, const Topology& topology) {
  if (collective.ranks.empty()) fail("collective '{}': it has no ranks", collective.name);
  std::set<Rank> seen;
  for (const Rank rank : collective.ranks) {
    if (rank >= topology.ranks.value) {
      fail("collective '{}': there is no rank {} on topology '{}'; allowed is 0 to {}",
           collective.name, rank, topology.name, topology.ranks.value - 1);
    }
    if (!seen.insert(rank).second) {
      fail("collective '{}': rank {} is named twice", collective.name, rank);
    }
  }
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
  file.reject_other_keys();
  const std::size_t count = workload.collectives.size();
  if (count < 1 || count > kMaxCollectives) {
    fail("{}: it has {} [[collectives]]; allowed are 1 to {}", origin, count, kMaxCollectives);
  }
  return workload;
}

Workload read_workload(const std::filesystem::path& path) {
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

PlacedPlan placed_plan(const GroupCollective& collective, const Topology& topology) {
  require_ranks(collective, topology);
  const CodecPtr codec = find_codec(collective.codec);
  const CodecPtr inner = find_inner_codec(collective.options, codec);
  const Codecs codecs(*codec, *inner);
  const DType dtype = dtype_of(collective, *codec);
  for (const Codec* each : {codec.get(), inner.get()}) each->wire_bytes(dtype, 1);
  PlacedPlan placed{.plan = {},
                    .ranks = collective.ranks,
                    .start_us = collective.start_us,
                    .library = collective.library};
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
                                  topology, collective.library);
  return placed;
}

std::vector<GroupTime> simulate_workload(const Workload& workload, const Topology& topology,
                                         const SimulateOptions& options) {
  std::vector<PlacedPlan> plans;
  for (const GroupCollective& collective : workload.collectives) {
    plans.push_back(placed_plan(collective, topology));
  }
  std::vector<SimulationResult> together = simulate_together(plans, topology, options);
  SimulateOptions untraced = options;
  untraced.trace = nullptr;
  std::vector<GroupTime> times;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double alone_us =
        simulate_together({&plans[i], 1}, topology, untraced).front().latency_us;
    const double slowdown = together[i].latency_us / alone_us;
    times.push_back({std::move(together[i]), plans[i].start_us, alone_us, slowdown});
  }
  return times;
}

}  // namespace arlab
