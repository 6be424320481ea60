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

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

constexpr std::size_t kInCache = std::size_t{256} << 10;
constexpr std::size_t kInMemory = std::size_t{256} << 20;

/// Bytes from the beginning of a page on.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage),
        data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_)), &std::free) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 1, bytes_);
  }
  std::byte* data() const { return data_.get(); }
  std::span<std::byte> first(std::size_t bytes) const { return {data(), bytes}; }

 private:
  static constexpr std::size_t kPage = 4096;

  std::size_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

/// Gaussian values; a large payload repeats them.
Buffer gaussian_payload(DType dtype, std::size_t bytes) {
  const auto pattern =
      make_synthetic("gaussian", dtype, 1, std::min(bytes, kInCache) / size_of(dtype)).data;
  Buffer result(bytes);
  for (std::size_t i = 0; i < bytes; i += pattern.size()) {
    std::memcpy(result.data() + i, pattern.data(), std::min(pattern.size(), bytes - i));
  }
  return result;
}

enum class CodecWork { encode, decode, decode_add };

/// A codec at work on one message.
class CodecWorker {
 public:
  CodecWorker(CodecPtr codec, DType dtype, CodecWork work, std::span<std::byte> x)
      : codec_(std::move(codec)),
        dtype_(dtype),
        work_(work),
        x_(x),
        wire_bytes_(codec_->wire_bytes(dtype, x.size() / size_of(dtype))),
        wire_(wire_bytes_) {
    codec_->encode(dtype_, x_, wire());
    if (work == CodecWork::decode_add) std::memset(x_.data(), 0, x_.size());
  }

  void run() const {
    switch (work_) {
      case CodecWork::encode:
        return codec_->encode(dtype_, x_, wire());
      case CodecWork::decode:
        return codec_->decode(dtype_, wire(), x_);
      case CodecWork::decode_add:
        return codec_->decode_add(dtype_, wire(), x_);
    }
  }

 private:
  std::span<std::byte> wire() const { return wire_.first(wire_bytes_); }

  CodecPtr codec_;
  DType dtype_;
  CodecWork work_;
  std::span<std::byte> x_;
  std::size_t wire_bytes_;
  Buffer wire_;
};

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
  const std::string target = arlab::vector_target(*arlab::accelerated(arlab::find_codec("qr-q4")));
  benchmark::AddCustomContext("vectors of the codecs", target.empty() ? "none" : target);
  arlab::WithRatios reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
}
