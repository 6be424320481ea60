// Every combination of what lists name: rows of a table, points of a grid.
#pragma once

#include <tuple>
#include <utility>
#include <vector>

namespace arlab::lab {

/// An element of each list, in every combination; those of the last list follow each other.
template <class First, class... Others>
auto points_of(const First& first, const Others&... others) {
  std::vector<std::tuple<typename First::value_type, typename Others::value_type...>> points;
  for (const auto& each : first) {
    if constexpr (sizeof...(others) == 0) {
      points.emplace_back(each);
    } else {
      for (auto& more : points_of(others...)) {
        points.push_back(std::tuple_cat(std::tuple(each), std::move(more)));
      }
    }
  }
  return points;
}

}  // namespace arlab::lab
