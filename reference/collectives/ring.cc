// ring: chunks travel around the ring twice, first collecting sums, then spreading the result.
//
//   steps 0 .. N-2      chunk c starts at rank c + 1 and moves to the next rank at every step; a
//                       rank adds what arrives to its own value and encodes the partial sum again;
//                       rank c is the last to add and owns the result           (reduce-scatter)
//   steps N-1 .. 2N-3   the owner encodes the result once; it moves around the ring (all-gather):
//                       forward = unchanged  every rank passes on the bytes it got: same bits
//                       forward = reencoded  every rank decodes and encodes again: ranks may differ
//
// A sum starts from the own value, exact unless own = encoded. Volume 2 (N - 1) payloads, 2 (N - 1)
// latencies, N - 1 roundings of partial sums: what QuickReduce avoids by two_shot.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kRingOwn = own_option("exact");
/// Whether the all-gather passes the owner's bytes on, or decodes them and encodes them again.
const Field kForward = {.name = "forward",
                        .kind = OneOf{{"unchanged", "reencoded"}},
                        .otherwise = "unchanged",
                        .help = "how the bytes of the all-gather go on"};

Schedule ring(const ScheduleRequest& request) {
  ScheduleBuilder s("ring", request);
  const bool own_encoded = text_of(kRingOwn, request.options) == "encoded";
  const bool reencode = text_of(kForward, request.options) == "reencoded";
  const Rank n = s.world_size();
  const std::vector<Chunk> ranges = s.split(n);

  for (Rank owner = 0; owner < n; ++owner) {
    if (ranges[owner].size() == 0) continue;
    const ChunkId chunk = s.add_chunk(ranges[owner]);

    const Rank start = (owner + 1) % n;
    Value partial = s.input(start, chunk);
    for (const Rank hop : s.hops_from(start)) {
      const Rank from = (start + hop) % n;
      if (partial.rank != from) partial = s.elsewhere(from, chunk, false);
      s.at_step(hop);
      const Rank next = (partial.rank + 1) % n;
      const Value arrived = s.send(s.encode(partial), next);
      s.at_step(hop + 1);
      const Value own = s.input(next, chunk);
      partial = s.reduce(std::vector{own_encoded ? s.encode(own) : own, arrived}, Start::first);
    }

    if (partial.rank != owner) partial = s.elsewhere(owner, chunk, false);
    s.at_step(n - 1);
    Value result = s.encode(partial);
    s.output(result);
    for (const Rank hop : s.hops_from(owner)) {
      const Rank from = (owner + hop) % n;
      if (result.rank != from) result = s.elsewhere(from, chunk, true);
      s.at_step(n - 1 + hop);
      if (reencode && hop > 0) result = s.encode(result);
      result = s.send(result, (result.rank + 1) % n);
      s.output(result);
    }
  }
  return s.finish();
}

}  // namespace

Algorithm ring_algorithm() {
  return {.name = "ring",
          .summary = "ring reduce-scatter, then ring all-gather",
          .source = "NCCL ring",
          .options = {kRingOwn, kForward},
          .write = ring,
          .symmetry = [](const ScheduleRequest& r) {
            const bool even = splits_evenly(r, r.world_size);
            return RankSymmetry{even ? RankSymmetry::cyclic : RankSymmetry::none};
          }};
}

}  // namespace arlab
