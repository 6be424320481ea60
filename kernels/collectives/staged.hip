#include <algorithm>

#include "kernels/codecs/measured_tile.h"
#include "kernels/collectives/exchange.h"
#include "kernels/collectives/staged.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// A tile of a message in this block's slots. Tiles of a unit lie side by side.
struct StagedTile {
  std::size_t begin;       ///< of the tile, in the message
  std::size_t unit_begin;  ///< of its unit
  std::size_t unit_at;     ///< of the unit's wire, in a slot
  std::size_t tile_bytes;

  /// Where the wire of the unit's tile that begins at `tile_begin` is, in a slot.
  ARLAB_DEVICE std::size_t offset(std::size_t tile_begin) const {
    return unit_at + (tile_begin - unit_begin) / kTile * tile_bytes;
  }
};

/// Calls f for every tile of the message that is this block's in this round.
template <class Codec, class F>
ARLAB_DEVICE void for_each_staged_tile(const Stage& stage, const Codec& codec,
                                       const MessageRange& message, int round, F f) {
  if (message.size() == 0) return;
  const std::size_t codes = codes_of(codec, message.size());
  const auto per_unit = static_cast<std::size_t>(stage.tiles_per_unit);
#pragma unroll 1
  for (int k = 0; k < stage.units_per_slot; ++k) {
    const std::size_t unit = static_cast<std::size_t>(round * stage.units_per_slot + k) *
                                 static_cast<std::size_t>(stage.blocks) +
                             blockIdx.x;
    const std::size_t unit_begin = unit * per_unit * kTile;
#pragma unroll 1
    for (std::size_t tile = 0; tile < per_unit; ++tile) {
      const std::size_t begin = unit_begin + tile * kTile;
      if (begin >= codes) return;
      f(StagedTile{begin, unit_begin, static_cast<std::size_t>(k) * per_unit * stage.tile_bytes,
                   stage.tile_bytes});
    }
  }
}

}  // namespace

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads)
    stage_kernel(ARLAB_KERNEL_PARAMETER Stage stage, ARLAB_KERNEL_PARAMETER Codec codec) {
  using Bits = typename Number::Bits;
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  Exchange exchange(stage.team, failed[0]);
  const std::size_t mine = threadIdx.x * kPerThread;

#pragma unroll 1
  for (int round = 0; round < stage.rounds; ++round) {
#pragma unroll 1
    for (int i = 0; i < stage.sends; ++i) {
      const MessageRange range = stage.send[i].message;
      const RankRange to = stage.send[i].to;
      const MessageElements<Codec, Number> message{
          global_pointer(static_cast<const Bits*>(stage.source)) + range.begin, range.size()};
      const Statistics* statistics =
          global_pointer(stage.statistics) + static_cast<std::size_t>(i) * stage.groups;
      for_each_staged_tile(stage, codec, range, round, [&](const StagedTile& tile) {
        const auto encoded = encode_tile(codec, message, statistics, tile.begin, shared);
#pragma unroll 1
        for (int k = 0; k < to.count; ++k) {
          std::uint8_t* wire = exchange.outgoing(to[k]) + tile.offset(tile.begin);
          store_encoded(codec, encoded, TileWire<Codec>{codec, wire, range.size(), tile.begin},
                        tile.begin + mine);
        }
      });
    }
#pragma unroll 1
    for (int done = 0; done < stage.exchanges; ++done) {
      if (!exchange.run()) return;
#pragma unroll 1
      for (int i = 0; i < stage.receives; ++i) {
        if (stage.receive[i].exchange != done) continue;
        const MessageRange range = stage.receive[i].message;
        const RankRange from = stage.receive[i].from;
        const SumStart start = stage.receive[i].start;
        const bool passes_on = stage.receive[i].passes_on;
        for_each_staged_tile(stage, codec, range, round, [&](const StagedTile& tile) {
          const Position at{range.size(), tile.begin + mine};
          Eight<Number> sum;
          if (start == SumStart::own) {
            const auto* input = global_pointer(static_cast<const Bits*>(stage.input));
            sum = load_elements<Number>(input + range.begin + at.first, at.count());
          }
#pragma unroll 1
          for (int k = 0; k < from.count; ++k) {
            auto* slot = const_cast<std::uint8_t*>(exchange.incoming(from[k]));
            const Eight<Number> x = decode_tile<Number>(
                codec, range.size(), tile.begin, shared, [&](std::size_t begin) {
                  return TileWire<Codec>{codec, slot + tile.offset(begin), range.size(), begin};
                });
            sum = start == SumStart::first && k == 0 ? x
                                                     : add<Number, Codec::kClampsFp16Sums>(sum, x);
          }
          auto* output = global_pointer(static_cast<Bits*>(stage.output));
          store_elements<Number>(output + range.begin + at.first, sum, at.count());
          if (!passes_on) return;
          const std::uint8_t* arrived = exchange.incoming(from[0]) + tile.offset(tile.begin);
          std::uint8_t* wire = exchange.outgoing(stage.next) + tile.offset(tile.begin);
          for (std::size_t b = threadIdx.x * 16; b < tile.tile_bytes; b += kThreads * 16) {
            store_128(wire + b, load_128(arrived + b));
          }
        });
      }
    }
  }
  exchange.end();
}

hipError_t launch_stage(const Stage& stage, const MeasuredChoice& codec, DType dtype,
                        hipStream_t stream) {
  with_measured(codec, dtype, [&]<class Codec, class Number>(const Codec& c, Number) {
    hipLaunchKernelGGL(HIP_KERNEL_NAME(stage_kernel<Codec, Number>),
                       dim3(static_cast<unsigned>(stage.blocks)), dim3(kThreads), 0, stream, stage,
                       c);
  });
  return hipGetLastError();
}

StagedTiles staged_tiles(const MeasuredChoice& codec, DType dtype, std::size_t elements) {
  StagedTiles result{};
  with_measured(codec, dtype, [&]<class Codec, class Number>(const Codec& c, Number) {
    const std::size_t codes = codes_of(c, elements);
    result.per_unit = static_cast<int>(std::max<std::size_t>(c.transform() / kTile, 1));
    result.bytes = TileWire<Codec>::bytes(c, elements);
    result.tiles = (codes + kTile - 1) / kTile;
  });
  return result;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
