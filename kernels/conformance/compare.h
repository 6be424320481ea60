// Counting bits that differ.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "kernels/conformance/conform.h"

namespace arlab::kernels {

/// Counts units of `unit` bytes that differ, and keeps the first; `describe` completes what is kept
/// of the unit of a number.
template <class Describe>
void compare(std::span<const std::byte> expected, std::span<const std::byte> got, std::size_t unit,
             const std::string& input, ConformanceRow& row, Describe&& describe) {
  for (std::size_t at = 0; at < expected.size(); at += unit) {
    if (std::equal(&expected[at], &expected[at] + unit, &got[at])) continue;
    ++row.mismatches;
    if (row.first_mismatches.size() == ConformanceRow::kShownMismatches) continue;
    Mismatch mismatch{.ranks = row.ranks, .input = input, .index = at / unit};
    std::memcpy(&mismatch.expected, &expected[at], unit);
    std::memcpy(&mismatch.got, &got[at], unit);
    describe(mismatch);
    row.first_mismatches.push_back(std::move(mismatch));
  }
}
inline constexpr auto kNothingMore = [](Mismatch&) {};

}  // namespace arlab::kernels
