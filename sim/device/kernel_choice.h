// Which of its own kernels arlab runs a plan with, where a machine's file describes them: what
// kernels/runtime/select.cc says of a communicator without Lamport slots. With them, which is the
// default on CUDA, small tensors of 16-bit elements take kernels that this model does not know. sim
// knows nothing of kernels, so tests/experiments/kernel_choice_test.cc compares the two.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/device/device.h"
#include "sim/plan.h"

namespace arlab {

enum class OwnKernel : std::uint8_t {
  rounds,     ///< exchanges with flags; whatever has no kernel of another kind
  small,      ///< one tile per block
  sentinels,  ///< wires that need no flags
};

/// What kernels know of a codec. An abstract codec is taken as one that they were made for.
struct CodecInKernels {
  bool is_tuned = false;    ///< works on several tiles at once
  bool pads_tiles = false;  ///< the wire of a tile that ends early is that of a whole one
  bool has_spikes = false;
  bool converts_fp8 = false;
};
CodecInKernels codec_in_kernels(std::string_view codec, DType dtype);

/// Wire bytes of a tile, a multiple of 16.
std::uint64_t tile_bytes_of(const Plan& plan, std::uint64_t tile_elements);

/// `device` has Device::blocks. Without the section of a kernel it has no such kernel.
OwnKernel own_kernel_of(const Device& device, const Plan& plan);

}  // namespace arlab
