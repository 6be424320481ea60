#include "kernels/schedule/program_kernel.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

__global__ void count_call_kernel(std::uint32_t* calls) { count_call(calls); }

}  // namespace

hipError_t launch_count_call(std::uint32_t* calls, hipStream_t stream) {
  launch_blocks(count_call_kernel, dim3(1), stream, calls);
  return hipGetLastError();
}

hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream) {
  if (needs_statistics(codec)) return launch_two_pass_program(call, codec, dtype, stream);
  if (const FormatKernels* format = format_kernels(codec)) return format->run(call, dtype, stream);
  return with_codec(codec, dtype, [&](const auto& device_codec, auto element) {
    launch_program_of(device_codec, element, call, stream);
  });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
