#include "experiments/lab/request.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/questions.h"
#include "reference/error.h"

namespace arlab::lab {

Json canonical_json(const std::vector<BoundField>& fields,
                    std::initializer_list<std::string_view> without) {
  std::map<std::string, Json> sorted;
  for (const BoundField& bound : fields) {
    const std::string& name = bound.field.name;
    const Json value = Cell(bound.get());
    if (std::ranges::find(without, name) != without.end() || value.is_null() || value == false) {
      continue;
    }
    sorted[name] = value;
  }
  return sorted;
}

void set_fields(const std::vector<BoundField>& fields, const Json& values) {
  for (const auto& [name, value] : values.items()) {
    const BoundField* const bound = find(fields, name);
    if (bound == nullptr) fail("there is no field {}", quote(name));
    bound->set(value.is_boolean()           ? FieldValue(value.get<bool>())
               : value.is_number_unsigned() ? FieldValue(value.get<std::uint64_t>())
               : value.is_number()          ? FieldValue(value.get<double>())
               : value.is_string()          ? FieldValue(value.get<std::string>())
                                            : FieldValue(value.get<std::vector<std::string>>()),
               name);
  }
}

const std::vector<Question>& questions() {
#define ARLAB_MAKE(name) name##_question(),
  static const std::vector<Question> all = {ARLAB_QUESTIONS(ARLAB_MAKE)};
#undef ARLAB_MAKE
  return all;
}

const Question& question_named(const std::string& name) {
  const auto found = std::ranges::find(questions(), name, &Question::name);
  if (found == questions().end()) fail("there is no question {}", quote(name));
  return *found;
}

}  // namespace arlab::lab
