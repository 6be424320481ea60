// Arithmetic of times that the models of kernels share.
#pragma once

#include <algorithm>
#include <cmath>

namespace arlab {

/// 10^9 operations per second are 10^3 per microsecond; the same for bytes.
inline double time_us(double amount, double giga_per_s) { return amount / (giga_per_s * 1e3); }

/// (a^p + b^p)^(1/p).
inline double overlapped(double a, double b, double p) {
  const double longer = std::max(a, b);
  if (longer <= 0) return 0;
  const double ratio = std::min(a, b) / longer;
  return longer * std::pow(1 + std::pow(ratio, p), 1 / p);
}

/// Shortens or lengthens parts so that they add up to `total`.
inline void scale(double& a, double& b, double total) {
  const double sum = a + b;
  const double factor = sum > 0 ? total / sum : 0;
  a *= factor;
  b *= factor;
}

/// Books two times that overlap: the longer one in full, the other one with what it adds.
inline void book(double a, double b, double total, double& part_a, double& part_b) {
  part_a += a >= b ? a : total - b;
  part_b += a >= b ? total - a : b;
}

}  // namespace arlab
