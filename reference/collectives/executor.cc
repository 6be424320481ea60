#include "reference/collectives/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "reference/codecs/native_sum.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/collectives/accumulate.h"
#include "reference/parallel.h"
#include "reference/wide.h"

namespace arlab {
namespace {

/// The part of a schedule that concerns one chunk. Chunks do not depend on each other, so each is
/// executed by itself, and in tiles: blocks of a codec never reach across a tile.
struct ChunkPlan {
  Chunk range;
  std::vector<ValueId> ops;          // in schedule order
  std::vector<std::size_t> outputs;  // indices into Schedule::outputs
};

/// A value as the executor sees it. Sending changes no bit, so a sent value is its source.
struct ValuePlan {
  ValueId root = 0;         // the encode or reduce op that made the bits
  std::uint32_t slot = 0;   // a root's place among the values of its chunk
  std::uint32_t uses = 0;   // reads of a root's bits
  std::uint32_t sends = 0;  // sends of a root
};

struct ExecutionPlan {
  std::vector<ChunkPlan> chunks;
  std::vector<ValueId> outputs;   // values decoded at each of Schedule::outputs
  std::vector<ValuePlan> values;  // by ValueId
  std::vector<std::uint32_t> encodings;
  std::vector<std::optional<CodecRole>> sums_of_codes;
  std::vector<OutputKind> contents;
  std::map<ValueId, ValueId> sums_of_rows;  // by tail op: what the rank ends with without it
};

/// The source of an output: its value, but where an owner keeps its sum, the one that it has encoded.
ValueId shown_in(const Schedule& s, const ExecutionPlan& plan, const Output& output,
                 const Sum& sum) {
  if (!sum.owner_keeps_sum || output.value == kOwnInput) return output.value;
  const Op& made_by = s.ops[plan.values[output.value].root];
  const bool is_owner = made_by.kind == OpKind::encode && made_by.rank == output.rank;
  if (!is_owner || made_by.source == kOwnInput) return output.value;
  return s.ops[made_by.source].kind == OpKind::reduce ? made_by.source : output.value;
}

ExecutionPlan make_execution_plan(const Schedule& s, const Codecs& codecs, const Sum& sum) {
  ExecutionPlan plan;
  plan.values.resize(s.ops.size());
  plan.encodings = encodings_of(s);
  plan.sums_of_codes = sums_of_codes(s, codecs);
  plan.contents = contents_of(s);
  for (const Chunk& chunk : s.chunks) plan.chunks.push_back({chunk, {}, {}});
  for (ValueId id = 0; id < s.ops.size(); ++id) {
    const Op& op = s.ops[id];
    ValuePlan& value = plan.values[id];
    if (op.kind == OpKind::send) {
      value.root = plan.values[op.source].root;
      ++plan.values[value.root].sends;
      continue;
    }
    ChunkPlan& chunk = plan.chunks[op.chunk];
    value.root = id;
    value.slot = static_cast<std::uint32_t>(chunk.ops.size());
    chunk.ops.push_back(id);
    for (ValueId operand : s.operands(op)) {
      if (op.kind == OpKind::tail) {
        operand = shown_in(s, plan, {.rank = op.rank, .value = operand}, sum);
        plan.sums_of_rows[id] = operand;
      }
      if (operand != kOwnInput) ++plan.values[plan.values[operand].root].uses;
    }
  }
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    const Output& output = s.outputs[i];
    plan.chunks[output.chunk].outputs.push_back(i);
    plan.outputs.push_back(shown_in(s, plan, output, sum));
    const ValueId value = plan.outputs.back();
    if (value != kOwnInput) ++plan.values[plan.values[value].root].uses;
  }
  return plan;
}

/// Whether a rank adds its own contribution behind that of another one. Where a tensor is so short that only one rank adds, others
/// would of a longer one.
bool own_comes_later(const Schedule& s, const ExecutionPlan& plan) {
  std::set<Rank> adding;
  for (const Op& op : s.ops) {
    if (op.kind == OpKind::reduce) adding.insert(op.rank);
  }
  if (adding.size() == 1) return true;
  return std::ranges::any_of(s.ops, [&](const Op& op) {
    if (op.kind != OpKind::reduce) return false;
    const auto is_own = [&](ValueId addend) {
      return addend == kOwnInput || s.ops[plan.values[addend].root].rank == op.rank;
    };
    const auto addends = s.operands(op);
    const auto own = std::ranges::find_if(addends, is_own);
    return own != addends.begin() && own != addends.end();
  });
}

/// Refuses a field of the sum that changes nothing of this schedule. Which fields cannot change anything of some codecs, and are
/// allowed all the same, is in SPEC.md, "Accumulation".
void require_effect(const Schedule& s, const ExecutionPlan& plan, const Codecs& codecs,
                    const Sum& sum) {
  const auto is_sum = [&](ValueId id) {
    return id != kOwnInput && s.ops[id].kind == OpKind::reduce;
  };
  const auto refuse = [&](std::string_view why, std::string_view entry) {
    fail("sum {}: {}, so {} changes nothing: leave it out", name_of(sum), why, entry);
  };
  const auto sums = static_cast<std::size_t>(std::ranges::count(s.ops, OpKind::reduce, &Op::kind));
  const auto is_of_codes = [](const auto& role) { return role.has_value(); };
  const auto of_codes =
      static_cast<std::size_t>(std::ranges::count_if(plan.sums_of_codes, is_of_codes));
  if (of_codes != 0 &&
      (!sum.is_of_payload_values() || (sum.add != Accumulate::native && of_codes == sums))) {
    fail("codec {} adds codes, not numbers: allowed is the sum native, not {}",
         codecs.of(**std::ranges::find_if(plan.sums_of_codes, is_of_codes)).name(), name_of(sum));
  }
  if (s.ops.empty() || s.world_size < 2) return;
  if (sums == 0 && !sum.is_of_payload_values()) {
    fail("sum {}: {} adds nothing: allowed is the sum native", name_of(sum), s.algorithm);
  }
  const auto encodes_sum = [&](const Op& op) {
    return op.kind == OpKind::encode && is_sum(op.source);
  };
  if (!sum.rounds && std::ranges::none_of(s.ops, encodes_sum)) {
    refuse(fmt::format("{} encodes no sum", s.algorithm), "round=none");
  }
  if (sum.begins_with_own && !own_comes_later(s, plan)) {
    refuse(fmt::format("in {} a rank begins with its own contribution in any case", s.algorithm),
           "order=own");
  }
  if (!sum.owner_keeps_sum) return;
  const auto is_as_it_is = [&](const auto& of) { return s.ops[of.first].source == of.second; };
  if (std::ranges::equal(plan.outputs, s.outputs, {}, {}, &Output::value) &&
      std::ranges::all_of(plan.sums_of_rows, is_as_it_is)) {
    refuse(fmt::format("in {} no rank encodes a sum that it ends with", s.algorithm), "result=sum");
  }
  const auto carries = [](const Codec& codec) {
    return codec.info().fp32_values == Fp32Values::carried;
  };
  if (carries(codecs.outer()) && carries(codecs.inner())) {
    refuse(fmt::format("codec {} decodes to what was encoded", codecs.outer().name()),
           "result=sum");
  }
}

/// Tensors of all ranks, or what makes them.
struct Inputs {
  DType dtype;
  std::span<const std::span<const std::byte>> ranks = {};
  const ProduceInput* produce = nullptr;
};

/// How many elements became zero that were not. Parts are counted in numbers as wide as elements,
/// of which a vector has the most.
ARLAB_WIDE std::uint64_t count_flushed(DType dtype, std::span<const std::byte> before,
                                       std::span<const std::byte> after) {
  constexpr std::size_t kPart = 32768;
  std::uint64_t count = 0;
  if (dtype == DType::fp32) {
    const auto x = as_f32(before);
    const auto y = as_f32(after);
    for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != 0 && y[i] == 0 ? 1 : 0;
    return count;
  }
  const auto x = as_u16(before);
  const auto y = as_u16(after);
  for (std::size_t begin = 0; begin < x.size(); begin += kPart) {
    std::uint16_t part = 0;
    for (std::size_t i = begin; i < std::min(begin + kPart, x.size()); ++i) {
      const bool flushed = (x[i] & 0x7FFF) != 0 && (y[i] & 0x7FFF) == 0;
      part = static_cast<std::uint16_t>(part + (flushed ? 1 : 0));
    }
    count += part;
  }
  return count;
}

/// Executes tiles on one thread; owns the scratch memory of that thread.
class TileExecutor {
 public:
  TileExecutor(const Schedule& schedule, const ExecutionPlan& plan, const Codecs& codecs,
               const Inputs& inputs, std::span<std::byte> outputs, const ExecuteOptions& options)
      : schedule_(schedule),
        plan_(plan),
        codecs_(codecs),
        dtype_(inputs.dtype),
        inputs_(inputs),
        outputs_(outputs),
        options_(options),
        final_(final_kind(schedule)),
        produced_(inputs.produce != nullptr ? schedule.world_size : 0) {}

  void run(const ChunkPlan& chunk, Chunk tile) {
    tile_ = tile;
    const std::size_t elements = tile.size();
    raw_bytes_ = elements * size_of(dtype_);
    for (const CodecRole role : kCodecRoles) {
      const DType dtype = role == CodecRole::output ? tail_dtype() : dtype_;
      wire_bytes_[index_of(role)] = codecs_.of(role).wire_bytes(dtype, elements);
    }
    rows_of_.reset();
    decoded_.resize(std::max(decoded_.size(), raw_bytes_));
    decoded_value_ = kOwnInput;
    for (std::vector<float>& shared : shared_) shared.clear();
    for (Buffer& tile_of_rank : produced_) tile_of_rank.clear();
    slots_.resize(std::max(slots_.size(), chunk.ops.size()));
    uses_left_.resize(slots_.size());
    for (const ValueId id : chunk.ops) uses_left_[plan_.values[id].slot] = plan_.values[id].uses;

    for (const ValueId id : chunk.ops) {
      if (plan_.values[id].uses == 0) continue;
      const OpKind kind = schedule_.ops[id].kind;
      kind == OpKind::reduce ? reduce(id) : kind == OpKind::tail ? tail(id) : encode(id);
    }
    for (const std::size_t i : chunk.outputs) {
      const Output& output = schedule_.outputs[i];
      const std::uint64_t begin = output.begin + (tile.begin - chunk.range.begin);
      const std::span<const std::byte> raw = raw_of(output.rank, plan_.outputs[i]);
      const std::size_t size = raw.size() / tile.size();
      const std::span<std::byte> target =
          tensor_of(output.kind)
              .subspan((output.rank * schedule_.elements + begin) * size, raw.size());
      std::memcpy(target.data(), raw.data(), raw.size());
      release(plan_.outputs[i]);
    }
  }

  const ExecuteCounts& counts() const { return counts_; }

 private:
  DType tail_dtype() const { return options_.tails == nullptr ? dtype_ : options_.tails->dtype; }
  /// The dtype of a value's elements.
  DType dtype_of(ValueId id) const {
    const bool is_of_tail = id != kOwnInput && plan_.contents[id] != OutputKind::sum;
    return is_of_tail ? tail_dtype() : dtype_;
  }
  std::size_t bytes_of(ValueId id) const { return tile_.size() * size_of(dtype_of(id)); }

  std::span<std::byte> tensor_of(OutputKind kind) const {
    if (kind == OutputKind::residual) return options_.tails->next_residual;
    return kind == final_ ? outputs_ : options_.tails->normalized;
  }

  /// Where the tile stands that a rank encodes.
  EncodeContext context_at(CodecRole codec, Rank rank, std::uint32_t step, ChunkId chunk) {
    agree(codec);
    return {.seed = options_.seed,
            .call = options_.call,
            .rank = rank,
            .world_size = schedule_.world_size,
            .step = step,
            .chunk = chunk,
            .position = tile_.begin,
            .shared = shared_[index_of(codec)]};
  }
  EncodeContext context_of(ValueId id) {
    const Op& op = schedule_.ops[id];
    // Every rank quantizes the rows of a tail alike.
    const Rank rank = op.codec == CodecRole::output ? 0 : op.rank;
    EncodeContext context = context_at(op.codec, rank, plan_.encodings[id] - 1, op.chunk);
    if (options_.state != nullptr && !options_.state->numbers[id].empty()) {
      context.state = std::span(options_.state->numbers[id])
                          .subspan(tile_.begin - schedule_.chunks[op.chunk].begin, tile_.size());
    }
    return context;
  }

  /// Finds the numbers that all ranks agree on before they encode the tile, once.
  void agree(CodecRole role) {
    const Codec& codec = codecs_.of(role);
    std::vector<float>& agreed = shared_[index_of(role)];
    const bool is_of_inputs = role != CodecRole::output && adds(schedule_.collective);
    if (!codec.info().shares_scales || !is_of_inputs || !agreed.empty()) return;
    agreed.assign(codec.statistics_of(tile_.size()), 0);
    std::vector<float> own(agreed.size());
    for (Rank rank = 0; rank < schedule_.world_size; ++rank) {
      codec.measure(dtype_, raw_of(rank, kOwnInput), own);
      std::ranges::transform(own, agreed, agreed.begin(),
                             [](float a, float b) { return a > b ? a : b; });
    }
  }

  using Buffer = std::vector<std::byte>;

  static std::size_t index_of(CodecRole role) { return static_cast<std::size_t>(role); }

  std::span<std::byte> new_value(ValueId id, std::size_t bytes) {
    Buffer& buffer = slots_[plan_.values[id].slot];
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
    // Every buffer can hold any kind of value, so that it can be used again for another.
    const std::size_t most = std::max(raw_bytes_, *std::ranges::max_element(wire_bytes_));
    buffer.resize(std::max({buffer.size(), most, options_.sum.rounds ? 0 : fp32_bytes()}));
    return {buffer.data(), bytes};
  }

  void release(ValueId id) {
    if (id == kOwnInput) return;
    const std::uint32_t slot = plan_.values[plan_.values[id].root].slot;
    if (--uses_left_[slot] == 0) free_.push_back(std::move(slots_[slot]));
  }

  struct Wire {
    const Codec& codec;
    std::span<const std::byte> bytes;
  };

  std::size_t fp32_bytes() const { return tile_.size() * sizeof(float); }

  /// A sum that was not rounded to the payload's dtype; nothing for any other value.
  std::optional<std::span<const float>> fp32_sum_of(ValueId id) const {
    if (options_.sum.rounds || id == kOwnInput || wire_of(id)) return std::nullopt;
    if (plan_.contents[id] != OutputKind::sum) return std::nullopt;
    const Buffer& slot = slots_[plan_.values[plan_.values[id].root].slot];
    return as_f32(std::span(slot).first(fp32_bytes()));
  }

  bool is_sum_of_codes(ValueId id) const {
    return id != kOwnInput && plan_.sums_of_codes[plan_.values[id].root].has_value();
  }

  /// The wire of an encoded value, or of a sum of codes; nothing for an own input or another sum.
  std::optional<Wire> wire_of(ValueId id) const {
    if (id == kOwnInput) return std::nullopt;
    const ValueId root = plan_.values[id].root;
    const Op& op = schedule_.ops[root];
    if (op.kind == OpKind::tail) return std::nullopt;
    if (op.kind == OpKind::reduce && !plan_.sums_of_codes[root]) return std::nullopt;
    const CodecRole role = plan_.sums_of_codes[root].value_or(op.codec);
    return Wire{codecs_.of(role),
                {slots_[plan_.values[root].slot].data(), wire_bytes_[index_of(role)]}};
  }

  /// The elements of a value that is on `rank`: its own input, a sum, or decoded wire bytes.
  /// Decoded bytes are valid until the next call.
  std::span<const std::byte> raw_of(Rank rank, ValueId id) {
    if (id == kOwnInput) {
      if (inputs_.produce == nullptr) {
        return inputs_.ranks[rank].subspan(tile_.begin * size_of(dtype_), raw_bytes_);
      }
      Buffer& tile_of_rank = produced_[rank];
      if (tile_of_rank.empty()) {
        tile_of_rank.resize(raw_bytes_);
        (*inputs_.produce)(rank, tile_.begin, tile_of_rank);
      }
      return tile_of_rank;
    }
    const ValueId root = plan_.values[id].root;
    if (const auto wire = wire_of(id)) {
      // A value in the outputs of all ranks is decoded once.
      if (decoded_value_ != root) {
        wire->codec.decode(dtype_of(root), wire->bytes, {decoded_.data(), bytes_of(root)});
        decoded_value_ = root;
      }
      return {decoded_.data(), bytes_of(root)};
    }
    if (const auto sum = fp32_sum_of(id)) {
      round_sum(dtype_, clamps(schedule_.operands(schedule_.ops[root])), *sum,
                {decoded_.data(), raw_bytes_});
      decoded_value_ = kOwnInput;
      return {decoded_.data(), raw_bytes_};
    }
    return {slots_[plan_.values[root].slot].data(), bytes_of(root)};
  }

  void tail(ValueId id) {
    const Op& op = schedule_.ops[id];
    const bool is_residual = op.makes == OutputKind::residual;
    const ValueId sum = plan_.sums_of_rows.at(id);
    const TailResult& rows = rows_of(op.rank, sum);
    std::ranges::copy(is_residual ? rows.residual : rows.normalized,
                      new_value(id, bytes_of(id)).begin());
    release(sum);
  }

  /// All that a tail makes of the tile, once for all ranks with the same sum and residual.
  const TailResult& rows_of(Rank rank, ValueId sum) {
    const TailOperands& tensors = *options_.tails;
    const bool is_own = sum == kOwnInput;
    const ValueId root = is_own ? kOwnInput : plan_.values[sum].root;
    const Rank whose = is_own || tensors.residuals.size() > 1 ? rank : 0;
    if (rows_of_ == std::pair(root, whose)) return rows_;
    const std::span<const std::byte> elements = raw_of(rank, sum);
    std::vector<float> sums(tile_.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = load_value(dtype_, elements, i);
    Tail raw = tensors.tail;
    raw.output.clear();  // an op of its own
    std::span<const std::byte> residual;
    if (raw.adds_residual) {
      const std::size_t of = tensors.residuals.size() > 1 ? rank : 0;
      residual = tensors.residuals[of].subspan(tile_.begin * size_of(tensors.dtype),
                                               tile_.size() * size_of(tensors.dtype));
    }
    rows_ = run_tail(raw, tensors.dtype, sums, residual, tensors.weight, 1);
    rows_of_ = {root, whose};
    return rows_;
  }

  void encode(ValueId id) {
    const Op& op = schedule_.ops[id];
    const Codec& codec = codecs_.of(op.codec);
    const std::span<std::byte> wire = new_value(id, wire_bytes_[index_of(op.codec)]);
    if (const auto sum = wire_of(op.source); is_sum_of_codes(op.source) && &sum->codec == &codec) {
      std::ranges::copy(sum->bytes, wire.begin());  // encoded by the same numbers
      if (options_.encoded) options_.encoded(id, wire);
      counts_.sent_bytes += WideCount{plan_.values[id].sends} * wire.size();
      release(op.source);
      return;
    }
    const EncodeContext context = context_of(id);
    const std::span<const std::byte> raw = raw_of(op.rank, op.source);
    EncodeCounts counts;
    EncodeCounts* const counted = options_.count ? &counts : nullptr;
    if (const auto sum = fp32_sum_of(op.source)) {
      codec.encode_fp32(dtype_, *sum, wire, counted, context);
    } else {
      codec.encode(dtype_of(id), raw, wire, counted, context);
    }
    if (options_.encoded) options_.encoded(id, wire);
    counts_.encoded += tile_.size();
    counts_.sent_bytes += WideCount{plan_.values[id].sends} * codec.sent_of(wire).size();
    if (options_.count) {
      counts_.clamped += counts.clamped;
      round_trip_.resize(std::max(round_trip_.size(), raw_bytes_));
      const std::span<std::byte> decoded(round_trip_.data(), raw.size());
      codec.decode(dtype_of(id), wire, decoded);
      counts_.flushed += count_flushed(dtype_of(id), raw, decoded);
    }
    release(op.source);
  }

  /// Whether a sum that overflows in fp16 is clamped: as the codecs of its encoded addends do, or
  /// where there is none, the outer codec.
  bool clamps(std::span<const ValueId> addends) const {
    const bool outer = codecs_.outer().info().clamps_fp16_sums;
    if (codecs_.inner().info().clamps_fp16_sums == outer) return outer;
    bool any_wire = false;
    for (const ValueId addend : addends) {
      const auto wire = wire_of(addend);
      if (wire && wire->codec.info().clamps_fp16_sums) return true;
      any_wire = any_wire || wire.has_value();
    }
    return !any_wire && outer;
  }

  /// Counts the sums that have no code: theirs are not the sums of the numbers that the codes stand for, which fp64 has exactly.
  void add_codes(const Codec& codec, std::span<const std::byte> wire, std::span<std::byte> sum) {
    if (!options_.count || codec.info().fp32_values != Fp32Values::unrounded) {
      return codec.add_codes(dtype_, tile_.size(), wire, sum);
    }
    std::vector<float> values[3];  // the sum before, what is added, the sum
    for (std::vector<float>& each : values) each.resize(tile_.size());
    codec.decode_fp32(dtype_, sum, values[0]);
    codec.decode_fp32(dtype_, wire, values[1]);
    codec.add_codes(dtype_, tile_.size(), wire, sum);
    codec.decode_fp32(dtype_, sum, values[2]);
    for (std::size_t i = 0; i < tile_.size(); ++i) {
      const double exact = static_cast<double>(values[0][i]) + static_cast<double>(values[1][i]);
      counts_.clamped += std::isfinite(exact) && exact != static_cast<double>(values[2][i]) ? 1 : 0;
    }
  }

  void add_codes(ValueId id, CodecRole role) {
    const Codec& codec = codecs_.of(role);
    const Op& op = schedule_.ops[id];
    const std::span<std::byte> sum = new_value(id, wire_bytes_[index_of(role)]);
    own_wire_.resize(sum.size());
    bool started = false;
    for (const ValueId addend : schedule_.operands(op)) {
      std::span<const std::byte> wire = own_wire_;
      if (addend == kOwnInput) {
        const EncodeContext context = context_at(role, op.rank, 0, op.chunk);
        codec.encode(dtype_, raw_of(op.rank, addend), own_wire_, nullptr, context);
      } else {
        wire = wire_of(addend)->bytes;
      }
      if (started) {
        add_codes(codec, wire, sum);
      } else {
        std::ranges::copy(wire, sum.begin());
      }
      started = true;
      release(addend);
    }
  }

  void reduce(ValueId id) {
    const Op& op = schedule_.ops[id];
    const std::span<const ValueId> addends = schedule_.operands(op);
    if (const auto role = plan_.sums_of_codes[id]) return add_codes(id, *role);
    const bool clamp = clamps(addends);
    if (!options_.sum.is_of_payload_values()) return reduce_as_said(id, clamp);
    const std::span<std::byte> sum = new_value(id, raw_bytes_);
    if (options_.sum.add == Accumulate::fp32) {
      sum_fp32_.assign(tile_.size(), op.start == Start::zero ? 0.0F : -0.0F);  // -0 + x is x
      for (const ValueId addend : addends) {
        add_fp32(dtype_, sum_fp32_, raw_of(op.rank, addend));
        release(addend);
      }
      round_sum(dtype_, clamp, sum_fp32_, sum);
      return;
    }
    bool started = op.start == Start::zero;
    if (started) std::memset(sum.data(), 0, sum.size());
    for (const ValueId addend : addends) {
      const auto wire = wire_of(addend);
      if (wire && !started) {
        wire->codec.decode(dtype_, wire->bytes, sum);
      } else if (wire && wire->codec.info().clamps_fp16_sums == clamp) {
        wire->codec.decode_add(dtype_, wire->bytes, sum);
      } else if (const auto raw = raw_of(op.rank, addend); started) {
        add_native(dtype_, clamp, sum, raw);
      } else {
        std::memcpy(sum.data(), raw.data(), sum.size());
      }
      started = true;
      release(addend);
    }
  }

  /// The rank whose contribution an addend is: for a wire, the one that has encoded it.
  Rank contributor_of(ValueId addend, Rank at) const {
    return addend == kOwnInput ? at : schedule_.ops[plan_.values[addend].root].rank;
  }

  /// By the record of the sum, of any kind.
  void reduce_as_said(ValueId id, bool clamp) {
    const Op& op = schedule_.ops[id];
    const Sum& how = options_.sum;
    const auto operands = schedule_.operands(op);
    std::vector<ValueId> addends(operands.begin(), operands.end());
    if (how.begins_with_own) {
      const auto own = std::ranges::find_if(
          addends, [&](ValueId addend) { return contributor_of(addend, op.rank) == op.rank; });
      std::rotate(addends.begin(), own == addends.end() ? addends.begin() : own, addends.end());
    }
    sum_fp32_.assign(tile_.size(), op.start == Start::zero ? 0.0F : -0.0F);  // -0 + x is x
    std::vector<std::byte> rounded(how.add == Accumulate::native ? raw_bytes_ : 0);
    if (how.add == Accumulate::exact) exact_.begin(tile_.size());
    for (const ValueId addend : addends) {
      add_to_sum(op.rank, addend);
      release(addend);
      if (how.add == Accumulate::exact) {
        exact_.add(sum_fp32_);
        sum_fp32_.assign(tile_.size(), -0.0F);
      }
      if (how.add != Accumulate::native) continue;
      round_sum(dtype_, clamp, sum_fp32_, rounded);
      for (std::size_t i = 0; i < sum_fp32_.size(); ++i) {
        sum_fp32_[i] = load_value(dtype_, rounded, i);
      }
    }
    if (how.add == Accumulate::exact) {
      // Where it is rounded to a narrower dtype, that is to be the only rounding.
      exact_.round(sum_fp32_, how.rounds && dtype_ != DType::fp32);
    }
    const std::span<std::byte> sum = new_value(id, how.rounds ? raw_bytes_ : fp32_bytes());
    if (how.rounds) {
      round_sum(dtype_, clamp, sum_fp32_, sum);
    } else {
      std::ranges::copy(std::as_bytes(std::span(sum_fp32_)), sum.begin());
    }
  }

  void add_to_sum(Rank rank, ValueId addend) {
    const auto wire = wire_of(addend);
    const auto fp32_sum = fp32_sum_of(addend);
    if (wire && options_.sum.add == Accumulate::fma) {
      wire->codec.decode_fma(dtype_, wire->bytes, sum_fp32_);
    } else if (wire && options_.sum.decodes_to_fp32) {
      values_.resize(tile_.size());
      wire->codec.decode_fp32(dtype_, wire->bytes, values_);
      add_fp32(DType::fp32, sum_fp32_, std::as_bytes(std::span(values_)));
    } else if (fp32_sum) {
      add_fp32(DType::fp32, sum_fp32_, std::as_bytes(*fp32_sum));
    } else {
      add_fp32(dtype_, sum_fp32_, raw_of(rank, addend));
    }
  }

  const Schedule& schedule_;
  const ExecutionPlan& plan_;
  const Codecs codecs_;
  const DType dtype_;
  const Inputs inputs_;
  const std::span<std::byte> outputs_;
  const ExecuteOptions& options_;
  const OutputKind final_;
  std::vector<Buffer> produced_;  // the tile's elements, of each rank that was asked for

  Chunk tile_;
  std::size_t raw_bytes_ = 0;
  std::size_t wire_bytes_[std::size(kCodecRoles)] = {};
  std::vector<float> shared_[std::size(kCodecRoles)];  // numbers that ranks have agreed on
  TailResult rows_;
  std::optional<std::pair<ValueId, Rank>> rows_of_;  // the sum, and the rank of the residual
  Buffer own_wire_;
  std::vector<Buffer> slots_;  // values of the chunk that are still to be read
  std::vector<std::uint32_t> uses_left_;
  std::vector<Buffer> free_;
  Buffer decoded_;
  ValueId decoded_value_ = kOwnInput;  // the elements' value; kOwnInput: none
  Buffer round_trip_;
  std::vector<float> sum_fp32_;
  ExactSums exact_;
  std::vector<float> values_;
  ExecuteCounts counts_;
};

void require_dtype(const Codecs& codecs, DType dtype) {
  for (const Codec* codec : {&codecs.outer(), &codecs.inner()}) {
    if (!codec->takes(dtype)) codec->wire_bytes(dtype, 1);  // throws, naming the dtypes it takes
  }
}

/// Refuses tensors that are not those of the schedule's tails.
void require_tails(const Schedule& s, DType dtype, const TailOperands* given) {
  if (s.row != (given == nullptr ? 0 : given->tail.hidden)) {
    fail("schedule '{}' has tails of rows of {} elements (0: none): needed are tensors of such",
         s.algorithm, s.row);
  }
  if (given == nullptr) return;
  const auto count = [&](OutputKind kind) {
    return std::ranges::count(s.outputs, kind, &Output::kind);
  };
  const Tail& tail = given->tail;
  const bool adds = count(OutputKind::residual) != 0;
  const bool quantizes = count(OutputKind::quantized) != 0;
  if (adds != tail.adds_residual || quantizes == tail.output.empty() ||
      (tail.rounding.keeps_sum && dtype != DType::fp32)) {
    fail("schedule '{}' makes {} residual and quantizes {}, of {}: the tail {} does not",
         s.algorithm, adds ? "a" : "no", quantizes ? "rows" : "nothing", name_of(dtype),
         quote(name_of(tail)));
  }
  const std::size_t of_rank = s.elements * size_of(given->dtype);
  const std::size_t of_all = s.world_size * of_rank;
  const bool keeps = quantizes && count(OutputKind::normalized) != 0;
  const std::size_t residuals = given->residuals.size();
  if ((residuals != 0) != adds || (residuals > 1 && residuals != s.world_size) ||
      std::ranges::any_of(given->residuals, [&](auto r) { return r.size() != of_rank; }) ||
      given->next_residual.size() != (adds ? of_all : 0) ||
      given->normalized.size() != (keeps ? of_all : 0)) {
    fail("execute: a tensor of the tail {} has another size than {} ranks x {} {} elements",
         quote(name_of(tail)), s.world_size, s.elements, name_of(given->dtype));
  }
}

void require_sizes(const Schedule& schedule, DType dtype, std::size_t inputs, std::size_t outputs,
                   const TailOperands* tails) {
  const std::size_t elements = schedule.world_size * schedule.elements;
  const std::size_t expected = elements * size_of(dtype);
  const std::size_t of_outputs = elements * size_of(tails == nullptr ? dtype : tails->dtype);
  if (inputs != expected || outputs != of_outputs) {
    fail(
        "execute: {} ranks x {} {} elements are {} bytes, but the inputs are {} and the outputs {}",
        schedule.world_size, schedule.elements, name_of(dtype), expected, inputs, outputs);
  }
}

void check_arguments(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                     std::span<const std::byte> outputs, const TailOperands* tails) {
  const DType dtype = inputs.dtype;
  require_dtype(codecs, dtype);
  if (inputs.ranks.size() != schedule.world_size) {
    fail("execute: the schedule is for {} ranks, but the inputs are of {}", schedule.world_size,
         inputs.ranks.size());
  }
  require_sizes(schedule, dtype, inputs.ranks.size() * inputs.ranks.front().size(), outputs.size(),
                tails);
  require_whole_blocks(schedule, codecs);
}

/// Tiles of all chunks. A tile boundary is a multiple of the codecs' alignment, like a chunk's.
struct Tile {
  std::size_t chunk;
  Chunk range;
};
std::vector<Tile> make_tiles(const Schedule& schedule, const Codecs& codecs, std::size_t elements) {
  const std::uint64_t alignment = codecs.alignment(schedule.row);
  const bool may_split = std::ranges::all_of(kCodecRoles, [&](CodecRole role) {
    const CodecInfo& info = codecs.of(role).info();
    return info.splits_at_alignment && !info.has_variable_wire;
  });
  std::vector<Tile> tiles;
  for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
    const Chunk& chunk = schedule.chunks[i];
    std::uint64_t step = chunk.size();
    // A chunk that is no longer than a tile is one, its tail, too.
    if (may_split && elements < chunk.size()) {
      step = std::max<std::uint64_t>(1, elements / alignment) * alignment;
    }
    for (std::uint64_t begin = chunk.begin; begin < chunk.end; begin += step) {
      tiles.push_back({i, {begin, std::min(chunk.end, begin + step)}});
    }
  }
  return tiles;
}

/// Bytes of an agreement, in which numbers travel as fp32.
WideCount sent_bytes_of(const Schedule& agreement) {
  return WideCount{volume_of(agreement, agreement.world_size).total_elements} * sizeof(float);
}

/// The state as it is before a call; a new one is all zeros. Throws InvalidInput when it is of another collective.
CodecState state_before(const CodecState& given, const Schedule& schedule, const Codecs& codecs,
                        DType dtype) {
  CodecState state;
  state.of =
      fmt::format("{} of {} {} elements on {} ranks by codec {}", schedule.algorithm,
                  schedule.elements, name_of(dtype), schedule.world_size, codecs.outer().name());
  if (codecs.differ()) state.of += " and inner codec " + codecs.inner().name();
  for (const Op& op : schedule.ops) {
    const bool has = op.kind == OpKind::encode && codecs.of(op.codec).info().has_state;
    state.numbers.emplace_back(has ? schedule.chunks[op.chunk].size() : 0);
  }
  if (given.of.empty()) return state;
  const auto is_shaped_alike = [](const auto& a, const auto& b) { return a.size() == b.size(); };
  if (given.of != state.of || !std::ranges::equal(given.numbers, state.numbers, is_shaped_alike)) {
    fail("the codec's state is of {}{}, not of {}: allowed is a new one", given.of,
         given.of == state.of ? " with other messages" : "", state.of);
  }
  return given;
}

ExecuteCounts run_tiles(const Schedule& schedule, const Codecs& codecs, const Inputs& inputs,
                        std::span<std::byte> outputs, const ExecuteOptions& given_options);

std::vector<std::byte> converted(DType from, std::span<const std::byte> payload, DType to) {
  std::vector<std::byte> result(payload.size() / size_of(from) * size_of(to));
  for (std::size_t i = 0; i < payload.size() / size_of(from); ++i) {
    const float value = load_value(from, payload, i);
    if (to == DType::fp16) {
      as_u16(std::span(result))[i] = Fp16Arithmetic::from_float_clamped(value);
    } else {
      store_value(to, value, result, i);
    }
  }
  return result;
}

/// Executes bf16 tensors as fp16 ones: finite values beyond its range become +-65504, as the hardware's overflow clamp has it
/// that QuickReduce sets.
ExecuteCounts run_as_fp16(const Schedule& schedule, const Codecs& codecs, const Inputs& inputs,
                          std::span<std::byte> outputs, ExecuteOptions options) {
  if (inputs.dtype != DType::bf16) {
    fail("sum cast=fp16: it is of bf16 payloads, not of {}", name_of(inputs.dtype));
  }
  const CodecPtr plain = find_codec(name_of(DType::fp16));
  const auto of_cast = [&](const Codec& codec) {
    return codec.name() == name_of(DType::bf16) ? plain.get() : &codec;
  };
  const Codecs of_fp16(*of_cast(codecs.outer()), *of_cast(codecs.inner()),
                       *of_cast(codecs.output()));
  require_dtype(of_fp16, DType::fp16);
  options.sum.casts_to_fp16 = false;
  std::vector<std::vector<std::byte>> tensors;
  std::vector<std::span<const std::byte>> ranks;
  for (const auto& rank : inputs.ranks)
    tensors.push_back(converted(DType::bf16, rank, DType::fp16));
  for (const auto& tensor : tensors) ranks.emplace_back(tensor);
  const ProduceInput produce = [&](Rank rank, std::uint64_t begin, std::span<std::byte> elements) {
    std::vector<std::byte> made(elements.size());
    (*inputs.produce)(rank, begin, made);
    std::ranges::copy(converted(DType::bf16, made, DType::fp16), elements.begin());
  };
  const Inputs cast{DType::fp16, ranks, inputs.produce == nullptr ? nullptr : &produce};
  if (options.tails != nullptr) return run_tiles(schedule, of_fp16, cast, outputs, options);
  std::vector<std::byte> results(outputs.size());
  const ExecuteCounts counts = run_tiles(schedule, of_fp16, cast, results, options);
  std::ranges::copy(converted(DType::fp16, results, DType::bf16), outputs.begin());
  return counts;
}

ExecuteCounts run_tiles(const Schedule& schedule, const Codecs& codecs, const Inputs& inputs,
                        std::span<std::byte> outputs, const ExecuteOptions& given_options) {
  require_sums(schedule, given_options.sum);
  if (given_options.sum.casts_to_fp16) {
    return run_as_fp16(schedule, codecs, inputs, outputs, given_options);
  }
  require_tails(schedule, inputs.dtype, given_options.tails);
  ExecuteCounts counts;
  if (const auto agreement = agreement_of(schedule, codecs)) {
    counts.sent_bytes += sent_bytes_of(*agreement);
  }
  // The state is changed when all is well.
  ExecuteOptions options = given_options;
  CodecState state;
  if (options.state != nullptr) {
    state = state_before(*options.state, schedule, codecs, inputs.dtype);
    options.state = &state;
  }
  const ExecutionPlan plan = make_execution_plan(schedule, codecs, options.sum);
  require_effect(schedule, plan, codecs, options.sum);
  const std::vector<Tile> tiles =
      make_tiles(schedule, codecs,
                 std::max({options.tile_elements, codecs.outer().info().least_call_elements,
                           codecs.inner().info().least_call_elements,
                           codecs.output().info().least_call_elements}));
  const bool by_codecs = options.sum.is_of_payload_values();
  const auto chosen = [&](const Codec& codec) {
    // A pointer that owns nothing: the accelerated codec does not outlive this call.
    const CodecPtr given(CodecPtr(), &codec);
    return options.scalar || !by_codecs ? given : accelerated(given);
  };
  const CodecPtr outer = chosen(codecs.outer());
  const CodecPtr inner = codecs.differ() ? chosen(codecs.inner()) : outer;
  const CodecPtr output = &codecs.output() == &codecs.outer() ? outer : chosen(codecs.output());
  const unsigned threads = options.threads != 0 ? options.threads : hardware_threads();
  std::vector<TileExecutor> executors;
  executors.reserve(threads);
  for (unsigned worker = 0; worker < threads; ++worker) {
    executors.emplace_back(schedule, plan, Codecs(*outer, *inner, *output), inputs, outputs,
                           options);
  }
  parallel_for(tiles.size(), threads, [&](unsigned worker, std::size_t i) {
    executors[worker].run(plan.chunks[tiles[i].chunk], tiles[i].range);
  });

  for (const TileExecutor& executor : executors) {
    counts.encoded += executor.counts().encoded;
    counts.clamped += executor.counts().clamped;
    counts.flushed += executor.counts().flushed;
    counts.sent_bytes += executor.counts().sent_bytes;
  }
  if (options.state != nullptr) *given_options.state = std::move(state);
  return counts;
}

}  // namespace

void require_sums(const Schedule& schedule, const Sum& sum) {
  if (adds(schedule.collective) || sum == Sum{}) return;
  fail("sum {}: {} sums nothing; leave it out", name_of(sum), schedule.algorithm);
}

void require_whole_blocks(const Schedule& schedule, const Codecs& codecs) {
  for (std::size_t i = 0; i < schedule.chunks.size(); ++i) {
    const Chunk& chunk = schedule.chunks[i];
    const auto cut = std::ranges::find_if(kCodecRoles, [&](CodecRole role) {
      return !is_aligned(schedule, chunk, codecs.of(role).info().alignment);
    });
    if (cut == std::end(kCodecRoles)) continue;
    const Codec& codec = codecs.of(*cut);
    fail(
        "schedule '{}': chunk {}, elements [{}, {}), cuts a block of codec {}: boundaries must be "
        "multiples of {}{}",
        schedule.algorithm, i, chunk.begin, chunk.end, codec.name(), codec.info().alignment,
        has_slots(schedule.collective)
            ? fmt::format(" within one slot of {} elements", schedule.slot_elements())
            : "");
  }
}

ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, DType dtype,
                      std::span<const std::byte> inputs, std::span<std::byte> outputs,
                      const ExecuteOptions& options) {
  require_dtype(codecs, dtype);
  require_sizes(schedule, dtype, inputs.size(), outputs.size(), options.tails);
  const std::size_t bytes = inputs.size() / std::max<std::size_t>(1, schedule.world_size);
  std::vector<std::span<const std::byte>> ranks;
  for (Rank rank = 0; rank < schedule.world_size; ++rank) {
    ranks.push_back(inputs.subspan(rank * bytes, bytes));
  }
  return execute(schedule, codecs, {dtype, std::move(ranks)}, outputs, options);
}

ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                      std::span<std::byte> outputs, const ExecuteOptions& options) {
  check_arguments(schedule, codecs, inputs, outputs, options.tails);
  return run_tiles(schedule, codecs, {.dtype = inputs.dtype, .ranks = inputs.ranks}, outputs,
                   options);
}

ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, DType dtype,
                      const ProduceInput& produce, std::span<std::byte> outputs,
                      const ExecuteOptions& options) {
  require_dtype(codecs, dtype);
  const std::size_t bytes = schedule.world_size * schedule.elements * size_of(dtype);
  require_sizes(schedule, dtype, bytes, outputs.size(), options.tails);
  require_whole_blocks(schedule, codecs);
  return run_tiles(schedule, codecs, {.dtype = dtype, .produce = &produce}, outputs, options);
}

WireVolume wire_volume(const Schedule& schedule, const Codecs& codecs, DType dtype) {
  struct StepVolume {
    WideCount bytes = 0;
    WideCount elements = 0;
  };
  WireVolume volume;
  std::vector<StepVolume> steps;
  const std::vector<std::uint32_t> encodings = encodings_of(schedule);
  for (ValueId id = 0; id < schedule.ops.size(); ++id) {
    const Op& op = schedule.ops[id];
    if (op.kind != OpKind::send) continue;
    const std::uint64_t elements = schedule.chunks[op.chunk].size();
    const std::uint64_t bytes = codecs.of(op.codec).wire_bytes(dtype, elements);
    volume.elements += elements;
    volume.bytes += bytes;
    steps.resize(std::max<std::size_t>(steps.size(), encodings[id]));
    StepVolume& step = steps[encodings[id] - 1];
    step.elements += elements;
    step.bytes += bytes;
  }
  for (const StepVolume& step : steps) {
    volume.bits_of_step.push_back(8 * static_cast<double>(step.bytes) /
                                  std::max(1.0, static_cast<double>(step.elements)));
  }
  if (const auto agreement = agreement_of(schedule, codecs)) {
    volume.bytes += sent_bytes_of(*agreement);
  }
  const WideCount elements = volume.elements != 0 ? volume.elements : schedule.elements;
  const WideCount bytes =
      volume.elements != 0 ? volume.bytes : codecs.outer().wire_bytes(dtype, schedule.elements);
  if (elements != 0) {
    volume.bits_per_element = 8 * static_cast<double>(bytes) / static_cast<double>(elements);
  }
  return volume;
}

}  // namespace arlab
