#include "experiments/lab/request.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/result.h"

namespace arlab::lab {

nlohmann::ordered_json canonical_json(const std::vector<BoundField>& fields,
                                      std::initializer_list<std::string_view> without) {
  std::map<std::string, nlohmann::ordered_json> sorted;
  for (const BoundField& bound : fields) {
    const std::string& name = bound.field.name;
    const nlohmann::ordered_json value = Cell(bound.get());
    if (std::ranges::find(without, name) != without.end() || value.is_null() || value == false) {
      continue;
    }
    sorted[name] = value;
  }
  return sorted;
}

}  // namespace arlab::lab
