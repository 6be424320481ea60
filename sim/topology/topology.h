// A topology: devices, what connects them, and what every step costs. Every number says where it
// comes from.
//
// Topologies are TOML files, one per machine, in sim/topology/machines/; README.md there documents
// the schema. They hold what a machine is, not how a model uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"

namespace arlab {

/// Where a number comes from. `published` means that it stands in the cited text; `fitted` that it
/// was chosen so that a model meets the cited cells.
enum class Source : std::uint8_t { datasheet, measured, fitted, published, assumed };
std::string_view name_of(Source source);

template <class T>
struct Sourced {
  T value = {};
  Source source = Source::assumed;
  std::string note;  ///< which datasheet, machine and date, cells, or why
};
using Quantity = Sourced<double>;
using Count = Sourced<Rank>;

/// What connects the devices.
enum class TopologyKind : std::uint8_t {
  full_mesh,  ///< a link from every rank to every other, one per direction
  ring,       ///< links to both neighbours, one per direction; others are reached the shorter way
              ///< round, upwards when both are equally long
  switched,   ///< one port out of and one port into every rank; the switch itself never limits
  numa,       ///< ports as above; between every two groups one bridge per direction, which all
              ///< ranks of a group share
};
std::string_view name_of(TopologyKind kind);

/// The number of links of a full mesh grows with the square.
inline constexpr Rank kMaxTopologyRanks = 1024;

/// Quantities lie between, in whatever unit: nothing is free, and no time overflows.
inline constexpr double kSmallestQuantity = 1e-6;
inline constexpr double kLargestQuantity = 1e9;

struct Topology {
  std::string name;
  std::string summary;
  TopologyKind kind = TopologyKind::full_mesh;
  Count ranks;
  Count group_size;  ///< numa only: consecutive ranks of one group

  /// Usable, of one link (full_mesh, ring) or one port (switched, numa) in one direction; 10^9
  /// bytes/s.
  Quantity link_bandwidth_gb_per_s;
  /// From a store on one rank until its peer sees it: over one link, or from port to port.
  Quantity link_latency_us;
  Quantity bridge_bandwidth_gb_per_s;  ///< numa only: one bridge, one direction
  Quantity bridge_latency_us;          ///< numa only: added by crossing a bridge

  Quantity launch_overhead_us;   ///< once per collective: start the kernel and see it end
  Quantity step_overhead_us;     ///< once per step in which anything is sent
  Quantity message_overhead_us;  ///< per peer that a rank signals or waits for in a step

  std::string device;
  /// Element-operations of codecs and sums (CodecCost) that one device does; 10^9 per second.
  Quantity codec_gops_per_s;
  /// Per step in which a codec works: until the first tile is encoded and may travel.
  Quantity codec_startup_us;
};

/// A topology by name (see listed_topologies()), by the path of a file that ends in .toml, or
/// generated: full:N, ring:N. Throws InvalidInput with what is allowed.
Topology find_topology(std::string_view name_or_path);

/// Names of the machines that the library carries, in alphabetical order.
std::vector<std::string> listed_topologies();

/// Reads TOML text; `origin` names it in messages. Throws InvalidInput: file, key, what is allowed.
Topology parse_topology(std::string_view toml, std::string_view origin);
Topology read_topology(const std::filesystem::path& path);

/// Throws InvalidInput unless all counts and quantities are in range. `origin`
/// names the topology in the message.
void require_valid(const Topology& topology, std::string_view origin);

struct NamedQuantity {
  std::string key;  ///< as in the file, with the unit: link.bandwidth_gb_per_s
  Quantity quantity;
};
/// All numbers of a topology with where they come from, counts included.
std::vector<NamedQuantity> quantities_of(const Topology& topology);

// ---------------------------------------------------------------- links and routes

enum class LinkClass : std::uint8_t { link, port_out, port_in, bridge };
std::string_view name_of(LinkClass link_class);

/// Anything that messages share, in one direction.
struct Link {
  LinkClass link_class = LinkClass::link;
  Rank from = 0;  ///< rank, or group of a bridge; of a port: its rank
  Rank to = 0;
  double bandwidth_gb_per_s = 0;
};
/// In words: "link 0->1", "port out of 3", "bridge 0->1".
std::string describe(const Link& link);

using LinkId = std::uint32_t;

/// All links; LinkId is the index.
std::vector<Link> links_of(const Topology& topology);

/// The way of a message between two different ranks.
struct Route {
  std::vector<LinkId> links;
  double latency_us = 0;
};
Route route_between(const Topology& topology, Rank from, Rank to);

}  // namespace arlab
