#include "experiments/lab/models/model_quality.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "experiments/lab/files.h"
#include "reference/csv.h"

namespace arlab::lab {

std::vector<ModelQuality> shipped_model_quality() {
  const auto path = data_path("data/model_quality.csv");
  const CsvTable table = read_csv(path);
  std::map<std::string, std::size_t, std::less<>> column;
  for (std::size_t i = 0; i < table.rows[0].size(); ++i) column[table.rows[0][i]] = i;
  std::vector<ModelQuality> all;
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    const auto text = [&](const char* name) -> const std::string& {
      const auto found = column.find(name);
      if (found == column.end()) fail("{}: there is no column {}", path.string(), name);
      return table.rows[i][found->second];
    };
    const auto number = [&](const char* name) {
      const double value = number_of(text(name));
      if (std::isnan(value)) {
        fail("{}:{}: {} is {}, which is no number", path.string(), table.lines[i], name,
             quote(text(name)));
      }
      return value;
    };
    all.push_back({.ranks = static_cast<Rank>(number("ranks")),
                   .algorithm = text("algorithm"),
                   .codec = text("codec"),
                   .dtype = parse_dtype(text("dtype")),
                   .mean_kl = number("mean_kl"),
                   .mean_kl_error = number("mean_kl_standard_error"),
                   .perplexity_ratio = number("perplexity_ratio"),
                   .perplexity_ratio_error = number("perplexity_ratio_standard_error"),
                   .token_sqnr_db = number("token_sqnr_db")});
  }
  return all;
}

QualityOf quality_of_pair(const std::vector<ModelQuality>& rows, std::string_view algorithm,
                          Rank ranks, std::string_view codec, DType dtype) {
  const auto distance = [&](const ModelQuality& row) {
    return std::tuple(row.algorithm != algorithm,
                      std::abs(std::log2(static_cast<double>(row.ranks) / ranks)),
                      row.dtype != dtype);
  };
  QualityOf found;
  for (const ModelQuality& row : rows) {
    if (row.codec != codec) continue;
    if (found.row == nullptr || distance(row) < distance(*found.row)) found.row = &row;
  }
  const bool is_plain = codec == name_of(dtype);
  if (found.row == nullptr && is_plain && dtype != DType::fp16) {
    return quality_of_pair(rows, algorithm, ranks, name_of(DType::fp16), DType::fp16);
  }
  if (found.row != nullptr && distance(*found.row) != std::tuple(false, 0.0, false)) {
    found.of = fmt::format("{}, {} ranks, {}", found.row->algorithm, found.row->ranks,
                           name_of(found.row->dtype));
  }
  return found;
}

std::string misjudged_by_sqnr(const std::vector<ModelQuality>& rows) {
  struct Case {
    const ModelQuality* overrated;
    const ModelQuality* better;
    double ratio;
  };
  std::vector<Case> cases;
  for (const ModelQuality& a : rows) {
    Case worst{&a, nullptr, 1};
    for (const ModelQuality& b : rows) {
      const bool is_alike = a.algorithm == b.algorithm && a.ranks == b.ranks && a.dtype == b.dtype;
      const bool is_better = b.token_sqnr_db < a.token_sqnr_db &&
                             b.mean_kl + b.mean_kl_error < a.mean_kl - a.mean_kl_error;
      if (is_alike && is_better && a.mean_kl / b.mean_kl > worst.ratio) {
        worst = {&a, &b, a.mean_kl / b.mean_kl};
      }
    }
    if (worst.better != nullptr && a.algorithm == "two_shot" && a.ranks == 4 &&
        a.dtype == DType::fp16) {
      cases.push_back(worst);
    }
  }
  std::ranges::stable_sort(cases, std::greater(), &Case::ratio);
  std::vector<std::string> words;
  for (const Case& each : cases) {
    if (words.size() == 3) break;
    const auto of = [](const ModelQuality& q) {
      return fmt::format("{} ({:.1f} dB, KL {:.2g})", q.codec, q.token_sqnr_db, q.mean_kl);
    };
    words.push_back(of(*each.overrated) + " beside " + of(*each.better));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace arlab::lab
