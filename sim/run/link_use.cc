#include "sim/run/link_use.h"

#include <utility>

namespace arlab {

void LinkUse::take(std::span<const LinkId> route, std::uint64_t bytes, std::uint64_t wire_bytes) {
  if (bytes == wire_bytes) return;
  for (const LinkId link : route) more_bytes_[link] += bytes - wire_bytes;
}

std::vector<LinkClassUse> LinkUse::by_class(const NetworkEngine& engine,
                                            const MessageRoutes& routes, const Fabric& fabric,
                                            Picoseconds duration) const {
  std::vector<LinkClassUse> by_class(fabric.classes().size());
  const auto add = [&](LinkId link, std::uint64_t alike, WideCount bytes, WideCount taken) {
    LinkClassUse& use = by_class[fabric.class_index(link)];
    use.links += alike;
    use.bytes += bytes * alike;
    const double possible =
        bytes_in(duration, fabric.network().properties(link).bandwidth_gb_per_s);
    const double utilisation = static_cast<double>(taken) / possible;
    if (utilisation > use.utilisation) {
      use.utilisation = utilisation;
      use.busiest = fabric.describe(link);
    }
  };
  routes.for_each_used(engine, more_bytes_, add);
  std::vector<LinkClassUse> list;
  for (std::size_t i = 0; i < by_class.size(); ++i) {
    if (by_class[i].links == 0) continue;
    by_class[i].link_class = fabric.classes()[i];
    list.push_back(std::move(by_class[i]));
  }
  return list;
}

}  // namespace arlab
