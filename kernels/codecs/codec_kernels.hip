#include "kernels/codecs/codec_kernels.h"
#include "kernels/codecs/codec_kernels_of.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

hipError_t launch_encode(const CodecChoice& codec, DType dtype, const void* payload,
                         std::size_t elements, std::uint8_t* wire, const EncodeContext& context,
                         Statistics* statistics, hipStream_t stream) {
  if (needs_statistics(codec)) {
    return encode_in_two_passes(codec, dtype, payload, elements, wire, statistics, stream);
  }
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->encode(dtype, payload, elements, wire, context, stream);
  }
  return with_codec(codec, dtype, [&](const auto& device_codec, auto element) {
    launch_encode_of(device_codec, element, payload, elements, wire, context, stream);
  });
}

hipError_t launch_decode(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                         std::size_t elements, void* payload, hipStream_t stream) {
  if (needs_statistics(codec)) {
    return decode_two_pass(codec, dtype, wire, elements, payload, false, stream);
  }
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->decode(dtype, wire, elements, payload, stream);
  }
  return with_codec(codec, dtype, [&](const auto& device_codec, auto element) {
    launch_decode_of(device_codec, element, wire, elements, payload, stream);
  });
}

hipError_t launch_decode_add(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                             std::size_t elements, void* sum, hipStream_t stream) {
  if (needs_statistics(codec)) {
    return decode_two_pass(codec, dtype, wire, elements, sum, true, stream);
  }
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->decode_add(dtype, wire, elements, sum, stream);
  }
  return with_codec(codec, dtype, [&](const auto& device_codec, auto element) {
    launch_decode_add_of(device_codec, element, wire, elements, sum, stream);
  });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
