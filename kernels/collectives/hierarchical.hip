// hierarchical: reference/collectives/hierarchical.cc on GPUs. Groups of `group_size` consecutive
// ranks; member m of every group owns chunk m.
//
//   1   encode this rank's part of every chunk, write the wire to its owner in the group
//   -   exchange
//   2   own chunk: add the group's contributions in ascending rank order from +0, encode the
//       partial sum, write the wire to the owners in all groups (one group: skipped)
//   -   exchange
//   3   own chunk: add the groups' partial sums in ascending order from +0, encode the sum, write
//       the wire to all of the group
//   -   exchange
//   4   decode every chunk into the output
#include "kernels/collectives/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Codec>)
    hierarchical_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  Exchange exchange(call.team, failed[0]);
  const int group_size = call.group_size;
  const int groups = call.team.layout.ranks / group_size;
  const int member = call.team.rank % group_size;
  const int first = call.team.rank - member;  // rank of the group

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
#pragma unroll 1
    for (int i = 0; i < group_size; ++i) {  // 1
      const int owner = (member + i) % group_size;
      for_each_tile(call, call.chunk[owner], round, [&](const Tile& tile) {
        send(codec, tile, tile.load<Number>(call.input), exchange.outgoing(first + owner));
      });
    }
    if (!exchange.run()) return;

    // Sums what `count` ranks sent, every `stride`th from `from` on; sends the sum to as many.
    const auto reduce = [&](int from, int stride, int count, int to, int to_stride, int to_count) {
      for_each_tile(call, call.chunk[member], round, [&](const Tile& tile) {
        Eight<Number> sum;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          sum = receive_add(codec, tile, exchange.incoming(from + i * stride), sum);
        }
        const auto encoded = codec.encode(sum, tile.at());
#pragma unroll 1
        for (int i = 0; i < to_count; ++i) {
          codec.store(encoded, exchange.outgoing(to + i * to_stride) + tile.slot_offset, tile.at());
        }
      });
    };
    if (groups == 1) {
      reduce(first, 1, group_size, first, 1, group_size);
    } else {
      reduce(first, 1, group_size, member, group_size, groups);  // 2
      if (!exchange.run()) return;
      reduce(member, group_size, groups, first, 1, group_size);  // 3
    }
    if (!exchange.run()) return;
#pragma unroll 1
    for (int owner = 0; owner < group_size; ++owner) {  // 4
      for_each_tile(call, call.chunk[owner], round, [&](const Tile& tile) {
        tile.store(call.output, receive<Number>(codec, tile, exchange.incoming(first + owner)));
      });
    }
  }
  exchange.end();
}

hipError_t launch_hierarchical(const Call& call, const CodecChoice& codec, DType dtype,
                               hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Number>(const Codec& device_codec, Number) {
                      hipLaunchKernelGGL(HIP_KERNEL_NAME(hierarchical_kernel<Codec, Number>),
                                         dim3(static_cast<unsigned>(call.blocks)), dim3(kThreads),
                                         0, stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
