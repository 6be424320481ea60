// Names of codecs, part by part: "had-int4-g32" is had-, int, digits, -g, digits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace arlab {

/// Takes the text off the front if it is there.
inline bool take(std::string_view& from, std::string_view text) {
  if (!from.starts_with(text)) return false;
  from.remove_prefix(text.size());
  return true;
}

/// The digits at the front, all of them; maybe none.
inline std::string_view take_digits(std::string_view& from) {
  const std::string_view digits =
      from.substr(0, std::min(from.find_first_not_of("0123456789"), from.size()));
  from.remove_prefix(digits.size());
  return digits;
}

/// The number that digits are; nothing where there are none, a zero in front, or more than 9.
inline std::optional<std::size_t> number_of_digits(std::string_view digits) {
  if (digits.empty() || digits.front() == '0' || digits.size() > 9) return std::nullopt;
  std::size_t number = 0;
  for (const char digit : digits) number = 10 * number + static_cast<std::size_t>(digit - '0');
  return number;
}

}  // namespace arlab
