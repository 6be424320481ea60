// Several tiles at once: their loads are under way together, and what is counted and checked per
// tile is done once for all of them.
#pragma once

#include "kernels/codecs/sums.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Whole tiles of a chunk whose wires follow each other from the start of a slot.
struct Batch {
  int count;           ///< 1 to the codec's batch
  std::size_t begin;   ///< element of the tensor where the first tile begins
  std::size_t stride;  ///< elements from tile to tile

  ARLAB_DEVICE static Position at() { return {kTile, thread_index() * kPerThread}; }
  /// Its tiles from `first` on.
  ARLAB_DEVICE Batch from(int first) const { return {count - first, begin_of(first), stride}; }
  /// Element of the tensor where a tile begins.
  ARLAB_DEVICE std::size_t begin_of(int tile) const {
    return begin + static_cast<unsigned>(tile) * stride;
  }

  template <class Element>
  ARLAB_DEVICE const typename Element::Bits* address(const void* tensor, int tile) const {
    return global_pointer(static_cast<const typename Element::Bits*>(tensor)) + element(tile);
  }
  template <class Element>
  ARLAB_DEVICE Pack8<Element> load(const void* tensor, int tile) const {
    return load_whole<Element>(address<Element>(tensor, tile));
  }
  template <class Element>
  ARLAB_DEVICE void store(void* tensor, int tile, const Pack8<Element>& x) const {
    store_whole<Element>(
        global_pointer(static_cast<typename Element::Bits*>(tensor)) + element(tile), x);
  }

 private:
  ARLAB_DEVICE std::size_t element(int tile) const {
    return begin_of(tile) + thread_index() * kPerThread;
  }
};

/// Goes through the tiles that this block has of the chunk in this round, in order: whole tiles as
/// one batch, and then, one by one, tiles that are not whole. All one by one for codecs without
/// batches, and where there are fewer whole ones than `kLeast`.
template <class Codec, int kLeast = 1, class AnyCall, class WholeTiles, class OneTile>
ARLAB_DEVICE void for_each_batch(const AnyCall& call, const ElementRange& chunk, int round,
                                 WholeTiles whole_tiles, OneTile one_tile) {
  const int begin = round * call.tiles_per_slot;
  const int end = begin + call.tiles_per_slot;  // up to a batch later: see Call
  int number = begin;
  constexpr bool kHasBatches = Codec::kTuning.batch != 1;
  if constexpr (kHasBatches) {
    const auto blocks = static_cast<unsigned>(call.blocks);
    const bool aligned = call.aligned && chunk.begin % kPerThread == 0;
    const auto whole = aligned ? static_cast<unsigned>((chunk.end - chunk.begin) / kTile) : 0u;
    unsigned index = static_cast<unsigned>(begin) * blocks + blockIdx.x;
    if (index < whole) {
      Batch batch;
      batch.begin = chunk.begin + static_cast<std::size_t>(index) * kTile;
      batch.stride = static_cast<std::size_t>(blocks) * kTile;
      batch.count = 0;
      do {
        ++batch.count;
        ++number;
        index += blocks;
      } while (number < end && index < whole);
      if (kLeast == 1 || batch.count >= kLeast) {
        whole_tiles(batch);
      } else {
        number = begin;
      }
    }
  }
  Tile tile;
#pragma unroll 1
  for (; number < end && tile_at(call, chunk, number, number - begin, tile); ++number) {
    one_tile(tile);
  }
}

/// Most wire bytes of a tile for which tuned kernels have room.
template <class Codec>
inline constexpr std::size_t kMostTileBytes = [] {
  if constexpr (requires { Codec::kTileBytes; }) {
    return Codec::kTileBytes;
  } else {
    return Codec::kMostTileBytes;
  }
}();

/// Bytes from a tile's wire to the next one's in a slot; a constant where the codec has one.
template <class Codec, class AnyCall>
ARLAB_DEVICE unsigned tile_bytes_of(const AnyCall& call) {
  if constexpr (requires { Codec::kTileBytes; }) {
    static_assert(Codec::kTileBytes % 16 == 0);
    return static_cast<unsigned>(Codec::kTileBytes);
  } else {
    return call.tile_bytes;
  }
}

/// Packed sums may be made without looking at overflow on the way, and made again where an infinity or
/// a NaN shows in the end: by single threads, so decoding must need no other lanes.
template <class Codec, class Element>
inline constexpr bool kSumsUnchecked =
    kHasPackedArithmetic<Element> &&
    requires(const Codec& codec, const typename Codec::Encoded& encoded) {
      codec.decode_unchecked(encoded);
    };

template <class Element, class Codec>
ARLAB_DEVICE Pack8<Element> decode_for_sum(const Codec& codec,
                                           const typename Codec::Encoded& encoded) {
  if constexpr (kSumsUnchecked<Codec, Element>) {
    return codec.decode_unchecked(encoded);
  } else {
    return codec.decode(encoded, Batch::at());
  }
}

// ---------------------------------------------------------------- codecs, a batch at a time
// Infinities and NaNs are rare and need care. Where a codec can do without, a batch is first worked
// on as if there were none, and checked once.

/// begin_of(i), of tile i: as encode_tile() has it.
template <class Element, class Codec, class AnyCall, class BeginOf, int kBatch>
ARLAB_DEVICE void encode_batch(const Codec& codec, const AnyCall& call, unsigned step,
                               BeginOf begin_of, const Pack8<Element> (&x)[kBatch], int count,
                               typename Codec::Encoded (&encoded)[kBatch]) {
  if constexpr (requires { codec.encode_unchecked(x[0]); }) {
    bool non_finite = false;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= count) continue;
      encoded[i] = codec.encode_unchecked(x[i]);
      non_finite = non_finite || codec.is_non_finite(encoded[i]);
    }
    if (!non_finite) return;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < count) codec.mark_non_finite(encoded[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < count) encoded[i] = encode_tile(codec, call, step, begin_of(i), x[i], Batch::at());
    }
  }
}
template <class Element, class Codec, class AnyCall, int kBatch>
ARLAB_DEVICE void encode_batch(const Codec& codec, const AnyCall& call, unsigned step,
                               const Batch& batch, const Pack8<Element> (&x)[kBatch],
                               typename Codec::Encoded (&encoded)[kBatch]) {
  encode_batch(
      codec, call, step, [&](int i) ARLAB_INLINED_LAMBDA { return batch.begin_of(i); }, x,
      batch.count, encoded);
}

template <class Element, class Codec, int kBatch>
ARLAB_DEVICE void decode_batch(const Codec& codec, const typename Codec::Encoded (&encoded)[kBatch],
                               int count, Pack8<Element> (&x)[kBatch]) {
  if constexpr (requires { codec.decode_unchecked(encoded[0]); }) {
    bool non_finite = false;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= count) continue;
      x[i] = codec.decode_unchecked(encoded[i]);
      non_finite = non_finite || codec.may_be_non_finite(encoded[i]);
    }
    if (!non_finite) return;
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i < count) x[i] = codec.decode(encoded[i], Batch::at());
  }
}

template <class Codec, class AnyCall, int kBatch>
ARLAB_DEVICE void load_batch(const Codec& codec, const AnyCall& call, const std::uint8_t* wires,
                             int count, typename Codec::Encoded (&encoded)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i < count) {
      encoded[i] =
          codec.load(wires + static_cast<unsigned>(i) * tile_bytes_of<Codec>(call), Batch::at());
    }
  }
}

/// sum[i] += what encoded[i] holds; in the end needs_checked_sum() says whether that was right.
template <class Codec, class Element, bool kClamp, int kBatch>
ARLAB_DEVICE void add_batch(const Codec& codec, const typename Codec::Encoded (&encoded)[kBatch],
                            int count, NativeSum<Element, kClamp> (&sum)[kBatch]) {
  constexpr bool kChecked = !kSumsUnchecked<Codec, Element>;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i < count) sum[i].template take<kChecked>(decode_for_sum<Element>(codec, encoded[i]));
  }
}
template <class Codec, class Element, bool kClamp, int kBatch>
ARLAB_DEVICE bool needs_checked_sum(const NativeSum<Element, kClamp> (&sum)[kBatch], int count) {
  bool non_finite = false;
  if constexpr (kSumsUnchecked<Codec, Element>) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < count) non_finite = non_finite || any_non_finite(sum[i].value);
    }
  }
  return non_finite;
}

// ---------------------------------------------------------------- sums of all ranks
// In ascending rank order, of at most kRanks ranks. wires(from): of the tiles that one has encoded.

/// Start of the sum of all ranks: +0, or the first rank's values.
enum class SumFrom { zero, first };

/// Decoded own tiles of the block, where it has them before the wires of other ranks.
template <class Element, int kTiles>
struct OwnTiles {
  int rank;
  Pack8<Element> x[kTiles];

  ARLAB_DEVICE bool is_of(int from) const { return from == rank; }
  ARLAB_DEVICE OwnTiles<Element, 1> tile(int i) const { return {rank, {x[i]}}; }
};
template <class Element>
struct OwnTiles<Element, 0> {
  Pack8<Element> x[1];

  ARLAB_DEVICE static constexpr bool is_of(int) { return false; }
  ARLAB_DEVICE static OwnTiles tile(int) { return {}; }
};

/// Adds up one tile, whose wires lie `offset` bytes behind the first.
template <SumFrom kFrom, class Sum, class Element, class Codec, class Wires, int kOwn>
ARLAB_DEVICE Pack8<Element> sum_tile_in(const Codec& codec, const Call& call, Wires wires,
                                        unsigned offset, Position at,
                                        const OwnTiles<Element, kOwn>& own) {
  const auto values = [&](int from) ARLAB_INLINED_LAMBDA {
    if (own.is_of(from)) return own.x[0];
    return codec.decode(codec.load(wires(from) + offset, at), at);
  };
  Sum sum;
  int from = 0;
  if constexpr (kFrom == SumFrom::first) sum.begin_with(values(from++));
#pragma unroll 1
  for (; from < call.team.layout.ranks; ++from) sum.template take<true>(values(from));
  return sum.template rounded<true>();
}
template <SumFrom kFrom, class Element, unsigned kRanks = kMaxRanks, class Codec, class Wires,
          int kOwn = 0>
ARLAB_DEVICE Pack8<Element> sum_tile(const Codec& codec, const Call& call, Wires wires,
                                     unsigned offset, Position at,
                                     const OwnTiles<Element, kOwn>& own = {}) {
  Pack8<Element> result;
  with_sums<Element, Codec::kClampsFp16Sums, kRanks>(
      call.fp32_sums, [&]<class Sum>(std::type_identity<Sum>) ARLAB_INLINED_LAMBDA {
        result = sum_tile_in<kFrom, Sum, Element>(codec, call, wires, offset, at, own);
      });
  return result;
}

/// Adds up `count` tiles, whose wires follow each other. done(i, sum) of each.
template <SumFrom kFrom, int kBatch, class Element, class Codec, class Wires, int kOwn, class Done>
ARLAB_DEVICE void sum_batch_natively(const Codec& codec, const Call& call, Wires wires, int count,
                                     const OwnTiles<Element, kOwn>& own, Done done) {
  constexpr bool kChecked = !kSumsUnchecked<Codec, Element>;
  using Sum = NativeSum<Element, Codec::kClampsFp16Sums>;
  Sum sum[kBatch];
  typename Codec::Encoded encoded[kBatch];
  int from = 0;
  if constexpr (kFrom == SumFrom::first) {
    load_batch(codec, call, wires(from++), count, encoded);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < count) sum[i].begin_with(decode_for_sum<Element>(codec, encoded[i]));
    }
  }
#pragma unroll 1
  for (; from < call.team.layout.ranks; ++from) {
    if (own.is_of(from)) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) sum[i].template take<kChecked>(own.x[i]);
    } else {
      load_batch(codec, call, wires(from), count, encoded);
      add_batch(codec, encoded, count, sum);
    }
  }
  if (needs_checked_sum<Codec>(sum, count)) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= count) continue;
      sum[i].value = sum_tile_in<kFrom, Sum, Element>(
          codec, call, wires, static_cast<unsigned>(i) * tile_bytes_of<Codec>(call), Batch::at(),
          own.tile(i));
    }
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i < count) done(i, sum[i].value);
  }
}
/// Likewise, one tile after the other: sums in fp32 take registers. In place of several tiles' wires, those of kTogether ranks are
/// on their way together.
template <SumFrom kFrom, class Element, int kTogether, class Codec, class Wires, class Own,
          class Done>
ARLAB_DEVICE void sum_batch_in_fp32(const Codec& codec, const Call& call, Wires wires, int count,
                                    const Own& own, Done done) {
  constexpr bool kChecked = !kSumsUnchecked<Codec, Element>;
  using Sum = Fp32Sum<Element, Codec::kClampsFp16Sums>;
  const int ranks = call.team.layout.ranks;
#pragma unroll 1
  for (int tile = 0; tile < count; ++tile) {
    const unsigned offset = static_cast<unsigned>(tile) * tile_bytes_of<Codec>(call);
    const auto own_tile = own.tile(tile);
    Sum sum[1];
    if constexpr (kFrom == SumFrom::first) sum[0].begin_with_nothing();
#pragma unroll 1
    for (int first = 0; first < ranks; first += kTogether) {
      typename Codec::Encoded encoded[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= ranks || own.is_of(first + i)) continue;
        encoded[i] = codec.load(wires(first + i) + offset, Batch::at());
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= ranks) continue;
        sum[0].template take<kChecked>(
            own.is_of(first + i) ? own_tile.x[0] : decode_for_sum<Element>(codec, encoded[i]));
      }
    }
    Pack8<Element> rounded = sum[0].template rounded<kChecked>();
    if constexpr (!kChecked) {
      if (any_non_finite(rounded)) {
        rounded =
            sum_tile_in<kFrom, Sum, Element>(codec, call, wires, offset, Batch::at(), own_tile);
      }
    }
    done(tile, rounded);
  }
}
/// Adds up a batch, as the call says. kTogether: where wires are not in shared memory, more than one. own_in_fp32: in place of
/// `own`, made when it is added.
template <SumFrom kFrom, class Element, int kBatch, unsigned kRanks, int kTogether, class Codec,
          class Wires, class Done, class Own = OwnTiles<Element, 0>, class OwnInFp32 = Own>
ARLAB_DEVICE void for_each_sum(const Codec& codec, const Call& call, Wires wires, int count,
                               Done done, const Own& own = {}, const OwnInFp32& own_in_fp32 = {}) {
  if constexpr (kRanks > 2 && kHasFp32Sums<Element>) {
    if (call.fp32_sums) {
      return sum_batch_in_fp32<kFrom, Element, kTogether>(codec, call, wires, count, own_in_fp32,
                                                          done);
    }
  }
  sum_batch_natively<kFrom, kBatch>(codec, call, wires, count, own, done);
}
/// For done(): into registers, which have no addresses.
template <class Element, int kBatch>
ARLAB_DEVICE void put_tile(Pack8<Element> (&tiles)[kBatch], int tile, const Pack8<Element>& x) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i == tile) tiles[i] = x;
  }
}
template <SumFrom kFrom, unsigned kRanks = kMaxRanks, class Element, class Codec, class Wires,
          int kBatch>
ARLAB_DEVICE void sum_batch(const Codec& codec, const Call& call, Wires wires, int count,
                            Pack8<Element> (&result)[kBatch]) {
  for_each_sum<kFrom, Element, kBatch, kRanks, 1>(
      codec, call, wires, count, [&](int tile, const Pack8<Element>& sum) ARLAB_INLINED_LAMBDA {
        put_tile(result, tile, sum);
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
