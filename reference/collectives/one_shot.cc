// one_shot: every rank sends its whole tensor to every other rank, and every rank reduces
// everything.
//
//   step 0   every rank: encode the tensor, send it to all others
//   step 1   every rank: sum all contributions in ascending rank order, from the first addend
//
// Source: MK1 QuickReduce, AllReduceOneshot. Volume N (N - 1) payloads, one latency.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kOneShotOwn = own_option("encoded");

Schedule one_shot(const ScheduleRequest& request) {
  ScheduleBuilder s("one_shot", request);
  const bool own_exact = text_of(kOneShotOwn, request.options) == "exact";
  const ChunkId tensor = s.add_chunk({0, request.elements});

  s.at_step(0);
  std::vector<Value> encoded;
  for (Rank rank = 0; rank < s.world_size(); ++rank) {
    encoded.push_back(s.encode(s.input(rank, tensor)));
  }
  for (Rank reducer = 0; reducer < s.world_size(); ++reducer) {
    s.at_step(0);
    std::vector<Value> contributions;
    for (const Rank rank : s.partners_of(reducer)) {
      const bool exact = rank == reducer && own_exact;
      contributions.push_back(exact ? s.input(rank, tensor) : s.send(encoded[rank], reducer));
    }
    s.at_step(1);
    s.output(s.reduce(contributions, Start::first));
  }
  return s.finish();
}

}  // namespace

Algorithm one_shot_algorithm() {
  return {.name = "one_shot",
          .summary = "all ranks send everything to all, all ranks reduce",
          .source = "MK1 QuickReduce",
          .options = {kOneShotOwn},
          .write = one_shot,
          .symmetry = [](const ScheduleRequest&) { return RankSymmetry{RankSymmetry::any}; }};
}

}  // namespace arlab
