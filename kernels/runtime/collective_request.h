// Options of a communicator and of its calls; for programs that know no HIP, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "reference/collectives/call.h"

namespace arlab::kernels {

using arlab::CollectiveRequest;

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
  /// Bytes that a block of a rank may send to a rank in one exchange; a multiple of 16, and no
  /// less than kLeastSlotBytes. A communication buffer has 4 * blocks * ranks slots.
  std::size_t slot_bytes = std::size_t{32} * 1024;
  /// How long a rank waits for another inside a kernel before the team is given up.
  std::uint64_t timeout_nanoseconds = 10'000'000'000;
  /// Codecs with one scale per message, or with groups of other sizes than 8, 16, ... 256, measure
  /// groups before they encode: so many at a time, of 32 bytes each.
  std::size_t two_pass_groups = 32768;
  /// How ranks hand over, where there are kernels for both. Automatic: sentinels, in calls where they are faster; on AMD
  /// GPUs only once they have passed there (conformance_record.h).
  Protocol protocol = Protocol::automatic;
  bool fuses_tails =
      true;  ///< where the collective's kernel can have a tail in it; else it is always behind
  std::uint32_t first_epoch = 0;  ///< where the count of exchanges starts; for tests
  bool any_slot_bytes = false;    ///< so small that short tensors take several rounds; for tests
};

/// Throws InvalidInput for a tail that is not of the request's rows, and for one that kernels do not make.
void require_tail(const CollectiveRequest& request, Collective collective);

/// Bytes of the wire that the tail of a request makes; 0 where it makes none, or owners send it.
std::size_t wire_bytes_of(const CollectiveRequest& request);

/// Further tensors of a call's tail, read and written in memory of the rank's device, aligned to an element.
struct TailTensors {
  const void* residual = nullptr;  ///< as many elements as the output, on all ranks the same
  const void* weight = nullptr;    ///< a row, likewise; null: all 1
  void* residual_out = nullptr;    ///< may be the residual
  void* wire = nullptr;            ///< the output codec's, aligned to 16 bytes
};

}  // namespace arlab::kernels
