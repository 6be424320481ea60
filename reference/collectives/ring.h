// How a ring that is one of several walks through a server.
#pragma once

#include <vector>

#include "reference/collectives/schedule.h"

namespace arlab {

/// All `count` ranks of a server from rank `ring` on: 0, 1, -1, 2, -2, ... from there. Over all rings
/// of an even count, every two ranks are neighbours once in each direction (Walecki's decomposition,
/// Lucas 1892). Every second server is walked backwards, so that rings enter a server at the rank
/// whose place is that of the one that they have come from.
std::vector<Rank> walk_of_ring(Rank ring, Rank count, bool backwards);

}  // namespace arlab
