#include "kernels/platform/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace arlab::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x41524c4142495043;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// A file in memory, mapped between two pages that fault. The tensor ends where the last page ends,
/// so that the first access behind it faults.
struct Mapping {
  void* pointer;   // what callers know
  char* reserved;  // with the guard pages
  std::size_t reserved_bytes;
  std::size_t bytes;
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

/// Null, and the file closed, when it cannot be mapped.
void* map(int file, std::size_t bytes, bool own) {
  const std::size_t used = round_up(bytes, 256);
  const std::size_t mapped = round_up(used, page_size());
  const std::size_t reserved_bytes = mapped + 2 * page_size();
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  char* const begin = static_cast<char*>(reserved) + page_size();
  if (mmap(begin, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(reserved, reserved_bytes);
    close(file);
    return nullptr;
  }
  if (!own) close(file);
  void* const pointer = begin + (mapped - used);
  mappings().push_back(
      {pointer, static_cast<char*>(reserved), reserved_bytes, bytes, own ? file : -1});
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
  const int file = memfd_create("arlab-emulator", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  const std::size_t size = round_up(round_up(std::max<std::size_t>(bytes, 1), 256), page_size());
  if (ftruncate(file, static_cast<off_t>(size)) != 0) {
    close(file);
    return nullptr;
  }
  return map(file, std::max<std::size_t>(bytes, 1), true);
}

bool free_shared(void* pointer) { return unmap(pointer, true); }

bool export_shared(void* pointer, SharedHandle& handle) {
  const auto mapping = find(pointer);
  if (mapping == mappings().end() || mapping->file < 0) return false;
  handle = {kMagic, getpid(), mapping->file, mapping->bytes};
  return true;
}

void* open_shared(const SharedHandle& handle) {
  if (handle.magic != kMagic || handle.process == getpid()) return nullptr;
  const std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat status = {};
  if (fstat(file, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < handle.bytes) {
    close(file);
    return nullptr;
  }
  return map(file, handle.bytes, false);
}

bool close_shared(void* pointer) { return unmap(pointer, false); }

bool has_shared_memory() { return !mappings().empty(); }

bool works_with_other_processes() {
  return std::any_of(mappings().begin(), mappings().end(),
                     [](const Mapping& mapping) { return mapping.file < 0; });
}

}  // namespace arlab::emulator
