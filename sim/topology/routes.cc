#include "sim/topology/routes.h"

namespace arlab {

Router& Routes::router() {
  if (!router_) router_.emplace(fabric_.network());
  return *router_;
}

std::span<const LinkId> Routes::other_route(Rank from, Rank to) {
  other_path_.clear();
  fabric_.find_other_route(from, to, other_path_);
  return other_path_;
}

std::span<const LinkId> Routes::route(Rank from, Rank to) {
  path_.clear();
  if (fabric_.find_route(from, to, path_)) return path_;
  const std::optional<Fabric::RouterPair> routers = fabric_.routers_between(from, to);
  if (!routers) return router().route(from, to);
  const std::span<const LinkId> between = router().route(routers->from, routers->to);
  path_.push_back(routers->port_out);
  path_.insert(path_.end(), between.begin(), between.end());
  path_.push_back(routers->port_in);
  return path_;
}

}  // namespace arlab
