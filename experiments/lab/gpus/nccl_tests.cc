#include "experiments/lab/gpus/nccl_tests.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "experiments/lab/files.h"
#include "sim/simulator.h"

namespace arlab::lab {
namespace {

const char* reduction_of(Collective collective) { return adds(collective) ? "sum" : "none"; }

const char* type_of_nccl(DType dtype) {
  return dtype == DType::fp16 ? "half" : dtype == DType::bf16 ? "bfloat16" : "float";
}

/// A number in `width` characters with as many decimals as fit, two at most.
std::string fitted(double value, std::size_t width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() < width || decimals == 0) return text;
  }
  return {};
}

struct Bandwidths {
  double algbw;
  double busbw;
};

Bandwidths bandwidths(const NcclTime& time, std::uint64_t bytes, Collective collective,
                      Rank ranks) {
  const double algbw = static_cast<double>(bytes) * 1e-3 / time.us;
  return {algbw, algbw * bus_bandwidth_factor(collective, ranks)};
}

/// Elements that a rank sends to each other one, as nccl-tests counts: of slots one.
std::uint64_t count_of(const NcclLine& line, Collective collective, DType dtype, Rank ranks) {
  const std::uint64_t elements = line.bytes / size_of(dtype);
  return has_slots(collective) ? elements / ranks : elements;
}

std::string text_of(const std::optional<NcclTime>& time, const NcclLine& line,
                    Collective collective, Rank ranks) {
  constexpr const char* kCells = "  {:>7}  {:>6}  {:>6}  {:>6}";
  if (!time) return fmt::format(kCells, "N/A", "N/A", "N/A", "N/A");
  const auto [algbw, busbw] = bandwidths(*time, line.bytes, collective, ranks);
  return fmt::format(kCells, fitted(time->us, 7), fitted(algbw, 6), fitted(busbw, 6),
                     time->wrong ? std::to_string(*time->wrong) : "N/A");
}

Json json_of(const std::optional<NcclTime>& time, const NcclLine& line, Collective collective,
             Rank ranks) {
  if (!time) return nullptr;
  const auto [algbw, busbw] = bandwidths(*time, line.bytes, collective, ranks);
  return {{"time", time->us},
          {"alg_bw", algbw},
          {"bus_bw", busbw},
          {"nwrong", Cell(time->wrong).json()}};
}

/// Totals of all lines of a run, or of several.
struct Totals {
  std::uint64_t least_bytes = UINT64_MAX;
  std::uint64_t most_bytes = 0;
  std::uint64_t times = 0;
  std::uint64_t wrong = 0;
  int most_iterations = 0;
  double busbw_sum = 0;

  void add(const NcclRun& run, Rank ranks) {
    for (const NcclLine& line : run.lines) {
      least_bytes = std::min(least_bytes, line.bytes);
      most_bytes = std::max(most_bytes, line.bytes);
      most_iterations = std::max(most_iterations, line.iterations);
      for (const auto& time : {std::optional(line.out_of_place), line.in_place}) {
        if (!time) continue;
        busbw_sum += bandwidths(*time, line.bytes, run.collective, ranks).busbw;
        times += 1;
        wrong += time->wrong.value_or(0) > 0 ? 1 : 0;
      }
    }
  }
  double average_busbw() const { return times == 0 ? 0 : busbw_sum / static_cast<double>(times); }
};

}  // namespace

Result NcclReport::answer(Format format) const {
  Result result{"arlab.nccl/1"};
  result.text = format == Format::nccl ? text() : json().dump(2) + '\n';
  return result;
}

std::string NcclReport::text() const {
  std::string text;
  for (const NcclRun& run : runs) {
    Totals totals;
    totals.add(run, ranks);
    text += fmt::format("# Collective test starting: {}\n# arlab: {}; {}\n",
                        facts_of(run.collective).nccl_program, run.experiment, provenance);
    text += fmt::format(
        "# nThread 1 nGpus {} minBytes {} maxBytes {} warmup iters: 1 iters: {} agg iters: 1 "
        "validation: {} "
        "graph: {}\n#\n# Using devices\n",
        ranks, totals.least_bytes, totals.most_bytes, totals.most_iterations, checked ? 1 : 0,
        graph_launches);
    for (Rank rank = 0; rank < ranks; ++rank) {
      text += fmt::format("#  Rank {:2} Group  0 device {:2} {}\n", rank, rank, device);
    }
    text += fmt::format(
        "#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       "
        "in-place          \n",
        "", "", "", "", "");
    constexpr const char* kHeading =
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  "
        "{:>6}  {:>6}  {:>6}\n";
    text += fmt::format(kHeading, "size", "count", "type", "redop", "root", "time", "algbw",
                        "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    text += fmt::format(kHeading, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "",
                        "(us)", "(GB/s)", "(GB/s)", "");
    for (const NcclLine& line : run.lines) {
      text += fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", line.bytes,
                          count_of(line, run.collective, dtype, ranks), type_of_nccl(dtype),
                          reduction_of(run.collective), facts_of(run.collective).has_root ? 0 : -1);
      text += text_of(line.out_of_place, line, run.collective, ranks) +
              text_of(line.in_place, line, run.collective, ranks) + '\n';
    }
    text += fmt::format(
        "# {:<20} : {} {}\n# {:<20} : {:.6g} \n#\n# Collective test concluded: {}\n#\n",
        "Out of bounds values", totals.wrong, totals.wrong == 0 ? "OK" : "FAILED",
        "Avg bus bandwidth", totals.average_busbw(), facts_of(run.collective).nccl_program);
  }
  return text;
}

Json NcclReport::json() const {
  Totals totals;
  for (const NcclRun& run : runs) totals.add(run, ranks);
  const std::string now = fmt::format("{:%F %T}", fmt::gmtime(std::time(nullptr)));
  Json devices = Json::array();
  for (Rank rank = 0; rank < ranks; ++rank) {
    devices.push_back({{"rank", rank}, {"group", 0}, {"device", rank}, {"device_info", device}});
  }
  Json results = Json::array();
  for (const NcclRun& run : runs) {
    for (const NcclLine& line : run.lines) {
      results.push_back({{"size", line.bytes},
                         {"count", count_of(line, run.collective, dtype, ranks)},
                         {"type", type_of_nccl(dtype)},
                         {"redop", reduction_of(run.collective)},
                         {"root", facts_of(run.collective).has_root ? "0" : "-1"},
                         {"out_of_place", json_of(line.out_of_place, line, run.collective, ranks)},
                         {"in_place", json_of(line.in_place, line, run.collective, ranks)},
                         {"actual_iterations", line.iterations},
                         {"experiment_name", run.experiment}});
    }
  }
  return {
      {"version", 2},
      {"start_time", now},
      {"args", Json::array({command_line()})},
      {"env", Json::array()},
      {"provenance", provenance},
      {"config",
       {{"nthreads", 1},
        {"ngpus", ranks},
        {"minimum_bytes", totals.least_bytes},
        {"maximum_bytes", totals.most_bytes},
        {"iterations", totals.most_iterations},
        {"aggregated_iterations", 1},
        {"validation", checked ? 1 : 0},
        {"graph", graph_launches},
        {"devices", std::move(devices)}}},
      {"results", std::move(results)},
      {"out_of_bounds", {{"count", totals.wrong}, {"okay", totals.wrong == 0 ? "true" : "false"}}},
      {"average_bus_bandwidth", {{"bandwidth", totals.average_busbw()}, {"okay", "unchecked"}}},
      {"errors", Json::array()},
      {"end_time", now}};
}

}  // namespace arlab::lab
