// Memory of emulated GPUs that other processes can open, as hipIpc* does it for real ones:
// anonymous files in memory (memfd). Nothing is left behind when a process dies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace arlab::emulator {

/// Names memory of some process; plain data, to be sent to another one on the same machine.
struct SharedHandle {
  std::uint64_t magic;
  std::int64_t process;
  std::int64_t file;    ///< descriptor in that process
  std::uint64_t bytes;  ///< as allocated
};

/// Zeros, aligned to 256 bytes, with a page that faults before and one behind the end (of `bytes`,
/// rounded up to 256). Null when there is no memory.
void* allocate_shared(std::size_t bytes);

/// False when the pointer is not from allocate_shared().
bool free_shared(void* pointer);

/// False when the pointer is not from allocate_shared().
bool export_shared(void* pointer, SharedHandle& handle);

/// Memory of another process. Null when that process, or the memory, is gone, or it is this one.
void* open_shared(const SharedHandle& handle);

/// False when the pointer is not from open_shared().
bool close_shared(void* pointer);

/// Whether any of both is there.
bool has_shared_memory();

/// Whether memory of other processes is open here, whose writes may come at any time.
bool works_with_other_processes();

}  // namespace arlab::emulator
