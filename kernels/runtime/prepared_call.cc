#include "kernels/runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/collectives/staging_buffer.h"
#include "kernels/runtime/hip_status.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/definitions.h"

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
  std::string codecs = request.codec;
  if (request.options.inner_codec())
    codecs.append("+").append(words_of(request.options.get("inner_codec")));
  if (request.sum != Sum{}) codecs.append(", sum ").append(name_of(request.sum));
  codecs.copy(call.codec, sizeof(call.codec) - 1);
  call.dtype = static_cast<std::uint32_t>(request.dtype);
  call.elements = request.elements;
  Hash rest;
  rest.mix(request.algorithm);
  rest.mix(codecs);
  rest.mix(request.seed);
  for (const auto& [name, fingerprint] : fingerprints_of({codecs})) {
    const std::string definition = fingerprint();
    if (!definition.starts_with(kUntold)) rest.mix(definition);
  }
  for (const Chunk& chunk : schedule.chunks) {
    rest.mix(chunk.begin);
    rest.mix(chunk.end);
  }
  for (const Op& op : schedule.ops) {
    rest.mix(std::uint64_t{op.step} << 32 | std::uint64_t{op.rank} << 16 |
             static_cast<unsigned>(op.kind) << 8 | static_cast<unsigned>(op.codec) << 4 |
             static_cast<unsigned>(op.start));
    rest.mix(std::uint64_t{op.peer} << 32 | op.chunk);
    for (const ValueId operand : schedule.operands(op)) rest.mix(operand);
  }
  for (const Output& output : schedule.outputs) {
    rest.mix(std::uint64_t{output.rank} << 32 | output.value);
    rest.mix(output.begin);
  }
  call.rest = rest.value();
  call.hash = hash_of(call);
  call.announced = 1;
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
Cut cut(std::size_t tiles, std::size_t per_slot, std::size_t most_blocks, const Tuning& tuning,
        std::size_t tile_bytes) {
  const std::size_t blocks = std::min(most_blocks, tiles);
  per_slot = std::min(per_slot, ceil_divide(tiles, blocks));
  if (tuning.batch != 1) {
    // As many as there is room for where they are put together, too.
    const std::size_t staged =
        tuning.stores_directly ? per_slot : std::max<std::size_t>(kStagingBytes / tile_bytes, 1);
    per_slot = std::min({per_slot, staged, static_cast<std::size_t>(tuning.batch)});
  }
  return {static_cast<int>(blocks), static_cast<int>(per_slot),
          static_cast<int>(ceil_divide(tiles, blocks * per_slot))};
}

std::size_t most_blocks_of(const TeamResources& resources, int resident_blocks) {
  return static_cast<std::size_t>(
      std::min(resources.team.layout.blocks, resources.multiprocessors * resident_blocks));
}

unsigned tile_bytes_of(const Codec& codec, DType dtype) {
  return static_cast<unsigned>(ceil_divide(codec.wire_bytes(dtype, kTile), 16) * 16);
}

/// Wires that a slot holds, of so many bytes at a time.
Result<std::size_t> wires_in_a_slot(const Codec& codec, const TeamResources& resources,
                                    std::size_t bytes, const char* of_what) {
  const std::size_t wires = resources.team.layout.slot_bytes / bytes;
  if (wires != 0) return wires;
  return Status::error(fmt::format("slots of {} bytes cannot hold {} of codec {}: {} bytes",
                                   resources.team.layout.slot_bytes, of_what, codec.name(), bytes));
}

/// Refuses sums that kernels do not make. What the record says of `own` is in the schedule.
void require_sum(const CollectiveRequest& request, const Codecs& codecs) {
  Sum sum = request.sum;
  sum.own.clear();
  const auto decodes_alike = [&](const Codec& codec) {
    const Fp32Values values = codec.info().fp32_values;
    return request.dtype == DType::fp32 || values == Fp32Values::carried ||
           values == Fp32Values::of_dtype;
  };
  if (decodes_alike(codecs.outer()) && decodes_alike(codecs.inner())) sum.decodes_to_fp32 = false;
  if (sum == Sum{}) return;
  const bool adds_codes = codecs.outer().info().adds_codes;
  if (sum == Sum{.add = Accumulate::fp32} && !adds_codes) return;
  fail("sum {}: kernels make no such sums with codec {}: allowed {}", name_of(request.sum),
       request.codec, adds_codes ? "is native" : "are native and fp32");
}

/// Whether sums of more than two values differ from those in the payload's dtype.
bool has_fp32_sums(const CollectiveRequest& request) {
  return request.sum.add == Accumulate::fp32 && request.dtype != DType::fp32;
}

/// One rank does what the schedule has for the other.
void swap_ranks(Schedule& schedule, Rank one, Rank other) {
  const auto swapped = [=](Rank& rank) { rank = rank == one ? other : rank == other ? one : rank; };
  for (Op& op : schedule.ops) {
    swapped(op.rank);
    swapped(op.peer);
  }
  for (Output& output : schedule.outputs) swapped(output.rank);
}

/// The schedule of the request, checked against team and codec. Throws InvalidInput.
Schedule schedule_of(const CollectiveRequest& request, const Codecs& codecs, int ranks) {
  for (const Codec* codec : {&codecs.outer(), &codecs.inner()}) {
    (void)codec->wire_bytes(request.dtype, request.elements);  // throws for other dtypes
  }
  if (!request.schedule) {
    Schedule made = make_schedule(request.algorithm, {.world_size = static_cast<Rank>(ranks),
                                                      .elements = request.elements,
                                                      .alignment = codecs.alignment(),
                                                      .options = request.options});
    if (request.root == 0) return made;
    if (made.collective != Collective::broadcast || request.root < 0 || request.root >= ranks) {
      fail("root {}: allowed are the ranks 0 to {}, of a broadcast", request.root, ranks - 1);
    }
    swap_ranks(made, 0, static_cast<Rank>(request.root));
    return made;
  }
  const Schedule& schedule = *request.schedule;
  if (schedule.world_size != static_cast<Rank>(ranks) || schedule.elements != request.elements) {
    fail("schedule '{}' is for {} ranks and {} elements per rank, not for {} and {}",
         schedule.algorithm, schedule.world_size, schedule.elements, ranks, request.elements);
  }
  require_correct(schedule);
  require_whole_blocks(schedule, codecs);
  if (const auto place = request.options.inner_place()) {
    Schedule placed = schedule;
    place_inner_codec(placed, *place);
    return placed;
  }
  if (request.options.inner_codec()) require_inner_codec(schedule);
  return schedule;
}

bool is_default(const Schedule& schedule) {
  return schedule == make_schedule(schedule.algorithm, {.world_size = schedule.world_size,
                                                        .elements = schedule.elements,
                                                        .alignment = schedule.alignment});
}

KernelCall facts_of(const Schedule& schedule, const Codec& codec, const CollectiveRequest& request,
                    const CodecTraits& traits, const TeamResources& resources) {
  KernelCall facts{.codec = traits, .ranks = resources.team.layout.ranks};
  const bool is_one_shot = schedule.algorithm == "one_shot";
  const SentinelSlots& slots =
      is_one_shot ? resources.team.one_shot_sentinel : resources.team.two_shot_sentinel;
  facts.has_sentinels = slots.count != 0;
  facts.has_lamport = resources.team.lamport.blocks != 0;
  facts.all_tiles_whole = true;
  for (const Chunk& chunk : schedule.chunks) {
    facts.tiles = std::max<std::size_t>(facts.tiles, ceil_divide(chunk.size(), kTile));
    facts.all_tiles_whole = facts.all_tiles_whole && chunk.size() % kTile == 0;
  }
  facts.blocks = most_blocks_of(resources, traits.tuning.resident_blocks);
  facts.lamport_blocks = most_blocks_of(resources, traits.lamport_blocks);
  facts.tile_bytes = tile_bytes_of(codec, request.dtype);
  return facts;
}

ProgramCall program_call(const CollectiveRequest& request, const Lowered& lowered,
                         const TeamResources& resources) {
  ProgramCall call{};
  call.seed = request.seed;
  call.fp32_sums = has_fp32_sums(request);
  call.team = resources.team;
  call.program = lowered.programs[static_cast<std::size_t>(resources.team.rank)];
  call.aligned = true;
  for (std::size_t i = 0; i < lowered.chunks.size(); ++i) {
    call.chunk[i] = {lowered.chunks[i].begin, lowered.chunks[i].end};
    call.aligned = call.aligned && call.chunk[i].begin % kPerThread == 0;
  }
  call.first_phase = 0;
  call.last_phase = call.program.phases - 1;
  return call;
}

/// Messages that a rank encodes in a phase, at most: the same on all ranks, which choose their kernels by it.
int most_messages(const std::vector<Program>& programs) {
  int most = 0;
  for (const Program& program : programs) {
    for (int phase = 0; phase < program.phases; ++phase) {
      int messages = 0;
      for (int step = program.first_send[phase]; step < program.first_step[phase + 1]; ++step) {
        messages += program.step[step].encodes ? 1 : 0;
      }
      most = std::max(most, messages);
    }
  }
  return most;
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
                                                const KernelCall& facts, const Tuning& tuning,
                                                const CodecChoice& choice,
                                                const TeamResources& resources) {
  const CodecPtr codec = find_codec(request.codec);
  Call call{};
  call.team = resources.team;
  for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
    call.chunk[i] = {schedule.chunks[i].begin, schedule.chunks[i].end};
  }
  call.chunk_tiles = static_cast<unsigned>(facts.tiles);
  call.fp32_sums = has_fp32_sums(request) && facts.ranks > 2;  // else all are of two values
  call.tile_bytes = static_cast<unsigned>(facts.tile_bytes);
  call.seed = request.seed;
  ARLAB_ASSIGN_OR_RETURN(
      const std::size_t per_slot,
      wires_in_a_slot(*codec, resources,
                      facts.tile_bytes * static_cast<unsigned>(rule.tiles_of_each),
                      rule.tiles_of_each == 1 ? "a tile" : "two tiles"));
  const Cut work = cut(facts.tiles, per_slot, facts.blocks, tuning, facts.tile_bytes);
  call.tiles_per_slot = work.tiles_per_slot;
  call.blocks = work.blocks;
  call.rounds = work.rounds;
  return Tuned{&rule, launch_of(rule), choice, call};
}

Result<PreparedCall::OnePass> PreparedCall::one_pass(const CollectiveRequest& request,
                                                     const Schedule& schedule,
                                                     const CodecChoice& choice,
                                                     const Tuning& tuning,
                                                     const TeamResources& resources) {
  const CodecPtr codec = find_codec(request.codec);
  const bool measures = needs_statistics(choice);
  const unsigned tile_bytes = tile_bytes_of(*codec, request.dtype);
  ARLAB_ASSIGN_OR_RETURN(const std::size_t wires,
                         wires_in_a_slot(*codec, resources, tile_bytes, "a tile"));
  ARLAB_ASSIGN_OR_RETURN(const std::vector<Lowered> programs,
                         lower(schedule, measures ? Passes::two : Passes::one, wires));
  OnePass result{choice, {}};
  for (const Lowered& lowered : programs) {
    ProgramCall call = program_call(request, lowered, resources);
    call.tile_bytes = tile_bytes;
    const Cut work = cut(ceil_divide(longest_chunk(lowered.chunks), kTile),
                         wires / static_cast<std::size_t>(lowered.wires),
                         most_blocks_of(resources, tuning.resident_blocks), tuning, tile_bytes);
    call.blocks = work.blocks;
    call.tiles_per_slot = work.tiles_per_slot;
    call.rounds = work.rounds;
    for (const int phase : lowered.encoding_phases)
      call.encoding_phases |= std::uint64_t{1} << phase;
    if (measures && (most_messages(lowered.programs) > kMaxMessages ||
                     (!lowered.kernels_are_whole && call.rounds > 1))) {
      return OnePass{choice, {}};
    }
    result.calls.push_back(call);
    result.in_place = result.in_place && lowered.in_place;
  }
  return result;
}

namespace {

/// How a kernel of a codec takes the chunks of a program through slots.
struct LaunchGeometry {
  unsigned tile_bytes = 0;     ///< on the wire
  std::size_t per_unit = 1;    ///< tiles that a block must have together
  std::size_t units = 0;       ///< of the longest chunk
  std::size_t most_units = 0;  ///< that a slot holds
  std::size_t most_blocks = 0;
  Tuning tuning = {.resident_blocks = 1};  ///< one pass
  bool needs_statistics = false;
  std::size_t groups = 0;  ///< measured, of the longest chunk

  void set(ProgramCall& call, int wires) const {
    const std::size_t fitting = most_units / static_cast<std::size_t>(wires);
    Cut work;
    if (needs_statistics) {
      const std::size_t blocks = std::min(most_blocks, units);
      work = {static_cast<int>(blocks), static_cast<int>(fitting * per_unit),
              static_cast<int>(ceil_divide(units, blocks * fitting))};
    } else {
      work = cut(units, fitting, most_blocks, tuning, tile_bytes);
    }
    call.tile_bytes = tile_bytes;
    call.tiles_per_unit = static_cast<int>(per_unit);
    call.blocks = work.blocks;
    call.tiles_per_slot = work.tiles_per_slot;
    call.rounds = work.rounds;
    call.groups = groups;
  }
};

Result<LaunchGeometry> geometry_of(const CodecChoice& choice, const Codec& codec,
                                   const CollectiveRequest& request, std::size_t elements,
                                   const TeamResources& resources) {
  LaunchGeometry geometry;
  geometry.needs_statistics = needs_statistics(choice);
  if (geometry.needs_statistics) {
    const MessageTiles tiles = message_tiles(choice, request.dtype, elements);
    geometry.tile_bytes = static_cast<unsigned>(tiles.bytes);
    geometry.per_unit = static_cast<std::size_t>(tiles.per_unit);
    geometry.units = ceil_divide(tiles.tiles, geometry.per_unit);
    geometry.groups = groups_of_message(choice, elements);
  } else {
    geometry.tuning = traits_of(choice, request.dtype).tuning;
    geometry.tile_bytes = tile_bytes_of(codec, request.dtype);
    geometry.units = ceil_divide(elements, kTile);
  }
  geometry.most_blocks = most_blocks_of(resources, geometry.tuning.resident_blocks);
  ARLAB_ASSIGN_OR_RETURN(geometry.most_units,
                         wires_in_a_slot(codec, resources, geometry.tile_bytes * geometry.per_unit,
                                         geometry.per_unit == 1 ? "a tile" : "a group"));
  return geometry;
}

/// Elements of a chunk that can be measured at once, of the longest one's.
Result<std::size_t> groups_at_once(const CodecChoice& choice, const Codec& codec,
                                   std::size_t longest, const TeamResources& resources) {
  const std::size_t statistics = kMaxMessages * statistics_of(choice, longest, 1);
  const std::size_t fit = resources.options.two_pass_groups / statistics;
  if (fit == 0) {
    return Status::error(fmt::format("{} two-pass groups are too few: codec {} takes {}",
                                     resources.options.two_pass_groups, codec.name(), statistics));
  }
  return groups_of_message(choice, longest) > fit ? fit * two_pass_block(choice) : longest;
}

}  // namespace

Result<PreparedCall::TwoPass> PreparedCall::two_pass(const CollectiveRequest& request,
                                                     const Schedule& schedule, const Codecs& codecs,
                                                     std::vector<CodecChoice> choices,
                                                     const TeamResources& resources) {
  const std::size_t longest = longest_chunk(schedule.chunks);
  TwoPass result{std::move(choices), {}, longest};
  // Messages of many groups are worked through in parts whose measurements fit.
  for (const CodecRole role : {CodecRole::outer, CodecRole::inner}) {
    const CodecChoice& choice = result.codecs[static_cast<unsigned>(role)];
    if (!needs_statistics(choice)) continue;
    ARLAB_ASSIGN_OR_RETURN(const std::size_t fit,
                           groups_at_once(choice, codecs.of(role), longest, resources));
    result.part_elements = std::min(result.part_elements, fit);
  }
  if (codecs.differ() && result.part_elements < longest) {
    result.part_elements -= result.part_elements % codecs.alignment();
    if (result.part_elements == 0) {
      return Status::error(
          fmt::format("codecs {} and {} cannot be measured in parts of chunks of {} elements",
                      codecs.outer().name(), codecs.inner().name(), longest));
    }
  }
  const std::size_t elements = std::min(longest, result.part_elements);
  std::vector<LaunchGeometry> geometries;
  std::size_t most_wires = SIZE_MAX;
  for (const CodecRole role : {CodecRole::outer, CodecRole::inner}) {
    ARLAB_ASSIGN_OR_RETURN(geometries.emplace_back(),
                           geometry_of(result.codecs[static_cast<unsigned>(role)], codecs.of(role),
                                       request, elements, resources));
    most_wires = std::min(most_wires, geometries.back().most_units);
  }
  ARLAB_ASSIGN_OR_RETURN(const std::vector<Lowered> programs,
                         lower(schedule, Passes::two, most_wires));
  for (const Lowered& lowered : programs) {
    ProgramCall call = program_call(request, lowered, resources);
    geometries.front().set(call, lowered.wires);
    if (!lowered.kernels_are_whole && codecs.differ()) {
      return Status::error(
          fmt::format("schedule {} has no kernels with two codecs, {} and {}: what is sent in a "
                      "step must all be of one, and be read before anything else is encoded",
                      schedule.algorithm, codecs.outer().name(), codecs.inner().name()));
    }
    if (!lowered.kernels_are_whole && call.rounds > 1) {
      const auto fitting =
          static_cast<std::size_t>(call.blocks) * static_cast<std::size_t>(call.tiles_per_slot);
      return Status::error(
          fmt::format("schedule {} passes wires on beside sums that are measured: with codec {}, "
                      "chunks of up to {} elements can, not of {}",
                      schedule.algorithm, request.codec, fitting * kTile, elements));
    }
    result.in_place = result.in_place && lowered.in_place;
    call.statistics = resources.statistics;
    std::vector<TwoPass::Kernel> kernels;
    if (call.program.first_send[0] != 0) {  // what has to be stored before it is measured
      call.last_phase = 0;
      kernels.push_back({call});
    }
    call.begins_with_sends = true;
    for (std::size_t i = 0; i < lowered.encoding_phases.size(); ++i) {
      call.first_phase = lowered.encoding_phases[i];
      call.last_phase = i + 1 < lowered.encoding_phases.size() ? lowered.encoding_phases[i + 1]
                                                               : call.program.phases - 1;
      const LaunchGeometry& of_codec = geometries[static_cast<unsigned>(lowered.codecs[i])];
      of_codec.set(call, lowered.wires);
      TwoPass::Kernel kernel{call, lowered.codecs[i]};
      kernel.statistics_pass.statistics = resources.statistics;
      kernel.statistics_pass.groups = call.groups;
      for (int step = call.program.first_send[call.first_phase];
           of_codec.needs_statistics && step < call.program.first_step[call.first_phase + 1] &&
           call.program.step[step].encodes;
           ++step) {
        const Operand operand = call.program.operand[call.program.step[step].first_operand];
        const bool is_input = operand.source() == Operand::input;
        if (kernel.statistics_pass.messages == kMaxMessages) {
          return Status::error(
              fmt::format("schedule {} encodes more than {} chunks at once on rank "
                          "{}: codec {} measures up to that many",
                          request.algorithm, kMaxMessages, resources.team.rank,
                          codecs.of(kernel.codec).name()));
        }
        kernel.statistics_pass.message[kernel.statistics_pass.messages++] =
            call.chunk[is_input ? call.program.step[step].chunk : operand.index()];
        kernel.of_input.push_back(is_input);
      }
      kernels.push_back(std::move(kernel));
    }
    result.programs.push_back(std::move(kernels));
  }
  return result;
}

Result<PreparedCall::OfCodes> PreparedCall::of_codes(const CollectiveRequest& request,
                                                     const Schedule& schedule, const Codecs& codecs,
                                                     const CodecChoice& choice,
                                                     const TeamResources& resources) {
  const SumsOfCodes& kernels = *format_kernels(choice)->sums_of_codes();
  const SharedIntegers format = kernels.format();
  const auto ranks = static_cast<std::uint32_t>(resources.team.layout.ranks);
  if (codecs.differ() || schedule.collective != Collective::all_reduce) {
    return Status::error(fmt::format(
        "codec {}: kernels add its codes in all-reduces, and with no other codec in these",
        request.codec));
  }
  if (format.limit(ranks) * static_cast<std::int32_t>(ranks) > format.largest_code()) {
    return Status::error(
        fmt::format("codec {}: sums of {} ranks may be beyond its largest code, {}", request.codec,
                    ranks, format.largest_code()));
  }
  const std::optional<Schedule> agreement = agreement_of(schedule, codecs);
  const std::size_t numbers = agreement ? agreement->elements : 0;
  const std::size_t most = resources.options.two_pass_groups * sizeof(Statistics) / sizeof(float);
  if (numbers > most) {
    return Status::error(fmt::format("{} two-pass groups are too few: codec {} takes {}",
                                     resources.options.two_pass_groups, request.codec,
                                     ceil_divide(numbers, sizeof(Statistics) / sizeof(float))));
  }
  OfCodes result{choice,
                 {},
                 {},
                 {},
                 request.elements,
                 reinterpret_cast<float*>(resources.statistics),
                 static_cast<int>(ranks)};
  ARLAB_ASSIGN_OR_RETURN(OnePass sums, one_pass(request, schedule, choice,
                                                format_kernels(choice)->tuning(), resources));
  result.sums = std::move(sums.calls);
  bool in_place = sums.in_place;
  if (agreement) {
    CollectiveRequest of_numbers = request;
    of_numbers.codec = name_of(DType::fp32);
    of_numbers.dtype = DType::fp32;
    ARLAB_ASSIGN_OR_RETURN(OnePass programs, one_pass(of_numbers, *agreement, choice,
                                                      kernels.tuning_of_agreement(), resources));
    result.algorithm = agreement->algorithm;
    result.agreement = std::move(programs.calls);
    in_place = in_place && programs.in_place;
  }
  if (!in_place) {
    return Status::error(fmt::format(
        "codec {}: its codes are added where the output will be, and schedule {} reads its input "
        "again after it has stored there",
        request.codec, schedule.algorithm));
  }
  return result;
}

Result<std::shared_ptr<const PreparedCall>> PreparedCall::prepare(const CollectiveRequest& asked,
                                                                  const TeamResources& of_team) {
  try {
    CollectiveRequest request = asked;
    request.codec = split_codecs(asked.codec, request.options);
    const CodecPtr codec = find_codec(request.codec);
    const CodecPtr inner = find_inner_codec(request.options, codec);
    const Codecs codecs(*codec, *inner);
    require_sum(request, codecs);
    Schedule schedule = schedule_of(request, codecs, of_team.team.layout.ranks);
    if (!codecs.differ()) {  // for lowering, roles are different codecs
      for (Op& op : schedule.ops) op.codec = CodecRole::outer;
    }
    TeamResources resources = of_team;
    resources.team.call = describe(request, schedule);
    const auto draws = [](const Codec& each) {  // shared scales need a context but no call number
      return each.info().uses_context && !each.info().shares_scales;
    };
    std::shared_ptr<PreparedCall> call(
        new PreparedCall(request.dtype, draws(*codec) || draws(*inner), resources.team.call.hash));
    const auto keep = [&](auto kernels) -> Result<std::shared_ptr<const PreparedCall>> {
      if (!kernels.ok()) return kernels.status();
      call->kernels_ = std::move(kernels.value());
      return std::shared_ptr<const PreparedCall>(std::move(call));
    };
    std::vector<CodecChoice> choices;
    for (const Codec* each : {codec.get(), inner.get()}) {
      ARLAB_ASSIGN_OR_RETURN(choices.emplace_back(), choose_codec(each->name()));
    }
    const CodecChoice& choice = choices.front();
    for (const CodecChoice& each : choices) {
      const FormatKernels* format = format_kernels(each);
      if (format != nullptr && format->sums_of_codes() != nullptr && adds(schedule.collective)) {
        return keep(of_codes(request, schedule, codecs, each, resources));
      }
    }
    const bool measures = needs_statistics(choice);
    // All blocks of a kernel that measures must be on the device at once, as with sentinels.
    if (!codecs.differ() && (!measures || resources.team.layout.sentinels)) {
      const CodecTraits traits = traits_of(choice, request.dtype);
      const KernelCall facts = facts_of(schedule, *codec, request, traits, resources);
      const KernelRule* rule = find_kernel_rule(schedule.algorithm, facts);
      if (rule != nullptr && is_default(schedule)) {
        return keep(tuned(request, schedule, *rule, facts, traits.tuning, choice, resources));
      }
      if (!measures) return keep(one_pass(request, schedule, choice, traits.tuning, resources));
      if (const auto tuning = measured_tuning(choice, request.dtype)) {
        Result<OnePass> programs = one_pass(request, schedule, choice, *tuning, resources);
        if (!programs.ok() || !programs.value().calls.empty()) return keep(std::move(programs));
      }
    }
    return keep(two_pass(request, schedule, codecs, std::move(choices), resources));
  } catch (const RaisedByCaller&) {
    throw;
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

std::string PreparedCall::failure() const {
  std::span<const CodecChoice> codecs;
  if (const auto* programs = std::get_if<OnePass>(&kernels_)) codecs = {&programs->codec, 1};
  if (const auto* two_pass = std::get_if<TwoPass>(&kernels_)) codecs = two_pass->codecs;
  for (const CodecChoice& codec : codecs) {
    const FormatKernels* kernels = format_kernels(codec);
    if (std::string failure = kernels == nullptr ? "" : kernels->failure(); !failure.empty()) {
      return failure;
    }
  }
  return {};
}

std::string PreparedCall::explanation() const {
  if (const auto* tuned = std::get_if<Tuned>(&kernels_)) {
    return fmt::format("{}: {} ({})", tuned->rule->kernel, tuned->rule->when,
                       tuned->rule->measured_in);
  }
  if (const auto* programs = std::get_if<OnePass>(&kernels_)) {
    return fmt::format("program: {}; {} phases, {} steps on this rank",
                       needs_statistics(programs->codec) ? "its kernel measures what it encodes"
                                                         : "no kernel of its own",
                       programs->calls.front().program.phases,
                       programs->calls.front().program.steps());
  }
  if (const auto* of_codes = std::get_if<OfCodes>(&kernels_)) {
    return fmt::format(
        "programs of codes: ranks agree on scales by {}, then codes are added; {} kernels",
        of_codes->algorithm, 3 + of_codes->agreement.size() + of_codes->sums.size());
  }
  const auto& two_pass = std::get<TwoPass>(kernels_);
  std::size_t kernels = 0;
  bool has_two_codecs = false;
  for (const TwoPass::Kernel& kernel : two_pass.programs.front()) {
    kernels += two_pass.measures(kernel) ? 2 : 1;
    has_two_codecs = has_two_codecs || kernel.codec == CodecRole::inner;
  }
  if (has_two_codecs)
    return fmt::format("program in kernels of one codec each; {} kernels", kernels);
  const std::size_t group = two_pass_block(two_pass.codecs.front());
  const bool has_unusual_groups = group != 0 && group != kWholeMessage && kTile % group != 0;
  return fmt::format(
      "program in two passes: the codec measures what it encodes{}; {} kernels",
      has_unusual_groups
          ? fmt::format(", in groups of {} elements, which do not divide a tile of {}", group,
                        kTile)
          : "",
      kernels);
}

namespace {

/// The part of each chunk that begins `begin` elements behind its start.
void take_part(const ElementRange* chunks, std::size_t count, std::size_t begin,
               std::size_t elements, ElementRange* parts) {
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = {std::min(chunks[i].begin + begin, chunks[i].end),
                std::min(chunks[i].begin + begin + elements, chunks[i].end)};
  }
}

}  // namespace

Status PreparedCall::launch_all_kinds() const {
  char tensors[2] = {};
  ARLAB_RETURN_IF_ERROR(launch(&tensors[0], &tensors[1], nullptr));
  return is_counted_ ? started(launch_count_call(nullptr, nullptr)) : Status();
}

#if defined(ARLAB_KERNELS_ON_DEMAND)
Result<std::vector<WantedKernel>> PreparedCall::kernels() const {
  const NotesKernels notes;
  ARLAB_RETURN_IF_ERROR(launch_all_kinds());
  return notes.kernels();
}
#else
Status PreparedCall::load() const {
  if (std::holds_alternative<Tuned>(kernels_) && !is_counted_) return {};  // one kernel
  const LoadsKernels loads;
  return launch_all_kinds();
}
#endif

Status PreparedCall::launch_of_codes(const OfCodes& of, const void* input, void* output,
                                     hipStream_t stream) const {
  const SumsOfCodes& kernels = *format_kernels(of.codec)->sums_of_codes();
  ARLAB_RETURN_IF_ERROR(started(kernels.measure(dtype_, input, of.elements, of.largest, stream)));
  for (ProgramCall call : of.agreement) {
    call.input = call.output = of.largest;
    ARLAB_RETURN_IF_ERROR(started(kernels.agree(call, stream)));
  }
  ARLAB_RETURN_IF_ERROR(started(
      kernels.encode_tensor(dtype_, input, of.elements, of.largest, of.ranks, output, stream)));
  for (ProgramCall call : of.sums) {
    call.input = call.output = output;
    call.aligned = call.aligned && is_aligned(output, output);
    ARLAB_RETURN_IF_ERROR(started(kernels.add(call, dtype_, stream)));
  }
  return started(kernels.decode_tensor(dtype_, output, of.elements, of.largest, of.ranks, stream));
}

Status PreparedCall::launch(const void* input, void* output, hipStream_t stream) const {
  const auto* programs = std::get_if<OnePass>(&kernels_);
  const auto* two_pass = std::get_if<TwoPass>(&kernels_);
  const bool in_place =
      (programs == nullptr || programs->in_place) && (two_pass == nullptr || two_pass->in_place);
  if (input == output && !in_place) {
    return Status::error(
        "this schedule reads its input again after it has stored there: the output must be another "
        "tensor");
  }
  if (const auto* of_codes = std::get_if<OfCodes>(&kernels_)) {
    return launch_of_codes(*of_codes, input, output, stream);
  }
  if (const auto* tuned = std::get_if<Tuned>(&kernels_)) {
    Call call = tuned->call;
    call.input = input;
    call.output = output;
    call.aligned = is_aligned(input, output);
    return started(tuned->launch(call, tuned->codec, dtype_, stream));
  }
  if (programs != nullptr) {
    for (ProgramCall call : programs->calls) {
      call.input = input;
      call.output = output;
      call.aligned = call.aligned && is_aligned(input, output);
      const auto launch =
          needs_statistics(programs->codec) ? launch_measured_program : launch_program;
      ARLAB_RETURN_IF_ERROR(started(launch(call, programs->codec, dtype_, stream)));
    }
    return {};
  }
  for (const std::vector<TwoPass::Kernel>& program : two_pass->programs) {
    std::size_t longest = 0;
    for (const ElementRange& chunk : program.front().call.chunk) {
      longest = std::max(longest, chunk.size());
    }
    for (std::size_t begin = 0; begin < longest; begin += two_pass->part_elements) {
      for (const TwoPass::Kernel& kernel : program) {
        ProgramCall call = kernel.call;
        call.input = input;
        call.output = output;
        take_part(kernel.call.chunk, kMaxChunks, begin, two_pass->part_elements, call.chunk);
        Status status;
        const CodecChoice& codec = two_pass->codecs[static_cast<unsigned>(kernel.codec)];
        if (needs_statistics(codec)) {
          StatisticsPass statistics_pass = kernel.statistics_pass;
          take_part(kernel.statistics_pass.message, kMaxMessages, begin, two_pass->part_elements,
                    statistics_pass.message);
          for (std::size_t i = 0; i < kernel.of_input.size(); ++i) {
            statistics_pass.tensor[i] = kernel.of_input[i] ? input : output;
          }
          status = started(launch_statistics(statistics_pass, codec, dtype_, stream));
        } else {
          call.aligned = call.aligned && is_aligned(input, output);
        }
        if (status.ok()) status = started(launch_program(call, codec, dtype_, stream));
        if (!status.ok()) return status;
      }
    }
  }
  return {};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
