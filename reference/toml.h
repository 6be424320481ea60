// The one place where TOML is parsed: other calls of toml::parse are found by tests/experiments/test_readers.py.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace arlab {

/// Throws InvalidInput with line and column; also for keys of more than 17 parts, and values in more than 32 others: the parser,
/// and what it makes, call themselves for each. `origin` names the text in messages.
toml::table parse_toml(std::string_view text, std::string_view origin);

}  // namespace arlab
