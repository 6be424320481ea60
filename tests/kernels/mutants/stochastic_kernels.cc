#include "kernels/codecs/anybit.h"
#include "kernels/codecs/kernels_of_format.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

FormatChoice stochastic_anybit_kernels(const AnyBitParameters& parameters) {
  return std::make_shared<ProgramKernels<StochasticAnyBit, AnyBitParameters>>(parameters);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
