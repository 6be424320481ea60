// one_shot where no block has more than one tile, with Lamport slots: of 2 to 8 ranks.
#include "kernels/codecs/plain.h"
#include "kernels/collectives/launch.h"
#include "kernels/transport/lamport.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, kLamportBlocks<Codec>)
    one_shot_lamport_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  constexpr unsigned kWords = kLamportWords<Codec>;
  ARLAB_SHARED_ARRAY(LamportMemory<kWords>, memory, 1);
  touch_parameter(call);
  LamportExchange<kWords> exchange(call.team, tile_bytes_of<Codec>(call) / 16, memory[0]);
  const int rank = call.team.rank;
  Tile tile;
  if (!tile_at(call, call.chunk[0], 0, 0, tile)) return;  // nor has this block on other ranks
  pdl_wait();
  const Pack8<Element> x = tile.load<Element>(call.input);
  exchange.begin();
  const auto encoded = codec.encode(x, Batch::at());
  codec.store(encoded, exchange.wire(rank), Batch::at());
  exchange.send(0, kAllRanks, memory[0].wire[rank]);
  exchange.signal();
  if (!exchange.receive(0, kAllRanks)) return;
  pdl_trigger();
  Pack8<Element> sum[1];
  sum_batch<SumFrom::first>(
      codec, call, [&](int from) ARLAB_INLINED_LAMBDA { return exchange.wire(from); }, 1, sum);
  tile.store(call.output, sum[0]);
  exchange.end();
}

template <class Codec>
constexpr bool kIsPlain = false;
template <class Element>
constexpr bool kIsPlain<Plain<Element>> = true;

struct DirectMemory {
  std::uint32_t failed;
};

/// The kernel for elements as they are: a thread has what it needs in registers.
template <class Codec, class Element, int kMostRanks>
__global__ void __launch_bounds__(kThreads, kLamportBlocks<Codec>)
    one_shot_direct_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec) {
  ARLAB_SHARED_ARRAY(DirectMemory, memory, 1);
  touch_parameter(call);
  LamportExchange<kLamportWords<Codec>, DirectMemory> exchange(
      call.team, tile_bytes_of<Codec>(call) / 16, memory[0]);
  Tile tile;
  if (!tile_at(call, call.chunk[0], 0, 0, tile)) return;
  pdl_wait();
  const Pack8<Element> x = tile.load<Element>(call.input);
  exchange.begin();
  Uint4 words[kMostRanks];
  if (!exchange.exchange(__builtin_bit_cast(Uint4, x), words)) return;
  pdl_trigger();
  with_sums<Element, Codec::kClampsFp16Sums, kMostRanks>(
      call.fp32_sums, [&]<class Sum>(std::type_identity<Sum>) ARLAB_INLINED_LAMBDA {
        Sum sum;
        sum.begin_with(__builtin_bit_cast(Pack8<Element>, words[0]));
#pragma unroll
        for (int from = 1; from < kMostRanks; ++from) {
          if (from >= call.team.layout.ranks) continue;
          sum.template take<true>(__builtin_bit_cast(Pack8<Element>, words[from]));
        }
        tile.store(call.output, sum.template rounded<true>());
      });
  exchange.end();
}

}  // namespace

hipError_t launch_one_shot_lamport(const Call& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  return with_codec(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& device_codec, Element) {
        if constexpr (kIsPlain<Codec> && kWorksInLamportSlots<Codec, Element>) {
          launch_pdl(call.team.layout.ranks == 2
                         ? one_shot_direct_kernel<Codec, Element, 2>
                         : one_shot_direct_kernel<Codec, Element, kMaxRanks>,
                     static_cast<unsigned>(call.blocks), stream, call, device_codec);
        } else if constexpr (kWorksInLamportSlots<Codec, Element>) {
          launch_pdl(one_shot_lamport_kernel<Codec, Element>, static_cast<unsigned>(call.blocks),
                     stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
