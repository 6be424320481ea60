// What kernels for small tensors share: every block has at most one tile of a chunk.
#pragma once

#include "kernels/collectives/batch.h"
#include "kernels/collectives/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Calls f with a codec that has kernels for small tensors.
template <class F>
hipError_t with_small_codec(const CodecChoice& choice, DType dtype, F&& f) {
  return with_codec(choice, dtype,
                    [&]<class Codec, class Element>(const Codec& codec, Element element) {
                      if constexpr (kHasSmallKernels<Codec, Element>) f(codec, element);
                    });
}

/// The sum of what all ranks have sent to the start of this rank's slots, in ascending order of
/// ranks. Of rank `own_rank` it is `own` instead; -1: of none.
template <SumFrom kFrom, class Codec, class Element>
ARLAB_DEVICE Pack8<Element> small_sum(const Codec& codec, const Exchange& exchange, int ranks,
                                      int own_rank, const Pack8<Element>& own) {
  constexpr int kBatch = Codec::kTuning.batch;
  Pack8<Element> sum[1];
#pragma unroll 1
  for (int first = 0; first < ranks; first += kBatch) {
    typename Codec::Encoded encoded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < ranks && first + i != own_rank) {
        encoded[i] = codec.load(exchange.incoming(first + i), Batch::at());
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= ranks) continue;
      const Pack8<Element> x =
          first + i == own_rank ? own : decode_for_sum<Element>(codec, encoded[i]);
      const bool begins = kFrom == SumFrom::first && first + i == 0;
      sum[0] = begins ? x : add_for_sum<Element, Codec>(sum[0], x);
    }
  }
  if (!needs_checked_sum<Codec>(sum, 1)) return sum[0];
  sum[0] = Pack8<Element>();
#pragma unroll 1
  for (int from = 0; from < ranks; ++from) {
    const Pack8<Element> x =
        from == own_rank
            ? own
            : codec.decode(codec.load(exchange.incoming(from), Batch::at()), Batch::at());
    const bool begins = kFrom == SumFrom::first && from == 0;
    sum[0] = begins ? x : add<Element, Codec::kClampsFp16Sums>(sum[0], x);
  }
  return sum[0];
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
