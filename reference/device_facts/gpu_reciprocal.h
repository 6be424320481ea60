// The approximate reciprocal and division of NVIDIA GPUs, bit for bit: rcp.approx.f32 and div.full.f32, by which kernels in
// Triton divide. reference/codecs/SPEC.md, "Scaled blocks as other kernels make them (-flashinfer, -torchft, -vllm)".
//
// The reciprocal of a mantissa is a quadratic in the lower 16 bits of it, of which each of 128 intervals has its own, in
// integers, truncated; the square leaves out partial products of weight 2^16 and less. The coefficients are the only ones of
// this form that give what an H200 gives for all 2^23 mantissas, and tests/formats compares with a hash of those.
#pragma once

#include <cstdint>

namespace arlab {

/// 1 / value as NVIDIA GPUs approximate it: a number of 25 bits, within one unit in the last place of an fp32 number. It is a
/// double, so that it has no range to leave: GPUs scale operands of a division first. 0 gives an infinity, and an infinity 0.
double gpu_reciprocal(float value);

/// a / b as div.full.f32 has it: a times the reciprocal, rounded once.
inline float gpu_divide(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * gpu_reciprocal(b));
}

}  // namespace arlab
