// A topology: devices, what connects them, and what a device needs for its part of a collective.
// Every number says where it comes from.
//
// Topologies are TOML files, one per machine, in sim/topology/machines/; README.md there documents
// the schema. fabric.h makes the graph out of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"
#include "sim/device/device.h"
#include "sim/topology/sourced.h"

namespace arlab {

/// What connects the devices.
enum class TopologyKind : std::uint8_t {
  full_mesh,  ///< a link from every rank to every other, one per direction
  ring,       ///< links to both neighbours, one per direction; others are reached the shorter way
              ///< round, upwards when both are equally long
  switched,   ///< one port out of and one port into every rank; the switch itself never limits
  numa,       ///< ports as above; between every two groups one bridge per direction, which all
              ///< ranks of a group share
  torus,      ///< links to both neighbours in every dimension; routes go dimension by dimension
  fat_tree,   ///< servers with a switch inside; rank i of every server also hangs, by a network
              ///< card of its own, on a leaf switch of rail i; uplinks join the leaves
  dragonfly,  ///< groups of routers, all to all inside a group and between groups (Kim et al. 2008)
  graph,      ///< what the file says, edge by edge
};
inline constexpr TopologyKind kTopologyKinds[] = {
    TopologyKind::full_mesh, TopologyKind::ring,     TopologyKind::switched,  TopologyKind::numa,
    TopologyKind::torus,     TopologyKind::fat_tree, TopologyKind::dragonfly, TopologyKind::graph};
std::string_view name_of(TopologyKind kind);

inline constexpr Rank kMaxTopologyRanks = 65536;
/// The number of links of a full mesh grows with the square.
inline constexpr Rank kMaxFullMeshRanks = 32768;
/// Of a kind with links from every group or router to every other; switches of any kind are fewer.
inline constexpr std::uint32_t kMaxSwitchLinks = 1 << 22;

/// Quantities lie between, in whatever unit: nothing is free, and no time overflows.
inline constexpr double kSmallestQuantity = 1e-6;
inline constexpr double kLargestQuantity = 1e9;
/// Of the overlaps of the kernel model.
inline constexpr double kLargestOverlap = 100;

/// Of the vendor's library; NCCL allows 64 itself.
inline constexpr double kMostChannels = 1024;

/// Links of one type have the same figures, in each direction.
struct LinkType {
  std::string name;             ///< the section of the file: link, bridge, nic, ...
  Quantity bandwidth_gb_per_s;  ///< usable, one direction; 10^9 bytes/s
  Quantity latency_us;          ///< from a store on one end until the other sees it
};

/// The link types that a kind has, in the order of the file. A graph names its own.
std::vector<std::string> link_types_of(TopologyKind kind);

/// A node of the graph: rank or switch.
struct NodeName {
  bool is_switch = false;
  std::uint32_t number = 0;
  bool operator==(const NodeName&) const = default;
};
/// As in files and messages: rank3, switch0.
std::string describe(NodeName node);

/// One link of a graph and the one back.
struct Edge {
  NodeName from;
  NodeName to;
  std::string type;    ///< of LinkType::name
  std::string domain;  ///< of SharingDomain::name; empty for none
  bool duplex = true;  ///< false: no link back
};

/// Links that share a capacity beside their own: those of a PCIe switch with one upstream port.
struct SharingDomain {
  std::string name;
  Quantity bandwidth_gb_per_s;
};

/// What is wrong with one link, in one direction.
struct LinkFault {
  NodeName from;
  NodeName to;
  double bandwidth_factor = 1;  ///< of the bandwidth of its type; 0: it does not work at all
  std::string note;
};

/// A rank that arrives late.
struct Straggler {
  Rank rank = 0;
  Quantity delay_us;
};

/// What a fit says of constants of the machine, by their keys (uncertainty.h).
struct Uncertainty {
  double scatter_percent = 0;  ///< of the fit's cells about it, one standard deviation
  std::string note;            ///< of which fit
  std::vector<std::string> constants;
  std::vector<double> sigma_percent;             ///< one standard deviation each
  std::vector<std::vector<double>> correlation;  ///< row i: with those before it
};

struct Topology {
  std::string name;
  std::string summary;
  TopologyKind kind = TopologyKind::full_mesh;
  Count ranks;
  /// numa: ranks of a group; fat_tree: ranks of a server; dragonfly: routers of a group.
  Count group_size;
  Count leaf_servers;          ///< fat_tree: servers whose cards share the leaves of a pod
  Count ranks_per_router;      ///< dragonfly
  std::vector<Rank> shape;     ///< torus: ranks in each dimension, the fastest last
  std::uint32_t switches = 0;  ///< graph
  /// Whether messages may pass through a device on their way to another. Rings and tori need it.
  bool devices_forward = false;

  std::vector<LinkType> link_types;
  std::vector<SharingDomain> domains;  ///< graph
  std::vector<Edge> edges;             ///< graph
  std::vector<LinkFault> faults;
  std::vector<Straggler> stragglers;
  Device device;
  std::optional<Uncertainty> uncertainty;

  /// Throws std::out_of_range when the kind has no such type.
  const LinkType& link_type(std::string_view type) const;
  LinkType& link_type(std::string_view type);
};

/// A topology by name (see listed_topologies()), by the path of a file that ends in .toml, or
/// generated: see kGeneratedTopologies. Throws InvalidInput with what is allowed.
Topology find_topology(std::string_view name_or_path);

/// Names of the machines that the library carries, in alphabetical order.
std::vector<std::string> listed_topologies();

struct GeneratedTopology {
  std::string_view name;     ///< full
  std::string_view pattern;  ///< full:N
  std::string_view summary;
};
inline constexpr GeneratedTopology kGeneratedTopologies[] = {
    {"full", "full:N", "full mesh of N devices, 1 to 32768"},
    {"ring", "ring:N", "ring of N devices"},
    {"torus", "torus:AxBxC", "torus of A x B x C devices, 1 to 6 dimensions"},
    {"fat_tree", "fat_tree:N", "servers of 8 behind a rail-optimised fat tree, N a multiple of 8"},
    {"dragonfly", "dragonfly:N", "balanced dragonfly, the smallest that holds N devices"},
};

/// Reads TOML text; `origin` names it in messages. Throws InvalidInput: file, key, what is allowed.
Topology parse_topology(std::string_view toml, std::string_view origin);
Topology read_topology(const std::filesystem::path& path);

/// Throws InvalidInput unless all counts, quantities and names are in range and fit together.
/// `origin` names the topology in the message.
void require_valid(const Topology& topology, std::string_view origin);

/// Ranks of a group when `world_size` ranks run a hierarchical algorithm and nobody says how many:
/// those of a server (fat_tree) or of a group (numa, dragonfly), where that makes at least two
/// equal groups; else as arlab::default_group_size(world_size).
Rank default_group_size(const Topology& topology, Rank world_size);

struct NamedQuantity {
  std::string key;  ///< as in the file, with the unit: link.bandwidth_gb_per_s
  Quantity quantity;
};
/// All numbers of a topology with where they come from, counts included.
std::vector<NamedQuantity> quantities_of(const Topology& topology);

}  // namespace arlab
