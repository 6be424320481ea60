// How far an all-reduce is from the exact sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/dtype.h"
#include "reference/tensors/tensor.h"

namespace arlab {

/// Error of a result against a target. Elements whose target is NaN or infinite take no part.
///
/// A result that is not finite where the target is has no finite error: then max_abs_error, rmse
/// and sqnr_db are empty, and the counts say why; the finite_ figures leave such elements out.
struct ErrorMetrics {
  std::uint64_t elements = 0;           ///< compared: target finite
  std::uint64_t non_finite_target = 0;  ///< not compared
  std::uint64_t non_finite_result = 0;  ///< elements, of all, that are NaN or infinite
  std::uint64_t lost = 0;               ///< result not finite although the target is
  std::optional<double> max_abs_error;
  std::optional<double> rmse;
  /// 10 log10(sum target^2 / sum error^2); empty also when exact (no error) or when the target is
  /// 0.
  std::optional<double> sqnr_db;
  std::optional<double> finite_sqnr_db;
  std::optional<double> cosine;  ///< cosine of the angle between result and target; finite elements
  bool exact = false;            ///< every compared element equals its target
};

/// Figures that all questions about errors print, under these names; `against` the target, or "with" it.
struct ErrorFigure {
  std::string_view name;
  std::optional<double> ErrorMetrics::* value;
  std::string_view against = "against";
};
inline constexpr ErrorFigure kErrorFigures[] = {{"max_abs_error", &ErrorMetrics::max_abs_error},
                                                {"rmse", &ErrorMetrics::rmse},
                                                {"cosine", &ErrorMetrics::cosine, "with"}};

/// The sum over ranks of every element in float64, ascending rank order.
struct ExactSum {
  std::vector<double> values;  ///< one per element
  /// Elements whose float64 sum was rounded (0 for fp16 always: its values span 40 bits). Found
  /// exactly, by error-free transformation of every addition.
  std::uint64_t inexact = 0;
};

ExactSum exact_sum(const RankPayloads& inputs, unsigned threads = 0);
/// `inputs` holds ranks x elements of dtype. Throws InvalidInput when the size does not fit.
ExactSum exact_sum(DType dtype, std::size_t ranks, std::span<const std::byte> inputs,
                   unsigned threads = 0);

/// Error of `result` (elements of dtype) against float64 targets of the same count. The same
/// figures for any thread count.
ErrorMetrics compare(std::span<const double> target, DType dtype, std::span<const std::byte> result,
                     unsigned threads = 0);

/// SQNR of the rows and of the columns of a matrix, each by itself. Of activations rows are tokens and
/// columns channels: a network normalises every token by itself, so how well the few channels that
/// hold most of the energy are encoded says little about the others.
///
/// A row without error has +infinity; one whose result is not finite where its target is, or whose
/// target is 0 and result is not, has -infinity. Rows with nothing to compare take no part.
struct MatrixMetrics {
  std::optional<double> median_row_db;      ///< empty where there is no row
  std::optional<double> percentile_row_db;  ///< 1 % of the rows are worse
  std::optional<double> median_column_db;
  std::optional<double> percentile_column_db;
};

/// `target` and `result` as for compare(), rows of `columns` elements. Throws InvalidInput unless
/// they are whole rows. The same figures for any thread count.
MatrixMetrics compare_rows(std::span<const double> target, DType dtype,
                           std::span<const std::byte> result, std::size_t columns,
                           unsigned threads = 0);

/// The first place where a rank's tensor differs from rank 0's, bit for bit.
struct RankDifference {
  std::size_t rank;
  std::size_t element;
};
std::optional<RankDifference> first_rank_difference(DType dtype, std::size_t ranks,
                                                    std::span<const std::byte> outputs);

/// Elements of dtype as float64.
std::vector<double> to_double(DType dtype, std::span<const std::byte> elements);

}  // namespace arlab
