// two_shot: every rank owns a chunk, reduces it, and gives the result to all.
//
//   step 0   every rank: encode every chunk, send it to its owner           (reduce-scatter)
//   step 1   owner: sum the contributions in ascending rank order from +0,
//            encode the sum once, send it to all                            (all-gather)
//   then     every rank, the owner too, decodes the same bytes, so all ranks hold identical bits
//
// A rank owns one range, or of stripes of so many elements every world_size-th, as kernels do whose blocks walk through a tensor.
//
// Source: MK1 QuickReduce, AllReduceTwoshot; Flash Communication's two-step. Volume 2 (N - 1)
// payloads.

#include <algorithm>

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kTwoShotOwn = own_option("encoded");
const Field kStripe = {.name = "stripe",
                       .kind = Integer{0, kMaxElements},
                       .otherwise = std::uint64_t{0},
                       .unit = "elements",
                       .help =
                           "let ranks own stripes of N elements in turn, rounded up to whole "
                           "blocks; 0: each owns one range"};

/// Ranges that ranks own, in turn.
std::vector<Chunk> owned_ranges(const ScheduleBuilder& s, const ScheduleRequest& request) {
  const std::uint64_t wanted = integer_of(kStripe, request.options);
  if (wanted == 0) return s.split(s.world_size());
  const std::uint64_t blocks = (wanted - 1) / request.alignment + 1;
  const std::uint64_t stripe = std::min(blocks * request.alignment, request.elements);
  if (stripe != 0 && request.elements / stripe > kMaxOps) {
    fail("stripe: {} of {} elements are too many: allowed are {}", request.elements / stripe,
         stripe, kMaxOps);
  }
  std::vector<Chunk> stripes;
  for (std::uint64_t begin = 0; begin < request.elements; begin += stripe) {
    stripes.push_back({begin, std::min(request.elements, begin + stripe)});
  }
  return stripes;
}

Schedule two_shot(const ScheduleRequest& request) {
  ScheduleBuilder s("two_shot", request);
  const bool own_exact = text_of(kTwoShotOwn, request.options) == "exact";
  Rank next = 0;
  for (const Chunk& range : owned_ranges(s, request)) {
    const Rank owner = next++ % s.world_size();
    if (range.size() == 0) continue;
    const ChunkId chunk = s.add_chunk(range);

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
          .options = {kTwoShotOwn, kStripe},
          .write = two_shot,
          .symmetry = [](const ScheduleRequest& r) {
            const bool even = integer_of(kStripe, r.options) == 0 && splits_evenly(r, r.world_size);
            return RankSymmetry{even ? RankSymmetry::any : RankSymmetry::none};
          }};
}

}  // namespace arlab
