#include "experiments/models/linear.h"

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/models/linear.cc"
#include <algorithm>
#include <array>
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// Behind it.
#include "hwy/contrib/math/math-inl.h"
#include "reference/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace arlab::models {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 8>;
using V = hn::Vec<D>;

/// Inputs that are worked through before the next rows: so much of a panel stays in the first cache.
constexpr std::size_t kDepth = 256;

/// `kRows` rows times one panel; goes on with the sums in `y` unless `begins`.
template <std::size_t kRows>
HWY_INLINE void multiply_rows(const float* HWY_RESTRICT x, std::size_t x_stride,
                              const float* HWY_RESTRICT panel, std::size_t depth, bool begins,
                              float* HWY_RESTRICT y, std::size_t y_stride) {
  const D d;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kVectors = Matrix::kPanel / kLanes;
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = begins ? hn::Zero(d) : hn::LoadU(d, y + r * y_stride + v * kLanes);
    }
  }
  for (std::size_t i = 0; i < depth; ++i) {
    V w[kVectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      w[v] = hn::LoadU(d, panel + i * Matrix::kPanel + v * kLanes);
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      const V one = hn::Set(d, x[r * x_stride + i]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(w[v], one, sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, y + r * y_stride + v * kLanes);
    }
  }
}

/// Any number of rows times one panel.
void multiply_panel(ConstRows x, std::size_t rows, const float* panel, std::size_t depth,
                    bool begins, Rows y) {
  constexpr std::size_t kRows = 6;
  std::size_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    multiply_rows<kRows>(x.data + r * x.stride, x.stride, panel, depth, begins,
                         y.data + r * y.stride, y.stride);
  }
  for (; r < rows; ++r) {
    multiply_rows<1>(x.data + r * x.stride, x.stride, panel, depth, begins, y.data + r * y.stride,
                     y.stride);
  }
}

void MultiplyTile(ConstRows x, std::size_t rows, const Matrix& w, Range inputs, Range panels,
                  Rows y) {
  if (inputs.begin == inputs.end) {
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t end = std::min(panels.end * Matrix::kPanel, w.out());
      std::fill(y.data + r * y.stride + panels.begin * Matrix::kPanel, y.data + r * y.stride + end,
                0.0F);
    }
    return;
  }
  std::vector<float> last;  // the last panel, with fewer outputs
  for (std::size_t p = panels.begin; p < panels.end; ++p) {
    const std::size_t first = p * Matrix::kPanel;
    const bool whole = first + Matrix::kPanel <= w.out();
    if (!whole) last.resize(rows * Matrix::kPanel);
    const Rows to = whole ? Rows{y.data + first, y.stride} : Rows{last.data(), Matrix::kPanel};
    for (std::size_t i = inputs.begin; i < inputs.end; i += kDepth) {
      const std::size_t depth = std::min(kDepth, inputs.end - i);
      multiply_panel({x.data + i, x.stride}, rows, w.panel(p) + i * Matrix::kPanel, depth,
                     i == inputs.begin, to);
    }
    if (whole) continue;
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(&last[r * Matrix::kPanel], w.out() - first, y.data + r * y.stride + first);
    }
  }
}

/// x[i], and `otherwise` behind the end.
HWY_INLINE V load(const float* x, std::size_t i, std::size_t count, V otherwise) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  if (i + lanes <= count) return hn::LoadU(d, x + i);
  return hn::IfThenElse(hn::FirstN(d, count - i),
                        hn::MaskedLoad(hn::FirstN(d, count - i), d, x + i), otherwise);
}
HWY_INLINE void store(V value, float* x, std::size_t i, std::size_t count) {
  const D d;
  if (i + hn::Lanes(d) <= count) return hn::StoreU(value, d, x + i);
  hn::BlendedStore(value, hn::FirstN(d, count - i), d, x + i);
}

float largest(const float* x, std::size_t count) {
  const D d;
  const V least = hn::Set(d, -HUGE_VALF);
  V most = least;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    most = hn::Max(most, load(x, i, count, least));
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Lanes in ascending order.
double sum_of_lanes(V sums) {
  const D d;
  std::array<float, 8> lanes = {};
  hn::StoreU(sums, d, lanes.data());
  double sum = 0;
  for (const float lane : lanes) sum += double{lane};
  return sum;
}

void Softmax(float* x, std::size_t count) {
  const D d;
  const V most = hn::Set(d, largest(x, count));
  V sums = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const V e = hn::Exp(d, hn::Sub(load(x, i, count, hn::Set(d, -HUGE_VALF)), most));
    sums = hn::Add(sums, e);
    store(e, x, i, count);
  }
  const V factor = hn::Set(d, static_cast<float>(1 / sum_of_lanes(sums)));
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    store(hn::Mul(load(x, i, count, factor), factor), x, i, count);
  }
}

void Swiglu(float* gate, const float* up, std::size_t count) {
  const D d;
  const V one = hn::Set(d, 1.0F);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const V g = load(gate, i, count, one);
    const V sigmoid = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Neg(g))));
    store(hn::Mul(sigmoid, load(up, i, count, one)), gate, i, count);
  }
}

/// Sums of so many elements stay in fp32.
constexpr std::size_t kShortSum = 4096;

double LogSumExp(const float* x, std::size_t count) {
  const D d;
  const float most = largest(x, count);
  double sum = 0;
  for (std::size_t begin = 0; begin < count; begin += kShortSum) {
    const std::size_t end = std::min(begin + kShortSum, count);
    V sums = hn::Zero(d);
    for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
      const V each = load(x, i, end, hn::Set(d, -HUGE_VALF));
      sums = hn::Add(sums, hn::Exp(d, hn::Sub(each, hn::Set(d, most))));
    }
    sum += sum_of_lanes(sums);
  }
  return double{most} + std::log(sum);
}

double Divergence(const float* p, double p_log_sum, const float* q, double q_log_sum,
                  std::size_t count) {
  const D d;
  const V p_log = hn::Set(d, static_cast<float>(p_log_sum));
  const V shift = hn::Set(d, static_cast<float>(q_log_sum - p_log_sum));
  const V far = hn::Set(d, -HUGE_VALF);
  double sum = 0;
  for (std::size_t begin = 0; begin < count; begin += kShortSum) {
    const std::size_t end = std::min(begin + kShortSum, count);
    V sums = hn::Zero(d);
    for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
      const V a = load(p, i, end, far);
      const V b = load(q, i, end, hn::Zero(d));
      const V share = hn::Exp(d, hn::Sub(a, p_log));
      const V delta = hn::Add(hn::Sub(hn::IfThenElse(hn::Gt(a, far), a, b), b), shift);
      // e^-x - 1 + x: where x is small, by its series, as the difference would cancel.
      const V square = hn::Mul(delta, delta);
      V series = hn::Set(d, 1.0F / 720);
      for (const float c : {-1.0F / 120, 1.0F / 24, -1.0F / 6, 0.5F}) {
        series = hn::MulAdd(series, delta, hn::Set(d, c));
      }
      const V direct = hn::Add(hn::Sub(hn::Exp(d, hn::Neg(delta)), hn::Set(d, 1.0F)), delta);
      const V small = hn::Mul(series, square);
      const V term = hn::IfThenElse(hn::Lt(hn::Abs(delta), hn::Set(d, 0.25F)), small, direct);
      sums = hn::MulAdd(share, term, sums);
    }
    sum += sum_of_lanes(sums);
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab::models
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab::models {

HWY_EXPORT(MultiplyTile);
HWY_EXPORT(Softmax);
HWY_EXPORT(Swiglu);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(Divergence);

Matrix::Matrix(const float* values, std::size_t out, std::size_t in, std::size_t out_step,
               std::size_t in_step)
    : out_(out), in_(in), panels_(panels() * kPanel * in) {
  for (std::size_t o = 0; o < out; ++o) {
    float* const to = &panels_[o / kPanel * in * kPanel + o % kPanel];
    for (std::size_t i = 0; i < in; ++i) to[i * kPanel] = values[o * out_step + i * in_step];
  }
}

void multiply_tile(ConstRows x, std::size_t rows, const Matrix& w, Range inputs, Range panels,
                   Rows y) {
  HWY_DYNAMIC_DISPATCH(MultiplyTile)(x, rows, w, inputs, panels, y);
}

void multiply(ConstRows x, std::size_t rows, const Matrix& w, Range inputs, Rows y,
              unsigned threads) {
  constexpr std::size_t kTileRows = 96;
  constexpr std::size_t kTilePanels = 12;
  const std::size_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  const std::size_t panel_tiles = (w.panels() + kTilePanels - 1) / kTilePanels;
  parallel_for(row_tiles * panel_tiles, threads, [&](unsigned, std::size_t tile) {
    const std::size_t row = tile / panel_tiles * kTileRows;
    const std::size_t panel = tile % panel_tiles * kTilePanels;
    multiply_tile({x.data + row * x.stride, x.stride}, std::min(kTileRows, rows - row), w, inputs,
                  {panel, std::min(panel + kTilePanels, w.panels())},
                  {y.data + row * y.stride, y.stride});
  });
}

void softmax(std::span<float> x) { HWY_DYNAMIC_DISPATCH(Softmax)(x.data(), x.size()); }

void swiglu(std::span<float> gate, std::span<const float> up) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate.data(), up.data(), gate.size());
}

double log_sum_exp(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(LogSumExp)(x.data(), x.size());
}

double divergence(std::span<const float> p_logits, double p_log_sum,
                  std::span<const float> q_logits, double q_log_sum) {
  return HWY_DYNAMIC_DISPATCH(Divergence)(p_logits.data(), p_log_sum, q_logits.data(), q_log_sum,
                                          p_logits.size());
}

}  // namespace arlab::models
#endif  // HWY_ONCE
