#include "reference/metrics/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "reference/codecs/simd/halves.h"
#include "reference/formats/payload_arithmetic.h"
#include "reference/parallel.h"
#include "reference/wide.h"

namespace arlab {
namespace {

// Sums are formed per part and the parts added in order, so that threads cannot change a figure.
constexpr std::size_t kPart = 65536;

double element(DType dtype, const std::byte* at) {
  if (dtype == DType::fp32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return dtype == DType::fp16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

// Loops over blocks, which compilers vectorize.
constexpr std::size_t kBlock = 1024;  // elements; buffers stay in the first-level cache

ARLAB_WIDE void to_doubles(DType dtype, const std::byte* payload, std::size_t count, double* out) {
  if (dtype == DType::fp32) {
    const auto* values = reinterpret_cast<const float*>(payload);
    for (std::size_t i = 0; i < count; ++i) out[i] = values[i];
  } else if (const auto* bits = reinterpret_cast<const std::uint16_t*>(payload);
             dtype == DType::fp16) {
    doubles_of_halves({bits, count}, out);
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = bfloat16_to_float(bits[i]);
  }
}

/// total += x, and where that is finite and was rounded, rounded = 1. TwoSum (Knuth): the rounding
/// error of an addition is itself a float64.
ARLAB_WIDE void add_exactly(const double* x, std::size_t count, double* total,
                            std::uint64_t* rounded) {
  for (std::size_t i = 0; i < count; ++i) {
    const double next = total[i] + x[i];
    const double x_part = next - total[i];
    const double error = (total[i] - (next - x_part)) + (x[i] - x_part);
    const bool is_finite = std::abs(next) <= std::numeric_limits<double>::max();
    rounded[i] |= is_finite && error != 0 ? 1U : 0U;
    total[i] = next;
  }
}

/// The sums of elements [first, first + count), count <= kBlock; returns how many were rounded.
std::uint64_t sum_block(const RankPayloads& inputs, std::size_t first, std::size_t count,
                        double* sums) {
  double x[kBlock];
  std::uint64_t rounded[kBlock] = {};
  std::fill_n(sums, count, 0.0);
  for (const auto& payload : inputs.ranks) {
    to_doubles(inputs.dtype, payload.data() + first * size_of(inputs.dtype), count, x);
    add_exactly(x, count, sums, rounded);
  }
  return std::accumulate(rounded, rounded + count, std::uint64_t{0});
}

std::size_t parts_of(std::size_t elements) { return (elements + kPart - 1) / kPart; }

struct PartSums {
  std::uint64_t elements = 0;
  std::uint64_t non_finite_target = 0;
  std::uint64_t non_finite_result = 0;
  std::uint64_t lost = 0;
  double max_abs_error = 0;
  double error2 = 0;
  double target2 = 0;         // over all compared elements
  double finite_target2 = 0;  // over those with a finite result
  double result2 = 0;
  double dot = 0;
};

PartSums compare_part(std::span<const double> target, DType dtype, const std::byte* result) {
  PartSums sums;
  double results[kBlock];
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (i % kBlock == 0) {
      const std::size_t count = std::min(kBlock, target.size() - i);
      to_doubles(dtype, result + i * size_of(dtype), count, results);
    }
    const double t = target[i];
    const double r = results[i % kBlock];
    if (!std::isfinite(r)) ++sums.non_finite_result;
    if (!std::isfinite(t)) {
      ++sums.non_finite_target;
      continue;
    }
    ++sums.elements;
    sums.target2 += t * t;
    if (!std::isfinite(r)) {
      ++sums.lost;
      continue;
    }
    const double error = r - t;
    sums.max_abs_error = std::max(sums.max_abs_error, std::abs(error));
    sums.error2 += error * error;
    sums.finite_target2 += t * t;
    sums.result2 += r * r;
    sums.dot += t * r;
  }
  return sums;
}

}  // namespace

ExactSum exact_sum(DType dtype, std::size_t ranks, std::span<const std::byte> inputs,
                   unsigned threads) {
  const std::size_t bytes = size_of(dtype);
  if (ranks == 0 || inputs.size() % (ranks * bytes) != 0) {
    fail("exact sum: {} bytes are not {} ranks of {} elements", inputs.size(), ranks,
         name_of(dtype));
  }
  std::vector<std::span<const std::byte>> payloads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    payloads.push_back(inputs.subspan(rank * (inputs.size() / ranks), inputs.size() / ranks));
  }
  return exact_sum({dtype, std::move(payloads)}, threads);
}

ExactSum exact_sum(const RankPayloads& inputs, unsigned threads) {
  const std::size_t elements = inputs.elements_per_rank();
  ExactSum sum{std::vector<double>(elements), 0};
  std::vector<std::uint64_t> inexact(parts_of(elements), 0);
  parallel_for(inexact.size(), threads, [&](unsigned, std::size_t part) {
    const std::size_t end = std::min(elements, (part + 1) * kPart);
    for (std::size_t i = part * kPart; i < end; i += kBlock) {
      inexact[part] += sum_block(inputs, i, std::min(kBlock, end - i), sum.values.data() + i);
    }
  });
  for (const std::uint64_t count : inexact) sum.inexact += count;
  return sum;
}

ErrorMetrics compare(std::span<const double> target, DType dtype, std::span<const std::byte> result,
                     unsigned threads) {
  if (result.size() != target.size() * size_of(dtype)) {
    fail("compare: {} targets, but a result of {} bytes", target.size(), result.size());
  }
  std::vector<PartSums> parts(parts_of(target.size()));
  parallel_for(parts.size(), threads, [&](unsigned, std::size_t part) {
    const std::size_t begin = part * kPart;
    const std::size_t count = std::min(kPart, target.size() - begin);
    parts[part] =
        compare_part(target.subspan(begin, count), dtype, result.data() + begin * size_of(dtype));
  });
  PartSums all;
  for (const PartSums& part : parts) {
    all.elements += part.elements;
    all.non_finite_target += part.non_finite_target;
    all.non_finite_result += part.non_finite_result;
    all.lost += part.lost;
    all.max_abs_error = std::max(all.max_abs_error, part.max_abs_error);
    all.error2 += part.error2;
    all.target2 += part.target2;
    all.finite_target2 += part.finite_target2;
    all.result2 += part.result2;
    all.dot += part.dot;
  }

  ErrorMetrics metrics;
  metrics.elements = all.elements;
  metrics.non_finite_target = all.non_finite_target;
  metrics.non_finite_result = all.non_finite_result;
  metrics.lost = all.lost;
  metrics.exact = all.lost == 0 && all.error2 == 0 && all.max_abs_error == 0;
  if (all.error2 > 0 && all.finite_target2 > 0) {
    metrics.finite_sqnr_db = 10 * std::log10(all.finite_target2 / all.error2);
  }
  if (all.result2 > 0 && all.finite_target2 > 0) {
    // Rounding may carry it past 1 by a hair.
    metrics.cosine =
        std::clamp(all.dot / std::sqrt(all.finite_target2) / std::sqrt(all.result2), -1.0, 1.0);
  }
  if (all.lost == 0 && all.elements > 0) {
    metrics.max_abs_error = all.max_abs_error;
    metrics.rmse = std::sqrt(all.error2 / static_cast<double>(all.elements));
    metrics.sqnr_db = metrics.finite_sqnr_db;
  }
  return metrics;
}

namespace {

/// Sums for the SQNR of a row or a column.
struct SliceSums {
  double target2 = 0;
  double error2 = 0;
  bool lost = false;

  void add(double target, double result) {
    if (!std::isfinite(target)) return;
    const double error = result - target;
    lost = lost || !std::isfinite(result);
    target2 += target * target;
    error2 += std::isfinite(result) ? error * error : 0;
  }
  void add(const SliceSums& other) {
    target2 += other.target2;
    error2 += other.error2;
    lost = lost || other.lost;
  }
  bool counts() const { return target2 > 0 || error2 > 0 || lost; }
  double sqnr_db() const {
    if (lost) return -std::numeric_limits<double>::infinity();
    return error2 == 0 ? std::numeric_limits<double>::infinity()
                       : 10 * std::log10(target2 / error2);
  }
};

/// Median, and the first percentile.
std::pair<std::optional<double>, std::optional<double>> summary_of(
    const std::vector<SliceSums>& slices) {
  std::vector<double> values;
  for (const SliceSums& slice : slices) {
    if (slice.counts()) values.push_back(slice.sqnr_db());
  }
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double below = values[(values.size() - 1) / 2];
  const double above = values[values.size() / 2];
  return {std::isinf(below) ? below : (below + above) / 2, values[(values.size() - 1) / 100]};
}

}  // namespace

MatrixMetrics compare_rows(std::span<const double> target, DType dtype,
                           std::span<const std::byte> result, std::size_t columns,
                           unsigned threads) {
  if (columns == 0 || target.size() % columns != 0 ||
      result.size() != target.size() * size_of(dtype)) {
    fail("compare: {} targets and a result of {} bytes are no rows of {} elements", target.size(),
         result.size(), columns);
  }
  const std::size_t rows = target.size() / columns;
  const std::size_t rows_of_part = std::max<std::size_t>(1, kPart / columns);
  const std::size_t parts = (rows + rows_of_part - 1) / rows_of_part;
  std::vector<SliceSums> row_sums(rows);
  std::vector<std::vector<SliceSums>> column_sums(parts, std::vector<SliceSums>(columns));
  parallel_for(parts, threads, [&](unsigned, std::size_t part) {
    const std::size_t end = std::min(rows, (part + 1) * rows_of_part);
    for (std::size_t row = part * rows_of_part; row < end; ++row) {
      for (std::size_t column = 0; column < columns; ++column) {
        const std::size_t at = row * columns + column;
        const double r = element(dtype, result.data() + at * size_of(dtype));
        row_sums[row].add(target[at], r);
        column_sums[part][column].add(target[at], r);
      }
    }
  });
  for (std::size_t part = 1; part < parts; ++part) {
    for (std::size_t column = 0; column < columns; ++column) {
      column_sums[0][column].add(column_sums[part][column]);
    }
  }
  MatrixMetrics metrics;
  std::tie(metrics.median_row_db, metrics.percentile_row_db) = summary_of(row_sums);
  if (parts > 0) {
    std::tie(metrics.median_column_db, metrics.percentile_column_db) = summary_of(column_sums[0]);
  }
  return metrics;
}

std::optional<RankDifference> first_rank_difference(DType dtype, std::size_t ranks,
                                                    std::span<const std::byte> outputs) {
  if (ranks == 0 || outputs.size() % (ranks * size_of(dtype)) != 0) {
    fail("rank difference: {} bytes are not {} ranks of {} elements", outputs.size(), ranks,
         name_of(dtype));
  }
  const std::size_t bytes = outputs.size() / ranks;
  const auto first = outputs.first(bytes);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const auto mine = outputs.subspan(rank * bytes, bytes);
    if (bytes == 0 || std::memcmp(first.data(), mine.data(), bytes) == 0) continue;
    const auto at = std::mismatch(first.begin(), first.end(), mine.begin()).first;
    return RankDifference{rank, static_cast<std::size_t>(at - first.begin()) / size_of(dtype)};
  }
  return std::nullopt;
}

std::vector<double> to_double(DType dtype, std::span<const std::byte> elements) {
  std::vector<double> values(elements.size() / size_of(dtype));
  to_doubles(dtype, elements.data(), values.size(), values.data());
  return values;
}

}  // namespace arlab
