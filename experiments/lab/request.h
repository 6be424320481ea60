// Requests as JSON.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "experiments/lab/result.h"

namespace arlab::lab {

/// All that is set, by the names of the fields in alphabetical order: what a result depends on, as the key that it is kept
/// under. `without` names fields on which no result depends, such as the number of threads.
Json canonical_json(const std::vector<BoundField>& fields,
                    std::initializer_list<std::string_view> without = {});

/// Sets what canonical_json() has said.
void set_fields(const std::vector<BoundField>& fields, const Json& values);

}  // namespace arlab::lab
