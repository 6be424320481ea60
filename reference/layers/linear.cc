#include "reference/layers/linear.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "reference/error.h"
#include "reference/formats/fp8.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab {
namespace {

using Kind = OperandFormat::Kind;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <class Number>
using Rows = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Codes as integers whose products and sums fit: exact in any order.
Rows<std::int32_t> integers_of(const Int8Matrix& m) {
  return Eigen::Map<const Rows<std::int8_t>>(m.codes.data(), static_cast<Eigen::Index>(m.rows),
                                             static_cast<Eigen::Index>(m.columns))
      .cast<std::int32_t>();
}

/// Codes without the zero points of their rows.
Rows<std::int32_t> centred(const Int8Matrix& m) {
  Rows<std::int32_t> integers = integers_of(m);
  Eigen::Index row = 0;
  for (const Int8Scale& of : m.scales) integers.row(row++).array() -= of.zero;
  return integers;
}

void add_sums(Int8Matrix& m) {
  const Eigen::VectorXi sums = integers_of(m).rowwise().sum();
  m.sums.assign(sums.begin(), sums.end());
}

Extremes extremes_of(std::span<const float> values) {
  Extremes e;
  for (const float x : values) e.add(x);
  return e;
}

/// The scale of each row, also where all share one.
std::vector<Int8Scale> scales_of(const FloatRows& values, const OperandFormat& format,
                                 const std::optional<Int8Scale>& given) {
  require_given(format, given);
  std::vector<Int8Scale> scales;
  if (format.per_tensor && !given) {
    scales.assign(values.rows, scale_of(extremes_of(values), format));
    return scales;
  }
  for (std::size_t r = 0; r < values.rows; ++r) {
    const Extremes of = extremes_of(values.row(r));
    scales.push_back(given && of.finite() ? *given : scale_of(of, format));
  }
  return scales;
}

/// int4: a group of a row becomes what its codes stand for.
void decode_group(std::span<float> x, bool asymmetric) {
  const Extremes of = extremes_of(std::span<const float>(x));
  if (!of.finite()) {
    std::fill(x.begin(), x.end(), kNaN);
    return;
  }
  const float exact = asymmetric ? of.highest / 15 - of.lowest / 15 : of.magnitude() / 7;
  const float scale = half_to_float(Fp16Arithmetic::from_float_clamped(exact));
  if (scale == 0) {
    std::fill(x.begin(), x.end(), 0.0F);
    return;
  }
  const float lowest = asymmetric ? 0 : -7;
  const float highest = asymmetric ? 15 : 7;
  const float zero = asymmetric ? std::min(round_to_even(-of.lowest / scale), 15.0F) : 0;
  for (float& value : x) {
    const float code = std::clamp(round_to_even(value / scale) + zero, lowest, highest);
    value = (code - zero) * scale;
  }
}

}  // namespace

Extremes extremes_of(const FloatRows& values) {
  Extremes e;
  for (std::size_t r = 0; r < values.rows; ++r) e.add(extremes_of(values.row(r)));
  return e;
}

void require_given(const OperandFormat& format, const std::optional<Int8Scale>& given) {
  if (given.has_value() != format.given) {
    fail("{}: a scale is given to the formats that end in -static, and to no others",
         format.name());
  }
  if (given && !(given->scale >= 0 && given->scale <= std::numeric_limits<float>::max())) {
    fail("{}: a given scale is finite and not negative", format.name());
  }
}

Int8Scale scale_of(const Extremes& of, const OperandFormat& format) {
  if (format.kind == Kind::int8) return int8_scale(of, format.asymmetric);
  return {of.finite() ? of.magnitude() / 448 : kNaN, 0};
}

Int8Matrix Int8Matrix::part(std::size_t begin, std::size_t end) const {
  Int8Matrix some{.rows = rows, .columns = end - begin, .asymmetric = asymmetric};
  some.scales = scales;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = codes.begin() + static_cast<std::ptrdiff_t>(r * columns);
    some.codes.insert(some.codes.end(), row + static_cast<std::ptrdiff_t>(begin),
                      row + static_cast<std::ptrdiff_t>(end));
  }
  add_sums(some);
  return some;
}

Int8Matrix quantize_int8_scalar(const FloatRows& values, const OperandFormat& format,
                                std::optional<Int8Scale> given) {
  Int8Matrix q{.rows = values.rows, .columns = values.columns, .asymmetric = format.asymmetric};
  q.scales = scales_of(values, format, given);
  for (std::size_t r = 0; r < values.rows; ++r) {
    for (const float x : values.row(r)) {
      q.codes.push_back(int8_code(x, q.scales[r], q.asymmetric));
    }
  }
  add_sums(q);
  return q;
}

std::vector<float> linear_int8_scalar(const Int8Matrix& x, const Int8Matrix& w) {
  require_int8_inputs(x, w);
  const Rows<std::int32_t> sums = centred(x) * centred(w).transpose();
  std::vector<float> y;
  for (const std::int32_t sum : sums.reshaped<Eigen::RowMajor>()) {
    const std::size_t at = y.size();
    y.push_back(int8_output(sum, x.scales[at / w.rows].scale, w.scales[at % w.rows].scale));
  }
  return y;
}

void require_int8_inputs(const Int8Matrix& x, const Int8Matrix& w) {
  if (x.columns != w.columns) {
    fail("a layer with {} inputs cannot take {} of them", w.columns, x.columns);
  }
  const std::size_t limit = int8_inputs_limit(x.asymmetric, w.asymmetric);
  if (x.columns > limit) {
    fail("{} inputs: sums of such int8 layers fit in 32 bits with at most {}", x.columns, limit);
  }
}

FloatOperand quantize_fp8(const FloatRows& values, const OperandFormat& format,
                          std::optional<float> given) {
  FloatOperand q{.rows = values.rows, .columns = values.columns};
  const auto scales =
      scales_of(values, format, given ? std::optional(Int8Scale{*given, 0}) : std::nullopt);
  for (std::size_t r = 0; r < values.rows; ++r) {
    const float scale = scales[r].scale;
    q.scales.push_back(scale);
    for (const float x : values.row(r)) {
      q.values.push_back(scale > 0 ? e4m3fn_to_float(e4m3fn_from_float(x / scale)) : 0);
    }
  }
  return q;
}

FloatOperand decoded(const FloatRows& values, const OperandFormat& format,
                     std::optional<Int8Scale> given) {
  FloatOperand to{.rows = values.rows, .columns = values.columns};
  if (format.kind == Kind::fp8) {
    to = quantize_fp8(values, format, given ? std::optional(given->scale) : std::nullopt);
    for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] *= to.scales[i / to.columns];
    to.scales.clear();
    return to;
  }
  if (format.kind == Kind::int8) {
    const Int8Matrix q = quantize_int8(values, format, given, 1);
    for (std::size_t i = 0; i < q.codes.size(); ++i) {
      to.values.push_back(int8_value(q.codes[i], q.scales[i / q.columns]));
    }
    return to;
  }
  for (std::size_t r = 0; r < values.rows; ++r) {
    const auto row = values.row(r);
    to.values.insert(to.values.end(), row.begin(), row.end());
    if (format.kind != Kind::int4) continue;
    for (std::size_t at = 0; at < row.size(); at += format.group) {
      decode_group({&to.values[r * row.size() + at], std::min(format.group, row.size() - at)},
                   format.asymmetric);
    }
  }
  if (format.kind == Kind::fp16) {
    for (float& x : to.values) x = half_to_float(Fp16Arithmetic::from_float(x));
  } else if (format.kind == Kind::bf16) {
    for (float& x : to.values) x = bfloat16_to_float(Bf16Arithmetic::from_float(x));
  }
  return to;
}

bool multiplies_codes(const OperandFormat& x, const OperandFormat& w) {
  return x.kind == w.kind && (x.kind == Kind::int8 || x.kind == Kind::fp8);
}

std::vector<float> linear_fp32_scalar(const FloatOperand& x, const FloatOperand& w) {
  if (x.columns != w.columns) {
    fail("a layer with {} inputs cannot take {} of them", w.columns, x.columns);
  }
  std::vector<float> y;
  for (std::size_t row = 0; row < x.rows; ++row) {
    for (std::size_t output = 0; output < w.rows; ++output) {
      float sum = 0;
      for (std::size_t i = 0; i < x.columns; ++i) {
        sum = std::fma(w.values[output * w.columns + i], x.values[row * x.columns + i], sum);
      }
      const bool scaled = !x.scales.empty();
      y.push_back(scaled ? scaled_output(sum, x.scales[row], w.scales[output]) : sum);
    }
  }
  return y;
}

std::vector<float> linear_scalar(const FloatRows& x, const OperandFormat& x_format,
                                 const FloatRows& w, const OperandFormat& w_format,
                                 std::optional<Int8Scale> given) {
  if (!multiplies_codes(x_format, w_format)) {
    return linear_fp32_scalar(decoded(x, x_format, given), decoded(w, w_format));
  }
  if (x_format.kind == Kind::int8) {
    return linear_int8_scalar(quantize_int8_scalar(x, x_format, given),
                              quantize_int8_scalar(w, w_format));
  }
  return linear_fp32_scalar(
      quantize_fp8(x, x_format, given ? std::optional(given->scale) : std::nullopt),
      quantize_fp8(w, w_format));
}

}  // namespace arlab
