// The kernels of shared_scale.h, for the host.
#pragma once

#include "kernels/codecs/format_kernels.h"
#include "reference/codecs/formats/shared_integers.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The kernels that an all-reduce of codes is made of. `largest` has a number for each group of the tensor.
class SumsOfCodes {
 public:
  virtual ~SumsOfCodes() = default;
  virtual SharedIntegers format() const = 0;
  virtual hipError_t measure(DType dtype, const void* input, std::size_t elements, float* largest,
                             hipStream_t stream) const = 0;
  virtual Tuning tuning_of_agreement() const = 0;
  /// Runs a program whose elements are what was measured.
  virtual hipError_t agree(const ProgramCall& call, hipStream_t stream) const = 0;
  virtual hipError_t encode_tensor(DType dtype, const void* input, std::size_t elements,
                                   const float* largest, int ranks, void* codes,
                                   hipStream_t stream) const = 0;
  /// Runs a program whose elements are codes.
  virtual hipError_t add(const ProgramCall& call, DType dtype, hipStream_t stream) const = 0;
  /// In place.
  virtual hipError_t decode_tensor(DType dtype, void* codes, std::size_t elements,
                                   const float* largest, int ranks, hipStream_t stream) const = 0;
};

/// Null for other codecs, and for groups that are no lanes of a wave.
FormatChoice shared_scale_kernels(std::string_view name);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
