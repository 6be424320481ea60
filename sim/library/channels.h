// Channels of the vendor's collective library: copies of a schedule that run at once, each on a
// share of the tensor, with blocks and flags of its own.
//
// On a switch all channels go round in the same order, and one copy of the schedule stands for all
// of them. Where ranks are linked directly, one ring leaves most links idle; there the library lays
// its rings so that together they use all links alike:
//
//   full mesh   one rank stays in the middle, the others stand on a circle and are walked in a
//               zigzag (0, 1, -1, 2, -2, ...); every turn of the circle is another ring. With an
//               even number of ranks also backwards: 6 rings of 4 ranks, 14 of 8, two on every
//               link. With an odd number every link is on one ring. (Walecki's decomposition, Lucas
//               1892.)
//   ring        upwards and downwards
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

/// An order of the ranks: [i] is the rank that takes the part of rank i in the schedule.
using RankOrder = std::vector<Rank>;

/// Orders over links that work, whose rings use all links alike; one, the identity, where all
/// orders are as good. No more than `most`: those of a large mesh would take gigabytes.
std::vector<RankOrder> channel_orders(const Topology& topology, Rank world_size,
                                      std::uint64_t most = UINT64_MAX);

/// Whether every rank sends to every other: then other orders lead over no other links.
bool sends_to_all(const Plan& plan);

/// Appends a plan that lists all of its ranks, order[i] in place of rank i, in channels of its own.
void append_channels(Plan& plan, const Plan& copy, const RankOrder& order);

/// The plans as copies that run at once, `orders[i]` with the ranks of `copies[i]`. The copies are
/// of the same algorithm, list all ranks, and divide the tensor.
Plan in_channels(const std::vector<Plan>& copies, const std::vector<RankOrder>& orders);

}  // namespace arlab
