#include "sim/library/library.h"

#include <algorithm>

#include "reference/collectives/algorithm.h"
#include "sim/library/library_plan.h"
#include "sim/library/servers.h"

namespace arlab {

std::vector<std::string> library_algorithms(const Topology& topology, Rank world_size) {
  require_library(topology);
  const Library& library = *topology.device.library;
  std::vector<std::string> names = library.algorithms;
  if (spans_servers(topology, world_size)) names = {"ring", "tree"};
  if (library.nvls) names.push_back(nvls_algorithm().name);
  return names;
}

const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options) {
  const std::vector<std::string> names = library_algorithms(topology, request.world_size);
  if (topology.device.library->chooses_by_expectation() ||
      spans_servers(topology, request.world_size)) {
    return library_all_reduce(topology, request.world_size, request.elements * size_of(dtype));
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

bool library_has(const Topology& topology, Rank world_size, std::string_view algorithm) {
  Algorithm named;  // a schedule's own name need not be known
  named.name = algorithm;
  if (!topology.device.library) return false;
  if (spans_servers(topology, world_size)) return library_runs(named) || algorithm == "tree";
  const std::vector<std::string>& names = topology.device.library->algorithms;
  if (std::ranges::count(names, "ring") > 0 && library_runs(named)) return true;
  return std::ranges::count(names, algorithm) > 0;
}

}  // namespace arlab
