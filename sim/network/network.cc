#include "sim/network/network.h"

#include <stdexcept>

#include "reference/error.h"

namespace arlab {

void Network::require_room(std::uint64_t more, std::uint64_t have, const char* what) const {
  if (have + more > kMaxCount) {
    fail("network: {} {} are too many; allowed are at most {}", have + more, what, kMaxCount);
  }
}

NodeId Network::add_nodes(std::uint32_t count, bool are_devices, Forwarding forwarding) {
  require_room(count, nodes_.size(), "nodes");
  const NodeId first = nodes();
  nodes_.resize(nodes_.size() + count, Node{are_devices, forwarding == Forwarding::yes});
  return first;
}

NodeId Network::add_devices(std::uint32_t count, Forwarding forwarding) {
  return add_nodes(count, true, forwarding);
}

NodeId Network::add_switches(std::uint32_t count, Forwarding forwarding) {
  return add_nodes(count, false, forwarding);
}

DomainId Network::add_domain(double bandwidth_gb_per_s) {
  require_room(1, domains_.size(), "sharing domains");
  // Written so that a NaN fails too.
  if (!(bandwidth_gb_per_s >= kMinBandwidth && bandwidth_gb_per_s <= kMaxBandwidth)) {
    fail("domain {}: bandwidth {} GB/s is out of range; allowed is {} to {}", domains(),
         bandwidth_gb_per_s, kMinBandwidth, kMaxBandwidth);
  }
  domains_.push_back(bandwidth_gb_per_s);
  return domains() - 1;
}

LinkProperties Network::checked(const LinkSpec& spec, NodeId from, NodeId to) const {
  for (const NodeId node : {from, to}) {
    if (node >= nodes()) {
      fail("link {}->{}: there is no node {}; the network has {} nodes", from, to, node, nodes());
    }
  }
  if (!(spec.bandwidth_gb_per_s >= kMinBandwidth && spec.bandwidth_gb_per_s <= kMaxBandwidth)) {
    fail("link {}->{}: bandwidth {} GB/s is out of range; allowed is {} to {}", from, to,
         spec.bandwidth_gb_per_s, kMinBandwidth, kMaxBandwidth);
  }
  if (!(spec.latency_us >= 0 && spec.latency_us <= kMaxLatency)) {
    fail("link {}->{}: latency {} us is out of range; allowed is 0 to {}", from, to,
         spec.latency_us, kMaxLatency);
  }
  if (spec.domain != kNoDomain && spec.domain >= domains()) {
    fail("link {}->{}: there is no sharing domain {}; the network has {}", from, to, spec.domain,
         domains());
  }
  return {spec.bandwidth_gb_per_s, picoseconds_from_us(spec.latency_us), spec.domain};
}

LinkId Network::append_single(NodeId from, NodeId to, const LinkProperties& properties) {
  if (segments_.empty() || segments_.back().mesh != kSingleLinks) {
    segments_.push_back({.first_link = links_,
                         .count = 0,
                         .mesh = kSingleLinks,
                         .first_single = static_cast<std::uint32_t>(single_links_.size()),
                         .properties = {}});
  }
  ++segments_.back().count;
  single_links_.push_back({properties, {from, to}});
  return links_++;
}

LinkId Network::add_link(NodeId from, NodeId to, const LinkSpec& spec) {
  const LinkProperties properties = checked(spec, from, to);
  if (from == to) fail("link {}->{}: a link connects two different nodes", from, to);
  require_room(1, links_, "links");
  return append_single(from, to, properties);
}

LinkId Network::add_loop(NodeId node, const LinkSpec& spec) {
  const LinkProperties properties = checked(spec, node, node);
  require_room(1, links_, "links");
  return append_single(node, node, properties);
}

LinkId Network::add_duplex(NodeId a, NodeId b, const LinkSpec& spec) {
  const LinkId forth = add_link(a, b, spec);
  add_link(b, a, spec);
  return forth;
}

LinkId Network::add_full_mesh(NodeId first, std::uint32_t count, const LinkSpec& spec) {
  if (count < 2) fail("full mesh: {} nodes have no links; allowed are 2 and more", count);
  if (std::uint64_t{first} + count > nodes()) {
    fail("full mesh: nodes {} to {} do not exist; the network has {} nodes", first,
         std::uint64_t{first} + count - 1, nodes());
  }
  const LinkProperties properties = checked(spec, first, first + 1);
  const std::uint64_t added = std::uint64_t{count} * (count - 1);
  require_room(added, links_, "links");
  if (count < kSmallestFullMesh) {
    const LinkId first_link = links_;
    for (NodeId from = first; from < first + count; ++from) {
      for (NodeId to = first; to < first + count; ++to) {
        if (to != from) append_single(from, to, properties);
      }
    }
    return first_link;
  }
  segments_.push_back({.first_link = links_,
                       .count = static_cast<std::uint32_t>(added),
                       .mesh = static_cast<std::uint32_t>(meshes_.size()),
                       .first_single = 0,
                       .properties = properties});
  meshes_.push_back({first, count, links_});
  links_ += static_cast<std::uint32_t>(added);
  return meshes_.back().first_link;
}

LinkEnds Network::ends(LinkId link) const {
  const Segment& segment = segment_of(link);
  if (segment.mesh == kSingleLinks) {
    return single_links_[segment.first_single + (link - segment.first_link)].ends;
  }
  const FullMesh& mesh = meshes_[segment.mesh];
  const std::uint32_t row = (link - mesh.first_link) / (mesh.count - 1);
  const std::uint32_t column = (link - mesh.first_link) % (mesh.count - 1);
  return {mesh.first_node + row, mesh.first_node + (column < row ? column : column + 1)};
}

void Network::require_path(std::span<const LinkId> links) const {
  if (links.empty()) fail("route: it has no links; a message needs at least one");
  for (const LinkId id : links) {
    if (id >= links_) fail("route: there is no link {}; the network has {}", id, links_);
  }
  for (std::size_t hop = 1; hop < links.size(); ++hop) {
    if (ends(links[hop - 1]).to == ends(links[hop]).from) continue;
    fail("route: {} does not begin where {} ends", describe_resource(links[hop]),
         describe_resource(links[hop - 1]));
  }
}

std::string Network::describe_node(NodeId node) const {
  if (node >= nodes()) return fmt::format("node {}", node);
  return fmt::format("{} {}", nodes_[node].is_device ? "device" : "switch", node);
}

std::string Network::describe_resource(ResourceId resource) const {
  if (resource >= links_) return fmt::format("domain {}", resource - links_);
  const auto [from, to] = ends(resource);
  return fmt::format("link {}->{}", from, to);
}

void Network::set_bandwidth(LinkId link, double gb_per_s) {
  const Segment& segment = segment_of(link);
  if (segment.mesh != kSingleLinks) {
    throw std::logic_error("set_bandwidth: the link is one of a mesh that is not stored");
  }
  single_links_[segment.first_single + (link - segment.first_link)].properties.bandwidth_gb_per_s =
      gb_per_s;
}

}  // namespace arlab
