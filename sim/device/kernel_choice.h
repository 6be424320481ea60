// Chooses the kernel of arlab's own that runs a plan, where a machine's file describes them: by the rules of the kernels
// (reference/device_facts/kernel_rules.h), for a communicator with Lamport slots, which is the default on CUDA.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/device/device.h"
#include "sim/plan.h"

namespace arlab {

enum class OwnKernel : std::uint8_t {
  program,    ///< exchanges with flags, phase by phase; whatever has no kernel of its own
  flags,      ///< exchanges with flags
  small,      ///< one tile per block, with Lamport slots
  sentinels,  ///< wires that need no flags
};

/// `device` has Device::blocks. Without the section of a kernel it has no such kernel.
OwnKernel own_kernel_of(const Device& device, const Plan& plan);

/// The kernel that is simulated, in words: by which protocol it waits for wires. "fused" where the machine's file describes
/// somebody's, without Device::blocks; empty of a library.
std::string_view kernel_in_words(const Device& device, const Plan& plan);

}  // namespace arlab
