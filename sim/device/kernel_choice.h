// Which of its own kernels arlab runs a plan with, where a machine's file describes them: by the rules of the kernels
// (reference/codecs/kernel_rules.h), for a communicator without Lamport slots. With them, which is the
// default on CUDA, small tensors of 16-bit elements take kernels that this model does not know.
#pragma once

#include <cstdint>

#include "sim/device/device.h"
#include "sim/plan.h"

namespace arlab {

enum class OwnKernel : std::uint8_t {
  rounds,     ///< exchanges with flags; whatever has no kernel of another kind
  small,      ///< one tile per block
  sentinels,  ///< wires that need no flags
};

/// `device` has Device::blocks. Without the section of a kernel it has no such kernel.
OwnKernel own_kernel_of(const Device& device, const Plan& plan);

}  // namespace arlab
