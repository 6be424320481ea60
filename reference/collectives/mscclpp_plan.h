// Execution plans of MSCCL++ (JSON of its executor), as a Schedule.
//
// A plan says what every thread block of every GPU does: copies, puts and gets through channels to
// other GPUs' memory, sums, packets with flags, sums in the switch, and what orders them. A signal
// and its wait, a semaphore, a barrier order thread blocks; `nop` orders the threads of a block; a
// packet, and a relaxed signal, order what is written next, but show nothing but the packet.
// block_program.h checks that this is enough, also for the kernels before and after.
//
// The loop of a pipeline is run twice over each chunk. That scratch is free again when a longer tensor
// comes back to it (reuse_resources) is not checked. Sums in the switch are sums on the GPU that asks
// for them, in the order of ranks: --sum add=exact has the switch's bits.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reference/collectives/schedule_json.h"

namespace arlab {

/// The schedule of a plan, for tensors of any size. Throws InvalidInput that names the place (gpu 0,
/// tb 1, op 2) and what is allowed there: for operations, collectives and versions that are not read,
/// channels and buffers that are not there, blocks that wait for each other, operations that race
/// (both are named). Whether the result is the collective that it says is for check() to say.
WrittenSchedule schedule_from_plan(const nlohmann::json& plan);

}  // namespace arlab
