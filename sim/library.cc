#include "sim/library.h"

#include <algorithm>

#include "reference/collectives/algorithm.h"
#include "sim/nccl.h"
#include "sim/servers.h"

namespace arlab {

std::vector<std::string> library_algorithms(const Topology& topology) {
  const bool has_servers = topology.kind == TopologyKind::fat_tree;
  const bool is_known = topology.device.nccl || topology.device.library;
  if (topology.device.nccl || (has_servers && is_known)) {
    std::vector<std::string> names = {"ring"};
    if (has_servers) names.emplace_back("tree");
    if (topology.device.nccl && topology.device.nccl->nvls) names.push_back(nvls_algorithm().name);
    return names;
  }
  if (is_known) return topology.device.library->algorithms;
  fail(
      "topology '{}' does not say how NCCL or RCCL runs there; allowed are those with a [library] "
      "or "
      "an [nccl]",
      topology.name);
}

const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options) {
  const std::vector<std::string> names = library_algorithms(topology);
  if (topology.device.nccl || spans_servers(topology, request.world_size)) {
    return nccl_all_reduce(topology, request.world_size, request.elements * size_of(dtype));
  }
  SimulateOptions of_library = options;
  of_library.library = true;
  of_library.trace = nullptr;
  const Algorithm* fastest = &find_algorithm(names.front());
  if (names.size() == 1) return *fastest;
  Picoseconds least = 0;
  for (const std::string& name : names) {
    const Algorithm& algorithm = find_algorithm(name);
    const Picoseconds latency =
        simulate({algorithm, request, codecs, dtype, topology, of_library}).latency;
    if (name != names.front() && latency >= least) continue;
    least = latency;
    fastest = &algorithm;
  }
  return *fastest;
}

bool library_has(const Topology& topology, std::string_view algorithm) {
  Algorithm named;  // what a schedule calls itself need not be known
  named.name = algorithm;
  if (topology.device.nccl && nccl_runs(named)) return true;
  if (topology.kind == TopologyKind::fat_tree) return nccl_runs(named) || algorithm == "tree";
  if (!topology.device.library) return false;
  const std::vector<std::string>& names = topology.device.library->algorithms;
  return std::find(names.begin(), names.end(), algorithm) != names.end();
}

}  // namespace arlab
