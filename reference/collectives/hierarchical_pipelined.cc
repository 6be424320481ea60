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

const Field kMicroChunks = {.name = "micro_chunks",
                            .kind = Integer{1, 4096},
                            .otherwise = std::uint64_t{4},
                            .help = "cut each chunk into N micro-chunks",
                            .trials = {1, 2, 8, 16}};

Schedule hierarchical_pipelined(const ScheduleRequest& request) {
  ScheduleBuilder s("hierarchical_pipelined", request);
  const Rank group_size = checked_group_size(request);
  const auto micro_chunks = static_cast<std::uint32_t>(integer_of(kMicroChunks, request.options));
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
  return {
      .name = "hierarchical_pipelined",
      .summary = "hierarchical in micro-chunks, stages overlapped; the same bits",
      .source = "Flash Communication V2, figure 8",
      .options = {own_option("encoded"), group_size_option(), kMicroChunks, inner_codec_option()},
      .write = hierarchical_pipelined,
      .symmetry = hierarchical_symmetry};
}

}  // namespace arlab
