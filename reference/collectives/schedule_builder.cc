#include "reference/collectives/schedule_builder.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace arlab {
namespace {

void require(bool condition, const char* message) {
  if (!condition) throw std::logic_error(message);
}

}  // namespace

ScheduleBuilder::ScheduleBuilder(std::string algorithm, const ScheduleRequest& request,
                                 Collective collective) {
  if (request.world_size < 1 || request.world_size > kMaxWorldSize) {
    fail("world size {} is out of range: allowed is 1 to {}", request.world_size, kMaxWorldSize);
  }
  if (request.elements < 1 || request.elements > kMaxElements) {
    fail("{} elements per rank is out of range: allowed is 1 to {}", request.elements,
         kMaxElements);
  }
  if (request.alignment < 1) fail("an alignment is at least 1 element, not {}", request.alignment);
  if (has_slots(collective) && request.elements % request.world_size != 0) {
    fail("{}: {} elements per rank do not make {} equal slots: allowed are multiples of {}",
         algorithm, request.elements, request.world_size, request.world_size);
  }
  if (request.only_rank && *request.only_rank >= request.world_size) {
    fail("there is no rank {}: allowed is 0 to {}", *request.only_rank, request.world_size - 1);
  }
  only_rank_ = request.only_rank;
  only_size_ = request.only_size;
  if (only_size_ == nullptr) {
    schedule_.ops.reserve(request.expected.ops);
    schedule_.addends.reserve(request.expected.addends);
    schedule_.outputs.reserve(request.expected.outputs);
  }
  schedule_.collective = collective;
  schedule_.algorithm = std::move(algorithm);
  schedule_.world_size = request.world_size;
  schedule_.elements = request.elements;
  schedule_.alignment = request.alignment;
}

std::vector<Chunk> ScheduleBuilder::split(std::uint64_t parts) const {
  return split(Chunk{0, schedule_.elements}, parts);
}

std::vector<Chunk> ScheduleBuilder::split(Chunk range, std::uint64_t parts) const {
  require(parts > 0, "split: no parts");
  const std::uint64_t unit = schedule_.alignment;
  const std::uint64_t units = range.size() / unit + (range.size() % unit != 0 ? 1 : 0);
  std::vector<Chunk> chunks;
  std::uint64_t begin = range.begin;
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t count = units / parts + (part < units % parts ? 1 : 0);
    // The last unit may be cut short by the end of the tensor.
    const std::uint64_t end = count > (range.end - begin) / unit ? range.end : begin + count * unit;
    chunks.push_back({begin, end});
    begin = end;
  }
  return chunks;
}

ChunkId ScheduleBuilder::add_chunk(Chunk range) {
  require(range.begin < range.end && range.end <= schedule_.elements, "add_chunk: bad range");
  schedule_.chunks.push_back(range);
  return static_cast<ChunkId>(schedule_.chunks.size() - 1);
}

Value ScheduleBuilder::append(Op op, bool encoded) {
  const Rank where = op.kind == OpKind::send ? op.peer : op.rank;
  if (size_.ops >= kMaxOps) {
    throw TooManyOps(
        fmt::format("{} of {} ranks takes more than the {} ops that a schedule may hold",
                    schedule_.algorithm, schedule_.world_size, kMaxOps));
  }
  op.step = step_;
  if (only_size_ == nullptr) schedule_.ops.push_back(op);
  return {static_cast<ValueId>(size_.ops++), where, op.chunk, encoded, op.codec};
}

std::ranges::iota_view<Rank, Rank> ScheduleBuilder::partners_of(Rank rank, Rank first, Rank count,
                                                                Rank stride) const {
  if (is_wanted(rank)) return {Rank{0}, count};
  const Rank only = *only_rank_;
  const bool is_partner = only >= first && (only - first) % stride == 0;
  const Rank index = is_partner ? (only - first) / stride : count;
  return index < count ? std::ranges::iota_view<Rank, Rank>{index, index + 1}
                       : std::ranges::iota_view<Rank, Rank>{Rank{0}, Rank{0}};
}

std::ranges::iota_view<Rank, Rank> ScheduleBuilder::hops_from(Rank start) const {
  const Rank n = world_size();
  if (!only_rank_) return {Rank{0}, n - 1};
  const Rank leaving = (*only_rank_ + n - start) % n;  // the hop from the wanted rank
  return {leaving == 0 ? 0 : leaving - 1, std::min(leaving + 1, n - 1)};
}

Value ScheduleBuilder::encode(Value source, CodecRole codec) {
  if (!is_wanted(source.rank)) return {kElsewhere, source.rank, source.chunk, true, codec};
  return append({.kind = OpKind::encode,
                 .codec = codec,
                 .rank = source.rank,
                 .chunk = source.chunk,
                 .source = source.id},
                true);
}

Value ScheduleBuilder::send(Value encoded, Rank to) {
  require(encoded.encoded, "send: only encoded values travel");
  require(to < schedule_.world_size, "send: no such rank");
  if (to == encoded.rank) return encoded;
  if (!is_wanted(encoded.rank) && !is_wanted(to)) {
    return {kElsewhere, to, encoded.chunk, true, encoded.codec};
  }
  return append({.kind = OpKind::send,
                 .codec = encoded.codec,
                 .rank = encoded.rank,
                 .peer = to,
                 .chunk = encoded.chunk,
                 .source = encoded.id},
                true);
}

Value ScheduleBuilder::reduce(std::span<const Value> addends, Start start) {
  require(!addends.empty(), "reduce: nothing to add");
  Op op{.kind = OpKind::reduce,
        .start = start,
        .rank = addends.front().rank,
        .chunk = addends.front().chunk,
        .first_addend = static_cast<std::uint32_t>(size_.addends),
        .addend_count = static_cast<std::uint32_t>(addends.size())};
  if (!is_wanted(op.rank)) return {kElsewhere, op.rank, op.chunk, false};
  for (const Value& addend : addends) {
    require(addend.rank == op.rank, "reduce: the addends are on different ranks");
    require(addend.chunk == op.chunk, "reduce: the addends are of different chunks");
    if (only_size_ == nullptr) schedule_.addends.push_back(addend.id);
  }
  size_.addends += addends.size();
  return append(op, false);
}

void ScheduleBuilder::output(Value value) { output(value, schedule_.chunks[value.chunk].begin); }

void ScheduleBuilder::output(Value value, std::uint64_t begin) {
  if (!is_wanted(value.rank)) return;
  ++size_.outputs;
  if (only_size_ == nullptr)
    schedule_.outputs.push_back({value.rank, value.chunk, value.id, begin});
}

Schedule ScheduleBuilder::finish() {
  if (only_size_ != nullptr) *only_size_ = size_;
  // Algorithms are written chunk by chunk, as the life of a chunk; a reader and a simulator want
  // them step by step. Ops of a step keep their order, so operands still stand before their users.
  std::vector<Op>& ops = schedule_.ops;
  std::uint32_t steps = 0;
  for (const Op& op : ops) steps = std::max(steps, op.step + 1);
  std::vector<ValueId> next(std::size_t{steps} + 1, 0);  // by step: the id of its next op
  for (const Op& op : ops) ++next[op.step + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<ValueId> new_id(ops.size());
  for (ValueId id = 0; id < ops.size(); ++id) new_id[id] = next[ops[id].step]++;
  const auto renumber = [&new_id](ValueId& id) {
    if (id != kOwnInput && id != kElsewhere) id = new_id[id];
  };

  for (ValueId& addend : schedule_.addends) renumber(addend);
  for (Output& output : schedule_.outputs) renumber(output.value);
  for (Op& op : ops) {
    if (op.kind != OpKind::reduce) renumber(op.source);
  }
  // In place: a copy of millions of ops would take as much memory again.
  for (ValueId id = 0; id < ops.size(); ++id) {
    while (new_id[id] != id) {
      const ValueId place = new_id[id];
      std::swap(ops[id], ops[place]);
      std::swap(new_id[id], new_id[place]);
    }
  }

  std::vector<ValueId> addends;  // as their ops
  addends.reserve(schedule_.addends.size());
  for (Op& op : ops) {
    if (op.kind != OpKind::reduce) continue;
    const auto operands = schedule_.operands(op);
    op.first_addend = static_cast<std::uint32_t>(addends.size());
    addends.insert(addends.end(), operands.begin(), operands.end());
  }
  schedule_.addends = std::move(addends);
  return std::move(schedule_);
}

bool splits_evenly(const ScheduleRequest& request, std::uint64_t parts) {
  const std::uint64_t units = request.elements / request.alignment;
  return request.elements % request.alignment == 0 && units % parts == 0;
}

}  // namespace arlab
