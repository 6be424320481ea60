// reduce_scatter: every rank ends with the sum of one slot, in place.
//
//   step 0   every rank: encode slot j, send it to rank j
//   step 1   rank j: sum the contributions in ascending rank order from +0
//   then     slot j of rank j's output is the sum; its other slots are its input, as it was
//
// The first half of two_shot: reduce_scatter, then all_gather, end with its bits where slots are
// whole blocks of the codec. Slots are of equal size and each is encoded as it would be alone, so
// that the codec has no say in which rank holds which elements.
//
// Source: MPI_Reduce_scatter_block, NCCL (in place). Volume N - 1 payloads.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kReduceScatterOwn = own_option("encoded");

Schedule reduce_scatter(const ScheduleRequest& request) {
  ScheduleBuilder s("reduce_scatter", request, Collective::reduce_scatter);
  const bool own_exact = text_of(kReduceScatterOwn, request.options) == "exact";
  const std::uint64_t slot_elements = s.slot_elements();

  for (Rank owner = 0; owner < s.world_size(); ++owner) {
    const ChunkId slot = s.add_chunk({owner * slot_elements, (owner + 1) * slot_elements});

    s.at_step(0);
    std::vector<Value> contributions;
    for (Rank rank = 0; rank < s.world_size(); ++rank) {
      const Value input = s.input(rank, slot);
      const bool exact = rank == owner && own_exact;
      contributions.push_back(exact ? input : s.send(s.encode(input), owner));
      if (rank != owner) s.output(input);
    }

    s.at_step(1);
    s.output(s.reduce(contributions, Start::zero));
  }
  return s.finish();
}

}  // namespace

Algorithm reduce_scatter_algorithm() {
  return {.name = "reduce_scatter",
          .summary = "every rank reduces its slot of all ranks, directly",
          .source = "MPI; NCCL; first half of two_shot",
          .collective = Collective::reduce_scatter,
          .options = {kReduceScatterOwn},
          .write = reduce_scatter,
          .symmetry = [](const ScheduleRequest&) { return RankSymmetry{RankSymmetry::any}; }};
}

}  // namespace arlab
