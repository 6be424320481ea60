#include "experiments/lab/hashes.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

/// MurmurHash3's last step: every bit of the input changes half of the bits of the result.
std::uint64_t mixed(std::uint64_t h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u;
  return h ^ (h >> 33);
}

/// `hash` after more bytes; all but the last are whole words.
std::uint64_t with_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t some = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), some);
    hash = (std::rotl(hash, 29) ^ word) * 0x9E3779B97F4A7C15u;
    bytes = bytes.subspan(some);
  }
  return hash;
}

}  // namespace

std::uint64_t quick_hash(std::span<const std::byte> bytes) {
  return mixed(with_bytes(mixed(bytes.size()), bytes));
}

std::uint64_t quick_hash(std::string_view text) {
  return quick_hash(std::as_bytes(std::span(text)));
}

std::string quick_hash_of_file(const std::filesystem::path& path) {
  InputFile file(path);
  std::uint64_t hash = mixed(file.remaining());
  std::vector<std::byte> part(std::size_t{1} << 16);
  while (file.remaining() > 0) {
    part.resize(std::min(part.size(), file.remaining()));
    file.read(std::span<std::byte>(part));
    hash = with_bytes(hash, part);
  }
  return fmt::format("{:016x}", mixed(hash));
}

std::string program_file() {
  Dl_info library = {};
  // A program is not asked for the name that it was called by, but for what runs.
  const bool found = ::dladdr(reinterpret_cast<const void*>(&program_file), &library) != 0;
  const std::string name = found && library.dli_fname != nullptr ? library.dli_fname : "";
  return name.ends_with(".so") ? name : "/proc/self/exe";
}

}  // namespace arlab::lab
