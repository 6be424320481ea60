// Progress of long work, on stderr or to a listener.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace arlab::lab {

/// Tells the user how far the work is. Whether anybody hears it makes no difference to the work.
void write_progress(const std::string& text);

/// While it exists, it hears what this thread says. An exception of it ends the work. Not to be nested.
class Listener {
 public:
  explicit Listener(std::function<void(std::string_view)> hear);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  std::function<void(std::string_view)> hear_;
};

/// A bar on a terminal; elsewhere a line per tenth, for logs. Both with the rate and the time that is left.
class Progress {
 public:
  explicit Progress(std::size_t total, std::string what = "points");

  void show(std::size_t done);

  /// A line that stays.
  void say(const std::string& text) const;

 private:
  std::string speed(std::size_t done) const;

  static constexpr std::size_t kUnset = SIZE_MAX;
  std::size_t total_;
  std::string what_;
  bool terminal_;
  std::size_t last_ = 0;        // percent
  std::size_t first_ = kUnset;  // done at the start
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace arlab::lab
