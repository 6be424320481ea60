// Properties of every machine that arlab carries, whatever its constants: unmeasured constants are named, and less never takes
// longer.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
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
  for (const bool library : {false, true}) measured.emplace("h200-symmetric-2", library);
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

// ---------------------------------------------------------------- smaller is never slower

/// Elements of powers of two of bytes, of what is beside them and between, as many as slots of all ranks take.
std::vector<std::uint64_t> sizes(Rank ranks, std::uint64_t most_bytes) {
  std::set<std::uint64_t> all;
  for (std::uint64_t power = 1024; power <= most_bytes; power *= 2) {
    for (const std::uint64_t bytes : {power - 2, power, power + 2, power / 4 * 5, power / 2 * 3}) {
      all.insert((bytes / 2 + ranks - 1) / ranks * ranks);
    }
  }
  return {all.begin(), all.end()};
}

using AlgorithmOfSize = std::function<const Algorithm&(const ScheduleRequest&)>;

/// Simulates fp16 values at all sizes, and says how many there are. A time that is less than that of a smaller size is a
/// failure, beyond rounding: shares and tiles are whole, and of kernels the largest chunk, by which a tile's time is
/// divided, may be an element larger than others.
std::size_t expect_smaller_is_never_slower(const Topology& t, bool library,
                                           std::uint64_t most_bytes, const AlgorithmOfSize& of) {
  const CodecPtr fp16 = find_codec("fp16");
  const SimulateOptions options{.library = library};
  const std::vector<std::uint64_t> all = sizes(t.ranks.value, most_bytes);
  double longest_us = 0;
  for (const std::uint64_t elements : all) {
    const ScheduleRequest request{.world_size = t.ranks.value, .elements = elements};
    const Plan plan = plan_of(of(request), request, *fp16, DType::fp16, t, options);
    const double us = simulate({plan, t, options}).latency_us;
    const double chunk = plan.largest_chunk > 0 ? static_cast<double>(plan.largest_chunk) : 1e9;
    EXPECT_GE(us, longest_us * (1 - 1e-3 - 1 / chunk))
        << t.name << ", " << plan.algorithm << " of " << 2 * elements << " bytes";
    longest_us = std::max(longest_us, us);
  }
  return all.size();
}

/// The library on every machine that has one: each of its algorithms, and the one that it takes.
TEST(ShippedMachines, TheLibraryIsNeverSlowerForLess) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  std::size_t simulated = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    if (!t.device.library) continue;
    std::set<std::string> names = {"ring", "all_gather", "reduce_scatter", "all_to_all"};
    for (const std::string& name : library_algorithms(t, t.ranks.value)) names.insert(name);
    for (const std::string& name : names) {
      const Algorithm& algorithm = find_simulated_algorithm(name);
      simulated += expect_smaller_is_never_slower(
          t, true, kMost, [&](const ScheduleRequest&) -> const Algorithm& { return algorithm; });
    }
    simulated += expect_smaller_is_never_slower(
        t, true, kMost, [&](const ScheduleRequest& request) -> const Algorithm& {
          return library_algorithm(request, *find_codec("fp16"), DType::fp16, t, {.library = true});
        });
  }
  EXPECT_GT(simulated, 25000u);
}

/// The kernels of arlab: every algorithm on every machine.
TEST(ShippedMachines, KernelsAreNeverSlowerForLess) {
  std::size_t simulated = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    for (const Algorithm& algorithm : all_algorithms()) {
      simulated += expect_smaller_is_never_slower(
          t, false, std::uint64_t{1} << 26,
          [&](const ScheduleRequest&) -> const Algorithm& { return algorithm; });
    }
  }
  EXPECT_GT(simulated, 30000u);
}

// ---------------------------------------------------------------- a codec that sends no less

std::size_t ops_of(const Algorithm& algorithm, ScheduleRequest request) {
  ScheduleSize size;
  request.only_size = &size;
  algorithm.write(request);
  return size.ops;
}

/// A codec that calculates and sends no fewer bytes is never faster than plain values in a schedule of as many ops.
/// Where its longer blocks make fewer chunks of a small tensor, the schedule has fewer, and may be faster. Sizes rise from
/// 64 bytes by factors of 2 up to the first at which the codec sends less, as it does at all larger ones.
std::size_t expect_never_faster_than_plain_values(DType type) {
  const CodecPtr plain = find_codec(name_of(type));
  std::vector<CodecPtr> codecs;
  for (const std::string& name : listed_codecs()) {
    const CodecPtr codec = find_codec(name);
    const CodecCost& cost = codec->info().cost;
    const bool computes = cost.encode_ops_per_element + cost.decode_ops_per_element > 0;
    if (computes && codec->takes(type)) codecs.push_back(codec);
  }
  std::size_t compared = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    for (const Algorithm& algorithm : all_algorithms()) {
      std::vector<CodecPtr> sending_more = codecs;
      for (std::uint64_t each = 64; each <= (1 << 18) && !sending_more.empty(); each *= 2) {
        const Rank ranks = t.ranks.value;
        ScheduleRequest request{.world_size = ranks,
                                .elements = (each / 2 + ranks - 1) / ranks * ranks};
        const SimulationResult of_plain = simulate({algorithm, request, *plain, type, t});
        const std::size_t plain_ops = ops_of(algorithm, request);
        std::erase_if(sending_more, [&](const CodecPtr& codec) {
          request.alignment = codec->info().alignment;
          const SimulationResult r = simulate({algorithm, request, *codec, type, t});
          if (r.wire_bytes < of_plain.wire_bytes) return true;
          if (ops_of(algorithm, request) >= plain_ops) {
            EXPECT_GE(r.latency, of_plain.latency)
                << t.name << ", " << algorithm.name << ", " << r.codec << ", "
                << 2 * request.elements << " bytes";
            ++compared;
          }
          return false;
        });
      }
    }
  }
  return compared;
}

TEST(ShippedMachines, ACodecThatSendsNoLessIsNeverFasterThanPlainValues) {
  EXPECT_GT(expect_never_faster_than_plain_values(DType::fp16), 5000u);
  EXPECT_GT(expect_never_faster_than_plain_values(DType::bf16), 5000u);
}

}  // namespace
}  // namespace arlab
