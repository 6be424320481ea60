// all_gather: every rank ends with slot i of rank i, for all i, in place.
//
//   step 0   rank i: encode slot i of its input once, send it to all
//   then     every rank, rank i too, decodes the same bytes, so all ranks hold identical bits; with
//            own = exact rank i keeps its slot as it was
//
// What ranks have in other slots does not matter. The second half of two_shot: see reduce_scatter.
//
// Source: MPI_Allgather, NCCL (in place). Volume N - 1 payloads.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kAllGatherOwn = own_option("encoded");

Schedule all_gather(const ScheduleRequest& request) {
  ScheduleBuilder s("all_gather", request, Collective::all_gather);
  const bool own_exact = text_of(kAllGatherOwn, request.options) == "exact";
  const std::uint64_t slot_elements = s.slot_elements();

  for (Rank owner = 0; owner < s.world_size(); ++owner) {
    const ChunkId slot = s.add_chunk({owner * slot_elements, (owner + 1) * slot_elements});
    const Value input = s.input(owner, slot);
    if (own_exact) s.output(input);
    if (own_exact && s.world_size() == 1) break;

    s.at_step(0);
    const Value encoded = s.encode(input);
    for (Rank rank = 0; rank < s.world_size(); ++rank) {
      if (rank != owner || !own_exact) s.output(s.send(encoded, rank));
    }
  }
  return s.finish();
}

}  // namespace

Algorithm all_gather_algorithm() {
  return {.name = "all_gather",
          .summary = "every rank sends its slot to all, directly",
          .source = "MPI; NCCL; second half of two_shot",
          .collective = Collective::all_gather,
          .options = {kAllGatherOwn},
          .write = all_gather,
          .symmetry = [](const ScheduleRequest&) { return RankSymmetry{RankSymmetry::any}; }};
}

}  // namespace arlab
