// The other ranks, in an order of its own for every block: otherwise all blocks would use one link
// at a time.
#pragma once

#include "kernels/transport/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// f of every other rank.
template <class F>
ARLAB_DEVICE void for_each_peer(const Team& team, F f) {
  const int others = team.layout.ranks - 1;
  int distance = static_cast<int>(blockIdx.x) % others;
#pragma unroll 1
  for (int i = 0; i < others; ++i) {
    const int peer = team.rank + 1 + distance;
    f(peer > others ? peer - others - 1 : peer);
    if (++distance == others) distance = 0;
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
