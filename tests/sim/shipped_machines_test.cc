// Properties of every machine that arlab carries, whatever its constants: what nobody measured is said.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "sim/calibration/fit.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"
#include "sim/uncertainty.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- what nobody measured

Measurements published() {
  return read_measurements(std::filesystem::path(ARLAB_PUBLISHED) / "validation.toml");
}

/// Names what a run of a megabyte extrapolates.
std::vector<std::string> said(const Topology& t, bool library, const std::string& algorithm,
                              DType dtype) {
  const CollectiveRun run{.library = library,
                          .ranks = t.ranks.value,
                          .bytes = 1 << 20,
                          .algorithm = algorithm,
                          .codecs = {std::string(name_of(dtype))},
                          .dtype = dtype};
  return reasons_of(extrapolations_of(t, run));
}

/// A machine of which no table has a time, of kernels or of the library, says so whatever it runs.
TEST(ShippedMachines, WhatNoTableHasIsMarked) {
  std::set<std::pair<std::string, bool>> measured = {{"h100-2", false},
                                                     {"h200-2", false}};  // our own
  for (const Measurement& cell : published().cells) {
    if (cell.algorithm.empty()) continue;  // flows of copies
    measured.emplace(cell.topology, cell.library);
  }
  measured.emplace("h200-2", true);
  measured.emplace("h200-4", true);
  std::size_t marked = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    for (const bool library : {false, true}) {
      if (measured.contains({machine, library}) || (library && !t.device.library)) continue;
      for (const Algorithm& algorithm : all_algorithms()) {
        for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
          EXPECT_FALSE(said(t, library, algorithm.name, dtype).empty())
              << machine << (library ? ", library, " : ", ") << algorithm.name;
          ++marked;
        }
      }
    }
  }
  EXPECT_GT(marked, 2000u);
  for (const char* generated : {"full:8", "ring:8", "torus:2x4", "fat_tree:16", "dragonfly:12"}) {
    EXPECT_FALSE(said(find_topology(generated), false, "two_shot", DType::fp16).empty());
  }
}

/// And of a run that a fit has seen, nothing is said.
TEST(ShippedMachines, WhatWasFittedIsNotMarked) {
  const Measurements measurements = published();
  std::size_t fitted = 0;
  for (const FitDefinition& fit : measurements.fits) {
    if (fit.shared.empty() && fit.own.empty()) continue;  // a prediction
    const CellSimulator simulator(measurements, measurements.cells_of(fit));
    for (std::size_t i = 0; i < simulator.size(); ++i) {
      if (simulator.cell(i).algorithm.empty()) continue;
      const Topology& t = simulator.machines().at(simulator.cell(i).topology);
      const std::vector<std::string> reasons = reasons_of(extrapolations_of(t, simulator.run(i)));
      EXPECT_TRUE(reasons.empty()) << t.name << ": " << reasons.front();
      ++fitted;
    }
  }
  EXPECT_GT(fitted, 900u);
}

}  // namespace
}  // namespace arlab
