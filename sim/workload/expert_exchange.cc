#include "sim/workload/expert_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "reference/csv.h"
#include "reference/error.h"
#include "reference/tensors/file.h"
#include "sim/device/times.h"

namespace arlab {
namespace {

/// Probabilities that a token goes to each rank.
std::vector<double> reached(const ExpertStep& step) {
  if (step.chosen.empty()) {
    const double share = std::min(1.0, static_cast<double>(step.top_k) / step.ranks);
    return std::vector<double>(step.ranks, share);
  }
  std::vector<double> none(step.ranks, 1);
  for (std::uint32_t e = 0; e < step.experts; ++e) {
    none[e / (step.experts / step.ranks)] *= 1 - step.chosen[e];
  }
  for (double& each : none) each = 1 - each;
  return none;
}

}  // namespace

ExpertLoad load_of(const ExpertStep& step) {
  if (step.experts % step.ranks != 0) {
    fail("{} ranks do not divide the {} experts", step.ranks, step.experts);
  }
  if (step.top_k > step.experts) {
    fail("a token has {} experts of {}", step.top_k, step.experts);
  }
  const std::vector<double> by_rank = reached(step);
  const double all = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
  const auto tokens = static_cast<double>(step.tokens);
  ExpertLoad load;
  load.mean = tokens * all * (step.ranks - 1) / step.ranks;
  for (Rank rank = 0; rank < step.ranks; ++rank) {
    const double received = (step.ranks - 1) * by_rank[rank];
    const double most = tokens * std::max(received, all - by_rank[rank]);
    if (most <= load.slowest) continue;
    load.slowest = most;
    load.slowest_rank = rank;
  }
  return load;
}

double exchange_us(const ExchangeKernel& kernel, const ExpertLoad& load, double copy_bytes) {
  return kernel.fixed_us + load.slowest * (kernel.copy_us + time_us(copy_bytes, kernel.gb_per_s));
}

double exchange_factor(const ExchangeLibrary& library, Rank ranks) {
  constexpr double kSigma = 0.06;
  constexpr double kPerDoubling = 0.08;
  constexpr double kNinetyPercent = 1.64;
  const double doublings = std::log2(static_cast<double>(ranks) / library.ranks);
  return std::exp(kNinetyPercent * std::hypot(kSigma, kPerDoubling * doublings));
}

std::vector<double> zipf_choices(std::uint32_t experts, std::uint32_t top_k, double s) {
  std::vector<double> chosen(experts);
  const auto sum_at = [&](double x) {
    double sum = 0;
    for (std::uint32_t e = 0; e < experts; ++e) {
      chosen[e] = -std::expm1(-x * std::pow(e + 1.0, -s));
      sum += chosen[e];
    }
    return sum;
  };
  double low = 0;
  double high = 1e30;  // (2^16)^-6
  constexpr int kHalvings = 200;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle =
        i < kHalvings / 2 ? std::sqrt(std::max(low, 1e-9) * high) : (low + high) / 2;
    (sum_at(middle) < top_k ? low : high) = middle;
  }
  return chosen;
}

std::vector<double> read_choices(const std::filesystem::path& path, std::uint32_t experts,
                                 std::uint32_t top_k) {
  const CsvTable table = read_csv(path);
  const std::vector<std::string>& names = table.rows.front();
  std::array<std::size_t, 2> columns = {};
  constexpr std::array kColumns = {"expert", "tokens"};
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    const auto found = std::ranges::find(names, kColumns[i]);
    if (found == names.end()) {
      fail("{}: it has no column '{}'; needed are expert, tokens", printable(path.string()),
           kColumns[i]);
    }
    columns[i] = static_cast<std::size_t>(found - names.begin());
  }
  std::vector<double> counts(experts, -1);
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const double expert = number_of(table.rows[row][columns[0]]);
    const double tokens = number_of(table.rows[row][columns[1]]);
    const bool fits = expert >= 0 && expert < experts && expert == std::floor(expert) &&
                      tokens >= 0 && tokens <= 1e15;
    if (!fits || counts[static_cast<std::size_t>(expert)] >= 0) {
      fail("{}: line {}: allowed are each expert of 0 to {} once, with 0 to 1e15 tokens",
           printable(path.string()), table.lines[row], experts - 1);
    }
    counts[static_cast<std::size_t>(expert)] = tokens;
  }
  if (const auto missing = std::ranges::find(counts, -1.0); missing != counts.end()) {
    fail("{}: expert {} is missing", printable(path.string()), missing - counts.begin());
  }
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (std::uint32_t e = 0; e < experts; ++e) {
    const double most = sum / top_k;
    if (sum > 0 && counts[e] <= most) {
      counts[e] /= most;
      continue;
    }
    fail("{}: expert {} gets {} of {} tokens; allowed is 1 in {}, as a token has {} experts",
         printable(path.string()), e, counts[e], sum, top_k, top_k);
  }
  return counts;
}

}  // namespace arlab
