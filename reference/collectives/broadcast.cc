// broadcast: rank 0 scatters its tensor, and all ranks give each other what they got.
//
//   step 0   rank 0: encode every chunk, send chunk j to rank j                   (scatter)
//   step 1   rank j: send the bytes of chunk j on to all that do not have them    (all-gather);
//            with two ranks only rank 0 has any to send, and does so in step 0
//   then     every rank, rank 0 too, decodes the same bytes, so all ranks hold identical bits; with
//            own = exact rank 0 keeps its tensor as it was
//
// Source: MPI_Bcast of long messages (van de Geijn). Volume N - 1 payloads, of which less than 2
// leave rank 0; sent directly, all would.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kBroadcastOwn = own_option("encoded");

Schedule broadcast(const ScheduleRequest& request) {
  ScheduleBuilder s("broadcast", request, Collective::broadcast);
  const bool own_exact = text_of(kBroadcastOwn, request.options) == "exact";
  const std::vector<Chunk> ranges = s.split(s.world_size());

  for (Rank relay = 0; relay < s.world_size(); ++relay) {
    if (ranges[relay].size() == 0) continue;
    const ChunkId chunk = s.add_chunk(ranges[relay]);
    const Value input = s.input(0, chunk);
    if (own_exact) s.output(input);
    if (own_exact && s.world_size() == 1) break;

    s.at_step(0);
    const Value encoded = s.encode(input);
    if (!own_exact) s.output(encoded);
    const Value scattered = s.send(encoded, relay);
    if (relay != 0) s.output(scattered);

    s.at_step(s.world_size() == 2 ? 0 : 1);
    for (Rank rank = 1; rank < s.world_size(); ++rank) {
      if (rank != relay) s.output(s.send(scattered, rank));
    }
  }
  return s.finish();
}

}  // namespace

Algorithm broadcast_algorithm() {
  return {.name = "broadcast",
          .summary = "rank 0 scatters its tensor, all ranks gather it",
          .source = "MPI (van de Geijn)",
          .collective = Collective::broadcast,
          .options = {kBroadcastOwn},
          .write = broadcast};
}

}  // namespace arlab
