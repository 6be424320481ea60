#include "sim/library/library.h"

#include <algorithm>

#include "reference/collectives/algorithm.h"
#include "sim/device/kernel_model.h"
#include "sim/device/library_choice.h"
#include "sim/library/library_plan.h"
#include "sim/library/servers.h"

namespace arlab {

std::vector<std::string> library_algorithms(const Topology& topology) {
  require_library(topology);
  const Library& library = *topology.device.library;
  const bool has_servers = topology.kind == TopologyKind::fat_tree;
  std::vector<std::string> names = library.algorithms;
  if (has_servers) names = {"ring", "tree"};
  if (library.nvls) names.push_back(nvls_algorithm().name);
  return names;
}

namespace {

/// As the library takes it: nothing varies from run to run, and nobody watches.
Picoseconds latency_of(const Plan& plan, const Topology& topology, SimulateOptions options) {
  options.library = true;
  options.trace = nullptr;
  if (!topology.jitter.any()) return simulate({plan, topology, options}).latency;
  Topology steady = topology;
  steady.jitter = {};
  return simulate({plan, steady, options}).latency;
}

/// Names of all-reduces among which it chooses by simulation.
std::vector<std::string> candidates(const ScheduleRequest& request, DType dtype,
                                    const Topology& topology) {
  const std::uint64_t bytes = request.elements * size_of(dtype);
  if (spans_servers(topology, request.world_size)) {
    return {library_all_reduce(topology, request.world_size, bytes).name};
  }
  if (!topology.device.library->chooses_by_expectation()) return library_algorithms(topology);
  std::vector<std::string> names;
  for (const LibraryChoice& choice :
       library_choices(topology.device, Collective::all_reduce, request.world_size, bytes)) {
    const bool is_nvls = choice.algorithm == LibraryAlgorithm::nvls;
    const std::string& name = is_nvls ? nvls_algorithm().name : find_algorithm("ring").name;
    if (std::ranges::count(names, name) == 0) names.push_back(name);
  }
  return names;
}

}  // namespace

const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options) {
  require_library(topology);
  const std::vector<std::string> names = candidates(request, dtype, topology);
  const Algorithm* fastest = &find_simulated_algorithm(names.front());
  if (names.size() == 1) return *fastest;
  SimulateOptions of_library = options;
  of_library.library = true;
  of_library.trace = nullptr;
  Picoseconds least = 0;
  for (const std::string& name : names) {
    const Algorithm& algorithm = find_simulated_algorithm(name);
    const Plan plan = plan_of(algorithm, request, codecs, dtype, topology, of_library);
    const Picoseconds latency = latency_of(plan, topology, options);
    if (name != names.front() && latency >= least) continue;
    least = latency;
    fastest = &algorithm;
  }
  return *fastest;
}

Plan by_fastest_protocol(Plan plan, const Topology& topology, const SimulateOptions& options) {
  // Across servers rings and trees were chosen by what they take.
  if (plan.longest_way && plan.library->algorithm != LibraryAlgorithm::exchange) return plan;
  const std::vector<LibraryChoice> choices =
      library_choices(topology.device, plan.collective, plan.world_size,
                      plan.elements * size_of(plan.dtype), plan.library->algorithm);
  if (choices.size() == 1) return plan;
  Picoseconds least = latency_of(plan, topology, options);
  Plan other = plan;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    other.library = choices[i];
    const double fixed_us = make_kernel_model(topology.device, other)->launch_us();
    if (picoseconds_from_us(fixed_us) >= least) continue;
    const Picoseconds latency = latency_of(other, topology, options);
    if (latency >= least) continue;
    least = latency;
    plan.library = choices[i];
  }
  return plan;
}

bool library_has(const Topology& topology, std::string_view algorithm) {
  Algorithm named;  // what a schedule calls itself need not be known
  named.name = algorithm;
  if (!topology.device.library) return false;
  if (topology.kind == TopologyKind::fat_tree) return library_runs(named) || algorithm == "tree";
  const std::vector<std::string>& names = topology.device.library->algorithms;
  if (std::ranges::count(names, "ring") > 0 && library_runs(named)) return true;
  return std::ranges::count(names, algorithm) > 0;
}

}  // namespace arlab
