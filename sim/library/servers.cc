#include "sim/library/servers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "reference/collectives/ring.h"
#include "sim/device/across_kernel.h"
#include "sim/device/times.h"

namespace arlab {
namespace {

struct Cluster {
  Rank servers = 1;
  Rank per_server = 1;

  Rank rank_of(Rank server, Rank local) const { return server * per_server + local; }
};

Cluster cluster_of(const Topology& t, Rank world_size) {
  const Rank per_server = std::min<Rank>(t.group_size.value, world_size);
  if (world_size % per_server != 0) {
    fail(
        "topology '{}': of the vendor's library across servers only whole ones are simulated; "
        "allowed are multiples of {} ranks, or up to {}",
        t.name, per_server, per_server);
  }
  return {world_size / per_server, per_server};
}

/// The server above each in a binary tree over all of them; the root's is itself. Odd numbers are leaves.
std::vector<Rank> tree_over(Rank servers) {
  std::vector<Rank> above(servers, 0);
  for (Rank server = 1; server < servers; ++server) {
    const Rank lowest = server & (~server + 1);
    const Rank up = (server ^ lowest) | (lowest << 1);
    above[server] = up < servers ? up : server ^ lowest;
  }
  return above;
}

/// The same with leaves where tree_over() has none: mirrored, or of an odd number moved by one.
std::vector<Rank> other_tree_over(Rank servers) {
  const std::vector<Rank> tree = tree_over(servers);
  std::vector<Rank> above(servers);
  for (Rank server = 0; server < servers; ++server) {
    above[server] = servers % 2 == 0 ? servers - 1 - tree[servers - 1 - server]
                                     : (tree[(server + servers - 1) % servers] + 1) % servers;
  }
  return above;
}

std::uint32_t depth_of(const std::vector<Rank>& above) {
  std::uint32_t deepest = 0;
  for (Rank server = 0; server < above.size(); ++server) {
    std::uint32_t depth = 0;
    for (Rank at = server; above[at] != at; at = above[at]) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

/// Shares of the tensor that are sent, by sender and receiver.
using Shares = std::map<std::pair<Rank, Rank>, double>;

/// Returns the traffic of a switch's rank while the switch adds and spreads its server's shares, in shares.
double share_of_port(const Topology& t, Rank per_server) {
  return 1 / t.in_switch.reduction_efficiency.value + 1.0 / per_server;
}

void add_ring(const Cluster& c, double passes, Shares& shares) {
  for (Rank k = 0; k < c.per_server; ++k) {
    std::vector<Rank> ring;
    for (Rank server = 0; server < c.servers; ++server) {
      for (const Rank local : walk_of_ring(k, c.per_server, server % 2 == 1)) {
        ring.push_back(c.rank_of(server, local));
      }
    }
    for (std::size_t i = 0; i < ring.size(); ++i) {
      shares[{ring[i], ring[(i + 1) % ring.size()]}] += passes / c.per_server;
    }
  }
}

void add_trees(const Cluster& c, Shares& shares) {
  for (const std::vector<Rank>& above : {tree_over(c.servers), other_tree_over(c.servers)}) {
    for (Rank server = 0; server < c.servers; ++server) {
      if (above[server] == server) continue;
      for (Rank k = 0; k < c.per_server; ++k) {
        const Rank lower = c.rank_of(server, k);
        const Rank upper = c.rank_of(above[server], k);
        shares[{lower, upper}] += 0.5 / c.per_server;
        shares[{upper, lower}] += 0.5 / c.per_server;
      }
    }
  }
}

void add_chains(const Cluster& c, Shares& shares) {
  for (Rank server = 0; server < c.servers; ++server) {
    for (Rank k = 0; k < c.per_server; ++k) {
      const std::vector<Rank> walk = walk_of_ring(k, c.per_server, false);
      for (Rank i = 0; i + 1 < c.per_server; ++i) {
        const Rank a = c.rank_of(server, walk[i]);
        const Rank b = c.rank_of(server, walk[i + 1]);
        shares[{a, b}] += 1.0 / c.per_server;
        shares[{b, a}] += 1.0 / c.per_server;
      }
    }
  }
}

Shares shares_of(const Topology& t, const Cluster& c, LibraryAlgorithm algorithm,
                 Collective collective) {
  Shares shares;
  const double n = static_cast<double>(c.servers) * c.per_server;
  switch (algorithm) {
    case LibraryAlgorithm::ring:
      add_ring(c, (collective == Collective::all_reduce ? 2 : 1) * (n - 1) / n, shares);
      break;
    case LibraryAlgorithm::tree:
      add_chains(c, shares);
      add_trees(c, shares);
      break;
    case LibraryAlgorithm::nvls:
      // A port is as busy with its neighbour as it is with the switch.
      for (Rank server = 0; server < c.servers; ++server) {
        for (Rank k = 0; k < c.per_server; ++k) {
          shares[{c.rank_of(server, k), c.rank_of(server, (k + 1) % c.per_server)}] +=
              share_of_port(t, c.per_server);
        }
      }
      add_trees(c, shares);
      break;
    case LibraryAlgorithm::exchange:
      for (Rank from = 0; from < n; ++from) {
        for (Rank to = 0; to < n; ++to) {
          const Rank over = c.rank_of(from / c.per_server, to % c.per_server);
          shares[{from, over}] += 1 / n;
          shares[{over, to}] += 1 / n;
        }
      }
      break;
    case LibraryAlgorithm::program:
      break;  // inside a server only
  }
  std::erase_if(shares, [](const auto& share) { return share.first.first == share.first.second; });
  return shares;
}

double cards_gb_per_s(const Topology& t) {
  const Rank cards = t.nics.value > 0 ? t.nics.value : t.group_size.value;
  return cards * t.link_type("nic").bandwidth_gb_per_s.value;
}

}  // namespace

double latency_us_on(const Topology& t, const LongestWay& way) {
  const char* inside = t.has_link_type("link") ? "link" : "pcie";
  double us = way.links_between * t.link_type("nic").latency_us.value;
  if (t.has_link_type(inside)) us += way.links_inside * t.link_type(inside).latency_us.value;
  return us;
}

namespace {

LongestWay longest_way(const Topology& t, const Cluster& c, LibraryAlgorithm algorithm,
                       Collective collective) {
  LongestWay way{.ranks_per_server = c.per_server};
  const std::uint32_t inside = c.per_server - 1;
  const std::uint32_t passes = collective == Collective::all_reduce ? 2 : 1;
  switch (algorithm) {
    case LibraryAlgorithm::ring: {
      // With one rank per server all hops are between servers.
      const std::uint32_t hops = passes * (c.servers * c.per_server - 1);
      way.hops_between = c.servers > 1 ? std::min(hops, passes * c.servers - 1) : 0;
      way.hops_inside = hops - way.hops_between;
      break;
    }
    case LibraryAlgorithm::tree:
      way.hops_inside = 2 * inside;
      [[fallthrough]];
    case LibraryAlgorithm::nvls:
      way.hops_between = 2 * depth_of(tree_over(c.servers));
      break;
    case LibraryAlgorithm::exchange:
      way.hops_between = c.servers > 1 ? 1 : 0;
      way.hops_inside = c.servers > 1 ? 0 : 1;
      break;
    case LibraryAlgorithm::program:
      break;
  }
  way.links_inside = way.hops_inside;
  way.links_between = way.hops_between;
  for (std::uint32_t* last : {&way.links_between, &way.links_inside}) {
    if (*last == 0) continue;
    --*last;
    break;
  }
  way.latency_us = latency_us_on(t, way);
  return way;
}

/// Returns the traffic of the server that sends most in both trees, in shares.
double share_of_trees(Rank servers) {
  std::vector<double> sent(servers);
  for (const std::vector<Rank>& above : {tree_over(servers), other_tree_over(servers)}) {
    for (Rank server = 0; server < servers; ++server) {
      if (above[server] == server) continue;
      sent[server] += 0.5;
      sent[above[server]] += 0.5;
    }
  }
  return std::ranges::max(sent);
}

/// Returns the time of the busiest rank inside a server, and of the busiest server, for their bytes.
double busiest_us(const Topology& t, const Cluster& c, LibraryAlgorithm algorithm,
                  Collective collective, double bytes) {
  const double n = static_cast<double>(c.servers) * c.per_server;
  double of_rank = 0;    // shares of the tensor
  double of_server = 0;  // the same
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  switch (algorithm) {
    case LibraryAlgorithm::ring:
      of_server = c.servers > 1 ? passes * (n - 1) / n : 0;
      of_rank = passes * (n - 1) / n * (c.per_server - 1) / c.per_server;
      break;
    case LibraryAlgorithm::tree:
    case LibraryAlgorithm::nvls:
      of_server = share_of_trees(c.servers);
      of_rank = algorithm == LibraryAlgorithm::tree ? 2.0 * (c.per_server - 1) / c.per_server
                                                    : share_of_port(t, c.per_server);
      break;
    case LibraryAlgorithm::exchange:
    case LibraryAlgorithm::program:
      return 0;  // there is no choice
  }
  double us = time_us(bytes * of_server, cards_gb_per_s(t));
  if (t.has_link_type("link")) {
    const double links = t.inside == ServerInside::mesh ? std::max<Rank>(c.per_server - 1, 1) : 1;
    us = std::max(us,
                  time_us(bytes * of_rank, links * t.link_type("link").bandwidth_gb_per_s.value));
  }
  return us;
}

std::string_view name_of(LibraryAlgorithm algorithm) {
  return algorithm == LibraryAlgorithm::nvls
             ? "nvls"
             : (algorithm == LibraryAlgorithm::tree ? "tree" : "ring");
}

}  // namespace

bool spans_servers(const Topology& topology, Rank world_size) {
  return topology.kind == TopologyKind::fat_tree && world_size > topology.group_size.value;
}

bool spans_servers(const Topology& topology, std::span<const Rank> ranks) {
  const Rank size = topology.group_size.value;
  return topology.kind == TopologyKind::fat_tree &&
         std::ranges::any_of(ranks, [&](Rank rank) { return rank / size != ranks.front() / size; });
}

Topology library_part(const Topology& topology, std::span<const Rank> ranks) {
  if (topology.kind != TopologyKind::fat_tree) return topology;
  const Rank size = topology.group_size.value;
  const auto n = static_cast<Rank>(ranks.size());
  const Server server = server_of(topology);
  std::map<Rank, std::set<Rank>> rails;  // by server
  for (const Rank rank : ranks) rails[rank / size].insert(server.rail_of(rank % size, size));
  const auto servers = static_cast<Rank>(rails.size());
  if (servers == 1) return topology;
  const Rank per_server = n / servers;
  bool alike = n % servers == 0;
  for (std::size_t i = 0; alike && i < n; ++i) {
    alike = ranks[i] / size == ranks[i / per_server * per_server] / size;
  }
  for (const auto& [place, used] : rails) {
    alike = alike && used.size() == rails.begin()->second.size();
  }
  if (!alike) {
    fail(
        "--library of some ranks of '{}': across servers it is simulated where each has as many of "
        "them, and of their network cards, and one server's come after the other's",
        topology.name);
  }
  Topology part = topology;
  part.ranks.value = n;
  part.group_size.value = per_server;
  part.nics.value = static_cast<Rank>(rails.begin()->second.size()) * server.cards_per_rail;
  if (per_server < size && part.device.library) part.device.library->nvls.reset();
  return part;
}

std::vector<LibraryAlgorithm> algorithms_across(const Topology& topology) {
  std::vector<LibraryAlgorithm> algorithms = {LibraryAlgorithm::ring, LibraryAlgorithm::tree};
  const bool adds =
      topology.group_size.value > 1 && topology.in_switch.multicast && topology.in_switch.reduction;
  if (topology.device.library && topology.device.library->nvls && adds) {
    algorithms.push_back(LibraryAlgorithm::nvls);
  }
  return algorithms;
}

LibraryChoice choice_across(const Topology& topology, Collective collective, Rank world_size,
                            std::uint64_t bytes, std::optional<LibraryAlgorithm> algorithm) {
  using enum LibraryProtocol;
  const Device& device = topology.device;
  const Cluster cluster = cluster_of(topology, world_size);
  if (collective == Collective::all_to_all) {
    const bool small = bytes / world_size <= kMostExchangedByLl;
    return {LibraryAlgorithm::exchange, small ? low_latency : simple};
  }
  std::vector<LibraryAlgorithm> algorithms = algorithms_across(topology);
  if (collective == Collective::all_gather || collective == Collective::reduce_scatter) {
    algorithms = {LibraryAlgorithm::ring};
  } else if (collective != Collective::all_reduce) {
    fail(
        "the vendor's library is not modelled for this collective: allowed are all_reduce, "
        "all_gather, reduce_scatter, all_to_all");
  }
  if (algorithm) {
    if (std::find(algorithms.begin(), algorithms.end(), *algorithm) == algorithms.end()) {
      fail("topology '{}': its library has no {} there; that takes [library.nvls], and [switch]",
           topology.name, name_of(*algorithm));
    }
    algorithms = {*algorithm};
  }
  LibraryChoice best;
  double least = std::numeric_limits<double>::infinity();
  const auto size = static_cast<double>(bytes);
  for (const LibraryAlgorithm candidate : algorithms) {
    const LongestWay way = longest_way(topology, cluster, candidate, collective);
    const double busy_us = busiest_us(topology, cluster, candidate, collective, size);
    for (const LibraryProtocol protocol : {low_latency, ll128, simple}) {
      const LibraryChoice choice{candidate, protocol};
      const bool adds = candidate == LibraryAlgorithm::nvls;
      if (!runs_across(device, protocol) || (adds && protocol != simple)) continue;
      const double us =
          fixed_us_across(device, choice, way, size) + busy_us / efficiency_across(device, choice);
      if (us >= least) continue;
      least = us;
      best = choice;
    }
  }
  return best;
}

Plan plan_across(const Topology& topology, const LibraryChoice& choice, Collective collective,
                 const ScheduleRequest& request, const Codec& codec, DType dtype) {
  const Cluster cluster = cluster_of(topology, request.world_size);
  const Rank n = request.world_size;
  Plan plan;
  plan.collective = collective;
  // An all-gather by rings is an all-gather; `choice` says by what.
  plan.algorithm =
      collective == Collective::all_reduce ? name_of(choice.algorithm) : name_of(collective);
  plan.world_size = n;
  plan.elements = request.elements;
  plan.dtype = dtype;
  plan.codec = codec.name();
  plan.cost = plan.inner_cost = codec.info().cost;
  plan.wire_bytes_per_element = static_cast<double>(size_of(dtype));
  plan.library = choice;
  plan.longest_way = longest_way(topology, cluster, choice.algorithm, collective);

  // Stage r of the first n sends what rank r does, stage n + r has all that it receives.
  std::vector<std::uint32_t> awaited(n, 0);
  const Shares shares = shares_of(topology, cluster, choice.algorithm, collective);
  auto next = shares.begin();
  for (Rank rank = 0; rank < n; ++rank) {
    Stage stage{.rank = rank, .first_message = static_cast<std::uint32_t>(plan.messages.size())};
    for (; next != shares.end() && next->first.first == rank; ++next) {
      const Rank to = next->first.second;
      const auto elements = static_cast<std::uint64_t>(
          std::ceil(next->second * static_cast<double>(request.elements)));
      plan.messages.push_back({.from = rank,
                               .to = to,
                               .stage = rank,
                               .first_consumer = static_cast<std::uint32_t>(plan.consumers.size()),
                               .consumers = 1,
                               .bytes = elements * size_of(dtype),
                               .elements = elements});
      plan.consumers.push_back(n + to);
      ++awaited[to];
      ++stage.messages;
    }
    plan.stages.push_back(stage);
  }
  for (Rank rank = 0; rank < n; ++rank) {
    plan.stages.push_back({.step = 1,
                           .rank = rank,
                           .first_message = static_cast<std::uint32_t>(plan.messages.size()),
                           .awaited = awaited[rank]});
  }
  return plan;
}

}  // namespace arlab
