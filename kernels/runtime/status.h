// Errors as values: nothing in the kernels' runtime throws or ends the program.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace arlab::kernels {

/// Fine, or one line that says what went wrong.
class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status error(std::string message) {
    Status status;
    status.message_ = std::move(message);
    return status;
  }
  /// An error in what the caller has asked for.
  static Status refusal(std::string message) {
    Status status = error(std::move(message));
    status.is_refusal_ = true;
    return status;
  }

  bool ok() const { return !message_.has_value(); }
  bool is_refusal() const { return is_refusal_; }
  /// The error's message; empty where all is fine.
  const std::string& message() const {
    static const std::string none;
    return message_ ? *message_ : none;
  }

 private:
  std::optional<std::string> message_;
  bool is_refusal_ = false;
};

/// Ends the function with what went wrong, if something did.
#define ARLAB_RETURN_IF_ERROR(...) \
  if (::arlab::kernels::Status went = (__VA_ARGS__); !went.ok()) return went

/// A value, or why there is none: ARLAB_ASSIGN_OR_RETURN(const int devices, platform.devices());
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status error) : status_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Gives a variable the value of a result, or ends the function with why there is none.
#define ARLAB_ASSIGN_OR_RETURN(variable, ...) \
  ARLAB_ASSIGN_OR_RETURN_BY(ARLAB_RESULT_OF_LINE(__LINE__), variable, __VA_ARGS__)
#define ARLAB_ASSIGN_OR_RETURN_BY(result, variable, ...) \
  auto result = (__VA_ARGS__);                           \
  if (!result.ok()) return result.status();              \
  variable = std::move(result).value()
#define ARLAB_RESULT_OF_LINE(line) ARLAB_RESULT_OF_LINE_(line)
#define ARLAB_RESULT_OF_LINE_(line) result_of_line_##line

}  // namespace arlab::kernels
