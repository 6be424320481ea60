// The other ranks, in an order of its own for every block: otherwise all blocks would use one link
// at a time.
#pragma once

#include "kernels/collectives/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The rank behind this one by 1 + distance, which becomes that of the next.
ARLAB_DEVICE int peer_at(const Team& team, int& distance) {
  const int all = team.layout.ranks - 1;
  const int peer = team.rank + 1 + distance;
  if (++distance == all) distance = 0;
  return peer > all ? peer - all - 1 : peer;
}

/// f of every other rank.
template <class F>
ARLAB_DEVICE void for_each_peer(const Team& team, F f) {
  const int all = team.layout.ranks - 1;
  int distance = static_cast<int>(blockIdx.x) % all;
#pragma unroll 1
  for (int i = 0; i < all; ++i) f(peer_at(team, distance));
}

template <int kBatch>
struct Peers {
  int count;
  int rank[kBatch];
};

/// f of the other ranks, up to `most` at once.
template <int kBatch, class F>
ARLAB_DEVICE void for_each_peers(const Team& team, int most, F f) {
  const int all = team.layout.ranks - 1;
  int distance = static_cast<int>(blockIdx.x) % all;
#pragma unroll 1
  for (int first = 0; first < all; first += most) {
    Peers<kBatch> peers;
    peers.count = all - first < most ? all - first : most;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < peers.count) peers.rank[i] = peer_at(team, distance);
    }
    f(peers);
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
