#include "kernels/runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/runtime/hip_status.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

struct TunedAlgorithm {
  const char* name;
  LaunchCollective launch;
  int tiles_of_each;  ///< how many wires of a chunk's tile travel in one exchange
};
constexpr std::array<TunedAlgorithm, 2> kTuned = {
    {{"one_shot", launch_one_shot, 1}, {"two_shot", launch_two_shot, 2}}};

/// Whether there is a kernel with places, and it is not slower: found by measuring. Places of
/// one_shot take longer to begin than flags; in two_shot, wires do that need two accesses of each
/// thread.
bool works_in_places(const TunedAlgorithm& algorithm, const Occupancy& occupancy, const Team& team,
                     std::size_t tiles, std::size_t tile_bytes, std::size_t most_blocks) {
  constexpr std::size_t kShortWire = 1408;
  const bool large = 8 * tiles > most_blocks;
  if (algorithm.launch == launch_one_shot) {
    return occupancy.one_shot_places && team.one_shot_places.count != 0 && large;
  }
  return occupancy.two_shot_places && team.two_shot_places.count != 0 &&
         (large || tile_bytes <= kShortWire);
}

std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// How the tiles of the longest chunk are worked through.
struct Cut {
  int blocks = 0;
  int tiles_per_slot = 0;
  int rounds = 0;
};

/// `per_slot`: tiles that fit a slot, at least one. No more are taken in a round than there are, nor
/// than a block works on at once, so that their sums follow them closely.
Cut cut(std::size_t tiles, std::size_t per_slot, std::size_t most_blocks,
        const Occupancy& occupancy) {
  const std::size_t blocks = std::min(most_blocks, tiles);
  per_slot = std::min(per_slot, ceil_divide(tiles, blocks));
  if (occupancy.batch != 1) {
    per_slot = std::min(per_slot, static_cast<std::size_t>(occupancy.batch));
  }
  return {static_cast<int>(blocks), static_cast<int>(per_slot),
          static_cast<int>(ceil_divide(tiles, blocks * per_slot))};
}

std::size_t most_blocks_of(const TeamResources& resources, const Occupancy& occupancy) {
  return static_cast<std::size_t>(
      std::min(resources.team.layout.blocks, resources.multiprocessors * occupancy.blocks));
}

unsigned tile_bytes_of(const Codec& codec, DType dtype) {
  return static_cast<unsigned>(ceil_divide(codec.wire_bytes(dtype, kTile), 16) * 16);
}

Status does_not_fit(const CollectiveRequest& request, const TeamResources& resources,
                    std::size_t bytes) {
  return Status::error(
      fmt::format("slots of {} bytes cannot hold what codec {} sends at once in {}: {} bytes",
                  resources.team.layout.slot_bytes, request.codec, request.algorithm, bytes));
}

/// The schedule of the request, checked against team and codec. Throws InvalidInput.
Schedule schedule_of(const CollectiveRequest& request, const Codec& codec, int ranks) {
  (void)codec.wire_bytes(request.dtype, request.elements);  // throws for other dtypes
  if (!request.schedule) {
    return make_schedule(request.algorithm, {.world_size = static_cast<Rank>(ranks),
                                             .elements = request.elements,
                                             .alignment = codec.info().alignment,
                                             .options = request.options});
  }
  const Schedule& schedule = *request.schedule;
  if (schedule.world_size != static_cast<Rank>(ranks) || schedule.elements != request.elements) {
    fail("schedule '{}' is for {} ranks and {} elements per rank, not for {} and {}",
         schedule.algorithm, schedule.world_size, schedule.elements, ranks, request.elements);
  }
  require_correct(schedule);
  require_whole_blocks(schedule, codec);
  return schedule;
}

const TunedAlgorithm* find_tuned(const CollectiveRequest& request, const Schedule& schedule,
                                 const Codec& codec) {
  const auto* found = std::find_if(kTuned.begin(), kTuned.end(), [&](const TunedAlgorithm& tuned) {
    return schedule.algorithm == tuned.name;
  });
  if (found == kTuned.end()) return nullptr;
  const bool is_default =
      schedule == make_schedule(found->name, {.world_size = schedule.world_size,
                                              .elements = request.elements,
                                              .alignment = codec.info().alignment});
  return is_default ? found : nullptr;
}

ProgramCall program_call(const Lowered& lowered, const TeamResources& resources) {
  ProgramCall call{};
  call.team = resources.team;
  call.program = lowered.programs[static_cast<std::size_t>(resources.team.rank)];
  for (std::size_t i = 0; i < lowered.chunks.size(); ++i) {
    call.chunk[i] = {lowered.chunks[i].begin, lowered.chunks[i].end};
  }
  call.first_phase = 0;
  call.last_phase = call.program.phases - 1;
  return call;
}

std::size_t longest_chunk(const Lowered& lowered) {
  std::size_t longest = 0;
  for (const Chunk& chunk : lowered.chunks) {
    longest = std::max<std::size_t>(longest, chunk.size());
  }
  return longest;
}

bool is_aligned(const void* input, const void* output) {
  return reinterpret_cast<std::uintptr_t>(input) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(output) % 16 == 0;
}

}  // namespace

Result<PreparedCall::Tuned> PreparedCall::tuned(const CollectiveRequest& request,
                                                const Schedule& schedule, const CodecChoice& choice,
                                                const TeamResources& resources) {
  const CodecPtr codec = find_codec(request.codec);
  const TunedAlgorithm& algorithm = *find_tuned(request, schedule, *codec);
  Call call{};
  call.team = resources.team;
  std::size_t tiles = 0;
  call.all_tiles_whole = true;
  for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
    const Chunk& chunk = schedule.chunks[i];
    call.chunk[i] = {chunk.begin, chunk.end};
    tiles = std::max(tiles, ceil_divide(chunk.size(), kTile));
    call.all_tiles_whole = call.all_tiles_whole && chunk.size() % kTile == 0;
  }
  call.chunk_tiles = static_cast<unsigned>(tiles);
  call.tile_bytes = tile_bytes_of(*codec, request.dtype);
  const std::size_t bytes = call.tile_bytes * static_cast<std::size_t>(algorithm.tiles_of_each);
  if (bytes > resources.team.layout.slot_bytes) return does_not_fit(request, resources, bytes);
  const Occupancy occupancy = occupancy_of(choice, request.dtype);
  const std::size_t most_blocks = most_blocks_of(resources, occupancy);
  const Cut work = cut(tiles, resources.team.layout.slot_bytes / bytes, most_blocks, occupancy);
  call.tiles_per_slot = work.tiles_per_slot;
  call.blocks = work.blocks;
  call.rounds = work.rounds;
  call.is_small = tiles <= static_cast<std::size_t>(work.blocks);
  call.in_places =
      works_in_places(algorithm, occupancy, resources.team, tiles, call.tile_bytes, most_blocks);
  return Tuned{algorithm.launch, choice, call};
}

Result<PreparedCall::OnePass> PreparedCall::one_pass(const CollectiveRequest& request,
                                                     const std::vector<Lowered>& programs,
                                                     const CodecChoice& choice,
                                                     const TeamResources& resources) {
  const CodecPtr codec = find_codec(request.codec);
  const Occupancy occupancy = occupancy_of(choice, request.dtype);
  OnePass result{choice, {}};
  for (const Lowered& lowered : programs) {
    ProgramCall call = program_call(lowered, resources);
    call.tile_bytes = tile_bytes_of(*codec, request.dtype);
    const std::size_t bytes = call.tile_bytes * static_cast<std::size_t>(lowered.wires);
    if (bytes > resources.team.layout.slot_bytes) return does_not_fit(request, resources, bytes);
    const Cut work =
        cut(ceil_divide(longest_chunk(lowered), kTile), resources.team.layout.slot_bytes / bytes,
            most_blocks_of(resources, occupancy), occupancy);
    call.blocks = work.blocks;
    call.tiles_per_slot = work.tiles_per_slot;
    call.rounds = work.rounds;
    result.calls.push_back(call);
  }
  return result;
}

Result<PreparedCall::TwoPass> PreparedCall::two_pass(const CollectiveRequest& request,
                                                     const std::vector<Lowered>& programs,
                                                     const MeasuredChoice& choice,
                                                     const TeamResources& resources) {
  // Messages of many groups are worked through in parts whose measurements fit.
  std::size_t longest = 0;
  for (const Lowered& lowered : programs) longest = std::max(longest, longest_chunk(lowered));
  const std::size_t messages = kMaxMessages;
  const std::size_t fit =
      resources.options.measured_groups / messages / statistics_of(choice, longest, 1);
  if (fit == 0) {
    return Status::error(fmt::format("{} measured groups are too few: codec {} takes {}",
                                     resources.options.measured_groups, request.codec,
                                     messages * statistics_of(choice, longest, 1)));
  }
  TwoPass result{choice, {}, longest};
  if (groups_of_message(choice, longest) > fit) result.part_elements = fit * measured_block(choice);

  for (const Lowered& lowered : programs) {
    ProgramCall call = program_call(lowered, resources);
    const std::size_t elements = std::min(longest_chunk(lowered), result.part_elements);
    const MessageTiles tiles = message_tiles(choice, request.dtype, elements);
    const auto per_unit = static_cast<std::size_t>(tiles.per_unit);
    const std::size_t bytes = tiles.bytes * per_unit * static_cast<std::size_t>(lowered.wires);
    const std::size_t units_per_slot = resources.team.layout.slot_bytes / bytes;
    if (units_per_slot == 0) return does_not_fit(request, resources, bytes);
    const std::size_t units = ceil_divide(tiles.tiles, per_unit);
    const std::size_t blocks = std::min(most_blocks_of(resources, {1, 1, false, false}), units);
    call.tile_bytes = static_cast<unsigned>(tiles.bytes);
    call.tiles_per_unit = tiles.per_unit;
    call.tiles_per_slot = static_cast<int>(units_per_slot * per_unit);
    call.blocks = static_cast<int>(blocks);
    call.rounds = static_cast<int>(ceil_divide(units, blocks * units_per_slot));
    if (!lowered.kernels_are_whole && call.rounds > 1) {
      return Status::error(fmt::format(
          "schedule {} sends wires on that wait for others: with codec {}, up to {} elements of a "
          "chunk can do so, not {}",
          request.algorithm, request.codec, blocks * units_per_slot * per_unit * kTile, elements));
    }
    call.groups = groups_of_message(choice, elements);
    call.statistics = resources.statistics;
    std::vector<TwoPass::Kernel> kernels;
    for (std::size_t i = 0; i < lowered.encoding_phases.size(); ++i) {
      call.first_phase = lowered.encoding_phases[i];
      call.last_phase = i + 1 < lowered.encoding_phases.size() ? lowered.encoding_phases[i + 1]
                                                               : call.program.phases - 1;
      TwoPass::Kernel kernel{call, {}, {}};
      kernel.measurement.statistics = resources.statistics;
      kernel.measurement.groups = call.groups;
      for (int step = call.program.first_send[call.first_phase];
           step < call.program.first_step[call.first_phase + 1] && call.program.step[step].encodes;
           ++step) {
        const Operand operand = call.program.operand[call.program.step[step].first_operand];
        const bool is_input = operand.source() == Operand::input;
        if (kernel.measurement.messages == kMaxMessages) {
          return Status::error(
              fmt::format("schedule {} encodes more than {} chunks at once on rank "
                          "{}: codec {} measures up to that many",
                          request.algorithm, kMaxMessages, resources.team.rank, request.codec));
        }
        kernel.measurement.message[kernel.measurement.messages++] =
            call.chunk[is_input ? call.program.step[step].chunk : operand.index()];
        kernel.of_input.push_back(is_input);
      }
      kernels.push_back(std::move(kernel));
    }
    result.programs.push_back(std::move(kernels));
  }
  return result;
}

Result<std::shared_ptr<const PreparedCall>> PreparedCall::prepare(const CollectiveRequest& request,
                                                                  const TeamResources& resources) {
  try {
    const CodecPtr codec = find_codec(request.codec);
    const Schedule schedule = schedule_of(request, *codec, resources.team.layout.ranks);
    const Result<CodecChoice> choice = choose_codec(request.codec);
    std::shared_ptr<PreparedCall> call(new PreparedCall(request.dtype, true));
    if (choice.ok() && find_tuned(request, schedule, *codec) != nullptr) {
      Result<Tuned> kernels = tuned(request, schedule, choice.value(), resources);
      if (!kernels.ok()) return kernels.status();
      call->kernels_ = std::move(kernels.value());
      return std::shared_ptr<const PreparedCall>(std::move(call));
    }
    const Result<std::vector<Lowered>> programs =
        lower(schedule, choice.ok() ? Passes::one : Passes::two);
    if (!programs.ok()) return programs.status();
    for (const Lowered& lowered : programs.value()) call->in_place_ &= lowered.in_place;
    if (choice.ok()) {
      Result<OnePass> kernels = one_pass(request, programs.value(), choice.value(), resources);
      if (!kernels.ok()) return kernels.status();
      call->kernels_ = std::move(kernels.value());
    } else {
      const Result<MeasuredChoice> measured = choose_measured(request.codec);
      if (!measured.ok()) return measured.status();
      Result<TwoPass> kernels = two_pass(request, programs.value(), measured.value(), resources);
      if (!kernels.ok()) return kernels.status();
      call->kernels_ = std::move(kernels.value());
    }
    return std::shared_ptr<const PreparedCall>(std::move(call));
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

namespace {

Status started(hipError_t error) { return status_of(error, "a kernel cannot be started"); }

/// The part of each chunk that begins `begin` elements behind its start.
void take_part(const ElementRange* chunks, std::size_t count, std::size_t begin,
               std::size_t elements, ElementRange* parts) {
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = {std::min(chunks[i].begin + begin, chunks[i].end),
                std::min(chunks[i].begin + begin + elements, chunks[i].end)};
  }
}

}  // namespace

Status PreparedCall::launch(const void* input, void* output, hipStream_t stream) const {
  if (input == output && !in_place_) {
    return Status::error(
        "this schedule reads its input again after it has stored there: the output must be another "
        "tensor");
  }
  if (const auto* tuned = std::get_if<Tuned>(&kernels_)) {
    Call call = tuned->call;
    call.input = input;
    call.output = output;
    call.aligned = is_aligned(input, output);
    return started(tuned->launch(call, tuned->codec, dtype_, stream));
  }
  if (const auto* one_pass = std::get_if<OnePass>(&kernels_)) {
    for (ProgramCall call : one_pass->calls) {
      call.input = input;
      call.output = output;
      call.aligned = is_aligned(input, output);
      Status status = started(launch_program(call, one_pass->codec, dtype_, stream));
      if (!status.ok()) return status;
    }
    return {};
  }
  const auto& two_pass = std::get<TwoPass>(kernels_);
  for (const std::vector<TwoPass::Kernel>& program : two_pass.programs) {
    std::size_t longest = 0;
    for (const ElementRange& chunk : program.front().call.chunk) {
      longest = std::max(longest, chunk.size());
    }
    for (std::size_t begin = 0; begin < longest; begin += two_pass.part_elements) {
      for (const TwoPass::Kernel& kernel : program) {
        ProgramCall call = kernel.call;
        call.input = input;
        call.output = output;
        take_part(kernel.call.chunk, kMaxChunks, begin, two_pass.part_elements, call.chunk);
        Measurement measurement = kernel.measurement;
        take_part(kernel.measurement.message, kMaxMessages, begin, two_pass.part_elements,
                  measurement.message);
        for (std::size_t i = 0; i < kernel.of_input.size(); ++i) {
          measurement.tensor[i] = kernel.of_input[i] ? input : output;
        }
        Status status = started(launch_measure(measurement, two_pass.codec, dtype_, stream));
        if (status.ok()) status = started(launch_program(call, two_pass.codec, dtype_, stream));
        if (!status.ok()) return status;
      }
    }
  }
  return {};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
