// Logarithm, power of two and normal quantile with the same bits everywhere.
//
// A libm may round log or exp as it likes. These use only +, -, *, / and sqrt, which IEEE 754
// rounds correctly, in a fixed order; the project is compiled without contraction into fused
// operations.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace arlab {

// Every double operation rounds to double (not so on x87).
static_assert(sizeof(double) == 8 && FLT_EVAL_METHOD == 0);

/// c[0] + c[1] * x + c[2] * x^2 + ..., by Horner's rule; from c[I] on. A recursion, since a loop in a
/// loop would not be vectorized.
template <std::size_t I = 0, std::size_t N>
constexpr double polynomial(const double (&c)[N], double x) {
  if constexpr (I + 1 == N) {
    return c[I];
  } else {
    return polynomial<I + 1>(c, x) * x + c[I];
  }
}

/// ln(x) for positive, normal, finite x; relative error below 1e-15.
///
/// x = 2^k * m with m in [sqrt(1/2), sqrt(2)), and with s = (m - 1) / (m + 1)
/// ln(m) = 2 artanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), where s^2 < 0.0295.
///
/// The second of the two parts of portable_log: the logarithm of x = 2^exponent m.
inline double portable_log_of(double m, double exponent) {
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: its product with k is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kSeries[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19};
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  const double rest = s * (square * polynomial(kSeries, square));
  return exponent * kLn2High + (2 * s + (rest + exponent * kLn2Low));
}
inline double portable_log(double x) {
  const auto bits = std::bit_cast<std::int64_t>(x);
  const std::int64_t k = (bits - std::bit_cast<std::int64_t>(0x1.6a09e667f3bcdp-1)) >> 52;
  return portable_log_of(std::bit_cast<double>(bits - (k << 52)), static_cast<double>(k));
}

/// 2^x for x in [-1022, 1023]; relative error below 1e-15.
///
/// x = n + f with f in [-1/2, 1/2], and 2^f = e^(f ln 2) by its Taylor series.
inline double portable_exp2(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kSeries[] = {1.0,
                                1.0,
                                1.0 / 2,
                                1.0 / 6,
                                1.0 / 24,
                                1.0 / 120,
                                1.0 / 720,
                                1.0 / 5040,
                                1.0 / 40320,
                                1.0 / 362880,
                                1.0 / 3628800,
                                1.0 / 39916800,
                                1.0 / 479001600,
                                1.0 / 6227020800};
  const double n = std::floor(x + 0.5);
  const double power = std::bit_cast<double>((static_cast<std::int64_t>(n) + 1023) << 52);
  return power * polynomial(kSeries, (x - n) * kLn2);
}

// The quantile of the standard normal: algorithm AS241, PPND16, of M. J. Wichura, "The percentage
// points of the normal distribution", Applied Statistics 37 (1988) 477-484; coefficients as there.
// Relative error about 1e-15.

// How far from the median, in probability, the formula for the centre holds.
inline constexpr double kNormalCentre = 0.425;

/// The quantile at 1/2 + q for |q| <= kNormalCentre.
inline double normal_quantile_centre(double q) {
  constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                           1.9715909503065514427e+3, 1.3731693765509461125e+4,
                           4.5921953931549871457e+4, 6.7265770927008700853e+4,
                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kB[] = {1.0,
                           4.2313330701600911252e+1,
                           6.8718700749205790830e+2,
                           5.3941960214247511077e+3,
                           2.1213794301586595867e+4,
                           3.9307895800092710610e+4,
                           2.8729085735721942674e+4,
                           5.2264952788528545610e+3};
  const double r = 0.180625 - q * q;
  return q * polynomial(kA, r) / polynomial(kB, r);
}

// The x > 0 that a standard normal exceeds with probability p, for p in [2^-54, 1/2 - 0.425), from
// r = sqrt(-ln p): by one formula up to kNormalNearTail, by another above it.
inline constexpr double kNormalNearTail = 5;

inline double normal_quantile_near_tail(double r) {
  constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                           5.76949722146069140550e0,  3.64784832476320460504e0,
                           1.27045825245236838258e0,  2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1.0,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  return polynomial(kC, r - 1.6) / polynomial(kD, r - 1.6);
}
inline double normal_quantile_far_tail(double r) {
  constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                           1.78482653991729133580e0,  2.96560571828504891230e-1,
                           2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1.0,
                           5.99832206555887937690e-1,
                           1.36929880922735805310e-1,
                           1.48753612908506148525e-2,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  return polynomial(kE, r - 5) / polynomial(kF, r - 5);
}
inline double normal_quantile_tail(double p) {
  const double r = std::sqrt(-portable_log(p));
  return r <= kNormalNearTail ? normal_quantile_near_tail(r) : normal_quantile_far_tail(r);
}

/// The quantile at 1/2 + q for q in (-1/2, 1/2), 2^-54 away from the ends.
inline double normal_quantile(double q) {
  const double distance = std::abs(q);
  if (distance <= kNormalCentre) return normal_quantile_centre(q);
  return std::copysign(normal_quantile_tail(0.5 - distance), q);
}

}  // namespace arlab
