// How far long work is, said on stderr or to whoever listens (program.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace arlab::cli {

/// A bar on a terminal; elsewhere a line per tenth, for logs. Both with the rate and the time that is left.
class Progress {
 public:
  explicit Progress(std::size_t total);

  void show(std::size_t done);

  /// A line that stays.
  void say(const std::string& text) const;

 private:
  std::string speed(std::size_t done) const;

  static constexpr std::size_t kUnset = SIZE_MAX;
  std::size_t total_;
  bool terminal_;
  std::size_t last_ = 0;        // percent
  std::size_t first_ = kUnset;  // what was done at the start
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace arlab::cli
