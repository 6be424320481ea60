#include "reference/toml.h"

#include <algorithm>
#include <string>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab {
namespace {

/// Returns the text after the string that begins with a quote at `at`: strings may hold anything.
std::size_t after_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string_view three = quote == '"' ? "\"\"\"" : "\'\'\'";
  const bool long_one = text.substr(at).starts_with(three);
  for (at += long_one ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (!long_one && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else if (long_one && text.substr(at).starts_with(three)) {
      // Up to two quotes at its end are its own.
      return std::min(text.find_first_not_of(quote, at), text.size());
    }
  }
  return text.size();
}

/// The parser and the tables that it makes call themselves once per part of a key, and once per value in another, so that many
/// thousands would end the program.
void require_shallow(std::string_view text, std::string_view origin) {
  constexpr std::size_t kMostDots = 16;
  constexpr std::size_t kMostDepth = 32;
  std::size_t dots = 0;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = after_string(text, at);
      continue;
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size() - 1);
    if (c == '.') ++dots;
    if (std::string_view("=,[]{}\n#").find(c) != std::string_view::npos) dots = 0;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (dots > kMostDots || depth > kMostDepth) {
      fail("{}: line {}: {}", origin,
           1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
           dots > kMostDots
               ? fmt::format("a key of too many parts: allowed are {}", kMostDots + 1)
               : fmt::format("brackets in too many others: allowed are {}", kMostDepth));
    }
    ++at;
  }
}

}  // namespace

toml::table parse_toml(std::string_view text, std::string_view origin) {
  require_shallow(text, origin);
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    fail("{}: line {}, column {}: {}", origin, error.source().begin.line,
         error.source().begin.column, printable(std::string(error.description())));
  }
}

}  // namespace arlab
