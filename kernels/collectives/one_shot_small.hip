// one_shot where no block has more than one tile: what counts is how often a block waits for
// memory. The work is that of one_shot.hip, in one round; but the contributions of several ranks
// are loaded together.
#include "kernels/collectives/launch.h"
#include "kernels/collectives/peers.h"
#include "kernels/collectives/small.h"
#include "kernels/collectives/staging_buffer.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    one_shot_small_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  Exchange exchange(call.team, failed[0]);
  StagingBuffer<Codec> staging(codec, call, memory[0]);

  Tile tile;
  if (!tile_at(call, call.chunk[0], 0, 0, tile)) return;  // nor has this block on other ranks
  const auto encoded = codec.encode(tile.load<Element>(call.input), Batch::at());
  staging.put(0, encoded, Batch::at());
  staging.fill();
  for_each_peer(call.team, [&](int to) ARLAB_INLINED_LAMBDA {
    staging.send_tile(0, encoded, exchange.outgoing(to));
  });
  exchange.signal();
  const Pack8<Element> own = codec.decode(encoded, Batch::at());
  if (!exchange.wait()) return;
  pdl_trigger();
  tile.store(call.output, small_sum<SumFrom::first>(codec, exchange, call.team.layout.ranks,
                                                    call.team.rank, own));
  exchange.end();
}

hipError_t launch_one_shot_small(const Call& call, const CodecChoice& codec, DType dtype,
                                 hipStream_t stream) {
  return with_small_codec(
      codec, dtype, [&]<class Codec, class Element>(const Codec& device_codec, Element) {
        launch_pdl(one_shot_small_kernel<Codec, Element>, static_cast<unsigned>(call.blocks),
                   stream, call, device_codec);
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
