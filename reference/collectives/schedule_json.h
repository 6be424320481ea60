// A Schedule as JSON, so that an algorithm can be read by a person and written without C++.
// The format is described by schedule.schema.json beside this file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reference/collectives/schedule.h"

namespace arlab {

inline constexpr const char* kScheduleSchema = "arlab.schedule/1";

nlohmann::ordered_json schedule_to_json(const Schedule& schedule);

/// Throws InvalidInput that names the place (`ops[3].rank`) and what is allowed there. The result has
/// the right types; whether it is a correct all-reduce is for check() to say.
Schedule schedule_from_json(const nlohmann::ordered_json& json);

}  // namespace arlab
