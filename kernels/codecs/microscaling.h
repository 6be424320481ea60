// OCP microscaling: mxfp8-e4m3, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4, each with a rule for its
// scale. They are defined by reference/codecs/SPEC.md, "Microscaling (mx*)".
//
// A block of 32 is four lanes. The element format is a value, not a type: one kernel serves all.
#pragma once

#include "kernels/codecs/groups.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/minifloat.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

enum class ScaleRule { floor, ceil, even };

struct MicroscalingParameters {
  Minifloat element = {};
  int emax = 0;  ///< exponent of the element format's largest value
  ScaleRule rule = ScaleRule::floor;
};

/// The code of the nearest value, ties to even, saturating; of a finite value.
ARLAB_DEVICE std::uint32_t encode_minifloat(const Minifloat& f, float value) {
  const std::uint32_t magnitude = float_bits(value) & 0x7FFFFFFFu;
  // Where fp32's exponent is below the format's least, all codes share one spacing.
  const int least = 128 - f.bias;
  const int own = static_cast<int>(magnitude >> 23);
  const std::uint32_t significand = (magnitude & 0x7FFFFFu) | (own == 0 ? 0u : 1u << 23);
  const int exponent = own > least ? own : least;
  const int distance = 23 - f.mantissa_bits + exponent - own;
  const int shift = distance < 25 ? distance : 25;
  const std::uint32_t odd = significand >> shift & 1;
  const std::uint32_t rounded = (significand + (1u << (shift - 1)) - 1 + odd) >> shift;
  const std::uint32_t code =
      (static_cast<std::uint32_t>(exponent - least) << f.mantissa_bits) + rounded;
  const std::uint32_t sign = float_bits(value) >> 31 != 0 ? f.sign_bit() : 0;
  return sign | (code < f.max_finite() ? code : f.max_finite());
}

/// The exact value of a code, foreign infinities and NaNs included.
ARLAB_DEVICE float decode_minifloat(const Minifloat& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & (f.sign_bit() - 1);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const std::uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const std::uint32_t significand = mantissa | (exponent == 0 ? 0u : 1u << f.mantissa_bits);
  const int power = (exponent > 1 ? exponent : 1) - f.bias - f.mantissa_bits;
  float value =
      static_cast<float>(significand) * float_of(static_cast<std::uint32_t>(power + 127) << 23);
  if (magnitude > f.max_finite()) value = kInfinity32;
  if (f.is_nan(code)) value = float_of(kNanBits);
  return (code & f.sign_bit()) != 0 ? -value : value;
}

template <class Number>
struct Microscaling : MicroscalingParameters {
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;
  static constexpr std::size_t kBlock = 32;
  static constexpr int kLanes = 4;

  struct Encoded {
    Codes8 codes;
    std::uint8_t scale = 0;
  };

  ARLAB_HOST_DEVICE explicit Microscaling(const MicroscalingParameters& parameters)
      : MicroscalingParameters(parameters) {}

  ARLAB_HOST_DEVICE unsigned bits() const {
    return static_cast<unsigned>(1 + element.exponent_bits + element.mantissa_bits);
  }
  ARLAB_HOST_DEVICE std::size_t chunk_bytes(std::size_t elements) const {
    return bytes_of_planes(elements, bits()) + (elements + kBlock - 1) / kBlock;
  }
  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    const std::size_t rest = elements % WireChunk::kElements;
    return elements / WireChunk::kElements * chunk_bytes(WireChunk::kElements) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  ARLAB_DEVICE Encoded encode(const Eight<Number>& payload, Position at) const {
    const Floats8 x = to_floats(payload);
    const bool finite = group_is_finite(x, at.count(), kLanes);
    float amax = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) amax = max_of(amax, magnitude_of(x.value[i]));
    amax = combine_lanes(amax, kLanes, [](float a, float b) { return max_of(a, b); });
    Encoded e;
    if (!finite) e.scale = kE8m0Nan;
    if (!finite || amax == 0) return e;
    e.scale = e8m0_from_exponent(shared_exponent(amax));
    const float scale = e8m0_to_float(e.scale);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      e.codes.set(i, encode_minifloat(element, x.value[i] / scale));
    }
    return e;
  }

  ARLAB_DEVICE Eight<Number> decode(const Encoded& e, Position) const {
    const float scale = e8m0_to_float(e.scale);
    Floats8 x;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      x.value[i] = decode_minifloat(element, e.codes[i]) * scale;
    }
    return from_floats<Number>(x);
  }

  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if (at.count() == 0) return;
    const WireChunk chunk = chunk_of(wire, at, chunk_bytes(WireChunk::kElements));
    store_planes(e.codes, bits(), chunk.planes, chunk.elements, chunk.first, at.count());
    if (chunk.first % kBlock != 0) return;
    chunk.planes[bytes_of_planes(chunk.elements, bits()) + chunk.first / kBlock] = e.scale;
  }

  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    Encoded e;
    if (at.count() == 0) return e;
    const WireChunk chunk =
        chunk_of(const_cast<std::uint8_t*>(wire), at, chunk_bytes(WireChunk::kElements));
    e.codes = load_planes(bits(), chunk.planes, chunk.elements, chunk.first, at.count());
    e.scale = chunk.planes[bytes_of_planes(chunk.elements, bits()) + chunk.first / kBlock];
    return e;
  }

 private:
  ARLAB_DEVICE int shared_exponent(float amax) const {
    const std::uint32_t amax_bits = float_bits(amax);
    const bool subnormal = amax_bits >> 23 == 0;
    const int exponent = floor_log2(amax);
    if (rule == ScaleRule::ceil) {
      const bool power_of_two =
          subnormal ? (amax_bits & (amax_bits - 1)) == 0 : (amax_bits & 0x7FFFFFu) == 0;
      return exponent + (power_of_two ? 0 : 1) - emax;
    }
    if (rule == ScaleRule::even && !subnormal) {
      // Half a unit of the last kept mantissa bit carries into the exponent where amax rounds up.
      const std::uint32_t half = 1u << (23 - element.mantissa_bits - 1);
      return static_cast<int>((amax_bits + half) >> 23) - 127 - emax;
    }
    return exponent - emax;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
