// log2_fp32 and exp2_fp32 (reference/formats/portable_log.h) with vectors: the same operations in
// the same order.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_PORTABLE_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_PORTABLE_LOG_INL_H_
#undef ARLAB_CODECS_SIMD_PORTABLE_LOG_INL_H_
#else
#define ARLAB_CODECS_SIMD_PORTABLE_LOG_INL_H_
#endif

#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

HWY_INLINE FloatVector floats_set(float value) { return hn::Set(F32(), value); }

/// x * (c[0] + y * (c[1] + y * ...)), each product and sum rounded.
template <std::size_t kCount>
HWY_INLINE FloatVector nested_product(FloatVector x, FloatVector y, const float (&c)[kCount]) {
  FloatVector sum = floats_set(c[kCount - 1]);
  for (std::size_t i = kCount - 1; i > 0; --i) {
    sum = hn::Add(floats_set(c[i - 1]), hn::Mul(y, sum));
  }
  return hn::Mul(x, sum);
}

/// log2 of positive finite values.
HWY_INLINE FloatVector log2_fp32(FloatVector x) {
  const auto is_subnormal = hn::Lt(hn::BitCast(I32(), x), hn::Set(I32(), 0x00800000));
  const FloatVector lifted = hn::Mul(x, floats_set(0x1p24f));
  const FloatVector normal = hn::IfThenElse(hn::RebindMask(F32(), is_subnormal), lifted, x);
  const Int32Vector lift = hn::IfThenElseZero(is_subnormal, hn::Set(I32(), -24));

  const Int32Vector sqrt_half = hn::Set(I32(), 0x3F3504F3);
  const Int32Vector above = hn::Sub(hn::BitCast(I32(), normal), sqrt_half);
  const Int32Vector exponent = hn::Add(lift, hn::ShiftRight<23>(above));
  const FloatVector m =
      hn::BitCast(F32(), hn::Add(hn::And(above, hn::Set(I32(), 0x007FFFFF)), sqrt_half));
  const FloatVector one = floats_set(1.0f);
  const FloatVector t = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const FloatVector series =
      nested_product(t, hn::Mul(t, t), {2.885390082f, 0.961796694f, 0.577078016f, 0.412198583f});
  return hn::Add(hn::ConvertTo(F32(), exponent), series);
}

/// y is whole + part, whole the nearest integer.
struct Exp2Parts {
  FloatVector sum;  // whole in the lowest bits
  FloatVector whole;
  FloatVector mantissa;  // 2^part, between 0.7 and 1.42
};
HWY_INLINE Exp2Parts exp2_parts(FloatVector y) {
  const FloatVector magic = floats_set(0x1.8p23f);
  const FloatVector sum = hn::Add(y, magic);
  const FloatVector whole = hn::Sub(sum, magic);
  const FloatVector f = hn::Mul(hn::Sub(y, whole), floats_set(0.693147181f));
  const FloatVector series = nested_product(
      f, f, {1.0f, 0.5f, 0.166666667f, 0.0416666667f, 0.00833333333f, 0.00138888889f});
  return {sum, whole, hn::Add(floats_set(1.0f), series)};
}

/// 2^y for any y, a NaN included.
HWY_INLINE FloatVector exp2_fp32(FloatVector y) {
  const Exp2Parts parts = exp2_parts(y);
  const Int32Vector exponent = nearest_int(parts.whole);
  // Division by 2 rounds towards 0.
  const Int32Vector is_negative =
      hn::BitCast(I32(), hn::ShiftRight<31>(hn::BitCast(U32(), exponent)));
  const Int32Vector half = hn::ShiftRight<1>(hn::Add(exponent, is_negative));
  const auto power = [](Int32Vector p) HWY_ATTR {
    return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(p, hn::Set(I32(), 127))));
  };
  FloatVector result =
      hn::Mul(hn::Mul(parts.mantissa, power(half)), power(hn::Sub(exponent, half)));
  result = hn::IfThenElseZero(hn::Ge(y, floats_set(-150.0f)), result);
  return hn::IfThenElse(hn::Ge(y, floats_set(128.0f)), hn::Inf(F32()), result);
}

/// For |y| <= kPlainExponent the multiplications by powers of two are exact: they only add to the
/// exponent.
inline constexpr float kPlainExponent = 120.0f;
HWY_INLINE FloatVector plain_exp2_fp32(FloatVector y) {
  const Exp2Parts parts = exp2_parts(y);
  return float_of(hn::Add(bits_of(parts.mantissa), hn::ShiftLeft<23>(bits_of(parts.sum))));
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
