// Synthetic payloads: made from a short text, with the same bits on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "reference/tensors/tensor.h"

namespace arlab {

/// One "name=value" of a distribution.
struct SyntheticParameter {
  enum class Kind {
    integer,
    number,
    amplitude,  // a number that must also be finite in the payload's dtype
  };

  std::string_view name;
  std::string_view default_value;  // as one would write it
  Kind kind;
  double low;  // the smallest and largest value allowed, both included
  double high;
  std::string_view description;
};

struct SyntheticDistribution {
  std::string_view name;
  std::string_view description;
  std::vector<SyntheticParameter> parameters;
};

/// Every distribution that make_synthetic knows.
std::vector<SyntheticDistribution> list_synthetic();

/// A tensor of shape [ranks, elements] from a spec such as "gaussian", "gaussian:sigma=2,seed=7" or
/// "student-t:nu=3"; parameters that are not named have the defaults of list_synthetic().
///
/// Element i of rank r depends on the spec, the dtype, r and i only: not on how many ranks and
/// elements there are, on the number of threads or on the machine. (`sweep` is the exception: its
/// amplitudes span the payload, so they depend on `elements`.) Ranks differ, but for `constant`.
///
/// A value is computed in double, clamped to the finite range of the dtype, rounded to fp32 and
/// from there to the dtype. The fp32 value is thus the definition, and the fp16 and bf16 payloads
/// of a spec are its RN. Only `adversarial` and `patterns`, which make bit patterns of the dtype,
/// hold infinities and NaNs.
///
/// Throws InvalidInput for an unknown distribution or parameter, a value that is not allowed, and
/// for no ranks or no elements; the message lists what is allowed.
Tensor make_synthetic(std::string_view spec, DType dtype, std::size_t ranks, std::size_t elements);

}  // namespace arlab
