#include "kernels/runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/runtime/hip_status.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

namespace {

/// A hash of everything that is mixed into it.
class Hash {
 public:
  void mix(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15u + 1;
    hash_ ^= hash_ >> 32;
  }
  void mix(const std::string& text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(text.size());
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// Ranks that choose another kernel, or cut the work in another way, differ in something of this.
CallDescription describe(const CollectiveRequest& request, const Schedule& schedule) {
  CallDescription call{};
  request.algorithm.copy(call.algorithm, sizeof(call.algorithm) - 1);
  request.codec.copy(call.codec, sizeof(call.codec) - 1);
  call.dtype = static_cast<std::uint32_t>(request.dtype);
  call.elements = request.elements;
  Hash rest;
  rest.mix(request.algorithm);
  rest.mix(request.codec);
  for (const Chunk& chunk : schedule.chunks) {
    rest.mix(chunk.begin);
    rest.mix(chunk.end);
  }
  for (const Op& op : schedule.ops) {
    rest.mix(std::uint64_t{op.step} << 32 | std::uint64_t{op.rank} << 16 |
             static_cast<unsigned>(op.kind) << 8 | static_cast<unsigned>(op.start));
    rest.mix(std::uint64_t{op.peer} << 32 | op.chunk);
    for (const ValueId operand : schedule.operands(op)) rest.mix(operand);
  }
  for (const Output& output : schedule.outputs) {
    rest.mix(std::uint64_t{output.rank} << 32 | output.value);
    rest.mix(output.begin);
  }
  call.rest = rest.value();
  call.hash = hash_of(call);
  call.told = 1;
  return call;
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
Cut cut(std::size_t tiles, std::size_t per_slot, std::size_t most_blocks, const Tuning& tuning) {
  const std::size_t blocks = std::min(most_blocks, tiles);
  per_slot = std::min(per_slot, ceil_divide(tiles, blocks));
  if (tuning.batch != 1) {
    per_slot = std::min(per_slot, static_cast<std::size_t>(tuning.batch));
  }
  return {static_cast<int>(blocks), static_cast<int>(per_slot),
          static_cast<int>(ceil_divide(tiles, blocks * per_slot))};
}

std::size_t most_blocks_of(const TeamResources& resources, const Tuning& tuning) {
  return static_cast<std::size_t>(
      std::min(resources.team.layout.blocks, resources.multiprocessors * tuning.resident_blocks));
}

unsigned tile_bytes_of(const Codec& codec, DType dtype) {
  return static_cast<unsigned>(ceil_divide(codec.wire_bytes(dtype, kTile), 16) * 16);
}

/// Wires that a slot holds, of so many bytes at a time.
Result<std::size_t> wires_in_a_slot(const CollectiveRequest& request,
                                    const TeamResources& resources, std::size_t bytes,
                                    const char* of_what) {
  const std::size_t wires = resources.team.layout.slot_bytes / bytes;
  if (wires != 0) return wires;
  return Status::error(fmt::format("slots of {} bytes cannot hold {} of codec {}: {} bytes",
                                   resources.team.layout.slot_bytes, of_what, request.codec,
                                   bytes));
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

bool is_default(const Schedule& schedule) {
  return schedule == make_schedule(schedule.algorithm, {.world_size = schedule.world_size,
                                                        .elements = schedule.elements,
                                                        .alignment = schedule.alignment});
}

/// The rule for the call, if an algorithm of this name has kernels of its own.
const KernelRule* find_rule(const Schedule& schedule, const CallFacts& facts) {
  for (const KernelRule& rule : kernel_rules()) {
    if (schedule.algorithm != rule.algorithm) continue;
    if (!is_default(schedule)) return nullptr;
    if (rule.is_for(facts)) return &rule;
  }
  return nullptr;
}

CallFacts facts_of(const Schedule& schedule, const Codec& codec, const CollectiveRequest& request,
                   const CodecTraits& traits, const TeamResources& resources) {
  CallFacts facts{.codec = traits, .ranks = resources.team.layout.ranks};
  const bool is_one_shot = schedule.algorithm == "one_shot";
  const Places& places =
      is_one_shot ? resources.team.one_shot_places : resources.team.two_shot_places;
  facts.has_places = places.count != 0;
  facts.all_tiles_whole = true;
  for (const Chunk& chunk : schedule.chunks) {
    facts.tiles = std::max<std::size_t>(facts.tiles, ceil_divide(chunk.size(), kTile));
    facts.all_tiles_whole = facts.all_tiles_whole && chunk.size() % kTile == 0;
  }
  facts.blocks = most_blocks_of(resources, traits.tuning);
  facts.tile_bytes = tile_bytes_of(codec, request.dtype);
  return facts;
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

std::size_t longest_chunk(const std::vector<Chunk>& chunks) {
  std::size_t longest = 0;
  for (const Chunk& chunk : chunks) {
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
                                                const Schedule& schedule, const KernelRule& rule,
                                                const CallFacts& facts, const CodecChoice& choice,
                                                const TeamResources& resources) {
  Call call{};
  call.team = resources.team;
  for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
    call.chunk[i] = {schedule.chunks[i].begin, schedule.chunks[i].end};
  }
  call.chunk_tiles = static_cast<unsigned>(facts.tiles);
  call.tile_bytes = static_cast<unsigned>(facts.tile_bytes);
  const Result<std::size_t> per_slot = wires_in_a_slot(
      request, resources, facts.tile_bytes * static_cast<unsigned>(rule.tiles_of_each),
      rule.tiles_of_each == 1 ? "a tile" : "two tiles");
  if (!per_slot.ok()) return per_slot.status();
  const Cut work = cut(facts.tiles, per_slot.value(), facts.blocks, facts.codec.tuning);
  call.tiles_per_slot = work.tiles_per_slot;
  call.blocks = work.blocks;
  call.rounds = work.rounds;
  return Tuned{&rule, choice, call};
}

Result<PreparedCall::OnePass> PreparedCall::one_pass(const CollectiveRequest& request,
                                                     const Schedule& schedule,
                                                     const CodecChoice& choice,
                                                     const TeamResources& resources) {
  const CodecPtr codec = find_codec(request.codec);
  const Tuning tuning = traits_of(choice, request.dtype).tuning;
  const unsigned tile_bytes = tile_bytes_of(*codec, request.dtype);
  const Result<std::size_t> wires = wires_in_a_slot(request, resources, tile_bytes, "a tile");
  if (!wires.ok()) return wires.status();
  const Result<std::vector<Lowered>> programs = lower(schedule, Passes::one, wires.value());
  if (!programs.ok()) return programs.status();
  OnePass result{choice, {}};
  for (const Lowered& lowered : programs.value()) {
    ProgramCall call = program_call(lowered, resources);
    call.tile_bytes = tile_bytes;
    const Cut work = cut(ceil_divide(longest_chunk(lowered.chunks), kTile),
                         wires.value() / static_cast<std::size_t>(lowered.wires),
                         most_blocks_of(resources, tuning), tuning);
    call.blocks = work.blocks;
    call.tiles_per_slot = work.tiles_per_slot;
    call.rounds = work.rounds;
    result.calls.push_back(call);
    result.in_place = result.in_place && lowered.in_place;
  }
  return result;
}

Result<PreparedCall::TwoPass> PreparedCall::two_pass(const CollectiveRequest& request,
                                                     const Schedule& schedule,
                                                     const MeasuredChoice& choice,
                                                     const TeamResources& resources) {
  // Messages of many groups are worked through in parts whose measurements fit.
  const std::size_t longest = longest_chunk(schedule.chunks);
  const std::size_t statistics = kMaxMessages * statistics_of(choice, longest, 1);
  const std::size_t fit = resources.options.measured_groups / statistics;
  if (fit == 0) {
    return Status::error(fmt::format("{} measured groups are too few: codec {} takes {}",
                                     resources.options.measured_groups, request.codec, statistics));
  }
  TwoPass result{choice, {}, longest};
  if (groups_of_message(choice, longest) > fit) result.part_elements = fit * measured_block(choice);
  const std::size_t elements = std::min(longest, result.part_elements);
  const MessageTiles tiles = message_tiles(choice, request.dtype, elements);
  const auto per_unit = static_cast<std::size_t>(tiles.per_unit);
  const Result<std::size_t> wires = wires_in_a_slot(request, resources, tiles.bytes * per_unit,
                                                    tiles.per_unit == 1 ? "a tile" : "a group");
  if (!wires.ok()) return wires.status();
  const Result<std::vector<Lowered>> programs = lower(schedule, Passes::two, wires.value());
  if (!programs.ok()) return programs.status();

  for (const Lowered& lowered : programs.value()) {
    ProgramCall call = program_call(lowered, resources);
    const std::size_t units_per_slot = wires.value() / static_cast<std::size_t>(lowered.wires);
    const std::size_t units = ceil_divide(tiles.tiles, per_unit);
    const std::size_t blocks = std::min(most_blocks_of(resources, {.resident_blocks = 1}), units);
    call.tile_bytes = static_cast<unsigned>(tiles.bytes);
    call.tiles_per_unit = tiles.per_unit;
    call.tiles_per_slot = static_cast<int>(units_per_slot * per_unit);
    call.blocks = static_cast<int>(blocks);
    call.rounds = static_cast<int>(ceil_divide(units, blocks * units_per_slot));
    if (!lowered.kernels_are_whole && call.rounds > 1) {
      return Status::error(fmt::format(
          "schedule {} passes wires on beside sums that are measured: with codec {}, "
          "chunks of up to {} elements can, not of {}",
          schedule.algorithm, request.codec, blocks * units_per_slot * per_unit * kTile, elements));
    }
    result.in_place = result.in_place && lowered.in_place;
    call.groups = groups_of_message(choice, elements);
    call.statistics = resources.statistics;
    std::vector<TwoPass::Kernel> kernels;
    if (call.program.first_send[0] != 0) {  // what has to be stored before it is measured
      call.last_phase = 0;
      kernels.push_back({call, {}, {}});
    }
    call.begins_with_sends = true;
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
                                                                  const TeamResources& of_team) {
  try {
    const CodecPtr codec = find_codec(request.codec);
    const Schedule schedule = schedule_of(request, *codec, of_team.team.layout.ranks);
    TeamResources resources = of_team;
    resources.team.call = describe(request, schedule);
    std::shared_ptr<PreparedCall> call(new PreparedCall(request.dtype));
    const auto keep = [&](auto kernels) -> Result<std::shared_ptr<const PreparedCall>> {
      if (!kernels.ok()) return kernels.status();
      call->kernels_ = std::move(kernels.value());
      return std::shared_ptr<const PreparedCall>(std::move(call));
    };
    const Result<CodecChoice> choice = choose_codec(request.codec);
    if (!choice.ok()) {
      const Result<MeasuredChoice> measured = choose_measured(request.codec);
      if (!measured.ok()) return measured.status();
      return keep(two_pass(request, schedule, measured.value(), resources));
    }
    const CallFacts facts =
        facts_of(schedule, *codec, request, traits_of(choice.value(), request.dtype), resources);
    if (const KernelRule* rule = find_rule(schedule, facts)) {
      return keep(tuned(request, schedule, *rule, facts, choice.value(), resources));
    }
    return keep(one_pass(request, schedule, choice.value(), resources));
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

std::string PreparedCall::explanation() const {
  if (const auto* tuned = std::get_if<Tuned>(&kernels_)) {
    return fmt::format("{}: {} ({})", tuned->rule->kernel, tuned->rule->when,
                       tuned->rule->measured_in);
  }
  if (const auto* programs = std::get_if<OnePass>(&kernels_)) {
    return fmt::format("program: no kernel of its own; {} phases, {} steps on this rank",
                       programs->calls.front().program.phases,
                       programs->calls.front().program.steps());
  }
  const auto& first = std::get<TwoPass>(kernels_).programs.front();
  return fmt::format("program in two passes: the codec measures what it encodes; {} kernels",
                     2 * first.size());
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
  const auto* programs = std::get_if<OnePass>(&kernels_);
  const auto* measured = std::get_if<TwoPass>(&kernels_);
  const bool in_place =
      (programs == nullptr || programs->in_place) && (measured == nullptr || measured->in_place);
  if (input == output && !in_place) {
    return Status::error(
        "this schedule reads its input again after it has stored there: the output must be another "
        "tensor");
  }
  if (const auto* tuned = std::get_if<Tuned>(&kernels_)) {
    Call call = tuned->call;
    call.input = input;
    call.output = output;
    call.aligned = is_aligned(input, output);
    return started(tuned->rule->launch(call, tuned->codec, dtype_, stream));
  }
  if (programs != nullptr) {
    for (ProgramCall call : programs->calls) {
      call.input = input;
      call.output = output;
      call.aligned = is_aligned(input, output);
      Status status = started(launch_program(call, programs->codec, dtype_, stream));
      if (!status.ok()) return status;
    }
    return {};
  }
  for (const std::vector<TwoPass::Kernel>& program : measured->programs) {
    std::size_t longest = 0;
    for (const ElementRange& chunk : program.front().call.chunk) {
      longest = std::max(longest, chunk.size());
    }
    for (std::size_t begin = 0; begin < longest; begin += measured->part_elements) {
      for (const TwoPass::Kernel& kernel : program) {
        ProgramCall call = kernel.call;
        call.input = input;
        call.output = output;
        take_part(kernel.call.chunk, kMaxChunks, begin, measured->part_elements, call.chunk);
        Measurement measurement = kernel.measurement;
        take_part(kernel.measurement.message, kMaxMessages, begin, measured->part_elements,
                  measurement.message);
        for (std::size_t i = 0; i < kernel.of_input.size(); ++i) {
          measurement.tensor[i] = kernel.of_input[i] ? input : output;
        }
        Status status = started(launch_measure(measurement, measured->codec, dtype_, stream));
        if (status.ok()) status = started(launch_program(call, measured->codec, dtype_, stream));
        if (!status.ok()) return status;
      }
    }
  }
  return {};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
