// The one place where JSON of files is parsed; readers with rules of their own for keys call nlohmann's parser themselves, with a
// bound on nesting. Other calls are found by tests/experiments/test_readers.py.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace arlab {

/// Whether brackets outside of texts stand in more than `most` others. The parser bears that, but copies and comparisons of
/// what it makes call themselves for each.
constexpr bool nests_deeper(std::string_view json, std::size_t most) {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

/// A discarded value for what is no JSON, and for what nests deeper than 64 levels.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  constexpr std::size_t kMostDepth = 64;
  if (nests_deeper(text, kMostDepth)) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace arlab
