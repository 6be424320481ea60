#include "sim/run/message_routes.h"

#include <algorithm>
#include <utility>

namespace arlab {
namespace {

bool are_alike(const PlannedMessage& a, const PlannedMessage& b) {
  return a.bytes == b.bytes && a.inner_bytes == b.inner_bytes && a.reach == Reach::one &&
         b.reach == Reach::one && a.output_elements == b.output_elements;
}

/// Whether each stage sends alike to all other ranks of the plan, or nothing.
bool sends_in_fans(const Plan& plan) {
  if (plan.world_size < 2) return false;
  std::vector<StageId> reached(plan.world_size, UINT32_MAX);
  for (StageId id = 0; id < plan.stages.size(); ++id) {
    const Stage& stage = plan.stages[id];
    if (stage.messages == 0) continue;
    if (stage.messages + 1 != plan.world_size) return false;
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      const PlannedMessage& message = plan.messages[stage.first_message + i];
      if (!are_alike(message, plan.messages[stage.first_message])) return false;
      if (std::exchange(reached[message.to], id) == id) return false;
    }
  }
  return true;
}

}  // namespace

MessageRoutes::MessageRoutes(const Fabric& fabric, const Topology& topology, const Copies& copies,
                             std::uint64_t crossings, bool changes, bool traced)
    : fabric_(fabric),
      topology_(topology),
      routes_(fabric),
      ranks_(copies.plan().ranks_per_rank),
      world_size_(copies.plan().world_size),
      kind_(kind_of(copies.plan(), fabric, crossings, changes, traced)),
      any_other_route_(std::ranges::any_of(copies.plan().messages, [this](const auto& message) {
        return !routes_.other_route(message.from, message.to).empty();
      })) {
  if (kind_ == Kind::changing) network_ = fabric.network();
  if (kind_ == Kind::folded) fold(copies.plan());
  if (kind_ == Kind::part) keep_links_of(copies);
  if (kind_ == Kind::fans) bind_fans();
}

MessageRoutes::Kind MessageRoutes::kind_of(const Plan& plan, const Fabric& fabric,
                                           std::uint64_t crossings, bool changes, bool traced) {
  /// Fewer crossings than links / this: then the engine is better off without the other links.
  constexpr std::uint64_t kSparse = 4;
  if (changes) return Kind::changing;
  if (plan.folded()) return Kind::folded;
  if (!traced && fabric.is_whole_mesh() && sends_in_fans(plan)) return Kind::fans;
  return crossings < fabric.network().links() / kSparse ? Kind::part : Kind::whole;
}

void MessageRoutes::fold(const Plan& plan) {
  network_.add_devices(1);
  for (const PlannedMessage& message : plan.messages) {
    announce(real_route(message));
    announce(real_other_route(message));
  }
}

void MessageRoutes::announce(std::span<const LinkId> route) {
  for (const LinkId link : route) {
    const Fabric::Orbit orbit = orbit_of(link);
    if (folded_links_.contains(orbit.representative)) continue;
    const LinkProperties& real = fabric_.network().properties(orbit.representative);
    const double share = static_cast<double>(orbit.size) / ranks_;
    folded_links_[orbit.representative] = network_.add_loop(
        0, {real.bandwidth_gb_per_s * share, us_from_picoseconds(real.latency), kNoDomain});
    orbits_.push_back(orbit);
  }
}

Fabric::Orbit MessageRoutes::orbit_of(LinkId link) const {
  Fabric::Orbit orbit = fabric_.orbit_of(link);
  orbit.size = orbit.size * ranks_ / topology_.ranks.value;
  return orbit;
}

void MessageRoutes::keep_links_of(const Copies& copies) {
  for (std::uint64_t id = 0; id < copies.messages(); ++id) {
    const PlannedMessage message = copies.message(static_cast<MessageId>(id));
    const std::span<const LinkId> route = real_route(message);
    kept_.insert(kept_.end(), route.begin(), route.end());
    const std::span<const LinkId> other = real_other_route(message);
    kept_.insert(kept_.end(), other.begin(), other.end());
  }
  std::sort(kept_.begin(), kept_.end());
  kept_.erase(std::unique(kept_.begin(), kept_.end()), kept_.end());
  const Network& whole = fabric_.network();
  network_.add_devices(whole.nodes());
  for (DomainId domain = 0; domain < whole.domains(); ++domain) {
    network_.add_domain(whole.capacity_gb_per_s(whole.resource_of(domain)));
  }
  for (const LinkId link : kept_) {
    const LinkProperties& real = whole.properties(link);
    const LinkEnds ends = whole.ends(link);
    network_.add_link(ends.from, ends.to,
                      {real.bandwidth_gb_per_s, us_from_picoseconds(real.latency), real.domain});
  }
}

void MessageRoutes::bind_fans() {
  network_.add_devices(world_size_);
  for (Rank rank = 0; rank < world_size_; ++rank) {
    kept_.push_back(real_route(rank, rank == 0 ? 1 : 0).front());
    const LinkProperties& real = fabric_.network().properties(kept_.back());
    network_.add_loop(rank,
                      {real.bandwidth_gb_per_s, us_from_picoseconds(real.latency), kNoDomain});
  }
}

LinkId MessageRoutes::real_link(LinkId link) const {
  if (kind_ == Kind::part || kind_ == Kind::fans) return kept_[link];
  return kind_ == Kind::folded ? orbits_[link].representative : link;
}

std::string MessageRoutes::describe(ResourceId resource) const {
  if (in_fans()) return fabric_.describe(resource);
  if (resource < network().links()) return fabric_.describe(real_link(resource));
  const std::size_t domain = resource - network().links();
  return fabric_.describe_domain(static_cast<DomainId>(domain));
}

// ---------------------------------------------------------------- routes

std::span<const LinkId> MessageRoutes::real_route_of_nodes(NodeId from, NodeId to) {
  if (!left_) return routes_.route(from, to);
  left_path_.clear();
  for (const LinkId link : left_routes_->route(from, to)) {
    left_path_.push_back(real_of_left_[link]);
  }
  return left_path_;
}

std::span<const LinkId> MessageRoutes::real_route(Rank from, Rank to) {
  try {
    return real_route_of_nodes(from, to);
  } catch (const InvalidInput&) {
    fail("topology '{}': there is no way from rank {} to rank {}{}", topology_.name, from, to,
         left_ ? ", since links have failed" : "");
  }
}

std::span<const LinkId> MessageRoutes::real_route(const PlannedMessage& message) {
  return message.reach == Reach::one ? real_route(message.from, message.to) : ports_of_all(message);
}

std::span<const LinkId> MessageRoutes::ports_of_all(const PlannedMessage& message) {
  tree_.clear();
  const bool spreads = message.reach == Reach::multicast;
  const Rank other = message.from == 0 ? 1 : 0;
  tree_.push_back(spreads ? real_route(message.from, other).front()
                          : real_route(other, message.from).back());
  for (Rank rank = 0; rank < world_size_; ++rank) {
    if (spreads && rank == message.from) continue;
    const Rank to = rank == 0 ? 1 : 0;
    tree_.push_back(spreads ? real_route(message.from, rank).back() : real_route(rank, to).front());
  }
  return tree_;
}

std::span<const LinkId> MessageRoutes::real_other_route(const PlannedMessage& message) {
  if (!any_other_route_ || message.reach != Reach::one || left_) return {};
  return routes_.other_route(message.from, message.to);
}

double MessageRoutes::first_link_gb_per_s(const PlannedMessage& message) {
  return fabric_.network().properties(real_route(message).front()).bandwidth_gb_per_s;
}

std::span<const LinkId> MessageRoutes::ours(std::span<const LinkId> real,
                                            std::vector<LinkId>& path) const {
  if (kind_ == Kind::whole || kind_ == Kind::changing) return real;
  path.clear();
  for (const LinkId link : real) {
    if (kind_ == Kind::folded) {
      path.push_back(folded_links_.at(orbit_of(link).representative));
    } else if (in_fans()) {
      path.push_back(fabric_.network().ends(link).from);
    } else {
      const auto kept = std::lower_bound(kept_.begin(), kept_.end(), link);
      path.push_back(static_cast<LinkId>(kept - kept_.begin()));
    }
  }
  return path;
}

Picoseconds MessageRoutes::latency_of(const PlannedMessage& message,
                                      std::span<const LinkId> route) {
  if (message.reach != Reach::one) return latency_of_tree(message);
  Picoseconds latency = 0;
  for (const LinkId link : route) latency += network().properties(link).latency;
  return latency;
}

Picoseconds MessageRoutes::latency_of_tree(const PlannedMessage& message) {
  Picoseconds latency = 0;
  for (const LinkId link : real_route(message.from, message.from == 0 ? 1 : 0)) {
    latency += fabric_.network().properties(link).latency;
  }
  return latency;
}

// ---------------------------------------------------------------- links that fail

void MessageRoutes::avoid(const std::set<LinkId>& dead, const std::vector<LinkFault>& faults) {
  left_routes_.reset();
  left_.reset();
  if (dead.empty()) return;
  Topology left = topology_;
  left.link_events.clear();
  for (const LinkFault& fault : faults) {
    std::erase_if(left.faults, [&](const LinkFault& before) {
      return before.from == fault.from && before.to == fault.to;
    });
    left.faults.push_back(fault);
  }
  left_.emplace(left);
  left_routes_.emplace(*left_);
  // Both have their links in the same order.
  real_of_left_.clear();
  for (LinkId link = 0; link < fabric_.network().links(); ++link) {
    if (!dead.contains(link)) real_of_left_.push_back(link);
  }
}

}  // namespace arlab
