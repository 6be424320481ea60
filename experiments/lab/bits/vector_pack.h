// The vector pack: vectors of many codecs, their layouts, and those of all-reduces, as one folder for who writes a kernel.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/lab/result.h"

namespace arlab::lab {

struct VectorInput {
  const char* name;
  const char* synthetic;
  std::size_t elements;
  std::size_t elements_in_pack;  ///< fewer, so that all codecs fit into one folder
};

// Ordinary values; every bit pattern; what breaks kernels; lengths that are not whole atoms or
// blocks.
inline constexpr VectorInput kVectorInputs[] = {
    {"gaussian", "gaussian:sigma=1,seed=1", 65536, 8192},
    {"gaussian_large", "gaussian:sigma=1000,seed=2", 8192, 4096},
    {"gaussian_small", "gaussian:sigma=1e-4,seed=3", 8192, 4096},
    {"outliers", "outliers:seed=4", 65536, 8192},
    {"sweep", "sweep:seed=5", 65536, 8192},
    {"adversarial", "adversarial:seed=6", 65536, 8192},
    {"patterns", "patterns", 65536, 65536},
    {"tail_1", "gaussian:sigma=1,seed=7", 1, 1},
    {"tail_31", "gaussian:sigma=1,seed=8", 31, 31},
    {"tail_2049", "adversarial:seed=9", 2049, 2049},
    {"tail_5000", "gaussian:sigma=1,seed=10", 5000, 5000},
};

/// Takes a file of the pack: its name, in which / is a folder, and what it holds.
using TakeFile = std::function<void(const std::string& name, std::span<const std::byte> bytes)>;

/// Makes a pack, file by file, the manifest and its sum last; it depends on its codecs and on this program only. Returns what the
/// manifest says. Throws InvalidInput for a codec or a dtype that is not there.
Json make_vector_pack(const std::vector<std::string>& codecs, const std::string& dtype,
                      const TakeFile& take);

/// The codecs of a pack that names none: all that are listed, those that have golden vectors, and those of other people's kernels.
std::vector<std::string> codecs_of_pack();

/// Returns why a folder is no whole pack of this program's; empty if it is. Throws InvalidInput where there is no pack.
std::string difference_of_vector_pack(const std::string& folder);

}  // namespace arlab::lab
