// What a communicator and its calls are told; for programs that know no HIP, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "reference/collectives/algorithm.h"
#include "reference/collectives/sum.h"
#include "reference/dtype.h"

namespace arlab::kernels {

/// How ranks tell each other that something has been stored: by flags behind it, or by sentinels,
/// words that are there until something else is (transport/sentinel_slots.h, lamport_slots.h).
enum class Protocol : std::uint8_t { automatic, flags, sentinels };

/// Two tiles in fp32: calls take no more, but for codecs whose groups are longer, which are refused
/// when they are called.
inline constexpr std::size_t kLeastSlotBytes = std::size_t{2} * 2048 * 4;

/// Told how many of how many kernels are compiled.
using CompileProgress = std::function<void(std::size_t done, std::size_t all)>;

/// Every rank of a team must be given the same.
struct CommunicatorOptions {
  /// Most blocks of a kernel, up to 1024; no more are started than fit on a device at once. 0: as
  /// many as fit at best.
  int blocks = 0;
  /// Multiprocessors on which kernels run, each full of blocks; of NVIDIA's an even number. 0: all. Then no two ranks
  /// share a device.
  int multiprocessors = 0;
  /// What a block of a rank may send to a rank in one exchange; a multiple of 16, and no less than
  /// kLeastSlotBytes. A communication buffer has 4 * blocks * ranks slots.
  std::size_t slot_bytes = std::size_t{32} * 1024;
  /// How long a rank waits for another inside a kernel before the team is given up.
  std::uint64_t timeout_nanoseconds = 10'000'000'000;
  /// Codecs with one scale per message, or with groups of other sizes than 8, 16, ... 256, measure
  /// groups before they encode: so many at a time, of 32 bytes each.
  std::size_t two_pass_groups = 32768;
  /// How ranks hand over, where there are kernels for both. Automatic: sentinels, in calls where they are faster; on AMD
  /// GPUs only once they have passed there (conformance_record.h).
  Protocol protocol = Protocol::automatic;
  std::uint32_t first_epoch = 0;  ///< where the count of exchanges starts; for tests
  bool any_slot_bytes = false;    ///< so small that short tensors take several rounds; for tests
};

/// One collective. Of the same team, all ranks make the same calls in the same order.
struct CollectiveRequest {
  std::string algorithm;  ///< an algorithm of the reference
  std::string codec;
  DType dtype = DType::fp16;
  std::size_t elements = 0;       ///< per rank
  AlgorithmOptions options = {};  ///< options of the algorithm
  /// A schedule of one's own, for these ranks and elements; `algorithm` then is just its name.
  std::shared_ptr<const Schedule> schedule = nullptr;
  std::uint64_t seed = 0;  ///< of codecs with random numbers
  Sum sum = {};            ///< native or fp32; its `own` is an option of the algorithm
  int root =
      0;  ///< of a broadcast: whose tensor all get; it takes rank 0's part, and rank 0 the root's

  bool operator==(const CollectiveRequest&) const = default;
};

}  // namespace arlab::kernels
