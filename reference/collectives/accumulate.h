// Sums in fp32, and exact ones, rounded once at the end: reference/codecs/SPEC.md, "Accumulation".
// codecs/native_sum.h has the others.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reference/dtype.h"

namespace arlab {

/// sum += addend in fp32.
void add_fp32(DType dtype, std::span<float> sum, std::span<const std::byte> addend);

/// Rounds fp32 sums to dtype.
void round_sum(DType dtype, bool clamp, std::span<const float> sum, std::span<std::byte> out);

/// Sums of any fp32 numbers, without a rounding until they are asked for.
class ExactSums {
 public:
  /// So many sums, of nothing yet.
  void begin(std::size_t count) { numbers_.assign(count, {}); }
  void add(std::span<const float> values);
  /// Each rounded to the nearest fp32 number, ties to even; or to odd: to a number that rounds to
  /// narrower dtypes as the sum itself does.
  void round(std::span<float> out, bool to_odd) const;

 private:
  struct Number {
    void add(float value);
    float rounded(bool to_odd) const;

    std::vector<double> parts = {};  ///< which add up to it, and overlap in no bit
    float special = 0;               ///< sum of the infinities and NaNs among its addends
    bool is_negative_zero = true;
  };

  std::vector<Number> numbers_;
};

}  // namespace arlab
