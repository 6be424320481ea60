// How much a multiprocessor, or compute unit, has in work at once: found by measuring.
#pragma once

#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Blocks of a kernel of the codec. Blocks wait for those of other ranks, so all of a launch must
/// fit, and a kernel may take no more registers than that allows.
template <class Codec>
inline constexpr int kResidentBlocks = 2;
template <class Number>
inline constexpr int kResidentBlocks<Plain<Number>> = kFastBlocks;
template <class Format, class Number>
inline constexpr int kResidentBlocks<QuickReduce<Format, Number>> = kFastBlocks;

/// Tiles of a block, at most.
template <class Codec>
inline constexpr int kBatch = 1;
template <class Number>
inline constexpr int kBatch<Plain<Number>> = kFastBatch;
template <class Format, class Number>
inline constexpr int kBatch<QuickReduce<Format, Number>> = kFastBatch;

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
