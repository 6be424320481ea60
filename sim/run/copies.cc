#include "sim/run/copies.h"

namespace arlab {

StageId Copies::stage_on(StageId listed, Rank rank) const {
  return plan_.repeats_rank_0 ? listed * copies_ + rank : listed;
}

void Copies::move_up(PlannedMessage& message, Rank by) const {
  message.from += by;
  message.to += message.to < copies_ - by ? by : by - copies_;
  message.stage = stage_on(message.stage, by);
}

}  // namespace arlab
