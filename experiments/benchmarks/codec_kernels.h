// Parts of codecs, timed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace arlab {

/// `run` reads 4 bytes per element from `in` and writes at most 4 per element to `out`; elements
/// are a multiple of 4096.
///
/// Names that begin with "bound/" do only what the definition forces on every implementation with
/// these vectors: conversions, additions, multiplications and roundings of every element (or
/// of every value that a block can have, where those are fewer), loads and stores. There are no
/// reductions across lanes, no scales (but for LogFMT, whose values come from them), no bytes in
/// order, no planes. A codec cannot be faster. Two kinds bound less: ".../looked-up" has the byte
/// shuffles of the fastest way that is known, and of the kernels in memory those named for a number
/// of bits only move the bytes that a codec moves.
struct CodecKernel {
  const char* name;
  void (*run)(const std::uint8_t* in, std::uint8_t* out, std::size_t elements);
  bool in_memory = false;  // reads and writes at most 2 bytes per element, far from any cache
};

/// For the widest vectors of this processor.
std::vector<CodecKernel> codec_kernels();

}  // namespace arlab
