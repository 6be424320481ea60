// The one exception type for bad input.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace arlab {

/// An argument of the caller is wrong. what() is one line: what was wrong, where, what is allowed. The command line prints it
/// and exits with code 2.
class InvalidInput : public std::runtime_error {
 public:
  /// Whatever the message quotes, it stays a line that a terminal can show: control characters
  /// become \xNN, and the middle of a message of more than kMostCharacters is left out.
  explicit InvalidInput(std::string_view message);
  static constexpr std::size_t kMostCharacters = 900;
};

/// Wrong input that a function of the caller's has found: more than its text is the caller's to have,
/// so who makes values of errors lets it pass.
class RaisedByCaller : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// Throws InvalidInput with a formatted one-line message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidInput(fmt::format(format, std::forward<Args>(args)...));
}

/// Text from a user or a file as it may stand in a one-line message: in single quotes, other
/// characters than printable ASCII as \xNN, shortened to 60 characters.
std::string quote(std::string_view text);

/// Throws InvalidInput unless a name, of a `what`, can stand in lists, tables and names of files.
void require_plain_name(std::string_view what, std::string_view name);

}  // namespace arlab
