// Arrays of fp16, converted and added by vector instructions, with the bits of Fp16Arithmetic.
//
// These stand here because compilers differ: GCC 12 makes vectors of a loop over the scalar
// conversions, GCC 14 does not.
#pragma once

#include <cstdint>
#include <span>

namespace arlab {

/// The exact value of each element. `out` has room for as many; a NaN is made quiet.
void floats_of_halves(std::span<const std::uint16_t> halves, float* out);
void doubles_of_halves(std::span<const std::uint16_t> halves, double* out);

/// Each value rounded to the nearest fp16, ties to even; a NaN becomes the canonical one. With `clamp`,
/// finite values that overflow become +-65504 instead of infinity.
void halves_of_floats(std::span<const float> values, bool clamp, std::uint16_t* out);

/// sum[i] + addend[i] in fp32, rounded as halves_of_floats() does. Both have the same length.
void add_halves(std::span<std::uint16_t> sum, std::span<const std::uint16_t> addend, bool clamp);
/// The same in fp32, without the last rounding; a NaN becomes the canonical one.
void add_halves(std::span<float> sum, std::span<const std::uint16_t> addend);

/// Highway's name of the instructions that these functions run on this processor; empty if scalar.
const char* target_of_halves();

}  // namespace arlab
