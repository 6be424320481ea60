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
#include "reference/dtype.h"
#include "sim/device/device.h"
#include "sim/topology/sourced.h"

namespace arlab {

/// Network that connects the devices.
enum class TopologyKind : std::uint8_t {
  full_mesh,  ///< a link from every rank to every other, one per direction
  ring,       ///< links to both neighbours, one per direction; others are reached the shorter way
              ///< round, upwards when both are equally long
  switched,   ///< one port out of and one port into every rank; the switch itself never limits
  numa,       ///< ports as above; between every two groups one bridge per direction, which all
              ///< ranks of a group share
  torus,      ///< links to both neighbours in every dimension; routes go dimension by dimension
  fat_tree,   ///< servers with a switch inside, or as ServerInside says; every rank also hangs, by
              ///< a network card of its own or one that several share, on the leaf switch of the
              ///< card's rail; uplinks join the leaves
  dragonfly,  ///< groups of routers, all to all inside a group and between groups (Kim et al. 2008)
  graph,      ///< edges as the file lists them
};
inline constexpr TopologyKind kTopologyKinds[] = {
    TopologyKind::full_mesh, TopologyKind::ring,     TopologyKind::switched,  TopologyKind::numa,
    TopologyKind::torus,     TopologyKind::fat_tree, TopologyKind::dragonfly, TopologyKind::graph};
std::string_view name_of(TopologyKind kind);

/// Network that connects the ranks of a fat tree's server.
enum class ServerInside : std::uint8_t {
  switched,  ///< one switch, a port per rank
  mesh,      ///< a link from every rank to every other
  pcie,      ///< the PCIe switches to which the network cards belong
};
inline constexpr ServerInside kServerInsides[] = {ServerInside::switched, ServerInside::mesh,
                                                  ServerInside::pcie};
std::string_view name_of(ServerInside inside);

inline constexpr Rank kMaxTopologyRanks = 65536;
/// The number of links of a full mesh grows with the square.
inline constexpr Rank kMaxFullMeshRanks = 32768;
/// Most links of a kind with links from every group or router to every other; switches of any kind
/// are fewer.
inline constexpr std::uint32_t kMaxSwitchLinks = 1 << 22;

/// Quantities lie between, in whatever unit: nothing is free, and no time overflows.
inline constexpr double kSmallestQuantity = 1e-6;
inline constexpr double kLargestQuantity = 1e9;
/// The largest of the overlaps of the kernel model, which says: the longer time alone.
inline constexpr double kLargestOverlap = 100;

/// Most channels of the vendor's library; NCCL itself allows 64.
inline constexpr double kMostChannels = 1024;

/// Links of one type have the same figures, in each direction.
struct LinkType {
  std::string name;             ///< the section of the file: link, bridge, nic, ...
  Quantity bandwidth_gb_per_s;  ///< usable, one direction; 10^9 bytes/s
  Quantity latency_us;          ///< from a store on one end until the other sees it
  /// Graph: what a link and the one back carry together, where that is less than twice one.
  std::optional<Quantity> both_ways_gb_per_s = std::nullopt;
  bool root_port = false;  ///< graph: between a PCIe switch and a root complex (flows.h)
  /// Root ports: whether writes of the chip to several root complexes collapse.
  bool collapses = true;
  bool operator==(const LinkType&) const = default;
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
  std::string type;    ///< a LinkType::name
  std::string domain;  ///< a SharingDomain::name; empty for none
  bool duplex = true;  ///< false: no link back
  bool operator==(const Edge&) const = default;
};

/// Links that share a capacity beside their own: those of a PCIe switch with one upstream port.
struct SharingDomain {
  std::string name;
  Quantity bandwidth_gb_per_s;
  bool operator==(const SharingDomain&) const = default;
};

/// A fault of one link, in one direction.
struct LinkFault {
  NodeName from;
  NodeName to;
  double bandwidth_factor = 1;  ///< share of the bandwidth of its type; 0: it does not work at all
  std::string note;
  bool operator==(const LinkFault&) const = default;
};

/// Functions of a switch besides forwarding.
struct InSwitch {
  bool multicast = false;         ///< a message to many costs its bytes once on the sender's port
  bool reduction = false;         ///< it adds: what many send costs its bytes once at the receiver
  Quantity reduction_efficiency;  ///< share of the ports' bandwidth, with reduction
  bool operator==(const InSwitch&) const = default;
};

/// A rank that arrives late.
struct Straggler {
  Rank rank = 0;
  Quantity delay_us;
  bool operator==(const Straggler&) const = default;
};

/// A link that becomes slower, fails or comes back while a collective runs, in one direction.
struct LinkEvent {
  NodeName from;
  NodeName to;
  double at_us = 0;
  double bandwidth_factor = 1;  ///< from then on, as LinkFault::bandwidth_factor
  std::string note;
  bool operator==(const LinkEvent&) const = default;
};

/// Traffic of others: a flow from a node to another, which takes its max-min share like any message
/// and never more than this.
struct BackgroundFlow {
  NodeName from;
  NodeName to;
  double gb_per_s = 0;
  double from_us = 0;
  double until_us = 0;
  std::string note;
  bool operator==(const BackgroundFlow&) const = default;
};

/// Ranks with a device of their own.
struct DeviceOverride {
  std::vector<Rank> ranks;
  Device device;
  bool operator==(const DeviceOverride&) const = default;
};

/// Variation from run to run; mean values of exponential distributions, 0 for none.
struct Jitter {
  double launch_us = 0;   ///< by which a rank comes late
  double message_us = 0;  ///< by which a message arrives late
  bool any() const { return launch_us > 0 || message_us > 0; }
  bool operator==(const Jitter&) const = default;
};

/// Runs that a fit has seen, of arlab's kernels or of the vendor's library.
struct FittedTo {
  std::string device;            ///< Device::name of what was measured
  std::vector<Rank> ranks = {};  ///< ascending
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;  ///< payloads of one rank
  std::vector<std::string> algorithms = {};
  std::vector<std::string> codecs = {};
  std::vector<DType> dtypes = {};  ///< empty where the file does not say
  std::string commit =
      {};  ///< the measured kernels' commit; empty where those are not this repository's
  bool operator==(const FittedTo&) const = default;
};

/// A fit's statement on constants of the machine, by their keys (uncertainty.h).
struct Uncertainty {
  double scatter_percent = 0;  ///< how far the fit's cells lie about it, one standard deviation
  std::string note;            ///< which fit it is
  std::vector<std::string> machines = {};  ///< names of those to whose times, or of parts of which
  std::vector<std::string> constants;
  std::vector<double> sigma_percent;             ///< one standard deviation each
  std::vector<std::vector<double>> correlation;  ///< row i: that of i with those before it
  std::optional<FittedTo> kernels = {};          ///< runs that constants were fitted to
  std::optional<FittedTo> library = {};
  bool operator==(const Uncertainty&) const = default;
};

struct Topology {
  std::string name;
  std::string summary;
  std::string caveat;  ///< why its times are not to be trusted; empty where nothing says so
  /// Where kernels are of another machine, times of payloads below so many bytes are guesses
  /// (uncertainty.h); 0: none are.
  std::uint64_t guessed_below_bytes = 0;
  TopologyKind kind = TopologyKind::full_mesh;
  Count ranks;
  /// numa: ranks of a group; fat_tree: ranks of a server; dragonfly: routers of a group.
  Count group_size;
  Count leaf_servers;  ///< fat_tree: servers whose cards share the leaves of a pod
  /// fat_tree: network cards of a server, and its PCIe switches; 0 where each rank has a card of its
  /// own, and as many switches as the cards make. See Server.
  Count nics = {};
  Count pcie_switches = {};
  ServerInside inside = ServerInside::switched;  ///< fat_tree
  Count ranks_per_router;                        ///< dragonfly
  std::vector<Rank> shape;     ///< torus: ranks in each dimension, the fastest last
  std::uint32_t switches = 0;  ///< graph
  /// Whether messages may pass through a device on their way to another. Rings and tori need it.
  bool devices_forward = false;

  InSwitch in_switch;  ///< switch
  std::vector<LinkType> link_types;
  std::vector<SharingDomain> domains;  ///< graph
  std::vector<Edge> edges;             ///< graph
  std::vector<LinkFault> faults;
  std::vector<Straggler> stragglers;
  std::vector<LinkEvent> link_events;
  std::vector<BackgroundFlow> background;
  std::vector<DeviceOverride> device_overrides;
  Jitter jitter;
  Device device;
  std::optional<Uncertainty> uncertainty;
  std::optional<Uncertainty> server_uncertainty;  ///< fat_tree: of runs inside a server

  /// Throws std::out_of_range when the kind has no such type.
  const LinkType& link_type(std::string_view type) const;
  LinkType& link_type(std::string_view type);
  bool has_link_type(std::string_view type) const;
  bool operator==(const Topology&) const = default;
};

/// How the ranks of a fat tree's server come to the network.
struct Server {
  Rank rails = 0;  ///< leaf switches of a pod: one for each card, or for all of a PCIe switch
  Rank cards_per_rail = 1;
  /// PCIe switches between ranks and cards; 0: every rank is linked to a card of its own.
  Rank hubs = 0;
  bool has_root = false;  ///< PCIe switches meet in a root complex: inside = pcie, more than one

  /// The PCIe switch to which the card of a rail belongs.
  Rank hub_of_rail(Rank rail) const { return rails >= hubs ? rail : rail * (hubs / rails); }
  Rank rail_of_hub(Rank hub) const { return rails >= hubs ? hub : hub / (hubs / rails); }
  /// The rail over which a rank sends, counted in its server, which has `ranks` of them.
  Rank rail_of(Rank local, Rank ranks) const {
    return hubs == 0 ? local : rail_of_hub(local / (ranks / hubs));
  }
  /// Whether every PCIe switch has cards.
  bool is_alike() const { return hubs == 0 || rails == hubs; }
};
Server server_of(const Topology& topology);

/// Switches of one sort, which have consecutive numbers.
struct SwitchSort {
  Rank first = 0;
  Rank count = 0;
  std::string words;  ///< "inside the servers"
};
/// Returns the sorts of a topology's switches, from 0. Nothing about those of a graph but how many.
std::vector<SwitchSort> switches_of(const Topology& topology);
/// All nodes, for messages: "rank0 to rank7, switch0 and switch1 (of the groups)".
std::string nodes_in_words(const Topology& topology);

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

/// Reads TOML text; `origin` names it in messages, and where a base is a path it counts from `folder`.
/// Throws InvalidInput: file, key, what is allowed.
Topology parse_topology(std::string_view toml, std::string_view origin,
                        const std::filesystem::path& folder = {});
Topology read_topology(const std::filesystem::path& path);

/// The text of a file that reads back to the same topology.
std::string to_toml(const Topology& topology);
/// Its section, after an empty line.
std::string to_toml(const Uncertainty& uncertainty, std::string_view section = "uncertainty");
std::string to_toml(const CodecTimes& codec);

/// Throws InvalidInput unless all counts, quantities and names are in range and fit together.
/// `origin` names the topology in the message.
void require_valid(const Topology& topology, std::string_view origin);

/// Whether anything changes while a collective runs, or from run to run, or from rank to rank.
inline bool varies(const Topology& t) {
  return !t.link_events.empty() || !t.background.empty() || !t.device_overrides.empty() ||
         t.jitter.any();
}

/// Ranks of a group when `world_size` ranks run a hierarchical algorithm and the number is not given: those that are closest to
/// each other,
///
///   numa, fat_tree      a group, a server
///   dragonfly, torus    a group; a line of the fastest dimension
///   graph               neighbouring ranks in one sharing domain, else at one switch by their
///                       fastest links, where that makes equal groups
///
/// and of these as many together as make at least as many ranks in a group as there are groups
/// (ring: single ranks), since all groups exchange with each other. Where they do not divide the
/// world size, the largest part that does. Where no rank is farther than another, and groups of
/// neighbours are no larger than one rank: arlab::default_group_size(world_size).
Rank default_group_size(const Topology& topology, Rank world_size);
/// The same for a collective of these ranks of the topology, in this order.
Rank default_group_size(const Topology& topology, const std::vector<Rank>& ranks);

/// Group sizes that are worth a try: the default, then divisors of the world size that cut no group
/// of the topology in two and no two in pieces, those that are nearest first. At most `most`.
std::vector<Rank> group_sizes(const Topology& topology, Rank world_size, std::size_t most);

/// Its name, with why its times are not to be trusted where a file says that.
std::string name_with_caveat(const Topology& topology);

struct NamedQuantity {
  std::string key;  ///< as in the file, with the unit: link.bandwidth_gb_per_s
  Quantity quantity;
};
/// All numbers of a topology with where they come from, counts included.
std::vector<NamedQuantity> quantities_of(const Topology& topology);

}  // namespace arlab
