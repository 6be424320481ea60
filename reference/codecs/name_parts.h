// Names of codecs, part by part: "had-int4-g32" is had-, int, digits, -g, digits.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>

#include "reference/error.h"
#include "reference/words.h"

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

inline float parse_number(std::string_view name, std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    fail("codec '{}': {} is no finite decimal number", name, quote(text));
  }
  return value;
}

/// A scale that is given in a name.
inline float parse_scale(std::string_view name, std::string_view text) {
  const float scale = parse_number(name, text);
  if (!(scale > 0) || !std::isfinite(1.0f / scale)) {
    fail("codec '{}': a scale must be above 2^-128", name);
  }
  return scale;
}

}  // namespace arlab
