#include "reference/error.h"

namespace arlab {

std::string quote(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto code = static_cast<unsigned char>(c);
    quoted += code >= 0x20 && code < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", code);
  }
  return quoted + (text.size() > kMost ? "'..." : "'");
}

}  // namespace arlab
