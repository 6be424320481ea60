#include "reference/error.h"

#include <algorithm>

namespace arlab {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Whether the byte goes on with a character of several bytes, in UTF-8.
bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

std::string one_line(std::string_view message) {
  constexpr std::string_view kGap = " ... ";
  constexpr std::size_t kTail = InvalidInput::kMostCharacters / 3;  // the allowed values stand last
  std::string line;
  for (const char c : message) {
    line +=
        is_control(c) ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  if (line.size() <= InvalidInput::kMostCharacters) return line;
  std::size_t head = InvalidInput::kMostCharacters - kTail - kGap.size();
  std::size_t tail = line.size() - kTail;
  while (head > 0 && is_inside_character(line[head])) --head;
  while (tail < line.size() && is_inside_character(line[tail])) ++tail;
  return line.substr(0, head).append(kGap).append(line, tail);
}

}  // namespace

InvalidInput::InvalidInput(std::string_view message) : std::runtime_error(one_line(message)) {}

std::string quote(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto code = static_cast<unsigned char>(c);
    quoted += code >= 0x20 && code < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", code);
  }
  return quoted + (text.size() > kMost ? "'..." : "'");
}

void require_plain_name(std::string_view what, std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  if (name.empty() || name.size() > 60 || !std::all_of(name.begin(), name.end(), fits)) {
    fail("{} {}: allowed in a name are a to z, 0 to 9, and _ - . (1 to 60 of them)", what,
         quote(name));
  }
  if (name == "all") fail("{} 'all': 'all' stands for all of them; allowed is another name", what);
  if (name.front() == '-') {
    fail("{} {}: a name that begins with a hyphen is an option to a command line", what,
         quote(name));
  }
}

}  // namespace arlab
