// Sizes as people write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/field.h"

namespace arlab::lab {

/// Sizes of tensors, in bytes: a list, or as nccl-tests have them from one to another by a factor.
struct Sizes {
  std::vector<std::string> bytes;
  std::string least;
  std::string most;
  std::optional<std::uint32_t> factor;

  bool given() const { return !bytes.empty() || !least.empty(); }

  /// Ascending. "32K..1G" is 32K and its doubles up to 1G. Throws InvalidInput, also for what is not
  /// a whole number of elements.
  std::vector<std::uint64_t> list(std::size_t element_bytes) const;
};
/// `what` the bytes are of, and which are taken when none are named.
std::vector<BoundField> fields(Sizes& sizes, const std::string& what, const std::string& otherwise);

/// A count with an optional binary suffix: 4096, 64K, 1MiB, 2G. Throws InvalidInput naming `what`.
std::uint64_t parse_count(const std::string& text, const std::string& what);

/// The integers of a list as people write it: 0,2,4-7 are 0, 2, 4, 5, 6, 7, in the order of the text. Throws InvalidInput naming
/// `what` for other text and for what is not from `low` to `high`.
std::vector<std::uint32_t> integers_in(const std::string& list, const std::string& what,
                                       std::uint32_t low, std::uint32_t high);

}  // namespace arlab::lab
