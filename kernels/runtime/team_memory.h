// The memory of a team's ranks: how it is made, and when it goes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/codecs/statistics.h"
#include "kernels/runtime/communicator.h"
#include "kernels/runtime/conformance_record.h"
#include "kernels/runtime/hip_status.h"
#include "kernels/transport/row_sums.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The memory of a team in one process. The last communicator of the team frees it, so that no rank
/// ever writes to a buffer that is gone.
class TeamMemory {
 public:
  TeamMemory() = default;
  TeamMemory(const TeamMemory&) = delete;
  TeamMemory& operator=(const TeamMemory&) = delete;
  virtual ~TeamMemory() {
    for (const Allocation& allocation : allocations_) {
      (void)hipSetDevice(allocation.device);
      (void)hipFree(allocation.memory);
    }
  }

  /// Memory of a device that its peers may write to and read flags from; zero at first.
  Result<std::uint8_t*> allocate(int device, std::size_t bytes) {
    void* memory = nullptr;
    ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device), "a device cannot be used"));
    ARLAB_RETURN_IF_ERROR(
        status_of(hipExtMallocWithFlags(&memory, bytes, hipDeviceMallocFinegrained),
                  "no memory for a communication buffer"));
    allocations_.push_back({device, memory});
    ARLAB_RETURN_IF_ERROR(
        status_of(hipMemset(memory, 0, bytes), "a communication buffer cannot be cleared"));
    return static_cast<std::uint8_t*>(memory);
  }

  /// Runs `prepare` on all ranks, which ends when it has on all; the error is that of the first rank that has one. In one
  /// process, a rank prepares for all. `beside`: a stream that waits for no other.
  virtual Status together(const std::function<Status()>& prepare, hipStream_t beside) {
    (void)beside;
    return prepare();
  }

 protected:
  /// From now on the memory stays until the process ends.
  void leave() { allocations_.clear(); }

 private:
  struct Allocation {
    int device;
    void* memory;
  };
  std::vector<Allocation> allocations_;
};

inline constexpr int kMostBlocks = 1024;
/// No kernel has more on a multiprocessor at once.
inline constexpr int kMostResidentBlocks = 4;

/// With all blocks and ranks, the memory of a team is still a number of 64 bits.
inline constexpr std::size_t kMostSlotBytes = std::size_t{1} << 40;

inline Status check_options(std::size_t ranks, const CommunicatorOptions& options) {
  if (ranks < 2 || ranks > static_cast<std::size_t>(kMaxRanks)) {
    return Status::refusal(fmt::format("{} ranks: allowed are 2 to {}", ranks, kMaxRanks));
  }
  if (options.blocks < 0 || options.blocks > kMostBlocks) {
    return Status::refusal(
        fmt::format("{} blocks: allowed are 0 to {}", options.blocks, kMostBlocks));
  }
  const std::size_t least = options.any_slot_bytes ? 16 : kLeastSlotBytes;
  if (options.multiprocessors < 0 || options.multiprocessors > kMostBlocks) {
    return Status::refusal(fmt::format("{} multiprocessors: allowed are 0 to {}",
                                       options.multiprocessors, kMostBlocks));
  }
  if (options.slot_bytes < least || options.slot_bytes > kMostSlotBytes ||
      options.slot_bytes % 16 != 0) {
    return Status::refusal(
        fmt::format("slots of {} bytes: allowed are multiples of 16 from {} to 2^40",
                    options.slot_bytes, least));
  }
  if (options.two_pass_groups == 0)
    return Status::refusal("0 two-pass groups: at least 1 is needed");
  return {};
}

inline Result<int> multiprocessors_of(int device) {
  int count = 0;
  ARLAB_RETURN_IF_ERROR(
      status_of(hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, device),
                "a device cannot be used"));
  return count;
}

/// Whether calls take sentinels only where they have passed (conformance_record.h), unless they are
/// told to.
inline bool sentinels_need_record() {
#if defined(__HIP_PLATFORM_AMD__)
  return true;
#elif defined(__HIP_PLATFORM_HOST__)
  return std::getenv("ARLAB_SENTINELS_NEED_RECORD") != nullptr;  // NOLINT(concurrency-mt-unsafe)
#else
  return false;
#endif
}
inline ConformanceRecord conformance_record() {
  int devices = 0;
  char name[256] = {};
  (void)hipGetDeviceCount(&devices);
  (void)hipDeviceGetName(name, sizeof(name), 0);
  return ConformanceRecord(fmt::format("{} x {}", devices, name));
}
inline bool takes_sentinels(Protocol protocol, int ranks) {
  if (protocol != Protocol::automatic) return protocol == Protocol::sentinels;
  return !sentinels_need_record() || conformance_record().has(ranks);
}

/// `multiprocessors`: that each rank has for itself at least.
inline BufferLayout layout_of(const CommunicatorOptions& options, int ranks, int multiprocessors) {
  const int most_blocks = options.blocks != 0
                              ? options.blocks
                              : std::min(kMostBlocks, kMostResidentBlocks * multiprocessors);
  return {most_blocks, ranks, takes_sentinels(options.protocol, ranks), options.slot_bytes,
          spread_apart(options.slot_bytes)};
}

/// SentinelSlots behind `end`, `for_a_block` of them for each: enough for what all have in work, many
/// times.
inline SentinelSlots sentinel_slots_behind(std::size_t end, int blocks, unsigned for_a_block,
                                           unsigned wires, unsigned wire_bytes) {
  const unsigned count = std::bit_floor(for_a_block * static_cast<unsigned>(blocks));
  return {(end + 255) / 256 * 256, count, wires, wire_bytes,
          static_cast<unsigned>(spread_apart(std::size_t{wires} * wire_bytes))};
}
inline SentinelSlots one_shot_sentinel_of(const BufferLayout& layout) {
  const bool there = kHasSentinels && layout.sentinels && layout.ranks == 2;
  return sentinel_slots_behind(layout.end(), layout.blocks, there ? 32 : 0, 1, kOneShotWireBytes);
}
inline SentinelSlots two_shot_sentinel_of(const BufferLayout& layout) {
  const bool there = kHasSentinels && layout.sentinels && layout.ranks <= kMostSentinelRanks;
  return sentinel_slots_behind(one_shot_sentinel_of(layout).end(), layout.blocks, there ? 16 : 0,
                               two_shot_wires(layout.ranks), kTwoShotWireBytes);
}

inline LamportSlots lamport_slots_of(const BufferLayout& layout) {
  static_assert(LamportSlots::kWireStride == spread_apart(LamportSlots::kWireBytes));
  LamportSlots slots = {(two_shot_sentinel_of(layout).end() + 255) / 256 * 256,
                        layout.sentinels ? layout.blocks : 0, layout.ranks};
  slots.set_places();
  return slots;
}
/// How long a communication buffer is.
inline std::size_t buffer_bytes(const BufferLayout& layout) {
  return lamport_slots_of(layout).end();
}

/// Sets `count` words of device memory.
template <class Word>
inline Status fill_words(std::uint8_t* at, std::size_t count, Word value) {
  const std::vector<Word> words(count, value);
  return status_of(hipMemcpy(at, words.data(), count * sizeof(Word), hipMemcpyHostToDevice),
                   "a communication buffer cannot be written");
}

/// Facts about a rank's team by which a call chooses its kernels; addresses of memory stay as they are.
inline void set_layout(int rank, const BufferLayout& layout, const CommunicatorOptions& options,
                       Team& team) {
  team.rank = rank;
  team.layout = layout;
  team.one_shot_sentinel = one_shot_sentinel_of(layout);
  team.two_shot_sentinel = two_shot_sentinel_of(layout);
  team.lamport = lamport_slots_of(layout);
  team.timeout_nanoseconds = options.timeout_nanoseconds;
  team.call = {};
}

struct RankMemory {
  std::uint8_t* buffer;    ///< for communication
  Statistics* statistics;  ///< options.two_pass_groups of them
};

/// Makes a rank's memory: a buffer, statistics, and words of its own: an epoch per
/// block, the work counter, the status, a count of calls, and those of sentinel slots, Lamport slots and sums of rows. Fills in
/// everything of its Team but where buffers are.
inline Result<RankMemory> make_rank(TeamMemory& memory, int rank, int device,
                                    const BufferLayout& layout, const CommunicatorOptions& options,
                                    Team& team) {
  const auto blocks = static_cast<std::size_t>(layout.blocks);
  set_layout(rank, layout, options, team);
  ARLAB_ASSIGN_OR_RETURN(std::uint8_t* const buffer, memory.allocate(device, buffer_bytes(layout)));
  const std::size_t sentinel_words_at = (blocks + kWorkCounterWords + 2) * 4;
  const std::size_t lamport_calls_at = sentinel_words_at + 2 * sizeof(SentinelWords);
  const std::size_t measured_at = (lamport_calls_at + blocks * 4 + 7) / 8 * 8;
  ARLAB_ASSIGN_OR_RETURN(
      std::uint8_t* const own,
      memory.allocate(device, measured_at + MeasuredWords::bytes(layout.blocks)));
  const RowSumsLayout row_sums{layout.blocks};
  ARLAB_ASSIGN_OR_RETURN(std::uint8_t* const of_rows,
                         memory.allocate(device, row_sums.all_words() * 4));
  ARLAB_RETURN_IF_ERROR(fill_words(of_rows + row_sums.sums(0) * 4, 2 * row_sums.words(), kEmpty));
  ARLAB_ASSIGN_OR_RETURN(std::uint8_t* const statistics,
                         memory.allocate(device, options.two_pass_groups * sizeof(Statistics)));
  ARLAB_RETURN_IF_ERROR(
      fill_words(buffer + layout.flag(0, 0), blocks * kMaxRanks, options.first_epoch & 0xFF));
  ARLAB_RETURN_IF_ERROR(fill_words(own, blocks, options.first_epoch));
  std::uint8_t* sentinel_words = own + sentinel_words_at;
  for (const SentinelSlots& slots : {team.one_shot_sentinel, team.two_shot_sentinel}) {
    if (slots.count != 0) {
      ARLAB_RETURN_IF_ERROR(
          fill_words(buffer + slots.slots_at(), (slots.end() - slots.slots_at()) / 4, kEmpty));
      ARLAB_RETURN_IF_ERROR(fill_words(sentinel_words + offsetof(SentinelWords, next_item), 1,
                                       slots.window_of(options.first_epoch)));
    }
    sentinel_words += sizeof(SentinelWords);
  }
  ARLAB_RETURN_IF_ERROR(fill_words(buffer + team.lamport.slots_begin,
                                   (team.lamport.end() - team.lamport.slots_begin) / 4, kEmpty));
  ARLAB_RETURN_IF_ERROR(fill_words(own + lamport_calls_at, blocks, options.first_epoch));
  team.epochs = reinterpret_cast<std::uint32_t*>(own);
  team.work_counter = team.epochs + blocks;
  team.status = team.work_counter + kWorkCounterWords;
  team.random_calls = team.status + 1;
  team.one_shot_words = reinterpret_cast<SentinelWords*>(own + sentinel_words_at);
  team.two_shot_words = team.one_shot_words + 1;
  team.lamport_calls = reinterpret_cast<std::uint32_t*>(own + lamport_calls_at);
  team.row_sums = reinterpret_cast<std::uint32_t*>(of_rows);
  team.measured = reinterpret_cast<MeasuredWords*>(own + measured_at);
  return RankMemory{buffer, reinterpret_cast<Statistics*>(statistics)};
}

/// How many each rank may use: `of_each` is what the device with the fewest has for a rank.
inline Result<int> limited_multiprocessors(int of_each, bool share,
                                           const CommunicatorOptions& options) {
  if (options.multiprocessors == 0) return std::max(of_each, 1);
  if (share) {
    return Status::refusal(fmt::format(
        "{} multiprocessors for each rank: ranks that share a device cannot be kept apart",
        options.multiprocessors));
  }
  if (options.multiprocessors > of_each) {
    return Status::refusal(
        fmt::format("{} multiprocessors: a device has {}", options.multiprocessors, of_each));
  }
  return options.multiprocessors;
}

/// Multiprocessors of each rank when ranks share devices: the least of all ranks.
inline Result<int> multiprocessors_of_each(std::span<const int> devices,
                                           const CommunicatorOptions& options) {
  int least = kMostBlocks;
  bool share = false;
  for (const int device : devices) {
    ARLAB_ASSIGN_OR_RETURN(const int own, multiprocessors_of(device));
    const auto ranks = std::count(devices.begin(), devices.end(), device);
    share = share || ranks > 1;
    least = std::min(least, own / static_cast<int>(ranks));
  }
  return limited_multiprocessors(least, share, options);
}

/// Bytes of all ranks that make_rank() takes; 0 where it would fail.
inline std::size_t memory_of_team(std::span<const int> devices,
                                  const CommunicatorOptions& options) {
  if (!check_options(devices.size(), options).ok()) return 0;
  const Result<int> multiprocessors = multiprocessors_of_each(devices, options);
  if (!multiprocessors.ok()) return 0;
  const BufferLayout layout =
      layout_of(options, static_cast<int>(devices.size()), multiprocessors.value());
  return devices.size() * (buffer_bytes(layout) + options.two_pass_groups * sizeof(Statistics));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
