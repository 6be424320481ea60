#include "sim/library.h"

#include <algorithm>

#include "reference/collectives/algorithm.h"

namespace arlab {

const Library& library_of(const Topology& topology) {
  if (topology.device.library) return *topology.device.library;
  fail("topology '{}' does not say how NCCL or RCCL runs there; allowed are those with a [library]",
       topology.name);
}

const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options) {
  SimulateOptions of_library = options;
  of_library.library = true;
  of_library.trace = nullptr;
  const std::vector<std::string>& names = library_of(topology).algorithms;
  const Algorithm* fastest = &find_algorithm(names.front());
  if (names.size() == 1) return *fastest;
  Picoseconds least = 0;
  for (const std::string& name : names) {
    const Algorithm& algorithm = find_algorithm(name);
    const Picoseconds latency =
        simulate(algorithm, request, codecs, dtype, topology, of_library).latency;
    if (name != names.front() && latency >= least) continue;
    least = latency;
    fastest = &algorithm;
  }
  return *fastest;
}

bool library_has(const Topology& topology, std::string_view algorithm) {
  if (!topology.device.library) return false;
  const std::vector<std::string>& names = topology.device.library->algorithms;
  return std::find(names.begin(), names.end(), algorithm) != names.end();
}

}  // namespace arlab
