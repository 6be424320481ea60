#include "reference/collectives/schedule.h"

#include <algorithm>
#include <tuple>

namespace arlab {

std::vector<std::uint32_t> encodings_of(const Schedule& schedule) {
  std::vector<std::uint32_t> encodings(schedule.ops.size());
  for (ValueId id = 0; id < schedule.ops.size(); ++id) {
    const Op& op = schedule.ops[id];
    for (const ValueId operand : schedule.operands(op)) {
      if (operand < id) encodings[id] = std::max(encodings[id], encodings[operand]);
    }
    if (op.kind == OpKind::encode) ++encodings[id];
  }
  return encodings;
}

OutputKind content_of(const Op& op, const std::vector<OutputKind>& known) {
  if (op.kind == OpKind::tail) return op.makes;
  if (op.kind == OpKind::encode && op.codec == CodecRole::output) return OutputKind::quantized;
  return op.kind == OpKind::reduce || op.source >= known.size() ? OutputKind::sum
                                                                : known[op.source];
}

std::vector<OutputKind> contents_of(const Schedule& schedule) {
  std::vector<OutputKind> contents;
  contents.reserve(schedule.ops.size());
  for (const Op& op : schedule.ops) contents.push_back(content_of(op, contents));
  return contents;
}

OutputKind final_kind(const Schedule& schedule) {
  if (schedule.row == 0) return OutputKind::sum;
  const bool encodes =
      std::ranges::count(schedule.outputs, OutputKind::quantized, &Output::kind) != 0;
  return encodes ? OutputKind::quantized : OutputKind::normalized;
}

std::string_view name_of(CodecRole role) {
  switch (role) {
    case CodecRole::outer:
      return "outer";
    case CodecRole::inner:
      return "inner";
    case CodecRole::output:
      return "output";
  }
  return "unknown codec";
}

bool is_aligned(const Schedule& schedule, const Chunk& chunk, std::uint64_t alignment) {
  const std::uint64_t slot = schedule.slot_elements();
  if (slot == 0 || alignment == 0) return false;
  const std::uint64_t start = chunk.begin / slot * slot;
  const std::uint64_t begin = chunk.begin - start;
  const std::uint64_t end = chunk.end - start;
  return end <= slot && begin % alignment == 0 && (end % alignment == 0 || end == slot);
}

Volume volume_of(const Schedule& schedule, Rank group_size) {
  if (group_size == 0 || schedule.world_size % group_size != 0) {
    fail("group size {} does not divide the world size {}", group_size, schedule.world_size);
  }
  // A schedule has a send less than ops at least: the first one encodes.
  static_assert(UINT64_MAX / (kMaxOps - 1) >= kMaxElements);
  Volume volume;
  std::vector<std::tuple<std::uint32_t, Rank, Rank>> messages;
  for (const Op& op : schedule.ops) {
    if (op.kind != OpKind::send) continue;
    const std::uint64_t elements = schedule.chunks[op.chunk].size();
    volume.total_elements += elements;
    if (op.rank / group_size != op.peer / group_size) volume.cross_group_elements += elements;
    messages.emplace_back(op.step, op.rank, op.peer);
  }
  std::sort(messages.begin(), messages.end());
  const auto end = std::unique(messages.begin(), messages.end());
  volume.messages = static_cast<std::uint64_t>(end - messages.begin());
  if (schedule.elements != 0) {
    const auto payload = static_cast<double>(schedule.elements);
    volume.total = static_cast<double>(volume.total_elements) / payload;
    volume.cross_group = static_cast<double>(volume.cross_group_elements) / 2 / payload;
  }
  return volume;
}

}  // namespace arlab
