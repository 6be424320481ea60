// Kernels with codecs of one pass for codec_instructions.py, which counts their instructions: by NVIDIA's counters while they
// run, or in a disassembly.
//
// A kernel encodes one tile or three, another adds one wire or three to a sum; what the others of
// three take is what a codec takes for each more, with addresses that batches share. Per thread,
// that is the work on eight elements. Width and group are constants here, also where kernels have them
// as arguments: what is counted is the least that the codec's code can take.
//
//   nvcc -x cu -std=c++20 -arch=sm_90 -O3 -fmad=false --expt-relaxed-constexpr -diag-suppress 2810 \
//       -DARLAB_PLATFORM=cuda -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -I. -Ikernels/platform/cuda \
//       -o codecs experiments/gpu/codec_instructions.hip
//   ncu --csv --page raw --metrics smsp__inst_executed.sum ./codecs > sm_90.txt
//   ninja -C build arlab_codec_instructions
//   llvm-objdump-19 -d build/tests/kernels/codec_instructions.co > gfx942.txt
#include <cstdint>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/codecs/device_codecs.h"
#include "kernels/collectives/batch.h"

/// Kernels of NVIDIA GPUs are compiled with all that is known of a codec.
#if defined(__HIP_PLATFORM_NVIDIA__)
constexpr bool kKnowsWidths = true;
#else
constexpr bool kKnowsWidths = false;
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A codec without parameters; it, and others, say how they are made.
template <class Codec>
struct Made {
  using Type = Codec;
  ARLAB_DEVICE static Codec make() { return Codec(); }
};
template <class Element, AnyBitKind kKind, unsigned kBits, unsigned kGroupLog2,
          Spikes kSpikes = Spikes::none>
struct MadeAnyBit {
  using Type = AnyBit<Element, AnyBitOf<kKind, kKnowsWidths ? kBits : 0>>;
  ARLAB_DEVICE static Type make() {
    AnyBitParameters p;
    p.bits = kBits;
    p.group = {kGroupLog2};
    p.symmetric = kKind == AnyBitKind::symmetric;
    p.hadamard = kKind == AnyBitKind::hadamard;
    p.spikes = kSpikes;
    p.hadamard_scale = 0x1.6a09e6p-3f;
    return Type(p);
  }
};
template <class Element>
struct MadeLogFmt {
  using Type = LogFmtOf<Element, 4>;
  ARLAB_DEVICE static Type make() {
    LogFmtParameters p;
    p.bits = 4;
    p.group = {5};
    return Type(p);
  }
};
template <class Format, class Element>
struct MadeScaled {
  using Type = Scaled<Format, Element>;
  ARLAB_DEVICE static Type make() { return Type(Format()); }
};

/// In this order, and codec_instructions.py reads the names here:
///   plain qr-fp8 qr-q8 qr-q6 qr-q4 qr-q3 qr-fp4
///   int8-g128 int5-g128 int4-g32 int2-g32-sr
///   int3-g32 int4-g128 int6-g128 int8-g128-sym had-int4-g32 int2-g32-sr-is logfmt4-g32
///   mxfp8-e4m3 mxfp6-e2m3 mxfp4 mxint8 fp8-e4m3-g128
template <class Element>
using Codecs = std::tuple<
    Made<Plain<Element>>, Made<QuickReduce<QFp8, Element>>, Made<QuickReduce<Q8, Element>>,
    Made<QuickReduce<Q6, Element>>, Made<QuickReduce<Q4, Element>>, Made<QuickReduce<Q3, Element>>,
    Made<QuickReduce<QFp4, Element>>, Made<AnyBit<Element, FixedAnyBit<8, 7>>>,
    Made<AnyBit<Element, FixedAnyBit<5, 7>>>, Made<AnyBit<Element, FixedAnyBit<4, 5>>>,
    Made<AnyBit<Element, FixedAnyBit<2, 5, Spikes::exact>>>,
    MadeAnyBit<Element, AnyBitKind::plain, 3, 5>, MadeAnyBit<Element, AnyBitKind::plain, 4, 7>,
    MadeAnyBit<Element, AnyBitKind::plain, 6, 7>, MadeAnyBit<Element, AnyBitKind::symmetric, 8, 7>,
    MadeAnyBit<Element, AnyBitKind::hadamard, 4, 5>,
    MadeAnyBit<Element, AnyBitKind::spiked, 2, 5, Spikes::integer_scale>, MadeLogFmt<Element>,
    MadeScaled<MxOf<FixedMinifloat<4, 3>>, Element>,
    MadeScaled<MxOf<FixedMinifloat<2, 3>>, Element>,
    MadeScaled<MxOf<FixedMinifloat<2, 1>>, Element>, MadeScaled<MxInt8, Element>,
    MadeScaled<Fp8Blocks<128>, Element>>;

template <int kCodec, class Element, int kTiles>
__global__ void __launch_bounds__(kThreads) encode_tiles(const void* tensor, std::uint8_t* wires) {
  using Maker = std::tuple_element_t<kCodec, Codecs<Element>>;
  using Codec = typename Maker::Type;
  const Codec codec = Maker::make();
  const Batch batch{kTiles, 0, kTile};
  Pack8<Element> x[kTiles];
  typename Codec::Encoded encoded[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) x[i] = batch.load<Element>(tensor, i);
  encode_batch(codec, Call{}, 0, batch, x, encoded);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    codec.store(encoded[i], global_pointer(wires) + i * kMostTileBytes<Codec>, Batch::at());
  }
}

template <int kCodec, class Element, int kWires>
__global__ void __launch_bounds__(kThreads) add_wires(const std::uint8_t* wires, void* tensor) {
  using Maker = std::tuple_element_t<kCodec, Codecs<Element>>;
  using Codec = typename Maker::Type;
  const Codec codec = Maker::make();
  const Batch batch{1, 0, kTile};
  NativeSum<Element, Codec::kClampsFp16Sums> sum[1] = {{batch.load<Element>(tensor, 0)}};
#pragma unroll
  for (int i = 0; i < kWires; ++i) {
    const typename Codec::Encoded encoded[1] = {
        codec.load(global_pointer(wires) + i * kMostTileBytes<Codec>, Batch::at())};
    add_batch(codec, encoded, 1, sum);
  }
  batch.store<Element>(tensor, 0, sum[0].value);
}

/// Sums begin with the tensor again: of sums that grow from codec to codec to infinities, the slow ways would be counted.
template <int kCodec, class Element, int kTiles>
void launch_both(const void* tensor, std::uint8_t* wires, void* sums) {
  (void)hipMemcpy(sums, tensor, 3 * kTile * 2, hipMemcpyDeviceToDevice);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(encode_tiles<kCodec, Element, kTiles>), dim3(1),
                     dim3(kThreads), 0, nullptr, tensor, wires);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(add_wires<kCodec, Element, kTiles>), dim3(1), dim3(kThreads),
                     0, nullptr, wires, sums);
}
/// Runs all on numbers from 1/8 to 2, whose bits differ by dtype in where exponents begin and how long mantissas are.
template <class Element>
void run_all(unsigned least_exponent, unsigned mantissa_bits) {
  std::mt19937 random(1);
  std::vector<std::uint16_t> values(3 * kTile);
  for (std::uint16_t& value : values) {
    const std::uint32_t bits = random();
    const unsigned exponent = least_exponent + (bits >> 16) % 4;
    value = static_cast<std::uint16_t>((bits >> 31) << 15 | exponent << mantissa_bits |
                                       (bits & ((1u << mantissa_bits) - 1)));
  }
  void* tensor = nullptr;
  void* wires = nullptr;
  void* sums = nullptr;
  (void)hipMalloc(&tensor, values.size() * 2);
  (void)hipMalloc(&sums, values.size() * 2);
  (void)hipMalloc(&wires, values.size() * 4);
  (void)hipMemcpy(tensor, values.data(), values.size() * 2, hipMemcpyHostToDevice);
  [&]<int... kCodec>(std::integer_sequence<int, kCodec...>) {
    auto* const bytes = static_cast<std::uint8_t*>(wires);
    (launch_both<kCodec, Element, 1>(tensor, bytes, sums), ...);
    (launch_both<kCodec, Element, 3>(tensor, bytes, sums), ...);
  }(std::make_integer_sequence<int, std::tuple_size_v<Codecs<Element>>>());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

int main() {
  using namespace arlab::kernels;
  run_all<Fp16>(12, 10);
  run_all<Bf16>(124, 7);
  return hipDeviceSynchronize() == hipSuccess ? 0 : 1;
}
