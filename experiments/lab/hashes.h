// Hashes of files and lines, for what is written down about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "reference/tensors/sha256.h"

namespace arlab::lab {

/// 64 bits that tell an accident: another version of a file, a damaged line. Quick; no protection against an attacker.
std::uint64_t quick_hash(std::span<const std::byte> bytes);
std::uint64_t quick_hash(std::string_view text);

/// Returns the hash of a whole file, as 16 hexadecimal digits.
std::string quick_hash_of_file(const std::filesystem::path& path);

/// The file that this code was loaded from: the program, or the Python package's library.
std::string program_file();

}  // namespace arlab::lab
