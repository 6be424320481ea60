// Functions of kernels that run on the CPU: indices, barriers, lane shuffles, atomics, the
// clock, memory shared by a block. HIP's names, where HIP has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct dim3 {
  std::uint32_t x, y, z;
  constexpr dim3(std::uint32_t x_size = 1, std::uint32_t y_size = 1, std::uint32_t z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};

namespace arlab::emulator {

/// Where in the grid a lane (a GPU thread) is.
struct LaneIndices {
  dim3 thread;
  dim3 block;
  dim3 block_size;
  dim3 grid_size;
};

/// The indices of the lane that runs; the scheduler sets them.
extern const LaneIndices* current_lane_indices;
inline const LaneIndices& current_lane() { return *current_lane_indices; }

/// Position in the wave, and lanes of a wave (32 or 64).
int lane_in_wave();
int wave_size();

/// All lanes of the wave that have not ended arrive; then each reads what `source_lane` brought.
/// Lanes that arrive at different lines, or read a lane that has ended, are reported, and the
/// device is given up.
std::uint64_t exchange(std::uint64_t value, int source_lane, int line);

/// All lanes of the block that have not ended arrive. Arriving at different lines is reported.
void barrier(int line);

/// A copy of 16 bytes that begins now and ends when the lane waits for it: not before, so that a
/// missing wait shows.
struct Fetch {
  void* to;
  const void* from;
};
void start_fetch(Fetch fetch);
void cp_async_commit();
/// The next copy that has to end for no more than the last `groups` groups to be under way.
bool next_fetch_to_end(int groups, Fetch& fetch);

/// Nanoseconds of the emulated machine. They pass with scheduling, and faster while every lane only
/// waits: a timeout of seconds is over in milliseconds, and a run never depends on how fast the CPU
/// is. With memory of other processes open, it is real time.
std::uint64_t clock_nanoseconds();

/// Called around atomic accesses that other blocks may see. A lane that reads the same value from
/// the same place again and again lets others run.
std::uint64_t writes_so_far();
void after_atomic_load(const void* address, std::uint64_t value, std::uint64_t writes_before);
void after_atomic_write();
/// For a lane that looks at several places in turn: others run until something was written since it
/// looked first.
void give_way();

/// Reports a mistake of a kernel, with the lane's indices, and gives up its device.
[[noreturn]] void fault(const char* what, const void* address);

inline void require_aligned(const void* address, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    fault("misaligned access", address);
  }
}

// ---- memory shared by a block

int new_shared_variable();
void* shared_memory(int variable, std::size_t bytes);

/// The array of this block. Tag: the type of a lambda, different for every declaration and template
/// instance. Its content is garbage at first, as on a GPU.
template <class T, std::size_t Count, class Tag>
T (&shared_array(Tag))
[Count] {
  static_assert(std::is_trivial_v<T>);
  static const int variable = new_shared_variable();
  return *static_cast<T(*)[Count]>(shared_memory(variable, sizeof(T) * Count));
}

// ---- scoped atomics: memory order and scope as template arguments

template <int Order, class T>
T atomic_load(const T* address) {
  const std::uint64_t writes = writes_so_far();  // before the load: no write in between is missed
  const T value = __atomic_load_n(address, Order);
  after_atomic_load(address, static_cast<std::uint64_t>(value), writes);
  return value;
}
template <int Order, class T, class U>
void atomic_store(T* address, U value) {
  __atomic_store_n(address, static_cast<T>(value), Order);
  after_atomic_write();
}
template <int Order, class T, class U>
T atomic_add(T* address, U value) {
  const T old = __atomic_fetch_add(address, static_cast<T>(value), Order);
  after_atomic_write();
  return old;
}
template <int Order, class T, class U>
T atomic_max(T* address, U value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(address, &old, static_cast<T>(value), false,
                                                     Order, __ATOMIC_RELAXED)) {
  }
  after_atomic_write();
  return old;
}

}  // namespace arlab::emulator

// Names that HIP reserves, here for what it means by them.
// NOLINTBEGIN(bugprone-reserved-identifier)
inline void __syncthreads(int line = __builtin_LINE()) { arlab::emulator::barrier(line); }

template <class T>
T __shfl(T value, int source, int width, int line = __builtin_LINE()) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const int lane = arlab::emulator::lane_in_wave();
  bits = arlab::emulator::exchange(bits, (lane & ~(width - 1)) + (source & (width - 1)), line);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_xor(T value, int mask, int width, int line = __builtin_LINE()) {
  const int lane = arlab::emulator::lane_in_wave();
  return __shfl(value, (lane & (width - 1)) ^ mask, width, line);
}

#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#define __hip_atomic_load(address, order, scope) ::arlab::emulator::atomic_load<(order)>(address)
#define __hip_atomic_store(address, value, order, scope) \
  ::arlab::emulator::atomic_store<(order)>((address), (value))
#define __hip_atomic_fetch_add(address, value, order, scope) \
  ::arlab::emulator::atomic_add<(order)>((address), (value))
#define __hip_atomic_fetch_max(address, value, order, scope) \
  ::arlab::emulator::atomic_max<(order)>((address), (value))
// NOLINTEND(bugprone-reserved-identifier)
