// How many messages per second the network engines take, and in how much memory.
//
//   cmake --preset release -DARLAB_BUILD_BENCHMARKS=ON && ninja -C build network_benchmark
//   build/bin/network_benchmark --benchmark_filter='DirectExchange<FlowEngine>/1024/0'
//
// peak_mb is of the whole process: filter for one benchmark to read it. An iteration is a whole
// simulation, network and engine included.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "sim/network/event_queue.h"
#include "sim/network/fifo_engine.h"
#include "sim/network/flow_engine.h"

namespace arlab {
namespace {

constexpr double kLinkGbPerS = 50;
constexpr double kLinkLatencyUs = 1;

void report(benchmark::State& state, std::uint64_t messages) {
  const auto all = static_cast<double>(messages) * static_cast<double>(state.iterations());
  state.counters["messages_per_s"] = benchmark::Counter(all, benchmark::Counter::kIsRate);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_mb"] = static_cast<double>(usage.ru_maxrss) * 1024 * 1e-6;
}

// ---------------------------------------------------------------- the queue of events alone

/// What one would take at first: a binary heap. Sequence numbers keep the order of pushes.
class HeapQueue {
 public:
  Picoseconds now() const { return now_; }
  void push(const Event& event) { heap_.push({event, pushed_++}); }
  Event take_next() {
    const Event event = heap_.top().event;
    heap_.pop();
    now_ = event.time;
    return event;
  }

 private:
  struct Entry {
    Event event;
    std::uint64_t sequence;
    bool operator>(const Entry& other) const {
      return event.time != other.event.time ? event.time > other.event.time
                                            : sequence > other.sequence;
    }
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
  std::uint64_t pushed_ = 0;
  Picoseconds now_ = 0;
};

/// The engines' own.
class RadixQueue : public EventQueue {
 public:
  Event take_next() {
    while (!any_ready()) advance(kNever - 1, [](std::span<const Event>) {});
    return take_ready();
  }
};

/// Every event that is taken pushes one: what a message costs the queue at least.
template <class Queue>
void queue(benchmark::State& state) {
  const auto pending = static_cast<std::uint32_t>(state.range(0));
  constexpr Picoseconds kDelay = 1'300'000;
  Queue queue;
  std::minstd_rand random(1);
  const auto delay = [&] {
    return state.range(1) != 0 ? 1 + static_cast<Picoseconds>(random() % (2 * kDelay)) : kDelay;
  };
  for (std::uint32_t i = 0; i < pending; ++i) queue.push({delay(), 0, i});
  for (auto _ : state) {
    const Event event = queue.take_next();
    queue.push({queue.now() + delay(), 0, event.subject});
  }
}
BENCHMARK(queue<HeapQueue>)
    ->Name("Queue<binary heap>")
    ->ArgNames({"pending", "random_times"})
    ->ArgsProduct({{1024, 1 << 20}, {0, 1}});
BENCHMARK(queue<RadixQueue>)
    ->Name("Queue<EventQueue>")
    ->ArgNames({"pending", "random_times"})
    ->ArgsProduct({{1024, 1 << 20}, {0, 1}});

// ---------------------------------------------------------------- direct exchange

/// Every rank sends a message to every other; when a rank has received all of these it does so
/// again: what a two-shot all-reduce of `ranks` * 64 KiB puts on the wire.
template <class Engine>
class DirectExchange final : public NetworkClient {
 public:
  DirectExchange(const Network& network, std::uint32_t ranks, bool random_sizes)
      : network_(network),
        engine_(network, *this),
        ranks_(ranks),
        random_sizes_(random_sizes),
        received_(ranks, 0) {}

  Picoseconds run() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) send_all(rank);
    engine_.run();
    return engine_.now();
  }

 private:
  void send_all(std::uint32_t rank) {
    const std::uint32_t peers = ranks_ - 1;
    for (LinkId link = rank * peers; link < (rank + 1) * peers; ++link) {
      std::uint64_t bytes = 64 << 10;
      if (random_sizes_) bytes = 1 + random_() % (128 << 10);
      // The driver knows where a message goes from its tag; a real one looks it up in its schedule.
      const std::uint32_t column = link - rank * peers;
      engine_.send(
          {.route = {&link, 1}, .bytes = bytes, .tag = column < rank ? column : column + 1});
    }
  }
  void on_delivered(const Delivery& delivery) override {
    const auto rank = static_cast<std::uint32_t>(delivery.tag);
    if (++received_[rank] == ranks_ - 1) send_all(rank);
  }
  void on_timer(std::uint64_t) override {}

  const Network& network_;
  Engine engine_;
  std::uint32_t ranks_;
  bool random_sizes_;
  std::vector<std::uint32_t> received_;
  std::minstd_rand random_{1};
};

template <class Engine>
void direct_exchange(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    Network network;
    network.add_devices(ranks);
    network.add_full_mesh(0, ranks, {kLinkGbPerS, kLinkLatencyUs});
    DirectExchange<Engine> exchange(network, ranks, state.range(1) != 0);
    benchmark::DoNotOptimize(exchange.run());
  }
  report(state, 2ull * ranks * (ranks - 1));
}
BENCHMARK(direct_exchange<FlowEngine>)
    ->Name("DirectExchange<FlowEngine>")
    ->ArgNames({"ranks", "random_sizes"})
    ->ArgsProduct({{64, 1024}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(direct_exchange<FifoEngine>)
    ->Name("DirectExchange<FifoEngine>")
    ->ArgNames({"ranks", "random_sizes"})
    ->ArgsProduct({{64, 1024}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// ---------------------------------------------------------------- ring

/// Every rank sends 2 (ranks - 1) messages to the next, each when it has received one.
template <class Engine>
class Ring final : public NetworkClient {
 public:
  Ring(const Network& network, std::uint32_t ranks, bool random_sizes)
      : engine_(network, *this), ranks_(ranks), random_sizes_(random_sizes), sent_(ranks, 0) {}

  Picoseconds run() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) send(rank);
    engine_.run();
    return engine_.now();
  }

 private:
  void send(std::uint32_t rank) {
    if (sent_[rank]++ == 2 * (ranks_ - 1)) return;
    const LinkId link = rank;
    const std::uint64_t bytes = random_sizes_ ? 1 + random_() % (32 << 10) : 16 << 10;
    engine_.send({.route = {&link, 1}, .bytes = bytes, .tag = rank + 1 == ranks_ ? 0 : rank + 1});
  }
  void on_delivered(const Delivery& delivery) override {
    send(static_cast<std::uint32_t>(delivery.tag));
  }
  void on_timer(std::uint64_t) override {}

  Engine engine_;
  std::uint32_t ranks_;
  bool random_sizes_;
  std::vector<std::uint32_t> sent_;
  std::minstd_rand random_{1};
};

template <class Engine>
void ring(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  Network network;
  network.add_devices(ranks, Forwarding::yes);
  for (NodeId rank = 0; rank < ranks; ++rank) {
    network.add_link(rank, (rank + 1) % ranks, {kLinkGbPerS, kLinkLatencyUs});
  }
  for (auto _ : state) {
    Ring<Engine> run(network, ranks, state.range(1) != 0);
    benchmark::DoNotOptimize(run.run());
  }
  report(state, 2ull * ranks * (ranks - 1));
}
BENCHMARK(ring<FlowEngine>)
    ->Name("Ring<FlowEngine>")
    ->ArgNames({"ranks", "random_sizes"})
    ->ArgsProduct({{1024, 4096}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(ring<FifoEngine>)
    ->Name("Ring<FifoEngine>")
    ->ArgNames({"ranks", "random_sizes"})
    ->ArgsProduct({{1024}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// ---------------------------------------------------------------- sharing

/// Does nothing with what arrives.
class Sink final : public NetworkClient {
  void on_delivered(const Delivery&) override {}
  void on_timer(std::uint64_t) override {}
};

/// All send to one through a switch: every end changes the rates of all others.
template <class Engine>
void incast(benchmark::State& state) {
  const auto senders = static_cast<std::uint32_t>(state.range(0));
  Network network;
  network.add_devices(senders + 1);
  const NodeId hub = network.add_switches(1);
  for (NodeId sender = 0; sender < senders; ++sender) {
    network.add_link(sender, hub, {kLinkGbPerS, kLinkLatencyUs});
  }
  const LinkId port = network.add_link(hub, senders, {kLinkGbPerS, kLinkLatencyUs});
  for (auto _ : state) {
    Sink sink;
    Engine engine(network, sink);
    std::minstd_rand random(1);
    for (LinkId sender = 0; sender < senders; ++sender) {
      const LinkId route[] = {sender, port};
      engine.send({.route = route, .bytes = 1 + random() % (128 << 10), .tag = sender});
    }
    engine.run();
  }
  report(state, senders);
}
BENCHMARK(incast<FlowEngine>)->Name("Incast<FlowEngine>")->Arg(1024)->Unit(benchmark::kMillisecond);
BENCHMARK(incast<FifoEngine>)->Name("Incast<FifoEngine>")->Arg(1024)->Unit(benchmark::kMillisecond);

/// All to all through one switch, equal sizes: one component of ranks^2 messages.
template <class Engine>
void switched_exchange(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  Network network;
  network.add_devices(ranks);
  const NodeId hub = network.add_switches(1);
  for (NodeId rank = 0; rank < ranks; ++rank) {
    network.add_duplex(rank, hub, {kLinkGbPerS, kLinkLatencyUs});
  }
  for (auto _ : state) {
    Sink sink;
    Engine engine(network, sink);
    for (NodeId from = 0; from < ranks; ++from) {
      for (NodeId to = 0; to < ranks; ++to) {
        const LinkId route[] = {2 * from, 2 * to + 1};
        if (to != from) engine.send({.route = route, .bytes = 64 << 10, .tag = to});
      }
    }
    engine.run();
  }
  report(state, std::uint64_t{ranks} * (ranks - 1));
}
BENCHMARK(switched_exchange<FlowEngine>)
    ->Name("SwitchedExchange<FlowEngine>")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(switched_exchange<FifoEngine>)
    ->Name("SwitchedExchange<FifoEngine>")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace arlab
