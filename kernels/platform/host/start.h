// Starts kernels of emulated GPUs, which are compiled ahead (runtime/start.h).
#pragma once

#include <tuple>
#include <utility>

#include "kernels/codecs/choice.h"
#include "kernels/codecs/codec_alone.h"
#include "kernels/compile/unit.h"
#include "kernels/schedule/run_program.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A kernel to be started, with pointers to its arguments but for the codec.
struct HostLaunch {
  const Kernel& kernel;
  const CodecChoice* codec;
  DType dtype;
  dim3 blocks;
  hipStream_t stream;
  void** arguments;
};
/// By the instance of the kernel's form.
hipError_t start_instance(const HostLaunch& launch);

template <class... Arguments>
hipError_t start_of(const Kernel& kernel, const CodecChoice* codec, DType dtype, dim3 blocks,
                    hipStream_t stream, const Arguments&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return start_instance({kernel, codec, dtype, blocks, stream, pointers});
}
template <class... Arguments>
hipError_t start(const Kernel& kernel, dim3 blocks, hipStream_t stream,
                 const Arguments&... arguments) {
  return start_of(kernel, nullptr, DType::fp32, blocks, stream, arguments...);
}
template <class... Arguments>
hipError_t start_of_codec(const Kernel& kernel, const CodecChoice& codec, DType dtype, dim3 blocks,
                          hipStream_t stream, const Arguments&... arguments) {
  return start_of(kernel, &codec, dtype, blocks, stream, arguments...);
}
template <class... Arguments>
hipError_t start_of_message_scale(const Kernel& kernel, const CodecChoice& codec, DType dtype,
                                  dim3 blocks, hipStream_t stream, const Arguments&... arguments) {
  return start_of(kernel, &codec, dtype, blocks, stream, arguments...);
}

// ---------------------------------------------------------------- a device codec by its type

inline dim3 blocks_for(std::size_t elements) {
  return dim3(static_cast<unsigned>((elements + kTile - 1) / kTile));
}

template <class Codec, class Element>
void launch_encode_of(const Codec& codec, Element, const void* payload, std::size_t elements,
                      std::uint8_t* wire, const EncodeContext& context, hipStream_t stream) {
  emulator::launch(encode_alone<Codec, Element>, blocks_for(elements), dim3(kThreads), stream,
                   codec, static_cast<const typename Element::Bits*>(payload), elements, wire,
                   context);
}
template <class Codec, class Element>
void launch_decode_of(const Codec& codec, Element, const std::uint8_t* wire, std::size_t elements,
                      void* payload, hipStream_t stream) {
  emulator::launch(decode_alone<Codec, Element>, blocks_for(elements), dim3(kThreads), stream,
                   codec, wire, elements, static_cast<typename Element::Bits*>(payload));
}
template <class Codec, class Element>
void launch_decode_add_of(const Codec& codec, Element, const std::uint8_t* wire,
                          std::size_t elements, void* sum, hipStream_t stream) {
  emulator::launch(decode_add_alone<Codec, Element>, blocks_for(elements), dim3(kThreads), stream,
                   codec, wire, elements, static_cast<typename Element::Bits*>(sum));
}
template <class Codec, class Element>
void launch_program_of(const Codec& codec, Element, const ProgramCall& call, hipStream_t stream) {
  emulator::launch(run_program<Codec, Element>, dim3(static_cast<unsigned>(call.blocks)),
                   dim3(kThreads), stream, call, codec);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
