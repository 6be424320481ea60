#include "reference/collectives/schedule.h"

#include <set>
#include <tuple>

namespace arlab {

Volume volume_of(const Schedule& schedule, Rank group_size) {
  if (group_size == 0 || schedule.world_size % group_size != 0) {
    fail("group size {} does not divide the world size {}", group_size, schedule.world_size);
  }
  Volume volume;
  std::set<std::tuple<std::uint32_t, Rank, Rank>> messages;
  for (const Op& op : schedule.ops) {
    if (op.kind != OpKind::send) continue;
    const std::uint64_t elements = schedule.chunks[op.chunk].size();
    volume.total_elements += elements;
    if (op.rank / group_size != op.peer / group_size) volume.cross_group_elements += elements;
    messages.emplace(op.step, op.rank, op.peer);
  }
  volume.messages = messages.size();
  if (schedule.elements != 0) {
    const auto payload = static_cast<double>(schedule.elements);
    volume.total = static_cast<double>(volume.total_elements) / payload;
    volume.cross_group = static_cast<double>(volume.cross_group_elements) / 2 / payload;
  }
  return volume;
}

}  // namespace arlab
