// Corrections of typed words (names that are nearly right, and sizes), and counts in words.
#pragma once

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

/// "did you mean 'two_shot'?": the known names that a misspelt word is nearest to; nothing where none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

/// "a, b, c"; if that is long, only names beside the word in alphabetical order: "b, c, ... (40 in all)".
std::string names_beside(std::string_view word, std::vector<std::string> names);

/// Names of which a word should be one.
struct KnownNames {
  std::vector<std::string> names;
  std::string_view are = "known are";
  std::string_view all = {};                   ///< where all of them are, or what else is allowed
  std::vector<std::string_view> endings = {};  ///< files with these may stand in place of a name
};

/// The rest of a message about an unknown word: did_you_mean(), or else "known are " and names_beside().
std::string instead_of(std::string_view word, const KnownNames& known);

/// A whole number, also with K, M or G, or KiB, MiB or GiB, for 2^10, 2^20 and 2^30, or with KB, MB or GB for 10^3, 10^6 and
/// 10^9; in capitals or not. Nothing for other text, and for what 64 bits do not hold.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// The member of a list whose name_of() this is. Throws InvalidInput, which says what `called` is and what is allowed.
template <class Enum>
Enum member_named(const std::string& name, std::string_view called, std::span<const Enum> allowed) {
  KnownNames known{{}, "allowed are"};
  for (const Enum each : allowed) {
    if (name_of(each) == name) return each;
    known.names.emplace_back(name_of(each));
  }
  fail("{} is {}: {}", called, quote(name), instead_of(name, known));
}

}  // namespace arlab
