// A parallel loop over independent pieces of work.
#pragma once

#include <cstddef>
#include <functional>

namespace arlab {

/// Threads that the machine runs at once; at least 1.
unsigned hardware_threads();

/// Calls body(worker, index) for every index in [0, count), each exactly once, on `threads` threads
/// (0: hardware_threads()), or fewer where the system has no more. `worker` < threads tells which
/// thread it is, for scratch memory. The first exception stops the loop and is thrown to the
/// caller. Results must not depend on the order.
void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(unsigned worker, std::size_t index)>& body);

}  // namespace arlab
