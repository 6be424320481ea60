// Causes in a run: instants, each with the one that it had to wait for and what filled the time between; and the last one of
// each collective so far.
//
// The simulation writes this record. critical_path.h reads it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/network/growing_array.h"
#include "sim/network/time.h"

namespace arlab {

/// Activity that filled the time before an instant.
enum class Span : std::uint8_t { nothing, launch, latency, queue, message, stage, work };

struct Cause {
  Picoseconds time = 0;
  Picoseconds network = 0;    ///< message: what the network took
  std::uint32_t before = 0;   ///< index of the cause
  std::uint32_t subject = 0;  ///< message, stage, or rank of a launch and of work
  /// Message, queue: the resource that the network blames; work: a CodecLimit.
  std::uint32_t limit = 0;
  Span span = Span::nothing;
  /// Message: of `time`, so much at its end was the latency of its way. There are millions of messages,
  /// and a cause for that alone would be as large.
  std::uint32_t latency : 24 = 0;

  static constexpr Picoseconds kMostLatency = 0xFFFFFF;  // 17 us
};
using CauseId = std::uint32_t;

/// There are millions of causes, most of them like the one before; all are kept until the end, and few
/// read. So blocks of them are packed: of each a byte that says which of its numbers do not go on as
/// in the two causes before, and by how much these differ from that.
class Causes {
 public:
  /// The last cause of a collective.
  struct End {
    CauseId last = 0;
    Picoseconds last_time = 0;
    Picoseconds time = 0;  ///< the same, or that of what has no cause yet, if that is later
    Cause unwritten = {};  ///< the end's own cause, if it is not written yet
  };

  /// Cause 0 is the beginning.
  explicit Causes(std::size_t jobs) : ends_(jobs) {}

  CauseId add(std::uint32_t job, const Cause& cause) {
    const CauseId id = size_++;
    block_[id % kBlock] = cause;
    if (size_ % kBlock == 0) pack();
    End& end = ends_[job];
    if (cause.time > end.time) end = {id, cause.time, cause.time};
    return id;
  }
  CauseId add(std::uint32_t job, Picoseconds time, CauseId before, Span span,
              std::uint32_t subject = 0, Picoseconds network = 0, std::uint32_t limit = 0) {
    return add(job, {time, network, before, subject, limit, span});
  }
  /// Most of what ends leads to nothing: it is written down when something waits for it, or if the
  /// collective ends with it.
  void end_with(std::uint32_t job, const Cause& cause) {
    End& end = ends_[job];
    if (cause.time <= end.time) return;
    end.time = cause.time;
    end.unwritten = cause;
  }

  /// Takes a while.
  Cause operator[](CauseId id) const;
  End& end_of(std::uint32_t job) { return ends_[job]; }
  const End& end_of(std::uint32_t job) const { return ends_[job]; }

 private:
  static constexpr std::uint32_t kBlock = 128;
  void pack();

  CauseId size_ = 1;
  std::array<Cause, kBlock> block_ = {};  ///< those that are not packed yet
  GrowingArray<std::uint8_t> packed_;
  std::vector<std::size_t> first_byte_;  ///< by block
  std::vector<End> ends_;                ///< by job
};

}  // namespace arlab
