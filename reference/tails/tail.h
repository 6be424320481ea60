// Tails behind all-reduces in a model, as data: a residual is added, the sum is normalized, and what comes out is quantized
// for the next matrix product. Which bits that gives: reference/tails/SPEC.md, "What is computed".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/dtype.h"
#include "reference/field.h"

namespace arlab {

/// Where a tail rounds, and what it does in which order: in what fused kernels differ.
struct TailRounding {
  bool keeps_sum = false;  ///< the all-reduce's sum stays fp32; else it has the payload's dtype
  bool keeps_residual = false;  ///< the norm's input stays fp32; else it has the payload's dtype
  bool rounds_scaled =
      false;  ///< only squares are made of an fp32 input, and scaled numbers are rounded
  enum class Root : std::uint8_t {
    divide,      ///< x / sqrt(m)
    reciprocal,  ///< x * (1 / sqrt(m))
    rsqrt,       ///< x * rsqrt(m), as an H200 approximates it
  } root = Root::divide;
  enum class Weight : std::uint8_t {
    twice,  ///< the normalized value is rounded, then its product with the weight
    once,   ///< (x * root) * weight is rounded
    first,  ///< (x * weight) * root is rounded
  } weight = Weight::twice;
  std::uint32_t threads = 1024;  ///< those that add up squares, 8 elements each
  bool operator==(const TailRounding&) const = default;
};

struct Tail {
  std::uint32_t hidden = 0;  ///< elements of a row; 0: not known yet
  bool adds_residual = false;
  bool normalizes = false;
  bool has_offset = false;  ///< weights are stored without 1, as Gemma's
  float eps = 1e-6F;
  std::string output = {};  ///< the codec that what comes out is encoded with; empty: none
  TailRounding rounding = {};
  bool operator==(const Tail&) const = default;
};

/// The keys of a text, with what each allows.
const std::vector<Field>& tail_fields();

/// "residual=add,norm=rms,eps=1e-5,out=int8-g128,rounding=vllm". Throws InvalidInput for anything else, and for what changes nothing.
Tail parse_tail(std::string_view text);

/// The text of a tail: what differs from the default, and the rounding by its name where it has one.
std::string name_of(const Tail& tail);

/// Rows as a tail makes them.
struct TailResult {
  std::vector<std::byte> residual;    ///< in the payload's dtype; empty where there is none
  std::vector<std::byte> normalized;  ///< likewise: what comes out, before it is quantized
  std::vector<std::byte> wire;        ///< in the output's codec; empty where there is none
  std::vector<std::byte> quantized;   ///< the wire's values, in the payload's dtype
};

/// Applies a tail to whole rows. `sums` are fp32: of the dtype's values unless the rounding keeps them. `residual` has as many
/// elements of the dtype, `weight` a row of them; empty where the tail has none. The result does not depend on `threads` (0: all).
/// Throws InvalidInput where sizes do not fit, and where a row ends within a block of the output's codec.
TailResult run_tail(const Tail& tail, DType dtype, std::span<const float> sums,
                    std::span<const std::byte> residual, std::span<const std::byte> weight,
                    unsigned threads = 0);

/// Divisor or factor of elements: q of SPEC.md, "What is computed", or 1 / q. `mean` has eps.
float root_of(const TailRounding& rounding, float mean);

/// An element that is normalized: y of SPEC.md, "What is computed", before it is rounded to the dtype. Without a weight, null.
float normalized_of(const TailRounding& rounding, DType dtype, float z, const float* weight,
                    float root);

/// The roundings that have names, in the order of SPEC.md, "Roundings by name".
struct NamedRounding {
  std::string name;
  TailRounding rounding;
};
const std::vector<NamedRounding>& named_roundings();
/// The codec of a tail's output; null where it has none. Throws InvalidInput where a row ends within a block of it.
CodecPtr find_output_codec(const Tail& tail);

/// The sum of squares of a row, in the order that all roundings share: SPEC.md, "Squares".
float sum_of_squares(std::span<const float> row, std::uint32_t threads);

/// The exact result of a tail, in float64, of exact sums: what is normalized, and what comes out.
struct ExactTail {
  std::vector<double> residual;
  std::vector<double> normalized;
};
ExactTail exact_tail(const Tail& tail, DType dtype, std::span<const double> sums,
                     std::span<const std::byte> residual, std::span<const std::byte> weight);

}  // namespace arlab
