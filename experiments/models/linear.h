// The arithmetic of a network in fp32, with vectors: products of matrices, exponentials.
//
// Every sum has its order: a product's elements are chains of fused multiply-adds over ascending
// indices of the contraction dimension, from +0. So results do not depend on threads or tiles, nor
// on the processor, as long as it has AVX2; older ones round twice where these round once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace arlab::models {

/// A matrix [out, in] that vectors x [in] are multiplied with, as a linear layer does: y = W x.
class Matrix {
 public:
  Matrix() = default;
  /// Element (o, i) is values[o * out_step + i * in_step].
  Matrix(const float* values, std::size_t out, std::size_t in, std::size_t out_step,
         std::size_t in_step);
  /// Rows one after the other.
  Matrix(std::span<const float> values, std::size_t out, std::size_t in)
      : Matrix(values.data(), out, in, in, 1) {}

  std::size_t out() const { return out_; }
  std::size_t in() const { return in_; }
  /// Returns the factor of input i in output o.
  float at(std::size_t o, std::size_t i) const {
    return panels_[(o / kPanel * in_ + i) * kPanel + o % kPanel];
  }

  /// Outputs are worked through in panels of so many, which lie together for every input.
  static constexpr std::size_t kPanel = 16;
  std::size_t panels() const { return (out_ + kPanel - 1) / kPanel; }
  const float* panel(std::size_t p) const { return &panels_[p * in_ * kPanel]; }

 private:
  std::size_t out_ = 0;
  std::size_t in_ = 0;
  std::vector<float> panels_;
};

/// A part of the indices from 0 on.
struct Range {
  std::size_t begin;
  std::size_t end;
};

/// Rows of numbers, `stride` elements apart.
struct ConstRows {
  const float* data;
  std::size_t stride;
};
struct Rows {
  float* data;
  std::size_t stride;
};

/// y[r][o] = sum over i in `inputs` of w(o, i) * x[r][i], of `rows` rows, for the outputs of a range
/// of panels. x and y begin at input 0 and output 0. On this thread.
void multiply_tile(ConstRows x, std::size_t rows, const Matrix& w, Range inputs, Range panels,
                   Rows y);

/// The same, for all outputs, on several threads (0: all the machine has).
void multiply(ConstRows x, std::size_t rows, const Matrix& w, Range inputs, Rows y,
              unsigned threads);

/// x[i] becomes e^(x[i] - largest) / sum of all.
void softmax(std::span<float> x);

/// gate[i] becomes gate[i] / (1 + e^-gate[i]) * up[i].
void swiglu(std::span<float> gate, std::span<const float> up);

/// ln of the sum of e^x[i].
double log_sum_exp(std::span<const float> x);

/// Sum over i of p[i] ln(p[i] / q[i]), in nats, where p and q are the softmax of these logits. Never
/// below 0: sums p (e^-d - 1 + d), where d = ln(p / q), each of which is not.
double divergence(std::span<const float> p_logits, double p_log_sum,
                  std::span<const float> q_logits, double q_log_sum);

}  // namespace arlab::models
