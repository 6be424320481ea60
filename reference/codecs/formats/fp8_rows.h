// fp8-e4m3-token, fp8-e4m3-static<s>: e4m3 with an fp32 scale per row, or a given one, as serving engines quantize what a matrix
// product takes. SPEC.md, "Scales of a row, or given (fp8-e4m3-token, fp8-e4m3-static)". Plain functions, for the reference
// (fp8_rows.cc) and for kernels (kernels/collectives/tail_rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/formats/fp8.h"

namespace arlab {

struct Fp8RowsFormat {
  std::size_t row = 0;  ///< elements that share a scale; 0: it is given
  float given = 0;

  static constexpr float kLargest = 448;

  /// The scale of a row. `largest` is the largest magnitude of what is not NaN.
  static constexpr float scale_of(float largest) {
    constexpr float kLeast = 1 / (kLargest * 512);
    const float scale = largest / kLargest;
    return scale > kLeast ? scale : kLeast;
  }
  /// Returns the number that is converted to e4m3. A NaN becomes the largest one, which is the minimum of both.
  static constexpr float limited(float quotient) {
    if (!(quotient < kLargest)) return kLargest;
    return quotient > -kLargest ? quotient : -kLargest;
  }
  static constexpr float of_row(float x, float scale) { return limited(x / scale); }
  static constexpr float of_given(float x, float inverse) { return limited(x * inverse); }
};

/// None if the name is of another family.
std::optional<Fp8RowsFormat> parse_fp8_rows(std::string_view name);

}  // namespace arlab
