// How much a multiprocessor, or compute unit, has in work at once: found by measuring.
#pragma once

#include "kernels/codecs/anybit.h"
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
template <class Number, unsigned kBits, unsigned kLog2Group, Spikes kSpikes>
inline constexpr int kResidentBlocks<AnyBit<Number, FixedAnyBit<kBits, kLog2Group, kSpikes>>> =
    kFastBlocks;

/// Tiles that a block works on at once, at most. Spikes take registers.
template <class Codec>
inline constexpr int kBatch = 1;
template <class Number>
inline constexpr int kBatch<Plain<Number>> = kFastBatch;
template <class Format, class Number>
inline constexpr int kBatch<QuickReduce<Format, Number>> = kFastBatch;
template <class Number, unsigned kBits, unsigned kLog2Group, Spikes kSpikes>
inline constexpr int kBatch<AnyBit<Number, FixedAnyBit<kBits, kLog2Group, kSpikes>>> =
    kSpikes == Spikes::none ? kFastBatch : (kFastBatch + 1) / 2;

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
