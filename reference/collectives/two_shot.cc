// two_shot: every rank owns a chunk, reduces it, and gives the result to all.
//
//   step 0   every rank: encode every chunk, send it to its owner           (reduce-scatter)
//   step 1   owner: sum the contributions in ascending rank order from +0,
//            encode the sum once, send it to all                            (all-gather)
//   then     every rank, the owner too, decodes the same bytes, so all ranks hold identical bits
//
// Source: MK1 QuickReduce, AllReduceTwoshot; Flash Communication's two-step. Volume 2 (N - 1)
// payloads.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kTwoShotOwn = own_option("encoded");

Schedule two_shot(const ScheduleRequest& request) {
  ScheduleBuilder s("two_shot", request);
  const bool own_exact = text_of(kTwoShotOwn, request.options) == "exact";
  const std::vector<Chunk> ranges = s.split(s.world_size());

  for (Rank owner = 0; owner < s.world_size(); ++owner) {
    if (ranges[owner].size() == 0) continue;
    const ChunkId chunk = s.add_chunk(ranges[owner]);

    s.at_step(0);
    std::vector<Value> contributions;
    for (const Rank rank : s.partners_of(owner)) {
      const Value input = s.input(rank, chunk);
      const bool exact = rank == owner && own_exact;
      contributions.push_back(exact ? input : s.send(s.encode(input), owner));
    }

    s.at_step(1);
    const Value result = s.encode(s.reduce(contributions, Start::zero));
    for (const Rank rank : s.partners_of(owner)) s.output(s.send(result, rank));
  }
  return s.finish();
}

}  // namespace

Algorithm two_shot_algorithm() {
  return {.name = "two_shot",
          .summary = "reduce-scatter to the owner of each chunk, then all-gather",
          .source = "MK1 QuickReduce; Flash Communication",
          .options = {kTwoShotOwn},
          .write = two_shot,
          .symmetry = [](const ScheduleRequest& r) {
            const bool even = splits_evenly(r, r.world_size);
            return RankSymmetry{even ? RankSymmetry::any : RankSymmetry::none};
          }};
}

}  // namespace arlab
