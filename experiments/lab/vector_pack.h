// The vector pack: vectors of many codecs, their layouts, and those of all-reduces, as one folder for who writes a kernel.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/lab/result.h"

namespace arlab::lab {

/// Takes a file of the pack: its name, in which / is a folder, and what it holds.
using TakeFile = std::function<void(const std::string& name, std::span<const std::byte> bytes)>;

/// Makes a pack, file by file, the manifest and its sum last; it depends on its codecs and on this program only. Returns what the
/// manifest says. Throws InvalidInput for a codec or a dtype that is not there.
Json make_vector_pack(const std::vector<std::string>& codecs, const std::string& dtype,
                      const TakeFile& take);

/// The codecs of a pack that names none: all that are listed, those that have golden vectors, and those of other people's kernels.
std::vector<std::string> codecs_of_pack();

/// Why a folder is no whole pack of this program's; empty if it is. Throws InvalidInput where there is no pack.
std::string difference_of_vector_pack(const std::string& folder);

}  // namespace arlab::lab
