// Counts that 64 bits do not hold.
#pragma once

namespace arlab {

/// Bytes or elements of all messages of all ranks: 65,536 ranks that send each other 2^40 elements
/// make 2^72 of them.
// NOLINTNEXTLINE(modernize-use-using): keeps __extension__
__extension__ typedef unsigned __int128 WideCount;

}  // namespace arlab
