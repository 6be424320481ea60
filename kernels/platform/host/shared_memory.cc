#include "kernels/platform/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace arlab::emulator {
namespace {

/// Nobody can take memory away from under those who have mapped it, or change that.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// A file in memory, mapped between two pages that fault. The tensor ends where the last page ends,
/// so that the first access behind it faults.
struct Mapping {
  void* pointer;   // callers' address
  char* reserved;  // with the guard pages
  std::size_t reserved_bytes;
  int file;  // -1: of another process
};

/// Never destroyed: a thread may use them while the program ends.
std::vector<Mapping>& mappings() {
  static auto& all = *new std::vector<Mapping>;
  return all;
}

std::vector<Mapping>::iterator find(void* pointer) {
  return std::find_if(mappings().begin(), mappings().end(),
                      [=](const Mapping& mapping) { return mapping.pointer == pointer; });
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// How long the file for an allocation is.
std::size_t file_size(std::size_t bytes) { return round_up(round_up(bytes, 256), page_size()); }

/// Null when it cannot be mapped.
void* map(int file, std::size_t bytes, bool own) {
  const std::size_t used = round_up(bytes, 256);
  const std::size_t mapped = file_size(bytes);
  const std::size_t reserved_bytes = mapped + 2 * page_size();
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(reserved) + page_size();
  if (mmap(begin, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(reserved, reserved_bytes);
    return nullptr;
  }
  void* const pointer = begin + (mapped - used);
  mappings().push_back({pointer, static_cast<char*>(reserved), reserved_bytes, own ? file : -1});
  return pointer;
}

bool unmap(void* pointer, bool own) {
  const auto mapping = find(pointer);
  if (mapping == mappings().end() || (mapping->file >= 0) != own) return false;
  munmap(mapping->reserved, mapping->reserved_bytes);
  if (own) close(mapping->file);
  mappings().erase(mapping);
  return true;
}

}  // namespace

void* allocate_shared(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  const int file = memfd_create("arlab-emulator", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return nullptr;
  void* const pointer = ftruncate(file, static_cast<off_t>(file_size(bytes))) == 0 &&
                                fcntl(file, F_ADD_SEALS, kSeals) == 0
                            ? map(file, bytes, true)
                            : nullptr;
  if (pointer == nullptr) close(file);
  return pointer;
}

bool free_shared(void* pointer) { return unmap(pointer, true); }

int file_of_shared(void* pointer) {
  const auto mapping = find(pointer);
  return mapping == mappings().end() ? -1 : mapping->file;
}

void* open_shared(int file, std::size_t bytes) {
  // Only files in memory have seals; one with these has the size that it will always have. There
  // may be more of them: some systems add that such files cannot be run.
  const int seals = fcntl(file, F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != file_size(bytes)) {
    return nullptr;
  }
  return map(file, bytes, false);
}

bool close_shared(void* pointer) { return unmap(pointer, false); }

bool has_shared_memory() { return !mappings().empty(); }

bool works_with_other_processes() {
  return std::any_of(mappings().begin(), mappings().end(),
                     [](const Mapping& mapping) { return mapping.file < 0; });
}

}  // namespace arlab::emulator
