// How fast the accelerated codecs are on this processor, one thread, beside memcpy of the same
// payload in the same run.
//
//   build/bin/codecs_benchmark --benchmark_filter='/qr-q4/' --benchmark_repetitions=5
//       --benchmark_enable_random_interleaving=true
//
// Every line counts payload bytes per second. At the end, the ratios to memcpy: the best repetition
// of each. 256 KiB stay in the caches; 256 MiB come from memory and go there. All buffers begin on
// a page: memcpy of 256 KiB varies by a third with its addresses.
//
// two_cores/...: the two halves of the payload on a core each.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "experiments/benchmarks/codec_workloads.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"

namespace arlab {
namespace {

void finish(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void copy(benchmark::State& state, std::size_t bytes) {
  const Buffer from = gaussian_payload(DType::fp16, bytes);
  const Buffer to(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  finish(state, bytes);
}

void run(benchmark::State& state, const CodecPtr& codec, DType dtype, CodecWork work,
         std::size_t bytes) {
  const Buffer x = gaussian_payload(dtype, bytes);
  const CodecWorker worker(codec, dtype, work, x.first(bytes));
  for ([[maybe_unused]] auto iteration : state) {
    worker.run();
    benchmark::ClobberMemory();
  }
  finish(state, bytes);
}

/// The same on two cores. The second thread waits without sleeping, as 256 KiB take microseconds.
void run_on_two_cores(benchmark::State& state, const CodecPtr& codec, DType dtype, CodecWork work,
                      std::size_t bytes) {
  const Buffer x = gaussian_payload(dtype, bytes);
  const CodecWorker first(codec, dtype, work, x.first(bytes / 2));
  const CodecWorker second(codec, dtype, work, x.first(bytes).subspan(bytes / 2));
  constexpr int kStop = -1;
  std::atomic<int> asked = 0;
  std::atomic<int> done = 0;
  std::jthread other([&] {
    for (int turn = 1;; ++turn) {
      int now = asked.load(std::memory_order_acquire);
      while (now != turn && now != kStop) now = asked.load(std::memory_order_acquire);
      if (now == kStop) return;
      second.run();
      done.store(turn, std::memory_order_release);
    }
  });
  int turn = 0;
  for ([[maybe_unused]] auto iteration : state) {
    asked.store(++turn, std::memory_order_release);
    first.run();
    while (done.load(std::memory_order_acquire) != turn) continue;
    benchmark::ClobberMemory();
  }
  asked.store(kStop, std::memory_order_release);
  finish(state, bytes);
}

/// Collects the best of every benchmark's repetitions while they are printed as usual.
class WithRatios : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      double& best = best_[run.run_name.function_name];
      best = std::max(best, run.counters.at("bytes_per_second").value);
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    for (const auto& [name, speed] : best_) {
      const std::string size = name.substr(name.rfind('/') + 1);
      const auto copied = best_.find("memcpy/" + size);
      if (copied == best_.end() || name == copied->first) continue;
      std::printf("%-44s %8.1f GB/s  %5.2f of memcpy", name.c_str(), speed / 1e9,
                  speed / copied->second);
      const auto alone = best_.find(name.substr(name.find('/') + 1));
      if (name.starts_with("two_cores/") && alone != best_.end()) {
        std::printf("  %5.2f of one core", speed / alone->second);
      }
      std::printf("\n");
    }
  }

 private:
  std::map<std::string, double> best_;
};

void register_all() {
  for (const auto& [size, bytes] : {std::pair("cache", kInCache), std::pair("memory", kInMemory)}) {
    const auto add = [](const std::string& name, auto function) {
      benchmark::RegisterBenchmark(name.c_str(), function);
    };
    add(fmt::format("memcpy/{}", size),
        [bytes = bytes](benchmark::State& state) { copy(state, bytes); });
    for (const std::string& name : listed_codecs()) {
      const CodecPtr scalar = find_codec(name);
      const CodecPtr codec = accelerated(scalar);
      if (codec == scalar) continue;
      for (const DType dtype : codec->info().dtypes) {
        for (const auto& [text, work] :
             {std::pair("encode", CodecWork::encode), std::pair("decode", CodecWork::decode),
              std::pair("decode_add", CodecWork::decode_add)}) {
          add(fmt::format("{}/{}/{}/{}", text, name, name_of(dtype), size),
              [=, bytes = bytes, work = work](benchmark::State& state) {
                run(state, codec, dtype, work, bytes);
              });
          if (dtype != DType::fp16) continue;
          benchmark::RegisterBenchmark(
              fmt::format("two_cores/{}/{}/{}/{}", text, name, name_of(dtype), size).c_str(),
              [=, bytes = bytes, work = work](benchmark::State& state) {
                run_on_two_cores(state, codec, dtype, work, bytes);
              })
              ->UseRealTime();
        }
      }
    }
  }
}

}  // namespace
}  // namespace arlab

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  arlab::register_all();
  arlab::WithRatios reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
}
