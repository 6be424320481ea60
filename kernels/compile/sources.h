// The sources that GPU code is compiled from: the device headers, which the program carries, and a user's own header.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kernels/compile/compiler.h"

namespace arlab::kernels {

/// All device headers, as they were when this program was built.
std::span<const Header> embedded_headers();

/// SHA-256 over their names and texts. It stands for the kernels' version in every key of cached code and results.
const std::string& embedded_headers_hash();

/// A user's header and what it includes from files beside it or in `folders`: the header first, under its file name. Others stand
/// under the name in their #include, and where that differs under their path from the header's folder as well: NVRTC looks for the one,
/// compilers of files for the other. Device headers, also where a file of that name is beside it, and those in <> are left out. Errors name the file and line of an #include that
/// cannot be followed.
Result<std::vector<Header>> read_header(const std::filesystem::path& file,
                                        std::span<const std::filesystem::path> folders = {});

/// The hash of these headers' names and texts.
std::string hash_of(std::span<const Header> headers);

}  // namespace arlab::kernels
