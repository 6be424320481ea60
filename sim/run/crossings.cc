#include "sim/run/crossings.h"

namespace arlab {

std::uint64_t crossings_of(const Copies& copies, const Topology& topology, const Fabric& fabric,
                           const SimulateOptions& options) {
  const Plan& plan = copies.plan();
  std::uint64_t crossings = 0;
  for (const PlannedMessage& message : plan.messages) {
    const std::uint64_t links = message.reach == Reach::one
                                    ? fabric.hops_between(message.from, message.to)
                                    : plan.world_size + std::uint64_t{1};
    crossings += links * copies.copies();
    if (crossings > options.most_crossings) {
      fail(
          "{} of {} ranks on topology '{}': its messages cross more than {} links together, which "
          "would take minutes and gigabytes; allowed are fewer ranks, or an algorithm whose "
          "messages go to near ranks",
          plan.algorithm, plan.world_size, topology.name, options.most_crossings);
    }
  }
  return crossings;
}

}  // namespace arlab
