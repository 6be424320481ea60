#include "sim/library/library.h"

#include <algorithm>

#include "reference/collectives/algorithm.h"
#include "sim/device/kernel_model.h"
#include "sim/device/library_ways.h"
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

}  // namespace

const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options) {
  const std::vector<std::string> names = library_algorithms(topology);
  const std::uint64_t bytes = request.elements * size_of(dtype);
  SimulateOptions of_library = options;
  of_library.library = true;
  of_library.trace = nullptr;
  const auto latency_by = [&](const Algorithm& algorithm, std::uint64_t elements) {
    ScheduleRequest other = request;
    other.elements = elements;
    return latency_of(plan_of(algorithm, other, codecs, dtype, topology, of_library), topology,
                      options);
  };
  if (spans_servers(topology, request.world_size)) {
    return library_all_reduce(topology, request.world_size, bytes);
  }
  if (topology.device.library->chooses_by_expectation()) {
    const Algorithm* chosen = &library_all_reduce(topology, request.world_size, bytes);
    // Where it takes longer than what is chosen for more, the faster of both.
    for (const LibraryWay& way :
         library_ways(topology.device, Collective::all_reduce, request.world_size, bytes)) {
      const bool is_nvls = way.choice.algorithm == LibraryAlgorithm::nvls;
      const Algorithm& other = is_nvls ? nvls_algorithm() : find_algorithm("ring");
      if (&other == chosen) continue;
      const std::uint64_t from = way.from_bytes / size_of(dtype) + 1;
      const std::uint64_t last =
          std::max(request.elements, from - std::min<std::uint64_t>(from - 1, 2));
      const bool falls = latency_by(other, from) < latency_by(*chosen, last);
      const bool is_faster =
          falls && latency_by(other, request.elements) < latency_by(*chosen, request.elements);
      if (is_faster) chosen = &other;
    }
    return *chosen;
  }
  const Algorithm* fastest = &find_algorithm(names.front());
  if (names.size() == 1) return *fastest;
  Picoseconds least = 0;
  for (const std::string& name : names) {
    const Algorithm& algorithm = find_algorithm(name);
    const Picoseconds latency = latency_by(algorithm, request.elements);
    if (name != names.front() && latency >= least) continue;
    least = latency;
    fastest = &algorithm;
  }
  return *fastest;
}

Plan never_longer_than_more(Plan plan, const Topology& topology, const SimulateOptions& options,
                            const std::function<Plan(std::uint64_t)>& of_size) {
  // Across servers rings and trees were chosen by what they take.
  if (plan.longest_way && plan.library->algorithm != LibraryAlgorithm::exchange) return plan;
  const Device& device = topology.device;
  const std::uint64_t bytes = plan.elements * size_of(plan.dtype);
  const std::vector<LibraryWay> ways =
      library_ways(device, plan.collective, plan.world_size, bytes, plan.library->algorithm);
  if (ways.size() == 1) return plan;
  Picoseconds least = latency_of(plan, topology, options);
  const std::uint64_t elements = plan.elements;
  for (std::size_t i = 1; i < ways.size(); ++i) {
    Plan other = plan;
    other.library = ways[i].choice;
    const double fixed_us = make_kernel_model(device, other)->launch_us();
    if (picoseconds_from_us(fixed_us) >= least) continue;
    if (device.library->chooses_by_expectation()) {
      const std::uint64_t n = plan.world_size;
      const std::uint64_t larger = ways[i].from_bytes / size_of(plan.dtype) / n * n + n;
      other = of_size(larger);
      other.library = ways[i].choice;
    }
    const Picoseconds latency = latency_of(other, topology, options);
    if (latency >= least) continue;
    least = latency;
    plan = std::move(other);
    plan.elements = elements;
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
