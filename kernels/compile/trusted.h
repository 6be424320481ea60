// Whether somebody else could have put a file where it is.
#pragma once

#include <filesystem>

#include "kernels/runtime/status.h"

namespace arlab::kernels {

/// The file or folder, with links followed, and every folder above it belong to this user or root, and nobody else may write there:
/// also not where the sticky bit keeps others' files (/tmp). The error names the first one that does not fit.
Status require_trusted(const std::filesystem::path& path);

}  // namespace arlab::kernels
