#include "sim/run/timeline.h"

#include <algorithm>
#include <vector>

#include "sim/run/tags.h"

namespace arlab {

void Timeline::stage(StageId id, double flags_us, Picoseconds start, Picoseconds done) {
  using enum SimulationTrace::Work;
  const Stage& stage = copies_.stage(id);
  const Rank rank = copies_.rank_of(id);
  const Picoseconds signalled = std::min(done, start + picoseconds_from_us(flags_us));
  if (signalled > start) trace_.on_work(rank, flags, stage.step, start, signalled);
  if (done > signalled) {
    const auto work = stage.added > 0     ? reduce
                      : stage.encoded > 0 ? encode
                      : stage.decoded > 0 ? decode
                                          : forward;
    trace_.on_work(rank, work, stage.step, signalled, done);
  }
}

void Timeline::message(const PlannedMessage& message, Picoseconds started, const Arrival& arrival,
                       Picoseconds gathered) {
  const std::uint32_t step = copies_.stage(message.stage).step;
  const std::span<const LinkId> found = routes_.real_route(message);
  const std::vector<LinkId> route(found.begin(), found.end());  // a tree's route is made anew
  trace_.on_message(message, step, route, started, arrival.there);
  // Before it flows it may wait for its turn.
  const auto flows = flowing_since_.find(arrival.message);
  const Picoseconds begin = flows == flowing_since_.end() ? started : flows->second;
  for (const LinkId link : route) {
    trace_.on_link(message, step, link, begin, arrival.gone);
  }
  for (const LinkId link : routes_.real_other_route(message)) {
    if (std::find(route.begin(), route.end(), link) != route.end()) continue;
    trace_.on_link(message, step, link, begin, arrival.gone);
  }
  if (gathered > arrival.there) {
    decoding(copies_.receiver_of(message), step, arrival.there, gathered);
  }
}

void Timeline::on_rate(std::uint64_t tag, double gb_per_s, Picoseconds now) {
  const auto id = static_cast<MessageId>(tag);
  const PlannedMessage message = copies_.message(id);
  flowing_since_.try_emplace(id, now);
  const bool other = (tag & kOtherWay) != 0;
  for (const LinkId link :
       other ? routes_.real_other_route(message) : routes_.real_route(message)) {
    const double bandwidth = fabric_.network().properties(link).bandwidth_gb_per_s;
    double share = gb_per_s / bandwidth;
    if ((tag & kHalf) != 0) {  // two routes may end with the same links
      std::array<double, 2>& halves = shares_[{id, link}];
      halves[other ? 1 : 0] = share;
      share = halves[0] + halves[1];
    }
    trace_.on_share(id, link, share, now);
  }
}

}  // namespace arlab
