// Starts kernels of the store (runtime/start.h). What a codec that the host knows as a type holds is its kernel's last argument.
#pragma once

#include <string>
#include <string_view>

#include "kernels/compile/codec_text.h"
#include "kernels/compile/store.h"
#include "kernels/schedule/program_call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class... Arguments>
hipError_t start_of_codec(const Kernel& kernel, const CodecChoice& codec, DType dtype, dim3 blocks,
                          hipStream_t stream, const Arguments&... arguments) {
  return start(
      kernel, *codec.loaded, [&] { return text_of(codec, dtype); }, blocks, stream, arguments...);
}
template <class... Arguments>
hipError_t start_of_message_scale(const Kernel& kernel, const CodecChoice& codec, DType,
                                  dim3 blocks, hipStream_t stream, const Arguments&... arguments) {
  return start(
      kernel, *codec.loaded, [&] { return text_of_message_scale(codec); }, blocks, stream,
      arguments...);
}

/// The type's name, as C++ spells it.
template <class T>
std::string type_text() {
  const std::string_view function = __PRETTY_FUNCTION__;  // ... [with T = name; ...], or [T = name]
  const std::size_t begin = function.find("T = ") + 4;
  return std::string(function.substr(begin, function.find_first_of(";]", begin) - begin));
}

template <class Codec, class Element, class... Arguments>
void start_of_type(const KernelForm& form, const Codec& codec, Element, dim3 blocks,
                   hipStream_t stream, const Arguments&... arguments) {
  static LoadedKernels loaded;
  static const std::string element = type_text<Element>();
  (void)start(
      {form, element}, loaded, [] { return CodecText{type_text<Codec>(), ""}; }, blocks, stream,
      arguments..., codec);  // callers ask for the last error
}

inline dim3 blocks_for(std::size_t elements) {
  return dim3(static_cast<unsigned>((elements + kTile - 1) / kTile));
}

template <class Codec, class Element>
void launch_encode_of(const Codec& codec, Element element, const void* payload,
                      std::size_t elements, std::uint8_t* wire, const EncodeContext& context,
                      hipStream_t stream) {
  start_of_type(forms::kEncode, codec, element, blocks_for(elements), stream, payload, elements,
                wire, context);
}
template <class Codec, class Element>
void launch_decode_of(const Codec& codec, Element element, const std::uint8_t* wire,
                      std::size_t elements, void* payload, hipStream_t stream) {
  start_of_type(forms::kDecode, codec, element, blocks_for(elements), stream, wire, elements,
                payload);
}
template <class Codec, class Element>
void launch_decode_add_of(const Codec& codec, Element element, const std::uint8_t* wire,
                          std::size_t elements, void* sum, hipStream_t stream) {
  start_of_type(forms::kDecodeAdd, codec, element, blocks_for(elements), stream, wire, elements,
                sum);
}
template <class Codec, class Element>
void launch_program_of(const Codec& codec, Element element, const ProgramCall& call,
                       hipStream_t stream) {
  start_of_type(forms::kProgram, codec, element, dim3(static_cast<unsigned>(call.blocks)), stream,
                call);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
