// Quantized linear layers, y = W x: reference/layers/SPEC.md, "Products of int8", "Products of fp8",
// "int4 weights" and "All other pairs". The scalar functions are the specification; linear_int8 has
// the same bits by vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/layers/int8.h"
#include "reference/layers/operand.h"

namespace arlab {

/// Rows of fp32 numbers, `stride` apart: tokens, or a layer's outputs; columns are its inputs.
struct FloatRows {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;

  std::span<const float> row(std::size_t r) const { return {data + r * stride, columns}; }
};

/// The extremes of all elements.
Extremes extremes_of(const FloatRows& values);

// ---------------------------------------------------------------- int8

struct Int8Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  bool asymmetric = false;
  std::vector<std::int8_t> codes = {};  ///< [rows, columns]
  std::vector<Int8Scale> scales = {};   ///< one for each row
  std::vector<std::int32_t> sums = {};  ///< for each row, the sum of its codes

  /// Some of the columns, with the scales of all.
  Int8Matrix part(std::size_t begin, std::size_t end) const;
};

/// Throws InvalidInput unless a scale is given where the format asks for one, and only there.
void require_given(const OperandFormat& format, const std::optional<Int8Scale>& given);

/// `format.kind` is int8. `given`: where the format says so.
Int8Matrix quantize_int8_scalar(const FloatRows& values, const OperandFormat& format,
                                std::optional<Int8Scale> given = std::nullopt);
/// The same, by vectors and on several threads (0: all the machine has).
Int8Matrix quantize_int8(const FloatRows& values, const OperandFormat& format,
                         std::optional<Int8Scale> given, unsigned threads);

/// Throws InvalidInput unless columns are equal, and as few as int8_inputs_limit() says.
void require_int8_inputs(const Int8Matrix& x, const Int8Matrix& w);

/// y [x.rows, w.rows] in fp32; the inputs are as require_int8_inputs() wants them.
std::vector<float> linear_int8_scalar(const Int8Matrix& x, const Int8Matrix& w);

/// Weights as vectors want them.
class Int8Panels {
 public:
  explicit Int8Panels(const Int8Matrix& weights);

  /// The same bits for rows `first` up to `last` of x: y [last - first, w.rows], `y_stride` apart.
  void multiply(const Int8Matrix& x, std::size_t first, std::size_t last, float* y,
                std::size_t y_stride) const;
  /// For all rows, on several threads.
  void multiply(const Int8Matrix& x, float* y, std::size_t y_stride, unsigned threads) const;

  std::size_t outputs() const { return outputs_; }

  /// Outputs are worked through in panels of so many; two inputs of each lie together.
  static constexpr std::size_t kPanel = 16;

 private:
  std::size_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }
  void multiply_panels(const Int8Matrix& x, std::size_t first, std::size_t last,
                       std::size_t first_panel, std::size_t last_panel, float* y,
                       std::size_t y_stride) const;

  std::size_t outputs_;
  std::size_t inputs_;
  std::vector<std::int8_t> codes_;   // [panel][pair of inputs][kPanel][2]
  std::vector<std::int32_t> zeros_;  // by output, of all panels
  std::vector<std::int32_t> sums_;
  std::vector<float> scales_;
};

/// linear_int8_scalar by vectors.
std::vector<float> linear_int8(const Int8Matrix& x, const Int8Matrix& w, unsigned threads = 0);

// ---------------------------------------------------------------- other formats

/// Rows in fp32 that a layer multiplies, and a factor for each of its results.
struct FloatOperand {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> values = {};  ///< [rows, columns]
  std::vector<float> scales = {};  ///< one for each row; empty: 1
};

/// fp8: the values of the codes, and scales.
FloatOperand quantize_fp8(const FloatRows& values, const OperandFormat& format,
                          std::optional<float> given = std::nullopt);

/// Returns the format's values for these numbers, in fp32, without scales. `given`: where the format says so; fp8 takes its
/// scale.
FloatOperand decoded(const FloatRows& values, const OperandFormat& format,
                     std::optional<Int8Scale> given = std::nullopt);

/// The scale, and for integers the zero point, of elements with these extremes.
Int8Scale scale_of(const Extremes& of, const OperandFormat& format);

/// Whether both are fp8, or both int8, which are multiplied as codes; all else is decoded before.
bool multiplies_codes(const OperandFormat& x, const OperandFormat& w);

/// y [x.rows, w.rows]: sums are chains of fused multiply-adds over ascending inputs, from +0.
std::vector<float> linear_fp32_scalar(const FloatOperand& x, const FloatOperand& w);

/// The whole layer: both operands quantized, multiplied, scaled.
std::vector<float> linear_scalar(const FloatRows& x, const OperandFormat& x_format,
                                 const FloatRows& w, const OperandFormat& w_format,
                                 std::optional<Int8Scale> given = std::nullopt);

/// Returns an element of the result in fp32.
constexpr float scaled_output(float sum, float x_scale, float w_scale) {
  return sum * w_scale * x_scale;
}

}  // namespace arlab
