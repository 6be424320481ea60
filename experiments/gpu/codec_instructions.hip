// What the tuned codecs take of a GPU's instructions: for codec_instructions.py to count, never run.
//
// A kernel encodes one tile or three, another adds one wire or three to a sum; what the others of
// three take is what a codec takes for each more, with addresses that batches share. Per thread,
// that is the work on eight elements.
//
//   nvcc -x cu -std=c++20 -arch=sm_90 -O3 -fmad=false --expt-relaxed-constexpr -diag-suppress 2810 \
//       -DARLAB_PLATFORM=cuda -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -I. -Ikernels/platform/cuda \
//       -cubin -o codecs.cubin experiments/gpu/codec_instructions.hip
//   nvdisasm -c codecs.cubin > sm_90.txt
//   ninja -C build arlab_codec_instructions
//   llvm-objdump-19 -d build/tests/kernels/codec_instructions.co > gfx942.txt
#include <tuple>

#include "kernels/codecs/choice.h"
#include "kernels/collectives/batch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element, int kTiles>
__global__ void __launch_bounds__(kThreads)
    encode_tiles(ARLAB_KERNEL_PARAMETER Codec codec, const void* tensor, std::uint8_t* wires) {
  const Batch batch{kTiles, 0, kTile};
  Pack8<Element> x[kTiles];
  typename Codec::Encoded encoded[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) x[i] = batch.load<Element>(tensor, i);
  encode_batch(codec, x, kTiles, encoded);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    codec.store(encoded[i], global_pointer(wires) + i * Codec::kTileBytes, Batch::at());
  }
}

template <class Codec, class Element, int kWires>
__global__ void __launch_bounds__(kThreads)
    add_wires(ARLAB_KERNEL_PARAMETER Codec codec, const std::uint8_t* wires, void* tensor) {
  const Batch batch{1, 0, kTile};
  Pack8<Element> sum[1] = {batch.load<Element>(tensor, 0)};
#pragma unroll
  for (int i = 0; i < kWires; ++i) {
    const typename Codec::Encoded encoded[1] = {
        codec.load(global_pointer(wires) + i * Codec::kTileBytes, Batch::at())};
    add_batch(codec, encoded, 1, sum);
  }
  batch.store<Element>(tensor, 0, sum[0]);
}

template <class Element>
using TunedCodecs =
    std::tuple<Plain<Element>, QuickReduce<QFp8, Element>, QuickReduce<Q8, Element>,
               QuickReduce<Q6, Element>, QuickReduce<Q4, Element>,
               AnyBit<Element, FixedAnyBit<8, 7>>, AnyBit<Element, FixedAnyBit<5, 7>>,
               AnyBit<Element, FixedAnyBit<4, 5>>,
               AnyBit<Element, FixedAnyBit<2, 5, Spikes::exact>>>;

template <int kTiles, class Codec, class Element>
void launch_both(const Codec& codec, Element, void* tensor, std::uint8_t* wires) {
  hipLaunchKernelGGL(HIP_KERNEL_NAME(encode_tiles<Codec, Element, kTiles>), dim3(1), dim3(kThreads),
                     0, nullptr, codec, tensor, wires);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(add_wires<Codec, Element, kTiles>), dim3(1), dim3(kThreads), 0,
                     nullptr, codec, wires, tensor);
}
template <class Element>
void launch_all(void* tensor, std::uint8_t* wires) {
  std::apply(
      [&](const auto&... codec) {
        (launch_both<1>(codec, Element(), tensor, wires), ...);
        (launch_both<3>(codec, Element(), tensor, wires), ...);
      },
      TunedCodecs<Element>());
}
template void launch_all<Fp16>(void*, std::uint8_t*);
template void launch_all<Bf16>(void*, std::uint8_t*);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
