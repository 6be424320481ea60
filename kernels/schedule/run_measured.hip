#include "kernels/platform/launch.h"
#include "kernels/schedule/run.h"
#include "kernels/schedule/run_measured.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    measured_program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call,
                            ARLAB_KERNEL_PARAMETER Codec codec) {
  run_measured<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_measured_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  (void)with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    static_assert(DeviceCodec<Codec, Element>);
    launch_pdl(measured_program_kernel<Codec, Element>, static_cast<unsigned>(call.blocks), stream,
               call, c);
  });
  return hipGetLastError();
}

std::optional<Tuning> measured_tuning(const CodecChoice& codec, DType dtype) {
  std::optional<Tuning> tuning;
  (void)with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec&, Element) {
    tuning = Codec::kTuning;
  });
  return tuning;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
