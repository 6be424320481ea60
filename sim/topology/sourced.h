// Numbers that say where they come from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "reference/collectives/schedule.h"

namespace arlab {

/// Where a number comes from. `published` means that it stands in the cited text; `fitted` that it
/// was chosen so that a model meets the cited cells.
enum class Source : std::uint8_t { datasheet, measured, fitted, published, assumed };
inline constexpr Source kSources[] = {Source::datasheet, Source::measured, Source::fitted,
                                      Source::published, Source::assumed};
std::string_view name_of(Source source);

template <class T>
struct Sourced {
  T value = {};
  Source source = Source::assumed;
  std::string note;  ///< which datasheet, machine and date, cells, or why
  double low = 0;    ///< 90 % interval, where the file declares one; else 0 and 0
  double high = 0;
  bool has_interval() const { return high > 0; }
  bool operator==(const Sourced&) const = default;
};
using Quantity = Sourced<double>;
using Count = Sourced<Rank>;

}  // namespace arlab
