#include "kernels/platform/host/emulator.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/platform/host/fiber.h"
#include "kernels/platform/host/hip/hip_runtime.h"
#include "kernels/platform/host/machine.h"
#include "kernels/platform/host/shared_memory.h"
#include "kernels/platform/host/tsan.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace arlab::emulator {

const LaneIndices* current_lane_indices = nullptr;

namespace {

constexpr std::size_t kStackBytes = std::size_t{128} * 1024;
constexpr int kMaxWave = 64;
/// Of a launch, under ThreadSanitizer, which knows 8000 threads at a time.
constexpr std::size_t kMostSpareStacks = 512;
/// Rounds without any progress after which the machine is stuck.
constexpr int kStuckRounds = 200;
constexpr std::uint64_t kNanosecondsPerRound = 1000;
constexpr std::uint64_t kNanosecondsPerIdleRound = 1000000;

enum class State : std::uint8_t { ready, at_shuffle, at_barrier, polling, ended };

struct Wave {
  int alive = 0;
  int arrived = 0;
  int line = 0;
  std::uint64_t generation = 0;
  // Two buffers in turn: a fast lane may start the next exchange while a slow one still reads.
  std::uint64_t value[2][kMaxWave] = {};
  std::uint64_t present[2] = {};
};

struct Barrier {
  int arrived = 0;
  int line = 0;  // of the first
  std::uint64_t generation = 0;
  char order[2] = {};  // addresses for ThreadSanitizer
};

struct Block;

struct Lane {
  LaneIndices indices;
  Fiber fiber;
  State state = State::ready;
  unsigned buffer = 0;            // which of the wave's buffers its next exchange uses
  int lane = 0;                   // position in the wave
  int line = 0;                   // where it waits
  std::uint64_t waits_after = 0;  // runs again when the generation, or write count, differs
  const void* polled = nullptr;
  std::uint64_t polled_value = 0;
  int polls = 0;
  std::uint64_t writes_at_first_look = 0;  // since it gave way last; 0: it has not looked since
  Wave* wave = nullptr;
  Block* block = nullptr;
  std::vector<std::pair<std::uint64_t, Fetch>> fetches;  // under way, with their group
  std::uint64_t fetch_group = 0;                         // of those not committed
};

struct SharedVariable {
  int variable;
  void* memory;
};

struct Block {
  Launch* launch = nullptr;
  std::unique_ptr<Lane[]> lanes;
  std::unique_ptr<Wave[]> waves;
  std::vector<Stack> stacks;
  int lane_count = 0;
  int wave_count = 0;
  int alive = 0;
  Barrier barrier;
  std::vector<SharedVariable> shared;
};

struct Device {
  std::deque<std::unique_ptr<Launch>> launches;
  std::vector<std::unique_ptr<Block>> resident;
  char order = 0;  // its address stands for what ended kernels did, in ThreadSanitizer
};

struct Machine {
  Settings settings;
  std::vector<Device> devices = std::vector<Device>(8);
  Fiber host;                // who runs the scheduler
  std::uint64_t random = 1;  // state of xorshift64
  std::uint64_t writes = 1;  // atomic writes of all lanes
  std::uint64_t nanoseconds = 0;
  std::uint64_t progress = 0;  // anything that happened but polling again
  bool clock_was_read = false;
  bool let_pollers_look = false;
  std::vector<Stack> free_stacks;
};

Machine the_machine;
Machine& machine() { return the_machine; }

Lane* running = nullptr;  // or the scheduler, when null
void set_running(Lane* lane) {
  running = lane;
  current_lane_indices = lane != nullptr ? &lane->indices : nullptr;
}

std::uint64_t random_below(std::uint64_t bound) {
  std::uint64_t& x = machine().random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x % bound;
}

bool random_order() { return machine().settings.seed != 0; }
int random_first(int count) {
  return random_order() ? static_cast<int>(random_below(static_cast<std::uint64_t>(count))) : 0;
}

bool can_run(const Lane& lane) {
  switch (lane.state) {
    case State::ready:
      return true;
    case State::at_shuffle:
      return lane.wave->generation != lane.waits_after;
    case State::at_barrier:
      return lane.block->barrier.generation != lane.waits_after;
    case State::polling:
      return machine().let_pollers_look || machine().writes != lane.waits_after;
    case State::ended:
      break;
  }
  return false;
}

void run(Lane& lane) {
  Fiber& from = running != nullptr ? running->fiber : machine().host;
  set_running(&lane);
  lane.state = State::ready;
  from.switch_to(lane.fiber);
}

/// Lets others run until this lane can. In natural order, the next lane of the wave goes on
/// directly; it usually is about to arrive at the same place.
void wait(State state) {
  Machine& m = machine();
  Lane& me = *running;
  me.state = state;
  if (!random_order()) {
    const Lane* end = me.block->lanes.get() + me.block->lane_count;
    for (Lane* next = &me + 1; next != end && next->wave == me.wave; ++next) {
      if (can_run(*next)) {
        run(*next);
        return;
      }
    }
  }
  set_running(nullptr);
  me.fiber.switch_to(m.host);
}

[[noreturn]] void report_divergence(const char* what, int line, int other_line) {
  const LaneIndices& lane = running->indices;
  std::fprintf(stderr, "emulator: divergent %s (line %d and line %d), block %u thread %u\n", what,
               line, other_line, lane.block.x, lane.thread.x);
  std::abort();
}

void release_wave(Wave& wave) {
  wave.arrived = 0;
  ++wave.generation;
  ++machine().progress;
}
void release(Barrier& barrier) {
  barrier.arrived = 0;
  ++barrier.generation;
  ++machine().progress;
}

/// The life of a lane; the entry of its fiber.
void live() {
  Fiber::entered();
  Lane& lane = *running;
  Block& block = *lane.block;
  Launch& launch = *block.launch;
  tsan_acquire(&launch.enqueued);
  for (const CompletionPtr& before : launch.after) tsan_acquire(&before->order);
  launch.body();
  tsan_release(&launch.completion->order);
  tsan_release(launch.on_device);
  lane.state = State::ended;
  Machine& m = machine();
  ++m.progress;
  // Nobody waits for a lane that has ended.
  Wave& wave = *lane.wave;
  if (--wave.alive > 0 && wave.arrived == wave.alive) release_wave(wave);
  if (--block.alive > 0 && block.barrier.arrived == block.alive) release(block.barrier);
  set_running(nullptr);
  lane.fiber.leave_to(m.host);
}

// ---------------------------------------------------------------- blocks come and go

Stack take(std::vector<Stack>& stacks) {
  Stack stack = std::move(stacks.back());
  stacks.pop_back();
  return stack;
}

Stack take_stack(Launch& launch) {
  if (!machine().free_stacks.empty()) return take(machine().free_stacks);
  for (const CompletionPtr& before : launch.after) {
    if (!before->spare_stacks.empty()) return take(before->spare_stacks);
  }
  return Stack(kStackBytes);
}

/// For other lanes. Under ThreadSanitizer only for those of launches that are ordered after this
/// one in any case, so that being one thread hides nothing; making threads takes most of its time.
void give_back(Stack stack, Launch& launch) {
  if (!kTsan) {
    machine().free_stacks.push_back(std::move(stack));
  } else if (launch.completion->spare_stacks.size() < kMostSpareStacks) {
    launch.completion->spare_stacks.push_back(std::move(stack));
  }
}

std::unique_ptr<Block> make_block(Launch& launch, unsigned index) {
  const IgnoredByTsan bookkeeping;
  auto block = std::make_unique<Block>();
  const dim3 size = launch.block;
  const dim3 grid = launch.grid;
  const auto wave = static_cast<unsigned>(machine().settings.wave_size);
  const unsigned lanes = size.x * size.y * size.z;
  block->launch = &launch;
  block->lane_count = static_cast<int>(lanes);
  block->alive = block->lane_count;
  block->wave_count = static_cast<int>((lanes + wave - 1) / wave);
  block->lanes = std::make_unique<Lane[]>(lanes);
  block->waves = std::make_unique<Wave[]>(static_cast<std::size_t>(block->wave_count));
  block->stacks.reserve(lanes);
  for (unsigned i = 0; i < lanes; ++i) {
    Lane& lane = block->lanes[i];
    lane.indices = {dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y)),
                    dim3(index % grid.x, index / grid.x % grid.y, index / (grid.x * grid.y)), size,
                    grid};
    lane.lane = static_cast<int>(i % wave);
    lane.wave = &block->waves[i / wave];
    ++lane.wave->alive;
    lane.block = block.get();
    block->stacks.push_back(take_stack(launch));
    lane.fiber.prepare(block->stacks.back(), i, live);
  }
  return block;
}

void free_block(Block& block) {
  for (const SharedVariable& shared : block.shared) std::free(shared.memory);
  for (Stack& stack : block.stacks) give_back(std::move(stack), *block.launch);
}

// ---------------------------------------------------------------- the scheduler

/// Runs lanes of the block until all of them wait, or, in random order, until it is interrupted.
bool run_block(Block& block) {
  const int wave_size = machine().settings.wave_size;
  bool any_ran = false;
  for (;;) {
    bool ran = false;
    const int first_wave = random_first(block.wave_count);
    for (int w = 0; w < block.wave_count; ++w) {
      const int begin = (first_wave + w) % block.wave_count * wave_size;
      const int count = std::min(wave_size, block.lane_count - begin);
      const int first_lane = random_first(count);
      for (int i = 0; i < count; ++i) {
        const int index = begin + (first_lane + i) % count;
        Lane& lane = block.lanes[static_cast<std::size_t>(index)];
        if (!can_run(lane)) continue;
        run(lane);
        ran = true;
      }
      if (random_order() && random_below(4) == 0) return any_ran || ran;
    }
    any_ran |= ran;
    if (!ran || machine().let_pollers_look) return any_ran;
  }
}

void start_blocks(Device& device) {
  const int limit = machine().settings.resident_blocks;
  for (const auto& launch : device.launches) {
    const bool ready = std::all_of(launch->after.begin(), launch->after.end(),
                                   [](const CompletionPtr& before) { return before->done; });
    while (ready && launch->started < launch->blocks() &&
           (limit == 0 || device.resident.size() < static_cast<std::size_t>(limit))) {
      device.resident.push_back(make_block(*launch, launch->started++));
      ++machine().progress;
    }
  }
}

void retire_blocks(Device& device) {
  const IgnoredByTsan bookkeeping;
  std::erase_if(device.resident, [](const std::unique_ptr<Block>& block) {
    if (block->alive != 0) return false;
    ++block->launch->ended;
    free_block(*block);
    return true;
  });
  std::erase_if(device.launches, [](const std::unique_ptr<Launch>& launch) {
    if (launch->ended != launch->blocks()) return false;
    launch->completion->done = true;
    launch->completion->done_at = clock_nanoseconds();
    for (const CompletionPtr& before : launch->after) {
      for (Stack& stack : before->spare_stacks) give_back(std::move(stack), *launch);
      before->spare_stacks.clear();
    }
    return true;
  });
}

void step(Device& device) {
  start_blocks(device);
  const auto count = static_cast<int>(device.resident.size());
  const int first = count == 0 ? 0 : random_first(count);
  for (int i = 0; i < count; ++i) {
    run_block(*device.resident[static_cast<std::size_t>((first + i) % count)]);
  }
  retire_blocks(device);
}

bool any_lane_polls() {
  for (const Device& device : machine().devices) {
    for (const auto& block : device.resident) {
      const Lane* lanes = block->lanes.get();
      if (std::any_of(lanes, lanes + block->lane_count,
                      [](const Lane& lane) { return lane.state == State::polling; })) {
        return true;
      }
    }
  }
  return false;
}

const char* name_of(State state) {
  switch (state) {
    case State::ready:
      return "ready";
    case State::at_shuffle:
      return "at a shuffle";
    case State::at_barrier:
      return "at a barrier";
    case State::polling:
      return "polling";
    case State::ended:
      break;
  }
  return "ended";
}

[[noreturn]] void report_deadlock() {
  std::fprintf(stderr, "emulator: deadlock: no lane of any device can run\n");
  const Machine& m = machine();
  for (std::size_t d = 0; d < m.devices.size(); ++d) {
    for (const auto& block : m.devices[d].resident) {
      for (const State state : {State::at_shuffle, State::at_barrier, State::polling}) {
        const Lane* begin = block->lanes.get();
        const Lane* end = begin + block->lane_count;
        const Lane* first =
            std::find_if(begin, end, [=](const Lane& lane) { return lane.state == state; });
        if (first == end) continue;
        std::fprintf(stderr, "emulator:   device %zu block %u: from thread %u on %s", d,
                     first->indices.block.x, first->indices.thread.x, name_of(state));
        state == State::polling ? std::fprintf(stderr, " %p, which stays %llu\n", first->polled,
                                               static_cast<unsigned long long>(first->polled_value))
                                : std::fprintf(stderr, " at line %d\n", first->line);
      }
    }
  }
  std::abort();
}

}  // namespace

void drive(const std::function<bool()>& finished) {
  Machine& m = machine();
  m.host.adopt_current();
  int rounds_without_progress = 0;
  while (!finished()) {
    const std::uint64_t before = m.progress;
    m.clock_was_read = false;
    const auto count = static_cast<int>(m.devices.size());
    const int first = random_first(count);
    for (Device& device : m.devices) start_blocks(device);
    for (int d = 0; d < count; ++d) step(m.devices[static_cast<std::size_t>((first + d) % count)]);
    m.nanoseconds += kNanosecondsPerRound;
    if (m.progress != before) {
      rounds_without_progress = 0;
      m.let_pollers_look = false;
      continue;
    }
    // Nothing moved. Pollers look again, time passes; who waits with an eye on the clock will end.
    m.let_pollers_look = true;
    if (works_with_other_processes() && any_lane_polls()) {
      // What is polled may be written by another process, which wants the CPU.
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      rounds_without_progress = 0;
      continue;
    }
    m.nanoseconds += kNanosecondsPerIdleRound;
    if (m.clock_was_read) continue;
    if (++rounds_without_progress > kStuckRounds * (random_order() ? 20 : 1)) report_deadlock();
  }
  m.let_pollers_look = false;
}

void add_launch(int device, std::unique_ptr<Launch> launch) {
  Device& on = machine().devices[static_cast<std::size_t>(device)];
  launch->on_device = &on.order;
  tsan_release(&launch->enqueued);
  on.launches.push_back(std::move(launch));
}

void see_ended_kernels(int device) {
  tsan_acquire(&machine().devices[static_cast<std::size_t>(device)].order);
}

bool is_idle(int device) {
  return machine().devices[static_cast<std::size_t>(device)].launches.empty();
}

void configure(const Settings& settings) {
  Machine& m = machine();
  m.settings = settings;
  m.devices = std::vector<Device>(static_cast<std::size_t>(settings.devices));
  m.random = settings.seed * 0x9E3779B97F4A7C15u + 1;
}
const Settings& settings() { return machine().settings; }

// ---------------------------------------------------------------- what lanes call

int lane_in_wave() { return running->lane; }
int wave_size() { return machine().settings.wave_size; }

std::uint64_t exchange(std::uint64_t value, int source_lane, int line) {
  Lane& lane = *running;
  Wave& wave = *lane.wave;
  const unsigned buffer = lane.buffer;
  lane.buffer ^= 1;
  if (wave.arrived == 0) {
    wave.line = line;
    wave.present[buffer] = 0;
  } else if (wave.line != line) {
    report_divergence("shuffle", wave.line, line);
  }
  wave.value[buffer][lane.lane] = value;
  wave.present[buffer] |= std::uint64_t{1} << lane.lane;
  if (++wave.arrived == wave.alive) {
    release_wave(wave);
  } else {
    lane.line = line;
    lane.waits_after = wave.generation;
    wait(State::at_shuffle);
  }
  if ((wave.present[buffer] >> source_lane & 1) == 0) {
    fault("a shuffle reads a lane that has ended", nullptr);
  }
  return wave.value[buffer][source_lane];
}

void barrier(int line) {
  Lane& lane = *running;
  Block& block = *lane.block;
  Barrier& barrier = block.barrier;
  if (barrier.arrived == 0) {
    barrier.line = line;
  } else if (barrier.line != line) {
    report_divergence("barrier", barrier.line, line);
  }
  char* order = &barrier.order[barrier.generation & 1];
  tsan_release(order);
  if (++barrier.arrived == block.alive) {
    release(barrier);
  } else {
    lane.line = line;
    lane.waits_after = barrier.generation;
    wait(State::at_barrier);
  }
  tsan_acquire(order);
}

void start_fetch(Fetch fetch) {
  const IgnoredByTsan bookkeeping;
  running->fetches.emplace_back(running->fetch_group, fetch);
}
void commit_fetches() { ++running->fetch_group; }
bool next_fetch_to_end(int groups, Fetch& fetch) {
  const IgnoredByTsan bookkeeping;
  Lane& lane = *running;
  if (lane.fetches.empty() ||
      lane.fetches.front().first + static_cast<std::uint64_t>(groups) >= lane.fetch_group) {
    return false;
  }
  fetch = lane.fetches.front().second;
  lane.fetches.erase(lane.fetches.begin());
  return true;
}

std::uint64_t clock_nanoseconds() {
  machine().clock_was_read = true;
  if (works_with_other_processes()) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  return machine().nanoseconds;
}

std::uint64_t writes_so_far() { return machine().writes; }

void after_atomic_load(const void* address, std::uint64_t value, std::uint64_t writes_before) {
  if (running == nullptr) return;  // the host looks
  Lane& lane = *running;
  if (lane.writes_at_first_look == 0) lane.writes_at_first_look = writes_before;
  if (lane.polled != address || lane.polled_value != value) {
    lane.polls = 0;
    lane.polled = address;
    lane.polled_value = value;
    return;
  }
  // Two equal loads in a row, a relaxed one and then one that acquires, are no spinning yet.
  if (++lane.polls < 2) return;
  lane.waits_after = writes_before;
  lane.writes_at_first_look = 0;
  wait(State::polling);
}

void give_way() {
  Lane& lane = *running;
  if (lane.writes_at_first_look == 0) return;
  lane.waits_after = std::exchange(lane.writes_at_first_look, 0);
  wait(State::polling);
}

void after_atomic_write() {
  ++machine().writes;
  ++machine().progress;
}

void fault(const char* what, const void* address) {
  const Lane* lane = running;
  std::fprintf(stderr, "emulator: %s at %p, block %u thread %u\n", what, address,
               lane != nullptr ? lane->indices.block.x : 0,
               lane != nullptr ? lane->indices.thread.x : 0);
  std::abort();
}

int new_shared_variable() {
  static int count = 0;
  return count++;
}

void* shared_memory(int variable, std::size_t bytes) {
  Block& block = *running->block;
  for (const SharedVariable& shared : block.shared) {
    if (shared.variable == variable) return shared.memory;
  }
  const IgnoredByTsan bookkeeping;
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory == nullptr) fault("no memory for a shared array", nullptr);
  if (!kTsan) std::memset(memory, 0xA5, bytes);
  block.shared.push_back({variable, memory});
  return memory;
}

}  // namespace arlab::emulator
