// one_shot: reference/collectives/one_shot.cc on GPUs.
//
//   1   encode this rank's tensor once, write the wire to every rank (this one too)
//   -   exchange
//   2   add all contributions in ascending rank order, from the first; write the output
#include "kernels/collectives/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads)
    one_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  Exchange exchange(call.team, failed[0]);
  if (!exchange.begin()) return;
  const int ranks = call.team.layout.ranks;
  const ElementRange& tensor = call.chunk[0];

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
    for_each_tile(call, tensor, round, [&](const Tile& tile) {  // 1
      const auto encoded = codec.encode(tile.load<Number>(call.input), tile.at);
#pragma unroll 1
      for (int to = 0; to < ranks; ++to) {
        codec.store(encoded, exchange.outgoing(to) + tile.slot_offset, tile.at);
      }
    });
    if (!exchange.run()) return;
    for_each_tile(call, tensor, round, [&](const Tile& tile) {  // 2
      Eight<Number> sum = receive<Number>(codec, tile, exchange.incoming(0));
#pragma unroll 1
      for (int from = 1; from < ranks; ++from) {
        sum = receive_add(codec, tile, exchange.incoming(from), sum);
      }
      tile.store(call.output, sum);
    });
  }
  exchange.end();
}

hipError_t launch_one_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Number>(const Codec& device_codec, Number) {
                      hipLaunchKernelGGL(HIP_KERNEL_NAME(one_shot_kernel<Codec, Number>),
                                         dim3(static_cast<unsigned>(call.blocks)), dim3(kThreads),
                                         0, stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
