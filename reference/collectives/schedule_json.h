// A Schedule as JSON, so that an algorithm can be read by a person and written without C++.
// The format is described by schedule.schema.json beside this file.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "reference/collectives/schedule.h"

namespace arlab {

inline constexpr const char* kScheduleSchema = "arlab.schedule/1";

nlohmann::ordered_json schedule_to_json(const Schedule& schedule);

/// The text of that, indented by one, with the members of `more` at its end: piece by piece, since
/// as a document millions of ops would take gigabytes.
void write_schedule_json(const Schedule& schedule, const nlohmann::ordered_json& more,
                         const std::function<void(std::string_view)>& write);

/// Reads JSON text. Throws InvalidInput that names the place (`ops[3].rank`) and what is allowed
/// there: for text that is not JSON, nests deeper than a schedule does, has a key twice or an
/// unknown one, lacks one, or has a value of another type. Whether the result is correct is for
/// check() to say.
Schedule schedule_from_json(std::string_view text);

}  // namespace arlab
