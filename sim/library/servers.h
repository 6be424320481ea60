// NCCL and RCCL across servers (kind = "fat_tree"), of which each is a machine with
// [library]. Where chunks pass through many ranks, all links are at work at once, so that a
// collective takes
//
//   fixed + hops_inside hop + hops_between network_hop + latencies on the longest way of a chunk
//         + what the busiest link needs for its bytes, by the protocol's share of the bandwidth
//
// A hop of the network costs, of a payload of B bytes of a rank and with its floor f (hop_floor_us),
//
//   network_hop = f (1 + rendezvous_hops B / (B + eager_bytes) + fill_hops B / (B + pipeline))
//   pipeline    = 8 chunk_bytes for every rank of a server
//
// A card's proxies pass a channel's chunks on at the rate of some of them per floor. So filling the pipeline takes floors, not
// what the cards need for its bytes: of three pairs of servers each is predicted from the others to 7 % so, to 22 % by rates.
//
//   ring   as many rings as a server has ranks, each on its share of the tensor: ring k enters a
//          server at rank k, walks through all its ranks (0, 1, -1, 2, ... from there, which over
//          all k uses all links of a mesh alike), and goes on over the card of the last one; every
//          second server is walked backwards, so that messages stay on their rail
//   tree   as many pairs of trees: inside a server the chain of ring k, whose first rank is linked
//          to those of other servers by two binary trees, half of the share over each; what is a
//          leaf in one tree is not in the other (Sanders, Speck, Traeff 2009)
//   NVLS   the switch of a server adds and spreads; rank k is linked to those of other servers as
//          in tree, with its share
//   sends  every rank sends to every other, over the rank of its own server whose place is that of
//          the receiver: so everything stays on its rail
//
// Of its all-reduces and protocols the library takes what the sum above says is the fastest: which
// that is, tuning tables and plug-ins of networks decide, not NCCL's own formula.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

/// Whether the library's collectives on so many ranks are those of servers, or those of one server.
bool spans_servers(const Topology& topology, Rank world_size);
/// Whether these are ranks of several servers.
bool spans_servers(const Topology& topology, std::span<const Rank> ranks);

/// The machine as the library sees it from these ranks: of a fat tree, servers of as many as they are in
/// each, with their cards; else the topology. Throws InvalidInput where servers have different numbers of
/// them, or of their cards, or ranks do not come server by server.
Topology library_part(const Topology& topology, std::span<const Rank> ranks);

/// All-reduces that the library has across servers: ring, tree, and nvls where switches add.
std::vector<LibraryAlgorithm> algorithms_across(const Topology& topology);

/// Returns the library's choice and time for `bytes` of a rank; of its all-reduces `algorithm`, if given. Throws InvalidInput
/// where it has no such collective, or not this algorithm, on this machine.
LibraryChoice choice_across(const Topology& topology, Collective collective, Rank world_size,
                            std::uint64_t bytes,
                            std::optional<LibraryAlgorithm> algorithm = std::nullopt);

/// The latencies of the links of a longest way, one after the other.
double latency_us_on(const Topology& topology, const LongestWay& way);

/// The plan of it. All ranks are listed. Throws InvalidInput where ranks do not fill servers.
Plan plan_across(const Topology& topology, const LibraryChoice& choice, Collective collective,
                 const ScheduleRequest& request, const Codec& codec, DType dtype);

}  // namespace arlab
