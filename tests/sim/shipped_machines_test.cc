// What must hold on every machine that arlab carries, whatever its constants: less never takes longer, a codec
// that sends more and calculates more is never faster than the values as they are, and what nobody measured is said.

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

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

/// Of so many bytes of a rank, as collectives with slots take them.
ScheduleRequest request_of(const Topology& t, const Codec& codec, DType dtype,
                           std::uint64_t bytes) {
  const std::uint64_t n = t.ranks.value;
  const std::uint64_t elements = std::max<std::uint64_t>(1, bytes / size_of(dtype));
  return {.world_size = t.ranks.value,
          .elements = (elements + n - 1) / n * n,
          .alignment = codec.info().alignment,
          .options = {{"group_size", default_group_size(t, t.ranks.value)}}};
}

// ---------------------------------------------------------------- less never takes longer

/// Eight to an octave, and both sides of limits.
std::vector<std::uint64_t> sizes() {
  std::vector<std::uint64_t> all;
  for (std::uint64_t size = 16; size <= kMostBytes; size *= 2) {
    for (std::uint64_t eighth = 0; eighth < 8; ++eighth) all.push_back(size + size / 8 * eighth);
  }
  return all;
}

/// Collectives of the library, and nothing for the all-reduce that it chooses.
std::vector<std::string> collectives_of_library(const Topology& t) {
  std::vector<std::string> names = library_algorithms(t);
  for (const char* name : {"", "ring", "all_gather", "reduce_scatter", "all_to_all"}) {
    if (std::ranges::count(names, name) == 0) names.emplace_back(name);
  }
  return names;
}

TEST(ShippedMachines, LessNeverTakesTheLibraryLonger) {
  const CodecPtr plain = find_codec("fp16");
  std::size_t compared = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    if (!t.device.library) continue;
    for (const std::string& name : collectives_of_library(t)) {
      Picoseconds before = 0;
      std::uint64_t elements = 0;
      for (const std::uint64_t bytes : sizes()) {
        const ScheduleRequest request = request_of(t, *plain, DType::fp16, bytes);
        if (request.elements == elements) continue;
        const Algorithm& algorithm = name.empty()
                                         ? library_algorithm(request, *plain, DType::fp16, t)
                                         : find_simulated_algorithm(name);
        const Picoseconds latency =
            simulate({algorithm, request, *plain, DType::fp16, t, {.library = true}}).latency;
        EXPECT_GE(latency, before) << machine << ", " << name << ": " << 2 * request.elements
                                   << " bytes and " << 2 * elements;
        before = latency;
        elements = request.elements;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 40000u);
}

// ---------------------------------------------------------------- a codec has to send less

struct Sent {
  WideCount bytes = 0;
  Picoseconds latency = 0;
};

std::optional<Sent> sent(const Algorithm& algorithm, const Codec& codec, DType dtype,
                         const Topology& t, std::uint64_t bytes, std::size_t alignment) {
  try {
    ScheduleRequest request = request_of(t, codec, dtype, bytes);
    request.alignment = alignment;
    const SimulationResult r = simulate({algorithm, request, codec, dtype, t});
    return Sent{r.wire_bytes, r.latency};
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

/// Sizes at which the codec may send more than the values: those of which a rank's share, or all of it, is
/// longer when it is encoded.
bool may_send_more(const Codec& codec, DType dtype, const Topology& t, std::uint64_t bytes) {
  const std::uint64_t elements = std::max<std::uint64_t>(1, bytes / size_of(dtype));
  for (std::uint64_t parts = 1; parts <= 4 * t.ranks.value; parts *= 2) {
    const std::uint64_t part = std::max<std::uint64_t>(1, elements / parts);
    if (codec.wire_bytes(dtype, part) >= part * size_of(dtype)) return true;
  }
  return false;
}

/// Whether as many steps follow each other however few chunks there are. Others have fewer where a codec does
/// not cut what is shorter than one of its blocks.
bool has_its_steps(const Algorithm& algorithm) {
  const std::set<std::string> names = {"one_shot", "two_shot", "all_gather", "reduce_scatter",
                                       "all_to_all"};
  return names.contains(algorithm.name);
}

/// Than the values, cut where the codec cuts them; and however they are cut, unless that makes fewer steps.
TEST(ShippedMachines, ACodecThatSendsMoreIsNeverFaster) {
  std::size_t compared = 0;
  for (const std::string& machine : listed_topologies()) {
    const Topology t = find_topology(machine);
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      const CodecPtr plain = find_codec(std::string(name_of(dtype)));
      for (const Algorithm& algorithm : all_algorithms()) {
        for (std::uint64_t bytes = 1; bytes <= kMostBytes; bytes *= 4) {
          std::map<std::size_t, std::optional<Sent>> values;  // by what they are cut at
          for (const std::string& name : listed_codecs()) {
            const CodecPtr codec = find_codec(name);
            if (!codec->takes(dtype) || !may_send_more(*codec, dtype, t, bytes)) continue;
            const std::size_t own = codec->info().alignment;
            const std::optional<Sent> encoded = sent(algorithm, *codec, dtype, t, bytes, own);
            if (!encoded) continue;
            for (const std::size_t alignment : {std::size_t{1}, own}) {
              if (alignment != own && !has_its_steps(algorithm)) continue;
              if (!values.contains(alignment)) {
                values[alignment] = sent(algorithm, *plain, dtype, t, bytes, alignment);
              }
              const std::optional<Sent>& plainly = values[alignment];
              if (!plainly || encoded->bytes < plainly->bytes) continue;
              EXPECT_GE(encoded->latency, plainly->latency)
                  << machine << ", " << algorithm.name << ", " << name << " of " << name_of(dtype)
                  << ", " << bytes << " bytes, cut at " << alignment << ": sends "
                  << static_cast<double>(encoded->bytes) << " for "
                  << static_cast<double>(plainly->bytes);
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 10000u);
}

// ---------------------------------------------------------------- what nobody measured

Measurements published() {
  return read_measurements(std::filesystem::path(ARLAB_PUBLISHED) / "validation.toml");
}

/// What a run of a megabyte is said to be beyond.
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
