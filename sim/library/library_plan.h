// The library's collectives as plans: what its rings, its NVLS and its sends and receives ask of
// links and memories. What they cost besides: device/library_kernel.h.
//
//   ring      S steps, of which each passes one share of n on; then what remains in local memory:
//             the last share of an all-reduce is copied (2 passes), that of a reduce-scatter is
//             added to the rank's own (3), an all-gather also copies the rank's own (4)
//   NVLS      every rank has the switch add its share, chunk by chunk (LibraryNvls::chunk_bytes), and
//             spreads the sum of one part while the next one is added
//   exchange  all shares at once; the rank's own is copied
//
// nvls is no algorithm of reference/, which has its bits as a sum (reference/collectives/named.h).
#pragma once

#include <string_view>

#include "sim/simulator.h"

namespace arlab {

/// All-reduce through a switch that adds and spreads. It can be simulated, not run: `write` throws
/// InvalidInput.
const Algorithm& nvls_algorithm();

/// nvls_algorithm(), or as find_algorithm().
const Algorithm& find_simulated_algorithm(std::string_view name);

/// Throws InvalidInput where the machine's file says nothing of a library.
void require_library(const Topology& topology);

/// Whether libraries have it: ring and nvls, all-reduces; all_gather, reduce_scatter, all_to_all.
bool library_runs(const Algorithm& algorithm);

/// The all-reduce that NCCL takes for `bytes` of a rank: ring or nvls, across servers also tree, of
/// RCCL, too.
const Algorithm& library_all_reduce(const Topology& topology, Rank world_size, std::uint64_t bytes);

/// The plan of what the library runs, of an algorithm of library_runs(). `folded`: one rank stands for
/// all. Throws InvalidInput when the machine cannot do it.
Plan library_plan(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
                  DType dtype, const Topology& topology, bool folded);

/// Throws InvalidInput for a plan with a codec that computes: a library sends values as they are.
void require_plain(const Plan& plan);

/// Has the library run a plan as its schedule is written, as RCCL runs MSCCL's programs. Throws
/// InvalidInput where it runs none.
void run_as_program(Plan& plan, const Topology& topology);

/// The same of ranks of several servers (sim/library/servers.h): of ring, tree, nvls, all_gather,
/// reduce_scatter and all_to_all.
Plan library_plan_across(const Algorithm& algorithm, const ScheduleRequest& request,
                         const Codecs& codecs, DType dtype, const Topology& topology);

/// nvls as a kernel or (`library`) NCCL runs it. Throws InvalidInput when the switch does not add, or
/// the codec is one that it cannot add.
Plan nvls_plan(const ScheduleRequest& request, const Codecs& codecs, DType dtype,
               const Topology& topology, bool folded, bool library);

}  // namespace arlab
