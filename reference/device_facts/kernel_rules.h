// Rules that choose a call's kernel on GPUs, as plain data without device code: the kernels add their launch functions to the
// names here (kernels/runtime/select.cc), and the simulator asks the same rules for the machines that it knows.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "reference/codecs/anybit.h"
#include "reference/codecs/codec_info.h"
#include "reference/device_facts/two_passes.h"
#include "reference/dtype.h"

namespace arlab {

/// The commit since which no change has made kernels faster or slower: what was measured of it holds.
inline constexpr std::string_view kKernelsSince = "58fb2260";

/// Blocks of a kernel on one of NVIDIA's multiprocessors.
inline constexpr int kKernelBlocks = 4;
/// Whether kernels need not measure a format's groups first; what spikes and transforms exchange, they exchange within one wave.
constexpr bool is_group_of_a_kernel(const AnyBitFormat& format) {
  const bool within_wave = format.hadamard || format.metadata != AnyBitFormat::Metadata::scales;
  return is_group_of_a_tile(format.group) && (!within_wave || is_group_of_lanes(format.group));
}
/// Most wire bytes of a tile for which the sentinel slots of two_shot have room.
inline constexpr std::size_t kTwoShotSentinelBytes = 2176;
/// Most ranks of two_shot that have sentinel slots; of one_shot it is two ranks.
inline constexpr unsigned kTwoShotSentinelRanks = 4;

/// Abilities of kernels with a codec and a dtype.
struct CodecInKernels {
  bool is_tuned = false;           ///< takes part in kernels that work on several tiles at once
  bool pads_tiles = false;         ///< the wire of a tile that ends early is that of a whole one
  bool programs_only = false;      ///< no kernel of an algorithm has it
  bool has_message_scale = false;  ///< which kernels find before they encode anything
  bool one_shot_sentinel = false;  ///< there is one_shot with sentinel slots
  bool two_shot_sentinel = false;  ///< likewise two_shot
  /// On a multiprocessor, of kernels with Lamport slots, on NVIDIA; other kernels have kKernelBlocks there.
  int lamport_blocks = 0;
  std::size_t most_sentinel_tile_bytes = 0;  ///< room in their slots
};

/// Returns the abilities of kernels with the codec of this name; an abstract one is taken as one that kernels were made for.
CodecInKernels codec_in_kernels(std::string_view codec, DType dtype);

/// Wire bytes of a tile, a multiple of 16.
std::size_t kernel_tile_bytes(std::string_view codec, DType dtype,
                              std::size_t elements = kKernelTileElements);

/// A call of an algorithm with its default options, with a codec that encodes tile by tile.
struct KernelCall {
  CodecInKernels codec = {};
  int ranks = 0;
  bool has_sentinels = false;      ///< there are some for the algorithm
  bool has_lamport = false;        ///< there are Lamport slots
  std::size_t tiles = 0;           ///< tiles of the longest chunk
  std::size_t blocks = 0;          ///< at most
  std::size_t lamport_blocks = 0;  ///< likewise, of kernels with Lamport slots
  std::size_t tile_bytes = 0;      ///< on the wire
  bool all_tiles_whole = false;    ///< no chunk ends inside a tile
};

struct KernelRule {
  std::string_view algorithm;
  std::string_view kernel;
  int tiles_of_each;  ///< wires of a chunk's tile that travel in one exchange, in a slot
  bool (*is_for)(const KernelCall&);
  std::string_view when;         ///< condition of is_for() in words
  std::string_view measured_in;  ///< a file of experiments/measured
  bool takes_message_scales =
      false;  ///< the kernel finds scales of messages, where a codec has them
};
std::span<const KernelRule> kernel_rules();

/// The first rule of an algorithm that is for the call, or null: such a call, as one of other
/// algorithms and options, is run as a program (kernels/schedule/run.h).
const KernelRule* find_kernel_rule(std::string_view algorithm, const KernelCall& call);

}  // namespace arlab
