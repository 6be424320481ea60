#include "kernels/collectives/staged_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

using Chunks = std::vector<MessageRange>;

struct Transfers {
  bool sends_input = true;  ///< else what the stage before left in the output
  std::vector<StagedSend> sends = {};
  std::vector<StagedReceive> receives = {};
  int exchanges = 1;
};

MessageRange chunk_of(const Chunks& chunks, int owner) {
  const auto index = static_cast<std::size_t>(owner);
  return index < chunks.size() ? chunks[index] : MessageRange{};
}

RankRange only(int rank) { return {rank, 1, 1}; }

/// Every chunk to its owner among `count` ranks from `first` on. Ranks start at different owners,
/// to spread the links.
std::vector<StagedSend> to_owners(const Chunks& chunks, int first, int member, int count) {
  std::vector<StagedSend> sends;
  sends.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const int owner = (member + i) % count;
    sends.push_back({chunk_of(chunks, owner), only(first + owner)});
  }
  return sends;
}
/// Every chunk from its owner.
std::vector<StagedReceive> from_owners(const Chunks& chunks, int first, int count) {
  std::vector<StagedReceive> receives;
  receives.reserve(static_cast<std::size_t>(count));
  for (int owner = 0; owner < count; ++owner) {
    receives.push_back({.message = chunk_of(chunks, owner), .from = only(first + owner)});
  }
  return receives;
}

std::vector<Transfers> one_shot(const Chunks& chunks, const Team& team) {
  const RankRange all{0, 1, team.layout.ranks};
  return {{.sends = {{chunks[0], all}}, .receives = {{.message = chunks[0], .from = all}}}};
}

std::vector<Transfers> all_to_all(const Chunks& chunks, const Team& team) {
  const int ranks = team.layout.ranks;
  return {
      {.sends = to_owners(chunks, 0, team.rank, ranks), .receives = from_owners(chunks, 0, ranks)}};
}

std::vector<Transfers> hierarchical(const Chunks& chunks, const Team& team, int group_size) {
  const int groups = team.layout.ranks / group_size;
  const int member = team.rank % group_size;
  const int first = team.rank - member;
  const MessageRange own = chunk_of(chunks, member);
  const RankRange group{first, 1, group_size};
  const RankRange owners{member, group_size, groups};
  std::vector<Transfers> stages;
  stages.push_back({.sends = to_owners(chunks, first, member, group_size),
                    .receives = {{.message = own, .from = group, .start = SumStart::zero}}});
  if (groups > 1) {
    stages.push_back({.sends_input = false,
                      .sends = {{own, owners}},
                      .receives = {{.message = own, .from = owners, .start = SumStart::zero}}});
  }
  stages.push_back({.sends_input = false,
                    .sends = {{own, group}},
                    .receives = from_owners(chunks, first, group_size)});
  return stages;
}

/// All ranks are one group.
std::vector<Transfers> two_shot(const Chunks& chunks, const Team& team) {
  return hierarchical(chunks, team, team.layout.ranks);
}

std::vector<Transfers> ring(const Chunks& chunks, const Team& team) {
  const int ranks = team.layout.ranks;
  const int next = (team.rank + 1) % ranks;
  const int previous = (team.rank + ranks - 1) % ranks;
  const auto chunk = [&](int back) {  // the chunk of the rank so far back
    return chunk_of(chunks, (team.rank + 2 * ranks - back) % ranks);
  };
  std::vector<Transfers> stages;
  for (int hop = 0; hop + 1 < ranks; ++hop) {
    stages.push_back(
        {.sends_input = hop == 0,
         .sends = {{chunk(1 + hop), only(next)}},
         .receives = {
             {.message = chunk(2 + hop), .from = only(previous), .start = SumStart::own}}});
  }
  // The own sum goes around; this rank decodes the same bytes.
  Transfers gather{.sends_input = false,
                   .sends = {{chunk(0), {next, team.rank - next, 2}}},
                   .receives = {{.message = chunk(0), .from = only(team.rank)}},
                   .exchanges = ranks - 1};
  for (int hop = 0; hop + 1 < ranks; ++hop) {
    gather.receives.push_back({.message = chunk(1 + hop),
                               .from = only(previous),
                               .exchange = hop,
                               .passes_on = hop + 2 < ranks});
  }
  stages.push_back(gather);
  return stages;
}

std::vector<Transfers> stages_of(const StagedCollective& c, const Chunks& chunks) {
  if (c.algorithm == "one_shot") return one_shot(chunks, c.team);
  if (c.algorithm == "two_shot") return two_shot(chunks, c.team);
  if (c.algorithm == "ring") return ring(chunks, c.team);
  if (c.algorithm == "hierarchical") return hierarchical(chunks, c.team, c.group_size);
  if (c.algorithm == "all_to_all") return all_to_all(chunks, c.team);
  return {};
}

/// What all ranks cut alike, whichever chunks they own.
struct Sizes {
  std::size_t elements = 0;  ///< of the largest message
  std::size_t groups = 0;    ///< of it
  StagedTiles tiles = {};
  int units_per_slot = 0;
  int blocks = 0;
  int rounds = 0;
};

Sizes sizes_of(const StagedCollective& c, const Chunks& chunks, const MeasuredChoice& codec,
               DType dtype) {
  Sizes s;
  for (const MessageRange& chunk : chunks) s.elements = std::max(s.elements, chunk.size());
  s.groups = groups_of_message(codec, s.elements);
  s.tiles = staged_tiles(codec, dtype, s.elements);
  const auto per_unit = static_cast<std::size_t>(s.tiles.per_unit);
  const std::size_t per_slot = c.team.layout.slot_bytes / (s.tiles.bytes * per_unit);
  const std::size_t units = (s.tiles.tiles + per_unit - 1) / per_unit;
  const auto blocks = std::min(static_cast<std::size_t>(c.most_blocks), units);
  if (per_slot == 0 || blocks == 0) return s;
  s.units_per_slot = static_cast<int>(per_slot);
  s.blocks = static_cast<int>(blocks);
  s.rounds = static_cast<int>((units + blocks * per_slot - 1) / (blocks * per_slot));
  return s;
}

Stage stage_of(const StagedCollective& c, const Transfers& transfers, const Sizes& sizes) {
  Stage stage{};
  stage.team = c.team;
  stage.input = c.input;
  stage.output = c.output;
  stage.source = transfers.sends_input ? c.input : c.output;
  stage.statistics = c.statistics;
  stage.groups = sizes.groups;
  std::copy(transfers.sends.begin(), transfers.sends.end(), stage.send);
  stage.sends = static_cast<int>(transfers.sends.size());
  std::copy(transfers.receives.begin(), transfers.receives.end(), stage.receive);
  stage.receives = static_cast<int>(transfers.receives.size());
  stage.exchanges = transfers.exchanges;
  stage.next = (c.team.rank + 1) % c.team.layout.ranks;
  stage.blocks = sizes.blocks;
  stage.rounds = sizes.rounds;
  stage.tiles_per_unit = sizes.tiles.per_unit;
  stage.units_per_slot = sizes.units_per_slot;
  stage.tile_bytes = sizes.tiles.bytes;
  return stage;
}

Status run_stages(const StagedCollective& c, const Chunks& chunks, const MeasuredChoice& codec,
                  DType dtype, hipStream_t stream) {
  const Sizes sizes = sizes_of(c, chunks, codec, dtype);
  if (sizes.units_per_slot == 0) {
    return Status::error(
        fmt::format("slots of {} bytes cannot hold {} of codec {}: {} bytes",
                    c.team.layout.slot_bytes, sizes.tiles.per_unit == 1 ? "a tile" : "a group",
                    c.codec, sizes.tiles.bytes * static_cast<std::size_t>(sizes.tiles.per_unit)));
  }
  for (const Transfers& transfers : stages_of(c, chunks)) {
    const Stage stage = stage_of(c, transfers, sizes);
    Measurement measurement;
    measurement.tensor = stage.source;
    for (int i = 0; i < stage.sends; ++i) measurement.message[i] = stage.send[i].message;
    measurement.messages = stage.sends;
    measurement.statistics = c.statistics;
    measurement.groups = sizes.groups;
    hipError_t error = launch_measure(measurement, codec, dtype, stream);
    if (error == hipSuccess) error = launch_stage(stage, codec, dtype, stream);
    if (error != hipSuccess) {
      return Status::error(fmt::format("a kernel cannot be started: {}", hipGetErrorString(error)));
    }
  }
  return {};
}

}  // namespace

Status run_staged(const StagedCollective& c, const MeasuredChoice& codec, DType dtype,
                  hipStream_t stream) {
  std::size_t longest = 0;
  for (const MessageRange& chunk : c.chunks) longest = std::max(longest, chunk.size());
  const std::size_t groups = groups_of_message(codec, longest);
  // Messages of many groups are worked through in parts whose measurements fit.
  const auto messages = static_cast<std::size_t>(c.team.layout.ranks);
  const std::size_t fit = c.most_statistics / messages / statistics_of(codec, longest, 1);
  if (fit == 0) {
    return Status::error(fmt::format("{} measured groups are too few: codec {} takes {}",
                                     c.most_statistics, c.codec,
                                     messages * statistics_of(codec, longest, 1)));
  }
  if (groups <= fit) return run_stages(c, c.chunks, codec, dtype, stream);
  const std::size_t part = fit * measured_block(codec);
  for (std::size_t begin = 0; begin < longest; begin += part) {
    Chunks parts;
    for (const MessageRange& chunk : c.chunks) {
      parts.push_back({std::min(chunk.begin + begin, chunk.end),
                       std::min(chunk.begin + begin + part, chunk.end)});
    }
    Status status = run_stages(c, parts, codec, dtype, stream);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
