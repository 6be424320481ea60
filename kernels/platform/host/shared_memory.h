// Memory of emulated GPUs that other processes can open, in the place of hipIpc* of real ones:
// anonymous files in memory (memfd), whose descriptors go from process to process. Nothing is left
// behind when a process dies.
#pragma once

#include <cstddef>

namespace arlab::emulator {

/// Zeros, aligned to 256 bytes, with a page that faults before and one behind the end (of `bytes`,
/// rounded up to 256). Null when there is no memory.
void* allocate_shared(std::size_t bytes);

/// False when the pointer is not from allocate_shared().
bool free_shared(void* pointer);

/// The descriptor of its file, which stays open as long as the memory is there. -1 when the pointer
/// is not from allocate_shared().
int file_of_shared(void* pointer);

/// Memory that another process has allocated with this size. Null when the file is anything else:
/// whatever it is, it has not been touched then. The descriptor stays the caller's.
void* open_shared(int file, std::size_t bytes);

/// False when the pointer is not from open_shared().
bool close_shared(void* pointer);

/// Whether any of both is there.
bool has_shared_memory();

/// Whether memory of other processes is open here, whose writes may come at any time.
bool works_with_other_processes();

}  // namespace arlab::emulator
