// hierarchical_reduce_scatter: a reduce-scatter in two hops, so that little crosses between groups.
//
//   step 0   inside each group: encode slot j, send it to the member that has the place of rank j in its group
//   step 1   that member sums in ascending rank order from +0, encodes the sum, sends it to rank j
//   step 2   rank j: sum the groups' sums in ascending group order from +0
//   then     slot j of rank j's output is the sum; its other slots are its input, as it was
//
// Step 0 encodes with the inner codec, step 1 with the outer one, if the options name one. With one group this is reduce_scatter.
//
// Source: ZeRO++ (Wang et al. 2023), section 4.3, two-hop quantized gradient reduce-scatter (qgZ). Across groups, 1/group size of
// what reduce_scatter sends there.

#include "reference/collectives/hierarchical.h"

namespace arlab {
namespace {

Schedule hierarchical_reduce_scatter(const ScheduleRequest& request) {
  ScheduleBuilder s("hierarchical_reduce_scatter", request, Collective::reduce_scatter);
  const bool own_exact = text_of(hierarchical_options().front(), request.options) == "exact";
  const Rank group_size = checked_group_size(request);
  const Rank groups = s.world_size() / group_size;

  for (Rank owner = 0; owner < s.world_size(); ++owner) {
    const Rank member = owner % group_size;
    const ChunkId slot = s.add_chunk({owner * s.slot_elements(), (owner + 1) * s.slot_elements()});
    const std::vector<Value> partials =
        sums_of_groups(s, slot, member, group_size, request.options, 0);
    for (Rank rank = 0; rank < s.world_size(); ++rank) {
      if (rank != owner) s.output(s.input(rank, slot));
    }
    if (groups == 1) {
      s.output(partials.front());
      continue;
    }

    std::vector<Value> contributions;
    for (const Rank group : s.partners_of(owner, member, groups, group_size)) {
      const bool exact = partials[group].rank == owner && own_exact;
      contributions.push_back(exact ? partials[group] : s.send(s.encode(partials[group]), owner));
    }
    s.at_step(2);
    s.output(sum_of(s, owner, slot, contributions));
  }
  return s.finish();
}

}  // namespace

Algorithm hierarchical_reduce_scatter_algorithm() {
  return {.name = "hierarchical_reduce_scatter",
          .summary = "reduce-scatter in the group, then across groups",
          .source = "ZeRO++ (qgZ)",
          .collective = Collective::reduce_scatter,
          .options = hierarchical_options(),
          .write = hierarchical_reduce_scatter,
          .symmetry = [](const ScheduleRequest& request) {
            return RankSymmetry{RankSymmetry::grouped, checked_group_size(request)};
          }};
}

}  // namespace arlab
