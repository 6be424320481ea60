// How fast the accelerated codecs are beside memcpy, on a machine that others use, too.
//
//   build/bin/codecs_side_by_side '(encode|decode)/qr-q4/cache' > codecs.csv
//
// A benchmark that times one case after the other compares moments. Here memcpy of the payload and
// the case take turns of milliseconds, on one core and on two, and the ratios of neighbouring turns
// count: of all turns the median, and the quartiles, which say how far to trust it. The fastest
// turns stand beside them: what shares a core's other thread slows arithmetic more than memcpy.
// Several passes, each with buffers of its own: how fast a cache is depends on which pages they
// get.
//
// Times are processor times, so that what waits for a processor does not count. On two cores each
// has half of the payload as a message of its own; the slower one's time counts, and nothing is
// exchanged between.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <regex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "experiments/benchmarks/codec_workloads.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"

namespace arlab {
namespace {

constexpr std::size_t kCores = 2;

/// Of the whole payload, or of the half that is a core's.
using Task = std::function<void()>;
struct Tasks {
  Task whole;
  std::array<Task, kCores> halves;
};

struct Case {
  std::string name;
  bool in_memory;
  std::function<Tasks(std::span<std::byte> payload)> make;

  std::size_t payload_bytes() const { return in_memory ? kInMemory : kInCache; }
};

// ---------------------------------------------------------------- cases

Case codec_case(const CodecPtr& codec, const char* text, CodecWork work, bool in_memory) {
  const auto name =
      fmt::format("{}/{}/{}", text, codec->info().name, in_memory ? "memory" : "cache");
  return {name, in_memory, [codec, work](std::span<std::byte> x) {
            const auto worker = [&](std::span<std::byte> part) -> Task {
              const auto w = std::make_shared<CodecWorker>(codec, DType::fp16, work, part);
              return [w] { w->run(); };
            };
            const std::size_t half = x.size() / 2;
            return Tasks{worker(x), {worker(x.first(half)), worker(x.subspan(half))}};
          }};
}

Tasks copies(std::span<std::byte> x) {
  const auto to = std::make_shared<Buffer>(x.size());
  const auto part = [&](std::size_t first, std::size_t bytes) -> Task {
    return [=] { std::memcpy(to->data() + first, x.data() + first, bytes); };
  };
  const std::size_t half = x.size() / 2;
  return {part(0, x.size()), {part(0, half), part(half, half)}};
}

std::vector<Case> cases(const std::regex& filter) {
  std::vector<Case> all;
  const auto add = [&](Case c) {
    if (std::regex_search(c.name, filter)) all.push_back(std::move(c));
  };
  for (const bool in_memory : {false, true}) {
    for (const std::string& name : listed_codecs()) {
      const CodecPtr scalar = find_codec(name);
      const CodecPtr codec = accelerated(scalar);
      if (codec == scalar) continue;
      add(codec_case(codec, "encode", CodecWork::encode, in_memory));
      add(codec_case(codec, "decode", CodecWork::decode, in_memory));
    }
  }
  return all;
}

// ---------------------------------------------------------------- times

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Runs on the nth of the processors that this process had at first.
void stay_on_core(std::size_t n) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || n-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    pthread_setaffinity_np(pthread_self(), sizeof(own), &own);
    return;
  }
}

double seconds_of(const Task& task, int warm_up, int times) {
  for (int i = 0; i < warm_up; ++i) task();
  const double start = processor_seconds();
  for (int i = 0; i < times; ++i) task();
  return (processor_seconds() - start) / times;
}

/// On as many cores as there are tasks, at once.
double seconds_of(std::span<const Task> tasks, int warm_up, int times) {
  std::barrier together(static_cast<std::ptrdiff_t>(tasks.size()));
  std::vector<double> seconds(tasks.size());
  const auto run = [&](std::size_t core) {
    stay_on_core(core);
    together.arrive_and_wait();
    seconds[core] = seconds_of(tasks[core], warm_up, times);
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t core = 1; core < tasks.size(); ++core) others.emplace_back(run, core);
    run(0);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

/// Seconds of neighbouring turns.
struct Round {
  double copied;
  double done;
  double copied_by_two;
  double done_by_two;
};

void measure(const Case& c, int rounds, bool two_cores, std::vector<Round>& results) {
  const Buffer buffer = gaussian_payload(DType::fp16, c.payload_bytes());
  const std::span<std::byte> x = buffer.first(c.payload_bytes());
  const Tasks copy = copies(x);
  const Tasks own = c.make(x);
  const int warm_up = c.in_memory ? 0 : 4;
  const int times = c.in_memory ? 1 : 24;
  for (int i = 0; i < rounds; ++i) {
    Round round = {};
    round.copied = seconds_of(copy.whole, warm_up, times);
    round.done = seconds_of(own.whole, warm_up, times);
    if (two_cores) {
      round.copied_by_two = seconds_of(copy.halves, warm_up, times);
      round.done_by_two = seconds_of(own.halves, warm_up, times);
    }
    results.push_back(round);
  }
}

// ---------------------------------------------------------------- the table

template <class F>
std::array<double, 3> quartiles(const std::vector<Round>& rounds, const F& f) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(f(round));
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

/// The time that a twentieth of all turns does not take.
template <class F>
double fastest(const std::vector<Round>& rounds, const F& f) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(f(round));
  std::sort(values.begin(), values.end());
  return values[values.size() / 20];
}

template <class F>
double median(const std::vector<Round>& rounds, const F& f) {
  return quartiles(rounds, f)[1];
}

void print_row(const Case& c, const std::vector<Round>& rounds, bool two_cores) {
  const double gelems = static_cast<double>(c.payload_bytes()) / 2e9;
  const auto done = [](const Round& r) { return r.done; };
  const auto copied = [](const Round& r) { return r.copied; };
  const auto share = quartiles(rounds, [](const Round& r) { return r.copied / r.done; });
  fmt::print("{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f}", c.name,
             gelems / median(rounds, done), gelems / median(rounds, copied), share[1], share[0],
             share[2], gelems / fastest(rounds, done),
             fastest(rounds, copied) / fastest(rounds, done));
  if (two_cores) {
    const auto by_two = [](const Round& r) { return r.done_by_two; };
    const auto gain = [](const Round& r) { return r.done / r.done_by_two; };
    const auto copy_gain = [](const Round& r) { return r.copied / r.copied_by_two; };
    fmt::print(",{:.2f},{:.2f},{:.2f}", gelems / median(rounds, by_two), median(rounds, gain),
               median(rounds, copy_gain));
  }
  fmt::print("\n");
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

int run(int argc, char** argv) {
  CLI::App app("Codecs beside memcpy, as medians of neighbouring turns. Prints CSV.");
  std::string filter = ".";
  int passes = 5;
  int rounds = 11;
  bool two_cores = false;
  app.add_option("filter", filter, "regular expression of cases, as encode/qr-q4/cache");
  app.add_option("--passes", passes, "with new buffers each")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", rounds, "of each pass")->check(CLI::Range(1, 1000));
  app.add_flag("--two-cores", two_cores, "also on two cores, each with half of the payload");
  CLI11_PARSE(app, argc, argv);
  const std::vector<Case> chosen = cases(std::regex(filter));
  if (chosen.empty()) {
    fmt::print(stderr, "no case matches {}\n", filter);
    return 2;
  }
  if (two_cores && std::thread::hardware_concurrency() < kCores) {
    fmt::print(stderr, "--two-cores: this machine has fewer\n");
    return 2;
  }
  stay_on_core(0);
  std::vector<std::vector<Round>> results(chosen.size());
  for (int pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      measure(chosen[i], rounds, two_cores, results[i]);
    }
  }
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> date = {};
  std::strftime(date.data(), date.size(), "%Y-%m-%d", std::gmtime(&now));
  fmt::print("# fp16 payloads of 256 KiB (cache) and 256 MiB (memory). Medians of {} turns.\n",
             passes * rounds);
  fmt::print("# Measured {}: {}.\n# Command: build/bin/codecs_side_by_side", date.data(),
             processor_name());
  for (int i = 1; i < argc; ++i) fmt::print(" '{}'", argv[i]);
  fmt::print(
      "\ncase,gelem_per_s,memcpy_gelem_per_s,ratio_to_memcpy,first_quartile,third_quartile,"
      "fastest_gelem_per_s,fastest_ratio_to_memcpy");
  if (two_cores) fmt::print(",two_cores_gelem_per_s,two_cores_to_one,memcpy_two_cores_to_one");
  fmt::print("\n");
  for (std::size_t i = 0; i < chosen.size(); ++i) print_row(chosen[i], results[i], two_cores);
  return 0;
}

}  // namespace
}  // namespace arlab

int main(int argc, char** argv) {
  try {
    return arlab::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
