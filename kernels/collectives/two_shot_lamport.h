// two_shot where no block has more than one tile of a chunk, with Lamport slots: of 2 to 8 ranks. Codecs with a scale of the
// message are measured before each of the two encodings.
#pragma once

#include "kernels/collectives/measuring.h"
#include "kernels/collectives/slots_of_codec.h"
#include "kernels/transport/lamport.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec>
struct TwoShotLamportMemory : LamportMemory<kLamportWords<Codec>>, MeasuringMemoryOf<Codec> {
  Uint4 sum[kLamportWords<Codec>];  // the own chunk's, encoded
};

template <class Codec, class Element>
class TwoShotLamport {
 public:
  ARLAB_DEVICE TwoShotLamport(const Call& call, const Codec& codec,
                              TwoShotLamportMemory<Codec>& memory)
      : call_(call),
        codec_(codec),
        memory_(memory),
        exchange_(call.team, tile_bytes_of<Codec>(call) / 16, memory),
        measuring_(call.team, call.blocks, memory) {}

  ARLAB_DEVICE void run() {
    Tile own{};
    const bool has_own = tile_of(call_.team.rank, own);
    RankSet owners = 0;  // ranks whose chunks have a tile for this block
#pragma unroll 1
    for (int rank = 0; rank < call_.team.layout.ranks; ++rank) {
      Tile tile;
      if (tile_of(rank, tile)) owners |= RankSet{1} << rank;
    }
    const RankSet if_own = has_own ? kAllRanks : 0;
    pdl_wait();
    exchange_.begin();
    if constexpr (kMeasures<Codec>) {
      measuring_.begin();
      if (!measure_contributions()) return;
    }

    contribute();
    exchange_.send(0, owners);
    exchange_.signal();
    if (!exchange_.receive(0, if_own)) return;
    Pack8<Element> mine;
    Pack8<Element> sum[1];
    if (has_own) {
      const auto wires = [&](int from) ARLAB_INLINED_LAMBDA { return exchange_.wire(from); };
      sum_batch<SumFrom::zero>(codec_, call_, wires, 1, sum);
    }
    if constexpr (kMeasures<Codec>) {
      measuring_.found(0, measuring_.range_of(sum[0], has_own ? own.at().count() : 0));
      if (!measuring_.measure(1)) return;
    }
    if (has_own) {
      const Encoded encoded =
          encode_tile(measuring_.codec_of(codec_, 0), call_, 1, own.begin, sum[0], Batch::at());
      codec_.store(encoded, reinterpret_cast<std::uint8_t*>(memory_.sum), Batch::at());
      mine = codec_.decode(encoded, Batch::at());
    }
    exchange_.send(1, if_own, memory_.sum);
    if (has_own) own.store(call_.output, mine);
    if (!exchange_.receive(1, owners)) return;
    pdl_trigger();
    gather();
    measuring_.end();
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kAtOnce = Codec::kTuning.batch;

  ARLAB_DEVICE bool tile_of(int owner, Tile& tile) const {
    return tile_at(call_, call_.chunk[owner], 0, 0, tile);
  }
  /// Up to kAtOnce owners from `first` on whose chunks have a tile for this block.
  struct Tiles {
    Tile tile[kAtOnce];
    bool used[kAtOnce];
  };
  ARLAB_DEVICE Tiles tiles_from(int first) const {
    Tiles tiles;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      tiles.used[i] = first + i < call_.team.layout.ranks && tile_of(first + i, tiles.tile[i]);
    }
    return tiles;
  }

  ARLAB_DEVICE bool measure_contributions() {
#pragma unroll 1
    for (int owner = 0; owner < call_.team.layout.ranks; ++owner) {
      Tile tile;
      std::uint32_t range = Codec::no_range();
      if (tile_of(owner, tile)) {
        range = measuring_.range_of(tile.load<Element>(call_.input), tile.at().count());
      }
      measuring_.found(owner, range);
    }
    return measuring_.measure(call_.team.layout.ranks);
  }

  ARLAB_DEVICE void contribute() const {
#pragma unroll 1
    for (int first = 0; first < call_.team.layout.ranks; first += kAtOnce) {
      const Tiles tiles = tiles_from(first);
      Pack8<Element> x[kAtOnce];
      Encoded encoded[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        x[i] = {};
        if (tiles.used[i]) x[i] = tiles.tile[i].template load<Element>(call_.input);
      }
      if constexpr (kMeasures<Codec>) {
        static_assert(kMaxMessages % kAtOnce == 0);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          encoded[i] = measuring_.codec_of(codec_, first + i).encode(x[i], Batch::at());
        }
      } else {
        const auto begin_of = [&](int i) ARLAB_INLINED_LAMBDA {
          return tiles.used[i] ? tiles.tile[i].begin : 0;
        };
        encode_batch(codec_, call_, 0, begin_of, x, kAtOnce, encoded);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (tiles.used[i]) codec_.store(encoded[i], exchange_.wire(first + i), Batch::at());
      }
    }
  }

  ARLAB_DEVICE void gather() const {
#pragma unroll 1
    for (int first = 0; first < call_.team.layout.ranks; first += kAtOnce) {
      Tiles tiles = tiles_from(first);
      Encoded encoded[kAtOnce];
      Pack8<Element> x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        tiles.used[i] = tiles.used[i] && first + i != call_.team.rank;
        if (first + i < call_.team.layout.ranks) {
          encoded[i] = codec_.load(exchange_.wire(first + i), Batch::at());
        }
      }
      const int left = call_.team.layout.ranks - first;
      decode_batch(codec_, encoded, left < kAtOnce ? left : kAtOnce, x);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (tiles.used[i]) tiles.tile[i].store(call_.output, x[i]);
      }
    }
  }

  const Call& call_;
  const Codec& codec_;
  TwoShotLamportMemory<Codec>& memory_;
  LamportExchange<kLamportWords<Codec>> exchange_;
  MeasuringOf<Codec, Element> measuring_;
};

template <class Codec, class Element>
ARLAB_DEVICE void two_shot_lamport(const Call& call, const Codec& codec) {
  touch_parameter(call);
  begin_codec(codec);
  ARLAB_SHARED_ARRAY(TwoShotLamportMemory<Codec>, memory, 1);
  TwoShotLamport<Codec, Element>(call, codec, memory[0]).run();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
