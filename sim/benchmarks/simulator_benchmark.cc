// The simulator from plan to result: large worlds that one rank stands for, small points of a
// sweep, and what a world costs when no rank stands for another.
//
//   peak_mb   of the whole process until now: run one benchmark alone to see its own
//             (--benchmark_filter)

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "reference/codecs/registry.h"
#include "sim/simulator.h"

namespace arlab {
namespace {

void report(benchmark::State& state, const SimulationResult& result) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
  state.counters["simulated_ranks"] = result.simulated_ranks;
  state.counters["latency_us"] = result.latency_us;
}

enum class Ranks : std::uint8_t {
  folded,        ///< one stands for all
  one_late,      ///< a straggler: all are simulated
  of_a_schedule  ///< all are simulated, from a schedule that is written down
};

void simulate_by_name(benchmark::State& state, const char* topology, const char* algorithm,
                      std::uint64_t bytes, const AlgorithmOptions& options, Ranks ranks) {
  const CodecPtr codec = find_codec("qr-q4");
  SimulationResult result;
  for (auto _ : state) {
    Topology t = find_topology(topology);
    if (ranks == Ranks::one_late) {
      Straggler late{.rank = 7, .delay_us = {}};
      late.delay_us.value = 50;
      t.stragglers.push_back(late);
    }
    const ScheduleRequest request{.world_size = t.ranks.value,
                                  .elements = bytes / 2,
                                  .alignment = codec->info().alignment,
                                  .options = options};
    const Algorithm& a = find_algorithm(algorithm);
    if (ranks == Ranks::of_a_schedule) {
      // The schedule is gone when the plan runs.
      const Plan plan = plan_of(make_schedule(algorithm, request), *codec, DType::fp16);
      result = simulate({plan, t});
      continue;
    }
    result = simulate({a, request, *codec, DType::fp16, t});
    benchmark::DoNotOptimize(result);
  }
  report(state, result);
}

constexpr std::uint64_t kMiB = 1 << 20;

// 64 MiB are 16384 blocks of qr-q4: even chunks for all of these.
BENCHMARK_CAPTURE(simulate_by_name, two_shot_full_1024, "full:1024", "two_shot", 64 * kMiB, {},
                  Ranks::folded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, two_shot_full_1024_straggler, "full:1024", "two_shot",
                  64 * kMiB, {}, Ranks::one_late)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, two_shot_full_1024_schedule, "full:1024", "two_shot", 64 * kMiB,
                  {}, Ranks::of_a_schedule)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(simulate_by_name, ring_full_1024, "full:1024", "ring", 64 * kMiB, {},
                  Ranks::folded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, ring_full_1024_straggler, "full:1024", "ring", 64 * kMiB, {},
                  Ranks::one_late)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, ring_full_4096, "full:4096", "ring", 64 * kMiB, {},
                  Ranks::folded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, hierarchical_torus_65536, "torus:16x16x16x16", "hierarchical",
                  64 * kMiB, {{"group_size", 256}}, Ranks::folded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_by_name, hierarchical_fat_tree_65536, "fat_tree:65536", "hierarchical",
                  64 * kMiB, {{"group_size", 256}}, Ranks::folded)
    ->Unit(benchmark::kMillisecond);

/// Points of a sweep: every shipped machine, four algorithms, three codecs, sizes from 32 KiB on.
void sweep_of_small_points(benchmark::State& state) {
  std::vector<Topology> machines;
  for (const std::string& name : listed_topologies()) machines.push_back(find_topology(name));
  const char* const algorithms[] = {"one_shot", "two_shot", "ring", "hierarchical_pipelined"};
  std::vector<CodecPtr> codecs;
  for (const char* name : {"fp16", "qr-q6", "qr-q4"}) codecs.push_back(find_codec(name));
  std::size_t point = 0;
  for (auto _ : state) {
    const Topology& t = machines[point % machines.size()];
    const Codec& codec = *codecs[point / 4 % 3];
    const std::uint64_t bytes = std::uint64_t{32768} << point / 12 % 12;
    benchmark::DoNotOptimize(simulate(
        {find_algorithm(algorithms[point % 4]),
         {.world_size = t.ranks.value, .elements = bytes / 2, .alignment = codec.info().alignment},
         codec,
         DType::fp16,
         t}));
    ++point;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(sweep_of_small_points)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace arlab
