// SHA-256 (FIPS 180-4) as 64 hexadecimal digits: whether a file is the one that is meant.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace arlab {

std::string sha256(std::span<const std::byte> bytes);

/// Returns the SHA-256 of a whole file. Throws InvalidInput for what cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace arlab
