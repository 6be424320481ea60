#include "kernels/platform/launch.h"
#include "kernels/schedule/run.h"
#include "kernels/schedule/run_two_pass.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    two_pass_program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call,
                            ARLAB_KERNEL_PARAMETER Codec codec) {
  run_two_pass<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_two_pass_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    launch_blocks(two_pass_program_kernel<Codec, Element>, dim3(static_cast<unsigned>(call.blocks)),
                  stream, call, c);
  });
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
