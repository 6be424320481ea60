// The text of the tables of models, which the library carries: it needs no data directory.
#pragma once

#include <string_view>

namespace arlab {

/// Returns the meanings of a config.json's keys, and what the layers of each model_type are made of.
std::string_view model_types_json();
/// Configurations of models that are known by a name.
std::string_view models_json();

}  // namespace arlab
