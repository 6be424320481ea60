// hierarchical_pipelined: hierarchical with every chunk cut into micro-chunks that follow each
// other through the stages, so that links inside groups and links between groups work at the same
// time.
//
//   step m       micro-chunk m of every chunk: reduce-scatter in the group
//   step m + 1   micro-chunk m: exchange across groups
//   step m + 2   micro-chunk m: all-gather in the group
//
// A micro-chunk keeps its chunk's owner, so the bits are those of hierarchical.
// Source: Flash Communication V2, figure 8.

#include "reference/collectives/hierarchical.h"

namespace arlab {
namespace {

constexpr std::uint32_t kDefaultMicroChunks = 4;
constexpr std::uint32_t kMaxMicroChunks = 4096;

Schedule hierarchical_pipelined(const ScheduleRequest& request) {
  ScheduleBuilder s("hierarchical_pipelined", request);
  const Rank group_size = checked_group_size(request);
  const std::uint32_t micro_chunks = request.options.micro_chunks.value_or(kDefaultMicroChunks);
  if (micro_chunks < 1 || micro_chunks > kMaxMicroChunks) {
    fail("micro-chunks {} is out of range: allowed is 1 to {}", micro_chunks, kMaxMicroChunks);
  }
  const std::vector<Chunk> ranges = s.split(group_size);
  for (Rank owner = 0; owner < group_size; ++owner) {
    const std::vector<Chunk> micro = s.split(ranges[owner], micro_chunks);
    for (std::uint32_t m = 0; m < micro_chunks; ++m) {
      if (micro[m].size() == 0) continue;
      write_hierarchical_chunk(s, micro[m], owner, group_size, request.options, m);
    }
  }
  return s.finish();
}

}  // namespace

Algorithm hierarchical_pipelined_algorithm() {
  return {.name = "hierarchical_pipelined",
          .summary = "hierarchical in micro-chunks, stages overlapped; the same bits",
          .source = "Flash Communication V2, figure 8",
          .options = {{"own", "encoded"},
                      {"group-size", "world size / smallest prime factor"},
                      {"micro-chunks", std::to_string(kDefaultMicroChunks)},
                      {"inner-codec", "the codec"}},
          .write = hierarchical_pipelined,
          .symmetry = hierarchical_symmetry};
}

}  // namespace arlab
