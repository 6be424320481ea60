// int8 layers by vectors, with the bits of linear.cc.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/layers/int8_simd.cc"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// Behind it.
#include "reference/layers/linear.h"
#include "reference/parallel.h"

#ifndef ARLAB_LAYERS_INT8_TILE
#define ARLAB_LAYERS_INT8_TILE
namespace arlab {
namespace {

/// A piece of a product: rows of x times a panel of outputs.
struct Int8Tile {
  const Int8Matrix* x;
  std::size_t first;  ///< row
  std::size_t last;
  const std::int8_t* panel;     ///< its codes
  const std::int32_t* zeros;    ///< by output
  const std::int32_t* sums;     ///< sums of codes, by output
  const float* scales;          ///< by output
  const std::int16_t* x_codes;  ///< [last - first, even number of inputs]
  std::size_t outputs;          ///< existing ones in the panel
  float* y;
  std::size_t y_stride;
};

std::size_t even(std::size_t inputs) { return (inputs + 1) / 2 * 2; }

}  // namespace
}  // namespace arlab
#endif

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 8>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<std::int16_t, F32>;
using QuarterI8 = hn::Rebind<std::int8_t, F32>;
using HalfI8 = hn::Rebind<std::int8_t, I16>;

constexpr std::size_t kLanes = hn::MaxLanes(F32());

/// Rows of x times the panel, as many as sums fit in registers.
template <std::size_t kRows>
HWY_INLINE void MultiplyRows(const Int8Tile& t, std::size_t row) {
  const I32 d32;
  const I16 d16;
  constexpr std::size_t kVectors = Int8Panels::kPanel / kLanes;
  const std::size_t inputs = even(t.x->columns);
  const std::int16_t* HWY_RESTRICT x = t.x_codes + (row - t.first) * inputs;
  hn::Vec<I32> sums[kRows][kVectors];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d32);
  }
  auto unused = hn::Zero(d32);
  for (std::size_t i = 0; i < inputs; i += 2) {
    hn::Vec<I16> w[kVectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      w[v] = hn::PromoteTo(d16,
                           hn::LoadU(HalfI8(), t.panel + i * Int8Panels::kPanel + v * 2 * kLanes));
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, x + r * inputs + i, sizeof pair);
      const auto both = hn::BitCast(d16, hn::Set(d32, pair));
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::ReorderWidenMulAccumulate(d32, w[v], both, sums[r][v], unused);
      }
    }
  }
  const F32 df;
  const auto count = hn::Set(d32, static_cast<std::int32_t>(t.x->columns));
  for (std::size_t r = 0; r < kRows; ++r) {
    const Int8Scale& scale = t.x->scales[row + r];
    const auto x_sum = hn::Set(d32, t.x->sums[row + r]);
    const auto x_zero = hn::Set(d32, scale.zero);
    std::array<float, Int8Panels::kPanel> out;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto w_zero = hn::LoadU(d32, t.zeros + v * kLanes);
      const auto w_sum = hn::Sub(hn::LoadU(d32, t.sums + v * kLanes), hn::Mul(count, w_zero));
      const auto sum = hn::Sub(hn::Sub(sums[r][v], hn::Mul(w_zero, x_sum)), hn::Mul(x_zero, w_sum));
      const auto y = hn::Mul(hn::Mul(hn::ConvertTo(df, sum), hn::LoadU(df, t.scales + v * kLanes)),
                             hn::Set(df, scale.scale));
      const auto nan = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
      hn::StoreU(hn::IfThenElse(hn::IsNaN(y), nan, y), df, &out[v * kLanes]);
    }
    std::copy_n(out.begin(), t.outputs, t.y + (row + r - t.first) * t.y_stride);
  }
}

void MultiplyTile(const Int8Tile& tile) {
  constexpr std::size_t kRows = 6;
  std::size_t row = tile.first;
  for (; row + kRows <= tile.last; row += kRows) MultiplyRows<kRows>(tile, row);
  for (; row < tile.last; ++row) MultiplyRows<1>(tile, row);
}

Extremes RowExtremes(const float* x, std::size_t count) {
  const F32 d;
  const U32 du;
  auto lowest = hn::Zero(d);
  auto highest = lowest;
  auto magnitude = hn::Zero(du);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto value = hn::LoadU(d, x + i);
    lowest = hn::Min(lowest, value);
    highest = hn::Max(highest, value);
    magnitude = hn::Max(magnitude, hn::BitCast(du, hn::Abs(value)));
  }
  Extremes e;
  std::array<float, kLanes> lows, highs;
  std::array<std::uint32_t, kLanes> magnitudes;
  hn::StoreU(lowest, d, lows.data());
  hn::StoreU(highest, d, highs.data());
  hn::StoreU(magnitude, du, magnitudes.data());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    // With a NaN among them, what Min and Max gave means nothing.
    if (magnitudes[lane] > 0x7F7FFFFF) lows[lane] = highs[lane] = HUGE_VALF;
    e.add(lows[lane]);
    e.add(highs[lane]);
  }
  for (; i < count; ++i) e.add(x[i]);
  return e;
}

/// Codes of finite elements whose scale is above 0; their sum.
std::int32_t RowCodes(const float* x, std::size_t count, Int8Scale scale, bool asymmetric,
                      std::int8_t* codes) {
  const F32 d;
  const I32 d32;
  const auto divisor = hn::Set(d, scale.scale);
  const auto zero = hn::Set(d32, scale.zero);
  // Limits that are integers may come before the rounding.
  const auto least = hn::Set(d, static_cast<float>(int8_lowest_code(asymmetric) - scale.zero));
  const auto most = hn::Set(d, static_cast<float>(127 - scale.zero));
  auto sums = hn::Zero(d32);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto value = hn::Div(hn::LoadU(d, x + i), divisor);
    const auto code = hn::Add(hn::NearestInt(hn::Min(hn::Max(value, least), most)), zero);
    sums = hn::Add(sums, code);
    hn::StoreU(hn::DemoteTo(QuarterI8(), code), QuarterI8(), codes + i);
  }
  std::array<std::int32_t, kLanes> lanes;
  hn::StoreU(sums, d32, lanes.data());
  std::int32_t sum = 0;
  for (const std::int32_t lane : lanes) sum += lane;
  for (; i < count; ++i) {
    codes[i] = int8_code(x[i], scale, asymmetric);
    sum += codes[i];
  }
  return sum;
}

#else

void MultiplyTile(const Int8Tile& t) {
  const std::size_t inputs = even(t.x->columns);
  for (std::size_t row = t.first; row < t.last; ++row) {
    const std::int16_t* const x = t.x_codes + (row - t.first) * inputs;
    const Int8Scale& of_x = t.x->scales[row];
    for (std::size_t o = 0; o < t.outputs; ++o) {
      std::int32_t products = 0;
      for (std::size_t i = 0; i < inputs; ++i) {
        products += x[i] * t.panel[i / 2 * 2 * Int8Panels::kPanel + o * 2 + i % 2];
      }
      const std::int32_t sum =
          int8_corrected(products, t.x->sums[row], t.sums[o], of_x.zero, t.zeros[o], t.x->columns);
      t.y[(row - t.first) * t.y_stride + o] = int8_output(sum, of_x.scale, t.scales[o]);
    }
  }
}

Extremes RowExtremes(const float* x, std::size_t count) {
  Extremes e;
  for (std::size_t i = 0; i < count; ++i) e.add(x[i]);
  return e;
}

std::int32_t RowCodes(const float* x, std::size_t count, Int8Scale scale, bool asymmetric,
                      std::int8_t* codes) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += codes[i] = int8_code(x[i], scale, asymmetric);
  return sum;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(MultiplyTile);
HWY_EXPORT(RowExtremes);
HWY_EXPORT(RowCodes);

Int8Matrix quantize_int8(const FloatRows& values, const OperandFormat& format,
                         std::optional<Int8Scale> given, unsigned threads) {
  Int8Matrix q{.rows = values.rows,
               .columns = values.columns,
               .asymmetric = format.asymmetric,
               .codes = std::vector<std::int8_t>(values.rows * values.columns),
               .scales = std::vector<Int8Scale>(values.rows),
               .sums = std::vector<std::int32_t>(values.rows)};
  require_given(format, given);
  std::vector<Extremes> extremes(values.rows);
  parallel_for(values.rows, threads, [&](unsigned, std::size_t r) {
    extremes[r] = HWY_DYNAMIC_DISPATCH(RowExtremes)(values.row(r).data(), values.columns);
  });
  Extremes all;
  for (const Extremes& e : extremes) all.add(e);
  parallel_for(values.rows, threads, [&](unsigned, std::size_t r) {
    const bool shared = format.per_tensor && !given;
    const Extremes& of = shared ? all : extremes[r];
    const Int8Scale scale = given && of.finite() ? *given : scale_of(of, format);
    q.scales[r] = scale;
    std::int8_t* const codes = &q.codes[r * values.columns];
    if (scale.scale > 0) {
      q.sums[r] = HWY_DYNAMIC_DISPATCH(RowCodes)(values.row(r).data(), values.columns, scale,
                                                 format.asymmetric, codes);
    } else {
      std::fill_n(codes, values.columns, static_cast<std::int8_t>(scale.zero));
      q.sums[r] = static_cast<std::int32_t>(values.columns) * scale.zero;
    }
  });
  return q;
}

Int8Panels::Int8Panels(const Int8Matrix& w) : outputs_(w.rows), inputs_(w.columns) {
  const std::size_t inputs = even(inputs_);
  codes_.resize(panels() * inputs * kPanel);
  zeros_.resize(panels() * kPanel);
  sums_.resize(panels() * kPanel);
  scales_.resize(panels() * kPanel);
  for (std::size_t o = 0; o < outputs_; ++o) {
    zeros_[o] = w.scales[o].zero;
    scales_[o] = w.scales[o].scale;
    sums_[o] = w.sums[o];
    std::int8_t* const to = &codes_[o / kPanel * inputs * kPanel + o % kPanel * 2];
    const std::int8_t* const from = &w.codes[o * inputs_];
    for (std::size_t i = 0; i < inputs_; ++i) to[i / 2 * 2 * kPanel + i % 2] = from[i];
  }
}

void Int8Panels::multiply_panels(const Int8Matrix& x, std::size_t first, std::size_t last,
                                 std::size_t first_panel, std::size_t last_panel, float* y,
                                 std::size_t y_stride) const {
  const std::size_t inputs = even(inputs_);
  std::vector<std::int16_t> x_codes((last - first) * inputs);
  for (std::size_t r = first; r < last; ++r) {
    std::copy_n(&x.codes[r * inputs_], inputs_, &x_codes[(r - first) * inputs]);
  }
  for (std::size_t p = first_panel; p < last_panel; ++p) {
    const std::size_t output = p * kPanel;
    HWY_DYNAMIC_DISPATCH(MultiplyTile)
    ({.x = &x,
      .first = first,
      .last = last,
      .panel = &codes_[p * inputs * kPanel],
      .zeros = &zeros_[output],
      .sums = &sums_[output],
      .scales = &scales_[output],
      .x_codes = x_codes.data(),
      .outputs = std::min(kPanel, outputs_ - output),
      .y = y + output,
      .y_stride = y_stride});
  }
}

void Int8Panels::multiply(const Int8Matrix& x, std::size_t first, std::size_t last, float* y,
                          std::size_t y_stride) const {
  multiply_panels(x, first, last, 0, panels(), y, y_stride);
}

void Int8Panels::multiply(const Int8Matrix& x, float* y, std::size_t y_stride,
                          unsigned threads) const {
  constexpr std::size_t kTileRows = 48;
  constexpr std::size_t kTilePanels = 12;
  const std::size_t row_tiles = (x.rows + kTileRows - 1) / kTileRows;
  const std::size_t panel_tiles = (panels() + kTilePanels - 1) / kTilePanels;
  parallel_for(row_tiles * panel_tiles, threads, [&](unsigned, std::size_t tile) {
    const std::size_t row = tile / panel_tiles * kTileRows;
    const std::size_t panel = tile % panel_tiles * kTilePanels;
    multiply_panels(x, row, std::min(row + kTileRows, x.rows), panel,
                    std::min(panel + kTilePanels, panels()), y + row * y_stride, y_stride);
  });
}

std::vector<float> linear_int8(const Int8Matrix& x, const Int8Matrix& w, unsigned threads) {
  require_int8_inputs(x, w);
  std::vector<float> y(x.rows * w.rows);
  Int8Panels(w).multiply(x, y.data(), w.rows, threads);
  return y;
}

}  // namespace arlab
#endif  // HWY_ONCE
