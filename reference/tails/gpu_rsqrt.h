// The approximate 1 / sqrt of NVIDIA GPUs, bit for bit: rsqrt.approx.f32, which CUDA's rsqrtf and PyTorch's rsqrt are.
//
// It is a quadratic in the lower 17 bits of a mantissa, of which each of 64 intervals has its own for either parity of the exponent, in
// integers, truncated. Slopes and curvatures are the only ones of this form that give what an H200 gives for all 2^24 numbers
// from 1 to 4; tests/tails compares with the SHA-256 of those. reference/tails/SPEC.md, "1 / sqrt of an H200".
#pragma once

namespace arlab {

/// 1 / sqrt(value) as an H200 approximates it. 0 gives an infinity, an infinity 0, and what is negative NaN.
float gpu_rsqrt(float value);

}  // namespace arlab
