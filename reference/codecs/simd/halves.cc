#include "reference/codecs/simd/halves.h"

#include "reference/codecs/simd/targets.h"
#include "reference/formats/with_arithmetic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/halves.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "hwy/highway.h"
#include "reference/codecs/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

// Whole vectors where there are any, then the elements that are left, one by one.

void to_floats(const std::uint16_t* halves, std::size_t count, float* out) {
  std::size_t i = 0;
#if ARLAB_HAS_LANES
  for (; i + kFloats <= count; i += kFloats) {
    hn::StoreU(HalfLanes::load(halves + i), F32(), out + i);
  }
#endif
  for (; i < count; ++i) out[i] = half_to_float(halves[i]);
}

void to_doubles(const std::uint16_t* halves, std::size_t count, double* out) {
  std::size_t i = 0;
#if ARLAB_HAS_LANES
  const hn::Repartition<double, F32> doubles;
  const hn::Half<F32> half;
  for (; i + kFloats <= count; i += kFloats) {
    const FloatVector x = HalfLanes::load(halves + i);
    hn::StoreU(hn::PromoteTo(doubles, hn::LowerHalf(half, x)), doubles, out + i);
    hn::StoreU(hn::PromoteTo(doubles, hn::UpperHalf(half, x)), doubles, out + i + kFloats / 2);
  }
#endif
  for (; i < count; ++i) out[i] = half_to_float(halves[i]);
}

#if ARLAB_HAS_LANES
template <bool kClamps>
HWY_INLINE void store(FloatVector x, std::uint16_t* to) {
  hn::StoreU(kClamps ? HalfLanes::round(x) : HalfLanes::from_float(canonical(x)), HalfU16(), to);
}
#endif

template <bool kClamps, class Scalar>
void from_floats(const float* values, std::size_t count, std::uint16_t* out) {
  std::size_t i = 0;
#if ARLAB_HAS_LANES
  for (; i + kFloats <= count; i += kFloats) store<kClamps>(hn::LoadU(F32(), values + i), out + i);
#endif
  for (; i < count; ++i) out[i] = Scalar::from_float(values[i]);
}

template <bool kClamps, class Scalar>
void add(std::uint16_t* sum, const std::uint16_t* addend, std::size_t count) {
  std::size_t i = 0;
#if ARLAB_HAS_LANES
  for (; i + kFloats <= count; i += kFloats) {
    store<kClamps>(hn::Add(HalfLanes::load(sum + i), HalfLanes::load(addend + i)), sum + i);
  }
#endif
  for (; i < count; ++i) {
    sum[i] = Scalar::from_float(half_to_float(sum[i]) + half_to_float(addend[i]));
  }
}

void add_to_floats(float* sum, const std::uint16_t* addend, std::size_t count) {
  std::size_t i = 0;
#if ARLAB_HAS_LANES
  for (; i + kFloats <= count; i += kFloats) {
    const FloatVector x = hn::Add(hn::LoadU(F32(), sum + i), HalfLanes::load(addend + i));
    hn::StoreU(canonical(x), F32(), sum + i);
  }
#endif
  for (; i < count; ++i) sum[i] = Fp32Arithmetic::from_float(sum[i] + half_to_float(addend[i]));
}

void from_floats_any(const float* values, std::size_t count, bool clamp, std::uint16_t* out) {
  return clamp ? from_floats<true, ClampedFp16>(values, count, out)
               : from_floats<false, Fp16Arithmetic>(values, count, out);
}
void add_any(std::uint16_t* sum, const std::uint16_t* addend, std::size_t count, bool clamp) {
  return clamp ? add<true, ClampedFp16>(sum, addend, count)
               : add<false, Fp16Arithmetic>(sum, addend, count);
}

const char* target() { return ARLAB_HAS_LANES ? hwy::TargetName(HWY_TARGET) : ""; }

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arlab {

HWY_EXPORT(to_floats);
HWY_EXPORT(to_doubles);
HWY_EXPORT(from_floats_any);
HWY_EXPORT(add_any);
HWY_EXPORT(add_to_floats);
HWY_EXPORT(target);

void floats_of_halves(std::span<const std::uint16_t> halves, float* out) {
  HWY_DYNAMIC_DISPATCH(to_floats)(halves.data(), halves.size(), out);
}
void doubles_of_halves(std::span<const std::uint16_t> halves, double* out) {
  HWY_DYNAMIC_DISPATCH(to_doubles)(halves.data(), halves.size(), out);
}
void halves_of_floats(std::span<const float> values, bool clamp, std::uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(from_floats_any)(values.data(), values.size(), clamp, out);
}
void add_halves(std::span<std::uint16_t> sum, std::span<const std::uint16_t> addend, bool clamp) {
  HWY_DYNAMIC_DISPATCH(add_any)(sum.data(), addend.data(), sum.size(), clamp);
}
void add_halves(std::span<float> sum, std::span<const std::uint16_t> addend) {
  HWY_DYNAMIC_DISPATCH(add_to_floats)(sum.data(), addend.data(), sum.size());
}
const char* target_of_halves() { return HWY_DYNAMIC_DISPATCH(target)(); }

}  // namespace arlab
#endif  // HWY_ONCE
