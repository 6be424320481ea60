// The one exception type for bad input.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace arlab {

/// What a caller passed is wrong. what() is one line: what was wrong, where, what is allowed.
/// The command line prints it and exits with code 2.
class InvalidInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws InvalidInput with a formatted one-line message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidInput(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace arlab
