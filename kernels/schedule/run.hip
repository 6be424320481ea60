#include "kernels/schedule/program_kernel.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream) {
  if (const FormatKernels* format = format_kernels(codec)) return format->run(call, dtype, stream);
  return with_codec(codec, dtype, [&](const auto& device_codec, auto element) {
    launch_program_of(device_codec, element, call, stream);
  });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
