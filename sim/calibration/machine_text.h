// Machine files with other numbers in them, comments and notes kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/topology/sourced.h"
#include "sim/topology/topology.h"

namespace arlab {

/// The text of a machine that the library carries, without what it takes from its base, or of a file
/// that ends in .toml. Throws InvalidInput when there is none.
std::string machine_text(const std::string& name_or_path);

/// A machine that the library carries, the one that it builds on, the one that that builds on, ...
std::vector<std::string> with_bases(std::string name);

/// Whether the text has a line of its own for this quantity.
bool has_quantity(std::string_view text, std::string_view key);

/// The text with one quantity replaced: key link.bandwidth_gb_per_s is the line that begins with
/// bandwidth_gb_per_s in section [link], and `value =` in it. `origin` names the text in messages.
/// Throws InvalidInput when there is no such line.
std::string with_quantity(std::string_view text, std::string_view origin, std::string_view key,
                          double value);

/// The same, and says where the number comes from.
std::string with_quantity(std::string_view text, std::string_view origin, std::string_view key,
                          const Quantity& quantity);

/// The text with this, rounded, as its section [uncertainty].
std::string with_uncertainty(std::string_view text, Uncertainty uncertainty);

}  // namespace arlab
