// Fused arithmetic as a compiler may make it of the codecs: no_fused_arithmetic.sh must see it.

#include <cstddef>

void fused_mutant(const float* x, const float* y, float* sum, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += x[i] * y[i];
  for (std::size_t i = 0; i < n; ++i) sum[i] *= y[i];
}
