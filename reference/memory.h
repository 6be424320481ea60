// How much memory there is, asked before much is taken: what the system has promised too much of ends
// by a signal, not by an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arlab {

/// Bytes that this process can still take: what the machine has free or can free, what its cgroups
/// (v1 and v2) leave of their limits, and what the limit of its address space (ulimit -v) leaves.
/// `root`: where proc and sys are, if not in the root.
std::uint64_t available_memory(const std::string& root = {});

/// An amount as it stands in messages: "1.5 GiB", "20 MiB".
std::string memory_text(std::uint64_t bytes);

/// Throws InvalidInput when less is available. `what` needs it; `advice`, what would fit.
void require_memory(std::uint64_t bytes, std::string_view what, std::string_view advice = {});

/// The same for what needs `fixed` bytes and `per_unit` for each unit of `option`: the message says
/// how many would fit.
void require_memory_for(std::uint64_t units, std::string_view option, double fixed, double per_unit,
                        std::string_view what);

}  // namespace arlab
