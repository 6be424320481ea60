// A codec with a scale of the whole message (codecs/message_scale.h) encodes nothing before the message's range is known. The
// blocks of a rank find it together: each stores a word with the range of its own elements, and reads those of all.
#pragma once

#include "kernels/codecs/message_scale.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr unsigned kWaves = kThreads / 32;  // groups of 32 lanes
static_assert(kMaxMessages <= static_cast<int>(kWaves));

/// Shared by the block: what its waves have found, and then the ranges of the messages.
struct MeasuringMemory {
  std::uint32_t of_wave[kMaxMessages][kWaves];
  std::uint32_t range[kMaxMessages];
  std::uint32_t not_measured;  // the team has given up
};

/// Measurements of a call, one after the other, each of some messages. All threads of a block use it together, and all blocks
/// of a launch are on the device at once.
template <class Codec, class Element>
class Measuring {
 public:
  /// `blocks`: of the launch.
  ARLAB_DEVICE Measuring(const Team& team, int blocks, MeasuringMemory& memory)
      : team_(team), blocks_(blocks), memory_(memory) {}

  /// Behind pdl_wait(), before anything else.
  ARLAB_DEVICE void begin() {
    before_ = load_relaxed(&global_pointer(team_.measured)->measurements);
  }

  /// Takes this thread's finding about a message of the next measurement.
  ARLAB_DEVICE void found(int message, std::uint32_t range) const {
    range = smallest_of_lanes<5>(range, 5, both());
    if (thread_index() % 32 == 0) memory_.of_wave[message][thread_index() / 32] = range;
  }
  /// Behind found() of each. False when the team has given up.
  ARLAB_DEVICE bool measure(int messages) {
    if (measurements_++ == 0 && thread_index() == 0) memory_.not_measured = 0;
    __syncthreads();
    const auto message = static_cast<int>(thread_index());
    if (message < messages) say(words_of(message) + blockIdx.x, of_waves(message, 0, kWaves));
    wait(messages);
    return memory_.not_measured == 0;
  }
  /// For what a message of the last measurement is encoded from.
  ARLAB_DEVICE Codec codec_of(Codec codec, int message) const {
    codec.set_range(memory_.range[message]);
    return codec;
  }

  /// All blocks have begun the last measurement, so that none looks for the number of the first any more.
  ARLAB_DEVICE void end() const {
    if (blockIdx.x == 0 && thread_index() == 0) {
      store_relaxed(&global_pointer(team_.measured)->measurements, before_ + measurements_);
    }
  }

  /// Range of the thread's first `count` elements.
  ARLAB_DEVICE static std::uint32_t range_of(Pack8<Element> x, std::size_t count) {
    if (count == 0) return Codec::no_range();
    // In place of what is behind the end: the first of these elements again.
#pragma unroll
    for (std::size_t i = 1; i < kPerThread; ++i) {
      const std::uint32_t first = (x.word[0] & 0xFFFF) << (i % 2 * 16);
      if (i >= count) x.word[i / 2] = (x.word[i / 2] & (0xFFFFu << ((i + 1) % 2 * 16))) | first;
    }
    return Codec::range_of(x);
  }
  /// Range of a chunk's elements in this thread's tiles, every `blocks`-th from the block's own on. `aligned`: the tensor is.
  ARLAB_DEVICE std::uint32_t range_of(const void* tensor, const ElementRange& chunk,
                                      bool aligned) const {
    const auto* elements = global_pointer(static_cast<const typename Element::Bits*>(tensor));
    const std::size_t stride = static_cast<std::size_t>(blocks_) * kTile;
    std::size_t at = chunk.begin + blockIdx.x * kTile + thread_index() * kPerThread;
    std::uint32_t range = Codec::no_range();
    constexpr unsigned kAtOnce = 4;
    aligned = aligned && chunk.begin % kPerThread == 0;
    while (aligned && at + (kAtOnce - 1) * stride + kPerThread <= chunk.end) {
      Pack8<Element> x[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        x[i] = load_elements<Element>(elements + at + i * stride, kPerThread);
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        range = Codec::range_of_both(range, Codec::range_of(x[i]));
      at += kAtOnce * stride;
    }
#pragma unroll 1
    for (; at < chunk.end; at += stride) {
      const std::size_t count = Position{chunk.end, at}.count();
      range = Codec::range_of_both(range,
                                   range_of(load_elements<Element>(elements + at, count), count));
    }
    return range;
  }

 private:
  ARLAB_DEVICE static auto both() {
    return [](std::uint32_t a, std::uint32_t b)
               ARLAB_INLINED_LAMBDA { return Codec::range_of_both(a, b); };
  }

  /// Never 0, which is what words are of blocks that have not measured anything yet.
  ARLAB_DEVICE std::uint32_t number() const { return (before_ + measurements_) | 0x80000000u; }

  /// Range of what some waves have found.
  ARLAB_DEVICE std::uint32_t of_waves(int message, unsigned first, unsigned end) const {
    std::uint32_t range = Codec::no_range();
#pragma unroll
    for (unsigned wave = 0; wave < kWaves; ++wave) {
      if (wave < first || wave >= end) continue;
      range = Codec::range_of_both(range, memory_.of_wave[message][wave]);
    }
    return range;
  }
  ARLAB_DEVICE void say(std::uint64_t* word, std::uint32_t range) const {
    store_relaxed(word, range | static_cast<std::uint64_t>(number()) << 32);
  }

  /// Some waves for each message. Of many blocks, the first reads the words of all and announces what it finds: if all did, they would
  /// read the same lines of the cache thousands of times at once.
  ARLAB_DEVICE void wait(int messages) const {
    constexpr int kFewBlocks = 32;
    const bool is_follower = blocks_ > kFewBlocks && blockIdx.x != 0;
    unsigned threads = kThreads;  // a message's
    while (threads * static_cast<unsigned>(messages) > kThreads) threads /= 2;
    const auto message = static_cast<int>(thread_index() / threads);
    unsigned words = is_follower ? 1 : static_cast<unsigned>(blocks_);
    if (message >= messages) words = 0;
    const std::uint64_t* const first_word = is_follower ? announced(message) : words_of(message);
    std::uint32_t range = Codec::no_range();
    std::uint32_t reason = 0;
    Watchdog watchdog(team_, team_.rank);
    constexpr unsigned kAtOnce = 4;  // they are far
#pragma unroll 1
    for (unsigned first = thread_index() % threads; first < words; first += kAtOnce * threads) {
      std::uint64_t seen[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (first + i * threads < words) seen[i] = load_relaxed(first_word + first + i * threads);
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (first + i * threads >= words) continue;
        while (seen[i] >> 32 != number() && reason == 0) {
          reason = watchdog.expired();
          seen[i] = load_relaxed(first_word + first + i * threads);
        }
        range = Codec::range_of_both(range, static_cast<std::uint32_t>(seen[i]));
      }
    }
    if (reason != 0) give_up(team_, reason, memory_.not_measured);
    __syncthreads();  // behind what was read of waves
    found(0, range);
    __syncthreads();
    const auto of = static_cast<int>(thread_index());
    if (of < messages) {
      const unsigned waves = threads / 32;
      const unsigned first = static_cast<unsigned>(of) * waves;
      range = of_waves(0, first, first + waves);
      memory_.range[of] = range;
      if (blocks_ > kFewBlocks && blockIdx.x == 0) say(announced(of), range);
    }
    __syncthreads();
  }
  ARLAB_DEVICE std::uint64_t* announced(int message) const {
    return global_pointer(team_.measured)->announced(message);
  }
  ARLAB_DEVICE std::uint64_t* words_of(int message) const {
    return global_pointer(team_.measured)
        ->of(before_ + measurements_, message, team_.layout.blocks);
  }

  const Team& team_;
  const int blocks_;
  MeasuringMemory& memory_;
  std::uint32_t before_ = 0;  // measurements
  std::uint32_t measurements_ = 0;
};

// For kernels of all codecs: others measure nothing.

struct NoMeasuringMemory {};
template <class Codec>
using MeasuringMemoryOf = std::conditional_t<kMeasures<Codec>, MeasuringMemory, NoMeasuringMemory>;

struct NoMeasuring {
  ARLAB_DEVICE NoMeasuring(const Team&, int, NoMeasuringMemory&) {}
  template <class Codec>
  ARLAB_DEVICE const Codec& codec_of(const Codec& codec, int) const {
    return codec;
  }
  ARLAB_DEVICE void end() const {}
};
template <class Codec, class Element>
using MeasuringOf = std::conditional_t<kMeasures<Codec>, Measuring<Codec, Element>, NoMeasuring>;

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
