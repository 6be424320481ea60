#include "experiments/lab/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace arlab::lab {
namespace {

thread_local const std::function<void(std::string_view)>* listener = nullptr;

std::string duration_text(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.1f} h", seconds / kHour);
}

}  // namespace

void write_progress(const std::string& text) {
  if (listener != nullptr) return (*listener)(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::clearerr(stderr);
}

Listener::Listener(std::function<void(std::string_view)> hear) : hear_(std::move(hear)) {
  listener = &hear_;
}
Listener::~Listener() { listener = nullptr; }

Progress::Progress(std::size_t total, std::string what)
    : total_(total), what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

/// Nothing before something has been done.
std::string Progress::speed(std::size_t done) const {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (done <= first_ || seconds <= 0) return {};
  const double rate = static_cast<double>(done - first_) / seconds;
  if (done == total_) return fmt::format(", {:.3g} {}/s", rate, what_);
  return fmt::format(", {:.3g} {}/s, {} left", rate, what_,
                     duration_text(static_cast<double>(total_ - done) / rate));
}

void Progress::say(const std::string& text) const {
  write_progress(terminal_ ? fmt::format("\r\x1b[K{}\n", text) : fmt::format("{}\n", text));
}

void Progress::show(std::size_t done) {
  if (first_ == kUnset) first_ = done;
  const std::size_t percent = total_ == 0 ? 100 : 100 * done / total_;
  if (terminal_) {
    // The rest of a longer line is wiped out.
    write_progress(fmt::format("\r[{:<40}] {}/{} {}{}\x1b[K{}",
                               std::string(40 * percent / 100, '#'), done, total_, what_,
                               speed(done), done == total_ ? "\n" : ""));
  } else if (percent != last_ && (percent / 10 != last_ / 10 || done == total_)) {
    write_progress(fmt::format("{:3}% of {} {}{}\n", percent, total_, what_, speed(done)));
  }
  last_ = percent;
}

}  // namespace arlab::lab
