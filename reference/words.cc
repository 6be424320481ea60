#include "reference/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "reference/error.h"

namespace arlab {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Letters and digits in lower case: two_shot and TwoShot mean the same.
std::string spoken(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters += lower(c);
  }
  return letters;
}

/// How many letters have to be left out, put in or replaced to make the one out of the other.
std::size_t edits_between(std::string_view a, std::string_view b) {
  // Levenshtein's distance, row by row.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

struct SizeUnit {
  char letter;
  std::uint64_t binary;
  std::uint64_t decimal;
};
constexpr SizeUnit kSizeUnits[] = {{'k', std::uint64_t{1} << 10, 1000},
                                   {'m', std::uint64_t{1} << 20, 1000000},
                                   {'g', std::uint64_t{1} << 30, 1000000000}};

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kMostNames = 3;
  constexpr std::size_t kLongest = 100;  // longest name; the distance takes time by the square
  const std::string said = spoken(word);
  if (said.empty() || word.size() > kLongest) return {};
  std::vector<std::string> nearest;
  std::size_t least = std::min<std::size_t>(2, said.size() / 3);  // so far it is a misspelling
  for (const std::string& name : known) {
    const std::string meant = spoken(name);
    // A longer name may contain a part that was left out: int4 of int4-g32.
    const bool begun = said.size() > 2 && meant.starts_with(said);
    const std::size_t edits = begun ? 0 : edits_between(said, meant);
    if (edits > least) continue;
    if (edits < least) nearest.clear();
    least = edits;
    if (nearest.size() < kMostNames) nearest.push_back(quote(name));
  }
  if (nearest.empty()) return {};
  return fmt::format("did you mean {}?", fmt::join(nearest, " or "));
}

std::string names_beside(std::string_view word, std::vector<std::string> names) {
  constexpr std::size_t kMostCharacters = 160;
  if (names.empty()) return "none";
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (text.size() <= kMostCharacters) return text;
  std::ranges::sort(names);
  const auto next = std::ranges::lower_bound(names, word);
  std::ranges::rotate(names, next == names.begin() ? next : next - 1);
  text.clear();
  for (const std::string& name : names) {
    if (!text.empty() && text.size() + name.size() > kMostCharacters) break;
    text += name + ", ";
  }
  return fmt::format("{}... ({} in all)", text, names.size());
}

std::string instead_of(std::string_view word, const KnownNames& known) {
  std::string meant = did_you_mean(word, known.names);
  for (const std::string_view ending : known.endings) {
    const std::string file = std::string(word) + std::string(ending);
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) continue;
    meant = fmt::format("did you mean the file {}?", quote(file));
  }
  if (meant.empty()) meant = fmt::format("{} {}", known.are, names_beside(word, known.names));
  if (known.all.empty()) return meant;
  return fmt::format("{}{} {}", meant, meant.ends_with('?') ? "" : ";", known.all);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  std::string suffix;
  for (const char* at = rest; at != end; ++at) suffix += lower(*at);
  std::uint64_t unit = 0;
  if (suffix.empty()) unit = 1;
  for (const auto& [letter, binary, decimal] : kSizeUnits) {
    if (suffix == std::string{letter} || suffix == std::string{letter} + "ib") unit = binary;
    if (suffix == std::string{letter} + "b") unit = decimal;
  }
  if (unit == 0 || value > UINT64_MAX / unit) return std::nullopt;
  return value * unit;
}

}  // namespace arlab
