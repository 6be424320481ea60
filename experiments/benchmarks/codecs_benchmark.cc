// How fast the accelerated codecs are on this processor, one thread, beside memcpy of the same
// payload in the same run.
//
//   build/bin/codecs_benchmark --benchmark_filter='/qr-q4/' --benchmark_repetitions=5
//       --benchmark_enable_random_interleaving=true
//
// Every line counts payload bytes per second. At the end, the ratios to memcpy: the best repetition
// of each. 256 KiB stay in the caches; 256 MiB come from memory and go there.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

constexpr std::size_t kInCache = std::size_t{256} << 10;
constexpr std::size_t kInMemory = std::size_t{256} << 20;

using Bytes = std::vector<std::byte>;

/// Gaussian values; a large payload repeats them.
Bytes payload(DType dtype, std::size_t bytes) {
  const Bytes pattern =
      make_synthetic("gaussian", dtype, 1, std::min(bytes, kInCache) / size_of(dtype)).data;
  Bytes result;
  result.reserve(bytes);
  while (result.size() < bytes) result.insert(result.end(), pattern.begin(), pattern.end());
  return result;
}

void finish(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void copy(benchmark::State& state, std::size_t bytes) {
  const Bytes from = payload(DType::fp16, bytes);
  Bytes to(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  finish(state, bytes);
}

enum class Work { encode, decode, decode_add };

void run(benchmark::State& state, const CodecPtr& codec, DType dtype, Work work,
         std::size_t bytes) {
  Bytes x = payload(dtype, bytes);
  Bytes wire(codec->wire_bytes(dtype, bytes / size_of(dtype)));
  codec->encode(dtype, x, wire);
  if (work == Work::decode_add) std::memset(x.data(), 0, x.size());
  for ([[maybe_unused]] auto iteration : state) {
    switch (work) {
      case Work::encode:
        codec->encode(dtype, x, wire);
        break;
      case Work::decode:
        codec->decode(dtype, wire, x);
        break;
      case Work::decode_add:
        codec->decode_add(dtype, wire, x);
        break;
    }
    benchmark::ClobberMemory();
  }
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
      std::printf("%-36s %8.1f GB/s  %5.2f of memcpy\n", name.c_str(), speed / 1e9,
                  speed / copied->second);
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
             {std::pair("encode", Work::encode), std::pair("decode", Work::decode),
              std::pair("decode_add", Work::decode_add)}) {
          add(fmt::format("{}/{}/{}/{}", text, name, name_of(dtype), size),
              [=, bytes = bytes, work = work](benchmark::State& state) {
                run(state, codec, dtype, work, bytes);
              });
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
