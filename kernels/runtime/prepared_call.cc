#include "kernels/runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/collectives/staging_buffer.h"
#include "kernels/runtime/hip_status.h"
#include "kernels/runtime/platforms.h"
#include "kernels/runtime/prepared_tail.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/tailed.h"
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
CallDescription describe(const ResolvedCollective& resolved) {
  const CollectiveRequest& request = resolved.request;
  const Schedule& schedule = resolved.schedule;
  const std::string codecs = resolved.codecs_and_sum();
  CallDescription call{};
  request.algorithm.copy(call.algorithm, sizeof(call.algorithm) - 1);
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
  if (request.tail) rest.mix(name_of(*request.tail) + (request.tail_at_owners ? ", owners" : ""));
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
  return Status::refusal(fmt::format("slots of {} bytes cannot hold {} of codec {}: {} bytes",
                                     resources.team.layout.slot_bytes, of_what, codec.name(),
                                     bytes));
}

/// Refuses sums that kernels do not make. What the record says of `own` is in the schedule.
void require_sum(const ResolvedCollective& call) {
  Sum sum = call.request.sum;
  sum.own.clear();
  const auto decodes_alike = [&](const Codec& codec) {
    const Fp32Values values = codec.info().fp32_values;
    return call.request.dtype == DType::fp32 || values == Fp32Values::carried ||
           values == Fp32Values::of_dtype;
  };
  if (decodes_alike(*call.outer) && decodes_alike(*call.inner)) sum.decodes_to_fp32 = false;
  if (sum == Sum{}) return;
  const bool adds_codes = call.outer->info().adds_codes;
  if (sum == Sum{.add = Accumulate::fp32} && !adds_codes) return;
  fail("sum {}: kernels make no such sums with codec {}: allowed {}", name_of(call.request.sum),
       call.request.codec, adds_codes ? "is native" : "are native and fp32");
}

/// Whether sums of more than two values differ from those in the payload's dtype.
bool has_fp32_sums(const Sum& sum, DType dtype) {
  return sum.add == Accumulate::fp32 && dtype != DType::fp32;
}

/// Whether the schedule is what its algorithm writes without options.
bool is_default(const CollectiveRequest& request, const Schedule& schedule) {
  if (request.schedule) {
    return schedule == make_schedule(schedule.algorithm, {.world_size = schedule.world_size,
                                                          .elements = schedule.elements,
                                                          .alignment = schedule.alignment});
  }
  const std::vector<Field>& options = find_algorithm(request.algorithm).options;
  return request.root == 0 && std::ranges::all_of(options, [&](const Field& option) {
           return !request.options.has(option.name) ||
                  request.options.get(option.name) == option.otherwise;
         });
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

ProgramCall program_call(const CollectiveRequest& request, DType dtype, const Lowered& lowered,
                         const TeamResources& resources) {
  ProgramCall call{};
  call.seed = request.seed;
  call.fp32_sums = has_fp32_sums(request.sum, dtype);
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

/// How a kernel of a codec takes the chunks of a program through slots.
struct LaunchGeometry {
  unsigned tile_bytes = 0;     ///< on the wire
  std::size_t per_unit = 1;    ///< tiles that a block must have together
  std::size_t units = 0;       ///< the longest chunk's
  std::size_t most_units = 0;  ///< most of a slot
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
    return Status::refusal(fmt::format("{} two-pass groups are too few: codec {} takes {}",
                                       resources.options.two_pass_groups, codec.name(),
                                       statistics));
  }
  return groups_of_message(choice, longest) > fit ? fit * two_pass_block(choice) : longest;
}

bool are_aligned(const Tensors& tensors) {
  return std::ranges::all_of(
      std::array<const void*, 4>{tensors.input, tensors.output, tensors.tail.residual,
                                 tensors.tail.residual_out},
      [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; });
}

template <class KernelCall>
KernelCall on_tensors(KernelCall call, const Tensors& tensors, bool aligned) {
  call.input = tensors.input;
  call.output = tensors.output;
  call.aligned = aligned && are_aligned(tensors);
  return call;
}

using RunProgram = std::function<hipError_t(const ProgramCall&, hipStream_t)>;
Launch program_launch(const ProgramCall& call, RunProgram run) {
  return [call, run = std::move(run)](const Tensors& tensors, hipStream_t stream) {
    return run(on_tensors(call, tensors, call.aligned), stream);
  };
}
/// From `tensor` to `tensor`; null: the call's output.
Launch in_place(void* tensor, Launch launch) {
  return [tensor, launch = std::move(launch)](const Tensors& tensors, hipStream_t stream) {
    void* const both = tensor == nullptr ? tensors.output : tensor;
    return launch({both, both}, stream);
  };
}

/// Programs that one kernel runs each: of a codec that encodes tile by tile, or whose messages the kernel measures.
struct Programs {
  std::vector<ProgramCall> calls;  ///< none: the kernel cannot measure what the schedule encodes
  bool in_place = true;
};

/// A program's kernel of one codec, with what measures the messages that its first phase encodes.
struct TwoPassKernel {
  ProgramCall call;
  CodecRole codec = CodecRole::outer;
  StatisticsPass statistics_pass = {};
  std::vector<bool> of_input = {};  ///< measures the input; else the output
};

/// The part of each chunk that begins `begin` elements behind its start.
template <std::size_t kCount>
void take_part(ElementRange (&chunks)[kCount], std::size_t begin, std::size_t elements) {
  for (ElementRange& chunk : chunks) {
    chunk = {std::min(chunk.begin + begin, chunk.end),
             std::min(chunk.begin + begin + elements, chunk.end)};
  }
}

/// Puts the launches of a call together.
class Preparation {
 public:
  Preparation(const CollectiveRequest& request, const Schedule& schedule, const Codecs& codecs,
              std::vector<CodecChoice> choices, const TeamResources& resources)
      : request_(request), schedule_(schedule), codecs_(codecs), resources_(resources) {
    result_.codecs = std::move(choices);
    if (request.tail) tail_.emplace(request, schedule);
  }

  Result<CallLaunches> launches() {
    if (request_.tail_at_owners) {
      ARLAB_RETURN_IF_ERROR(add_at_owners());
      return std::move(result_);
    }
    ARLAB_RETURN_IF_ERROR(add_all());
    if (tail_) ARLAB_RETURN_IF_ERROR(tail_->add_behind(is_fused_, resources_, result_));
    return std::move(result_);
  }

 private:
  const CodecChoice& choice(CodecRole role) const {
    return result_.codecs[static_cast<unsigned>(role)];
  }

  Status add_all() {
    for (const CodecChoice& each : result_.codecs) {
      const FormatKernels* format = format_kernels(each);
      const SumsOfCodes* sums = format == nullptr ? nullptr : format->sums_of_codes();
      if (sums != nullptr && adds(schedule_.collective)) {
        return add_sums_of_codes(sums, format->tuning());
      }
    }
    const CodecChoice& codec = choice(CodecRole::outer);
    const bool measures = needs_statistics(codec);
    // All blocks of a kernel that measures must be on the device at once, as with sentinels.
    if (codecs_.differ() ||
        (measures && !has_given_scale(codec) && !resources_.team.layout.sentinels)) {
      return add_two_pass();
    }
    const CodecTraits traits = traits_of(codec, request_.dtype);
    const KernelCall facts = facts_of(schedule_, codecs_.outer(), request_, traits, resources_);
    const KernelRule* rule = find_kernel_rule(schedule_.algorithm, facts);
    if (rule != nullptr && is_default(request_, schedule_)) {
      return add_tuned(*rule, facts, traits.tuning);
    }
    if (!measures) return add_programs(traits.tuning, launch_program, "no kernel of its own");
    if (const auto tuning = measured_tuning(codec, request_.dtype)) {
      ARLAB_RETURN_IF_ERROR(
          add_programs(*tuning, launch_measured_program, "its kernel measures what it encodes"));
    }
    return result_.launches.empty() ? add_two_pass() : Status();
  }

  Status add_tuned(const KernelRule& rule, const KernelCall& facts, const Tuning& tuning) {
    Call call{};
    call.team = resources_.team;
    for (std::size_t i = 0; i < schedule_.chunks.size(); ++i) {
      call.chunk[i] = {schedule_.chunks[i].begin, schedule_.chunks[i].end};
    }
    call.chunk_tiles = static_cast<unsigned>(facts.tiles);
    // Else all are of two values.
    call.fp32_sums = has_fp32_sums(request_.sum, request_.dtype) && facts.ranks > 2;
    call.tile_bytes = static_cast<unsigned>(facts.tile_bytes);
    call.seed = request_.seed;
    ARLAB_ASSIGN_OR_RETURN(
        const std::size_t per_slot,
        wires_in_a_slot(codecs_.outer(), resources_,
                        facts.tile_bytes * static_cast<unsigned>(rule.tiles_of_each),
                        rule.tiles_of_each == 1 ? "a tile" : "two tiles"));
    const Cut work = cut(facts.tiles, per_slot, facts.blocks, tuning, facts.tile_bytes);
    call.tiles_per_slot = work.tiles_per_slot;
    call.blocks = work.blocks;
    call.rounds = work.rounds;
    result_.explanation = fmt::format("{}: {} ({})", rule.kernel, rule.when, rule.measured_in);
    if (tail_ && add_fused(rule, call)) return {};
    result_.launches.push_back(
        [call, &form = form_of(rule), codec = choice(CodecRole::outer), dtype = request_.dtype](
            const Tensors& tensors, hipStream_t stream) {
          return launch_collective(form, on_tensors(call, tensors, true), codec, dtype, stream);
        });
    if (has_given_scale(choice(CodecRole::outer))) add_spread_nans(call);
    return {};
  }

  /// Whether the tail is in the collective's kernel.
  bool add_fused(const KernelRule& rule, const Call& call) {
    const CodecChoice& codec = choice(CodecRole::outer);
    const std::string why_not = tail_->why_not_fused(rule.kernel, resources_, codec);
    is_fused_ = why_not.empty();
    result_.explanation +=
        is_fused_ ? ", with the tail in it" : ", without the tail in it: " + why_not;
    if (!is_fused_) return false;
    result_.launches.push_back(tail_->fused(
        [call](const Tensors& tensors) { return on_tensors(call, tensors, true); }, codec));
    return true;
  }

  void add_spread_nans(const Call& call) {
    result_.explanation += ", then a NaN is spread over its block of 4096 elements";
    result_.launches.push_back([call, chunks = schedule_.chunks.size(), dtype = request_.dtype](
                                   const Tensors& tensors, hipStream_t stream) {
      return launch_spread_nans(on_tensors(call, tensors, true), chunks, dtype, stream);
    });
  }

  Result<Programs> programs(const Schedule& schedule, const Codec& codec, DType dtype,
                            const Tuning& tuning, Passes passes) const {
    LaunchGeometry geometry{.tile_bytes = tile_bytes_of(codec, dtype),
                            .most_blocks = most_blocks_of(resources_, tuning.resident_blocks),
                            .tuning = tuning};
    ARLAB_ASSIGN_OR_RETURN(geometry.most_units,
                           wires_in_a_slot(codec, resources_, geometry.tile_bytes, "a tile"));
    ARLAB_ASSIGN_OR_RETURN(const std::vector<Lowered> lowered_parts,
                           lower(schedule, passes, geometry.most_units));
    Programs result;
    for (const Lowered& lowered : lowered_parts) {
      ProgramCall call = program_call(request_, dtype, lowered, resources_);
      geometry.units = ceil_divide(longest_chunk(lowered.chunks), kTile);
      geometry.set(call, lowered.wires);
      for (const int phase : lowered.encoding_phases)
        call.encoding_phases |= std::uint64_t{1} << phase;
      if (passes == Passes::two && (most_messages(lowered.programs) > kMaxMessages ||
                                    (!lowered.kernels_are_whole && call.rounds > 1))) {
        return Programs();
      }
      result.calls.push_back(call);
      result.in_place = result.in_place && lowered.in_place;
    }
    return result;
  }

  using LaunchProgram = decltype(&launch_program);
  Status add_programs(const Tuning& tuning, LaunchProgram launch, const char* why) {
    const CodecChoice& codec = choice(CodecRole::outer);
    ARLAB_ASSIGN_OR_RETURN(const Programs made,
                           programs(schedule_, codecs_.outer(), request_.dtype, tuning,
                                    needs_statistics(codec) ? Passes::two : Passes::one));
    if (made.calls.empty()) return {};
    for (const ProgramCall& call : made.calls) {
      add(call,
          [launch, codec, dtype = request_.dtype](const ProgramCall& now, hipStream_t stream) {
            return launch(now, codec, dtype, stream);
          });
    }
    result_.in_place = made.in_place;
    const Program& program = made.calls.front().program;
    result_.explanation = fmt::format("program: {}; {} phases, {} steps on this rank", why,
                                      program.phases, program.steps());
    return {};
  }
  void add(const ProgramCall& call, RunProgram run) {
    result_.launches.push_back(program_launch(call, std::move(run)));
  }

  // ---- a tail at owners of rows, between two programs: the first ends with their sums, the second sends what comes out

  Status add_at_owners() {
    if (!tail_) return Status::refusal("no tail: owners of rows have nothing to make");
    const auto [sums, rows] =
        cut_at_owners(with_tail(schedule_, *request_.tail, {.at_owner = true}));
    ARLAB_RETURN_IF_ERROR(add_half(sums, nullptr));
    for (const Output& own : sums.outputs) {
      const bool is_own = own.rank == static_cast<Rank>(resources_.team.rank);
      tail_->add_rows_of(is_own ? sums.chunks[own.chunk] : Chunk(), result_);
    }
    result_.explanation += "; then owners make their rows";
    return add_half(rows, find_output_codec(*request_.tail));
  }

  /// The codec of all that a half encodes: `output`, or the one that its ops name.
  Result<CodecPtr> codec_of_half(const Schedule& half, CodecPtr output, bool is_second) const {
    std::optional<CodecRole> role;
    bool has_one = true;
    for (const Op& op : half.ops) {
      if (op.kind != OpKind::encode) continue;
      has_one = has_one && op.codec == role.value_or(op.codec);
      role = op.codec;
    }
    const Codec& named = codecs_.of(output ? CodecRole::outer : role.value_or(CodecRole::outer));
    CodecPtr codec = output ? std::move(output) : find_codec(named.name());
    const CodecInfo& info = codec->info();
    if (has_one && !info.adds_codes && !(is_second && info.uses_context)) return codec;
    return Status::refusal(fmt::format(
        "a tail at owners: kernels have none with codec {} there: allowed are codecs that draw no "
        "random numbers and share no scales, one before the rows and one behind",
        info.name));
  }

  /// Programs of a codec that measures nothing, or in its own kernel, whose blocks must all be on the device at once.
  Result<Programs> programs_of_half(const Schedule& half, const Codec& codec,
                                    const CodecChoice& choice) const {
    const bool measures = needs_statistics(choice);
    std::optional<Tuning> tuning = measured_tuning(choice, request_.dtype);
    if (!resources_.team.layout.sentinels && !has_given_scale(choice)) tuning.reset();
    if (!measures) tuning = traits_of(choice, request_.dtype).tuning;
    Programs made;
    if (tuning) {
      Schedule of_one = half;
      for (Op& op : of_one.ops) op.codec = CodecRole::outer;
      ARLAB_ASSIGN_OR_RETURN(made, programs(of_one, codec, request_.dtype, *tuning,
                                            measures ? Passes::two : Passes::one));
    }
    if (!made.calls.empty()) return made;
    return Status::refusal(
        fmt::format("a tail at owners: codec {} measures in kernels of its own, and has none there",
                    codec.name()));
  }

  /// The second half has its input where the output will be.
  Status add_half(const Schedule& half, CodecPtr output) {
    const bool is_second = !result_.launches.empty();
    ARLAB_ASSIGN_OR_RETURN(const CodecPtr codec, codec_of_half(half, std::move(output), is_second));
    ARLAB_ASSIGN_OR_RETURN(const CodecChoice choice, choose_codec(codec));
    ARLAB_ASSIGN_OR_RETURN(const Programs made, programs_of_half(half, *codec, choice));
    if (is_second && !made.in_place) {
      return Status::refusal(
          fmt::format("schedule {}: owners of rows read them again", schedule_.algorithm));
    }
    result_.codecs.push_back(choice);
    const LaunchProgram launch =
        needs_statistics(choice) ? launch_measured_program : launch_program;
    for (const ProgramCall& call : made.calls) {
      const Launch one = program_launch(call, [launch, choice, dtype = request_.dtype](
                                                  const ProgramCall& now, hipStream_t stream) {
        return launch(now, choice, dtype, stream);
      });
      result_.launches.push_back(is_second ? in_place(nullptr, one) : one);
    }
    if (!is_second) result_.in_place = made.in_place;
    result_.explanation +=
        fmt::format("{}program of {}", is_second ? "; then " : "", codec->name());
    return {};
  }

  // ---- programs in kernels of one codec each; where it measures what it encodes, with kernels in between that do

  /// Elements of a chunk that are worked through at a time: messages of many groups in parts whose measurements fit.
  Result<std::size_t> elements_of_a_part(std::size_t longest) const {
    std::size_t elements = longest;
    for (const CodecRole role : {CodecRole::outer, CodecRole::inner}) {
      if (!needs_statistics(choice(role))) continue;
      ARLAB_ASSIGN_OR_RETURN(const std::size_t fit,
                             groups_at_once(choice(role), codecs_.of(role), longest, resources_));
      elements = std::min(elements, fit);
    }
    if (codecs_.differ() && elements < longest) {
      elements -= elements % codecs_.alignment();
      if (elements == 0) {
        return Status::refusal(
            fmt::format("codecs {} and {} cannot be measured in parts of chunks of {} elements",
                        codecs_.outer().name(), codecs_.inner().name(), longest));
      }
    }
    return elements;
  }

  Status add_two_pass() {
    const std::size_t longest = longest_chunk(schedule_.chunks);
    ARLAB_ASSIGN_OR_RETURN(const std::size_t part, elements_of_a_part(longest));
    std::vector<LaunchGeometry> geometries;
    std::size_t most_wires = SIZE_MAX;
    for (const CodecRole role : {CodecRole::outer, CodecRole::inner}) {
      ARLAB_ASSIGN_OR_RETURN(geometries.emplace_back(),
                             geometry_of(choice(role), codecs_.of(role), request_,
                                         std::min(longest, part), resources_));
      most_wires = std::min(most_wires, geometries.back().most_units);
    }
    add_measuring(std::min(longest, part));
    ARLAB_ASSIGN_OR_RETURN(const std::vector<Lowered> programs,
                           lower(schedule_, Passes::two, most_wires));
    for (const Lowered& lowered : programs) {
      ARLAB_ASSIGN_OR_RETURN(const std::vector<TwoPassKernel> kernels,
                             kernels_of(lowered, geometries, std::min(longest, part)));
      if (&lowered == &programs.front()) result_.explanation = explained(kernels);
      const std::size_t elements = longest_chunk(lowered.chunks);
      for (std::size_t begin = 0; begin < elements; begin += part) {
        for (const TwoPassKernel& kernel : kernels) add_part(kernel, begin, part);
      }
      result_.in_place = result_.in_place && lowered.in_place;
    }
    return {};
  }

  /// A rank that encodes nothing measures nothing, but in one process it loads for all.
  void add_measuring(std::size_t elements) {
    for (const CodecChoice& codec : result_.codecs) {
      if (!needs_statistics(codec)) continue;
      StatisticsPass pass;
      pass.messages = 1;
      pass.message[0] = {0, elements};
      pass.groups = groups_of_message(codec, elements);
      result_.of_other_ranks.push_back(
          [pass, codec, dtype = request_.dtype](const Tensors&, hipStream_t stream) {
            return launch_statistics(pass, codec, dtype, stream);
          });
    }
  }

  Result<std::vector<TwoPassKernel>> kernels_of(const Lowered& lowered,
                                                const std::vector<LaunchGeometry>& geometries,
                                                std::size_t elements) const {
    ProgramCall call = program_call(request_, request_.dtype, lowered, resources_);
    geometries.front().set(call, lowered.wires);
    ARLAB_RETURN_IF_ERROR(require_whole(lowered, call, elements));
    call.statistics = resources_.statistics;
    std::vector<TwoPassKernel> kernels;
    if (call.program.first_send[0] != 0) {  // stored before it is measured
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
      kernels.push_back({call, lowered.codecs[i]});
      if (of_codec.needs_statistics) ARLAB_RETURN_IF_ERROR(measure_first_phase(kernels.back()));
    }
    return kernels;
  }

  Status require_whole(const Lowered& lowered, const ProgramCall& call,
                       std::size_t elements) const {
    if (lowered.kernels_are_whole) return {};
    if (codecs_.differ()) {
      return Status::refusal(
          fmt::format("schedule {} has no kernels with two codecs, {} and {}: what is sent in a "
                      "step must all be of one, and be read before anything else is encoded",
                      schedule_.algorithm, codecs_.outer().name(), codecs_.inner().name()));
    }
    if (call.rounds == 1) return {};
    const auto fitting =
        static_cast<std::size_t>(call.blocks) * static_cast<std::size_t>(call.tiles_per_slot);
    return Status::refusal(
        fmt::format("schedule {} passes wires on beside sums that are measured: with codec {}, "
                    "chunks of up to {} elements can, not of {}",
                    schedule_.algorithm, request_.codec, fitting * kTile, elements));
  }

  Status measure_first_phase(TwoPassKernel& kernel) const {
    const ProgramCall& call = kernel.call;
    StatisticsPass& pass = kernel.statistics_pass;
    pass.statistics = resources_.statistics;
    pass.groups = call.groups;
    for (int step = call.program.first_send[call.first_phase];
         step < call.program.first_step[call.first_phase + 1] && call.program.step[step].encodes;
         ++step) {
      if (pass.messages == kMaxMessages) {
        return Status::refusal(fmt::format(
            "schedule {} encodes more than {} chunks at once on rank {}: codec {} measures up to "
            "that many",
            request_.algorithm, kMaxMessages, resources_.team.rank,
            codecs_.of(kernel.codec).name()));
      }
      const Operand operand = call.program.operand[call.program.step[step].first_operand];
      const bool is_input = operand.source() == Operand::input;
      pass.message[pass.messages++] =
          call.chunk[is_input ? call.program.step[step].chunk : operand.index()];
      kernel.of_input.push_back(is_input);
    }
    return {};
  }

  void add_part(TwoPassKernel kernel, std::size_t begin, std::size_t elements) {
    const CodecChoice& codec = choice(kernel.codec);
    take_part(kernel.call.chunk, begin, elements);
    if (needs_statistics(codec)) {
      take_part(kernel.statistics_pass.message, begin, elements);
      result_.launches.push_back(
          [pass = kernel.statistics_pass, of_input = kernel.of_input, codec,
           dtype = request_.dtype](const Tensors& tensors, hipStream_t stream) {
            StatisticsPass now = pass;
            for (std::size_t i = 0; i < of_input.size(); ++i) {
              now.tensor[i] = of_input[i] ? tensors.input : tensors.output;
            }
            return launch_statistics(now, codec, dtype, stream);
          });
    }
    add(kernel.call, [codec, dtype = request_.dtype](const ProgramCall& now, hipStream_t stream) {
      return launch_program(now, codec, dtype, stream);
    });
  }

  std::string explained(const std::vector<TwoPassKernel>& kernels) const {
    std::size_t launches = kernels.size();
    bool has_two_codecs = false;
    for (const TwoPassKernel& kernel : kernels) {
      if (needs_statistics(choice(kernel.codec))) ++launches;
      has_two_codecs = has_two_codecs || kernel.codec == CodecRole::inner;
    }
    if (has_two_codecs)
      return fmt::format("program in kernels of one codec each; {} kernels", launches);
    return fmt::format("program in two passes: the codec measures what it encodes{}; {} kernels",
                       why_not_one_pass(two_pass_block(choice(CodecRole::outer))), launches);
  }

  static std::string why_not_one_pass(std::size_t group) {
    if (group == 0 || group == kWholeMessage) return "";
    if (kTile % group != 0) {
      return fmt::format(", in groups of {} elements, which do not divide a tile of {}", group,
                         kTile);
    }
    return fmt::format(", in groups of {} elements, which are more than the 256 of a wave", group);
  }

  // ---- an all-reduce whose sums are sums of codes (codecs/shared_scale.h); all programs work in place

  Status require_sums_of_codes(const SharedIntegers& format) const {
    const bool is_outer = codecs_.outer().info().adds_codes;
    const std::string& codec = (is_outer ? codecs_.outer() : codecs_.inner()).name();
    const auto ranks = static_cast<std::uint32_t>(resources_.team.layout.ranks);
    if (codecs_.differ() || schedule_.collective != Collective::all_reduce) {
      return Status::refusal(fmt::format(
          "codec {}: kernels add its codes in all-reduces, and with no other codec in these",
          codec));
    }
    if (format.limit(ranks) * static_cast<std::int32_t>(ranks) <= format.largest_code()) return {};
    return Status::refusal(
        fmt::format("codec {}: sums of {} ranks may be beyond its largest code, {}: allowed are "
                    "fewer (--ranks)",
                    codec, ranks, format.largest_code()));
  }

  /// Programs of the numbers by which ranks agree on scales, where they do.
  Result<Programs> programs_of(const std::optional<Schedule>& agreement,
                               const Tuning& tuning) const {
    if (!agreement) return Programs();
    const std::size_t most =
        resources_.options.two_pass_groups * sizeof(Statistics) / sizeof(float);
    if (agreement->elements > most) {
      return Status::refusal(fmt::format(
          "{} two-pass groups are too few: codec {} takes {}", resources_.options.two_pass_groups,
          request_.codec, ceil_divide(agreement->elements, sizeof(Statistics) / sizeof(float))));
    }
    return programs(*agreement, *find_codec(name_of(DType::fp32)), DType::fp32, tuning,
                    Passes::one);
  }

  Status add_sums_of_codes(const SumsOfCodes* kernels, const Tuning& tuning) {
    ARLAB_RETURN_IF_ERROR(require_sums_of_codes(kernels->format()));
    const std::optional<Schedule> agreement = agreement_of(schedule_, codecs_);
    ARLAB_ASSIGN_OR_RETURN(const Programs agreed,
                           programs_of(agreement, kernels->tuning_of_agreement()));
    ARLAB_ASSIGN_OR_RETURN(const Programs sums, programs(schedule_, codecs_.outer(), request_.dtype,
                                                         tuning, Passes::one));
    if (!sums.in_place || !agreed.in_place) {
      return Status::refusal(fmt::format(
          "codec {}: its codes are added where the output will be, and schedule {} reads its input "
          "again after it has stored there",
          request_.codec, schedule_.algorithm));
    }
    auto* const largest = reinterpret_cast<float*>(resources_.statistics);  // every group's
    const DType dtype = request_.dtype;
    const std::size_t elements = request_.elements;
    const int ranks = resources_.team.layout.ranks;
    const auto add_launch = [&](Launch launch) { result_.launches.push_back(std::move(launch)); };
    add_launch([=](const Tensors& tensors, hipStream_t stream) {
      return kernels->measure(dtype, tensors.input, elements, largest, stream);
    });
    for (const ProgramCall& call : agreed.calls) {
      add_launch(in_place(largest, program_launch(call, [=](const auto& now, hipStream_t stream) {
                            return kernels->agree(now, stream);
                          })));
    }
    add_launch([=](const Tensors& tensors, hipStream_t stream) {
      return kernels->encode_tensor(dtype, tensors.input, elements, largest, ranks, tensors.output,
                                    stream);
    });
    for (const ProgramCall& call : sums.calls) {
      add_launch(in_place(nullptr, program_launch(call, [=](const auto& now, hipStream_t stream) {
                            return kernels->add(now, dtype, stream);
                          })));
    }
    add_launch([=](const Tensors& tensors, hipStream_t stream) {
      return kernels->decode_tensor(dtype, tensors.output, elements, largest, ranks, stream);
    });
    result_.explanation = fmt::format(
        "programs of codes: ranks agree on scales by {}, then codes are added; {} kernels",
        agreement ? agreement->algorithm : "", result_.launches.size());
    return {};
  }

  const CollectiveRequest& request_;
  const Schedule& schedule_;
  const Codecs& codecs_;
  const TeamResources& resources_;
  std::optional<PreparedTail> tail_;
  bool is_fused_ = false;
  CallLaunches result_;
};

}  // namespace

Result<std::shared_ptr<const PreparedCall>> PreparedCall::prepare(const CollectiveRequest& asked,
                                                                  const TeamResources& of_team) {
  try {
    const Team& team = of_team.team;
    ResolvedCollective call = resolve(asked, static_cast<Rank>(team.layout.ranks));
    const Codecs codecs = call.codecs();
    require_sum(call);
    if (!codecs.differ()) {  // for lowering, roles are different codecs
      for (Op& op : call.schedule.ops) op.codec = CodecRole::outer;
    }
    TeamResources resources = of_team;
    resources.team.call = describe(call);
    std::vector<CodecChoice> choices;
    for (const CodecPtr& each : {call.outer, call.inner}) {
      ARLAB_ASSIGN_OR_RETURN(choices.emplace_back(), choose_codec(each));
    }
    ARLAB_ASSIGN_OR_RETURN(
        CallLaunches launches,
        Preparation(call.request, call.schedule, codecs, std::move(choices), resources).launches());
    const auto draws = [](const Codec& each) {  // shared scales need a context but no call number
      return each.info().uses_context && !each.info().shares_scales;
    };
    return std::shared_ptr<const PreparedCall>(new PreparedCall(
        std::move(launches), draws(*call.outer) || draws(*call.inner), resources.team.call.hash));
  } catch (const RaisedByCaller&) {
    throw;
  } catch (const InvalidInput& error) {
    return Status::refusal(error.what());
  }
}

std::string PreparedCall::failure() const {
  for (const CodecChoice& codec : launches_.codecs) {
    const FormatKernels* kernels = format_kernels(codec);
    if (std::string failure = kernels == nullptr ? "" : kernels->failure(); !failure.empty()) {
      return failure;
    }
  }
  return {};
}

#if defined(ARLAB_KERNELS_ON_DEMAND)
Result<std::vector<WantedKernel>> PreparedCall::kernels() const {
  const NotesKernels notes;
  char tensors[2] = {};
  ARLAB_RETURN_IF_ERROR(launch({&tensors[0], &tensors[1]}, nullptr));
  if (is_counted_) ARLAB_RETURN_IF_ERROR(started(launch_count_call(nullptr, nullptr)));
  for (const Launch& launch : launches_.of_other_ranks) {
    ARLAB_RETURN_IF_ERROR(started(launch({}, nullptr)));
  }
  return notes.kernels();
}
#endif

Status PreparedCall::launch(const Tensors& tensors, hipStream_t stream) const {
  if (tensors.input == tensors.output && !launches_.in_place) {
    return Status::refusal(kNeedsAnotherOutput);
  }
  for (const Launch& launch : launches_.launches) {
    ARLAB_RETURN_IF_ERROR(started(launch(tensors, stream)));
  }
  return {};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
