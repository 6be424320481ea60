// Makes the kernels of a format: to be included where they are compiled, and nowhere else.
#pragma once

#include "kernels/codecs/codec_kernels_of.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/scaled.h"
#include "kernels/schedule/program_kernel.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Format>
class KernelsOfFormat final : public FormatKernels {
 public:
  explicit KernelsOfFormat(const Format& format) : format_(format) {}

  Tuning tuning() const override { return Device<Fp16>::kTuning; }

  hipError_t encode(DType dtype, const void* payload, std::size_t elements, std::uint8_t* wire,
                    hipStream_t stream) const override {
    return with_dtype(dtype, [&](const auto& codec, auto element) {
      launch_encode_of(codec, element, payload, elements, wire, stream);
    });
  }
  hipError_t decode(DType dtype, const std::uint8_t* wire, std::size_t elements, void* payload,
                    hipStream_t stream) const override {
    return with_dtype(dtype, [&](const auto& codec, auto element) {
      launch_decode_of(codec, element, wire, elements, payload, stream);
    });
  }
  hipError_t decode_add(DType dtype, const std::uint8_t* wire, std::size_t elements, void* sum,
                        hipStream_t stream) const override {
    return with_dtype(dtype, [&](const auto& codec, auto element) {
      launch_decode_add_of(codec, element, wire, elements, sum, stream);
    });
  }
  hipError_t run(const ProgramCall& call, DType dtype, hipStream_t stream) const override {
    return with_dtype(dtype, [&](const auto& codec, auto element) {
      launch_program_of(codec, element, call, stream);
    });
  }

 private:
  template <class Element>
  using Device = Scaled<Format, Element, false>;  // programs are all that there is
  template <class F>
  hipError_t with_dtype(DType dtype, F f) const {
    with_parameters<Device>(format_, dtype, f);
    return hipGetLastError();
  }

  Format format_;
};

/// The kernels of a format's codec of this name; null when the format has none.
template <ScaledFormat Format>
FormatChoice kernels_of_format(std::string_view name) {
  const std::optional<Format> format = Format::parse(name);
  return format ? std::make_shared<KernelsOfFormat<Format>>(*format) : nullptr;
}

/// Makes a format known that only this program has, to the reference and to kernels. Throws
/// InvalidInput when a name is taken.
template <ScaledFormat Format>
void register_format() {
  register_codec_family(scaled_codecs<Format>());
  register_format_kernels(kernels_of_format<Format>);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
