// Makes the kernels of a format: to be included where they are compiled, and nowhere else.
#pragma once

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/scaled.h"
#include "reference/codecs/scaled_codec.h"

#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/launches_of_codec.h"
#else
#include "kernels/codecs/codec_kernels_of.h"
#include "kernels/schedule/program_kernel.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Programs are all that there is, of a device codec that is made of its parameters.
template <template <class> class Device, class Parameters>
class ProgramKernels : public FormatKernels {
 public:
  explicit ProgramKernels(const Parameters& parameters) : parameters_(parameters) {}

  Tuning tuning() const override { return Device<Fp16>::kTuning; }

  hipError_t encode(DType dtype, const void* payload, std::size_t elements, std::uint8_t* wire,
                    const EncodeContext& context, hipStream_t stream) const override {
    return with_dtype(dtype, [&](const auto& codec, auto element) {
      launch_encode_of(codec, element, payload, elements, wire, context, stream);
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
  template <class F>
  hipError_t with_dtype(DType dtype, F f) const {
    with_parameters<Device>(parameters_, dtype, f);
    return hipGetLastError();
  }

  Parameters parameters_;
};

/// The device codecs of a format.
template <class Format>
struct DevicesOf {
  template <class Element>
  using Nearest = Scaled<Format, Element, false>;
  template <class Element>
  using Stochastic = StochasticScaled<Format, Element, false>;
};

/// The kernels of a format's codec of this name that rounds stochastically; null when it is no such codec.
template <NamedFormat Format>
FormatChoice stochastic_kernels_of_format(std::string_view name) {
  if constexpr (StochasticFormat<Format>) {
    const std::optional<Format> format = Format::parse(name);
    if (format && format->stochastic) {
      return std::make_shared<ProgramKernels<DevicesOf<Format>::template Stochastic, Format>>(
          *format);
    }
  }
  return nullptr;
}

/// The kernels of a format's codec of this name; null when the format has none.
template <NamedFormat Format>
FormatChoice kernels_of_format(std::string_view name) {
  if (FormatChoice kernels = stochastic_kernels_of_format<Format>(name)) return kernels;
  const std::optional<Format> format = Format::parse(name);
  if (!format) return nullptr;
  return std::make_shared<ProgramKernels<DevicesOf<Format>::template Nearest, Format>>(*format);
}

/// Makes a format known that only this program has, to the reference and to kernels. Throws
/// InvalidInput when a name is taken.
template <NamedFormat Format>
void register_format() {
  register_codec_family(scaled_codecs<Format>());
  register_format_kernels(kernels_of_format<Format>);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
