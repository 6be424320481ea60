// Lanes: work that is not bound to blocks.
//
// A block that does the same share of a large tensor as every other one ends late where others end
// early: multiprocessors do not get an equal share of the links, nor do the blocks of one. So a
// large tensor's batches are dealt to lanes, of which there are more than blocks, and every lane
// runs the protocol of a block (exchange.h): it has flags, slots and a colour of its own. What a
// lane does is cut into steps. The steps of all lanes are numbered, in rounds, and every block
// takes the next one when it is about to end its last:
//
//   step 0 of a lane   contributions of round 0
//   step k             contributions of round k, sums of round k - 1, and gathers round k - 2
//   step rounds + 1    gathers the last round
//
// In a step, a block waits for the lane's flags of all ranks, the own one included: that is how it
// learns that the lane's step before has ended, which another block may have done. All that a step
// waits for is steps with lower numbers, and blocks do theirs in that order. So the first step that
// is not done can always be done; blocks begin with steps of their own, so all have to run at once.
// lanes.pml is a model of this.
#pragma once

#include "kernels/collectives/occupancy.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Two steps of a lane lie so far apart that signals are no longer under way. None where blocks
/// cannot be made for it.
inline constexpr int kLanesPerBlock = kThreadsWorkApart ? 2 : 0;

/// The exchanges of a lane use two words as flags in turn. A block may signal an exchange while the
/// signal of the one before, which another block made, is still on its way to some rank: in one
/// word, the older colour could replace the newer one. That of the exchange before that has
/// arrived.
inline constexpr unsigned kLaneFlagWords = 2;

/// A batch of a codec of 4.5 bits per element.
inline constexpr std::size_t kLaneWireBytes = 4608;
/// Contributions, and sums behind them.
inline constexpr std::size_t kLaneSlotBytes = 2 * kLaneWireBytes;

/// Batches of a chunk for each block from which on lanes are worth their slower start: found by
/// measuring.
inline constexpr std::size_t kLeastBatches = 6;

/// Codecs for which it was measured to be faster.
template <class Codec, class Number>
inline constexpr bool kWorksInLanes = false;
template <>
inline constexpr bool kWorksInLanes<QuickReduce<Q4, Fp16>, Fp16> = kThreadsWorkApart;

/// One step. The same for all threads of a block.
struct alignas(16) Step {
  int lane;
  int k;                 ///< of the lane's steps
  std::uint32_t colour;  ///< of the exchange that it waits for
  int distance;          ///< which peer it begins with: lanes begin with different ones
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
