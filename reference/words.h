// Corrections of typed words (names that are nearly right, and sizes), and counts in words.
#pragma once

#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/error.h"

namespace arlab {

/// "1 element", "2 elements".
inline std::string counted(auto count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// How many letters have to be left out, put in or replaced to make the one out of the other.
std::size_t edits_between(std::string_view a, std::string_view b);

/// "did you mean 'two_shot'? ": the known names that a misspelt word is nearest to, before a message goes on to say all that
/// are known; nothing where none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

/// A whole number, also with K, M or G, or KiB, MiB or GiB, for 2^10, 2^20 and 2^30, or with KB, MB or GB for 10^3, 10^6 and
/// 10^9; in capitals or not. Nothing for other text, and for what 64 bits do not hold.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// The member of a list whose name_of() this is. Throws InvalidInput, which says what `called` is and what is allowed.
template <class Enum>
Enum member_named(const std::string& name, std::string_view called, std::span<const Enum> allowed) {
  std::vector<std::string_view> names;
  for (const Enum each : allowed) {
    if (name_of(each) == name) return each;
    names.push_back(name_of(each));
  }
  const std::string meant =
      did_you_mean(name, std::vector<std::string>(names.begin(), names.end()));
  fail("{} is {}: {}allowed are {}", called, quote(name), meant, fmt::join(names, ", "));
}

}  // namespace arlab
