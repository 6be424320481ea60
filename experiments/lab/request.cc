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

const std::vector<Question>& questions() {
  static const std::vector<Question> all = {
      list_question(),
      encode_question(),
      decode_question(),
      reduce_question(),
      schedule_question(),
      simulate_question(),
      topology_show_question(),
      topology_compare_question(),
      topology_import_question(),
      select_question(),
      vectors_question(),
      check_codec_question(),
      conform_question(),
      judge_question(),
      bench_question(),
      study_question(),
      sweep_question(),
      model_perplexity_question(),
      model_layers_question(),
      model_assign_question(),
      model_time_question(),
      model_validate_question(),
      report_question(),
      new_codec_question(),
  };
  return all;
}

const Question& question_named(const std::string& name) {
  const auto found = std::ranges::find(questions(), name, &Question::name);
  if (found == questions().end()) fail("there is no question {}", quote(name));
  return *found;
}

}  // namespace arlab::lab
