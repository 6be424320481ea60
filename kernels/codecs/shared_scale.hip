#include <memory>

#include "kernels/codecs/kernels_of_format.h"
#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/codecs/sums_of_codes.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Element>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(SharedIntegers format, const typename Element::Bits* input, std::size_t elements,
                   std::uint32_t* largest) {
  measure_largest<Element>(format, input, elements, largest);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    encode_tensor_kernel(SharedIntegers format, std::int32_t limit,
                         const typename Element::Bits* input, std::size_t elements,
                         const float* largest, typename CodesOf<Element>::Bits* codes) {
  encode_codes<Element>(format, limit, input, elements, largest, codes);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    decode_tensor_kernel(SharedIntegers format, std::int32_t limit, void* tensor,
                         std::size_t elements, const float* largest) {
  decode_codes<Element>(format, limit, tensor, elements, largest);
}

class SharedScaleKernels final : public ProgramKernels<SharedAlone, SharedIntegers>,
                                 public SumsOfCodes {
 public:
  explicit SharedScaleKernels(const SharedIntegers& format)
      : ProgramKernels<SharedAlone, SharedIntegers>(format), format_(format) {}

  const SumsOfCodes* sums_of_codes() const override { return this; }
  SharedIntegers format() const override { return format_; }

  hipError_t measure(DType dtype, const void* input, std::size_t elements, float* largest,
                     hipStream_t stream) const override {
    return of_dtype(dtype, [&]<class Element>(Element) {
      launch_blocks(measure_kernel<Element>, blocks_for(elements), stream, format_,
                    static_cast<const typename Element::Bits*>(input), elements,
                    reinterpret_cast<std::uint32_t*>(largest));
    });
  }
  Tuning tuning_of_agreement() const override { return Plain<Maximum>::kTuning; }
  hipError_t agree(const ProgramCall& call, hipStream_t stream) const override {
    launch_program_of(Plain<Maximum>(), Maximum(), call, stream);
    return hipGetLastError();
  }
  hipError_t encode_tensor(DType dtype, const void* input, std::size_t elements,
                           const float* largest, int ranks, void* codes,
                           hipStream_t stream) const override {
    return of_dtype(dtype, [&]<class Element>(Element) {
      launch_blocks(encode_tensor_kernel<Element>, blocks_for(elements), stream, format_,
                    limit(ranks), static_cast<const typename Element::Bits*>(input), elements,
                    largest, static_cast<typename CodesOf<Element>::Bits*>(codes));
    });
  }
  hipError_t add(const ProgramCall& call, DType dtype, hipStream_t stream) const override {
    if (size_of(dtype) == 2) {
      launch_program_of(SharedCodes<Codes16>(format_), Codes16(), call, stream);
    } else {
      launch_program_of(SharedCodes<Codes32>(format_), Codes32(), call, stream);
    }
    return hipGetLastError();
  }
  hipError_t decode_tensor(DType dtype, void* codes, std::size_t elements, const float* largest,
                           int ranks, hipStream_t stream) const override {
    return of_dtype(dtype, [&]<class Element>(Element) {
      launch_blocks(decode_tensor_kernel<Element>, blocks_for(elements), stream, format_,
                    limit(ranks), codes, elements, largest);
    });
  }

 private:
  std::int32_t limit(int ranks) const { return format_.limit(static_cast<std::uint32_t>(ranks)); }
  template <class F>
  static hipError_t of_dtype(DType dtype, F f) {
    if (dtype == DType::fp16) f(Fp16());
    if (dtype == DType::bf16) f(Bf16());
    if (dtype == DType::fp32) f(Fp32());
    return hipGetLastError();
  }

  SharedIntegers format_;
};

}  // namespace

FormatChoice shared_scale_kernels(std::string_view name) {
  const std::optional<SharedIntegers> format = parse_shared_integers(name);
  if (!format || format->group == 0 || format->group > 256) return nullptr;
  return std::make_shared<SharedScaleKernels>(*format);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
