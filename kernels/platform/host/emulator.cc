#include "kernels/platform/host/emulator.h"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/platform/host/fiber.h"
#include "kernels/platform/host/hip/hip_runtime.h"
#include "kernels/platform/host/host_lock.h"
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

constexpr int kMaxWave = 64;
/// Spare stacks of a launch, in blocks, under ThreadSanitizer, which knows 8000 threads at a time.
constexpr std::size_t kMostSpareStacks = 2;
/// In blocks, once nothing is left to run.
constexpr std::size_t kMostFreeStacks = 32;
/// Blocks of a device that run at once though none waits for one that has not started. In random
/// order all that a device could hold, so that everything meets everything.
constexpr std::size_t kEagerBlocks = 4;
constexpr std::size_t kEagerBlocksInRandomOrder = 64;
/// Rounds without any progress, and without a look at the clock, after which the machine is stuck; 20
/// us each when other processes are waited for.
constexpr int kStuckRounds = 200;
constexpr int kStuckRoundsWithOthers = 50000;
constexpr std::uint64_t kNanosecondsPerRound = 1000;
/// The longer nothing has moved, the faster: by as much again after so many rounds.
constexpr std::uint64_t kNanosecondsPerIdleRound = 1000000;
constexpr int kRoundsToDoubleSpeed = 100;

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
  int line = 0;  // the first's
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
  std::uint64_t fetch_group = 0;                         // those not committed
};

struct SharedVariable {
  int variable;
  void* memory;
};

struct Device;

struct Block {
  Device* device = nullptr;
  Launch* launch = nullptr;
  std::unique_ptr<Lane[]> lanes;
  std::unique_ptr<Wave[]> waves;
  std::unique_ptr<Stacks> stacks;
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
  std::uint64_t launched = 0;
  std::uint64_t rounds_still = 0;     // for which it will not run
  hipError_t failure = hipSuccess;    // for good
  std::vector<CompletionPtr> failed;  // launches whose error may be unknown to the host
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
  std::vector<std::unique_ptr<Stacks>> free_stacks;
  std::size_t resident_lanes = 0;
  std::size_t most_resident_lanes = 0;
  std::string report;
};

/// Never destroyed: another thread may drive it while the program ends.
Machine* const the_machine = new Machine;
Machine& machine() { return *the_machine; }

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

// ---------------------------------------------------------------- what goes wrong

/// Replaces the report, or adds to it. Without memory it stays as it is.
__attribute__((format(printf, 2, 3))) void write_report(bool begin, const char* format, ...) {
  const IgnoredByTsan bookkeeping;
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  try {
    std::string& report = machine().report;
    if (begin) report.clear();
    if (!report.empty()) report += '\n';
    report += line;
  } catch (const std::bad_alloc&) {
  }
}

std::size_t number_of(const Device& device) {
  return static_cast<std::size_t>(&device - machine().devices.data());
}

/// The running lane never goes on, and its device is given up. What is on its stack stays as it is.
[[noreturn]] void give_up(hipError_t error) {
  Lane& lane = *running;
  lane.state = State::ended;
  lane.block->device->failure = error;
  ++machine().progress;
  set_running(nullptr);
  lane.fiber.leave_to(machine().host);
}

[[noreturn]] void report_divergence(const char* what, int line, int other_line) {
  const LaneIndices& lane = running->indices;
  write_report(true, "divergent %s (line %d and line %d), device %zu block %u thread %u", what,
               line, other_line, number_of(*running->block->device), lane.block.x, lane.thread.x);
  give_up(hipErrorLaunchFailure);
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
  bool enough_memory = true;
  try {
    launch.body();
  } catch (const std::bad_alloc&) {
    enough_memory = false;
  }
  if (!enough_memory) {
    write_report(true, "no memory for a lane");
    give_up(hipErrorOutOfMemory);
  }
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

using StacksPtr = std::unique_ptr<Stacks>;

StacksPtr take(std::vector<StacksPtr>& from, std::size_t lanes) {
  const auto found = std::find_if(from.rbegin(), from.rend(), [lanes](const StacksPtr& stacks) {
    return stacks->count() == lanes;
  });
  if (found == from.rend()) return nullptr;
  StacksPtr taken = std::move(*found);
  from.erase(std::next(found).base());
  return taken;
}

/// Null when there is no memory.
StacksPtr take_stacks(Launch& launch, std::size_t lanes) {
  StacksPtr stacks = take(machine().free_stacks, lanes);
  for (const CompletionPtr& before : launch.after) {
    if (stacks == nullptr) stacks = take(before->spare_stacks, lanes);
  }
  if (stacks == nullptr) stacks = Stacks::make(lanes, machine().settings.guarded_stacks);
  return stacks;
}

/// For other lanes. Under ThreadSanitizer only for those of launches that are ordered after this
/// one in any case, so that being one thread hides nothing; making threads takes most of its time.
void give_back(StacksPtr stacks, Launch& launch) {
  std::vector<StacksPtr>& to = kTsan ? launch.completion->spare_stacks : machine().free_stacks;
  if (kTsan && to.size() >= kMostSpareStacks) return;
  try {
    to.push_back(std::move(stacks));
  } catch (const std::bad_alloc&) {
  }
}

/// Null when there is no memory.
std::unique_ptr<Block> make_block(Device& device, Launch& launch, unsigned index) {
  const IgnoredByTsan bookkeeping;
  Machine& m = machine();
  const dim3 size = launch.block;
  const dim3 grid = launch.grid;
  const auto wave = static_cast<unsigned>(m.settings.wave_size);
  const unsigned lanes = size.x * size.y * size.z;
  if (lanes > m.settings.most_lanes - std::min(m.settings.most_lanes, m.resident_lanes)) {
    return nullptr;
  }
  auto block = std::make_unique<Block>();
  block->device = &device;
  block->launch = &launch;
  block->lane_count = static_cast<int>(lanes);
  block->alive = block->lane_count;
  block->wave_count = static_cast<int>((lanes + wave - 1) / wave);
  block->lanes = std::make_unique<Lane[]>(lanes);
  block->waves = std::make_unique<Wave[]>(static_cast<std::size_t>(block->wave_count));
  block->stacks = take_stacks(launch, lanes);
  if (block->stacks == nullptr) return nullptr;
  for (unsigned i = 0; i < lanes; ++i) {
    Lane& lane = block->lanes[i];
    lane.indices = {dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y)),
                    dim3(index % grid.x, index / grid.x % grid.y, index / (grid.x * grid.y)), size,
                    grid};
    lane.lane = static_cast<int>(i % wave);
    lane.wave = &block->waves[i / wave];
    ++lane.wave->alive;
    lane.block = block.get();
    lane.fiber.prepare((*block->stacks)[i], i, live);
  }
  return block;
}

/// False when a lane has written to the stack of another.
bool free_block(Block& block) {
  const bool overflowed = block.stacks->overflowed();
  if (overflowed) {
    write_report(true, "a lane needs more than its stack, device %zu block %u",
                 number_of(*block.device), block.lanes[0].indices.block.x);
  }
  machine().resident_lanes -= static_cast<std::size_t>(block.lane_count);
  for (const SharedVariable& shared : block.shared) std::free(shared.memory);
  // Lanes of a dropped block are still on their stacks.
  if (block.alive == 0 && !overflowed) give_back(std::move(block.stacks), *block.launch);
  return !overflowed;
}

void complete(Device& device, Launch& launch, hipError_t error) {
  Completion& completion = *launch.completion;
  completion.done = true;
  completion.done_at = clock_nanoseconds();
  completion.error = error;
  if (error == hipSuccess) return;
  std::erase_if(device.failed, [](const CompletionPtr& failed) { return failed->known; });
  try {
    device.failed.push_back(launch.completion);
  } catch (const std::bad_alloc&) {  // who waits for this launch hears of it all the same
  }
}

/// Drops all that runs on a device, or waits to.
void drop(Device& device) {
  if (device.launches.empty()) return;  // a device that has failed before is no progress
  const IgnoredByTsan bookkeeping;
  for (const auto& block : device.resident) free_block(*block);
  device.resident.clear();
  for (const auto& launch : device.launches) complete(device, *launch, device.failure);
  device.launches.clear();
  ++machine().progress;
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
        if (block.device->failure != hipSuccess) return true;
      }
      if (random_order() && random_below(4) == 0) return any_ran || ran;
    }
    any_ran |= ran;
    if (!ran || machine().let_pollers_look) return any_ran;
  }
}

bool may_start(const Launch& launch) {
  return std::all_of(launch.after.begin(), launch.after.end(),
                     [](const CompletionPtr& before) { return before->done; });
}
unsigned resident_blocks(const Launch& launch) { return launch.started - launch.ended; }

/// The launch whose next block starts next: of those that have one, the one with the fewest, so that
/// launches that wait for each other both run. Null when there is none, or no room for it.
Launch* next_to_start(Device& device) {
  const auto limit = static_cast<std::size_t>(machine().settings.resident_blocks);
  if (limit != 0 && device.resident.size() >= limit) return nullptr;
  Launch* next = nullptr;
  for (const auto& launch : device.launches) {
    const bool has_one = launch->cancelled == hipSuccess && launch->started < launch->blocks();
    if (!has_one || !may_start(*launch)) continue;
    if (next == nullptr || resident_blocks(*launch) < resident_blocks(*next)) next = launch.get();
  }
  return next;
}

/// False when there is none to start, or no memory for it.
bool start_block(Device& device) {
  Launch* const launch = next_to_start(device);
  if (launch == nullptr) return false;
  Machine& m = machine();
  try {
    device.resident.reserve(device.resident.size() + 1);
    auto block = make_block(device, *launch, launch->started);
    if (block == nullptr) return false;
    m.resident_lanes += static_cast<std::size_t>(block->lane_count);
    m.most_resident_lanes = std::max(m.most_resident_lanes, m.resident_lanes);
    device.resident.push_back(std::move(block));
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++launch->started;
  ++m.progress;
  return true;
}

/// Launches that are ordered after a failed one fail with it.
void cancel_what_cannot_run(Device& device) {
  for (const auto& launch : device.launches) {
    if (launch->started != 0 || !may_start(*launch)) continue;
    for (const CompletionPtr& before : launch->after) {
      if (before->known || before->error == hipSuccess) continue;
      launch->cancelled = before->error;
      launch->completion->cause = before;
    }
  }
}

void start_blocks(Device& device) {
  cancel_what_cannot_run(device);
  const std::size_t eager = random_order() ? kEagerBlocksInRandomOrder : kEagerBlocks;
  while (device.resident.size() < eager && start_block(device)) {
  }
}

/// One more on every device, for whose sake lanes may be waiting. False when there is none.
bool start_more_blocks() {
  bool any = false;
  for (Device& device : machine().devices) any |= start_block(device);
  return any;
}

/// Cancels launches for whose next block there is no memory.
bool cancel_what_finds_no_memory() {
  bool any = false;
  for (Device& device : machine().devices) {
    Launch* const launch = next_to_start(device);
    if (launch == nullptr) continue;
    launch->cancelled = hipErrorOutOfMemory;
    any = true;
  }
  if (any) ++machine().progress;
  return any;
}

void retire_blocks(Device& device) {
  const IgnoredByTsan bookkeeping;
  bool overflowed = false;
  std::erase_if(device.resident, [&](const std::unique_ptr<Block>& block) {
    if (block->alive != 0) return false;
    ++block->launch->ended;
    overflowed |= !free_block(*block);
    return true;
  });
  if (overflowed) device.failure = hipErrorLaunchFailure;
  std::erase_if(device.launches, [&](const std::unique_ptr<Launch>& launch) {
    const bool cancelled = launch->cancelled != hipSuccess;
    if (launch->ended != (cancelled ? launch->started : launch->blocks())) return false;
    complete(device, *launch, launch->cancelled);
    ++machine().progress;
    for (const CompletionPtr& before : launch->after) {
      for (StacksPtr& stacks : before->spare_stacks) give_back(std::move(stacks), *launch);
      before->spare_stacks.clear();
    }
    return true;
  });
}

bool stands_still(Device& device) {
  const auto most = static_cast<std::uint64_t>(machine().settings.most_rounds_still);
  if (!random_order() || most == 0 || device.launches.empty()) return false;
  if (device.rounds_still == 0 && random_below(most) == 0) device.rounds_still = random_below(most);
  if (device.rounds_still == 0) return false;
  --device.rounds_still;
  ++machine().progress;  // it will run
  return true;
}

void step(Device& device) {
  if (stands_still(device)) return;
  start_blocks(device);
  const auto count = static_cast<int>(device.resident.size());
  const int first = count == 0 ? 0 : random_first(count);
  for (int i = 0; i < count && device.failure == hipSuccess; ++i) {
    run_block(*device.resident[static_cast<std::size_t>((first + i) % count)]);
  }
  retire_blocks(device);
  if (device.failure != hipSuccess) drop(device);
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

/// All that is unfinished fails.
void end_deadlock() {
  write_report(true, "deadlock: no lane of any device can run");
  Machine& m = machine();
  for (Device& device : m.devices) {
    for (const auto& block : device.resident) {
      for (const State state : {State::at_shuffle, State::at_barrier, State::polling}) {
        const Lane* begin = block->lanes.get();
        const Lane* end = begin + block->lane_count;
        const Lane* first =
            std::find_if(begin, end, [=](const Lane& lane) { return lane.state == state; });
        if (first == end) continue;
        char where[64];
        if (state == State::polling) {
          std::snprintf(where, sizeof(where), "%p, which stays %llu", first->polled,
                        static_cast<unsigned long long>(first->polled_value));
        } else {
          std::snprintf(where, sizeof(where), "at line %d", first->line);
        }
        write_report(false, "device %zu block %u: from thread %u on %s %s", number_of(device),
                     first->indices.block.x, first->indices.thread.x, name_of(state), where);
      }
    }
  }
  for (Device& device : m.devices) {
    if (device.launches.empty()) continue;
    device.failure = hipErrorLaunchFailure;
    drop(device);
  }
}

bool nothing_to_run() {
  return std::all_of(machine().devices.begin(), machine().devices.end(),
                     [](const Device& device) { return device.launches.empty(); });
}

}  // namespace

void drive(const std::function<bool()>& finished) {
  Machine& m = machine();
  m.host.adopt_current();
  int idle_rounds = 0;
  int stuck_rounds = 0;
  while (!finished() && !nothing_to_run()) {
    if (HostLock::let_others()) {
      m.host.adopt_current();
      continue;
    }
    const std::uint64_t before = m.progress;
    m.clock_was_read = false;
    const auto count = static_cast<int>(m.devices.size());
    const int first = random_first(count);
    for (Device& device : m.devices) start_blocks(device);
    for (int d = 0; d < count; ++d) step(m.devices[static_cast<std::size_t>((first + d) % count)]);
    m.nanoseconds += kNanosecondsPerRound;
    if (m.progress != before || start_more_blocks()) {
      idle_rounds = 0;
      stuck_rounds = 0;
      m.let_pollers_look = false;
      continue;
    }
    // Nothing moved. Pollers look again, time passes; who waits with an eye on the clock will end.
    m.let_pollers_look = true;
    ++idle_rounds;
    const bool others_may_write = works_with_other_processes() && any_lane_polls();
    if (others_may_write) {
      // A polled word may be written by another process, which wants the CPU.
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      const auto speed = 1 + static_cast<std::uint64_t>(idle_rounds) / kRoundsToDoubleSpeed;
      m.nanoseconds += speed * kNanosecondsPerIdleRound;
    }
    const int most_rounds = random_order() ? 20 * kStuckRounds : kStuckRounds;
    if (idle_rounds > (others_may_write ? kStuckRoundsWithOthers : most_rounds) &&
        cancel_what_finds_no_memory()) {
      continue;
    }
    // Who polls need not read the clock every time.
    stuck_rounds = others_may_write || m.clock_was_read ? 0 : stuck_rounds + 1;
    if (stuck_rounds > most_rounds) end_deadlock();
  }
  m.let_pollers_look = false;
  if (nothing_to_run() && m.free_stacks.size() > kMostFreeStacks) {
    m.free_stacks.resize(kMostFreeStacks);
  }
}

void add_launch(int device, std::unique_ptr<Launch> launch) {
  Device& on = machine().devices[static_cast<std::size_t>(device)];
  launch->on_device = &on.order;
  launch->number = on.launched + 1;
  tsan_release(&launch->enqueued);
  on.launches.push_back(std::move(launch));
  ++on.launched;
}

void see_ended_kernels(int device) {
  tsan_acquire(&machine().devices[static_cast<std::size_t>(device)].order);
}

bool is_idle(int device, std::uint64_t after) {
  const auto& launches = machine().devices[static_cast<std::size_t>(device)].launches;
  return launches.empty() || launches.front()->number > after;
}
std::uint64_t last_launch(int device) {
  return machine().devices[static_cast<std::size_t>(device)].launched;
}

hipError_t failure_of(int device) {
  return machine().devices[static_cast<std::size_t>(device)].failure;
}
hipError_t take_error(int device) {
  hipError_t error = hipSuccess;
  for (const CompletionPtr& failed : machine().devices[static_cast<std::size_t>(device)].failed) {
    if (error == hipSuccess && !failed->known) error = failed->error;
    make_known(*failed);
  }
  machine().devices[static_cast<std::size_t>(device)].failed.clear();
  return error;
}

void configure(const Settings& settings) {
  const HostLock lock;
  Machine& m = machine();
  m.settings = settings;
  m.devices = std::vector<Device>(static_cast<std::size_t>(settings.devices));
  m.random = settings.seed * 0x9E3779B97F4A7C15u + 1;
  m.free_stacks.clear();
  m.resident_lanes = 0;
  m.most_resident_lanes = 0;
  m.report.clear();
}
const Settings& settings() { return machine().settings; }

std::size_t most_resident_lanes() { return machine().most_resident_lanes; }

std::string report() {
  const HostLock lock;
  return machine().report;
}

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
void cp_async_commit() { ++running->fetch_group; }
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
  if (lane == nullptr) {  // code of kernels that the host called
    std::fprintf(stderr, "emulator: %s at %p\n", what, address);
    std::abort();
  }
  write_report(true, "%s at %p, device %zu block %u thread %u", what, address,
               number_of(*lane->block->device), lane->indices.block.x, lane->indices.thread.x);
  give_up(hipErrorLaunchFailure);
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
  if (memory == nullptr) throw std::bad_alloc();
  if (!kTsan) std::memset(memory, 0xA5, bytes);
  block.shared.push_back({variable, memory});
  return memory;
}

}  // namespace arlab::emulator
